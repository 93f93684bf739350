//! What the node's thread has to do with other nodes: links, streams of bytes, copies of objects.

use std::collections::VecDeque;
use std::sync::Arc;

use bireme_core::id::{NodeId, ProcessId};
use bireme_core::message::{Between, CopySource, CopyWish, FromNode, LostSender, RequestId, ToNode};
use bireme_core::node::Event;
use bireme_core::value::{Location, RefSpec};
use bireme_net::Doorbell;
use bireme_net::bulk::BulkOptions;
use bireme_store::{Arena, Table};

use super::Shell;
use super::bulk::{self, Bulk};
use super::flows::Stages;
use super::objects::Objects;
use super::pace::Measured;
use super::peers::{Incoming, Peers};
use super::transfers::{TransferEvent, Transfers, Waiter};
use crate::clock;
use crate::cluster::ClusterStart;
use crate::error::Error;
use crate::output::{OutputLine, Stream};

/// The node's part in a cluster.
pub(super) struct Abroad {
    pub(super) peers: Peers,
    bulk: Bulk,
    transfers: Transfers,
}

impl Abroad {
    pub(super) fn start(
        start: ClusterStart,
        doorbell: &Doorbell,
        objects: &mut Objects,
        store: (Arc<Arena>, Arc<Table>),
    ) -> Result<(Self, Stages), Error> {
        let (me, cluster, dial) = (start.node, start.cluster, start.dial.clone());
        let gate = Arc::clone(&start.gate);
        let open = move |node: NodeId| bulk::open(&gate, node);
        let options = BulkOptions { host: start.host, ..BulkOptions::default() };
        let transfers = Transfers::new(me, objects, store, doorbell.clone(), options.clone(), open.clone());
        let (client, offered) = (transfers.client().clone(), transfers.offered());
        let stages = Stages::new(me, client, doorbell, offered, options, open);
        let bulk = Bulk::new(me, cluster, dial, transfers.server());
        Ok((Self { peers: Peers::start(start, doorbell)?, bulk, transfers }, stages))
    }

    pub(super) fn stop(&mut self) {
        self.peers.stop();
        self.transfers.stop();
    }
}

impl Shell {
    /// What came from other nodes.
    pub(super) fn hear_nodes(&mut self) {
        let Some(abroad) = &mut self.abroad else { return };
        let node = &self.node;
        let mut incoming = VecDeque::from(abroad.peers.gather(|| node.load()));
        if let Some(deadline) = abroad.peers.lease_deadline() {
            self.keepers.live_until(deadline);
        }
        while let Some(word) = incoming.pop_front() {
            let Some(abroad) = &mut self.abroad else { return };
            match word {
                Incoming::Heard(from, Between::Controller(bytes)) => {
                    incoming.extend(abroad.peers.controller_word(from, &bytes));
                }
                Incoming::Heard(by, Between::Through { from, to, bytes }) => {
                    incoming.extend(abroad.peers.through(by, from, to, bytes));
                }
                Incoming::Heard(from, Between::WantProgram { job }) => self.program_wanted(from, job),
                Incoming::Heard(from, Between::GiveProgram { job, parcel }) => {
                    if job.node() == from {
                        self.program_came(job, parcel);
                    }
                }
                Incoming::Heard(to, Between::WantPiece { job, from }) => self.piece_wanted(to, job, from),
                Incoming::Heard(_, Between::GivePiece { job, from, bytes }) => self.piece_came(job, from, bytes),
                Incoming::Heard(from, Between::WantStatus { request }) => self.status_wanted(from, request),
                Incoming::Heard(from, Between::GiveStatus { request, bytes }) => {
                    self.status_given(from, request, &bytes);
                }
                Incoming::Heard(from, Between::Lines { job, pid, name, is_error, text, dropped }) => {
                    let stream = if is_error { Stream::Stderr } else { Stream::Stdout };
                    self.lines_came(job, OutputLine { pid, name, stream, node: Some(from), text }, dropped);
                }
                Incoming::Heard(from, Between::LinesOver { job }) => {
                    if let Some((voice, _)) = self.keepers.voice(job) {
                        voice.guest_finished(from);
                    }
                }
                Incoming::Heard(from, message) => {
                    if matches!(message, Between::Relay { .. }) {
                        self.relayed_at = clock::now();
                    }
                    if matches!(message, Between::WantWaits { .. }) {
                        let waits = self.objects.memory_waits();
                        self.step(Event::MemoryAwaited(waits));
                    }
                    let Some(abroad) = &mut self.abroad else { return };
                    if !abroad.bulk.heard(&mut abroad.peers, from, &message) {
                        self.step(Event::Heard { from, message });
                    }
                }
                Incoming::Joined(node, total) => self.step(Event::NodeJoined { node, total }),
                Incoming::Died(node, reason) => {
                    self.keepers.node_died(node);
                    abroad.bulk.node_died(node);
                    abroad.transfers.node_died(node);
                    self.stages.node_died(node);
                    self.awaited.node_died(node);
                    self.step(Event::NodeDied { node, reason });
                }
                Incoming::Loads(rows) => self.step(Event::Loads(rows)),
                Incoming::Controller(message) => self.step(Event::Controller(message)),
                Incoming::Bulk(from, ticket, wire) => abroad.bulk.arrived(from, &ticket, wire),
                Incoming::TicketWanted(node, reply) => abroad.bulk.wanted(&mut abroad.peers, node, reply),
                Incoming::Expelled(reason) => self.expelled(reason),
                Incoming::Draining(node) => self.step(Event::NodeDraining { node }),
                Incoming::Drain { grace_us } => self.drain_begins(grace_us),
                Incoming::DrainAnswered { request, refused } => self.drain_answered(request, refused),
                Incoming::Leave => self.told_to_leave(),
            }
        }
        self.follow_transfers();
    }

