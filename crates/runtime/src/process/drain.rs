//! Reads what came in: the node's words first, then the peers'.

use bireme_core::codec::Malformed;
use bireme_core::failure::Death;
use bireme_core::id::ProcessId;
use bireme_core::message::{FromNode, Peer, ToNode};
use bireme_core::route::Hearer;
use bireme_core::{owner, worker};
use bireme_net::{Connection, RingSpan, SlotId};

use super::{Inner, Lead, LinkEnd, NODE_CONNECTION, Process};
use crate::link::{Incoming, Outgoing};

/// What the ring of the node had.
enum Said {
    ByNode(FromNode),
    ByPeer(ProcessId, Result<Peer, Malformed>),
}

impl Process {
    /// Takes every ready connection and reads it to the end. Returns how many messages there were.
    pub(crate) fn drain(&self, inner: &mut Inner) -> usize {
        if inner.closed {
            return 0;
        }
        let mut count = 0;
        let mut ready = std::mem::take(&mut inner.ready);
        while self.doorbell.take_ready(|connection| ready.push(connection.index())) > 0 {
            // A lease or a link must be known before what comes over it.
            count += self.drain_node(inner);
            for connection in ready.drain(..) {
                if connection != NODE_CONNECTION && connection != Connection::SELF.index() {
                    count += self.drain_link(inner, connection);
                }
            }
        }
        inner.ready = ready;
        inner.progress += count as u64;
        if inner.lead != Lead::Caller {
            inner.strays += count as u64;
        }
        self.flush(inner);
        count
    }

    fn drain_node(&self, inner: &mut Inner) -> usize {
        let mut count = 0;
        loop {
            let interned = &mut inner.interned;
            let read = inner.node.incoming.receive(|bytes| match FromNode::relayed(bytes) {
                // Read where it lies: it may be long.
                Some(relayed) => relayed.map(|(from, bytes)| Said::ByPeer(from, Peer::decode_with(bytes, interned))),
                None => FromNode::decode(bytes).map(Said::ByNode),
            });
            match read {
                Ok(Some(Ok(said))) => {
                    count += 1;
                    match said {
                        Said::ByNode(message) => self.hear_node(inner, message),
                        Said::ByPeer(from, message) => self.hear_relayed(inner, from, message),
                    }
                }
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => {
                    // Without its node a process is nothing.
                    self.over.store(true, std::sync::atomic::Ordering::Release);
                    break;
                }
            }
        }
        if inner.node.incoming.take_space_request() {
            inner.ring_node = true;
        }
        count
    }

    fn hear_node(&self, inner: &mut Inner, message: FromNode) {
        match message.hearer() {
            Hearer::Worker => {
                if let FromNode::Construct { spec, .. } = &message {
                    self.become_actor(spec);
                }
                self.step_worker(inner, worker::Event::FromNode(message));
            }
            Hearer::Owner => self.step_owner(inner, owner::Event::FromNode(message)),
            Hearer::Shell => self.hear(inner, message),
        }
    }

    fn hear_relayed(&self, inner: &mut Inner, from: ProcessId, message: Result<Peer, Malformed>) {
        match message {
            Ok(message) => self.hear_peer(inner, from, message),
            Err(malformed) => {
                let reason = malformed.to_string();
                self.tell_node(inner, &ToNode::PeerCorrupt { peer: from, reason });
            }
        }
    }

    fn hear(&self, inner: &mut Inner, message: FromNode) {
        match message {
            FromNode::LinkOpened { peer, connection, peer_connection, incoming, outgoing, capacity } => {
                let rings = (incoming, outgoing, capacity);
                self.open_link(inner, peer, (connection, peer_connection), rings);
            }
            FromNode::ProcessDied(death) => self.bury(inner, *death),
            FromNode::NodeDied { node, ref reason } => {
                inner.collectives.node_died(node, reason);
                inner.rouse();
                inner
                    .parked
                    .retain(|(peer, _)| !matches!(&message, FromNode::NodeDied { node, .. } if peer.node == *node));
                self.unpark(inner);
                self.step_worker(inner, worker::Event::FromNode(message.clone()));
                self.step_owner(inner, owner::Event::FromNode(message));
            }
            FromNode::Flush { dead } => {
                for connection in 0..inner.links.len() {
                    self.drain_link(inner, connection as u16);
                }
                self.tell_node(inner, &ToNode::Flushed { dead });
            }
            FromNode::Warning { text } => eprintln!("bireme: {text}"),
            FromNode::ItemFound { request, index, value } => {
                inner.found.entry(request).or_default().push((index, value));
            }
            FromNode::ActorFound { request, .. }
            | FromNode::ObjectCreated { request, .. }
            | FromNode::Gathered { request, .. }
            | FromNode::Located { request, .. }
            | FromNode::Published { request }
            | FromNode::Code { request, .. }
            | FromNode::Explained { request, .. }
            | FromNode::Resources { request, .. }
            | FromNode::Names { request, .. }
            | FromNode::Nodes { request, .. }
            | FromNode::GroupFound { request, .. }
            | FromNode::Groups { request, .. }
            | FromNode::CollectiveJoined { request, .. }
            | FromNode::Adopted { request, .. }
            | FromNode::State { request, .. } => inner.answer(request, message),
            other => self.hear_of_collectives(inner, other),
        }
    }

