//! At most one attempt of a task at a time: a lost one is asked about before it is run again. And no more attempts than
//! the program allows: after the death of its worker a task is run again as often as its job says, and never when it has
//! ended well in a process that lives.

use std::collections::{BTreeMap, BTreeSet};

use bireme_core::id::{ProcessId, TaskId};

use super::Violation;

/// The runs of tasks, and how many of them were lost.
#[derive(Debug, Default)]
pub struct Attempts {
    running: BTreeMap<TaskId, ProcessId>,
    /// Runs that an earlier owner began: the next one does not count their loss, and may have asked before they ended.
    adopted: BTreeSet<TaskId>,
    /// Runs that were alone in a process that was killed: these count for sure.
    lost: BTreeMap<TaskId, u32>,
    /// The processes in which tasks have ended well.
    done: BTreeMap<TaskId, ProcessId>,
}

impl Attempts {
    /// A process makes a task, maybe once more: it counts its losses itself.
    pub fn made(&mut self, task: TaskId) {
        self.lost.remove(&task);
        self.done.remove(&task);
        if self.running.contains_key(&task) {
            self.adopted.insert(task);
        }
    }

    /// A process begins to run a task, which the program allows to be tried again so often.
    pub fn started(&mut self, process: ProcessId, task: TaskId, retries_max: u32) -> Result<(), Violation> {
        let concerns = vec![task.to_string()];
        if let Some(other) = self.running.insert(task, process) {
            let text = format!("{task} runs in {other} and begins in {process}");
            return Err(Violation { invariant: "one attempt at a time", text, concerns });
        }
        self.adopted.remove(&task);
        if let Some(other) = self.done.get(&task) {
            let text = format!("{task} has ended in {other} and begins in {process}");
            return Err(Violation { invariant: "what has ended is not run again", text, concerns });
        }
        let lost = self.lost.get(&task).copied().unwrap_or(0);
        if lost > retries_max {
            let text =
                format!("{task} begins in {process} after {lost} lost runs and may be tried again {retries_max} times");
            return Err(Violation { invariant: "no more retries than allowed", text, concerns });
        }
        Ok(())
    }

    /// It has ended it.
    pub fn ended(&mut self, process: ProcessId, task: TaskId) {
        if self.running.get(&task) == Some(&process) {
            self.running.remove(&task);
        }
    }

    /// It has ended it well.
    pub fn done(&mut self, process: ProcessId, task: TaskId) {
        if !self.adopted.contains(&task) {
            self.done.insert(task, process);
        }
    }

    /// A process is killed.
    pub fn killed(&mut self, process: ProcessId) {
        let mut here = self.running.iter().filter(|(_, running)| **running == process).map(|(task, _)| *task);
        if let (Some(task), None) = (here.next(), here.next())
            && !self.adopted.contains(&task)
        {
            *self.lost.entry(task).or_insert(0) += 1;
        }
    }

    /// A process is gone.
    pub fn died(&mut self, process: ProcessId) {
        self.running.retain(|_, running| *running != process);
        self.done.retain(|_, done| *done != process);
    }
}
