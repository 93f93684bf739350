//! Streams at their owner: items as they come, who takes them, and the end.
//!
//! An item is held by its stream until it is taken, or until nobody can read on: then what was not taken is freed and the
//! task is asked to stop. An item that somebody waits for holds the end of its stream. A borrower of the end borrows
//! items from here like any object, before or after they exist.

use std::collections::BTreeSet;

use super::tasks::TaskState;
use super::{Effect, ObjectEntry, Owner};
use crate::failure::Failure;
use crate::id::{ObjectId, TaskId};
use crate::message::{Peer, RequestId, ToNode};
use crate::stream::{self, Indices, Stream};
use crate::time::Tick;
use crate::value::{RefSpec, Value};

/// A stream of a task of this process.
#[derive(Debug, Default)]
pub(super) struct StreamEntry {
    limits: Stream,
    /// Items that have come, whether or not they are still here.
    arrived: Indices,
    /// Items that have not come and are in use.
    waiting: BTreeSet<u32>,
    /// Items below this one are not held by the stream any more.
    taken: u32,
    /// The last number of `passed` items that the worker was told.
    told: u32,
    /// Nobody can read on.
    deserted: bool,
    /// How many items there are, when it has ended.
    items: Option<u32>,
}

impl StreamEntry {
    /// Number of items that take no room at the worker: those that were taken, and those before an item that somebody waits
    /// for. A reader that outlived the stream's owner goes on where it was, so nobody may take what a repeated run yields
    /// before that.
    fn passed(&self) -> u32 {
        self.taken.max(self.waiting.last().copied().unwrap_or(0))
    }

    /// Whether the worker has to hear of what was passed: a quarter of what it may be ahead, or all that there is.
    fn is_telling_due(&self) -> bool {
        let passed = self.passed();
        let fresh = passed.saturating_sub(self.told);
        let bounded = self.limits.items_max > 0 || self.limits.bytes_max > 0;
        let much = self.limits.bytes_max > 0 || fresh >= (self.limits.items_max / 4).max(1);
        bounded && fresh > 0 && (much || passed >= self.arrived.end())
    }
}

impl Owner {
    pub(super) fn begin_stream(&mut self, task: TaskId, limits: Stream, now: Tick, effects: &mut Vec<Effect>) {
        self.streams.insert(task, StreamEntry { limits, ..StreamEntry::default() });
        // Only who runs again may know items already, borrowed from the owner before.
        let Some(found) = self.found.remove(&task) else { return };
        let known = self.objects.sorted_keys_where(|object, _| object.task() == task && object.item_index().is_some());
        for object in known {
            let entry = self.own(object, effects);
            let missing = entry.value.is_none();
            entry.holds += u32::from(!missing);
            let (Some(index), Some(stream)) = (object.item_index(), self.streams.get_mut(&task)) else { continue };
            if missing {
                stream.waiting.insert(index);
                self.hold_end(task);
            } else {
                stream.arrived.insert(index);
            }
        }
        for (index, value) in found {
            self.receive_from_node(&value.nested, self.me.node, effects);
            self.item_arrived(task, index, value, now, effects);
        }
    }

    /// The node tells an item of a stream whose run was lost.
    pub(super) fn item_found(
        &mut self,
        request: RequestId,
        index: u32,
        value: Value,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let Some(task) = self.questions.get(&request).map(|question| question.task) else { return };
        self.receive_from_node(&value.nested, self.me.node, effects);
        self.item_arrived(task, index, value, now, effects);
    }

