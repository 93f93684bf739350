//! Reduces that a node leads, and stages that it carries out for others.

use super::*;
use crate::flow::{Op, Origin, StageSpec};
use crate::id::JobId;
use crate::message::{Between, ReduceInput};
use crate::reduce::Options;
use crate::value::Location;

const HERE: NodeId = NodeId(1);
const OURS: ProcessId = ProcessId::first_driver(HERE);
const THERE: NodeId = NodeId(2);

fn cluster() -> Fixture {
    let total = Resources::cpus(Amount::whole(1));
    let job = Some(JobId::new(HERE, 1));
    let config = NodeConfig { id: HERE, job, prestart: 0, processes_max: 8, ..NodeConfig::for_machine(total) };
    let mut fixture = Fixture::with(config);
    fixture.step(Event::Started);
    for node in [THERE, NodeId(3)] {
        fixture.step(Event::NodeJoined { node, total: cpus(1.0) });
    }
    fixture
}

fn target() -> ObjectId {
    ObjectId::put(root(OURS), 0, 1, 0)
}

fn place(entry: u32, node: NodeId) -> Location {
    Location { node, entry, generation: 1, offset: 0, len: 1 << 20 }
}

/// Asks for the reduce of inputs on these nodes, of which so many are taken.
fn reduce(f: &mut Fixture, nodes: &[NodeId], count: u32) -> Vec<Effect> {
    let total = nodes.len() as u32;
    let request = ToNode::Reduce { target: target(), op: Op::Sum, total, count, options: Options::default() };
    assert_eq!(f.ask(OURS, request), []);
    let inputs = (0..).zip(nodes).map(|(index, node)| input(index, *node)).collect();
    f.ask(OURS, ToNode::ReduceInputs { target: target(), inputs, more: false })
}

fn input(index: u32, node: NodeId) -> ReduceInput {
    ReduceInput { index, object: ObjectId::result(root(OURS), index), at: place(index, node), is_growing: false }
}

/// The stages that are run here.
fn run_here(effects: &[Effect]) -> Vec<&StageSpec> {
    fn spec(effect: &Effect) -> Option<&StageSpec> {
        if let Effect::RunStage(spec) = effect { Some(spec) } else { None }
    }
    effects.iter().filter_map(spec).collect()
}

fn run_there(effects: &[Effect]) -> Vec<NodeId> {
    let run = |effect: &Effect| match effect {
        Effect::Tell { node, message: Between::RunStage(_) } => Some(*node),
        _ => None,
    };
    effects.iter().filter_map(run).collect()
}

#[test]
fn a_reduce_runs_where_its_inputs_are_and_its_result_belongs_to_who_records_it() {
    let mut f = cluster();
    let effects = reduce(&mut f, &[THERE, HERE, NodeId(3)], 3);
    assert_eq!(run_there(&effects), [THERE, NodeId(3)]);
    let last = run_here(&effects)[0].id;
    let at = place(99, HERE);
    let effects = f.step(Event::StageDone { id: last, at: vec![at] });
    let reduced = FromNode::Reduced { target: target(), result: Ok(at), used: vec![0, 1, 2] };
    assert!(effects.contains(&to(OURS, reduced)), "{effects:?}");
    assert_eq!(f.node.reduces(), (0, 0, 1), "it goes with its process until it is recorded");
    let value = Value { body: crate::value::Body::Stored(at), nested: Vec::new() };
    f.record(OURS, Record::Put { object: target(), digest: 1, value });
    assert_eq!(f.node.reduces(), (0, 0, 0));
}

#[test]
fn a_result_that_was_not_recorded_goes_with_its_process() {
    let mut f = cluster();
    let effects = reduce(&mut f, &[HERE, HERE], 2);
    let (last, at) = (run_here(&effects)[0].id, place(99, HERE));
    f.step(Event::StageDone { id: last, at: vec![at] });
    let effects = f.step(Event::DriverGone(death(OURS)));
    assert!(effects.contains(&Effect::FreeStored(at)), "{effects:?}");
    assert_eq!(f.node.reduces(), (0, 0, 0));
}

