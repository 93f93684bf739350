//! The node's shell: passes over all rings, births and deaths of workers.

use std::collections::VecDeque;

use bireme_core::failure::{Death, DeathCause};
use bireme_core::id::{NodeId, ProcessId};
use bireme_core::message::{FromNode, NodeBound, ToNode};
use bireme_core::node::{self, Effect};
use bireme_core::throttle::Verdict;

use super::links::Link;
use super::{Cluster, Happening};
use crate::planted::Planted;

/// Frames in the ring from a process to its node, beyond which it waits for the node when that does not read on.
const RING_FRAMES: usize = 8;
/// A worker takes about so long to start.
const BIRTH_US: u64 = 500;
/// The node's deadline is looked at no more often than this.
const NODE_TICK_US_MIN: u64 = 500;
/// The node looks at least so often, as its shell does.
const NODE_SLEEP_US_MAX: u64 = 500_000;

impl Cluster {
    pub(super) fn step_node(&mut self, node: NodeId, event: node::Event) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let mut effects = Vec::new();
        host.node.step(event, self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Spawn(process) => self.spawn(process),
                Effect::Kill(process) => {
                    let after = self.random.within(1, 200);
                    self.after(after, Happening::Killed(process));
                }
                Effect::Send { to, message } => self.node_says(to, &message),
                Effect::OpenLink { a, b } => self.open_link(a, b),
                Effect::EndJob(_) | Effect::CloseJob(_) => {}
                Effect::CloseProcess(process) => self.close_process(process),
                Effect::FreeStored(at) => self.free_stored(node, at),
                Effect::Store { process, request } => self.store_request(node, process, request),
                Effect::Tell { node: to, message } => self.tell(node, to, &message),
                Effect::AskController(request) => self.tell_controller(node, &request),
                Effect::Promote(at) => self.promote(node, at),
                Effect::Bring { object, at } => self.want_copy(node, None, object, at),
                Effect::FetchFrom { number, from } => self.fetch_from(node, number, from),
                Effect::RunStage(spec) => self.run_stage(node, spec),
                // Inputs are whole here before a stage begins.
                Effect::GrowStage(_) => {}
                Effect::EndStage { id, reason } => self.end_stage(node, id, &reason),
                // Machines here have memory enough.
                Effect::SpillSome { .. } => {}
            }
        }
    }

    fn spawn(&mut self, process: ProcessId) {
        if self.hosts.get(&process.node).is_some_and(|host| host.leaving) {
            return;
        }
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
        self.step_node(process.node, node::Event::WorkerSpawned { process, pid: process.slot });
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
            self.network.drop_ring(process, ProcessId::of_node(process.node));
        }
        self.drain_ring(process, true);
        let death = Death {
            process,
            pid: process.slot,
            cause,
            stderr_tail: String::new(),
            memory_peak_bytes: 0,
            culprit: None,
        };
        self.note(|| format!("node hears that {process} is dead"));
        let event = match process.is_driver() {
            true => node::Event::DriverGone(death),
            false => node::Event::WorkerExited(death),
        };
        self.step_node(process.node, event);
        self.arm_node(process.node);
    }

    fn close_process(&mut self, process: ProcessId) {
        self.open_links.retain(|(a, b)| *a != process && *b != process);
        self.network.drop_reader(process);
        self.network.drop_ring(process, ProcessId::of_node(process.node));
    }

    pub(super) fn node_says(&mut self, to: ProcessId, message: &FromNode) {
        if !self.processes.contains_key(&to) {
            return;
        }
        self.note(|| format!("node -> {to}: {message:?}"));
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.write(ProcessId::of_node(to.node), to, frame);
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
    pub(super) fn wake_node(&mut self, node: NodeId) {
        if self.hosts.get(&node).is_some_and(|host| host.pass.is_none()) {
            let rings = self.rings(node);
            if let Some(host) = self.hosts.get_mut(&node) {
                host.pass = Some(rings);
            }
            let after = self.node_pause(node);
            self.after(after, Happening::NodeLooked(node));
        }
    }

    fn rings(&mut self, node: NodeId) -> VecDeque<ProcessId> {
        // The node does not know yet that somebody is dead, and reads that ring like the others.
        let mine = ProcessId::of_node(node)..ProcessId::of_node(NodeId(node.0 + 1));
        let living = self.processes.range(mine.clone()).map(|(process, _)| process);
        let mut all: Vec<ProcessId> = living.chain(self.unreported.range(mine)).copied().collect();
        if let Some(host) = self.hosts.get_mut(&node) {
            let links = &host.links;
            all = host.throttle.turns(all, |peer| links.get(&peer).map_or(0, Link::queued_bytes));
        }
        all.into()
    }

    /// Processes that waited for another node may go on: it has taken messages, or is gone.
    pub(super) fn resume_held(&mut self, node: NodeId) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let links = &host.links;
        if host.throttle.has_turn(|peer| links.get(&peer).map_or(0, Link::queued_bytes)) {
            self.wake_node(node);
        }
    }

    /// Whether a process cannot write to its node: its ring is full, and is not read for now.
    pub(super) fn is_blocked(&self, process: ProcessId) -> bool {
        let held = self.hosts.get(&process.node).is_some_and(|host| host.throttle.is_held(process));
        held && self.network.waiting(ProcessId::of_node(process.node), process) > RING_FRAMES
    }

    fn node_pause(&mut self, node: NodeId) -> u64 {
        let most = if self.faulty { self.faults.node_delay_us } else { 10 };
        let slowness = self.hosts.get(&node).map_or(1, |host| host.slowness);
        self.random.within(1, most.max(1)) * slowness
    }

    /// The node reads one ring to its end; after the last one the pass is over.
    pub(super) fn node_look(&mut self, node: NodeId) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let next = host.pass.as_mut().and_then(VecDeque::pop_front);
        if let Some(process) = next {
            self.drain_ring(process, false);
            let after = self.node_pause(node);
            self.after(after, Happening::NodeLooked(node));
            return;
        }
        host.pass = None;
        let passed = match host.throttle.is_holding() && self.planted != Some(Planted::HeldRingForgotten) {
            true => node::Event::PassedInPart,
            false => node::Event::Passed,
        };
        self.step_node(node, passed);
        self.watch_resources(node);
        self.leave_if_drained(node);
        let Some(host) = self.hosts.get(&node) else { return };
        let read = |process| !host.throttle.is_held(process);
        let wants = host.node.wants_pass() && !host.throttle.is_holding();
        if wants || self.network.has_news_of(ProcessId::of_node(node), read) {
            self.wake_node(node);
        }
        self.resume_held(node);
        self.arm_node(node);
    }

    pub(super) fn node_tick(&mut self, node: NodeId) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        host.tick = None;
        self.step_node(node, node::Event::Ticked);
        // A node that wakes reads its rings, whatever woke it.
        self.wake_node(node);
    }

    /// Reads a ring to its end, or to the first message for a node that is stalled; all of it when its writer is gone.
    fn drain_ring(&mut self, process: ProcessId, is_last: bool) {
        let node = ProcessId::of_node(process.node);
        let may_hold = !is_last && self.planted != Some(Planted::StalledDropped);
        while let Some(frame) = self.network.peek(node, process) {
            let item = NodeBound::decode(frame);
            if let (Ok(NodeBound::Relay { to, .. }), true) = (&item, may_hold)
                && let Some(host) = self.hosts.get_mut(&process.node)
                && host.throttle.relay(process, to.node, host.links.get(&to.node).map_or(0, Link::queued_bytes))
                    == Verdict::Hold
            {
                let to = to.node;
                self.note(|| format!("{process} waits for {to}"));
                return;
            }
            self.network.read(node, process);
            match item {
                Ok(NodeBound::Record(record)) => {
                    self.step_node(process.node, node::Event::Recorded { process, record })
                }
                Ok(NodeBound::Request(request)) => {
                    self.step_node(process.node, node::Event::Requested { process, request })
                }
                Ok(NodeBound::Relay { to, bytes, .. }) => {
                    self.step_node(process.node, node::Event::Relay { process, to, bytes });
                }
                Err(malformed) => panic!("{process} wrote what cannot be read: {malformed}"),
            }
        }
        if let Some(host) = self.hosts.get_mut(&process.node).filter(|_| is_last) {
            host.throttle.release(process);
        }
    }

    pub(super) fn arm_node(&mut self, node: NodeId) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let sleep_end = self.now.plus_us(NODE_SLEEP_US_MAX);
        let deadline = host.node.deadline().map_or(sleep_end, |due| due.min(sleep_end));
        let at = deadline.max(self.now.plus_us(NODE_TICK_US_MIN));
        if host.tick.is_none_or(|armed| armed > at) {
            host.tick = Some(at);
            let after = at.since_us(self.now);
            self.after(after, Happening::NodeTicked(node));
        }
    }

    /// RES-1 as the node itself tells it.
    fn watch_resources(&mut self, node: NodeId) {
        if self.random.one_in(16)
            && let Some(host) = self.hosts.get(&node)
        {
            let snapshot = host.node.snapshot(self.now);
            self.watch.resources(&snapshot, host.node.debt_in_bundles());
        }
    }
}
