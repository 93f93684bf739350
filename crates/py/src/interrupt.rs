//! Signals and cancellation: how Ctrl-C ends a wait, and how a cancelled task is interrupted.
//!
//! A wait of the main thread asks the interpreter whether a handler has something to raise. In a worker, a cancelled task
//! gets a `KeyboardInterrupt`: a thread that waits inside the runtime finds out by itself; one that runs Python code is told
//! by the worker's signal handler, which runs on the main thread ([`interrupt_cancelled`]); a call on an event loop is
//! cancelled there. The hook of the runtime only notes the task and sends the signal, since it must not take the lock.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bireme_runtime::core::id::TaskId;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::gil;

/// Where a task runs.
enum Place {
    /// On a thread, by the interpreter's number for it.
    Thread(std::ffi::c_ulong),
    /// On the actor's event loop.
    Loop,
}

static RUNNING: Mutex<Option<HashMap<TaskId, Place>>> = Mutex::new(None);
static CANCELLED: Mutex<Vec<TaskId>> = Mutex::new(Vec::new());

thread_local! {
    /// What the interpreter wants raised by the wait that was interrupted.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Lets the runtime ask; to be called once per process.
pub fn install() {
    bireme_runtime::set_interrupt_check(is_interrupted);
}

/// The same in a worker, where tasks are cancelled.
pub fn install_in_worker() {
    install();
    bireme_runtime::set_cancel_hook(note_cancelled);
}

/// Whether the current thread is the one that runs Python's signal handlers.
pub fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Asked by a waiting thread with no lock held.
fn is_interrupted() -> bool {
    let raised = gil::attach(|py| {
        if is_main_thread()
            && let Err(error) = py.check_signals()
        {
            return Some(error);
        }
        let cancelled = bireme_runtime::Runtime::current().is_ok_and(|runtime| runtime.is_cancelled());
        cancelled.then(|| PyKeyboardInterrupt::new_err("the task was cancelled"))
    });
    let interrupted = raised.is_some();
    RAISED.set(raised);
    interrupted
}

/// What the interrupted wait has to raise.
pub fn take_raised() -> PyErr {
    RAISED.take().unwrap_or_else(|| PyKeyboardInterrupt::new_err(()))
}

/// The runtime's hook: runs under its lock, on any thread.
fn note_cancelled(task: TaskId) {
    CANCELLED.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    let main = rustix::process::getpid();
    // SAFETY: a signal to the main thread of this very process, which has a handler for it.
    unsafe { libc::syscall(libc::SYS_tgkill, main.as_raw_pid(), main.as_raw_pid(), libc::SIGINT) };
}

/// Notes that the current thread runs a task, until dropped.
pub struct OnThread(TaskId);

impl OnThread {
    pub fn begin(task: TaskId) -> Self {
        // SAFETY: no preconditions; the number names this thread for the interpreter.
        let thread = unsafe { ffi::PyThread_get_thread_ident() };
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.get_or_insert_default().insert(task, Place::Thread(thread));
        Self(task)
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        // A call that went on to the event loop is noted there until it ends.
        if let Some(running) = running.as_mut()
            && matches!(running.get(&self.0), Some(Place::Thread(_)))
        {
            running.remove(&self.0);
        }
    }
}

/// Notes that a task runs on the event loop.
pub fn on_loop(task: TaskId) {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.get_or_insert_default().insert(task, Place::Loop);
}

/// A task has ended.
pub fn forget(task: TaskId) {
    if let Some(running) = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        running.remove(&task);
    }
}

/// Takes back an interrupt that came too late for the task that just ended on this thread.
pub fn clear_pending(_py: Python<'_>) {
    RAISED.take();
    // SAFETY: the lock is held; no exception means that a pending one is dropped.
    unsafe { ffi::PyThreadState_SetAsyncExc(ffi::PyThread_get_thread_ident() as _, std::ptr::null_mut()) };
}

/// Interrupts the tasks that were cancelled; called by the worker's signal handler. True when one of them runs on this
/// thread, which then has to raise. Tasks on the event loop are given back by id.
#[pyfunction]
fn interrupt_cancelled(py: Python<'_>) -> PyResult<(bool, Bound<'_, PyList>)> {
    let cancelled = std::mem::take(&mut *CANCELLED.lock().unwrap_or_else(PoisonError::into_inner));
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: no preconditions.
    let me = unsafe { ffi::PyThread_get_thread_ident() };
    let (mut mine, on_loop) = (false, PyList::empty(py));
    for task in cancelled {
        match running.as_ref().and_then(|running| running.get(&task)) {
            Some(Place::Thread(thread)) if *thread == me => mine = true,
            Some(Place::Thread(thread)) => {
                let class = py.get_type::<PyKeyboardInterrupt>();
                // SAFETY: the lock is held and the class is a valid exception class; an unknown thread is ignored.
                unsafe { ffi::PyThreadState_SetAsyncExc(*thread as _, class.as_ptr()) };
            }
            Some(Place::Loop) => on_loop.append(format!("{:032x}", task.raw()))?,
            None => {}
        }
    }
    Ok((mine, on_loop))
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(interrupt_cancelled, module)?)
}
