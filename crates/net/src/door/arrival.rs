//! Somebody who is known and has said what it wants, and waits for an answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::refusals::Refusals;
use super::slots::Slot;
use crate::frame::{FrameKind, write_frame};
use crate::hello::{Greeting, Hello, Purpose, Welcome, encode_reason};
use crate::tls::{PeerIdentity, Side, TlsWire};
use crate::wire::{PlainWire, Wire};

/// A wire that still has to be trusted.
pub(super) enum Line {
    Plain(PlainWire),
    Tls(Box<TlsWire>),
}

impl Line {
    pub(super) fn wire(&mut self) -> &mut dyn Wire {
        match self {
            Line::Plain(wire) => wire,
            Line::Tls(wire) => &mut **wire,
        }
    }

    /// This side's end of the connection.
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        let fd = match self {
            Line::Plain(wire) => wire.raw_fd(),
            Line::Tls(wire) => wire.raw_fd(),
        };
        SocketAddr::try_from(rustix::net::getsockname(fd)?).map_err(io::Error::from)
    }

    pub(super) fn peer_addr(&self) -> SocketAddr {
        match self {
            Line::Plain(wire) => wire.peer_addr(),
            Line::Tls(wire) => wire.peer_addr(),
        }
    }

    pub(super) fn identity(&self) -> Option<PeerIdentity> {
        match self {
            Line::Plain(_) => None,
            Line::Tls(wire) => wire.identity(),
        }
    }

    /// The wire without the bounds of a newcomer, which has said what it is for.
    pub(super) fn trust(self, purpose: &Purpose, side: Side) -> io::Result<Box<dyn Wire>> {
        match self {
            Line::Plain(mut wire) => wire.trust().map(|()| Box::new(wire) as Box<dyn Wire>),
            Line::Tls(wire) if matches!(purpose, Purpose::Bulk { encrypted: false, .. }) => {
                let mut wire = wire.without_encryption(side)?;
                wire.trust().map(|()| Box::new(wire) as Box<dyn Wire>)
            }
            Line::Tls(mut wire) => wire.trust().map(|()| wire as Box<dyn Wire>),
        }
    }

    /// Reads on for a moment what the other side has still to say, so that it hears why: closing a connection with
    /// unread bytes takes back what was sent.
    pub(super) fn linger(&mut self) {
        match self {
            Line::Plain(wire) => wire.linger(),
            Line::Tls(wire) => wire.linger(),
        }
    }

    /// Says no in words, as far as the other side listens.
    pub(super) fn refuse(&mut self, reason: &str) {
        self.say_no(FrameKind::REFUSED, reason);
    }

    fn say_no(&mut self, kind: FrameKind, reason: &str) {
        // Who does not read it has no use for it either.
        let _ = write_frame(self.wire(), kind, encode_reason(reason));
    }
}

/// Somebody at the door. Dropped without an answer, it is refused.
///
/// It keeps its place among the newcomers until it is answered, and the other side waits only for seconds.
#[must_use = "dropped, it is refused"]
pub struct Arrival {
    /// What it said.
    pub hello: Hello,
    /// Who it is by its certificate; none where the door has no lock.
    pub peer: Option<PeerIdentity>,
    /// From where it came.
    pub address: SocketAddr,
    pending: Option<(Line, Slot)>,
    refusals: Arc<Refusals>,
}

impl Arrival {
    pub(super) fn new(hello: Hello, line: Line, slot: Slot, address: SocketAddr, refusals: Arc<Refusals>) -> Self {
        Self { hello, peer: line.identity(), address, pending: Some((line, slot)), refusals }
    }

    /// Lets it in: says so, and gives the wire, which blocks.
    pub fn welcome(mut self, welcome: &Welcome) -> io::Result<Box<dyn Wire>> {
        let body = welcome.encode().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let (mut line, _slot) = self.pending.take().expect("an arrival is answered once, and this consumes it");
        write_frame(line.wire(), Welcome::KIND, &body)?;
        line.trust(&self.hello.purpose, Side::Door)
    }

    /// Says no, in words that the people at the other end read. It may come again.
    pub fn refuse(mut self, reason: &str) {
        self.say_no(FrameKind::REFUSED, reason);
    }

    /// Says no for good: what it wants it will never have.
    pub fn dismiss(mut self, reason: &str) {
        self.say_no(FrameKind::DISMISSED, reason);
    }

    fn say_no(&mut self, kind: FrameKind, reason: &str) {
        if let Some((mut line, _slot)) = self.pending.take() {
            self.refusals.refuse(self.address, reason);
            line.say_no(kind, reason);
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.say_no(FrameKind::REFUSED, "the node is ending or too busy to answer: try again");
    }
}
