//! The waiting room: connections that have no thread yet.
//!
//! A connection gets a thread when it has said something, so a flood of silent ones costs a descriptor each and keeps nobody out.
//! Silent ones are bounded, and when the room is full, the one that has been silent for longest goes at once: an honest peer
//! speaks as soon as it is connected. One that has spoken waits only if its address begins more greetings than it may in a
//! second, or if every thread is busy.
//!
//! Plain bookkeeping, without a clock or sockets: whoever calls says what time it is and what happened.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::Limits;
use super::slots::Crowd;

/// An address may begin so many of its greetings of one second at once.
const BURST: Duration = Duration::from_secs(1);
/// Addresses that are remembered for their rate before those that have paid are forgotten.
const RATES_KEPT: usize = 1024;

/// A connection that waits.
#[derive(Debug)]
pub(super) struct Newcomer<C> {
    pub(super) connection: C,
    pub(super) crowd: Crowd,
    pub(super) since: Instant,
}

/// Everybody who waits.
pub(super) struct WaitingRoom<C> {
    limits: Limits,
    next: u64,
    /// By number, so by age.
    silent: BTreeMap<u64, Newcomer<C>>,
    /// Those that have spoken, in that order.
    spoken: VecDeque<Newcomer<C>>,
    /// When the greetings of an address are paid for, at its rate.
    paid_at: BTreeMap<Crowd, Instant>,
}

impl<C> WaitingRoom<C> {
    pub(super) fn new(limits: Limits) -> Self {
        let (silent, spoken, paid_at) = Default::default();
        Self { limits, next: 0, silent, spoken, paid_at }
    }

    /// Lets somebody wait, under a number. When there is no place, the one that was silent for longest is given back: of the same
    /// address, if that has its share, else of an address without members if possible. When nobody is silent, it is the
    /// newcomer itself. `has_spoken` looks whether one has said something that nobody has noticed yet.
    pub(super) fn come(
        &mut self,
        newcomer: Newcomer<C>,
        is_member: impl Fn(Crowd) -> bool,
        has_spoken: impl Fn(&C) -> bool,
    ) -> (Option<u64>, Option<Newcomer<C>>) {
        let crowd = newcomer.crowd;
        let of_crowd = self.all().filter(|other| other.crowd == crowd).count();
        let mut made_way = None;
        if of_crowd >= self.limits.waiting_per_address {
            made_way = self.send_away(|other| other == crowd, has_spoken);
            if made_way.is_none() {
                return (None, Some(newcomer));
            }
        } else if self.silent.len() + self.spoken.len() >= self.limits.waiting {
            made_way = self.send_away(|other| !is_member(other), &has_spoken);
            made_way = made_way.or_else(|| self.send_away(|_| true, has_spoken));
            if made_way.is_none() {
                return (None, Some(newcomer));
            }
        }
        let number = self.next;
        self.next += 1;
        self.silent.insert(number, newcomer);
        (Some(number), made_way)
    }

    /// The one that has been silent for longest goes, whatever its address: descriptors are scarce.
    pub(super) fn give_up_one(&mut self) -> Option<Newcomer<C>> {
        self.silent.pop_first().map(|(_, newcomer)| newcomer)
    }

    /// Somebody who was silent, if it still waits.
    pub(super) fn silent(&self, number: u64) -> Option<&Newcomer<C>> {
        self.silent.get(&number)
    }

    /// It has said something, and waits for its turn.
    pub(super) fn spoke(&mut self, number: u64) {
        self.spoken.extend(self.silent.remove(&number));
    }

    /// It has gone.
    pub(super) fn gone(&mut self, number: u64) {
        self.silent.remove(&number);
    }

    /// The next one whose address may begin a greeting now; it is to be greeted, or put back.
    pub(super) fn next_turn(&mut self, now: Instant) -> Option<Newcomer<C>> {
        let at = self.spoken.iter().position(|newcomer| self.may_begin(newcomer.crowd, now))?;
        let newcomer = self.spoken.remove(at)?;
        if self.paid_at.len() >= RATES_KEPT {
            self.paid_at.retain(|_, paid_at| *paid_at > now);
        }
        let paid_at = self.paid_at.get(&newcomer.crowd).copied().unwrap_or(now).max(now);
        self.paid_at.insert(newcomer.crowd, paid_at + self.price());
        Some(newcomer)
    }

    /// There was no thread for it: it is the first to have the next one.
    pub(super) fn put_back(&mut self, newcomer: Newcomer<C>) {
        self.spoken.push_front(newcomer);
    }

