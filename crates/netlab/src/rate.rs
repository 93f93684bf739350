//! How fast a link is.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Bits per second of a link, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

/// What the shaper lets pass at once is what the link carries in this part of a second, and a few packets at least.
const BURSTS_PER_SECOND: u64 = 250;
/// One segmented packet of the kernel and a little.
const BURST_BYTES_MIN: u64 = 80 << 10;

impl Rate {
    /// So many million bits per second.
    pub const fn megabits(count: u64) -> Self {
        Self(count * 1_000_000)
    }

    /// Bits per second.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Bytes per second, headers included.
    pub const fn bytes(self) -> u64 {
        self.0 / 8
    }

    /// What may pass at once after a silence.
    pub(crate) fn burst_bytes(self) -> u64 {
        (self.bytes() / BURSTS_PER_SECOND).max(BURST_BYTES_MIN)
    }
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::BadRate(text.to_owned());
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let factor = match &text[digits..] {
            "bit" => 1,
            "kbit" => 1_000,
            "mbit" => 1_000_000,
            "gbit" => 1_000_000_000,
            _ => return Err(bad()),
        };
        let count: u64 = text[..digits].parse().map_err(|_| bad())?;
        count.checked_mul(factor).filter(|bits| *bits >= 8).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}bit", self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rates_are_read_as_iproute_writes_them() {
        for (text, bits) in [("9bit", 9), ("64kbit", 64_000), ("100mbit", 100_000_000), ("10gbit", 10_000_000_000)] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.bits(), bits);
            assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "fast", "100", "mbit", "-1mbit", "1.5gbit", "0mbit", "99999999999gbit"] {
            assert!(matches!(text.parse::<Rate>(), Err(Error::BadRate(_))), "{text}");
        }
    }
}
