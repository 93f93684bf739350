//! A view of an object that may be written: what is written is seen by nobody else.
//!
//! For libraries that take memory and have no way to say that it is read-only. The pages are those of the object until one
//! is written, and then a copy of that page is made.

use std::ptr::NonNull;

use rustix::io::Errno;

use super::Pinned;
use crate::mapping::{Mapping, PAGE_BYTES};

/// A range of an object's bytes, mapped privately. It holds the object's pin: pages that were not written are still shared.
pub struct PrivateView {
    start: NonNull<u8>,
    len: usize,
    _mapping: Mapping,
    _pinned: Pinned,
}

// SAFETY: the view is an address range and a pin, which belong to no thread. It gives out a raw pointer only.
unsafe impl Send for PrivateView {}
// SAFETY: as above.
unsafe impl Sync for PrivateView {}

impl Pinned {
    /// A writable view of `len` bytes from `start` on, private to whoever holds it.
    pub fn map_private(&self, start: u64, len: u64) -> Result<PrivateView, Errno> {
        start.checked_add(len).filter(|end| *end <= self.location.len).ok_or(Errno::INVAL)?;
        let (file, object) = self.client.arena().file_at(self.location.offset).ok_or(Errno::FAULT)?;
        let first = object + start;
        let page = first / PAGE_BYTES * PAGE_BYTES;
        let mapping = Mapping::new_private(file, page, (first + len - page).max(1))?;
        let at = mapping.at(first - page, len).ok_or(Errno::FAULT)?;
        Ok(PrivateView { start: at, len: len as usize, _mapping: mapping, _pinned: self.clone() })
    }
}

impl PrivateView {
    /// The first byte. It may be written while the view lives, by one thread at a time.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
