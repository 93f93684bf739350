//! Rows about who sends to whom in a reduce, over links with a delay.

use super::super::cluster::stage::{Measured, Stage};
use super::super::measure::{Pair, quantile};
use super::super::{Outcome, PAIRS};
use super::combining::reduce_by;
use super::field::{self, Field};
use super::seats::Plan;
use super::shape::Shape;

/// What a reduce can be told to do instead of choosing.
const FORCED: [(&str, Plan); 5] = [
    ("chain", Plan::Chain),
    ("two_level", Plan::TwoLevel),
    ("tree_2", Plan::Tree(2)),
    ("tree_3", Plan::Tree(3)),
    ("star", Plan::Star),
];
/// Passes of each in a measurement: what is short varies more.
const SHORT_PASSES: usize = 5;
/// Objects of fewer bytes are short.
const SHORT_BYTES: usize = 1_000_000;

/// How long does a reduce take that chooses for itself, against the best of those that are told what to do?
///
/// The best plan is the one that is the best over all measurements: the least of several numbers that vary would be less than any
/// plan takes.
pub(super) fn chosen(stage: &Stage, shape: Shape) -> Outcome<Measured> {
    let shape = shape.sized(stage);
    let passes = stage.size(if shape.bytes < SHORT_BYTES { SHORT_PASSES } else { 1 }, 1);
    let nodes = field::nodes(stage, shape)?;
    let mut field = Field::new(stage, &nodes, shape)?;
    // Long enough that the nodes know the rates and delays of their links.
    field.number(reduce_by(shape.bytes, Plan::Own))?;
    field.number(reduce_by(shape.bytes, Plan::Star))?;
    let (mut own, mut forced) = (Vec::new(), FORCED.map(|_| Vec::new()));
    for _ in 0..stage.size(PAIRS, 1) {
        own.push(median(&mut field, shape, Plan::Own, passes)?);
        for ((_, plan), took) in FORCED.into_iter().zip(&mut forced) {
            stage.check()?;
            took.push(median(&mut field, shape, plan, passes)?);
        }
    }
    field.end()?;
    let (best, pairs) = against_best(&own, &forced).ok_or("no plan was measured")?;
    let mut measured = Measured::from(pairs).and("nodes", shape.nodes).and("bytes", shape.bytes);
    measured = measured.and("delay_ms", shape.delay_ms).and("best", FORCED[best].0);
    for ((name, _), took) in FORCED.into_iter().zip(&forced) {
        if let Some(ms) = quantile(took, 0.5) {
            measured = measured.and(&format!("{name}_ms"), ms);
        }
    }
    Ok(measured)
}

fn median(field: &mut Field<'_>, shape: Shape, plan: Plan, passes: usize) -> Outcome<f64> {
    let took: Outcome<Vec<f64>> = (0..passes).map(|_| field.number(reduce_by(shape.bytes, plan))).collect();
    Ok(quantile(&took?, 0.5).ok_or("nothing was measured")?)
}

/// Which of the lists has the least median, and each of `own` with the one of that list that was measured with it.
fn against_best(own: &[f64], forced: &[Vec<f64>]) -> Option<(usize, Vec<Pair>)> {
    let medians = forced.iter().enumerate().filter_map(|(at, took)| Some((at, quantile(took, 0.5)?)));
    let (best, _) = medians.min_by(|one, other| one.1.total_cmp(&other.1))?;
    let pairs = own.iter().zip(&forced[best]).map(|(ours, floor)| Pair { ours: *ours, floor: *floor });
    Some((best, pairs.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_plan_is_the_one_with_the_least_median() {
        let forced = [vec![5.0, 1.0, 9.0], vec![4.0, 4.0, 4.0]];
        let pairs = [2.0, 4.0, 8.0].map(|ours| Pair { ours, floor: 4.0 }).to_vec();
        assert_eq!(against_best(&[2.0, 4.0, 8.0], &forced), Some((1, pairs)));
        assert_eq!(against_best(&[1.0], &[]), None);
    }
}
