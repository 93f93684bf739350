//! Wishes that are passed on: what cannot start here at once goes where it waits least.
//!
//! A wish of one of our processes stays in our queue until it is granted, by us or by others. Of what our own workers
//! cannot take now, a part is passed on to other nodes; their grants go straight to the owner and are counted here when they
//! come by. When a wish shrinks or our own workers come free, what others have not granted is taken back.

use std::collections::BTreeMap;

use super::queue::{Ask, Place, Waiting};
use super::{Effect, Node};
use crate::id::{NodeId, ProcessId};
use crate::message::{Between, ToNode};
use crate::schedule::{Choice, Digest, Input};
use crate::spec::Shape;
use crate::time::Tick;
use crate::value::Location;

/// After this wait for its own workers a request no longer trusts the mean duration of tasks, and goes to a node that idles.
pub const OVERDUE_US: u64 = 100_000;

/// A wish: its owner and pool.
pub(super) type Key = (ProcessId, u32);

/// What one other node was asked for.
#[derive(Clone, Copy, Debug)]
struct Parked {
    /// How many leases.
    count: u32,
    /// When it was asked, or last granted one.
    since: Tick,
}

/// One wish, as far as it is with other nodes.
#[derive(Default)]
struct Sent {
    nodes: BTreeMap<NodeId, Parked>,
    /// How often some of it was taken back and passed to another node since the last grant.
    moves: u32,
}

/// What of our processes' wishes is with other nodes.
#[derive(Default)]
pub(super) struct Passing {
    sent: BTreeMap<Key, Sent>,
    /// Of wishes that are bound to a place, how many may be granted here. Made anew at each step.
    pub(super) here: BTreeMap<Key, u32>,
    /// The loads of all nodes.
    pub(super) digest: Digest,
    /// When this node last looked for somebody to tell that it idles.
    pub(super) looked_at: Tick,
}

impl Passing {
    pub(super) fn total(&self, key: Key) -> u32 {
        self.sent.get(&key).map_or(0, |sent| sent.nodes.values().map(|parked| parked.count).sum())
    }

    pub(super) fn chosen_here(&self, key: Key) -> u32 {
        self.here.get(&key).copied().unwrap_or(0)
    }

    /// One that was chosen for this node is granted.
    pub(super) fn started_here(&mut self, key: Key) {
        if let Some(here) = self.here.get_mut(&key) {
            *here = here.saturating_sub(1);
        }
    }

    /// Takes off what a node was asked for. How much that was.
    fn take_off(&mut self, key: Key, node: NodeId, most: u32) -> u32 {
        let Some(sent) = self.sent.get_mut(&key) else { return 0 };
        let Some(parked) = sent.nodes.get_mut(&node) else { return 0 };
        let less = parked.count.min(most);
        parked.count -= less;
        if parked.count == 0 {
            sent.nodes.remove(&node);
        }
        if sent.nodes.is_empty() && sent.moves == 0 {
            self.sent.remove(&key);
        }
        less
    }

    fn granted(&mut self, node: NodeId, key: Key, now: Tick) {
        if let Some(sent) = self.sent.get_mut(&key) {
            sent.moves = 0;
            if let Some(parked) = sent.nodes.get_mut(&node) {
                parked.since = now;
            }
        }
        self.take_off(key, node, 1);
    }

    /// Counts a move.
    pub(super) fn moved(&mut self, key: Key) {
        self.sent.entry(key).or_default().moves += 1;
    }

    /// What waits with other nodes.
    pub(super) fn parked(&self) -> impl Iterator<Item = (Key, NodeId)> {
        self.sent.iter().flat_map(|(key, sent)| sent.nodes.keys().map(|node| (*key, *node)))
    }

    /// With which nodes a wish is.
    fn nodes_of(&self, key: Key) -> impl Iterator<Item = NodeId> {
        self.sent.get(&key).into_iter().flat_map(|sent| sent.nodes.keys().copied())
    }

    /// How many leases of a wish wait with a node, since when, and how often the wish was moved.
    pub(super) fn parked_at(&self, key: Key, node: NodeId) -> Option<(u32, Tick, u32)> {
        let sent = self.sent.get(&key)?;
        let parked = sent.nodes.get(&node)?;
        Some((parked.count, parked.since, sent.moves))
    }

