//! A reliable, ordered session between two nodes, over connections that break.
//!
//! The control link keeps one for each of its tracks. A message gets the next number when it is sent and is kept until the
//! peer has acknowledged it; every frame carries the highest number that its sender has delivered. After a reconnect each
//! side says which number it expects next, and the other one goes on from there. The session ends only with its
//! peer: when that is declared dead, it is dropped, and what it kept is lost with it.
//!
//! A session has no bound of its own for what it keeps: dropping a message would break its order. Whoever feeds it stops
//! in time (`core::throttle`).
//!
//! Nothing here writes or reads. The link asks for the next message ([`Session::hand_over`]), writes its bytes from where the
//! session keeps them ([`Session::message`]), and tells what came ([`Session::received`]).
//!
//! Invariants:
//! * SES-1: what a side delivers is at all times a prefix of what the other one sent, whatever connections lose,
//!   duplicate or reorder;
//! * SES-2: it is all of it once a connection that loses nothing has carried what both sides handed over to it.
//!
//! A session belongs to two nodes, and nodes are numbered anew at each join. A frame of another pair is refused.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use crate::id::NodeId;
use crate::shared::Shared;
use crate::time::Tick;

/// What a kept message costs beside its bytes, so that empty ones are bounded too.
const MESSAGE_OVERHEAD_BYTES: usize = 64;

/// Bytes with the connection that the peer has not acknowledged, unless said otherwise.
pub const WINDOW_BYTES_MAX: usize = 8 << 20;
/// Bytes of one message, unless said otherwise: the longest of a process (256 MiB), and what its node puts around it.
pub const MESSAGE_BYTES_MAX: usize = (256 << 20) + (4 << 10);

/// The bounds of a session and when it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Bytes with the connection that the peer has not acknowledged; over it, the rest waits ([`Sent::Stalled`]).
    pub window_bytes: usize,
    /// Bytes of one message; a longer one is never taken ([`Sent::TooLong`]). The same on both sides.
    pub message_bytes: usize,
    /// Messages after which an acknowledgement goes out on its own.
    pub ack_after_messages: u64,
    /// Bytes after which it does: a small part of the peer's window, or that one waits for the time to pass.
    pub ack_after_bytes: usize,
    /// Microseconds after which it does, when nothing flows back that could carry it.
    pub ack_after_us: u64,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            window_bytes: WINDOW_BYTES_MAX,
            message_bytes: MESSAGE_BYTES_MAX,
            ack_after_messages: 64,
            ack_after_bytes: 256 << 10,
            ack_after_us: 10_000,
        }
    }
}

/// What each frame of a session carries in front of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Who sent it.
    pub from: NodeId,
    /// Whom to.
    pub to: NodeId,
    /// The message's number, from 1; 0 for a frame that only acknowledges.
    pub sequence: u64,
    /// The highest number that its sender has delivered.
    pub acknowledged: u64,
}

impl Stamp {
    /// Its length on the wire.
    pub const BYTES: usize = 24;

    /// Its bytes on the wire.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..].copy_from_slice(&self.acknowledged.to_le_bytes());
        bytes
    }

    /// Reads a stamp from the beginning of a frame's body and returns the rest; nothing when it is too short.
    #[inline]
    pub fn split_from(body: &[u8]) -> Option<(Self, &[u8])> {
        let (stamp, rest) = body.split_first_chunk::<{ Self::BYTES }>()?;
        let (from, stamp) = stamp.split_first_chunk()?;
        let (to, stamp) = stamp.split_first_chunk()?;
        let (sequence, stamp) = stamp.split_first_chunk()?;
        let (acknowledged, _) = stamp.split_first_chunk()?;
        let stamp = Self {
            from: NodeId(u32::from_le_bytes(*from)),
            to: NodeId(u32::from_le_bytes(*to)),
            sequence: u64::from_le_bytes(*sequence),
            acknowledged: u64::from_le_bytes(*acknowledged),
        };
        Some((stamp, rest))
    }
}

/// A message as a session keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// What is passed on for a process, if anything: others hold it too.
    pub passed_on: Shared,
    /// What the node says itself, behind that.
    pub own: Vec<u8>,
    /// Where in what is passed on the bytes of a long value are, if anywhere: they may go as the bytes of objects do.
    pub value: Range<usize>,
}

