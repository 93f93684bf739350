//! Messages about nodes that have not joined yet, as far as this node knows.
//!
//! The controller tells every node of a new one, and those that have heard it may speak of the new one to a node that has
//! not: that node would take the new one for dead, and what lies there for lost. Therefore a node says which is the newest
//! one that it knows before it says anything else to another (JOIN-1), and the receiver keeps what follows until it knows
//! that one too. The numbers of nodes grow, and every node hears of joins in their order.

use std::collections::{BTreeMap, VecDeque};

use super::{Effect, Node};
use crate::id::NodeId;
use crate::message::Between;
use crate::time::Tick;

/// The newest node that this one knows, and the others know.
#[derive(Default)]
pub(super) struct Joins {
    newest: NodeId,
    /// The newest node that others were told of, by receiver.
    told: BTreeMap<NodeId, NodeId>,
    /// Messages that may be about a newer node, in order, by sender.
    deferred: BTreeMap<NodeId, VecDeque<Between>>,
}

impl Joins {
    pub(super) fn new(me: NodeId) -> Self {
        Self { newest: me, ..Self::default() }
    }

    /// Keeps a message that may be about a node that is not known yet; returns any other.
    fn defer(&mut self, from: NodeId, message: Between) -> Option<Between> {
        let is_new = |node: NodeId| node > self.newest;
        let is_early = is_new(from) || matches!(message, Between::Knows { newest } if is_new(newest));
        if is_early || self.deferred.contains_key(&from) {
            self.deferred.entry(from).or_default().push_back(message);
            return None;
        }
        Some(message)
    }

    pub(super) fn node_died(&mut self, node: NodeId) {
        self.told.remove(&node);
        self.deferred.remove(&node);
    }
}

impl Node {
    /// A message of another node has arrived.
    pub(super) fn heard(&mut self, from: NodeId, message: Between, now: Tick, effects: &mut Vec<Effect>) {
        if let Some(message) = self.cluster.joins.defer(from, message) {
            self.handle_message(from, message, now, effects);
        }
    }

    /// A node has joined: handles the messages that may be about it.
    pub(super) fn deliver_deferred(&mut self, joined: NodeId, now: Tick, effects: &mut Vec<Effect>) {
        let joins = &mut self.cluster.joins;
        joins.newest = joins.newest.max(joined);
        for (from, messages) in std::mem::take(&mut joins.deferred) {
            for message in messages {
                self.heard(from, message, now, effects);
            }
        }
    }

    /// Precedes the first message to each node since the last join with the newest node known here.
    pub(super) fn announce_newest(&mut self, effects: &mut Vec<Effect>, from: usize) {
        let Joins { newest, told, .. } = &mut self.cluster.joins;
        let is_news = |effect: &Effect| matches!(effect, Effect::Tell { node, .. } if told.get(node) != Some(newest));
        if !effects[from..].iter().any(is_news) {
            return;
        }
        for effect in effects.split_off(from) {
            if let Effect::Tell { node, .. } = effect
                && told.insert(node, *newest) != Some(*newest)
            {
                effects.push(Effect::Tell { node, message: Between::Knows { newest: *newest } });
            }
            effects.push(effect);
        }
    }
}
