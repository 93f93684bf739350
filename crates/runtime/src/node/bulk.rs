//! Bulk streams between nodes: the rights to open them, and who dials.
//!
//! A thread that wants to fetch asks the node's thread for a connection. The other node gives a ticket over the control link, and
//! the stream is opened with it. A driver's node cannot be dialled: it is given a ticket of ours and dials us.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use bireme_core::id::NodeId;
use bireme_core::message::Between;
use bireme_net::door::Tickets;
use bireme_net::hello::{Hello, Purpose, Ticket};
use bireme_net::wire::Wire;

use super::peers::Peers;
use super::transfers::BulkServer;
use crate::cluster::gate::{Arrived, Gate};
use crate::cluster::security::Dialer;

/// A ticket is used at once or not at all.
const TICKET_LIFE: Duration = Duration::from_secs(10);

type Reply = Sender<Result<Box<dyn Wire>, String>>;

/// What a ticket of ours is for.
enum Right {
    /// That node fetches from us.
    Fetch(NodeId),
    /// We fetch from that node, which dials us.
    Come(Reply),
}

/// The rights that are out.
pub(super) struct Bulk {
    tickets: Tickets<Right>,
    /// Threads that wait for a ticket of another node.
    wanted: BTreeMap<u64, (NodeId, Reply)>,
    next_number: u64,
    cluster: u128,
    me: NodeId,
    dial: Dialer,
    pub(super) server: BulkServer,
}

/// Opens a stream to a node: called by the threads that fetch.
pub(super) fn open(gate: &Arc<Gate>, node: NodeId) -> Result<Box<dyn Wire>, String> {
    let (reply, answer) = channel();
    gate.push(Arrived::TicketWanted { node, reply });
    answer.recv_timeout(TICKET_LIFE).unwrap_or_else(|_| Err(format!("{node} gave no right to fetch in time")))
}

impl Bulk {
    pub(super) fn new(me: NodeId, cluster: u128, dial: Dialer, server: BulkServer) -> Self {
        Self { tickets: Tickets::default(), wanted: BTreeMap::new(), next_number: 0, cluster, me, dial, server }
    }

    /// A thread wants a stream to a node.
    pub(super) fn wanted(&mut self, peers: &mut Peers, node: NodeId, reply: Reply) {
        if !peers.knows(node) {
            let _ = reply.send(Err(format!("{node} is gone")));
            return;
        }
        if peers.is_out_of_reach(node) {
            let reason = format!(
                "it lies with the program of {node}, and neither that nor this program can be dialled; start a node beside \
                 one of the two, or let a task put the value"
            );
            let _ = reply.send(Err(reason));
            return;
        }
        if peers.address(node).is_some() {
            self.next_number += 1;
            self.wanted.insert(self.next_number, (node, reply));
            peers.tell(node, Between::WantTicket { number: self.next_number });
            return;
        }
        match self.tickets.issue(Right::Come(reply), Instant::now(), TICKET_LIFE) {
            Ok(Ticket(ticket)) => peers.tell(node, Between::Come { ticket }),
            // The thread waits until its time is up, and says so.
            Err(error) => eprintln!("bireme: no ticket for {node}: {error}"),
        }
    }

    /// A node's word about streams. Says whether it was one.
    pub(super) fn heard(&mut self, peers: &mut Peers, from: NodeId, message: &Between) -> bool {
        match *message {
            Between::WantTicket { number } => {
                if let Ok(Ticket(ticket)) = self.tickets.issue(Right::Fetch(from), Instant::now(), TICKET_LIFE) {
                    peers.tell(from, Between::GiveTicket { number, ticket });
                }
            }
            Between::GiveTicket { number, ticket } => {
                if let Some((node, reply)) = self.wanted.remove(&number)
                    && node == from
                {
                    self.dial(peers, node, Ticket(ticket), move |wire| drop(reply.send(wire)));
                }
            }
            Between::Come { ticket } => {
                let server = self.server.clone();
                self.dial(peers, from, Ticket(ticket), move |wire| {
                    // Who asked waits until its time is up, and says so.
                    if let Ok(wire) = wire {
                        let _ = server.serve(wire, from);
                    }
                });
            }
            _ => return false,
        }
        true
    }

    fn dial(
        &self,
        peers: &Peers,
        node: NodeId,
        ticket: Ticket,
        then: impl FnOnce(Result<Box<dyn Wire>, String>) + Send + 'static,
    ) {
        let Some(address) = peers.address(node) else { return then(Err("it cannot be reached".to_owned())) };
        let (dialer, security) = (self.dial.clone(), self.dial.to(peers.identity(node)));
        let hello = Hello::new(
            self.cluster,
            self.me.0,
            Purpose::Bulk { ticket, encrypted: self.dial.bulk_encryption() != Some(false) },
        );
        let dialled = move || then(dialer.link(address, &security, &hello).map_err(|error| error.reason));
        // Without a thread nobody answers, and who waits says so when its time is up.
        let _ = crate::thread::spawn("bireme-dial", dialled);
    }

    /// A node came with a ticket.
    pub(super) fn arrived(&mut self, from: NodeId, ticket: &Ticket, wire: Box<dyn Wire>) {
        match self.tickets.redeem(ticket, Instant::now()) {
            Ok(Right::Fetch(node)) if node != from => {
                eprintln!("bireme: {from} came with the ticket of {node} and was refused");
            }
            Ok(Right::Fetch(node)) => {
                if let Err(error) = self.server.serve(wire, node) {
                    eprintln!("bireme: {error}");
                }
            }
            Ok(Right::Come(reply)) => drop(reply.send(Ok(wire))),
            Err(error) => eprintln!("bireme: a bulk stream was refused: {error}"),
        }
    }

    /// A node is dead: nobody waits for it.
    pub(super) fn node_died(&mut self, node: NodeId) {
        self.wanted.retain(|_, (of, _)| *of != node);
    }
}
