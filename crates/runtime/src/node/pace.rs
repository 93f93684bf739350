//! How fast bytes come in.

use bireme_core::time::Tick;

use crate::clock;

/// Bytes after a longer pause are counted anew: their sender had nothing to send.
const PAUSE_US: u64 = 50_000;

/// What came over the network, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct Measured {
    pub(in crate::node) bytes: u64,
    pub(in crate::node) took_us: u64,
}

/// Measures a stream, or several that come together.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::node) struct Pace {
    first: Option<Tick>,
    last: Tick,
    bytes: u64,
    /// The longest run before the last pause: one piece that came late tells nothing.
    before: Option<Measured>,
}

impl Pace {
    /// Some bytes have come.
    pub(in crate::node) fn came(&mut self, bytes: u64) {
        self.came_at(bytes, clock::now());
    }

    fn came_at(&mut self, bytes: u64, now: Tick) {
        match self.first {
            Some(_) if now.since_us(self.last) <= PAUSE_US => self.bytes += bytes,
            // The first ones say how long it took until somebody sent them, and not how fast they came.
            _ => {
                self.before = self.measured();
                (self.first, self.bytes) = (Some(now), 0);
            }
        }
        self.last = now;
    }

    /// What was measured; nothing without bytes behind the first ones.
    pub(in crate::node) fn measured(self) -> Option<Measured> {
        let took_us = self.last.since_us(self.first?);
        let present = (self.bytes > 0).then_some(Measured { bytes: self.bytes, took_us });
        self.before.into_iter().chain(present).max_by_key(|run| run.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_wait_for_the_first_bytes_nor_a_pause_counts() {
        let mut pace = Pace::default();
        pace.came_at(100, Tick(1_000_000));
        assert_eq!(pace.measured(), None);
        pace.came_at(100, Tick(1_000_010));
        assert_eq!(pace.measured(), Some(Measured { bytes: 100, took_us: 10 }));
        pace.came_at(100, Tick(2_000_000));
        assert_eq!(pace.measured(), Some(Measured { bytes: 100, took_us: 10 }), "a late piece changes nothing");
        pace.came_at(60, Tick(2_000_002));
        pace.came_at(60, Tick(2_000_004));
        assert_eq!(pace.measured(), Some(Measured { bytes: 120, took_us: 4 }));
    }
}
