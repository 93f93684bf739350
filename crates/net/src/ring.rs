//! A single-producer single-consumer byte ring in shared memory.
//!
//! Memory: a [`RingHeader`] (three pairs of cache lines, one per writer), then
//! `capacity` bytes, a power of two. Positions are 64-bit counts of bytes since the
//! ring was made; a position's place is its low bits. A frame is one 8-byte
//! header word (length, and a tag made from its position) and its body, padded
//! to 8, always contiguous: a frame that does not fit before the end is preceded
//! by a wrap marker, and starts at the beginning. So a consumer sees each frame
//! as one `&[u8]`, aligned to 8, without a copy.
//!
//! RING-1: `head <= tail <= head + capacity`, all multiples of 8. Only the
//! producer writes `tail`, only the consumer `head`; both only grow.
//!
//! RING-2: bytes in `head..tail` are the consumer's, all others the producer's.
//! One release store of `tail` publishes, one of `head` gives back. A producer
//! killed before its store has published nothing; a consumer killed before its
//! store gives the frame to its successor again (at least once; receivers
//! deduplicate).
//!
//! RING-3: whatever a peer writes, neither end panics or leaves the ring. Each
//! shared word is read once and checked before use; an end that found nonsense
//! stays [`Corrupt`] for good, since positions cannot be trusted any more.
//!
//! The tag catches what a bounds check cannot: a position that was moved to the
//! middle of a frame reads a word whose tag belongs elsewhere.

pub(crate) mod consumer;
pub(crate) mod producer;

#[cfg(all(test, loom))]
mod loom_ring;
#[cfg(all(test, not(loom)))]
mod tests;

use std::ptr::NonNull;

use crate::sync::{AtomicU32, AtomicU64};

/// Bytes of a frame's header word.
pub(crate) const WORD: u64 = 8;
/// The length that says "the next frame starts at the beginning".
pub(crate) const WRAP: u32 = u32::MAX;
/// Beyond this no ring gets in a lifetime: a larger position is nonsense.
pub(crate) const POSITION_MAX: u64 = 1 << 62;
/// A consumer gives bytes back after this part of the capacity (or when it
/// finds the ring empty): often enough that a producer seldom waits, rarely
/// enough that the line with `head` mostly stays with its producer's cache.
pub(crate) const RELEASE_PART: u64 = 8;

/// The shared words of a ring. All zeroes is an empty ring.
#[repr(C, align(128))]
pub(crate) struct RingHeader {
    pub(crate) tail: Line<Tail>,
    pub(crate) head: Line<AtomicU64>,
    pub(crate) claims: Line<Claims>,
}

/// What the producer writes.
#[repr(C)]
pub(crate) struct Tail {
    pub(crate) position: AtomicU64,
    /// Not zero: the producer waits for space and wants to be rung. Beside the
    /// tail, because the consumer has that line at hand.
    pub(crate) space_wanted: AtomicU32,
}

/// Who holds an end: 0 is nobody. Written at attach and detach only.
#[repr(C)]
pub(crate) struct Claims {
    pub(crate) producer: AtomicU32,
    pub(crate) consumer: AtomicU32,
}

/// Two cache lines, since the hardware fetches them in pairs.
#[repr(C, align(128))]
pub(crate) struct Line<T>(pub(crate) T);

impl RingHeader {
    #[cfg(any(loom, test))]
    pub(crate) fn new() -> Self {
        Self {
            tail: Line(Tail { position: AtomicU64::new(0), space_wanted: AtomicU32::new(0) }),
            head: Line(AtomicU64::new(0)),
            claims: Line(Claims { producer: AtomicU32::new(0), consumer: AtomicU32::new(0) }),
        }
    }
}

/// The ring cannot be used any more: drop the connection, and its process if it
/// is a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring is corrupt at byte {position}: {reason}; drop the connection")]
pub struct Corrupt {
    /// Where, in bytes since the ring was made.
    pub position: u64,
    /// What was wrong.
    pub reason: Corruption,
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corruption {
    /// The published end is behind the read position, too far ahead, or not
    /// aligned.
    #[error("the published end is out of range")]
    Tail,
    /// The released position is behind itself, ahead of the written one, or not
    /// aligned.
    #[error("the released position is out of range")]
    Head,
    /// A frame header with another position's tag.
    #[error("no frame starts here")]
    Tag,
    /// A wrap marker where none can be.
    #[error("a wrap marker is misplaced")]
    Wrap,
    /// A frame longer than a frame may be, or than what was published.
    #[error("a frame length is out of range")]
    Length,
}

/// Where a ring lies, and what keeps it mapped.
pub(crate) struct RingMemory {
    header: NonNull<RingHeader>,
    body: NonNull<u8>,
    capacity: u64,
    #[cfg(not(loom))]
    _mapping: Mapped,
    #[cfg(loom)]
    model: loom::sync::Arc<loom_ring::ModelRing>,
}

#[cfg(not(loom))]
enum Mapped {
    Fabric {
        _fabric: crate::fabric::Fabric,
    },
    #[cfg(test)]
    Heap {
        _ring: std::sync::Arc<tests::HeapRing>,
    },
}

// SAFETY: the memory is shared by design; what may be touched by whom is RING-2,
// and each end needs `&mut` of its own handle to touch any of it.
unsafe impl Send for RingMemory {}

impl RingMemory {
    #[cfg(not(loom))]
    /// # Safety
    /// `header` and `capacity` bytes at `body` stay mapped, readable and
    /// writable as long as `fabric` lives, both aligned for their types;
    /// `capacity` is a power of two and at least 64.
    pub(crate) unsafe fn new(
        fabric: crate::fabric::Fabric,
        header: NonNull<RingHeader>,
        body: NonNull<u8>,
        capacity: u64,
    ) -> Self {
        Self { header, body, capacity, _mapping: Mapped::Fabric { _fabric: fabric } }
    }

