//! Placement groups: bundles of resources that are reserved together, and what runs in them.
//!
//! GROUP-1: a group has all its bundles or none. With a node alone it waits in the queue like everybody else; when all of
//! it fits, all of it is taken at once, and from then on its tasks and actors take from their bundle and from nothing
//! else. When it is removed, what is free in it goes back at once and what is held when its holder is gone, which is
//! ended for it. A group that the node has not heard of may be on its way in another process's ring (`early`), so what is
//! to run in it is queued until that is certain.
//!
//! In a cluster the controller places groups: what processes ask about them is passed on to it.
//!
//! | file | what |
//! |---|---|
//! | `bundles` | what is reserved here |
//! | `cluster` | groups of the cluster, as processes of this node use them |
//! | `tables` | groups for people |

mod bundles;
mod cluster;
mod insisting;
mod tables;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::bundles::Bundles;
pub(super) use self::bundles::fit;
use self::cluster::Known;
use self::insisting::Insisted;
use super::gpus::{self, Gpus};
use super::pool::WorkerState;
use super::queue::{Ask, Waiting};
use super::stock::{Bundle, Stock};
use super::{Effect, Node, send};
use crate::controller::ToController;
use crate::controller::groups::Ends;
use crate::failure::Failure;
use crate::id::{ActorId, GroupId, JobId, ProcessId};
use crate::message::FromNode;
use crate::resources::{Amount, Resources};
use crate::spec::{BUNDLES_MAX, GroupStrategy, Strategy};
use crate::time::Tick;

/// So many placement groups may be there at a time; more can never be placed.
pub const GROUPS_MAX: usize = 10_000;
/// So many groups that are gone are remembered; who asks about an older one hears that it is unknown.
pub const GROUPS_GONE_MAX: usize = 1_000;

/// What a creator wants.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: Option<String>,
    pub(super) strategy: GroupStrategy,
    pub(super) bundles: Vec<Resources>,
    pub(super) detached: bool,
}

/// Where a group is in its life.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    Waiting,
    Placed,
    Failed(String),
    Removed(String),
}

/// A placement group.
#[derive(Debug)]
pub(super) struct Group {
    wanted: Wanted,
    creator: ProcessId,
    /// Whose it is: it goes with its job, unless it is detached.
    job: JobId,
    /// The actor that made it: without it the group goes too, unless it is detached.
    actor: Option<ActorId>,
    stage: Stage,
    /// Counts its lives: a repeated run may create again what it had removed.
    life: u32,
    watchers: BTreeSet<ProcessId>,
}

/// All placement groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Those of a node alone.
    pub(super) all: BTreeMap<GroupId, Group>,
    pub(super) names: BTreeMap<String, GroupId>,
    gone: VecDeque<GroupId>,
    /// What is reserved here.
    reserved: Bundles,
    /// What the controller wants to be reserved as soon as there is room.
    insisted: BTreeMap<GroupId, Insisted>,
    /// Those of the cluster that processes of this node use.
    known: BTreeMap<GroupId, Known>,
    /// Those of the cluster that end with a job or an actor of this node.
    kept: BTreeMap<GroupId, Ends>,
    /// Actors that died in this step.
    bereft: Vec<ActorId>,
}

impl Groups {
    /// The bundles of a group that are here and can be used: one of them, or all.
    pub(super) fn bundles(&self, group: GroupId, only: Option<u32>) -> impl Iterator<Item = (u32, &Bundle)> {
        self.reserved.usable(group, only)
    }

    /// Whether a bundle that is here could ever hold this.
    pub(super) fn can_hold(&self, group: GroupId, only: Option<u32>, asked: &Resources) -> bool {
        self.bundles(group, only).any(|(_, bundle)| gpus::impossible(asked, &bundle.total).is_none())
    }

    /// Whether a bundle that is here can hold this now.
    pub(super) fn has_room(&self, group: GroupId, only: Option<u32>, asked: &Resources) -> bool {
        self.bundles(group, only).any(|(_, bundle)| bundle.covers(asked))
    }

