//! The loads of all nodes, as one node knows them, with what it has sent there since.
//!
//! A load is old when it comes. So a wish that is passed on counts against its node at once ([`Digest::sent`]), until a
//! load comes that was told after the wish must have been there, or until it is old ([`CORRECTION_US`]): a burst does
//! not all go to the node that was idle a moment ago.

use std::collections::{BTreeMap, VecDeque};

use super::estimate::{self, Effective, NONE};
use super::index::{Index, Order, set_maximum};
use super::{Load, Row};
use crate::id::NodeId;
use crate::resources::Resources;
use crate::time::Tick;

/// A wish counts against its node for so long, and for twice as long at most.
pub const CORRECTION_US: u64 = 500_000;
/// A load counts as told after a wish when it is younger by this: what a message needs to the other node.
const ARRIVED_US: u64 = 20_000;
/// Wishes that are sent to one node within this time are one entry.
const TOGETHER_US: u64 = 5_000;
/// Entries per node; beyond, the oldest quarter no longer counts.
pub(super) const CORRECTIONS_MAX: usize = 64;
/// Trees that are kept; beyond, the one that was not used for longest goes and is made again when it is asked for.
pub(super) const INDEXES_MAX: usize = 256;
/// Changes that are kept for the trees; one that is further behind is made again.
const CHANGES_MAX: usize = 4_096;

/// Wishes on their way to a node.
#[derive(Clone, Debug)]
struct Correction {
    at: Tick,
    resources: Resources,
    count: u32,
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) node: NodeId,
    pub(super) load: Load,
    pub(super) effective: Effective,
    /// When its load was told, in this node's time.
    pub(super) told: Tick,
    /// When it was last asked for work.
    pub(super) asked: Option<Tick>,
    corrections: VecDeque<Correction>,
    /// It is in the list of those that have corrections to let go of.
    expires: bool,
}

impl Slot {
    fn replay(&mut self) {
        self.effective = Effective::of(&self.load);
        for correction in &self.corrections {
            self.effective.add(&correction.resources, correction.count);
        }
    }

    pub(super) fn key(&self, shape: &Resources, order: Order) -> u64 {
        match order {
            Order::Nearest => estimate::nearest(&self.load, &self.effective, shape),
            Order::Emptiest => estimate::emptiest(&self.load, &self.effective, shape),
            Order::Lightest => estimate::lightest(&self.load, &self.effective, shape),
        }
    }
}

/// All nodes that can take work, and how loaded they are.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    pub(super) slots: Vec<Option<Slot>>,
    by_node: BTreeMap<NodeId, usize>,
    vacant: Vec<usize>,
    /// Bytes per microsecond, as a tree of maxima.
    bandwidths: Vec<u64>,
    indexes: Vec<Index>,
    /// When each tree was asked last, by a count of the questions.
    used: Vec<u64>,
    questions: u64,
    /// Slots that changed, the last [`CHANGES_MAX`] at least.
    changes: VecDeque<u32>,
    /// How many changes there were in all.
    changed: u64,
    /// Nodes with corrections and since when they are in this list, longest first.
    expiries: VecDeque<(Tick, NodeId)>,
    /// Where the next spread begins to look.
    pub(super) turn: usize,
}

impl Digest {
    /// A digest without a node.
    pub fn new() -> Self {
        Self::default()
    }

    /// A node told its load, `age_us` ago.
    pub fn update(&mut self, node: NodeId, load: Load, age_us: u64, now: Tick) {
        let told = Tick(now.0.saturating_sub(age_us));
        let at = match self.by_node.get(&node) {
            Some(at) => *at,
            None => self.add(node),
        };
        let bytes_per_us = estimate::bytes_per_us(&load);
        if let Some(slot) = &mut self.slots[at] {
            (slot.load, slot.told, slot.asked) = (load, told, None);
            slot.corrections.retain(|correction| correction.at.plus_us(ARRIVED_US) > told);
            slot.replay();
        }
        set_maximum(&mut self.bandwidths, at, bytes_per_us);
        self.note(at);
    }

