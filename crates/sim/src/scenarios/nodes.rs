//! Several nodes: joins, leaves, crashes and new incarnations, links that are cut, slow, repeat and reorder.

use bireme_core::spec::Strategy;

use super::holds;
use crate::faults::{DRAIN_US_LONG, Faults, Nodes};
use crate::planted::Planted;
use crate::program::{Op, Program, submit, submit_with};
use crate::random::Random;
use crate::run::run_program;
use crate::workload::{actors, groups, references, streams, tasks};

/// Programs whose tasks and actors go to all nodes.
fn spread(seed: u64) -> Program {
    let mut program = Program::default();
    let mut random = Random::new(seed);
    let all = [
        tasks::fan_out,
        tasks::braid,
        tasks::nested,
        references::handed_deep,
        references::lent,
        actors::counter,
        actors::shared,
        groups::grouped,
        streams::streamed,
        streams::returned,
    ];
    for _ in 0..2 {
        all[random.below(all.len() as u64) as usize](&mut program, &mut random);
    }
    for job in &mut program.jobs {
        job.strategy = Strategy::Spread;
    }
    program
}

fn under(nodes: Nodes) {
    let faults = Faults { end_us: 30_000, nodes, ..Faults::none() };
    for seed in 0..120 {
        let outcome = run_program(seed, &spread(seed % 40), &faults, None);
        assert!(outcome.failure.is_none(), "seed {seed}: {:#?}", outcome.failure);
    }
}

#[test]
fn a_cluster_in_which_nothing_goes_wrong_does_everything() {
    under(Nodes::calm(3));
}

#[test]
fn nodes_join_while_work_runs() {
    under(Nodes { join_every_us: Some(3_000), ..Nodes::calm(2) });
}

#[test]
fn nodes_leave_while_work_runs() {
    under(Nodes { leave_every_us: Some(8_000), ..Nodes::calm(4) });
}

#[test]
fn nodes_that_are_drained_lose_nothing() {
    under(Nodes { drain: Some((6_000, DRAIN_US_LONG)), join_every_us: Some(6_000), ..Nodes::calm(4) });
}

#[test]
fn a_drain_ends_when_its_time_is_over_whatever_is_left() {
    under(Nodes { drain: Some((4_000, 1_000)), join_every_us: Some(4_000), ..Nodes::calm(4) });
}

#[test]
fn what_is_to_take_a_drained_nodes_objects_may_crash_or_drain_too() {
    let drain = Some((4_000, 20_000));
    under(Nodes { drain, crash_every_us: Some(8_000), join_every_us: Some(3_000), ..Nodes::calm(4) });
}

#[test]
fn nodes_crash_while_work_runs() {
    under(Nodes { crash_every_us: Some(6_000), ..Nodes::calm(4) });
}

#[test]
fn machines_come_back_as_new_nodes() {
    under(Nodes { crash_every_us: Some(4_000), join_every_us: Some(4_000), ..Nodes::calm(3) });
}

#[test]
fn links_that_are_cut_in_one_direction_or_both_heal() {
    under(Nodes { cut: Some((5_000, 20_000)), ..Nodes::calm(3) });
}

#[test]
fn a_node_that_is_cut_off_for_longer_than_its_lease_ends_and_joins_again() {
    under(Nodes { cut: Some((10_000, 8_000_000)), ..Nodes::calm(3) });
}

#[test]
fn processes_wait_for_nodes_that_take_messages_too_slowly() {
    for queue_bytes in [1, 300, 2_000] {
        under(Nodes { queue_bytes, latency_us: 10_000, ..Nodes::calm(3) });
        under(Nodes { queue_bytes, cut: Some((5_000, 400_000)), crash_every_us: Some(10_000), ..Nodes::calm(3) });
    }
}

