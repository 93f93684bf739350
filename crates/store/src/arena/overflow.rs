//! The overflow: a file on disk, mapped like the arena, for objects that must be readable when memory has no room left.
//!
//! Objects are spilled so that others find room; when everything that is left is in use, nothing can be. What is needed
//! nevertheless (the output of a task that holds the memory, more values in one `get` than the store holds) is
//! put here: slower, but no error. The file is in the spill directory, has no name and no length on disk until it is
//! used, and goes with the last process that has it open. Its node reserves disk space before it gives a range out, so
//! a full disk is an error there and no signal in a process that writes. Processes map it with its first use.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::mapping::Mapping;

/// The overflow is at most so many times as long as the arena: it takes address space in every process that uses it.
pub const OVERFLOW_FACTOR_MAX: u64 = 16;

#[derive(Debug)]
pub(crate) struct Overflow {
    file: OwnedFd,
    len: u64,
    /// For writing and for reading; none when the system refused.
    mappings: OnceLock<Option<(Mapping, Mapping)>>,
}

impl Overflow {
    pub(super) fn new(file: OwnedFd) -> Self {
        let len = rustix::fs::fstat(&file).ok().and_then(|stat| u64::try_from(stat.st_size).ok());
        Self { file, len: len.unwrap_or(0), mappings: OnceLock::new() }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The bytes that it can hold.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    fn mappings(&self) -> Option<&(Mapping, Mapping)> {
        let map =
            || Some((Mapping::new(&self.file, self.len, true).ok()?, Mapping::new(&self.file, self.len, false).ok()?));
        self.mappings.get_or_init(|| if self.len == 0 { None } else { map() }).as_ref()
    }

    pub(super) fn write_at(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        self.mappings()?.0.at(offset, len)
    }

    pub(super) fn read_at(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        self.mappings()?.1.at(offset, len)
    }

    /// Takes disk space for a range, which reads as zero.
    pub(crate) fn reserve(&self, offset: u64, len: u64) -> Result<(), Errno> {
        if self.mappings().is_none() {
            return Err(Errno::NOMEM);
        }
        rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len)
    }

    /// Gives the disk space of a range back.
    pub(crate) fn give_back(&self, offset: u64, len: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // What cannot be punched stays until the range is used again or the node ends.
        let _ = rustix::fs::fallocate(&self.file, flags, offset, len);
    }
}
