//! Collective groups at their home: who has come, who is lost, and the stages of processes that die.

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::collective::{CollectiveId, Seat, Trouble};
use crate::flow::{StageId, StageSpec};
use crate::message::Between;
use crate::value::Location;

const HERE: NodeId = NodeId(1);
const THERE: NodeId = NodeId(2);

fn group() -> CollectiveId {
    CollectiveId::named(HERE, "trainers")
}

fn process_at(node: NodeId, slot: u32) -> ProcessId {
    ProcessId { node, slot, incarnation: 1 }
}

/// The home of the group, and two other nodes.
fn home() -> Fixture {
    let config = NodeConfig { id: HERE, job: None, prestart: 0, ..NodeConfig::for_machine(cpus(4.0)) };
    let mut fixture = Fixture::with(config);
    fixture.step(Event::Started);
    for node in [2, 3] {
        fixture.step(Event::NodeJoined { node: NodeId(node), total: cpus(2.0) });
    }
    fixture
}

fn asked(process: ProcessId, request: ToNode) -> Event {
    let message = Between::Asked { process, job: crate::id::JobId::default(), request: Box::new(request) };
    Event::Heard { from: process.node, message }
}

fn join(f: &mut Fixture, process: ProcessId, rank: u32, size: u32) -> Vec<Effect> {
    let label = format!("actor-{rank}");
    f.step(asked(process, ToNode::JoinCollective { group: group(), rank, size, label }))
}

/// What processes of other nodes are told about groups.
fn told(effects: &[Effect]) -> Vec<(ProcessId, FromNode)> {
    let told = effects.iter().filter_map(|effect| match effect {
        Effect::Tell { message: Between::Told { to, message }, .. } => Some((*to, (**message).clone())),
        _ => None,
    });
    told.collect()
}

fn lost(rank: u32, why: &str) -> Trouble {
    Trouble::Lost { member: Seat { rank, label: format!("actor-{rank}") }, why: why.into() }
}

#[test]
fn when_all_members_have_come_each_hears_who_the_others_are() {
    let mut f = home();
    let (a, b) = (process_at(THERE, 2), process_at(NodeId(3), 2));
    assert_eq!(told(&join(&mut f, b, 1, 2)), []);
    let members = vec![(a, "actor-0".to_owned()), (b, "actor-1".to_owned())];
    let formed = |rank| FromNode::CollectiveFormed { group: group(), rank, life: 1, members: members.clone() };
    assert_eq!(told(&join(&mut f, a, 0, 2)), [(a, formed(0)), (b, formed(1))]);
}

#[test]
fn a_member_that_comes_before_the_word_of_its_predecessor_begins_the_next_life() {
    let mut f = home();
    let (a, b) = (process_at(THERE, 2), process_at(NodeId(3), 2));
    join(&mut f, a, 0, 1);
    assert_eq!(told(&join(&mut f, b, 0, 1)), [], "the first may have left, in a ring that is not read yet");
    let left = f.step(asked(a, ToNode::LeaveCollective { group: group(), rank: 0, calls: 1 }));
    assert_eq!(told(&left), []);
    let formed = told(&f.step(Event::Passed));
    let [(to, FromNode::CollectiveFormed { rank: 0, life: 2, .. })] = &formed[..] else { panic!("{formed:?}") };
    assert_eq!(*to, b);
    // Nobody leaves this time: the rank is taken.
    assert_eq!(told(&join(&mut f, a, 0, 1)), []);
    let refused: Vec<_> = (0..2).flat_map(|_| told(&f.step(Event::Passed))).collect();
    let [(_, FromNode::CollectiveBroken { trouble, .. })] = &refused[..] else { panic!("{refused:?}") };
    assert!(trouble.to_string().contains("has this rank already"), "{trouble}");
    // One that goes before it was let in is forgotten.
    join(&mut f, a, 0, 1);
    f.step(asked(a, ToNode::LeaveCollective { group: group(), rank: 0, calls: 0 }));
    assert_eq!((0..2).flat_map(|_| told(&f.step(Event::Passed))).count(), 0);
}

#[test]
fn a_rank_that_is_taken_another_size_and_a_rank_beyond_it_are_refused_in_words() {
    let mut f = home();
    join(&mut f, process_at(THERE, 2), 0, 2);
    for (rank, size, word) in [(0, 2, "has this rank already"), (1, 3, "others say 2"), (5, 2, "cannot be")] {
        let answer = told(&join(&mut f, process_at(THERE, 3), rank, size));
        let [(_, FromNode::CollectiveBroken { trouble, .. })] = &answer[..] else { panic!("{answer:?}") };
        assert!(trouble.to_string().contains(word), "{trouble}");
    }
}

