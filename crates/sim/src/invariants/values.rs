//! One value per object: no two observers see two values for one id, in all the object's life.
//!
//! One thing is no value: a death or a cancel in the place of an item that was never made. Its stream runs again when the
//! owner that gave up has died and the owner's task is repeated; what only the dead have seen of it binds nobody.

use std::collections::BTreeMap;

use bireme_core::failure::Failure;
use bireme_core::id::{ObjectId, ProcessId};
use bireme_core::value::Value;

use super::Violation;

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Values {
    seen: BTreeMap<ObjectId, (Value, ProcessId)>,
}

impl Values {
    /// User code sees a value.
    pub fn observed(&mut self, object: ObjectId, value: &Value, process: ProcessId) -> Result<(), Violation> {
        let (first, by) = self.seen.entry(object).or_insert_with(|| (value.clone(), process));
        if first.body == value.body {
            return Ok(());
        }
        let text = format!("{object}: {by} saw {:?}, {process} sees {:?}", first.body, value.body);
        Err(Violation { invariant: "one value per object", text, concerns: vec![object.task().to_string()] })
    }

    /// A process is gone, and with it what it saw in the place of items that were not made.
    pub fn died(&mut self, process: ProcessId) {
        let unmade = |object: &ObjectId, value: &Value| {
            object.item_index().is_some()
                && matches!(value.failure(), Some(Failure::WorkerDied { .. } | Failure::Cancelled { .. }))
        };
        self.seen.retain(|object, (value, by)| *by != process || !unmade(object, value));
    }

    /// Nobody can ask for it any more; under the same id it may be made again.
    pub fn freed(&mut self, object: ObjectId) {
        self.seen.remove(&object);
    }
}