    /// The bundle that a stock is; none for the machine, and when that life of it is over.
    pub(super) fn bundle_mut(&mut self, stock: Stock) -> Option<&mut Bundle> {
        self.reserved.get_mut(stock)
    }

    pub(super) fn bundle(&self, stock: Stock) -> Option<&Bundle> {
        self.reserved.get(stock)
    }

    /// An actor is dead: what depends on that is looked at when this step is over.
    pub(super) fn note_dead(&mut self, actor: ActorId) {
        self.bereft.push(actor);
    }

    /// All that groups have taken from the machine.
    pub(super) fn reserved(&self) -> impl Iterator<Item = &Bundle> {
        self.reserved.all().map(|(_, _, bundle)| bundle)
    }

    /// What a group wants.
    pub(super) fn wanted(&self, group: GroupId) -> Option<&[Resources]> {
        let here = self.all.get(&group).map(|group| group.wanted.bundles.as_slice());
        here.or_else(|| self.insisted.get(&group).map(|insisted| insisted.bundles.as_slice()))
    }
}

/// Whether bundles fit together into what one node has.
pub(crate) fn fit_together(bundles: &[Resources], total: &Resources) -> bool {
    fit(bundles.iter(), total.clone(), Gpus::new(total.gpus))
}

/// All of them together.
fn sum(bundles: &[Resources]) -> Resources {
    let mut all = Resources::default();
    let add = |all: &mut Amount, more: Amount| all.0 = all.0.saturating_add(more.0);
    for bundle in bundles {
        add(&mut all.cpus, bundle.cpus);
        add(&mut all.gpus, bundle.gpus);
        all.memory_bytes = all.memory_bytes.saturating_add(bundle.memory_bytes);
        for (name, amount) in &bundle.custom {
            add(all.custom.entry(name.clone()).or_default(), *amount);
        }
    }
    all
}

impl Node {
    pub(super) fn create_group(
        &mut self,
        creator: ProcessId,
        id: GroupId,
        wanted: Wanted,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        if self.is_clustered() {
            self.create_in_cluster(creator, id, wanted, effects);
            return;
        }
        let before = self.groups.all.get(&id);
        if before.is_some_and(|group| matches!(group.stage, Stage::Waiting | Stage::Placed)) {
            return;
        }
        let life = before.map_or(0, |group| group.life + 1);
        let Some(job) = self.served_job(creator) else { return };
        self.groups.gone.retain(|gone| *gone != id);
        let actor = self.actor_in(creator);
        let hopeless = self.hopeless_group(&wanted);
        let (resources, name) = (sum(&wanted.bundles), wanted.name.clone());
        let (stage, watchers) = (Stage::Waiting, BTreeSet::new());
        self.groups.all.insert(id, Group { wanted, creator, job, actor, stage, life, watchers });
        if let Some(reason) = hopeless {
            self.end_group(id, Stage::Failed(reason), effects);
            return;
        }
        if let Some(name) = name {
            self.groups.names.insert(name, id);
        }
        // Nobody waits longer for it than it would: it blocks others only when they have passed it over often.
        let ask = Ask::Group { group: id, creator };
        let (environment, strategy, near) = (0, Strategy::Default, Vec::new());
        let waiting =
            Waiting { ask, job, resources, environment, threads: 0, strategy, near, since: now, overtaken: 0 };
        self.queue.push(u32::MAX, waiting);
        self.refuse_in_group(id, effects);
        self.schedule(now, effects);
    }

    /// The actor that lives in a process.
    fn actor_in(&self, process: ProcessId) -> Option<ActorId> {
        match self.pool.workers.get(&process)?.state {
            WorkerState::Hosting(actor) => Some(actor),
            _ => None,
        }
    }

