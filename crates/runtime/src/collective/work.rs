//! A call that goes on while its caller does something else.

use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::Outcome;
use crate::error::Error;
use crate::process::outside;

#[derive(Default)]
struct State {
    result: Option<Result<Outcome, Error>>,
    wakers: Vec<Waker>,
}

/// A call of a group that was begun and not waited for.
#[derive(Default)]
pub struct Work {
    state: Mutex<State>,
    ended: Condvar,
}

impl Work {
    /// Whether the call is over.
    pub fn is_done(&self) -> bool {
        self.lock().result.is_some()
    }

    /// Waits until the call is over; none when the time is up before.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Result<Outcome, Error>> {
        if let Some(result) = &self.lock().result {
            return Some(result.clone());
        }
        outside(|| self.wait_here(timeout))
    }

    fn wait_here(&self, timeout: Option<Duration>) -> Option<Result<Outcome, Error>> {
        let deadline = timeout.and_then(crate::clock::deadline);
        let mut state = self.lock();
        loop {
            if let Some(result) = &state.result {
                return Some(result.clone());
            }
            let Some(deadline) = deadline else {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn end(&self, result: Result<Outcome, Error>) {
        let mut state = self.lock();
        state.result = Some(result);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.ended.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The result of the call, or a promise to wake the task.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Outcome, Error>> {
        let mut state = self.lock();
        match &state.result {
            Some(result) => Poll::Ready(result.clone()),
            None => {
                if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    state.wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for &Work {
    type Output = Result<Outcome, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Work::poll(*self, context)
    }
}
