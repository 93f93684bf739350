//! Wishes for leases, dispatch in depth, taking back, reclaiming, idle leases.

use super::*;
use crate::value::Body;

#[test]
fn wishes_are_repeated_only_when_they_have_grown_a_lot() {
    let mut bench = Bench::new();
    let mut wishes = Vec::new();
    for _ in 0..8 {
        let spec = bench.task();
        let effects = bench.submit(&spec);
        wishes.extend(effects.into_iter().filter(|e| matches!(e, Effect::Node(_))));
    }
    assert_eq!(wishes, [want(1, 1), want(8, 1)]);
}

#[test]
fn two_tasks_are_in_flight_per_lease_until_a_reply_tells_how_long_they_take() {
    let mut bench = Bench::new();
    let specs: Vec<TaskSpec> = (0..4).map(|_| bench.task()).collect();
    for spec in &specs {
        bench.submit(spec);
    }
    let effects = bench.grant(L1, W1);
    assert_eq!(effects, [run(L1, W1, &specs[0], vec![]), run(L1, W1, &specs[1], vec![]), want(3, 1)]);
    // 100 us each: ten fit into the millisecond ahead.
    let effects = bench.reply(&specs[0], value(0));
    assert_eq!(effects, [run(L1, W1, &specs[2], vec![]), run(L1, W1, &specs[3], vec![])]);
}

#[test]
fn a_long_task_is_sent_alone() {
    let mut bench = Bench::new();
    let specs: Vec<TaskSpec> = (0..3).map(|_| bench.task()).collect();
    for spec in &specs {
        bench.submit(spec);
    }
    bench.grant(L1, W1);
    let message = Peer::Reply { task: specs[0].id, attempt: 0, values: vec![value(0)], duration_us: 50_000 };
    assert_eq!(bench.peer(W1, message), [], "one runs, the third waits here");
    assert_eq!(bench.state(&specs[2]), Some(TaskState::Queued));
}

#[test]
fn an_idle_worker_gets_half_of_what_another_has_not_started() {
    let mut bench = Bench::new();
    let specs: Vec<TaskSpec> = (0..2).map(|_| bench.task()).collect();
    for spec in &specs {
        bench.submit(spec);
    }
    bench.grant(L1, W1);
    // The second of two on one worker could use a third lease.
    assert_eq!(bench.grant(L2, W2), [want(1, 0), say(W1, Peer::TakeBack { lease: L1, keep: 1 })]);
    let returned = Peer::Returned { lease: L1, tasks: vec![specs[1].id], blocked: false };
    let effects = bench.peer(W1, returned);
    assert_eq!(effects, [run(L2, W2, &specs[1], vec![])]);
    assert_eq!(bench.state(&specs[1]), Some(TaskState::Sent { lease: L2, worker: W2 }));
}

#[test]
fn a_blocked_lease_gets_nothing_until_its_task_replies() {
    let mut bench = Bench::new();
    let specs: Vec<TaskSpec> = (0..2).map(|_| bench.task()).collect();
    for spec in &specs {
        bench.submit(spec);
    }
    bench.grant(L1, W1);
    let returned = Peer::Returned { lease: L1, tasks: vec![specs[1].id], blocked: true };
    assert_eq!(bench.peer(W1, returned), []);
    assert_eq!(bench.state(&specs[1]), Some(TaskState::Queued));
    assert_eq!(bench.reply(&specs[0], value(0)), [run(L1, W1, &specs[1], vec![])]);
}

#[test]
fn a_reclaimed_lease_goes_back_when_its_last_task_has_replied() {
    let mut bench = Bench::new();
    let specs: Vec<TaskSpec> = (0..2).map(|_| bench.task()).collect();
    for spec in &specs {
        bench.submit(spec);
    }
    bench.grant(L1, W1);
    let effects = bench.node(FromNode::Reclaim { lease: L1 });
    assert_eq!(effects, [say(W1, Peer::TakeBack { lease: L1, keep: 1 })]);
    let returned = Peer::Returned { lease: L1, tasks: vec![specs[1].id], blocked: false };
    bench.peer(W1, returned);
    assert_eq!(bench.state(&specs[1]), Some(TaskState::Queued));
    let effects = bench.reply(&specs[0], value(0));
    assert_eq!(effects, [Effect::Node(ToNode::ReturnLease { lease: L1 })]);
    assert_eq!(bench.grant(L2, W2), [run(L2, W2, &specs[1], vec![])]);
}

