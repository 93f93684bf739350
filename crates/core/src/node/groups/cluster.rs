//! Placement groups of the cluster, as processes of this node use them.
//!
//! The controller places groups and says where their bundles are to every node that has asked; this node remembers that as
//! long as the group is there. What is to run in a group goes to nodes that have a bundle which could hold it: a wish for
//! leases to all of them, since nobody knows which bundle comes free first, an actor to one after the other. A group that
//! is over is forgotten at once: who asks again is told by the controller.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::Wanted;
use super::bundles::no_bundle;
use crate::controller::groups::{Ends, GroupSpec, Placement};
use crate::controller::{FromController, ToController};
use crate::failure::Failure;
use crate::id::{ActorId, GroupId, NodeId, ProcessId};
use crate::message::{Between, FromNode, ToNode};
use crate::node::queue::{Ask, Place};
use crate::node::{ActorState, Effect, Node, gpus, send};
use crate::resources::Resources;
use crate::schedule::Choice;
use crate::spec::Strategy;
use crate::time::Tick;

/// What is known of a group of the cluster.
#[derive(Debug, Default)]
pub(in crate::node) struct Known {
    /// What each bundle has; empty until the controller has answered.
    pub(super) bundles: Vec<Resources>,
    /// The node of each bundle that is there.
    nodes: Vec<Option<NodeId>>,
    /// What it waits for, unless all bundles are there.
    waits: Option<String>,
    watchers: BTreeSet<ProcessId>,
}

impl Known {
    fn is_placed(&self) -> bool {
        self.waits.is_none() && !self.nodes.is_empty() && self.nodes.iter().all(Option::is_some)
    }

    pub(super) fn explain(&self, id: GroupId) -> String {
        match &self.waits {
            Some(why) => format!("{id} waits for its bundles: {why}"),
            None if self.is_placed() => format!("{id} is placed"),
            None => format!("{id} is about to be placed"),
        }
    }

    /// The nodes with bundles that could ever hold this, and how often that is.
    fn hosts(&self, only: Option<u32>, asked: &Resources) -> BTreeMap<NodeId, u32> {
        let mut hosts = BTreeMap::new();
        for ((index, bundle), node) in (0..).zip(&self.bundles).zip(&self.nodes) {
            let wanted = only.is_none_or(|only| only == index) && gpus::impossible(asked, bundle).is_none();
            if let Some(node) = node.filter(|_| wanted) {
                let often = hosts.entry(node).or_insert(0u32);
                *often = often.saturating_add(times(bundle, asked));
            }
        }
        hosts
    }
}

/// So many leases are asked for at a time in the bundles of one node, at most.
const TIMES_MAX: u32 = 1_024;

/// How often this fits into an empty bundle.
fn times(bundle: &Resources, asked: &Resources) -> u32 {
    let (mut left, mut count) = (bundle.clone(), 0);
    while count < TIMES_MAX && left.try_take(asked) {
        count += 1;
    }
    count
}

impl Node {
    /// The controller says something about placement groups.
    pub(in crate::node) fn hear_controller(&mut self, message: FromController, now: Tick, effects: &mut Vec<Effect>) {
        match message {
            FromController::GroupAt { group, bundles, placement } => {
                self.group_at(group, bundles, placement, now, effects);
            }
            FromController::KeepGroup { group, ends } => self.keep_group(group, ends, effects),
            FromController::GroupFound { process, request, found } => {
                send(process, FromNode::GroupFound { request, found: found.map(|found| *found) }, effects);
            }
            FromController::GroupsListed { process, request, rows } => {
                send(process, FromNode::Groups { request, rows }, effects);
            }
            FromController::Prepare { group, attempt, bundles, waits } => {
                self.prepare(group, attempt, bundles, waits, now, effects);
            }
            FromController::Commit { group, attempt } => self.commit(group, attempt, now, effects),
            FromController::Release { group, attempt, reason } => self.release(group, attempt, &reason, now, effects),
            // The shell's business.
            FromController::Renewed { .. }
            | FromController::NodeJoined(_)
            | FromController::NodeDraining { .. }
            | FromController::NodeDied { .. }
            | FromController::Drain { .. }
            | FromController::Leave
            | FromController::Draining { .. } => {}
        }
    }

    pub(super) fn create_in_cluster(
        &mut self,
        creator: ProcessId,
        id: GroupId,
        wanted: Wanted,
        effects: &mut Vec<Effect>,
    ) {
        let Some(job) = self.served_job(creator) else { return };
        let Wanted { name, strategy: packing, bundles, detached } = wanted;
        let ends = match self.actor_in(creator) {
            _ if detached => Ends::Never,
            Some(actor) => {
                let manager = self.actors.all.get(&actor).and_then(|actor| actor.manager);
                Ends::WithActor { actor, manager: manager.unwrap_or(self.config.id) }
            }
            None => Ends::WithJob(job),
        };
        self.groups.known.entry(id).or_default();
        let spec = Box::new(GroupSpec { name, packing, bundles, creator, ends });
        effects.push(Effect::AskController(ToController::CreateGroup { group: id, spec }));
    }

