//! The nodes of a row with a driver at the first of them, and the floor beside them.

use super::super::Outcome;
use super::super::cluster::driver::{Driver, Order};
use super::super::cluster::nodes::Nodes;
use super::super::cluster::place::Place;
use super::super::cluster::stage::Stage;
use super::super::cluster::wire::{Copied, copy};
use super::seats::Task;
use super::shape::Shape;

/// Starts nodes on hosts of their own: with their defaults, unless the shape says that bytes of objects are not encrypted.
pub(super) fn nodes(stage: &Stage, shape: Shape) -> Outcome<Nodes> {
    nodes_at(stage, Place::up(shape.nodes, shape.rate())?, shape)
}

/// The same at a place that is there.
pub(super) fn nodes_at(stage: &Stage, place: Place, shape: Shape) -> Outcome<Nodes> {
    let delay = format!("{}ms", shape.delay_ms);
    let mut flags = Vec::new();
    if !shape.encrypted {
        flags.extend(["--bulk-encryption", "off"]);
    }
    if shape.delay_ms > 0 {
        flags.extend(["--link-delay", &delay]);
    }
    let mut nodes = Nodes::at(stage, place, &flags)?;
    nodes.start_all(stage, &vec![1.0; shape.nodes])?;
    let security = nodes.status()?.security;
    if matches!(nodes.place(), Place::Lab(_)) && (!security.mutual_tls || security.bulk_encryption != shape.encrypted) {
        return Err(format!("nodes of a row with encryption {} say {security:?}", shape.encrypted).into());
    }
    Ok(nodes)
}

/// The cost of a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// From the start to the last end.
    pub(super) milliseconds: f64,
    /// Of all cores, whatever they did.
    pub(super) busy_seconds: f64,
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

    /// The same where only the first number of the answer is of interest.
    pub(super) fn number(&mut self, task: Task) -> Outcome<f64> {
        Ok(*self.ask(task)?.first().ok_or("a driver answered nothing")?)
    }

    /// The same for what moves objects: how long it took, and what the cores did meanwhile.
    pub(super) fn pass(&mut self, task: Task) -> Outcome<Pass> {
        match self.ask(task)?[..] {
            [milliseconds, busy_seconds] => Ok(Pass { milliseconds, busy_seconds }),
            _ => Err("a driver answered too little".into()),
        }
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
