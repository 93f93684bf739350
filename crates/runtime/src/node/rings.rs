//! The messages of processes to their node: whose rings are read, and what becomes of their contents.
//!
//! A process whose next message is for a node that takes messages too slowly is not read further (`core::throttle`): its ring
//! fills up, and its next send waits. The message in front, which was taken out of the ring to look at it, is kept here until then.

use std::collections::BTreeMap;

use bireme_core::id::ProcessId;
use bireme_core::message::{NodeBound, ToNode};
use bireme_core::node::Event;
use bireme_core::throttle::{Throttle, Verdict};
use bireme_core::time::Tick;

use super::Shell;
use crate::clock;

/// The processes that wait for another node, and the first message of each.
pub(super) struct Rings {
    throttle: Throttle,
    held: BTreeMap<ProcessId, NodeBound>,
}

impl Rings {
    pub(super) fn new(link_queue_bytes: usize) -> Self {
        Self { throttle: Throttle::new(link_queue_bytes), held: BTreeMap::new() }
    }

    /// The rings of a process are gone.
    pub(super) fn closed(&mut self, process: ProcessId) {
        self.throttle.release(process);
        self.held.remove(&process);
    }
}

impl Shell {
    /// Reads every ring to its end, or to the first message for a node that is stalled.
    pub(super) fn read_rings(&mut self) {
        let processes = self.links.processes();
        let turns = match &self.abroad {
            None => processes,
            Some(abroad) => self.rings.throttle.turns(processes, |node| abroad.peers.queued_bytes(node)),
        };
        for process in turns {
            self.read_ring(process, false);
        }
    }

    /// Reads all that a process has written that will write no more. What it says to a node that is stalled is queued
    /// whatever the limit: it is no more than a ring, and the news of the death must come behind it.
    pub(super) fn read_last_words(&mut self, process: ProcessId) {
        self.read_ring(process, true);
        self.rings.throttle.release(process);
    }

    /// Whether a process waits for another node, so that not all that was written is read.
    pub(super) fn is_holding(&self) -> bool {
        self.rings.throttle.is_holding()
    }

    /// Whether a process that waited for another node can go on.
    pub(super) fn has_turn(&mut self) -> bool {
        let Some(abroad) = &self.abroad else { return false };
        self.rings.throttle.has_turn(|node| abroad.peers.queued_bytes(node))
    }

    fn read_ring(&mut self, process: ProcessId, is_last: bool) {
        // One look at the clock for all that waits in a ring.
        let now = clock::now();
        let mut next = Ok(self.rings.held.remove(&process));
        loop {
            if let Ok(None) = next {
                next = self.links.receive(process);
            }
            match next {
                Ok(Some(item)) if !is_last && self.must_wait(process, &item) => {
                    self.rings.held.insert(process, item);
                    self.links.offer_room(process);
                    return;
                }
                Ok(Some(item)) => self.take_in(process, item, now),
                Ok(None) => return,
                Err(reason) => {
                    // Never the node: the process is ended, and its death says why.
                    self.links.mute(process);
                    self.step(Event::ProcessCorrupt { process, reason });
                    return;
                }
            }
            next = Ok(None);
        }
    }

    fn must_wait(&mut self, process: ProcessId, item: &NodeBound) -> bool {
        let (NodeBound::Relay { to, .. }, Some(abroad)) = (item, &self.abroad) else { return false };
        self.rings.throttle.relay(process, to.node, abroad.peers.queued_bytes(to.node)) == Verdict::Hold
    }

    fn take_in(&mut self, process: ProcessId, item: NodeBound, now: Tick) {
        self.heard = true;
        match item {
            NodeBound::Record(record) => {
                self.objects.recorded(process, &record);
                self.step_at(Event::Recorded { process, record }, now);
            }
            // What is said about the tables is said of all rings, so it waits until they are read.
            NodeBound::Request(
                request @ (ToNode::Explain { .. }
                | ToNode::QueryState { .. }
                | ToNode::QueryResources { .. }
                | ToNode::QueryNodes { .. }
                | ToNode::QueryGroups { .. }
                | ToNode::QueryNames { .. }),
            ) => self.late.push((process, request)),
            NodeBound::Request(request) => {
                match request {
                    ToNode::Blocked { lease } => self.objects.task_paused(process, lease, true),
                    ToNode::Unblocked { lease } => self.objects.task_paused(process, lease, false),
                    _ => {}
                }
                self.step_at(Event::Requested { process, request }, now);
            }
            NodeBound::Relay { record, to, bytes } => {
                if let Some(record) = record {
                    self.objects.recorded(process, &record);
                    self.step_at(Event::Recorded { process, record }, now);
                }
                self.relayed_at = now;
                self.step_at(Event::Relay { process, to, bytes }, now);
            }
        }
    }
}
