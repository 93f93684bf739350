//! Bytes that everybody on the way can read and nobody can change: bulk streams where encryption is switched off.
//!
//! The connection begins as TLS, with certificates and hello. Then both ends take keys from that session (its exporter, RFC 8446,
//! section 7.5), one for each direction, and go on without encryption, in blocks with a tag:
//!
//! ```text
//! u32 length of the bytes, little-endian | bytes | 16 bytes of tag
//! ```
//!
//! The tag is AES-256-GMAC (NIST SP 800-38D: GCM of no plaintext, with the bytes as additional data), whose nonce is the number of
//! the block. So a block that is changed, left out, repeated, exchanged or of another stream is refused, and no byte of it is
//! handed out before. A block without bytes is the goodbye: a stream that ends without it was cut ([`crate::wire::cut`]).
//!
//! Neither end may read what the other says in one way as if it were said in the other. So the dialler begins with a block that
//! says so, when it has heard its welcome, and the door says nothing in blocks before it has that.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::buffer::Buffer;
use crate::wire::{Socket, Wire, cut, read_exact, write_all};

/// The most bytes of one block.
const BLOCK_BYTES_MAX: usize = 64 << 10;
const LENGTH_BYTES: usize = 4;
const TAG_BYTES: usize = 16;
/// The longest block, with what is around its bytes.
const WHOLE_BYTES_MAX: usize = LENGTH_BYTES + BLOCK_BYTES_MAX + TAG_BYTES;
/// Blocks that are sent, or received, with one system call.
const BLOCKS_AT_ONCE: usize = 2;
/// The first bytes of the dialler.
const BEGINNING: &[u8] = b"bireme: authenticated from here on";

/// Bytes of the key of one direction.
pub(super) const KEY_BYTES: usize = 32;

/// The keys of a stream, by who sends.
pub(super) struct Keys {
    pub(super) dialler: [u8; KEY_BYTES],
    pub(super) door: [u8; KEY_BYTES],
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Dialler,
    Door,
}

/// The key of one direction, and the number of its next block.
struct Tagger {
    key: LessSafeKey,
    next: u64,
}

impl Tagger {
    fn new(key: &[u8; KEY_BYTES]) -> io::Result<Self> {
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| io::Error::other("the cipher takes no such key"))?;
        Ok(Self { key: LessSafeKey::new(key), next: 0 })
    }

    /// The nonce of the next block, once.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[NONCE_LEN - size_of::<u64>()..].copy_from_slice(&self.next.to_be_bytes());
        self.next += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    fn tag(&mut self, bytes: &[u8]) -> io::Result<[u8; TAG_BYTES]> {
        let nonce = self.nonce();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(bytes), &mut []);
        tag.ok().and_then(|tag| tag.as_ref().try_into().ok()).ok_or_else(|| io::Error::other("a block got no tag"))
    }

    fn is_tag_of(&mut self, tag: &[u8], bytes: &[u8]) -> bool {
        let nonce = self.nonce();
        self.key.open_in_place_separate_tag(nonce, Aad::from(bytes), tag, &mut []).is_ok()
    }
}

/// A wire whose bytes are authenticated and not encrypted.
pub(crate) struct AuthenticatedWire {
    socket: Socket,
    outgoing: Tagger,
    sending: Buffer,
    incoming: Tagger,
    received: Buffer,
    /// The first so many received bytes are of a block that has been verified; its tag is behind them.
    readable: usize,
    has_ended: bool,
    is_finished: bool,
    /// The bytes that came are not those that the peer sent.
    is_forged: bool,
}

impl AuthenticatedWire {
    /// Goes on over a socket whose TLS session gave these keys. Both ends have to do this before either sends anything else.
    pub(super) fn begin(socket: Socket, keys: &Keys, side: Side) -> io::Result<Self> {
        let (ours, theirs) = match side {
            Side::Dialler => (&keys.dialler, &keys.door),
            Side::Door => (&keys.door, &keys.dialler),
        };
        let mut wire = Self {
            socket,
            outgoing: Tagger::new(ours)?,
            sending: Buffer::new(BLOCKS_AT_ONCE * WHOLE_BYTES_MAX),
            incoming: Tagger::new(theirs)?,
            received: Buffer::new(BLOCKS_AT_ONCE * WHOLE_BYTES_MAX),
            readable: 0,
            has_ended: false,
            is_finished: false,
            is_forged: false,
        };
        match side {
            Side::Dialler => write_all(&mut wire, &[BEGINNING])?,
            Side::Door => {
                let mut heard = [0; BEGINNING.len()];
                read_exact(&mut wire, &mut heard)?;
                if heard != *BEGINNING {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer does not begin as it should"));
                }
            }
        }
        Ok(wire)
    }

    pub(crate) fn trust(&mut self) -> io::Result<()> {
        self.socket.trust()
    }