impl Message {
    /// Bytes of all of it.
    #[inline]
    pub fn len(&self) -> usize {
        self.passed_on.len() + self.own.len()
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        [&self.passed_on, &self.own[..]].concat()
    }

    /// Where its pieces are, one behind the other: what is before the bytes of its value, those, what is behind them, and
    /// what the node says.
    #[inline]
    pub fn pieces(&self) -> [Range<usize>; 4] {
        let (passed_on, value) = (self.passed_on.len(), self.value.clone());
        [0..value.start, value.clone(), value.end..passed_on, passed_on..self.len()]
    }

    /// Bytes within one of its pieces.
    ///
    /// # Panics
    /// When the range is not, as with slices.
    #[inline]
    pub fn within_piece(&self, range: Range<usize>) -> &[u8] {
        match range.start.checked_sub(self.passed_on.len()) {
            None => &self.passed_on[range],
            Some(start) => &self.own[start..start + range.len()],
        }
    }
}

impl From<Vec<u8>> for Message {
    fn from(own: Vec<u8>) -> Self {
        Self { own, ..Self::default() }
    }
}

/// What became of a message that was to be sent.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// It goes out with the next write.
    Queued,
    /// It is kept, but the window is full or there is no connection: send less if possible.
    Stalled,
    /// The message is longer than any peer takes, and is given back.
    TooLong(Message),
}

/// What to do with a frame that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Receipt {
    /// The next message: deliver it.
    Deliver,
    /// It was delivered before, or only acknowledges: drop it.
    Nothing,
    /// Something before it is missing: drop it. On a connection that keeps order this is its end, and the next one
    /// brings what is missing.
    Gap,
    /// It is of another pair of nodes, or acknowledges what was never sent: refuse the connection.
    Foreign,
}

/// How a session goes on over a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Resumed {
    /// So many messages that an earlier connection had go again.
    Resending(u64),
    /// The peer expects what it had acknowledged, or what was never sent: it is not the one that this session is with.
    Impossible,
}

/// One side of a session.
#[derive(Debug)]
pub struct Session {
    me: NodeId,
    peer: NodeId,
    limits: SessionLimits,
    /// Messages that the peer has not acknowledged; the first has the number `acknowledged + 1`.
    kept: VecDeque<Message>,
    kept_bytes: usize,
    acknowledged: u64,
    /// The highest number that the present connection was given, and the bytes from `acknowledged` to there.
    handed: u64,
    handed_bytes: usize,
    /// The highest that any connection was given.
    handed_ever: u64,
    is_connected: bool,
    delivered: u64,
    /// The highest number that the peer was told to be delivered, and what came since.
    told: u64,
    untold_bytes: usize,
    untold_since: Tick,
}

impl Session {
    /// A session of `me` with `peer` that has not begun.
    pub fn new(me: NodeId, peer: NodeId, limits: SessionLimits) -> Self {
        Self {
            me,
            peer,
            limits,
            kept: VecDeque::new(),
            kept_bytes: 0,
            acknowledged: 0,
            handed: 0,
            handed_bytes: 0,
            handed_ever: 0,
            is_connected: false,
            delivered: 0,
            told: 0,
            untold_bytes: 0,
            untold_since: Tick::default(),
        }
    }

    /// Queues a message under the next number. Whatever is queued already, it is taken: a session leaves no message out. Who
    /// sends looks at [`Session::kept_bytes`] and waits (`core::throttle`).
    pub fn send(&mut self, message: impl Into<Message>) -> Sent {
        let message = message.into();
        if message.len() > self.limits.message_bytes {
            return Sent::TooLong(message);
        }
        self.kept_bytes += cost(&message);
        self.kept.push_back(message);
        if self.is_stalled() { Sent::Stalled } else { Sent::Queued }
    }

    /// The number that the peer has to send next: said at the beginning of each connection.
    pub fn next_expected(&self) -> u64 {
        self.delivered + 1
    }

    /// A connection is there, and the peer has said which number it expects.
    pub fn connected(&mut self, peer_next_expected: u64) -> Resumed {
        let Some(has) = peer_next_expected.checked_sub(1) else { return Resumed::Impossible };
        if has < self.acknowledged || has > self.handed_ever {
            return Resumed::Impossible;
        }
        self.forget_to(has);
        self.handed = has;
        self.handed_bytes = 0;
        self.is_connected = true;
        // What it said at the beginning was what this side has delivered.
        self.told_all();
        Resumed::Resending(self.handed_ever - has)
    }

