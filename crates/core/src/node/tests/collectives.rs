//! Collective groups at their home: who has come, who is lost, and the stages of processes that die.

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::collective::{CollectiveId, Seat, Trouble};
use crate::flow::{StageId, StageSpec};
use crate::message::Between;
use crate::node::collectives::BROKEN_MAX;
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
    join_in(f, group(), process, rank, size)
}

fn join_in(f: &mut Fixture, group: CollectiveId, process: ProcessId, rank: u32, size: u32) -> Vec<Effect> {
    let label = format!("actor-{rank}");
    f.step(asked(process, ToNode::JoinCollective { group, rank, size, label, actors: Vec::new() }))
}

fn leave_in(f: &mut Fixture, group: CollectiveId, process: ProcessId, rank: u32) -> Vec<Effect> {
    f.step(asked(process, ToNode::LeaveCollective { group, rank, calls: 0 }))
}

/// A group that one process made and gave to others.
fn created() -> CollectiveId {
    CollectiveId { home: HERE, name: TaskId::root(1, ProcessId::first_driver(HERE)).child(0, 4, 0) }
}

fn dies(f: &mut Fixture, process: ProcessId) -> Vec<Effect> {
    f.step(Event::Heard { from: process.node, message: Between::ProcessDied(Box::new(death(process))) })
}

/// Who is told that the group is broken, and why.
fn broken(effects: &[Effect]) -> Vec<(ProcessId, Trouble)> {
    let told = told(effects).into_iter().filter_map(|(to, word)| match word {
        FromNode::CollectiveBroken { trouble, .. } => Some((to, trouble)),
        _ => None,
    });
    told.collect()
}