#[test]
fn a_node_that_drops_or_forgets_what_waits_for_a_stalled_one_is_caught() {
    let failed = |seed, queue_bytes, planted| {
        let nodes = Nodes { queue_bytes, latency_us: 10_000, ..Nodes::calm(3) };
        let faults = Faults { end_us: 30_000, nodes, ..Faults::none() };
        run_program(seed, &spread(seed % 40), &faults, Some(planted)).failure.is_some()
    };
    assert!((0..40).any(|seed| failed(seed, 1_000, Planted::StalledDropped)), "the lost messages show");
    assert!((0..120).any(|seed| failed(seed, 1, Planted::HeldRingForgotten)), "the forgotten records show");
}

#[test]
fn slow_nodes_are_waited_for() {
    under(Nodes { slow: Some((2, 50)), ..Nodes::calm(3) });
}

/// Variable tasks on nodes of different speed.
fn uneven(tasks: usize, work_us: u64) -> Program {
    let mut program = Program::default();
    let task = program.job("task", vec![Op::Work(work_us)]);
    program.root((0..tasks).map(|_| submit(task)).chain((0..tasks).map(Op::Get)).collect());
    program
}

#[test]
fn variable_tasks_on_nodes_of_different_speed_take_little_longer_than_the_ideal() {
    let faults = Faults { nodes: Nodes { paces: vec![1, 2, 4], ..Nodes::calm(4) }, ..Faults::none() };
    let mut ratios = Vec::new();
    for seed in 0..20 {
        let outcome = run_program(seed, &uneven(600, 5_000), &faults, None);
        assert!(outcome.failure.is_none(), "seed {seed}: {:#?}", outcome.failure);
        ratios.push(outcome.done_us * 100 / outcome.ideal_us);
    }
    ratios.sort_unstable();
    assert!(ratios[ratios.len() - 1] <= 115, "in hundredths: {ratios:?}");
}

#[test]
fn nodes_of_different_speed_with_loads_that_are_old_and_links_that_are_slow_lose_nothing() {
    let paces = vec![1, 10];
    under(Nodes { paces: paces.clone(), slow: Some((2, 50)), latency_us: 10_000, ..Nodes::calm(4) });
    let faults =
        Faults { end_us: 2_000_000, nodes: Nodes { paces, latency_us: 5_000, ..Nodes::calm(4) }, ..Faults::none() };
    for seed in 0..10 {
        let outcome = run_program(seed, &uneven(200, 10_000), &faults, None);
        assert!(outcome.failure.is_none(), "seed {seed}: {:#?}", outcome.failure);
    }
}

#[test]
fn frames_that_come_twice_late_or_over_another_connection_change_nothing() {
    let nodes = Nodes { break_every_us: Some(300), duplicate_one_in: Some(2), late: true, ..Nodes::calm(3) };
    under(nodes);
}

#[test]
fn placement_groups_are_whole_or_absent_whoever_dies() {
    under(Nodes { group_every_us: Some(2_000), crash_every_us: Some(8_000), ..Nodes::calm(4) });
}

#[test]
fn a_call_whose_host_dies_with_its_node_ends_and_the_actor_lives_again_elsewhere() {
    let mut program = Program::default();
    let construct = program.job("construct", vec![Op::Work(50)]);
    program.jobs[construct].strategy = Strategy::Spread;
    let add = program.job("add", vec![Op::Apply, Op::Work(2_000)]);
    program.jobs[add].retries_max = 2;
    let call = || Op::Call { actor: 0, job: add, dependencies: vec![], nested: vec![] };
    let create = Op::Create { job: construct, restarts_max: 5, nested: vec![] };
    program.root(vec![create, call(), call(), call(), Op::Get(1), Op::Get(2), call(), Op::Get(3), Op::Get(4)]);
    let nodes = Nodes { crash_every_us: Some(3_000), join_every_us: Some(3_000), ..Nodes::calm(3) };
    holds(&program, &Faults { end_us: 20_000, nodes, ..Faults::none() });
}

