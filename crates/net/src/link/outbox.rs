//! What a connection is about to write.
//!
//! Headers, stamps and small messages are copied side by side, since one slice of many frames costs the kernel less than
//! a slice for each. Large bodies stay where the session keeps them, and are written from there. A batch is made when the
//! last one is written, and has one piece of a large message per track: what is sent meanwhile waits for that one piece.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use bireme_core::session::{Message, Session, Stamp};
use bireme_core::time::Tick;

use super::message::{Kind, PIECE_BYTES, TRACKS, Track, What};
use crate::frame::{HEADER_BYTES, Header};

/// Bytes of a batch, more or less: the last frame may go over it.
const BATCH_BYTES: usize = 256 << 10;
/// Slices of one write.
const SLICES_MAX: usize = 64;
/// Of these, a frame needs so many: its header, and up to four pieces of a message.
const SLICES_PER_FRAME: usize = 5;
/// Bodies up to this are copied.
const COPIED_BYTES_MAX: usize = 4 << 10;

enum Segment {
    /// The next bytes of `staged`.
    Staged(usize),
    /// Bytes of a message that the session keeps.
    Kept { track: Track, sequence: u64, from: usize, to: usize },
}

impl Segment {
    fn len(&self) -> usize {
        match self {
            Segment::Staged(len) => *len,
            Segment::Kept { from, to, .. } => to - from,
        }
    }
}

/// How far a large message has been put into batches.
#[derive(Clone, Copy)]
struct Cursor {
    stamp: Stamp,
    next: usize,
}

pub(super) struct Outbox {
    /// Whether frames have a crc.
    has_crc: bool,
    staged: Vec<u8>,
    /// Where the first unwritten byte of `staged` is.
    staged_from: usize,
    segments: VecDeque<Segment>,
    queued: usize,
    cursors: [Option<Cursor>; TRACKS],
    /// The track that the next batch begins with.
    turn: usize,
}

