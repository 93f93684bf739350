//! A placement group is whole or absent (GROUP-1): a bundle can be used only when every other one is reserved, or was whole
//! before a node died; and no bundle is on two nodes.

use std::collections::BTreeSet;

use bireme_core::controller::Controller;
use bireme_core::id::{GroupId, NodeId};

use super::Violation;

/// Looks at the bundles that can be used on live nodes, and at those that are at least reserved. While no node has died
/// every bundle must be.
pub fn check(
    controller: &Controller,
    committed: &[(GroupId, u32, NodeId)],
    reserved: impl Fn(GroupId, u32) -> bool,
    nobody_died: bool,
) -> Result<(), Violation> {
    let broken = |text| Err(Violation { invariant: "a placement group is whole or absent", text, concerns: vec![] });
    let mut seen = BTreeSet::new();
    for (group, bundle, node) in committed {
        if !seen.insert((*group, *bundle)) {
            return broken(format!("bundle {bundle} of {group} is on {node} and on another node"));
        }
        let Some(known) = controller.groups().get(*group) else { continue };
        let bundles = (0..).zip(&known.nodes);
        // A dead node's bundles are absent while the others stay.
        let missing =
            bundles.into_iter().find(|(other, at)| (nobody_died || at.is_some()) && !reserved(*group, *other));
        if let Some((other, at)) = missing {
            return broken(format!(
                "{group} has bundle {bundle} on {node}, and nothing is reserved for {other} on {at:?}"
            ));
        }
    }
    Ok(())
}
