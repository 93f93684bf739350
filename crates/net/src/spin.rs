//! When to spin instead of sleeping, and for how long.
//!
//! Waking a sleeping core costs tens of microseconds, a spinning round trip less
//! than one. But a spinner on a machine without a spare core takes time from the
//! very thread that it waits for. So a thread spins only if
//!
//! 1. our own running threads, the spinning ones included, fit on the cores (a
//!    counter in the fabric, exact and nearly free);
//! 2. so do the foreign ones (the kernel's count, every few milliseconds);
//! 3. its waits were short of late (a moving average), with a probe now and then;
//! 4. it was not preempted while it spun, within a while: a gap between two looks at the
//!    clock, which needs no cooperation from anybody.
//!
//! The four reasons and their figures are in `docs/decisions/0003-when-to-spin.md`.
//! One policy belongs to one waiting thread.

use std::time::Duration;

use crate::fabric::Fabric;

#[cfg(test)]
mod tests;

/// The longest spin.
pub const SPIN_MAX: Duration = Duration::from_micros(50);

const SPIN_MAX_NS: u64 = SPIN_MAX.as_nanos() as u64;
/// The shortest worth the trouble.
const SPIN_MIN_NS: u64 = 5_000;
/// Waits longer than this on average are slept through. More than `SPIN_MAX`,
/// because a wait that was slept through includes two wake-ups.
const WORTH_MAX_NS: u64 = 100_000;
/// One wait in so many is spun for although it is not worth it, to notice when
/// that has changed.
const PROBE_EVERY: u32 = 64;
/// A longer gap between two looks at the clock means that the thread was off
/// its core.
const PREEMPTED_NS: u64 = 30_000;
/// How long not to spin after that: doubled each time up to the maximum.
const BACKOFF_MIN_NS: u64 = 100_000;
const BACKOFF_MAX_NS: u64 = 16_000_000;
/// This long without another one, and the next starts small again. Our own node takes a core for a moment every few
/// milliseconds of full traffic, and that is no reason to stop for longer; lasting load shows in the census too.
const PEACE_NS: u64 = 1_000_000;
/// The longest time that a thread gives way and stays awake.
const GIVE_WAY_MAX_NS: u64 = 150_000;
/// Who gave way and has its core back only after so long was in the way of somebody who computes.
const GIVEN_MAX_NS: u64 = 200_000;
/// Looks before it gives way again: enough that one is at the sockets.
const GIVING_WAY_POLLS: u32 = 16;
/// Polls between two looks at the clock.
const POLLS: u32 = 4;

/// Whether a thread may spin at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SpinMode {
    /// When it pays.
    #[default]
    Adaptive,
    /// Never: sleep at once.
    Never,
    /// Up to `SPIN_MAX` each time, whoever suffers. For comparison only.
    Always,
}

/// How a spin ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinOutcome {
    /// What was waited for is there.
    Ready,
    /// It took too long, or would have: sleep.
    GaveUp,
    /// No core is spare: sleep.
    NoSpareCore,
}

/// The spinning of one waiting thread.
#[derive(Clone, Debug)]
pub struct SpinPolicy {
    mode: SpinMode,
    /// Cores that have to be left beside this thread.
    leaving: i32,
    average_ns: u64,
    skipped: u32,
    backoff_ns: u64,
    resume_at_ns: u64,
}

impl SpinPolicy {
    /// A thread without history, which takes its waits to be short.
    pub fn new(mode: SpinMode) -> Self {
        let (leaving, average_ns) = (0, SPIN_MAX_NS / 2);
        Self { mode, leaving, average_ns, skipped: 0, backoff_ns: BACKOFF_MIN_NS, resume_at_ns: 0 }
    }

    /// The same for a thread that passes on what one says to another: it spins only when both have a core beside it.
    pub fn between_two(mode: SpinMode) -> Self {
        Self { leaving: 2, ..Self::new(mode) }
    }

