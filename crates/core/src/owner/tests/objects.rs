//! Handles, holds, loans, borrowed values, cascades.

use super::*;
use crate::value::{Body, Location};

fn put(bench: &mut Bench, counter: u64, value: Value) -> RefSpec {
    let object = ObjectId::put(bench.root, 0, counter, 0);
    bench.step(Event::Put { object, digest: 3, value, recorded: false });
    RefSpec { object, owner: ME }
}

fn foreign(counter: u64) -> RefSpec {
    RefSpec { object: ObjectId::put(TaskId::root(9, W2), 0, counter, 0), owner: W2 }
}

#[test]
fn a_put_is_recorded_and_freed_with_its_last_handle() {
    let mut bench = Bench::new();
    let object = ObjectId::put(bench.root, 0, 1, 0);
    let effects = bench.step(Event::Put { object, digest: 3, value: value(1), recorded: false });
    assert_eq!(effects, [Effect::Record(Record::Put { object, digest: 3, value: value(1) })]);
    bench.step(Event::RefAdded(RefSpec { object, owner: ME }));
    assert_eq!(bench.step(Event::RefDropped(object)), []);
    assert_eq!(bench.step(Event::RefDropped(object)), [freed(object)]);
    bench.assert_at_rest();
}

#[test]
fn a_put_that_the_ledger_has_is_not_recorded_again() {
    let mut bench = Bench::new();
    let object = ObjectId::put(bench.root, 0, 1, 0);
    assert_eq!(bench.step(Event::Put { object, digest: 3, value: value(1), recorded: true }), []);
    assert_eq!(bench.owner.value(&object), Some(&value(1)));
}

#[test]
fn freeing_a_stored_value_tells_the_store() {
    let mut bench = Bench::new();
    let at = Location { node: crate::id::NodeId::ALONE, entry: 1, generation: 2, offset: 64, len: 100_000 };
    let stored = put(&mut bench, 1, Value { body: Body::Stored(at), nested: vec![] });
    let effects = bench.step(Event::RefDropped(stored.object));
    assert_eq!(effects, [freed(stored.object), Effect::Node(ToNode::FreeObject { at })]);
}

#[test]
fn freeing_a_value_frees_what_it_contains_to_any_depth() {
    let mut bench = Bench::new();
    let mut inner = put(&mut bench, 0, value(0));
    let mut all = vec![inner.object];
    for counter in 1..2_000 {
        let outer = put(&mut bench, counter, holding(1, inner));
        assert_eq!(bench.step(Event::RefDropped(inner.object)), [], "the outer value holds it");
        inner = outer;
        all.push(outer.object);
    }
    let effects = bench.step(Event::RefDropped(inner.object));
    all.reverse();
    assert_eq!(effects, all.into_iter().map(freed).collect::<Vec<_>>());
    bench.assert_at_rest();
}

#[test]
fn the_arguments_of_a_task_stay_until_it_has_ended_own_2() {
    let mut bench = Bench::new();
    let argument = put(&mut bench, 1, value(1));
    let spec = TaskSpec { nested: vec![argument], ..bench.task() };
    bench.submit(&spec);
    assert_eq!(bench.step(Event::RefDropped(argument.object)), []);
    bench.grant(L1, W1);
    // The worker kept nothing: the loan comes back before the reply.
    let give_back = Peer::GiveBack { object: argument.object, count: 1 };
    assert_eq!(bench.peer(W1, give_back), []);
    assert_eq!(bench.reply(&spec, value(2)), [freed(argument.object)]);
    bench.drop_result(&spec);
    bench.assert_at_rest();
}

#[test]
fn a_lent_object_stays_until_the_borrower_gives_it_back() {
    let mut bench = Bench::new();
    let argument = put(&mut bench, 1, value(1));
    let spec = TaskSpec { nested: vec![argument], ..bench.task() };
    bench.submit(&spec);
    bench.step(Event::RefDropped(argument.object));
    bench.grant(L1, W1);
    assert_eq!(bench.reply(&spec, value(2)), [], "an actor may keep it");
    let give_back = Peer::GiveBack { object: argument.object, count: 1 };
    assert_eq!(bench.peer(W1, give_back), [freed(argument.object)]);
}

