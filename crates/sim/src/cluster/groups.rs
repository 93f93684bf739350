//! Placement groups: drivers ask for them and give them back, beside what programs do in groups of their own.

use bireme_core::controller::FromController;
use bireme_core::id::{GroupId, NodeId, ProcessId, TaskId};
use bireme_core::message::ToNode;
use bireme_core::node;
use bireme_core::resources::{Amount, Resources};
use bireme_core::spec::GroupStrategy;

use super::{Cluster, Happening};
use crate::planted::Planted;

/// A group is gone after so long at the latest.
const GROUP_END_US: u64 = 20_000_000;

impl Cluster {
    /// The driver of some node asks for a group.
    pub(super) fn strike_group(&mut self) {
        let drivers: Vec<ProcessId> = self.processes.keys().copied().filter(|process| process.is_driver()).collect();
        if drivers.is_empty() {
            return;
        }
        let driver = drivers[self.random.below(drivers.len() as u64) as usize];
        self.groups_made += 1;
        let group = GroupId(TaskId::root(7, driver).child(0, self.groups_made, 0));
        let strategy = GroupStrategy::ALL[self.random.below(4) as usize];
        let bundles = (0..self.random.within(1, 4)).map(|_| Resources::cpus(Amount::whole(self.random.within(1, 2))));
        let (bundles, detached) = (bundles.collect(), self.random.one_in(2));
        self.tell_node(driver, &ToNode::CreateGroup { group, name: None, strategy, bundles, detached });
        let after = self.random.within(1_000, 100_000);
        self.after(after, Happening::GroupRemoved(group));
        // Whatever became of it: a wish that was lost with its node leaves nothing, a late one is given back then.
        self.after(GROUP_END_US, Happening::GroupRemoved(group));
    }

    /// The group is given back by the head's driver, whoever asked for it.
    pub(super) fn remove_group(&mut self, group: GroupId) {
        self.tell_node(ProcessId::first_driver(NodeId::HEAD), &ToNode::RemoveGroup { group });
    }

    /// A node hears what the controller says of groups.
    pub(super) fn hear_of_groups(&mut self, node: NodeId, message: FromController) {
        let early = match &message {
            FromController::Prepare { group, attempt, .. } if self.planted == Some(Planted::CommittedAtOnce) => {
                Some(FromController::Commit { group: *group, attempt: *attempt })
            }
            _ => None,
        };
        for message in [Some(message), early].into_iter().flatten() {
            self.step_node(node, node::Event::Controller(message));
        }
        self.watch_groups();
    }

    /// GROUP-1, over all nodes at once.
    fn watch_groups(&mut self) {
        let all = self.hosts.iter().flat_map(|(node, host)| {
            let bundles = host.node.reserved_bundles();
            bundles.map(|(group, bundle, _, usable)| (group, bundle, *node, usable)).collect::<Vec<_>>()
        });
        let all: Vec<(GroupId, u32, NodeId, bool)> = all.collect();
        let alive = |node: NodeId| self.members.controller.members().get(node).is_some();
        let usable = all.iter().filter(|(_, _, node, usable)| *usable && alive(*node));
        let usable: Vec<(GroupId, u32, NodeId)> =
            usable.map(|(group, bundle, node, _)| (*group, *bundle, *node)).collect();
        let reserved = |group: GroupId, bundle: u32| {
            // A machine that crashed has its bundles until the controller knows.
            let known = self.members.controller.groups().get(group);
            let at = known.and_then(|known| known.nodes.get(bundle as usize).copied().flatten());
            let crashed = at.is_some_and(|node| !self.hosts.contains_key(&node));
            crashed || all.iter().any(|(of, index, ..)| (*of, *index) == (group, bundle))
        };
        let result = crate::invariants::groups::check(&self.members.controller, &usable, reserved, !self.node_lost);
        self.watch.groups(result);
    }
}
