//! One connection of a control link: how it begins, what is read from it and written to it.

use std::io::ErrorKind;
use std::os::fd::BorrowedFd;

use bireme_core::id::NodeId;
use bireme_core::session::{Receipt, Resumed, Session, Stamp};
use bireme_core::time::Tick;

use super::LinkEnd;
use super::inbox::Inbox;
use super::message::{Beginning, Kind, PIECE_BYTES, TRACKS, Track, What};
use super::outbox::Outbox;
use crate::frame::Frame;
use crate::wire::Wire;

/// The longest body of a frame: a piece and its stamp.
const BODY_BYTES_MAX: usize = PIECE_BYTES + Stamp::BYTES;
/// Reads of one turn; then other links have theirs.
const READS_MAX: usize = 8;
/// Room for joining that is kept for the next large message.
const JOIN_ROOM_MAX: usize = 1 << 20;

/// The large message of a track that is being joined.
#[derive(Default)]
struct Join {
    sequence: u64,
    bytes: Vec<u8>,
}

pub(super) struct Connection {
    wire: Box<dyn Wire>,
    me: NodeId,
    peer: NodeId,
    outbox: Outbox,
    /// The last write was refused: the next one waits for room.
    is_blocked: bool,
    inbox: Inbox,
    joins: [Join; TRACKS],
    has_begun: bool,
}