    /// Why a group can never be placed here.
    fn hopeless_group(&self, wanted: &Wanted) -> Option<String> {
        let (count, total) = (wanted.bundles.len(), &self.config.total);
        if count == 0 || count > BUNDLES_MAX {
            return Some(format!("it has {count} bundles, and 1 to {BUNDLES_MAX} are possible"));
        }
        if wanted.bundles.iter().any(Resources::is_zero) {
            return Some("one of its bundles is empty".into());
        }
        if let Some(name) = &wanted.name
            && let Some(holder) = self.groups.names.get(name)
        {
            return Some(format!("the name {name:?} belongs to {holder}"));
        }
        if self.groups.all.len() - self.groups.gone.len() >= GROUPS_MAX {
            return Some(format!("there are {GROUPS_MAX} placement groups already; remove some"));
        }
        if wanted.strategy == GroupStrategy::StrictSpread && count > 1 {
            return Some(format!("STRICT_SPREAD wants {count} nodes for its {count} bundles, and there is only one"));
        }
        let impossible = |(at, bundle)| gpus::impossible(bundle, total).map(|found| (at, found));
        if let Some((at, (asked, available))) = wanted.bundles.iter().enumerate().find_map(impossible) {
            return Some(format!("bundle {at} asks for {asked}, but there is only {available}"));
        }
        let all = sum(&wanted.bundles);
        if !total.covers(&all) {
            return Some(format!("its {count} bundles ask for {all} together, but there is only {total}"));
        }
        let fits = fit_together(&wanted.bundles, total);
        (!fits).then(|| {
            format!("its bundles do not fit on {} GPUs, of which fractions do not cross the bounds", total.gpus)
        })
    }

    /// Whether a group that waits could be placed now.
    pub(super) fn has_room_for_group(&self, id: GroupId) -> bool {
        let Some(bundles) = self.groups.wanted(id) else { return false };
        fit(bundles.iter(), self.free.clone(), self.gpus.clone())
    }

    /// Reserves all bundles of a group for which there is room (GROUP-1).
    pub(super) fn place_group(&mut self, id: GroupId, effects: &mut Vec<Effect>) {
        self.place_insisted(id, effects);
        let Some(group) = self.groups.all.get_mut(&id) else { return };
        group.stage = Stage::Placed;
        let (life, watchers) = (group.life, std::mem::take(&mut group.watchers));
        let bundles: Vec<(u32, Resources)> = (0..).zip(group.wanted.bundles.clone()).collect();
        self.reserve(id, life, true, &bundles);
        let nodes = vec![self.config.id; bundles.len()];
        for process in watchers {
            send(process, FromNode::GroupPlaced { group: id, result: Ok(nodes.clone()) }, effects);
        }
    }

    /// Gives groups up and ends what runs in them.
    ///
    /// GRANT-1: all of them are over before anything is given to others, so that nothing is granted in one of them.
    pub(super) fn remove_groups(&mut self, ids: &[GroupId], reason: &str, now: Tick, effects: &mut Vec<Effect>) {
        if self.is_clustered() {
            for group in ids {
                let (group, reason) = (*group, reason.to_owned());
                effects.push(Effect::AskController(ToController::RemoveGroup { group, reason }));
            }
            return;
        }
        let lives = |id: &GroupId| self.groups.all.get(id).is_some_and(|group| group.failure(*id).is_none());
        let ids: BTreeSet<GroupId> = ids.iter().copied().filter(lives).collect();
        for id in &ids {
            let name = self.groups.all.get(id).and_then(|group| group.wanted.name.clone());
            if let Some(name) = name.filter(|name| self.groups.names.get(name) == Some(id)) {
                self.groups.names.remove(&name);
            }
            if let Some(place) = self.queue.group(*id) {
                self.queue.remove(place);
            }
            self.end_group(*id, Stage::Removed(reason.to_owned()), effects);
        }
        for id in &ids {
            self.clear_bundles(*id, None, reason, now, effects);
        }
        if !ids.is_empty() {
            self.schedule(now, effects);
        }
    }

