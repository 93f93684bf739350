//! Cancelling in each state, with grace and by force.

use super::*;

fn cancel(bench: &mut Bench, spec: &TaskSpec, force: bool) -> Vec<Effect> {
    bench.step(Event::Cancelled { object: result(spec), force, recursive: true })
}

#[test]
fn a_queued_task_is_cancelled_at_once() {
    let mut bench = Bench::new();
    let spec = bench.task();
    bench.submit(&spec);
    assert_eq!(cancel(&mut bench, &spec, false), [cancelled(&spec)]);
    // The stale entry in the queue is skipped when a lease comes, which nothing needs.
    assert_eq!(bench.grant(L1, W1), [Effect::Node(ToNode::ReturnLease { lease: L1 })]);
}

#[test]
fn a_waiting_task_is_cancelled_at_once_and_forgotten_by_its_dependency() {
    let mut bench = Bench::new();
    let first = bench.sent_task();
    let second = bench.spec(TaskKind::Plain, &[mine(&first)]);
    bench.submit(&second);
    assert_eq!(cancel(&mut bench, &second, false), [cancelled(&second)]);
    assert_eq!(bench.reply(&first, value(1)), []);
}

#[test]
fn a_sent_task_is_asked_to_stop_and_loses_its_worker_after_the_grace() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    assert_eq!(cancel(&mut bench, &spec, false), [say(W1, Peer::Cancel { task: spec.id, recursive: true })]);
    assert_eq!(bench.owner.deadline(), Some(bench.now.plus_us(5_000_000)));
    assert_eq!(cancel(&mut bench, &spec, false), [], "asked once");
    bench.now = bench.now.plus_us(5_000_000);
    assert_eq!(bench.step(Event::Ticked), [Effect::Node(ToNode::KillWorker { worker: W1, task: spec.id })]);
    bench.node(FromNode::ProcessDied(Box::new(death(W1, Some(spec.id)))));
    assert_eq!(bench.answer(FIRST_REQUEST, Adoption::New), [cancelled(&spec)], "a cancelled task is not tried again");
    bench.drop_result(&spec);
    bench.assert_at_rest();
}

#[test]
fn force_kills_at_once() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    let kill = Effect::Node(ToNode::KillWorker { worker: W1, task: spec.id });
    assert_eq!(cancel(&mut bench, &spec, true), [say(W1, Peer::Cancel { task: spec.id, recursive: true }), kill]);
}

#[test]
fn a_second_cancel_by_force_ends_the_patience_of_the_first() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    cancel(&mut bench, &spec, false);
    let kill = Effect::Node(ToNode::KillWorker { worker: W1, task: spec.id });
    assert_eq!(cancel(&mut bench, &spec, true), [kill]);
}

#[test]
fn a_cancelled_task_that_ends_in_time_keeps_what_it_replied() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    cancel(&mut bench, &spec, false);
    bench.reply(&spec, value(4));
    assert_eq!(bench.owner.value(&result(&spec)), Some(&value(4)));
    bench.now = bench.now.plus_us(5_000_000);
    assert_eq!(bench.step(Event::Ticked), [Effect::Node(ToNode::ReturnLease { lease: L1 })], "nobody is killed");
}

#[test]
fn a_cancelled_task_that_comes_back_unstarted_is_not_sent_again() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    cancel(&mut bench, &spec, false);
    let effects = bench.peer(W1, Peer::Returned { lease: L1, tasks: vec![spec.id], blocked: false });
    assert_eq!(effects, [cancelled(&spec)]);
}

#[test]
fn a_finished_task_is_left_as_it_is() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    bench.reply(&spec, value(4));
    assert_eq!(cancel(&mut bench, &spec, true), []);
    assert_eq!(bench.owner.value(&result(&spec)), Some(&value(4)));
}

#[test]
fn a_task_that_is_being_asked_about_is_cancelled_unless_it_had_ended() {
    for (adoption, expected) in
        [(Adoption::New, None), (Adoption::Different, None), (Adoption::Finished(vec![value(8)]), Some(value(8)))]
    {
        let mut bench = Bench::new();
        let spec = bench.sent_task();
        bench.die(W1);
        assert_eq!(cancel(&mut bench, &spec, false), []);
        bench.answer(FIRST_REQUEST, adoption);
        let cancelled = Value::failed(Failure::Cancelled { task: spec.id });
        assert_eq!(bench.owner.value(&result(&spec)), Some(&expected.unwrap_or(cancelled)));
    }
}

#[test]
fn a_borrower_asks_the_owner_to_cancel() {
    let mut bench = Bench::new();
    let foreign = RefSpec { object: ObjectId::result(bench.root.child(9, 9, 9), 0), owner: W2 };
    bench.step(Event::RefAdded(foreign));
    let effects = bench.step(Event::Cancelled { object: foreign.object, force: true, recursive: true });
    assert_eq!(effects, [say(W2, Peer::CancelObject { object: foreign.object, force: true, recursive: true })]);
}

#[test]
fn the_children_of_a_cancelled_parent_are_cancelled_too() {
    let mut bench = Bench::new();
    let sent = bench.sent_task();
    let queued = bench.task();
    bench.submit(&queued);
    let returned = Peer::Returned { lease: L1, tasks: vec![queued.id], blocked: true };
    bench.peer(W1, returned);
    let mut effects = bench.step(Event::ParentCancelled(bench.root));
    effects.sort_by_key(|effect| matches!(effect, Effect::Send { .. }));
    assert_eq!(effects, [cancelled(&queued), say(W1, Peer::Cancel { task: sent.id, recursive: true })]);
}

#[test]
fn a_cancel_that_spares_the_children_can_be_followed_by_one_that_does_not() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    let ask = |recursive| Event::Cancelled { object: result(&spec), force: false, recursive };
    let asked = |recursive| say(W1, Peer::Cancel { task: spec.id, recursive });
    assert_eq!(bench.step(ask(false)), [asked(false)]);
    assert_eq!(bench.step(ask(false)), [], "asked once");
    assert_eq!(bench.step(ask(true)), [asked(true)]);
    assert_eq!(bench.step(ask(true)), [], "asked once");
}

#[test]
fn a_borrowers_cancel_keeps_its_word_about_children() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    let message = Peer::CancelObject { object: result(&spec), force: false, recursive: false };
    assert_eq!(bench.peer(W2, message), [say(W1, Peer::Cancel { task: spec.id, recursive: false })]);
}
