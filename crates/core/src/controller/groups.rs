//! Placement groups: bundles of resources that are reserved together, or not at all.
//!
//! A group is planned on what the nodes last said that they have free (`plan`), and placed in two steps: every node is
//! asked to reserve its bundles; when all have, all are told to commit. When one refuses or dies before that, the others
//! give back what they reserved, and the group waits until something comes free. The nodes know what they really have, so
//! a plan from an old load costs a try and never a resource that is given twice.
//!
//! GROUP-1: a bundle is committed only when every bundle that was missing is prepared, and is on one live node at most.
//! So a group is whole or absent; when a node dies, its bundles are absent until all of them are placed again, and the
//! others stay.
//!
//! What can never fit by the totals of the live nodes is refused at once. A group that became impossible later waits and
//! says so.
//!
//! A group ends with its job or with the actor that made it, unless it is detached. The node that knows when that is
//! over keeps it: it is told of the group and asks for its removal; when that node dies, the group goes with it.
//!
//! | file | what |
//! |---|---|
//! | `plan` | which node gets which bundle |
//! | `steps` | the two steps and what undoes them |
//! | `insisting` | keeping what comes free for a group that has waited long |
//! | `gone` | groups that are asked about before they are there, or after |

mod gone;
mod insisting;
mod plan;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use self::gone::{Early, Gone};
use self::insisting::Patience;
use super::{Controller, Effect, FromController, send};
use crate::id::{ActorId, GroupId, JobId, NodeId, ProcessId};
use crate::resources::Resources;
use crate::spec::BUNDLES_MAX;
pub use crate::spec::GroupStrategy as Packing;
use crate::time::Tick;

/// Placement groups at a time; a further one is refused.
pub const GROUPS_MAX: usize = 10_000;
/// Bytes of a name; a longer one is refused.
pub const NAME_BYTES_MAX: usize = 1_024;
/// Groups that wait are tried again so soon after something came free.
pub const PLACE_AGAIN_US: u64 = 10_000;
/// And so soon after a node refused what it should have had free.
pub const REFUSED_AGAIN_US: u64 = 50_000;
/// A group that has waited for so long is insisted on: nodes keep for it what comes free.
pub const INSIST_AFTER_US: u64 = 200_000;
/// For so long at most; then other nodes are tried, and other groups.
pub const INSIST_FOR_US: u64 = 2_000_000;

/// What is to be reserved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// Under which others find it, with its namespace.
    pub name: Option<String>,
    /// How the bundles lie.
    pub packing: Packing,
    /// What each bundle has.
    pub bundles: Vec<Resources>,
    /// Who made it.
    pub creator: ProcessId,
    /// With what it ends.
    pub ends: Ends,
}

/// With what a group ends, unless it is removed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ends {
    /// It is detached.
    Never,
    /// With the driver of its job.
    WithJob(JobId),
    /// With the actor that made it.
    WithActor {
        /// Which.
        actor: ActorId,
        /// The node that knows when the actor is dead for good.
        manager: NodeId,
    },
}

impl Ends {
    /// The node that knows when it is over.
    pub fn keeper(self) -> Option<NodeId> {
        match self {
            Ends::Never => None,
            Ends::WithJob(job) => Some(job.node()),
            Ends::WithActor { manager, .. } => Some(manager),
        }
    }
}

/// Where a group is, as those see it who watch it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// It waits for its first placement.
    Waiting {
        /// For what.
        why: String,
    },
    /// Every bundle is on its node: the group is ready.
    Placed {
        /// The node of each bundle.
        nodes: Vec<NodeId>,
    },
    /// Nodes died, and their bundles are being placed again.
    Rescheduling {
        /// The nodes of the bundles that are there.
        nodes: Vec<Option<NodeId>>,
        /// What the others wait for.
        why: String,
    },
    /// It can never be placed.
    Failed {
        /// Why.
        reason: String,
    },
    /// It is no more.
    Removed {
        /// Why.
        reason: String,
    },
}

