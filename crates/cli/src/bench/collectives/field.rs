//! The nodes of a row with a driver at the first of them, and the floor beside them.

use super::super::Outcome;
use super::super::cluster::driver::{Driver, Order};
use super::super::cluster::nodes::Nodes;
use super::super::cluster::place::Place;
use super::super::cluster::stage::Stage;
use super::super::cluster::wire::{Copied, copy};
use super::seats::Task;
use super::shape::Shape;

/// Starts nodes on hosts of their own, with bytes of objects encrypted or not.
pub(super) fn nodes(stage: &Stage, shape: Shape, encrypted: bool) -> Outcome<Nodes> {
    nodes_at(stage, Place::up(shape.nodes, shape.rate())?, shape, encrypted)
}

/// The same at a place that is there.
pub(super) fn nodes_at(stage: &Stage, place: Place, shape: Shape, encrypted: bool) -> Outcome<Nodes> {
    let switch = if encrypted { "on" } else { "off" };
    let delay = format!("{}ms", shape.delay_ms);
    let mut nodes = Nodes::at(stage, place, &["--bulk-encryption", switch, "--link-delay", &delay])?;
    nodes.start_all(stage, &vec![1.0; shape.nodes])?;
    Ok(nodes)
}

/// A driver at the first node, with a seat on each.
pub(super) struct Field<'a> {
    driver: Driver<'a>,
    nodes: &'a Nodes,
    stage: &'a Stage,
    shape: Shape,
}

impl<'a> Field<'a> {
    /// Seats everybody.
    pub(super) fn new(stage: &'a Stage, nodes: &'a Nodes, shape: Shape) -> Outcome<Self> {
        let mut driver = Driver::attach(stage, nodes, 0)?;
        driver.ask(&Order::Collective(Task::Sit { nodes: nodes.numbers(0) }))?;
        Ok(Self { driver, nodes, stage, shape })
    }

    /// Has the driver do something.
    pub(super) fn ask(&mut self, task: Task) -> Outcome<Vec<f64>> {
        self.driver.ask(&Order::Collective(task))
    }

    /// The same where the answer is one number.
    pub(super) fn number(&mut self, task: Task) -> Outcome<f64> {
        Ok(*self.ask(task)?.first().ok_or("a driver answered nothing")?)
    }

    /// S/B in milliseconds: a plain copy of an object's bytes from the first host to the second.
    pub(super) fn floor(&self) -> Outcome<f64> {
        Ok(self.plain_copy(1)?.milliseconds)
    }

    /// Plain copies of so many objects.
    pub(super) fn plain_copy(&self, objects: usize) -> Outcome<Copied> {
        copy(self.stage, self.nodes.place(), [0, 1], self.shape.bytes, objects)
    }

    /// The process of the driver.
    pub(super) fn driver(&self) -> u32 {
        self.driver.process()
    }

    /// The nodes.
    pub(super) fn nodes(&self) -> &Nodes {
        self.nodes
    }

    /// Lets the driver end by itself.
    pub(super) fn end(self) -> Outcome<()> {
        self.driver.end()
    }
}
