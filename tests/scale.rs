//! Many of everything: nesting, references, outstanding tasks, chains, callers, actors, cancels.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::path::PathBuf;
use std::time::Duration;

use bireme::{Failure, ObjectRef};
use support::{Gate, Journal, Scratch, my_pid, note, pass, start, two_cpus};

#[bireme::remote]
fn nest(depth: u32) -> bireme::Result<u32> {
    if depth == 0 { Ok(0) } else { Ok(nest::remote(depth - 1).get()? + 1) }
}

#[bireme::remote]
fn nest_to_a_count(depth: u32) -> bireme::Result<usize> {
    if depth == 0 { Ok(bireme::state()?.workers.len()) } else { nest_to_a_count::remote(depth - 1).get() }
}

#[test]
fn a_thousand_nested_blocked_tasks_on_one_cpu_finish_with_few_processes() {
    let _turn = start(two_cpus().cpus(1.0));
    assert_eq!(nest::remote(1_000).get().unwrap(), 1_000);
    let processes = nest_to_a_count::remote(1_000).get().unwrap();
    assert!(processes <= 40, "{processes} worker processes for 1,000 blocked tasks");
}

#[bireme::remote]
fn block_on(gate: ObjectRef<u32>) -> bireme::Result<u32> {
    gate.get()
}

#[bireme::remote]
fn open(gate: PathBuf, value: u32) -> u32 {
    pass(&gate);
    value
}

#[test]
fn a_thousand_tasks_that_wait_for_the_same_object_share_processes() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("waiters");
    let gate = Gate::closed(&scratch, "gate");
    let key = open::remote(gate.path.clone(), 4);
    // References inside a value: the tasks start and block.
    let blocked: Vec<_> = (0..1_000).map(|_| block_on_first::remote(vec![key.clone()])).collect();
    gate.open();
    assert_eq!(bireme::get_all(&blocked).unwrap(), vec![4; 1_000]);
    let processes = bireme::state().unwrap().workers.len();
    assert!(processes <= 40, "{processes} worker processes");
    assert_eq!(block_on(bireme::put(3).unwrap()).unwrap(), 3);
}

#[bireme::remote]
fn block_on_first(gates: Vec<ObjectRef<u32>>) -> bireme::Result<u32> {
    block_on(gates[0].clone())
}

#[bireme::remote]
fn one(n: u64) -> u64 {
    n
}

#[bireme::remote]
fn sum_of_references(parts: Vec<ObjectRef<u64>>) -> bireme::Result<u64> {
    Ok(bireme::get_all(&parts)?.iter().sum())
}

#[bireme::remote]
fn sum_of_wrapped(parts: (String, Vec<Option<ObjectRef<u64>>>)) -> bireme::Result<u64> {
    let parts: Vec<_> = parts.1.into_iter().flatten().collect();
    Ok(bireme::get_all(&parts)?.iter().sum())
}

#[bireme::remote]
fn make_references(n: u64) -> Vec<ObjectRef<u64>> {
    (0..n).map(one::remote).collect()
}

#[test]
fn ten_thousand_references_in_one_task_arrive_and_are_freed() {
    let _turn = start(two_cpus());
    const N: u64 = 10_000;
    let parts: Vec<_> = (0..N).map(one::remote).collect();
    assert_eq!(sum_of_references::remote(parts.clone()).get().unwrap(), N * (N - 1) / 2);
    let wrapped = parts.iter().cloned().map(Some).collect();
    assert_eq!(sum_of_wrapped::remote(("parts".to_owned(), wrapped)).get().unwrap(), N * (N - 1) / 2);
    let stored = bireme::put(parts).unwrap();
    assert_eq!(sum_of_references::remote(&stored).get().unwrap(), N * (N - 1) / 2);
    drop(stored);
    let made = make_references::remote(N).get().unwrap();
    assert_eq!(sum_of_references::remote(made).get().unwrap(), N * (N - 1) / 2);
    support::eventually("the objects are freed", || bireme::state().unwrap().objects.is_empty());
}