#[test]
fn a_reduce_ends_with_its_process_and_what_comes_late_is_freed() {
    let mut f = cluster();
    let effects = reduce(&mut f, &[THERE, HERE], 2);
    let (last, at) = (run_here(&effects)[0].id, place(99, HERE));
    let effects = f.step(Event::DriverGone(death(OURS)));
    let ended = |effect: &Effect| match effect {
        Effect::EndStage { .. } => Some(HERE),
        Effect::Tell { node, message: Between::EndStage { .. } } => Some(*node),
        _ => None,
    };
    assert_eq!(effects.iter().filter_map(ended).collect::<Vec<_>>(), [THERE, HERE]);
    assert_eq!(f.step(Event::StageDone { id: last, at: vec![at] }), [Effect::FreeStored(at)]);
    assert_eq!(f.node.reduces(), (0, 0, 0));
}

#[test]
fn what_is_asked_for_again_is_another_operation() {
    let mut f = cluster();
    let ids = |effects: &[Effect]| run_here(effects).iter().map(|spec| spec.id).collect::<Vec<_>>();
    let first = ids(&reduce(&mut f, &[HERE, HERE], 2));
    f.ask(OURS, ToNode::EndReduce { target: target() });
    let second = ids(&reduce(&mut f, &[HERE, HERE], 2));
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first[0].id, second[0].id, "nothing of the first may be taken for a part of the second");
}

#[test]
fn a_spare_input_takes_the_place_of_one_that_died_with_its_node() {
    let mut f = cluster();
    let effects = reduce(&mut f, &[THERE, NodeId(3), HERE], 2);
    assert_eq!(run_there(&effects), [THERE, NodeId(3)]);
    let effects = f.step(Event::NodeDied { node: THERE, reason: "was silent".into() });
    assert_eq!(run_there(&effects), [NodeId(3)]);
    let last = run_here(&effects)[0];
    assert_eq!((last.id.epoch, last.inputs.len()), (1, 1));
    let effects = f.step(Event::StageDone { id: last.id, at: vec![place(99, HERE)] });
    let used = |effect: &Effect| match effect {
        Effect::Send { message: FromNode::Reduced { used, .. }, .. } => Some(used.clone()),
        _ => None,
    };
    assert_eq!(effects.iter().find_map(used), Some(vec![1, 2]));
}

#[test]
fn a_process_hears_of_the_death_of_the_node_where_an_input_lies() {
    let mut f = cluster();
    f.step(Event::NodeDied { node: THERE, reason: "was silent".into() });
    let effects = reduce(&mut f, &[THERE, HERE], 2);
    let heard = |effect: &Effect| match effect {
        Effect::Send { to: OURS, message: FromNode::NodeDied { node, .. } } => Some(*node),
        _ => None,
    };
    assert_eq!(effects.iter().filter_map(heard).collect::<Vec<_>>(), [THERE], "it may have come after that");
    assert_eq!(run_here(&effects), Vec::<&StageSpec>::new());
}

#[test]
fn copies_of_what_grew_go_when_it_comes_to_nothing() {
    let mut f = cluster();
    let effects = reduce(&mut f, &[THERE, NodeId(3), HERE], 2);
    let (last, at) = (run_here(&effects)[0].id, place(99, HERE));
    let placed = f.step(Event::StagePlaced { id: last, at: vec![at] });
    assert_eq!(placed, [to(OURS, FromNode::ReducePlaced { target: target(), at, to_readers: true })]);
    let copy = place(5, NodeId(3));
    f.step(Event::Heard { from: NodeId(3), message: Between::CopyMade { of: at, at: copy } });
    let effects = f.step(Event::NodeDied { node: THERE, reason: "was silent".into() });
    let freed = Effect::Tell { node: NodeId(3), message: Between::Free { at: copy } };
    assert!(effects.contains(&freed), "{effects:?}");
    let again = run_here(&effects)[0].id;
    assert_eq!(f.step(Event::StagePlaced { id: last, at: vec![at] }), [], "of an epoch that is over");
    f.step(Event::StagePlaced { id: again, at: vec![place(98, HERE)] });
    let effects = f.step(Event::StageDone { id: again, at: vec![place(98, HERE)] });
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::FreeStored(_))), "{effects:?}");
}

