//! Which bytes of a range are taken: an out-of-band allocator with constant-time size classes.
//!
//! The node uses one for the arena and one for the spill file. It is pure bookkeeping: it never touches the memory
//! it gives out, so no client can corrupt it. Free blocks hang in lists by size class (a float of 3 mantissa bits, so
//! at most 12.5 % apart), found with two bitmap lookups, as in TLSF and `offset-allocator`; neighbours merge on free.
//!
//! Invariants:
//! - allocations never overlap, start at 64 bytes and, from 1 MiB on, at pages;
//! - no two free blocks are neighbours;
//! - everything at or above `fresh` was never given out. Blocks below it ("warm": their pages exist) are preferred,
//!   and fresh bytes are taken from the bottom, so background population knows which bytes come next.

mod bins;

use bins::{Bins, bin_ceil, bin_floor};

/// All sizes and offsets are multiples of this.
const GRANULE_BYTES: u64 = 64;
/// From this size on, allocations are page-aligned and a whole number of pages.
const PAGED_FROM_BYTES: u64 = 1 << 20;
const PAGE_GRANULES: u64 = 4096 / GRANULE_BYTES;
/// How many blocks of a class that may or may not fit are looked at.
const INEXACT_LOOKS_MAX: u32 = 32;

const NONE: u32 = u32::MAX;

/// The right to a range. It is not `Clone`: giving it back consumes it, so a double free does not compile.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an allocation that is dropped is lost until the allocator is"]
pub struct Allocation {
    block: u32,
    offset: u64,
    len: u64,
}

