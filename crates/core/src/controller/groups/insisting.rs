//! Insisting on a group: under steady work nothing may ever be free on enough nodes at the same time.
//!
//! So the oldest group that has waited long is planned on what its nodes have in all, and these reserve for it what comes
//! free. One group at a time, and not for ever: groups that each keep a part of what the other needs, or one that keeps
//! what somebody needs who holds the rest, would wait for each other. What actors hold may stay with them: nodes that did
//! not get it free in time are left out the next time.

use std::collections::{BTreeMap, BTreeSet};

use super::{GroupState, INSIST_AFTER_US, INSIST_FOR_US};
use crate::controller::{Controller, Effect};
use crate::id::{GroupId, NodeId};
use crate::resources::Resources;
use crate::time::Tick;

/// How long a group has waited, and whom it has insisted on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Patience {
    /// Since when nothing was kept for it.
    since: Option<Tick>,
    /// While nodes keep for it what comes free.
    pub(super) insists_until: Option<Tick>,
    /// Those that had not enough in time.
    in_vain: BTreeSet<NodeId>,
}

impl Patience {
    pub(super) fn insists(&self) -> bool {
        self.insists_until.is_some()
    }
}

/// Some nodes, for people.
pub(super) fn named(nodes: &BTreeSet<NodeId>) -> String {
    let first: Vec<String> = nodes.iter().take(4).map(NodeId::to_string).collect();
    first.join(", ")
}

impl Controller {
    /// Nodes that kept something for a group long enough keep it no more. Says whether there were any.
    pub(super) fn end_insisting(&mut self, now: Tick, effects: &mut Vec<Effect>) -> bool {
        let over = |patience: &Patience| patience.insists_until.is_some_and(|until| until <= now);
        let ids: Vec<GroupId> =
            self.groups.all.iter().filter(|(_, group)| over(&group.patience)).map(|(id, _)| *id).collect();
        for id in &ids {
            let Some(group) = self.groups.all.get_mut(id) else { continue };
            let GroupState::Preparing { open, .. } = &group.state else { continue };
            group.patience.in_vain.extend(open);
            group.patience.since = Some(now);
            let seconds = INSIST_FOR_US / 1_000_000;
            let why = format!("{} did not get enough free within {seconds} s", named(open));
            self.roll_back(*id, None, why, effects);
            self.tell_watchers(*id, effects);
        }
        !ids.is_empty()
    }

    /// The first of those that wait may have waited long enough.
    pub(super) fn insist_on_oldest(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        for id in &self.groups.waiting {
            if let Some(group) = self.groups.all.get_mut(id) {
                group.patience.since.get_or_insert(now);
            }
        }
        if self.groups.all.values().any(|group| group.patience.insists()) {
            return;
        }
        let since = |id: &GroupId| self.groups.all.get(id).and_then(|group| group.patience.since).unwrap_or(now);
        let Some(id) = self.groups.waiting.iter().copied().min_by_key(|id| since(id)) else { return };
        let from = since(&id).plus_us(INSIST_AFTER_US);
        if from > now {
            self.groups.try_at(from);
            return;
        }
        let free = self.unreserved();
        let Some(group) = self.groups.all.get_mut(&id) else { return };
        let better = free.iter().filter(|(node, _)| !group.patience.in_vain.contains(node));
        let picks = group.plan(better.map(|(node, free)| (*node, free)));
        let Some(picks) = picks.or_else(|| group.plan(free.iter().map(|(node, free)| (*node, free)))) else {
            // Other groups have it: it comes free with them.
            group.patience.since = Some(now);
            self.groups.try_at(now.plus_us(INSIST_AFTER_US));
            return;
        };
        group.patience.insists_until = Some(now.plus_us(INSIST_FOR_US));
        self.groups.waiting.retain(|waiting| *waiting != id);
        self.prepare_group(id, picks, true, effects);
        self.tell_watchers(id, effects);
    }

    /// What those who take work have in all, without what groups have reserved.
    fn unreserved(&self) -> BTreeMap<NodeId, Resources> {
        let mut left: BTreeMap<NodeId, Resources> =
            self.members.totals().map(|(node, total)| (node, total.clone())).collect();
        for group in self.groups.all.values() {
            let committed = (0..).zip(&group.nodes).filter_map(|(bundle, node)| Some((bundle, (*node)?)));
            let picked = match &group.state {
                GroupState::Preparing { picks, .. } => picks.clone(),
                _ => BTreeMap::new(),
            };
            for (bundle, node) in committed.chain(picked) {
                if let (Some(left), Some(taken)) = (left.get_mut(&node), group.spec.bundles.get(bundle as usize)) {
                    let _covered = left.try_take(taken);
                }
            }
        }
        left
    }
}