impl Connection {
    /// Takes over a wire; the beginning goes out with the first write.
    pub(super) fn begin(wire: Box<dyn Wire>, beginning: Beginning) -> Result<Self, LinkEnd> {
        wire.set_nonblocking(true).map_err(LinkEnd::failed)?;
        // A tag finds more than a crc does.
        let has_crc = !wire.is_protected();
        let mut outbox = Outbox::new(has_crc);
        let body = beginning.to_bytes();
        outbox.copy(&[&outbox.header(Kind::Beginning, &[&body]), &body]);
        Ok(Self {
            wire,
            me: beginning.from,
            peer: beginning.to,
            outbox,
            is_blocked: false,
            inbox: Inbox::new(BODY_BYTES_MAX).with_crc(has_crc),
            joins: Default::default(),
            has_begun: false,
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.wire.raw_fd()
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(super) fn unblock(&mut self) {
        self.is_blocked = false;
    }

    pub(super) fn wants_write(&self) -> bool {
        self.is_blocked || self.wire.wants_write()
    }

    pub(super) fn queued_bytes(&self, sessions: &[Session; TRACKS]) -> usize {
        self.outbox.queued_bytes(sessions)
    }

    /// Writes until there is nothing more to write or no room.
    #[inline]
    pub(super) fn write(&mut self, sessions: &mut [Session; TRACKS], now: Tick) -> Result<(), LinkEnd> {
        while !self.is_blocked {
            if self.outbox.is_empty() {
                self.outbox.fill(sessions, now);
                if self.outbox.is_empty() {
                    break;
                }
            }
            let Self { outbox, wire, .. } = self;
            match outbox.with_slices(sessions, |slices| wire.write_vectored(slices)) {
                Ok(0) => return Err(LinkEnd::Failed(ErrorKind::WriteZero.into())),
                Ok(written) => {
                    self.outbox.written(written);
                    // A part was taken: the next write would be refused.
                    self.is_blocked = !self.outbox.is_empty();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkEnd::Failed(error)),
            }
        }
        if self.wire.wants_write() {
            match self.wire.flush() {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(LinkEnd::Failed(error)),
            }
        }
        Ok(())
    }

    /// Reads and hands over, for one turn. True: there may be more.
    #[inline]
    pub(super) fn read(
        &mut self,
        sessions: &mut [Session; TRACKS],
        now: Tick,
        mut deliver: impl FnMut(Track, &[u8]),
    ) -> Result<bool, LinkEnd> {
        for _ in 0..READS_MAX {
            let room = self.inbox.room();
            let size = room.len();
            match self.wire.read(room) {
                Ok(0) => return Err(self.ended()),
                Ok(count) => {
                    self.inbox.filled(count);
                    self.take_frames(sessions, now, &mut deliver)?;
                    // The socket is empty, or as good as: it says so when it is not.
                    if count < size && !self.wire.has_buffered() {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkEnd::failed(error)),
            }
        }
        Ok(true)
    }

    fn ended(&self) -> LinkEnd {
        let joining = self.joins.iter().any(|join| !join.bytes.is_empty());
        if joining || self.inbox.is_inside_a_frame() { LinkEnd::Cut } else { LinkEnd::Closed }
    }

    fn take_frames(
        &mut self,
        sessions: &mut [Session; TRACKS],
        now: Tick,
        deliver: &mut impl FnMut(Track, &[u8]),
    ) -> Result<(), LinkEnd> {
        while let Some(frame) = self.inbox.next_frame()? {
            match Kind::from_number(frame.kind) {
                Some(Kind::Of(track, what)) if self.has_begun => {
                    let (session, join) = (&mut sessions[track.index()], &mut self.joins[track.index()]);
                    take(track, what, frame, session, join, now, deliver)?;
                }
                Some(Kind::Beginning) if !self.has_begun => {
                    let beginning = Beginning::from_bytes(frame.body).ok_or(LinkEnd::Nonsense("a short beginning"))?;
                    if (beginning.from, beginning.to) != (self.peer, self.me) {
                        return Err(LinkEnd::Stranger("it begins with other node numbers"));
                    }
                    resume(sessions, beginning.expected)?;
                    self.has_begun = true;
                }
                Some(_) => return Err(LinkEnd::Nonsense("it does not begin with one beginning")),
                None => return Err(LinkEnd::Nonsense("an unknown kind of frame")),
            }
        }
        Ok(())
    }
}

fn resume(sessions: &mut [Session; TRACKS], expected: [u64; TRACKS]) -> Result<(), LinkEnd> {
    for (session, expected) in sessions.iter_mut().zip(expected) {
        if session.connected(expected) == Resumed::Impossible {
            return Err(LinkEnd::Stranger("it expects messages that it has, or that were never sent"));
        }
    }
    Ok(())
}

/// One frame of a track.
#[inline]
fn take(
    track: Track,
    what: What,
    frame: Frame<'_>,
    session: &mut Session,
    join: &mut Join,
    now: Tick,
    deliver: &mut impl FnMut(Track, &[u8]),
) -> Result<(), LinkEnd> {
    let (stamp, bytes) = Stamp::split_from(frame.body).ok_or(LinkEnd::Nonsense("a frame without a stamp"))?;
    match what {
        What::Whole if join.bytes.is_empty() => receive(track, session, stamp, bytes, now, deliver),
        What::Acknowledgement if stamp.sequence == 0 => receive(track, session, stamp, &[], now, deliver),
        What::Piece | What::LastPiece if join.bytes.is_empty() || join.sequence == stamp.sequence => {
            if join.bytes.len() + bytes.len() > session.message_bytes_max() {
                return Err(LinkEnd::Nonsense("a message over the bound"));
            }
            join.sequence = stamp.sequence;
            join.bytes.extend_from_slice(bytes);
            if what == What::LastPiece {
                receive(track, session, stamp, &join.bytes, now, deliver)?;
                join.bytes.clear();
                join.bytes.shrink_to(JOIN_ROOM_MAX);
            }
            Ok(())
        }
        _ => Err(LinkEnd::Nonsense("pieces of two messages among each other")),
    }
}

#[inline]
fn receive(
    track: Track,
    session: &mut Session,
    stamp: Stamp,
    bytes: &[u8],
    now: Tick,
    deliver: &mut impl FnMut(Track, &[u8]),
) -> Result<(), LinkEnd> {
    match session.received(stamp, bytes.len(), now) {
        Receipt::Deliver => deliver(track, bytes),
        Receipt::Nothing => {}
        Receipt::Gap => return Err(LinkEnd::Nonsense("a message is missing")),
        Receipt::Foreign => return Err(LinkEnd::Stranger("a frame of another pair of nodes")),
    }
    Ok(())
}