    fn open_link(
        &self,
        inner: &mut Inner,
        peer: ProcessId,
        (connection, peer_connection): (u32, u32),
        (incoming, outgoing, capacity): (u64, u64, u32),
    ) {
        let opened = || -> Option<LinkEnd> {
            let slot = SlotId::new(u16::try_from(peer.slot).ok()?)?;
            let theirs = Connection::new(u16::try_from(peer_connection).ok()?)?;
            let read = RingSpan::from_parts(incoming, capacity)?;
            let write = RingSpan::from_parts(outgoing, capacity)?;
            Some(LinkEnd {
                peer,
                incoming: Incoming::open(&self.fabric, read).ok()?,
                outgoing: Outgoing::open(&self.fabric, write, slot, theirs).ok()?,
            })
        };
        let (Some(link), Ok(connection)) = (opened(), u16::try_from(connection)) else {
            let reason = "the node opened a link that does not fit this process".to_owned();
            self.tell_node(inner, &ToNode::PeerCorrupt { peer, reason });
            return;
        };
        let place = usize::from(connection);
        if inner.links.len() <= place {
            inner.links.resize_with(place + 1, || None);
        }
        inner.links[place] = Some(link);
        inner.connection_of.insert(peer, connection);
        self.unpark(inner);
        // Frames may have come before we knew the link.
        self.drain_link(inner, connection);
    }

    fn drain_link(&self, inner: &mut Inner, connection: u16) -> usize {
        let place = usize::from(connection);
        let mut count = 0;
        loop {
            let interned = &mut inner.interned;
            let Some(Some(link)) = inner.links.get_mut(place) else { return count };
            let peer = link.peer;
            match link.incoming.receive(|bytes| Peer::decode_with(bytes, interned)) {
                Ok(Some(Ok(message))) => {
                    count += 1;
                    self.hear_peer(inner, peer, message);
                }
                Ok(None) => break,
                Ok(Some(Err(malformed))) => return count + self.drop_link(inner, connection, malformed.to_string()),
                Err(bad) => return count + self.drop_link(inner, connection, bad.0),
            }
        }
        if let Some(Some(link)) = inner.links.get_mut(place) {
            if link.incoming.take_space_request() {
                link.outgoing.ring();
            }
            if link.outgoing.is_backed_up() {
                inner.dirty.push(connection);
            }
        }
        count
    }

    /// A peer that writes nonsense is dropped; the node ends it and tells everyone why.
    #[cold]
    fn drop_link(&self, inner: &mut Inner, connection: u16, reason: String) -> usize {
        if let Some(link) = inner.links.get_mut(usize::from(connection)).and_then(Option::take) {
            inner.connection_of.remove(&link.peer);
            self.tell_node(inner, &ToNode::PeerCorrupt { peer: link.peer, reason });
        }
        0
    }

    pub(super) fn hear_peer(&self, inner: &mut Inner, peer: ProcessId, message: Peer) {
        if let Peer::Collective(packet) = message {
            self.hear_packet(inner, *packet);
            return;
        }
        match message.hearer() {
            Hearer::Worker => self.step_worker(inner, worker::Event::FromPeer { peer, message }),
            Hearer::Owner | Hearer::Shell => self.step_owner(inner, owner::Event::FromPeer { peer, message }),
        }
    }

    /// A process died: what it had sent is read first, then both machines learn of it.
    fn bury(&self, inner: &mut Inner, death: Death) {
        if let Some(connection) = inner.connection_of.get(&death.process).copied() {
            self.drain_link(inner, connection);
            if let Some(link) = inner.links.get_mut(usize::from(connection)) {
                *link = None;
            }
            inner.connection_of.remove(&death.process);
        }
        inner.collectives.process_died(&death);
        inner.rouse();
        inner.parked.retain(|(peer, _)| *peer != death.process);
        self.unpark(inner);
        self.step_worker(inner, worker::Event::FromNode(FromNode::ProcessDied(Box::new(death.clone()))));
        self.step_owner(inner, owner::Event::FromNode(FromNode::ProcessDied(Box::new(death))));
    }
}

impl Inner {
    fn answer(&mut self, request: u64, message: FromNode) {
        // A state comes in pieces; the earlier ones are kept in front.
        match (self.answers.get_mut(&request), message) {
            (Some(FromNode::State { bytes, last, .. }), FromNode::State { bytes: more, last: end, .. }) => {
                bytes.extend_from_slice(&more);
                *last = end;
            }
            (_, message) => {
                self.answers.insert(request, message);
            }
        }
        self.rouse();
    }
}
