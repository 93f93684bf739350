//! Waiting outside of a front end's global lock.
//!
//! An interpreter has a lock that its threads hold while they run. A thread that waited for the node with that lock held
//! could wait for ever: the answer may be read by a thread that needs the lock first. Every wait of the runtime therefore
//! goes through [`outside`], which has the front end leave its lock, if the thread holds it, until the wait is over. A call
//! that finds what it needs without waiting keeps the lock.
//!
//! A caller must hold no lock of the runtime here: it takes the interpreter's lock again before it returns.

use std::sync::OnceLock;

static SCOPE: OnceLock<fn(&mut dyn FnMut())> = OnceLock::new();

/// Sets what runs a wait outside of the front end's lock; the first one counts. It is called on any thread, also on one
/// that holds no lock or is unknown to the front end, and must call what it is given once.
pub fn set_wait_scope(scope: fn(&mut dyn FnMut())) {
    // The first one counts.
    let _ = SCOPE.set(scope);
}

/// Runs something that waits.
pub(crate) fn outside<R>(wait: impl FnOnce() -> R) -> R {
    let Some(scope) = SCOPE.get() else { return wait() };
    let (mut wait, mut result) = (Some(wait), None);
    scope(&mut || result = wait.take().map(|wait| wait()));
    result.expect("the scope ran the wait")
}
