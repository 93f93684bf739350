//! Wishes that move: from a node that turned out to be slow to one that idles.
//!
//! Only the node of the owner moves a wish: it takes it back from the node that was asked and asks another. It looks when it hears
//! of others: with each digest, and when a node says that it idles. A grant that crosses the taking-back is a lease too many, which
//! its owner uses or returns.
//!
//! Who idles tells one of those where something waits, by the digest ([`Digest::whom_to_ask`](crate::schedule::Digest::whom_to_ask)).
//! What waits there for processes of third nodes is theirs to move, so these are told, once.

use std::collections::BTreeSet;

use super::passing::Key;
use super::queue::{Ask, Waiting};
use super::{Effect, Node};
use crate::id::NodeId;
use crate::message::Between;
use crate::schedule::{Input, Load, Move, Parked};
use crate::spec::Strategy;
use crate::time::Tick;

/// A node looks for somebody to tell that it idles at most this often.
pub const LOOK_FOR_WORK_US: u64 = 1_000;
/// Owners' nodes that are told of an idle one, besides the one that it told.
pub const TOLD_OF_IDLE_MAX: usize = 4;

impl Node {
    /// A node has room, and this is its load just now.
    pub(super) fn idles(&mut self, from: NodeId, node: NodeId, load: Load, now: Tick, effects: &mut Vec<Effect>) {
        if node == self.config.id || !self.live.has_node(node) {
            return;
        }
        let free = load.free.clone();
        if from == node {
            let guests = self.queue.in_order().filter(|(_, waiting)| free.covers(&waiting.resources));
            let owners = guests.map(|(_, waiting)| self.mover_of(waiting));
            let owners: BTreeSet<NodeId> = owners.filter(|owner| *owner != self.config.id && *owner != node).collect();
            for owner in owners.into_iter().take(TOLD_OF_IDLE_MAX) {
                let message = Between::Idle { node, load: Box::new(load.clone()) };
                effects.push(Effect::Tell { node: owner, message });
            }
        }
        self.cluster.passing.digest.update(node, load, 0, now);
        self.move_wishes(Some(node), now, effects);
        self.rehost(Some(node), now, effects);
        self.schedule(now, effects);
    }

    /// The node that decides where something that waits here goes instead.
    fn mover_of(&self, waiting: &Waiting) -> NodeId {
        match waiting.ask {
            Ask::Actor { actor, .. } => {
                self.actors.all.get(&actor).and_then(|actor| actor.manager).unwrap_or(self.config.id)
            }
            Ask::Leases { .. } | Ask::Group { .. } => waiting.ask.asker().node,
        }
    }

    /// Takes wishes back from nodes that do not get on with them, and passes them to ones that start them at once.
    pub(super) fn move_wishes(&mut self, asker: Option<NodeId>, now: Tick, effects: &mut Vec<Effect>) {
        if self.cluster.passing.len() == 0 {
            return;
        }
        self.refresh_own_load(now);
        // What is to run in a placement group stays with the nodes of its bundles.
        let wish = |key: Key| self.queue.wish(key.0, key.1).and_then(|place| self.queue.get(place));
        let moves = |(key, _): &(Key, NodeId)| wish(*key).is_none_or(|waiting| waiting.strategy.group().is_none());
        let parked: Vec<(Key, NodeId)> = self.cluster.passing.parked().filter(moves).collect();
        for (key, node) in parked {
            if !self.cluster.passing.digest.takes_work(node) {
                // It is leaving.
                self.take_back(key, node, u32::MAX, effects);
                continue;
            }
            let Some(Move { to, count }) = self.better_place(key, node, asker, now) else { continue };
            let Some(place) = self.queue.wish(key.0, key.1) else { continue };
            let count = self.take_back(key, node, count, effects);
            if count == 0 {
                continue;
            }
            self.cluster.passing.moved(key);
            if to != self.config.id {
                let Some(resources) = self.queue.get(place).map(|waiting| waiting.resources.clone()) else { continue };
                self.cluster.passing.digest.sent(to, &resources, count, now);
                self.ask_for(place, to, count, now, effects);
            }
        }
    }

    /// Where the wish that waits with a node should go instead.
    fn better_place(&mut self, key: Key, node: NodeId, asker: Option<NodeId>, now: Tick) -> Option<Move> {
        let waiting = self.queue.get(self.queue.wish(key.0, key.1)?)?;
        if !matches!(waiting.strategy, Strategy::Default | Strategy::Spread) {
            return None;
        }
        let resources = waiting.resources.clone();
        let (count, since, moves) = self.cluster.passing.parked_at(key, node)?;
        let holders = self.holders_of(&waiting.near);
        let inputs: Vec<Input<'_>> = holders.iter().map(|(at, bytes)| Input { at, bytes: *bytes }).collect();
        let wish = Parked { resources: &resources, inputs: &inputs, count, since, moves };
        let digest = &mut self.cluster.passing.digest;
        let found = digest.should_move(node, &wish, asker, now)?;
        (found.to == self.config.id || self.live.has_node(found.to)).then_some(found)
    }

    /// When this node idles, somebody who has too much hears of it.
    pub(super) fn ask_for_work(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let idles = !self.free.is_zero() && !self.is_draining();
        let passing = &mut self.cluster.passing;
        if !idles || now.since_us(passing.looked_at) < LOOK_FOR_WORK_US {
            return;
        }
        passing.looked_at = now;
        if !passing.digest.loads().any(|(node, load)| node != self.config.id && !load.queued.is_empty()) {
            return;
        }
        // Who waits although it fits waits for a process, and so would others.
        let held_up = |waiting: &Waiting| !matches!(waiting.ask, Ask::Group { .. }) && self.fits(waiting);
        if self.is_pressed() || self.queue.in_order().any(|(_, w)| self.may_start_here(w) && held_up(w)) {
            return;
        }
        self.refresh_own_load(now);
        let me = self.config.id;
        if let Some(node) = self.cluster.passing.digest.whom_to_ask(me, now).filter(|node| self.live.has_node(*node)) {
            let message = Between::Idle { node: me, load: Box::new(self.load()) };
            effects.push(Effect::Tell { node, message });
        }
    }

    /// The store has fetched something: how fast bytes come in, and how much room there is.
    pub(super) fn fetched(&mut self, bytes: u64, took_us: u64, arena_free_bytes: u64) {
        self.cluster.arena_free_bytes = Some(arena_free_bytes);
        if bytes >= FETCH_COUNTS_BYTES {
            let per_second = u128::from(bytes) * 1_000_000 / u128::from(took_us.max(1));
            self.cluster.bandwidth.add(u64::try_from(per_second).unwrap_or(u64::MAX).max(1));
        }
    }
}

/// Fewer bytes say nothing of the bandwidth: they come with one or two wake-ups.
pub const FETCH_COUNTS_BYTES: u64 = 128 << 10;
