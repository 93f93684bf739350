//! ENV-1: a process serves one environment all its life.

use super::*;

const OTHER: u64 = 7;

/// As many processes as CPUs.
fn two_processes() -> Fixture {
    Fixture::with(NodeConfig { prestart: 0, processes_max: 2, ..NodeConfig::for_machine(cpus(2.0)) })
}

fn want(f: &mut Fixture, pool: u32, environment: u64, count: u32) -> Vec<Effect> {
    f.ask(
        DRIVER,
        ToNode::WantLeases {
            pool,
            shape: crate::spec::Shape { resources: cpus(1.0), environment, ..Default::default() },
            count,
            depth: 0,
        },
    )
}

/// Wants one lease, greets the process that is spawned for it, and gives the lease back.
fn use_one(f: &mut Fixture, pool: u32, environment: u64) -> ProcessId {
    let mut effects = want(f, pool, environment, 1);
    for process in spawned(&effects) {
        effects.extend(f.hello(process));
    }
    let (lease, worker) = granted(&effects)[0];
    f.ask(DRIVER, ToNode::ReturnLease { lease });
    worker
}

#[test]
fn a_process_that_was_leased_serves_its_environment_only_env_1() {
    let mut f = Fixture::new(2);
    assert_eq!(use_one(&mut f, 0, 0), W2);
    assert_eq!(use_one(&mut f, 1, OTHER), W3, "a used process of the usual environment is not fresh");
    assert_eq!(use_one(&mut f, 0, 0), W2);
    assert_eq!(use_one(&mut f, 1, OTHER), W3);
}

#[test]
fn a_fresh_process_may_become_anything_and_is_spared_while_a_used_one_fits() {
    let mut f = Fixture::with(NodeConfig { prestart: 2, ..NodeConfig::for_machine(cpus(2.0)) });
    f.step(Event::Started);
    f.hello(W2);
    f.hello(W3);
    let first = use_one(&mut f, 0, 0);
    f.now = Tick(5);
    assert_eq!(use_one(&mut f, 0, 0), first);
    let second = use_one(&mut f, 1, OTHER);
    assert!([W2, W3].contains(&second) && second != first);
}

#[test]
fn an_idle_process_of_another_environment_makes_room() {
    let mut f = two_processes();
    assert_eq!(use_one(&mut f, 0, 0), W2);
    f.now = Tick(5);
    assert_eq!(use_one(&mut f, 1, OTHER), W3);
    assert_eq!(want(&mut f, 2, 8, 1), [to(W2, FromNode::Retire)], "the one that is idle longest");
    assert_eq!(want(&mut f, 2, 8, 1), [], "one is enough");
    let gone = f.exit(W2);
    assert_eq!(spawned(&gone), [], "its slot is not settled");
    f.settle(DRIVER, W2);
    let effects = f.settle(W3, W2);
    assert_eq!(spawned(&effects), [worker(2, 2)]);
    assert_eq!(granted(&f.hello(worker(2, 2))), [(LeaseId(3), worker(2, 2))]);
}

#[test]
fn a_process_whose_tasks_have_not_ended_does_not_make_room() {
    let mut f = two_processes();
    use_one(&mut f, 0, 0);
    use_one(&mut f, 1, OTHER);
    let task = plain(root(W3), 1);
    f.submit(W3, &task);
    assert_eq!(granted(&want(&mut f, 0, 0, 1)), [(LeaseId(3), W2)], "this one is at work and may come free");
    assert_eq!(want(&mut f, 2, 8, 1), []);
    assert_ne!(f.node.deadline(), Some(Tick(0)));
    f.finish(W2, task.id, Value::inline(vec![1]));
    assert_eq!(f.node.deadline(), Some(Tick(0)), "nothing else would make the node look again");
    assert!(f.step(Event::Ticked).contains(&to(W3, FromNode::Retire)));
}

