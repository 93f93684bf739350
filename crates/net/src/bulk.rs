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
//!                               ◀─────────  Block { len, checksum } + bytes, Waiting*, ...
//! Confirm { watermark }         ─────────▶                      (every `CONFIRM_STEP`, and at the end)
//!                               ◀─────────  Ended { reason }    in the place of a block: next request
//! ```
//!
//! The source is held until the last byte is confirmed. A connection that breaks costs nothing that has arrived: the
//! receiver asks for the rest `from` its watermark, of the same sender or another.
//!
//! Blocks go out of the mapping with one `writev` of header and bytes, and come in with one `readv` into their place.
//! `sendfile` from the memory file was tried too (in `examples/bulk_ratio.rs`, loopback, pages of 4 KiB): 0.68 times the
//! rate of a plain copy and 1.43 times its processor time, where `writev` has 0.97 and 1.01 (both with blocks of 256 KiB; 1 MiB
//! makes it 1.16 and 0.87). It would also let the kernel refer to pages after the source is gone. A checksum per block
//! costs 0.4 of a plain copy's processor time.
//!
//! Bounds: one request at a time per connection; at most `WINDOW` bytes unconfirmed, so few confirmations wait unread;
//! headers of 16 bytes, keys and reasons of bounded length; every wait has a patience and says what it waited for.

mod frame;
mod line;
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
}

impl Default for BulkOptions {
    fn default() -> Self {
        let (silence, idle) = (Duration::from_secs(10), Duration::from_secs(30));
        Self { block: 1 << 20, checksum: false, silence, idle }
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

    /// Bytes that are final.
    fn bytes(&self, range: Range<u64>) -> &[u8];
}

/// The place of an object that arrives.
#[allow(clippy::len_without_is_empty)]
pub trait Sink: Send {
    /// The object's full length in bytes.
    fn len(&self) -> u64;

    /// How many bytes are here and final.
    fn watermark(&self) -> u64;

    /// The bytes above the watermark, at most `most` of them.
    fn spare(&mut self, most: usize) -> io::Result<&mut [u8]>;

    /// Declares the next `len` bytes final.
    fn advance(&mut self, len: u64) -> io::Result<()>;
}
