//! Statistics of a few numbers, and timing of repeated calls.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::Outcome;

/// One measurement of ours and one of the floor, straight after each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pair {
    /// Ours.
    pub(crate) ours: f64,
    /// The floor.
    pub(crate) floor: f64,
}

/// What the pairs of a row say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Median of ours.
    pub(crate) value: f64,
    /// Median of the floors.
    pub(crate) floor: f64,
    /// Median of the ratios of the pairs.
    pub(crate) ratio: f64,
    /// Half of what lies between the quartiles of ours, as a share of the median.
    pub(crate) spread: f64,
}

impl Summary {
    /// Of at least one pair.
    pub(crate) fn of(pairs: &[Pair]) -> Option<Self> {
        let ours: Vec<f64> = pairs.iter().map(|pair| pair.ours).collect();
        let floors: Vec<f64> = pairs.iter().map(|pair| pair.floor).collect();
        let ratios: Vec<f64> = pairs.iter().map(|pair| pair.ours / pair.floor).collect();
        let value = quantile(&ours, 0.5)?;
        let range = quantile(&ours, 0.75)? - quantile(&ours, 0.25)?;
        // A difference of two times can be below zero, and what does not vary has no spread even where it is zero.
        let spread = if range == 0.0 { 0.0 } else { range / 2.0 / value.abs() };
        Some(Self { value, floor: quantile(&floors, 0.5)?, ratio: quantile(&ratios, 0.5)?, spread })
    }
}

/// The value below which this share of the numbers lies, between neighbours if need be.
pub(crate) fn quantile(numbers: &[f64], share: f64) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = share.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    // Not by a product with zero: an infinite neighbour must not make it NaN.
    Some(if low == high { low } else { low + (high - low) * at.fract() })
}

/// Seconds that a call takes, and what it gives.
pub(crate) fn seconds<T>(call: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = call();
    (start.elapsed().as_secs_f64(), result)
}

/// Median of the microseconds of single calls; a tenth as many calls come before and do not count.
pub(crate) fn median_us(calls: usize, mut call: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    for _ in 0..calls / 10 {
        call()?;
    }
    let mut took = Vec::with_capacity(calls);
    for _ in 0..calls {
        let start = Instant::now();
        call()?;
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(quantile(&took, 0.5).ok_or("a median of no calls")?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours_and_nothing_has_none() {
        let numbers = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&numbers, 0.0), Some(1.0));
        assert_eq!(quantile(&numbers, 0.5), Some(2.5));
        assert_eq!(quantile(&numbers, 1.0), Some(4.0));
        assert_eq!(quantile(&[7.0], 0.25), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_ratio_is_the_median_of_ratios_and_not_the_ratio_of_medians() {
        let pairs = [(1.0, 10.0), (2.0, 2.0), (3.0, 1.0)].map(|(ours, floor)| Pair { ours, floor });
        let summary = Summary::of(&pairs).unwrap();
        assert_eq!((summary.value, summary.floor, summary.ratio), (2.0, 2.0, 1.0));
        let skewed = [(1.0, 4.0), (8.0, 2.0), (9.0, 3.0)].map(|(ours, floor)| Pair { ours, floor });
        assert_eq!(Summary::of(&skewed).unwrap().ratio, 3.0);
    }

    #[test]
    fn the_spread_is_half_of_the_quartile_range_over_the_median() {
        let pairs = [8.0, 9.0, 10.0, 11.0, 12.0].map(|ours| Pair { ours, floor: 1.0 });
        assert!((Summary::of(&pairs).unwrap().spread - 0.1).abs() < 1e-9);
        let below = [-12.0, -11.0, -10.0, -9.0, -8.0].map(|ours| Pair { ours, floor: 1.0 });
        assert!((Summary::of(&below).unwrap().spread - 0.1).abs() < 1e-9);
        assert_eq!(Summary::of(&[Pair { ours: 0.0, floor: 1.0 }]).unwrap().spread, 0.0);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn calls_before_the_measurement_do_not_count_and_an_error_ends_it() {
        let mut calls = 0;
        median_us(20, || {
            calls += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(calls, 22);
        assert!(median_us(20, || Err("no".into())).is_err());
    }
}
