//! The memory of a node goes back to the machine when it is not needed any more.

/// Frees blocks of this size and more as soon as they are free: pieces of executables, answers, buffers of links.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 128 << 10;

/// Makes the allocator keep little. Otherwise every thread that lives for a moment leaves a heap of megabytes behind, and a
/// node that has given a program to a dozen others stays large for ever. Call it before there are threads.
pub(super) fn keep_little() {
    #[cfg(target_env = "gnu")]
    for (option, value) in
        [(libc::M_ARENA_MAX, 2), (libc::M_MMAP_THRESHOLD, LARGE_BYTES), (libc::M_TRIM_THRESHOLD, LARGE_BYTES)]
    {
        // A refusal costs memory and nothing else.
        // SAFETY: the call takes two numbers and changes how the allocator works from here on; it takes its own lock.
        unsafe { libc::mallopt(option, value) };
    }
}

/// Gives what is free between blocks that are in use back as well, in any process with a node: much has come and gone, and
/// the node is idle. On a thread of its own, since it can take a while.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // Without a thread it is left for the next time.
    drop(crate::thread::spawn("bireme-trim", || {
        // SAFETY: the call takes a number, takes the allocator's own locks, and changes no block that is in use.
        unsafe { libc::malloc_trim(0) };
    }));
}
