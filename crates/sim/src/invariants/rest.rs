//! Nothing leaks at rest: when all references are dropped, all tables are empty.

use bireme_core::node::Abroad;

use super::Violation;
use crate::cluster::{Cluster, is_driver};

/// Looks at every table.
pub fn check(cluster: &Cluster) -> Result<(), Violation> {
    let mut left = Vec::new();
    let mut concerns = Vec::new();
    for (process, entry) in &cluster.processes {
        if entry.owner.pending() > 0 || entry.owner.object_count() > 0 {
            left.push(format!("{process} has {:?}", entry.owner));
        }
        if !is_driver(*process) && !entry.threads.is_empty() {
            left.push(format!("{process} still runs {} threads", entry.threads.len()));
        }
    }
    for (node, host) in &cluster.hosts {
        let abroad = host.node.abroad();
        if abroad != Abroad::default() {
            left.push(format!("{node} has {abroad:?}"));
        }
        if host.store.transfers_left() > 0 {
            left.push(format!("{node} still waits for {} copies", host.store.transfers_left()));
        }
        if host.node.reduces() != (0, 0, 0) || host.stages.left() > 0 {
            left.push(format!("{node} has reduces {:?} and {} stages", host.node.reduces(), host.stages.left()));
        }
        for (group, bundle, ..) in host.node.reserved_bundles() {
            left.push(format!("{node} has reserved bundle {bundle} of {group}"));
            concerns.push(group.to_string());
        }
        let ledger = host.node.ledger();
        for task in ledger.task_ids() {
            left.push(format!("the ledger of {node} has {task}: {:?}", ledger.task(task)));
            concerns.push(task.to_string());
        }
        for put in ledger.put_ids() {
            left.push(format!("the ledger of {node} has {put}: {:?}", ledger.put(put)));
            concerns.push(put.task().to_string());
        }
    }
    for host in cluster.hosts.values() {
        left.extend(super::jobs::left_behind(&host.node.snapshot(cluster.now)));
    }
    left.extend(cluster.watch.lying());
    if left.is_empty() {
        return Ok(());
    }
    concerns.truncate(3);
    Err(Violation { invariant: "nothing leaks at rest", text: left.join("\n"), concerns })
}
