//! A value that some threads change and others wait for.

use std::ops::Deref;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tells those who wait of each change, and costs no system call when nobody does: a condition variable always makes one,
/// and an object that arrives changes thousands of times a second.
#[derive(Debug, Default)]
pub(in crate::node) struct Watched<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State<T> {
    value: T,
    waiting: usize,
}

impl<T> Watched<T> {
    pub(in crate::node) fn new(value: T) -> Self {
        Self { state: Mutex::new(State { value, waiting: 0 }), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The value is whole between the statements that change it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at it.
    pub(in crate::node) fn now(&self) -> impl Deref<Target = T> + '_ {
        Locked(self.lock())
    }

    /// Changes it and wakes who waits.
    pub(in crate::node) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut state = self.lock();
        let (result, is_awaited) = (change(&mut state.value), state.waiting > 0);
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
        result
    }

    /// Waits at most `patience` until `look` finds something, which is looked for after each change.
    pub(in crate::node) fn wait<R>(&self, patience: Duration, mut look: impl FnMut(&T) -> Option<R>) -> Option<R> {
        let mut state = self.lock();
        if let Some(found) = look(&state.value) {
            return Some(found);
        }
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state.waiting += 1;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
            if let Some(found) = look(&state.value) {
                return Some(found);
            }
        }
    }
}

/// The value, while nobody changes it.
struct Locked<'a, T>(MutexGuard<'a, State<T>>);

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn who_waits_hears_of_a_change() {
        let watched = Arc::new(Watched::new(0));
        let other = Arc::clone(&watched);
        let waiter =
            std::thread::spawn(move || other.wait(Duration::from_secs(60), |value| (*value == 2).then_some(*value)));
        watched.change(|value| *value += 1);
        watched.change(|value| *value += 1);
        assert_eq!(waiter.join().ok().flatten(), Some(2));
        assert_eq!(*watched.now(), 2);
    }

    #[test]
    fn a_wait_ends_without_a_change() {
        let watched = Watched::new(0);
        assert_eq!(watched.wait(Duration::from_millis(1), |value| (*value > 0).then_some(())), None);
        assert_eq!(watched.lock().waiting, 0);
    }
}
