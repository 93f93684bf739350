//! Actors as their callers see them.

use super::*;

fn created(bench: &mut Bench) -> (ActorId, TaskSpec) {
    let spec = bench.spec(TaskKind::Create(ActorOptions::default()), &[]);
    bench.submit(&spec);
    (ActorId(spec.id), spec)
}

fn placed(bench: &mut Bench) -> (ActorId, TaskSpec) {
    let (actor, spec) = created(bench);
    bench.node(FromNode::ActorCreated { actor, value: value(0) });
    bench.node(FromNode::ActorAt { actor, process: W1, incarnation: 0, concurrency_max: 1 });
    (actor, spec)
}

fn call_spec(bench: &mut Bench, actor: ActorId, sequence: u64, dependencies: &[RefSpec]) -> TaskSpec {
    bench.spec(TaskKind::Call { actor, caller: ME, sequence }, dependencies)
}

fn reply_to(bench: &mut Bench, spec: &TaskSpec, value: Value) -> Vec<Effect> {
    bench.peer(W1, Peer::Reply { task: spec.id, attempt: spec.attempt, values: vec![value], duration_us: 1 })
}

fn died(actor: ActorId) -> Failure {
    Failure::ActorDied { actor, reason: "gone".into() }
}

#[test]
fn a_constructor_goes_to_the_node_and_is_watched() {
    let mut bench = Bench::new();
    let spec = bench.spec(TaskKind::Create(ActorOptions::default()), &[]);
    let effects = bench.submit(&spec);
    let create = ToNode::CreateActor { spec: Arc::new(spec.clone()), resolved: vec![] };
    let watch = ToNode::WatchActor { actor: ActorId(spec.id), manager: crate::id::NodeId::ALONE };
    assert_eq!(effects, [bench.submitted(&spec), Effect::Node(create), Effect::Node(watch)]);
    assert_eq!(bench.state(&spec), Some(TaskState::Constructing));
}

#[test]
fn calls_wait_for_their_actor_and_leave_in_order() {
    let mut bench = Bench::new();
    let (actor, _) = created(&mut bench);
    let calls: Vec<TaskSpec> = (0..3).map(|sequence| call_spec(&mut bench, actor, sequence, &[])).collect();
    for call in &calls {
        let effects = bench.submit(call);
        assert_eq!(effects, [bench.submitted(call)]);
    }
    let effects = bench.node(FromNode::ActorAt { actor, process: W1, incarnation: 0, concurrency_max: 1 });
    let runs: Vec<Effect> = (1..).zip(&calls).map(|(number, call)| called(number, W1, call, vec![])).collect();
    assert_eq!(effects, runs);
    assert_eq!(bench.state(&calls[0]), Some(TaskState::CallSent { process: W1 }));
}

#[test]
fn a_call_that_waits_for_its_argument_holds_the_ones_behind_it() {
    let mut bench = Bench::new();
    let (actor, _) = placed(&mut bench);
    let argument = bench.sent_task();
    let first = call_spec(&mut bench, actor, 0, &[mine(&argument)]);
    let second = call_spec(&mut bench, actor, 1, &[]);
    bench.submit(&first);
    assert_eq!(bench.submit(&second), [bench.submitted(&second)]);
    let effects = bench.reply(&argument, value(9));
    assert_eq!(effects, [called(1, W1, &first, vec![value(9)]), called(2, W1, &second, vec![])]);
}

#[test]
fn cancelling_the_call_that_holds_the_others_lets_them_go() {
    let mut bench = Bench::new();
    let (actor, _) = placed(&mut bench);
    let argument = bench.sent_task();
    let first = call_spec(&mut bench, actor, 0, &[mine(&argument)]);
    let second = call_spec(&mut bench, actor, 1, &[]);
    bench.submit(&first);
    bench.submit(&second);
    let effects = bench.step(Event::Cancelled { object: result(&first), force: false, recursive: true });
    assert_eq!(effects, [cancelled(&first), called(1, W1, &second, vec![])]);
}

