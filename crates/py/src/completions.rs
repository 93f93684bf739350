//! Readiness for event loops and futures: a queue of tokens behind one descriptor.
//!
//! A loop registers the descriptor and drains a batch of tokens at a time; wakers push from any thread of the runtime
//! without the interpreter's lock.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::reference::ObjectRef;
use crate::ticket::Ticket;
use crate::{driver, gil};

struct Queue {
    tokens: Mutex<Vec<u64>>,
    bell: OwnedFd,
}

impl Queue {
    fn push(&self, token: u64) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.push(token);
        if tokens.len() == 1 {
            // A full counter still wakes the reader.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }
}

struct Token {
    number: u64,
    queue: Arc<Queue>,
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.queue.push(self.number);
    }
}

/// Objects that became ready, by the numbers under which they were watched.
#[pyclass(frozen, module = "bireme._native")]
pub struct Completions {
    queue: Arc<Queue>,
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> PyResult<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok(Self { queue: Arc::new(Queue { tokens: Mutex::new(Vec::new()), bell }) })
    }

    /// The descriptor that is readable when there is something to drain.
    fn fileno(&self) -> i32 {
        self.queue.bell.as_raw_fd()
    }

    /// Puts `number` into the queue when the object is ready; at once when it is.
    fn watch(&self, py: Python<'_>, reference: &Bound<'_, ObjectRef>, number: u64) -> PyResult<()> {
        let Ok(runtime) = driver::running(py) else {
            // Whoever looks is told that the runtime is over.
            self.queue.push(number);
            return Ok(());
        };
        let waker = Waker::from(Arc::new(Token { number, queue: Arc::clone(&self.queue) }));
        if runtime.is_ready_or_wake(&reference.get().handle, &waker) {
            self.queue.push(number);
        }
        Ok(())
    }

    /// Puts `number` into the queue when a generator on the loop may yield again, or shall stop.
    fn watch_room(&self, py: Python<'_>, ticket: &Bound<'_, Ticket>, number: u64) {
        let waker = Waker::from(Arc::new(Token { number, queue: Arc::clone(&self.queue) }));
        if ticket.get().has_room_or_wake(py, &waker) {
            self.queue.push(number);
        }
    }

    /// Puts a number into the queue.
    fn push(&self, number: u64) {
        self.queue.push(number);
    }

    /// Takes all numbers out of the queue.
    fn drain(&self) -> Vec<u64> {
        let mut tokens = self.queue.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = [0; 8];
        // Nothing to read is fine: the queue is looked at in any case.
        let _ = rustix::io::read(&self.queue.bell, &mut count);
        std::mem::take(&mut *tokens)
    }

    /// Waits until there is something, and takes all of it.
    fn wait(&self, py: Python<'_>) -> Vec<u64> {
        gil::detach(py, || {
            let mut fds = [PollFd::new(&self.queue.bell, PollFlags::IN)];
            let _ = poll(&mut fds, None);
        });
        self.drain()
    }
}
