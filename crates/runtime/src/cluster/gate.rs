//! What other threads bring to the node's thread, and who is let in at the door.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bireme_core::controller::Join;
use bireme_core::id::NodeId;
use bireme_core::schedule::Load;
use bireme_core::time::Tick;
use bireme_net::Doorbell;
use bireme_net::door::{Arrival, Greeter, Refusal};
use bireme_net::heart::HeartStop;
use bireme_net::hello::{Purpose, Ticket, Welcome};
use bireme_net::tls::PeerIdentity;
use bireme_net::token::TokenBook;
use bireme_net::wire::{Wire, delayed};

use super::join::Answer;
use super::register::{No, Register, Visit};
use super::renewal::KeyEpoch;
use super::{HEARTBEAT_PERIOD, hearts};
use crate::clock::seconds_since_1970;

/// So much may wait for the node's thread; what comes then is refused, and tried again by who wants it.
const WAITING_MAX: usize = 65_536;

/// Something for the node's thread.
pub(crate) enum Arrived {
    /// A node dialled us for its control link.
    Control { node: NodeId, wire: Box<dyn Wire>, visit: Visit },
    /// We dialled a node.
    Dialled { node: NodeId, result: Result<Box<dyn Wire>, NotReached> },
    /// Somebody wants to join; the head answers.
    Join { join: Box<Join>, reply: Sender<Answer> },
    /// A heartbeat of ours went out.
    BeatSent { sequence: u64, at: Tick },
    /// A heartbeat came, from a member or from the head, and when.
    Beat { node: NodeId, bytes: Vec<u8>, at: Tick },
    /// The connection for heartbeats is gone. Refused: nobody listens any more where the node was.
    HeartLost { node: NodeId, refused: bool },
    /// The head does not know us any more.
    Expelled { reason: String },
    /// A member has no right to be here any more; the head acts.
    Unwanted { node: NodeId, reason: String },
    /// A thread needs the right to open a bulk stream to this node.
    TicketWanted { node: NodeId, reply: Sender<Result<Box<dyn Wire>, String>> },
    /// Bytes of objects are wanted.
    Bulk { node: NodeId, ticket: Ticket, wire: Box<dyn Wire>, visit: Visit },
}

/// Why a node could not be dialled.
#[derive(Debug)]
pub(crate) struct NotReached {
    pub(crate) reason: String,
    /// It will not take this node, however often that dials.
    pub(crate) for_good: bool,
}

/// The way to the node's thread.
pub(crate) struct Gate {
    cluster: u128,
    node: OnceLock<NodeId>,
    head: OnceLock<SocketAddr>,
    heartbeat: OnceLock<Duration>,
    doorbell: OnceLock<Doorbell>,
    queue: Mutex<VecDeque<Arrived>>,
    /// With the head: what the next heartbeat to each member says.
    beats: Mutex<BTreeMap<NodeId, Vec<u8>>>,
    hearts: Mutex<BTreeMap<NodeId, HeartStop>>,
    /// With the head: where members listen.
    addresses: Mutex<BTreeMap<NodeId, SocketAddr>>,
    /// Who may come in as which node.
    pub(crate) register: Arc<Register>,
    /// How far this node has followed when the cluster's authority is replaced.
    pub(crate) keys: KeyEpoch,
    /// With a head that gives certificates: who may stay.
    pub(crate) book: OnceLock<TokenBook>,
    /// Whether bytes of objects are encrypted; none where nothing is.
    pub(crate) bulk_encryption: Option<bool>,
    /// How much later than it came something on a control link or a bulk stream arrives.
    link_delay: Duration,
}

