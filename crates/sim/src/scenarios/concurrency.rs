//! Actors that run several calls at once, and die doing so.

use super::holds;
use crate::faults::Faults;
use crate::program::{Op, Program, submit};
use crate::random::Random;
use crate::workload::actors;

#[test]
fn calls_that_run_at_once_are_neither_lost_nor_run_twice_when_their_actor_dies() {
    for seed in 0..20 {
        let mut program = Program::default();
        actors::concurrent(&mut program, &mut Random::new(seed));
        let faults = Faults { kill_every_us: Some(700), actors_only: true, end_us: 10_000, ..Faults::none() };
        holds(&program, &faults);
    }
}

#[test]
fn calls_that_run_at_once_end_whoever_dies() {
    for seed in 0..10 {
        let mut program = Program::default();
        actors::concurrent(&mut program, &mut Random::new(seed));
        for every in [20, 60, 200] {
            holds(&program, &Faults { kill_every_effects: Some(every), end_us: 20_000, ..Faults::none() });
        }
    }
}

#[test]
fn a_call_that_waits_does_not_hold_up_the_next_one() {
    let mut program = Program::default();
    let construct = program.job("construct", vec![Op::Work(50)]);
    program.jobs[construct].concurrency_max = 2;
    let pass = program.job("pass", vec![Op::Work(50)]);
    // It calls its own actor and waits for the answer: with one call at a time this would never end.
    let ask =
        program.job("ask", vec![Op::Call { actor: 0, job: pass, dependencies: vec![], nested: vec![] }, Op::Get(1)]);
    let create = Op::Create { job: construct, restarts_max: 0, nested: vec![] };
    program.root(vec![create, Op::Call { actor: 0, job: ask, dependencies: vec![], nested: vec![0] }, Op::Get(1)]);
    holds(&program, &Faults::none());
}

#[test]
fn an_actor_that_calls_itself_gives_back_what_it_lent_itself() {
    let mut program = Program::default();
    let construct = program.job("construct", vec![Op::Work(50)]);
    program.jobs[construct].concurrency_max = 3;
    let leaf = program.job("leaf", vec![Op::Work(50)]);
    let wrap = program.job("wrap", vec![Op::Get(0), Op::Work(20), Op::Put(vec![0]), Op::Return(vec![1])]);
    program.jobs[wrap].retries_max = 1;
    // Its own object and a borrowed one go to itself and come back inside results.
    let call = |nested| Op::Call { actor: 0, job: wrap, dependencies: vec![], nested };
    let ask = program.job(
        "ask",
        vec![submit(leaf), Op::Put(vec![]), call(vec![2]), call(vec![3]), call(vec![1]), Op::Drop(2), Op::Drop(3)]
            .into_iter()
            .chain([Op::Open(4), Op::Open(5), Op::Get(6), Op::Get(7), Op::Get(8), Op::Return(vec![7])])
            .collect(),
    );
    let create = Op::Create { job: construct, restarts_max: 1, nested: vec![] };
    let asked = Op::Call { actor: 0, job: ask, dependencies: vec![], nested: vec![0, 1] };
    program.root(vec![create, Op::Put(vec![]), asked.clone(), asked, Op::Drop(0), Op::Open(2), Op::Get(3), Op::Get(4)]);
    holds(&program, &Faults::none());
    for every in [20, 60] {
        holds(&program, &Faults { kill_every_effects: Some(every), end_us: 20_000, ..Faults::none() });
    }
}
