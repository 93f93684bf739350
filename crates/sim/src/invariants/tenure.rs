//! No lease outlives its node: when the controller calls a node dead its processes have ended, and nothing of it is heard
//! after its death.

use std::collections::{BTreeMap, BTreeSet};

use bireme_core::id::{NodeId, ProcessId};

use super::Violation;

/// Which deaths of nodes each process has heard of.
#[derive(Debug, Default)]
pub struct Tenures {
    buried: BTreeMap<ProcessId, BTreeSet<NodeId>>,
}

fn broken(text: String) -> Result<(), Violation> {
    Err(Violation { invariant: "no lease outlives its node", text, concerns: vec![] })
}

impl Tenures {
    /// The controller declares a node dead; so many of its processes run.
    pub fn declared_dead(&self, node: NodeId, running: usize) -> Result<(), Violation> {
        match running {
            0 => Ok(()),
            _ => broken(format!("{node} is declared dead, and {running} of its processes run")),
        }
    }

    /// A process hears of the death of a node.
    pub fn buried(&mut self, process: ProcessId, node: NodeId) {
        self.buried.entry(process).or_default().insert(node);
    }

    /// A process hears a process of another node.
    pub fn relayed(&self, process: ProcessId, from: ProcessId) -> Result<(), Violation> {
        match self.buried.get(&process) {
            Some(buried) if buried.contains(&from.node) => {
                broken(format!("{process} has heard that {} is dead, and hears {from}", from.node))
            }
            _ => Ok(()),
        }
    }

    /// A process is gone.
    pub fn died(&mut self, process: ProcessId) {
        self.buried.remove(&process);
    }
}
