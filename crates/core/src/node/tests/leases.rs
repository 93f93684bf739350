use super::*;
use crate::node::leases::RECLAIM_AFTER_US;
use crate::node::queue::OVERTAKES_MAX;

#[test]
fn an_infeasible_shape_is_refused_at_once() {
    let mut f = Fixture::new(2);
    let effects = f.want(DRIVER, 1, cpus(3.0));
    let infeasible = FromNode::Infeasible {
        pool: 0,
        asked: "3 CPUs".into(),
        available: "2 CPUs, 1 GPUs, 1000 bytes of memory".into(),
    };
    assert_eq!(effects, [to(DRIVER, infeasible)]);
}

#[test]
fn a_wish_spawns_a_worker_and_is_granted_when_it_says_hello() {
    let mut f = Fixture::new(2);
    assert_eq!(f.want(DRIVER, 1, cpus(1.0)), [Effect::Spawn(W2)]);
    assert_eq!(f.want(DRIVER, 1, cpus(1.0)), [], "the same wish again changes nothing");
    assert_eq!(f.hello(W2), grant_effects(DRIVER, 0, 1, W2));
    assert_eq!(f.hello(W2), [], "a second hello changes nothing");
}

#[test]
fn a_withdrawn_wish_leaves_an_idle_worker_that_the_next_wish_gets_at_once() {
    let mut f = Fixture::new(2);
    f.want(DRIVER, 1, cpus(2.0));
    assert_eq!(f.want(DRIVER, 0, cpus(2.0)), []);
    assert_eq!(f.hello(W2), []);
    assert_eq!(f.want(DRIVER, 1, cpus(2.0)), grant_effects(DRIVER, 0, 2, W2));
}

#[test]
fn a_returned_lease_is_closed_and_its_worker_reused() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 1, cpus(1.0));
    let closed = to(W2, FromNode::LeaseClosed { lease: LeaseId(1) });
    assert_eq!(f.ask(W2, ToNode::ReturnLease { lease: LeaseId(1) }), [], "not the owner");
    assert_eq!(f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) }), [closed]);
    assert_eq!(f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) }), []);
    assert_eq!(f.want(DRIVER, 1, cpus(1.0)), grant_effects(DRIVER, 0, 2, W2));
}

#[test]
fn deeper_wishes_go_first_then_those_who_came_first() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 1, cpus(1.0));
    f.want_at(DRIVER, 1, 1, cpus(0.5), 0);
    f.want_at(DRIVER, 2, 1, cpus(1.0), 5);
    f.want_at(DRIVER, 3, 1, cpus(1.0), 5);
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) });
    assert_eq!(effects[1..], grant_effects(DRIVER, 2, 2, W2));
}

#[test]
fn who_got_a_lease_and_wants_more_queues_behind_its_equals() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 9, cpus(1.0));
    f.want_at(DRIVER, 1, 1, cpus(1.0), 0);
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) });
    assert_eq!(effects[1..4], grant_effects(DRIVER, 0, 2, W2), "the first wish is still in front of the second");
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(2) });
    assert_eq!(effects[1..4], grant_effects(DRIVER, 1, 3, W2), "then the second has its turn");
}

#[test]
fn a_big_wish_is_overtaken_a_bounded_number_of_times() {
    let mut f = Fixture::new(2);
    let mut held: Vec<LeaseId> = f.leased(DRIVER, 2, cpus(1.0)).into_iter().map(|(lease, _)| lease).collect();
    f.want_at(DRIVER, 1, 1, cpus(2.0), 0);
    f.want_at(DRIVER, 2, 1_000, cpus(1.0), 0);
    for _ in 0..OVERTAKES_MAX {
        let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: held.remove(0) });
        held.extend(granted(&effects).into_iter().map(|(lease, _)| lease));
        assert_eq!(held.len(), 2, "a small one goes first");
    }
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: held.remove(0) });
    assert_eq!(granted(&effects), [], "the CPU is kept for the big one");
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: held.remove(0) });
    assert!(effects.iter().any(|e| matches!(e, Effect::Send { message: FromNode::Granted { pool: 1, .. }, .. })));
}

#[test]
fn nothing_is_kept_for_one_that_waits_for_what_a_blocked_task_holds() {
    let mut f = Fixture::new(2);
    let gpu = Resources { gpus: Amount::whole(1), ..cpus(1.0) };
    let (parent, _) = f.leased(DRIVER, 1, gpu.clone())[0];
    f.ask(W2, ToNode::Blocked { lease: parent });
    f.want_at(DRIVER, 1, 1, Resources { cpus: Amount::whole(2), ..gpu }, 0);
    for n in 0..=OVERTAKES_MAX {
        let effects = f.want_at(DRIVER, 2 + n, 1, cpus(1.0), 0);
        let more: Vec<Effect> = spawned(&effects).into_iter().flat_map(|p| f.hello(p)).collect();
        let leases = granted(&[effects, more].concat());
        assert_eq!(leases.len(), 1, "the child of the blocked task must run, else nothing ever ends");
        f.ask(DRIVER, ToNode::ReturnLease { lease: leases[0].0 });
    }
}

