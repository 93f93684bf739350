//! One value per object: no two observers see two values for one id, in all the object's life.

use std::collections::BTreeMap;

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

    /// Nobody can ask for it any more; under the same id it may be made again.
    pub fn freed(&mut self, object: ObjectId) {
        self.seen.remove(&object);
    }
}
