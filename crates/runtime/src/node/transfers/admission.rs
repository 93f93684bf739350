//! Which incoming bulk connections are served, and which wait for that.
//!
//! Each connection that is served has a thread, so there is a bound. One too many is not refused: it waits, its receiver hears
//! so every second, and it takes the place of the first that ends or on which nothing is asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bireme_core::id::NodeId;
use bireme_net::bulk::Line;

/// Incoming bulk connections that are served at a time.
pub(super) const SERVED_CONNECTIONS_MAX: usize = 256;
/// Those that wait for that; a further one is closed.
pub(super) const WAITING_CONNECTIONS_MAX: usize = 4096;
/// How often those that wait hear that they do.
const WAITING_EVERY: Duration = Duration::from_secs(1);

/// A connection, and to whom.
pub(super) type Incoming = (Line, NodeId);

/// The right to serve a connection, until it is given back.
pub(super) struct Seat {
    pub(super) number: u64,
    /// The word that ends it.
    pub(super) ended: Arc<AtomicBool>,
}

/// What becomes of a connection.
pub(super) enum Admitted {
    /// It is to be served.
    Now(Line, Seat),
    /// It waits. Somebody has to tell it so, if this is the first.
    Later {
        /// Nobody does yet.
        is_first: bool,
    },
    /// Too many wait.
    Never,
}

#[derive(Default)]
struct State {
    served: BTreeMap<u64, (NodeId, Arc<AtomicBool>)>,
    next_number: u64,
    waiting: VecDeque<Incoming>,
    /// There is a thread that tells them.
    is_told: bool,
}

impl State {
    fn seat(&mut self, to: NodeId) -> Seat {
        let (number, ended) = (self.next_number, Arc::new(AtomicBool::new(false)));
        self.next_number += 1;
        self.served.insert(number, (to, Arc::clone(&ended)));
        Seat { number, ended }
    }
}

/// The incoming connections of a node.
pub(super) struct Admission {
    state: Mutex<State>,
    changed: Condvar,
    served_max: usize,
}

impl Admission {
    /// Nobody has come. So many are served at a time.
    pub(super) fn new(served_max: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), served_max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between the statements that change it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has come.
    pub(super) fn admit(&self, (line, to): Incoming) -> Admitted {
        let mut state = self.lock();
        if state.served.len() < self.served_max {
            let seat = state.seat(to);
            return Admitted::Now(line, seat);
        }
        if state.waiting.len() >= WAITING_CONNECTIONS_MAX {
            return Admitted::Never;
        }
        state.waiting.push_back((line, to));
        let is_first = !std::mem::replace(&mut state.is_told, true);
        Admitted::Later { is_first }
    }

    /// Takes one that waits, for who can serve it in the place of another.
    pub(super) fn next(&self) -> Option<Incoming> {
        self.lock().waiting.pop_front()
    }

    /// A connection has ended; the one that was taken for its place, or one that waits, is served with the same thread.
    pub(super) fn ended(&self, seat: &Seat, taken: Option<Incoming>) -> Option<(Line, Seat)> {
        let mut state = self.lock();
        state.served.remove(&seat.number);
        let (line, to) = taken.or_else(|| state.waiting.pop_front())?;
        Some((line, state.seat(to)))
    }

    /// A connection cannot be served after all.
    pub(super) fn give_up(&self, number: u64) {
        self.lock().served.remove(&number);
    }

    /// Ends what is sent to a node that is dead.
    pub(super) fn cut_off(&self, node: NodeId) {
        let mut state = self.lock();
        state.waiting.retain(|(_, to)| *to != node);
        for (_, ended) in state.served.values().filter(|(to, _)| *to == node) {
            ended.store(true, Ordering::Relaxed);
        }
    }

    /// Tells those that wait that they do, until none does. Who has gone is forgotten.
    pub(super) fn tell_waiting(&self, stop: &dyn Fn() -> bool) {
        let mut state = self.lock();
        while !state.waiting.is_empty() && !stop() {
            let waited = self.changed.wait_timeout(state, WAITING_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            // So short and so seldom that it fits into any buffer: nobody waits for the lock.
            state.waiting.retain_mut(|(line, _)| line.say_waiting(stop).is_ok());
        }
        if stop() {
            state.waiting.clear();
        }
        state.is_told = false;
    }

    /// There is no thread to tell them.
    pub(super) fn nobody_tells(&self) {
        self.lock().is_told = false;
    }

    /// Ends the wait of who tells them: the node stops.
    pub(super) fn stop(&self) {
        self.changed.notify_all();
    }
}
