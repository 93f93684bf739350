//! Signals as a descriptor, so that the thread that waits for links waits for them too.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use crate::error::Error;

/// Asks a node to end: `kill`, Ctrl-C, and the end of its terminal.
const STOP: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// A descriptor that is readable once this process has been asked to end. From then on these signals do nothing else, in
/// this thread and those that it starts: call it first, on the main thread. Processes that are started with a mask of
/// their own (workers) are not touched.
pub fn stop_signals() -> Result<OwnedFd, Error> {
    let failed = || Error::System { what: "taking signals", reason: io::Error::last_os_error().to_string() };
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call fills the set in.
    let mut set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    };
    for signal in STOP {
        // SAFETY: the set is initialised and the number is a signal's.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    // SAFETY: the set is initialised; the old mask is not asked for.
    if unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) } != 0 {
        return Err(failed());
    }
    // SAFETY: the set is initialised; -1 asks for a new descriptor.
    let descriptor = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if descriptor < 0 {
        return Err(failed());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
