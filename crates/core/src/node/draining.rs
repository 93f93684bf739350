//! A node that is being drained: what must still go before it leaves, and how it goes.
//!
//! From the first moment nothing new begins here: wishes of other nodes are refused and so chosen anew, those of our own
//! processes are passed on, leases are asked back and end with the task that runs. An actor that another node manages ends
//! with the call that runs and lives again elsewhere; what it had not begun is sent to its next life. What lies in our store
//! and belongs to processes of other nodes is fetched by other nodes ([`Between::Take`]), whose word to the owner's node
//! makes theirs the first place; that node says so here ([`Between::Kept`]).
//!
//! What cannot go is waited for, until the controller ends the wait: drivers of this node with what they have, and
//! objects that processes of this node own and others still hold.

use std::collections::{BTreeMap, BTreeSet};

use super::actors::{Actor, ActorState};
use super::copies::{Lodger, key};
use super::pool::{Reserved, WorkerState};
use super::queue::{Ask, Place, Waiting};
use super::{Effect, Node, send};
use crate::failure::Failure;
use crate::id::{ActorId, LeaseId, NodeId, ProcessId};
use crate::message::{Between, FromNode};
use crate::resources::Resources;
use crate::time::Tick;
use crate::value::{Location, RefSpec};

/// Objects that other nodes fetch from us at a time; the rest waits for its turn.
pub const TAKEN_AT_ONCE_MAX: usize = 64;
/// How often a draining node looks at what is left.
const LOOK_US: u64 = 20_000;
/// When every node has refused an object, they are asked again after this time.
const ASK_AGAIN_US: u64 = 500_000;

/// An object's place in our store, by entry and use.
type Entry = (u32, u32);

/// How far it is.
#[derive(Debug, Default)]
pub(super) struct Draining {
    /// Who was asked to take what.
    asked: BTreeMap<Entry, NodeId>,
    /// Who had no room for it.
    refused: BTreeMap<Entry, BTreeSet<NodeId>>,
    /// When those are asked again.
    again_at: Tick,
    /// Whose turn it is to take something.
    turn: usize,
    look_at: Tick,
}

impl Draining {
    /// When it is looked at next.
    pub(super) fn look_at(&self) -> Tick {
        self.look_at
    }
}

impl Node {
    /// Whether this node takes nothing more and will leave.
    pub fn is_draining(&self) -> bool {
        self.cluster.draining.is_some()
    }

    /// Whether nothing is left on this node that others need. It leaves when all that it has said has arrived.
    pub fn is_drained(&self) -> bool {
        let at_work = |state: &WorkerState| {
            matches!(
                state,
                WorkerState::Leased
                    | WorkerState::Hosting(_)
                    | WorkerState::Starting(Reserved::Lease(_) | Reserved::Actor(_))
            )
        };
        self.is_draining()
            && self.leases.is_empty()
            && self.jobs.driven().next().is_none()
            && !self.pool.workers.values().any(|worker| at_work(&worker.state))
            && self.cluster.guests.len() == 0
            && self.settling.is_empty()
            && self.flushing.is_empty()
            && self.orphans.is_empty()
            && self.live.local().iter().all(|process| self.ledger.owned_by(*process) == 0)
            && !self.cluster.lodged.values().any(must_go)
    }

    /// This node is to leave.
    pub(super) fn drain(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        if self.is_draining() || !self.is_clustered() {
            return;
        }
        self.cluster.draining = Some(Draining::default());
        self.withdraw_starting(now);
        self.refuse_wishes(effects);
        self.send_actors_away(effects);
        let leases: Vec<LeaseId> = self.leases.iter().filter(|(_, l)| l.announced).map(|(id, _)| *id).collect();
        for lease in leases {
            self.ask_back(lease, effects);
        }
        self.place_unplaced(now, effects);
        self.schedule(now, effects);
        self.go_on_draining(now, effects);
    }

    /// Another node takes nothing more.
    pub(super) fn other_drains(&mut self, node: NodeId, now: Tick, effects: &mut Vec<Effect>) {
        self.cluster.passing.digest.drain(node, now);
        self.schedule(now, effects);
    }

    /// Whether one who waits may get something here: while this node is being drained, only what can be nowhere else.
    pub(super) fn may_begin(&self, waiting: &Waiting) -> bool {
        let bound = waiting.strategy.group().is_some() && waiting.ask.asker().node == self.config.id;
        !self.is_draining() || bound
    }

