//! Wishes that are wanted in one place: near their inputs, on a node that they name, or spread evenly.
//!
//! Any other wish of our processes is granted from our own workers when those are free, before other nodes are looked at.
//! These are not: for each lease a node is chosen first, and only what is chosen for this one is granted here. As long as
//! it waits, it is chosen anew whenever something changes.

use std::collections::BTreeMap;

use super::queue::{Ask, Place, Waiting};
use super::{Effect, Node};
use crate::id::NodeId;
use crate::schedule::{Choice, Why};
use crate::spec::Strategy;
use crate::time::Tick;

impl Node {
    /// Whether a wish is bound to a place that may be another node.
    pub(super) fn is_bound(&self, waiting: &Waiting) -> bool {
        let ours = matches!(waiting.ask, Ask::Leases { owner, .. } if owner.node == self.config.id);
        let somewhere = match waiting.strategy {
            Strategy::Default => !waiting.near.is_empty(),
            Strategy::Spread => true,
            Strategy::Node { node, .. } => node != self.config.id,
            Strategy::Group { .. } => false,
        };
        self.is_clustered() && ours && somewhere
    }

    /// Whether our own workers may take (some of) this. What another node passed on to us was chosen there.
    pub(super) fn may_start_here(&self, waiting: &Waiting) -> bool {
        match waiting.ask {
            Ask::Leases { owner, pool, .. } if self.is_bound(waiting) => {
                self.cluster.passing.chosen_here((owner, pool)) > 0
            }
            _ => true,
        }
    }

    /// Chooses a node for every lease that is bound to a place and is with no other node.
    pub(super) fn place_bound(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        if !self.is_clustered() {
            return;
        }
        self.cluster.passing.here.clear();
        let bound = self.queue.in_order().filter(|(_, waiting)| self.is_bound(waiting));
        let places: Vec<Place> = bound.map(|(place, _)| place).collect();
        if places.is_empty() {
            return;
        }
        self.refresh_own_load(now);
        for place in places {
            self.place_one(place, now, effects);
        }
    }

    fn place_one(&mut self, place: Place, now: Tick, effects: &mut Vec<Effect>) {
        let me = self.config.id;
        let Some(waiting) = self.queue.get(place) else { return };
        let Ask::Leases { owner, pool, .. } = waiting.ask else { return };
        let (key, resources) = ((owner, pool), waiting.resources.clone());
        let rest = waiting.ask.wanted().saturating_sub(self.cluster.passing.total(key));
        let mut asked: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut here = 0;
        while here + asked.values().sum::<u32>() < rest {
            match self.choose_for(place, now) {
                Choice::There(node) if self.live.has_node(node) => {
                    self.cluster.passing.digest.sent(node, &resources, 1, now);
                    *asked.entry(node).or_insert(0) += 1;
                }
                Choice::Here => {
                    self.cluster.passing.digest.sent(me, &resources, 1, now);
                    here += 1;
                }
                // Everybody is busy, and it is here that it starts first.
                Choice::Wait(Why::Busy { nearest, .. }) if nearest == me => here = rest - asked.values().sum::<u32>(),
                Choice::Wait(_) | Choice::There(_) => break,
                Choice::Never(_) if !self.knows_all_loads() => break,
                Choice::Never(never) => {
                    self.refuse(place, never.asked, never.available, effects);
                    return;
                }
            }
        }
        if here > 0 {
            self.cluster.passing.here.insert(key, here);
        }
        for (node, more) in asked {
            self.ask_for(place, node, more, now, effects);
        }
    }
}