#[test]
fn a_hundred_thousand_outstanding_tasks_all_end() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("outstanding");
    let gate = Gate::closed(&scratch, "gate");
    let locks: Vec<_> = (0..2).map(|_| open::remote(gate.path.clone(), 1)).collect();
    let tasks: Vec<_> = (0..100_000).map(one::remote).collect();
    gate.open();
    let values = bireme::get_all(&tasks).unwrap();
    assert!(values.iter().copied().eq(0..100_000));
    bireme::get_all(&locks).unwrap();
}

#[bireme::remote]
fn link(before: u64, journal: PathBuf) -> u64 {
    note(&journal, before);
    before + 1
}

#[test]
fn a_chain_of_a_thousand_tasks_without_a_get_runs_to_its_end() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("chain");
    let mut journal = Journal::new(&scratch, "journal");
    let mut last = bireme::put(0).unwrap();
    for _ in 0..1_000 {
        last = link::remote(&last, journal.path.clone());
    }
    drop(last);
    let expected: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    assert_eq!(journal.take(1_000), expected);
}

#[bireme::remote]
fn chain_elsewhere(journal: PathBuf) {
    let mut last = bireme::put(0).unwrap();
    for _ in 0..300 {
        last = link::remote(&last, journal.clone());
    }
}

#[test]
fn a_chain_made_by_a_task_that_has_ended_runs_to_its_end() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("left-chain");
    let mut journal = Journal::new(&scratch, "journal");
    chain_elsewhere::remote(journal.path.clone()).get().unwrap();
    let expected: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    assert_eq!(journal.take(300), expected);
}

/// Counts, and notes how many are in at once.
#[derive(Default)]
pub struct Turnstile {
    total: u64,
    inside: u32,
    most: u32,
}

#[bireme::actor]
impl Turnstile {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add(&mut self, n: u64) -> u64 {
        self.total += n;
        self.total
    }

    pub fn enter(&mut self) {
        self.inside += 1;
        self.most = self.most.max(self.inside);
    }

    pub fn leave(&mut self) {
        self.inside -= 1;
    }

    pub fn most(&self) -> u32 {
        self.most
    }
}

#[bireme::remote]
fn call_once(turnstile: TurnstileHandle) -> bireme::Result<u64> {
    turnstile.add(1).get()
}

#[test]
fn a_thousand_callers_of_one_actor_are_all_served_once() {
    let _turn = start(two_cpus());
    let turnstile = Turnstile::remote();
    let tasks: Vec<_> = (0..1_000).map(|_| call_once::remote(turnstile.clone())).collect();
    let threads: Vec<_> = (0..32)
        .map(|_| {
            let turnstile = turnstile.clone();
            std::thread::spawn(move || (0..32).for_each(|_| assert!(turnstile.add(1).get().is_ok())))
        })
        .collect();
    let mut seen = bireme::get_all(&tasks).unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 1_000, "no two calls saw the same total");
    assert_eq!(turnstile.add(0).get().unwrap(), 1_000 + 32 * 32);
}

pub struct Caller {
    turnstile: TurnstileHandle,
}

#[bireme::actor]
impl Caller {
    pub fn new(turnstile: TurnstileHandle) -> Self {
        Caller { turnstile }
    }

    pub fn call(&self, times: u64) -> bireme::Result<u64> {
        let calls: Vec<_> = (0..times).map(|_| self.turnstile.add(1)).collect();
        Ok(bireme::get_all(&calls)?.len() as u64)
    }

    pub fn pid(&self) -> i32 {
        my_pid()
    }
}

#[test]
fn two_hundred_actor_processes_call_one_actor() {
    let _turn = start(two_cpus());
    let turnstile = Turnstile::remote();
    let callers: Vec<_> = (0..200).map(|_| Caller::remote(turnstile.clone())).collect();
    let calls: Vec<_> = callers.iter().map(|caller| caller.call(5)).collect();
    assert_eq!(bireme::get_all(&calls).unwrap(), vec![5; 200]);
    assert_eq!(turnstile.add(0).get().unwrap(), 1_000);
    let pids: std::collections::BTreeSet<i32> = callers.iter().map(|caller| caller.pid().get().unwrap()).collect();
    assert_eq!(pids.len(), 200, "each actor has a process of its own");
    let watches: Vec<_> = pids.into_iter().map(support::Watch::new).collect();
    drop(callers);
    assert!(watches.iter().all(|watch| watch.ended_within(support::PATIENCE)), "actors end with their last handle");
}

