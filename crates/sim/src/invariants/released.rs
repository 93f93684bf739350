//! At most one attempt of a task is ever released: all that anybody sees of its results is of one run.

use std::collections::{BTreeMap, BTreeSet};

use bireme_core::id::{NodeId, ObjectId, ProcessId, TaskId};
use bireme_core::value::{Body, Value};

use super::Violation;

/// Which run made what, and which run of each task was seen.
#[derive(Debug, Default)]
pub struct Released {
    made: BTreeMap<Vec<u8>, u32>,
    /// Which run of a task was seen, by whom first, and on which nodes.
    seen: BTreeMap<TaskId, (u32, ProcessId, BTreeSet<NodeId>)>,
}

impl Released {
    /// A run gives a value. Every value is drawn anew, so it tells its run.
    pub fn made(&mut self, attempt: u32, value: &Value) {
        if let Body::Inline(bytes) = &value.body {
            self.made.insert(bytes.to_vec(), attempt);
        }
    }

    /// User code sees a result.
    pub fn observed(&mut self, object: ObjectId, value: &Value, process: ProcessId) -> Result<(), Violation> {
        let Body::Inline(bytes) = &value.body else { return Ok(()) };
        let Some(attempt) = self.made.get(&bytes[..]).copied().filter(|_| !object.is_put()) else { return Ok(()) };
        let (first, by, nodes) = self.seen.entry(object.task()).or_insert_with(|| (attempt, process, BTreeSet::new()));
        if *first == attempt {
            nodes.insert(process.node);
            return Ok(());
        }
        let task = object.task();
        let text = format!("{by} saw a result of attempt {first} of {task}, {process} sees one of attempt {attempt}");
        Err(Violation { invariant: "one attempt is released", text, concerns: vec![task.to_string()] })
    }

    /// A node is gone, and with it what was seen only there.
    pub fn node_lost(&mut self, node: NodeId) {
        self.seen.retain(|_, (_, _, nodes)| {
            nodes.remove(&node);
            !nodes.is_empty()
        });
    }

    /// Nobody can ask for it any more; under the same id it may be made again.
    pub fn freed(&mut self, object: ObjectId) {
        if !object.is_put() {
            self.seen.remove(&object.task());
        }
    }
}
