//! The one place that reads a clock: the machine's monotonic clock, which all processes share, the calendar for what
//! people set a date to, and the processor time of this process.

use std::time::{Duration, Instant};

use bireme_core::time::Tick;
use rustix::time::{ClockId, clock_gettime};

/// Now, as machines are told it.
#[inline]
pub fn now() -> Tick {
    let now = clock_gettime(ClockId::Monotonic);
    Tick(now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000)
}

/// The time of day, for expiries that people set. Nothing is ordered by it.
pub fn seconds_since_1970() -> u64 {
    clock_gettime(ClockId::Realtime).tv_sec.try_into().unwrap_or(0)
}

/// The processor time of all threads of this process.
pub(crate) fn processor_us() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1_000
}

/// When a wait of this length ends; none when that is later than a clock can say, which is never.
pub(crate) fn deadline(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
