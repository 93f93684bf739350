//! Never freed while referenced: who holds a reference gets a value or a reason, never the news that it was freed.

use bireme_core::failure::Failure;
use bireme_core::id::{ObjectId, ProcessId};
use bireme_core::value::Value;

use super::Violation;

/// User code sees a value of an object that it holds.
pub fn check(object: ObjectId, value: &Value, process: ProcessId) -> Result<(), Violation> {
    match value.failure() {
        Some(Failure::ObjectLost { object: lost, reason }) => {
            let text = format!("{process} holds {object} and hears that {lost} is lost: {reason}");
            let concerns = vec![lost.task().to_string(), object.task().to_string()];
            Err(Violation { invariant: "never freed while referenced", text, concerns })
        }
        _ => Ok(()),
    }
}
