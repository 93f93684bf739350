//! The places of those that are greeted: a bounded number, and who makes way when there is none left.
//!
//! A newcomer that has shown a certificate takes one of the places for members, where nobody makes it go.

use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Limits;

/// Addresses of members that are remembered; when there are more, the one that was a member's longest ago is forgotten.
const MEMBER_ADDRESSES_MAX: usize = 4096;

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
    /// Addresses from which somebody has shown a certificate, and the number of the last one.
    members: BTreeMap<Crowd, u64>,
}

struct Entry {
    crowd: Crowd,
    /// Another handle of the connection, to end it while its thread waits for it.
    stream: TcpStream,
    stage: Stage,
}

/// The progress of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has yet to say who it is, and makes way for others.
    Unknown,
    /// It has said what it wants, and the rest is ours.
    Known,
    /// It has shown a certificate.
    Member,
}

/// What counts as one address.
pub(super) type Crowd = u64;

/// An IPv4 address; of IPv6 the first half, since the other is a machine's own choice.
pub(super) fn crowd_of(address: IpAddr) -> Crowd {
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

    /// A place for a newcomer that has spoken. The one that has been unknown for longest makes way, when there is none. None when
    /// everybody there is known, or too many threads have not ended yet of those that made way.
    pub(super) fn admit(self: &Arc<Self>, stream: &TcpStream, crowd: Crowd) -> Option<Slot> {
        // No descriptor left for it is no room either.
        let stream = stream.try_clone().ok()?;
        let mut state = self.state();
        if state.closed || state.alive >= 2 * self.limits.newcomers + self.limits.members {
            return None;
        }
        if state.newcomers().filter(|entry| entry.crowd == crowd).count() >= self.limits.newcomers_per_address {
            state.make_way(|entry| entry.crowd == crowd)?;
        }
        if state.newcomers().count() >= self.limits.newcomers {
            state.make_way(|_| true)?;
        }
        let number = state.next;
        state.next += 1;
        state.open.insert(number, Entry { crowd, stream, stage: Stage::Unknown });
        state.alive += 1;
        Some(Slot { slots: self.clone(), number })
    }

    /// Whether somebody has shown a certificate who came from there.
    pub(super) fn is_member(&self, crowd: Crowd) -> bool {
        self.state().members.contains_key(&crowd)
    }

    pub(super) fn len(&self) -> usize {
        self.state().alive
    }

    /// Sends everybody away who is not known, and waits until their threads have gone, but not for ever.
    pub(super) fn close(&self, patience: Duration) {
        let mut state = self.state();
        state.closed = true;
        while state.make_way(|_| true).is_some() {}
        // Known ones may be with the greeter, who answers them when it likes.
        let greeted = |state: &mut State| state.alive > state.open.len();
        let _ = self.left.wait_timeout_while(state, patience, greeted);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn newcomers(&self) -> impl Iterator<Item = &Entry> {
        self.open.values().filter(|entry| entry.stage != Stage::Member)
    }

    /// Sends away who has been unknown for longest.
    fn make_way(&mut self, counts: impl Fn(&Entry) -> bool) -> Option<()> {
        // Numbers grow with time, so the first is the oldest.
        let oldest = self.open.iter().find(|(_, entry)| entry.stage == Stage::Unknown && counts(entry))?;
        let number = *oldest.0;
        if let Some(entry) = self.open.remove(&number) {
            // It may have gone by itself.
            let _ = entry.stream.shutdown(Shutdown::Both);
        }
        Some(())
    }

    fn remember_member(&mut self, crowd: Crowd, number: u64) {
        self.members.insert(crowd, number);
        if self.members.len() > MEMBER_ADDRESSES_MAX
            && let Some((oldest, _)) = self.members.iter().min_by_key(|(_, number)| **number)
        {
            let oldest = *oldest;
            self.members.remove(&oldest);
        }
    }
}

impl Slot {
    /// It has shown a certificate: from now on it has a place for members, and nobody makes it go. False when all of these are taken,
    /// or it had to make way already.
    pub(super) fn take_member_place(&self) -> bool {
        let mut state = self.slots.state();
        let members = state.open.values().filter(|entry| entry.stage == Stage::Member).count();
        let Some(entry) = state.open.get_mut(&self.number) else { return false };
        if members >= self.slots.limits.members {
            return false;
        }
        entry.stage = Stage::Member;
        let crowd = entry.crowd;
        state.remember_member(crowd, self.number);
        true
    }

    /// From now on it is our turn, and nobody makes it go. Fails when it had to go already.
    pub(super) fn known(&self) -> bool {
        let mut state = self.slots.state();
        let Some(entry) = state.open.get_mut(&self.number) else { return false };
        if entry.stage == Stage::Unknown {
            entry.stage = Stage::Known;
        }
        true
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
