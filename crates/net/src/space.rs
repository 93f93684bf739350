//! Who lies where in the fabric: ring space and process slots.
//!
//! Only the node allocates, so this is ordinary memory of one process, out of
//! reach of everybody else: no peer can corrupt it. Ring space is cut into
//! blocks by capacity; a freed block serves the next ring of its capacity.
//! Blocks are never merged: there are seven sizes, and the region is so large
//! and sparse that what matters is resident memory, which [`Fabric::drop_ring`]
//! gives back at once.
//!
//! [`Fabric::drop_ring`]: crate::Fabric::drop_ring

use crate::fabric::{PROCESSES_MAX, SlotId};

/// The smallest ring.
pub const RING_CAPACITY_MIN: u32 = 64 << 10;
/// The largest ring.
pub const RING_CAPACITY_MAX: u32 = 4 << 20;
/// All rings together, in virtual memory.
pub const RING_REGION_BYTES: u64 = 16 << 30;
/// In front of each ring's bytes: its header, on a page of its own.
pub(crate) const RING_HEADER_BYTES: u64 = 4096;

const CLASSES: usize = (RING_CAPACITY_MAX.trailing_zeros() - RING_CAPACITY_MIN.trailing_zeros()) as usize + 1;

/// Where a ring lies: two numbers to be sent to the processes that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingSpan {
    offset: u64,
    capacity: u32,
}

impl RingSpan {
    /// The span with these numbers (from a message), if a ring can lie there.
    pub fn from_parts(offset: u64, capacity: u32) -> Option<Self> {
        let size_ok = capacity.is_power_of_two() && (RING_CAPACITY_MIN..=RING_CAPACITY_MAX).contains(&capacity);
        let span = Self { offset, capacity };
        let fits =
            offset.checked_add(RING_HEADER_BYTES + u64::from(capacity)).is_some_and(|end| end <= RING_REGION_BYTES);
        (size_ok && fits && offset.is_multiple_of(RING_HEADER_BYTES)).then_some(span)
    }

    /// Bytes from the start of the ring region.
    pub fn offset(self) -> u64 {
        self.offset
    }

    /// Bytes that it can hold.
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    pub(crate) fn block_bytes(self) -> u64 {
        RING_HEADER_BYTES + u64::from(self.capacity)
    }

    fn class(self) -> usize {
        (self.capacity.trailing_zeros() - RING_CAPACITY_MIN.trailing_zeros()) as usize
    }
}

/// Why there is no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// Not a power of two, or out of range.
    #[error("ring capacity {0} is not a power of two from {RING_CAPACITY_MIN} to {RING_CAPACITY_MAX}")]
    BadCapacity(u32),
    /// Too many rings at once.
    #[error("no ring space left; close connections or use smaller rings")]
    Exhausted,
}

/// The node's allocator of ring space.
#[derive(Debug, Default)]
pub struct RingSpace {
    next: u64,
    free: [Vec<u64>; CLASSES],
}

impl RingSpace {
    /// Everything is free.
    pub fn new() -> Self {
        Self::default()
    }

    /// A block for a ring of this capacity.
    pub fn alloc(&mut self, capacity: u32) -> Result<RingSpan, SpaceError> {
        // The offset does not matter for the check of the capacity.
        let probe = RingSpan::from_parts(0, capacity).ok_or(SpaceError::BadCapacity(capacity))?;
        if let Some(offset) = self.free[probe.class()].pop() {
            return Ok(RingSpan { offset, capacity });
        }
        let span = RingSpan::from_parts(self.next, capacity).ok_or(SpaceError::Exhausted)?;
        self.next += span.block_bytes();
        Ok(span)
    }

    /// Takes a block back. Its ring must have been dropped ([`drop_ring`]) and
    /// both of its ends be gone.
    ///
    /// [`drop_ring`]: crate::Fabric::drop_ring
    pub fn free(&mut self, span: RingSpan) {
        debug_assert!(!self.free[span.class()].contains(&span.offset));
        self.free[span.class()].push(span.offset);
    }
}

/// The node's allocator of process slots. The slot freed last is used last, so
/// that a late message to a dead process seldom meets its successor.
#[derive(Debug, Default)]
pub struct SlotSpace {
    next: u16,
    free: std::collections::VecDeque<SlotId>,
}

impl SlotSpace {
    /// Everything is free.
    pub fn new() -> Self {
        Self::default()
    }

    /// A slot, or none if there are [`PROCESSES_MAX`] processes already.
    pub fn alloc(&mut self) -> Option<SlotId> {
        if self.next == PROCESSES_MAX {
            return self.free.pop_front();
        }
        let slot = SlotId::new(self.next)?;
        self.next += 1;
        Some(slot)
    }

    /// Takes a slot back, after [`Fabric::release_slot`].
    ///
    /// [`Fabric::release_slot`]: crate::Fabric::release_slot
    pub fn free(&mut self, slot: SlotId) {
        debug_assert!(!self.free.contains(&slot));
        self.free.push_back(slot);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn live_blocks_never_overlap(steps in prop::collection::vec((0u32..7, any::<bool>(), 0usize..64), 1..200)) {
            let mut space = RingSpace::new();
            let mut live: Vec<RingSpan> = Vec::new();
            for (class, free, which) in steps {
                if free && !live.is_empty() {
                    space.free(live.swap_remove(which % live.len()));
                } else {
                    let span = space.alloc(RING_CAPACITY_MIN << class).unwrap();
                    for other in &live {
                        let apart = span.offset + span.block_bytes() <= other.offset
                            || other.offset + other.block_bytes() <= span.offset;
                        prop_assert!(apart, "{span:?} overlaps {other:?}");
                    }
                    live.push(span);
                }
            }
        }
    }

    #[test]
    fn a_full_region_is_an_error_and_a_freed_block_serves_again() {
        let mut space = RingSpace::new();
        let mut last = None;
        let end = loop {
            match space.alloc(RING_CAPACITY_MAX) {
                Ok(span) => last = Some(span),
                Err(error) => break error,
            }
        };
        assert_eq!(end, SpaceError::Exhausted);
        space.free(last.unwrap());
        assert_eq!(space.alloc(RING_CAPACITY_MAX), Ok(last.unwrap()));
        assert_eq!(space.alloc(100_000), Err(SpaceError::BadCapacity(100_000)));
    }

    #[test]
    fn spans_from_messages_are_checked() {
        assert!(RingSpan::from_parts(0, RING_CAPACITY_MIN).is_some());
        assert!(RingSpan::from_parts(1, RING_CAPACITY_MIN).is_none());
        assert!(RingSpan::from_parts(!4095, RING_CAPACITY_MIN).is_none());
        assert!(RingSpan::from_parts(RING_REGION_BYTES - 4096, RING_CAPACITY_MIN).is_none());
        assert!(RingSpan::from_parts(0, RING_CAPACITY_MAX * 2).is_none());
    }

    #[test]
    fn slots_run_out_and_come_back_in_order() {
        let mut space = SlotSpace::new();
        let slots: Vec<_> = std::iter::from_fn(|| space.alloc()).collect();
        assert_eq!(slots.len(), usize::from(PROCESSES_MAX));
        space.free(slots[7]);
        space.free(slots[3]);
        assert_eq!(space.alloc(), Some(slots[7]));
        assert_eq!(space.alloc(), Some(slots[3]));
        assert_eq!(space.alloc(), None);
    }
}
