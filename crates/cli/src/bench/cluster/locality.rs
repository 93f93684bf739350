//! A task and its large input: run where the input is, the size of the input must not matter.

use bireme::{Bytes, ObjectRef, Strategy};
use bireme_netlab::Rate;
use bireme_runtime::core::id::NodeId;
use serde::{Deserialize, Serialize};

use super::super::Outcome;
use super::super::measure::{Pair, quantile, seconds};
use super::driver::{Driver, Order};
use super::nodes::Nodes;
use super::stage::{Measured, Stage};

/// The links between the hosts, as of an ordinary network.
const RATE: Rate = Rate::megabits(1_000);
/// Sizes of the inputs, in units of 2^20 bytes: the largest is judged.
const MEGABYTES: [usize; 3] = [1, 10, 100];
/// CPUs of the nodes that work: one for each kind of task, so that what is compared is where a task goes and not what it finds
/// in the way.
const CPUS: f64 = 3.0;

/// Where inputs are made, and their sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Inputs {
    /// The node that has them.
    home: u32,
    /// Another one.
    other: u32,
    /// Sizes, in units of 2^20 bytes.
    megabytes: Vec<usize>,
    /// Tasks per input.
    tasks: usize,
}

#[bireme::remote]
fn make(bytes: usize) -> Bytes {
    Bytes::from(vec![1; bytes])
}

/// Says where it ran. It only looks at its input: reading all of it would take longer the larger it is, wherever it is.
#[bireme::remote]
fn look(input: Bytes) -> Result<(u32, usize), String> {
    let node = bireme::node_id().map_err(|error| error.to_string())?;
    Ok((node.0, input.len()))
}

/// How long does a task take whose input of 100 MB is on another node than the driver's, against one of 1 MB that is bound to
/// that node? Beside it what it takes where the input is not.
pub(super) fn locality(stage: &Stage) -> Outcome<Measured> {
    let nodes = Nodes::start(stage, &[0.0, CPUS, CPUS], Some(RATE))?;
    let mut driver = Driver::attach(stage, &nodes, 0)?;
    let numbers = nodes.numbers(1);
    driver.ask(&Order::Visit { nodes: numbers.clone() })?;
    let megabytes = MEGABYTES.map(|size| stage.size(size, size.div_ceil(10))).to_vec();
    let inputs = Inputs { home: numbers[0], other: numbers[1], megabytes, tasks: stage.size(15, 1) };
    // Pages of the store that were never used cost their first user a moment for each.
    driver.ask(&Order::Placed(inputs.clone()))?;
    let (mut placed, mut forced, mut strays) = (Vec::new(), Vec::new(), 0.0);
    let pairs = stage.measure(|_| {
        let told = driver.ask(&Order::Placed(inputs.clone()))?;
        let [bound, elsewhere, ref sizes @ ..] = told[..] else { return Err("a driver told too little".into()) };
        strays += elsewhere;
        placed.push(sizes.to_vec());
        forced.push(driver.ask(&Order::Forced(inputs.clone()))?);
        Ok(Pair { ours: *sizes.last().ok_or("there are no inputs")?, floor: bound })
    })?;
    driver.end()?;
    let mut measured = Measured::from(pairs).and("not_placed_at_the_input", strays);
    for (name, took) in [("placed", placed), ("elsewhere", forced)] {
        for (at, megabytes) in inputs.megabytes.iter().enumerate() {
            let of_size: Vec<f64> = took.iter().filter_map(|took| took.get(at).copied()).collect();
            let median = quantile(&of_size, 0.5).unwrap_or(f64::NAN);
            measured = measured.and(&format!("{name}_{megabytes:03}_mb_ms"), median);
        }
    }
    Ok(measured)
}

fn made(inputs: &Inputs, megabytes: usize) -> Outcome<ObjectRef<Bytes>> {
    let strategy = Strategy::Node { node: NodeId(inputs.home), soft: false };
    let input = make::options().strategy(strategy).remote(megabytes << 20);
    bireme::wait(std::slice::from_ref(&input), 1, None)?;
    Ok(input)
}

/// Runs tasks with inputs of one size: the mean in milliseconds, so that one task in the wrong place shows, and how many were
/// there. Each has an input of its own: a second task would find the copy that a first one had fetched.
fn look_at(inputs: &Inputs, megabytes: usize, strategy: Strategy) -> Outcome<(f64, usize)> {
    let (mut all, mut strays) = (0.0, 0);
    for _ in 0..inputs.tasks {
        let input = made(inputs, megabytes)?;
        let (took, result) = seconds(|| look::options().strategy(strategy).remote(&input).get());
        let (node, bytes) = result?;
        if bytes != megabytes << 20 {
            return Err(format!("an input of {megabytes} times 2^20 bytes has {bytes}").into());
        }
        strays += usize::from(node != inputs.home);
        all += took * 1e3;
    }
    Ok((all / inputs.tasks as f64, strays))
}

/// The driver's side: the mean of tasks that are bound to the node of their input, how many of the others ran elsewhere, and
/// the mean of those for each size.
pub(super) fn placed(inputs: &Inputs) -> Outcome<Vec<f64>> {
    let bound = Strategy::Node { node: NodeId(inputs.home), soft: false };
    // Of the same size, so that both begin with leases that have rested as long.
    let largest = *inputs.megabytes.last().ok_or("there are no inputs")?;
    let mut told = vec![look_at(inputs, largest, bound)?.0, 0.0];
    for megabytes in &inputs.megabytes {
        let (mean, strays) = look_at(inputs, *megabytes, Strategy::Default)?;
        told[1] += strays as f64;
        told.push(mean);
    }
    Ok(told)
}

/// The driver's side: one task per input on the node that does not have it.
pub(super) fn forced(inputs: &Inputs) -> Outcome<Vec<f64>> {
    let there = Strategy::Node { node: NodeId(inputs.other), soft: false };
    let mut all = Vec::new();
    for megabytes in &inputs.megabytes {
        let input = made(inputs, *megabytes)?;
        let (took, result) = seconds(|| look::options().strategy(there).remote(&input).get());
        if result?.0 != inputs.other {
            return Err("a task ran on another node than it was bound to".into());
        }
        all.push(took * 1e3);
    }
    Ok(all)
}