    fn push(&mut self) -> io::Result<()> {
        self.sending.write_to(&mut self.socket)
    }

    /// Makes blocks of bytes that have not been taken, as many as there is room for: of how many bytes.
    fn fill(&mut self, rest: &mut &mut [IoSlice<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        while !rest.is_empty() && self.sending.room().len() >= WHOLE_BYTES_MAX {
            let block = &mut self.sending.room()[..WHOLE_BYTES_MAX];
            let mut len = 0;
            while len < BLOCK_BYTES_MAX
                && let Some(part) = rest.first()
            {
                let count = part.len().min(BLOCK_BYTES_MAX - len);
                let at = LENGTH_BYTES + len;
                block[at..at + count].copy_from_slice(&part[..count]);
                IoSlice::advance_slices(rest, count);
                len += count;
            }
            self.seal(len)?;
            taken += len;
        }
        Ok(taken)
    }

    /// Makes a block of the bytes that lie where its bytes belong.
    fn seal(&mut self, len: usize) -> io::Result<()> {
        let block = self.sending.room();
        block[..LENGTH_BYTES].copy_from_slice(&(len as u32).to_le_bytes());
        let end = LENGTH_BYTES + len;
        let tag = self.outgoing.tag(&block[LENGTH_BYTES..end])?;
        block[end..end + TAG_BYTES].copy_from_slice(&tag);
        self.sending.filled(end + TAG_BYTES);
        Ok(())
    }

    fn say_goodbye(&mut self) {
        let pushed = self.push();
        if !self.is_finished && pushed.is_ok() && self.seal(0).is_ok() {
            self.is_finished = true;
            // A peer that is gone, or does not read, sees a stream that was cut.
            let _ = self.push();
        }
    }

    /// Verifies the next block, when all of it is there. False: more has to come.
    fn verify_next(&mut self) -> io::Result<bool> {
        let Some((length, rest)) = self.received.waiting().split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(false);
        };
        let len = u32::from_le_bytes(*length) as usize;
        if len > BLOCK_BYTES_MAX {
            return Err(self.give_up());
        }
        let Some((bytes, tag)) = rest.get(..len + TAG_BYTES).map(|block| block.split_at(len)) else { return Ok(false) };
        if !self.incoming.is_tag_of(tag, bytes) {
            return Err(self.give_up());
        }
        self.received.consume(LENGTH_BYTES);
        (self.readable, self.has_ended) = (len, len == 0);
        Ok(true)
    }

    fn give_up(&mut self) -> io::Error {
        self.is_forged = true;
        forged()
    }

    /// Hands out bytes that have been verified.
    fn take(&mut self, into: &mut [u8]) -> usize {
        let taken = self.readable.min(into.len());
        into[..taken].copy_from_slice(&self.received.waiting()[..taken]);
        self.readable -= taken;
        self.received.consume(if self.readable == 0 { taken + TAG_BYTES } else { taken });
        taken
    }
}

fn forged() -> io::Error {
    let text = "bytes came that the peer did not send: somebody on the way changed them, or a machine is broken";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Wire for AuthenticatedWire {
    fn raw_fd(&self) -> BorrowedFd<'_> {
        self.socket.stream().as_fd()
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() && !self.has_ended {
            if self.readable > 0 {
                filled += self.take(&mut buffer[filled..]);
                continue;
            }
            if self.is_forged {
                return if filled > 0 { Ok(filled) } else { Err(forged()) };
            }
            match self.verify_next() {
                // Only the first byte is waited for.
                Ok(false) if filled > 0 => return Ok(filled),
                Ok(false) if self.received.read_from(&mut self.socket)? == 0 => return Err(cut()),
                // Bytes before a failure are good.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(filled)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.push()?;
        let (mut slices, mut taken) = (slices.to_vec(), 0);
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            taken += self.fill(&mut rest)?;
            match self.push() {
                Ok(()) => {}
                // The bytes that were taken go when there is room.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(taken),
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }

    fn wants_write(&self) -> bool {
        !self.sending.is_empty()
    }

    fn has_buffered(&self) -> bool {
        self.readable > 0 || !self.received.is_empty() || self.is_forged
    }

    fn finish(&mut self) {
        self.say_goodbye();
        // The peer may have gone already, which is what was wanted.
        let _ = self.socket.stream().shutdown(Shutdown::Write);
    }

    fn peer_addr(&self) -> SocketAddr {
        self.socket.peer()
    }

    fn is_protected(&self) -> bool {
        true
    }

    fn delay(&mut self, delay: Duration) -> io::Result<()> {
        self.socket.delay(delay)
    }
}

impl Drop for AuthenticatedWire {
    fn drop(&mut self) {
        if self.socket.may_say_goodbye() {
            self.say_goodbye();
        }
    }
}