#[test]
fn what_the_processes_of_a_dead_node_owned_ends_for_everybody() {
    let mut program = Program::default();
    let leaf = program.job("leaf", vec![Op::Work(3_000)]);
    let reader = program.job("reader", vec![Op::Get(0), Op::Get(0)]);
    let owner =
        program.job("owner", vec![submit(leaf), submit_with(reader, vec![0]), Op::Put(vec![0]), Op::Return(vec![2])]);
    for job in [leaf, reader, owner] {
        program.jobs[job].strategy = Strategy::Spread;
    }
    let ops = (0..4).map(|_| submit(owner)).chain((0..4).map(Op::Open)).chain((0..8).map(Op::Get));
    program.root(ops.collect());
    let nodes = Nodes { crash_every_us: Some(3_000), join_every_us: Some(3_000), ..Nodes::calm(4) };
    holds(&program, &Faults { end_us: 20_000, nodes, ..Faults::none() });
}

/// Whether some seed shows a planted bug under faults under which none shows without it.
pub(super) fn shows(planted: Planted, program: impl Fn(u64) -> Program, nodes: Nodes) {
    let faults = Faults { end_us: 30_000, nodes, ..Faults::none() };
    let failed = |seed: u64, planted| run_program(seed, &program(seed), &faults, planted).failure;
    assert_eq!((0..40).find_map(|seed| failed(seed, None)), None);
    let first = (0..40).find_map(|seed| Some((seed, failed(seed, Some(planted))?.0)));
    let Some((seed, violation)) = first else { panic!("{} does not show", planted.name()) };
    assert_eq!(failed(seed, Some(planted)).map(|(again, _)| again), Some(violation), "its seed repeats it");
}

#[test]
fn a_node_that_ends_too_late_is_caught() {
    shows(Planted::FencedLate, spread, Nodes { cut: Some((10_000, 8_000_000)), ..Nodes::calm(3) });
}

#[test]
fn a_death_that_nodes_are_not_told_is_caught() {
    let long = |_| {
        let mut program = Program::default();
        let leaf = program.job("leaf", vec![Op::Work(20_000)]);
        program.jobs[leaf].strategy = Strategy::Spread;
        for _ in 0..4 {
            program.root((0..6).map(|_| submit(leaf)).chain((0..6).map(Op::Get)).collect());
        }
        program
    };
    shows(Planted::NodeDeathUntold, long, Nodes { crash_every_us: Some(20_000), ..Nodes::calm(4) });
}

#[test]
fn a_bundle_that_is_used_too_early_is_caught() {
    shows(Planted::CommittedAtOnce, spread, Nodes { group_every_us: Some(1_000), ..Nodes::calm(4) });
}

#[test]
fn a_copy_that_nobody_knows_of_is_caught() {
    shows(Planted::CopyUntold, spread, Nodes::calm(3));
}

#[test]
fn a_frame_that_is_heard_twice_is_caught() {
    shows(Planted::RepeatedFrameHeard, spread, Nodes { duplicate_one_in: Some(2), ..Nodes::calm(3) });
}

/// Tasks, an actor and its calls that may not be tried again, and results that are read late.
fn fragile(_: u64) -> Program {
    let mut program = Program::default();
    let construct = program.job("construct", vec![Op::Work(50)]);
    let add = program.job("add", vec![Op::Apply, Op::Work(1_500)]);
    let leaf = program.job("leaf", vec![Op::Work(2_500)]);
    for job in [construct, add, leaf] {
        program.jobs[job].strategy = Strategy::Spread;
        program.jobs[job].retries_max = 0;
    }
    let call = || Op::Call { actor: 0, job: add, dependencies: vec![], nested: vec![] };
    let mut ops = vec![Op::Create { job: construct, restarts_max: 0, nested: vec![] }];
    ops.extend((0..6).flat_map(|_| [call(), submit(leaf)]));
    ops.push(Op::Work(20_000));
    ops.extend((1..13).map(Op::Get));
    program.root(ops);
    program
}

#[test]
fn what_may_not_be_tried_again_survives_a_drain_and_not_a_node_that_leaves_before() {
    let drain = Some((3_000, DRAIN_US_LONG));
    shows(Planted::LeftUndrained, fragile, Nodes { drain, join_every_us: Some(3_000), ..Nodes::calm(4) });
}
