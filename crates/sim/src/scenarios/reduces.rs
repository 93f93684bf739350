//! Reduces over several nodes: streams that break, nodes and processes that die, and results that nobody waits for.

use super::nodes::shows;
use crate::faults::{Faults, Nodes};
use crate::planted::Planted;
use crate::program::Program;
use crate::random::Random;
use crate::run::run_program;
use crate::workload::reduces;

/// Programs that do nothing but reduce.
fn reducing(seed: u64) -> Program {
    let mut program = Program::default();
    let mut random = Random::new(seed);
    for _ in 0..2 {
        let draw = [reduces::reduced, reduces::reduced_by_tasks][random.below(2) as usize];
        draw(&mut program, &mut random);
    }
    program
}

fn under(faults: &Faults) {
    for seed in 0..150 {
        let outcome = run_program(seed, &reducing(seed), faults, None);
        assert!(outcome.failure.is_none(), "seed {seed}: {:#?}", outcome.failure);
    }
}

fn with(nodes: Nodes) -> Faults {
    Faults { end_us: 30_000, nodes, ..Faults::none() }
}

#[test]
fn reduces_of_one_node_and_of_several_end_with_what_was_asked_for() {
    under(&Faults::none());
    under(&with(Nodes::calm(4)));
}

#[test]
fn reduces_end_whoever_of_their_nodes_crashes() {
    under(&with(Nodes { crash_every_us: Some(5_000), join_every_us: Some(4_000), ..Nodes::calm(4) }));
}

#[test]
fn reduces_end_when_nodes_are_drained_meanwhile() {
    under(&with(Nodes { drain: Some((4_000, 20_000)), join_every_us: Some(4_000), ..Nodes::calm(4) }));
}

#[test]
fn reduces_end_when_the_processes_that_asked_for_them_are_killed() {
    under(&Faults { kill_every_us: Some(1_500), ..with(Nodes::calm(3)) });
    under(&Faults { kill_every_us: Some(1_500), end_us: 30_000, ..Faults::none() });
}

#[test]
fn reduces_end_when_nodes_do_not_hear_each_other_for_a_while() {
    under(&with(Nodes { cut: Some((5_000, 20_000)), break_every_us: Some(2_000), late: true, ..Nodes::calm(3) }));
}

#[test]
fn a_stream_that_broke_and_is_left_out_is_caught() {
    shows(Planted::StreamLeftOut, reducing, Nodes::calm(4));
}

#[test]
fn a_stream_that_is_combined_twice_is_caught() {
    shows(Planted::TakenTwice, reducing, Nodes::calm(4));
}
