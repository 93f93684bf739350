//! A process never runs a function more often than that allows.

use std::collections::BTreeMap;

use bireme_core::id::{FunctionKey, ProcessId};
use bireme_core::spec::TaskSpec;

use super::Violation;

/// Runs by process and function.
#[derive(Debug, Default)]
pub struct Calls {
    runs: BTreeMap<(ProcessId, FunctionKey), u32>,
}

impl Calls {
    /// A process begins to run a task.
    pub fn started(&mut self, process: ProcessId, spec: &TaskSpec) -> Result<(), Violation> {
        if spec.options.calls_max == 0 {
            return Ok(());
        }
        let runs = self.runs.entry((process, spec.function)).or_insert(0);
        *runs += 1;
        if *runs > spec.options.calls_max {
            let text = format!("{process} runs {} for the time {runs} of {}", spec.function, spec.options.calls_max);
            let concerns = vec![spec.id.to_string()];
            return Err(Violation { invariant: "no more calls than allowed", text, concerns });
        }
        Ok(())
    }

    /// A process is gone.
    pub fn died(&mut self, process: ProcessId) {
        self.runs.retain(|(runner, _), _| *runner != process);
    }
}
