//! Reduces that this process asks for.

use super::*;
use crate::flow::Op;
use crate::id::NodeId;
use crate::message::ReduceInput;
use crate::reduce::{Options, Order};
use crate::value::Body;

const HERE: NodeId = NodeId(1);

fn place(entry: u32, node: NodeId) -> Location {
    Location { node, entry, generation: 1, offset: 0, len: 1 << 20 }
}

fn stored(entry: u32) -> Value {
    Value { body: Body::Stored(place(entry, HERE)), nested: Vec::new() }
}

fn small(byte: u8) -> Value {
    Value::inline(vec![byte])
}

/// So many tasks whose results are inputs; the first of them with these values.
fn inputs(bench: &mut Bench, count: usize) -> Vec<TaskSpec> {
    let specs: Vec<TaskSpec> = (0..count).map(|_| bench.task()).collect();
    for spec in &specs {
        bench.submit(spec);
    }
    for n in 0..count as u64 {
        bench.grant(LeaseId(n + 1), ProcessId { slot: 2 + n as u32, ..W1 });
    }
    specs
}

fn give(bench: &mut Bench, spec: &TaskSpec, value: Value) -> Vec<Effect> {
    let TaskState::Sent { worker, .. } = bench.state(spec).unwrap() else { panic!("it runs") };
    let message = Peer::Reply { task: spec.id, attempt: 0, values: vec![value], duration_us: 100 };
    bench.peer(worker, message)
}

fn target(bench: &Bench) -> ObjectId {
    ObjectId::put(bench.root, 0, 1, 0)
}

fn reduce(bench: &mut Bench, specs: &[TaskSpec], count: u32, order: Order) -> Vec<Effect> {
    let inputs = specs.iter().map(|spec| RefSpec { object: result(spec), owner: ME }).collect();
    let options = Options { order, ..Options::default() };
    bench.step(Event::Reduce { target: target(bench), digest: 9, inputs, op: Op::Sum, count, options })
}

fn told(effects: &[Effect]) -> Vec<u32> {
    let indices = |effect: &Effect| match effect {
        Effect::Node(ToNode::ReduceInputs { inputs, .. }) => inputs.iter().map(|input| input.index).collect(),
        _ => Vec::new(),
    };
    effects.iter().flat_map(indices).collect()
}

#[test]
fn small_inputs_are_combined_here_when_the_last_has_come() {
    let mut bench = Bench::new();
    let specs = inputs(&mut bench, 2);
    let target = target(&bench);
    assert_eq!(reduce(&mut bench, &specs, 2, Order::Arrival), []);
    give(&mut bench, &specs[1], small(2));
    let effects = give(&mut bench, &specs[0], small(1));
    let both = vec![(0, result(&specs[0]), vec![1].into()), (1, result(&specs[1]), vec![2].into())];
    assert!(effects.contains(&Effect::Combine { target, op: Op::Sum, inputs: both }), "{effects:?}");
    let effects = bench.step(Event::Combined { target, result: Ok(vec![3].into()) });
    assert_eq!(effects, [Effect::Record(Record::Put { object: target, digest: 9, value: small(3) })]);
    assert_eq!(bench.owner.used_inputs(&target), Some(&[0, 1][..]));
    for spec in &specs {
        bench.drop_result(spec);
    }
    bench.step(Event::RefDropped(target));
    assert_eq!((bench.owner.object_count(), bench.owner.used_inputs(&target)), (0, None));
}

#[test]
fn the_node_is_told_of_large_inputs_as_they_come_and_its_result_is_recorded() {
    let mut bench = Bench::new();
    let specs = inputs(&mut bench, 3);
    let target = target(&bench);
    give(&mut bench, &specs[0], stored(1));
    give(&mut bench, &specs[2], stored(2));
    let effects = reduce(&mut bench, &specs, 3, Order::Fixed);
    assert!(matches!(effects[0], Effect::Node(ToNode::Reduce { total: 3, count: 3, .. })), "{effects:?}");
    assert_eq!((effects.len(), told(&effects)), (2, vec![0, 2]), "those that are there go together");
    assert_eq!(told(&give(&mut bench, &specs[1], stored(3))), [1]);
    let effects = bench.node(FromNode::Reduced { target, result: Ok(place(9, HERE)), used: vec![0, 1, 2] });
    assert_eq!(effects, [Effect::Record(Record::Put { object: target, digest: 9, value: stored(9) })]);
    assert_eq!((bench.owner.value(&target), bench.owner.reduces_pending()), (Some(&stored(9)), 0));
}

