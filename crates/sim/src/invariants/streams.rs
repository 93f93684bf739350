//! Streams: every reader sees the items in order, each once, none missing; nobody runs further ahead than is allowed.

use std::collections::BTreeMap;

use bireme_core::failure::Failure;
use bireme_core::id::{ObjectId, ProcessId, TaskId};
use bireme_core::stream::Stream;
use bireme_core::value::{Body, Value};

use super::Violation;

/// What streams have done so far.
#[derive(Debug, Default)]
pub struct Streams {
    taken: BTreeMap<TaskId, u32>,
    /// How many items a run that ended well has yielded.
    whole: BTreeMap<TaskId, u32>,
}

fn broken(invariant: &'static str, text: String, task: TaskId) -> Result<(), Violation> {
    Err(Violation { invariant, text, concerns: vec![task.to_string()] })
}

impl Streams {
    /// A task yields an item.
    pub fn yielded(&mut self, task: TaskId, index: u32, stream: Stream) -> Result<(), Violation> {
        let ahead = (index + 1).saturating_sub(self.taken.get(&task).copied().unwrap_or(0));
        if stream.items_max == 0 || ahead <= stream.items_max {
            return Ok(());
        }
        let text = format!("{task} yields item {index} and is {ahead} ahead, {} are allowed", stream.items_max);
        broken("no stream runs too far ahead", text, task)
    }

    /// A run has yielded all its items.
    pub fn whole(&mut self, task: TaskId, items: u32) {
        self.whole.insert(task, items);
    }

    /// A reader has taken items.
    pub fn taken(&mut self, task: TaskId, items: u32) {
        let taken = self.taken.entry(task).or_insert(0);
        *taken = (*taken).max(items);
    }

    /// Whether a reader has taken this item.
    pub fn was_taken(&self, object: ObjectId) -> bool {
        let taken = self.taken.get(&object.task()).copied().unwrap_or(0);
        object.item_index().is_some_and(|index| index < taken)
    }

    /// A reader sees an item, or what is in its place.
    pub fn item(&mut self, object: ObjectId, value: &Value, process: ProcessId) -> Result<(), Violation> {
        let (task, index) = (object.task(), object.item_index().unwrap_or(u32::MAX));
        let number = match &value.body {
            Body::Inline(bytes) => bytes.get(..8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes),
            Body::Stored(at) => Some(at.offset),
            Body::Failed(failure) => {
                let Failure::StreamEnded { items, .. } = **failure else { return Ok(()) };
                let missing = items <= index && self.whole.get(&task).is_some_and(|whole| *whole > items);
                let failed = items < index;
                if items > index || missing && !failed {
                    let text = format!("{process} sees {object} and hears that there are {items} items");
                    return broken("no item is lost", text, task);
                }
                return Ok(());
            }
        };
        if number != Some(u64::from(index)) {
            return broken("items in order", format!("{process} sees item {number:?} as item {index}"), task);
        }
        Ok(())
    }
}
