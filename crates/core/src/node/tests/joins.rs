//! Messages about nodes that have not joined yet, as far as their receiver knows.

use super::*;
use crate::id::{NodeId, ObjectId, TaskId};
use crate::message::Between;
use crate::value::{Location, RefSpec};

const ME: NodeId = NodeId(2);
const HEAD: NodeId = NodeId::HEAD;
const NEW: NodeId = NodeId(3);
const NEWER: NodeId = NodeId(4);

fn member() -> Fixture {
    let config = NodeConfig { id: ME, job: None, prestart: 0, ..NodeConfig::for_machine(cpus(2.0)) };
    let mut f = Fixture::with(config);
    join(&mut f, HEAD);
    f
}

fn join(f: &mut Fixture, node: NodeId) -> Vec<Effect> {
    f.step(Event::NodeJoined { node, total: cpus(1.0) })
}

fn hear(f: &mut Fixture, from: NodeId, message: Between) -> Vec<Effect> {
    f.step(Event::Heard { from, message })
}

fn ping(at: u64) -> Between {
    Between::Ping { at: Tick(at) }
}

fn pong(node: NodeId, at: u64) -> Effect {
    Effect::Tell { node, message: Between::Pong { at: Tick(at) } }
}

#[test]
fn a_message_that_may_be_about_a_node_that_is_not_known_yet_waits_for_it_with_all_that_follow() {
    let mut f = member();
    assert_eq!(hear(&mut f, HEAD, ping(1)), [pong(HEAD, 1)]);
    assert_eq!(hear(&mut f, HEAD, Between::Knows { newest: NEW }), []);
    assert_eq!(hear(&mut f, HEAD, ping(2)), []);
    assert_eq!(hear(&mut f, HEAD, Between::Knows { newest: NEWER }), []);
    assert_eq!(hear(&mut f, HEAD, ping(3)), []);
    assert_eq!(join(&mut f, NEW), [pong(HEAD, 2)]);
    assert_eq!(hear(&mut f, HEAD, ping(4)), [], "not before the one that waits");
    assert_eq!(join(&mut f, NEWER), [pong(HEAD, 3), pong(HEAD, 4)]);
    assert_eq!(hear(&mut f, HEAD, ping(5)), [pong(HEAD, 5)]);
}

#[test]
fn a_new_node_that_speaks_before_it_is_known_is_heard_when_it_is() {
    let mut f = member();
    assert_eq!(hear(&mut f, NEW, ping(1)), []);
    assert_eq!(hear(&mut f, HEAD, ping(2)), [pong(HEAD, 2)], "others do not wait");
    assert_eq!(join(&mut f, NEW), [pong(NEW, 1)]);
    f.step(Event::NodeDied { node: NEW, reason: "test".into() });
    assert_eq!(hear(&mut f, NEW, ping(3)), [], "the dead are not heard");
}

#[test]
fn what_lies_on_a_node_that_is_not_known_yet_is_fetched_once_it_is() {
    let mut f = member();
    let owner = ProcessId { node: HEAD, slot: 1, incarnation: 1 };
    let object = ObjectId::put(TaskId::root(1, owner), 0, 1, 0);
    let (process, object) = (ProcessId { node: ME, slot: 2, incarnation: 1 }, RefSpec { object, owner });
    let at = Location { node: NEW, entry: 5, generation: 1, offset: 0, len: 1 << 20 };
    hear(&mut f, HEAD, Between::Knows { newest: NEW });
    assert_eq!(hear(&mut f, HEAD, Between::Sought { process, request: 3, object, found: Ok(at) }), []);
    let fetch = Effect::Store { process, request: ToNode::Fetch { request: 3, object, at } };
    assert_eq!(join(&mut f, NEW), [fetch], "it is not lost");
}

#[test]
fn a_node_says_whom_it_knows_before_it_says_anything_else_and_again_after_a_join() {
    let mut f = member();
    let hear = |f: &mut Fixture, event| {
        let mut effects = Vec::new();
        f.node.step(event, f.now, &mut effects);
        effects
    };
    let knows = |newest| Effect::Tell { node: HEAD, message: Between::Knows { newest } };
    let asked = |at| Event::Heard { from: HEAD, message: ping(at) };
    assert_eq!(hear(&mut f, asked(1)), [knows(ME), pong(HEAD, 1)]);
    assert_eq!(hear(&mut f, asked(2)), [pong(HEAD, 2)]);
    hear(&mut f, Event::NodeJoined { node: NEW, total: cpus(1.0) });
    assert_eq!(hear(&mut f, asked(3)), [knows(NEW), pong(HEAD, 3)]);
    assert_eq!(hear(&mut f, asked(4)), [pong(HEAD, 4)]);
}
