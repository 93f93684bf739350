//! A repeated parent submits and puts what exists already.

use super::*;

#[test]
fn a_finished_child_is_adopted_without_a_record() {
    let mut bench = Bench::new();
    let spec = bench.task();
    let effects = bench.step(Event::Adopted { spec: spec.clone(), values: Some(vec![value(3)]) });
    assert_eq!(effects, []);
    assert_eq!(bench.owner.value(&result(&spec)), Some(&value(3)));
    assert_eq!(bench.drop_result(&spec), [freed(result(&spec))]);
    bench.assert_at_rest();
}

#[test]
fn a_running_child_is_adopted_and_ends_when_the_node_tells() {
    let mut bench = Bench::new();
    let spec = TaskSpec { returns: 2, ..bench.task() };
    let effects = bench.step(Event::Adopted { spec: spec.clone(), values: None });
    assert_eq!(effects, [ask(FIRST_REQUEST, &spec)], "to be answered again when that run is lost");
    assert_eq!(bench.answer(FIRST_REQUEST, Adoption::Running), []);
    assert_eq!(bench.state(&spec), Some(TaskState::Inherited));
    let [first, second] = [0, 1].map(|index| ObjectId::result(spec.id, index));
    bench.step(Event::Wanted(second));
    assert_eq!(bench.node(FromNode::Resolved { object: first, value: value(1), home: crate::id::NodeId::ALONE }), []);
    assert_eq!(bench.owner.pending(), 1);
    let effects = bench.node(FromNode::Resolved { object: second, value: value(2), home: crate::id::NodeId::ALONE });
    assert_eq!(effects, [Effect::Ready(second)]);
    assert_eq!(bench.owner.pending(), 0);
}

#[test]
fn a_running_child_whose_run_is_lost_is_run_by_its_adopter_with_a_higher_attempt() {
    let mut bench = Bench::new();
    let spec = bench.task();
    bench.step(Event::Adopted { spec: spec.clone(), values: None });
    bench.answer(FIRST_REQUEST, Adoption::Running);
    let lost = FromNode::Adopted { request: FIRST_REQUEST, adoption: Adoption::New, attempt: 3, started: false };
    let effects = bench.node(lost);
    let retried = TaskSpec { attempt: 3, ..spec };
    assert_eq!(effects, [bench.submitted(&retried), want(1, 1)]);
}

#[test]
fn an_adopted_call_that_is_lost_is_called_again_in_our_name() {
    let mut bench = Bench::new();
    let actor = ActorId(bench.root.child(5, 5, 5));
    let call = bench.spec(TaskKind::Call { actor, caller: W2, sequence: 4 }, &[]);
    bench.step(Event::Adopted { spec: call.clone(), values: None });
    bench.answer(FIRST_REQUEST, Adoption::Running);
    let effects = bench.answer(FIRST_REQUEST, Adoption::New);
    let retried = TaskSpec { kind: TaskKind::Call { actor, caller: ME, sequence: 0 }, ..again(&call) };
    assert_eq!(
        effects,
        [Effect::Node(ToNode::WatchActor { actor, manager: crate::id::NodeId::ALONE }), bench.submitted(&retried)]
    );
    let effects = bench.node(FromNode::ActorAt { actor, process: W1, incarnation: 0, concurrency_max: 1 });
    assert_eq!(effects, [called(1, W1, &retried, vec![])]);
}

#[test]
fn an_adopted_call_gets_a_number_of_its_own_when_it_is_called_again() {
    let mut bench = Bench::new();
    let actor = ActorId(bench.root.child(5, 5, 5));
    let adopted = bench.spec(TaskKind::Call { actor, caller: ME, sequence: 0 }, &[]);
    bench.step(Event::Adopted { spec: adopted.clone(), values: None });
    let own = bench.spec(TaskKind::Call { actor, caller: ME, sequence: 0 }, &[]);
    bench.submit(&own);
    bench.node(FromNode::ActorAt { actor, process: W1, incarnation: 0, concurrency_max: 1 });
    let effects = bench.answer(FIRST_REQUEST, Adoption::New);
    let retried = TaskSpec { kind: TaskKind::Call { actor, caller: ME, sequence: 1 }, ..again(&adopted) };
    assert_eq!(effects, [bench.submitted(&retried), called(2, W1, &retried, vec![])]);
}

#[test]
fn the_dependencies_of_an_adopted_child_are_released_when_it_ends() {
    let mut bench = Bench::new();
    let first = bench.sent_task();
    let second = bench.spec(TaskKind::Plain, &[mine(&first)]);
    bench.step(Event::Adopted { spec: second.clone(), values: None });
    assert_eq!(bench.drop_result(&first), []);
    assert_eq!(bench.reply(&first, value(1)), [], "the adopted child holds it");
    let effects =
        bench.node(FromNode::Resolved { object: result(&second), value: value(2), home: crate::id::NodeId::ALONE });
    assert_eq!(effects, [freed(result(&first))]);
}

#[test]
fn a_borrower_that_adopts_becomes_the_owner() {
    let mut bench = Bench::new();
    let spec = bench.task();
    let borrowed = RefSpec { object: result(&spec), owner: W2 };
    bench.step(arrived(vec![borrowed]));
    bench.die(W2);
    let claim = |count| Effect::Node(ToNode::Claim { object: borrowed.object, count, home: crate::id::NodeId::ALONE });
    let effects = bench.step(Event::Adopted { spec: spec.clone(), values: Some(vec![value(3)]) });
    assert_eq!(effects, [claim(-1)]);
    assert_eq!(bench.step(arrived(vec![borrowed])), [], "its own by now");
    bench.step(Event::ArgumentsDone(vec![borrowed, borrowed]));
    assert_eq!(bench.drop_result(&spec), [freed(result(&spec))]);
    bench.assert_at_rest();
}

#[test]
fn an_adopted_call_keeps_its_actor_as_long_as_it_runs() {
    let mut bench = Bench::new();
    let creation = bench.spec(TaskKind::Create(ActorOptions::default()), &[]);
    bench.submit(&creation);
    let actor = ActorId(creation.id);
    bench.node(FromNode::ActorCreated { actor, value: value(0) });
    let call = bench.spec(TaskKind::Call { actor, caller: W2, sequence: 4 }, &[]);
    bench.step(Event::Adopted { spec: call.clone(), values: None });
    assert_eq!(bench.drop_result(&creation), []);
    let effects =
        bench.node(FromNode::Resolved { object: result(&call), value: value(1), home: crate::id::NodeId::ALONE });
    assert_eq!(effects, [freed(result(&creation)), Effect::Node(ToNode::ReleaseActor { actor })]);
}

#[test]
fn an_adopted_actor_is_released_with_its_last_handle() {
    let mut bench = Bench::new();
    let creation = bench.spec(TaskKind::Create(ActorOptions::default()), &[]);
    let actor = ActorId(creation.id);
    let effects = bench.step(Event::Adopted { spec: creation.clone(), values: Some(vec![value(0)]) });
    assert_eq!(effects, [Effect::Node(ToNode::WatchActor { actor, manager: crate::id::NodeId::ALONE })]);
    let effects = bench.drop_result(&creation);
    assert_eq!(effects, [freed(result(&creation)), Effect::Node(ToNode::ReleaseActor { actor })]);
    bench.assert_at_rest();
}
