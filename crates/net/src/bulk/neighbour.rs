//! A memory file of another process, open for reading: its bytes are copied out of a mapping.
//!
//! 100 MiB out of one memory file into another, in pieces of 256 KiB, on a busy machine: 26 ms out of a mapping, 48 ms by
//! `pread`, which looks up each page. So the file is mapped where that is safe: where it cannot shrink, since to read beyond its end
//! would end the process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// A file of another process.
#[derive(Debug)]
pub(super) struct Neighbour {
    file: File,
    memory: Option<Memory>,
}

impl Neighbour {
    /// Over a file that has this length.
    pub(super) fn over(file: File, len: u64) -> Self {
        // Where it fails, the file is read.
        let memory = Memory::map(&file, len);
        Self { file, memory }
    }

    /// Copies bytes out. They are those of the other process at some time during the call; who asks knows that they are final.
    pub(super) fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.memory {
            Some(memory) => memory.copy(into, offset).ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
            None => self.file.read_exact_at(into, offset),
        }
    }
}

/// A mapping of a whole file that cannot shrink.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range that any thread may read and unmap; it gives out no references.
unsafe impl Send for Memory {}

impl Memory {
    fn map(file: &File, len: u64) -> Option<Self> {
        let cannot_shrink = rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let len = usize::try_from(len).ok().filter(|len| *len > 0 && cannot_shrink)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a null hint lets the kernel choose an unused range, so no existing memory is replaced.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, file, 0) };
        Some(Self { start: NonNull::new(start.ok()?.cast())?, len })
    }

    /// None beyond the end.
    fn copy(&self, into: &mut [u8], offset: u64) -> Option<()> {
        let start = usize::try_from(offset).ok()?;
        if start.checked_add(into.len())? > self.len {
            return None;
        }
        // SAFETY: the source is inside the mapping (just checked), which lives as long as `self`, and the file cannot shrink
        // under it. The target is a slice of ours. They do not overlap: what `into` is borrowed from is no mapping of this
        // type, and if both were of one file, its places are given out once. The bytes are final by what the sender said, so
        // nobody writes them now; a sender that lies gives wrong bytes, as it could on a socket, and plain bytes have no
        // invalid values.
        unsafe { self.start.add(start).copy_to_nonoverlapping(NonNull::from(&mut *into).cast(), into.len()) };
        Some(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped, and nothing refers to it but `self`. An error could only mean that it is gone.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
