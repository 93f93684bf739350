//! Links between nodes: a session on each side, and connections that are slow, stall, break, repeat and come late.

use std::collections::{BTreeMap, BTreeSet};

use bireme_core::id::NodeId;
use bireme_core::message::Between;
use bireme_core::node;
use bireme_core::session::{Receipt, Resumed, Sent, Session, SessionLimits, Stamp};
use bireme_core::time::Tick;

use super::{Cluster, Happening};
use crate::planted::Planted;

/// A broken or refused connection is tried again after about so long.
const REDIAL_US: u64 = 300;

/// One side of a link.
pub struct Link {
    session: Session,
    /// The connection that it has; 0 when it has none.
    connection: u64,
    tick_due: bool,
}

impl Link {
    /// Bytes that the other node has not acknowledged.
    pub(super) fn queued_bytes(&self) -> usize {
        self.session.kept_bytes()
    }

    /// Whether all that was said has been heard.
    pub(super) fn is_quiet(&self) -> bool {
        self.session.kept_messages() == 0
    }
}

/// A frame on its way.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    from: NodeId,
    to: NodeId,
    connection: u64,
    stamp: Stamp,
    bytes: Vec<u8>,
}

/// What is between the nodes.
#[derive(Debug, Default)]
pub(super) struct Wires {
    next_connection: u64,
    /// Directions in which nothing arrives.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// When the last frame arrives, per direction: a connection keeps order.
    last: BTreeMap<(NodeId, NodeId), Tick>,
    /// What waits for a cut to heal.
    stalled: BTreeMap<(NodeId, NodeId), Vec<Frame>>,
    redialling: BTreeSet<(NodeId, NodeId)>,
}

impl Wires {
    pub(super) fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cut.contains(&(from, to))
    }

    /// Whether neither of two nodes can be kept from hearing the other.
    pub(super) fn is_whole(&self, a: NodeId, b: NodeId) -> bool {
        !self.is_cut(a, b) && !self.is_cut(b, a)
    }
}

fn pair(a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    (a.min(b), a.max(b))
}

