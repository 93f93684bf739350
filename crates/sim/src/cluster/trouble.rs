//! What goes wrong, and when.

use bireme_core::controller::ToController;
use bireme_core::failure::DeathCause;
use bireme_core::id::{NodeId, ProcessId};
use bireme_core::message::ToNode;

use super::{Cluster, Happening, is_driver};
use crate::faults::NODES_MAX;

impl Cluster {
    pub(super) fn schedule_faults(&mut self) {
        if let Some(every) = self.faults.kill_every_us {
            let after = self.random.within(1, 2 * every);
            self.after(after, Happening::Struck);
        }
        if let Some(every) = self.faults.corrupt_every_us {
            let after = self.random.within(1, 2 * every);
            self.after(after, Happening::Slandered);
        }
        let nodes = self.faults.nodes.clone();
        for (every, happening) in [
            (nodes.crash_every_us, Happening::NodeCrashed),
            (nodes.join_every_us, Happening::NodeJoined),
            (nodes.leave_every_us, Happening::NodeLeft),
            (nodes.drain.map(|(every, _)| every), Happening::NodeDrained),
            (nodes.cut.map(|(every, _)| every), Happening::Cut),
            (nodes.break_every_us, Happening::Broken),
            (nodes.group_every_us, Happening::GroupWanted),
        ] {
            let Some(every) = every.filter(|_| nodes.count > 1) else { continue };
            let mut at = self.random.within(1, 2 * every);
            while at < self.faults.end_us {
                self.after(at, happening.clone());
                at += self.random.within(1, 2 * every);
            }
        }
    }

    /// A node joins, when there is room.
    pub(super) fn strike_join(&mut self) {
        if self.member_count() < NODES_MAX {
            self.join();
        }
    }

    /// A node other than the head, which is never lost.
    pub(super) fn some_node(&mut self) -> Option<NodeId> {
        let nodes: Vec<NodeId> = self.hosts.keys().copied().filter(|node| *node != NodeId::HEAD).collect();
        nodes.get(self.random.below(nodes.len() as u64) as usize).copied()
    }

    /// A node crashes with all its processes, and may come back as a new one.
    pub(super) fn strike_node(&mut self) {
        let Some(node) = self.some_node() else { return };
        self.crash(node);
        if self.random.one_in(2) {
            self.join_later();
        }
    }

    /// A machine is gone at once.
    pub(super) fn crash(&mut self, node: NodeId) {
        if !self.hosts.contains_key(&node) {
            return;
        }
        self.note(|| format!("{node} crashes"));
        self.remove_host(node);
        let after = self.random.within(1, 3_000);
        self.after(after, Happening::Refused(node));
    }

    /// A node leaves: it says so, and ends.
    pub(super) fn strike_leave(&mut self) {
        let Some(node) = self.some_node() else { return };
        self.note(|| format!("{node} leaves"));
        self.end_processes(node);
        if let Some(host) = self.hosts.get_mut(&node) {
            host.leaving = true;
        }
        self.tell_controller(node, &ToController::Leave);
        let after = self.random.within(1, 2_000);
        self.after(after, Happening::NodeEnded(node));
    }

    /// Two nodes cannot hear each other, or one cannot hear the other.
    pub(super) fn strike_cut(&mut self) {
        let Some((_, length)) = self.faults.nodes.cut else { return };
        let Some((a, b)) = self.some_pair() else { return };
        let after = self.random.within(1, length);
        self.cut(a, b);
        self.after(after, Happening::Healed(a, b));
        if self.random.one_in(2) {
            self.cut(b, a);
            self.after(after, Happening::Healed(b, a));
        }
    }

    pub(super) fn strike_connection(&mut self) {
        if let Some((a, b)) = self.some_pair() {
            self.break_connection(a, b);
        }
    }

    fn some_pair(&mut self) -> Option<(NodeId, NodeId)> {
        let nodes: Vec<NodeId> = self.hosts.keys().copied().collect();
        let a = nodes.get(self.random.below(nodes.len() as u64) as usize).copied()?;
        let b = nodes.get(self.random.below(nodes.len() as u64) as usize).copied()?;
        (a != b).then_some((a, b))
    }

    /// A worker is killed between two events.
    pub(super) fn strike(&mut self) {
        let Some(every) = self.faults.kill_every_us.filter(|_| self.faulty) else { return };
        let victims: Vec<ProcessId> = self.processes.keys().copied().filter(|p| self.may_die(*p)).collect();
        if !victims.is_empty() {
            let victim = victims[self.random.below(victims.len() as u64) as usize];
            self.strike_down(victim);
        }
        let after = self.random.within(1, 2 * every);
        self.after(after, Happening::Struck);
    }

    /// Somebody reports a worker as corrupt.
    pub(super) fn slander(&mut self) {
        let Some(every) = self.faults.corrupt_every_us.filter(|_| self.faulty) else { return };
        let victims: Vec<ProcessId> = self.processes.keys().copied().filter(|p| self.may_die(*p)).collect();
        if !victims.is_empty() {
            let peer = victims[self.random.below(victims.len() as u64) as usize];
            let request = ToNode::PeerCorrupt { peer, reason: "nonsense".into() };
            let driver = self.processes.keys().copied().find(|p| is_driver(*p) && p.node == peer.node);
            let Some(driver) = driver else { return };
            self.tell_node(driver, &request);
        }
        let after = self.random.within(1, 2 * every);
        self.after(after, Happening::Slandered);
    }

    fn may_die(&self, process: ProcessId) -> bool {
        let Some(entry) = self.processes.get(&process) else { return false };
        let actor = entry.worker.hosted().is_some();
        !is_driver(process) && (actor || !self.faults.actors_only)
    }

    pub(super) fn rearm_kill(&mut self) {
        self.effects_until_kill = match self.faults.kill_every_effects {
            Some(every) => self.random.within(1, 2 * every),
            None => u64::MAX,
        };
    }

    /// Whether the process dies just before its next effect.
    pub(super) fn dies_now(&mut self, process: ProcessId) -> bool {
        if !self.processes.contains_key(&process) {
            return true;
        }
        if !self.faulty || self.faults.kill_every_effects.is_none() || !self.may_die(process) {
            return false;
        }
        self.effects_until_kill -= 1;
        if self.effects_until_kill > 0 {
            return false;
        }
        self.rearm_kill();
        self.strike_down(process);
        true
    }

    /// Kills a process by a fault, which the task that runs there pays for with one of its retries. When a node ends a process,
    /// another task may be the culprit, and the task is run again for nothing.
    fn strike_down(&mut self, process: ProcessId) {
        self.watch.killed(process);
        self.kill(process, DeathCause::Signalled(9));
    }
}