/// How far the placement of the missing bundles has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupState {
    /// They wait for resources.
    Waiting {
        /// For which.
        why: String,
    },
    /// Nodes are asked to reserve them.
    Preparing {
        /// The node of each.
        picks: BTreeMap<u32, NodeId>,
        /// Who has not answered.
        open: BTreeSet<NodeId>,
    },
    /// They are reserved, and nodes are told that they can be used.
    Committing {
        /// Who has not answered.
        open: BTreeSet<NodeId>,
    },
    /// None is missing.
    Placed,
}

/// A placement group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What it is.
    pub spec: GroupSpec,
    /// How far it has come.
    pub state: GroupState,
    /// The node of each bundle that is committed.
    pub nodes: Vec<Option<NodeId>>,
    /// Counts the tries to place something.
    attempt: u32,
    /// It was whole once.
    was_placed: bool,
    watchers: BTreeSet<NodeId>,
    /// How long it has waited, and whom it has insisted on.
    #[serde(skip)]
    patience: Patience,
}

impl Group {
    /// Where it is, as those see it who watch it.
    pub fn placement(&self) -> Placement {
        let why = match &self.state {
            GroupState::Waiting { why } => why.clone(),
            GroupState::Preparing { open, .. } if self.patience.insists() => {
                format!("what comes free on {} is kept for it", insisting::named(open))
            }
            GroupState::Preparing { .. } | GroupState::Committing { .. } => "its bundles are being reserved".to_owned(),
            GroupState::Placed => return Placement::Placed { nodes: self.nodes.iter().flatten().copied().collect() },
        };
        match self.was_placed {
            true => Placement::Rescheduling { nodes: self.nodes.clone(), why },
            false => Placement::Waiting { why },
        }
    }

    /// What watchers hear of it.
    fn told(&self, group: GroupId) -> FromController {
        FromController::GroupAt { group, bundles: self.spec.bundles.clone(), placement: self.placement() }
    }

    fn missing(&self) -> impl Iterator<Item = (u32, &Resources)> {
        let bundles = (0..).zip(&self.spec.bundles).zip(&self.nodes);
        bundles.filter(|(_, node)| node.is_none()).map(|(bundle, _)| bundle)
    }

    /// The nodes for what is missing, when these have it.
    fn plan<'a>(&self, free: impl Iterator<Item = (NodeId, &'a Resources)>) -> Option<BTreeMap<u32, NodeId>> {
        let missing: Vec<(u32, &Resources)> = self.missing().collect();
        let mut used: BTreeMap<NodeId, u32> = BTreeMap::new();
        for node in self.nodes.iter().flatten() {
            *used.entry(*node).or_default() += 1;
        }
        plan::plan(self.spec.packing, &missing, free, &used)
    }

    /// The nodes that have reserved something or are about to.
    fn concerned(&self) -> BTreeSet<NodeId> {
        let mut nodes: BTreeSet<NodeId> = self.nodes.iter().flatten().copied().collect();
        if let GroupState::Preparing { picks, .. } = &self.state {
            nodes.extend(picks.values());
        }
        nodes
    }
}

/// All placement groups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Groups {
    all: BTreeMap<GroupId, Group>,
    names: BTreeMap<String, GroupId>,
    /// In the order of their creation, which is the order in which they are placed.
    waiting: Vec<GroupId>,
    gone: Gone,
    /// What was asked about groups that are not known, and may be on their way.
    #[serde(skip)]
    early: BTreeMap<GroupId, Early>,
    /// When those that wait are tried again.
    #[serde(skip)]
    due: Option<Tick>,
}

impl Groups {
    /// A group.
    pub fn get(&self, group: GroupId) -> Option<&Group> {
        self.all.get(&group)
    }

    /// All groups.
    pub fn rows(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.all.iter().map(|(id, group)| (*id, group))
    }

    /// The group of a name.
    pub fn find(&self, name: &str) -> Option<GroupId> {
        self.names.get(name).copied()
    }

    pub(super) fn due(&self) -> Option<Tick> {
        let insisted = self.all.values().filter_map(|group| group.patience.insists_until);
        self.early.values().map(|early| early.until).chain(self.due).chain(insisted).min()
    }

    /// Something came free: look again, but not at every load.
    pub(super) fn try_soon(&mut self, now: Tick) {
        self.try_at(now.plus_us(PLACE_AGAIN_US));
    }

