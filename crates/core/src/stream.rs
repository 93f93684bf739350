//! Streams: tasks whose results come one by one.
//!
//! A streaming task has one result, its *end*: the number of items, or why there is no next one. Its *items* are objects
//! after the end, in the order in which the user's code yields them. Every index is an object that can be waited for: an
//! index that will never come gets the reason in the place of a value.
//!
//! The first record of an item wins (STR-1). A repeated run yields from the beginning again; what exists is adopted, and
//! the node frees the bytes of what came twice.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::id::{ObjectId, TaskId};
use crate::value::{Body, Value};

/// Items of one stream.
pub const ITEMS_MAX: u64 = u32::MAX as u64 - 1;

/// Why an item is gone that its reader had.
pub const READ_ONCE: &str = "it was taken and dropped; a stream is read once";

/// How far a streaming task may run ahead of who reads it. Zero means no bound; one item always passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Items that were sent and not taken.
    pub items_max: u32,
    /// Bytes of them.
    pub bytes_max: u64,
}

impl Stream {
    /// Whether so much that nobody has taken is enough.
    pub fn is_full(&self, items: u32, bytes: u64) -> bool {
        items > 0 && (self.items_max > 0 && items >= self.items_max || self.bytes_max > 0 && bytes >= self.bytes_max)
    }
}

/// The value of a stream's end: how many items there are.
pub fn end_value(items: u32) -> Value {
    Value::inline(u64::from(items).to_le_bytes().to_vec())
}

/// How many items an end that went well tells of.
pub fn items_of(end: &Value) -> Option<u32> {
    let Body::Inline(bytes) = &end.body else { return None };
    u32::try_from(u64::from_le_bytes(bytes[..].try_into().ok()?)).ok()
}

/// What is in the place of item `index` of a stream that has ended with `end` after `items` items.
pub fn beyond(task: TaskId, index: u32, items: u32, end: &Value) -> Value {
    if index < items {
        let reason = "the stream ended without it".to_owned();
        return Value::failed(Failure::ObjectLost { object: ObjectId::item(task, index), reason });
    }
    match &end.body {
        Body::Failed(failure) if index == items => Value { body: Body::Failed(failure.clone()), nested: Vec::new() },
        _ => Value::failed(Failure::StreamEnded { task, items }),
    }
}

/// A set of indices that fills from below, mostly in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indices {
    /// All below are in it.
    below: u32,
    above: BTreeSet<u32>,
}

impl Indices {
    /// Puts an index in. False when it was there.
    pub fn insert(&mut self, index: u32) -> bool {
        if self.contains(index) {
            return false;
        }
        self.above.insert(index);
        while self.above.remove(&self.below) {
            self.below += 1;
        }
        true
    }

    /// Whether an index is in it.
    pub fn contains(&self, index: u32) -> bool {
        index < self.below || self.above.contains(&index)
    }

    /// The lowest index that is not in it.
    pub fn first_missing(&self) -> u32 {
        self.below
    }

    /// One more than the highest index in it.
    pub fn end(&self) -> u32 {
        self.above.last().map_or(self.below, |last| last + 1)
    }

    /// Those within a range, in order.
    pub fn within(&self, range: Range<u32>) -> Vec<u32> {
        let low = range.start..range.end.min(self.below);
        low.chain(self.above.range(range.start..range.end.max(range.start)).copied()).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::id::ProcessId;

    #[test]
    fn indices_fill_from_below_in_any_order() {
        let mut indices = Indices::default();
        assert_eq!((indices.first_missing(), indices.end()), (0, 0));
        assert!(indices.insert(2) && indices.insert(0) && !indices.insert(2));
        assert_eq!((indices.first_missing(), indices.end()), (1, 3));
        assert_eq!(indices.within(0..9), vec![0, 2]);
        assert!(indices.insert(1) && !indices.insert(0));
        assert_eq!((indices.first_missing(), indices.end()), (3, 3));
        assert_eq!(indices.within(1..3), vec![1, 2]);
        let (first, end) = (3, 2);
        assert!(indices.within(first..end).is_empty());
    }

    #[test]
    fn an_end_tells_its_items_and_what_stands_in_the_place_of_the_next() {
        let task = TaskId::root(1, ProcessId::DRIVER).child(0, 1, 0);
        let end = end_value(3);
        assert_eq!(items_of(&end), Some(3));
        let ended = Failure::StreamEnded { task, items: 3 };
        assert_eq!(beyond(task, 3, 3, &end).failure(), Some(&ended));
        let cancelled = Value::failed(Failure::Cancelled { task });
        assert_eq!(items_of(&cancelled), None);
        assert_eq!(beyond(task, 3, 3, &cancelled).failure(), Some(&Failure::Cancelled { task }));
        assert_eq!(beyond(task, 4, 3, &cancelled).failure(), Some(&ended));
    }

    #[test]
    fn a_stream_without_bounds_is_never_full_and_one_item_always_passes() {
        assert!(!Stream::default().is_full(1_000_000, u64::MAX));
        let bounded = Stream { items_max: 2, bytes_max: 100 };
        assert!(!bounded.is_full(0, 0) && !bounded.is_full(1, 99));
        assert!(bounded.is_full(2, 0) && bounded.is_full(1, 100));
    }
}
