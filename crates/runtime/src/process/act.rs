//! Carries effects out, in order: records before messages, and all messages of a turn with one ring each.

use std::sync::MutexGuard;
use std::time::Duration;

use bireme_core::codec::{Count, Fill, Write};
use bireme_core::id::{ObjectId, ProcessId};
use bireme_core::message::{NodeBound, Peer, ToNode};
use bireme_core::owner::{self, Effect};
use bireme_core::record::Record;
use bireme_core::time::Tick;
use bireme_core::worker;

use super::{Inner, Lead, Process, outside};
use crate::clock;
use crate::fail_point::{self, FailPoint, Garbage};
use crate::link::LEDGER_RING_BYTES;

/// The node is rung when this much of the ledger ring waits for it; below, it looks by itself.
const LEDGER_WAITING_BYTES_MAX: usize = LEDGER_RING_BYTES as usize / 4;
/// With so much room in the ledger ring a turn may begin: for a value that is recorded and sent to another node, and what goes
/// with it. One that needs more waits for the node in its midst.
const LEDGER_ROOM_BYTES: usize = LEDGER_RING_BYTES as usize / 4;
/// Pause between two looks at a full ledger ring; doubled up to the longest while the node takes nothing out of it.
const LEDGER_FULL_PAUSE: Duration = Duration::from_micros(20);
const LEDGER_FULL_PAUSE_MAX: Duration = Duration::from_millis(1);

/// What a process writes for its node.
enum Item<'a> {
    Record(&'a Record),
    Relay(ProcessId, Option<Tick>, &'a Peer),
}

impl Item<'_> {
    fn encode(&self, out: &mut impl Write) {
        match self {
            Item::Record(record) => record.encode(out),
            Item::Relay(to, recorded, message) => {
                NodeBound::begin_relay(*to, *recorded, out);
                message.encode(out);
            }
        }
    }
}

impl Inner {
    /// Whether a turn may begin to write to the node.
    #[inline]
    pub(super) fn has_ledger_room(&mut self) -> bool {
        self.closed || self.node.outgoing.has_room(LEDGER_ROOM_BYTES)
    }
}

impl Process {
    pub(crate) fn step_owner(&self, inner: &mut Inner, event: owner::Event) {
        let mut combined = Vec::new();
        let mut effects = std::mem::take(&mut inner.owner_effects);
        inner.owner.step(event, clock::now(), &mut effects);
        let mut rest = effects.drain(..).peekable();
        while let Some(effect) = rest.next() {
            match effect {
                Effect::Record(record) => match rest.peek() {
                    Some(Effect::Send { to, message }) if self.says(inner, &record, *to, message) => {
                        self.write_to_node(inner, true, &Item::Relay(*to, record.at(), message));
                        inner.ring_node = true;
                        rest.next();
                    }
                    _ => self.record(inner, &record),
                },
                Effect::Send { to, message } => self.send(inner, to, &message),
                Effect::Node(request) => self.tell_node(inner, &request),
                Effect::Ready(object) => inner.wake(&object),
                Effect::Combine { target, op, inputs } => {
                    let result = crate::reduces::combine(op, &inputs);
                    combined.push(owner::Event::Combined { target, result });
                }
            }
        }
        drop(rest);
        inner.owner_effects = effects;
        for event in combined {
            self.step_owner(inner, event);
        }
    }

    pub(crate) fn step_worker(&self, inner: &mut Inner, event: worker::Event) {
        let mut effects = std::mem::take(&mut inner.worker_effects);
        inner.worker.step(event, clock::now(), &mut effects);
        let mut rest = effects.drain(..).peekable();
        while let Some(effect) = rest.next() {
            match effect {
                worker::Effect::Record(record) => match rest.peek() {
                    Some(worker::Effect::Send { to, message }) if self.says(inner, &record, *to, message) => {
                        self.write_to_node(inner, true, &Item::Relay(*to, record.at(), message));
                        inner.ring_node = true;
                        rest.next();
                    }
                    _ => self.record(inner, &record),
                },
                worker::Effect::Send { to, message } => self.send(inner, to, &message),
                worker::Effect::Node(request) => self.tell_node(inner, &request),
                worker::Effect::Refs(moved) => self.step_owner(inner, moved.into()),
                worker::Effect::Execute(execution) => {
                    inner.executors.push(execution);
                    crate::worker::call_executor(self, inner);
                }
                worker::Effect::Flag(task) => {
                    if inner.executors.flag(&task) {
                        super::interrupt::cancelled(inner, task);
                    }
                }
                // Who waits until it may yield again waits for the end of its stream.
                worker::Effect::Rouse(task) => inner.wake(&ObjectId::result(task, 0)),
                worker::Effect::Exit => crate::worker::leave(self),
            }
        }
        drop(rest);
        inner.worker_effects = effects;
    }

