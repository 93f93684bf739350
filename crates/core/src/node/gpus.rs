//! Which GPUs a lease or an actor has, by index.
//!
//! Whole GPUs are nobody else's; fractions share one as long as they fit, the fullest first, so that whole ones stay
//! whole. More than one GPU must be a whole number, since a rest could lie anywhere.
//!
//! GPU-1: what is given out of one index never exceeds it.

use crate::resources::{Amount, Resources, UNITS_PER_WHOLE};

/// GPUs of one machine that have an index; what is beyond is not given out.
pub const GPUS_MAX: usize = 4_096;

/// What is free of each GPU, in units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    free: Vec<u64>,
}

impl Gpus {
    /// All GPUs of a machine that has so many.
    pub fn new(total: Amount) -> Self {
        let mut free = vec![UNITS_PER_WHOLE; ((total.0 / UNITS_PER_WHOLE) as usize).min(GPUS_MAX)];
        let rest = total.0 % UNITS_PER_WHOLE;
        if rest > 0 && free.len() < GPUS_MAX {
            free.push(rest);
        }
        Self { free }
    }

    /// These GPUs and nothing else, of as many as this machine has.
    pub(super) fn only(&self, indices: &[u32], asked: Amount) -> Self {
        let mut free = vec![0; self.free.len()];
        for index in indices {
            free[*index as usize] = share(asked);
        }
        Self { free }
    }

    /// Takes back all that another one has free.
    pub(super) fn give_all_of(&mut self, other: &Self) {
        for (index, (free, back)) in self.free.iter_mut().zip(&other.free).enumerate() {
            *free += back;
            assert!(*free <= UNITS_PER_WHOLE, "GPU-1: more of GPU {index} came back than was given out");
        }
    }

    /// Takes as much as another one has, seen from an empty machine.
    pub(super) fn take_all_of(&mut self, other: &Self) {
        for (free, taken) in self.free.iter_mut().zip(&other.free) {
            *free = free.saturating_sub(*taken);
        }
    }

    /// Whether there are GPUs for this now.
    pub fn fits(&self, asked: Amount) -> bool {
        self.choose(asked).is_some()
    }

    /// Gives out GPUs; nothing when they do not fit.
    pub fn take(&mut self, asked: Amount) -> Option<Vec<u32>> {
        let chosen = self.choose(asked)?;
        for index in &chosen {
            self.free[*index as usize] -= share(asked);
        }
        Some(chosen)
    }

    /// The same for those that are taken already, seen from an empty machine.
    pub fn take_these(&mut self, indices: &[u32], asked: Amount) {
        for index in indices {
            if let Some(free) = self.free.get_mut(*index as usize) {
                *free = free.saturating_sub(share(asked));
            }
        }
    }

    /// Takes them back.
    pub fn give(&mut self, indices: &[u32], asked: Amount) {
        for index in indices {
            if let Some(free) = self.free.get_mut(*index as usize) {
                *free += share(asked);
                assert!(*free <= UNITS_PER_WHOLE, "GPU-1: more of GPU {index} came back than was given out");
            }
        }
    }

    fn choose(&self, asked: Amount) -> Option<Vec<u32>> {
        let indexed = || (0u32..).zip(self.free.iter().copied());
        if asked.0 == 0 {
            return Some(Vec::new());
        }
        if asked.0 <= UNITS_PER_WHOLE {
            let fitting = indexed().filter(|(_, free)| *free >= asked.0);
            return fitting.min_by_key(|(_, free)| *free).map(|(index, _)| vec![index]);
        }
        let wanted = (asked.0 / UNITS_PER_WHOLE) as usize;
        let whole: Vec<u32> =
            indexed().filter(|(_, free)| *free == UNITS_PER_WHOLE).map(|(index, _)| index).take(wanted).collect();
        (is_possible(asked) && whole.len() == wanted).then_some(whole)
    }
}

/// Whether such an amount can be given out at all.
pub(crate) fn is_possible(asked: Amount) -> bool {
    asked.0 <= UNITS_PER_WHOLE || asked.0.is_multiple_of(UNITS_PER_WHOLE)
}

/// Why a machine can never give this: what was asked, and what there is.
pub(super) fn impossible(asked: &Resources, total: &Resources) -> Option<(String, String)> {
    if !is_possible(asked.gpus) {
        return Some((format!("{asked} (above 1, GPUs are whole numbers)"), total.to_string()));
    }
    (!total.covers(asked)).then(|| (asked.to_string(), total.to_string()))
}

/// What is taken of each index.
fn share(asked: Amount) -> u64 {
    asked.0.min(UNITS_PER_WHOLE)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gpus(n: f64) -> Amount {
        Amount::from_f64("gpus", n).unwrap()
    }

    #[test]
    fn whole_ones_are_distinct_and_fractions_share_one() {
        let mut all = Gpus::new(gpus(3.0));
        assert_eq!(all.take(gpus(0.5)), Some(vec![0]));
        assert_eq!(all.take(gpus(0.5)), Some(vec![0]), "the fullest that fits");
        assert_eq!(all.take(gpus(0.4)), Some(vec![1]));
        assert_eq!(all.take(gpus(1.0)), Some(vec![2]));
        assert_eq!(all.take(gpus(1.0)), None);
        assert_eq!(all.take(gpus(0.6)), Some(vec![1]));
        all.give(&[0], gpus(0.5));
        all.give(&[2], gpus(1.0));
        assert_eq!(all.take(gpus(2.0)), None, "half of one is taken");
        all.give(&[0], gpus(0.5));
        assert_eq!(all.take(gpus(2.0)), Some(vec![0, 2]));
        assert_eq!(all.take(gpus(0.0)), Some(vec![]));
    }

    #[test]
    fn a_fraction_above_one_is_refused_with_the_reason() {
        let mut asked = Resources { gpus: gpus(1.5), ..Resources::default() };
        let total = Resources { gpus: gpus(4.0), ..Resources::default() };
        assert!(impossible(&asked, &total).unwrap().0.contains("whole numbers"));
        asked.gpus = gpus(5.0);
        assert!(impossible(&asked, &total).is_some());
        asked.gpus = gpus(4.0);
        assert_eq!(impossible(&asked, &total), None);
    }

    proptest! {
        #[test]
        fn no_index_is_over_assigned_and_all_comes_back_gpu_1(
            total in 0u64..50_000,
            asks in proptest::collection::vec((prop_oneof![1u64..=10_000, (1u64..5).prop_map(|n| n * 10_000)], any::<bool>()), 0..40),
        ) {
            let mut all = Gpus::new(Amount(total));
            let mut held: Vec<(Vec<u32>, Amount)> = Vec::new();
            for (asked, give) in asks {
                if give && let Some((indices, amount)) = held.pop() {
                    all.give(&indices, amount);
                }
                if let Some(indices) = all.take(Amount(asked)) {
                    held.push((indices, Amount(asked)));
                }
                for index in 0..all.free.len() as u32 {
                    let used: u64 = held.iter().filter(|(i, _)| i.contains(&index)).map(|(_, a)| share(*a)).sum();
                    prop_assert!(used <= UNITS_PER_WHOLE);
                }
            }
            for (indices, amount) in held {
                all.give(&indices, amount);
            }
            prop_assert_eq!(all, Gpus::new(Amount(total)));
        }
    }
}
