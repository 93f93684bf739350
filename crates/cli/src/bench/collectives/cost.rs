//! Rows about processor time.

use std::fs;

use super::super::Outcome;
use super::super::cluster::nodes::Nodes;
use super::super::cluster::stage::{Measured, Stage};
use super::super::floor::{pin_process, two_cores};
use super::super::machine::{Moment, TICKS_PER_SECOND};
use super::super::measure::Pair;
use super::super::startup::descendants;
use super::field::{self, Field};
use super::moving::broadcast_of;
use super::seats::Arrival;
use super::shape::Shape;

/// Objects per measurement, since the kernel's clock is coarse.
const OBJECTS: usize = 5;

/// How many processor seconds does a gigabyte from one node to another cost?
///
/// All that the machine does counts, on both sides, but not what the driver does to put the objects, and not what the nodes do while
/// the floor is measured.
pub(super) fn seconds_per_gigabyte(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    let shape = shape.sized(stage);
    let nodes = field::nodes(stage, shape)?;
    let mut field = Field::new(stage, &nodes, shape)?;
    let task = broadcast_of(shape.bytes, Arrival::Together);
    field.number(task.clone())?;
    let driver = family(field.driver())?;
    let others = processes_of(&nodes)?;
    keep_apart(&nodes)?;
    let gigabytes = (OBJECTS * shape.bytes) as f64 / 1e9;
    let pairs = stage.measure(|_| {
        let (before, put) = (Moment::now()?, used(&driver)?);
        for _ in 0..OBJECTS {
            field.number(task.clone())?;
        }
        let ours = before.busy_since()? - (used(&driver)? - put);
        let idle = used(&others)?;
        let floor = field.plain_copy(OBJECTS)?.busy_seconds - (used(&others)? - idle);
        Ok(Pair { ours: ours / gigabytes, floor: floor / gigabytes })
    })?;
    field.end()?;
    Ok(Measured::from(pairs).and("encrypted", shape.encrypted).and("bytes", OBJECTS * shape.bytes))
}

/// A core for each node, as both processes of the floor have one.
fn keep_apart(nodes: &Nodes) -> Outcome<()> {
    for (node, core) in nodes.all().iter().zip(two_cores()?) {
        for process in family(node.process.id)? {
            pin_process(process, core)?;
        }
    }
    Ok(())
}

fn processes_of(nodes: &Nodes) -> Outcome<Vec<u32>> {
    let families: Outcome<Vec<_>> = nodes.all().iter().map(|node| family(node.process.id)).collect();
    Ok(families?.concat())
}

/// A process and all that it started.
fn family(process: u32) -> Outcome<Vec<u32>> {
    let mut family = descendants(process)?;
    family.push(process);
    Ok(family)
}

/// Seconds that are billed to processes.
fn used(processes: &[u32]) -> Outcome<f64> {
    let mut all = 0.0;
    for process in processes {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        all += ticks(&stat).ok_or("the kernel tells no times")?;
    }
    Ok(all / TICKS_PER_SECOND)
}

/// Of user and system together, in a line of `/proc/PID/stat`.
fn ticks(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        assert_eq!(ticks("1 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 25 17 0 0 20"), Some(42.0));
        assert_eq!(ticks("nothing"), None);
    }
}