    /// An item has come, and what is inside is granted. One that came before is dropped (STR-1); its bytes are freed by
    /// the node, which sees by its record that it came twice.
    pub(super) fn item_arrived(
        &mut self,
        task: TaskId,
        index: u32,
        value: Value,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let object = ObjectId::item(task, index);
        let (mut waited, mut held, mut awaited_later) = (false, false, false);
        if let Some(stream) = self.streams.get_mut(&task) {
            if !stream.arrived.insert(index) {
                self.release_all(&value.nested, effects);
                if index == 0 {
                    self.tell_taken(task, true, effects);
                }
                return;
            }
            waited = stream.waiting.remove(&index);
            held = !stream.deserted && index >= stream.taken;
            awaited_later = stream.waiting.last().is_some_and(|last| *last > index);
        }
        if awaited_later {
            self.tell_taken(task, false, effects);
        }
        self.own(object, effects).holds += u32::from(held);
        self.set_value(object, value, now, effects);
        if waited {
            self.release(ObjectId::result(task, 0), effects);
        }
    }

    /// How many items from the first on have come.
    pub(super) fn items_known(&self, task: TaskId) -> u32 {
        self.streams.get(&task).map_or(0, |stream| stream.arrived.first_missing())
    }

    /// Whether this is an item of a stream of ours.
    pub(super) fn is_item(&self, object: ObjectId) -> bool {
        object.item_index().is_some() && self.streams.contains(&object.task())
    }

    pub(super) fn is_deserted(&self, task: TaskId) -> bool {
        self.streams.get(&task).is_some_and(|stream| stream.deserted)
    }

    /// A handle of an item, here or borrowed from where the end is borrowed from.
    pub(super) fn open_item(&mut self, end: ObjectId, index: u32, effects: &mut Vec<Effect>) {
        let object = ObjectId::item(end.task(), index);
        let Some(owner) = self.objects.get(&end).and_then(|entry| entry.owner) else {
            self.expect_item(object, effects);
            self.objects.get_or_insert_with(object, || lost(object, "its stream is not known here")).local += 1;
            return;
        };
        let borrower = self.me;
        let entry = self.entry_of(RefSpec { object, owner });
        entry.local += 1;
        if entry.owner != Some(owner) || entry.grants > 0 {
            return;
        }
        entry.grants = 1;
        effects.push(if self.is_departed(owner) {
            Effect::Node(ToNode::Claim { object, home: owner.node, count: 1 })
        } else {
            Effect::Send { to: owner, message: Peer::Lent { object, borrower, count: 1 } }
        });
    }

    /// Makes the entry of an item of a stream of ours that is asked for.
    pub(super) fn expect_item(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if self.streams.is_empty() || self.objects.contains(&object) {
            return;
        }
        let (task, end) = (object.task(), ObjectId::result(object.task(), 0));
        let Some(index) = object.item_index() else { return };
        let Some(stream) = self.streams.get_mut(&task) else { return };
        let entry = if stream.arrived.contains(index) {
            lost(object, stream::READ_ONCE)
        } else if let Some(items) = stream.items {
            let value = self.objects.get(&end).and_then(|entry| entry.value.as_ref());
            let value = value.map(|end| stream::beyond(task, index, items, end));
            ObjectEntry { value, unmade: true, ..ObjectEntry::default() }
        } else {
            stream.waiting.insert(index);
            self.hold_end(task);
            self.tell_taken(task, false, effects);
            ObjectEntry::default()
        };
        self.objects.insert(object, entry);
    }

    fn hold_end(&mut self, task: TaskId) {
        if let Some(end) = self.objects.get_mut(&ObjectId::result(task, 0)) {
            end.holds += 1;
        }
    }

    /// The user has taken items, of a stream of ours or of another's.
    pub(super) fn take_items(&mut self, end: ObjectId, items: u32, effects: &mut Vec<Effect>) {
        let task = end.task();
        match self.objects.get(&end).map(|entry| entry.owner) {
            Some(Some(owner)) if !self.is_departed(owner) => {
                effects.push(Effect::Send { to: owner, message: Peer::Took { task, items } });
            }
            Some(Some(_)) | None => {}
            Some(None) => self.take(task, items, effects),
        }
    }