#[test]
fn a_call_with_a_failed_argument_fails_alone() {
    let mut bench = Bench::new();
    let (actor, _) = placed(&mut bench);
    let argument = bench.sent_task();
    let first = call_spec(&mut bench, actor, 0, &[mine(&argument)]);
    let second = call_spec(&mut bench, actor, 1, &[]);
    bench.submit(&first);
    bench.submit(&second);
    let effects = bench.reply(&argument, Value::failed(Failure::ShutDown));
    assert_eq!(effects, [settled(&first, Failure::ShutDown), called(1, W1, &second, vec![])]);
}

#[test]
fn a_sent_call_is_asked_to_stop_and_never_costs_the_actor() {
    let mut bench = Bench::new();
    let (actor, _) = placed(&mut bench);
    let call = call_spec(&mut bench, actor, 0, &[]);
    bench.submit(&call);
    let effects = bench.step(Event::Cancelled { object: result(&call), force: true, recursive: true });
    assert_eq!(effects, [say(W1, Peer::Cancel { task: call.id, recursive: true })]);
    assert_eq!(bench.owner.deadline(), None);
}

#[test]
fn after_a_restart_lost_calls_are_asked_about_and_sent_again_in_order_before_later_ones() {
    let mut bench = Bench::new();
    let (actor, _) = placed(&mut bench);
    let calls: Vec<TaskSpec> = (0..4).map(|sequence| call_spec(&mut bench, actor, sequence, &[])).collect();
    for call in &calls[..3] {
        bench.submit(call);
    }
    let effects = bench.node(FromNode::ActorRestarting { actor, reason: "gone".into(), moved: false });
    let questions: Vec<Effect> = (0..3).map(|i| ask(FIRST_REQUEST + i, &calls[i as usize])).collect();
    assert_eq!(effects, questions);
    bench.submit(&calls[3]);
    assert_eq!(
        bench.node(FromNode::ActorAt { actor, process: W2, incarnation: 1, concurrency_max: 1 }),
        [],
        "answers come first"
    );
    assert_eq!(bench.answer(FIRST_REQUEST, Adoption::Finished(vec![value(1)])), []);
    let [second, third] = [again(&calls[1]), again(&calls[2])];
    // The answers may come in any order.
    let effects = bench.answer(FIRST_REQUEST + 2, Adoption::New);
    assert_eq!(effects, [bench.submitted(&third)]);
    let effects = bench.answer(FIRST_REQUEST + 1, Adoption::New);
    let runs = [(1, &second), (2, &third), (3, &calls[3])].map(|(number, call)| called(number, W2, call, vec![]));
    assert_eq!(effects[0], bench.submitted(&second));
    assert_eq!(effects[1..], runs);
    assert_eq!(bench.owner.value(&result(&calls[0])), Some(&value(1)));
}

#[test]
fn a_call_that_an_actor_had_not_begun_when_it_moved_goes_to_its_next_life_and_is_no_retry() {
    let mut bench = Bench::new();
    let (actor, _) = placed(&mut bench);
    let mut call = call_spec(&mut bench, actor, 0, &[]);
    Arc::make_mut(&mut call.options).retries_max = 0;
    bench.submit(&call);
    bench.node(FromNode::ActorRestarting { actor, reason: "it moves".into(), moved: true });
    bench.node(FromNode::ActorAt { actor, process: W2, incarnation: 1, concurrency_max: 1 });
    let effects = bench.answer(FIRST_REQUEST, Adoption::New);
    let second = again(&call);
    assert_eq!(effects, [bench.submitted(&second), called(1, W2, &second, vec![])]);
}