    /// Makes sure that this node hears where a group is.
    pub(super) fn know_group(&mut self, id: GroupId, effects: &mut Vec<Effect>) {
        if let Entry::Vacant(unknown) = self.groups.known.entry(id) {
            unknown.insert(Known::default());
            effects.push(Effect::AskController(ToController::WatchGroup { group: id }));
        }
    }

    pub(super) fn watch_in_cluster(&mut self, process: ProcessId, id: GroupId, effects: &mut Vec<Effect>) {
        self.know_group(id, effects);
        let Some(known) = self.groups.known.get_mut(&id) else { return };
        if known.is_placed() {
            let result = Ok(known.nodes.iter().flatten().copied().collect());
            send(process, FromNode::GroupPlaced { group: id, result }, effects);
        } else {
            known.watchers.insert(process);
        }
    }

    /// The controller says where a group is.
    fn group_at(
        &mut self,
        id: GroupId,
        bundles: Vec<Resources>,
        placement: Placement,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let (nodes, waits) = match placement {
            Placement::Failed { reason } => {
                self.group_over(id, Failure::GroupUnplaceable { group: id, reason }, now, effects);
                return;
            }
            Placement::Removed { reason } => {
                self.group_over(id, Failure::GroupRemoved { group: id, reason }, now, effects);
                return;
            }
            Placement::Waiting { why } => (vec![None; bundles.len()], Some(why)),
            Placement::Rescheduling { nodes, why } => (nodes, Some(why)),
            Placement::Placed { nodes } => (nodes.into_iter().map(Some).collect(), None),
        };
        let lives = |node: &NodeId| *node == self.config.id || self.live.has_node(*node);
        let nodes = nodes.into_iter().map(|node| node.filter(lives)).collect();
        // Who only keeps a group has no use for this.
        let Some(known) = self.groups.known.get_mut(&id) else { return };
        (known.bundles, known.nodes, known.waits) = (bundles, nodes, waits);
        if known.is_placed() {
            let nodes: Vec<NodeId> = known.nodes.iter().flatten().copied().collect();
            for process in std::mem::take(&mut known.watchers) {
                send(process, FromNode::GroupPlaced { group: id, result: Ok(nodes.clone()) }, effects);
            }
        }
        self.refuse_in_group(id, effects);
        self.place_unplaced(now, effects);
        self.schedule(now, effects);
    }

    /// A group is no more, or never will be: who waits for it hears why.
    fn group_over(&mut self, id: GroupId, failure: Failure, now: Tick, effects: &mut Vec<Effect>) {
        self.groups.kept.remove(&id);
        let Some(known) = self.groups.known.remove(&id) else { return };
        for process in known.watchers {
            let result = Err(Box::new(failure.clone()));
            send(process, FromNode::GroupPlaced { group: id, result }, effects);
        }
        for place in self.queue.within(id) {
            let Some(waiting) = self.queue.get(place) else { continue };
            if let Ask::Leases { owner, pool, .. } = waiting.ask
                && owner.node == self.config.id
            {
                self.queue.remove(place);
                send(owner, FromNode::Refused { pool, failure: Box::new(failure.clone()) }, effects);
            }
        }
        let cause = failure.to_string();
        let inside = self.actors.all.iter().filter(|(_, actor)| {
            actor.manager.is_none() && !actor.is_dead() && actor.spec.options.strategy.group() == Some(id)
        });
        for (actor, waits) in inside.map(|(id, actor)| (*id, actor.state == ActorState::Queued)).collect::<Vec<_>>() {
            if waits {
                self.tells_host(actor, &cause, effects);
                self.actor_failed(actor, failure.clone(), cause.clone(), effects);
            } else {
                self.end_actor(actor, &cause, false, now, effects);
            }
        }
        self.schedule(now, effects);
    }

    /// A group ends with a job or an actor of ours.
    fn keep_group(&mut self, id: GroupId, ends: Ends, effects: &mut Vec<Effect>) {
        let over = match ends {
            Ends::Never => return,
            Ends::WithJob(job) if self.jobs.is_driven(job) => None,
            Ends::WithJob(_) => Some("its job has ended"),
            Ends::WithActor { actor, .. } if self.actors.all.get(&actor).is_some_and(|a| !a.is_dead()) => None,
            Ends::WithActor { .. } => Some("the actor that created it is dead"),
        };
        match over {
            None => drop(self.groups.kept.insert(id, ends)),
            Some(reason) => {
                let reason = reason.to_owned();
                effects.push(Effect::AskController(ToController::RemoveGroup { group: id, reason }));
            }
        }
    }

