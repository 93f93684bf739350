//! Back-pressure between nodes: whose rings are read while messages wait for a node that takes them too slowly.
//!
//! A node relays what its processes say to processes of other nodes, and keeps every message until the other node has
//! acknowledged it (`core::session`). It never drops one, so it has to stop taking them in: a process whose next message is for
//! a node with too much queued is not read further, its ring fills up, and its next send waits. The shell asks before each
//! relay ([`Throttle::relay`]), and at the beginning of each pass for the rings to read ([`Throttle::turns`]).
//!
//! A destination is stalled when the limit is reached, and open again when half of that is left, so that processes are
//! not paused and resumed for each message. Processes that wait for it go on in the order in which they were paused; one that
//! had its turn waits behind the others. What a node says itself is never held: it is small, and others may need it
//! to go on (`docs/decisions/0018-back-pressure.md`).
//!
//! Invariants:
//! - PUSH-1: a process is held only while the destination of its next message is stalled, and each that waits has its turn
//!   before one that was paused after it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::{NodeId, ProcessId};

/// Bytes that are queued for one node, beyond which its senders wait, unless said otherwise.
pub const QUEUED_BYTES_MAX: usize = 32 << 20;

/// The decision about a message of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Relay it.
    Pass,
    /// Keep it and read nothing more of its process until that has a turn.
    Hold,
}

/// A node that is stalled or has processes that wait for it.
#[derive(Debug, Default)]
struct Destination {
    is_stalled: bool,
    waiting: VecDeque<ProcessId>,
}

/// The processes that are read, and those that wait for another node.
#[derive(Debug)]
pub struct Throttle {
    limit_bytes: usize,
    destinations: BTreeMap<NodeId, Destination>,
    /// Processes that wait, and for which node.
    held: BTreeMap<ProcessId, NodeId>,
}

impl Throttle {
    /// One that lets so many bytes be queued for each node.
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes: limit_bytes.max(1), destinations: BTreeMap::new(), held: BTreeMap::new() }
    }

    /// The next message of a process is for a process of `to`, for which so many bytes are queued.
    pub fn relay(&mut self, process: ProcessId, to: NodeId, queued_bytes: usize) -> Verdict {
        if queued_bytes < self.limit_bytes && !self.destinations.contains_key(&to) {
            return Verdict::Pass;
        }
        let limit_bytes = self.limit_bytes;
        let destination = self.destinations.entry(to).or_default();
        destination.look(queued_bytes, limit_bytes);
        if destination.is_stalled {
            if self.held.insert(process, to).is_none() {
                destination.waiting.push_back(process);
            }
            return Verdict::Hold;
        }
        self.release(process);
        Verdict::Pass
    }

    /// The processes to read in this pass, in this order. `queued_bytes` says how much is queued for a node: nothing for one
    /// that is gone.
    pub fn turns(
        &mut self,
        processes: impl IntoIterator<Item = ProcessId>,
        queued_bytes: impl Fn(NodeId) -> usize,
    ) -> Vec<ProcessId> {
        self.look(queued_bytes);
        if self.held.is_empty() {
            return processes.into_iter().collect();
        }
        let open = self.destinations.values().filter(|destination| !destination.is_stalled);
        let mut turns: Vec<ProcessId> = open.flat_map(|destination| destination.waiting.iter().copied()).collect();
        turns.extend(processes.into_iter().filter(|process| !self.held.contains_key(process)));
        turns
    }

    /// Whether a process that waits can go on now.
    pub fn has_turn(&mut self, queued_bytes: impl Fn(NodeId) -> usize) -> bool {
        self.look(queued_bytes);
        self.destinations.values().any(|destination| !destination.is_stalled && !destination.waiting.is_empty())
    }

    /// The process waits for nothing any more: it is gone, or all that it has written was taken in because it is about to be.
    pub fn release(&mut self, process: ProcessId) {
        let Some(node) = self.held.remove(&process) else { return };
        if let Some(destination) = self.destinations.get_mut(&node) {
            destination.waiting.retain(|waiting| *waiting != process);
        }
    }

    /// Whether a process waits.
    pub fn is_held(&self, process: ProcessId) -> bool {
        self.held.contains_key(&process)
    }

    /// Whether somebody waits, so that not all that was written is read.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// The processes that wait, and for which node.
    pub fn held(&self) -> impl Iterator<Item = (ProcessId, NodeId)> + '_ {
        self.held.iter().map(|(process, node)| (*process, *node))
    }

    /// The nodes that are stalled.
    pub fn stalled(&self) -> BTreeSet<NodeId> {
        self.destinations.iter().filter(|(_, destination)| destination.is_stalled).map(|(node, _)| *node).collect()
    }

    fn look(&mut self, queued_bytes: impl Fn(NodeId) -> usize) {
        let limit_bytes = self.limit_bytes;
        self.destinations.retain(|node, destination| {
            destination.look(queued_bytes(*node), limit_bytes);
            destination.is_stalled || !destination.waiting.is_empty()
        });
    }
}

impl Destination {
    fn look(&mut self, queued_bytes: usize, limit_bytes: usize) {
        if queued_bytes >= limit_bytes {
            self.is_stalled = true;
        } else if queued_bytes <= limit_bytes / 2 {
            self.is_stalled = false;
        }
    }
}