#[test]
fn a_lost_call_without_retries_fails_and_the_rest_go_on() {
    let mut bench = Bench::new();
    let (actor, _) = placed(&mut bench);
    let mut call = call_spec(&mut bench, actor, 0, &[]);
    Arc::make_mut(&mut call.options).retries_max = 0;
    bench.submit(&call);
    bench.node(FromNode::ActorRestarting { actor, reason: "gone".into(), moved: false });
    bench.answer(FIRST_REQUEST, Adoption::New);
    assert!(matches!(bench.owner.value(&result(&call)).unwrap().failure(), Some(Failure::ActorDied { .. })));
    let later = call_spec(&mut bench, actor, 1, &[]);
    bench.submit(&later);
    let effects = bench.node(FromNode::ActorAt { actor, process: W2, incarnation: 1, concurrency_max: 1 });
    assert_eq!(effects, [called(1, W2, &later, vec![])]);
}

#[test]
fn a_dead_actor_fails_queued_and_later_calls_at_once() {
    let mut bench = Bench::new();
    let (actor, _) = created(&mut bench);
    let queued = call_spec(&mut bench, actor, 0, &[]);
    bench.submit(&queued);
    let effects = bench.node(FromNode::ActorDead { actor, reason: "gone".into() });
    assert_eq!(effects, [settled(&queued, died(actor))]);
    let later = call_spec(&mut bench, actor, 1, &[]);
    let effects = bench.submit(&later);
    assert_eq!(effects, [bench.submitted(&later), settled(&later, died(actor))]);
    assert_eq!(
        bench.node(FromNode::ActorAt { actor, process: W1, incarnation: 0, concurrency_max: 1 }),
        [],
        "dead stays dead"
    );
}

#[test]
fn the_last_handle_releases_the_actor_after_its_last_call() {
    let mut bench = Bench::new();
    let (actor, creation) = placed(&mut bench);
    let call = call_spec(&mut bench, actor, 0, &[]);
    bench.submit(&call);
    assert_eq!(bench.drop_result(&creation), [], "the call keeps it");
    let effects = reply_to(&mut bench, &call, value(1));
    assert_eq!(effects, [freed(result(&creation)), Effect::Node(ToNode::ReleaseActor { actor })]);
    bench.drop_result(&call);
    bench.assert_at_rest();
}

#[test]
fn the_references_of_a_constructor_are_lent_once_per_life_and_go_with_the_actor() {
    let mut bench = Bench::new();
    let object = ObjectId::put(bench.root, 0, 99, 0);
    bench.step(Event::Put { object, digest: 3, value: value(1), recorded: false });
    let argument = RefSpec { object, owner: ME };
    let creation = TaskSpec { nested: vec![argument], ..bench.spec(TaskKind::Create(ActorOptions::default()), &[]) };
    bench.submit(&creation);
    bench.step(Event::RefDropped(object));
    let actor = ActorId(creation.id);
    let at = |process, incarnation| FromNode::ActorAt { actor, process, incarnation, concurrency_max: 1 };
    bench.node(at(W1, 0));
    bench.node(at(W1, 0));
    bench.node(FromNode::ActorCreated { actor, value: value(0) });
    assert_eq!(bench.peer(W1, Peer::GiveBack { object, count: 1 }), []);
    let effects = bench.drop_result(&creation);
    let release = Effect::Node(ToNode::ReleaseActor { actor });
    assert_eq!(effects, [freed(result(&creation)), freed(object), release]);
    bench.assert_at_rest();
}

#[test]
fn an_actor_whose_constructor_cannot_run_fails_its_calls() {
    let mut bench = Bench::new();
    let argument = bench.sent_task();
    let creation = bench.spec(TaskKind::Create(ActorOptions::default()), &[mine(&argument)]);
    bench.submit(&creation);
    let actor = ActorId(creation.id);
    let call = call_spec(&mut bench, actor, 0, &[]);
    let effects = bench.submit(&call);
    assert_eq!(
        effects,
        [Effect::Node(ToNode::WatchActor { actor, manager: crate::id::NodeId::ALONE }), bench.submitted(&call)]
    );
    // The node cannot know the actor yet.
    assert_eq!(bench.node(FromNode::ActorDead { actor, reason: "unknown".into() }), []);
    let effects = bench.reply(&argument, Value::failed(Failure::ShutDown));
    let reason = "its constructor did not run: the runtime was shut down".to_owned();
    assert_eq!(effects, [settled(&creation, Failure::ShutDown), settled(&call, Failure::ActorDied { actor, reason })]);
    for spec in [&argument, &creation, &call] {
        bench.drop_result(spec);
    }
    bench.assert_at_rest();
}

