//! The writing end of a ring.
//!
//! Staging writes frames into bytes that the consumer does not look at yet;
//! publishing makes everything staged visible with one store. A producer that
//! publishes once for many frames moves the shared line once for all of them.
//! Frames still staged when the producer is dropped were never sent.

use super::{Corrupt, Corruption, RingMemory, WORD, WRAP, header_word, is_position, span};
use crate::sync::{Ordering, fence};

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// No room now. Publish what is staged, then retry when the consumer has
    /// freed some ([`Producer::want_space`]).
    #[error("ring is full; retry when its consumer has read some")]
    Full,
    /// No room ever.
    #[error("frame of {len} bytes is too large for the ring; send at most {max}")]
    TooLarge {
        /// The frame's length.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// The consumer wrote nonsense.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// The writing end. There is one per ring; see [`Fabric::producer`].
///
/// [`Fabric::producer`]: crate::Fabric::producer
pub struct Producer {
    memory: RingMemory,
    /// End of what is staged.
    tail: u64,
    /// End of what is published.
    published: u64,
    /// The released position when last looked at.
    head: u64,
}

impl Producer {
    /// Continues where the ring's last producer stopped publishing.
    pub(crate) fn attach(memory: RingMemory) -> Result<Self, Corrupt> {
        let tail = memory.header().tail.0.position.load(Ordering::Acquire);
        let mut producer = Self { head: tail.wrapping_sub(memory.capacity()), memory, tail, published: tail };
        if !is_position(tail) {
            return Err(producer.corrupt(Corruption::Tail));
        }
        producer.refresh_head()?;
        Ok(producer)
    }

    /// The longest frame that the ring takes: a quarter of its capacity.
    #[inline]
    pub fn frame_max(&self) -> usize {
        self.memory.frame_max()
    }

    /// Writes one frame, gathered from parts, and publishes it (and whatever
    /// was staged before).
    #[inline]
    pub fn try_push(&mut self, parts: &[&[u8]]) -> Result<(), PushError> {
        self.try_stage(parts)?;
        self.publish();
        Ok(())
    }

    /// Writes one frame, gathered from parts, without publishing it.
    #[inline]
    pub fn try_stage(&mut self, parts: &[&[u8]]) -> Result<(), PushError> {
        let len = parts.iter().map(|part| part.len()).sum();
        self.stage_with(len, |mut body| {
            for part in parts {
                let (here, rest) = body.split_at_mut(part.len());
                here.copy_from_slice(part);
                body = rest;
            }
            len
        })
    }

    /// Reserves a frame of up to `len_max` bytes and lets `write` fill it in
    /// place; `write` returns how many bytes it used. The bytes handed to it
    /// hold old content. Not published yet.
    #[inline]
    pub fn stage_with(&mut self, len_max: usize, write: impl FnOnce(&mut [u8]) -> usize) -> Result<(), PushError> {
        let at = self.reserve(len_max)?;
        // SAFETY: `reserve` made sure that the bytes are contiguous and beyond
        // what is published, and `&mut self` that nobody else writes there.
        let body = unsafe { self.memory.body_mut(at + WORD, len_max) };
        let len = write(body).min(len_max);
        self.memory.write_word(at, header_word(at, len as u32));
        self.tail = at + span(len);
        Ok(())
    }

    /// Makes what is staged visible to the consumer, in one store. Returns
    /// whether there was anything; if so, ring the consumer's bell.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.tail == self.published {
            return false;
        }
        self.published = self.tail;
        // Release: the frames before the position that covers them (RING-2).
        let tail = &self.memory.header().tail.0;
        tail.position.store(self.tail, Ordering::Release);
        true
    }

    /// Bytes that could be staged now, frame headers included, as far as the
    /// consumer has given back.
    pub fn free_bytes(&mut self) -> Result<usize, Corrupt> {
        self.refresh_head()?;
        Ok((self.memory.capacity() - (self.tail - self.head)) as usize)
    }

    /// Whether the consumer has read and given back everything.
    pub fn is_empty(&mut self) -> Result<bool, Corrupt> {
        self.refresh_head()?;
        Ok(self.head == self.tail)
    }

    /// After `Full`: asks the consumer to ring this process's bell when it has
    /// freed something. `true` if space was freed meanwhile: retry at once.
    pub fn want_space(&mut self) -> Result<bool, Corrupt> {
        let before = self.head;
        let tail = &self.memory.header().tail.0;
        tail.space_wanted.store(1, Ordering::Relaxed);
        // The wish before the look at the head; the consumer stores its head
        // and fences before it looks for a wish. One of the two sees the other.
        fence(Ordering::SeqCst);
        self.refresh_head()?;
        Ok(self.head != before)
    }

    /// Finds room for a frame and returns its position, after a wrap marker if
    /// one is needed.
    #[inline]
    fn reserve(&mut self, len: usize) -> Result<u64, PushError> {
        let max = self.memory.frame_max();
        if len > max {
            return Err(PushError::TooLarge { len, max });
        }
        let needed = span(len);
        let to_end = self.memory.room_to_end(self.tail);
        let skipped = if to_end < needed { to_end } else { 0 };
        let limit = self.memory.capacity() - (skipped + needed);
        if self.tail - self.head > limit {
            self.refresh_head()?;
            if self.tail - self.head > limit {
                return Err(PushError::Full);
            }
        }
        if skipped > 0 {
            // At least one word: positions are multiples of 8.
            self.memory.write_word(self.tail, header_word(self.tail, WRAP));
            self.tail += skipped;
        }
        Ok(self.tail)
    }

    /// Looks how far the consumer is. RING-1: between the last look and the
    /// published end.
    #[inline]
    fn refresh_head(&mut self) -> Result<(), Corrupt> {
        // Acquire: the consumer's reads before our overwriting (RING-2).
        let head = self.memory.header().head.0.load(Ordering::Acquire);
        let ahead = head.wrapping_sub(self.head);
        if ahead > self.published.wrapping_sub(self.head) || !is_position(head) {
            return Err(self.corrupt(Corruption::Head));
        }
        self.head = head;
        Ok(())
    }

    #[cold]
    fn corrupt(&self, reason: Corruption) -> Corrupt {
        Corrupt { position: self.tail, reason }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // Release: the next producer continues from the tail we stored.
        self.memory.header().claims.0.producer.store(0, Ordering::Release);
    }
}