    /// A wish is with these nodes and with no others: whom that is news for, and how many leases it is to grant. Only for
    /// what is bound to bundles, which is never moved.
    pub(super) fn spread(&mut self, key: Key, counts: BTreeMap<NodeId, u32>) -> Vec<(NodeId, u32)> {
        let before = self.sent.remove(&key).unwrap_or_default().nodes;
        let gone = before.keys().filter(|node| !counts.contains_key(node)).map(|node| (*node, 0));
        let known = |node: &NodeId| before.get(node).map(|parked| parked.count);
        let new = counts.iter().filter(|(node, count)| known(node) != Some(**count)).map(|(n, count)| (*n, *count));
        let news = gone.chain(new).collect();
        let nodes: BTreeMap<NodeId, Parked> =
            counts.into_iter().map(|(node, count)| (node, Parked { count, since: Tick::default() })).collect();
        if !nodes.is_empty() {
            self.sent.insert(key, Sent { nodes, moves: 0 });
        }
        news
    }

    /// That node has nothing of this wish any more.
    pub(super) fn forget(&mut self, node: NodeId, owner: ProcessId, pool: u32) {
        self.take_off((owner, pool), node, u32::MAX);
    }

    /// That node will not grant it.
    pub(super) fn refused(&mut self, node: NodeId, owner: ProcessId, pool: u32) {
        self.take_off((owner, pool), node, u32::MAX);
        self.digest.remove(node);
    }

    pub(super) fn forget_node(&mut self, node: NodeId) {
        self.digest.remove(node);
        self.sent.retain(|_, sent| {
            sent.nodes.remove(&node);
            !sent.nodes.is_empty()
        });
    }

    /// How many wishes are with other nodes.
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }
}

impl Node {
    /// The loads of other nodes, as the controller told them.
    pub(super) fn loads(&mut self, rows: Vec<crate::schedule::Row>, now: Tick, effects: &mut Vec<Effect>) {
        let me = self.config.id;
        let others = rows.into_iter().filter(|row| row.node != me && self.live.has_node(row.node)).collect();
        self.cluster.passing.digest.update_all(others, now);
        self.move_wishes(None, now, effects);
        self.rehost(None, now, effects);
        self.place_unplaced(now, effects);
        self.schedule(now, effects);
    }

    /// A grant of another node for one of our processes comes by.
    pub(super) fn granted_elsewhere(&mut self, node: NodeId, owner: ProcessId, pool: u32, now: Tick) {
        self.cluster.passing.granted(node, (owner, pool), now);
        let Some(place) = self.queue.wish(owner, pool) else { return };
        let Some(Waiting { ask: Ask::Leases { count, pending, .. }, .. }) = self.queue.get_mut(place) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 && *pending == 0 {
            self.queue.remove(place);
        }
    }

    /// Passes on what our own workers cannot take, and takes back what others hold in excess.
    pub(super) fn pass_on(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        if !self.is_clustered() {
            return;
        }
        self.rehost(None, now, effects);
        self.take_back_excess(effects);
        if self.queue.in_order().next().is_none() {
            self.ask_for_work(now, effects);
            return;
        }
        let me = self.config.id;
        self.refresh_own_load(now);
        let places: Vec<Place> = self.queue.in_order().map(|(place, _)| place).collect();
        for place in places {
            let Some(waiting) = self.queue.get(place) else { continue };
            match waiting.ask {
                Ask::Leases { owner, .. } if owner.node == me && waiting.strategy.group().is_some() => {
                    self.pass_to_bundles(place, effects);
                }
                Ask::Leases { owner, pool, count, pending } if owner.node == me => {
                    let there = self.cluster.passing.total((owner, pool));
                    // What is bound to a place has one by now, if there is one.
                    let bound = !self.may_start_here(waiting) || self.cluster.passing.chosen_here((owner, pool)) > 0;
                    let rest = if bound { 0 } else { count.saturating_sub(pending).saturating_sub(there) };
                    self.pass_wish(place, rest, now, effects);
                }
                // Who asked a second node would have to be told of a third.
                Ask::Leases { .. } | Ask::Actor { .. } | Ask::Group { .. } => {}
            }
        }
        self.ask_for_work(now, effects);
    }

