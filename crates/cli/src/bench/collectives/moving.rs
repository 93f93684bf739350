//! Rows about objects that are moved as they are.

use super::super::Outcome;
use super::super::cluster::place::Place;
use super::super::cluster::stage::{Measured, Stage};
use super::super::cluster::wire::{Copied, latencies, ping_pong};
use super::super::floor::copy_seconds;
use super::super::measure::{Pair, quantile};
use super::field::{self, Field, Pass};
use super::seats::{Arrival, Task};
use super::shape::{Shape, carried_once, gather_copies};

/// The key of what all cores do for a byte that a link carries.
const PROCESSOR: &str = "processor_ns_per_byte";
/// The key of what a round trip takes after a pause.
pub(super) const AFTER_A_PAUSE: &str = "after_a_pause_us";
/// Calls of which each has a pause before it, and how long that is: as for Ray.
const PAUSED_CALLS: usize = 40;
const PAUSE_MS: u64 = 200;
/// Nodes that a broadcast on one machine goes to.
const LOCAL_RECEIVERS: usize = 4;
/// They and the one that has the object.
pub(super) const LOCAL: Shape = Shape { nodes: LOCAL_RECEIVERS + 1, bytes: 100 << 20, ..Shape::NEAR };

/// Everybody else gets the object of the driver.
pub(super) fn broadcast_of(bytes: usize, arrival: Arrival) -> Task {
    Task::Broadcast { bytes, arrival, kill: None }
}

/// How many copies of an object the floor of an operation is, and how many all links together carry.
#[derive(Clone, Copy)]
pub(super) struct Copies {
    /// Of the floor.
    pub(super) floor: f64,
    /// By all links.
    pub(super) carried: f64,
}

/// What a pass takes, against plain copies of one object; the first pass does not count. Beside it what the cores do for each byte
/// that a link carries, and for each byte of a plain copy.
pub(super) fn against_a_copy(
    stage: &Stage,
    shape: Shape,
    task: impl Fn(f64) -> Task,
    copies: Copies,
) -> Outcome<Measured> {
    let shape = shape.sized(stage);
    let nodes = field::nodes(stage, shape)?;
    let mut field = Field::new(stage, &nodes, shape)?;
    let mut copy = field.plain_copy(1)?;
    field.number(task(copy.milliseconds))?;
    let mut work = Work::default();
    let pairs = stage.measure(|_| {
        let pass = field.pass(task(copy.milliseconds))?;
        copy = field.plain_copy(1)?;
        work.add(pass, copy, copies.carried);
        Ok(Pair { ours: pass.milliseconds, floor: copy.milliseconds * copies.floor })
    })?;
    field.end()?;
    Ok(work.beside(Measured::from(pairs), shape))
}

/// Processor time of each pass, in seconds for as many bytes as an object has.
#[derive(Default)]
struct Work {
    ours: Vec<f64>,
    floor: Vec<f64>,
}

impl Work {
    fn add(&mut self, pass: Pass, copy: Copied, carried: f64) {
        self.ours.push(pass.busy_seconds / carried);
        self.floor.push(copy.busy_seconds);
    }

    /// With what was measured on.
    fn beside(&self, measured: Measured, shape: Shape) -> Measured {
        let measured = measured.and("encrypted", shape.encrypted).and("nodes", shape.nodes).and("bytes", shape.bytes);
        let per_byte = |seconds: &[f64]| quantile(seconds, 0.5).map(|seconds| seconds * 1e9 / shape.bytes as f64);
        match per_byte(&self.ours).zip(per_byte(&self.floor)) {
            Some((ours, floor)) => measured.and(PROCESSOR, ours).and("floor_processor_ns_per_byte", floor),
            None => measured,
        }
    }
}

/// How long does it take until the last of the other nodes has an object?
pub(super) fn broadcast(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    against_a_copy(stage, shape, |_| broadcast_of(shape.sized(stage).bytes, Arrival::Together), once(shape))
}

/// How long after the last of them has come, when they come one by one within the time of a copy?
pub(super) fn late_broadcast(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    against_a_copy(stage, shape, |copy| broadcast_of(shape.sized(stage).bytes, Arrival::Spread(copy)), once(shape))
}

/// How long until one node has an object of each of the others?
pub(super) fn gather(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    let task = |_| Task::Gather { bytes: shape.sized(stage).bytes };
    let copies = Copies { floor: gather_copies(shape.nodes), carried: carried_once(shape.nodes) };
    against_a_copy(stage, shape, task, copies)
}

/// Every link carries an object once, all at the same time.
pub(super) fn once(shape: Shape) -> Copies {
    Copies { floor: 1.0, carried: carried_once(shape.nodes) }
}

/// At which rate does an object go from one node to another?
pub(super) fn point_to_point(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    let shape = shape.sized(stage);
    let nodes = field::nodes(stage, shape)?;
    let mut field = Field::new(stage, &nodes, shape)?;
    let task = broadcast_of(shape.bytes, Arrival::Together);
    field.number(task.clone())?;
    let megabytes_per_second = |milliseconds: f64| shape.bytes as f64 / milliseconds / 1e3;
    let mut work = Work::default();
    let pairs = stage.measure(|_| {
        let (pass, copy) = (field.pass(task.clone())?, field.plain_copy(1)?);
        work.add(pass, copy, 1.0);
        let [ours, floor] = [pass.milliseconds, copy.milliseconds].map(megabytes_per_second);
        Ok(Pair { ours, floor })
    })?;
    field.end()?;
    Ok(work.beside(Measured::from(pairs), shape))
}

/// How long does a value take to a method on another node and back? It is in a message, so it is encrypted in any case.
pub(super) fn round_trip(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    let count = stage.size(2_000, 50);
    let task = Task::RoundTrip { bytes: shape.bytes, count, pause_ms: 0 };
    let after_pauses = Task::RoundTrip { bytes: shape.bytes, count: stage.size(PAUSED_CALLS, 3), pause_ms: PAUSE_MS };
    let nodes = field::nodes(stage, shape)?;
    let mut field = Field::new(stage, &nodes, shape)?;
    field.number(task.clone())?;
    let pairs = stage.measure(|_| {
        let ours = field.number(task.clone())?;
        Ok(Pair { ours, floor: ping_pong(stage, nodes.place(), [0, 1], shape.bytes, count)? })
    })?;
    let after_a_pause = field.number(after_pauses)?;
    field.end()?;
    let floors = latencies(stage, nodes.place(), [0, 1], shape.bytes, count)?;
    let measured = Measured::from(pairs).and("bytes", shape.bytes).and(AFTER_A_PAUSE, after_a_pause);
    Ok(measured.and_latencies(floors))
}

/// How long until four nodes on the machine of a fifth have its object, over loopback?
pub(super) fn local_broadcast(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    let shape = shape.sized(stage);
    let nodes = field::nodes_at(stage, Place::Loopback, shape)?;
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
