//! Calls that go on by themselves.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bireme_runtime::collective::{self, Outcome};

use crate::{Array, Error, Result};

/// Makes the result of a verb out of what its call gave.
pub(super) type Finish<T> = Box<dyn Fn(&Outcome) -> Result<T> + Send + Sync>;

/// A call that was begun and goes on by itself, also when this is dropped. It can be awaited.
#[must_use = "what the call gives, also its error, is lost unless it is waited for"]
pub struct Work<T = Array> {
    work: Arc<collective::Work>,
    finish: Finish<T>,
}

impl<T> Work<T> {
    pub(super) fn new(work: Arc<collective::Work>, finish: Finish<T>) -> Self {
        Self { work, finish }
    }

    /// Whether the call is over, with a result or an error.
    pub fn done(&self) -> bool {
        self.work.is_done()
    }

    /// The result of the call, as soon as it is over.
    pub fn wait(&self) -> Result<T> {
        let ended = self.work.wait(None).unwrap_or_else(|| Err(Error::NotRunning("shut down")));
        (self.finish)(&ended?)
    }

    /// The same; nothing when it is not over in time. It goes on then.
    pub fn wait_for(&self, timeout: Duration) -> Option<Result<T>> {
        self.work.wait(Some(timeout)).map(|ended| ended.and_then(|made| (self.finish)(&made)))
    }
}

impl<T> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work({})", if self.done() { "done" } else { "going on" })
    }
}

impl<T> Future for Work<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.work.poll(context).map(|ended| ended.and_then(|made| (self.finish)(&made)))
    }
}