#[test]
fn calls_that_came_before_their_constructor_could_run_are_sent_when_it_has() {
    let mut bench = Bench::new();
    let argument = bench.sent_task();
    let creation = bench.spec(TaskKind::Create(ActorOptions::default()), &[mine(&argument)]);
    bench.submit(&creation);
    let actor = ActorId(creation.id);
    let call = call_spec(&mut bench, actor, 0, &[]);
    bench.submit(&call);
    bench.node(FromNode::ActorDead { actor, reason: "unknown".into() });
    let effects = bench.reply(&argument, value(2));
    let create = ToNode::CreateActor { spec: Arc::new(creation.clone()), resolved: vec![value(2)] };
    assert_eq!(
        effects,
        [Effect::Node(create), Effect::Node(ToNode::WatchActor { actor, manager: crate::id::NodeId::ALONE })]
    );
    let effects = bench.node(FromNode::ActorAt { actor, process: W1, incarnation: 0, concurrency_max: 1 });
    assert_eq!(effects, [called(1, W1, &call, vec![])]);
}

#[test]
fn cancelling_a_constructor_kills_the_actor() {
    let mut bench = Bench::new();
    let (actor, creation) = created(&mut bench);
    let effects = bench.step(Event::Cancelled { object: result(&creation), force: false, recursive: true });
    assert_eq!(effects, [Effect::Node(ToNode::KillActor { actor, manager: crate::id::NodeId::ALONE, restart: false })]);
}

#[test]
fn after_a_kill_later_calls_wait_for_the_next_life() {
    let mut bench = Bench::new();
    let (actor, _creation) = placed(&mut bench);
    let before = call_spec(&mut bench, actor, 0, &[]);
    bench.submit(&before);
    let effects = bench.step(Event::ActorKilled { actor, restart: true });
    assert_eq!(effects, [Effect::Node(ToNode::KillActor { actor, manager: crate::id::NodeId::ALONE, restart: true })]);
    let later = call_spec(&mut bench, actor, 1, &[]);
    assert_eq!(bench.submit(&later), [bench.submitted(&later)], "not to the life that ends");
    bench.node(FromNode::ActorRestarting { actor, reason: "killed".into(), moved: false });
    bench.answer(FIRST_REQUEST, Adoption::Finished(vec![value(1)]));
    let effects = bench.node(FromNode::ActorAt { actor, process: W2, incarnation: 1, concurrency_max: 1 });
    assert_eq!(effects, [called(1, W2, &later, vec![])]);
}

#[test]
fn after_a_kill_for_good_later_calls_fail() {
    let mut bench = Bench::new();
    let (actor, _creation) = placed(&mut bench);
    bench.step(Event::ActorKilled { actor, restart: false });
    let later = call_spec(&mut bench, actor, 0, &[]);
    bench.submit(&later);
    let effects = bench.node(FromNode::ActorDead { actor, reason: "gone".into() });
    assert_eq!(effects, [settled(&later, died(actor))]);
}

#[test]
fn a_killed_actor_that_was_never_called_is_asked_about_after_the_kill() {
    let mut bench = Bench::new();
    let actor = ActorId(TaskId::root(4, W2));
    let effects = bench.step(Event::ActorKilled { actor, restart: false });
    let kill = Effect::Node(ToNode::KillActor { actor, manager: crate::id::NodeId::ALONE, restart: false });
    assert_eq!(effects, [kill, Effect::Node(ToNode::WatchActor { actor, manager: crate::id::NodeId::ALONE })]);
}