#[test]
fn a_loan_that_is_given_back_before_its_news_comes_evens_out() {
    let mut bench = Bench::new();
    let object = put(&mut bench, 1, value(1)).object;
    bench.peer(W1, Peer::Lent { object, borrower: W1, count: 1 });
    bench.step(Event::RefDropped(object));
    // W1 passed it on to W2, who was quicker.
    assert_eq!(bench.peer(W2, Peer::GiveBack { object, count: 1 }), []);
    assert_eq!(bench.peer(W1, Peer::Lent { object, borrower: W2, count: 1 }), []);
    assert_eq!(bench.peer(W1, Peer::GiveBack { object, count: 1 }), [freed(object)]);
}

#[test]
fn passing_a_borrowed_reference_on_tells_its_owner_first() {
    let mut bench = Bench::new();
    let borrowed = foreign(1);
    bench.step(arrived(vec![borrowed]));
    let spec = TaskSpec { nested: vec![borrowed], ..bench.task() };
    bench.submit(&spec);
    let lent = Peer::Lent { object: borrowed.object, borrower: W1, count: 1 };
    assert_eq!(bench.grant(L1, W1), [say(W2, lent), run(L1, W1, &spec, vec![])]);
    bench.reply(&spec, value(1));
    let effects = bench.step(Event::ArgumentsDone(vec![borrowed]));
    assert_eq!(effects, [say(W2, Peer::GiveBack { object: borrowed.object, count: 1 })]);
}

#[test]
fn a_reference_that_goes_home_is_not_a_loan() {
    let mut bench = Bench::new();
    let borrowed = foreign(1);
    bench.step(arrived(vec![borrowed]));
    let task = bench.task().id;
    let message = Peer::Reply { task, attempt: 0, values: vec![holding(1, borrowed)], duration_us: 0 };
    let effects = bench.step(Event::ResultsLeft { to: W2, message: message.clone() });
    assert_eq!(effects, [say(W2, message)]);
}

#[test]
fn grants_that_came_several_times_are_given_back_together() {
    let mut bench = Bench::new();
    let borrowed = foreign(1);
    bench.step(arrived(vec![borrowed]));
    bench.step(arrived(vec![borrowed]));
    assert_eq!(bench.step(Event::ArgumentsDone(vec![borrowed])), []);
    let effects = bench.step(Event::ArgumentsDone(vec![borrowed]));
    assert_eq!(effects, [say(W2, Peer::GiveBack { object: borrowed.object, count: 2 })]);
    bench.assert_at_rest();
}

#[test]
fn a_borrowed_value_is_asked_for_once_and_then_known() {
    let mut bench = Bench::new();
    let borrowed = foreign(1);
    bench.step(arrived(vec![borrowed]));
    let question = say(W2, Peer::Resolve { object: borrowed.object });
    assert_eq!(bench.step(Event::Wanted(borrowed.object)), [question]);
    assert_eq!(bench.step(Event::Wanted(borrowed.object)), []);
    let effects = bench.peer(W2, Peer::Resolved { object: borrowed.object, value: value(3) });
    assert_eq!(effects, [Effect::Ready(borrowed.object)]);
    assert_eq!(bench.owner.value(&borrowed.object), Some(&value(3)));
}

#[test]
fn a_dependency_on_a_borrowed_object_asks_its_owner() {
    let mut bench = Bench::new();
    let borrowed = foreign(1);
    bench.step(Event::RefAdded(borrowed));
    let spec = bench.spec(TaskKind::Plain, &[borrowed]);
    let effects = bench.submit(&spec);
    assert_eq!(effects, [bench.submitted(&spec), say(W2, Peer::Resolve { object: borrowed.object })]);
    let effects = bench.peer(W2, Peer::Resolved { object: borrowed.object, value: value(3) });
    assert_eq!(effects, [want(1, 1)]);
}

