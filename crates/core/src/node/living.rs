//! Who is alive, as far as this node knows: its own processes one by one, other nodes as a whole with those of their
//! processes that are known to be dead.

use std::collections::BTreeSet;

use crate::departed::Departed;
use crate::id::{NodeId, ProcessId};

/// The living.
pub(super) struct Living {
    node: NodeId,
    /// Processes of this node that have said hello and not died; drivers from the start.
    local: BTreeSet<ProcessId>,
    /// The other nodes.
    nodes: BTreeSet<NodeId>,
    departed: Departed,
}

impl Living {
    pub(super) fn new(node: NodeId, embedded: bool) -> Self {
        let local = embedded.then_some(ProcessId::first_driver(node)).into_iter().collect();
        Self { node, local, nodes: BTreeSet::new(), departed: Departed::default() }
    }

    pub(super) fn insert(&mut self, process: ProcessId) {
        self.local.insert(process);
    }

    /// A process of this node is dead. Says whether it had said hello.
    pub(super) fn remove(&mut self, process: &ProcessId) -> bool {
        self.local.remove(process)
    }

    /// Whether a process of any node, or a node under its own name, is alive.
    pub(super) fn contains(&self, process: &ProcessId) -> bool {
        if process.node == self.node {
            return self.local.contains(process);
        }
        self.nodes.contains(&process.node) && !self.departed.contains(*process)
    }

    /// The processes of this node.
    pub(super) fn local(&self) -> &BTreeSet<ProcessId> {
        &self.local
    }

    /// The other nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().copied()
    }

    pub(super) fn has_node(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    /// Everybody who settles a death: each process here, and each other node for all of its own.
    pub(super) fn everybody(&self) -> BTreeSet<ProcessId> {
        self.local.iter().copied().chain(self.nodes().map(ProcessId::of_node)).collect()
    }

    /// A node joined. One that is dead does not come back under its number.
    pub(super) fn node_joined(&mut self, node: NodeId) -> bool {
        node != self.node && !self.departed.has_node(node) && self.nodes.insert(node)
    }

    /// A node is gone. Says whether it was there.
    pub(super) fn node_died(&mut self, node: NodeId) -> bool {
        self.departed.insert_node(node);
        self.nodes.remove(&node)
    }

    /// A process of another node is dead. Says whether that is news.
    pub(super) fn departed(&mut self, process: ProcessId) -> bool {
        let news = !self.departed.contains(process);
        self.departed.insert(process);
        news
    }
}
