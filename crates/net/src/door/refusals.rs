//! Refusals: all are counted, some are told, so that nobody fills a log from outside.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Greeter;

/// Refusals told in one second; the others are counted, and their number comes with the next one.
const TOLD_PER_SECOND_MAX: u32 = 10;

/// Somebody who was not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// From where it came.
    pub address: SocketAddr,
    /// Why, in words.
    pub reason: String,
    /// How many were refused since the last one that was told.
    pub untold: u64,
}

pub(super) struct Refusals {
    greeter: Arc<dyn Greeter>,
    refused: AtomicU64,
    crowded: AtomicU64,
    rate: Mutex<Rate>,
}

#[derive(Default)]
struct Rate {
    since: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Refusals {
    pub(super) fn new(greeter: Arc<dyn Greeter>) -> Arc<Self> {
        let (refused, crowded, rate) = Default::default();
        Arc::new(Self { greeter, refused, crowded, rate })
    }

    /// Counts one, and tells it if there have not been too many.
    pub(super) fn refuse(&self, address: SocketAddr, reason: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let untold = self.rate.lock().unwrap_or_else(PoisonError::into_inner).may_tell(Instant::now());
        if let Some(untold) = untold {
            self.greeter.refused(&Refusal { address, reason: reason.to_owned(), untold });
        }
    }

    /// Counts one of which there is nothing to tell.
    pub(super) fn count(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The same for one that found no room, or had to make it.
    pub(super) fn crowded(&self, address: SocketAddr) {
        self.crowded.fetch_add(1, Ordering::Relaxed);
        self.refuse(address, "the door is crowded with peers that do not say who they are");
    }

    /// Refused, and of these crowded out.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.refused.load(Ordering::Relaxed), self.crowded.load(Ordering::Relaxed))
    }
}

impl Rate {
    /// How many were not told since the last one, if this one may be.
    fn may_tell(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= Duration::from_secs(1)) {
            self.since = Some(now);
            self.told = 0;
        }
        if self.told == TOLD_PER_SECOND_MAX {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_told_in_part_and_counted_in_full() {
        let mut rate = Rate::default();
        let start = Instant::now();
        let told = (0..1_000).filter(|_| rate.may_tell(start).is_some()).count();
        assert_eq!(told, TOLD_PER_SECOND_MAX as usize);
        assert_eq!(rate.may_tell(start + Duration::from_secs(1)), Some(990));
        assert_eq!(rate.may_tell(start + Duration::from_secs(1)), Some(0));
    }
}