    /// Grants that only wait for their worker are wishes again.
    fn withdraw_starting(&mut self, now: Tick) {
        let starting: Vec<LeaseId> = self.leases.iter().filter(|(_, l)| !l.announced).map(|(id, _)| *id).collect();
        for lease in starting {
            self.lose_hosted(lease, now);
        }
    }

    /// The owner returns the lease when its task has ended; what is queued behind that goes elsewhere.
    fn ask_back(&mut self, id: LeaseId, effects: &mut Vec<Effect>) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        if !std::mem::replace(&mut lease.reclaimed, true) {
            send(lease.owner, FromNode::Reclaim { lease: id }, effects);
        }
    }

    /// Wishes of processes of other nodes: their nodes choose anew.
    fn refuse_wishes(&mut self, effects: &mut Vec<Effect>) {
        let me = self.config.id;
        let places: Vec<Place> = self.queue.wishes_where(|owner| owner.node != me);
        for place in places {
            let elsewhere = self.queue.get(place).is_some_and(|waiting| waiting.strategy.group().is_none());
            if let Some(waiting) = elsewhere.then(|| self.queue.remove(place)).flatten()
                && let Ask::Leases { owner, pool, .. } = waiting.ask
            {
                self.refuse_wish(owner, pool, &waiting.resources, effects);
            }
        }
    }

    pub(super) fn refuse_wish(&self, owner: ProcessId, pool: u32, resources: &Resources, effects: &mut Vec<Effect>) {
        let (asked, available) = (resources.to_string(), format!("{} is being drained", self.config.id));
        send(owner, FromNode::Infeasible { pool, asked, available }, effects);
    }

    /// What an actor's manager hears that chose this node.
    pub(super) fn drained_away(&self, resources: &Resources) -> Failure {
        let available = format!("{} is being drained", self.config.id);
        Failure::Infeasible { asked: resources.to_string(), available }
    }

    /// Actors that other nodes manage live on elsewhere. Those that are managed here end with their owner, which is here.
    fn send_actors_away(&mut self, effects: &mut Vec<Effect>) {
        let managed = |actor: &Actor| actor.manager.is_some() && !actor.is_dead();
        let hosted: Vec<ActorId> = self.actors.all.iter().filter(|(_, a)| managed(a)).map(|(id, _)| *id).collect();
        for id in hosted {
            let Some(actor) = self.actors.all.get(&id) else { continue };
            let (state, failure) = (actor.state.clone(), self.drained_away(&actor.spec.options.resources));
            let begun = state.process().filter(|process| self.is_hosting(*process));
            match (begun, &state) {
                (_, ActorState::Ending { .. } | ActorState::Dead { .. }) => {}
                (Some(process), _) => send(process, FromNode::Move, effects),
                // Its constructor has not begun: its manager chooses another host.
                (None, _) => {
                    self.unreserve(state);
                    self.hosting_over(id, Some(failure), effects);
                }
            }
        }
    }

    fn is_hosting(&self, process: ProcessId) -> bool {
        self.pool.workers.get(&process).is_some_and(|worker| matches!(worker.state, WorkerState::Hosting(_)))
    }

    /// Whether the orderly end of an actor's process here is its move to another node.
    pub(super) fn moves_away(&self, id: ActorId) -> bool {
        self.is_draining() && self.actors.all.get(&id).is_some_and(|actor| actor.manager.is_some())
    }

    /// Asks other nodes for what must still go.
    pub(super) fn go_on_draining(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let Some(draining) = &mut self.cluster.draining else { return };
        draining.look_at = now.plus_us(LOOK_US);
        if draining.again_at <= now {
            draining.refused.clear();
            draining.again_at = now.plus_us(ASK_AGAIN_US);
        }
        let lodged = &self.cluster.lodged;
        draining.asked.retain(|entry, _| lodged.get(entry).is_some_and(must_go));
        let room = TAKEN_AT_ONCE_MAX.saturating_sub(draining.asked.len());
        let waits = |entry: &Entry, lodger: &Lodger| must_go(lodger) && !draining.asked.contains_key(entry);
        let next = lodged.iter().filter(|(entry, lodger)| waits(entry, lodger)).take(room);
        let next: Vec<(Entry, RefSpec, Location)> = next.map(|(entry, l)| (*entry, l.object, l.at)).collect();
        for (entry, object, at) in next {
            let Some(node) = self.taker(entry, object.owner.node) else { continue };
            if let Some(draining) = &mut self.cluster.draining {
                draining.asked.insert(entry, node);
            }
            effects.push(Effect::Tell { node, message: Between::Take { object, at } });
        }
    }

    /// Who takes the next object: nodes that take work in turn, then its owner's own, but for those that had no room.
    fn taker(&mut self, entry: Entry, owner: NodeId) -> Option<NodeId> {
        let staying = |node: &NodeId| self.live.has_node(*node);
        let loads = self.cluster.passing.digest.loads();
        let takes = loads.filter(|(_, load)| !load.draining && !load.driver_only && !load.pressed);
        let mut nodes: Vec<NodeId> = takes.map(|(node, _)| node).filter(staying).collect();
        let leaves = self.cluster.passing.digest.loads().any(|(node, load)| node == owner && load.draining);
        let draining = self.cluster.draining.as_mut()?;
        let refused = draining.refused.get(&entry);
        nodes.retain(|node| refused.is_none_or(|refused| !refused.contains(node)));
        if !nodes.is_empty() {
            draining.turn = draining.turn.wrapping_add(1);
            return Some(nodes[draining.turn % nodes.len()]);
        }
        let may = !leaves && refused.is_none_or(|refused| !refused.contains(&owner));
        may.then_some(owner).filter(|owner| self.live.has_node(*owner))
    }

    /// A node that is being drained wants us to keep this.
    pub(super) fn take_over(&mut self, from: NodeId, object: RefSpec, at: Location, effects: &mut Vec<Effect>) {
        if at.node != from {
            return;
        }
        if self.is_draining() || self.is_pressed() {
            effects.push(Effect::Tell { node: from, message: Between::NotTaken { at } });
            return;
        }
        self.cluster.taking.insert(key(at));
        effects.push(Effect::Bring { object, at });
    }

    /// The copy that a draining node wanted us to make is here: it is a first one, and the owner's node hears of it.
    pub(super) fn took(&mut self, object: RefSpec, of: Location, at: Location, effects: &mut Vec<Effect>) {
        let (me, owner) = (self.config.id, object.owner.node);
        if owner != me && !self.live.has_node(owner) {
            // Nobody would ever free it.
            effects.push(Effect::FreeStored(at));
            return;
        }
        if owner != me {
            let lodger = Lodger { at, object, is_first: true, kept_by: None };
            self.cluster.lodged.insert((at.entry, at.generation), lodger);
        }
        self.promoted(at, effects);
        if owner == me {
            self.moved(me, object, of, at, effects);
        } else {
            effects.push(Effect::Tell { node: owner, message: Between::Moved { object, of, at } });
        }
    }

    /// The copy could not be made.
    pub(super) fn not_brought(&mut self, of: Location, effects: &mut Vec<Effect>) {
        if self.cluster.taking.remove(&key(of)) {
            effects.push(Effect::Tell { node: of.node, message: Between::NotTaken { at: of } });
        }
    }

    /// A node has no room for what we asked it to take.
    pub(super) fn not_taken(&mut self, from: NodeId, at: Location) {
        let Some(draining) = &mut self.cluster.draining else { return };
        let entry = (at.entry, at.generation);
        if draining.asked.get(&entry) == Some(&from) {
            draining.asked.remove(&entry);
            draining.refused.entry(entry).or_default().insert(from);
        }
    }

    /// The owner's node knows another place for what lies here.
    pub(super) fn kept(&mut self, of: Location, by: Option<NodeId>) {
        let entry = (of.entry, of.generation);
        if let Some(lodger) = self.cluster.lodged.get_mut(&entry) {
            match by {
                Some(node) => lodger.kept_by = Some(node),
                // It is being freed.
                None => lodger.is_first = false,
            }
        }
        if let Some(draining) = &mut self.cluster.draining {
            draining.asked.remove(&entry);
        }
    }

    /// A node is gone that was to take something, or had.
    pub(super) fn taker_died(&mut self, node: NodeId) {
        self.cluster.taking.retain(|(of, ..)| *of != node);
        for lodger in self.cluster.lodged.values_mut().filter(|lodger| lodger.kept_by == Some(node)) {
            lodger.kept_by = None;
        }
        if let Some(draining) = &mut self.cluster.draining {
            draining.asked.retain(|_, asked| *asked != node);
        }
    }

    /// Whether a place is on a node that is gone.
    pub(super) fn is_lost_place(&self, at: Location) -> bool {
        self.is_clustered() && at.node != self.config.id && !self.live.has_node(at.node)
    }
}

/// Whether its owner would lose it with this node.
fn must_go(lodger: &Lodger) -> bool {
    lodger.is_first && lodger.kept_by.is_none()
}