#[test]
fn stages_for_another_node_end_with_it_and_tell_it_of_failures() {
    let mut f = cluster();
    let stage = |slot| StageSpec::new(crate::flow::StageId { id: 7, epoch: 0, slot });
    for slot in 0..3 {
        let message = Between::RunStage(Box::new(stage(slot)));
        assert_eq!(f.step(Event::Heard { from: THERE, message }), [Effect::RunStage(stage(slot))]);
    }
    let (id, reason) = (stage(0).id, "a stream broke".to_owned());
    let message = Between::StageFailed { id, reason: reason.clone(), peer: Some(NodeId(3)) };
    let effects = f.step(Event::StageFailed { id, reason: reason.clone(), peer: Some(NodeId(3)) });
    assert_eq!(effects, [Effect::Tell { node: THERE, message }]);
    let message = Between::EndStage { id: stage(1).id, reason: reason.clone() };
    assert_eq!(f.step(Event::Heard { from: NodeId(3), message: message.clone() }), [], "none of its own");
    assert_eq!(f.step(Event::Heard { from: THERE, message }), [Effect::EndStage { id: stage(1).id, reason }]);
    let effects = f.step(Event::NodeDied { node: THERE, reason: "was silent".into() });
    assert!(effects.iter().any(|e| matches!(e, Effect::EndStage { id, .. } if *id == stage(2).id)), "{effects:?}");
    assert_eq!(f.node.reduces(), (0, 0, 0));
}

#[test]
fn a_node_alone_reduces_what_it_has() {
    let mut f = Fixture::new(1);
    let request = ToNode::Reduce { target: target(), op: Op::Sum, total: 2, count: 2, options: Options::default() };
    f.ask(DRIVER, request);
    let first = ToNode::ReduceInputs { target: target(), inputs: vec![input(0, NodeId::ALONE)], more: true };
    assert_eq!(f.ask(DRIVER, first), [], "more is known and follows");
    let rest = ToNode::ReduceInputs { target: target(), inputs: vec![input(1, NodeId::ALONE)], more: false };
    assert_eq!(run_here(&f.ask(DRIVER, rest)).len(), 1);
}

#[test]
fn how_long_messages_take_is_measured_for_the_next_reduce() {
    let mut f = cluster();
    let effects = reduce(&mut f, &[THERE, THERE], 2);
    let ping = |effect: &Effect| match effect {
        Effect::Tell { node, message: Between::Ping { at } } => Some((*node, *at)),
        _ => None,
    };
    let asked: Vec<_> = effects.iter().filter_map(ping).collect();
    let [(THERE, at)] = asked[..] else { panic!("each node once: {asked:?}") };
    f.now = f.now.plus_us(10_000);
    f.step(Event::Heard { from: THERE, message: Between::Pong { at } });
    assert_eq!(f.node.message_us(), Some(5_000));
    f.now = at;
    f.step(Event::Heard { from: NodeId(3), message: Between::Pong { at } });
    assert_eq!(f.node.message_us(), Some(5_000), "that one was not asked");
    let message = Between::Ping { at };
    let back = Effect::Tell { node: THERE, message: Between::Pong { at } };
    assert_eq!(f.step(Event::Heard { from: THERE, message }), [back]);
}

/// The most streams that a node takes from others in a reduce of 256 KiB with an input on each of eight nodes.
fn degree(f: &mut Fixture) -> usize {
    let request = ToNode::Reduce { target: target(), op: Op::Sum, total: 8, count: 8, options: Options::default() };
    assert_eq!(f.ask(OURS, request), []);
    let inputs = (0..8).map(|index| {
        let input = input(index, NodeId(index + 1));
        ReduceInput { at: Location { len: 256 << 10, ..input.at }, ..input }
    });
    let effects = f.ask(OURS, ToNode::ReduceInputs { target: target(), inputs: inputs.collect(), more: false });
    f.ask(OURS, ToNode::EndReduce { target: target() });
    let taken = |spec: &StageSpec| {
        let flows = spec.intakes.iter().filter(|intake| matches!(intake.origin, Origin::Flow { .. }));
        flows.count()
    };
    let specs = effects.iter().filter_map(|effect| match effect {
        Effect::RunStage(spec) => Some(taken(spec)),
        Effect::Tell { message: Between::RunStage(spec), .. } => Some(taken(spec)),
        _ => None,
    });
    specs.max().unwrap_or(0)
}

#[test]
fn a_plan_knows_the_rate_of_a_link_that_has_carried_small_objects_only() {
    let mut f = cluster();
    for node in 4..9 {
        f.step(Event::NodeJoined { node: NodeId(node), total: cpus(1.0) });
    }
    degree(&mut f);
    let at = f.now;
    f.now = f.now.plus_us(2_000);
    f.step(Event::Heard { from: THERE, message: Between::Pong { at } });
    assert!(degree(&mut f) > 1, "a fast link with a delay of a millisecond: few hops");
    // 25 MB/s.
    f.step(Event::Fetched { bytes: 192 << 10, took_us: 7_864, arena_free_bytes: 1 << 30 });
    assert_eq!(degree(&mut f), 1, "on a slow one the bytes count");
}