fn is_formed(effects: &[Effect], members: usize) -> bool {
    let told = told(effects);
    told.len() == members && told.iter().all(|(_, word)| matches!(word, FromNode::CollectiveFormed { .. }))
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
fn whoever_leaves_before_all_have_come_is_named_to_those_who_have_and_who_come_later() {
    for group in [group(), created()] {
        let mut f = home();
        let (a, b, late) = (process_at(THERE, 2), process_at(NodeId(3), 2), process_at(NodeId(3), 4));
        join_in(&mut f, group, a, 0, 3);
        join_in(&mut f, group, b, 1, 3);
        let left = Trouble::Left { member: Seat { rank: 0, label: "actor-0".into() }, calls: 0 };
        assert_eq!(broken(&leave_in(&mut f, group, a, 0)), [(b, left.clone())]);
        assert_eq!(broken(&join_in(&mut f, group, late, 2, 3)), [(late, left.clone())]);
        assert!(left.to_string().contains("rank 0 (actor-0) has left the group before its first call"), "{left}");
    }
}

#[test]
fn a_group_that_was_made_for_some_stays_broken_when_its_only_member_so_far_is_gone() {
    for is_dead in [true, false] {
        let mut f = home();
        let (a, b, c) = (process_at(THERE, 2), process_at(NodeId(3), 2), process_at(NodeId(3), 4));
        join_in(&mut f, created(), a, 0, 3);
        let effects = if is_dead { dies(&mut f, a) } else { leave_in(&mut f, created(), a, 0) };
        assert_eq!(broken(&effects), []);
        for (late, rank) in [(b, 1), (c, 2)] {
            let told = broken(&join_in(&mut f, created(), late, rank, 3));
            let [(to, Trouble::Lost { member, .. } | Trouble::Left { member, .. })] = &told[..] else {
                panic!("{told:?}")
            };
            assert_eq!((*to, member.rank), (late, 0));
        }
        // All have heard it and left: whoever comes now means to begin again.
        leave_in(&mut f, created(), b, 1);
        leave_in(&mut f, created(), c, 2);
        assert_eq!(f.node.collectives_open().0, 0);
        join_in(&mut f, created(), b, 1, 3);
        join_in(&mut f, created(), c, 2, 3);
        assert!(is_formed(&join_in(&mut f, created(), process_at(THERE, 3), 0, 3), 3));
    }
}

#[test]
fn a_member_that_is_lost_before_anybody_else_came_can_come_again() {
    for group in [group(), created()] {
        let mut f = home();
        let (a, again, b) = (process_at(THERE, 2), process_at(THERE, 3), process_at(NodeId(3), 2));
        join_in(&mut f, group, a, 0, 2);
        dies(&mut f, a);
        assert_eq!(told(&join_in(&mut f, group, again, 0, 2)), []);
        leave_in(&mut f, group, again, 0);
        assert_eq!(told(&join_in(&mut f, group, again, 0, 2)), []);
        assert!(is_formed(&join_in(&mut f, group, b, 1, 2), 2));
    }
}

#[test]
fn a_name_whose_group_was_broken_before_all_had_come_can_be_used_again() {
    let mut f = home();
    let (a, b, c) = (process_at(THERE, 2), process_at(NodeId(3), 2), process_at(NodeId(3), 4));
    join(&mut f, a, 0, 3);
    join(&mut f, b, 1, 3);
    dies(&mut f, a);
    // Its next run comes before the others have left, and before the one that never came.
    let again = process_at(THERE, 3);
    assert_eq!(told(&join(&mut f, again, 0, 3)), []);
    leave_in(&mut f, group(), b, 1);
    assert_eq!(told(&join(&mut f, c, 2, 3)), []);
    assert!(is_formed(&join(&mut f, b, 1, 3), 3));
}

#[test]
fn an_actor_that_is_dead_for_good_before_it_joined_is_named_to_those_who_have_and_who_come_later() {
    let mut f = Fixture::new(4);
    let spec = actor_spec(1, None, 0);
    let actor = actor_of(&spec);
    let group = CollectiveId { home: NodeId::ALONE, name: created().name };
    let members = vec![ActorId(root(W2)), actor, ActorId(root(W3))];
    let join = |f: &mut Fixture, process, rank| {
        let (label, actors) = (format!("actor-{rank}"), members.clone());
        f.ask(process, ToNode::JoinCollective { group, rank, size: 3, label, actors })
    };
    f.submit(DRIVER, &spec);
    f.ask(DRIVER, ToNode::CreateActor { spec, resolved: Vec::new() });
    assert_eq!(join(&mut f, DRIVER, 0), [], "it may be made yet");
    let effects = f.ask(DRIVER, ToNode::KillActor { actor, manager: NodeId::ALONE, restart: false });
    let told = |effects: &[Effect]| {
        let told = effects.iter().find_map(|effect| match effect {
            Effect::Send { message: FromNode::CollectiveBroken { trouble, .. }, .. } => Some(trouble.to_string()),
            _ => None,
        });
        told.unwrap_or_default()
    };
    let named = format!("rank 1 ({actor}) of the group is dead");
    assert!(told(&effects).contains(&named), "{effects:?}");
    let effects = join(&mut f, DRIVER, 2);
    assert!(told(&effects).contains(&named), "{effects:?}");
    // Also when nobody waited at the time.
    for rank in [0, 2] {
        f.ask(DRIVER, ToNode::LeaveCollective { group, rank, calls: 0 });
    }
    let other = CollectiveId { name: created().name.sibling(5), ..group };
    let actors = members.clone();
    let effects =
        f.ask(DRIVER, ToNode::JoinCollective { group: other, rank: 0, size: 3, label: String::new(), actors });
    assert!(told(&effects).contains(&named), "{effects:?}");
}

#[test]
fn broken_groups_that_nobody_is_in_are_forgotten_one_by_one() {
    let mut f = home();
    let (a, late) = (process_at(THERE, 2), process_at(NodeId(3), 2));
    let nth = |at: usize| CollectiveId { name: created().name.sibling(at as u64), ..created() };
    for at in 0..=BROKEN_MAX {
        join_in(&mut f, nth(at), a, 0, 2);
        leave_in(&mut f, nth(at), a, 0);
    }
    assert_eq!(f.node.collectives_open().0, 0);
    assert_eq!(broken(&join_in(&mut f, nth(0), late, 1, 2)), [], "the oldest is forgotten");
    assert_eq!(broken(&join_in(&mut f, nth(1), late, 1, 2)).len(), 1);
}

#[test]
fn a_process_that_asks_for_a_group_of_a_dead_home_is_told_so() {
    let mut f = Fixture::with(NodeConfig { id: THERE, ..NodeConfig::for_machine(cpus(1.0)) });
    f.step(Event::Started);
    f.step(Event::NodeJoined { node: HERE, total: cpus(1.0) });
    f.step(Event::NodeDied { node: HERE, reason: "is gone".into() });
    let driver = ProcessId::first_driver(THERE);
    let effects = f.ask(
        driver,
        ToNode::JoinCollective { group: group(), rank: 0, size: 1, label: String::new(), actors: Vec::new() },
    );
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
        is_named in any::<bool>(),
        steps in proptest::collection::vec((0u32..6, 0u8..3), 0..20),
    ) {
        let mut f = home();
        let group = if is_named { group() } else { created() };
        let process = |rank: u32| process_at(if rank.is_multiple_of(2) { THERE } else { NodeId(3) }, 2 + rank);
        let (mut here, mut gone) = (BTreeSet::new(), BTreeSet::new());
        let mut told_broken = BTreeSet::new();
        let (mut formed, mut is_broken) = (false, false);
        for (rank, what) in steps {
            let rank = rank % size;
            if gone.contains(&rank) {
                continue;
            }
            let effects = match what {
                0 if here.insert(rank) => join_in(&mut f, group, process(rank), rank, size),
                1 if here.contains(&rank) => {
                    gone.insert(rank);
                    leave_in(&mut f, group, process(rank), rank)
                }
                2 => {
                    gone.insert(rank);
                    dies(&mut f, process(rank))
                }
                _ => continue,
            };
            for (to, message) in told(&effects) {
                match message {
                    FromNode::CollectiveBroken { .. } => drop(told_broken.insert(to)),
                    FromNode::CollectiveFormed { .. } => formed = true,
                    _ => {}
                }
                prop_assert!(!gone.iter().any(|rank| process(*rank) == to), "{} is gone and was told", to);
            }
            // Who leaves a formed group may be through with it; before, nobody can do without it.
            is_broken |= here.contains(&rank) && (what == 2 || what == 1 && !formed);
            let living: Vec<u32> = here.iter().copied().filter(|rank| !gone.contains(rank)).collect();
            if is_broken {
                for other in &living {
                    prop_assert!(told_broken.contains(&process(*other)), "rank {} was not told", other);
                }
            }
            is_broken &= !(living.is_empty() && is_named);
        }
        for rank in here.iter().filter(|rank| !gone.contains(rank)) {
            leave_in(&mut f, group, process(*rank), *rank);
        }
        prop_assert_eq!(f.node.collectives_open(), (0, 0));
    }
}
