//! Streams: read at once or late, dropped early, cancelled, handed on, with references inside, from actors, and inside
//! tasks that run again.

use bireme_core::stream::Stream;

use crate::program::{JobId, Op, Program, Register, call, submit, submit_with};
use crate::random::Random;

/// A job that yields items.
fn source(program: &mut Program, random: &mut Random) -> (JobId, usize) {
    let items = random.within(0, 12) as usize;
    let work = random.within(1, 200);
    let mut ops = Vec::new();
    let refers = random.one_in(3);
    for at in 0..items {
        ops.push(Op::Work(work));
        if refers {
            ops.push(Op::Put(vec![]));
        }
        ops.push(Op::Yield(if refers { vec![at] } else { vec![] }));
    }
    if random.one_in(6) {
        ops.push(Op::Fail);
    }
    let job = program.job("source", ops);
    program.jobs[job].stream = Some(Stream {
        items_max: [0, 1, 2, 5][random.below(4) as usize],
        bytes_max: if random.one_in(4) { 1 << 21 } else { 0 },
    });
    (job, items)
}

/// Reads up to so many items, the kept ones into registers from `next` on, which are opened and read as well.
fn read(ops: &mut Vec<Op>, stream: Register, items: usize, mut next: Register, random: &mut Random) -> Register {
    for _ in 0..items {
        let keep = random.one_in(3);
        ops.push(Op::Next { stream, keep });
        if random.one_in(8) {
            ops.push(Op::Work(300));
        }
        if keep {
            if random.one_in(2) {
                ops.extend([Op::Open(next), Op::Get(next + 1)]);
                next += 1;
            }
            next += 1;
        }
    }
    next
}

/// The driver or a task that may run again reads a stream, to its end or not; it may be cancelled.
pub fn streamed(program: &mut Program, random: &mut Random) {
    let (source, items) = source(program, random);
    let mut ops = vec![submit(source)];
    let next = if random.one_in(4) { random.below(items as u64 + 1) as usize } else { items + 2 };
    let half = random.below(next as u64 + 1) as usize;
    let register = read(&mut ops, 0, half, 1, random);
    if random.one_in(3) {
        ops.push(Op::Cancel { object: 0, force: random.one_in(4) });
    }
    read(&mut ops, 0, next - half, register, random);
    if random.one_in(3) {
        ops.push(Op::Drop(0));
        ops.push(Op::Work(100));
    }
    let reader = program.job("reader", ops.clone());
    if random.one_in(2) {
        program.root(ops);
    } else {
        program.root(vec![submit(reader), submit(reader), Op::Get(0), Op::Get(1)]);
    }
}

/// A stream begins with one reader and goes on with another, which cannot begin again.
pub fn handed_on(program: &mut Program, random: &mut Random) {
    let (source, items) = source(program, random);
    let here = random.below(items as u64 + 1) as usize;
    let mut there = vec![Op::Skip { stream: 0, items: here as u32 }];
    read(&mut there, 0, items + 1 - here, 1, random);
    let reader = program.job("reader", there);
    program.jobs[reader].retries_max = 0;
    let mut ops = vec![submit(source)];
    ops.extend((0..here).map(|_| Op::Next { stream: 0, keep: false }));
    ops.push(submit_with(reader, vec![0]));
    if random.one_in(2) {
        ops.push(Op::Drop(0));
    }
    ops.push(Op::Get(1));
    let outer = program.job("outer", ops.clone());
    program.jobs[outer].retries_max = 0;
    if random.one_in(2) {
        program.root(ops);
    } else {
        program.root(vec![submit(outer), Op::Get(0)]);
    }
}

/// A task makes a stream and returns the end of it; whoever gets it reads it while its owner may die.
pub fn returned(program: &mut Program, random: &mut Random) {
    let (source, items) = source(program, random);
    let maker = program.job("maker", vec![submit(source), Op::Work(random.within(1, 2_000)), Op::Return(vec![0])]);
    let mut ops = vec![submit(maker), Op::Open(0), Op::Drop(0)];
    read(&mut ops, 1, items + 1, 2, random);
    program.root(ops);
}

/// An actor's method that yields.
pub fn by_an_actor(program: &mut Program, random: &mut Random) {
    let (source, items) = source(program, random);
    program.jobs[source].retries_max = random.below(3) as u32;
    let construct = program.job("construct", vec![Op::Work(50)]);
    program.jobs[construct].cpu_tenths = random.below(2) * 5;
    let restarts_max = random.below(3) as u32;
    let mut ops = vec![Op::Create { job: construct, restarts_max, nested: vec![] }, call(0, source), call(0, source)];
    ops.push(Op::Drop(0));
    let next = read(&mut ops, 1, items + 1, 3, random);
    read(&mut ops, 2, items + 1, next, random);
    program.root(ops);
}
