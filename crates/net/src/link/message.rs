//! The frames of a control link.
//!
//! A connection begins with one frame of each side that says who it is and which message it expects next on each track.
//! Then come messages, each with a stamp of its session, whole or in pieces, and acknowledgements.

use bireme_core::id::NodeId;

use crate::frame::FrameKind;

/// How many tracks a link has.
pub const TRACKS: usize = 4;
/// The bytes of one piece of a large message: what a small one on another track waits for, at most.
pub const PIECE_BYTES: usize = 64 << 10;

/// One of the tracks of a link: messages of one track are delivered in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Track(u8);

impl Track {
    /// The first track.
    pub const FIRST: Self = Self(0);

    /// The last track.
    pub const LAST: Self = Self(TRACKS as u8 - 1);

    /// The track with this number, unless there are fewer.
    pub const fn new(index: usize) -> Option<Self> {
        if index < TRACKS { Some(Self(index as u8)) } else { None }
    }

    /// Its number.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

const BEGINNING: FrameKind = FrameKind(FrameKind::FIRST_FREE);
/// Where the kinds of the first track begin; each track has as many as [`What`] has.
const FIRST_OF_TRACKS: u16 = FrameKind::FIRST_FREE + 16;
const KINDS_PER_TRACK: u16 = 4;

/// What a frame of a track is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A message in one frame.
    Whole,
    /// The next piece of a message.
    Piece,
    /// Its last piece.
    LastPiece,
    /// Nothing but an acknowledgement.
    Acknowledgement,
}

/// A kind of frame that a link knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Beginning,
    Of(Track, What),
}

impl Kind {
    #[inline]
    pub(super) fn number(self) -> FrameKind {
        match self {
            Kind::Beginning => BEGINNING,
            Kind::Of(track, what) => FrameKind(FIRST_OF_TRACKS + KINDS_PER_TRACK * track.index() as u16 + what as u16),
        }
    }

    #[inline]
    pub(super) fn from_number(number: FrameKind) -> Option<Self> {
        if number == BEGINNING {
            return Some(Kind::Beginning);
        }
        let place = number.0.checked_sub(FIRST_OF_TRACKS)?;
        let track = Track::new(usize::from(place / KINDS_PER_TRACK))?;
        let what = match place % KINDS_PER_TRACK {
            0 => What::Whole,
            1 => What::Piece,
            2 => What::LastPiece,
            _ => What::Acknowledgement,
        };
        Some(Kind::Of(track, what))
    }
}

/// The first frame of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    /// The number of the message that its sender expects next, for each track.
    pub(super) expected: [u64; TRACKS],
}

impl Beginning {
    const BYTES: usize = 8 + 8 * TRACKS;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.to.0.to_le_bytes());
        for (place, expected) in bytes[8..].chunks_exact_mut(8).zip(self.expected) {
            place.copy_from_slice(&expected.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (from, rest) = bytes.split_first_chunk()?;
        let (to, rest) = rest.split_first_chunk()?;
        let mut expected = [0; TRACKS];
        for (place, number) in rest.chunks_exact(8).zip(&mut expected) {
            *number = u64::from_le_bytes(place.try_into().ok()?);
        }
        Some(Self { from: NodeId(u32::from_le_bytes(*from)), to: NodeId(u32::from_le_bytes(*to)), expected })
    }
}