    /// Finds nodes for `rest` leases of one wish.
    fn pass_wish(&mut self, place: Place, rest: u32, now: Tick, effects: &mut Vec<Effect>) {
        let mut asked: BTreeMap<NodeId, u32> = BTreeMap::new();
        for _ in 0..rest {
            let Some(waiting) = self.queue.get(place) else { return };
            let resources = waiting.resources.clone();
            match self.choose_for(place, now) {
                Choice::There(node) if self.live.has_node(node) => {
                    self.cluster.passing.digest.sent(node, &resources, 1, now);
                    *asked.entry(node).or_insert(0) += 1;
                }
                Choice::Here | Choice::Wait(_) | Choice::There(_) => break,
                // Somebody of whom we know nothing yet may have it.
                Choice::Never(_) if !self.knows_all_loads() => break,
                Choice::Never(never) => {
                    self.refuse(place, never.asked, never.available, effects);
                    return;
                }
            }
        }
        for (node, more) in asked {
            self.ask_for(place, node, more, now, effects);
        }
    }

    /// Whether every node has told its load.
    pub(super) fn knows_all_loads(&self) -> bool {
        self.live.nodes().all(|node| self.cluster.passing.digest.told(node).is_some())
    }

    /// Nobody can ever give this.
    pub(super) fn refuse(&mut self, place: Place, asked: String, available: String, effects: &mut Vec<Effect>) {
        if let Some(Waiting { ask: Ask::Leases { owner, pool, .. }, .. }) = self.queue.remove(place) {
            super::send(owner, crate::message::FromNode::Infeasible { pool, asked, available }, effects);
        }
    }

    /// Asks another node for so many more leases of a wish.
    pub(super) fn ask_for(&mut self, place: Place, node: NodeId, more: u32, now: Tick, effects: &mut Vec<Effect>) {
        let Some(waiting) = self.queue.get(place) else { return };
        let Ask::Leases { owner, pool, .. } = waiting.ask else { return };
        let job = waiting.job;
        let shape = waiting.shape();
        let sent = self.cluster.passing.sent.entry((owner, pool)).or_default();
        let parked = sent.nodes.entry(node).or_insert(Parked { count: 0, since: now });
        parked.count += more;
        let request = Box::new(ToNode::WantLeases { pool, shape, count: parked.count, depth: place.0.0 });
        effects.push(Effect::Tell { node, message: Between::Asked { process: owner, job, request } });
    }

    /// Takes back what a node was asked for, `most` leases at most. How many that are.
    pub(super) fn take_back(&mut self, key: Key, node: NodeId, most: u32, effects: &mut Vec<Effect>) -> u32 {
        let less = self.cluster.passing.take_off(key, node, most);
        if less > 0 {
            let (owner, pool) = key;
            let count = self.cluster.passing.parked_at(key, node).map_or(0, |(count, ..)| count);
            let wish = self.queue.wish(owner, pool).and_then(|place| self.queue.get(place));
            let shape =
                wish.map(|waiting| Shape { strategy: Default::default(), ..waiting.shape() }).unwrap_or_default();
            let request = Box::new(ToNode::WantLeases { pool, shape, count, depth: 0 });
            let job = self.job_of(owner).unwrap_or_default();
            effects.push(Effect::Tell { node, message: Between::Asked { process: owner, job, request } });
        }
        less
    }

    /// What others were asked for beyond what is still wished.
    fn take_back_excess(&mut self, effects: &mut Vec<Effect>) {
        let keys: Vec<Key> = self.cluster.passing.sent.keys().copied().collect();
        for key in keys {
            let wish = self.queue.wish(key.0, key.1).and_then(|place| self.queue.get(place));
            let wanted = match wish.map(|waiting| &waiting.ask) {
                Some(Ask::Leases { count, pending, .. }) => count.saturating_sub(*pending),
                _ => 0,
            };
            // What is in a group is with several nodes at once (`pass_to_bundles`).
            if wanted > 0 && wish.is_some_and(|waiting| waiting.strategy.group().is_some()) {
                continue;
            }
            let mut excess = self.cluster.passing.total(key).saturating_sub(wanted);
            let nodes: Vec<NodeId> = self.cluster.passing.nodes_of(key).collect();
            for node in nodes {
                excess -= self.take_back(key, node, excess, effects);
            }
            if wanted == 0 {
                self.cluster.passing.sent.remove(&key);
            }
        }
    }

