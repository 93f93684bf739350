use super::*;
use crate::spec::Shape;

fn fixture(processes_max: u32) -> Fixture {
    Fixture::with(NodeConfig { prestart: 0, processes_max, ..NodeConfig::for_machine(cpus(1.0)) })
}

/// Wants leases of a tenth of a CPU for tasks that share a process with so many.
fn want(f: &mut Fixture, owner: ProcessId, pool: u32, count: u32, threads_per_worker: u32) -> Vec<Effect> {
    let shape = Shape { resources: cpus(0.1), threads_per_worker, ..Shape::default() };
    f.ask(owner, ToNode::WantLeases { pool, shape, count, depth: 0 })
}

fn block(f: &mut Fixture, worker: ProcessId, lease: u64) -> Vec<Effect> {
    f.ask(worker, ToNode::Blocked { lease: LeaseId(lease) })
}

fn warnings(effects: &[Effect]) -> Vec<ProcessId> {
    let warned = |effect: &Effect| match effect {
        Effect::Send { to, message: FromNode::Warning { .. } } => Some(*to),
        _ => None,
    };
    effects.iter().filter_map(warned).collect()
}

/// One process for each of these leases, and no more.
fn full(processes: u32) -> Fixture {
    let mut f = fixture(processes);
    want(&mut f, DRIVER, 0, processes, 1);
    for slot in 0..processes {
        assert_eq!(granted(&f.hello(worker(2 + slot, 1))).len(), 1);
    }
    f
}

#[test]
fn a_blocked_task_keeps_its_process_and_the_next_gets_another() {
    let mut f = fixture(8);
    want(&mut f, DRIVER, 0, 1, 1);
    f.hello(W2);
    block(&mut f, W2, 1);
    assert_eq!(want(&mut f, DRIVER, 0, 1, 1), [Effect::Spawn(W3)]);
    assert_eq!(granted(&f.hello(W3)), [(LeaseId(2), W3)]);
    assert_eq!(want(&mut f, DRIVER, 1, 1, 0), [Effect::Spawn(W4)], "nor does one that would share");
}

#[test]
fn tasks_share_a_process_up_to_the_number_that_each_of_them_allows() {
    let mut f = fixture(8);
    want(&mut f, DRIVER, 0, 1, 0);
    f.hello(W2);
    block(&mut f, W2, 1);
    assert_eq!(granted(&want(&mut f, DRIVER, 1, 1, 2)), [(LeaseId(2), W2)]);
    block(&mut f, W2, 2);
    assert_eq!(want(&mut f, DRIVER, 0, 1, 0), [Effect::Spawn(W3)], "the second one allows two");
}

#[test]
fn at_the_bound_a_task_waits_for_a_process_while_one_may_come_free() {
    let mut f = full(2);
    block(&mut f, W2, 1);
    assert_eq!(want(&mut f, DRIVER, 1, 1, 1), [], "the task in the other process runs");
    let place = f.node.queue.wish(DRIVER, 1).unwrap();
    let text = f.node.explain_waiting("it", f.node.queue.get(place).unwrap(), f.now);
    for part in ["2 worker processes, as many as there may be", "1 have tasks that wait", "threads_per_worker=1"] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(2) });
    assert_eq!(granted(&effects), [(LeaseId(3), W3)]);
    assert_eq!(warnings(&effects), []);
}

#[test]
fn when_every_process_is_blocked_tasks_share_one_and_the_job_is_warned_once() {
    let mut f = full(2);
    block(&mut f, W2, 1);
    want(&mut f, DRIVER, 1, 2, 1);
    let effects = block(&mut f, W3, 2);
    assert_eq!(granted(&effects), [(LeaseId(3), W2)], "one of the two that wait: then one runs");
    assert_eq!(warnings(&effects), [W2]);
    let effects = block(&mut f, W2, 3);
    assert_eq!(granted(&effects), [(LeaseId(4), W3)], "the one with fewer tasks");
    assert_eq!(warnings(&effects), []);
}

#[test]
fn the_only_process_takes_the_children_of_its_own_task() {
    for threads in [0, 1] {
        let mut f = fixture(1);
        want(&mut f, DRIVER, 0, 1, threads);
        f.hello(W2);
        assert_eq!(want(&mut f, W2, 0, 1, threads), [], "its task runs");
        let effects = block(&mut f, W2, 1);
        assert_eq!(granted(&effects), [(LeaseId(2), W2)]);
        assert_eq!(warnings(&effects).len(), threads as usize, "who shares anyway needs no warning");
        assert!(!effects.contains(&link(W2, W2)));
    }
}