    /// The load of the node whose digest this is: what it has sent to itself is counted in there.
    pub fn update_own(&mut self, node: NodeId, load: Load, now: Tick) {
        if let Some(slot) = self.place(node).and_then(|at| self.slots[at].as_mut()) {
            slot.corrections.clear();
        }
        self.update(node, load, 0, now);
    }

    /// Whether a node takes work at all, as far as it has told.
    pub fn takes_work(&self, node: NodeId) -> bool {
        self.slot(node).is_some_and(|slot| !slot.load.draining && !slot.load.driver_only)
    }

    /// The rows that came from the controller.
    pub fn update_all(&mut self, rows: Vec<Row>, now: Tick) {
        for row in rows {
            self.update(row.node, row.load, row.age_us, now);
        }
    }

    /// A node is gone.
    pub fn remove(&mut self, node: NodeId) {
        let Some(at) = self.by_node.remove(&node) else { return };
        self.slots[at] = None;
        self.vacant.push(at);
        set_maximum(&mut self.bandwidths, at, 0);
        self.note(at);
    }

    /// A wish is on its way to a node: it counts there from now on.
    pub fn sent(&mut self, node: NodeId, resources: &Resources, count: u32, now: Tick) {
        let Some(at) = self.by_node.get(&node).copied() else { return };
        let Some(slot) = &mut self.slots[at] else { return };
        slot.effective.add(resources, count);
        let young = slot.corrections.iter_mut().rev().take_while(|last| now.since_us(last.at) < TOGETHER_US);
        match young.into_iter().find(|last| last.resources == *resources) {
            Some(last) => last.count = last.count.saturating_add(count),
            None => {
                slot.corrections.push_back(Correction { at: now, resources: resources.clone(), count });
                if slot.corrections.len() > CORRECTIONS_MAX {
                    slot.corrections.drain(..CORRECTIONS_MAX / 4);
                    slot.replay();
                }
                if !slot.expires {
                    slot.expires = true;
                    self.expiries.push_back((now, node));
                }
            }
        }
        self.note(at);
    }

    /// The nodes and their loads.
    pub fn loads(&self) -> impl Iterator<Item = (NodeId, &Load)> {
        self.by_node.keys().filter_map(|node| Some((*node, &self.slot(*node)?.load)))
    }

    /// A node takes nothing more.
    pub fn drain(&mut self, node: NodeId, now: Tick) {
        if let Some(mut load) = self.slot(node).map(|slot| slot.load.clone()) {
            load.draining = true;
            self.update(node, load, 0, now);
        }
    }

    /// When a node told its load.
    pub fn told(&self, node: NodeId) -> Option<Tick> {
        Some(self.slot(node)?.told)
    }

    pub(super) fn slot(&self, node: NodeId) -> Option<&Slot> {
        self.slots[*self.by_node.get(&node)?].as_ref()
    }

    pub(super) fn place(&self, node: NodeId) -> Option<usize> {
        self.by_node.get(&node).copied()
    }

    pub(super) fn node_at(&self, place: usize) -> Option<NodeId> {
        Some(self.slots.get(place)?.as_ref()?.node)
    }

    pub(super) fn in_order(&self) -> impl Iterator<Item = &Slot> {
        self.by_node.values().filter_map(|at| self.slots[*at].as_ref())
    }

    fn add(&mut self, node: NodeId) -> usize {
        let at = self.vacant.pop().unwrap_or(self.slots.len());
        if at == self.slots.len() {
            self.slots.push(None);
        }
        if self.bandwidths.len() < 2 * self.slots.len() {
            let leaves = self.slots.len().next_power_of_two();
            let before: Vec<u64> = self.bandwidths[self.bandwidths.len() / 2..].to_vec();
            self.bandwidths = vec![0; 2 * leaves];
            for (slot, value) in before.into_iter().enumerate() {
                set_maximum(&mut self.bandwidths, slot, value);
            }
            self.indexes.clear();
            self.used.clear();
        }
        let load = Load::default();
        let effective = Effective::of(&load);
        let corrections = VecDeque::new();
        self.slots[at] = Some(Slot { node, load, effective, told: Tick(0), asked: None, corrections, expires: false });
        self.by_node.insert(node, at);
        at
    }