    /// What some groups end with is over.
    pub(super) fn end_kept(&mut self, is_over: impl Fn(Ends) -> bool, reason: &str, effects: &mut Vec<Effect>) {
        let over = self.groups.kept.iter().filter(|(_, ends)| is_over(**ends)).map(|(id, _)| *id);
        for group in over.collect::<Vec<_>>() {
            self.groups.kept.remove(&group);
            let reason = reason.to_owned();
            effects.push(Effect::AskController(ToController::RemoveGroup { group, reason }));
        }
    }

    /// A node is dead, and with it the bundles that were there: the controller says where they are placed again.
    pub(in crate::node) fn lose_bundles_of(&mut self, node: NodeId) {
        let places = self.groups.known.values_mut().flat_map(|known| &mut known.nodes);
        places.filter(|at| **at == Some(node)).for_each(|at| *at = None);
    }

    /// Another node has no bundle for a wish that it was asked to grant: the controller knows better.
    pub(in crate::node) fn bundle_refused(&mut self, node: NodeId, group: GroupId, effects: &mut Vec<Effect>) {
        if let Some(known) = self.groups.known.get_mut(&group) {
            known.nodes.iter_mut().filter(|at| **at == Some(node)).for_each(|at| *at = None);
            known.waits.get_or_insert_with(|| format!("{node} does not have its bundle"));
            effects.push(Effect::AskController(ToController::WatchGroup { group }));
        }
    }

    /// A wish in a group goes to every node that has a bundle for it; what is not needed is taken back when the first have
    /// granted.
    pub(in crate::node) fn pass_to_bundles(&mut self, place: Place, effects: &mut Vec<Effect>) {
        let Some(waiting) = self.queue.get(place) else { return };
        let Ask::Leases { owner, pool, count, pending } = waiting.ask else { return };
        let Strategy::Group { group, bundle } = waiting.strategy else { return };
        let known = self.groups.known.get(&group);
        let mut hosts = known.map(|known| known.hosts(bundle, &waiting.resources)).unwrap_or_default();
        hosts.retain(|node, _| *node != self.config.id && self.live.has_node(*node));
        let (wanted, job) = (count.saturating_sub(pending), waiting.job);
        let shape = waiting.shape();
        let counts = hosts.into_iter().map(|(node, often)| (node, often.min(wanted))).collect();
        for (node, count) in self.cluster.passing.spread((owner, pool), counts) {
            let request = Box::new(ToNode::WantLeases { pool, shape: shape.clone(), count, depth: place.0.0 });
            effects.push(Effect::Tell { node, message: Between::Asked { process: owner, job, request } });
        }
    }

    /// An actor in a group goes to a node that has a bundle for it.
    pub(in crate::node) fn enqueue_in_group(&mut self, id: ActorId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.get(&id) else { return };
        let Strategy::Group { group, .. } = actor.spec.options.strategy else { return };
        self.know_group(group, effects);
        match self.choose_bundle_host(id, now) {
            (Choice::Here, _) => self.enqueue_here(id, now, effects),
            (Choice::There(node), waits) if self.live.has_node(node) => {
                self.send_to_host(id, node, waits, now, effects)
            }
            _ => self.wait_for_host(id),
        }
    }

    /// The node for an actor in a group, and whether it waits there for room: only when no other one could have it.
    fn choose_bundle_host(&mut self, id: ActorId, now: Tick) -> (Choice, bool) {
        let unplaced = (Choice::Wait(crate::schedule::Why::Unplaced), false);
        let me = self.config.id;
        let Some(actor) = self.actors.all.get_mut(&id) else { return unplaced };
        let (strategy, resources) = (actor.spec.options.strategy, actor.spec.options.resources.clone());
        let Strategy::Group { group, bundle } = strategy else { return unplaced };
        let hosts = self.groups.known.get(&group).map(|known| known.hosts(bundle, &resources)).unwrap_or_default();
        if self.groups.has_room(group, bundle, &resources) {
            actor.tried.clear();
            return (Choice::Here, true);
        }
        let waits = hosts.len() == 1;
        let left: Vec<NodeId> = hosts.into_keys().filter(|node| !actor.tried.contains(node)).collect();
        let others: Vec<NodeId> = left.iter().copied().filter(|node| waits || *node != me).collect();
        if others.is_empty() {
            // All have been asked: again when something has changed.
            actor.tried.clear();
            return unplaced;
        }
        let ask = crate::schedule::Ask { resources: &resources, strategy, inputs: &[], own: me, bundles: &others };
        let load = self.load();
        self.cluster.passing.digest.update(me, load, 0, now);
        (self.cluster.passing.digest.choose(&ask, now), waits)
    }

    /// Why this node cannot be the host of an actor in a group.
    pub(in crate::node) fn refusal_of_host(
        &self,
        strategy: Strategy,
        asked: &Resources,
        waits: bool,
    ) -> Option<Failure> {
        let Strategy::Group { group, bundle } = strategy else { return None };
        let takes =
            if waits { self.groups.can_hold(group, bundle, asked) } else { self.groups.has_room(group, bundle, asked) };
        (!takes).then(|| no_bundle(asked, group))
    }
}
