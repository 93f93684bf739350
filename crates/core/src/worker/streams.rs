//! Streaming tasks at the worker: items are recorded, then sent; the task pauses when nobody takes them.
//!
//! Called by `worker` for the tasks that run; what blocks and wakes the user's code is the shell's.

use std::collections::VecDeque;

use super::{Effect, RefsMoved, Worker};
use crate::failure::Failure;
use crate::id::{ObjectId, ProcessId, TaskId};
use crate::message::Peer;
use crate::record::Record;
use crate::stream::{self, Stream};
use crate::value::{Body, Value};

/// How a streaming task may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It may yield the next item.
    Go,
    /// As much as may wait for the reader waits: not before some of it is taken.
    Pause,
    /// It was cancelled, or nobody reads on.
    Stop,
}

/// A streaming task that runs.
#[derive(Debug)]
pub(super) struct Yielding {
    to: ProcessId,
    attempt: u32,
    stream: Stream,
    items: u32,
    taken: u32,
    /// Sizes of the items that were not taken, and their sum.
    sizes: VecDeque<u64>,
    bytes: u64,
    stop: bool,
}

impl Yielding {
    pub(super) fn new(to: ProcessId, attempt: u32, stream: Stream) -> Self {
        Self { to, attempt, stream, items: 0, taken: 0, sizes: VecDeque::new(), bytes: 0, stop: false }
    }

    fn pace(&self) -> Pace {
        if self.stop {
            Pace::Stop
        } else if self.stream.is_full(self.sizes.len() as u32, self.bytes) {
            Pace::Pause
        } else {
            Pace::Go
        }
    }

    /// Forgets items that were taken. A repeated run yields what was taken long ago, so there may be more than it has.
    fn settle(&mut self) {
        while self.items - (self.sizes.len() as u32) < self.taken
            && let Some(size) = self.sizes.pop_front()
        {
            self.bytes -= size;
        }
    }

    /// What the end of the stream is. A run that had to stop because its owner died has not failed: who adopts the
    /// stream runs it again.
    pub(super) fn end(self, task: TaskId, values: Vec<Value>, orphaned: bool) -> Vec<Value> {
        if !values.iter().any(|value| value.failure().is_some()) {
            vec![stream::end_value(self.items)]
        } else if orphaned {
            let object = ObjectId::result(task, 0);
            vec![Value::failed(Failure::OwnerDied { object, owner: self.to })]
        } else {
            values
        }
    }
}

impl Worker {
    /// How a streaming task may go on; none when it is not one or does not run.
    pub fn pace(&self, task: &TaskId) -> Option<Pace> {
        self.yielding.get(task).map(Yielding::pace)
    }

    /// How many items a streaming task that runs has yielded.
    pub fn items(&self, task: &TaskId) -> Option<u32> {
        self.yielding.get(task).map(|yielding| yielding.items)
    }

    /// The user's code has yielded an item, which is recorded before it leaves (WRK-2).
    pub(super) fn yielded(&mut self, task: TaskId, value: Value, effects: &mut Vec<Effect>) {
        let Some(yielding) = self.yielding.get_mut(&task) else { return };
        let (to, attempt, index) = (yielding.to, yielding.attempt, yielding.items);
        let size = match &value.body {
            Body::Inline(bytes) => bytes.len() as u64,
            Body::Stored(at) => at.len,
            Body::Failed(_) => 0,
        };
        yielding.items += 1;
        yielding.sizes.push_back(size);
        yielding.bytes += size;
        yielding.settle();
        effects.push(Effect::Record(Record::Yielded { task, attempt, index, value: value.clone() }));
        if self.departed.contains(to) {
            return;
        }
        let refers = !value.nested.is_empty();
        let message = Peer::Item { task, attempt, index, value };
        effects.push(match refers {
            true => Effect::Refs(RefsMoved::Left { to, message }),
            false => Effect::Send { to, message },
        });
    }

    /// The reader has taken items.
    pub(super) fn taken(&mut self, task: TaskId, items: u32, effects: &mut Vec<Effect>) {
        let Some(yielding) = self.yielding.get_mut(&task) else { return };
        let paused = yielding.pace() == Pace::Pause;
        yielding.taken = yielding.taken.max(items);
        yielding.settle();
        if paused && yielding.pace() != Pace::Pause {
            effects.push(Effect::Rouse(task));
        }
    }

    /// Nobody wants more of these.
    pub(super) fn stop_yielding(&mut self, which: impl Fn(TaskId, ProcessId) -> bool, effects: &mut Vec<Effect>) {
        for (task, yielding) in &mut self.yielding {
            if which(*task, yielding.to) {
                yielding.stop = true;
                effects.push(Effect::Rouse(*task));
            }
        }
    }
}