    /// Whether a long record goes with the message behind it, which says the same and passes the node as well.
    fn says(&self, inner: &Inner, record: &Record, to: ProcessId, message: &Peer) -> bool {
        to.node != self.me.node
            && record.is_long()
            && record.is_said_by(message)
            && inner.parked.is_empty()
            && inner.fail_point.is_none()
    }

    /// Writes a record where the node will find it, whatever happens to this process.
    fn record(&self, inner: &mut Inner, record: &Record) {
        if inner.fail_point.is_some() {
            inner.fail_if_due(false);
        }
        self.write_to_node(inner, record.is_long(), &Item::Record(record));
        if inner.fail_point.is_some() {
            inner.fail_if_due(true);
        }
        if inner.node.outgoing.free_bytes() < LEDGER_RING_BYTES as usize - LEDGER_WAITING_BYTES_MAX {
            inner.ring_node = true;
        }
    }

    pub(crate) fn tell_node(&self, inner: &mut Inner, request: &ToNode) {
        let mut scratch = std::mem::take(&mut inner.scratch);
        scratch.clear();
        NodeBound::encode_request(request, &mut scratch);
        self.push_to_node(inner, &scratch);
        inner.scratch = scratch;
        inner.ring_node = true;
    }

    /// What is long is written straight into the ring.
    fn write_to_node(&self, inner: &mut Inner, is_long: bool, item: &Item<'_>) {
        if is_long && !inner.closed {
            let mut count = Count::default();
            item.encode(&mut count);
            let written = inner.node.outgoing.send_in_place(count.0, |place| item.encode(&mut Fill(place)));
            if !matches!(written, Ok(false)) {
                return;
            }
        }
        let mut scratch = std::mem::take(&mut inner.scratch);
        scratch.clear();
        item.encode(&mut scratch);
        self.push_to_node(inner, &scratch);
        inner.scratch = scratch;
    }

    /// The ledger ring has no backlog: what is not recorded must not leave, so the process waits for its node. That may take
    /// a while: a node does not read on while the message in front is for a node that takes messages too slowly.
    fn push_to_node(&self, inner: &mut Inner, message: &[u8]) {
        if inner.closed || inner.node.outgoing.send(message).is_err() {
            return;
        }
        let (mut pause, mut before) = (LEDGER_FULL_PAUSE, usize::MAX);
        while inner.node.outgoing.is_backed_up() {
            let _ = inner.node.outgoing.flush();
            let left = inner.node.outgoing.backlog_frames();
            if left < before {
                inner.node.outgoing.ring();
                pause = LEDGER_FULL_PAUSE;
            } else {
                // It has been rung for all that is in the ring.
                pause = (2 * pause).min(LEDGER_FULL_PAUSE_MAX);
            }
            before = left;
            if self.is_over() {
                return;
            }
            if left > 0 {
                std::thread::sleep(pause);
            }
        }
    }

