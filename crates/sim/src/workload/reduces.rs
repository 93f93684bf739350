//! Reduces of results of tasks that run on all nodes: all or the first few, in any order or the list's, of results of reduces
//! too; what comes of it is read, lent, dropped before it is there, or cancelled.

use bireme_core::flow;
use bireme_core::reduce::{Choice, Options, Order, Shape};
use bireme_core::spec::Strategy;

use crate::program::{JobId, Op, Program, Register, Size, submit, submit_after, submit_with};
use crate::random::Random;

/// A reduce of so many of these.
fn reduce(inputs: Vec<Register>, count: usize, random: &mut Random) -> Op {
    let order = if random.one_in(3) { Order::Fixed } else { Order::Arrival };
    let choice = match random.below(6) {
        0 => Choice::Forced(Shape::Chain),
        1 => Choice::Forced(Shape::Star),
        2 => Choice::Forced(Shape::Tree(2)),
        3 => Choice::Forced(Shape::TwoLevel),
        4 => Choice::Paper,
        _ => Choice::Model,
    };
    let op = if random.one_in(2) { flow::Op::Mean } else { flow::Op::Sum };
    Op::Reduce { inputs, count, op, options: Options { order, choice } }
}

/// A task whose result is reduced.
fn leaf(program: &mut Program, size: Size, work_us: u64) -> JobId {
    let leaf = program.job("leaf", vec![Op::Work(work_us)]);
    (program.jobs[leaf].size, program.jobs[leaf].strategy) = (size, Strategy::Spread);
    leaf
}

fn ops(program: &mut Program, random: &mut Random) -> Vec<Op> {
    let size = if random.one_in(4) { Size::Small } else { Size::Large };
    let leaves = [random.within(5, 200), random.within(200, 4_000)].map(|work_us| leaf(program, size, work_us));
    let fails = program.job("fails", vec![Op::Work(100), Op::Fail]);
    let reader = program.job("reader", vec![Op::Get(0)]);
    let after = program.job("after", vec![Op::Work(10)]);
    let count = random.within(1, 8) as usize;
    let mut ops = Vec::new();
    for _ in 0..count {
        let job = if random.one_in(20) { fails } else { leaves[random.below(2) as usize] };
        ops.push(submit(job));
    }
    if random.one_in(3) {
        // Some are there before it begins.
        ops.push(Op::Get(random.below(count as u64) as usize));
    }
    let taken = if random.one_in(2) { count } else { random.within(1, count as u64) as usize };
    ops.push(reduce((0..count).collect(), taken, random));
    let (mut result, mut next) = (count, count + 1);
    if random.one_in(4) {
        ops.push(Op::Broadcast(result));
    }
    if random.one_in(2) {
        ops.extend((0..count).map(Op::Drop));
    }
    if random.one_in(3) {
        // The result of one is an input of another.
        let more = random.within(1, 3) as usize;
        ops.extend((0..more).map(|_| submit(leaves[1])));
        let inputs: Vec<Register> = (result..next + more).collect();
        let taken = if random.one_in(2) { inputs.len() } else { inputs.len() - 1 };
        ops.push(reduce(inputs, taken, random));
        if random.one_in(2) {
            ops.push(Op::Drop(result));
        }
        (result, next) = (next + more, next + more + 1);
    }
    ops.push(Op::Cancel { object: result, force: false });
    if random.one_in(8) {
        ops.extend([Op::Work(random.within(1, 2_000)), Op::Drop(result)]);
        return ops;
    }
    if random.one_in(3) {
        ops.extend([submit_with(reader, vec![result]), submit_after(after, vec![result])]);
        ops.extend([Op::Get(next), Op::Get(next + 1)]);
    }
    ops.push(Op::Get(result));
    ops
}

/// The driver reduces what its tasks make.
pub fn reduced(program: &mut Program, random: &mut Random) {
    let ops = ops(program, random);
    program.root(ops);
}

/// Tasks reduce what their tasks make; they may be killed and run again.
pub fn reduced_by_tasks(program: &mut Program, random: &mut Random) {
    let ops = ops(program, random);
    let reducer = program.job("reducer", ops);
    program.root(vec![submit(reducer), submit(reducer), Op::Get(0), Op::Get(1)]);
}
