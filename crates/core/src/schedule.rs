//! Which node takes a wish: the digest of all nodes' loads, and the choice that any node makes from it.
//!
//! Bottom-up: a node first grants from its own workers. What it cannot start soon goes to the node with the lowest
//! estimated waiting time, which is the sum of two parts, both from exponential averages:
//!
//! - those who wait for some of the same resources there x the mean task time / how many such tasks run there at once;
//! - the bytes of the inputs that are not there / the mean bandwidth with which bytes come in.
//!
//! A node's own queue is unbounded by this rule, a foreign one is not: when more wait there than run at once, the wish
//! stays with the node that has it ([`Choice::Wait`]), and moves when somebody idles ([`Digest::should_move`],
//! [`Digest::whom_to_ask`]). So work is bound to a node late, and a wrong estimate costs one round of tasks at most.
//!
//! Speed: nodes lie in slots, and for each shape that is asked for there is a tree of minima over the slots (`index`).
//! A change of a load is written to a log, and a tree catches up when it is asked next. A choice is a walk down the tree.

mod choice;
mod digest;
mod estimate;
mod index;
mod moving;
pub mod trial;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::choice::{Ask, Choice, Input, Never, Why};
pub use self::digest::Digest;
pub use self::moving::{Move, Parked};
use crate::id::NodeId;
use crate::resources::Resources;

/// A node keeps what it can start within this time, whoever else is idle.
pub const NEAR_US: u64 = 2_000;
/// What a task on another node costs more than one on its owner's: it must be better by this.
pub const HOP_US: u64 = 300;
/// The mean task time as long as no task has ended.
pub const TASK_US_DEFAULT: u64 = 10_000;
/// The mean bandwidth as long as nothing has come in: 1 GB/s.
pub const BANDWIDTH_DEFAULT: u64 = 1_000_000_000;
/// Shapes of one load whose queue is told; the node adds what waits beyond to the last one.
pub const QUEUED_SHAPES_MAX: usize = 16;

/// How many wait for one shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queued {
    /// The shape.
    pub resources: Resources,
    /// How many.
    pub count: u32,
}

/// What a node tells of itself with each heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Load {
    /// All that it can grant.
    pub total: Resources,
    /// The unused resources: free ones, and those of leases that their owners keep for later.
    pub free: Resources,
    /// The resources that may stay in use for ever: those of actors, placement groups and blocked tasks.
    pub lasting: Resources,
    /// Who waits there, by shape, at most [`QUEUED_SHAPES_MAX`].
    pub queued: Vec<Queued>,
    /// Leases and actors that it hosts.
    pub running: u32,
    /// Exponential average of the time that a task takes; 0 when none has ended.
    pub task_us: u64,
    /// Exponential average of the bytes per second that come in; 0 when nothing has.
    pub bandwidth: u64,
    /// What is left of its arena.
    pub arena_free_bytes: u64,
    /// It hosts no work at all: the node of a driver that runs where there is none.
    pub driver_only: bool,
    /// It takes nothing more and will leave.
    pub draining: bool,
    /// Its memory is short: it takes nothing more until that is over.
    pub pressed: bool,
}

impl Load {
    /// An idle node that has this.
    pub fn idle(total: Resources) -> Self {
        Self { free: total.clone(), total, ..Self::default() }
    }

    /// Counts one more who waits.
    pub fn enqueue(&mut self, resources: &Resources, count: u32) {
        enqueue(&mut self.queued, resources, count);
    }
}

/// Adds to the queue of a shape. Beyond the last shape that is told, it is counted there.
fn enqueue(queued: &mut Vec<Queued>, resources: &Resources, count: u32) {
    let full = queued.len() >= QUEUED_SHAPES_MAX;
    match queued.iter().position(|q| q.resources == *resources).or(full.then_some(QUEUED_SHAPES_MAX - 1)) {
        Some(at) => queued[at].count = queued[at].count.saturating_add(count),
        None => queued.push(Queued { resources: resources.clone(), count }),
    }
}

/// One node's load on its way to the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Whose.
    pub node: NodeId,
    /// How long ago it was told.
    pub age_us: u64,
    /// The load.
    pub load: Load,
}

/// An exponential average: each sample counts for an eighth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Average {
    /// In sixteenths, so that small numbers are averaged too.
    scaled: u64,
}

impl Average {
    /// Counts a sample; the first one is the average.
    pub fn add(&mut self, sample: u64) {
        let sample = sample.saturating_mul(16);
        // Never 0 after a sample, since that means none.
        self.scaled = match self.scaled {
            0 => sample.max(1),
            mean => (mean - mean / 8).saturating_add(sample / 8).max(1),
        };
    }

    /// The average; 0 without a sample, and at least 1 with one.
    pub fn get(self) -> u64 {
        self.scaled.div_ceil(16)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting: u64 = self.queued.iter().map(|q| u64::from(q.count)).sum();
        write!(f, "{} of {} free, {} running, {waiting} waiting", self.free, self.total, self.running)
    }
}
