//! Streams under faults.

use super::holds;
use crate::faults::Faults;
use crate::program::Program;
use crate::random::Random;
use crate::workload::streams;

fn under(faults: &Faults, workload: fn(&mut Program, &mut Random)) {
    for seed in 0..20 {
        let mut program = Program::default();
        workload(&mut program, &mut Random::new(seed));
        holds(&program, faults);
    }
}

#[test]
fn readers_see_every_item_once_and_in_order_whoever_dies() {
    for every in [20, 60, 200] {
        let faults = Faults { kill_every_effects: Some(every), end_us: 20_000, ..Faults::none() };
        under(&faults, streams::streamed);
        under(&faults, streams::by_an_actor);
    }
}

#[test]
fn a_stream_that_is_handed_on_outlives_neither_its_owner_nor_its_readers() {
    for every in [20, 60, 200] {
        let faults = Faults { kill_every_effects: Some(every), end_us: 20_000, ..Faults::none() };
        under(&faults, streams::handed_on);
        under(&faults, streams::returned);
    }
}

#[test]
fn a_cancelled_stream_leaves_nothing_behind() {
    let faults = Faults { cancel_one_in: Some(1), end_us: 20_000, ..Faults::none() };
    under(&faults, streams::streamed);
}

#[test]
fn in_a_calm_run_every_stream_comes_to_its_end() {
    for workload in [streams::streamed, streams::handed_on, streams::returned, streams::by_an_actor] {
        under(&Faults::none(), workload);
    }
}
