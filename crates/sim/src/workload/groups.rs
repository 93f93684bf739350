//! Placement groups: tasks and an actor in the bundles of a group, which is given up in the end.

use bireme_core::spec::GroupStrategy;

use crate::program::{Op, Program, call, submit};
use crate::random::Random;

/// Tasks and an actor in a group. The smallest machine has room for it.
pub fn grouped(program: &mut Program, random: &mut Random) {
    let leaf = program.job("grouped", vec![Op::Work(random.within(5, 400))]);
    let construct = program.job("settle in", vec![Op::Work(20)]);
    let method = program.job("count there", vec![Op::Work(random.within(1, 100)), Op::Apply]);
    for job in [leaf, construct] {
        program.jobs[job].cpu_tenths = 5;
    }
    let (packing, tenths) = match random.below(3) {
        0 => (GroupStrategy::Spread, vec![5, 5]),
        1 => (GroupStrategy::Pack, vec![10]),
        _ => (GroupStrategy::StrictPack, vec![5, 5]),
    };
    let width = random.within(1, 12) as usize;
    let mut ops = vec![Op::Group { packing, tenths }];
    ops.extend((0..width).map(|_| submit(leaf)));
    let calls = random.within(0, 3) as usize;
    if calls > 0 {
        ops.push(Op::Create { job: construct, restarts_max: 2, nested: vec![] });
        ops.extend((0..calls).map(|_| call(width, method)));
        ops.extend((0..calls).map(|at| Op::Get(width + 1 + at)));
    }
    ops.extend((0..width).map(Op::Get));
    ops.push(Op::Ungroup);
    program.root(ops);
}
