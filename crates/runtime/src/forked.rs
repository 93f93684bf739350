//! Copies of a process: what `fork` makes of a driver or worker has its memory but none of its threads, so every lock
//! may be held for ever and every ring belongs to somebody else.
//!
//! The C library calls [`note_fork`] in each such child, which sets a flag; the public calls of the runtime look at it
//! before they touch anything (a lock above all) and answer [`Error::Forked`]. Handles and views that are dropped there
//! change nothing. Only the keeper's own forks become part of the runtime, and say so with [`become_original`].

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;
use crate::keeper::on_fork;

static FORKED: AtomicBool = AtomicBool::new(false);
static WATCHED: OnceLock<Result<(), String>> = OnceLock::new();

/// Whether this process is a fork of one that had a runtime.
#[inline]
pub fn is_forked() -> bool {
    // Relaxed: set while the process had one thread; every later thread was started after that.
    FORKED.load(Ordering::Relaxed)
}

/// Refuses to go on in a fork. Takes no lock.
#[inline]
pub fn check_forked() -> Result<(), Error> {
    if is_forked() { Err(Error::Forked) } else { Ok(()) }
}

/// Has the forks of this process, and theirs, noted from now on.
pub(crate) fn watch_forks() -> Result<(), Error> {
    let watched = WATCHED.get_or_init(|| on_fork(note_fork).map_err(|error| error.to_string()));
    watched.clone().map_err(|reason| Error::System { what: "watching for forks", reason })
}

/// This fork was made by the keeper to be a process of its own.
pub(crate) fn become_original() {
    FORKED.store(false, Ordering::Relaxed);
    bireme_store::own_pins();
}

/// Runs in the child of a fork, where little is allowed: two stores are.
extern "C" fn note_fork() {
    FORKED.store(true, Ordering::Relaxed);
    bireme_store::disown_pins();
}
