use super::*;
use crate::node::pool::{RETIRE_GRACE_US, SPAWN_FAILURES_MAX, SPAWN_RETRY_US};

fn config(prestart: u32) -> NodeConfig {
    NodeConfig { prestart, processes_max: 3, ..NodeConfig::for_machine(cpus(4.0)) }
}

fn not_started(process: ProcessId) -> Event {
    let cause = DeathCause::NotStarted("no such file".into());
    Event::WorkerExited(Death { cause, ..death(process) })
}

#[test]
fn workers_are_started_ahead_of_demand() {
    let mut f = Fixture::with(config(2));
    assert_eq!(f.step(Event::Started), [Effect::Spawn(W2), Effect::Spawn(W3)]);
    assert_eq!(f.want(DRIVER, 1, cpus(1.0)), [], "the starting one is used");
    assert_eq!(f.hello(W2), grant_effects(DRIVER, 0, 1, W2));
}

#[test]
fn there_are_never_more_processes_than_the_maximum() {
    let mut f = Fixture::with(config(0));
    assert_eq!(f.want(DRIVER, 9, cpus(0.1)), [Effect::Spawn(W2), Effect::Spawn(W3), Effect::Spawn(W4)]);
    for process in [W2, W3, W4] {
        assert_eq!(granted(&f.hello(process)).len(), 1);
    }
}

#[test]
fn an_idle_worker_ends_after_its_time_but_the_minimum_stays() {
    let mut f = Fixture::with(config(1));
    f.step(Event::Started);
    f.hello(W2);
    for (lease, _) in f.leased(DRIVER, 2, cpus(1.0)) {
        f.ask(DRIVER, ToNode::ReturnLease { lease });
    }
    let idle_us = f.node.config.idle_worker_us;
    assert_eq!(f.node.deadline(), Some(Tick(idle_us)));
    f.now = Tick(idle_us);
    assert_eq!(f.step(Event::Ticked), [to(W2, FromNode::Retire)]);
    f.now = f.now.plus_us(RETIRE_GRACE_US);
    assert_eq!(f.step(Event::Ticked), [Effect::Kill(W2)]);
    assert_eq!(f.step(Event::Ticked), []);
}

#[test]
fn an_idle_worker_that_owns_something_stays() {
    let mut f = Fixture::with(config(0));
    f.leased(DRIVER, 1, cpus(1.0));
    f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) });
    let object = ObjectId::put(root(W2), 0, 0, 0);
    f.record(W2, Record::Put { object, digest: 1, value: Value::inline(vec![1]) });
    f.now = Tick(f.node.config.idle_worker_us);
    assert_eq!(f.step(Event::Ticked), []);
    assert_eq!(f.node.deadline(), None);
    f.record(W2, Record::Freed { object });
    assert_eq!(f.step(Event::Ticked), [to(W2, FromNode::Retire)]);
}

#[test]
fn starts_that_fail_again_and_again_fail_the_demand_with_the_reason() {
    let mut f = Fixture::with(config(0));
    let mut effects = f.want(DRIVER, 1, cpus(1.0));
    for n in 1..=SPAWN_FAILURES_MAX {
        assert_eq!(effects.last(), Some(&Effect::Spawn(worker(2, n))));
        effects = f.step(not_started(worker(2, n)));
        assert_eq!(effects[0], Effect::CloseProcess(worker(2, n)));
    }
    let Effect::Send { to: DRIVER, message: FromNode::Infeasible { pool: 0, asked, available } } = &effects[1] else {
        panic!("{effects:?}")
    };
    assert_eq!(asked, "1 CPUs");
    assert!(available.contains("no worker: 3 starts failed in a row") && available.contains("no such file"));
    assert_eq!(f.want(DRIVER, 1, cpus(1.0)), [Effect::Spawn(worker(2, 4))], "the next demand tries again");
}

#[test]
fn a_worker_started_ahead_that_fails_is_tried_again_later() {
    let mut f = Fixture::with(config(1));
    f.step(Event::Started);
    assert_eq!(f.step(not_started(W2)), [Effect::CloseProcess(W2)]);
    assert_eq!(f.node.deadline(), Some(Tick(SPAWN_RETRY_US)));
    f.now = Tick(SPAWN_RETRY_US);
    assert_eq!(f.step(Event::Ticked), [Effect::Spawn(worker(2, 2))]);
}