#[test]
fn a_blocked_task_gives_its_cpu_and_takes_it_again_into_debt() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 1, cpus(1.0));
    assert_eq!(f.ask(DRIVER, ToNode::Blocked { lease: LeaseId(1) }), [], "only its worker can say so");
    assert_eq!(f.ask(W2, ToNode::Blocked { lease: LeaseId(1) }), []);
    assert_eq!(f.want_at(W2, 0, 1, cpus(1.0), 1), [Effect::Spawn(W3)], "never a lease on oneself");
    assert_eq!(f.hello(W3), grant_effects(W2, 0, 2, W3));
    let reclaim = to(W2, FromNode::Reclaim { lease: LeaseId(2) });
    assert_eq!(f.ask(W2, ToNode::Unblocked { lease: LeaseId(1) }), [reclaim]);
    assert_eq!((f.node.free.cpus, f.node.debt), (Amount(0), Amount::whole(1)));
    let effects = f.ask(W2, ToNode::ReturnLease { lease: LeaseId(2) });
    assert_eq!(effects, [to(W3, FromNode::LeaseClosed { lease: LeaseId(2) })]);
    assert_eq!((f.node.free.cpus, f.node.debt), (Amount(0), Amount(0)), "the debt is paid first");
}

#[test]
fn a_lease_that_goes_while_blocked_gives_back_only_what_it_still_holds() {
    let mut f = Fixture::new(1);
    let gpu = Resources { gpus: Amount::whole(1), ..cpus(1.0) };
    f.leased(DRIVER, 1, gpu);
    f.ask(W2, ToNode::Blocked { lease: LeaseId(1) });
    assert_eq!((f.node.free.cpus, f.node.free.gpus), (Amount::whole(1), Amount(0)), "only CPUs come back");
    f.exit(W2);
    assert_eq!(f.node.free, f.node.config.total);
}

#[test]
fn nested_blocked_tasks_share_processes_up_to_the_cap() {
    let mut total = Resources::cpus(Amount::whole(1));
    total.memory_bytes = 100;
    let mut config = NodeConfig::for_machine(total);
    (config.prestart, config.threads_per_process_max) = (0, 4);
    let mut f = Fixture::with(config);
    let mut owner = DRIVER;
    for depth in 0..16 {
        let mut effects = f.want_at(owner, 0, 1, cpus(1.0), depth);
        for process in spawned(&effects) {
            effects.extend(f.hello(process));
        }
        let (lease, on) = granted(&effects)[0];
        assert_ne!(on, owner, "GRANT-1");
        f.ask(on, ToNode::Blocked { lease });
        owner = on;
    }
    assert_eq!(f.node.pool.workers.len(), 4, "16 tasks in 4 processes of 4 threads");
}

#[test]
fn tasks_with_a_memory_limit_never_share() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 1, cpus(1.0));
    f.ask(W2, ToNode::Blocked { lease: LeaseId(1) });
    let limited = Resources { memory_bytes: 10, ..cpus(1.0) };
    assert_eq!(f.want_at(DRIVER, 1, 1, limited, 1), [Effect::Spawn(W3)], "a limited one is no guest");
    f.hello(W3);
    f.ask(W3, ToNode::Blocked { lease: LeaseId(2) });
    let effects = f.want_at(DRIVER, 2, 1, cpus(1.0), 2);
    assert_eq!(granted(&effects), [(LeaseId(3), W2)], "and no host");
}

#[test]
fn a_lease_in_the_way_is_asked_for_once_after_its_time() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 1, cpus(1.0));
    assert_eq!(f.want_at(DRIVER, 1, 1, cpus(0.5), 0), [], "too early");
    assert_eq!(f.node.deadline(), Some(Tick(RECLAIM_AFTER_US)));
    f.now = Tick(RECLAIM_AFTER_US);
    let reclaim = to(DRIVER, FromNode::Reclaim { lease: LeaseId(1) });
    assert_eq!(f.step(Event::Ticked), [reclaim]);
    assert_eq!(f.step(Event::Ticked), []);
    assert_eq!(f.node.deadline(), None);
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) });
    assert_eq!(effects[1..], grant_effects(DRIVER, 1, 2, W2));
}

#[test]
fn an_owner_is_not_asked_for_leases_of_the_shape_that_it_waits_for() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 5, cpus(1.0));
    f.now = Tick(RECLAIM_AFTER_US);
    assert_eq!(f.step(Event::Ticked), []);
}

#[test]
fn what_there_is_and_what_is_free_is_one_small_answer() {
    let mut f = Fixture::new(2);
    f.leased(DRIVER, 1, cpus(1.5));
    f.start(W2, plain(root(DRIVER), 1).id);
    let effects = f.ask(DRIVER, ToNode::QueryResources { request: 3 });
    let [Effect::Send { to: DRIVER, message: FromNode::Resources { request: 3, row } }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(row.total.cpus, Amount::whole(2));
    assert_eq!(row.free.cpus, Amount(5_000));
    assert_eq!((row.debt, row.queued), (Amount(0), 0));
}