impl Allocation {
    /// The first byte of the range.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The length of the range: what was asked for, rounded up.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the range is empty; it never is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// One block, taken or free, in granules. `lower` and `upper` are its neighbours in memory, `next` and `prev` its
/// neighbours in the free list.
#[derive(Debug, Clone, Copy)]
struct Block {
    start: u64,
    size: u64,
    lower: u32,
    upper: u32,
    next: u32,
    prev: u32,
    taken: bool,
}

/// The allocator.
#[derive(Debug)]
pub struct Allocator {
    capacity: u64,
    /// First granule that was never given out.
    fresh: u64,
    /// The block that ends at `fresh`.
    top: u32,
    used: u64,
    blocks: Vec<Block>,
    blocks_unused: Vec<u32>,
    bins: Bins,
}

impl Allocator {
    /// An allocator of `capacity_bytes`, all free.
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity: capacity_bytes / GRANULE_BYTES,
            fresh: 0,
            top: NONE,
            used: 0,
            blocks: Vec::new(),
            blocks_unused: Vec::new(),
            bins: Bins::new(),
        }
    }

    /// Takes `len` bytes (at least one granule), or `None` when no free range is long enough.
    pub fn allocate(&mut self, len: u64) -> Option<Allocation> {
        let (size, align) = shape(len)?;
        let block = match self.find(size, align) {
            Some(block) => self.carve(block, size, align),
            None => self.extend(size, align)?,
        };
        let taken = &mut self.blocks[block as usize];
        taken.taken = true;
        self.used += size;
        Some(Allocation { block, offset: taken.start * GRANULE_BYTES, len: size * GRANULE_BYTES })
    }

    /// Gives a range back and merges it with its free neighbours.
    pub fn free(&mut self, allocation: Allocation) {
        let mut block = allocation.block;
        self.used -= self.blocks[block as usize].size;
        self.blocks[block as usize].taken = false;
        let Block { lower, upper, .. } = self.blocks[block as usize];
        if upper != NONE && !self.blocks[upper as usize].taken {
            self.unlink(upper);
            self.absorb_upper(block);
        }
        if lower != NONE && !self.blocks[lower as usize].taken {
            self.unlink(lower);
            self.absorb_upper(lower);
            block = lower;
        }
        self.link(block);
    }

    /// Bytes given out.
    pub fn used(&self) -> u64 {
        self.used * GRANULE_BYTES
    }

    /// Bytes of the whole range.
    pub fn capacity(&self) -> u64 {
        self.capacity * GRANULE_BYTES
    }

    /// Bytes that were given out at least once: everything below this offset.
    pub fn warm(&self) -> u64 {
        self.fresh * GRANULE_BYTES
    }

    /// The free ranges among the bytes that were given out before, as offset and length, from the top down.
    pub fn free_ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges().filter(|(_, _, taken)| !taken).map(|(offset, len, _)| (offset, len))
    }

    /// All ranges that were given out before, free or taken, as offset, length and whether it is taken, from the top down.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
        let lower = |block: &u32| Some(self.blocks[*block as usize].lower).filter(|lower| *lower != NONE);
        let all = std::iter::successors(Some(self.top).filter(|top| *top != NONE), lower);
        let blocks = all.map(|block| &self.blocks[block as usize]);
        blocks.map(|block| (block.start * GRANULE_BYTES, block.size * GRANULE_BYTES, block.taken))
    }

    /// The longest free range in bytes. It walks the longest size class, so it is for messages, not for hot paths.
    pub fn largest_free(&self) -> u64 {
        let mut longest = self.capacity - self.free_top_start();
        let mut block = self.bins.longest().map_or(NONE, |bin| self.bins.head(bin));
        while block != NONE {
            longest = longest.max(self.blocks[block as usize].size);
            block = self.blocks[block as usize].next;
        }
        longest * GRANULE_BYTES
    }

    /// Whether `len` bytes fit into the range when it is empty.
    pub fn could_ever_fit(&self, len: u64) -> bool {
        shape(len).is_some_and(|(size, _)| size <= self.capacity)
    }

    /// A free warm block in which an aligned range of `size` fits.
    fn find(&self, size: u64, align: u64) -> Option<u32> {
        let certain = bin_ceil(size + align - 1);
        if let Some(bin) = self.bins.first_from(certain) {
            return Some(self.bins.head(bin));
        }
        // Blocks of the classes below may still be long enough: a bounded look keeps a nearly full arena usable.
        let mut looks = 0;
        for bin in (bin_floor(size)..certain).rev() {
            let mut block = self.bins.head(bin);
            while block != NONE && looks < INEXACT_LOOKS_MAX {
                let Block { start, size: free, next, .. } = self.blocks[block as usize];
                if start.next_multiple_of(align) + size <= start + free {
                    return Some(block);
                }
                looks += 1;
                block = next;
            }
        }
        None
    }

    /// Cuts an aligned range out of a free block; what is left on both sides stays free.
    fn carve(&mut self, block: u32, size: u64, align: u64) -> u32 {
        self.unlink(block);
        let start = self.blocks[block as usize].start;
        let pad = start.next_multiple_of(align) - start;
        let mut chosen = block;
        if pad > 0 {
            chosen = self.split(block, pad);
            self.link(block);
        }
        if self.blocks[chosen as usize].size > size {
            let rest = self.split(chosen, size);
            self.link(rest);
        }
        chosen
    }

    /// Takes from the bytes that were never given out, together with a free block right below them.
    fn extend(&mut self, size: u64, align: u64) -> Option<u32> {
        let base = self.free_top_start();
        let start = base.next_multiple_of(align);
        let end = start.checked_add(size).filter(|end| *end <= self.capacity)?;
        let block = if base < self.fresh {
            self.unlink(self.top);
            self.blocks[self.top as usize].size = end - base;
            self.top
        } else {
            let lower = self.top;
            let block = self.new_block(Block {
                start: base,
                size: end - base,
                lower,
                upper: NONE,
                next: NONE,
                prev: NONE,
                taken: false,
            });
            if lower != NONE {
                self.blocks[lower as usize].upper = block;
            }
            self.top = block;
            block
        };
        self.fresh = end;
        if start == base {
            return Some(block);
        }
        let chosen = self.split(block, start - base);
        self.link(block);
        Some(chosen)
    }

    /// Where the free bytes that reach up to the capacity begin.
    fn free_top_start(&self) -> u64 {
        match self.blocks.get(self.top as usize) {
            Some(top) if !top.taken => top.start,
            _ => self.fresh,
        }
    }

    /// Shortens a block to `size` and returns a new block of the rest. Neither is in a list.
    fn split(&mut self, block: u32, size: u64) -> u32 {
        let Block { start, size: whole, upper, .. } = self.blocks[block as usize];
        let rest = self.new_block(Block {
            start: start + size,
            size: whole - size,
            lower: block,
            upper,
            next: NONE,
            prev: NONE,
            taken: false,
        });
        self.blocks[block as usize].size = size;
        self.blocks[block as usize].upper = rest;
        if upper == NONE {
            self.top = rest;
        } else {
            self.blocks[upper as usize].lower = rest;
        }
        rest
    }

    /// Makes a block out of itself and its upper neighbour, which is in no list.
    fn absorb_upper(&mut self, block: u32) {
        let upper = self.blocks[block as usize].upper;
        let Block { size, upper: beyond, .. } = self.blocks[upper as usize];
        self.blocks[block as usize].size += size;
        self.blocks[block as usize].upper = beyond;
        if beyond == NONE {
            self.top = block;
        } else {
            self.blocks[beyond as usize].lower = block;
        }
        self.blocks_unused.push(upper);
    }

    fn new_block(&mut self, block: Block) -> u32 {
        if let Some(index) = self.blocks_unused.pop() {
            self.blocks[index as usize] = block;
            return index;
        }
        self.blocks.push(block);
        u32::try_from(self.blocks.len() - 1).expect("blocks are bounded by twice the objects, far below 2^32")
    }

    fn link(&mut self, block: u32) {
        let bin = bin_floor(self.blocks[block as usize].size);
        let head = self.bins.head(bin);
        self.blocks[block as usize].next = head;
        self.blocks[block as usize].prev = NONE;
        if head != NONE {
            self.blocks[head as usize].prev = block;
        }
        self.bins.set_head(bin, block);
    }

    fn unlink(&mut self, block: u32) {
        let Block { size, next, prev, .. } = self.blocks[block as usize];
        if next != NONE {
            self.blocks[next as usize].prev = prev;
        }
        if prev == NONE {
            self.bins.set_head(bin_floor(size), next);
        } else {
            self.blocks[prev as usize].next = next;
        }
    }
}

/// Size and alignment in granules; `None` when the size overflows.
fn shape(len: u64) -> Option<(u64, u64)> {
    let len = len.max(1);
    if len >= PAGED_FROM_BYTES {
        let pages = len.checked_next_multiple_of(4096)?;
        return Some((pages / GRANULE_BYTES, PAGE_GRANULES));
    }
    Some((len.div_ceil(GRANULE_BYTES), 1))
}

#[cfg(test)]
mod tests;
