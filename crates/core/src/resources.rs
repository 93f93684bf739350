//! How much of a machine a task asks for: CPUs, GPUs, memory and named amounts, in exact fractions.
//!
//! Amounts are integers in ten-thousandths, so adding and taking away is exact and a third of a GPU three times is never
//! more than one GPU. Bad amounts (negative, NaN, infinite, too fine to hold) are refused where the user names them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Units in one whole.
pub const UNITS_PER_WHOLE: u64 = 10_000;
/// More named resources than this in one request is refused.
pub const CUSTOM_RESOURCES_MAX: usize = 64;

/// A non-negative amount in ten-thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Amount(pub u64);

/// Why an amount was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadAmount {
    /// The resource that was asked for.
    pub resource: String,
    /// The number as the user gave it.
    pub given: String,
}

impl fmt::Display for BadAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of resource {:?} is not an amount; give a finite number that is zero or at least 0.0001",
            self.given, self.resource
        )
    }
}

impl std::error::Error for BadAmount {}

impl Amount {
    /// Whole units.
    pub const fn whole(n: u64) -> Self {
        Self(n * UNITS_PER_WHOLE)
    }

    /// An amount from the number that a user wrote.
    pub fn from_f64(resource: &str, given: f64) -> Result<Self, BadAmount> {
        let units = (given * UNITS_PER_WHOLE as f64).round();
        let fits = given.is_finite() && given >= 0.0 && units <= 1e15 && (given == 0.0 || units >= 1.0);
        if fits {
            Ok(Self(units as u64))
        } else {
            Err(BadAmount { resource: resource.into(), given: given.to_string() })
        }
    }

    /// The amount as a number, for people.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / UNITS_PER_WHOLE as f64
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_f64())
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Amounts of everything: what a machine has, what is free, or what a task asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Resources {
    /// CPU cores.
    pub cpus: Amount,
    /// GPUs.
    pub gpus: Amount,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Anything that the user gave a name.
    pub custom: BTreeMap<String, Amount>,
}

impl Resources {
    /// Only CPUs.
    pub fn cpus(cpus: Amount) -> Self {
        Self { cpus, ..Self::default() }
    }

    /// Whether nothing is asked for.
    pub fn is_zero(&self) -> bool {
        self.cpus.0 == 0 && self.gpus.0 == 0 && self.memory_bytes == 0 && self.custom.values().all(|a| a.0 == 0)
    }

    /// Whether `ask` is within this.
    pub fn covers(&self, ask: &Resources) -> bool {
        self.cpus >= ask.cpus
            && self.gpus >= ask.gpus
            && self.memory_bytes >= ask.memory_bytes
            && ask.custom.iter().all(|(name, amount)| self.custom.get(name).copied().unwrap_or_default() >= *amount)
    }

    /// Takes `ask` away when it is covered; else changes nothing and says no.
    #[must_use]
    pub fn try_take(&mut self, ask: &Resources) -> bool {
        if !self.covers(ask) {
            return false;
        }
        self.cpus.0 -= ask.cpus.0;
        self.gpus.0 -= ask.gpus.0;
        self.memory_bytes -= ask.memory_bytes;
        for (name, amount) in &ask.custom {
            if let Some(have) = self.custom.get_mut(name) {
                have.0 -= amount.0;
            }
        }
        true
    }

    /// Whether two asks want some of the same resource.
    pub fn conflicts(&self, other: &Resources) -> bool {
        let named = |(name, amount): (&String, &Amount)| {
            amount.0 > 0 && other.custom.get(name).is_some_and(|wanted| wanted.0 > 0)
        };
        (self.cpus.0 > 0 && other.cpus.0 > 0)
            || (self.gpus.0 > 0 && other.gpus.0 > 0)
            || (self.memory_bytes > 0 && other.memory_bytes > 0)
            || self.custom.iter().any(named)
    }

    /// Number of times that `ask` is within this; for one that asks for nothing, as often as can be said.
    pub fn times(&self, ask: &Resources) -> u32 {
        self.times_beside(&Resources::default(), ask)
    }

    /// Number of times that `ask` is within what is left of this beside something that is taken.
    pub fn times_beside(&self, taken: &Resources, ask: &Resources) -> u32 {
        let often = |have: u64, taken: u64, wanted: u64| have.saturating_sub(taken).checked_div(wanted);
        let fixed = [
            often(self.cpus.0, taken.cpus.0, ask.cpus.0),
            often(self.gpus.0, taken.gpus.0, ask.gpus.0),
            often(self.memory_bytes, taken.memory_bytes, ask.memory_bytes),
        ];
        let amount = |of: &Resources, name: &String| of.custom.get(name).copied().unwrap_or_default().0;
        let custom = ask.custom.iter().map(|(name, wanted)| often(amount(self, name), amount(taken, name), wanted.0));
        let times = fixed.into_iter().chain(custom).flatten().min().unwrap_or(u64::MAX);
        u32::try_from(times).unwrap_or(u32::MAX)
    }

