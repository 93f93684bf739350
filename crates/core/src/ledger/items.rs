//! Items of streams: kept with the entry of their task until their owner frees them.
//!
//! STR-1: the first record of an item wins. A worker's record of an item and its owner's word that it is freed come in
//! any order, and a repeated run records the item again: so what was freed is remembered as long as the task is.

use std::collections::BTreeMap;

use super::tables::{TaskEntry, TaskState};
use super::{Ledger, entry_or_unnamed, stored};
use crate::failure::Failure;
use crate::id::{ObjectId, TaskId};
use crate::stream::{self, Indices};
use crate::value::{Location, Value};

#[derive(Clone, Debug)]
struct Item {
    value: Value,
    freed: bool,
}

/// The items of one stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Items {
    kept: BTreeMap<u32, Item>,
    freed: Indices,
    /// One more than the highest index that was yielded.
    end: u32,
}

impl Items {
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Value> {
        self.kept.values().map(|item| &item.value)
    }

    pub(super) fn value(&self, index: u32) -> Option<&Value> {
        self.kept.get(&index).map(|item| &item.value)
    }

    fn free(&mut self, index: u32, keep: bool) -> Option<Location> {
        self.freed.insert(index);
        if !keep {
            return self.kept.remove(&index).and_then(|item| stored(&item.value));
        }
        if let Some(item) = self.kept.get_mut(&index) {
            item.freed = true;
        }
        None
    }

    /// Nobody but the owner asks any more: what it has freed goes.
    pub(super) fn drop_freed(&mut self) -> Vec<Location> {
        let dropped = self.kept.extract_if(.., |_, item| item.freed);
        dropped.filter_map(|(_, item)| stored(&item.value)).collect()
    }

    /// Another owner has freed nothing yet.
    pub(super) fn change_owner(&mut self) {
        self.freed = Indices::default();
        self.kept.values_mut().for_each(|item| item.freed = false);
    }

    /// Whether every item below `items` is here, or was freed by its owner.
    fn is_whole(&self, items: u32, with_freed: bool) -> bool {
        let here = |index: u32| self.kept.contains_key(&index) || with_freed && self.freed.contains(index);
        (0..items.max(self.end)).all(here)
    }
}

impl Ledger {
    /// An item. Gives the place of its bytes when the item exists or existed already: then nobody will ask for these.
    pub fn yielded(&mut self, task: TaskId, attempt: u32, index: u32, value: Value) -> Option<Location> {
        let entry = entry_or_unnamed(&mut self.tasks, &mut self.unnamed, self.passes, task, attempt);
        let items = entry.items.get_or_insert_default();
        if items.kept.contains_key(&index) || items.freed.contains(index) {
            return stored(&value);
        }
        items.end = items.end.max(index.saturating_add(1));
        items.kept.insert(index, Item { value, freed: false });
        None
    }

    /// Somebody else runs the stream again: what its owner before has freed is made anew.
    pub fn make_items_again(&mut self, task: TaskId) {
        if let Some(items) = self.tasks.get_mut(&task).and_then(|entry| entry.items.as_mut()) {
            items.change_owner();
        }
    }

    /// Whether this is an item of a stream.
    pub fn is_item(&self, object: ObjectId) -> bool {
        object.item_index().is_some() && self.is_stream(object.task())
    }

    /// The owner of an item frees it; `keep` when somebody else may still ask. Gives the place of the bytes that went.
    pub fn free_item(&mut self, object: ObjectId, keep: bool) -> Option<Location> {
        let entry = self.tasks.get_mut(&object.task())?;
        let dropped = entry.items.get_or_insert_default().free(object.item_index()?, keep);
        if entry.is_over() {
            self.drop_task(object.task());
        }
        dropped
    }

    /// Whether this task's results come one by one.
    pub fn is_stream(&self, task: TaskId) -> bool {
        self.tasks.get(&task).is_some_and(TaskEntry::is_stream)
    }

    /// The items of a stream from this one on.
    pub fn items_from(&self, task: TaskId, index: u32) -> Vec<(u32, Value)> {
        let items = self.tasks.get(&task).and_then(|entry| entry.items.as_ref());
        let kept = items.into_iter().flat_map(|items| items.kept.range(index..));
        kept.map(|(index, item)| (*index, item.value.clone())).collect()
    }

    /// Whether a stream that has ended has all its items, for its owner (who knows those that it freed) or another.
    pub fn is_whole(&self, task: TaskId, for_owner: bool) -> bool {
        let Some(entry) = self.tasks.get(&task) else { return true };
        let TaskState::Finished { values, .. } = &entry.state else { return false };
        let count = values.first().and_then(stream::items_of).unwrap_or(0);
        match &entry.items {
            Some(items) => items.is_whole(count, for_owner),
            None => count == 0,
        }
    }

    /// What is in the place of an item that its owner has freed, or that a stream, which has ended, does not have.
    pub fn beyond(&self, object: ObjectId) -> Option<Value> {
        let entry = self.tasks.get(&object.task()).filter(|entry| entry.is_stream())?;
        let index = object.item_index()?;
        if entry.items.as_ref().is_some_and(|items| items.freed.contains(index)) {
            return Some(Value::failed(Failure::ObjectLost { object, reason: stream::READ_ONCE.to_owned() }));
        }
        let TaskState::Finished { values, .. } = &entry.state else { return None };
        let end = values.first()?;
        let count = stream::items_of(end).unwrap_or(0);
        let yielded = entry.items.as_ref().map_or(0, |items| items.end);
        Some(stream::beyond(object.task(), index, count.max(yielded), end))
    }
}
