//! The control link between two nodes: messages in order, over one connection after another.
//!
//! A link has a few tracks. The messages of a track are delivered once and in order (`core::session`), whatever becomes of
//! connections; between tracks there is no order, and a large message on one holds up the others by one piece
//! ([`PIECE_BYTES`]) at most. The link belongs to two nodes and ends only when its user drops it.
//!
//! Everything is nonblocking and on the thread that calls. A pass of that thread reads the links that the poller found
//! ([`ControlLink::receive`]), sends ([`ControlLink::send`] only queues) and flushes each link once
//! ([`ControlLink::flush`]), which writes all that was queued with as few system calls as there are batches.
//!
//! A connection that fails is dropped by the link, which says why ([`LinkEnd`]) and keeps its sessions; the user attaches
//! the next one ([`ControlLink::attach`]), and both sides go on where the other is. When both nodes dial at once, it is their
//! business to keep one of the two connections, the same on both sides.
//!
//! | file | what |
//! |---|---|
//! | `connection` | one connection: its beginning, reading, joining of pieces |
//! | `outbox` | what is being written: frames side by side, large bodies from where the session keeps them |
//! | `inbox` | what was read: frames, in place |
//! | `message` | the kinds of frames and the beginning of a connection |

mod connection;
pub(crate) mod inbox;
mod message;
mod outbox;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;

use bireme_core::id::NodeId;
use bireme_core::session::{Message, Sent, Session, SessionLimits};
use bireme_core::time::Tick;

use crate::frame::FrameError;
use crate::wire::Wire;
use connection::Connection;

pub use message::{PIECE_BYTES, TRACKS, Track};

/// Why a connection of a link ended. The link lives on and waits for the next one.
#[derive(Debug, thiserror::Error)]
pub enum LinkEnd {
    /// The peer closed it between two frames.
    #[error("the peer closed the connection")]
    Closed,
    /// It ended inside of a frame or a message, or without the goodbye of a protected wire.
    #[error("the connection was cut: it ended in the middle of a message, or without the peer's goodbye")]
    Cut,
    /// The system gave it up: a reset, an unreachable host.
    #[error("the connection failed: {0}")]
    Failed(#[source] io::Error),
    /// What came is no frame.
    #[error(transparent)]
    Damaged(#[from] FrameError),
    /// What came is a frame that makes no sense here.
    #[error("the peer broke the protocol of the link: {0}; it is of another build, or broken")]
    Nonsense(&'static str),
    /// The peer speaks for another node than the link is with, or has lost what this one knows of it.
    #[error("the other end is not the node that this link is with: {0}")]
    Stranger(&'static str),
}

impl LinkEnd {
    pub(crate) fn failed(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Cut } else { Self::Failed(error) }
    }
}

/// The control link of one node with another.
pub struct ControlLink {
    sessions: [Session; TRACKS],
    me: NodeId,
    peer: NodeId,
    connection: Option<Connection>,
}

impl ControlLink {
    /// A link of `me` with `peer` that has no connection. The limits are those of each track.
    pub fn new(me: NodeId, peer: NodeId, limits: SessionLimits) -> Self {
        let sessions = std::array::from_fn(|_| Session::new(me, peer, limits));
        Self { sessions, me, peer, connection: None }
    }

    /// The node at the other end.
    pub fn peer(&self) -> NodeId {
        self.peer
    }

    /// Goes on over a connection, in place of the present one if there is one.
    pub fn attach(&mut self, wire: Box<dyn Wire>) -> Result<(), LinkEnd> {
        self.detach();
        let expected = std::array::from_fn(|track| self.sessions[track].next_expected());
        let beginning = message::Beginning { from: self.me, to: self.peer, expected };
        self.connection = Some(Connection::begin(wire, beginning)?);
        Ok(())
    }

    /// Drops the connection; messages wait for the next one.
    pub fn detach(&mut self) {
        self.connection = None;
        self.sessions.iter_mut().for_each(Session::disconnected);
    }

    /// The socket to wait on, if there is one.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(Connection::socket)
    }

    /// Whether both sides have begun on the present connection.
    pub fn is_open(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::has_begun)
    }

    /// Queues a message; [`flush`](ControlLink::flush) writes it.
    #[inline]
    pub fn send(&mut self, track: Track, message: impl Into<Message>) -> Sent {
        self.sessions[track.index()].send(message)
    }

    /// Writes what can be written, acknowledgements that are due among it.
    #[inline]
    pub fn flush(&mut self, now: Tick) -> Result<(), LinkEnd> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let written = connection.write(&mut self.sessions, now);
        self.keep(written)
    }

    /// The poller says that there is room: writes on.
    pub fn writable(&mut self, now: Tick) -> Result<(), LinkEnd> {
        if let Some(connection) = &mut self.connection {
            connection.unblock();
        }
        self.flush(now)
    }

    /// Reads what is there and hands over the messages in it. True: there may be more, which was left for the sake of
    /// other links. Call again before sleeping: of bytes that an encrypted wire holds already, no poller tells.
    #[inline]
    pub fn receive(&mut self, now: Tick, deliver: impl FnMut(Track, &[u8])) -> Result<bool, LinkEnd> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let read = connection.read(&mut self.sessions, now, deliver);
        self.keep(read)
    }

    /// Whether to wait for room to write: a write was refused, and something is left.
    #[inline]
    pub fn wants_write(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::wants_write)
    }

    /// When to flush at the latest: an acknowledgement is due.
    pub fn deadline(&self) -> Option<Tick> {
        self.sessions.iter().filter_map(Session::deadline).min()
    }

    /// Bytes that wait to be written.
    pub fn queued_bytes(&self) -> usize {
        let waiting: usize = self.sessions.iter().map(Session::waiting_bytes).sum();
        waiting + self.connection.as_ref().map_or(0, |connection| connection.queued_bytes(&self.sessions))
    }

    /// Bytes of all messages that the peer has not acknowledged, queued ones included.
    pub fn kept_bytes(&self) -> usize {
        self.sessions.iter().map(Session::kept_bytes).sum()
    }

    /// The same of one track.
    pub fn kept_bytes_on(&self, track: Track) -> usize {
        self.sessions[track.index()].kept_bytes()
    }

    /// Whether a track waits for the peer: its window is full, or there is no connection.
    pub fn is_stalled(&self) -> bool {
        self.sessions.iter().any(Session::is_stalled)
    }

    /// A connection that has ended is of no use any more.
    fn keep<T>(&mut self, outcome: Result<T, LinkEnd>) -> Result<T, LinkEnd> {
        if outcome.is_err() {
            self.detach();
        }
        outcome
    }
}
