//! Actors that wait for room: in the queue of the node that looked best, until another one can start them at once.
//!
//! The resources that an actor waits for may be held by another actor for ever, so it is not bound to the node that it was sent to. Its
//! manager looks again whenever it hears of loads or room: an actor in its own queue goes to the other node at once; one that
//! waits with a host is recalled first, and goes on when the host has given it back. The host alone knows whether it has
//! started the actor in the meantime, so there is never a second process for one life.

use super::actors::ActorState;
use super::{Effect, Node};
use crate::id::{ActorId, NodeId};
use crate::message::Between;
use crate::schedule::Parked;
use crate::spec::Strategy;
use crate::time::Tick;

/// The wait of an actor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stay {
    /// Since when it is with its present node.
    since: Tick,
    /// Number of times that it went to another one.
    moves: u32,
    /// Its host was asked to give it back, and it goes there then.
    recalled_for: Option<NodeId>,
}

impl Node {
    /// An actor that is managed here waits with a node from now on.
    pub(super) fn note_stay(&mut self, id: ActorId, now: Tick) {
        let managed = self.actors.all.get(&id).is_some_and(|actor| actor.manager.is_none());
        if managed && self.is_clustered() {
            let stay = self.cluster.stays.entry(id).or_default();
            (stay.since, stay.recalled_for) = (now, None);
        }
    }

    /// Sends actors that wait to nodes that can start them at once.
    pub(super) fn rehost(&mut self, asker: Option<NodeId>, now: Tick, effects: &mut Vec<Effect>) {
        if self.cluster.stays.is_empty() {
            return;
        }
        self.refresh_own_load(now);
        let ids: Vec<ActorId> = self.cluster.stays.keys().copied().collect();
        for id in ids {
            let waits = |state: &ActorState| *state == ActorState::Queued;
            if !self.actors.all.get(&id).is_some_and(|actor| waits(&actor.state)) {
                self.cluster.stays.remove(&id);
            } else if let Some(to) = self.better_host(id, asker, now) {
                self.move_actor(id, to, now, effects);
            }
        }
    }

    /// The node that would start a waiting actor at once, when that is not where it is.
    fn better_host(&mut self, id: ActorId, asker: Option<NodeId>, now: Tick) -> Option<NodeId> {
        let me = self.config.id;
        let stay = self.cluster.stays.get(&id).filter(|stay| stay.recalled_for.is_none()).copied()?;
        let actor = self.actors.all.get(&id)?;
        let options = std::sync::Arc::clone(&actor.spec.options);
        if !matches!(options.strategy, Strategy::Default | Strategy::Spread) {
            return None;
        }
        let at = actor.host.unwrap_or(me);
        let waiting = self.queue.actor(id).and_then(|place| self.queue.get(place));
        if at == me && waiting.is_none_or(|waiting| self.fits(waiting)) {
            // It only waits for its process, or is not placed yet.
            return None;
        }
        let (resources, since, moves) = (&options.resources, stay.since, stay.moves);
        let parked = Parked { resources, inputs: &[], count: 1, since, moves };
        let to = self.cluster.passing.digest.should_move(at, &parked, asker, now)?.to;
        (to == me || self.live.has_node(to)).then_some(to)
    }

    fn move_actor(&mut self, id: ActorId, to: NodeId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.get(&id) else { return };
        let (host, incarnation) = (actor.host, actor.incarnation);
        let options = std::sync::Arc::clone(&actor.spec.options);
        self.cluster.passing.digest.sent(to, &options.resources, 1, now);
        let Some(stay) = self.cluster.stays.get_mut(&id) else { return };
        stay.moves += 1;
        match host {
            Some(node) => {
                stay.recalled_for = Some(to);
                effects.push(Effect::Tell { node, message: Between::Recall { actor: id, incarnation } });
            }
            None => {
                if let Some(place) = self.queue.actor(id) {
                    self.queue.remove(place);
                }
                self.send_to_host(id, to, true, now, effects);
            }
        }
    }

    /// The manager wants an actor back that we were asked to host; it gets it when it has no process yet.
    pub(super) fn recall(&mut self, from: NodeId, id: ActorId, incarnation: u32, now: Tick, effects: &mut Vec<Effect>) {
        let waits = self.actors.all.get(&id).is_some_and(|actor| {
            actor.manager == Some(from) && actor.incarnation == incarnation && actor.state == ActorState::Queued
        });
        if waits {
            self.hosting_over(id, None, effects);
            effects.push(Effect::Tell { node: from, message: Between::Recalled { actor: id, incarnation } });
            self.schedule(now, effects);
        }
    }

    /// A host has given an actor back.
    pub(super) fn recalled(
        &mut self,
        from: NodeId,
        id: ActorId,
        incarnation: u32,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let back = self.actors.all.get(&id).is_some_and(|actor| {
            actor.host == Some(from) && actor.incarnation == incarnation && actor.state == ActorState::Queued
        });
        if !back {
            return;
        }
        let to = self.cluster.stays.get(&id).and_then(|stay| stay.recalled_for);
        match to {
            Some(to) if to == self.config.id => self.enqueue_here(id, now, effects),
            Some(to) if self.live.has_node(to) => self.send_to_host(id, to, true, now, effects),
            Some(_) | None => self.enqueue_actor(id, now, effects),
        }
    }
}