    #[inline]
    pub(crate) fn header(&self) -> &RingHeader {
        // SAFETY: mapped and aligned as long as `self` lives (see `new`), and all
        // fields are atomics, so that shared references are in order.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The longest body of a frame.
    #[inline]
    pub(crate) fn frame_max(&self) -> usize {
        (self.capacity / 4) as usize
    }

    /// The place of a position.
    #[inline]
    fn place(&self, position: u64) -> usize {
        (position & (self.capacity - 1)) as usize
    }

    /// Bytes from a position to the end of the memory.
    #[inline]
    pub(crate) fn room_to_end(&self, position: u64) -> u64 {
        self.capacity - self.place(position) as u64
    }

    /// The header word at an aligned position, read once.
    #[inline]
    pub(crate) fn read_word(&self, position: u64) -> u64 {
        self.check_read(position, WORD);
        debug_assert!(position.is_multiple_of(WORD));
        // SAFETY: the place is below the capacity and a multiple of 8, so the
        // eight bytes are inside. Atomic, since a faulty peer may write it now.
        let word =
            unsafe { std::sync::atomic::AtomicU64::from_ptr(self.body.as_ptr().add(self.place(position)).cast()) };
        word.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn write_word(&self, position: u64, value: u64) {
        self.check_write(position, WORD);
        debug_assert!(position.is_multiple_of(WORD));
        // SAFETY: as in `read_word`; the bytes are the producer's (RING-2).
        let word =
            unsafe { std::sync::atomic::AtomicU64::from_ptr(self.body.as_ptr().add(self.place(position)).cast()) };
        word.store(value, std::sync::atomic::Ordering::Relaxed);
    }

    /// A frame's body, for the consumer.
    ///
    /// # Safety
    /// The bytes are inside the ring, contiguous, and the consumer's (RING-2)
    /// until the reference is gone. A peer that breaks RING-2 and writes them
    /// nevertheless is outside of what this crate defends against.
    #[inline]
    pub(crate) unsafe fn body(&self, position: u64, len: usize) -> &[u8] {
        self.check_read(position, len as u64);
        // SAFETY: by the contract above.
        unsafe { std::slice::from_raw_parts(self.body.as_ptr().add(self.place(position)), len) }
    }

    /// A frame's body, for the producer.
    ///
    /// # Safety
    /// The bytes are inside the ring, contiguous, and the producer's (RING-2)
    /// until the reference is gone; no other reference to them exists.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn body_mut(&self, position: u64, len: usize) -> &mut [u8] {
        self.check_write(position, len as u64);
        // SAFETY: by the contract above.
        unsafe { std::slice::from_raw_parts_mut(self.body.as_ptr().add(self.place(position)), len) }
    }

    #[cfg(not(loom))]
    #[inline]
    fn check_read(&self, _position: u64, _len: u64) {}
    #[cfg(not(loom))]
    #[inline]
    fn check_write(&self, _position: u64, _len: u64) {}

    /// Tells loom about an access, which it checks for a race.
    #[cfg(loom)]
    fn check_read(&self, position: u64, len: u64) {
        self.model.check_read(self.place(position), len as usize);
    }
    #[cfg(loom)]
    fn check_write(&self, position: u64, len: u64) {
        self.model.check_write(self.place(position), len as usize);
    }
}

/// The header word of a frame (or of a wrap marker) at a position.
#[inline]
pub(crate) fn header_word(position: u64, len: u32) -> u64 {
    u64::from(len) | u64::from(tag(position)) << 32
}

/// The length in a header word, if its tag is the position's.
#[inline]
pub(crate) fn frame_len(position: u64, word: u64) -> Option<u32> {
    ((word >> 32) as u32 == tag(position)).then_some(word as u32)
}

#[inline]
fn tag(position: u64) -> u32 {
    // Any odd constant will do: a zeroed or copied word must not pass.
    ((position >> 3) as u32).wrapping_mul(0x9e37_79b1) ^ 0x6269_7265
}

/// Whether a position read from shared memory can be one at all.
#[inline]
pub(crate) fn is_position(position: u64) -> bool {
    position <= POSITION_MAX && position.is_multiple_of(WORD)
}

/// The bytes that a frame takes, header word and padding included.
#[inline]
pub(crate) fn span(len: usize) -> u64 {
    WORD + (len as u64).next_multiple_of(WORD)
}
