//! The fast put path: bytes from anywhere into the arena.
//!
//! Called by [`crate::Unsealed::copy_from`]. Spans of 2 MiB that this process has mapped already are a plain parallel
//! copy. In the others the kernel must first find, zero and map each page. The ways to do that for one GiB on two
//! quiet cores, where a one-thread copy by page faults takes 0.67 to 1.1 s and a warm copy on two threads 0.05 s:
//!
//! | way | seconds |
//! |---|---|
//! | copy by page faults on two threads | 0.40 to 0.57 |
//! | `fallocate`, then copy, on two threads | 0.38 |
//! | `MADV_POPULATE_WRITE`, then copy while the pages are in the cache, on two threads | 0.31 |
//! | `pwrite` on one thread (nothing is zeroed or mapped) | 0.35 |
//! | `pwrite` on two threads (they wait for the file's lock) | 0.36 |
//!
//! So the calling thread writes, and its helpers, which would only wait for the same lock, populate. Best of 25 runs of
//! 128 MiB: page faults 93 ms, one writer 47 ms, two that populate 41 ms, one of each 35 ms. (With the second core taken
//! by others one of each is at 57 ms, since populating costs more processor time than writing.) A written span is
//! remembered too: its pages exist, so mapping them the next time is cheap. Both ways report missing memory as an
//! error where a page fault would be SIGBUS.
//!
//! Pieces are claimed from a counter, so a helper thread that starts late or loses its core holds nobody back. They are
//! small while pages are missing. Large copies into mapped pages are cut into few: libc's memcpy knows for each processor
//! from which length on stores should go past the caches, and must see that length to do so. Streaming stores of our own
//! were a third faster than small pieces on one machine and four times slower on another.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::io::Errno;

use crate::arena::{Arena, SPAN_BYTES, SpanUse};

/// Below this, starting threads (about 50 µs each) costs more than it brings.
const PARALLEL_FROM_BYTES: u64 = 4 << 20;
/// What a thread claims at a time; a multiple of `SPAN_BYTES`.
const PIECE_BYTES: u64 = 2 << 20;
/// How much is populated before it is copied: small enough to stay in the cache.
const POPULATE_BYTES: u64 = 512 << 10;
/// Fewer unmapped bytes than this are left to page faults.
const POPULATE_FROM_BYTES: u64 = 64 << 10;
/// From this size on, a copy into mapped pages is cut into few pieces.
const LARGE_FROM_BYTES: u64 = 64 << 20;
/// Number of pieces for each thread.
const LARGE_PIECES_PER_THREAD: u64 = 2;
/// More threads than this only fight for memory bandwidth.
const THREADS_MAX: usize = 8;

/// How a thread fills spans whose pages do not exist yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cold {
    Write,
    Populate,
}

/// How many threads a copy uses unless told otherwise.
pub(crate) fn threads_default() -> usize {
    // Asked once: the answer is read from files of the control group, which takes longer than a small copy.
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| thread::available_parallelism().map_or(1, |threads| threads.get().min(THREADS_MAX)))
}

/// The source of a copy, as an address that may go to other threads: `first` is the byte for arena offset `base`.
#[derive(Clone, Copy)]
struct Source {
    first: NonNull<u8>,
    base: u64,
}
// SAFETY: it stands for a `&[u8]` that outlives the scope of the threads that read it.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

/// Copies `src` to `offset`.
///
/// # Safety
/// `offset..offset + src.len()` lies inside the arena and belongs to the caller alone: no other thread or process
/// reads or writes it during the call. `src` does not overlap it.
pub(crate) unsafe fn copy_into(arena: &Arena, offset: u64, src: &[u8], threads: usize) -> Result<(), Errno> {
    let len = src.len() as u64;
    if len == 0 {
        // Values have empty parts. No mapping has a place for one at its end, or beyond the memory.
        return Ok(());
    }
    // Huge pages come by way of the mapping, five hundred small ones at a time, so then nobody writes.
    let mine = if arena.has_huge_pages() { Cold::Populate } else { Cold::Write };
    let source = Source { first: NonNull::from(src).cast(), base: offset };
    if arena.is_overflow(offset) {
        // The disk is the limit there, not the processor.
        // SAFETY: the caller's promise, unchanged.
        return unsafe { copy_mapped(arena, source, offset, offset + len) };
    }
    if len < PARALLEL_FROM_BYTES || threads <= 1 {
        // SAFETY: the caller's promise, unchanged.
        return unsafe { copy_range(arena, source, offset, offset + len, mine) };
    }
    let threads = threads.min(THREADS_MAX);
    let piece_bytes = piece_bytes(arena, offset, len, threads as u64);
    let first_piece = offset / piece_bytes;
    let next = AtomicU64::new(first_piece);
    let work = |cold: Cold| {
        loop {
            // Relaxed: claims need no order; the end of the scope publishes the bytes.
            let start = next.fetch_add(1, Ordering::Relaxed) * piece_bytes;
            if start >= offset + len {
                return Ok(());
            }
            let (from, to) = (start.max(offset), (start + piece_bytes).min(offset + len));
            // SAFETY: each piece is claimed once, lies inside the caller's range, and the scope ends before `src` does.
            unsafe { copy_range(arena, source, from, to, cold)? };
        }
    };
    let pieces = (offset + len).div_ceil(piece_bytes) - first_piece;
    let helpers = (threads - 1).min(pieces as usize - 1);
    thread::scope(|scope| {
        // A thread that cannot be started is no error: the others do its pieces.
        let started: Vec<_> = (0..helpers)
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, || work(Cold::Populate)).ok())
            .collect();
        let done = work(mine);
        started.into_iter().fold(done, |all, helper| all.and(helper.join().unwrap_or(Err(Errno::FAULT))))
    })
}

