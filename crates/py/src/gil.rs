//! The one door into and out of the interpreter's lock.
//!
//! GIL-1: no thread of the runtime ever takes the lock. Results land in Rust's memory; a Python thread that waits for
//! them has left the lock, and takes it again itself. [`trespasses`] counts violations; a test reads it.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::marker::Ungil;
use pyo3::prelude::*;

static TRESPASSES: AtomicU64 = AtomicU64::new(0);
static ENTRIES: AtomicU64 = AtomicU64::new(0);

/// Runs something with the lock.
pub fn attach<R>(body: impl FnOnce(Python<'_>) -> R) -> R {
    ENTRIES.fetch_add(1, Ordering::Relaxed);
    if bireme_runtime::is_runtime_thread() {
        TRESPASSES.fetch_add(1, Ordering::Relaxed);
    }
    Python::attach(body)
}

/// Runs something that may block, without the lock.
pub fn detach<R: Ungil>(py: Python<'_>, body: impl FnOnce() -> R + Ungil) -> R {
    py.detach(body)
}

/// The same for something that cannot be sent to other threads: it runs on this one.
pub fn detach_here<R>(py: Python<'_>, body: impl FnOnce() -> R) -> R {
    let mut result = None;
    let slot = SameThread((body, &mut result));
    py.detach(move || slot.call());
    result.expect("the closure ran and left its result")
}

/// A closure and the place for its result, both of the thread that made them.
struct SameThread<'a, R, F>((F, &'a mut Option<R>));

// SAFETY: `Python::detach` runs its closure on the calling thread; nothing is sent anywhere.
unsafe impl<R, F> Send for SameThread<'_, R, F> {}

impl<R, F: FnOnce() -> R> SameThread<'_, R, F> {
    fn call(self) {
        let (body, slot) = self.0;
        *slot = Some(body());
    }
}

/// How often the lock was taken by Rust code, and how often by a thread that must not.
#[pyfunction]
fn lock_counts() -> (u64, u64) {
    (ENTRIES.load(Ordering::Relaxed), TRESPASSES.load(Ordering::Relaxed))
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(lock_counts, module)?)
}
