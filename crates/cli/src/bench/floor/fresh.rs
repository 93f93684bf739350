//! A plain copy into shared pages that nobody has touched.

use std::ptr;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::bench::Outcome;
use crate::bench::measure::seconds;

/// Seconds of a copy on one thread into a new `memfd`, by page faults.
pub(in crate::bench) fn copy_into_fresh_shared_pages(from: &[u8]) -> Outcome<f64> {
    let file = memfd_create("bireme-floor", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, from.len() as u64)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
    let target = unsafe { mmap(ptr::null_mut(), from.len(), access, MapFlags::SHARED, &file, 0)? };
    let (took, ()) = seconds(|| {
        // SAFETY: the mapping is that long, writable, ours alone, and cannot overlap a live slice.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), target.cast(), from.len()) }
    });
    // SAFETY: the whole mapping from above, to which nothing refers any more.
    unsafe { munmap(target, from.len())? };
    Ok(took)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::copy_into_fresh_shared_pages;

    #[test]
    fn a_copy_into_fresh_pages_takes_time_and_leaves_nothing() {
        assert!(copy_into_fresh_shared_pages(&vec![1; 1 << 20]).unwrap() > 0.0);
    }
}
