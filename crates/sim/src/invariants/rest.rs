//! Nothing leaks at rest: when all references are dropped, all tables are empty.

use bireme_core::id::ProcessId;

use super::Violation;
use crate::cluster::Cluster;

/// Looks at every table.
pub fn check(cluster: &Cluster) -> Result<(), Violation> {
    let mut left = Vec::new();
    let mut concerns = Vec::new();
    for (process, entry) in &cluster.processes {
        if entry.owner.pending() > 0 || entry.owner.object_count() > 0 {
            left.push(format!("{process} has {:?}", entry.owner));
        }
        if *process != ProcessId::DRIVER && !entry.threads.is_empty() {
            left.push(format!("{process} still runs {} threads", entry.threads.len()));
        }
    }
    let ledger = cluster.node.ledger();
    for task in ledger.task_ids() {
        left.push(format!("the ledger has {task}: {:?}", ledger.task(task)));
        concerns.push(task.to_string());
    }
    for put in ledger.put_ids() {
        left.push(format!("the ledger has {put}: {:?}", ledger.put(put)));
        concerns.push(put.task().to_string());
    }
    if cluster.watch.stored_count() > 0 {
        left.push(format!("{} items of streams are still in the store", cluster.watch.stored_count()));
    }
    if left.is_empty() {
        return Ok(());
    }
    concerns.truncate(3);
    Err(Violation { invariant: "nothing leaks at rest", text: left.join("\n"), concerns })
}
