//! How long messages take to other nodes. It is asked when a reduce is planned over them, for the next one: a cluster that reduces
//! nothing measures nothing.

use std::collections::{BTreeMap, VecDeque};

use super::{Effect, Node};
use crate::id::NodeId;
use crate::message::Between;
use crate::time::Tick;

/// A node is asked again after so long.
const ASK_AGAIN_US: u64 = 1_000_000;
/// So many answers count. The quickest of them tells how long the way is: the others have waited for a busy node or behind bytes.
const ANSWERS_MAX: usize = 32;

/// What was measured.
#[derive(Default)]
pub(super) struct Delays {
    /// When each node was asked last.
    asked: BTreeMap<NodeId, Tick>,
    one_way_us: VecDeque<u64>,
}

impl Delays {
    /// How long a message takes from one node to another at best; nothing before the first was measured.
    fn one_way_us(&self) -> Option<u64> {
        self.one_way_us.iter().min().copied()
    }

    /// A node has said back what it was told at `at`.
    pub(super) fn heard(&mut self, node: NodeId, at: Tick, now: Tick) {
        if self.asked.get(&node) == Some(&at) {
            self.one_way_us.push_back(now.since_us(at) / 2);
            if self.one_way_us.len() > ANSWERS_MAX {
                self.one_way_us.pop_front();
            }
        }
    }

    pub(super) fn forget(&mut self, node: NodeId) {
        self.asked.remove(&node);
    }
}

impl Node {
    /// How long a message takes to another node, when that was measured.
    pub fn message_us(&self) -> Option<u64> {
        self.cluster.delays.one_way_us()
    }

    /// Measures how long messages take to a node, unless that was done a moment ago.
    pub(super) fn measure_delay(&mut self, node: NodeId, now: Tick, effects: &mut Vec<Effect>) {
        let is_due = self.cluster.delays.asked.get(&node).is_none_or(|at| now.since_us(*at) >= ASK_AGAIN_US);
        if is_due && node != self.config.id && self.live.has_node(node) {
            self.cluster.delays.asked.insert(node, now);
            effects.push(Effect::Tell { node, message: Between::Ping { at: now } });
        }
    }
}