    /// Waits for room in the ring, with no lock held, and gives the lock.
    #[cold]
    pub(super) fn await_ledger_room(&self) -> MutexGuard<'_, Inner> {
        let mut pause = LEDGER_FULL_PAUSE;
        loop {
            outside(|| std::thread::sleep(pause));
            let mut inner = self.lock();
            inner.node.outgoing.ring();
            if inner.has_ledger_room() || self.is_over() {
                return inner;
            }
            pause = (2 * pause).min(LEDGER_FULL_PAUSE_MAX);
        }
    }

    /// Sends a message. What is for a process of another node goes through the ring to this one, behind the records that
    /// it follows.
    pub(crate) fn send(&self, inner: &mut Inner, to: ProcessId, message: &Peer) {
        if inner.closed {
            return;
        }
        if to == self.me {
            // Lost with the process, like who would hear it: it waits for no link and no loan.
            inner.to_self.push_back(message.clone());
            return;
        }
        let abroad = to.node != self.me.node;
        if abroad && inner.parked.is_empty() {
            self.write_to_node(inner, message.is_long(), &Item::Relay(to, None, message));
            inner.ring_node = true;
            return;
        }
        let mut scratch = std::mem::take(&mut inner.scratch);
        scratch.clear();
        message.encode(&mut scratch);
        if abroad {
            // What waits for a link of this machine goes first: it may be the loan of what this message carries.
            inner.parked.push_back((to, scratch.clone()));
        } else if inner.parked.is_empty() && inner.connection_of.contains_key(&to) {
            inner.stage(to, &scratch);
        } else {
            let asked = inner.parked.iter().any(|(peer, _)| *peer == to);
            inner.parked.push_back((to, scratch.clone()));
            if !asked && !inner.connection_of.contains_key(&to) {
                inner.scratch = scratch;
                self.tell_node(inner, &ToNode::Connect { peer: to });
                return;
            }
        }
        inner.scratch = scratch;
    }

    #[cold]
    fn hear_self(&self, inner: &mut Inner) {
        while let Some(message) = inner.to_self.pop_front() {
            self.hear_peer(inner, self.me, message);
        }
        if inner.lead == Lead::Caller {
            // It may be what the leading thread waits for, and no peer rings for it.
            self.doorbell.ring_self();
        }
    }

    /// Sends what waited for links, in order, up to the first message whose link is still missing.
    pub(super) fn unpark(&self, inner: &mut Inner) {
        let can_go = |inner: &Inner, to: &ProcessId| to.node != self.me.node || inner.connection_of.contains_key(to);
        while inner.parked.front().is_some_and(|(to, _)| can_go(inner, to)) {
            let Some((to, message)) = inner.parked.pop_front() else { return };
            if to.node == self.me.node {
                inner.stage(to, &message);
                continue;
            }
            let mut frame = Vec::new();
            NodeBound::encode_relay(to, &message, &mut frame);
            self.push_to_node(inner, &frame);
            inner.ring_node = true;
        }
    }

    /// Writes what no sound process writes (see [`crate::fail_point`]).
    pub(crate) fn write_garbage(&self, garbage: Garbage) {
        const NONSENSE: [u8; 40] = [0xEE; 40];
        let mut inner = self.lock();
        match garbage {
            Garbage::Message => drop(inner.node.outgoing.send(&NONSENSE)),
            Garbage::Frame => drop(inner.node.outgoing.send_frame(&NONSENSE)),
            Garbage::ToPeers => {
                for link in inner.links.iter_mut().flatten() {
                    let _ = link.outgoing.send(&NONSENSE);
                    let _ = link.outgoing.flush();
                }
            }
        }
        inner.ring_node = true;
        self.flush(&mut inner);
    }

    /// Makes everything of this turn visible: first the ledger, then the messages.
    #[inline]
    pub(crate) fn flush(&self, inner: &mut Inner) {
        if !inner.to_self.is_empty() {
            self.hear_self(inner);
        }
        if inner.closed {
            return;
        }
        if std::mem::take(&mut inner.ring_node) {
            let _ = inner.node.outgoing.flush();
            inner.node.outgoing.ring();
        } else {
            inner.node.outgoing.publish();
        }
        // In the order of the effects: a loan is out before the reference is.
        for at in 0..inner.dirty.len() {
            if let Some(Some(link)) = inner.links.get_mut(usize::from(inner.dirty[at])) {
                let _ = link.outgoing.flush();
            }
        }
        inner.dirty.clear();
    }
}

impl Inner {
    pub(crate) fn plan(&mut self, fail_point: Option<FailPoint>) {
        self.fail_point = fail_point;
    }

    /// What was recorded before is with the node; nothing else of this turn has left.
    #[cold]
    fn fail_if_due(&mut self, after: bool) {
        if self.fail_point.as_mut().is_some_and(|point| point.is_due(after)) {
            self.node.outgoing.publish();
            fail_point::die();
        }
    }

    /// Puts a message into the ring of its link.
    fn stage(&mut self, to: ProcessId, message: &[u8]) {
        let Some(&connection) = self.connection_of.get(&to) else { return };
        if let Some(Some(link)) = self.links.get_mut(usize::from(connection)) {
            // A corrupt outgoing ring shows on the receiving side too, where the peer is dropped.
            let _ = link.outgoing.send(message);
            if self.dirty.last() != Some(&connection) {
                self.dirty.push(connection);
            }
        }
    }

    /// Wakes all that wait for an object.
    pub(super) fn wake(&mut self, object: &ObjectId) {
        self.readied += 1;
        if self.owner.value(object).is_some_and(|value| value.failure().is_some()) {
            self.failures += 1;
            self.failure_watchers.drain(..).for_each(|thread| thread.unpark());
        }
        if self.waiters.is_empty() {
            return;
        }
        for waiter in self.waiters.remove(object).into_iter().flatten() {
            waiter.wake();
        }
    }
}