#[test]
fn a_copy_is_sought_of_an_input_that_lies_with_a_node_of_the_dead() {
    let mut bench = Bench::new();
    let specs = inputs(&mut bench, 2);
    let target = target(&bench);
    let gone = NodeId(3);
    bench.node(FromNode::NodeDied { node: gone, reason: "was silent".into() });
    reduce(&mut bench, &specs, 2, Order::Arrival);
    let (object, at) = (result(&specs[0]), place(1, gone));
    // As the ledger may tell it to a repeated task.
    let effects = give(&mut bench, &specs[0], Value { body: Body::Stored(at), nested: Vec::new() });
    assert!(effects.contains(&Effect::Node(ToNode::FindCopy { object, at, home: ME.node })), "{effects:?}");
    let effects = bench.node(FromNode::CopyFound { object, found: Ok(place(2, HERE)) });
    assert_eq!(told(&effects), [0]);
    assert_eq!(bench.owner.value(&target), None);
}

#[test]
fn a_failed_input_is_named_or_replaced() {
    let mut bench = Bench::new();
    let specs = inputs(&mut bench, 2);
    let target = target(&bench);
    let failed = || Value::failed(Failure::StoreFull { reason: "no room".into() });
    reduce(&mut bench, &specs, 1, Order::Arrival);
    give(&mut bench, &specs[0], failed());
    assert_eq!(bench.owner.value(&target), None, "the other one is enough");
    assert_eq!(told(&give(&mut bench, &specs[1], stored(1))), [1]);
    let effects = bench.node(FromNode::NodeDied { node: HERE, reason: "was silent".into() });
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Node(ToNode::FindCopy { .. }))), "{effects:?}");
    let found = Err("there is no other".to_owned());
    bench.node(FromNode::CopyFound { object: result(&specs[1]), found });
    let text = bench.owner.value(&target).and_then(Value::failure).unwrap().to_string();
    assert!(text.contains("input 1") && text.contains(&result(&specs[1]).to_string()), "{text}");
    assert!(text.contains("node-1"), "{text}");
}

#[test]
fn the_node_hears_where_a_lost_input_is_now() {
    let mut bench = Bench::new();
    let specs = inputs(&mut bench, 1);
    reduce(&mut bench, &specs, 1, Order::Arrival);
    give(&mut bench, &specs[0], stored(1));
    bench.node(FromNode::NodeDied { node: HERE, reason: "was silent".into() });
    let effects = bench.node(FromNode::CopyFound { object: result(&specs[0]), found: Ok(place(5, NodeId(2))) });
    let (object, at) = (result(&specs[0]), place(5, NodeId(2)));
    let inputs = vec![ReduceInput { index: 0, object, at, is_growing: false }];
    assert_eq!(effects, [Effect::Node(ToNode::ReduceInputs { target: target(&bench), inputs, more: false })]);
}

#[test]
fn small_and_large_inputs_do_not_go_together() {
    let mut bench = Bench::new();
    let specs = inputs(&mut bench, 2);
    give(&mut bench, &specs[0], small(1));
    give(&mut bench, &specs[1], stored(1));
    reduce(&mut bench, &specs, 2, Order::Arrival);
    let text = bench.owner.value(&target(&bench)).and_then(Value::failure).unwrap().to_string();
    assert!(text.contains("input 0") && text.contains("input 1"), "{text}");
}

#[test]
fn a_result_that_nobody_wants_is_given_up_and_one_that_comes_late_is_freed() {
    let mut bench = Bench::new();
    let specs = inputs(&mut bench, 2);
    let target = target(&bench);
    give(&mut bench, &specs[0], stored(1));
    reduce(&mut bench, &specs, 2, Order::Arrival);
    assert_eq!(bench.step(Event::RefDropped(target)), [Effect::Node(ToNode::EndReduce { target })]);
    assert!(!bench.owner.knows(&target));
    let effects = bench.node(FromNode::Reduced { target, result: Ok(place(9, HERE)), used: vec![0, 1] });
    assert_eq!(effects, [Effect::Node(ToNode::FreeObject { at: place(9, HERE) })]);
    give(&mut bench, &specs[1], stored(2));
    for spec in &specs {
        bench.drop_result(spec);
    }
    assert_eq!(bench.owner.object_count(), 0);
}

#[test]
fn a_cancelled_reduce_ends_with_the_node() {
    let mut bench = Bench::new();
    let specs = inputs(&mut bench, 2);
    let target = target(&bench);
    give(&mut bench, &specs[0], stored(1));
    reduce(&mut bench, &specs, 2, Order::Arrival);
    assert!(bench.owner.explain_reduce(&target).is_some_and(|text| text.contains("waits for 1 more")));
    let effects = bench.step(Event::Cancelled { object: target, force: false, recursive: false });
    assert!(effects.contains(&Effect::Node(ToNode::EndReduce { target })), "{effects:?}");
    assert!(matches!(bench.owner.value(&target).and_then(Value::failure), Some(Failure::Cancelled { .. })));
}

