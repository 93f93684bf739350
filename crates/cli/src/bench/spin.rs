//! The row about spinning: it must not take from the user what it gives.

use std::collections::VecDeque;
use std::hint::black_box;

use super::Outcome;
use super::measure::{Pair, quantile, seconds};
use super::probe::Probe;

/// How long a task computes, in microseconds, with a core of its own.
const TASK_US: f64 = 200.0;
/// Workers, and tasks in flight.
const WORKERS: usize = 2;

/// A fixed amount of work and not of time: a core that is taken away must show.
#[bireme::remote]
fn compute(rounds: u64) -> u64 {
    work(rounds)
}

fn work(rounds: u64) -> u64 {
    (0..rounds).fold(1, |state: u64, _| black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)))
}

/// Rounds of work that take [`TASK_US`] here.
fn calibrated() -> Outcome<u64> {
    const ROUNDS: u64 = 200_000;
    let took: Vec<f64> = (0..15).map(|_| seconds(|| work(black_box(ROUNDS))).0).collect();
    // The fastest: the others were disturbed.
    let fastest = quantile(&took, 0.0).ok_or("nothing was measured")?;
    Ok((ROUNDS as f64 * TASK_US / (fastest * 1e6)) as u64)
}

/// Does spinning cost the user: two workers on tasks of 200 µs, the driver waiting for them one by one with two in
/// flight, tasks per second with spinning against without?
pub(super) fn spin_cost(probe: &Probe) -> Outcome<()> {
    let count = probe.size(4_000, 400);
    let rounds = calibrated()?;
    let run = |spin: bool| -> Outcome<f64> {
        let context = bireme::init_with(bireme::Config::default().cpus(WORKERS as f64).spin(spin))?;
        tasks_per_second(rounds, count / 10)?;
        let ours = tasks_per_second(rounds, count)?;
        context.shutdown();
        Ok(ours)
    };
    probe.measure(|number| {
        // Who is first changes, so that what comes first has no advantage.
        let spinning_first = number % 2 == 0;
        let (first, second) = (run(spinning_first)?, run(!spinning_first)?);
        let (ours, floor) = if spinning_first { (first, second) } else { (second, first) };
        Ok(Pair { ours, floor })
    })
}

fn tasks_per_second(rounds: u64, count: usize) -> Outcome<f64> {
    let (took, results) = seconds(|| run_one_by_one(rounds, count));
    Ok(results? as f64 / took)
}

/// Always [`WORKERS`] tasks in flight, and the oldest is waited for. Gives how many there were.
fn run_one_by_one(rounds: u64, count: usize) -> bireme::Result<usize> {
    let mut in_flight: VecDeque<_> = (0..WORKERS).map(|_| compute::remote(rounds)).collect();
    let mut results = 0;
    while let Some(task) = in_flight.pop_front() {
        task.get()?;
        results += 1;
        if results + in_flight.len() < count {
            in_flight.push_back(compute::remote(rounds));
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn more_rounds_are_more_work() {
        assert_eq!(work(0), 1);
        assert_ne!(work(10), work(11));
        assert!(calibrated().unwrap() > 0);
    }
}
