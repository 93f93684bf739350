//! Hand-written runs, named as sentences: what seeds have found stays found when the code moves.

#![allow(clippy::unwrap_used)]

mod broadcasts;
mod concurrency;
mod deaths;
mod jobs;
mod nodes;
mod planted;
mod reduces;
mod streams;
mod trees;

use std::ops::Range;

use crate::faults::Faults;
use crate::program::Program;
use crate::run::{run, run_program};

/// Runs the program under the faults with some seeds.
fn holds(program: &Program, faults: &Faults) {
    for seed in 0..60 {
        let outcome = run_program(seed, program, faults, None);
        assert!(outcome.failure.is_none(), "seed {seed}: {:#?}", outcome.failure);
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 1..40 {
        assert_eq!(run(seed, None).hash, run(seed, None).hash);
    }
    assert_ne!(run(1, None).hash, run(2, None).hash);
}

#[test]
fn the_first_seeds_hold() {
    hold(1..100);
}

#[test]
#[ignore = "slow: judges the changes of `cargo xtask mutants`"]
fn the_first_hundreds_of_seeds_hold() {
    hold(1..600);
}

fn hold(seeds: Range<u64>) {
    for seed in seeds {
        let outcome = run(seed, None);
        assert!(outcome.failure.is_none(), "cargo xtask sim {seed}: {:#?}", outcome.failure);
    }
}
