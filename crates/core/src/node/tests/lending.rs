use super::*;
use crate::node::queue::OVERTAKES_MAX;

fn block(f: &mut Fixture, worker: ProcessId, lease: u64) -> Vec<Effect> {
    f.ask(worker, ToNode::Blocked { lease: LeaseId(lease) })
}

fn resume(f: &mut Fixture, worker: ProcessId, lease: u64) -> Vec<Effect> {
    f.ask(worker, ToNode::Unblocked { lease: LeaseId(lease) })
}

fn reclaim(owner: ProcessId, lease: u64) -> Effect {
    to(owner, FromNode::Reclaim { lease: LeaseId(lease) })
}

fn create(f: &mut Fixture, n: u64) -> Vec<Effect> {
    let spec = actor_spec(n, None, 0);
    f.submit(DRIVER, &spec);
    f.ask(DRIVER, ToNode::CreateActor { spec, resolved: Vec::new() })
}

#[test]
fn a_task_that_resumed_on_debt_gives_its_lease_back_when_it_ends() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 2, cpus(1.0));
    assert_eq!(granted(&block(&mut f, W2, 1)), [(LeaseId(2), W2)]);
    assert_eq!(resume(&mut f, W2, 1), [reclaim(DRIVER, 1)], "its CPU is another's by now");
    assert_eq!((f.node.free.cpus, f.node.debt), (Amount(0), Amount::whole(1)));
    f.want_at(DRIVER, 3, 1, cpus(1.0), 0);
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) });
    assert_eq!(granted(&effects), [], "the debt is paid first");
    assert_eq!((f.node.free.cpus, f.node.debt), (Amount(0), Amount(0)));
    assert_eq!(granted(&f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(2) })).len(), 1);
}

#[test]
fn the_leases_of_its_children_pay_the_debt_of_a_task_that_resumed() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 1, cpus(1.0));
    block(&mut f, W2, 1);
    f.want_at(W2, 0, 1, cpus(1.0), 1);
    assert_eq!(f.hello(W3), grant_effects(W2, 0, 2, W3));
    assert_eq!(resume(&mut f, W2, 1), [reclaim(W2, 2)]);
    // It waits again before the lease has come: nobody is asked twice.
    block(&mut f, W2, 1);
    assert_eq!(resume(&mut f, W2, 1), []);
    f.ask(W2, ToNode::ReturnLease { lease: LeaseId(2) });
    assert_eq!((f.node.free.cpus, f.node.debt), (Amount(0), Amount(0)));
}

#[test]
fn a_grant_whose_worker_still_starts_is_taken_back_to_pay_a_debt() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 1, cpus(1.0));
    block(&mut f, W2, 1);
    assert_eq!(f.want_at(W2, 0, 1, cpus(1.0), 1), [Effect::Spawn(W3)]);
    assert_eq!(resume(&mut f, W2, 1), []);
    assert_eq!(f.node.debt, Amount(0), "nothing runs there yet");
    assert_eq!(f.hello(W3), [], "one CPU, and it is in use");
    assert_eq!(block(&mut f, W2, 1), grant_effects(W2, 0, 3, W3), "the wish was kept");
}

#[test]
fn a_debt_asks_for_no_more_leases_than_pay_it() {
    let mut f = Fixture::new(3);
    assert_eq!(f.leased(DRIVER, 3, cpus(1.0)).len(), 3);
    block(&mut f, W2, 1);
    f.want_at(DRIVER, 1, 1, cpus(1.0), 0);
    f.hello(worker(5, 1));
    assert_eq!(resume(&mut f, W2, 1), [reclaim(DRIVER, 1)]);
}

#[test]
fn an_actor_that_resumed_on_debt_is_paid_by_leases() {
    let mut f = Fixture::new(1);
    create(&mut f, 1);
    f.hello(W2);
    block(&mut f, W2, 0);
    f.leased(DRIVER, 1, cpus(1.0));
    assert_eq!(f.node.free.cpus, Amount(0));
    assert_eq!(resume(&mut f, W2, 0), [reclaim(DRIVER, 1)]);
}