    /// How far this is from an ask: kinds that it lacks, then how much of the worst one, in thousandths of what is asked.
    pub fn shortage(&self, asked: &Resources) -> (usize, u64) {
        let custom =
            asked.custom.iter().map(|(name, amount)| (self.custom.get(name).copied().unwrap_or_default().0, amount.0));
        let fixed = [(self.cpus.0, asked.cpus.0), (self.gpus.0, asked.gpus.0), (self.memory_bytes, asked.memory_bytes)];
        let lacking = || fixed.into_iter().chain(custom.clone()).filter(|(have, wanted)| have < wanted);
        let worst = lacking().map(|(have, wanted)| (u128::from(wanted - have) * 1_000 / u128::from(wanted)) as u64);
        (lacking().count(), worst.max().unwrap_or(0))
    }

    /// So many of this together.
    #[must_use]
    pub fn multiplied(&self, times: u32) -> Resources {
        let times = u64::from(times);
        Resources {
            cpus: Amount(self.cpus.0.saturating_mul(times)),
            gpus: Amount(self.gpus.0.saturating_mul(times)),
            memory_bytes: self.memory_bytes.saturating_mul(times),
            custom: self.custom.iter().map(|(n, a)| (n.clone(), Amount(a.0.saturating_mul(times)))).collect(),
        }
    }

    /// Gives `back` what was taken.
    pub fn give(&mut self, back: &Resources) {
        self.cpus.0 += back.cpus.0;
        self.gpus.0 += back.gpus.0;
        self.memory_bytes += back.memory_bytes;
        for (name, amount) in &back.custom {
            self.custom.entry(name.clone()).or_default().0 += amount.0;
        }
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = vec![format!("{} CPUs", self.cpus)];
        if self.gpus.0 > 0 {
            parts.push(format!("{} GPUs", self.gpus));
        }
        if self.memory_bytes > 0 {
            parts.push(format!("{} bytes of memory", self.memory_bytes));
        }
        parts.extend(self.custom.iter().map(|(name, amount)| format!("{amount} {name}")));
        write!(f, "{}", parts.join(", "))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn asks_conflict_when_both_want_some_of_one_resource() {
        let of = |cpus, gpus, memory_bytes, r: u64| {
            let custom = if r > 0 { BTreeMap::from([("r".to_owned(), Amount::whole(r))]) } else { BTreeMap::new() };
            Resources { cpus: Amount::whole(cpus), gpus: Amount::whole(gpus), memory_bytes, custom }
        };
        let each = [of(1, 0, 0, 0), of(0, 1, 0, 0), of(0, 0, 1, 0), of(0, 0, 0, 1)];
        for (at, one) in each.iter().enumerate() {
            for (other_at, other) in each.iter().enumerate() {
                assert_eq!(one.conflicts(other), at == other_at, "{one} and {other}");
            }
            assert!(of(1, 1, 1, 1).conflicts(one) && !one.conflicts(&Resources::default()));
        }
    }

    #[test]
    fn bad_amounts_are_refused_by_name() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e-9, 1e30] {
            let error = Amount::from_f64("cpus", bad).unwrap_err();
            assert!(error.to_string().contains("cpus"), "{error}");
        }
        assert_eq!(Amount::from_f64("cpus", 0.5), Ok(Amount(5_000)));
        assert_eq!(Amount::from_f64("cpus", 0.0), Ok(Amount(0)));
    }

    fn any_resources() -> impl Strategy<Value = Resources> {
        (0u64..50_000, 0u64..20_000, 0u64..1_000, proptest::collection::btree_map("[a-c]", 0u64..9_000, 0..3)).prop_map(
            |(cpus, gpus, memory_bytes, custom)| Resources {
                cpus: Amount(cpus),
                gpus: Amount(gpus),
                memory_bytes,
                custom: custom.into_iter().map(|(k, v)| (k, Amount(v))).collect(),
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_taken_and_given_back_is_exact(have in any_resources(), asks in proptest::collection::vec(any_resources(), 0..20)) {
            let mut free = have.clone();
            let mut taken = Vec::new();
            for ask in asks {
                let before = free.clone();
                if free.try_take(&ask) {
                    prop_assert!(before.covers(&ask));
                    taken.push(ask);
                } else {
                    prop_assert_eq!(&before, &free);
                }
            }
            if let Some(ask) = taken.last().filter(|ask| !ask.is_zero()) {
                let times = free.times(ask);
                prop_assert!(free.covers(&ask.multiplied(times)) && !free.covers(&ask.multiplied(times + 1)));
            }
            for back in &taken {
                free.give(back);
            }
            free.custom.retain(|_, a| a.0 > 0);
            let mut have = have;
            have.custom.retain(|_, a| a.0 > 0);
            prop_assert_eq!(free, have);
        }
    }
}
