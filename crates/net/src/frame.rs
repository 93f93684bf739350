//! The frame of the wire: a header of twelve bytes, then the body.
//!
//! ```text
//! u32 length of the body | u16 wire version | u16 kind | u32 crc of the body      all little-endian
//! ```
//!
//! The header is apart from the body, so that `writev` sends both without a copy. The length is compared with a bound
//! of the reader's choice before anything is allocated for it. The version is in every header and its place never
//! changes, so that two nodes of different versions can always say so to each other.
//!
//! TCP's own checksum misses about one damaged segment in 65,536; the crc is for that, and for bugs. Against forgery
//! there is TLS, which finds all of that too: control links over it leave the crc out (zero).

use std::io;

use crate::wire::{Wire, read_exact, write_all};

#[cfg(test)]
mod tests;

/// The version of everything that nodes say to each other. It changes when any of it does.
pub const WIRE_VERSION: u16 = 4;

/// Bytes of a frame before its body.
pub const HEADER_BYTES: usize = 12;

/// The largest body of a frame that any reader accepts; most accept less.
pub const FRAME_BODY_BYTES_MAX: usize = 64 << 20;

/// How many bytes a decoder reads from its wire at a time.
const READ_BYTES: usize = 64 << 10;

/// How much room it keeps when nothing is in it.
const ROOM_KEPT_BYTES: usize = 4 * READ_BYTES;

/// What is in a frame. Numbers below [`FrameKind::FIRST_FREE`] are the door's, the others are its users'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameKind(pub u16);

impl FrameKind {
    /// The first word of the side that dialled.
    pub const HELLO: FrameKind = FrameKind(1);
    /// The answer to a hello: come in.
    pub const WELCOME: FrameKind = FrameKind(2);
    /// The answer to a hello: no, with the reason as text. This frame is the same in all versions.
    pub const REFUSED: FrameKind = FrameKind(3);
    /// The answer to a hello: no, and that will not change, with the reason as text.
    pub const DISMISSED: FrameKind = FrameKind(7);
    /// The answer to an enrolment: a certificate.
    pub const ENROLLED: FrameKind = FrameKind(4);
    /// The first frame on a loopback connection: prove that you belong to the user who asks.
    pub const CHALLENGE: FrameKind = FrameKind(5);
    /// The answer to a challenge, and the answer to that.
    pub const PROOF: FrameKind = FrameKind(6);
    /// Kinds from here on mean what the users of a link say.
    pub const FIRST_FREE: u16 = 16;
}

/// Why bytes are no frame. Nothing after it on the same wire can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length in the header is above the reader's bound.
    #[error("a frame of {length} bytes, of which at most {length_max} are taken: the peer is broken or no node")]
    TooLong {
        /// The length that was asked for.
        length: u32,
        /// The reader's bound.
        length_max: u32,
    },
    /// The other side speaks another version.
    #[error(
        "the peer speaks wire version {theirs}, this side {WIRE_VERSION}: install the same version of bireme on both"
    )]
    Version {
        /// The version in the header.
        theirs: u16,
    },
    /// The body is not what was sent.
    #[error("a frame of kind {} was damaged on its way (crc {found:#010x}, expected {expected:#010x})", kind.0)]
    Damaged {
        /// The kind in the header.
        kind: FrameKind,
        /// The crc of the body that came.
        found: u32,
        /// The crc in the header.
        expected: u32,
    },
}

/// The twelve bytes before a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the body.
    pub length: u32,
    /// The wire version of the sender.
    pub version: u16,
    /// What the body is.
    pub kind: FrameKind,
    /// The crc of the body; zero where nobody looks at it.
    pub crc: u32,
}

impl Header {
    /// The header of a body that lies in one piece or several.
    ///
    /// # Panics
    /// When the body is larger than [`FRAME_BODY_BYTES_MAX`]: whoever makes frames bounds them.
    pub fn of(kind: FrameKind, body: &[&[u8]]) -> Self {
        Self { crc: crc_of(body), ..Self::without_crc(kind, body) }
    }

    /// The same for a wire that sees to it that bodies arrive as they were.
    ///
    /// # Panics
    /// As [`Header::of`].
    pub fn without_crc(kind: FrameKind, body: &[&[u8]]) -> Self {
        let length: usize = body.iter().map(|part| part.len()).sum();
        assert!(length <= FRAME_BODY_BYTES_MAX, "a frame of {length} bytes is more than any reader accepts");
        Self { length: length as u32, version: WIRE_VERSION, kind, crc: 0 }
    }

