//! Actors: a counter with one caller, one that many share, and one that runs several calls at once.

use crate::program::{Op, Program, call, submit, submit_with};
use crate::random::Random;

/// Calls from one caller, some waiting for an argument.
pub fn counter(program: &mut Program, random: &mut Random) {
    let leaf = program.job("leaf", vec![Op::Work(300)]);
    let mut ops = vec![Op::Work(50)];
    if random.one_in(3) {
        // A second life makes its own: what the first one made is not its.
        ops.extend([submit(leaf), Op::Put(vec![]), Op::Get(0), Op::Keep(1), submit(leaf)]);
    }
    let construct = program.job("construct", ops);
    let add = program.job("add", vec![Op::Apply, Op::Work(random.within(1, 200))]);
    program.jobs[add].retries_max = random.below(3) as u32;
    program.jobs[construct].cpu_tenths = random.below(2) * 5;
    program.jobs[construct].environment = u64::from(random.one_in(4));
    program.jobs[construct].gpu_tenths = [0, 0, 5, 10][random.below(4) as usize];
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

/// An actor that runs several calls at once: short ones, ones that wait for tasks, ones that fail or are cancelled.
pub fn concurrent(program: &mut Program, random: &mut Random) {
    let leaf = program.job("leaf", vec![Op::Work(random.within(5, 300))]);
    let construct = program.job("construct", vec![Op::Work(100)]);
    program.jobs[construct].cpu_tenths = random.below(2) * 5;
    program.jobs[construct].concurrency_max = random.within(2, 8) as u32;
    let short = program.job("short", vec![Op::Work(random.within(1, 200))]);
    let waits = program.job("waits", vec![submit(leaf), Op::Work(random.within(1, 400)), Op::Get(0)]);
    let keeps = program.job("keeps", vec![Op::Work(100), Op::Keep(0), Op::Put(vec![]), Op::Return(vec![0])]);
    let fails = program.job("fails", vec![Op::Work(100), Op::Fail]);
    let methods = [short, waits, keeps, fails];
    for method in methods {
        program.jobs[method].retries_max = random.below(3) as u32;
    }
    // The actor is in register 0; calls and puts fill the others.
    let calls = |random: &mut Random| {
        let mut ops = vec![Op::Put(vec![])];
        let count = random.within(2, 15) as usize;
        for at in 0..count {
            let job = methods[random.below(methods.len() as u64) as usize];
            let nested = if job == keeps { vec![1] } else { vec![] };
            ops.push(Op::Call { actor: 0, job, dependencies: vec![], nested });
            if random.one_in(4) {
                ops.push(Op::Cancel { object: 2 + random.below(at as u64 + 1) as usize, force: random.one_in(4) });
            }
        }
        ops.extend((2..2 + count).map(Op::Get));
        (ops, 2 + count)
    };
    let callers: Vec<usize> =
        (0..random.within(0, 3)).map(|_| calls(random).0).map(|ops| program.job("caller", ops)).collect();
    let restarts_max = random.below(3) as u32;
    let mut ops = vec![Op::Create { job: construct, restarts_max, nested: vec![] }];
    let (own, next) = calls(random);
    ops.extend(own);
    ops.extend(callers.iter().map(|caller| submit_with(*caller, vec![0])));
    ops.push(Op::Drop(0));
    ops.extend((next..next + callers.len()).map(Op::Get));
    program.root(ops);
}