#[test]
fn an_idle_lease_is_reclaimed_at_once() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    bench.reply(&spec, value(0));
    let effects = bench.node(FromNode::Reclaim { lease: L1 });
    assert_eq!(effects, [Effect::Node(ToNode::ReturnLease { lease: L1 })]);
    assert_eq!(bench.node(FromNode::Reclaim { lease: L1 }), []);
}

#[test]
fn an_idle_lease_goes_back_after_its_time() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    assert_eq!(bench.owner.deadline(), None);
    bench.reply(&spec, value(0));
    assert_eq!(bench.owner.deadline(), Some(bench.now.plus_us(LEASE_IDLE_US)));
    bench.now = bench.now.plus_us(LEASE_IDLE_US - 1);
    assert_eq!(bench.step(Event::Ticked), []);
    bench.now = bench.now.plus_us(1);
    assert_eq!(bench.step(Event::Ticked), [Effect::Node(ToNode::ReturnLease { lease: L1 })]);
}

#[test]
fn a_lease_for_nobody_is_returned_at_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.grant(L1, W1), [Effect::Node(ToNode::ReturnLease { lease: L1 })]);
}

#[test]
fn a_lease_on_a_worker_that_is_known_to_be_dead_is_returned_at_once() {
    let mut bench = Bench::new();
    let spec = bench.task();
    bench.submit(&spec);
    bench.die(W1);
    assert_eq!(bench.grant(L1, W1), [Effect::Node(ToNode::ReturnLease { lease: L1 })]);
    assert_eq!(bench.state(&spec), Some(TaskState::Queued));
}

#[test]
fn a_shape_that_the_machine_can_never_give_fails_all_and_later_tasks_ask_again() {
    let mut bench = Bench::new();
    let spec = bench.task();
    bench.submit(&spec);
    let (asked, available) = ("1 CPUs".to_owned(), "0 CPUs".to_owned());
    let failure = Failure::Infeasible { asked: asked.clone(), available: available.clone() };
    let effects = bench.node(FromNode::Infeasible { pool: 0, asked, available });
    assert_eq!(effects, [settled(&spec, failure)]);
    let later = bench.task();
    let effects = bench.submit(&later);
    assert_eq!(effects, [bench.submitted(&later), want(1, 1)]);
}

/// The mean run time is this; all leases are idle.
fn with_mean(bench: &mut Bench, duration_us: u32, leases: &[(LeaseId, ProcessId)]) {
    let spec = bench.task();
    bench.submit(&spec);
    for (lease, worker) in leases {
        bench.grant(*lease, *worker);
    }
    let worker = leases[0].1;
    bench.peer(worker, Peer::Reply { task: spec.id, attempt: 0, values: vec![value(0)], duration_us });
}

fn submit_many(bench: &mut Bench, count: usize) -> Vec<TaskSpec> {
    let specs: Vec<TaskSpec> = (0..count).map(|_| bench.task()).collect();
    specs.iter().for_each(|spec| drop(bench.submit(spec)));
    specs
}

fn sent_to(bench: &Bench, specs: &[TaskSpec], lease: LeaseId) -> usize {
    specs.iter().filter(|s| matches!(bench.state(s), Some(TaskState::Sent { lease: at, .. }) if at == lease)).count()
}

#[test]
fn tiny_tasks_are_packed_onto_a_busy_worker_before_another_is_woken() {
    let mut bench = Bench::new();
    // 10 us each: five are not worth a wake-up.
    with_mean(&mut bench, 10, &[(L1, W1), (L2, W2)]);
    let specs = submit_many(&mut bench, 5);
    assert_eq!((sent_to(&bench, &specs, L1), sent_to(&bench, &specs, L2)), (5, 0));
    let more = submit_many(&mut bench, 5);
    assert_eq!((sent_to(&bench, &more, L1), sent_to(&bench, &more, L2)), (0, 5));
}

#[test]
fn long_tasks_go_to_the_worker_with_the_fewest() {
    let mut bench = Bench::new();
    with_mean(&mut bench, 400, &[(L1, W1), (L2, W2)]);
    let specs = submit_many(&mut bench, 4);
    assert_eq!((sent_to(&bench, &specs, L1), sent_to(&bench, &specs, L2)), (2, 2));
}

