//! The one door into and out of the interpreter's lock.
//!
//! GIL-1: no thread of the runtime ever takes the lock. Results land in Rust's memory; a Python thread that waits for
//! them has left the lock, and takes it again itself. [`lock_counts`] counts violations; a test reads it.
//!
//! GIL-2: no thread waits inside the runtime with the lock held. Calls that usually wait leave it first ([`detach`]). For
//! all others the runtime runs each of its waits in the scope that [`fill`] gives it, which leaves the lock if the thread
//! still holds it. So code of this crate may hold no mutex that another Python thread takes while it calls the runtime.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

static TRESPASSES: AtomicU64 = AtomicU64::new(0);
static ENTRIES: AtomicU64 = AtomicU64::new(0);
/// Waits that began with the lock held, and left it.
static LEFT_LATE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread has left the lock through this door.
    static OUTSIDE: Cell<bool> = const { Cell::new(false) };
}

// Exported by every CPython, though its headers keep it out of the limited API.
unsafe extern "C" {
    fn PyGILState_Check() -> c_int;
}

/// Has the runtime wait outside of the lock only.
fn install() {
    bireme_runtime::set_wait_scope(wait_outside);
}

/// Runs a wait of the runtime without the lock.
fn wait_outside(wait: &mut dyn FnMut()) {
    if !is_held() {
        return wait();
    }
    LEFT_LATE.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the thread holds the lock, as was just found.
    detach_here(unsafe { Python::assume_attached() }, wait);
}

/// Whether the current thread holds the lock.
fn is_held() -> bool {
    // SAFETY: neither call has preconditions. A thread that the interpreter does not know holds nothing; the second call
    // says nothing of use once a program has made a subinterpreter, hence the flag.
    !OUTSIDE.get() && unsafe { !ffi::PyGILState_GetThisThreadState().is_null() && PyGILState_Check() == 1 }
}

/// Says until dropped on which side of the door the thread is.
struct Side(bool);

impl Side {
    fn enter(outside: bool) -> Self {
        Self(OUTSIDE.replace(outside))
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        OUTSIDE.set(self.0);
    }
}

/// Runs something with the lock.
pub fn attach<R>(body: impl FnOnce(Python<'_>) -> R) -> R {
    ENTRIES.fetch_add(1, Ordering::Relaxed);
    if bireme_runtime::is_runtime_thread() {
        TRESPASSES.fetch_add(1, Ordering::Relaxed);
    }
    Python::attach(|py| {
        let _inside = Side::enter(false);
        body(py)
    })
}

/// Runs something that may block, without the lock.
pub fn detach<R: Send>(py: Python<'_>, body: impl FnOnce() -> R + Send) -> R {
    py.detach(|| {
        let _outside = Side::enter(true);
        body()
    })
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
        let _outside = Side::enter(true);
        *slot = Some(body());
    }
}

/// How often the lock was taken by Rust code, how often by a thread that must not, and how many waits began with it held and
/// left it.
#[pyfunction]
fn lock_counts() -> (u64, u64, u64) {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    (read(&ENTRIES), read(&TRESPASSES), read(&LEFT_LATE))
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    install();
    module.add_function(wrap_pyfunction!(lock_counts, module)?)
}