    /// Spins until `ready` says so, as long as that is sensible. The thread must
    /// be counted as running ([`Fabric::enter_running`]).
    #[inline]
    pub fn spin(&mut self, fabric: &Fabric, mut ready: impl FnMut() -> bool) -> SpinOutcome {
        if ready() {
            return SpinOutcome::Ready;
        }
        if self.mode == SpinMode::Never {
            return SpinOutcome::GaveUp;
        }
        let start = now_ns();
        if self.mode == SpinMode::Adaptive
            && let Some(refused) = self.refuse(fabric, start)
        {
            let gives_way = self.leaving > 0 && refused == SpinOutcome::NoSpareCore && start >= self.resume_at_ns;
            return if gives_way && self.average_ns <= WORTH_MAX_NS { self.give_way(start, ready) } else { refused };
        }
        self.poll(fabric, start, ready)
    }

    /// Learns how long a whole wait took, spinning and sleeping together.
    #[inline]
    pub fn waited(&mut self, wait: Duration) {
        self.waited_ns(wait.as_nanos() as u64);
    }

    #[inline]
    pub(crate) fn waited_ns(&mut self, wait_ns: u64) {
        // A bounded weight for one very long wait, so that a burst after a
        // pause is noticed within a few messages.
        let wait_ns = wait_ns.min(8 * WORTH_MAX_NS);
        self.average_ns = (self.average_ns * 7 + wait_ns) / 8;
    }

    /// The reason not to begin, if there is one.
    #[inline]
    fn refuse(&mut self, fabric: &Fabric, now: u64) -> Option<SpinOutcome> {
        if now < self.resume_at_ns || !fabric.all_threads_fit(self.leaving, now) {
            return Some(SpinOutcome::NoSpareCore);
        }
        if self.average_ns > WORTH_MAX_NS {
            self.skipped += 1;
            if self.skipped < PROBE_EVERY {
                return Some(SpinOutcome::GaveUp);
            }
            self.skipped = 0;
        }
        None
    }

    #[inline]
    fn poll(&mut self, fabric: &Fabric, start: u64, mut ready: impl FnMut() -> bool) -> SpinOutcome {
        let adaptive = self.mode == SpinMode::Adaptive;
        let budget = if adaptive { (self.average_ns * 2).clamp(SPIN_MIN_NS, SPIN_MAX_NS) } else { SPIN_MAX_NS };
        let mut last = start;
        loop {
            for _ in 0..POLLS {
                if ready() {
                    return SpinOutcome::Ready;
                }
                std::hint::spin_loop();
            }
            let now = now_ns();
            if adaptive && now - last > PREEMPTED_NS {
                self.back_off(now);
                return SpinOutcome::NoSpareCore;
            }
            last = now;
            if now - start > budget {
                return SpinOutcome::GaveUp;
            }
            if adaptive && !fabric.own_threads_fit(self.leaving) {
                return SpinOutcome::NoSpareCore;
            }
        }
    }

    /// Lets all others run that want to, and looks in between: the core does not fall asleep, and nobody waits for it.
    fn give_way(&mut self, start: u64, mut ready: impl FnMut() -> bool) -> SpinOutcome {
        let mut last = start;
        loop {
            for _ in 0..GIVING_WAY_POLLS {
                if ready() {
                    return SpinOutcome::Ready;
                }
            }
            std::thread::yield_now();
            let now = now_ns();
            if now - last > GIVEN_MAX_NS {
                self.back_off(now);
                return SpinOutcome::NoSpareCore;
            }
            last = now;
            if now - start > GIVE_WAY_MAX_NS {
                return SpinOutcome::GaveUp;
            }
        }
    }

    #[cold]
    fn back_off(&mut self, now: u64) {
        let peaceful = now > self.resume_at_ns + PEACE_NS;
        self.backoff_ns = if peaceful { BACKOFF_MIN_NS } else { (self.backoff_ns * 2).min(BACKOFF_MAX_NS) };
        self.resume_at_ns = now + self.backoff_ns;
    }
}

/// The clock that all processes of the machine share.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
