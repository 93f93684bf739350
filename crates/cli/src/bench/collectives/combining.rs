//! Rows about objects that are combined on the way.

use super::super::Outcome;
use super::super::cluster::stage::{Measured, Stage};
use super::moving::{Copies, against_a_copy, once};
use super::seats::{Arrival, Plan, Reduce, Task};
use super::shape::{Shape, carried_twice, ring_copies};

/// Every node has an array and the driver gets the sum.
pub(super) fn reduce_of(bytes: usize, arrival: Arrival) -> Task {
    Task::Reduce(Reduce { bytes, arrival, plan: Plan::Own, spare: 0, kill: None })
}

/// The same with a plan.
pub(super) fn reduce_by(bytes: usize, plan: Plan) -> Task {
    Task::Reduce(Reduce { bytes, arrival: Arrival::Together, plan, spare: 0, kill: None })
}

/// How long until one node has the sum of an array of each?
pub(super) fn reduce(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    against_a_copy(stage, shape, |_| reduce_of(shape.sized(stage).bytes, Arrival::Together), once(shape))
}

/// How long after the last of them, when they come one by one within the time of a copy?
pub(super) fn late_reduce(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    against_a_copy(stage, shape, |copy| reduce_of(shape.sized(stage).bytes, Arrival::Spread(copy)), once(shape))
}

/// How long until every node has the sum, by a reduce whose result everybody gets?
pub(super) fn object_all_reduce(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    let copies = Copies { floor: 1.0, carried: carried_twice(shape.nodes) };
    against_a_copy(stage, shape, |_| Task::ObjectAllReduce { bytes: shape.sized(stage).bytes }, copies)
}

/// How long until every member of a group that is ready has the sum? The floor is the least that a link must carry.
pub(super) fn group_all_reduce(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    let task = |_| Task::GroupAllReduce { bytes: shape.sized(stage).bytes };
    let copies = Copies { floor: ring_copies(shape.nodes), carried: carried_twice(shape.nodes) };
    against_a_copy(stage, shape, task, copies)
}
