//! The places for newcomers: a bounded number, and who makes way when there is none left.

use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Limits;

/// A newcomer is left alone for so long, however crowded it is: an honest one is known by then.
const GRACE: Duration = Duration::from_millis(250);

/// All places.
pub(super) struct Slots {
    limits: Limits,
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    open: BTreeMap<u64, Entry>,
    /// Slots that have not been dropped, those that made way included.
    alive: usize,
    closed: bool,
}

struct Entry {
    crowd: Crowd,
    since: Instant,
    /// Another handle of the connection, to end it while its thread waits for it.
    stream: TcpStream,
    /// Whether it has yet to say who it is.
    unknown: bool,
}

/// What counts as one address.
type Crowd = u64;

/// An IPv4 address; of IPv6 the first half, since the other is a machine's own choice.
fn crowd_of(address: IpAddr) -> Crowd {
    match address.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

/// One place; dropped, it is free again.
pub(super) struct Slot {
    slots: Arc<Slots>,
    number: u64,
}

impl Slots {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default(), left: Condvar::new() })
    }

    /// A place for a newcomer; none when everybody there is younger than the grace, or known.
    pub(super) fn admit(self: &Arc<Self>, stream: &TcpStream, address: IpAddr) -> Option<Slot> {
        self.admit_at(stream, address, Instant::now())
    }

    pub(super) fn admit_at(self: &Arc<Self>, stream: &TcpStream, address: IpAddr, now: Instant) -> Option<Slot> {
        // No descriptor left for it is no room either.
        let stream = stream.try_clone().ok()?;
        let mut state = self.state();
        if state.closed {
            return None;
        }
        let crowd = crowd_of(address);
        let from_here = state.open.values().filter(|entry| entry.crowd == crowd).count();
        if from_here >= self.limits.newcomers_per_address {
            state.make_way(now, |entry| entry.crowd == crowd)?;
        }
        if state.open.len() >= self.limits.newcomers {
            state.make_way(now, |_| true)?;
        }
        let number = state.next;
        state.next += 1;
        state.open.insert(number, Entry { crowd, since: now, stream, unknown: true });
        state.alive += 1;
        Some(Slot { slots: self.clone(), number })
    }

    pub(super) fn len(&self) -> usize {
        self.state().alive
    }

    /// Sends everybody away who is not known, and waits until their threads have gone, but not for ever.
    pub(super) fn close(&self, patience: Duration) {
        let mut state = self.state();
        state.closed = true;
        let unknown: Vec<u64> =
            state.open.iter().filter(|(_, entry)| entry.unknown).map(|(number, _)| *number).collect();
        unknown.into_iter().for_each(|number| state.send_away(number));
        // Known ones may be with the greeter, who answers them when it likes.
        let greeted = |state: &mut State| state.alive > state.open.len();
        let _ = self.left.wait_timeout_while(state, patience, greeted);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Sends away who has been unknown for longest, if for longer than the grace.
    fn make_way(&mut self, now: Instant, counts: impl Fn(&Entry) -> bool) -> Option<()> {
        // Numbers grow with time, so the first is the oldest.
        let (number, entry) = self.open.iter().find(|(_, entry)| entry.unknown && counts(entry))?;
        if now.saturating_duration_since(entry.since) < GRACE {
            return None;
        }
        let number = *number;
        self.send_away(number);
        Some(())
    }

    fn send_away(&mut self, number: u64) {
        if let Some(entry) = self.open.remove(&number) {
            // It may have gone by itself.
            let _ = entry.stream.shutdown(Shutdown::Both);
        }
    }
}

impl Slot {
    /// From now on it is our turn, and nobody makes it go. Fails when it had to go already.
    pub(super) fn known(&self) -> bool {
        let mut state = self.slots.state();
        let entry = state.open.get_mut(&self.number);
        entry.map(|entry| entry.unknown = false).is_some()
    }

    /// Whether it had to make way.
    pub(super) fn made_way(&self) -> bool {
        !self.slots.state().open.contains_key(&self.number)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        state.open.remove(&self.number);
        state.alive -= 1;
        self.slots.left.notify_all();
    }
}
