//! The node's shell: passes over all rings, births and deaths of workers.

use std::collections::VecDeque;

use bireme_core::failure::{Death, DeathCause};
use bireme_core::id::ProcessId;
use bireme_core::message::{FromNode, NodeBound, ToNode};
use bireme_core::node::{self, Effect};

use super::{Cluster, Happening};
use crate::planted::Planted;

/// A worker takes about so long to start.
const BIRTH_US: u64 = 500;
/// The node's deadline is looked at no more often than this.
const NODE_TICK_US_MIN: u64 = 500;
/// The node looks at least so often, as its shell does.
const NODE_SLEEP_US_MAX: u64 = 500_000;

impl Cluster {
    pub(super) fn step_node(&mut self, event: node::Event) {
        let mut effects = Vec::new();
        self.node.step(event, self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Spawn(process) => self.spawn(process),
                Effect::Kill(process) => {
                    let after = self.random.within(1, 200);
                    self.after(after, Happening::Killed(process));
                }
                Effect::Send { to, message } => self.node_says(to, &message),
                Effect::OpenLink { a, b } => self.open_link(a, b),
                Effect::CloseProcess(process) => self.close_process(process),
                Effect::FreeStored(at) => self.watch.freed_stored(at),
                Effect::Store { request: ToNode::FreeObject { at }, .. } => self.watch.freed_stored(at),
                Effect::Store { .. } => {}
            }
        }
    }

    fn spawn(&mut self, process: ProcessId) {
        self.note(|| format!("node starts {process}"));
        self.unborn.insert(process);
        let after = self.random.within(1, 2 * BIRTH_US);
        let fails = self.faulty && self.faults.spawn_failure_one_in.is_some_and(|n| self.random.one_in(n));
        if fails {
            let cause = DeathCause::NotStarted("no memory".into());
            self.after(after, Happening::Exited(process, cause));
        } else {
            self.after(after, Happening::Born(process));
        }
    }

    pub(super) fn born(&mut self, process: ProcessId) {
        if !self.unborn.remove(&process) {
            return;
        }
        self.note(|| format!("{process} is there"));
        self.make_process(process);
        self.step_node(node::Event::WorkerSpawned { process, pid: process.slot });
        self.tell_node(process, &ToNode::Hello);
    }

    /// A process is gone; what it wrote stays.
    pub(super) fn kill(&mut self, process: ProcessId, cause: DeathCause) {
        let gone = self.processes.remove(&process);
        self.torn_loan |= gone.as_ref().is_some_and(|entry| entry.lending);
        if gone.is_none() && !self.unborn.remove(&process) {
            return;
        }
        self.note(|| format!("{process} dies: {cause}"));
        self.network.drop_reader(process);
        self.watch.died(process);
        self.unreported.insert(process);
        let after = self.random.within(1, 300);
        self.after(after, Happening::Exited(process, cause));
    }

    /// The keeper reports an exit: the node reads the rest of the ring first.
    pub(super) fn exited(&mut self, process: ProcessId, cause: DeathCause) {
        self.unborn.remove(&process);
        self.unreported.remove(&process);
        if self.planted == Some(Planted::DeathNotDrained) {
            self.network.drop_ring(process, ProcessId::NODE);
        }
        self.drain_ring(process);
        let death = Death {
            process,
            pid: process.slot,
            cause,
            stderr_tail: String::new(),
            memory_peak_bytes: 0,
            culprit: None,
        };
        self.note(|| format!("node hears that {process} is dead"));
        self.step_node(node::Event::WorkerExited(death));
        self.arm_node();
    }

    fn close_process(&mut self, process: ProcessId) {
        self.open_links.retain(|(a, b)| *a != process && *b != process);
        self.network.drop_reader(process);
        self.network.drop_ring(process, ProcessId::NODE);
    }

    fn node_says(&mut self, to: ProcessId, message: &FromNode) {
        if !self.processes.contains_key(&to) {
            return;
        }
        self.note(|| format!("node -> {to}: {message:?}"));
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.write(ProcessId::NODE, to, frame);
    }

    fn open_link(&mut self, a: ProcessId, b: ProcessId) {
        if !self.open_links.insert((a.min(b), a.max(b))) {
            return;
        }
        for (to, peer) in [(a, b), (b, a)] {
            let message =
                FromNode::LinkOpened { peer, connection: 0, peer_connection: 0, incoming: 0, outgoing: 0, capacity: 0 };
            self.node_says(to, &message);
        }
    }

    /// Something was written to the node.
    pub(super) fn wake_node(&mut self) {
        if self.pass.is_none() {
            self.pass = Some(self.rings());
            let after = self.node_pause();
            self.after(after, Happening::NodeLooked);
        }
    }

    fn rings(&self) -> VecDeque<ProcessId> {
        // The node does not know yet that somebody is dead, and reads that ring like the others.
        self.processes.keys().chain(&self.unreported).copied().collect()
    }

    fn node_pause(&mut self) -> u64 {
        let most = if self.faulty { self.faults.node_delay_us } else { 10 };
        self.random.within(1, most.max(1))
    }

    /// The node reads one ring to its end; after the last one the pass is over.
    pub(super) fn node_look(&mut self) {
        let next = self.pass.as_mut().and_then(VecDeque::pop_front);
        if let Some(process) = next {
            self.drain_ring(process);
            let after = self.node_pause();
            self.after(after, Happening::NodeLooked);
            return;
        }
        self.pass = None;
        self.step_node(node::Event::Passed);
        self.watch_resources();
        if self.node.wants_pass() || self.network.has_news(ProcessId::NODE) {
            self.wake_node();
        }
        self.arm_node();
    }

    fn drain_ring(&mut self, process: ProcessId) {
        while let Some(frame) = self.network.read(ProcessId::NODE, process) {
            match NodeBound::decode(&frame) {
                Ok(NodeBound::Record(record)) => self.step_node(node::Event::Recorded { process, record }),
                Ok(NodeBound::Request(request)) => self.step_node(node::Event::Requested { process, request }),
                Err(malformed) => panic!("{process} wrote what cannot be read: {malformed}"),
            }
        }
    }

    pub(super) fn arm_node(&mut self) {
        let sleep_end = self.now.plus_us(NODE_SLEEP_US_MAX);
        let deadline = self.node.deadline().map_or(sleep_end, |due| due.min(sleep_end));
        let at = deadline.max(self.now.plus_us(NODE_TICK_US_MIN));
        if self.node_tick.is_none_or(|armed| armed > at) {
            self.node_tick = Some(at);
            let after = at.since_us(self.now);
            self.after(after, Happening::NodeTicked);
        }
    }

    /// RES-1 as the node itself tells it.
    fn watch_resources(&mut self) {
        if self.random.one_in(16) {
            let snapshot = self.node.snapshot(self.now);
            self.watch.resources(&snapshot);
        }
    }
}