#[test]
fn a_short_queue_that_moves_stays_and_one_that_is_stuck_is_halved() {
    let mut bench = Bench::new();
    with_mean(&mut bench, 10, &[(L1, W1), (L2, W2)]);
    let specs = submit_many(&mut bench, 4);
    assert_eq!(bench.step(Event::Ticked).iter().filter(|e| matches!(e, Effect::Send { .. })).count(), 0);
    let stuck_at = bench.now.plus_us(crate::owner::leases::STUCK_US);
    assert_eq!(bench.owner.deadline(), Some(stuck_at));
    bench.now = stuck_at;
    let effects = bench.step(Event::Ticked);
    assert_eq!(effects, [say(W1, Peer::TakeBack { lease: L1, keep: 2 })]);
    assert_eq!(bench.step(Event::Ticked), [], "asked once");
    let back: Vec<TaskId> = specs[2..].iter().map(|spec| spec.id).collect();
    bench.peer(W1, Peer::Returned { lease: L1, tasks: back, blocked: false });
    assert_eq!((sent_to(&bench, &specs, L1), sent_to(&bench, &specs, L2)), (4, 0), "packed again: the mean says so");
}

#[test]
fn a_wish_that_nothing_needs_any_more_is_withdrawn() {
    let mut bench = Bench::new();
    let specs = submit_many(&mut bench, 8);
    bench.grant(L1, W1);
    for spec in &specs {
        bench.reply(spec, value(0));
    }
    let effects = bench.step(Event::Ticked);
    assert_eq!(effects, [want(0, 0)]);
    assert_eq!(bench.step(Event::Ticked), []);
}

#[test]
fn tasks_of_two_environments_do_not_share_a_lease() {
    let mut bench = Bench::new();
    let first = bench.task();
    bench.submit(&first);
    let mut second = bench.task();
    Arc::make_mut(&mut second.options).environment = 7;
    let effects = bench.submit(&second);
    let resources = second.options.resources.clone();
    let wish = ToNode::WantLeases {
        pool: 1,
        shape: crate::spec::Shape { resources, environment: 7, ..Default::default() },
        count: 1,
        depth: 1,
    };
    assert_eq!(effects[1..], [Effect::Node(wish)]);
    assert_eq!(bench.node(FromNode::Granted { pool: 1, lease: L1, worker: W1 }), [run(L1, W1, &second, vec![])]);
}

#[test]
fn a_task_of_another_environment_is_not_sent_ahead_of_its_dependency() {
    let mut bench = Bench::new();
    let first = bench.sent_task();
    let needed = RefSpec { object: result(&first), owner: ME };
    let mut second = bench.spec(TaskKind::Plain, &[needed]);
    Arc::make_mut(&mut second.options).environment = 7;
    assert_eq!(bench.submit(&second).len(), 1, "only its record");
}

#[test]
fn a_lease_whose_worker_closes_gets_nothing_more_and_goes_back() {
    let mut bench = Bench::new();
    let (first, second) = (bench.task(), bench.task());
    bench.submit(&first);
    bench.submit(&second);
    bench.grant(L1, W1);
    let take_back = say(W1, Peer::TakeBack { lease: L1, keep: 1 });
    assert_eq!(bench.peer(W1, Peer::Closing { lease: L1 }), [take_back]);
    let back = Peer::Returned { lease: L1, tasks: vec![second.id], blocked: false };
    assert_eq!(bench.peer(W1, back), [], "it waits for the lease that was asked for");
    let effects = bench.reply(&first, Value::inline(vec![1]));
    assert!(effects.contains(&Effect::Node(ToNode::ReturnLease { lease: L1 })), "{effects:?}");
    assert_eq!(bench.grant(L2, W2), [run(L2, W2, &second, vec![])]);
}

#[test]
fn a_task_that_another_lease_gives_back_stays_where_it_is() {
    let mut bench = Bench::new();
    let (first, second) = (bench.sent_task(), bench.task());
    bench.submit(&second);
    bench.grant(L2, W2);
    let before = bench.state(&first);
    assert_eq!(before, Some(TaskState::Sent { lease: L1, worker: W1 }));
    let returned = Peer::Returned { lease: L2, tasks: vec![first.id], blocked: false };
    assert_eq!(bench.peer(W2, returned), []);
    assert_eq!(bench.state(&first), before);
}

#[test]
fn a_worker_is_not_sent_more_than_it_may_run() {
    let mut bench = Bench::new();
    let mut specs: Vec<TaskSpec> = (0..3).map(|_| bench.task()).collect();
    for spec in &mut specs {
        Arc::make_mut(&mut spec.options).calls_max = 1;
        bench.submit(spec);
    }
    assert_eq!(bench.grant(L1, W1), [run(L1, W1, &specs[0], vec![]), want(2, 1)]);
}

