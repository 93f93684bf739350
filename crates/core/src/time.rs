//! Time as data: machines are told the time, they never ask.

use serde::{Deserialize, Serialize};

/// Microseconds since the node started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
pub struct Tick(pub u64);

impl Tick {
    /// Microseconds from `earlier` to this tick; zero when `earlier` is later.
    #[inline]
    pub fn since_us(self, earlier: Tick) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This tick, `us` microseconds later.
    #[inline]
    pub fn plus_us(self, us: u64) -> Tick {
        Tick(self.0.saturating_add(us))
    }
}
