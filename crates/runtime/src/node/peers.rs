//! The node's thread among other nodes: control links, and the seat in the cluster.
//!
//! Links are dialled when there is something to say. When two nodes dial each other at once, the connection that the one with the
//! lower number dialled stays. A link that breaks is dialled again until its node is declared dead; only the controller
//! does that. A driver's node is reached by nobody, so it dials everyone; two of them speak through the head.
//!
//! | file | what |
//! |---|---|
//! | `seat` | the controller with the head, the lease with a member |

pub(super) mod seat;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use bireme_core::controller::{Departure, MemberRow};
use bireme_core::id::NodeId;
use bireme_core::message::{Between, RequestId, Role, Speaker};
use bireme_core::session::{Message, Sent, SessionLimits};
use bireme_core::time::Tick;
use bireme_net::door::Door;
use bireme_net::hello::{Hello, Purpose, Ticket};
use bireme_net::link::{ControlLink, Track};
use bireme_net::wire::Wire;
use bireme_net::{Doorbell, Interest, Poller};

use crate::clock;
use crate::cluster::gate::{Arrived, Gate, NotReached};
use crate::cluster::security::Dialer;
use crate::cluster::{ClusterStart, Renewal, Seat, Warden};
use crate::error::Error;

use seat::SeatState;

/// The pause before a node that could not be reached is dialled again; doubled up to the longest.
const REDIAL_US: u64 = 10_000;
const REDIAL_US_MAX: u64 = 500_000;

/// Bytes that a node has not acknowledged, beyond which it gets no lines of workers.
const LINES_KEPT_MAX: usize = 256 << 10;
/// Nodes that went and are still shown.
const DEPARTED_SHOWN_MAX: usize = 64;

/// What came for the node's machine.
pub(super) enum Incoming {
    /// A node said something.
    Heard(NodeId, Between),
    /// A node joined, and has this.
    Joined(NodeId, bireme_core::resources::Resources),
    /// A node is gone.
    Died(NodeId, String),
    /// The controller said something about placement groups.
    Controller(bireme_core::controller::FromController),
    /// Loads of nodes.
    Loads(Vec<bireme_core::schedule::Row>),
    /// This node has no seat any more: it ends its workers, and is over.
    Expelled(String),
    /// A node is being drained.
    Draining(NodeId),
    /// This node is to be drained.
    Drain {
        /// How much time it has.
        grace_us: u64,
    },
    /// A node is being drained because we asked for it, or why not.
    DrainAnswered {
        /// Our question.
        request: RequestId,
        /// Why not.
        refused: Option<String>,
    },
    /// This node is drained, or has no more time for that.
    Leave,
    /// A node came with a ticket for bytes of objects.
    Bulk(NodeId, Ticket, Box<dyn Wire>),
    /// A thread wants a stream to a node.
    TicketWanted(NodeId, Sender<Result<Box<dyn Wire>, String>>),
}

struct Peer {
    link: ControlLink,
    /// We dialled the present connection.
    ours: bool,
    dialling: bool,
    redial_at: Option<Tick>,
    pause_us: u64,
    /// The poller waits for room to write too.
    waits_for_room: bool,
}

/// The other nodes.
pub(super) struct Peers {
    me: NodeId,
    cluster: u128,
    gate: Arc<Gate>,
    /// Closed when this is dropped.
    _door: Option<Arc<Door>>,
    /// Ends when this is dropped.
    _renewal: Option<Renewal>,
    /// Ends when this is dropped.
    _warden: Option<Warden>,
    dial: Dialer,
    dials_only: bool,
    pub(super) poller: Poller,
    peers: BTreeMap<NodeId, Peer>,
    members: BTreeMap<NodeId, MemberRow>,
    /// This node, as others see it.
    own: Option<MemberRow>,
    /// The last that went, for people who ask.
    departed: VecDeque<(MemberRow, Departure)>,
    /// Links with something to write.
    dirty: BTreeSet<NodeId>,
    /// Members that said what they have no right to: told once each.
    denied: BTreeSet<NodeId>,
    seat: SeatState,
    incoming: Vec<Incoming>,
}

