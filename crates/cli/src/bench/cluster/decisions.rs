//! How many choices of a node one core makes, in a cluster of a thousand nodes on paper.

use std::hint::black_box;

use bireme_runtime::core::schedule::trial::{Mix, Trial};

use super::super::Outcome;
use super::super::measure::{Pair, quantile, seconds};
use super::stage::{Measured, Stage};

/// Nodes of the cluster.
const NODES: u32 = 1_000;
/// What is asked for; the slowest of them is judged.
const MIXES: [(Mix, &str); 4] =
    [(Mix::Plain, "plain"), (Mix::Shapes, "shapes"), (Mix::Inputs, "inputs"), (Mix::Spread, "spread")];

/// How many choices per second does one core make, while the loads of all nodes come in?
pub(super) fn decisions(stage: &Stage) -> Outcome<Measured> {
    let count = stage.size(500_000, 5_000);
    let mut rates: [Vec<f64>; MIXES.len()] = Default::default();
    let pairs = stage.measure(|_| {
        for (rates, (mix, _)) in rates.iter_mut().zip(MIXES) {
            stage.check()?;
            let mut trial = Trial::new(NODES);
            let (took, outcome) = seconds(|| trial.run(count, mix));
            black_box(outcome);
            rates.push(count as f64 / took);
        }
        let slowest = rates.iter().filter_map(|rates| rates.last().copied()).fold(f64::INFINITY, f64::min);
        Ok(Pair { ours: slowest, floor: looks_per_second(count as usize / 10) })
    })?;
    let mut measured = Measured::from(pairs);
    for (rates, (_, name)) in rates.iter().zip(MIXES) {
        measured = measured.and(name, quantile(rates, 0.5).unwrap_or(f64::NAN).round());
    }
    Ok(measured)
}

/// What a choice would cost that looks at each node.
fn looks_per_second(count: usize) -> f64 {
    let waits: Vec<u64> = (0..u64::from(NODES)).map(|node| node.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let (took, ()) = seconds(|| {
        for _ in 0..count {
            black_box(black_box(&waits).iter().min());
        }
    });
    count as f64 / took
}
