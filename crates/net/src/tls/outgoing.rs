//! The half of a wire that writes: bytes sealed into records from where they lie, and bytes in the clear between them.

use std::io::{self, IoSlice, Write};

use rustls::{AlertDescription, ConnectionTrafficSecrets, Error};

use super::buffer::Buffer;
use super::incoming::{KEY_UPDATE, NOT_REQUESTED, OPEN_BYTES_MAX};
use super::parts::Parts;
use super::record::{CONTENT_BYTES_MAX, Content, HEADER_BYTES, OVERHEAD_BYTES, Renewal, Sealer};
use super::wire::in_words;

/// Parts that are shorter than this share a record, for which they are copied side by side.
pub(super) const SHORT_BYTES: usize = 4 << 10;
/// Bytes that may wait to be sent; what is over that is not accepted. So few that they stay in the cache between their encryption
/// and the system's copy.
const SENDING_BYTES_MAX: usize = 4 * (CONTENT_BYTES_MAX + OVERHEAD_BYTES) + SHORT_BYTES;
/// Bytes of values from so many on go in the clear, where both ends have agreed to that: fewer are encrypted as fast as they are
/// announced.
const OPEN_BYTES_MIN: usize = 16 << 10;
/// Records that are sealed with one key: far fewer than it is good for (2^24.5 of the longest, RFC 8446, section 5.5).
const RECORDS_PER_KEY: u64 = 1 << 22;
const FATAL: u8 = 2;

/// A part that goes in the clear, behind so many bytes of records.
struct Open<'a> {
    at: usize,
    part: &'a [u8],
}

pub(super) struct Outgoing {
    sealer: Sealer,
    pub(super) records_per_key: u64,
    /// The peer wants to see a new key before the next bytes.
    pub(super) owes_key: bool,
    /// Whether bytes of values go in the clear.
    pub(super) leaves_values_open: bool,
    /// What has not left: records, and bytes that go in the clear.
    sending: Buffer,
}

impl Outgoing {
    pub(super) fn new(secrets: (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        Ok(Self {
            sealer: Sealer::new(secrets)?,
            records_per_key: RECORDS_PER_KEY,
            owes_key: false,
            leaves_values_open: false,
            sending: Buffer::new(SENDING_BYTES_MAX + OPEN_BYTES_MAX),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sending.is_empty()
    }

    /// Writes what waits.
    pub(super) fn push(&mut self, socket: &mut impl Write) -> io::Result<()> {
        self.sending.write_to(socket)
    }

    /// Seals and writes, as much as goes at once.
    pub(super) fn write(
        &mut self,
        mut plain: Parts<'_>,
        socket: &mut impl Write,
        renewal: &mut dyn Renewal,
    ) -> io::Result<usize> {
        let mut taken = 0;
        loop {
            match self.push(socket) {
                Ok(()) => {}
                // What was taken goes when there is room.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
            if self.owes_key || self.sealer.sealed() >= self.records_per_key {
                self.renew(renewal).map_err(in_words)?;
            }
            let (sealed, open) = self.seal_some(&mut plain).map_err(in_words)?;
            if sealed == 0 {
                return Ok(taken);
            }
            taken += sealed;
            if let Some(open) = open {
                self.push_around(open, socket)?;
            }
        }
    }

    /// Tells the peer why this end listens no more, if there is room for it.
    pub(super) fn alert(&mut self, why: AlertDescription, socket: &mut impl Write) {
        if self.sending.is_empty() && self.seal(Content::Alert, &[FATAL, u8::from(why)]).is_ok() {
            // It may not listen either.
            let _ = self.push(socket);
        }
    }

    /// From the next record on another key is used, and the peer is told.
    fn renew(&mut self, renewal: &mut dyn Renewal) -> Result<(), Error> {
        let [kind, a, b, len] = KEY_UPDATE;
        self.seal(Content::Handshake, &[kind, a, b, len, NOT_REQUESTED])?;
        self.sealer = Sealer::new(renewal.next_sending()?)?;
        self.owes_key = false;
        Ok(())
    }

    fn seal(&mut self, content: Content, plain: &[u8]) -> Result<(), Error> {
        let sealed = self.sealer.seal(content, plain, self.sending.room())?;
        self.sending.filled(sealed);
        Ok(())
    }

    /// Makes records of bytes, as far as there is room, around one part that goes in the clear: of how many, and where that part
    /// belongs between the records.
    fn seal_some<'a>(&mut self, plain: &mut Parts<'a>) -> Result<(usize, Option<Open<'a>>), Error> {
        let (mut taken, mut open) = (0, None);
        loop {
            let left = SENDING_BYTES_MAX.saturating_sub(self.sending.waiting().len());
            let content_max = left.saturating_sub(OVERHEAD_BYTES).min(CONTENT_BYTES_MAX);
            let first = plain.first();
            if self.leaves_values_open && plain.is_value() && first.len() >= OPEN_BYTES_MIN {
                if open.is_some() || content_max < size_of::<u32>() {
                    return Ok((taken, open));
                }
                let part = &first[..first.len().min(OPEN_BYTES_MAX)];
                self.seal(Content::Open, &(part.len() as u32).to_be_bytes())?;
                open = Some(Open { at: self.sending.waiting().len(), part });
                plain.advance(part.len());
                taken += part.len();
                continue;
            }
            // The rest of a part is not cut into short records at the end of the room: it has a whole one next time.
            if first.is_empty() || content_max < first.len().min(CONTENT_BYTES_MAX) {
                return Ok((taken, open));
            }
            let room = self.sending.room();
            let sealed = if first.len() >= SHORT_BYTES || plain.is_last() {
                let len = first.len().min(content_max);
                self.sealer.seal(Content::Data, &first[..len], room)?;
                plain.advance(len);
                len
            } else {
                let len = plain.gather(&mut room[HEADER_BYTES..HEADER_BYTES + content_max]);
                self.sealer.seal_in_place(Content::Data, len, room)?;
                len
            };
            self.sending.filled(sealed + OVERHEAD_BYTES);
            taken += sealed;
        }
    }

    /// Writes what waits with a part in the clear in its midst, once. What does not go waits.
    fn push_around(&mut self, Open { at, part }: Open<'_>, socket: &mut impl Write) -> io::Result<()> {
        let records = self.sending.waiting().len();
        let (before, behind) = self.sending.waiting().split_at(at);
        let written = match socket.write_vectored(&[before, part, behind].map(IoSlice::new)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(error) => return Err(error),
        };
        if written == records + part.len() {
            self.sending.consume(records);
        } else {
            self.sending.insert(at, part);
            self.sending.consume(written);
        }
        Ok(())
    }
}
