//! Two drivers at once, of which one is killed.

use super::holds;
use crate::faults::Faults;
use crate::program::{Op, Program, submit};
use crate::random::Random;
use crate::workload::{actors, references, streams, tasks};

fn dying_at(us: u64) -> Faults {
    Faults { second_driver_dies_us: Some(us), ..Faults::none() }
}

#[test]
fn a_killed_driver_leaves_nothing_and_the_other_notices_nothing() {
    let workloads: [fn(&mut Program, &mut Random); 6] = [
        tasks::nested,
        tasks::environments,
        references::handed_deep,
        actors::shared,
        actors::counter,
        streams::handed_on,
    ];
    for (seed, workload) in workloads.into_iter().enumerate() {
        let mut program = Program::default();
        workload(&mut program, &mut Random::new(seed as u64));
        for us in [1, 700, 2_000, 8_000] {
            holds(&program, &dying_at(us));
        }
    }
}

#[test]
fn a_driver_dies_while_its_workers_die_too() {
    let mut program = Program::default();
    let leaf = program.job("leaf", vec![Op::Work(200)]);
    let parent = program.job("parent", vec![submit(leaf), Op::Put(vec![]), submit(leaf), Op::Get(0), Op::Get(2)]);
    program.root(vec![submit(parent), submit(parent), submit(parent), Op::Get(0), Op::Get(1), Op::Get(2)]);
    for us in [800, 3_000] {
        let faults = Faults { kill_every_effects: Some(20), end_us: 20_000, ..dying_at(us) };
        holds(&program, &faults);
    }
}
