//! Streams at their owner.

use super::*;
use crate::stream::{Stream, end_value};
use crate::value::Body;

const AT: Location = Location { node: crate::id::NodeId::ALONE, entry: 3, generation: 1, offset: 0, len: 1 << 20 };

/// A stream that W1 runs under L1.
fn streaming(bench: &mut Bench, items_max: u32) -> TaskSpec {
    let spec = TaskSpec { stream: Some(Stream { items_max, bytes_max: 0 }), ..bench.task() };
    bench.submit(&spec);
    bench.grant(L1, W1);
    spec
}

fn item(spec: &TaskSpec, index: u32) -> ObjectId {
    ObjectId::item(spec.id, index)
}

fn yields(bench: &mut Bench, spec: &TaskSpec, index: u32, value: Value) -> Vec<Effect> {
    bench.peer(W1, Peer::Item { task: spec.id, attempt: spec.attempt, index, value })
}

fn open(bench: &mut Bench, spec: &TaskSpec, index: u32) -> Vec<Effect> {
    bench.step(Event::ItemOpened { end: result(spec), index })
}

fn take(bench: &mut Bench, spec: &TaskSpec, items: u32) -> Vec<Effect> {
    bench.step(Event::ItemsTaken { end: result(spec), items })
}

fn stored() -> Value {
    Value { body: Body::Stored(AT), nested: vec![] }
}

#[test]
fn an_item_wakes_who_waits_for_it_and_goes_when_it_is_taken_and_dropped() {
    let mut bench = Bench::new();
    let spec = streaming(&mut bench, 0);
    assert_eq!(open(&mut bench, &spec, 0), vec![]);
    bench.step(Event::Wanted(item(&spec, 0)));
    assert_eq!(yields(&mut bench, &spec, 0, stored()), vec![Effect::Ready(item(&spec, 0))]);
    assert_eq!(bench.step(Event::RefDropped(item(&spec, 0))), vec![], "the stream holds it");
    let free = Effect::Node(ToNode::FreeObject { at: AT });
    assert_eq!(take(&mut bench, &spec, 1), vec![freed(item(&spec, 0)), free]);
    bench.reply(&spec, end_value(1));
    assert_eq!(bench.drop_result(&spec), vec![freed(result(&spec))]);
    bench.assert_at_rest();
}

#[test]
fn past_the_end_there_is_the_reason_before_and_after_it_is_known() {
    let mut bench = Bench::new();
    let spec = streaming(&mut bench, 0);
    yields(&mut bench, &spec, 0, value(1));
    open(&mut bench, &spec, 1);
    open(&mut bench, &spec, 2);
    let failure = Failure::Cancelled { task: spec.id };
    bench.reply(&spec, Value::failed(failure.clone()));
    open(&mut bench, &spec, 3);
    let ended = Failure::StreamEnded { task: spec.id, items: 1 };
    let seen = |index| bench.owner.value(&item(&spec, index)).and_then(Value::failure).cloned();
    assert_eq!((seen(1), seen(2), seen(3)), (Some(failure), Some(ended.clone()), Some(ended)));
    for index in 1..4 {
        assert_eq!(bench.step(Event::RefDropped(item(&spec, index))), vec![], "no record knows of it");
    }
    bench.drop_result(&spec);
    bench.assert_at_rest();
}

#[test]
fn when_nobody_can_read_on_what_is_left_is_freed_and_the_task_is_asked_to_stop() {
    let mut bench = Bench::new();
    let spec = streaming(&mut bench, 0);
    yields(&mut bench, &spec, 0, value(1));
    open(&mut bench, &spec, 1);
    assert_eq!(bench.drop_result(&spec), vec![], "somebody waits for the next item");
    let cancel = say(W1, Peer::Cancel { task: spec.id, recursive: true });
    assert_eq!(bench.step(Event::RefDropped(item(&spec, 1))), vec![freed(item(&spec, 0)), cancel]);
    assert_eq!(yields(&mut bench, &spec, 1, value(2)), vec![freed(item(&spec, 1))], "what comes late goes at once");
    bench.reply(&spec, Value::failed(Failure::Cancelled { task: spec.id }));
    bench.assert_at_rest();
}

#[test]
fn who_yields_hears_of_what_was_taken_and_a_repeated_run_hears_it_again() {
    let mut bench = Bench::new();
    let spec = streaming(&mut bench, 8);
    for index in 0..8 {
        yields(&mut bench, &spec, index, value(1));
    }
    let taken = |to, items| say(to, Peer::Taken { task: spec.id, items });
    assert_eq!(take(&mut bench, &spec, 1), vec![freed(item(&spec, 0))], "not for each one");
    assert_eq!(take(&mut bench, &spec, 2), vec![taken(W1, 2), freed(item(&spec, 1))]);
    bench.die(W1);
    bench.answer(FIRST_REQUEST, Adoption::New);
    bench.grant(L2, W2);
    let message = Peer::Item { task: spec.id, attempt: 1, index: 0, value: value(9) };
    assert_eq!(bench.peer(W2, message), vec![taken(W2, 2)], "an item that came before is dropped");
}