/// A reduce of two, of which the node has said where it grows.
fn growing(bench: &mut Bench) -> Vec<TaskSpec> {
    let specs = inputs(bench, 3);
    give(bench, &specs[0], stored(1));
    give(bench, &specs[1], stored(2));
    reduce(bench, &specs[..2], 2, Order::Arrival);
    specs
}

#[test]
fn who_waits_for_a_result_has_it_brought_while_it_grows() {
    let mut bench = Bench::new();
    growing(&mut bench);
    let (target, there) = (target(&bench), NodeId(7));
    let object = RefSpec { object: target, owner: ME };
    let brought = |nodes: &[NodeId], entry| {
        [Effect::Node(ToNode::Broadcast { object, at: place(entry, HERE), nodes: nodes.to_vec() })]
    };
    let reader = |node| ProcessId { node, ..W1 };
    assert_eq!(bench.peer(reader(there), Peer::Resolve { object: target }), []);
    assert_eq!(bench.step(Event::ReadEarly { object: target, nodes: vec![NodeId(8), HERE] }), []);
    let both = brought(&[there, NodeId(8)], 9);
    assert_eq!(bench.node(FromNode::ReducePlaced { target, at: place(9, HERE), to_readers: true }), both);
    let unsaid = FromNode::ReducePlaced { target, at: place(9, HERE), to_readers: false };
    assert_eq!(bench.node(unsaid), [], "its links are needed for what it is made of");
    bench.node(FromNode::ReducePlaced { target, at: place(9, HERE), to_readers: true });
    let late = reader(NodeId(6));
    assert_eq!(bench.peer(late, Peer::Resolve { object: target }), brought(&[NodeId(6)], 9));
    assert_eq!(bench.step(Event::ReadEarly { object: target, nodes: vec![NodeId(5)] }), brought(&[NodeId(5)], 9));
    let all = brought(&[NodeId(5), NodeId(6), there, NodeId(8)], 10);
    assert_eq!(
        bench.node(FromNode::ReducePlaced { target, at: place(10, HERE), to_readers: true }),
        all,
        "it begins again elsewhere"
    );
    bench.node(FromNode::Reduced { target, result: Ok(place(10, HERE)), used: vec![0, 1] });
    assert_eq!(bench.step(Event::ReadEarly { object: target, nodes: vec![there] }), [], "it is complete");
}

#[test]
fn a_reduce_takes_the_result_of_another_while_it_grows() {
    let mut bench = Bench::new();
    let specs = growing(&mut bench);
    let inner = target(&bench);
    let outer = ObjectId::put(bench.root, 0, 2, 0);
    let inputs = [inner, result(&specs[2])].map(|object| RefSpec { object, owner: ME }).to_vec();
    let options = Options::default();
    bench.step(Event::Reduce { target: outer, digest: 9, inputs, op: Op::Sum, count: 2, options });
    let input = |entry, is_growing| ReduceInput { index: 0, object: inner, at: place(entry, HERE), is_growing };
    let told = |effects: Vec<Effect>| match effects.into_iter().next_back() {
        Some(Effect::Node(ToNode::ReduceInputs { target, inputs, .. })) if target == outer => inputs,
        other => panic!("the node is told last: {other:?}"),
    };
    assert_eq!(
        told(bench.node(FromNode::ReducePlaced { target: inner, at: place(9, HERE), to_readers: true })),
        [input(9, true)]
    );
    assert_eq!(
        told(bench.node(FromNode::ReducePlaced { target: inner, at: place(10, HERE), to_readers: true })),
        [input(10, true)]
    );
    let reduced = FromNode::Reduced { target: inner, result: Ok(place(10, HERE)), used: vec![0, 1] };
    assert_eq!(told(bench.node(reduced)), [input(10, false)]);
    assert!(bench.owner.explain_reduce(&outer).is_some_and(|text| text.contains("waits for 1 more")));
}

#[test]
fn a_reduce_fails_with_the_one_whose_result_it_takes() {
    let mut bench = Bench::new();
    let specs = growing(&mut bench);
    let (inner, outer) = (target(&bench), ObjectId::put(bench.root, 0, 2, 0));
    bench.node(FromNode::ReducePlaced { target: inner, at: place(9, HERE), to_readers: true });
    let inputs = [inner, result(&specs[2])].map(|object| RefSpec { object, owner: ME }).to_vec();
    let effects = bench.step(Event::Reduce {
        target: outer,
        digest: 9,
        inputs,
        op: Op::Sum,
        count: 2,
        options: Options::default(),
    });
    assert_eq!(told(&effects), [0], "it grows already");
    bench.node(FromNode::Reduced { target: inner, result: Err("no room".to_owned()), used: Vec::new() });
    let text = bench.owner.value(&outer).and_then(Value::failure).unwrap().to_string();
    assert!(text.contains("input 0") && text.contains("no room"), "{text}");
}