    pub(super) fn take(&mut self, task: TaskId, items: u32, effects: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&task) else { return };
        let items = items.min(stream.arrived.end());
        let taken = stream.arrived.within(stream.taken..items);
        stream.taken = stream.taken.max(items);
        self.tell_taken(task, false, effects);
        for index in taken {
            self.release(ObjectId::item(task, index), effects);
        }
    }

    /// Tells who yields what was taken. A repeated run has heard nothing yet.
    fn tell_taken(&mut self, task: TaskId, repeated: bool, effects: &mut Vec<Effect>) {
        let Some(to) = self.tasks.get(&task).and_then(|entry| match entry.state {
            TaskState::Sent { worker, .. } => Some(worker),
            TaskState::CallSent { process } => Some(process),
            TaskState::Waiting { .. }
            | TaskState::Queued
            | TaskState::Asked
            | TaskState::Inherited
            | TaskState::Constructing
            | TaskState::CallQueued => None,
        }) else {
            return;
        };
        let Some(stream) = self.streams.get_mut(&task) else { return };
        if repeated {
            stream.told = 0;
        }
        if stream.is_telling_due() {
            stream.told = stream.passed();
            effects.push(Effect::Send { to, message: Peer::Taken { task, items: stream.told } });
        }
    }

    /// The end of a stream has its value: so has every item that will not come.
    pub(super) fn end_stream(&mut self, end: ObjectId, now: Tick, effects: &mut Vec<Effect>) {
        let task = end.task();
        if end != ObjectId::result(task, 0) {
            return;
        }
        let Some(stream) = self.streams.get_mut(&task) else { return };
        let Some(value) = self.objects.get(&end).and_then(|entry| entry.value.clone()) else { return };
        let items = stream.arrived.first_missing().max(stream::items_of(&value).unwrap_or(0));
        stream.items = Some(items);
        for index in std::mem::take(&mut stream.waiting) {
            let object = ObjectId::item(task, index);
            if let Some(entry) = self.objects.get_mut(&object) {
                entry.unmade = true;
            }
            self.set_value(object, stream::beyond(task, index, items, &value), now, effects);
            self.release(end, effects);
        }
    }

    /// Nobody uses an object of ours that has no value. The end of a stream: nobody can read on. An item: nobody waits
    /// for it any more.
    pub(super) fn unused_in_stream(&mut self, object: ObjectId, work: &mut Vec<ObjectId>) {
        let (task, end) = (object.task(), ObjectId::result(object.task(), 0));
        let Some(stream) = self.streams.get_mut(&task) else { return };
        match object.item_index() {
            None if object == end && !stream.deserted => {
                stream.deserted = true;
                self.deserted.push(task);
                self.drop_untaken(task, work);
            }
            Some(index) if stream.waiting.remove(&index) => {
                self.objects.remove(&object);
                if let Some(entry) = self.objects.get_mut(&end) {
                    entry.holds = entry.holds.saturating_sub(1);
                    work.push(end);
                }
            }
            _ => {}
        }
    }

    /// The end of a stream is freed.
    pub(super) fn close_stream(&mut self, end: ObjectId, work: &mut Vec<ObjectId>) {
        if !self.streams.is_empty() && end == ObjectId::result(end.task(), 0) {
            self.drop_untaken(end.task(), work);
            self.streams.remove(&end.task());
        }
    }

    fn drop_untaken(&mut self, task: TaskId, work: &mut Vec<ObjectId>) {
        let Some(stream) = self.streams.get_mut(&task) else { return };
        let untaken = stream.arrived.within(stream.taken..stream.arrived.end());
        stream.taken = stream.arrived.end();
        for object in untaken.into_iter().map(|index| ObjectId::item(task, index)) {
            if let Some(entry) = self.objects.get_mut(&object) {
                entry.holds = entry.holds.saturating_sub(1);
                work.push(object);
            }
        }
    }
}

fn lost(object: ObjectId, reason: &str) -> ObjectEntry {
    let value = Value::failed(Failure::ObjectLost { object, reason: reason.to_owned() });
    ObjectEntry { value: Some(value), unmade: true, ..ObjectEntry::default() }
}
