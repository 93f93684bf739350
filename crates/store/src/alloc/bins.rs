//! The size classes of free blocks and the two-level bitmap that finds the first filled one.
//!
//! A class is a float of the block's size with 3 mantissa bits: sizes 0 to 7 have a class each, and above that every
//! power of two is cut into eight. `bin_floor` says where a free block is kept, `bin_ceil` from where on every block is
//! long enough for a request.

use super::NONE;

const MANTISSA_BITS: u32 = 3;
const PER_GROUP: usize = 1 << MANTISSA_BITS;
const GROUPS: usize = 64;

/// The class of the largest class size that is at most `size`.
pub(super) fn bin_floor(size: u64) -> usize {
    if size < PER_GROUP as u64 {
        return size as usize;
    }
    let exponent = size.ilog2() - MANTISSA_BITS;
    let mantissa = (size >> exponent) as usize & (PER_GROUP - 1);
    (exponent as usize + 1) * PER_GROUP + mantissa
}

/// The first class whose every block is at least `size`.
pub(super) fn bin_ceil(size: u64) -> usize {
    let floor = bin_floor(size);
    if size < PER_GROUP as u64 {
        return floor;
    }
    let exponent = size.ilog2() - MANTISSA_BITS;
    let exact = size & ((1 << exponent) - 1) == 0;
    if exact { floor } else { floor + 1 }
}

/// Heads of the free lists, and which of them are filled.
#[derive(Debug)]
pub(super) struct Bins {
    heads: Box<[u32]>,
    groups: u64,
    filled: [u8; GROUPS],
}

impl Bins {
    pub(super) fn new() -> Self {
        Self { heads: vec![NONE; GROUPS * PER_GROUP].into_boxed_slice(), groups: 0, filled: [0; GROUPS] }
    }

    pub(super) fn head(&self, bin: usize) -> u32 {
        self.heads[bin]
    }

    pub(super) fn set_head(&mut self, bin: usize, block: u32) {
        self.heads[bin] = block;
        let (group, bit) = (bin / PER_GROUP, 1u8 << (bin % PER_GROUP));
        if block == NONE {
            self.filled[group] &= !bit;
        } else {
            self.filled[group] |= bit;
        }
        if self.filled[group] == 0 {
            self.groups &= !(1 << group);
        } else {
            self.groups |= 1 << group;
        }
    }

    /// The first filled class at or above `bin`.
    pub(super) fn first_from(&self, bin: usize) -> Option<usize> {
        let group = bin / PER_GROUP;
        if group >= GROUPS {
            return None;
        }
        let here = self.filled[group] & (u8::MAX << (bin % PER_GROUP));
        if here != 0 {
            return Some(group * PER_GROUP + here.trailing_zeros() as usize);
        }
        let above = self.groups.checked_shr(group as u32 + 1)?;
        if above == 0 {
            return None;
        }
        let group = group + 1 + above.trailing_zeros() as usize;
        Some(group * PER_GROUP + self.filled[group].trailing_zeros() as usize)
    }

    /// The filled class of the longest blocks.
    pub(super) fn longest(&self) -> Option<usize> {
        let group = self.groups.checked_ilog2()? as usize;
        Some(group * PER_GROUP + self.filled[group].ilog2() as usize)
    }
}
