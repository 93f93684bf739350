//! The two steps by which bundles are placed, and what undoes them: a refusal, a death, a restart of the controller.

use std::collections::{BTreeMap, BTreeSet};

use super::insisting::Patience;
use super::{GroupState, REFUSED_AGAIN_US};
use crate::controller::{Controller, Effect, FromController, send};
use crate::id::{GroupId, NodeId};
use crate::resources::Resources;
use crate::time::Tick;

impl Controller {
    pub(super) fn prepare_group(
        &mut self,
        id: GroupId,
        picks: BTreeMap<u32, NodeId>,
        waits: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(group) = self.groups.all.get_mut(&id) else { return };
        group.attempt += 1;
        let mut by_node: BTreeMap<NodeId, Vec<(u32, Resources)>> = BTreeMap::new();
        for (bundle, node) in &picks {
            let resources = group.spec.bundles[*bundle as usize].clone();
            if let Some(left) = self.members.left_mut(*node) {
                // For the plan of the next group; the node decides.
                let _covered = left.try_take(&resources);
            }
            by_node.entry(*node).or_default().push((*bundle, resources));
        }
        let (attempt, open) = (group.attempt, by_node.keys().copied().collect());
        group.state = GroupState::Preparing { picks, open };
        self.generation += 1;
        for (node, bundles) in by_node {
            send(node, FromController::Prepare { group: id, attempt, bundles, waits }, effects);
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(in crate::controller) fn bundles_prepared(
        &mut self,
        node: NodeId,
        id: GroupId,
        attempt: u32,
        refused: Option<String>,
        free: Resources,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(left) = self.members.left_mut(node) {
            *left = free;
        }
        let Some(group) = self.groups.all.get_mut(&id).filter(|group| group.attempt == attempt) else { return };
        let GroupState::Preparing { picks, open } = &mut group.state else { return };
        if let Some(reason) = refused {
            self.roll_back(id, Some(node), format!("{node} refused: {reason}"), effects);
            self.groups.try_at(now.plus_us(REFUSED_AGAIN_US));
            return;
        }
        open.remove(&node);
        if !open.is_empty() {
            return;
        }
        // GROUP-1: all are reserved, so all are committed.
        let picks = std::mem::take(picks);
        group.patience = Patience::default();
        for (bundle, node) in &picks {
            let before = group.nodes[*bundle as usize].replace(*node);
            assert!(before.is_none(), "GROUP-1: bundle {bundle} of {id} was on {before:?} already");
        }
        let open: BTreeSet<NodeId> = picks.into_values().collect();
        group.state = GroupState::Committing { open: open.clone() };
        self.generation += 1;
        for node in open {
            send(node, FromController::Commit { group: id, attempt }, effects);
        }
    }

    /// Gives up a try: who reserved something, or is about to, gives it back.
    pub(super) fn roll_back(&mut self, id: GroupId, without: Option<NodeId>, why: String, effects: &mut Vec<Effect>) {
        let Some(group) = self.groups.all.get_mut(&id) else { return };
        group.patience.insists_until = None;
        let GroupState::Preparing { picks, .. } = &group.state else { return };
        let attempt = Some(group.attempt);
        for node in picks.values().copied().collect::<BTreeSet<_>>() {
            if Some(node) != without && self.members.get(node).is_some() {
                let reason = why.clone();
                send(node, FromController::Release { group: id, attempt, reason }, effects);
            }
        }
        self.groups.wait(id, why);
        self.generation += 1;
    }

    pub(in crate::controller) fn bundles_committed(
        &mut self,
        node: NodeId,
        id: GroupId,
        attempt: u32,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let Some(group) = self.groups.all.get_mut(&id).filter(|group| group.attempt == attempt) else { return };
        let GroupState::Committing { open } = &mut group.state else { return };
        open.remove(&node);
        if open.is_empty() {
            self.finish_commit(id, effects);
            self.place_groups(now, effects);
        }
    }

    /// All who live have committed. Who died in between has bundles that are missing now.
    fn finish_commit(&mut self, id: GroupId, effects: &mut Vec<Effect>) {
        let Some(group) = self.groups.all.get_mut(&id) else { return };
        group.was_placed = true;
        self.generation += 1;
        if group.nodes.iter().all(Option::is_some) {
            group.state = GroupState::Placed;
        } else {
            self.groups.wait(id, "a node died while its bundles were placed".to_owned());
        }
        self.tell_watchers(id, effects);
    }

    /// A node is dead, and what was reserved on it with it.
    pub(in crate::controller) fn lose_bundles(&mut self, dead: NodeId, now: Tick, effects: &mut Vec<Effect>) {
        for early in self.groups.early.values_mut() {
            early.watchers.remove(&dead);
        }
        for id in self.groups.all.keys().copied().collect::<Vec<_>>() {
            let Some(group) = self.groups.all.get_mut(&id) else { continue };
            group.watchers.remove(&dead);
            let mut lost = false;
            for node in &mut group.nodes {
                if *node == Some(dead) {
                    (*node, lost) = (None, true);
                }
            }
            match &mut group.state {
                GroupState::Preparing { picks, .. } if lost || picks.values().any(|node| *node == dead) => {
                    self.roll_back(id, None, format!("{dead} died"), effects);
                    self.tell_watchers(id, effects);
                }
                GroupState::Committing { open } => {
                    if open.remove(&dead) && open.is_empty() {
                        self.finish_commit(id, effects);
                    }
                }
                GroupState::Placed if lost => {
                    self.groups.wait(id, format!("{dead} died"));
                    self.tell_watchers(id, effects);
                }
                GroupState::Waiting { .. } if lost => self.tell_watchers(id, effects),
                GroupState::Waiting { .. } | GroupState::Preparing { .. } | GroupState::Placed => {}
            }
        }
        self.place_groups(now, effects);
    }

    /// After a restart: a try that was under way begins anew, a commit is said again.
    pub(in crate::controller) fn resume_groups(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        for id in self.groups.all.keys().copied().collect::<Vec<_>>() {
            let Some(group) = self.groups.all.get(&id) else { continue };
            match &group.state {
                GroupState::Preparing { .. } => {
                    self.roll_back(id, None, "the controller was restarted".to_owned(), effects);
                }
                GroupState::Committing { open } => {
                    for node in open {
                        send(*node, FromController::Commit { group: id, attempt: group.attempt }, effects);
                    }
                }
                GroupState::Waiting { .. } | GroupState::Placed => {}
            }
        }
        self.place_groups(now, effects);
    }
}
