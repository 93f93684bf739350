//! Placement groups that are waited for.

use super::*;
use crate::id::NodeId;

fn group(bench: &Bench) -> GroupId {
    GroupId(bench.root.child(5, 1, 0))
}

fn awaited(bench: &mut Bench, n: u64) -> (ObjectId, Vec<Effect>) {
    let (group, object) = (group(bench), ObjectId::put(bench.root, 0, n, 0));
    (object, bench.step(Event::GroupAwaited { group, object, digest: 9, value: Value::inline(vec![n as u8]) }))
}

#[test]
fn what_waits_for_a_group_has_its_value_when_the_group_is_placed() {
    let mut bench = Bench::new();
    let group = group(&bench);
    let (first, effects) = awaited(&mut bench, 1);
    assert_eq!(effects, [Effect::Node(ToNode::WatchGroup { group })]);
    let (second, effects) = awaited(&mut bench, 2);
    assert_eq!(effects, [], "the node is asked once");
    assert_eq!((bench.owner.awaited_group(&first), bench.owner.awaited_group(&second)), (Some(group), Some(group)));
    bench.step(Event::Wanted(first));
    bench.step(Event::RefDropped(second));
    let put = |object, n| Effect::Record(Record::Put { object, digest: 9, value: Value::inline(vec![n]) });
    assert_eq!(
        bench.node(FromNode::GroupPlaced { group, result: Ok(vec![NodeId::ALONE]) }),
        [put(first, 1), Effect::Ready(first), put(second, 2), Effect::Record(Record::Freed { object: second })]
    );
    assert_eq!(bench.owner.value(&first), Some(&Value::inline(vec![1])));
    assert_eq!(bench.owner.awaited_group(&first), None);
    assert_eq!(awaited(&mut bench, 3).1, [Effect::Node(ToNode::WatchGroup { group })], "a later one asks again");
}

#[test]
fn what_waits_for_a_group_that_will_never_be_has_the_reason() {
    let mut bench = Bench::new();
    let group = group(&bench);
    let (object, _) = awaited(&mut bench, 1);
    let failure = Failure::GroupUnplaceable { group, reason: "too large".into() };
    bench.node(FromNode::GroupPlaced { group, result: Err(Box::new(failure.clone())) });
    assert_eq!(bench.owner.value(&object).and_then(Value::failure), Some(&failure));
}

#[test]
fn tasks_of_a_shape_that_is_refused_have_the_failure() {
    let mut bench = Bench::new();
    let spec = bench.spec(TaskKind::Plain, &[]);
    let object = ObjectId::result(spec.id, 0);
    bench.step(Event::Submitted(spec));
    let failure = Failure::GroupRemoved { group: group(&bench), reason: "it was removed".into() };
    bench.node(FromNode::Refused { pool: 0, failure: Box::new(failure.clone()) });
    assert_eq!(bench.owner.value(&object).and_then(Value::failure), Some(&failure));
    assert_eq!(bench.owner.pending(), 0);
}

#[test]
fn a_detached_actor_is_not_released_with_its_last_handle() {
    let mut bench = Bench::new();
    let options = ActorOptions { detached: true, ..ActorOptions::default() };
    let spec = bench.spec(TaskKind::Create(options), &[]);
    let actor = ActorId(spec.id);
    bench.step(Event::Submitted(spec));
    bench.node(FromNode::ActorCreated { actor, value: Value::inline(vec![]) });
    assert_eq!(bench.step(Event::RefDropped(actor.object())), []);
    assert!(bench.owner.knows(&actor.object()));
    let effects = bench.node(FromNode::ActorDead { actor, reason: "it was killed".into() });
    assert!(effects.contains(&Effect::Record(Record::Freed { object: actor.object() })), "{effects:?}");
    assert_eq!(bench.owner.object_count(), 0);
}
