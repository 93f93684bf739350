//! Actor calls keep the order of the task that calls, and a life of an actor applies each call once.

use std::collections::BTreeMap;

use bireme_core::id::{ActorId, ProcessId, TaskId};

use super::Violation;

/// The last call that each life of each actor applied, per caller and calling task.
#[derive(Debug, Default)]
pub struct Order {
    last: BTreeMap<(ActorId, ProcessId, ProcessId, TaskId), u64>,
}

impl Order {
    /// An actor applies a call.
    pub fn applied(
        &mut self,
        process: ProcessId,
        actor: ActorId,
        (caller, parent): (ProcessId, TaskId),
        sequence: u64,
        task: TaskId,
    ) -> Result<(), Violation> {
        match self.last.insert((actor, process, caller, parent), sequence) {
            Some(last) if last >= sequence => {
                let text = format!("{actor} in {process} applies call {sequence} ({task}) of {caller} after {last}");
                Err(Violation { invariant: "calls once and in order", text, concerns: vec![task.to_string()] })
            }
            _ => Ok(()),
        }
    }
}
