//! How often functions with a limit have run in this process.

use std::collections::BTreeMap;

use crate::id::FunctionKey;
use crate::spec::{TaskKind, TaskSpec};

/// Runs by function. Only functions that have a limit are counted, so this stays as small as the program.
#[derive(Debug, Default)]
pub(super) struct Calls(BTreeMap<FunctionKey, u32>);

impl Calls {
    /// Counts a run that starts. True when it is the last one that this process may do. An actor has no such limit.
    pub(super) fn is_last(&mut self, spec: &TaskSpec) -> bool {
        let calls_max = spec.options.calls_max;
        if calls_max == 0 || !matches!(spec.kind, TaskKind::Plain) {
            return false;
        }
        let runs = self.0.entry(spec.function).or_insert(0);
        *runs += 1;
        *runs >= calls_max
    }
}
