//! References that travel: returned inside results, lent to third parties, inside puts.

use crate::program::{Op, Program, submit, submit_after, submit_with};
use crate::random::Random;

/// A task returns the reference of a task that it has submitted; the driver reads through it.
pub fn handed_back(program: &mut Program, random: &mut Random) {
    let leaf = program.job("leaf", vec![Op::Work(random.within(5, 2_000))]);
    let hand = program.job("hand", vec![submit(leaf), Op::Return(vec![0])]);
    let reader = program.job("reader", vec![Op::Get(0)]);
    let mut ops = vec![submit(hand), Op::Open(0)];
    if random.one_in(2) {
        ops.push(Op::Drop(0));
    }
    ops.push(submit_with(reader, vec![1]));
    ops.push(Op::Get(2));
    ops.push(Op::Get(1));
    ops.push(submit_after(reader, vec![1]));
    ops.push(Op::Get(3));
    program.root(ops);
}

/// A reference goes from the driver to a task, from there to another, and is read at the end of the way.
pub fn lent(program: &mut Program, random: &mut Random) {
    let leaf = program.job("leaf", vec![Op::Work(random.within(5, 1_000))]);
    let mut reader = program.job("reader", vec![Op::Work(50), Op::Get(0), Op::Get(0)]);
    for _ in 0..random.within(1, 3) {
        let mut ops = vec![submit_with(reader, vec![0]), submit_with(reader, vec![0]), Op::Drop(0)];
        if random.one_in(2) {
            ops.push(Op::Get(1));
        }
        ops.push(Op::Get(2));
        reader = program.job("lender", ops);
    }
    program.root(vec![
        submit(leaf),
        submit_with(reader, vec![0]),
        submit_with(reader, vec![0]),
        Op::Drop(0),
        Op::Get(1),
        Op::Get(2),
    ]);
}

/// Values inside values: a worker puts, wraps and returns; others read both.
pub fn puts(program: &mut Program, random: &mut Random) {
    let wrap = program
        .job("wrap", vec![Op::Put(vec![]), Op::Put(vec![0]), Op::Work(random.within(5, 800)), Op::Return(vec![1])]);
    let reader = program.job("reader", vec![Op::Open(0), Op::Get(1), Op::Get(0)]);
    let mut ops = vec![Op::Put(vec![]), Op::Put(vec![0]), submit_with(reader, vec![1])];
    // Through the result to the outer put (3), through that to the inner (5).
    ops.extend([submit(wrap), Op::Open(3), Op::Open(4), Op::Get(5)]);
    ops.extend([
        submit_with(reader, vec![4]),
        Op::Drop(0),
        Op::Drop(3),
        Op::Drop(4),
        Op::Get(5),
        Op::Get(6),
        Op::Get(2),
    ]);
    program.root(ops);
}

/// The same between workers: who reads through the result is itself a task that may be killed and run again.
pub fn handed_deep(program: &mut Program, random: &mut Random) {
    let leaf = program.job("leaf", vec![Op::Work(random.within(5, 1_000))]);
    let hand = program.job("hand", vec![submit(leaf), Op::Put(vec![0]), Op::Work(50), Op::Return(vec![1])]);
    let reader = program.job("reader", vec![Op::Open(0), Op::Get(1)]);
    // Through the result to the put (1), through that to the leaf (2).
    let mut ops = vec![submit(hand), Op::Open(0), Op::Open(1), submit_with(reader, vec![1]), Op::Get(2)];
    if random.one_in(2) {
        ops.push(Op::Drop(0));
    }
    ops.extend([Op::Work(random.within(5, 500)), Op::Get(3), Op::Get(2), Op::Return(vec![2])]);
    let parent = program.job("parent", ops);
    program.root(vec![submit(parent), submit(parent), Op::Open(0), Op::Get(2), Op::Open(1), Op::Get(3)]);
}
