//! Queued work moves when a node idles: the one who idles asks, and the one who has a queue passes on.
//!
//! A wish moves only to a node that starts it at once, only when that is better by [`GAIN_US`], and each time it must
//! have waited twice as long as before. So a wish that was sent to a node which was no longer idle moves again, and two
//! nodes with stale loads do not throw it to and fro: in a time t it moves log2(t / [`MOVE_AFTER_US`]) times at most, until
//! it waits for [`DOUBLINGS`] doublings between two moves.
//!
//! Work-conserving within a bound: a wish does not wait for longer than its next move is due, plus the age of the
//! digest, while a node idles that could start it. An idle node that asks does not even wait for the digest.

use super::choice::{Ask, Input};
use super::digest::Digest;
use super::estimate::{self, FULL, wait_of};
use super::{HOP_US, Load};
use crate::id::NodeId;
use crate::resources::Resources;
use crate::spec::Strategy;
use crate::time::Tick;

/// A wish waits for so long before it moves to an idle node; after each move twice as long.
pub const MOVE_AFTER_US: u64 = 5_000;
/// How often the wait between two moves is doubled: up to 5 s.
pub const DOUBLINGS: u32 = 10;
/// A move must make it better by this.
pub const GAIN_US: u64 = 1_000;
/// An idle node asks the same node again after this time, or when a newer load came.
pub const ASK_AGAIN_US: u64 = 10_000;

/// A wish that waits in a node's queue.
#[derive(Clone, Copy, Debug)]
pub struct Parked<'a> {
    /// The shape.
    pub resources: &'a Resources,
    /// What it reads.
    pub inputs: &'a [Input<'a>],
    /// How many are wished for.
    pub count: u32,
    /// Since when it waits in this queue.
    pub since: Tick,
    /// How often it was passed on before.
    pub moves: u32,
}

/// Pass so many of a wish on to a node, and count them with [`Digest::sent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Whereto.
    pub to: NodeId,
    /// How many of the wish.
    pub count: u32,
}

impl Digest {
    /// Whether a wish in the queue of `own` should be passed on, to `asker` (an idle node that asked, whose row is
    /// fresh) or to the best node there is. For the default strategy only: the others are bound to what they name.
    pub fn should_move(&mut self, own: NodeId, wish: &Parked<'_>, asker: Option<NodeId>, now: Tick) -> Option<Move> {
        self.expire(now);
        let waited = now.since_us(wish.since);
        if (asker.is_none() || wish.moves > 0) && waited < MOVE_AFTER_US << wish.moves.min(DOUBLINGS) {
            return None;
        }
        let ask =
            Ask { resources: wish.resources, strategy: Strategy::Default, inputs: wish.inputs, own, bundles: &[] };
        let bytes: u64 = wish.inputs.iter().map(|input| input.bytes).sum();
        let (place, key) = match asker {
            Some(node) => {
                let place = self.place(node)?;
                (place, self.key_with_inputs(place, &ask, bytes))
            }
            None => self.nearest(&ask, bytes),
        };
        let slot = self.slots.get(place)?.as_ref()?;
        if key >= FULL || slot.node == own || !slot.effective.starts(wish.resources) {
            return None;
        }
        // That it has waited for longer than was thought says more than the estimate.
        let stays = match self.place(own).map(|own| self.key_with_inputs(own, &ask, bytes)) {
            Some(key) if key < estimate::PRESSED => wait_of(key).max(waited),
            _ => u64::MAX,
        };
        if wait_of(key).saturating_add(HOP_US + GAIN_US) >= stays {
            return None;
        }
        let count = slot.effective.free.times(wish.resources).min(wish.count);
        (count > 0).then_some(Move { to: slot.node, count })
    }

    /// Whom an idle node asks for work: one of those where something waits longest that it could start at once.
    pub fn whom_to_ask(&mut self, own: NodeId, now: Tick) -> Option<NodeId> {
        self.expire(now);
        let idle = self.slot(own).filter(|slot| takes_work(&slot.load))?;
        let gain = |load: &Load, effective: &estimate::Effective| {
            let startable = effective.queued.iter().filter(|q| q.count > 0 && idle.effective.starts(&q.resources));
            startable.map(|q| estimate::wait_us(load, effective, &q.resources)).max()
        };
        let asked = |tick: Option<Tick>| tick.is_some_and(|at| now.since_us(at) < ASK_AGAIN_US);
        let candidates = self.in_order().filter(|slot| slot.node != own && !asked(slot.asked));
        let waits: Vec<(u64, NodeId)> = candidates
            .filter_map(|slot| Some((gain(&slot.load, &slot.effective)?, slot.node)))
            .filter(|(wait, _)| *wait > HOP_US + GAIN_US)
            .collect();
        let longest = waits.iter().map(|(wait, _)| *wait).max()?;
        // Not all idle nodes ask the same one.
        let long: Vec<NodeId> = waits.iter().filter(|(wait, _)| *wait >= longest / 2).map(|(_, node)| *node).collect();
        let chosen = long[own.0 as usize % long.len()];
        let place = self.place(chosen)?;
        if let Some(slot) = &mut self.slots[place] {
            slot.asked = Some(now);
        }
        Some(chosen)
    }
}

fn takes_work(load: &Load) -> bool {
    !load.draining && !load.driver_only && !load.pressed
}
