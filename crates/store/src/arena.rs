//! The memory that objects live in: one sparse, sealed memfd, mapped twice.
//!
//! Every process maps the arena once for writing (only [`crate::Unsealed`] and restores use it) and once read-only
//! (all user views come from there, so a stray write through a view faults instead of changing an object).
//!
//! First touch of a page dominates a cold put: the kernel must find, zero and map it. The arena therefore remembers,
//! per process and in spans of 2 MiB, which ranges this process has made or mapped already; `copy` treats the others
//! in bulk. The marks are hints: a wrong one costs page faults, never correctness (after a fork, for example,
//! the child's page tables are empty while the marks are copied).
//!
//! Beyond the capacity lies the overflow (`arena::overflow`): a file on disk for what has to be readable while everything
//! in memory is in use. Offsets from the capacity on are offsets of that file.

mod overflow;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::Advice;

use crate::mapping::{self, Mapping, PAGE_BYTES};
pub use overflow::OVERFLOW_FACTOR_MAX;
use overflow::Overflow;

/// One step of background population: about 20 ms of work, so an idle node stays responsive.
pub const POPULATE_STEP_BYTES: u64 = 64 << 20;
/// Granularity of the marks of what this process has used.
pub(crate) const SPAN_BYTES: u64 = 2 << 20;

/// What this process has done to a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SpanUse {
    /// Nothing: its pages may not exist.
    Unknown = 0,
    /// Written through the descriptor: its pages exist.
    Exists = 1,
    /// Mapped for writing: a copy into it meets no page fault.
    Mapped = 2,
}

/// Why an arena or a table could not be made or opened.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArenaError {
    /// The capacity is zero, too large for the address space, or not a whole number of pages.
    #[error("a capacity of {capacity} bytes cannot be used: give a positive multiple of 4096 below 2^47")]
    BadCapacity {
        /// The capacity that was asked for.
        capacity: u64,
    },
    /// The descriptor is no memfd of ours: its size or seals are wrong.
    #[error("the descriptor is not a sealed memfd of the expected size: pass the one that the node created")]
    NotOurs,
    /// The system refused; for example out of memory or of descriptors.
    #[error("the system refused to map shared memory: {0}")]
    Os(#[from] Errno),
}

/// The memory of all objects of one machine.
#[derive(Debug)]
pub struct Arena {
    fd: OwnedFd,
    capacity: u64,
    write: Mapping,
    read: Mapping,
    spans: Box<[AtomicU8]>,
    huge_pages: bool,
    overflow: Option<Overflow>,
}

impl Arena {
    /// Makes a new arena of `capacity` bytes (a multiple of 4096). No page is touched yet.
    pub fn create(capacity: u64) -> Result<Self, ArenaError> {
        check_capacity(capacity)?;
        let fd = mapping::create_sealed(c"bireme-arena", capacity)?;
        Self::map(fd, capacity)
    }