#[test]
fn requests_of_processes_that_do_not_live_are_void() {
    let mut f = Fixture::new(1);
    assert_eq!(f.want(W2, 1, cpus(1.0)), []);
    assert_eq!(f.ask(worker(9, 1), ToNode::Hello), []);
}

#[test]
fn store_requests_pass_through() {
    let mut f = Fixture::new(1);
    let request = ToNode::CreateObject { request: 1, len: 10 };
    assert_eq!(f.ask(DRIVER, request.clone()), [Effect::Store { process: DRIVER, request }]);
}

#[test]
fn a_spent_worker_gets_nothing_more_and_ends_when_it_owns_nothing() {
    let mut f = Fixture::with(config(1));
    f.step(Event::Started);
    f.hello(W2);
    assert_eq!(f.leased(DRIVER, 1, cpus(1.0)), [(LeaseId(1), W2)]);
    assert_eq!(f.ask(W2, ToNode::Spent), [Effect::Spawn(W3)], "another is started in its place");
    let object = ObjectId::put(root(W2), 0, 0, 0);
    f.record(W2, Record::Put { object, digest: 1, value: Value::inline(vec![1]) });
    assert_eq!(f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) })[..], [closed(W2, 1)]);
    f.want(DRIVER, 1, cpus(1.0));
    assert_eq!(granted(&f.hello(W3)), [(LeaseId(2), W3)]);
    assert_eq!(f.node.deadline(), None, "somebody may ask for what it owns");
    f.record(W2, Record::Freed { object });
    assert_eq!(f.node.deadline(), Some(f.now));
    assert_eq!(f.step(Event::Ticked), [to(W2, FromNode::Retire)]);
}

#[test]
fn a_spent_worker_that_waits_does_not_keep_its_children_from_a_process() {
    let mut f = Fixture::with(NodeConfig { processes_max: 1, ..config(0) });
    assert_eq!(f.want(DRIVER, 1, cpus(1.0)), [Effect::Spawn(W2)]);
    assert_eq!(granted(&f.hello(W2)), [(LeaseId(1), W2)]);
    f.ask(W2, ToNode::Spent);
    assert_eq!(spawned(&f.want(W2, 1, cpus(1.0))), [], "there may be one process, and it runs");
    assert_eq!(spawned(&f.ask(W2, ToNode::Blocked { lease: LeaseId(1) })), [W3]);
    assert_eq!(spawned(&f.want(W3, 1, cpus(1.0))), [], "the new one counts");
}

fn closed(worker: ProcessId, lease: u64) -> Effect {
    to(worker, FromNode::LeaseClosed { lease: LeaseId(lease) })
}

#[test]
fn slots_of_drivers_are_no_workers_however_many_processes_there_may_be() {
    let mut f = Fixture::with(NodeConfig { processes_max: u32::MAX, ..config(0) });
    let all = f.want(DRIVER, 10_000, Resources::default());
    let slots = crate::id::FIRST_ATTACHED_SLOT - crate::node::pool::FIRST_WORKER_SLOT;
    assert_eq!(spawned(&all).len(), slots as usize);
    assert!(spawned(&all).iter().all(|process| process.slot < crate::id::FIRST_ATTACHED_SLOT));
}

#[test]
fn a_task_takes_the_process_that_worked_last_whatever_that_owns() {
    let mut f = Fixture::with(config(0));
    let leases = f.leased(DRIVER, 2, cpus(1.0));
    let object = ObjectId::put(root(W3), 0, 0, 0);
    f.record(W3, Record::Put { object, digest: 1, value: Value::inline(vec![1]) });
    for (at, (lease, _)) in (1..).zip(leases) {
        f.now = Tick(at);
        f.ask(DRIVER, ToNode::ReturnLease { lease });
    }
    assert_eq!(f.leased(DRIVER, 1, cpus(1.0)), [(LeaseId(3), W3)]);
}