    fn note(&mut self, slot: usize) {
        self.changed += 1;
        self.changes.push_back(slot as u32);
        if self.changes.len() > 2 * CHANGES_MAX {
            self.changes.drain(..CHANGES_MAX);
        }
    }

    /// Lets go of wishes that must have been counted by their node long ago.
    pub(super) fn expire(&mut self, now: Tick) {
        while let Some((at, node)) = self.expiries.front().copied() {
            if now.since_us(at) < CORRECTION_US {
                return;
            }
            self.expiries.pop_front();
            let Some(place) = self.place(node) else { continue };
            let Some(slot) = &mut self.slots[place] else { continue };
            let before = slot.corrections.len();
            slot.corrections.retain(|correction| now.since_us(correction.at) < CORRECTION_US);
            let shrunk = slot.corrections.len() < before;
            slot.expires = !slot.corrections.is_empty();
            if slot.expires {
                self.expiries.push_back((now, node));
            }
            if shrunk {
                slot.replay();
                self.note(place);
            }
        }
    }

    /// The best node for a shape.
    pub(super) fn best(&mut self, shape: &Resources, order: Order) -> (usize, u64) {
        let at = self.catch_up(shape, order);
        self.indexes[at].best()
    }

    /// The same, beginning to look at a place.
    pub(super) fn best_from(&mut self, shape: &Resources, order: Order, from: usize) -> (usize, u64) {
        let at = self.catch_up(shape, order);
        self.indexes[at].best_from(from)
    }

    /// The best node for a shape when so many bytes have to come first, or `known` when none is better.
    pub(super) fn best_fetching(&mut self, shape: &Resources, bytes: u64, known: (usize, u64)) -> (usize, u64) {
        let at = self.catch_up(shape, Order::Nearest);
        self.indexes[at].best_fetching(bytes, &self.bandwidths, known)
    }

    /// Brings the tree of a shape up to date, and says which it is.
    fn catch_up(&mut self, shape: &Resources, order: Order) -> usize {
        self.questions += 1;
        let found = self.indexes.iter().position(|index| index.order == order && index.shape == *shape);
        let at = match found {
            Some(at) => at,
            None => self.add_index(shape, order),
        };
        self.used[at] = self.questions;
        let index = &mut self.indexes[at];
        let behind = self.changed - index.seen;
        if behind > self.changes.len() as u64 || behind > index.leaves() as u64 {
            let keys = self.slots.iter().map(|slot| slot.as_ref().map_or(NONE, |slot| slot.key(shape, order)));
            index.fill(keys);
        } else {
            for place in self.changes.iter().skip(self.changes.len() - behind as usize) {
                let place = *place as usize;
                let key = self.slots[place].as_ref().map_or(NONE, |slot| slot.key(shape, order));
                index.set(place, key);
            }
        }
        index.seen = self.changed;
        at
    }

    fn add_index(&mut self, shape: &Resources, order: Order) -> usize {
        let leaves = (self.bandwidths.len() / 2).max(1);
        let mut index = Index::new(shape.clone(), order, leaves);
        let keys = self.slots.iter().map(|slot| slot.as_ref().map_or(NONE, |slot| slot.key(shape, order)));
        index.fill(keys);
        index.seen = self.changed;
        if self.indexes.len() < INDEXES_MAX {
            self.indexes.push(index);
            self.used.push(0);
            return self.indexes.len() - 1;
        }
        let oldest = (0..self.used.len()).min_by_key(|at| self.used[*at]).unwrap_or(0);
        self.indexes[oldest] = index;
        oldest
    }
}
