//! Rings: who has which, allocated and freed by the node alone.

use std::collections::{BTreeMap, BTreeSet};

use bireme_core::id::ProcessId;
use bireme_core::message::{FromNode, NodeBound};
use bireme_core::spec::Interned;
use bireme_net::{Connection, End, Fabric, RingSpace, RingSpan, SlotId};

use crate::link::{Incoming, LEDGER_RING_BYTES, LINK_RING_BYTES, NOTICE_RING_BYTES, Outgoing};
use crate::process::NODE_CONNECTION;

/// Links that one process can have.
const LINKS_MAX: u16 = Connection::SELF.index() - 1;

struct Member {
    incoming: Incoming,
    outgoing: Outgoing,
    rings: (RingSpan, RingSpan),
    /// Connection numbers in use by links to peers.
    used: BTreeSet<u16>,
    /// Nothing more is read from it.
    muted: bool,
}

/// The node's ends of all rings, and the books of the rings between others.
pub(super) struct Links {
    fabric: Fabric,
    space: RingSpace,
    members: BTreeMap<ProcessId, Member>,
    /// Rings of a pair, smaller id first: from the first to the second and back, and the connection numbers.
    pairs: BTreeMap<(ProcessId, ProcessId), Pair>,
    dirty: BTreeSet<ProcessId>,
    scratch: Vec<u8>,
    interned: Interned,
}

struct Pair {
    forth: RingSpan,
    back: RingSpan,
    connections: (u16, u16),
}

impl Links {
    pub(super) fn new(fabric: Fabric) -> Self {
        Self {
            fabric,
            space: RingSpace::new(),
            members: BTreeMap::new(),
            pairs: BTreeMap::new(),
            dirty: BTreeSet::new(),
            scratch: Vec::new(),
            interned: Interned::default(),
        }
    }

    pub(super) fn processes(&self) -> Vec<ProcessId> {
        self.members.keys().copied().collect()
    }

    fn ring(&mut self, capacity: u32) -> Result<RingSpan, String> {
        let span = self.space.alloc(capacity).map_err(|error| error.to_string())?;
        self.fabric.init_ring(span).map_err(|error| error.to_string())?;
        Ok(span)
    }

    /// Makes the rings between the node and a process that is about to start.
    pub(super) fn admit(&mut self, process: ProcessId) -> Result<(RingSpan, RingSpan), String> {
        let to_node = self.ring(LEDGER_RING_BYTES)?;
        let from_node = self.ring(NOTICE_RING_BYTES)?;
        let slot = slot_of(process)?;
        let connection = Connection::new(NODE_CONNECTION).ok_or("no connection for the node")?;
        let member = Member {
            incoming: Incoming::open(&self.fabric, to_node)?,
            outgoing: Outgoing::open(&self.fabric, from_node, slot, connection)?,
            rings: (to_node, from_node),
            used: BTreeSet::new(),
            muted: false,
        };
        self.members.insert(process, member);
        Ok((to_node, from_node))
    }

    /// The next item from a process; an error says what is wrong with its bytes.
    pub(super) fn receive(&mut self, process: ProcessId) -> Result<Option<NodeBound>, String> {
        let Some(member) = self.members.get_mut(&process).filter(|member| !member.muted) else { return Ok(None) };
        match member.incoming.receive(|bytes| NodeBound::decode_with(bytes, &mut self.interned)) {
            Ok(Some(Ok(item))) => Ok(Some(item)),
            Ok(Some(Err(malformed))) => Err(malformed.to_string()),
            Ok(None) => {
                self.offer_room(process);
                Ok(None)
            }
            Err(bad) => Err(bad.0),
        }
    }

    /// The ring of a process is not read further for now: it may use the room that there is.
    pub(super) fn offer_room(&mut self, process: ProcessId) {
        let Some(member) = self.members.get_mut(&process) else { return };
        if member.incoming.take_space_request() {
            member.outgoing.ring();
        }
        if member.outgoing.is_backed_up() {
            self.dirty.insert(process);
        }
    }

    /// Reads nothing more from a process.
    pub(super) fn mute(&mut self, process: ProcessId) {
        if let Some(member) = self.members.get_mut(&process) {
            member.muted = true;
        }
    }

