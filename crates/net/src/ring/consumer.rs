//! The reading end of a ring.
//!
//! Frames are read in place. Their bytes go back to the producer in parts: after
//! an eighth of the capacity, when the ring is found empty, or on
//! [`Consumer::release`].

use super::{Corrupt, Corruption, RELEASE_PART, RingMemory, WORD, WRAP, frame_len, is_position, span};
use crate::sync::{Ordering, fence};

/// The reading end. There is one per ring; see [`Fabric::consumer`].
///
/// [`Fabric::consumer`]: crate::Fabric::consumer
pub struct Consumer {
    memory: RingMemory,
    /// Start of what is unread.
    head: u64,
    /// What was given back so far.
    released: u64,
    /// The published end when last looked at.
    tail: u64,
    /// The producer asked to be rung when there is space.
    space_requested: bool,
    /// Set by the first failed check, for good.
    broken: Option<Corrupt>,
}

impl Consumer {
    /// Starts at the last position that a consumer gave back: frames that a
    /// predecessor read without giving them back are read again.
    pub(crate) fn attach(memory: RingMemory) -> Result<Self, Corrupt> {
        let head = memory.header().head.0.load(Ordering::Acquire);
        let mut consumer = Self { memory, head, released: head, tail: head, space_requested: false, broken: None };
        if !is_position(head) {
            return Err(consumer.corrupt(Corruption::Head));
        }
        consumer.refresh_tail()?;
        Ok(consumer)
    }

    /// Reads the next frame, if there is one. The body is aligned to 8.
    #[inline]
    pub fn pop<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, Corrupt> {
        let Some((at, len)) = self.next_frame()? else {
            return Ok(None);
        };
        // Before `read`, so that a frame whose reading panics is not read twice.
        self.head = at + span(len);
        // SAFETY: `next_frame` checked that the frame is inside the ring, in
        // one piece and published; it is given back below at the earliest.
        let body = unsafe { self.memory.body(at + WORD, len) };
        let result = read(body);
        if self.head - self.released >= self.memory.capacity() / RELEASE_PART {
            self.release();
        }
        Ok(Some(result))
    }

    /// Copies the next frame into `buffer`, replacing its content. Returns
    /// whether there was one.
    #[inline]
    pub fn pop_into(&mut self, buffer: &mut Vec<u8>) -> Result<bool, Corrupt> {
        let found = self.pop(|body| {
            buffer.clear();
            buffer.extend_from_slice(body);
        })?;
        Ok(found.is_some())
    }

    /// Whether there is something to read (or an error to find): one load, for
    /// spinning.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.tail != self.head || self.published() != self.head
    }

    /// Gives the bytes of every frame read so far back to the producer.
    #[inline]
    pub fn release(&mut self) {
        if self.released == self.head {
            return;
        }
        self.released = self.head;
        let header = self.memory.header();
        // Release: our reads before the producer's overwriting (RING-2).
        header.head.0.store(self.head, Ordering::Release);
        // The head before the look for a wish: see `Producer::want_space`.
        fence(Ordering::SeqCst);
        let wish = &header.tail.0.space_wanted;
        if wish.load(Ordering::Relaxed) != 0 {
            wish.store(0, Ordering::Relaxed);
            self.space_requested = true;
        }
    }

    /// Whether the producer asked, since the last call, to be told of space,
    /// and there is some now: then ring its bell. Ask after each drain.
    #[inline]
    #[must_use]
    pub fn take_space_request(&mut self) -> bool {
        std::mem::take(&mut self.space_requested)
    }

    /// The place and length of the next frame, checked (RING-3).
    #[inline]
    fn next_frame(&mut self) -> Result<Option<(u64, usize)>, Corrupt> {
        if self.head == self.tail {
            if let Some(corrupt) = self.broken {
                return Err(corrupt);
            }
            self.refresh_tail()?;
            if self.head == self.tail {
                self.release();
                return Ok(None);
            }
        }
        let mut available = self.tail - self.head;
        let mut len = self.frame_len_at(self.head)?;
        if len == WRAP {
            let skipped = self.memory.room_to_end(self.head);
            // A wrap marker is followed by a frame at the beginning, published
            // together with it.
            if skipped >= available || skipped == self.memory.capacity() {
                return Err(self.corrupt(Corruption::Wrap));
            }
            self.head += skipped;
            available -= skipped;
            len = self.frame_len_at(self.head)?;
        }
        let len = len as usize;
        let in_bounds =
            len <= self.memory.frame_max() && span(len) <= available && span(len) <= self.memory.room_to_end(self.head);
        if !in_bounds {
            return Err(self.corrupt(Corruption::Length));
        }
        Ok(Some((self.head, len)))
    }

    #[inline]
    fn frame_len_at(&mut self, position: u64) -> Result<u32, Corrupt> {
        match frame_len(position, self.memory.read_word(position)) {
            Some(len) => Ok(len),
            None => Err(self.corrupt(Corruption::Tag)),
        }
    }

    #[inline]
    fn published(&self) -> u64 {
        // Acquire: the position before the frames that it covers (RING-2).
        let tail = &self.memory.header().tail.0;
        tail.position.load(Ordering::Acquire)
    }

    /// Looks how far the producer is. RING-1, seen from `head`, which the last
    /// tail equals here: so it also says that the tail only grows.
    #[inline]
    fn refresh_tail(&mut self) -> Result<(), Corrupt> {
        debug_assert_eq!(self.tail, self.head);
        let tail = self.published();
        let ahead = tail.wrapping_sub(self.released);
        let unread = tail.wrapping_sub(self.head);
        if unread > ahead || ahead > self.memory.capacity() || !is_position(tail) {
            return Err(self.corrupt(Corruption::Tail));
        }
        self.tail = tail;
        Ok(())
    }

    #[cold]
    fn corrupt(&mut self, reason: Corruption) -> Corrupt {
        let corrupt = Corrupt { position: self.head, reason };
        // Nothing more is read: every later `pop` finds `broken`.
        self.tail = self.head;
        *self.broken.get_or_insert(corrupt)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if self.broken.is_none() {
            self.release();
        }
        // Release: the next consumer continues from the head we stored.
        self.memory.header().claims.0.consumer.store(0, Ordering::Release);
    }
}
