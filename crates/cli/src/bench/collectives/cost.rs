//! Rows about processor time.

use std::fs;

use super::super::Outcome;
use super::super::cluster::nodes::Nodes;
use super::super::cluster::stage::{Measured, Stage};
use super::super::floor::{pin_process, two_cores};
use super::super::measure::Pair;
use super::super::startup::descendants;
use super::field::{self, Field};
use super::moving::broadcast_of;
use super::seats::Arrival;
use super::shape::Shape;

/// Objects per measurement: the kernel tells the time of processes in hundredths of a second.
const OBJECTS: usize = 5;
/// Of them.
const TICKS_PER_SECOND: f64 = 100.0;

/// How many processor seconds do two nodes use for a gigabyte from one to the other?
pub(super) fn plain(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    seconds_per_gigabyte(stage, shape, false)
}

/// The same with its bytes encrypted.
pub(super) fn encrypted(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    seconds_per_gigabyte(stage, shape, true)
}

/// The driver puts each object, which is no part of moving it; so what only its node and the other one use is counted.
fn seconds_per_gigabyte(stage: &Stage, shape: Shape, encrypted: bool) -> Outcome<Measured> {
    let shape = shape.sized(stage);
    let nodes = field::nodes(stage, shape, encrypted)?;
    let mut field = Field::new(stage, &nodes, shape)?;
    let task = broadcast_of(shape.bytes, Arrival::Together);
    field.number(task.clone())?;
    keep_apart(&nodes)?;
    let gigabytes = (OBJECTS * shape.bytes) as f64 / 1e9;
    let pairs = stage.measure(|_| {
        let before = used(&nodes)?;
        for _ in 0..OBJECTS {
            field.number(task.clone())?;
        }
        let ours = used(&nodes)? - before;
        let floor = field.plain_copy(OBJECTS)?.processor_seconds;
        Ok(Pair { ours: ours / gigabytes, floor: floor / gigabytes })
    })?;
    field.end()?;
    Ok(Measured::from(pairs).and("bytes", OBJECTS * shape.bytes))
}

/// A core for each node, as both processes of the floor have one: the work of the network between them is billed to who runs where
/// it is done, so that it would depend on where threads happen to run.
fn keep_apart(nodes: &Nodes) -> Outcome<()> {
    for (node, core) in nodes.all().iter().zip(two_cores()?) {
        for process in descendants(node.process.id)?.into_iter().chain([node.process.id]) {
            pin_process(process, core)?;
        }
    }
    Ok(())
}

/// Processor seconds of all nodes and of what they started.
fn used(nodes: &Nodes) -> Outcome<f64> {
    let mut all = 0.0;
    for node in nodes.all() {
        for process in descendants(node.process.id)?.into_iter().chain([node.process.id]) {
            let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
            all += ticks(&stat).ok_or("the kernel tells no times")? / TICKS_PER_SECOND;
        }
    }
    Ok(all)
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
