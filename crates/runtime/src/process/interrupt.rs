//! Interrupts: how a signal ends a wait of the user's thread, and how a cancelled task's thread learns of it.
//!
//! A front end whose language has signal handlers of its own sets [`set_interrupt_check`] and opts threads in with
//! [`interruptible`]. Such a thread sleeps in slices and asks the check, with no lock held, whenever a sleep ends without
//! news (a signal, or the slice is over) or somebody nudged it; true ends the wait with
//! [`Error::Interrupted`](crate::Error::Interrupted). A thread that did not opt in never asks, and sleeps as long as it
//! likes.
//!
//! Questions to the node are not interrupted: they are answered within a bound, and an answer that nobody takes could hold
//! memory.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bireme_core::id::TaskId;

use super::Inner;
use super::wait::Interest;

/// The longest sleep of a thread that waits and can be interrupted: a signal that comes just before a sleep is noticed
/// when it is over.
const INTERRUPT_SLICE: Duration = Duration::from_millis(100);
/// The same for an executor with nothing to run, which is woken with [`wake_executors`] when it matters.
const IDLE_SLICE: Duration = Duration::from_secs(1);

static CHECK: OnceLock<fn() -> bool> = OnceLock::new();
static CANCEL_HOOK: OnceLock<fn(TaskId)> = OnceLock::new();
/// Counts the reasons to ask the check now.
static NUDGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static GUARDS: Cell<u32> = const { Cell::new(0) };
    /// The nudges that this thread has answered, also between its waits.
    static ANSWERED: Cell<u64> = const { Cell::new(0) };
}

/// Sets what a waiting thread asks to know whether it shall stop waiting; the first one counts. It is called on threads
/// that opted in, with no lock of the runtime held.
pub fn set_interrupt_check(check: fn() -> bool) {
    // The first one counts.
    let _ = CHECK.set(check);
}

/// Sets what is called when a task that runs here is asked to stop; the first one counts.
///
/// The task may wait for a thread, be on one, or be deferred (see [`Ticket`](crate::Ticket)).
///
/// It is called on whichever thread reads the request, with the process's lock held: so the task cannot end, and its thread
/// cannot take another one, before the hook returns. It may send a signal; it must not call the runtime, nor wait for
/// anything that a thread inside the runtime might hold (an interpreter's lock).
pub fn set_cancel_hook(hook: fn(TaskId)) {
    // The first one counts.
    let _ = CANCEL_HOOK.set(hook);
}

/// While it lives, waits of the current thread can be interrupted.
#[must_use = "the thread can be interrupted while this lives"]
pub struct Interruptible(PhantomData<*const ()>);

/// Lets waits of the current thread be interrupted until the guard is dropped. Guards may be nested.
pub fn interruptible() -> Interruptible {
    GUARDS.set(GUARDS.get() + 1);
    Interruptible(PhantomData)
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        GUARDS.set(GUARDS.get() - 1);
    }
}

/// Has idle executors of this process that can be interrupted ask their check now. Not for signal handlers: it takes a
/// lock. Does nothing when there is no runtime.
pub fn wake_executors() {
    if crate::forked::is_forked() {
        return;
    }
    if let Some(process) = super::current() {
        NUDGES.fetch_add(1, Ordering::Release);
        let inner = process.lock();
        inner.executors.parked.iter().for_each(std::thread::Thread::unpark);
        drop(inner);
        process.doorbell.ring_self();
    }
}

/// A task that runs here is asked to stop: its thread is told, in whatever wait it is.
pub(super) fn cancelled(inner: &Inner, task: TaskId) {
    if let Some(hook) = CANCEL_HOOK.get() {
        hook(task);
        NUDGES.fetch_add(1, Ordering::Release);
        // The leader sees the count before it sleeps, or is the one that reads this; the others are parked.
        inner.followers.iter().for_each(std::thread::Thread::unpark);
    }
}

/// One wait's view of interrupts: of a thread that opted in, or nothing.
pub(super) struct Watch {
    check: Option<fn() -> bool>,
    slice: Duration,
    asked: Option<Instant>,
}

impl Watch {
    /// For a wait that begins now.
    #[inline]
    pub(super) fn begin(interest: &Interest<'_>) -> Self {
        let slice = match interest {
            Interest::Objects(_) | Interest::ObjectOrFailure(_) | Interest::Room | Interest::Anything => {
                Some(INTERRUPT_SLICE)
            }
            Interest::Executions => Some(IDLE_SLICE),
            Interest::Answer => None,
        };
        let check = if slice.is_some() && GUARDS.get() > 0 { CHECK.get().copied() } else { None };
        Self { check, slice: slice.unwrap_or_default(), asked: None }
    }

    /// How long the thread may sleep when it has so much time left.
    pub(super) fn sleep(&self, left: Option<Duration>) -> Option<Duration> {
        match self.check {
            Some(_) => Some(left.map_or(self.slice, |left| left.min(self.slice))),
            None => left,
        }
    }

    /// Whether somebody has given a reason to ask since the last time.
    pub(super) fn is_nudged(&self) -> bool {
        self.check.is_some() && NUDGES.load(Ordering::Acquire) != ANSWERED.get()
    }

    /// Whether there is a reason to ask the check: the sleep brought no news, somebody nudged, or it is time.
    pub(super) fn is_due(&mut self, without_news: bool) -> bool {
        if self.check.is_none() {
            return false;
        }
        let asked = *self.asked.get_or_insert_with(Instant::now);
        without_news || self.is_nudged() || asked.elapsed() >= self.slice
    }

    /// Asks the check. To be called with no lock held, by a thread that does not lead: the check may take its time.
    pub(super) fn is_interrupted(&mut self) -> bool {
        let Some(check) = self.check else { return false };
        ANSWERED.set(NUDGES.load(Ordering::Acquire));
        let answer = check();
        self.asked = Some(Instant::now());
        answer
    }
}