#[test]
fn the_news_of_a_killed_actors_place_comes_too_late_for_calls() {
    let mut bench = Bench::new();
    let (actor, _creation) = placed(&mut bench);
    bench.step(Event::ActorKilled { actor, restart: false });
    let later = call_spec(&mut bench, actor, 0, &[]);
    bench.submit(&later);
    assert_eq!(bench.node(FromNode::ActorAt { actor, process: W2, incarnation: 0, concurrency_max: 1 }), []);
    let effects = bench.node(FromNode::ActorDead { actor, reason: "gone".into() });
    assert_eq!(effects, [settled(&later, died(actor))]);
}

#[test]
fn an_actor_that_runs_more_than_usual_at_once_gets_as_many_calls() {
    for (concurrency_max, sent) in [(1, CALLS_IN_FLIGHT_MAX), (2_000, 2_000)] {
        let mut bench = Bench::new();
        let (actor, _creation) = placed(&mut bench);
        bench.node(FromNode::ActorAt { actor, process: W1, incarnation: 0, concurrency_max });
        let mut runs = 0;
        for sequence in 0..2_100 {
            let call = call_spec(&mut bench, actor, sequence, &[]);
            let effects = bench.submit(&call);
            let is_run = |effect: &&Effect| matches!(effect, Effect::Send { message: Peer::Call { .. }, .. });
            runs += effects.iter().filter(is_run).count();
        }
        assert_eq!(runs, sent);
    }
}

#[test]
fn every_call_that_a_lost_actor_was_running_is_asked_about() {
    let mut bench = Bench::new();
    let (actor, _creation) = placed(&mut bench);
    let calls = [0, 1, 2].map(|sequence| call_spec(&mut bench, actor, sequence, &[]));
    for call in &calls {
        bench.submit(call);
    }
    reply_to(&mut bench, &calls[1], value(1));
    let effects = bench.node(FromNode::ActorRestarting { actor, reason: "killed".into(), moved: false });
    let asked = effects.iter().filter(|effect| matches!(effect, Effect::Node(ToNode::Adopt { .. }))).count();
    assert_eq!(asked, 2, "the one that replied out of turn is off the books: {effects:?}");
}

#[test]
fn what_an_actor_lends_itself_is_free_again_after_the_call() {
    let mut bench = Bench::new();
    let actor = ActorId(TaskId::root(4, W2));
    let argument = ObjectId::put(bench.root, 0, 1, 0);
    bench.step(Event::Put { object: argument, digest: 1, value: value(1), recorded: false });
    let nested = vec![RefSpec { object: argument, owner: ME }];
    let call = TaskSpec { nested: nested.clone(), ..call_spec(&mut bench, actor, 0, &[]) };
    bench.submit(&call);
    let effects = bench.node(FromNode::ActorAt { actor, process: ME, incarnation: 0, concurrency_max: 2 });
    assert_eq!(effects, [called(1, ME, &call, vec![])]);
    bench.step(Event::ArgumentsArrived { from: ME, refs: nested.clone() });
    bench.step(Event::RefDropped(argument));
    bench.peer(ME, Peer::Reply { task: call.id, attempt: 0, values: vec![value(2)], duration_us: 1 });
    assert_eq!(bench.step(Event::ArgumentsDone(nested)), [freed(argument)]);
    bench.drop_result(&call);
    bench.assert_at_rest();
}

#[test]
fn a_call_that_waits_for_its_argument_holds_up_no_other_calling_task() {
    let mut bench = Bench::new();
    let (actor, _) = placed(&mut bench);
    let argument = bench.sent_task();
    let waits = call_spec(&mut bench, actor, 0, &[mine(&argument)]);
    bench.submit(&waits);
    let other = TaskSpec { parent: argument.id, ..call_spec(&mut bench, actor, 1, &[]) };
    let effects = bench.submit(&other);
    assert_eq!(effects, [bench.submitted(&other), called(1, W1, &other, vec![])]);
    let behind = call_spec(&mut bench, actor, 2, &[]);
    let effects = bench.submit(&behind);
    assert_eq!(effects, [bench.submitted(&behind)], "the calls of one task keep their order");
}
