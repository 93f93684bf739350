//! How long silence may last before it means something.
//!
//! Heartbeats come at a period, but late ones are part of life: a busy core, a congested link, a paused virtual machine. A
//! [`Pulse`] learns the intervals between arrivals, their average and their average deviation, and calls a peer silent
//! when the present interval is longer than the average by several deviations, in the manner of phi-accrual detectors;
//! integers do, so that a seed means the same run everywhere. A floor keeps a very regular peer from being called silent
//! for a hiccup, a ceiling bounds how long a death can go unnoticed.
//!
//! What follows from silence is not decided here: see the leases of the members.

use crate::time::Tick;

/// Deviations above the average that are still no silence. The intervals of a loaded machine have a long tail, which a
/// smaller number would take for deaths.
const DEVIATIONS: u64 = 8;
/// Fractions of a microsecond in the averages, as bits.
const SCALE: u32 = 8;
/// Weight of a new interval: one eighth in the average, one quarter in the deviation.
const MEAN_SHIFT: u32 = 3;
const DEVIATION_SHIFT: u32 = 2;

/// What is known in advance of the heartbeats of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PulseLimits {
    /// The interval at which the peer sends.
    pub period_us: u64,
    /// No shorter silence counts.
    pub timeout_min_us: u64,
    /// Any longer silence does.
    pub timeout_max_us: u64,
}

/// The arrivals of one peer's heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    limits: PulseLimits,
    last: Tick,
    mean: u64,
    deviation: u64,
}

impl Pulse {
    /// A peer that was heard `now`, by its joining, and whose intervals are not known.
    pub fn new(limits: PulseLimits, now: Tick) -> Self {
        let mean = limits.period_us << SCALE;
        Self { limits, last: now, mean, deviation: mean / 2 }
    }

    /// A heartbeat came.
    pub fn heard(&mut self, now: Tick) {
        // One very long interval, a machine that slept, must not hide the next death for long.
        let interval = now.since_us(self.last).min(self.limits.timeout_max_us) << SCALE;
        self.last = self.last.max(now);
        let error = interval.abs_diff(self.mean);
        self.mean = self.mean - (self.mean >> MEAN_SHIFT) + (interval >> MEAN_SHIFT);
        self.deviation = self.deviation - (self.deviation >> DEVIATION_SHIFT) + (error >> DEVIATION_SHIFT);
    }

    /// The silence after which the peer is to be suspected, as learned so far.
    pub fn timeout_us(&self) -> u64 {
        let learned = (self.mean + DEVIATIONS * self.deviation) >> SCALE;
        learned.max(self.limits.timeout_min_us).min(self.limits.timeout_max_us)
    }

    /// When that will be, if nothing comes.
    pub fn deadline(&self) -> Tick {
        self.last.plus_us(self.timeout_us())
    }

    /// Whether the peer has been silent for too long.
    pub fn is_silent(&self, now: Tick) -> bool {
        now >= self.deadline()
    }

    /// How long it has been silent.
    pub fn silence_us(&self, now: Tick) -> u64 {
        now.since_us(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PulseLimits = PulseLimits { period_us: 100_000, timeout_min_us: 250_000, timeout_max_us: 2_000_000 };

    /// A pulse that heard beats at these intervals, and the time of the last.
    fn after(intervals: impl IntoIterator<Item = u64>) -> (Pulse, Tick) {
        let mut now = Tick(5);
        let mut pulse = Pulse::new(LIMITS, now);
        for interval in intervals {
            now = now.plus_us(interval);
            pulse.heard(now);
        }
        (pulse, now)
    }

    #[test]
    fn a_peer_that_never_beat_is_given_a_few_periods() {
        let (pulse, now) = after([]);
        assert_eq!(pulse.timeout_us(), 500_000);
        assert!(!pulse.is_silent(now.plus_us(499_999)) && pulse.is_silent(now.plus_us(500_000)));
        assert_eq!(pulse.deadline(), now.plus_us(500_000));
    }

    #[test]
    fn a_regular_peer_is_missed_at_the_floor() {
        let (pulse, now) = after([100_000; 50]);
        assert_eq!(pulse.timeout_us(), LIMITS.timeout_min_us);
        assert!(pulse.is_silent(now.plus_us(250_000)) && !pulse.is_silent(now.plus_us(249_999)));
        assert_eq!(pulse.silence_us(now.plus_us(7)), 7);
    }

    #[test]
    fn an_irregular_peer_is_given_more_time() {
        let (pulse, _) = after([20_000, 180_000].repeat(50));
        let timeout = pulse.timeout_us();
        assert!((600_000..1_000_000).contains(&timeout), "{timeout}");
    }

    #[test]
    fn a_slow_peer_is_measured_by_its_own_interval() {
        let (pulse, _) = after([400_000; 60]);
        assert!((400_000..450_000).contains(&pulse.timeout_us()), "{}", pulse.timeout_us());
    }

    #[test]
    fn no_peer_is_waited_for_longer_than_the_ceiling() {
        let (pulse, now) = after([3_600_000_000, 100_000, 3_600_000_000]);
        assert_eq!(pulse.timeout_us(), LIMITS.timeout_max_us);
        assert!(pulse.is_silent(now.plus_us(LIMITS.timeout_max_us)));
    }

    #[test]
    fn one_long_pause_is_forgotten_within_a_few_seconds() {
        let (pulse, _) = after(std::iter::once(1_900_000).chain([100_000; 40]));
        assert_eq!(pulse.timeout_us(), LIMITS.timeout_min_us);
    }

    #[test]
    fn beats_that_come_at_once_or_out_of_order_do_no_harm() {
        let (mut pulse, now) = after([100_000; 20]);
        for _ in 0..200 {
            pulse.heard(now);
            pulse.heard(Tick(1));
        }
        assert_eq!((pulse.timeout_us(), pulse.silence_us(now)), (LIMITS.timeout_min_us, 0));
    }
}
