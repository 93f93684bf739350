//! Placement groups that are not there: gone and remembered, or asked about before their creation has come.
//!
//! The creation of a group and a question about it may come from two nodes, so an unknown one is waited for as long as a
//! message of a live node can be under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::{Ends, GroupSpec, Groups, Placement};
use crate::controller::{Controller, Effect, FromController, send};
use crate::id::{GroupId, NodeId};
use crate::ledger::snapshot::{GroupRow, GroupStage};
use crate::node::GRACE_US;
use crate::time::Tick;

/// So many groups that are gone are remembered; who asks about an older one hears that it is unknown.
pub const GROUPS_GONE_MAX: usize = 1_000;
/// So many unknown groups are waited for at a time; a question about a further one is answered at once.
pub const GROUPS_EARLY_MAX: usize = 10_000;

/// What was asked about a group that is not known.
#[derive(Clone, Debug, Default)]
pub(super) struct Early {
    pub(super) watchers: BTreeSet<NodeId>,
    /// It is to be removed as soon as it is there, and why.
    pub(super) removed: Option<String>,
    /// Until when it may come.
    pub(super) until: Tick,
}

/// The last groups that are gone, or could not be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Gone {
    all: BTreeMap<GroupId, (GroupSpec, Placement)>,
    order: VecDeque<GroupId>,
}

impl Gone {
    pub(super) fn remember(&mut self, id: GroupId, spec: GroupSpec, placement: Placement) {
        self.all.insert(id, (spec, placement));
        self.order.push_back(id);
        while self.order.len() > GROUPS_GONE_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.all.remove(&oldest);
            }
        }
    }

    /// It is created again.
    pub(super) fn forget(&mut self, id: GroupId) {
        if self.all.remove(&id).is_some() {
            self.order.retain(|gone| *gone != id);
        }
    }

    pub(super) fn told(&self, group: GroupId) -> Option<FromController> {
        let (spec, placement) = self.all.get(&group)?;
        Some(FromController::GroupAt { group, bundles: spec.bundles.clone(), placement: placement.clone() })
    }
}

/// What is told of a group of which nothing is known.
pub(super) fn unknown(group: GroupId) -> FromController {
    let reason = "it was never created, or was removed long ago".to_owned();
    FromController::GroupAt { group, bundles: Vec::new(), placement: Placement::Removed { reason } }
}

impl Groups {
    /// The questions about an unknown group; none when there are too many such groups.
    pub(super) fn early(&mut self, id: GroupId, now: Tick) -> Option<&mut Early> {
        if !self.early.contains_key(&id) && self.early.len() >= GROUPS_EARLY_MAX {
            return None;
        }
        let until = now.plus_us(GRACE_US);
        Some(self.early.entry(id).or_insert_with(|| Early { until, ..Early::default() }))
    }

    /// A group for people.
    pub(in crate::controller) fn row(&self, id: GroupId) -> Option<GroupRow> {
        let group = self.all.get(&id)?;
        let stage = match group.placement() {
            Placement::Waiting { why } => GroupStage::Waiting(why),
            Placement::Placed { .. } => GroupStage::Placed,
            Placement::Rescheduling { why, .. } => GroupStage::Rescheduling(why),
            Placement::Failed { reason } => GroupStage::Failed(reason),
            Placement::Removed { .. } => GroupStage::Removed,
        };
        Some(row(id, &group.spec, &group.nodes, stage))
    }

    /// All groups for people, also the last that are gone.
    pub fn table(&self) -> Vec<GroupRow> {
        let gone = self.gone.all.iter().map(|(id, (spec, placement))| {
            let stage = match placement {
                Placement::Failed { reason } => GroupStage::Failed(reason.clone()),
                _ => GroupStage::Removed,
            };
            row(*id, spec, &[], stage)
        });
        self.all.keys().filter_map(|id| self.row(*id)).chain(gone).collect()
    }
}

fn row(group: GroupId, spec: &GroupSpec, nodes: &[Option<NodeId>], stage: GroupStage) -> GroupRow {
    let at = |place: usize| nodes.get(place).copied().flatten();
    GroupRow {
        group,
        name: spec.name.clone(),
        strategy: spec.packing,
        bundles: spec.bundles.iter().enumerate().map(|(place, bundle)| (bundle.clone(), at(place))).collect(),
        stage,
        detached: spec.ends == Ends::Never,
        creator: spec.creator,
    }
}

impl Controller {
    /// Groups that were asked about and have not come never will.
    pub(in crate::controller) fn expire_early(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let due = self.groups.early.iter().filter(|(_, early)| early.until <= now);
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            for watcher in self.groups.early.remove(&id).unwrap_or_default().watchers {
                send(watcher, unknown(id), effects);
            }
        }
    }
}
