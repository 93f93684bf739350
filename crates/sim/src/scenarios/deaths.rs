//! Deaths at the worst moments.

use super::holds;
use crate::faults::{Faults, Nodes};
use crate::program::{Op, Program, submit, submit_with};
use crate::random::Random;
use crate::workload::{actors, references, tasks};

fn killing(every_effects: u64) -> Faults {
    Faults { kill_every_effects: Some(every_effects), end_us: 20_000, ..Faults::none() }
}

#[test]
fn calls_and_replies_that_come_twice_change_nothing() {
    let mut random = Random::new(1);
    let mut program = Program::default();
    tasks::flaky(&mut program, &mut random);
    actors::counter(&mut program, &mut random);
    actors::concurrent(&mut program, &mut random);
    let faults = Faults { repeat_one_in: Some(1), end_us: 20_000, ..Faults::none() };
    holds(&program, &faults);
    holds(&program, &Faults { nodes: Nodes::calm(3), ..faults });
}

#[test]
fn a_repeated_parent_adopts_what_its_first_run_made() {
    let mut program = Program::default();
    let leaf = program.job("leaf", vec![Op::Work(100)]);
    let parent = program.job("parent", vec![submit(leaf), Op::Put(vec![]), submit(leaf), Op::Get(0), Op::Get(2)]);
    program.root(vec![submit(parent), submit(parent), Op::Get(0), Op::Get(1)]);
    for every in [3, 7, 20, 60] {
        holds(&program, &killing(every));
    }
}

#[test]
fn what_is_inside_a_result_outlives_the_worker_that_put_it() {
    let mut program = Program::default();
    let wrap = program.job("wrap", vec![Op::Put(vec![]), Op::Put(vec![0]), Op::Return(vec![1])]);
    let root = vec![submit(wrap), Op::Open(0), Op::Open(1), Op::Get(2), Op::Drop(0), Op::Drop(1), Op::Get(2)];
    program.root(root);
    for every in [5, 15, 40] {
        holds(&program, &killing(every));
    }
}

#[test]
fn a_dead_owner_gives_its_cpus_back_also_while_its_tasks_wait() {
    let mut program = Program::default();
    let leaf = program.job("leaf", vec![Op::Work(50)]);
    let below = program.job("below", vec![submit(leaf), Op::Work(20), submit(leaf), Op::Get(0), Op::Get(1)]);
    let ops = vec![submit(below), submit(below), submit(below), Op::Get(0), Op::Get(1), Op::Get(2)];
    let above = program.job("above", ops);
    program.root(vec![submit(above), submit(above), Op::Get(0), Op::Get(1)]);
    for every in [30, 100, 300] {
        holds(&program, &killing(every));
    }
}

#[test]
fn a_loan_to_a_stranger_is_counted_before_it_is_made() {
    let mut program = Program::default();
    let leaf = program.job("leaf", vec![Op::Work(300)]);
    let reader = program.job("reader", vec![Op::Get(0)]);
    let lender = program.job("lender", vec![submit_with(reader, vec![0]), Op::Drop(0), Op::Get(1)]);
    let outer = program.job("outer", vec![submit_with(lender, vec![0]), Op::Drop(0), Op::Get(1)]);
    program.root(vec![submit(leaf), submit_with(outer, vec![0]), Op::Drop(0), Op::Get(1)]);
    for every in [20, 60] {
        holds(&program, &killing(every));
    }
}

#[test]
fn an_actor_that_dies_in_its_constructor_leaves_nothing_behind() {
    let mut program = Program::default();
    let construct = program.job("construct", vec![Op::Work(500)]);
    let add = program.job("add", vec![Op::Apply]);
    let create = Op::Create { job: construct, restarts_max: 1, nested: vec![] };
    let add = || Op::Call { actor: 0, job: add, dependencies: vec![], nested: vec![] };
    program.root(vec![create, add(), add(), Op::Drop(0), Op::Get(1), Op::Get(2)]);
    let faults = Faults { kill_every_us: Some(400), actors_only: true, end_us: 5_000, ..Faults::none() };
    holds(&program, &faults);
}

#[test]
fn references_handed_on_between_workers_that_die_are_neither_lost_nor_kept() {
    for seed in 0..20 {
        let mut program = Program::default();
        references::handed_deep(&mut program, &mut Random::new(seed));
        for every in [20, 60, 200] {
            holds(&program, &killing(every));
        }
    }
}

#[test]
fn spent_processes_that_own_values_do_not_take_all_the_room() {
    let mut program = Program::default();
    let wrap = program.job("wrap", vec![Op::Put(vec![]), Op::Return(vec![0])]);
    program.jobs[wrap].calls_max = 1;
    program.jobs[wrap].retries_max = 0;
    // More than there may be processes; the driver holds everything until the end.
    let width = 30;
    let ops = (0..width).map(|_| submit(wrap)).chain((0..width).map(Op::Open)).chain((0..2 * width).map(Op::Get));
    program.root(ops.collect());
    holds(&program, &Faults::none());
}

#[test]
fn a_constructor_that_submits_and_puts_runs_again_and_adopts() {
    let mut program = Program::default();
    let leaf = program.job("leaf", vec![Op::Work(300)]);
    let ops = vec![submit(leaf), Op::Put(vec![]), submit(leaf), Op::Get(0), Op::Keep(0), Op::Keep(1), Op::Get(2)];
    let construct = program.job("construct", ops);
    let add = program.job("add", vec![Op::Apply, submit(leaf), Op::Get(0)]);
    program.jobs[add].retries_max = 3;
    let create = Op::Create { job: construct, restarts_max: 3, nested: vec![] };
    let add = || Op::Call { actor: 0, job: add, dependencies: vec![], nested: vec![] };
    program.root(vec![create, add(), add(), Op::Work(2_000), add(), Op::Drop(0), Op::Get(1), Op::Get(2), Op::Get(3)]);
    for every in [10, 30, 100] {
        holds(&program, &killing(every));
    }
    for every in [300, 800] {
        let faults = Faults { kill_every_us: Some(every), actors_only: true, end_us: 8_000, ..Faults::none() };
        holds(&program, &faults);
    }
}