#[test]
fn who_comes_again_before_the_others_have_left_is_a_member_of_the_next_life() {
    let mut f = home();
    let (a, b) = (process_at(THERE, 2), process_at(NodeId(3), 2));
    let leave = |f: &mut Fixture, process, rank| {
        f.step(asked(process, ToNode::LeaveCollective { group: group(), rank, calls: 1 }));
    };
    join(&mut f, a, 0, 2);
    join(&mut f, b, 1, 2);
    leave(&mut f, a, 0);
    assert_eq!(told(&join(&mut f, a, 0, 2)), []);
    // Changes its mind, and dies: neither is there when the others have left.
    leave(&mut f, a, 0);
    let dead = process_at(NodeId(4), 2);
    f.step(Event::NodeJoined { node: NodeId(4), total: cpus(1.0) });
    assert_eq!(told(&join(&mut f, dead, 0, 2)), []);
    f.step(Event::NodeDied { node: NodeId(4), reason: "is gone".into() });
    assert_eq!(told(&join(&mut f, a, 0, 2)), []);
    leave(&mut f, b, 1);
    let formed = told(&join(&mut f, b, 1, 2));
    let is_second = |word: &FromNode| matches!(word, FromNode::CollectiveFormed { life: 2, .. });
    assert!(formed.len() == 2 && formed.iter().all(|(_, word)| is_second(word)), "{formed:?}");
    assert_eq!(f.node.collectives_open().0, 1);
}

#[test]
fn whoever_dies_before_all_have_come_is_named_to_those_who_have_and_who_come_later() {
    let mut f = home();
    let (a, b, late) = (process_at(THERE, 2), process_at(NodeId(3), 2), process_at(NodeId(3), 4));
    join(&mut f, a, 0, 3);
    join(&mut f, b, 1, 3);
    let effects = f.step(Event::NodeDied { node: THERE, reason: "stopped answering".into() });
    let trouble = lost(0, "node-2 stopped answering");
    assert_eq!(told(&effects), [(b, FromNode::CollectiveBroken { group: group(), rank: 1, trouble: trouble.clone() })]);
    let effects = join(&mut f, late, 2, 3);
    assert_eq!(told(&effects), [(late, FromNode::CollectiveBroken { group: group(), rank: 2, trouble })]);
}

