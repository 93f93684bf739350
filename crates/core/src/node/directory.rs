//! Who sends a copy to whom: the directory that the owner's node keeps of objects that are on the move.
//!
//! Every node that wants a copy asks the owner's node and is given one sender. A node that was given a sender can be named as
//! a sender itself at once, before it has a byte: what it gets it passes on. So many wants of one object form a chain, and a tree
//! where complete copies are free, and nobody has to say that it is a broadcast.
//!
//! An object is in the directory while somebody wants a copy of it; complete copies alone are known to [`super::copies`]. Nobody is
//! told to fetch from a node that gets it from him, directly or not, so nobody waits in a circle. Every want is answered:
//! with a sender as soon as one is free, or with a reason when nobody is left who could ever send it. The size of all this is
//! bounded by the transfers of the nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::copies::{Key, key};
use crate::id::NodeId;
use crate::message::{CopySource, LostSender};
use crate::value::Location;

#[cfg(test)]
mod tests;

/// Nodes to which one node sends the same object at a time. With more, all of them get it more slowly, and those who get it
/// from them too.
const RECEIVERS_PER_SENDER: usize = 1;
/// The same for a receiver that has lost its sender: rather than wait behind another one, it goes on.
const RECEIVERS_AFTER_LOSS: usize = 4;

/// The answer to a want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Who asked.
    pub(super) node: NodeId,
    /// The asker's number.
    pub(super) number: u64,
    /// Who sends, or why nobody does.
    pub(super) from: Result<CopySource, String>,
}

/// A node's question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    /// Who asks.
    pub(super) node: NodeId,
    /// The asker's number.
    pub(super) number: u64,
    /// The place that it heard of; others ask it by this name for what arrives.
    pub(super) name: Location,
    /// Who was to send it and does not.
    pub(super) lost: Option<LostSender>,
}

/// What a node has of an object that it wants.
#[derive(Debug)]
struct Part {
    number: u64,
    name: Location,
    /// Who sends; nobody while it waits for a sender.
    from: Option<NodeId>,
    /// Its place in the order of those who began.
    since: u64,
    /// Senders that are no use to it.
    refused: BTreeSet<NodeId>,
    /// It has lost a sender.
    has_lost: bool,
}

/// An object of which somebody wants a copy.
#[derive(Debug, Default)]
struct Moving {
    /// The node of the place that the owner knows.
    first: NodeId,
    complete: BTreeMap<NodeId, Location>,
    parts: BTreeMap<NodeId, Part>,
    /// Nodes of which a receiver has lost the connection: perhaps they are dead.
    doubted: BTreeSet<NodeId>,
    began: u64,
}

/// Objects on the move, by the place that the owner knows.
#[derive(Debug, Default)]
pub(super) struct Directory {
    moving: BTreeMap<Key, Moving>,
}

impl Directory {
    /// Somebody wants a copy of what its owner knows at `of`. `complete` are the nodes that have one.
    pub(super) fn want(
        &mut self,
        of: Location,
        complete: impl IntoIterator<Item = (NodeId, Location)>,
        want: Want,
        answers: &mut Vec<Answer>,
    ) {
        let moving = self.moving.entry(key(of)).or_default();
        moving.first = of.node;
        moving.complete.extend(complete);
        moving.want(want, answers);
        self.settle(key(of), answers);
    }

    /// A node has a complete copy.
    pub(super) fn made(&mut self, of: Location, node: NodeId, at: Location, answers: &mut Vec<Answer>) {
        let Some(moving) = self.moving.get_mut(&key(of)) else { return };
        moving.complete.insert(node, at);
        moving.parts.remove(&node);
        moving.doubted.remove(&node);
        for part in moving.parts.values_mut() {
            part.refused.remove(&node);
        }
        self.settle(key(of), answers);
    }

    /// A node has no copy any more, or has given up to fetch one.
    pub(super) fn dropped(&mut self, of: Location, node: NodeId, answers: &mut Vec<Answer>) {
        let Some(moving) = self.moving.get_mut(&key(of)) else { return };
        moving.parts.remove(&node);
        if node != moving.first {
            moving.complete.remove(&node);
        }
        self.settle(key(of), answers);
    }

    /// A node is dead. Those to whom it was sending report that themselves, with what they have.
    pub(super) fn node_died(&mut self, node: NodeId, answers: &mut Vec<Answer>) {
        let keys: Vec<Key> = self.moving.keys().copied().collect();
        for key in keys {
            let Some(moving) = self.moving.get_mut(&key) else { continue };
            moving.parts.remove(&node);
            moving.complete.remove(&node);
            moving.doubted.remove(&node);
            self.settle(key, answers);
        }
    }

    /// Nobody can ask for it any more: who is getting it need not go on.
    pub(super) fn freed(&mut self, of: Location, answers: &mut Vec<Answer>) {
        let Some(moving) = self.moving.remove(&key(of)) else { return };
        for (node, part) in moving.parts {
            answers.push(Answer { node, number: part.number, from: Err("it was freed".to_owned()) });
        }
    }

    /// The owner knows it at another place from now on.
    pub(super) fn moved(&mut self, of: Location, at: Location, answers: &mut Vec<Answer>) {
        let Some(mut moving) = self.moving.remove(&key(of)) else { return };
        moving.first = at.node;
        moving.complete.insert(at.node, at);
        moving.parts.remove(&at.node);
        let there = self.moving.entry(key(at)).or_default();
        moving.began += there.began;
        moving.complete.append(&mut there.complete);
        moving.parts.append(&mut there.parts);
        *there = moving;
        self.settle(key(at), answers);
    }