    /// A group is over: its watchers and those who wait to run in it hear why.
    fn end_group(&mut self, id: GroupId, stage: Stage, effects: &mut Vec<Effect>) {
        let Some(group) = self.groups.all.get_mut(&id) else { return };
        group.stage = stage;
        let failure = group.failure(id);
        for process in std::mem::take(&mut group.watchers) {
            let failure = failure.clone().unwrap_or(Failure::ShutDown);
            send(process, FromNode::GroupPlaced { group: id, result: Err(Box::new(failure)) }, effects);
        }
        self.refuse_in_group(id, effects);
        self.groups.gone.push_back(id);
        while self.groups.gone.len() > GROUPS_GONE_MAX {
            if let Some(oldest) = self.groups.gone.pop_front() {
                self.groups.all.remove(&oldest);
            }
        }
    }

    /// The groups of a job that has ended go with it, but for detached ones and those of processes that stay.
    pub(super) fn end_groups_of(
        &mut self,
        job: JobId,
        kept: &BTreeSet<ProcessId>,
        reason: &str,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        self.end_kept(|ends| ends == Ends::WithJob(job), reason, effects);
        let ends = |group: &Group| group.job == job && !group.wanted.detached && !kept.contains(&group.creator);
        let groups: Vec<GroupId> = self.groups.all.iter().filter(|(_, g)| ends(g)).map(|(id, _)| *id).collect();
        self.remove_groups(&groups, reason, now, effects);
    }

    /// The groups of actors that are dead for good go with them.
    pub(super) fn clear_after_dead(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        while let Some(actor) = self.groups.bereft.pop() {
            let reason = "the actor that created it is dead";
            let made = |ends: Ends| matches!(ends, Ends::WithActor { actor: by, .. } if by == actor);
            self.end_kept(made, reason, effects);
            let own = |group: &Group| group.actor == Some(actor) && !group.wanted.detached;
            let groups: Vec<GroupId> = self.groups.all.iter().filter(|(_, g)| own(g)).map(|(id, _)| *id).collect();
            self.remove_groups(&groups, reason, now, effects);
            if let Some(parent) = self.ledger.parent(actor.object()) {
                self.review(parent, now, effects);
            }
        }
    }

    /// Tells everybody who waits to run something in a group and never can.
    pub(super) fn refuse_in_group(&mut self, id: GroupId, effects: &mut Vec<Effect>) {
        for place in self.queue.within(id) {
            let Some(waiting) = self.queue.get(place) else { continue };
            if self.is_guest(waiting) {
                continue;
            }
            let Some(failure) = self.refusal_of_place(waiting.strategy, &waiting.resources) else { continue };
            match waiting.ask {
                Ask::Leases { owner, pool, .. } => {
                    self.queue.remove(place);
                    send(owner, FromNode::Refused { pool, failure: Box::new(failure) }, effects);
                }
                Ask::Actor { actor, .. } => {
                    let reason = failure.to_string();
                    self.actor_failed(actor, failure, reason, effects);
                }
                Ask::Group { .. } => {}
            }
        }
    }

    /// Whether another node decides what becomes of this one.
    fn is_guest(&self, waiting: &Waiting) -> bool {
        match waiting.ask {
            Ask::Leases { owner, .. } => owner.node != self.config.id,
            Ask::Actor { actor, .. } => self.actors.all.get(&actor).is_some_and(|actor| actor.manager.is_some()),
            Ask::Group { .. } => false,
        }
    }

    pub(super) fn watch_group(&mut self, process: ProcessId, id: GroupId, effects: &mut Vec<Effect>) {
        if self.is_clustered() {
            self.watch_in_cluster(process, id, effects);
            return;
        }
        let result = match self.groups.all.get_mut(&id) {
            Some(group) if group.stage == Stage::Waiting => {
                group.watchers.insert(process);
                return;
            }
            Some(group) => match group.failure(id) {
                Some(failure) => Err(Box::new(failure)),
                None => Ok(vec![self.config.id; group.wanted.bundles.len()]),
            },
            None => Err(Box::new(self.refusal_of_group(id, None, &Resources::default()).unwrap_or(Failure::ShutDown))),
        };
        send(process, FromNode::GroupPlaced { group: id, result }, effects);
    }
}