    /// The bytes to send before the body.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.version.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.kind.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// Takes a header apart. Any twelve bytes are one: [`Header::check`] says whether to go on.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
        Self {
            length: u32::from_le_bytes([a, b, c, d]),
            version: u16::from_le_bytes([e, f]),
            kind: FrameKind(u16::from_le_bytes([g, h])),
            crc: u32::from_le_bytes([i, j, k, l]),
        }
    }

    /// Whether a body may be read, before anything is allocated for it. A refusal is read from every version.
    pub fn check(&self, body_bytes_max: usize) -> Result<(), FrameError> {
        let length_max = body_bytes_max.min(FRAME_BODY_BYTES_MAX) as u32;
        if self.version != WIRE_VERSION && self.kind != FrameKind::REFUSED {
            return Err(FrameError::Version { theirs: self.version });
        }
        if self.length > length_max {
            return Err(FrameError::TooLong { length: self.length, length_max });
        }
        Ok(())
    }

    /// Whether the body is the one that was sent.
    pub fn check_body(&self, body: &[u8]) -> Result<(), FrameError> {
        let found = crc32fast::hash(body);
        if found == self.crc {
            return Ok(());
        }
        Err(FrameError::Damaged { kind: self.kind, found, expected: self.crc })
    }
}

fn crc_of(body: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in body {
        hasher.update(part);
    }
    hasher.finalize()
}

/// A frame that has come whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What the body is.
    pub kind: FrameKind,
    /// Its bytes.
    pub body: &'a [u8],
}

/// Makes frames of bytes that come in pieces of any size.
///
/// It holds at most one frame that is not whole and what came after it in the same piece; memory is taken as bytes
/// come, not as a header promises them. After an error it gives nothing but that error.
#[derive(Debug)]
pub struct Decoder {
    /// Room, of which `start..end` has come and was not handed out. The rest is kept as it is: clearing it for each
    /// read would cost more than a small frame does.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    body_bytes_max: usize,
    failed: Option<FrameError>,
}

impl Decoder {
    /// A decoder of frames with bodies up to a bound, at most [`FRAME_BODY_BYTES_MAX`].
    pub fn new(body_bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, body_bytes_max, failed: None }
    }

    /// Takes bytes as they come.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Takes what one read of the wire gives: the number of bytes, zero at the end of the stream.
    pub fn fill(&mut self, wire: &mut dyn Wire) -> io::Result<usize> {
        self.make_room(READ_BYTES);
        let read = wire.read(&mut self.bytes[self.end..])?;
        self.end += read;
        Ok(read)
    }

    /// The next whole frame, if there is one. To be called until there is none before more bytes are taken.
    #[expect(clippy::should_implement_trait, reason = "a frame borrows from the decoder, which no iterator allows")]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.whole() {
            Ok(None) => Ok(None),
            Ok(Some((kind, end))) => {
                let body = &self.bytes[self.start + HEADER_BYTES..end];
                self.start = end;
                Ok(Some(Frame { kind, body }))
            }
            Err(error) => {
                self.bytes = Vec::new();
                (self.start, self.end) = (0, 0);
                Err(self.failed.insert(error).clone())
            }
        }
    }

    /// Bytes that came and are in no frame yet.
    pub fn pending_bytes(&self) -> usize {
        self.end - self.start
    }

    /// The kind of the first frame and where it ends, when all of it is there.
    fn whole(&self) -> Result<Option<(FrameKind, usize)>, FrameError> {
        let come = &self.bytes[self.start..self.end];
        let Some((header, rest)) = come.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(header);
        header.check(self.body_bytes_max)?;
        let Some(body) = rest.get(..header.length as usize) else { return Ok(None) };
        header.check_body(body)?;
        Ok(Some((header.kind, self.start + HEADER_BYTES + body.len())))
    }

    /// Room for so many bytes at the end, first that of the frames that were handed out.
    fn make_room(&mut self, wanted: usize) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > ROOM_KEPT_BYTES {
                // One large frame long ago is no reason to keep its room.
                self.bytes = Vec::new();
            }
        }
        if self.bytes.len() - self.end >= wanted {
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.bytes.len() - self.end < wanted {
            self.bytes.resize(self.end + wanted, 0);
        }
    }
}

/// Why a frame could not be read from a wire that blocks.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The wire failed or ended.
    #[error(transparent)]
    Wire(#[from] io::Error),
    /// What came is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// Writes one frame to a wire that blocks.
pub fn write_frame(wire: &mut dyn Wire, kind: FrameKind, body: &[u8]) -> io::Result<()> {
    write_all(wire, &[&Header::of(kind, &[body]).encode(), body])
}

/// Reads one frame from a wire that blocks, and no byte after it.
pub fn read_frame(wire: &mut dyn Wire, body_bytes_max: usize) -> Result<(FrameKind, Vec<u8>), ReadError> {
    let mut bytes = [0; HEADER_BYTES];
    read_exact(wire, &mut bytes)?;
    let header = Header::decode(&bytes);
    header.check(body_bytes_max)?;
    let mut body = vec![0; header.length as usize];
    read_exact(wire, &mut body)?;
    header.check_body(&body)?;
    Ok((header.kind, body))
}