    /// Opens an arena that another process created and handed over by descriptor.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, ArenaError> {
        let capacity = mapping::sealed_len(&fd)?.ok_or(ArenaError::NotOurs)?;
        check_capacity(capacity)?;
        Self::map(fd, capacity)
    }

    fn map(fd: OwnedFd, capacity: u64) -> Result<Self, ArenaError> {
        let write = Mapping::new(&fd, capacity, true)?;
        let read = Mapping::new(&fd, capacity, false)?;
        for mapping in [&write, &read] {
            let start = mapping.at(0, capacity).ok_or(ArenaError::BadCapacity { capacity })?;
            // SAFETY: the range is exactly our own mapping, and the advice changes no byte of it. Where huge pages
            // are switched off the kernel refuses or ignores it, and small pages are what we get.
            let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), capacity as usize, Advice::LinuxHugepage) };
        }
        let spans = (0..capacity.div_ceil(SPAN_BYTES)).map(|_| AtomicU8::new(SpanUse::Unknown as u8)).collect();
        Ok(Self { fd, capacity, write, read, spans, huge_pages: huge_pages_enabled(), overflow: None })
    }

    /// The size of the arena in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Adds the file for what finds no room in memory, made here or inherited. An empty file means that there is none.
    pub fn with_overflow(mut self, file: OwnedFd) -> Self {
        self.overflow = Some(Overflow::new(file));
        self
    }

    /// The descriptor of the overflow file, to hand to other processes.
    pub fn overflow_fd(&self) -> Option<BorrowedFd<'_>> {
        self.overflow.as_ref().map(Overflow::fd)
    }

    pub(crate) fn overflow(&self) -> Option<&Overflow> {
        self.overflow.as_ref()
    }

    /// Whether what begins at this offset lies in the overflow file and not in the arena's own.
    pub fn is_overflow(&self, offset: u64) -> bool {
        offset >= self.capacity
    }

    /// The file that this offset is in, and the offset there.
    pub(crate) fn file_at(&self, offset: u64) -> Option<(BorrowedFd<'_>, u64)> {
        match offset.checked_sub(self.capacity) {
            None => Some((self.fd(), offset)),
            Some(beyond) => Some((self.overflow_fd()?, beyond)),
        }
    }

    /// Whether the machine gives huge pages to mappings that ask for them, as ours do.
    pub(crate) fn has_huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// The descriptor to hand to other processes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Says whether an `exec` in this process keeps the descriptor open (it does not by default).
    pub fn set_inheritable(&self, inheritable: bool) -> Result<(), ArenaError> {
        Ok(mapping::set_inheritable(&self.fd, inheritable)?)
    }

    /// Touches up to [`POPULATE_STEP_BYTES`] from `offset` on, so that a later put finds warm pages. Returns the
    /// offset to continue at, which is the capacity when all is done.
    pub fn populate(&self, offset: u64) -> Result<u64, ArenaError> {
        let start = offset.min(self.capacity) / SPAN_BYTES * SPAN_BYTES;
        let end = start.saturating_add(POPULATE_STEP_BYTES).min(self.capacity);
        for span in (start..end).step_by(SPAN_BYTES as usize) {
            if self.span_use(span) != SpanUse::Mapped {
                self.populate_write(span, SPAN_BYTES.min(end - span))?;
                self.mark(span, SpanUse::Mapped);
            }
        }
        Ok(end)
    }

    /// Gives the whole pages of a range that nobody uses back to the machine; they are zero when they are used again.
    /// Returns how many bytes that are.
    pub(crate) fn give_back(&self, offset: u64, len: u64) -> Result<u64, Errno> {
        let start = offset.next_multiple_of(PAGE_BYTES);
        let end = offset.saturating_add(len).min(self.capacity) / PAGE_BYTES * PAGE_BYTES;
        if end <= start {
            return Ok(0);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.fd, flags, start, end - start)?;
        self.forget(start, end - start);
        Ok(end - start)
    }

    /// The pages of a range may have been given back since this process used them.
    pub(crate) fn forget(&self, offset: u64, len: u64) {
        for span in (offset / SPAN_BYTES * SPAN_BYTES..offset.saturating_add(len)).step_by(SPAN_BYTES as usize) {
            self.mark(span, SpanUse::Unknown);
        }
    }

    /// Bytes of memory behind the arena now.
    pub fn resident(&self) -> u64 {
        rustix::fs::fstat(&self.fd).map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
    }

    pub(crate) fn read_at(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        match offset.checked_sub(self.capacity).filter(|_| len > 0) {
            None => self.read.at(offset, len),
            Some(beyond) => self.overflow.as_ref()?.read_at(beyond, len),
        }
    }

    pub(crate) fn write_at(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        match offset.checked_sub(self.capacity).filter(|_| len > 0) {
            None => self.write.at(offset, len),
            Some(beyond) => self.overflow.as_ref()?.write_at(beyond, len),
        }
    }

    /// Finds, zeroes and maps the pages of a range in one system call. It fails instead of raising SIGBUS when memory
    /// is short; a kernel without the advice (before 5.14) leaves the work to page faults.
    pub(crate) fn populate_write(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let start = offset / PAGE_BYTES * PAGE_BYTES;
        let end = (offset + len).next_multiple_of(PAGE_BYTES).min(self.capacity);
        let Some(address) = self.write.at(start, end.saturating_sub(start)) else { return Err(Errno::FAULT) };
        // SAFETY: the range was checked to lie in our own mapping; populating changes no byte that anyone can read.
        let populated =
            unsafe { rustix::mm::madvise(address.as_ptr().cast(), (end - start) as usize, Advice::LinuxPopulateWrite) };
        match populated {
            Err(Errno::INVAL) => Ok(()),
            other => other,
        }
    }

    pub(crate) fn span_use(&self, offset: u64) -> SpanUse {
        // Relaxed: the mark is a hint and orders nothing.
        match self.spans.get((offset / SPAN_BYTES) as usize).map(|span| span.load(Ordering::Relaxed)) {
            Some(2) => SpanUse::Mapped,
            Some(1) => SpanUse::Exists,
            _ => SpanUse::Unknown,
        }
    }

    pub(crate) fn mark(&self, offset: u64, span_use: SpanUse) {
        if let Some(span) = self.spans.get((offset / SPAN_BYTES) as usize) {
            span.store(span_use as u8, Ordering::Relaxed);
        }
    }
}

/// Reads the machine's setting, in which the chosen word is in brackets. Unknown means no.
fn huge_pages_enabled() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
        .is_ok_and(|setting| ["[always]", "[within_size]", "[advise]", "[force]"].iter().any(|on| setting.contains(on)))
}

fn check_capacity(capacity: u64) -> Result<(), ArenaError> {
    let usable = capacity > 0 && capacity < 1 << 47 && capacity.is_multiple_of(PAGE_BYTES);
    if usable { Ok(()) } else { Err(ArenaError::BadCapacity { capacity }) }
}
