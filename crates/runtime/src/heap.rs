//! Memory that the allocator keeps for values that come and go.
//!
//! A value of some tens of kilobytes is allocated for each call and freed after it. What is free at the top of the heap goes
//! back to the kernel when it is more than 128 KiB, and every page of it is faulted in again with the next call, which takes
//! longer than to copy the value twice. Free memory below something that stays is kept. It costs nothing until it is used.

use std::cell::RefCell;
use std::hint::black_box;

/// The longest value that stays in messages, with room for what is around it.
const BLOCK_BYTES: usize = 80 << 10;
/// So many are on their way at a time.
const BLOCKS: usize = 12;

thread_local! {
    /// What stays, above the free memory.
    static KEPT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Makes the calling thread's part of the heap keep some memory. Each thread has a part of its own.
pub(crate) fn keep_some() {
    KEPT.with_borrow_mut(|kept| {
        if kept.capacity() == 0 {
            let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| black_box(Vec::with_capacity(BLOCK_BYTES))).collect();
            *kept = Vec::with_capacity(BLOCK_BYTES);
            drop(blocks);
        }
    });
}
