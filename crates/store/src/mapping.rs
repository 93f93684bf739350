//! A sealed memfd and a mapping of one: the two things that arena and table are made of.
//!
//! Invariants: the file is sealed against shrinking and growing before it is mapped, so no access inside the mapping
//! can raise SIGBUS by truncation; a mapping is page-aligned and lives until it is dropped.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mm::{MapFlags, ProtFlags};

pub(crate) const PAGE_BYTES: u64 = 4096;

/// Makes a sparse memfd of `len` bytes that can never change its size.
pub(crate) fn create_sealed(name: &CStr, len: u64) -> Result<OwnedFd, Errno> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, len)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(fd)
}

/// The size of an inherited memfd, or `None` when it is not sealed against shrinking.
pub(crate) fn sealed_len(fd: &OwnedFd) -> Result<Option<u64>, Errno> {
    let seals = rustix::fs::fcntl_get_seals(fd)?;
    let stat = rustix::fs::fstat(fd)?;
    if !seals.contains(SealFlags::SHRINK) {
        return Ok(None);
    }
    Ok(u64::try_from(stat.st_size).ok())
}

/// Says whether an `exec` in this process keeps the descriptor open.
pub(crate) fn set_inheritable(fd: &OwnedFd, inheritable: bool) -> Result<(), Errno> {
    let flags = rustix::io::fcntl_getfd(fd)?;
    rustix::io::fcntl_setfd(fd, if inheritable { flags - FdFlags::CLOEXEC } else { flags | FdFlags::CLOEXEC })
}

/// One mapping of a memfd, or of a part of it.
#[derive(Debug)]
pub(crate) struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is only an address range; it may be used and unmapped from any thread. What may be done with the
// bytes is decided by the types that hand out pointers into it.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives out raw pointers only.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(fd: impl AsFd, len: u64, writable: bool) -> Result<Self, Errno> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        Self::map(fd, 0, len, protection, MapFlags::SHARED)
    }

    /// A writable mapping of a part of a memfd, from a whole page on. What is written there stays there.
    pub(crate) fn new_private(fd: impl AsFd, offset: u64, len: u64) -> Result<Self, Errno> {
        Self::map(fd, offset, len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }

    fn map(fd: impl AsFd, offset: u64, len: u64, protection: ProtFlags, flags: MapFlags) -> Result<Self, Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::NOMEM)?;
        let flags = flags | MapFlags::NORESERVE;
        // SAFETY: a null hint lets the kernel choose an unused range, so no existing memory is replaced.
        let ptr = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset)? };
        let ptr = NonNull::new(ptr.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self { ptr, len })
    }

    /// The address of byte `offset`, when `len` bytes from there lie inside the mapping.
    pub(crate) fn at(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        if end > self.len as u64 {
            return None;
        }
        // SAFETY: `offset <= end <= self.len`, so the result is inside the mapping or one past its end.
        Some(unsafe { self.ptr.add(offset as usize) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `ptr..ptr + len` is exactly what `new` mapped, and every view of it holds an `Arc` of its owner.
        // An error could only mean that the range is already gone, which leaves nothing to do.
        let _ = unsafe { rustix::mm::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}