impl Cluster {
    /// A node knows another one from now on.
    pub(super) fn add_link(&mut self, node: NodeId, peer: NodeId) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let session = Session::new(node, peer, SessionLimits::default());
        host.links.entry(peer).or_insert(Link { session, connection: 0, tick_due: false });
        self.redial(node, peer);
    }

    /// A node has nothing to do with another one any more: what was kept for it is lost.
    pub(super) fn drop_link(&mut self, node: NodeId, peer: NodeId) {
        self.break_connection(node, peer);
        if let Some(host) = self.hosts.get_mut(&node) {
            host.links.remove(&peer);
        }
        self.resume_held(node);
    }

    fn redial(&mut self, a: NodeId, b: NodeId) {
        if self.wires.redialling.insert(pair(a, b)) {
            let after = self.random.within(1, 2 * REDIAL_US);
            self.after(after, Happening::Redialled(a, b));
        }
    }

    /// A node dials another one.
    pub(super) fn redialled(&mut self, a: NodeId, b: NodeId) {
        self.wires.redialling.remove(&pair(a, b));
        let connection = |link: &mut Link| link.connection;
        match (self.link(a, b).map(connection), self.link(b, a).map(connection)) {
            (Some(0), Some(_)) | (Some(_), Some(0)) => {}
            // One of them does not know the other yet, or not any more: whoever learns of the other dials again.
            _ => return,
        }
        if !self.wires.is_whole(a, b) {
            // Tried again when the cut is over.
            return;
        }
        self.wires.next_connection += 1;
        let connection = self.wires.next_connection;
        let expected = [a, b].map(|node| {
            let peer = if node == a { b } else { a };
            self.link(node, peer).map_or(1, |link| link.session.next_expected())
        });
        for (node, peer, next) in [(a, b, expected[1]), (b, a, expected[0])] {
            let Some(link) = self.link(node, peer) else { continue };
            link.connection = connection;
            let resumed = link.session.connected(next);
            assert_ne!(resumed, Resumed::Impossible, "{node} and {peer} agree on what was delivered");
        }
        self.note(|| format!("{a} and {b} are connected"));
        self.arm_link(a, b);
        self.arm_link(b, a);
        self.pump(a, b);
        self.pump(b, a);
    }

    fn link(&mut self, node: NodeId, peer: NodeId) -> Option<&mut Link> {
        self.hosts.get_mut(&node)?.links.get_mut(&peer)
    }

    /// A connection is gone, with what it carried or not.
    pub(super) fn break_connection(&mut self, a: NodeId, b: NodeId) {
        let mut broken = false;
        for (node, peer) in [(a, b), (b, a)] {
            if let Some(link) = self.link(node, peer) {
                broken |= link.connection != 0;
                link.session.disconnected();
                link.connection = 0;
            }
        }
        self.wires.last.remove(&(a, b));
        self.wires.last.remove(&(b, a));
        if broken {
            self.note(|| format!("the connection of {a} and {b} breaks"));
            self.redial(a, b);
        }
    }

    /// A node says something to another.
    pub(super) fn tell(&mut self, from: NodeId, to: NodeId, message: &Between) {
        self.note(|| format!("{from} -> {to}: {message:?}"));
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.mix_bytes(&bytes);
        let (planted, limit) = (self.planted, self.faults.nodes.queue_bytes);
        let Some(link) = self.link(from, to) else { return };
        if planted == Some(Planted::StalledDropped) && link.queued_bytes() > limit {
            return;
        }
        match link.session.send(bytes) {
            Sent::Queued | Sent::Stalled => {}
            Sent::TooLong(_) => panic!("{from} has a longer message for {to} than any run has"),
        }
        self.pump(from, to);
    }

    /// Hands what waits to the connection.
    fn pump(&mut self, from: NodeId, to: NodeId) {
        while let Some(link) = self.link(from, to)
            && let Some(stamp) = link.session.hand_over()
        {
            let bytes = link.session.message(stamp.sequence).map(|message| message.to_vec()).unwrap_or_default();
            let connection = link.connection;
            self.transmit(Frame { from, to, connection, stamp, bytes });
        }
    }

    fn transmit(&mut self, frame: Frame) {
        let most = if self.faulty { self.faults.nodes.latency_us } else { 50 };
        let direction = (frame.from, frame.to);
        let earliest = self.now.plus_us(self.random.within(1, most));
        let last = self.wires.last.entry(direction).or_default();
        *last = earliest.max(last.plus_us(1));
        let at = last.since_us(self.now);
        if self.faulty && self.faults.nodes.duplicate_one_in.is_some_and(|n| self.random.one_in(n)) {
            let again = at + self.random.within(1, 2 * most);
            self.after(again, Happening::Arrived(Box::new(frame.clone())));
        }
        self.after(at, Happening::Arrived(Box::new(frame)));
    }

    /// A frame comes out of a connection.
    pub(super) fn arrived(&mut self, frame: Frame) {
        let (from, to, now) = (frame.from, frame.to, self.now);
        if self.wires.is_cut(from, to) {
            self.wires.stalled.entry((from, to)).or_default().push(frame);
            return;
        }
        let (late, planted) = (self.faults.nodes.late, self.planted);
        let Some(link) = self.link(to, from) else { return };
        if link.connection != frame.connection && !late {
            return;
        }
        let mut receipt = link.session.received(frame.stamp, frame.bytes.len(), now);
        if planted == Some(Planted::RepeatedFrameHeard) && receipt == Receipt::Nothing && frame.stamp.sequence > 0 {
            receipt = Receipt::Deliver;
        }
        let current = link.connection == frame.connection;
        match receipt {
            Receipt::Deliver => {
                self.arm_link(to, from);
                match Between::decode(&frame.bytes) {
                    Ok(Between::Controller(words)) => self.hear_words(to, from, &words),
                    Ok(message) => {
                        let speaker = self.members.controller.members().speaker(from);
                        if let Some(Err(denied)) = speaker.map(|speaker| message.check(speaker)) {
                            panic!("{to} would not hear an honest node: {denied}");
                        }
                        self.step_node(to, node::Event::Heard { from, message });
                    }
                    Err(malformed) => panic!("{from} sent what cannot be read: {malformed}"),
                }
                self.arm_node(to);
            }
            Receipt::Nothing => {}
            // An earlier frame was of a connection that broke.
            Receipt::Gap if !current => {}
            Receipt::Gap => self.break_connection(to, from),
            Receipt::Foreign => panic!("{to} takes a frame of {from} for another one's"),
        }
        // Its acknowledgement may have made room.
        self.pump(to, from);
        self.resume_held(to);
    }

    /// What only acknowledges goes out when nothing else does.
    pub(super) fn link_ticked(&mut self, node: NodeId, peer: NodeId) {
        let now = self.now;
        let Some(link) = self.link(node, peer) else { return };
        link.tick_due = false;
        let connection = link.connection;
        if let Some(stamp) = link.session.acknowledgement(now) {
            self.transmit(Frame { from: node, to: peer, connection, stamp, bytes: Vec::new() });
        }
        self.arm_link(node, peer);
    }

    /// What was delivered is acknowledged some time.
    fn arm_link(&mut self, node: NodeId, peer: NodeId) {
        let now = self.now;
        let Some(link) = self.link(node, peer).filter(|link| !link.tick_due) else { return };
        if let Some(deadline) = link.session.deadline() {
            link.tick_due = true;
            self.after(deadline.since_us(now) + 1, Happening::LinkTicked(node, peer));
        }
    }

    /// Nothing arrives in this direction; the connection may notice or not.
    pub(super) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.note(|| format!("{to} does not hear {from}"));
        self.wires.cut.insert((from, to));
        if self.random.one_in(2) {
            self.break_connection(from, to);
        }
    }

    /// It is over: what the connection had kept back comes now.
    pub(super) fn heal(&mut self, from: NodeId, to: NodeId) {
        if !self.wires.cut.remove(&(from, to)) {
            return;
        }
        self.note(|| format!("{to} hears {from} again"));
        for frame in self.wires.stalled.remove(&(from, to)).unwrap_or_default() {
            // Before all that is still on its way: a connection keeps order.
            self.after(0, Happening::Arrived(Box::new(frame)));
        }
        self.redial(from, to);
    }

    /// Whether every node has heard everything that was said to it.
    pub(super) fn links_are_quiet(&self) -> bool {
        self.hosts.values().flat_map(|host| host.links.values()).all(|link| link.session.kept_messages() == 0)
    }
}
