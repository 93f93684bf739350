//! Submits, dependencies, replies, retries on errors.

use super::*;

#[test]
fn a_submit_is_recorded_before_a_lease_is_wished_for() {
    let mut bench = Bench::new();
    let spec = bench.task();
    let effects = bench.submit(&spec);
    assert_eq!(effects, [bench.submitted(&spec), want(1, 1)]);
    assert_eq!(bench.state(&spec), Some(TaskState::Queued));
}

#[test]
fn a_granted_lease_gets_the_queued_task() {
    let mut bench = Bench::new();
    let spec = bench.task();
    bench.submit(&spec);
    assert_eq!(bench.grant(L1, W1), [run(L1, W1, &spec, vec![])]);
    assert_eq!(bench.state(&spec), Some(TaskState::Sent { lease: L1, worker: W1 }));
}

#[test]
fn a_task_with_an_unready_dependency_waits_and_leaves_with_its_value() {
    let mut bench = Bench::new();
    let first = bench.sent_task();
    let second = bench.spec(TaskKind::Plain, &[mine(&first)]);
    let effects = bench.submit(&second);
    assert_eq!(effects, [bench.submitted(&second)]);
    assert_eq!(bench.state(&second), Some(TaskState::Waiting { missing: 1 }));
    // The second goes to the lease that the first still holds on the books: it is off them a moment later.
    let effects = bench.reply(&first, value(5));
    assert_eq!(effects, [run(L1, W1, &second, vec![value(5)])]);
    assert_eq!(bench.owner.value(&result(&first)), Some(&value(5)));
}

#[test]
fn a_dependency_that_is_there_already_is_not_waited_for() {
    let mut bench = Bench::new();
    let first = bench.sent_task();
    bench.reply(&first, value(5));
    let second = bench.spec(TaskKind::Plain, &[mine(&first)]);
    let effects = bench.submit(&second);
    assert_eq!(effects, [bench.submitted(&second), run(L1, W1, &second, vec![value(5)])]);
}

#[test]
fn the_failure_of_a_dependency_becomes_the_failure_of_all_that_need_it() {
    let mut bench = Bench::new();
    let first = bench.sent_task();
    let second = bench.spec(TaskKind::Plain, &[mine(&first)]);
    let third = bench.spec(TaskKind::Plain, &[mine(&second)]);
    bench.submit(&second);
    bench.submit(&third);
    let failure = Failure::ShutDown;
    let effects = bench.reply(&first, Value::failed(failure.clone()));
    assert_eq!(effects, [settled(&second, failure.clone()), settled(&third, failure.clone())]);
    assert_eq!(bench.owner.value(&result(&third)), Some(&Value::failed(failure)));
    assert_eq!(bench.owner.pending(), 0);
}

#[test]
fn a_reply_wakes_the_one_who_waits_once() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    assert_eq!(bench.step(Event::Wanted(result(&spec))), []);
    assert_eq!(bench.reply(&spec, value(5)), [Effect::Ready(result(&spec))]);
    assert_eq!(bench.step(Event::Wanted(result(&spec))), [Effect::Ready(result(&spec))]);
}

#[test]
fn a_second_reply_changes_nothing_own_1() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    bench.reply(&spec, value(5));
    assert_eq!(bench.reply(&spec, value(6)), []);
    assert_eq!(bench.owner.value(&result(&spec)), Some(&value(5)));
}

#[test]
fn the_reply_of_an_earlier_attempt_is_dropped_with_its_references() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    bench.die(W1);
    bench.answer(FIRST_REQUEST, Adoption::New);
    let foreign = RefSpec { object: ObjectId::put(spec.id, 0, 1, 0), owner: W2 };
    let effects = bench.reply(&spec, holding(5, foreign));
    assert_eq!(effects, [say(W2, Peer::GiveBack { object: foreign.object, count: 1 })]);
    assert_eq!(bench.owner.value(&result(&spec)), None);
}

#[test]
fn an_error_on_the_retry_list_is_tried_again_until_the_retries_are_spent() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    let flaky = Failure::Returned {
        task: spec.id,
        name: "work".into(),
        type_name: "app::Flaky".into(),
        message: "try again".into(),
    };
    let retried = again(&spec);
    let effects = bench.reply(&spec, Value::failed(flaky.clone()));
    assert_eq!(effects, [bench.submitted(&retried), run(L1, W1, &retried, vec![])]);
    assert_eq!(bench.reply(&spec, value(1)), [], "a reply of the attempt before tells nothing");
    assert_eq!(bench.owner.value(&result(&spec)), None);
    assert_eq!(bench.reply(&retried, Value::failed(flaky.clone())), []);
    assert_eq!(bench.owner.value(&result(&spec)), Some(&Value::failed(flaky)));
}

#[test]
fn an_error_that_is_not_on_the_list_is_final() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    let failure = Failure::ShutDown;
    assert_eq!(bench.reply(&spec, Value::failed(failure.clone())), []);
    assert_eq!(bench.owner.value(&result(&spec)), Some(&Value::failed(failure)));
}

#[test]
fn one_failure_stands_for_every_result() {
    let mut bench = Bench::new();
    let spec = TaskSpec { returns: 3, ..bench.task() };
    bench.submit(&spec);
    bench.grant(L1, W1);
    bench.reply(&spec, Value::failed(Failure::ShutDown));
    for object in spec.results() {
        assert_eq!(bench.owner.value(&object), Some(&Value::failed(Failure::ShutDown)));
    }
}

#[test]
fn a_wrong_number_of_results_is_a_failure_and_leaves_no_loan_behind() {
    let mut bench = Bench::new();
    let spec = TaskSpec { returns: 2, ..bench.task() };
    bench.submit(&spec);
    bench.grant(L1, W1);
    let foreign = RefSpec { object: ObjectId::put(spec.id, 0, 1, 0), owner: W2 };
    let effects = bench.reply(&spec, holding(5, foreign));
    assert_eq!(effects, [say(W2, Peer::GiveBack { object: foreign.object, count: 1 })]);
    assert!(bench.owner.value(&result(&spec)).unwrap().failure().is_some());
}

#[test]
fn a_result_that_nobody_holds_is_freed_when_the_task_has_ended() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    assert_eq!(bench.drop_result(&spec), [], "the task runs for its side effects");
    assert_eq!(bench.reply(&spec, value(5)), [freed(result(&spec))]);
    bench.assert_at_rest();
}

#[test]
fn a_task_that_has_not_ended_can_be_looked_at() {
    let mut b = Bench::new();
    let spec = b.sent_task();
    let (found, _) = b.owner.task_state(&spec.id).expect("it runs");
    assert_eq!(found.id, spec.id);
    assert!(b.owner.task_state(&b.root).is_none());
}
