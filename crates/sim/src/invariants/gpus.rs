//! A GPU is never given out more than once (GPU-1), and a task has as many as it asked for.

use std::collections::{BTreeMap, BTreeSet};

use bireme_core::id::{ProcessId, TaskId};
use bireme_core::resources::UNITS_PER_WHOLE;
use bireme_core::spec::{TaskKind, TaskSpec};

use super::Violation;

/// Who has which.
#[derive(Debug, Default)]
pub struct Gpus {
    held: BTreeMap<(ProcessId, TaskId), Held>,
}

#[derive(Debug)]
struct Held {
    indices: Vec<u32>,
    /// Of each, in units.
    share: u64,
    /// An actor keeps them.
    actor: bool,
}

impl Gpus {
    /// A process begins to run a task. A call has what its actor has.
    pub fn started(&mut self, process: ProcessId, spec: &TaskSpec, indices: &[u32]) -> Result<(), Violation> {
        if matches!(spec.kind, TaskKind::Call { .. }) {
            return Ok(());
        }
        let asked = spec.options.resources.gpus.0;
        let held = Held {
            indices: indices.to_vec(),
            share: asked.min(UNITS_PER_WHOLE),
            actor: matches!(spec.kind, TaskKind::Create(_)),
        };
        self.held.insert((process, spec.id), held);
        let distinct = indices.iter().collect::<BTreeSet<_>>().len() as u64;
        let over = indices.iter().any(|index| {
            let here = self.held.iter().filter(|((holder, _), _)| holder.node == process.node);
            let holders = here.filter(|(_, held)| held.indices.contains(index));
            holders.map(|(_, held)| held.share).sum::<u64>() > UNITS_PER_WHOLE
        });
        if over || distinct != asked.div_ceil(UNITS_PER_WHOLE) {
            let text = format!("{} asks for {asked} units and has {indices:?} of {:?}", spec.id, self.held);
            let concerns = vec![spec.id.to_string()];
            return Err(Violation { invariant: "a GPU is given out once", text, concerns });
        }
        Ok(())
    }

    /// It has ended it.
    pub fn ended(&mut self, process: ProcessId, task: TaskId) {
        if self.held.get(&(process, task)).is_some_and(|held| !held.actor) {
            self.held.remove(&(process, task));
        }
    }

    /// A process is gone.
    pub fn died(&mut self, process: ProcessId) {
        self.held.retain(|(holder, _), _| *holder != process);
    }
}