    /// Those whose time is over.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<Newcomer<C>> {
        let greeting = self.limits.greeting;
        let is_late = |newcomer: &Newcomer<C>| now.saturating_duration_since(newcomer.since) >= greeting;
        let mut late = Vec::new();
        while self.silent.first_key_value().is_some_and(|(_, first)| is_late(first)) {
            late.extend(self.give_up_one());
        }
        while self.spoken.front().is_some_and(is_late) {
            late.extend(self.spoken.pop_front());
        }
        late
    }

    /// When to look again, if nothing happens before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let first = self.silent.values().next().into_iter().chain(self.spoken.front());
        let late = first.map(|newcomer| newcomer.since + self.limits.greeting).min();
        let begin = self
            .spoken
            .iter()
            .filter_map(|newcomer| self.paid_at.get(&newcomer.crowd))
            .filter_map(|at| at.checked_sub(BURST - self.price()));
        late.into_iter().chain(begin).min()
    }

    fn may_begin(&self, crowd: Crowd, now: Instant) -> bool {
        self.paid_at.get(&crowd).is_none_or(|paid_at| *paid_at + self.price() <= now + BURST)
    }

    /// The time that one greeting takes up at the rate of an address.
    fn price(&self) -> Duration {
        BURST / self.limits.greetings_per_second.max(1)
    }

    fn all(&self) -> impl Iterator<Item = &Newcomer<C>> {
        self.silent.values().chain(&self.spoken)
    }

    /// Takes out the one that has been silent for longest, and really is.
    fn send_away(&mut self, counts: impl Fn(Crowd) -> bool, has_spoken: impl Fn(&C) -> bool) -> Option<Newcomer<C>> {
        loop {
            let (number, newcomer) = self.silent.iter().find(|(_, newcomer)| counts(newcomer.crowd))?;
            let number = *number;
            if !has_spoken(&newcomer.connection) {
                return self.silent.remove(&number);
            }
            self.spoke(number);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const A: Crowd = 1;
    const B: Crowd = 2;
    const C: Crowd = 3;

    fn room() -> WaitingRoom<u32> {
        let limits = Limits { waiting: 4, waiting_per_address: 3, greetings_per_second: 2, ..Limits::default() };
        WaitingRoom::new(limits)
    }

    fn newcomer(connection: u32, crowd: Crowd, since: Instant) -> Newcomer<u32> {
        Newcomer { connection, crowd, since }
    }

    fn nobody(_: Crowd) -> bool {
        false
    }

    /// The newcomer that makes way for this one.
    fn for_whom(room: &mut WaitingRoom<u32>, comes: Newcomer<u32>) -> Option<u32> {
        room.come(comes, nobody, |_| false).1.map(|newcomer| newcomer.connection)
    }

    #[test]
    fn the_oldest_silent_one_of_a_crowded_address_makes_way_at_once() {
        let (mut room, now) = (room(), Instant::now());
        assert_eq!([1, 2, 3].map(|number| for_whom(&mut room, newcomer(number, A, now))), [None; 3]);
        assert_eq!(for_whom(&mut room, newcomer(4, A, now)), Some(1), "its address has its share");
        assert_eq!(for_whom(&mut room, newcomer(5, B, now)), None);
        assert_eq!(for_whom(&mut room, newcomer(6, C, now)), Some(2), "the room is full");
    }

    #[test]
    fn one_that_has_spoken_stays_and_one_that_nobody_heard_yet_too() {
        let (mut room, now) = (room(), Instant::now());
        let numbers = [1, 2, 3].map(|number| room.come(newcomer(number, A, now), nobody, |_| false).0.unwrap());
        room.spoke(numbers[0]);
        let made_way = room.come(newcomer(4, A, now), nobody, |connection| *connection == 2).1.unwrap();
        assert_eq!(made_way.connection, 3);
        assert_eq!([room.next_turn(now), room.next_turn(now)].map(|turn| turn.unwrap().connection), [1, 2]);
    }

    #[test]
    fn when_all_have_spoken_it_is_the_newcomer_that_goes() {
        let (mut room, now) = (room(), Instant::now());
        for number in 1..=3 {
            let number = room.come(newcomer(number, A, now), nobody, |_| false).0.unwrap();
            room.spoke(number);
        }
        assert_eq!(for_whom(&mut room, newcomer(4, A, now)), Some(4));
    }

    #[test]
    fn addresses_of_members_keep_their_places_when_the_room_is_full() {
        let (mut room, now) = (room(), Instant::now());
        let is_member = |crowd| crowd == A;
        for (number, crowd) in [(1, A), (2, B), (3, B), (4, A)] {
            assert!(room.come(newcomer(number, crowd, now), is_member, |_| false).1.is_none());
        }
        for expected in [2, 3, 5] {
            let comes = newcomer(5, C, now);
            assert_eq!(room.come(comes, is_member, |_| false).1.unwrap().connection, expected);
        }
    }

    #[test]
    fn an_address_begins_so_many_greetings_in_a_second_and_others_do_not_wait_for_it() {
        let (mut room, now) = (room(), Instant::now());
        for (connection, crowd) in [(1, A), (2, A), (3, A), (4, B)] {
            let number = room.come(newcomer(connection, crowd, now), nobody, |_| false).0.unwrap();
            room.spoke(number);
        }
        let turns = |room: &mut WaitingRoom<u32>, now| -> Vec<u32> {
            std::iter::from_fn(|| room.next_turn(now)).map(|newcomer| newcomer.connection).collect()
        };
        assert_eq!(turns(&mut room, now), [1, 2, 4]);
        let later = room.deadline().unwrap();
        assert!(later > now && later <= now + Duration::from_millis(500), "{:?}", later - now);
        assert_eq!(turns(&mut room, later + Duration::from_millis(1)), [3]);
    }

    #[test]
    fn time_ends_for_silent_ones_and_for_those_that_had_no_turn() {
        let (mut room, now) = (room(), Instant::now());
        let first = room.come(newcomer(1, A, now), nobody, |_| false).0.unwrap();
        room.come(newcomer(2, A, now), nobody, |_| false);
        room.spoke(first);
        assert!(room.take_late(now + Duration::from_secs(4)).is_empty());
        let late = room.take_late(now + Limits::default().greeting);
        assert_eq!(late.iter().map(|newcomer| newcomer.connection).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(room.deadline(), None);
    }
}