impl Outbox {
    /// One whose frames have a crc, or not.
    pub(super) fn new(has_crc: bool) -> Self {
        let (segments, cursors) = (VecDeque::new(), [None; TRACKS]);
        Self { has_crc, staged: Vec::new(), staged_from: 0, segments, queued: 0, cursors, turn: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes of the present batch that are not written, and those of large messages that are in no batch yet.
    pub(super) fn queued_bytes(&self, sessions: &[Session; TRACKS]) -> usize {
        let rest = |(session, cursor): (&Session, &Option<Cursor>)| {
            cursor.and_then(|cursor| Some(session.message(cursor.stamp.sequence)?.len() - cursor.next)).unwrap_or(0)
        };
        self.queued + sessions.iter().zip(&self.cursors).map(rest).sum::<usize>()
    }

    /// Makes the next batch; the last one is written.
    #[inline]
    pub(super) fn fill(&mut self, sessions: &mut [Session; TRACKS], now: Tick) {
        debug_assert!(self.is_empty(), "a batch is made when the last one is written");
        let first = self.turn;
        self.turn = (first + 1) % TRACKS;
        for index in (first..TRACKS).chain(0..first) {
            if let Some(track) = Track::new(index) {
                self.fill_from(track, &mut sessions[index]);
            }
        }
        for (index, session) in sessions.iter_mut().enumerate() {
            if let (Some(track), Some(stamp)) = (Track::new(index), session.acknowledgement(now)) {
                let (kind, stamped) = (Kind::Of(track, What::Acknowledgement), stamp.to_bytes());
                self.copy(&[&self.header(kind, &[&stamped]), &stamped]);
            }
        }
    }

    /// What one track adds to a batch: its share of bytes, or one piece.
    #[inline]
    fn fill_from(&mut self, track: Track, session: &mut Session) {
        let before = self.queued;
        while self.queued - before < BATCH_BYTES / TRACKS && self.segments.len() + SLICES_PER_FRAME < SLICES_MAX {
            let cursor = match self.cursors[track.index()] {
                Some(cursor) => cursor,
                None => match session.hand_over() {
                    Some(stamp) => Cursor { stamp, next: 0 },
                    None => return,
                },
            };
            // Kept until the peer has it, which it has not before it is written. A peer that says otherwise in the
            // middle of a message ends the connection over the rest of it.
            let Some(message) = session.message(cursor.stamp.sequence) else {
                self.cursors[track.index()] = None;
                continue;
            };
            let len = message.len();
            if len <= PIECE_BYTES {
                self.stage_kept(track, What::Whole, cursor.stamp, message, 0..len);
                continue;
            }
            let end = len.min(cursor.next + PIECE_BYTES);
            let last = end == len;
            let what = if last { What::LastPiece } else { What::Piece };
            self.cursors[track.index()] = (!last).then_some(Cursor { stamp: cursor.stamp, next: end });
            self.stage_kept(track, what, cursor.stamp, message, cursor.next..end);
            return;
        }
    }

    /// Adds a frame with a part of a kept message, piece by piece.
    #[inline]
    fn stage_kept(&mut self, track: Track, what: What, stamp: Stamp, message: &Message, part: Range<usize>) {
        let (kind, stamped) = (Kind::Of(track, what), stamp.to_bytes());
        let inside = |at: usize| at.clamp(part.start, part.end);
        let places = message.pieces().map(|piece| inside(piece.start)..inside(piece.end));
        let [before, value, behind, own] = places.clone().map(|place| message.within_piece(place));
        let header = self.header(kind, &[&stamped, before, value, behind, own]);
        if part.len() <= COPIED_BYTES_MAX {
            return self.copy(&[&header, &stamped, before, value, behind, own]);
        }
        self.copy(&[&header, &stamped]);
        for (place, bytes) in places.into_iter().zip([before, value, behind, own]) {
            if bytes.len() <= COPIED_BYTES_MAX {
                self.copy(&[bytes]);
            } else {
                self.queued += bytes.len();
                let (from, to) = (place.start, place.end);
                self.segments.push_back(Segment::Kept { track, sequence: stamp.sequence, from, to });
            }
        }
    }

    /// The header of a frame.
    #[inline]
    pub(super) fn header(&self, kind: Kind, body: &[&[u8]]) -> [u8; HEADER_BYTES] {
        let make = if self.has_crc { Header::of } else { Header::without_crc };
        make(kind.number(), body).encode()
    }

    /// Adds bytes by copying them.
    #[inline]
    pub(super) fn copy(&mut self, parts: &[&[u8]]) {
        let before = self.staged.len();
        parts.iter().for_each(|part| self.staged.extend_from_slice(part));
        let added = self.staged.len() - before;
        self.queued += added;
        match self.segments.back_mut() {
            Some(Segment::Staged(len)) => *len += added,
            _ => self.segments.push_back(Segment::Staged(added)),
        }
    }

    /// Calls `write` with the unwritten bytes of the batch.
    #[inline]
    pub(super) fn with_slices<T>(&self, sessions: &[Session; TRACKS], write: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        let mut staged = self.staged_from;
        for (slot, segment) in slices.iter_mut().zip(&self.segments) {
            let bytes = match segment {
                Segment::Staged(len) => {
                    staged += len;
                    Some(&self.staged[staged - len..staged])
                }
                Segment::Kept { track, sequence, from, to } => {
                    sessions[track.index()].message(*sequence).map(|message| message.within_piece(*from..*to))
                }
            };
            // Nothing after what is missing may be written.
            let Some(bytes) = bytes else { break };
            *slot = IoSlice::new(bytes);
            count += 1;
        }
        write(&slices[..count])
    }

    /// So many bytes were written.
    #[inline]
    pub(super) fn written(&mut self, mut count: usize) {
        self.queued -= count;
        while let Some(segment) = self.segments.front_mut() {
            let taken = count.min(segment.len());
            count -= taken;
            match segment {
                Segment::Staged(len) => {
                    *len -= taken;
                    self.staged_from += taken;
                }
                Segment::Kept { from, .. } => *from += taken,
            }
            if segment.len() > 0 {
                return;
            }
            self.segments.pop_front();
        }
        self.staged.clear();
        self.staged_from = 0;
    }
}
