//! A lane: the counter from which one thread of one task names what it submits.
//!
//! Threads of one task have counters of their own, so that a repeated run names the same things the same way whatever
//! the threads' timing. When a repeated run does something else than the first (another digest under the same id), the
//! lane opens a new epoch: this and every later id of the lane is different from what the first run made.
//!
//! A constructor that ran to its end is over, like any task: the next life of its actor runs in a lane of its own, and what
//! it makes is new. One that was lost on the way is run again in its lane, and adopts.

use crate::id::{ObjectId, TaskId};

/// Epochs per lane; a parent that differs from itself more often is not deterministic in any useful sense.
pub const EPOCHS_MAX: u32 = 255;

/// Lanes of the threads of one run, as bits; beyond them begin the lanes of runs that share no names with it.
pub const THREAD_LANES_BITS: u32 = 8;

/// Names for what a thread of a task submits and puts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    task: TaskId,
    lane: u32,
    counter: u64,
    epoch: u32,
    depth: u32,
    repeated: bool,
    family: TaskId,
}

impl Lane {
    /// Lane number `lane` of `task`. `repeated` when the task has been run before.
    pub fn new(task: TaskId, lane: u32, depth: u32, repeated: bool) -> Self {
        Self { task, lane, counter: 0, epoch: 0, depth, repeated, family: task.family(lane, 0) }
    }

    /// The task that this is a lane of.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// Submits between the driver and the children of this lane.
    pub fn child_depth(&self) -> u32 {
        self.depth + 1
    }

    /// Whether what this lane names may exist already.
    pub fn repeated(&self) -> bool {
        self.repeated
    }

    /// Counts one more submit or put and keeps its number for [`Lane::task_id`] and [`Lane::put_id`].
    pub fn advance(&mut self) {
        self.counter += 1;
    }

    /// The id of the current submit.
    pub fn task_id(&self) -> TaskId {
        self.family.sibling(self.counter)
    }

    /// The id of the current put.
    pub fn put_id(&self) -> ObjectId {
        ObjectId::put(self.task, self.lane, self.counter, self.epoch)
    }

    /// Something else exists under the current id: from here on, other names. False when epochs have run out.
    #[must_use]
    pub fn open_epoch(&mut self) -> bool {
        self.epoch += 1;
        self.family = self.task.family(self.lane, self.epoch);
        self.epoch <= EPOCHS_MAX
    }
}