#[test]
fn when_no_process_can_make_room_another_is_started_beyond_the_limit() {
    let mut f = two_processes();
    use_one(&mut f, 0, 0);
    use_one(&mut f, 1, OTHER);
    for process in [W2, W3] {
        f.submit(process, &plain(root(process), 1));
    }
    assert_eq!(want(&mut f, 2, 8, 1), [Effect::Spawn(W4)], "their tasks may wait for this one");
}

#[test]
fn a_process_that_owns_nothing_makes_room_before_one_that_owns_values() {
    let mut f = two_processes();
    use_one(&mut f, 0, 0);
    f.now = Tick(5);
    use_one(&mut f, 1, OTHER);
    let object = ObjectId::put(root(W2), 0, 0, 0);
    f.record(W2, Record::Put { object, digest: 1, value: Value::inline(vec![1]) });
    assert_eq!(want(&mut f, 2, 8, 1), [to(W3, FromNode::Retire)]);
    assert_eq!(want(&mut f, 2, 8, 2), [to(W2, FromNode::Retire)], "as a last resort");
}

#[test]
fn one_that_waits_for_its_environment_is_not_starved() {
    let mut f = two_processes();
    for (pool, process) in [(0, W2), (1, W3)] {
        let mut effects = want(&mut f, pool, 0, 1);
        effects.extend(f.hello(process));
        assert_eq!(granted(&effects).len(), 1);
    }
    // Everything is taken; others take what comes free again and again.
    assert_eq!(want(&mut f, 2, OTHER, 1), []);
    let mut leases = vec![LeaseId(1), LeaseId(2)];
    for round in 0..100 {
        want(&mut f, round % 2, 0, 1);
        let lease = leases.remove(0);
        let effects = f.ask(DRIVER, ToNode::ReturnLease { lease });
        if effects.contains(&to(W2, FromNode::Retire)) || effects.contains(&to(W3, FromNode::Retire)) {
            return;
        }
        leases.extend(granted(&effects).iter().map(|(lease, _)| *lease));
    }
    panic!("the other environment never got its turn");
}

#[test]
fn blocked_tasks_share_their_process_with_their_environment_only() {
    let mut f = Fixture::new(1);
    want(&mut f, 0, OTHER, 1);
    f.hello(W2);
    f.ask(W2, ToNode::Blocked { lease: LeaseId(1) });
    assert_eq!(want(&mut f, 1, 0, 1), [Effect::Spawn(W3)]);
    f.hello(W3);
    f.ask(W3, ToNode::Blocked { lease: LeaseId(2) });
    assert_eq!(granted(&want(&mut f, 2, OTHER, 1)), [(LeaseId(3), W2)]);
}

#[test]
fn an_actor_gets_a_process_without_a_past() {
    let mut f = Fixture::new(2);
    use_one(&mut f, 0, 0);
    let spec = actor_spec(1, None, 0);
    let effects = f.ask(DRIVER, ToNode::CreateActor { spec, resolved: Vec::new() });
    assert_eq!(spawned(&effects), [W3]);
}

#[test]
fn at_the_bound_an_actor_takes_a_used_process_of_its_environment() {
    let mut f = two_processes();
    use_one(&mut f, 0, OTHER);
    use_one(&mut f, 1, 0);
    let spec = actor_spec(1, None, 0);
    let effects = f.ask(DRIVER, ToNode::CreateActor { spec, resolved: Vec::new() });
    assert!(matches!(&effects[..], [Effect::Send { to: W3, message: FromNode::Construct { .. } }]), "{effects:?}");
}

#[test]
fn a_starting_process_whose_lease_is_withdrawn_is_fresh_again() {
    let mut f = Fixture::new(2);
    assert_eq!(want(&mut f, 0, OTHER, 1), [Effect::Spawn(W2)]);
    want(&mut f, 0, OTHER, 0);
    assert_eq!(want(&mut f, 1, 0, 1), []);
    assert_eq!(granted(&f.hello(W2)), [(LeaseId(2), W2)]);
}