#[test]
fn who_yields_goes_on_to_an_item_that_somebody_waits_for_although_nobody_takes_those_before_it() {
    let mut bench = Bench::new();
    let spec = streaming(&mut bench, 1);
    yields(&mut bench, &spec, 0, value(1));
    let taken = |items| say(W1, Peer::Taken { task: spec.id, items });
    bench.peer(W2, Peer::Lent { object: result(&spec), borrower: W2, count: 1 });
    // A reader that has read four items of an earlier run goes on with the fifth.
    let lent = Peer::Lent { object: item(&spec, 4), borrower: W2, count: 1 };
    assert_eq!(bench.peer(W2, lent), vec![taken(4)]);
    bench.peer(W2, Peer::Resolve { object: item(&spec, 4) });
    for index in 1..4 {
        assert_eq!(yields(&mut bench, &spec, index, value(1)), vec![], "it has been told");
    }
    let resolved = Peer::Resolved { object: item(&spec, 4), value: value(5) };
    assert_eq!(yields(&mut bench, &spec, 4, value(5)), vec![say(W2, resolved)]);
    assert_eq!(bench.owner.value(&item(&spec, 1)), Some(&value(1)), "another reader may still take it");
}

#[test]
fn an_item_that_was_recorded_and_not_sent_is_told_by_the_node_before_the_task_runs_again() {
    let mut bench = Bench::new();
    let spec = streaming(&mut bench, 0);
    yields(&mut bench, &spec, 0, value(1));
    let asked = bench.die(W1);
    let question = ToNode::Adopt { request: FIRST_REQUEST, object: result(&spec), digest: spec.digest, items: 1 };
    assert!(asked.contains(&Effect::Node(question)), "{asked:?}");
    bench.node(FromNode::ItemFound { request: FIRST_REQUEST, index: 1, value: value(2) });
    bench.answer(FIRST_REQUEST, Adoption::New);
    bench.grant(L2, W2);
    let message = Peer::Item { task: spec.id, attempt: 1, index: 1, value: value(9) };
    bench.peer(W2, message);
    assert_eq!(bench.owner.value(&item(&spec, 1)), Some(&value(2)), "the first record wins");
}

#[test]
fn a_borrower_borrows_items_that_are_not_there_yet_and_its_takes_count() {
    let mut bench = Bench::new();
    let spec = streaming(&mut bench, 1);
    bench.peer(W2, Peer::Lent { object: result(&spec), borrower: W2, count: 1 });
    bench.drop_result(&spec);
    let lent = Peer::Lent { object: item(&spec, 0), borrower: W2, count: 1 };
    assert_eq!(bench.peer(W2, lent), vec![]);
    bench.peer(W2, Peer::Resolve { object: item(&spec, 0) });
    let resolved = Peer::Resolved { object: item(&spec, 0), value: value(1) };
    assert_eq!(yields(&mut bench, &spec, 0, value(1)), vec![say(W2, resolved)]);
    let taken = say(W1, Peer::Taken { task: spec.id, items: 1 });
    assert_eq!(bench.peer(W2, Peer::Took { task: spec.id, items: 1 }), vec![taken]);
    let back = Peer::GiveBack { object: item(&spec, 0), count: 1 };
    assert_eq!(bench.peer(W2, back), vec![freed(item(&spec, 0))]);
    let cancel = say(W1, Peer::Cancel { task: spec.id, recursive: true });
    assert!(bench.die(W2).contains(&cancel), "the last reader died");
}

#[test]
fn a_reader_elsewhere_borrows_from_the_owner_and_after_its_death_from_the_node() {
    let mut bench = Bench::new();
    let spec = bench.task();
    let end = RefSpec { object: result(&spec), owner: W1 };
    bench.step(arrived(vec![end]));
    let lent = Peer::Lent { object: item(&spec, 0), borrower: ME, count: 1 };
    assert_eq!(open(&mut bench, &spec, 0), vec![say(W1, lent)]);
    assert_eq!(take(&mut bench, &spec, 1), vec![say(W1, Peer::Took { task: spec.id, items: 1 })]);
    bench.step(Event::Wanted(item(&spec, 0)));
    let died = bench.die(W1);
    let claim = Effect::Node(ToNode::Claim { object: item(&spec, 0), count: 1, home: crate::id::NodeId::ALONE });
    assert!(
        died.contains(&claim)
            && died.contains(&Effect::Node(ToNode::Resolve { object: item(&spec, 0), home: crate::id::NodeId::ALONE }))
    );
    let claim = Effect::Node(ToNode::Claim { object: item(&spec, 1), count: 1, home: crate::id::NodeId::ALONE });
    assert_eq!(open(&mut bench, &spec, 1), vec![claim]);
    assert_eq!(take(&mut bench, &spec, 2), vec![]);
}

#[test]
fn an_item_that_was_taken_and_freed_is_lost_with_its_reason_to_who_comes_later() {
    let mut bench = Bench::new();
    let spec = streaming(&mut bench, 0);
    yields(&mut bench, &spec, 0, value(1));
    take(&mut bench, &spec, 1);
    open(&mut bench, &spec, 0);
    let seen = bench.owner.value(&item(&spec, 0)).and_then(Value::failure).cloned();
    let reason = crate::stream::READ_ONCE.to_owned();
    assert_eq!(seen, Some(Failure::ObjectLost { object: item(&spec, 0), reason }));
}
