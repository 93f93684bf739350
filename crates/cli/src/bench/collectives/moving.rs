//! Rows about objects that are moved as they are.

use super::super::Outcome;
use super::super::cluster::place::Place;
use super::super::cluster::stage::{Measured, Stage};
use super::super::cluster::wire::ping_pong;
use super::super::floor::copy_seconds;
use super::super::measure::{Pair, quantile};
use super::field::{self, Field};
use super::seats::{Arrival, Task};
use super::shape::{Shape, gather_copies};

/// Passes with encryption, beside the ones that are judged.
const ENCRYPTED_PASSES: usize = 3;
/// Nodes that a broadcast on one machine goes to.
const LOCAL_RECEIVERS: usize = 4;
/// Bytes of that object.
const LOCAL_BYTES: usize = 100 << 20;

/// Everybody else gets the object of the driver.
pub(super) fn broadcast_of(bytes: usize, arrival: Arrival) -> Task {
    Task::Broadcast { bytes, arrival, kill: None }
}

/// What a pass takes, against a plain copy of one object; the first pass does not count. Beside it the same with bytes of
/// objects encrypted.
pub(super) fn against_a_copy(
    stage: &Stage,
    shape: Shape,
    task: impl Fn(f64) -> Task,
    factor: f64,
) -> Outcome<Measured> {
    let shape = shape.sized(stage);
    let mut measured = {
        let nodes = field::nodes(stage, shape, false)?;
        let mut field = Field::new(stage, &nodes, shape)?;
        let mut floor = field.floor()?;
        field.number(task(floor))?;
        let pairs = stage.measure(|_| {
            let ours = field.number(task(floor))?;
            floor = field.floor()?;
            Ok(Pair { ours, floor: floor * factor })
        })?;
        field.end()?;
        Measured::from(pairs)
    };
    let nodes = field::nodes(stage, shape, true)?;
    let mut field = Field::new(stage, &nodes, shape)?;
    let floor = field.floor()?;
    field.number(task(floor))?;
    measured = and_encrypted(stage, measured, || Ok(field.number(task(floor))? / (field.floor()? * factor)))?;
    field.end()?;
    Ok(measured.and("nodes", shape.nodes).and("bytes", shape.bytes))
}

/// With the ratio of the same with its bytes encrypted.
fn and_encrypted(stage: &Stage, measured: Measured, mut ratio: impl FnMut() -> Outcome<f64>) -> Outcome<Measured> {
    let mut ratios = Vec::new();
    for _ in 0..stage.size(ENCRYPTED_PASSES, 1) {
        stage.check()?;
        ratios.push(ratio()?);
    }
    Ok(match quantile(&ratios, 0.5) {
        Some(ratio) => measured.and("encrypted_ratio", ratio),
        None => measured,
    })
}

/// How long does it take until the last of the other nodes has an object?
pub(super) fn broadcast(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    against_a_copy(stage, shape, |_| broadcast_of(shape.sized(stage).bytes, Arrival::Together), 1.0)
}

/// How long after the last of them has come, when they come one by one within the time of a copy?
pub(super) fn late_broadcast(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    against_a_copy(stage, shape, |copy| broadcast_of(shape.sized(stage).bytes, Arrival::Spread(copy)), 1.0)
}

/// How long until one node has an object of each of the others?
pub(super) fn gather(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    let task = |_| Task::Gather { bytes: shape.sized(stage).bytes };
    against_a_copy(stage, shape, task, gather_copies(shape.nodes))
}

/// At which rate does an object go from one node to another?
pub(super) fn point_to_point(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    rate(stage, shape, false)
}

/// The same with its bytes encrypted.
pub(super) fn point_to_point_encrypted(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    rate(stage, shape, true)
}

fn rate(stage: &Stage, shape: Shape, encrypted: bool) -> Outcome<Measured> {
    let shape = shape.sized(stage);
    let nodes = field::nodes(stage, shape, encrypted)?;
    let mut field = Field::new(stage, &nodes, shape)?;
    let task = broadcast_of(shape.bytes, Arrival::Together);
    field.number(task.clone())?;
    let megabytes_per_second = |milliseconds: f64| shape.bytes as f64 / milliseconds / 1e3;
    let pairs = stage.measure(|_| {
        let ours = field.number(task.clone())?;
        Ok(Pair { ours: megabytes_per_second(ours), floor: megabytes_per_second(field.floor()?) })
    })?;
    field.end()?;
    Ok(Measured::from(pairs).and("bytes", shape.bytes))
}

/// How long does a value take to a method on another node and back? It is in a message, so it is encrypted whatever is said about objects.
pub(super) fn round_trip(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    let count = stage.size(2_000, 50);
    let task = Task::RoundTrip { bytes: shape.bytes, count };
    let nodes = field::nodes(stage, shape, true)?;
    let mut field = Field::new(stage, &nodes, shape)?;
    field.number(task.clone())?;
    let pairs = stage.measure(|_| {
        let ours = field.number(task.clone())?;
        Ok(Pair { ours, floor: ping_pong(stage, nodes.place(), [0, 1], shape.bytes, count)? })
    })?;
    field.end()?;
    Ok(Measured::from(pairs).and("bytes", shape.bytes))
}

/// How long until four nodes on the machine of a fifth have its object, over loopback?
pub(super) fn local_broadcast(stage: &Stage, _: Shape) -> Outcome<Measured> {
    let shape = Shape { nodes: LOCAL_RECEIVERS + 1, bytes: stage.size(LOCAL_BYTES, LOCAL_BYTES / 25), ..Shape::NEAR };
    let nodes = field::nodes_at(stage, Place::Loopback, shape, false)?;
    let mut field = Field::new(stage, &nodes, shape)?;
    let task = broadcast_of(shape.bytes, Arrival::Together);
    let (from, mut to) = (vec![1; shape.bytes], vec![0; shape.bytes]);
    // Pages that were used before, on both sides.
    field.number(task.clone())?;
    copy_seconds(&from, &mut to);
    let pairs = stage.measure(|_| {
        let ours = field.number(task.clone())?;
        let copies: f64 = (0..LOCAL_RECEIVERS).map(|_| copy_seconds(&from, &mut to)).sum();
        Ok(Pair { ours, floor: copies * 1e3 })
    })?;
    field.end()?;
    Ok(Measured::from(pairs).and("bytes", shape.bytes))
}