    fn try_at(&mut self, at: Tick) {
        if !self.waiting.is_empty() {
            self.due = Some(self.due.map_or(at, |due| due.min(at)));
        }
    }

    fn wait(&mut self, id: GroupId, why: String) {
        if let Some(group) = self.all.get_mut(&id) {
            group.state = GroupState::Waiting { why };
            if !self.waiting.contains(&id) {
                self.waiting.push(id);
            }
        }
    }
}

impl Controller {
    pub(super) fn create_group(
        &mut self,
        from: NodeId,
        id: GroupId,
        spec: GroupSpec,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(group) = self.groups.all.get_mut(&id) {
            // The same again: its creator ran again.
            group.watchers.insert(from);
            send(from, group.told(id), effects);
            return;
        }
        let Early { mut watchers, removed, .. } = self.groups.early.remove(&id).unwrap_or_default();
        watchers.insert(from);
        self.groups.gone.forget(id);
        let failed = self.refuse_group(&spec).map(|reason| Placement::Failed { reason });
        let over = failed.or(removed.or_else(|| self.is_over(spec.ends)).map(|reason| Placement::Removed { reason }));
        if let Some(placement) = over {
            self.generation += 1;
            for watcher in watchers {
                let bundles = spec.bundles.clone();
                send(watcher, FromController::GroupAt { group: id, bundles, placement: placement.clone() }, effects);
            }
            self.groups.gone.remember(id, spec, placement);
            return;
        }
        if let Some(name) = &spec.name {
            self.groups.names.insert(name.clone(), id);
        }
        if let Some(keeper) = spec.ends.keeper() {
            watchers.insert(keeper);
            send(keeper, FromController::KeepGroup { group: id, ends: spec.ends }, effects);
        }
        let nodes = vec![None; spec.bundles.len()];
        let state = GroupState::Waiting { why: "it is being planned".to_owned() };
        let patience = Patience::default();
        self.groups.all.insert(id, Group { spec, state, nodes, attempt: 0, was_placed: false, watchers, patience });
        self.groups.waiting.push(id);
        self.generation += 1;
        self.place_groups(now, effects);
        self.tell_watchers(id, effects);
    }