impl Gate {
    pub(crate) fn new(cluster: u128, bulk_encryption: Option<bool>, link_delay: Duration) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            node: OnceLock::new(),
            head: OnceLock::new(),
            heartbeat: OnceLock::new(),
            doorbell: OnceLock::new(),
            queue: Mutex::default(),
            beats: Mutex::default(),
            hearts: Mutex::default(),
            addresses: Mutex::default(),
            register: Arc::default(),
            keys: KeyEpoch::default(),
            book: OnceLock::new(),
            bulk_encryption,
            link_delay,
        })
    }

    /// The node has its number. Newcomers before that are told to come again.
    pub(crate) fn seated(&self, node: NodeId, head: Option<SocketAddr>, heartbeat: Duration) {
        let _ = self.heartbeat.set(heartbeat);
        let _ = self.node.set(node);
        if let Some(head) = head {
            let _ = self.head.set(head);
        }
    }

    /// Time between two heartbeats, by the head's rule.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.heartbeat.get().copied().unwrap_or(HEARTBEAT_PERIOD)
    }

    /// The node's thread runs and hears this bell.
    pub(crate) fn attended(&self, doorbell: Doorbell) {
        let _ = self.doorbell.set(doorbell);
    }

    pub(crate) fn cluster(&self) -> u128 {
        self.cluster
    }

    /// Brings something that can wait until the node wakes for another reason.
    pub(crate) fn push_quietly(&self, arrived: Arrived) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() < WAITING_MAX {
            queue.push_back(arrived);
        }
    }

    pub(crate) fn push(&self, arrived: Arrived) {
        self.push_quietly(arrived);
        if let Some(doorbell) = self.doorbell.get() {
            doorbell.ring_self();
        }
    }

    pub(crate) fn take(&self) -> VecDeque<Arrived> {
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How long until a load is told again: a node at rest costs less.
    pub(crate) fn pace(&self, load: &Load) -> Duration {
        let rests = load.running == 0 && load.queued.is_empty() && load.free == load.total;
        if rests { self.rest() } else { self.heartbeat() }
    }

    /// Time between two heartbeats without news.
    pub(crate) fn rest(&self) -> Duration {
        self.heartbeat() * 2
    }

    /// What the next heartbeat to a member says.
    pub(crate) fn set_beat(&self, node: NodeId, bytes: Vec<u8>) {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner).insert(node, bytes);
    }

    pub(crate) fn take_beat(&self, node: NodeId) -> Vec<u8> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner).remove(&node).unwrap_or_default()
    }

    /// A heart beats for this node, in place of an earlier one.
    pub(crate) fn heart_began(&self, node: NodeId, stop: HeartStop) {
        let earlier = self.hearts.lock().unwrap_or_else(PoisonError::into_inner).insert(node, stop);
        if let Some(earlier) = earlier {
            earlier.stop();
        }
    }

    /// A member listens there.
    pub(crate) fn note_address(&self, node: NodeId, address: SocketAddr) {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).insert(node, address);
    }

    pub(crate) fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied()
    }

    /// No heart beats for this node any more.
    pub(crate) fn stop_heart(&self, node: NodeId) {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
        if let Some(stop) = self.hearts.lock().unwrap_or_else(PoisonError::into_inner).remove(&node) {
            stop.stop();
        }
    }

    /// The node ends: every heart with it.
    pub(crate) fn stop_hearts(&self) {
        for stop in std::mem::take(&mut *self.hearts.lock().unwrap_or_else(PoisonError::into_inner)).into_values() {
            stop.stop();
        }
    }
}

/// The door's greeter: it may outlive the node's thread, so it holds the gate alone.
pub(crate) struct Porter(pub(crate) Arc<Gate>);

impl Porter {
    /// Whether the one who came may be the node that it says, and is not one too many.
    fn check(&self, arrival: &Arrival) -> Result<Visit, No> {
        let (register, node) = (&self.0.register, NodeId(arrival.hello.node));
        let identity = arrival.peer.map_or(0, |peer| peer.uid);
        if let (Some(book), Some(peer)) = (self.0.book.get(), arrival.peer) {
            let contents = book.read_now().map_err(|error| No::Now(error.to_string()))?;
            contents.standing(peer.uid, seconds_since_1970()).map_err(|error| No::Ever(error.to_string()))?;
        }
        match arrival.hello.purpose {
            Purpose::Heart if node == NodeId::ALONE => {}
            _ => register.check(node, identity)?,
        }
        register.visit(identity)
    }
}

impl Greeter for Porter {
    fn arrived(&self, arrival: Arrival) {
        let gate = &self.0;
        let Some(me) = gate.node.get().copied() else {
            arrival.refuse("this node is still joining its cluster; try again");
            return;
        };
        if arrival.hello.purpose == Purpose::Heart && me != NodeId::HEAD {
            let head = gate.head.get().map_or(String::new(), |head| format!(": join at {head}"));
            arrival.refuse(&format!("this node is not the head of its cluster{head}"));
            return;
        }
        let visit = match self.check(&arrival) {
            Ok(visit) => visit,
            Err(No::Now(reason)) => return arrival.refuse(&reason),
            Err(No::Ever(reason)) => return arrival.dismiss(&reason),
        };
        let (node, peer) = (NodeId(arrival.hello.node), arrival.peer);
        let purpose = arrival.hello.purpose.clone();
        let welcome = Welcome { epoch: gate.keys.own(), ..Welcome::new(gate.cluster, me.0) };
        let Ok(wire) = arrival.welcome(&welcome) else { return };
        // Heartbeats are not delayed: a lease is about whether a node is alive.
        let wire = match purpose {
            Purpose::Control | Purpose::Bulk { .. } => delayed(wire, gate.link_delay),
            Purpose::Heart | Purpose::Enrol { .. } => Ok(wire),
        };
        let Ok(wire) = wire else { return };
        match purpose {
            Purpose::Control => gate.push(Arrived::Control { node, wire, visit }),
            Purpose::Heart => hearts::attend(gate, node, peer, wire, visit),
            Purpose::Bulk { ticket, .. } => gate.push(Arrived::Bulk { node, ticket, wire, visit }),
            // The door itself enrols.
            Purpose::Enrol { .. } => {}
        }
    }

    fn enrolled(&self, identity: PeerIdentity, address: SocketAddr) {
        eprintln!("bireme: {address} has got a certificate as {identity}");
    }

    fn refused(&self, refusal: &Refusal) {
        let Refusal { address, reason, untold } = refusal;
        let more = if *untold > 0 { format!(" (and {untold} more since the last line)") } else { String::new() };
        eprintln!("bireme: refused {address}: {reason}{more}");
    }
}