    /// How many objects are on the move.
    pub(super) fn len(&self) -> usize {
        self.moving.len()
    }

    /// Answers those who wait, as far as that can be, and forgets what nobody wants.
    fn settle(&mut self, key: Key, answers: &mut Vec<Answer>) {
        let Some(moving) = self.moving.get_mut(&key) else { return };
        moving.answer_waiting(answers);
        if moving.parts.is_empty() {
            self.moving.remove(&key);
        }
    }
}

impl Moving {
    fn want(&mut self, want: Want, answers: &mut Vec<Answer>) {
        let Want { node, number, name, lost } = want;
        if let Some(at) = self.complete.get(&node).copied() {
            // A copy there has become the first one since the asker heard of the other.
            self.parts.remove(&node);
            answers.push(Answer { node, number, from: Ok(CopySource { node, at, is_complete: true }) });
            return;
        }
        self.began += 1;
        let since = self.began;
        let (refused, has_lost) = (BTreeSet::new(), false);
        let part = self.parts.entry(node).or_insert(Part { number, name, from: None, since, refused, has_lost });
        if part.number != number {
            // It had given up before, and begins anew.
            (part.since, part.has_lost) = (since, false);
            part.refused.clear();
        }
        (part.number, part.name, part.from) = (number, name, None);
        part.has_lost |= lost.is_some();
        self.doubted.remove(&node);
        match lost {
            Some(LostSender { node, is_useless: true }) => {
                part.refused.insert(node);
            }
            Some(LostSender { node, is_useless: false }) => {
                self.doubted.insert(node);
            }
            None => {}
        }
    }

    fn answer_waiting(&mut self, answers: &mut Vec<Answer>) {
        loop {
            let waiting = self.parts.iter().filter(|(_, part)| part.from.is_none());
            let mut waiting: Vec<(u64, NodeId)> = waiting.map(|(node, part)| (part.since, *node)).collect();
            waiting.sort_unstable();
            let before = answers.len();
            for (_, node) in waiting {
                self.answer(node, answers);
            }
            if answers.len() == before {
                return;
            }
        }
    }

    /// Gives a node that waits a sender, or a reason, or neither.
    fn answer(&mut self, node: NodeId, answers: &mut Vec<Answer>) {
        let receivers = self.receivers();
        let Some(part) = self.parts.get(&node) else { return };
        let number = part.number;
        let fit = self.fit_for(node);
        if fit.is_empty() {
            self.parts.remove(&node);
            let from = Err(format!("nobody has all of it any more; it lay on {}", self.first));
            answers.push(Answer { node, number, from });
            return;
        }
        let busy = |sender: &NodeId| receivers.get(sender).copied().unwrap_or_default();
        let rank = |sender: NodeId| {
            let (is_part, since) = self.parts.get(&sender).map_or((false, 0), |part| (true, part.since));
            let is_free = busy(&sender) < RECEIVERS_PER_SENDER;
            let may = is_free || (part.has_lost && !is_part && busy(&sender) < RECEIVERS_AFTER_LOSS);
            may.then(|| ((self.doubted.contains(&sender), !is_free, is_part, busy(&sender), since), sender))
        };
        let Some((_, sender)) = fit.into_iter().filter_map(rank).min() else { return };
        let from = match (self.complete.get(&sender), self.parts.get(&sender)) {
            (Some(at), _) => CopySource { node: sender, at: *at, is_complete: true },
            (None, Some(part)) => CopySource { node: sender, at: part.name, is_complete: false },
            (None, None) => return,
        };
        if let Some(part) = self.parts.get_mut(&node) {
            part.from = Some(sender);
        }
        answers.push(Answer { node, number, from: Ok(from) });
    }

    /// How many a node sends to. Who is in doubt is not waited for.
    fn receivers(&self) -> BTreeMap<NodeId, usize> {
        let mut receivers = BTreeMap::new();
        for (node, part) in &self.parts {
            if let Some(from) = part.from.filter(|_| !self.doubted.contains(node)) {
                *receivers.entry(from).or_default() += 1;
            }
        }
        receivers
    }

    /// Who could send to a node, now or later: all who have it, and those who are getting it, but not through that node.
    fn fit_for(&self, node: NodeId) -> Vec<NodeId> {
        let Some(part) = self.parts.get(&node) else { return Vec::new() };
        let mut through: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        // Complete ones, and those whose sender is gone: they have all, or will say that they have not.
        let mut fit: Vec<NodeId> = self.complete.keys().copied().collect();
        for (receiver, part) in &self.parts {
            match part.from {
                Some(from) if self.complete.contains_key(&from) || self.parts.contains_key(&from) => {
                    through.entry(from).or_default().push(*receiver);
                }
                Some(_) if *receiver != node => fit.push(*receiver),
                Some(_) | None => {}
            }
        }
        let mut looked = 0;
        while let Some(sender) = fit.get(looked).copied() {
            looked += 1;
            fit.extend(through.get(&sender).into_iter().flatten().copied());
        }
        fit.retain(|sender| !part.refused.contains(sender) && *sender != node);
        fit
    }
}