#[test]
fn a_process_that_asks_for_a_group_of_a_dead_home_is_told_so() {
    let mut f = Fixture::with(NodeConfig { id: THERE, ..NodeConfig::for_machine(cpus(1.0)) });
    f.step(Event::Started);
    f.step(Event::NodeJoined { node: HERE, total: cpus(1.0) });
    f.step(Event::NodeDied { node: HERE, reason: "is gone".into() });
    let driver = ProcessId::first_driver(THERE);
    let effects = f.ask(driver, ToNode::JoinCollective { group: group(), rank: 0, size: 1, label: String::new() });
    let [Effect::Send { message: FromNode::CollectiveBroken { trouble, .. }, .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(trouble.to_string().contains("node-1 is gone"), "{trouble}");
}

fn stage(slot: u32) -> (StageId, StageSpec) {
    let id = StageId { id: 9, epoch: 0, slot };
    let mut spec = StageSpec::new(id);
    spec.inputs.push(at(slot));
    (id, spec)
}

fn at(entry: u32) -> Location {
    Location { node: NodeId::ALONE, entry, generation: 1, offset: 0, len: 1 }
}

#[test]
fn what_a_stage_used_and_made_is_freed_when_its_process_has_it() {
    let mut f = Fixture::new(2);
    let (id, spec) = stage(1);
    let effects = f.ask(DRIVER, ToNode::RunStage { spec: Box::new(spec.clone()) });
    assert_eq!(effects, [Effect::RunStage(spec)]);
    let effects = f.step(Event::StageDone { id, at: vec![at(7)] });
    assert_eq!(effects, [to(DRIVER, FromNode::StageDone { id, at: vec![at(7)] })]);
    let effects = f.ask(DRIVER, ToNode::EndStage { id, reason: String::new() });
    assert_eq!(effects, [Effect::FreeStored(at(1)), Effect::FreeStored(at(7))]);
    assert_eq!(f.node.collectives_open(), (0, 0));
}

#[test]
fn only_the_process_that_wants_a_stage_says_that_its_inputs_grow() {
    let mut f = Fixture::new(2);
    let worker = f.leased(DRIVER, 1, cpus(1.0))[0].1;
    let (id, spec) = stage(1);
    assert_eq!(f.ask(DRIVER, ToNode::GrowStage { id }), []);
    f.ask(DRIVER, ToNode::RunStage { spec: Box::new(spec) });
    assert_eq!(f.ask(DRIVER, ToNode::GrowStage { id }), [Effect::GrowStage(id)]);
    assert_eq!(f.ask(worker, ToNode::GrowStage { id }), []);
    f.step(Event::StageDone { id, at: vec![at(7)] });
    assert_eq!(f.ask(DRIVER, ToNode::GrowStage { id }), []);
}

#[test]
fn a_stage_that_failed_frees_its_inputs_and_tells_why() {
    let mut f = Fixture::new(2);
    let (id, spec) = stage(1);
    f.ask(DRIVER, ToNode::RunStage { spec: Box::new(spec) });
    let effects = f.step(Event::StageFailed { id, reason: "it broke".into(), peer: Some(THERE) });
    let failed = FromNode::StageFailed { id, reason: "it broke".into(), peer: Some(THERE) };
    assert_eq!(effects, [Effect::FreeStored(at(1)), to(DRIVER, failed)]);
    assert_eq!(f.node.collectives_open(), (0, 0));
}

#[test]
fn the_stages_of_a_process_that_dies_end_and_nothing_of_them_stays() {
    let mut f = Fixture::new(2);
    let leased = f.leased(DRIVER, 1, cpus(1.0));
    let worker = leased[0].1;
    for (slot, done) in [(1, false), (2, true)] {
        let (id, spec) = stage(slot);
        f.ask(worker, ToNode::RunStage { spec: Box::new(spec) });
        if done {
            f.step(Event::StageDone { id, at: vec![at(7)] });
        }
    }
    let effects = f.exit(worker);
    let ended = |effect: &&Effect| matches!(effect, Effect::EndStage { id, .. } if id.slot == 1);
    assert_eq!(effects.iter().filter(ended).count(), 1);
    for entry in [1, 2, 7] {
        assert!(effects.contains(&Effect::FreeStored(at(entry))), "{entry}: {effects:?}");
    }
    assert_eq!(f.node.collectives_open(), (0, 0));
}

proptest! {
    /// COLL-1 at the home.
    #[test]
    fn every_member_that_lives_hears_of_each_group_that_is_broken_and_nothing_is_left_behind(
        size in 1u32..6,
        steps in proptest::collection::vec((0u32..6, 0u8..3, any::<bool>()), 0..20),
    ) {
        let mut f = home();
        let process = |rank: u32| process_at(if rank.is_multiple_of(2) { THERE } else { NodeId(3) }, 2 + rank);
        let (mut here, mut gone) = (BTreeSet::new(), BTreeSet::new());
        let mut broken = BTreeSet::new();
        for (rank, what, _) in steps {
            let rank = rank % size;
            if gone.contains(&rank) {
                continue;
            }
            let effects = match what {
                0 if here.insert(rank) => join(&mut f, process(rank), rank, size),
                1 if here.contains(&rank) => {
                    gone.insert(rank);
                    f.step(asked(process(rank), ToNode::LeaveCollective { group: group(), rank, calls: 0 }))
                }
                2 => {
                    gone.insert(rank);
                    let death = Box::new(death(process(rank)));
                    f.step(Event::Heard { from: process(rank).node, message: Between::ProcessDied(death) })
                }
                _ => continue,
            };
            for (to, message) in told(&effects) {
                if matches!(message, FromNode::CollectiveBroken { .. }) {
                    broken.insert(to);
                }
                prop_assert!(!gone.iter().any(|rank| process(*rank) == to), "{} is gone and was told", to);
            }
            if what == 2 && here.contains(&rank) {
                for other in here.iter().filter(|other| !gone.contains(other)) {
                    prop_assert!(broken.contains(&process(*other)), "rank {} was not told", other);
                }
            }
        }
        for rank in here.iter().filter(|rank| !gone.contains(rank)) {
            f.step(asked(process(*rank), ToNode::LeaveCollective { group: group(), rank: *rank, calls: 0 }));
        }
        prop_assert_eq!(f.node.collectives_open(), (0, 0));
    }
}
