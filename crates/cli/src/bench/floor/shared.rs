//! A word of memory that two processes share.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::bench::Outcome;

/// The whole page of the word, so that nothing else is in its cache line.
const BYTES: usize = 4096;

/// A mapping of the page.
pub(super) struct SharedWord(NonNull<AtomicU32>);

impl SharedWord {
    /// A new one that is zero, and the file by which another process gets at it.
    pub(super) fn new() -> Outcome<(Self, File)> {
        let file: OwnedFd = memfd_create("bireme-floor", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, BYTES as u64)?;
        Ok((Self::of(&file)?, File::from(file)))
    }

    /// The one of a file.
    pub(super) fn of(file: impl AsFd) -> Outcome<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
        let page = unsafe { mmap(ptr::null_mut(), BYTES, access, MapFlags::SHARED, file, 0)? };
        Ok(Self(NonNull::new(page.cast()).ok_or("a mapping at address zero")?))
    }

    /// The word.
    pub(super) fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping lives as long as this value, is aligned to a page, and is only used as an atomic, here and in the
        // other process.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedWord {
    fn drop(&mut self) {
        // SAFETY: the whole mapping of `of`, to which nothing refers any more.
        let unmapped = unsafe { munmap(self.0.as_ptr().cast(), BYTES) };
        // It can only fail for a range that is none, and then nothing is lost.
        let _ = unmapped;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_of_one_file_have_the_same_word() {
        let (one, file) = SharedWord::new().unwrap();
        let other = SharedWord::of(&file).unwrap();
        one.word().store(7, Ordering::Release);
        assert_eq!(other.word().load(Ordering::Acquire), 7);
    }
}
