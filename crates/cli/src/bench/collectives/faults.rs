//! Rows about a participant that is killed half-way.

use super::super::Outcome;
use super::super::cluster::stage::{Measured, Stage};
use super::super::measure::Pair;
use super::field::{self, Field};
use super::kill::Kill;
use super::seats::{Arrival, Plan, Reduce, Task};
use super::shape::Shape;

/// How much longer does a broadcast take the others, in units of a copy, when one of them is killed half-way?
pub(super) fn killed_broadcast(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    extra(stage, shape, |bytes, kill| Task::Broadcast { bytes, arrival: Arrival::Together, kill })
}

/// The same for a reduce of one array less than there are, so that another one takes the place of the lost one.
pub(super) fn killed_reduce(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    extra(stage, shape, |bytes, kill| {
        Task::Reduce(Reduce { bytes, arrival: Arrival::Together, plan: Plan::Own, spare: 1, kill })
    })
}

/// Each pair has nodes of its own, since one of them does not live on. The difference has a sign: a pass with a kill can be the
/// faster one of two that take about as long.
fn extra(stage: &Stage, shape: Shape, task: impl Fn(usize, Option<Kill>) -> Task) -> Outcome<Measured> {
    let shape = shape.sized(stage);
    let pairs = stage.measure(|_| {
        let nodes = field::nodes(stage, shape)?;
        let mut field = Field::new(stage, &nodes, shape)?;
        field.number(task(shape.bytes, None))?;
        let (floor, plain) = (field.floor()?, field.number(task(shape.bytes, None))?);
        let seat = shape.nodes / 2;
        let kill = Kill { seat, process: field.nodes().process(seat)?, bytes: shape.bytes as u64 / 2 };
        let killed = field.number(task(shape.bytes, Some(kill)))?;
        field.end()?;
        Ok(Pair { ours: (killed - plain) / floor, floor })
    })?;
    Ok(Measured::from(pairs).and("nodes", shape.nodes).and("bytes", shape.bytes))
}
