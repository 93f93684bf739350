//! Threads that yield items, and threads that take them.

use bireme_core::failure::Failure;
use bireme_core::id::{ObjectId, ProcessId, TaskId};
use bireme_core::owner;
use bireme_core::value::{Body, RefSpec, Value};
use bireme_core::worker::{self, Pace};

use super::Cluster;
use super::threads::Wait;
use crate::program::Register;

impl Cluster {
    /// Yields the next item, and waits while the reader is too far behind.
    pub(super) fn yield_item(&mut self, process: ProcessId, id: u64, nested: Vec<RefSpec>) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let Some((lease, spec)) = entry.threads.get(&id).and_then(|thread| thread.seat.clone()) else { return };
        let (task, index) = (spec.id, entry.worker.items(&spec.id).unwrap_or(0));
        if entry.worker.pace(&task) == Some(Pace::Stop) {
            self.finish_thread(process, id, Err(Failure::Cancelled { task }));
            return;
        }
        let value = Value { body: self.item_body(process, index), nested };
        self.watch.yielded(task, index, spec.stream.unwrap_or_default());
        self.step_worker(process, worker::Event::Yielded { task, value });
        let Some(entry) = self.processes.get_mut(&process) else { return };
        if entry.worker.pace(&task) == Some(Pace::Pause)
            && let Some(thread) = entry.threads.get_mut(&id)
        {
            thread.wait = Wait::Room;
            self.step_worker(process, worker::Event::Blocked { lease });
        }
    }

    /// The item's number and something new, inline or in the store.
    fn item_body(&mut self, process: ProcessId, index: u32) -> Body {
        if self.random.one_in(2) {
            return Body::Stored(self.new_place(process, index.into()));
        }
        let fresh = self.random.number();
        Body::Inline([u64::from(index).to_le_bytes(), fresh.to_le_bytes()].concat().into())
    }

    /// A paused thread looks at its pace again.
    pub(super) fn rouse(&mut self, process: ProcessId, task: TaskId) {
        let Some(entry) = self.processes.get(&process) else { return };
        if entry.worker.pace(&task) == Some(Pace::Pause) {
            return;
        }
        let paused = entry.threads.iter().filter(|(_, t)| t.task() == Some(task) && matches!(t.wait, Wait::Room));
        let paused: Vec<u64> = paused.map(|(id, _)| *id).collect();
        for id in paused {
            self.resume_thread(process, id);
        }
    }

    /// Waits for the next item of a stream, sees it and takes it.
    pub(super) fn next_item(&mut self, process: ProcessId, id: u64, register: Register, keep: bool) {
        let Some(thread) = self.thread(process, id) else { return };
        let Some(end) = thread.registers.get(register).copied().flatten() else {
            if keep {
                thread.registers.push(None);
            }
            return;
        };
        let cursor = thread.cursors.entry(register).or_default();
        let (index, open) = *cursor;
        let object = ObjectId::item(end.object.task(), index);
        cursor.1 = true;
        if !open {
            self.step_owner(process, owner::Event::ItemOpened { end: end.object, index });
        }
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let value = entry.owner.value(&object).cloned();
        let Some(thread) = entry.threads.get_mut(&id) else { return };
        let Some(value) = value else {
            // Not there yet: the same operation runs again when it is.
            thread.next_op -= 1;
            self.wait_for(process, id, object);
            return;
        };
        let reference = RefSpec { object, owner: end.owner };
        if !self.can_read(process, id, reference, &value) {
            if let Some(thread) = self.thread(process, id) {
                thread.next_op -= 1;
            }
            return;
        }
        if let Some(thread) = self.thread(process, id) {
            thread.cursors.insert(register, (index + 1, false));
        }
        if let Some(value) = self.read(process, id, reference, &value) {
            self.watch.item(object, &value, process);
        }
        if value.failure().is_some() {
            if value.failure().is_some_and(|failure| self.watch.went_with_a_node(failure)) {
                // It was there and is lost; the stream goes on behind it.
                self.watch.taken(object.task(), index + 1);
                self.step_owner(process, owner::Event::ItemsTaken { end: end.object, items: index + 1 });
            }
            self.step_owner(process, owner::Event::RefDropped(object));
            if keep {
                self.fill(process, id, None);
            }
            return;
        }
        self.watch.taken(object.task(), index + 1);
        self.step_owner(process, owner::Event::ItemsTaken { end: end.object, items: index + 1 });
        if keep {
            self.fill(process, id, Some(reference));
        } else {
            self.step_owner(process, owner::Event::RefDropped(object));
        }
    }

    pub(super) fn skip_items(&mut self, process: ProcessId, id: u64, register: Register, items: u32) {
        if let Some(thread) = self.thread(process, id) {
            thread.cursors.insert(register, (items, false));
        }
    }
}
