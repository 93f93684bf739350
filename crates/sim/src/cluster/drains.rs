//! Drains: a node is asked to leave, moves away what it has, ends its processes, and goes.

use bireme_core::controller::ToController;
use bireme_core::id::NodeId;

use super::{Cluster, Happening};
use crate::planted::Planted;

impl Cluster {
    /// Somebody wants a node to be drained.
    pub(super) fn strike_drain(&mut self) {
        let Some((_, grace_us)) = self.faults.nodes.drain else { return };
        let Some(node) = self.some_node() else { return };
        self.note(|| format!("{node} is to be drained"));
        self.tell_controller(NodeId::HEAD, &ToController::Drain { request: 0, node, grace_us });
    }

    /// Nothing is left on a node that is being drained, and all that it said has arrived: it leaves.
    pub(super) fn leave_if_drained(&mut self, node: NodeId) {
        let Some(host) = self.hosts.get(&node) else { return };
        let heard = host.links.values().all(|link| link.is_quiet());
        let drained = match self.planted {
            Some(Planted::LeftUndrained) => host.node.is_draining(),
            _ => heard && host.node.is_drained(),
        };
        if drained && !host.leaving {
            self.note(|| format!("{node} is drained"));
            self.end_drained(node);
        }
    }

    /// Its time is over, or the controller has heard that it is drained.
    pub(super) fn told_to_leave(&mut self, node: NodeId) {
        let Some(host) = self.hosts.get(&node) else { return };
        if host.leaving {
            let after = self.random.within(1, 2_000);
            self.after(after, Happening::NodeEnded(node));
        } else {
            self.note(|| format!("{node} has no time left to be drained"));
            self.end_drained(node);
        }
    }

    /// What runs there ends before the others hear that it is gone.
    fn end_drained(&mut self, node: NodeId) {
        self.end_processes(node);
        if let Some(host) = self.hosts.get_mut(&node) {
            host.leaving = true;
        }
        self.tell_controller(node, &ToController::Drained);
    }
}