    /// Tells a node what may be long and has no order with the rest.
    pub(super) fn tell_slowly(&mut self, node: NodeId, message: Between) {
        if let Some(abroad) = &mut self.abroad {
            abroad.peers.tell_slowly(node, message);
        }
    }

    /// A process wants what lies on another node.
    pub(super) fn fetch(&mut self, process: ProcessId, request: RequestId, object: RefSpec, at: Location) {
        let Some(abroad) = &mut self.abroad else {
            let located = Err(format!("it lies on {}, and this node is alone", at.node));
            self.links.send(process, &FromNode::Located { request, located });
            return;
        };
        abroad.transfers.fetch(&mut self.objects, object, at, Some((process, request)));
    }

    /// A copy that the node itself wants.
    pub(super) fn bring(&mut self, object: RefSpec, at: Location) {
        if let Some(abroad) = &mut self.abroad {
            abroad.transfers.fetch(&mut self.objects, object, at, None);
        }
    }

    /// Who sends a copy that was wanted.
    pub(super) fn fetch_from(&mut self, number: u64, from: Result<CopySource, String>) {
        if let Some(abroad) = &mut self.abroad {
            abroad.transfers.assigned(&mut self.objects, number, from);
        }
    }

    fn follow_transfers(&mut self) {
        let Some(abroad) = &mut self.abroad else { return };
        for event in abroad.transfers.progress(&mut self.objects) {
            match event {
                TransferEvent::Wanted { number, object, of, lost } => {
                    let lost = lost.map(|lost| self.look_at_lost(lost));
                    self.step(Event::CopyWanted(CopyWish { object, of, number, lost }));
                }
                TransferEvent::Ended { object, of, waiters, result: Ok(at) } => {
                    for (process, request) in waiters {
                        self.links.send(process, &FromNode::Located { request, located: Ok(at) });
                    }
                    self.step(Event::Copied { object, of, at: Some(at) });
                }
                TransferEvent::Ended { object, of, waiters, result: Err(error) } => {
                    self.not_fetched(object, of, waiters, &error.to_string());
                }
                TransferEvent::Dropped { object, of } => self.step(Event::Copied { object, of, at: None }),
            }
        }
        self.tell_of_speed();
    }

    /// A sender that this node can never reach is of no use to it, whatever it has.
    fn look_at_lost(&self, lost: LostSender) -> LostSender {
        let out_of_reach = self.abroad.as_ref().is_some_and(|abroad| abroad.peers.is_out_of_reach(lost.node));
        LostSender { is_useless: lost.is_useless || out_of_reach, ..lost }
    }

    /// How fast bytes come in: others estimate by it how long this node would wait for what it lacks.
    fn tell_of_speed(&mut self) {
        let Some(abroad) = &mut self.abroad else { return };
        let measured = abroad.transfers.take_measured();
        for Measured { bytes, took_us } in measured.into_iter().chain(self.stages.take_measured()) {
            let arena_free_bytes = self.objects.room_bytes();
            self.step(Event::Fetched { bytes, took_us, arena_free_bytes });
        }
    }

    /// There is no copy. When the node is gone on which it lay, it may have moved before that.
    fn not_fetched(&mut self, object: RefSpec, of: Location, waiters: Vec<Waiter>, reason: &str) {
        let gone = self.abroad.as_ref().is_some_and(|abroad| !abroad.peers.knows(of.node));
        self.step(Event::NotBrought { of });
        self.step(Event::Copied { object, of, at: None });
        for (process, request) in waiters {
            if gone {
                let request = ToNode::Fetch { request, object, at: of };
                self.step(Event::Requested { process, request });
            } else {
                self.links.send(process, &FromNode::Located { request, located: Err(reason.to_owned()) });
            }
        }
    }

    /// Frees what lies here, a copy of another node's or one of its own.
    pub(super) fn free_stored(&mut self, at: Location) {
        match &mut self.abroad {
            Some(abroad) => abroad.transfers.free(&mut self.objects, at),
            None => self.objects.free(at),
        }
    }

    /// The copy here is the only one that its owner knows now.
    pub(super) fn promote(&mut self, at: Location) {
        if let Some(abroad) = &mut self.abroad {
            abroad.transfers.promote_at(&mut self.objects, at);
        }
    }
}
