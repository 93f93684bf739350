//! Placement groups for people: rows, names, what they wait for, and why something cannot run in one.

use super::{Group, Stage};
use crate::controller::ToController;
use crate::failure::Failure;
use crate::id::{GroupId, NodeId, ProcessId};
use crate::ledger::snapshot::{GroupRow, GroupStage};
use crate::message::{FromNode, RequestId};
use crate::node::early::About;
use crate::node::{Effect, Node, gpus, send};
use crate::resources::Resources;
use crate::spec::Strategy;
use crate::time::Tick;

impl Group {
    pub(super) fn failure(&self, group: GroupId) -> Option<Failure> {
        match &self.stage {
            Stage::Waiting | Stage::Placed => None,
            Stage::Failed(reason) => Some(Failure::GroupUnplaceable { group, reason: reason.clone() }),
            Stage::Removed(reason) => Some(Failure::GroupRemoved { group, reason: reason.clone() }),
        }
    }
}

impl Node {
    /// Why something with this strategy can never run here. A group that is not known is asked about again.
    pub(in crate::node) fn misplaced(
        &mut self,
        process: ProcessId,
        strategy: Strategy,
        asked: &Resources,
        effects: &mut Vec<Effect>,
    ) -> Option<Failure> {
        if let Strategy::Group { group, .. } = strategy
            && self.is_clustered()
        {
            self.know_group(group, effects);
        } else if let Strategy::Group { group, .. } = strategy
            && !self.groups.all.contains_key(&group)
        {
            self.enter_early(process, About::EnterGroup(group));
            return None;
        }
        self.refusal_of_place(strategy, asked)
    }

    pub(super) fn refusal_of_place(&self, strategy: Strategy, asked: &Resources) -> Option<Failure> {
        match strategy {
            Strategy::Group { group, bundle } => self.refusal_of_group(group, bundle, asked),
            // Alone there is no other node, and will never be.
            Strategy::Node { node, soft: false } if self.config.id == NodeId::ALONE && node != NodeId::ALONE => {
                let asked = format!("{asked} on node {}", node.hex());
                let available = format!("node {}", NodeId::ALONE.hex());
                Some(Failure::Infeasible { asked, available })
            }
            Strategy::Default | Strategy::Spread | Strategy::Node { .. } => None,
        }
    }

    pub(super) fn refusal_of_group(&self, id: GroupId, bundle: Option<u32>, asked: &Resources) -> Option<Failure> {
        if self.is_clustered() {
            // One that is over is forgotten, and one whose bundles are not known may have room.
            let known = self.groups.known.get(&id).filter(|known| !known.bundles.is_empty())?;
            return too_small(id, &known.bundles, bundle, asked);
        }
        let Some(group) = self.groups.all.get(&id) else {
            let reason = "it was never created, or was removed long ago".into();
            return Some(Failure::GroupRemoved { group: id, reason });
        };
        if let Some(failure) = group.failure(id) {
            return Some(failure);
        }
        too_small(id, &group.wanted.bundles, bundle, asked)
    }

    pub(in crate::node) fn find_group(
        &self,
        process: ProcessId,
        request: RequestId,
        name: &str,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        if self.is_clustered() {
            let name = name.to_owned();
            effects.push(Effect::AskController(ToController::FindGroup { process, request, name }));
            return;
        }
        let found = self.groups.names.get(name).and_then(|id| self.group_row(*id, now));
        send(process, FromNode::GroupFound { request, found }, effects);
    }

    pub(in crate::node) fn list_groups(
        &self,
        process: ProcessId,
        request: RequestId,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        if self.is_clustered() {
            effects.push(Effect::AskController(ToController::ListGroups { process, request }));
            return;
        }
        let rows = self.groups.all.keys().filter_map(|id| self.group_row(*id, now)).collect();
        send(process, FromNode::Groups { request, rows }, effects);
    }

    fn group_row(&self, id: GroupId, now: Tick) -> Option<GroupRow> {
        let group = self.groups.all.get(&id)?;
        let node = (group.stage == Stage::Placed).then_some(self.config.id);
        let bundles = group.wanted.bundles.iter().map(|bundle| (bundle.clone(), node)).collect();
        let stage = match &group.stage {
            Stage::Waiting => GroupStage::Waiting(self.explain_group(id, now).unwrap_or_default()),
            Stage::Placed => GroupStage::Placed,
            Stage::Failed(reason) => GroupStage::Failed(reason.clone()),
            Stage::Removed(_) => GroupStage::Removed,
        };
        let (name, strategy) = (group.wanted.name.clone(), group.wanted.strategy);
        let (detached, creator) = (group.wanted.detached, group.creator);
        Some(GroupRow { group: id, name, strategy, bundles, stage, detached, creator })
    }

    /// What a group waits for; nothing when there is no such group.
    pub(in crate::node) fn explain_group(&self, id: GroupId, now: Tick) -> Option<String> {
        if let Some(known) = self.groups.known.get(&id) {
            return Some(known.explain(id));
        }
        let group = self.groups.all.get(&id)?;
        Some(match (&group.stage, self.queue.group(id).and_then(|place| self.queue.get(place))) {
            (Stage::Waiting, Some(waiting)) => self.explain_waiting(&id.to_string(), waiting, now),
            (Stage::Waiting, None) => format!("{id} is about to be placed"),
            (Stage::Placed, _) => format!("{id} is placed"),
            (Stage::Failed(reason), _) => format!("{id} can never be placed: {reason}"),
            (Stage::Removed(reason), _) => format!("{id} is gone: {reason}"),
        })
    }
}

/// The most that any of these has of each resource.
fn largest(bundles: &[Resources]) -> Resources {
    let mut all = Resources::default();
    for bundle in bundles {
        all.cpus = all.cpus.max(bundle.cpus);
        all.gpus = all.gpus.max(bundle.gpus);
        all.memory_bytes = all.memory_bytes.max(bundle.memory_bytes);
        for (name, amount) in &bundle.custom {
            let most = all.custom.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }
    all
}

/// Why no bundle of a group, or not the one that is named, can ever hold this.
fn too_small(id: GroupId, bundles: &[Resources], bundle: Option<u32>, asked: &Resources) -> Option<Failure> {
    let chosen = match bundle {
        None => bundles,
        Some(index) => bundles.get(index as usize).map(std::slice::from_ref).unwrap_or_default(),
    };
    if chosen.iter().any(|bundle| gpus::impossible(asked, bundle).is_none()) {
        return None;
    }
    let asked = match bundle {
        None => format!("{asked} in one bundle of {id}"),
        Some(index) => format!("{asked} in bundle {index} of {id}"),
    };
    let available = match chosen {
        [] => format!("bundles 0 to {}", bundles.len().saturating_sub(1)),
        [one] => one.to_string(),
        many => format!("bundles that have {} at most", largest(many)),
    };
    Some(Failure::Infeasible { asked, available })
}
