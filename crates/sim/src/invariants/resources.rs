//! Resources are never oversubscribed, except for the node's stated debt (RES-1): in the node's own account, and by what runs.

use std::collections::{BTreeMap, BTreeSet};

use bireme_core::id::{LeaseId, NodeId, ProcessId, TaskId};
use bireme_core::ledger::Snapshot;
use bireme_core::resources::Amount;
use bireme_core::spec::{TaskKind, TaskSpec};

use super::Violation;

/// The node's account: leases whose tasks run, what is free, and the debt, here and in bundles.
pub fn check(snapshot: &Snapshot, in_bundles: Amount) -> Result<(), Violation> {
    let row = &snapshot.resources;
    // What an idle lease holds is counted as free.
    let running: u64 =
        snapshot.leases.iter().filter(|lease| !lease.blocked && !lease.idle).map(|lease| lease.resources.cpus.0).sum();
    let over = running + row.free.cpus.0 > row.total.cpus.0 + row.debt.0 + in_bundles.0;
    let idle_debt = row.debt.0 > 0 && row.free.cpus.0 > 0;
    if over || idle_debt {
        let text = format!("leases hold {running} of {row:?}");
        return Err(Violation { invariant: "resources are never oversubscribed", text, concerns: vec![] });
    }
    Ok(())
}

/// The tasks that run in the processes, whatever their nodes think.
#[derive(Debug, Default)]
pub struct Running {
    cpus: BTreeMap<NodeId, u64>,
    /// What runs under each lease has taken; an actor keeps it for life, under no lease.
    held: BTreeMap<(ProcessId, LeaseId), (TaskId, u64)>,
    /// Leases whose tasks have waited for something: they have lent their CPU, and may go on before that is given back.
    lent: BTreeSet<(ProcessId, LeaseId)>,
}

impl Running {
    /// The resources of a machine.
    pub fn machine(&mut self, node: NodeId, cpus: Amount) {
        self.cpus.insert(node, cpus.0);
    }

    /// A process begins to run a task. A call runs on what its actor has.
    pub fn started(&mut self, process: ProcessId, lease: LeaseId, spec: &TaskSpec) -> Result<(), Violation> {
        if matches!(spec.kind, TaskKind::Call { .. }) {
            return Ok(());
        }
        self.held.insert((process, lease), (spec.id, spec.options.resources.cpus.0));
        let counts = |key: &(ProcessId, LeaseId)| key.0.node == process.node && !self.lent.contains(key);
        let sum: u64 = self.held.iter().filter(|(key, _)| counts(key)).map(|(_, (_, cpus))| cpus).sum();
        let total = self.cpus.get(&process.node).copied().unwrap_or(u64::MAX);
        if sum > total {
            let text = format!("{} begins in {process}, and {sum} of {total} units run: {:?}", spec.id, self.held);
            let concerns = vec![spec.id.to_string()];
            return Err(Violation { invariant: "no more runs than there are CPUs", text, concerns });
        }
        Ok(())
    }

    /// What runs under this lease waits for something.
    pub fn waited(&mut self, process: ProcessId, lease: LeaseId) {
        self.lent.insert((process, lease));
    }

    /// A task has ended.
    pub fn ended(&mut self, process: ProcessId, task: TaskId) {
        self.held.retain(|(holder, lease), (held, _)| *holder != process || *held != task || lease.0 == 0);
    }

    /// A process is gone.
    pub fn died(&mut self, process: ProcessId) {
        self.held.retain(|(holder, _), _| *holder != process);
        self.lent.retain(|(holder, _)| *holder != process);
    }
}