    pub(super) fn send(&mut self, to: ProcessId, message: &FromNode) {
        let Some(member) = self.members.get_mut(&to) else { return };
        self.scratch.clear();
        // A corrupt ring towards a process means that it wrote where it must not; it shows when it is read.
        let _ = match message {
            FromNode::Relayed { from, bytes } => {
                FromNode::begin_relayed(*from, &mut self.scratch);
                member.outgoing.send_parts(&self.scratch, bytes)
            }
            other => {
                other.encode(&mut self.scratch);
                member.outgoing.send(&self.scratch)
            }
        };
        self.dirty.insert(to);
    }

    /// Makes everything sent visible.
    pub(super) fn flush(&mut self) {
        for process in std::mem::take(&mut self.dirty) {
            if let Some(member) = self.members.get_mut(&process) {
                let _ = member.outgoing.flush();
            }
        }
    }

    /// Makes sure that two processes have rings to each other, and tells both.
    pub(super) fn open(&mut self, a: ProcessId, b: ProcessId) -> Result<(), String> {
        let (a, b) = if a < b { (a, b) } else { (b, a) };
        if self.pairs.contains_key(&(a, b)) || !self.members.contains_key(&a) || !self.members.contains_key(&b) {
            return Ok(());
        }
        let connections = (self.number(a)?, self.number(b)?);
        let forth = self.ring(LINK_RING_BYTES)?;
        let back = self.ring(LINK_RING_BYTES)?;
        let (at_a, at_b) = connections;
        self.pairs.insert((a, b), Pair { forth, back, connections });
        self.tell(a, b, (at_a, at_b), (back, forth));
        self.tell(b, a, (at_b, at_a), (forth, back));
        Ok(())
    }

    fn tell(
        &mut self,
        to: ProcessId,
        peer: ProcessId,
        (mine, theirs): (u16, u16),
        (read, write): (RingSpan, RingSpan),
    ) {
        let message = FromNode::LinkOpened {
            peer,
            connection: u32::from(mine),
            peer_connection: u32::from(theirs),
            incoming: read.offset(),
            outgoing: write.offset(),
            capacity: LINK_RING_BYTES,
        };
        self.send(to, &message);
        // Both ends must be able to use the link as soon as anyone speaks of it.
        if let Some(member) = self.members.get_mut(&to) {
            let _ = member.outgoing.flush();
        }
    }

    fn number(&mut self, process: ProcessId) -> Result<u16, String> {
        let member = self.members.get_mut(&process).ok_or("the process is gone")?;
        let free = (NODE_CONNECTION + 1..=LINKS_MAX).find(|number| !member.used.contains(number));
        let number = free.ok_or_else(|| format!("it has {LINKS_MAX} links, which is the limit"))?;
        member.used.insert(number);
        Ok(number)
    }

    /// Frees everything of a process that nobody talks to any more.
    pub(super) fn close(&mut self, process: ProcessId) {
        let pairs: Vec<_> = self.pairs.keys().filter(|(a, b)| *a == process || *b == process).copied().collect();
        for (a, b) in pairs {
            let Some(pair) = self.pairs.remove(&(a, b)) else { continue };
            let (peer, number) = if a == process { (b, pair.connections.1) } else { (a, pair.connections.0) };
            if let Some(member) = self.members.get_mut(&peer) {
                member.used.remove(&number);
            }
            self.free(pair.forth);
            self.free(pair.back);
        }
        if let Some(member) = self.members.remove(&process) {
            let (to_node, from_node) = member.rings;
            drop(member);
            self.free(to_node);
            self.free(from_node);
        }
        if let Ok(slot) = slot_of(process) {
            self.fabric.release_slot(slot);
        }
    }

    fn free(&mut self, span: RingSpan) {
        self.fabric.break_claim(span, End::Producer);
        self.fabric.break_claim(span, End::Consumer);
        // A ring that cannot be given back to the system is only memory kept for the next one.
        let _ = self.fabric.drop_ring(span);
        self.space.free(span);
    }
}

fn slot_of(process: ProcessId) -> Result<SlotId, String> {
    let slot = u16::try_from(process.slot).ok().and_then(SlotId::new);
    slot.ok_or_else(|| format!("slot {} is out of range", process.slot))
}