/// The piece that a thread claims at a time.
fn piece_bytes(arena: &Arena, offset: u64, len: u64, threads: u64) -> u64 {
    let first_span = offset / SPAN_BYTES * SPAN_BYTES;
    let is_mapped = |span: u64| arena.span_use(span) == SpanUse::Mapped;
    if len < LARGE_FROM_BYTES || !(first_span..offset + len).step_by(SPAN_BYTES as usize).all(is_mapped) {
        return PIECE_BYTES;
    }
    len.div_ceil(threads * LARGE_PIECES_PER_THREAD).next_multiple_of(PIECE_BYTES)
}

/// Copies the part of a source that goes to `from..to`.
///
/// # Safety
/// As for `copy_into`, for `from..to`, which the source covers.
unsafe fn copy_range(arena: &Arena, source: Source, from: u64, to: u64, cold: Cold) -> Result<(), Errno> {
    let span_end = |at: u64| ((at / SPAN_BYTES + 1) * SPAN_BYTES).min(to);
    let mut at = from;
    while at < to {
        let mut end = at;
        while end < to && arena.span_use(end) == SpanUse::Mapped {
            end = span_end(end);
        }
        if end > at {
            // SAFETY: a part of the caller's range, and so for the two calls below.
            unsafe { copy_mapped(arena, source, at, end)? };
            at = end;
            continue;
        }
        end = span_end(at);
        let exists = arena.span_use(at) == SpanUse::Exists;
        let whole = at.is_multiple_of(SPAN_BYTES) && (end - at == SPAN_BYTES || end == arena.capacity());
        if end - at < POPULATE_FROM_BYTES {
            // SAFETY: as above.
            unsafe { copy_mapped(arena, source, at, end)? };
        } else if cold == Cold::Write && !exists {
            // SAFETY: as above.
            unsafe { write(arena, source, at, end)? };
        } else {
            for start in (at..end).step_by(POPULATE_BYTES as usize) {
                let step = (start + POPULATE_BYTES).min(end);
                arena.populate_write(start, step - start)?;
                // SAFETY: as above.
                unsafe { copy_mapped(arena, source, start, step)? };
            }
        }
        if whole {
            let wrote = cold == Cold::Write && !exists;
            arena.mark(at, if wrote { SpanUse::Exists } else { SpanUse::Mapped });
        }
        at = end;
    }
    Ok(())
}

/// Maps the pages of `from..to` that this process has not mapped yet.
pub(crate) fn populate_range(arena: &Arena, from: u64, to: u64) -> Result<(), Errno> {
    // Pages of the overflow file come with the first touch; its disk space is there.
    let mut at = if arena.is_overflow(from) { to } else { from };
    while at < to {
        let end = ((at / SPAN_BYTES + 1) * SPAN_BYTES).min(to);
        if arena.span_use(at) != SpanUse::Mapped {
            arena.populate_write(at, end - at)?;
            if at.is_multiple_of(SPAN_BYTES) && (end - at == SPAN_BYTES || end == arena.capacity()) {
                arena.mark(at, SpanUse::Mapped);
            }
        }
        at = end;
    }
    Ok(())
}

/// Writes through the descriptor instead of the mapping.
///
/// # Safety
/// As for `copy_range`.
unsafe fn write(arena: &Arena, source: Source, from: u64, to: u64) -> Result<(), Errno> {
    // SAFETY: the source covers `from..to` by the caller's promise.
    let mut left = unsafe {
        std::slice::from_raw_parts(source.first.add((from - source.base) as usize).as_ptr(), (to - from) as usize)
    };
    while !left.is_empty() {
        match rustix::io::pwrite(arena.fd(), left, to - left.len() as u64) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => left = &left[written..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies without looking at what is mapped.
///
/// # Safety
/// As for `copy_range`.
unsafe fn copy_mapped(arena: &Arena, source: Source, from: u64, to: u64) -> Result<(), Errno> {
    let len = (to - from) as usize;
    let target = arena.write_at(from, to - from).ok_or(Errno::FAULT)?;
    // SAFETY: the target is in bounds (just checked) and the caller's alone; the source covers it; they do not overlap.
    unsafe {
        let source = source.first.add((from - source.base) as usize);
        target.copy_from_nonoverlapping(source, len);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn large_copies_into_mapped_pages_are_left_to_libc_in_few_pieces() {
        let arena = Arena::create(96 << 20).unwrap();
        assert_eq!(piece_bytes(&arena, 0, 80 << 20, 2), PIECE_BYTES);
        assert_eq!(arena.populate(0), Ok(64 << 20));
        assert_eq!(piece_bytes(&arena, 0, 80 << 20, 2), PIECE_BYTES, "a part of it is not mapped");
        assert_eq!(arena.populate(64 << 20), Ok(96 << 20));
        assert_eq!(piece_bytes(&arena, 0, 80 << 20, 2), 20 << 20);
        assert_eq!(piece_bytes(&arena, 33, (80 << 20) + 1, 2), 22 << 20);
        assert_eq!(piece_bytes(&arena, 0, 32 << 20, 2), PIECE_BYTES);
    }
}