    /// Why a group cannot be, when it cannot.
    fn refuse_group(&self, spec: &GroupSpec) -> Option<String> {
        let count = spec.bundles.len();
        if count == 0 || count > BUNDLES_MAX || spec.bundles.iter().any(Resources::is_zero) {
            return Some(format!("a placement group has 1 to {BUNDLES_MAX} bundles, and each asks for something"));
        }
        if self.groups.all.len() >= GROUPS_MAX {
            return Some(format!("there are {GROUPS_MAX} placement groups already; remove one first"));
        }
        if let Some(name) = &spec.name {
            if let Some(holder) = self.groups.names.get(name) {
                return Some(format!("the name {name:?} belongs to {holder}; choose another or find that one"));
            }
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return Some(format!("a name has 1 to {NAME_BYTES_MAX} bytes; choose another"));
            }
        }
        plan::impossible(spec.packing, &spec.bundles, self.members.totals())
    }

    /// Why what a group ends with is over already, as far as that is known here.
    fn is_over(&self, ends: Ends) -> Option<String> {
        let keeper = ends.keeper().filter(|keeper| self.members.get(*keeper).is_none())?;
        Some(kept_by_dead(ends, keeper))
    }

    pub(super) fn watch_group(&mut self, node: NodeId, id: GroupId, now: Tick, effects: &mut Vec<Effect>) {
        if let Some(group) = self.groups.all.get_mut(&id) {
            group.watchers.insert(node);
            send(node, group.told(id), effects);
        } else if let Some(told) = self.groups.gone.told(id) {
            send(node, told, effects);
        } else if let Some(early) = self.groups.early(id, now) {
            early.watchers.insert(node);
        } else {
            send(node, gone::unknown(id), effects);
        }
    }

    /// Tries all that wait when it is time to.
    pub(super) fn place_due_groups(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let ended = self.end_insisting(now, effects);
        if ended || self.groups.due.is_some_and(|due| due <= now) {
            self.place_groups(now, effects);
        }
    }

    /// Tries all that wait, the oldest first. One that does not fit holds nobody up, until it has waited long.
    pub(super) fn place_groups(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        self.groups.due = None;
        for id in std::mem::take(&mut self.groups.waiting) {
            match self.plan_group(id) {
                Some(Ok(picks)) => self.prepare_group(id, picks, false, effects),
                Some(Err(why)) => {
                    let changed = self.groups.all.get_mut(&id).is_some_and(|group| {
                        let state = GroupState::Waiting { why };
                        std::mem::replace(&mut group.state, state.clone()) != state
                    });
                    self.groups.waiting.push(id);
                    if changed {
                        self.tell_watchers(id, effects);
                    }
                }
                None => {}
            }
        }
        self.insist_on_oldest(now, effects);
    }

    fn plan_group(&self, id: GroupId) -> Option<Result<BTreeMap<u32, NodeId>, String>> {
        let group = self.groups.all.get(&id)?;
        if let Some(picks) = group.plan(self.members.left()) {
            return Some(Ok(picks));
        }
        let missing: Vec<(u32, &Resources)> = group.missing().collect();
        let never = plan::impossible(group.spec.packing, &group.spec.bundles, self.members.totals());
        Some(Err(never.unwrap_or_else(|| {
            let bundles: Vec<String> = missing.iter().take(4).map(|(_, bundle)| bundle.to_string()).collect();
            let more = if missing.len() > 4 { ", ..." } else { "" };
            format!("no nodes have these bundles free now: {}{more}", bundles.join("; "))
        })))
    }

    /// A node asks for the removal of a group, which may still be on its way.
    pub(super) fn removal_asked(&mut self, id: GroupId, reason: &str, now: Tick, effects: &mut Vec<Effect>) {
        let known = self.groups.all.contains_key(&id) || self.groups.gone.told(id).is_some();
        if known {
            self.remove_group(id, reason, now, effects);
        } else if let Some(early) = self.groups.early(id, now) {
            early.removed = Some(reason.to_owned());
        }
    }

    /// Ends a group.
    fn remove_group(&mut self, id: GroupId, reason: &str, now: Tick, effects: &mut Vec<Effect>) {
        let Some(group) = self.groups.all.remove(&id) else { return };
        self.groups.waiting.retain(|waiting| *waiting != id);
        if let Some(name) = &group.spec.name {
            self.groups.names.remove(name);
        }
        for node in group.concerned().into_iter().filter(|node| self.members.get(*node).is_some()) {
            let reason = reason.to_owned();
            send(node, FromController::Release { group: id, attempt: None, reason }, effects);
        }
        let placement = Placement::Removed { reason: reason.to_owned() };
        for watcher in group.watchers.iter().filter(|watcher| self.members.get(**watcher).is_some()) {
            let (bundles, placement) = (group.spec.bundles.clone(), placement.clone());
            send(*watcher, FromController::GroupAt { group: id, bundles, placement }, effects);
        }
        self.groups.gone.remember(id, group.spec, placement);
        self.generation += 1;
        self.groups.try_soon(now);
    }

    /// A node is dead: the groups that ended with something of it end.
    pub(super) fn end_groups_kept_by(&mut self, dead: NodeId, now: Tick, effects: &mut Vec<Effect>) {
        let kept = self.groups.all.iter().filter(|(_, group)| group.spec.ends.keeper() == Some(dead));
        for (id, ends) in kept.map(|(id, group)| (*id, group.spec.ends)).collect::<Vec<_>>() {
            self.remove_group(id, &kept_by_dead(ends, dead), now, effects);
        }
    }

    fn tell_watchers(&self, id: GroupId, effects: &mut Vec<Effect>) {
        let Some(group) = self.groups.all.get(&id) else { return };
        for watcher in &group.watchers {
            send(*watcher, group.told(id), effects);
        }
    }
}

fn kept_by_dead(ends: Ends, keeper: NodeId) -> String {
    match ends {
        Ends::WithActor { actor, .. } => format!("{keeper} is gone, and with it {actor}, which created it"),
        Ends::Never | Ends::WithJob(_) => format!("its job has ended: {keeper} is gone, and with it the driver"),
    }
}