#[bireme::remote]
fn fan_out(width: u64) -> bireme::Result<u64> {
    let parts: Vec<_> = (0..width).map(one::remote).collect();
    Ok(bireme::get_all(&parts)?.iter().sum())
}

#[test]
fn tasks_fan_out_from_tasks() {
    let _turn = start(two_cpus());
    let wide: Vec<_> = (0..10).map(|_| fan_out::remote(2_000)).collect();
    assert_eq!(bireme::get_all(&wide).unwrap(), vec![2_000 * 1_999 / 2; 10]);
}

#[bireme::remote]
fn wait_at(gate: PathBuf, journal: PathBuf) -> u8 {
    note(&journal, my_pid());
    pass(&gate);
    1
}

#[bireme::remote]
fn parent_at(gate: PathBuf, journal: PathBuf) -> bireme::Result<usize> {
    let children: Vec<_> = (0..3).map(|_| wait_at::remote(gate.clone(), journal.clone())).collect();
    Ok(bireme::get_all(&children)?.len())
}

#[test]
fn a_storm_of_cancels_ends_queued_running_and_nested_tasks_and_the_engine_goes_on() {
    let _turn = start(two_cpus().cancel_grace(Duration::from_millis(50)));
    let scratch = Scratch::new("storm");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let finished = one::remote(9);
    assert_eq!(finished.get().unwrap(), 9);
    let running: Vec<_> = (0..2).map(|_| wait_at::remote(gate.path.clone(), journal.path.clone())).collect();
    let queued: Vec<_> = (0..500).map(|_| wait_at::remote(gate.path.clone(), journal.path.clone())).collect();
    let parents: Vec<_> = (0..20).map(|_| parent_at::remote(gate.path.clone(), journal.path.clone())).collect();
    let chained: Vec<_> = (0..20).map(|_| one::remote(queued[0].cast::<u64>())).collect();
    journal.take(2);
    queued.iter().for_each(|task| task.cancel().unwrap());
    running.iter().for_each(|task| bireme::cancel(task, true).unwrap());
    parents.iter().for_each(|task| task.cancel().unwrap());
    for round in 0..2 {
        finished.cancel().unwrap();
        let tasks = queued.iter().chain(&running);
        for error in tasks.map(|task| task.get().unwrap_err()).chain(parents.iter().map(|task| task.get().unwrap_err()))
        {
            assert!(matches!(error.failure(), Some(Failure::Cancelled { .. })), "round {round}: {error}");
        }
        queued.iter().for_each(|task| task.cancel().unwrap());
    }
    assert!(chained.iter().all(|task| task.get().is_err()));
    assert_eq!(finished.get().unwrap(), 9, "a finished task stays finished");
    gate.open();
    assert_eq!(wait_at::remote(gate.path.clone(), journal.path.clone()).get().unwrap(), 1);
    let many: Vec<_> = (0..1_000).map(one::remote).collect();
    assert_eq!(bireme::get_all(&many).unwrap().len(), 1_000);
}

#[test]
fn cancelling_a_parent_cancels_its_children() {
    let _turn = start(two_cpus().cancel_grace(Duration::from_millis(50)));
    let scratch = Scratch::new("children");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let parent = parent_at::remote(gate.path.clone(), journal.path.clone());
    let children: Vec<_> = journal.take(2).iter().map(|pid| support::Watch::new(pid.parse().unwrap())).collect();
    bireme::cancel(&parent, false).unwrap();
    assert!(matches!(parent.get().unwrap_err().failure(), Some(Failure::Cancelled { .. })));
    // The children do not look whether they were cancelled: their workers are ended.
    for child in children {
        assert!(child.ended_within(support::PATIENCE), "a child of a cancelled task runs on in process {}", child.pid);
    }
}

