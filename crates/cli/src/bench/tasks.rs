//! Rows about tasks.

use bireme::ObjectRef;

use super::Outcome;
use super::floor;
use super::measure::{Pair, median_us, quantile, seconds};
use super::probe::Probe;

/// Chains whose median is one measurement.
const CHAINS_PER_PAIR: usize = 9;

#[bireme::remote]
pub(super) fn nothing() {}

#[bireme::remote]
fn next(n: usize) -> usize {
    n + 1
}

/// How many empty tasks per second: submit a million, then get all?
pub(super) fn tasks_async(probe: &Probe) -> Outcome<()> {
    let _context = bireme::init()?;
    let count = probe.size(1_000_000, 100_000);
    let run = |count: usize| -> Outcome<f64> {
        let (took, results) = seconds(|| {
            let results: Vec<ObjectRef<()>> = (0..count).map(|_| nothing::remote()).collect();
            bireme::get_all(&results).map(|_| results)
        });
        drop(results?);
        // A last answer, so that what the end of the references causes is not the floor's burden.
        nothing::remote().get()?;
        Ok(count as f64 / took)
    };
    run(count / 10)?;
    probe.measure(|_| Ok(Pair { ours: run(count)?, floor: floor::messages_per_second(probe.size(300_000, 30_000))? }))
}

/// How long from the call of an empty task to its result, with nothing else to do?
pub(super) fn task_sync(probe: &Probe) -> Outcome<()> {
    let _context = bireme::init()?;
    let count = probe.size(5_000, 500);
    let call = || Ok(nothing::remote().get()?);
    probe.measure(|_| Ok(Pair { ours: median_us(count, call)?, floor: floor::ping_pong(count)? }))
}

/// How long for a chain of a thousand tasks, each with the result of the one before as its argument, against as many
/// tasks that the driver submits and gets one by one?
pub(super) fn chain(probe: &Probe) -> Outcome<()> {
    let _context = bireme::init()?;
    let count = probe.size(1_000, 200);
    let chained = || (1..count).fold(next::remote(0), |last, _| next::remote(&last)).get();
    let single = || (0..count).try_fold(0, |last, _| next::remote(last).get());
    chained()?;
    single()?;
    probe.measure(|_| {
        // One chain takes a few milliseconds, so a pair is the medians of several, taken in turns.
        let (mut ours, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..CHAINS_PER_PAIR {
            for (run, took) in [(&chained as &dyn Fn() -> bireme::Result<usize>, &mut ours), (&single, &mut floors)] {
                let (seconds, end) = seconds(run);
                took.push(seconds * 1e3);
                match end? {
                    end if end == count => {}
                    end => return Err(format!("{count} tasks that add one came to {end}").into()),
                }
            }
        }
        let median = |took: &[f64]| quantile(took, 0.5).ok_or("no chain was measured");
        Ok(Pair { ours: median(&ours)?, floor: median(&floors)? })
    })
}
