//! Rows about many tasks on several nodes.

use std::time::{Duration, Instant};

use bireme::ObjectRef;

use super::super::Outcome;
use super::super::measure::{Pair, seconds};
use super::super::tasks::nothing;
use super::driver::{Driver, Order};
use super::nodes::Nodes;
use super::stage::{Measured, Stage};

/// CPUs of the nodes that differ: a node with four is four times as fast as one with one.
const UNEVEN_CPUS: [f64; 4] = [1.0, 2.0, 3.0, 4.0];
/// Shortest and longest task, in milliseconds.
const TASK_MS: [f64; 2] = [5.0, 80.0];

/// How many empty tasks per second through one node that is a process of its own?
pub(super) fn nodes_1(stage: &Stage) -> Outcome<Measured> {
    let nodes = Nodes::start(stage, &[1.0], None)?;
    let mut ours = submitters(stage, &nodes)?;
    let mut alone = vec![Driver::alone(stage, &nodes)?];
    compare(stage, &mut ours, &mut alone)
}

/// Through two, with a submitter on each?
pub(super) fn nodes_2(stage: &Stage) -> Outcome<Measured> {
    against_one(stage, 2)
}

/// Through four?
pub(super) fn nodes_4(stage: &Stage) -> Outcome<Measured> {
    against_one(stage, 4)
}

/// Through eight?
pub(super) fn nodes_8(stage: &Stage) -> Outcome<Measured> {
    against_one(stage, 8)
}

fn against_one(stage: &Stage, count: usize) -> Outcome<Measured> {
    let (many, one) = (Nodes::start(stage, &vec![1.0; count], None)?, Nodes::start(stage, &[1.0], None)?);
    let (mut ours, mut alone) = (submitters(stage, &many)?, submitters(stage, &one)?);
    compare(stage, &mut ours, &mut alone)
}

/// A driver at each node.
fn submitters<'a>(stage: &'a Stage, nodes: &'a Nodes) -> Outcome<Vec<Driver<'a>>> {
    (0..nodes.all().len()).map(|host| Driver::attach(stage, nodes, host)).collect()
}

/// The same total by both, in turns.
fn compare(stage: &Stage, ours: &mut [Driver<'_>], floor: &mut [Driver<'_>]) -> Outcome<Measured> {
    let total = stage.size(200_000, 800);
    rate(ours, total / 10)?;
    rate(floor, total / 10)?;
    let pairs = stage.measure(|_| Ok(Pair { ours: rate(ours, total)?, floor: rate(floor, total)? }))?;
    Ok(pairs.into())
}

/// Tasks per second of all submitters together, from the first order to the last answer.
fn rate(drivers: &mut [Driver<'_>], total: usize) -> Outcome<f64> {
    let count = total / drivers.len();
    let start = Instant::now();
    for driver in drivers.iter_mut() {
        driver.tell(&Order::Burst { count })?;
    }
    for driver in drivers.iter_mut() {
        driver.hear()?;
    }
    Ok((count * drivers.len()) as f64 / start.elapsed().as_secs_f64())
}

/// The driver's side: submit all, then get all.
pub(super) fn burst(count: usize) -> Outcome<Vec<f64>> {
    let results: Vec<ObjectRef<()>> = (0..count).map(|_| nothing::remote()).collect();
    bireme::get_all(&results)?;
    Ok(Vec::new())
}

/// How long do tasks of various lengths take on nodes of different speed, against the least that is possible?
pub(super) fn uneven(stage: &Stage) -> Outcome<Measured> {
    let nodes = Nodes::start(stage, &UNEVEN_CPUS, None)?;
    let mut driver = Driver::attach(stage, &nodes, 0)?;
    driver.ask(&Order::Visit { nodes: nodes.numbers(0) })?;
    driver.ask(&Order::Uneven { tasks: stage.size(100, 10) })?;
    let cpus: f64 = UNEVEN_CPUS.iter().sum();
    let tasks = stage.size(400, 20);
    let pairs = stage.measure(|_| {
        let [took, ref each @ ..] = driver.ask(&Order::Uneven { tasks })?[..] else {
            return Err("a driver told too little".into());
        };
        Ok(Pair { ours: took, floor: each.iter().sum::<f64>() / cpus })
    })?;
    driver.end()?;
    Ok(Measured::from(pairs).and("tasks", tasks).and("cpus", cpus))
}

/// Sleeps, so that the cores of this machine are no limit.
#[bireme::remote]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// The driver's side: how long all took, then how long each should take.
pub(super) fn run_uneven(tasks: usize) -> Outcome<Vec<f64>> {
    let lengths = lengths(tasks);
    let (took, done) = seconds(|| {
        let times = lengths.iter().map(|length| Duration::from_secs_f64(length / 1e3));
        let results: Vec<ObjectRef<()>> = times.map(sleep::remote).collect();
        bireme::get_all(&results)
    });
    done?;
    Ok([vec![took * 1e3], lengths].concat())
}

/// Many short tasks and a few long ones, in milliseconds; the same at each call.
fn lengths(tasks: usize) -> Vec<f64> {
    let mut random: u32 = 0x9e37_79b9;
    let draw = |_| {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        let share = f64::from(random) / f64::from(u32::MAX);
        TASK_MS[0] + (TASK_MS[1] - TASK_MS[0]) * share.powi(3)
    };
    (0..tasks).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_tasks_are_short_and_a_few_are_long() {
        let lengths = lengths(400);
        assert!(lengths.iter().all(|length| (TASK_MS[0]..=TASK_MS[1]).contains(length)));
        let longer_than = |limit: f64| lengths.iter().filter(|length| **length > limit).count();
        assert!(longer_than(15.0) < 250 && longer_than(60.0) > 10, "{lengths:?}");
    }
}
