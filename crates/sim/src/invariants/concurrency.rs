//! An actor runs no more calls at once than its program says, its constructor alone, and starts each caller's in order.

use std::collections::{BTreeMap, BTreeSet};

use bireme_core::id::{ProcessId, TaskId};
use bireme_core::spec::{TaskKind, TaskSpec};

use super::Violation;

/// One life of an actor.
#[derive(Debug, Default)]
struct Life {
    concurrency_max: usize,
    constructor: Option<TaskId>,
    running: BTreeSet<TaskId>,
    /// The last call that each caller has had started.
    last: BTreeMap<ProcessId, u64>,
}

/// What runs in the processes of actors.
#[derive(Debug, Default)]
pub struct Concurrency {
    lives: BTreeMap<ProcessId, Life>,
}

impl Concurrency {
    /// A process begins to run something.
    pub fn began(&mut self, process: ProcessId, spec: &TaskSpec, concurrency_max: usize) -> Result<(), Violation> {
        let broken = |invariant, text| Err(Violation { invariant, text, concerns: vec![spec.id.to_string()] });
        match spec.kind {
            TaskKind::Plain => Ok(()),
            TaskKind::Create(_) => {
                let constructor = Some(spec.id);
                self.lives.insert(process, Life { concurrency_max, constructor, ..Life::default() });
                Ok(())
            }
            TaskKind::Call { caller, sequence, .. } => {
                let life = self.lives.entry(process).or_default();
                life.running.insert(spec.id);
                let last = life.last.insert(caller, sequence);
                let (count, most) = (life.running.len(), life.concurrency_max);
                if life.constructor.is_some() {
                    let text = format!("{process} starts {} before its constructor has ended", spec.id);
                    broken("the constructor runs alone", text)
                } else if count > most {
                    broken("no more calls at once than allowed", format!("{process} runs {count} of {most} calls"))
                } else if last.is_some_and(|last| last >= sequence) {
                    let text = format!("{process} starts call {sequence} of {caller} after {last:?}");
                    broken("calls start in order", text)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// It has ended it.
    pub fn ended(&mut self, process: ProcessId, task: TaskId) {
        if let Some(life) = self.lives.get_mut(&process) {
            life.constructor.take_if(|constructor| *constructor == task);
            life.running.remove(&task);
        }
    }

    /// A process is gone.
    pub fn died(&mut self, process: ProcessId) {
        self.lives.remove(&process);
    }
}
