//! Resources are never oversubscribed, except for the node's stated debt (RES-1).

use bireme_core::ledger::Snapshot;
use bireme_core::resources::Amount;

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