#[test]
fn the_only_process_beside_actors_takes_the_children_of_its_own_task() {
    let mut f = fixture(3);
    for n in 1..=2 {
        let actor = spec(root(DRIVER), n, TaskKind::Create(ActorOptions::default()), cpus(0.0));
        f.submit(DRIVER, &actor);
        let started = spawned(&f.ask(DRIVER, ToNode::CreateActor { spec: actor, resolved: Vec::new() }));
        f.hello(started[0]);
    }
    want(&mut f, DRIVER, 0, 1, 0);
    assert_eq!(granted(&f.hello(W4)), [(LeaseId(1), W4)]);
    want(&mut f, W4, 0, 1, 0);
    assert_eq!(granted(&block(&mut f, W4, 1)), [(LeaseId(2), W4)]);
}

#[test]
fn an_idle_process_runs_its_own_children_when_there_is_no_other() {
    let mut f = fixture(1);
    want(&mut f, DRIVER, 0, 1, 1);
    f.hello(W2);
    let child = plain(root(W2), 1);
    f.submit(W2, &child);
    assert_eq!(want(&mut f, W2, 0, 1, 1), []);
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) });
    assert_eq!(granted(&effects), [(LeaseId(2), W2)], "it has to stay for its child");
    assert_eq!(warnings(&effects), [], "and it is the only task there");
}

#[test]
fn an_idle_process_that_may_go_makes_room_before_anybody_shares() {
    let mut f = full(2);
    block(&mut f, W2, 1);
    f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(2) });
    let shape = Shape { resources: cpus(0.1), environment: 7, threads_per_worker: 1, ..Shape::default() };
    let effects = f.ask(DRIVER, ToNode::WantLeases { pool: 1, shape, count: 1, depth: 0 });
    assert_eq!(effects, [to(W3, FromNode::Retire)]);
}

fn create_actor(f: &mut Fixture, n: u64) -> Vec<Effect> {
    let actor = spec(root(DRIVER), n, TaskKind::Create(ActorOptions::default()), cpus(0.0));
    f.submit(DRIVER, &actor);
    f.ask(DRIVER, ToNode::CreateActor { spec: actor, resolved: Vec::new() })
}

#[test]
fn actors_and_tasks_with_memory_share_with_nobody_and_get_a_process_beyond_the_limit_when_all_wait() {
    let mut f = full(2);
    block(&mut f, W2, 1);
    f.node.config.total.memory_bytes = 10;
    f.node.free.memory_bytes = 10;
    let shape = Shape { resources: Resources { memory_bytes: 1, ..cpus(0.1) }, ..Shape::default() };
    let wish = ToNode::WantLeases { pool: 1, shape, count: 1, depth: 0 };
    assert_eq!(f.ask(DRIVER, wish), [], "a task runs, and its process will come free");
    assert_eq!(spawned(&block(&mut f, W3, 2)), [W4]);
    let effects = f.hello(W4);
    assert_eq!(granted(&effects), [(LeaseId(3), W4)]);
    assert_eq!(warnings(&effects), [W4]);
    assert_eq!(create_actor(&mut f, 1), []);
    let fifth = worker(5, 1);
    assert_eq!(spawned(&block(&mut f, W4, 3)), [fifth]);
    assert_eq!(warnings(&f.hello(fifth)), [], "once for each job");
    assert_eq!(create_actor(&mut f, 2), [], "as many again as there may be, and no more");
}

#[test]
fn processes_of_actors_that_only_serve_do_not_let_others_beyond_the_limit() {
    let mut f = fixture(1);
    let started = spawned(&create_actor(&mut f, 1));
    f.hello(started[0]);
    assert_eq!(create_actor(&mut f, 2), []);
    assert_eq!(want(&mut f, DRIVER, 0, 1, 1), []);
}

#[test]
fn an_actor_gets_no_process_whose_own_tasks_have_not_ended() {
    let mut f = fixture(1);
    want(&mut f, DRIVER, 0, 1, 1);
    f.hello(W2);
    f.submit(W2, &plain(root(W2), 1));
    f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) });
    assert_eq!(spawned(&create_actor(&mut f, 1)), [W3], "they would be lost with the actor");
}

#[test]
fn a_thousand_nested_tasks_of_their_own_processes_go_on_beyond_the_bound() {
    let mut f = fixture(20);
    let mut owner = DRIVER;
    for n in 1..=1_000 {
        let mut effects = want(&mut f, owner, 0, 1, 1);
        for process in spawned(&effects) {
            effects.extend(f.hello(process));
        }
        // Its parent's process asked before it said that the parent waits.
        if n > 1 {
            effects.extend(block(&mut f, owner, n - 1));
        }
        for process in spawned(&effects) {
            effects.extend(f.hello(process));
        }
        let leases = granted(&effects);
        assert_eq!(leases.len(), 1, "task {n}: {effects:?}");
        assert_eq!(leases[0].0, LeaseId(n));
        owner = leases[0].1;
    }
    assert_eq!(f.node.pool.workers.len(), 20);
}