/// A task that needs no CPU runs in the first worker.
fn busy(whole_cpus: u64) -> Fixture {
    let mut f = Fixture::new(whole_cpus);
    f.want_at(DRIVER, 9, 1, cpus(0.0), 0);
    assert_eq!(granted(&f.hello(W2)).len(), 1);
    f
}

#[test]
fn an_actor_gets_no_cpu_that_is_only_lent() {
    let mut f = busy(2);
    f.leased(DRIVER, 1, cpus(1.0));
    block(&mut f, W3, 2);
    assert_eq!(create(&mut f, 1), [Effect::Spawn(W4)], "one CPU is nobody's");
    f.hello(W4);
    assert_eq!(create(&mut f, 2), [], "the other one is a task's that waits");
    let text = f.node.explain(actor_spec(2, None, 0).id, f.now);
    assert!(text.contains("1 CPUs are free, but blocked tasks want 1 back"), "{text}");
    assert_eq!(f.node.free.cpus, Amount::whole(1));
    assert_eq!(granted(&f.want(DRIVER, 1, cpus(1.0))), [(LeaseId(3), W3)], "a task may run there");
    f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(2) });
    assert_eq!(f.node.queue.len(), 1);
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(3) });
    assert_eq!(spawned(&effects), [worker(5, 1)], "when both are over, the actor has its turn");
}

#[test]
fn an_actor_of_no_cpus_starts_whatever_is_lent() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 1, cpus(1.0));
    let spec = spec(root(DRIVER), 1, TaskKind::Create(ActorOptions::default()), cpus(0.0));
    f.submit(DRIVER, &spec);
    assert_eq!(f.ask(DRIVER, ToNode::CreateActor { spec, resolved: Vec::new() }), [Effect::Spawn(W3)]);
}

#[test]
fn an_actor_that_waits_for_a_blocked_task_holds_up_nobody() {
    let mut f = busy(1);
    f.leased(DRIVER, 1, cpus(1.0));
    create(&mut f, 1);
    block(&mut f, W3, 2);
    for n in 0..u64::from(OVERTAKES_MAX) + 2 {
        let leases = f.leased(W3, 1, cpus(1.0));
        assert_eq!(leases.len(), 1, "child {n} of the task that waits");
        f.ask(W3, ToNode::ReturnLease { lease: leases[0].0 });
    }
}

#[test]
fn an_actor_in_a_bundle_never_gets_a_cpu_that_is_only_lent_there() {
    use crate::spec::{GroupStrategy, Strategy};
    let mut f = busy(2);
    let group = crate::id::GroupId(root(DRIVER).child(0, 90, 0));
    let (name, strategy, bundles) = (None, GroupStrategy::Pack, vec![cpus(1.0)]);
    f.ask(DRIVER, ToNode::CreateGroup { group, name, strategy, bundles, detached: false });
    let strategy = Strategy::Group { group, bundle: None };
    let shape = crate::spec::Shape { resources: cpus(1.0), strategy, ..Default::default() };
    f.ask(DRIVER, ToNode::WantLeases { pool: 0, shape, count: 1, depth: 0 });
    assert_eq!(granted(&f.hello(W3)), [(LeaseId(2), W3)]);
    block(&mut f, W3, 2);
    let mut spec = (*actor_spec(1, None, 0)).clone();
    Arc::make_mut(&mut spec.options).strategy = strategy;
    let spec = Arc::new(spec);
    f.submit(DRIVER, &spec);
    assert_eq!(f.ask(DRIVER, ToNode::CreateActor { spec, resolved: Vec::new() }), []);
    assert_eq!(spawned(&f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(2) })), [W4]);
}

#[test]
fn an_actor_for_which_everything_waits_gets_a_lent_cpu() {
    let mut f = busy(1);
    f.leased(DRIVER, 1, cpus(1.0));
    create(&mut f, 1);
    assert_eq!(block(&mut f, W3, 2), [], "something runs, and may end the wait");
    f.want_at(W3, 0, 1, cpus(1.0), 1);
    assert_eq!(granted(&f.hello(W4)), [(LeaseId(3), W4)]);
    assert_eq!(spawned(&f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) })), [], "a child runs on it");
    let effects = f.ask(W3, ToNode::ReturnLease { lease: LeaseId(3) });
    assert_eq!(spawned(&effects), [worker(5, 1)], "nothing runs, and no task could");
}

