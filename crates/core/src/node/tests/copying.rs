//! Copies: who asks whom for a sender, and what the answers become.

use super::*;
use crate::id::{NodeId, ObjectId};
use crate::message::{Between, CopySource, CopyWish, LostSender};
use crate::value::{Location, RefSpec};

const ME: NodeId = NodeId(2);
const HEAD: NodeId = NodeId::HEAD;
const OTHER: NodeId = NodeId(3);
const THIRD: NodeId = NodeId(4);

fn member() -> Fixture {
    let config = NodeConfig { id: ME, job: None, prestart: 0, processes_max: 8, ..NodeConfig::for_machine(cpus(2.0)) };
    let mut fixture = Fixture::with(config);
    for node in [HEAD, OTHER, THIRD] {
        fixture.step(Event::NodeJoined { node, total: cpus(2.0) });
    }
    fixture
}

fn place(node: NodeId) -> Location {
    Location { node, entry: 5, generation: 1, offset: 0, len: 1 << 20 }
}

/// Something whose owner is on this node, and which lies on that one.
fn wish(owner: NodeId, of: NodeId, number: u64) -> CopyWish {
    let owner = ProcessId { node: owner, slot: 1, incarnation: 1 };
    let object = RefSpec { object: ObjectId::put(crate::id::TaskId::root(1, owner), 0, 1, 0), owner };
    CopyWish { object, of: place(of), number, lost: None }
}

fn whole(node: NodeId) -> CopySource {
    CopySource { node, at: place(node), is_complete: true }
}

fn tell(node: NodeId, number: u64, from: Result<CopySource, String>) -> Effect {
    Effect::Tell { node, message: Between::CopyFrom { number, from } }
}

#[test]
fn the_owners_node_is_asked_and_its_answer_reaches_the_store() {
    let mut f = member();
    let wish = wish(HEAD, OTHER, 7);
    let effects = f.step(Event::CopyWanted(wish));
    assert_eq!(effects, [Effect::Tell { node: HEAD, message: Between::WantCopy(wish) }]);
    assert_eq!(f.node.abroad().moving, 1);
    let answer = Between::CopyFrom { number: 7, from: Ok(whole(OTHER)) };
    assert_eq!(f.step(Event::Heard { from: OTHER, message: answer.clone() }), [], "only the owner's node answers");
    let effects = f.step(Event::Heard { from: HEAD, message: answer });
    assert_eq!(effects, [Effect::FetchFrom { number: 7, from: Ok(whole(OTHER)) }]);
    assert_eq!(f.node.abroad().moving, 0);
}

#[test]
fn without_the_owners_node_only_the_known_place_is_left() {
    let mut f = member();
    f.step(Event::CopyWanted(wish(HEAD, OTHER, 7)));
    let effects = f.step(Event::NodeDied { node: HEAD, reason: "test".into() });
    assert!(effects.contains(&Effect::FetchFrom { number: 7, from: Ok(whole(OTHER)) }), "{effects:?}");
    let lost = Some(LostSender { node: OTHER, is_useless: true });
    let effects = f.step(Event::CopyWanted(CopyWish { lost, ..wish(HEAD, OTHER, 7) }));
    let [Effect::FetchFrom { number: 7, from: Err(reason) }] = &effects[..] else { panic!("{effects:?}") };
    assert!(reason.contains("node-3 does not have it"), "{reason}");
}

#[test]
fn nodes_are_told_to_get_it_from_each_other_until_it_is_freed() {
    let mut f = member();
    let wanted = |number| Between::WantCopy(wish(ME, ME, number));
    assert_eq!(f.step(Event::Heard { from: OTHER, message: wanted(1) }), [tell(OTHER, 1, Ok(whole(ME)))]);
    let part = CopySource { node: OTHER, at: place(ME), is_complete: false };
    assert_eq!(f.step(Event::Heard { from: THIRD, message: wanted(9) }), [tell(THIRD, 9, Ok(part))]);
    f.step(Event::Heard { from: OTHER, message: Between::CopyMade { of: place(ME), at: place(OTHER) } });
    let effects = f.step(Event::Heard { from: HEAD, message: Between::Free { at: place(ME) } });
    let freed = Err("it was freed".to_owned());
    assert!(effects.contains(&tell(THIRD, 9, freed.clone())), "{effects:?}");
    let copy = Effect::Tell { node: OTHER, message: Between::Free { at: place(OTHER) } };
    assert!(effects.contains(&copy), "{effects:?}");
    // Who asks later is told so.
    assert_eq!(f.step(Event::Heard { from: HEAD, message: wanted(2) }), [tell(HEAD, 2, freed)]);
    assert_eq!(f.node.abroad().moving, 0);
}

#[test]
fn what_is_sent_ahead_is_brought_by_the_nodes_that_lack_it() {
    let mut f = member();
    let (object, at) = (wish(HEAD, OTHER, 0).object, place(OTHER));
    let driver = ProcessId { node: HEAD, slot: 1, incarnation: 1 };
    let request = Box::new(ToNode::Broadcast { object, at, nodes: vec![HEAD, ME, OTHER, NodeId(99)] });
    let job = crate::id::JobId::new(HEAD, 1);
    let effects = f.step(Event::Heard { from: HEAD, message: Between::Asked { process: driver, job, request } });
    let ahead = Effect::Tell { node: HEAD, message: Between::Prefetch { object, of: at } };
    assert_eq!(effects, [ahead, Effect::Bring { object, at }]);
    let effects = f.step(Event::Heard { from: HEAD, message: Between::Prefetch { object, of: at } });
    assert_eq!(effects, [Effect::Bring { object, at }]);
}
