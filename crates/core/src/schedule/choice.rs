//! The choice of a node for one wish.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::digest::{Digest, Slot};
use super::estimate::{self, FULL, NONE, PRESSED, delayed, transfer_us, wait_of};
use super::index::Order;
use super::{HOP_US, NEAR_US};
use crate::id::NodeId;
use crate::resources::Resources;
use crate::spec::Strategy;
use crate::time::Tick;

/// Nodes that hold inputs and are looked at one by one; of more, the last are treated as if they held nothing.
pub(super) const HOLDERS_MAX: usize = 64;

/// A value that the task reads, and where copies of it are.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Who has all of it.
    pub at: &'a [NodeId],
    /// How large it is.
    pub bytes: u64,
}

/// What is wished for.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The shape.
    pub resources: &'a Resources,
    /// How to choose.
    pub strategy: Strategy,
    /// What it reads.
    pub inputs: &'a [Input<'a>],
    /// Who asks. Its own row in the digest must be fresh.
    pub own: NodeId,
    /// For one that runs in a placement group: who has a bundle that will do. None while they are being placed.
    pub bundles: &'a [NodeId],
}

/// Where a wish goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The own node starts it at once or soon.
    Here,
    /// To this node. Count it with [`Digest::sent`].
    There(NodeId),
    /// It stays queued here, and is asked about again when loads change.
    Wait(Why),
    /// No node of the cluster can ever take it.
    Never(Box<Never>),
}

/// Why a wish waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nobody has it free.
    Busy {
        /// The node where it would start first.
        nearest: NodeId,
        /// When that would be, by the estimate.
        wait_us: u64,
    },
    /// The nodes that could take it are short of memory.
    Pressed {
        /// One of them.
        nearest: NodeId,
    },
    /// Its placement group is not placed.
    Unplaced,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Busy { nearest, wait_us } => {
                write!(f, "no node has it free; {nearest} is the nearest, in about {} ms", wait_us.div_ceil(1_000))
            }
            Why::Pressed { nearest } => {
                write!(f, "{nearest} is short of memory and takes no new work until that is over")
            }
            Why::Unplaced => write!(f, "its placement group waits for its bundles"),
        }
    }
}

/// Why a wish can never be fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Never {
    /// What was asked for.
    pub asked: String,
    /// The node that comes nearest and what it has, or why the wanted one will not do.
    pub available: String,
}

impl fmt::Display for Never {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no node can ever give {}: {}", self.asked, self.available)
    }
}

/// A candidate: its slot and its number, with the transfer.
type Candidate = (usize, u64);

impl Digest {
    /// The node for one wish. `&mut` because the trees catch up; nothing that can be seen changes, but for the turn of a
    /// spread.
    pub fn choose(&mut self, ask: &Ask<'_>, now: Tick) -> Choice {
        self.expire(now);
        match ask.strategy {
            Strategy::Default => self.choose_nearest(ask),
            Strategy::Spread => self.choose_in_turn(ask, Order::Emptiest),
            Strategy::Group { .. } => self.choose_bundle(ask.own, ask.bundles),
            Strategy::Node { node, soft } => {
                let fit = self.slot(node).is_some_and(|slot| estimate::feasible(&slot.load, ask.resources));
                match (fit, soft) {
                    (true, _) if node == ask.own => Choice::Here,
                    (true, _) => Choice::There(node),
                    (false, true) => self.choose_nearest(ask),
                    (false, false) => self.refused_by(node, ask.resources),
                }
            }
        }
    }

    /// The node for an actor. It stays where it is put, so one that takes no CPU goes where the fewest are, and one that no
    /// node can start at once waits where room may come first, however many wait there: it can be moved.
    pub fn choose_host(&mut self, ask: &Ask<'_>, now: Tick) -> Choice {
        let choice = if ask.strategy == Strategy::Default && ask.resources.cpus.0 == 0 {
            self.expire(now);
            self.choose_in_turn(ask, Order::Lightest)
        } else {
            self.choose(ask, now)
        };
        if !matches!(choice, Choice::Wait(Why::Busy { .. })) {
            return choice;
        }
        let (place, key) = self.nearest(ask, 0);
        let own = self.place(ask.own).map_or(NONE, |place| self.key_with_inputs(place, ask, 0));
        match self.node_at(place) {
            Some(node) if node != ask.own && key < PRESSED && (own >= PRESSED || wait_of(key) < wait_of(own)) => {
                Choice::There(node)
            }
            _ => choice,
        }
    }

