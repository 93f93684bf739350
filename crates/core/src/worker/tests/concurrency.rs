//! Actors that run several calls at once.

use super::*;

/// An actor that runs two at once, with two calls of `OWNER` that run and one that waits.
fn two_run_and_one_waits() -> (Bench, ActorId, [Arc<TaskSpec>; 3]) {
    let (mut bench, actor) = Bench::hosting_with(2);
    let calls = [0, 1, 2].map(|sequence| bench.call(actor, OWNER, sequence));
    for call in &calls[..2] {
        assert_eq!(bench.run(OWNER, ACTOR_SEAT, call), [started(&bench, call), execute(ACTOR_SEAT, call)]);
    }
    assert_eq!(bench.run(OWNER, ACTOR_SEAT, &calls[2]), []);
    (bench, actor, calls)
}

fn cancel(task: &TaskSpec) -> Event {
    Event::FromPeer { peer: OWNER, message: Peer::Cancel { task: task.id, recursive: true } }
}

#[test]
fn calls_start_in_order_up_to_the_limit_and_end_in_any_order_wrk_1() {
    let (mut bench, _, [first, second, third]) = two_run_and_one_waits();
    let effects = bench.finish(ACTOR_SEAT, &second, value(2));
    let ended = [finished(&bench, &second, value(2)), reply(OWNER, &second, value(2))];
    assert_eq!(effects[..2], ended);
    assert_eq!(effects[2..], [started(&bench, &third), execute(ACTOR_SEAT, &third)]);
    assert!(bench.worker.is_running(&first.id) && bench.worker.is_running(&third.id));
    assert_eq!(bench.finish(ACTOR_SEAT, &second, value(9)), [], "it ended already");
    for call in [&third, &first] {
        let effects = bench.finish(ACTOR_SEAT, call, value(1));
        assert_eq!(effects, [finished(&bench, call, value(1)), reply(OWNER, call, value(1))]);
    }
    let next = bench.call(ActorId(first.parent), OWNER, 3);
    assert_eq!(bench.run(OWNER, ACTOR_SEAT, &next).len(), 2, "there is room again");
}

#[test]
fn the_constructor_runs_alone_and_then_the_calls_begin_together_wrk_1() {
    let (mut bench, creation) = Bench::constructing(3);
    let calls: Vec<_> = (0..4).map(|sequence| bench.call(ActorId(creation.id), OWNER, sequence)).collect();
    for call in &calls {
        assert_eq!(bench.run(OWNER, ACTOR_SEAT, call), []);
    }
    let effects = bench.finish(ACTOR_SEAT, &creation, value(0));
    let begun: Vec<_> = calls[..3].iter().flat_map(|c| [started(&bench, c), execute(ACTOR_SEAT, c)]).collect();
    assert_eq!(effects[2..], begun);
}

#[test]
fn a_limit_of_none_is_a_limit_of_one() {
    let (mut bench, actor) = Bench::hosting_with(0);
    let (first, second) = (bench.call(actor, OWNER, 0), bench.call(actor, OWNER, 1));
    assert_eq!(bench.run(OWNER, ACTOR_SEAT, &first).len(), 2);
    assert_eq!(bench.run(OWNER, ACTOR_SEAT, &second), []);
}

#[test]
fn one_of_several_running_calls_is_cancelled_by_its_id() {
    let (mut bench, _, calls) = two_run_and_one_waits();
    for call in &calls[..2] {
        let asked = [Effect::Flag(call.id), Effect::Refs(RefsMoved::ParentCancelled(call.id))];
        assert_eq!(bench.step(cancel(call)), asked);
    }
    let failed = Value::failed(Failure::Cancelled { task: calls[2].id });
    let ended = [finished(&bench, &calls[2], failed.clone()), reply(OWNER, &calls[2], failed)];
    assert_eq!(bench.step(cancel(&calls[2])), ended, "it had not started");
    assert_eq!(bench.finish(ACTOR_SEAT, &calls[0], value(1)).len(), 2, "nothing is left to start");
}