    /// The connection is gone: nothing is handed over until the next one.
    pub fn disconnected(&mut self) {
        self.is_connected = false;
    }

    /// Gives the next message to the connection, if the window has room. Its bytes are had by [`Session::message`].
    pub fn hand_over(&mut self) -> Option<Stamp> {
        if !self.may_hand_over() {
            return None;
        }
        let next = self.handed + 1;
        self.handed_bytes += self.message(next).map(cost)?;
        self.handed = next;
        self.handed_ever = self.handed_ever.max(next);
        self.told_all();
        Some(self.stamp(next))
    }

    /// A message that the peer has not acknowledged.
    #[inline]
    pub fn message(&self, sequence: u64) -> Option<&Message> {
        let index = sequence.checked_sub(self.acknowledged + 1)?;
        self.kept.get(usize::try_from(index).ok()?)
    }

    /// A frame came with `len` bytes behind its stamp.
    pub fn received(&mut self, stamp: Stamp, len: usize, now: Tick) -> Receipt {
        if stamp.from != self.peer || stamp.to != self.me || stamp.acknowledged > self.handed_ever {
            return Receipt::Foreign;
        }
        self.forget_to(stamp.acknowledged);
        if stamp.sequence <= self.delivered {
            return Receipt::Nothing;
        }
        if stamp.sequence > self.delivered + 1 {
            return Receipt::Gap;
        }
        if self.delivered == self.told {
            self.untold_since = now;
        }
        self.delivered += 1;
        self.untold_bytes += len;
        Receipt::Deliver
    }

    /// The frame that only acknowledges, if it is due and nothing else will carry it.
    pub fn acknowledgement(&mut self, now: Tick) -> Option<Stamp> {
        let many = self.delivered - self.told >= self.limits.ack_after_messages;
        let much = self.untold_bytes >= self.limits.ack_after_bytes;
        let late = self.deadline().is_some_and(|due| due <= now);
        if !self.is_connected || !(many || much || late) {
            return None;
        }
        self.told_all();
        Some(self.stamp(0))
    }

    /// When to ask for an [`acknowledgement`](Session::acknowledgement) at the latest.
    pub fn deadline(&self) -> Option<Tick> {
        let owed = self.is_connected && self.delivered > self.told;
        owed.then(|| self.untold_since.plus_us(self.limits.ack_after_us))
    }

    /// Whether a message can be handed over.
    #[inline]
    pub fn has_outgoing(&self) -> bool {
        self.may_hand_over() && self.handed < self.last()
    }

    /// Whether messages wait for the peer and not for a write: the window is full, or there is no connection.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        !self.may_hand_over() && self.handed < self.last()
    }

    /// Bytes of all messages that the peer has not acknowledged.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Bytes of those that no connection has been given.
    pub fn waiting_bytes(&self) -> usize {
        self.kept_bytes - self.handed_bytes
    }

    /// The longest message that either side takes.
    pub fn message_bytes_max(&self) -> usize {
        self.limits.message_bytes
    }

    /// Messages that the peer has not acknowledged.
    pub fn kept_messages(&self) -> usize {
        self.kept.len()
    }

    fn may_hand_over(&self) -> bool {
        // The first always may: one message can be larger than the window.
        self.is_connected && (self.handed_bytes < self.limits.window_bytes || self.handed == self.acknowledged)
    }

    fn last(&self) -> u64 {
        self.acknowledged + self.kept.len() as u64
    }

    fn stamp(&self, sequence: u64) -> Stamp {
        Stamp { from: self.me, to: self.peer, sequence, acknowledged: self.delivered }
    }

    fn told_all(&mut self) {
        self.told = self.delivered;
        self.untold_bytes = 0;
    }

    /// The peer has all up to this number, which was handed over at some time.
    fn forget_to(&mut self, sequence: u64) {
        while self.acknowledged < sequence
            && let Some(message) = self.kept.pop_front()
        {
            self.acknowledged += 1;
            self.kept_bytes -= cost(&message);
            if self.acknowledged <= self.handed {
                self.handed_bytes -= cost(&message);
            }
        }
        // A late acknowledgement of what an earlier connection carried: that need not go again.
        self.handed = self.handed.max(self.acknowledged);
    }
}

/// What a message counts in the bounds.
#[inline]
fn cost(message: &Message) -> usize {
    message.len() + MESSAGE_OVERHEAD_BYTES
}