#[test]
fn a_lease_away_from_the_inputs_goes_back_as_soon_as_it_idles() {
    let mut bench = Bench::new();
    let [mine, home, other] = [1, 2, 3].map(crate::id::NodeId);
    bench.owner.me = ProcessId { node: mine, ..ME };
    let at = Location { node: home, entry: 1, generation: 2, offset: 64, len: crate::owner::leases::NEAR_BYTES_MIN };
    let input = RefSpec { object: ObjectId::put(bench.root, 0, 1, 0), owner: bench.owner.me };
    let value_there = Value { body: Body::Stored(at), nested: vec![] };
    bench.step(Event::Put { object: input.object, digest: 3, value: value_there, recorded: false });
    for (lease, node, goes_back) in [(L1, other, true), (L2, home, false)] {
        let spec = bench.spec(TaskKind::Plain, &[input]);
        bench.submit(&spec);
        let worker = ProcessId { node, ..W1 };
        bench.grant(lease, worker);
        assert_eq!(bench.state(&spec), Some(TaskState::Sent { lease, worker }));
        let reply = Peer::Reply { task: spec.id, attempt: 0, values: vec![value(0)], duration_us: 100 };
        let effects = bench.peer(worker, reply);
        assert_eq!(effects.contains(&Effect::Node(ToNode::ReturnLease { lease })), goes_back, "{node}");
    }
}

#[test]
fn a_pool_of_which_nothing_is_left_is_forgotten_and_its_number_not_used_again() {
    let mut bench = Bench::new();
    for trial in 0..100u32 {
        // A shape for each trial, as with one environment or placement group each.
        let mut spec = bench.task();
        let options = TaskOptions { environment: 1 + u64::from(trial), ..(*spec.options).clone() };
        spec.options = Arc::new(options);
        bench.submit(&spec);
        let lease = LeaseId(1 + u64::from(trial));
        bench.node(FromNode::Granted { pool: trial, lease, worker: W1 });
        bench.reply(&spec, value(0));
        bench.drop_result(&spec);
        bench.now = bench.owner.deadline().unwrap();
        assert_eq!(bench.step(Event::Ticked), [Effect::Node(ToNode::ReturnLease { lease })]);
        assert_eq!(bench.owner.pools.len(), 0);
    }
    // A grant that was under way.
    let late = LeaseId(1_000);
    let effects = bench.node(FromNode::Granted { pool: 7, lease: late, worker: W1 });
    assert_eq!(effects, [Effect::Node(ToNode::ReturnLease { lease: late })]);
}

#[test]
fn a_lease_that_comes_when_nothing_needs_it_goes_back_with_the_wish() {
    let mut bench = Bench::new();
    let specs: Vec<TaskSpec> = (0..2).map(|_| bench.task()).collect();
    for spec in &specs {
        bench.submit(spec);
    }
    // Two tasks in flight on one worker, and a wish for a second one stands.
    assert!(bench.grant(L1, W1).contains(&want(1, 0)));
    for spec in &specs {
        bench.reply(spec, value(0));
    }
    assert_eq!(bench.grant(L2, W2), [Effect::Node(ToNode::ReturnLease { lease: L2 })]);
    // The first stays for the next task.
    let next = bench.task();
    assert_eq!(bench.submit(&next), [bench.submitted(&next), run(L1, W1, &next, vec![])]);
}

#[test]
fn who_asks_what_is_free_takes_back_what_nothing_needs() {
    let mut bench = Bench::new();
    let specs: Vec<TaskSpec> = (0..2).map(|_| bench.task()).collect();
    for spec in &specs {
        bench.submit(spec);
    }
    bench.grant(L1, W1);
    assert_eq!(bench.step(Event::FreeAsked), [], "the second task could use another worker");
    for spec in &specs {
        bench.reply(spec, value(0));
    }
    assert_eq!(bench.step(Event::FreeAsked), [want(0, 0)]);
    assert_eq!(bench.step(Event::FreeAsked), []);
}

#[test]
fn nothing_is_asked_back_while_every_worker_is_busy() {
    let mut bench = Bench::new();
    with_mean(&mut bench, 100, &[(L1, W1), (L2, W2)]);
    let specs = submit_many(&mut bench, 20);
    assert!(sent_to(&bench, &specs, L1) > 3 && sent_to(&bench, &specs, L2) > 3);
    let with_first = |spec: &&TaskSpec| matches!(bench.state(spec), Some(TaskState::Sent { lease: L1, .. }));
    let task = specs.iter().find(with_first).unwrap().id;
    let effects = bench.peer(W1, Peer::Reply { task, attempt: 0, values: vec![value(0)], duration_us: 100 });
    assert!(!effects.iter().any(|e| matches!(e, Effect::Send { message: Peer::TakeBack { .. }, .. })), "{effects:?}");
    bench.now = bench.now.plus_us(crate::owner::leases::STUCK_US);
    assert_eq!(bench.step(Event::Ticked), [], "nobody idles who could have it");
    assert_eq!(bench.owner.deadline(), None);
}
