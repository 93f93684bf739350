//! Actors: a counter with one caller, and one that many share.

use crate::program::{Op, Program, call, submit, submit_with};
use crate::random::Random;

/// Calls from one caller, some waiting for an argument.
pub fn counter(program: &mut Program, random: &mut Random) {
    let construct = program.job("construct", vec![Op::Work(50)]);
    let add = program.job("add", vec![Op::Apply, Op::Work(random.within(1, 200))]);
    program.jobs[add].retries_max = random.below(3) as u32;
    let leaf = program.job("leaf", vec![Op::Work(300)]);
    program.jobs[construct].cpu_tenths = random.below(2) * 5;
    let restarts_max = random.below(3) as u32;
    let mut ops = vec![submit(leaf), Op::Create { job: construct, restarts_max, nested: vec![] }];
    let calls = random.within(2, 20) as usize;
    for _ in 0..calls {
        if random.one_in(5) {
            ops.push(Op::Call { actor: 1, job: add, dependencies: vec![0], nested: vec![] });
        } else {
            ops.push(call(1, add));
        }
        ops.push(Op::Cancel { object: 2, force: false });
    }
    ops.push(Op::Drop(1));
    ops.extend((2..2 + calls).map(Op::Get));
    program.root(ops);
}

/// An actor whose handle goes to several tasks; it keeps what it is given, and its calls submit tasks themselves.
pub fn shared(program: &mut Program, random: &mut Random) {
    let construct = program.job("construct", vec![Op::Work(50), Op::Keep(0)]);
    program.jobs[construct].cpu_tenths = random.below(2) * 5;
    let leaf = program.job("leaf", vec![Op::Work(100)]);
    let keep = program.job("keep", vec![Op::Apply, Op::Keep(0)]);
    let work = program.job("work", vec![Op::Apply, submit(leaf), Op::Get(0)]);
    program.jobs[work].retries_max = random.below(3) as u32;
    program.jobs[keep].retries_max = random.below(2) as u32;
    let ask = vec![
        Op::Put(vec![]),
        Op::Call { actor: 0, job: keep, dependencies: vec![], nested: vec![1] },
        call(0, work),
        call(0, work),
        Op::Get(4),
        Op::Get(3),
        Op::Get(2),
    ];
    let caller = program.job("caller", ask);
    let callers = random.within(1, 4) as usize;
    let restarts_max = random.below(3) as u32;
    let mut ops = vec![Op::Put(vec![]), Op::Create { job: construct, restarts_max, nested: vec![0] }];
    ops.extend((0..callers).map(|_| submit_with(caller, vec![1])));
    ops.extend([Op::Drop(0), Op::Drop(1)]);
    ops.extend((2..2 + callers).map(Op::Get));
    program.root(ops);
}
