//! Bulk links: the bytes of objects between two nodes, on connections and threads of their own.
//!
//! A receiver asks for one object at a time on a connection and gets its bytes in blocks, straight into the place where
//! they stay ([`Sink`]); a sender gives what its [`Source`] has, which may itself still be arriving. Both ends speak
//! from blocking threads, so a copy of many bytes never delays a control frame.
//!
//! ```text
//! receiver                                  sender
//! Request { key, from, block }  ─────────▶
//!                               ◀─────────  Waiting*            (it is looking, for example on its disk)
//!                               ◀─────────  Offer { len }       or Gone { reason }: next request
//!                               ◀─────────  Lies + file         (on one host: the bytes stay where they are)
//! Reads { yes }                 ─────────▶
//!                               ◀─────────  Block { len, checksum } + bytes, or Part { len, offset }, Waiting*, ...
//! Confirm { watermark }         ─────────▶                      (every `CONFIRM_STEP`, and at the end)
//!                               ◀─────────  Ended { reason }    in the place of a block: next request
//! ```
//!
//! The source is held until the last byte is confirmed. A connection that breaks costs nothing that has arrived: the
//! receiver asks for the rest `from` its watermark, of the same sender or another.
//!
//! Two processes of one user on one host need no socket for the bytes (`host`): the receiver's request has a mark of where it
//! is, and a sender with the same mark says in which of its files the object lies. When the receiver can open that file, it is
//! told of parts instead of blocks and copies them itself, growing sources and all; when it cannot, it says so and blocks come.
//! The sender holds the source until the receiver has confirmed, or has closed the connection: no silence ends that, since the
//! receiver may be reading.
//!
//! Blocks go out of the mapping with one `writev` of header and bytes, and come in with one `readv` into their place.
//! `sendfile` from the memory file was tried too (in `examples/bulk_ratio.rs`, loopback, pages of 4 KiB): 0.68 times the
//! rate of a plain copy and 1.43 times its processor time, where `writev` has 0.97 and 1.01 (both with blocks of 256 KiB; 1 MiB
//! makes it 1.16 and 0.87). It would also let the kernel refer to pages after the source is gone. A checksum per block
//! costs 0.4 of a plain copy's processor time.
//!
//! Bounds: one request at a time per connection; at most `WINDOW` bytes unconfirmed, so few confirmations wait unread;
//! headers of 16 bytes, keys and reasons of bounded length; every wait but the one above has a patience and says what it
//! waited for.

mod frame;
mod host;
mod line;
mod low_water;
mod neighbour;
mod pool;
mod receive;
mod send;
mod turns;

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::time::Duration;

pub use frame::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, KEY_BYTES_MAX, Request};
pub use host::{HeldFile, HostMark};
pub use line::{Break, Line};
pub use pool::{Finished, Job, Pool, PoolFull, Spawn};
pub use receive::{ReceiveError, receive};
pub use send::{Catalogue, Sent, serve};
pub use turns::{TRANSFERS_PER_PEER, Turns, TurnsFull};

/// How a bulk link behaves. Both ends may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkOptions {
    /// Bytes of one block at most, as the receiver asks for them. Bytes are final, and sent on, as they arrive and not by
    /// the block, unless it has a checksum: then ask for 256 KiB or less where objects are sent on.
    pub block: u32,
    /// Whether the receiver asks for a checksum of each block. TLS has its own; on plain TCP this finds what the weak
    /// checksum of TCP misses.
    pub checksum: bool,
    /// How long the other end may be silent within a transfer before the connection counts as broken.
    pub silence: Duration,
    /// How long a connection is kept for the next request.
    pub idle: Duration,
    /// Bytes are left where they lie for a receiver with the same mark. None: all go over the connection. Blocks with
    /// checksums do so anyway.
    pub host: Option<HostMark>,
}

impl Default for BulkOptions {
    fn default() -> Self {
        let (silence, idle) = (Duration::from_secs(10), Duration::from_secs(30));
        Self { block: 1 << 20, checksum: false, silence, idle, host: None }
    }
}

/// An object that is sent: whole, or still growing.
#[allow(clippy::len_without_is_empty)]
pub trait Source: Send {
    /// The object's full length in bytes.
    fn len(&self) -> u64;

    /// Waits at most `patience` until more than `at` bytes are final, and says how many are. An error says why there
    /// will never be more.
    fn wait_beyond(&self, at: u64, patience: Duration) -> Result<u64, String>;

    /// Bytes that are final, of one contiguous part.
    fn bytes(&self, range: Range<u64>) -> &[u8];

    /// Where the part ends that byte `at` is in: bytes are asked for up to there at most.
    fn contiguous_until(&self, _at: u64) -> u64 {
        self.len()
    }

    /// Where a byte lies in the file of its [`Catalogue`], with those after it up to [`Source::contiguous_until`]. None when
    /// it lies elsewhere.
    fn offset(&self, _at: u64) -> Option<u64> {
        None
    }

    /// What has come of it is sent on when it is this much, or the end: `most`, or less. In a ring it must not be more than
    /// each member has to begin with, or all wait for one another.
    fn forward_bytes_min(&self, most: u64) -> u64 {
        most
    }

    /// The receiver has confirmed the last byte.
    fn taken(&self) {}
}

/// The place of an object that arrives.
#[allow(clippy::len_without_is_empty)]
pub trait Sink: Send {
    /// The object's full length in bytes.
    fn len(&self) -> u64;

    /// Whether somebody waits for its bytes one by one, to send them on. If nobody does, more of them are taken in at once, which
    /// is cheaper.
    fn is_sent_on(&self) -> bool {
        true
    }

    /// How many bytes are here and final.
    fn watermark(&self) -> u64;

    /// The bytes above the watermark, at most `most` of them, and fewer where its places are not contiguous. With
    /// checksums all of them are needed at once.
    fn spare(&mut self, most: usize) -> io::Result<&mut [u8]>;

    /// Declares the next `len` bytes final.
    fn advance(&mut self, len: u64) -> io::Result<()>;
}
