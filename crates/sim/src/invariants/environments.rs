//! A process serves one environment all its life (ENV-1).

use std::collections::BTreeMap;

use bireme_core::id::ProcessId;
use bireme_core::spec::{TaskKind, TaskSpec};

use super::Violation;

/// What each process has become.
#[derive(Debug, Default)]
pub struct Environments {
    of: BTreeMap<ProcessId, u64>,
}

impl Environments {
    /// A process begins to run a task. A call runs where its actor lives, whatever it says itself.
    pub fn started(&mut self, process: ProcessId, spec: &TaskSpec) -> Result<(), Violation> {
        if matches!(spec.kind, TaskKind::Call { .. }) {
            return Ok(());
        }
        let environment = spec.options.environment;
        match self.of.insert(process, environment) {
            Some(before) if before != environment => {
                let text = format!("{process} ran environment {before} and begins {} of {environment}", spec.id);
                Err(Violation { invariant: "one environment per process", text, concerns: vec![spec.id.to_string()] })
            }
            _ => Ok(()),
        }
    }

    /// A process is gone.
    pub fn died(&mut self, process: ProcessId) {
        self.of.remove(&process);
    }
}
