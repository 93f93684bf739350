//! Who is known to be dead: processes by slot and incarnation, and whole nodes.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{NodeId, ProcessId};

/// The dead that a machine has heard of. A slot's incarnations die in order and a node's number is never used again, so one
/// number per slot and one per node are enough.
#[derive(Clone, Debug, Default)]
pub struct Departed {
    processes: BTreeMap<(NodeId, u32), u32>,
    nodes: BTreeSet<NodeId>,
}

impl Departed {
    /// This process is dead, and so are those that had its slot before.
    pub fn insert(&mut self, dead: ProcessId) {
        if !self.nodes.contains(&dead.node) {
            let known = self.processes.entry((dead.node, dead.slot)).or_insert(0);
            *known = (*known).max(dead.incarnation);
        }
    }

    /// This node is dead with all its processes. Says whether that is news.
    pub fn insert_node(&mut self, dead: NodeId) -> bool {
        self.processes.retain(|(node, _), _| *node != dead);
        self.nodes.insert(dead)
    }

    /// Whether this process is dead.
    pub fn contains(&self, process: ProcessId) -> bool {
        self.has_node(process.node)
            || self.processes.get(&(process.node, process.slot)).is_some_and(|dead| *dead >= process.incarnation)
    }

    /// Whether this node is dead.
    pub fn has_node(&self, node: NodeId) -> bool {
        !self.nodes.is_empty() && self.nodes.contains(&node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_of_one_node_says_nothing_about_the_same_slot_of_another() {
        let process = |node, incarnation| ProcessId { node: NodeId(node), slot: 2, incarnation };
        let mut departed = Departed::default();
        departed.insert(process(1, 3));
        assert!(departed.contains(process(1, 2)) && departed.contains(process(1, 3)));
        assert!(!departed.contains(process(1, 4)) && !departed.contains(process(2, 1)));
        assert!(departed.insert_node(NodeId(2)) && !departed.insert_node(NodeId(2)));
        assert!(departed.contains(process(2, 9)) && departed.has_node(NodeId(2)) && !departed.has_node(NodeId(1)));
    }
}
