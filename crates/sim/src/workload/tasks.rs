//! Tasks: fan-out and fan-in, chains, nesting, cancelling.

use crate::program::{Op, Program, submit, submit_after};
use crate::random::Random;

/// Many tasks, then one that needs them all.
pub fn fan_out(program: &mut Program, random: &mut Random) {
    let leaf = program.job("leaf", vec![Op::Work(random.within(5, 400))]);
    let width = random.within(2, 30) as usize;
    let sum = program.job("sum", vec![Op::Work(10)]);
    let mut ops: Vec<Op> = (0..width).map(|_| submit(leaf)).collect();
    ops.push(submit_after(sum, (0..width).collect()));
    ops.push(Op::Get(width));
    ops.push(Op::Get(0));
    program.root(ops);
}

/// Each task needs the one before; nobody holds those between.
pub fn chain(program: &mut Program, random: &mut Random) {
    let link = program.job("link", vec![Op::Work(random.within(1, 200))]);
    let length = random.within(2, 20) as usize;
    let mut ops = vec![submit(link)];
    for at in 1..length {
        ops.push(submit_after(link, vec![at - 1]));
        ops.push(Op::Drop(at - 1));
    }
    ops.push(Op::Get(length - 1));
    program.root(ops);
}

/// Chains that meet, made by a task that may be killed and run again: sent ahead of what they need, returned, failed,
/// cancelled, and with references inside.
pub fn braid(program: &mut Program, random: &mut Random) {
    let link = program.job("link", vec![Op::Work(random.within(1, 100))]);
    let wrap = program.job("wrap", vec![Op::Put(vec![]), Op::Return(vec![0])]);
    let fail = program.job("fail", vec![Op::Work(20), Op::Fail]);
    let length = random.within(3, 25) as usize;
    let mut ops = vec![submit(link), submit(link)];
    for at in 2..length {
        let job = match random.below(12) {
            0 => fail,
            1 | 2 => wrap,
            _ => link,
        };
        let other = if random.one_in(3) { vec![at - 1, at - 2] } else { vec![at - 1] };
        ops.push(submit_after(job, other));
        if random.one_in(8) {
            ops.push(Op::Cancel { object: random.below(at as u64) as usize, force: random.one_in(4) });
        }
    }
    if random.one_in(2) {
        ops.extend((0..length - 1).map(Op::Drop));
    }
    ops.push(Op::Get(length - 1));
    let inner = program.job("braid", ops.clone());
    if random.one_in(2) {
        program.root(ops);
    } else {
        program.root(vec![submit(inner), submit(inner), Op::Get(0), Op::Get(1)]);
    }
}

/// Tasks that submit tasks and wait for them, to some depth; some submit something else when they run again.
pub fn nested(program: &mut Program, random: &mut Random) {
    let mut below = program.job("leaf", vec![Op::Work(random.within(5, 300))]);
    if random.one_in(5) {
        program.jobs[below].ops.push(Op::Fail);
    }
    for _ in 0..random.within(1, 4) {
        let width = random.within(1, 3) as usize;
        let mut ops: Vec<Op> = Vec::new();
        for _ in 0..width {
            let fickle = random.one_in(6);
            ops.push(Op::Submit { job: below, dependencies: vec![], nested: vec![], fickle });
        }
        ops.extend((0..width).map(Op::Get));
        ops.push(Op::Work(random.within(1, 100)));
        below = program.job("parent", ops);
    }
    program.root(vec![submit(below), submit(below), Op::Get(0), Op::Get(1)]);
}

/// Tasks that may be cancelled before, while and after they run.
pub fn cancelled(program: &mut Program, random: &mut Random) {
    let leaf = program.job("leaf", vec![Op::Work(500), Op::Work(500), Op::Work(20_000), Op::Work(5)]);
    let parent = program.job("parent", vec![submit(leaf), submit_after(leaf, vec![0]), Op::Get(1)]);
    let width = random.within(2, 10) as usize;
    let mut ops = Vec::new();
    for at in 0..width {
        ops.push(submit(if random.one_in(2) { leaf } else { parent }));
        ops.push(Op::Work(random.within(1, 800)));
        ops.push(Op::Cancel { object: random.below(at as u64 + 1) as usize, force: random.one_in(4) });
    }
    ops.extend((0..width).map(Op::Get));
    program.root(ops);
}

/// Tasks that each want a process of their own kind, one kind after the other, some inside others.
pub fn environments(program: &mut Program, random: &mut Random) {
    let mut ops = Vec::new();
    let mut made = 0;
    for _ in 0..random.within(2, 8) {
        let leaf = program.job("leaf", vec![Op::Work(random.within(5, 400))]);
        program.jobs[leaf].environment = random.below(6);
        let parent = program.job("parent", vec![submit(leaf), submit(leaf), Op::Get(0), Op::Get(1)]);
        program.jobs[parent].environment = random.below(3);
        let first = made;
        for _ in 0..random.within(1, 6) {
            ops.push(submit(if random.one_in(4) { parent } else { leaf }));
            made += 1;
        }
        if random.one_in(2) {
            ops.extend((first..made).map(Op::Get));
        }
    }
    ops.extend((0..made).map(Op::Get));
    program.root(ops);
}

/// Tasks that want a part of a GPU, one, or two.
pub fn gpus(program: &mut Program, random: &mut Random) {
    let mut ops = Vec::new();
    let count = random.within(3, 20) as usize;
    for _ in 0..count {
        let leaf = program.job("leaf", vec![Op::Work(random.within(5, 400))]);
        program.jobs[leaf].gpu_tenths = [1, 3, 5, 5, 10, 20][random.below(6) as usize];
        program.jobs[leaf].cpu_tenths = random.below(2) * 5;
        ops.push(submit(leaf));
    }
    ops.extend((0..count).map(Op::Get));
    program.root(ops);
}

/// Tasks that fail at first and are tried again for that.
pub fn flaky(program: &mut Program, random: &mut Random) {
    let leaf = program.job("leaf", vec![Op::Work(random.within(5, 400)), Op::Flake, Op::Work(random.within(5, 400))]);
    let width = random.within(2, 12) as usize;
    program.root((0..width).map(|_| submit(leaf)).chain((0..width).map(Op::Get)).collect());
}

/// Functions whose processes end after a few runs, some with tasks of their own; a calm run needs no retry for that.
pub fn limited(program: &mut Program, random: &mut Random) {
    let leaf = program.job("leaf", vec![Op::Work(random.within(5, 400))]);
    program.jobs[leaf].calls_max = random.within(1, 4) as u32;
    program.jobs[leaf].retries_max = random.below(2) as u32 * 3;
    let parent = program.job("parent", vec![submit(leaf), Op::Put(vec![]), Op::Get(0), Op::Return(vec![1])]);
    program.jobs[parent].calls_max = random.below(3) as u32;
    program.jobs[parent].retries_max = program.jobs[leaf].retries_max;
    let width = random.within(2, 15) as usize;
    let mut ops = vec![submit(leaf)];
    for at in 1..width {
        ops.push(match random.below(4) {
            0 => submit(parent),
            1 => submit_after(leaf, vec![at - 1]),
            _ => submit(leaf),
        });
    }
    ops.extend((0..width).map(Op::Get));
    program.root(ops);
}
