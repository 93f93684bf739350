//! The node's side of its lease: until when it may act, by its own clock.
//!
//! MEMBER-1: the node considers its lease over before the controller does. A heartbeat that is sent at `s` and answered
//! with a lease of `L` was received at `s` or later, so the controller waits until `s + L` at least, by its own clock.
//! Both clocks run at the right rate within a tenth. The controller's `L` is then at least `L / 1.1 = 0.909 L` of true
//! time; the node's `0.8 L` are at most `0.8 L / 0.9 = 0.889 L`. So the node stops at `s + 0.8 L`, and begins to end its
//! workers at `s + 0.7 L`, which leaves a tenth of the lease for that.

use std::collections::VecDeque;

use crate::time::Tick;

/// Tenths of the lease after which the workers are ended.
const ENDING_TENTHS: u64 = 7;
/// Tenths of the lease after which it is over.
const OVER_TENTHS: u64 = 8;
/// Heartbeats without an answer that are remembered; an answer to an older one renews nothing.
pub const HEARTBEATS_OPEN_MAX: usize = 256;

/// What a node may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Everything.
    Held,
    /// It ends its workers and starts nothing.
    Ending,
    /// Nothing: it joins again, as another node.
    Over,
}

/// A node's lease, as the node sees it.
#[derive(Clone, Debug)]
pub struct Tenure {
    /// Heartbeats that were not answered, and when they were sent.
    open: VecDeque<(u64, Tick)>,
    ending: Tick,
    over: Tick,
    /// It has ended its workers: no answer makes up for that.
    ended: bool,
}

impl Tenure {
    /// The lease that came with the welcome. `sent` is when the join was sent, not when its answer came.
    pub fn new(sent: Tick, lease_us: u64) -> Self {
        let (ending, over) = ends(sent, lease_us);
        Self { open: VecDeque::new(), ending, over, ended: false }
    }

    /// A heartbeat is on its way.
    pub fn heartbeat_sent(&mut self, sequence: u64, now: Tick) {
        if self.open.len() >= HEARTBEATS_OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back((sequence, now));
    }

    /// The controller answered. Says whether the lease holds.
    #[must_use]
    pub fn renewed(&mut self, sequence: u64, lease_us: u64, now: Tick) -> bool {
        let sent = self.open.iter().find(|(number, _)| *number == sequence).map(|(_, sent)| *sent);
        // Answers come in order: earlier heartbeats are not answered any more.
        self.open.retain(|(number, _)| *number > sequence);
        if let Some(sent) = sent
            && self.hold(now) == Hold::Held
        {
            let (ending, over) = ends(sent, lease_us);
            (self.ending, self.over) = (self.ending.max(ending), self.over.max(over));
        }
        self.hold(now) == Hold::Held
    }

    /// What the node may do now. From [`Hold::Ending`] there is no way back.
    pub fn hold(&mut self, now: Tick) -> Hold {
        self.ended |= now >= self.ending;
        match self.ended {
            false => Hold::Held,
            true if now < self.over => Hold::Ending,
            true => Hold::Over,
        }
    }

    /// When the workers must be ended, unless an answer comes before.
    pub fn deadline(&self) -> Tick {
        self.ending
    }

    /// When the lease is over for the node.
    pub fn over(&self) -> Tick {
        self.over
    }
}

fn ends(sent: Tick, lease_us: u64) -> (Tick, Tick) {
    let after = |tenths: u64| sent.plus_us((u128::from(lease_us) * u128::from(tenths) / 10) as u64);
    (after(ENDING_TENTHS), after(OVER_TENTHS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lease_counts_from_when_the_heartbeat_was_sent() {
        let mut tenure = Tenure::new(Tick(0), 2_000_000);
        assert_eq!((tenure.deadline(), tenure.over()), (Tick(1_400_000), Tick(1_600_000)));
        tenure.heartbeat_sent(1, Tick(100_000));
        tenure.heartbeat_sent(2, Tick(200_000));
        assert!(tenure.renewed(1, 2_000_000, Tick(900_000)));
        assert_eq!(tenure.deadline(), Tick(1_500_000));
        assert!(tenure.renewed(2, 1_000_000, Tick(950_000)), "a shorter one takes nothing back");
        assert_eq!(tenure.deadline(), Tick(1_500_000));
        assert!(tenure.renewed(2, 9_000_000, Tick(960_000)), "an answer counts once");
        assert_eq!(tenure.deadline(), Tick(1_500_000));
    }

    #[test]
    fn once_the_workers_are_ended_no_answer_brings_the_lease_back() {
        let mut tenure = Tenure::new(Tick(0), 2_000_000);
        tenure.heartbeat_sent(1, Tick(1_300_000));
        assert_eq!(tenure.hold(Tick(1_399_999)), Hold::Held);
        assert_eq!(tenure.hold(Tick(1_400_000)), Hold::Ending);
        assert!(!tenure.renewed(1, 2_000_000, Tick(1_400_001)));
        assert_eq!(tenure.hold(Tick(1_600_000)), Hold::Over);
    }

    proptest! {
        // The clock of each side runs at its own rate, given in percent of true time.
        #[test]
        fn the_node_is_over_before_the_controller_ends_the_lease_member_1(
            node_rate in 90u64..=110, controller_rate in 90u64..=110,
            lease_us in 100_000u64..10_000_000,
            beats in proptest::collection::vec((1u64..500_000, 0u64..3_000_000, any::<bool>()), 1..30),
        ) {
            let node_time = |true_us: u64| Tick(true_us * node_rate / 100);
            let mut tenure = Tenure::new(node_time(0), lease_us);
            let mut until = lease_us * 100 / controller_rate;
            let (mut sent, mut answers) = (0, Vec::new());
            for (sequence, (gap, delay, lost)) in (1..).zip(beats) {
                sent += gap;
                let received = sent + delay / 2;
                // The node stops sending when it is over; the controller takes what comes until it is over there.
                if tenure.hold(node_time(sent)) != Hold::Held || received >= until {
                    break;
                }
                tenure.heartbeat_sent(sequence, node_time(sent));
                until = until.max(received + lease_us * 100 / controller_rate);
                if !lost {
                    answers.push((sent + delay, sequence));
                }
                answers.sort_unstable();
                while answers.first().is_some_and(|(at, _)| *at <= sent) {
                    let (at, sequence) = answers.remove(0);
                    let _ = tenure.renewed(sequence, lease_us, node_time(at));
                }
                let over_at = tenure.over().0 * 100 / node_rate;
                prop_assert!(over_at <= until, "MEMBER-1: over at {over_at}, ended at {until}");
            }
        }
    }
}