#[test]
fn a_waiting_call_of_a_concurrent_actor_keeps_the_cpu_but_its_constructor_gives_it_back() {
    let (mut bench, _, calls) = two_run_and_one_waits();
    assert_eq!(bench.step(Event::Blocked { lease: ACTOR_SEAT }), []);
    assert_eq!(bench.step(Event::Unblocked { lease: ACTOR_SEAT }), []);
    bench.step(Event::Blocked { lease: ACTOR_SEAT });
    let effects = bench.finish(ACTOR_SEAT, &calls[0], value(1));
    assert_eq!(effects[0], finished(&bench, &calls[0], value(1)), "there is no CPU to take again");

    let (mut bench, creation) = Bench::constructing(2);
    let blocked = bench.step(Event::Blocked { lease: ACTOR_SEAT });
    assert_eq!(blocked, [Effect::Node(ToNode::Blocked { lease: ACTOR_SEAT })]);
    let effects = bench.finish(ACTOR_SEAT, &creation, value(0));
    assert_eq!(effects[0], Effect::Node(ToNode::Unblocked { lease: ACTOR_SEAT }));
}

#[test]
fn a_dead_callers_running_calls_end_silently_and_the_others_are_answered() {
    let (mut bench, actor) = Bench::hosting_with(2);
    let calls = [(OTHER, 0), (OWNER, 0), (OTHER, 1), (OWNER, 1)].map(|(who, at)| (who, bench.call(actor, who, at)));
    for (caller, call) in &calls {
        bench.run(*caller, ACTOR_SEAT, call);
    }
    assert_eq!(bench.die(OTHER), []);
    let [(_, first), (_, second), _, (_, fourth)] = &calls;
    let effects = bench.finish(ACTOR_SEAT, first, value(1));
    let next = [finished(&bench, first, value(1)), started(&bench, fourth), execute(ACTOR_SEAT, fourth)];
    assert_eq!(effects, next, "recorded and told to nobody; the dead caller's second call is dropped");
    let effects = bench.finish(ACTOR_SEAT, second, value(2));
    assert_eq!(effects, [finished(&bench, second, value(2)), reply(OWNER, second, value(2))]);
}

#[test]
fn the_death_of_its_owner_leaves_a_concurrent_actor_its_seat() {
    let (mut bench, _, [first, second, _]) = two_run_and_one_waits();
    assert_eq!(bench.die(OWNER), []);
    for call in [&first, &second] {
        assert_eq!(bench.finish(ACTOR_SEAT, call, value(1)), [finished(&bench, call, value(1))]);
    }
}

#[test]
fn a_retiring_actor_exits_when_nothing_runs_and_nothing_waits() {
    let (mut bench, _, [first, second, third]) = two_run_and_one_waits();
    assert_eq!(bench.node(FromNode::Retire), []);
    for call in [&second, &first] {
        assert!(!bench.finish(ACTOR_SEAT, call, value(1)).contains(&Effect::Exit));
    }
    assert_eq!(bench.finish(ACTOR_SEAT, &third, value(1)).last(), Some(&Effect::Exit));
}

#[test]
fn taking_back_counts_all_running_calls_among_those_kept_wrk_3() {
    let (mut bench, actor, calls) = two_run_and_one_waits();
    let fourth = bench.call(actor, OWNER, 3);
    bench.run(OWNER, ACTOR_SEAT, &fourth);
    let take = |keep| Event::FromPeer { peer: OWNER, message: Peer::TakeBack { lease: ACTOR_SEAT, keep } };
    let back = |call: &TaskSpec| {
        let message = Peer::Returned { lease: ACTOR_SEAT, tasks: vec![call.id], blocked: false };
        [Effect::Send { to: OWNER, message }]
    };
    assert_eq!(bench.step(take(3)), back(&fourth));
    assert_eq!(bench.step(take(0)), back(&calls[2]), "what runs stays");
}