impl Peers {
    pub(super) fn start(start: ClusterStart, doorbell: &Doorbell) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::System { what: "joining", reason: error.to_string() };
        let poller = Poller::new(doorbell.clone()).map_err(|error| failed(&error))?;
        let ClusterStart { node, cluster, gate, door, dial, dials_only, seat, renewal, warden, .. } = start;
        gate.attended(doorbell.clone());
        let mut peers = Self {
            me: node,
            cluster,
            gate: Arc::clone(&gate),
            _door: door,
            _renewal: renewal,
            _warden: warden,
            dial: dial.clone(),
            dials_only,
            poller,
            peers: BTreeMap::new(),
            members: BTreeMap::new(),
            own: None,
            departed: VecDeque::new(),
            dirty: BTreeSet::new(),
            denied: BTreeSet::new(),
            seat: SeatState::Over,
            incoming: Vec::new(),
        };
        peers.seat = match seat {
            Seat::Head(controller) => {
                peers.own = controller.members().rows().into_iter().find(|row| row.node == node);
                SeatState::head(*controller)
            }
            Seat::Member(membership) => {
                for row in &membership.members {
                    peers.member_joined(row.clone());
                }
                peers.incoming.push(Incoming::Loads(membership.rows.clone()));
                SeatState::member(node, gate, dial, *membership)?
            }
        };
        Ok(peers)
    }

    /// Takes in all that came since the last time.
    pub(super) fn gather(&mut self, load: impl FnOnce() -> bireme_core::schedule::Load) -> Vec<Incoming> {
        for arrived in self.gate.take() {
            self.arrived(arrived);
        }
        let ready: Vec<_> = self.poller.ready().collect();
        for ready in ready {
            let node = NodeId(u32::try_from(ready.token).unwrap_or_default());
            if ready.writable {
                self.written(node, |link, now| link.writable(now));
            }
            if ready.readable {
                self.read(node);
            }
        }
        self.redial_due();
        self.mark_due();
        self.keep_seat(load);
        std::mem::take(&mut self.incoming)
    }

    fn arrived(&mut self, arrived: Arrived) {
        match arrived {
            // It has been counted while it waited: from here on there is one for each node.
            Arrived::Control { node, wire, visit } => {
                drop(visit);
                let known = self.members.contains_key(&node);
                let busy = self.peers.get(&node).is_some_and(|peer| {
                    // Both dialled: the connection of the lower number stays.
                    (peer.dialling || peer.ours && peer.link.is_open()) && self.me < node
                });
                if known && !busy {
                    self.attach(node, wire, false);
                }
            }
            Arrived::Dialled { node, result } => self.dialled(node, result),
            Arrived::Bulk { node, ticket, wire, visit } => {
                drop(visit);
                self.incoming.push(Incoming::Bulk(node, ticket, wire));
            }
            Arrived::TicketWanted { node, reply } => self.incoming.push(Incoming::TicketWanted(node, reply)),
            other => self.seat_arrived(other),
        }
    }

    fn dialled(&mut self, node: NodeId, result: Result<Box<dyn Wire>, NotReached>) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.dialling = false;
        match result {
            // The other side's connection came first, and its number is lower.
            Ok(_) if peer.link.is_open() && !peer.ours => {}
            Ok(wire) => {
                peer.pause_us = REDIAL_US;
                self.attach(node, wire, true);
            }
            Err(NotReached { reason, for_good }) => {
                if peer.pause_us == REDIAL_US {
                    let and = if for_good { "" } else { " and is tried again" };
                    eprintln!("bireme: {node} cannot be reached{and}: {reason}");
                }
                peer.redial_at = Some(clock::now().plus_us(peer.pause_us));
                peer.pause_us = (peer.pause_us * 2).min(REDIAL_US_MAX);
            }
        }
    }

    fn attach(&mut self, node: NodeId, wire: Box<dyn Wire>, ours: bool) {
        let peer = self.peers.entry(node).or_insert_with(|| new_peer(self.me, node));
        (peer.ours, peer.redial_at, peer.waits_for_room) = (ours, None, false);
        let attached = peer.link.attach(wire).is_ok();
        let added =
            peer.link.socket().is_some_and(|socket| self.poller.add(socket, u64::from(node.0), Interest::READ).is_ok());
        if attached && added {
            self.dirty.insert(node);
            // What came with the greeting makes no descriptor readable.
            self.read(node);
        } else {
            self.lost(node);
        }
    }

    fn read(&mut self, node: NodeId) {
        let speaker = self.speaker(node);
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let (incoming, denied, mut unreadable) = (&mut self.incoming, &mut self.denied, false);
        let now = clock::now();
        loop {
            let read = peer.link.receive(now, |_, bytes| match Between::decode(bytes) {
                Ok(message) => incoming.extend(authorized(speaker, message, denied)),
                Err(_) => unreadable = true,
            });
            match read {
                Ok(true) => {}
                Ok(false) if unreadable => {
                    eprintln!("bireme: {node} says what cannot be read; its connection is closed");
                    peer.link.detach();
                    self.lost(node);
                    return;
                }
                Ok(false) => break,
                Err(_) => {
                    self.lost(node);
                    return;
                }
            }
        }
        // Acknowledgements that are due.
        self.dirty.insert(node);
    }

    /// The connection is gone; the session stays until the node is declared dead.
    fn lost(&mut self, node: NodeId) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.link.detach();
        peer.redial_at = Some(clock::now());
    }

    fn redial_due(&mut self) {
        let now = clock::now();
        let due = |peer: &Peer| peer.redial_at.is_some_and(|at| at <= now) && !peer.dialling;
        let due: Vec<NodeId> = self.peers.iter().filter(|(_, peer)| due(peer)).map(|(node, _)| *node).collect();
        for node in due {
            self.reach(node);
        }
    }

    /// Acknowledgements that are due are written with the next flush; else this thread would wake for them for ever.
    fn mark_due(&mut self) {
        let now = clock::now();
        let due = |peer: &Peer| peer.link.deadline().is_some_and(|due| due <= now);
        self.dirty.extend(self.peers.iter().filter(|(_, peer)| due(peer)).map(|(node, _)| *node));
    }

    /// Dials a node, on a thread of its own.
    fn reach(&mut self, node: NodeId) {
        let (address, identity) = (self.address(node), self.identity(node));
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.redial_at = None;
        // A driver's node is reached by nobody: it comes.
        let Some(address) = address else { return };
        peer.dialling = true;
        let (gate, dialer, security) = (Arc::clone(&self.gate), self.dial.clone(), self.dial.to(identity));
        let hello = Hello::new(self.cluster, self.me.0, Purpose::Control);
        let spawned = crate::thread::spawn("bireme-dial", move || {
            let result = dialer.link(address, &security, &hello);
            gate.push(Arrived::Dialled { node, result });
        });
        if spawned.is_err() {
            peer.dialling = false;
            peer.redial_at = Some(clock::now().plus_us(REDIAL_US_MAX));
        }
    }

    /// Queues a message; [`Peers::flush`] writes it.
    pub(super) fn tell(&mut self, node: NodeId, message: Between) {
        self.tell_on(Track::FIRST, node, message.into());
    }

    /// The same for what may be long and has no order with the rest: nothing else waits for it.
    pub(super) fn tell_slowly(&mut self, node: NodeId, message: Between) {
        self.tell_on(Track::LAST, node, message.into());
    }

    fn tell_on(&mut self, track: Track, node: NodeId, message: Message) {
        let me = self.me;
        if self.dials_only && self.members.get(&node).is_some_and(|row| row.address.is_empty()) {
            // Neither can dial the other. Both links of the head are in order, so this way is too.
            let through = Between::Through { from: me, to: node, bytes: message.to_vec() };
            return self.tell_on(track, NodeId::HEAD, through.into());
        }
        if !self.peers.contains_key(&node) && self.gate.register.is_gone(node) {
            // Nobody will ever take it.
            return;
        }
        let peer = self.peers.entry(node).or_insert_with(|| new_peer(me, node));
        if let Sent::TooLong(message) = peer.link.send(track, message) {
            // Rings carry nothing as long, and nor does a node's own word: a mistake of this program.
            eprintln!(
                "bireme: a message of {} bytes for {node} is longer than any node takes, and is lost",
                message.len()
            );
            return;
        }
        self.dirty.insert(node);
        if peer.link.socket().is_none() && !peer.dialling && peer.redial_at.is_none() {
            self.reach(node);
        }
    }

    /// Bytes of what processes say that a node has not acknowledged; those of the head for a node that is reached through it.
    pub(super) fn queued_bytes(&self, node: NodeId) -> usize {
        let through = self.dials_only && self.members.get(&node).is_some_and(|row| row.address.is_empty());
        let next = if through { NodeId::HEAD } else { node };
        self.peers.get(&next).map_or(0, |peer| peer.link.kept_bytes_on(Track::FIRST))
    }

    /// What one driver's node says to another's came by: it is passed on, or is for us. The dead are not heard.
    pub(super) fn through(&mut self, by: NodeId, from: NodeId, to: NodeId, bytes: Vec<u8>) -> Option<Incoming> {
        if to != self.me {
            if by == from && self.me == NodeId::HEAD && self.knows(to) {
                self.tell(to, Between::Through { from, to, bytes });
            }
            return None;
        }
        if by != NodeId::HEAD || !self.knows(from) {
            return None;
        }
        let (speaker, message) = (self.speaker(from), Between::decode(&bytes).ok()?);
        authorized(speaker, message, &mut self.denied)
    }

    /// A node with its rights. One that is not known has the fewest.
    fn speaker(&self, node: NodeId) -> Speaker {
        Speaker { node, role: self.members.get(&node).map_or(Role::Client, |row| row.role) }
    }

    /// Whether bytes can flow between this node and another: one of the two must be dialled.
    pub(super) fn is_out_of_reach(&self, node: NodeId) -> bool {
        self.dials_only && self.address(node).is_none()
    }

    /// Queues lines of a worker behind everything else. False when the node does not take any more for now: it has not
    /// read what was sent, or has no connection.
    pub(super) fn tell_lines(&mut self, node: NodeId, message: &Between) -> bool {
        if !self.members.contains_key(&node) {
            // Nobody is there who could want them.
            return true;
        }
        let (me, mut bytes) = (self.me, Vec::new());
        let peer = self.peers.entry(node).or_insert_with(|| new_peer(me, node));
        if peer.link.kept_bytes() > LINES_KEPT_MAX {
            return false;
        }
        message.encode(&mut bytes);
        // A message of this size fits, or is dropped as if the node had not read.
        let _ = peer.link.send(Track::LAST, bytes);
        self.dirty.insert(node);
        true
    }

    /// Writes what there is to write.
    pub(super) fn flush(&mut self) {
        // Also acknowledgements that nothing else has carried: who leaves waits for them.
        let now = clock::now();
        let due = |peer: &Peer| peer.link.deadline().is_some_and(|due| due <= now);
        self.dirty.extend(self.peers.iter().filter(|(_, peer)| due(peer)).map(|(node, _)| *node));
        for node in std::mem::take(&mut self.dirty) {
            self.written(node, |link, now| link.flush(now));
        }
    }

    fn written<E>(&mut self, node: NodeId, write: impl FnOnce(&mut ControlLink, Tick) -> Result<(), E>) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        if write(&mut peer.link, clock::now()).is_err() {
            self.lost(node);
            return;
        }
        let wants = peer.link.wants_write();
        if wants != peer.waits_for_room
            && let Some(socket) = peer.link.socket()
        {
            let interest = if wants { Interest::BOTH } else { Interest::READ };
            peer.waits_for_room = wants;
            let _ = self.poller.change(socket, u64::from(node.0), interest);
        }
    }

    fn member_joined(&mut self, row: MemberRow) {
        let node = row.node;
        if node == self.me {
            self.own = Some(row);
            return;
        }
        self.incoming.push(Incoming::Joined(node, row.total.clone()));
        self.gate.register.admit(node, row.identity);
        let dialled = self.dials_only && !row.address.is_empty();
        self.members.insert(node, row);
        if dialled {
            // Nobody else can open this link.
            self.peers.entry(node).or_insert_with(|| new_peer(self.me, node));
            self.reach(node);
        }
    }

    fn member_died(&mut self, node: NodeId, departure: Departure) {
        // The last word to one that was drained.
        self.written(node, |link, now| link.flush(now));
        let reason = departure.to_string();
        if let Some(row) = self.members.remove(&node) {
            self.departed.push_back((row, departure));
            while self.departed.len() > DEPARTED_SHOWN_MAX {
                self.departed.pop_front();
            }
        }
        self.peers.remove(&node);
        self.dirty.remove(&node);
        self.denied.remove(&node);
        self.gate.register.dismiss(node);
        self.gate.stop_heart(node);
        self.incoming.push(Incoming::Died(node, reason));
    }

    /// This node has nobody to talk to any more.
    fn forget_everybody(&mut self) {
        self.peers.clear();
        self.dirty.clear();
        self.denied.clear();
        self.members.clear();
    }

    /// Whether every member has heard all that this node has said.
    pub(super) fn all_heard(&self) -> bool {
        self.peers.iter().all(|(node, peer)| peer.link.kept_bytes() == 0 || !self.members.contains_key(node))
    }

    /// When something is due at the latest.
    pub(super) fn deadline(&self) -> Option<Tick> {
        let links = self.peers.values().filter_map(|peer| peer.link.deadline());
        let redials = self.peers.values().filter_map(|peer| peer.redial_at);
        links.chain(redials).chain(self.seat.deadline()).min()
    }

    /// Whether something came that nobody has taken in: the controller of the head answers at once.
    pub(super) fn has_news(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Whether a node is a member.
    pub(super) fn knows(&self, node: NodeId) -> bool {
        self.members.contains_key(&node)
    }

    /// The members, this node among them, and those that went lately.
    pub(super) fn everybody(&self) -> (Vec<MemberRow>, Vec<(MemberRow, Departure)>) {
        let mut members: Vec<MemberRow> = self.own.iter().chain(self.members.values()).cloned().collect();
        members.sort_by_key(|row| row.node);
        (members, self.departed.iter().cloned().collect())
    }

    /// Where a node is reached, unless it only dials out.
    pub(super) fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.members.get(&node).and_then(|row| row.address.parse().ok())
    }

    /// The number in a node's certificate; 0 where there is none.
    pub(super) fn identity(&self, node: NodeId) -> u128 {
        self.members.get(&node).map_or(0, |row| row.identity)
    }

    /// Says goodbye and ends the threads of this.
    pub(super) fn stop(&mut self) {
        self.leave();
        self.flush();
        self.gate.stop_hearts();
    }
}

/// What a node says, if it may say it: nothing that another node said goes on without this.
fn authorized(speaker: Speaker, message: Between, denied: &mut BTreeSet<NodeId>) -> Option<Incoming> {
    match message.check(speaker) {
        Ok(()) => Some(Incoming::Heard(speaker.node, message)),
        Err(reason) => {
            if denied.insert(speaker.node) {
                eprintln!("bireme: ignored: {reason}");
            }
            None
        }
    }
}

fn new_peer(me: NodeId, node: NodeId) -> Peer {
    Peer {
        link: ControlLink::new(me, node, SessionLimits::default()),
        ours: false,
        dialling: false,
        redial_at: None,
        pause_us: REDIAL_US,
        waits_for_room: false,
    }
}