    /// The own row of the digest is what it is now.
    pub(super) fn refresh_own_load(&mut self, now: Tick) {
        let (me, mut load) = (self.config.id, self.load());
        // A mean of short tasks says nothing of the long one that runs now and holds everything up.
        let overdue = self.longest_wait_us(now);
        if overdue >= OVERDUE_US {
            load.task_us = load.task_us.max(overdue);
        }
        self.cluster.passing.digest.update_own(me, load, now);
    }

    /// Time that a request of our own processes that could start here has waited since the last grant.
    fn longest_wait_us(&self, now: Tick) -> u64 {
        let own = |waiting: &&Waiting| {
            matches!(waiting.ask, Ask::Leases { owner, .. } if owner.node == self.config.id)
                && waiting.strategy.group().is_none()
                && self.may_start_here(waiting)
        };
        let waits = self.queue.in_order().map(|(_, waiting)| waiting).filter(own);
        waits.map(|waiting| now.since_us(waiting.since)).max().unwrap_or(0)
    }

    /// Who has each of these, this node's copies included, and how large it is.
    pub(super) fn holders_of(&self, inputs: &[Location]) -> Vec<(Vec<NodeId>, u64)> {
        let holders = inputs.iter().map(|at| (self.cluster.copies.nodes_with(*at), at.len));
        holders.collect()
    }

    /// The node for one lease of a wish.
    pub(super) fn choose_for(&mut self, place: Place, now: Tick) -> Choice {
        let Some(waiting) = self.queue.get(place) else { return Choice::Here };
        let (resources, strategy, own) = (waiting.resources.clone(), waiting.strategy, self.config.id);
        let holders = self.holders_of(&waiting.near);
        let inputs: Vec<Input<'_>> = holders.iter().map(|(at, bytes)| Input { at, bytes: *bytes }).collect();
        let ask = crate::schedule::Ask { resources: &resources, strategy, inputs: &inputs, own, bundles: &[] };
        self.cluster.passing.digest.choose(&ask, now)
    }

    /// The node for an actor that is managed here.
    pub(super) fn choose_host(&mut self, id: crate::id::ActorId, now: Tick) -> Choice {
        let Some(actor) = self.actors.all.get(&id) else { return Choice::Here };
        let options = std::sync::Arc::clone(&actor.spec.options);
        self.refresh_own_load(now);
        let me = self.config.id;
        let digest = &mut self.cluster.passing.digest;
        let (resources, strategy) = (&options.resources, options.strategy);
        let ask = crate::schedule::Ask { resources, strategy, inputs: &[], own: me, bundles: &[] };
        let choice = digest.choose_host(&ask, now);
        if let Choice::There(node) = choice {
            digest.sent(node, resources, 1, now);
        }
        choice
    }

    /// What this node tells the others of itself.
    pub fn load(&self) -> crate::schedule::Load {
        let mut load = crate::schedule::Load {
            total: self.config.total.clone(),
            free: self.likely_free(),
            lasting: self.lasting(),
            running: u32::try_from(self.leases.len() + self.hosted_actors()).unwrap_or(u32::MAX),
            task_us: self.cluster.task_us.get(),
            driver_only: self.config.total.is_zero(),
            draining: self.is_draining(),
            pressed: self.is_pressed(),
            bandwidth: self.cluster.bandwidth.get(),
            // As long as nothing was fetched there is room.
            arena_free_bytes: self.cluster.arena_free_bytes.unwrap_or(u64::MAX),
            ..Default::default()
        };
        // What is to run in a bundle takes nothing from others.
        for (_, waiting) in self.queue.in_order().filter(|(_, waiting)| waiting.strategy.group().is_none()) {
            let count = match waiting.ask {
                // What is wanted elsewhere waits for others.
                Ask::Leases { owner, pool, .. } if self.is_bound(waiting) => {
                    self.cluster.passing.chosen_here((owner, pool))
                }
                Ask::Leases { owner, pool, count, pending } => {
                    count.saturating_sub(pending).saturating_sub(self.cluster.passing.total((owner, pool)))
                }
                Ask::Actor { .. } | Ask::Group { .. } => 1,
            };
            if count > 0 {
                load.enqueue(&waiting.resources, count);
            }
        }
        load
    }
}
