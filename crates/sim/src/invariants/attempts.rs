//! At most one attempt of a task at a time: a lost one is asked about before it is run again.

use std::collections::BTreeMap;

use bireme_core::id::{ProcessId, TaskId};

use super::Violation;

/// Which tasks run where.
#[derive(Debug, Default)]
pub struct Attempts {
    running: BTreeMap<TaskId, ProcessId>,
}

impl Attempts {
    /// A process begins to run a task.
    pub fn started(&mut self, process: ProcessId, task: TaskId) -> Result<(), Violation> {
        match self.running.insert(task, process) {
            None => Ok(()),
            Some(other) => {
                let text = format!("{task} runs in {other} and begins in {process}");
                Err(Violation { invariant: "one attempt at a time", text, concerns: vec![task.to_string()] })
            }
        }
    }

    /// It has ended it.
    pub fn ended(&mut self, process: ProcessId, task: TaskId) {
        if self.running.get(&task) == Some(&process) {
            self.running.remove(&task);
        }
    }

    /// A process is gone.
    pub fn died(&mut self, process: ProcessId) {
        self.running.retain(|_, running| *running != process);
    }
}