#[bireme::remote]
fn polite(journal: PathBuf) -> u32 {
    note(&journal, my_pid());
    while !bireme::is_cancelled() {
        std::thread::yield_now();
    }
    7
}

#[test]
fn a_task_that_sees_its_cancel_can_end_by_itself_and_its_worker_lives() {
    let _turn = start(two_cpus().cancel_grace(Duration::from_secs(60)));
    let scratch = Scratch::new("polite");
    let mut journal = Journal::new(&scratch, "journal");
    let task = polite::remote(journal.path.clone());
    let worker = support::Watch::new(journal.next().parse().unwrap());
    task.cancel().unwrap();
    // It may return a value, which then counts, or be given up as cancelled.
    match task.get() {
        Ok(value) => assert_eq!(value, 7),
        Err(error) => assert!(matches!(error.failure(), Some(Failure::Cancelled { .. })), "{error}"),
    }
    assert!(worker.is_alive());
}

#[bireme::remote(cpus = 0.5)]
fn half(turnstile: TurnstileHandle) -> bireme::Result<()> {
    turnstile.enter().get()?;
    turnstile.leave().get()
}

#[bireme::remote(cpus = 0, resources(oar = 0.4))]
fn oar(turnstile: TurnstileHandle) -> bireme::Result<()> {
    // No `get` inside: a task that waits gives its CPU back, but not its other resources.
    turnstile.enter().get()?;
    turnstile.leave().get()
}

#[test]
fn named_resources_in_fractions_are_never_oversubscribed() {
    let _turn = start(two_cpus().resource("oar", 1.0));
    let turnstile = Turnstile::remote();
    let tasks: Vec<_> = (0..200).map(|_| oar::remote(turnstile.clone())).collect();
    bireme::get_all(&tasks).unwrap();
    let most = turnstile.most().get().unwrap();
    assert!((1..=2).contains(&most), "{most} tasks with 0.4 of 1 oar each at once");
    let halves: Vec<_> = (0..100).map(|_| half::remote(turnstile.clone())).collect();
    bireme::get_all(&halves).unwrap();
    assert_eq!(bireme::resources().unwrap().total.cpus.as_f64(), 2.0);
}

#[bireme::remote(cpus = 0.5)]
fn half_at(gate: PathBuf, journal: PathBuf) {
    note(&journal, "in");
    pass(&gate);
}

#[test]
fn half_a_cpu_each_means_four_at_once_on_two() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("halves");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let tasks: Vec<_> = (0..12).map(|_| half_at::remote(gate.path.clone(), journal.path.clone())).collect();
    journal.take(4);
    let free = bireme::resources().unwrap().free.cpus.as_f64();
    assert_eq!(free, 0.0);
    // A question and its answer later nobody else has come in.
    assert_eq!(journal.rest(), Vec::<String>::new());
    gate.open();
    bireme::get_all(&tasks).unwrap();
    assert_eq!(journal.rest().len(), 8);
}

#[test]
fn two_long_tasks_on_two_cpus_always_run_side_by_side() {
    // Each round begins with no worker: the first tasks come while the second worker is still starting.
    for round in 0..40 {
        let _turn = start(two_cpus());
        let scratch = Scratch::new("side-by-side");
        let mut journal = Journal::new(&scratch, "journal");
        let gate = Gate::closed(&scratch, "gate");
        let tasks: Vec<_> = (0..2).map(|_| wait_at::remote(gate.path.clone(), journal.path.clone())).collect();
        for _ in 0..2 {
            if !journal.has_line_within(Duration::from_secs(10)) {
                let why: Vec<String> = tasks.iter().map(|task| task.explain().unwrap()).collect();
                panic!(
                    "round {round}: a task waits behind another although a CPU is free: {why:#?} {:#?}",
                    bireme::state()
                );
            }
            journal.next();
        }
        gate.open();
        bireme::get_all(&tasks).unwrap();
    }
}