    fn choose_nearest(&mut self, ask: &Ask<'_>) -> Choice {
        let bytes: u64 = ask.inputs.iter().map(|input| input.bytes).sum();
        let own = self.place(ask.own);
        let own_key = own.map_or(NONE, |place| self.key_with_inputs(place, ask, bytes));
        let own_wait = wait_of(own_key);
        if own_key < PRESSED && own_wait <= NEAR_US {
            return Choice::Here;
        }
        let (place, key) = self.nearest(ask, bytes);
        if key == NONE && own_key == NONE {
            return self.never(ask.resources);
        }
        let Some(best) = self.node_at(place).filter(|_| key != NONE) else {
            return Choice::Wait(Why::Busy { nearest: ask.own, wait_us: own_wait });
        };
        let takes = key < FULL && best != ask.own;
        if takes && (own_key >= PRESSED || wait_of(key) + HOP_US < own_wait) {
            return Choice::There(best);
        }
        if own_key < PRESSED {
            return Choice::Wait(Why::Busy { nearest: ask.own, wait_us: own_wait });
        }
        Choice::Wait(waiting(best, key))
    }

    /// The lowest number of all nodes, with what each would have to fetch.
    pub(super) fn nearest(&mut self, ask: &Ask<'_>, bytes: u64) -> Candidate {
        if bytes == 0 {
            return self.best(ask.resources, Order::Nearest);
        }
        let holders = ask.inputs.iter().flat_map(|input| input.at).take(HOLDERS_MAX);
        let places = holders.filter_map(|node| self.place(*node));
        let known = places.map(|place| (place, self.key_with_inputs(place, ask, bytes))).min_by_key(|(_, key)| *key);
        self.best_fetching(ask.resources, bytes, known.unwrap_or((0, NONE)))
    }

    /// A node's exact number: what it lacks of the inputs counts.
    pub(super) fn key_with_inputs(&self, place: usize, ask: &Ask<'_>, bytes: u64) -> u64 {
        let Some(slot) = &self.slots[place] else { return NONE };
        let key = slot.key(ask.resources, Order::Nearest);
        if key == NONE || bytes == 0 {
            return key;
        }
        let there = ask.inputs.iter().filter(|input| input.at.contains(&slot.node));
        let missing = bytes - there.map(|input| input.bytes).sum::<u64>();
        delayed(key, transfer_us(&slot.load, missing))
    }

    fn choose_in_turn(&mut self, ask: &Ask<'_>, order: Order) -> Choice {
        let turn = self.turn;
        let (place, key) = self.best_from(ask.resources, order, turn);
        let Some(node) = self.node_at(place).filter(|_| key != NONE) else {
            return self.never(ask.resources);
        };
        if key >= FULL {
            return Choice::Wait(waiting(node, key));
        }
        self.turn = (place + 1) % self.slots.len();
        if node == ask.own { Choice::Here } else { Choice::There(node) }
    }

    fn choose_bundle(&mut self, own: NodeId, nodes: &[NodeId]) -> Choice {
        let known = |node: &&NodeId| self.slot(**node).is_some();
        if nodes.contains(&own) && known(&&own) {
            return Choice::Here;
        }
        let count = nodes.iter().filter(known).count();
        let chosen = nodes.iter().filter(known).nth(self.turn.checked_rem(count).unwrap_or(0)).copied();
        self.turn = self.turn.wrapping_add(1);
        chosen.map_or(Choice::Wait(Why::Unplaced), Choice::There)
    }

    /// Nobody can take this: who comes nearest.
    fn never(&self, asked: &Resources) -> Choice {
        let takers = || self.in_order().filter(|slot| !slot.load.driver_only);
        let staying = takers().filter(|slot| !slot.load.draining);
        // The one that falls short by the least of what is asked for.
        let nearest = staying.min_by_key(|slot| slot.load.total.shortage(asked));
        let mut available = match nearest {
            Some(slot) => format!("{} comes nearest and has only {}", slot.node, slot.load.total),
            None => "no node takes work".to_owned(),
        };
        if let Some(slot) = takers().find(|slot| slot.load.draining && slot.load.total.covers(asked)) {
            available += &format!("; {} has it but is being drained", slot.node);
        }
        available += "; ask for less or start a node that has more";
        Choice::Never(Box::new(Never { asked: asked.to_string(), available }))
    }

    fn refused_by(&self, node: NodeId, asked: &Resources) -> Choice {
        let available = match self.slot(node) {
            None => format!("{node} is not in the cluster; let the affinity be soft or name another node"),
            Some(Slot { load, .. }) if load.draining => format!("{node} is being drained"),
            Some(Slot { load, .. }) if load.driver_only => format!("{node} is a driver's and takes no work"),
            Some(Slot { load, .. }) => format!("{node} has only {}", load.total),
        };
        Choice::Never(Box::new(Never { asked: format!("{asked} on {node}"), available }))
    }
}

fn waiting(nearest: NodeId, key: u64) -> Why {
    if key >= PRESSED { Why::Pressed { nearest } } else { Why::Busy { nearest, wait_us: wait_of(key) } }
}