#[test]
fn an_owner_answers_when_it_has_the_value_and_lends_what_is_inside() {
    let mut bench = Bench::new();
    let inner = put(&mut bench, 1, value(1));
    let spec = bench.sent_task();
    assert_eq!(bench.peer(W2, Peer::Resolve { object: result(&spec) }), []);
    let full = holding(2, inner);
    let effects = bench.reply(&spec, full.clone());
    assert_eq!(effects, [say(W2, Peer::Resolved { object: result(&spec), value: full.clone() })]);
    bench.step(Event::RefDropped(inner.object));
    assert_eq!(bench.drop_result(&spec), [freed(result(&spec))], "W2 still holds what was inside");
    let effects = bench.peer(W2, Peer::GiveBack { object: inner.object, count: 1 });
    assert_eq!(effects, [freed(inner.object)]);
}

#[test]
fn a_question_about_a_freed_object_is_answered_with_a_failure() {
    let mut bench = Bench::new();
    let object = ObjectId::put(bench.root, 0, 1, 0);
    let effects = bench.peer(W2, Peer::Resolve { object });
    let reason = "its owner has freed it".to_owned();
    let value = Value::failed(Failure::ObjectLost { object, reason });
    assert_eq!(effects, [say(W2, Peer::Resolved { object, value })]);
}

#[test]
fn references_inside_a_result_are_held_by_it_and_given_back_with_it() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    let inside = foreign(1);
    assert_eq!(bench.reply(&spec, holding(2, inside)), []);
    let effects = bench.drop_result(&spec);
    let give_back = say(W2, Peer::GiveBack { object: inside.object, count: 1 });
    assert_eq!(effects, [freed(result(&spec)), give_back]);
    bench.assert_at_rest();
}

#[test]
fn a_handle_taken_out_of_a_result_outlives_it() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    let inside = foreign(1);
    bench.reply(&spec, holding(2, inside));
    bench.step(Event::RefAdded(inside));
    assert_eq!(bench.drop_result(&spec), [freed(result(&spec))]);
    let effects = bench.step(Event::RefDropped(inside.object));
    assert_eq!(effects, [say(W2, Peer::GiveBack { object: inside.object, count: 1 })]);
}

#[test]
fn a_value_that_comes_too_late_gives_back_what_is_inside() {
    let mut bench = Bench::new();
    let (borrowed, inside) = (foreign(1), foreign(2));
    bench.step(Event::RefAdded(borrowed));
    bench.step(Event::Wanted(borrowed.object));
    bench.step(Event::RefDropped(borrowed.object));
    let effects = bench.peer(W2, Peer::Resolved { object: borrowed.object, value: holding(1, inside) });
    assert_eq!(effects, [say(W2, Peer::GiveBack { object: inside.object, count: 1 })]);
    bench.assert_at_rest();
}

#[test]
fn what_another_node_keeps_for_a_dead_owner_is_lost_with_that_node() {
    let mut bench = Bench::new();
    let (keeper, spec) = (crate::id::NodeId(7), bench.sent_task());
    let inside = RefSpec { object: ObjectId::put(spec.id, 0, 1, 0), owner: ProcessId::of_node(keeper) };
    bench.die(W1);
    bench.answer(FIRST_REQUEST, Adoption::Finished(vec![holding(6, inside)]));
    bench.step(Event::Wanted(inside.object));
    let effects = bench.node(FromNode::NodeDied { node: keeper, reason: "was silent".into() });
    assert!(effects.contains(&Effect::Ready(inside.object)), "{effects:?}");
    let lost = bench.owner.value(&inside.object).and_then(Value::failure);
    assert!(matches!(lost, Some(Failure::ObjectLost { .. })), "{lost:?}");
}

#[test]
fn what_was_brought_from_a_dead_node_is_freed_unless_its_owner_knows_it() {
    let mut bench = Bench::new();
    let (gone, unheard) = (crate::id::NodeId(7), bench.sent_task());
    let at = Location { node: gone, entry: 1, generation: 2, offset: 64, len: 100_000 };
    let heard = put(&mut bench, 1, Value { body: Body::Stored(at), nested: vec![] });
    bench.node(FromNode::NodeDied { node: gone, reason: "was silent".into() });
    assert_eq!(bench.node(FromNode::Kept { object: heard.object, at: Location { offset: 0, ..at } }), []);
    let at = Location { entry: 5, ..at };
    let effects = bench.node(FromNode::Kept { object: result(&unheard), at });
    assert_eq!(effects, [Effect::Node(ToNode::FreeObject { at })]);
}