/// A machine of one CPU, which a lease has; an actor of no CPUs in the first worker runs a call.
fn with_a_call() -> (Fixture, Arc<TaskSpec>) {
    let mut f = Fixture::new(1);
    let first = spec(root(DRIVER), 1, TaskKind::Create(ActorOptions::default()), cpus(0.0));
    f.submit(DRIVER, &first);
    f.ask(DRIVER, ToNode::CreateActor { spec: first.clone(), resolved: Vec::new() });
    f.hello(W2);
    f.ask(W2, ToNode::ActorConstructed { actor: actor_of(&first), value: Value::inline(Vec::new()) });
    let call = plain(root(DRIVER), 7);
    f.submit(DRIVER, &call);
    f.start(W2, call.id);
    f.leased(DRIVER, 1, cpus(1.0));
    (f, call)
}

#[test]
fn a_call_that_runs_may_end_the_wait_so_an_actor_waits_for_its_end() {
    let (mut f, call) = with_a_call();
    create(&mut f, 2);
    assert_eq!(block(&mut f, W3, 1), []);
    assert_eq!(spawned(&f.finish(W2, call.id, Value::inline(Vec::new()))), [W4]);
}

fn create_group(f: &mut Fixture, each: f64) -> crate::id::GroupId {
    let group = crate::id::GroupId(root(DRIVER).child(0, 91, 0));
    let (name, strategy, bundles) = (None, crate::spec::GroupStrategy::Pack, vec![cpus(each)]);
    f.ask(DRIVER, ToNode::CreateGroup { group, name, strategy, bundles, detached: false });
    group
}

#[test]
fn a_placement_group_gets_no_cpu_that_is_only_lent() {
    let mut f = busy(2);
    f.leased(DRIVER, 1, cpus(1.0));
    block(&mut f, W3, 2);
    let group = create_group(&mut f, 2.0);
    assert_eq!(f.node.reserved_bundles().count(), 0, "one of the two CPUs is a task's that waits");
    let text = f.node.explain(group.0, f.now);
    assert!(text.contains("2 CPUs are free, but blocked tasks want 1 back"), "{text}");
    assert!(text.contains("a placement group would keep them"), "{text}");
    resume(&mut f, W3, 2);
    assert_eq!(f.node.debt, Amount(0), "its CPU was still there");
    f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(2) });
    assert_eq!(f.node.reserved_bundles().count(), 1);
}

#[test]
fn a_placement_group_for_which_everything_waits_gets_lent_cpus() {
    let mut f = busy(1);
    f.leased(DRIVER, 1, cpus(1.0));
    create_group(&mut f, 1.0);
    block(&mut f, W3, 2);
    assert_eq!(f.node.reserved_bundles().count(), 0, "something runs, and may end the wait");
    f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) });
    assert_eq!(f.node.reserved_bundles().count(), 1, "nothing runs, and no task could");
}

#[test]
fn a_call_that_runs_may_end_the_wait_so_a_placement_group_waits_for_its_end() {
    let (mut f, call) = with_a_call();
    create_group(&mut f, 1.0);
    block(&mut f, W3, 1);
    assert_eq!(f.node.reserved_bundles().count(), 0);
    f.finish(W2, call.id, Value::inline(Vec::new()));
    assert_eq!(f.node.reserved_bundles().count(), 1);
}

#[test]
fn what_a_waiting_task_keeps_may_stay_in_use_for_ever() {
    let mut f = Fixture::new(2);
    let gpu = Resources { gpus: Amount::whole(1), ..cpus(1.0) };
    let [(lease, worker)] = f.leased(DRIVER, 1, gpu)[..] else { panic!("one lease") };
    assert_eq!(f.node.lasting(), Resources::default());
    f.ask(worker, ToNode::Blocked { lease });
    assert_eq!(f.node.lasting(), Resources { gpus: Amount::whole(1), ..Resources::default() }, "it lends its CPU");
}
