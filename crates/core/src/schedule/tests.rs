//! Step tests of the choice, and the choice against a plain search.

#![allow(clippy::unwrap_used)]

mod cluster;

use proptest::prelude::{Just, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as _;

use super::digest::CORRECTION_US;
use super::estimate::{self, Effective, NONE};
use super::*;
use crate::resources::Amount;
use crate::spec::Strategy;
use crate::time::Tick;

const OWN: NodeId = NodeId(1);
const MEGABYTE: u64 = 1_000_000;

fn cpus(n: u64) -> Resources {
    Resources::cpus(Amount::whole(n))
}

/// A node with so many CPUs, so many of them free, and so many waiting for one each.
fn load(total: u64, free: u64, waiting: u32) -> Load {
    let mut load = Load { arena_free_bytes: 1 << 40, task_us: 10_000, ..Load::idle(cpus(total)) };
    load.free = cpus(free);
    if waiting > 0 {
        load.enqueue(&cpus(1), waiting);
    }
    load
}

fn digest(loads: Vec<Load>) -> Digest {
    let mut digest = Digest::new();
    for (node, load) in (1..).zip(loads) {
        digest.update(NodeId(node), load, 0, Tick(0));
    }
    digest
}

fn choose(digest: &mut Digest, resources: &Resources, strategy: Strategy, inputs: &[Input<'_>]) -> Choice {
    digest.choose(&Ask { resources, strategy, inputs, own: OWN, bundles: &[] }, Tick(0))
}

fn plain(digest: &mut Digest, n: u64) -> Choice {
    choose(digest, &cpus(n), Strategy::Default, &[])
}

#[test]
fn a_shape_beyond_the_last_that_is_told_counts_there_and_a_known_one_for_itself() {
    let mut load = Load::idle(cpus(1));
    let shapes = QUEUED_SHAPES_MAX as u64;
    (1..=shapes).for_each(|n| load.enqueue(&cpus(n), 1));
    load.enqueue(&cpus(shapes + 1), 5);
    load.enqueue(&cpus(1), 2);
    let counts: Vec<u32> = load.queued.iter().map(|queued| queued.count).collect();
    let mut expected = vec![1; QUEUED_SHAPES_MAX];
    (expected[0], expected[QUEUED_SHAPES_MAX - 1]) = (3, 6);
    assert_eq!(counts, expected);
}

#[test]
fn the_own_node_takes_what_it_can_start_at_once_or_soon() {
    let mut all = digest(vec![load(4, 1, 0), load(4, 4, 0)]);
    assert_eq!(plain(&mut all, 1), Choice::Here);
    let mut busy = load(8, 0, 0);
    busy.task_us = 8 * NEAR_US;
    all.update(OWN, busy.clone(), 0, Tick(0));
    assert_eq!(plain(&mut all, 1), Choice::Here, "one of eight ends within the threshold");
    busy.task_us = 16 * NEAR_US;
    all.update(OWN, busy, 0, Tick(0));
    assert_eq!(plain(&mut all, 1), Choice::There(NodeId(2)));
}

#[test]
fn the_lowest_estimated_wait_wins_among_the_busy() {
    // 11 x 10 ms / 4; 2 x 10 ms / 2; 4 x 10 ms / 8.
    let mut all = digest(vec![load(4, 0, 10), load(2, 0, 1), load(8, 0, 3)]);
    assert_eq!(plain(&mut all, 1), Choice::There(NodeId(3)));
    let mut slow = load(8, 0, 3);
    slow.task_us = 100_000;
    all.update(NodeId(3), slow, 0, Tick(0));
    assert_eq!(plain(&mut all, 1), Choice::There(NodeId(2)));
}

#[test]
fn a_full_queue_elsewhere_takes_no_more_and_the_wish_stays() {
    let mut all = digest(vec![load(1, 0, 500), load(2, 0, 2), load(4, 0, 4)]);
    let Choice::Wait(Why::Busy { nearest: OWN, wait_us }) = plain(&mut all, 1) else { panic!("it waits here") };
    assert_eq!(wait_us, 5_010_000);
    // A node that can never run it itself keeps it too, and names the nearest.
    all.update(OWN, load(0, 0, 0), 0, Tick(0));
    let Choice::Wait(why) = plain(&mut all, 1) else { panic!("it waits here") };
    assert!(why.to_string().contains("node-3 is the nearest, in about 13 ms"), "{why}");
}

#[test]
fn large_inputs_draw_a_task_and_small_ones_do_not() {
    let mut all = digest(vec![load(4, 4, 0), load(4, 4, 0), load(4, 4, 0)]);
    let at = [NodeId(3)];
    let read = |bytes| [Input { at: &at, bytes }];
    let mut with = |bytes| choose(&mut all, &cpus(1), Strategy::Default, &read(bytes));
    assert_eq!(with(MEGABYTE), Choice::Here, "a megabyte comes in one millisecond");
    assert_eq!(with(100 * MEGABYTE), Choice::There(NodeId(3)));
    // A holder that is busy for longer than the transfer takes loses.
    all.update(NodeId(3), load(1, 0, 1_000), 0, Tick(0));
    let choice = choose(&mut all, &cpus(1), Strategy::Default, &read(100 * MEGABYTE));
    assert_eq!(choice, Choice::Wait(Why::Busy { nearest: OWN, wait_us: 100_000 }), "no other has it either");
    let mut fast = load(4, 4, 0);
    fast.bandwidth = 100 * BANDWIDTH_DEFAULT;
    all.update(NodeId(2), fast, 0, Tick(0));
    assert_eq!(choose(&mut all, &cpus(1), Strategy::Default, &read(100 * MEGABYTE)), Choice::There(NodeId(2)));
}

#[test]
fn a_burst_does_not_all_go_to_the_idle_node() {
    let mut all = digest(vec![load(1, 0, 50), load(4, 4, 0), load(4, 3, 0)]);
    let mut counts = [0; 4];
    for _ in 0..7 {
        let Choice::There(node) = plain(&mut all, 1) else { panic!("somebody is idle") };
        all.sent(node, &cpus(1), 1, Tick(0));
        counts[node.0 as usize] += 1;
    }
    assert_eq!(counts, [0, 0, 4, 3]);
    // A load that was told before the wishes arrived does not make the node idle again, a later one does.
    all.update(NodeId(2), load(4, 4, 0), 0, Tick(1_000));
    all.update(NodeId(3), load(4, 4, 0), 60_000, Tick(70_000));
    let starts = |all: &Digest, node| all.slot(NodeId(node)).unwrap().effective.starts(&cpus(1));
    assert!(!starts(&all, 2) && starts(&all, 3));
    // Nobody tells anything any more: the wishes are forgotten in time.
    let ask = Ask { resources: &cpus(1), strategy: Strategy::Default, inputs: &[], own: OWN, bundles: &[] };
    all.choose(&ask, Tick(CORRECTION_US));
    assert!(starts(&all, 2));
}

#[test]
fn a_spread_takes_turns_among_equals_and_the_least_used_first() {
    let mut all = digest(vec![load(4, 4, 0), load(4, 4, 0), load(4, 3, 0)]);
    let mut order = Vec::new();
    for _ in 0..5 {
        let node = match choose(&mut all, &cpus(1), Strategy::Spread, &[]) {
            Choice::Here => OWN,
            Choice::There(node) => node,
            other => panic!("{other:?}"),
        };
        all.sent(node, &cpus(1), 1, Tick(0));
        order.push(node.0);
    }
    assert_eq!(order, [1, 2, 3, 1, 2]);
}

#[test]
fn cpu_work_leaves_nodes_with_gpus_alone_while_others_are_idle() {
    let mut with_gpu = load(8, 8, 0);
    (with_gpu.total.gpus, with_gpu.free.gpus) = (Amount::whole(1), Amount::whole(1));
    let mut all = digest(vec![load(1, 0, 9), with_gpu, load(2, 1, 0)]);
    assert_eq!(plain(&mut all, 1), Choice::There(NodeId(3)));
    let gpu = Resources { gpus: Amount::whole(1), ..cpus(1) };
    assert_eq!(choose(&mut all, &gpu, Strategy::Default, &[]), Choice::There(NodeId(2)));
}

#[test]
fn affinity_is_kept_or_refused_with_the_node_in_the_reason() {
    let mut all = digest(vec![load(4, 4, 0), load(2, 0, 900)]);
    let to = |node, soft| Strategy::Node { node: NodeId(node), soft };
    assert_eq!(choose(&mut all, &cpus(1), to(2, false), &[]), Choice::There(NodeId(2)), "however long it waits");
    assert_eq!(choose(&mut all, &cpus(1), to(1, false), &[]), Choice::Here);
    assert_eq!(choose(&mut all, &cpus(3), to(2, true), &[]), Choice::Here, "too small, but soft");
    let mut reason = |n, strategy| match choose(&mut all, &cpus(n), strategy, &[]) {
        Choice::Never(never) => never.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(reason(3, to(2, false)).contains("3 CPUs on node-2: node-2 has only 2 CPUs"));
    assert!(reason(1, to(7, false)).contains("node-7 is not in the cluster"));
}

#[test]
fn what_no_node_can_ever_give_names_the_nearest_and_a_new_node_makes_it_possible() {
    let mut leaving = load(64, 64, 0);
    leaving.draining = true;
    let mut all = digest(vec![load(4, 4, 0), load(8, 8, 0), leaving]);
    let Choice::Never(never) = plain(&mut all, 16) else { panic!("nobody stays who has it") };
    assert_eq!(never.asked, "16 CPUs");
    assert!(never.available.contains("node-2 comes nearest and has only 8 CPUs"), "{never}");
    assert!(never.available.contains("node-3 has it but is being drained"), "{never}");
    all.update(NodeId(4), load(16, 0, 3), 0, Tick(0));
    assert_eq!(plain(&mut all, 16), Choice::Wait(Why::Busy { nearest: NodeId(4), wait_us: 40_000 }));
    all.remove(NodeId(4));
    assert!(matches!(plain(&mut all, 16), Choice::Never(_)));
}

#[test]
fn drivers_take_no_work_and_nodes_short_of_memory_take_none_now() {
    let mut driver = load(0, 0, 0);
    driver.driver_only = true;
    let mut pressed = load(4, 4, 0);
    pressed.pressed = true;
    let mut all = digest(vec![driver, pressed]);
    assert_eq!(plain(&mut all, 0), Choice::Wait(Why::Pressed { nearest: NodeId(2) }));
    all.update(NodeId(2), load(4, 4, 0), 0, Tick(0));
    assert_eq!(plain(&mut all, 0), Choice::There(NodeId(2)));
}

#[test]
fn a_task_in_a_bundle_goes_where_the_bundle_is() {
    let mut all = digest(vec![load(4, 4, 0), load(4, 0, 9), load(4, 0, 9)]);
    let strategy = Strategy::Group { group: crate::id::GroupId(crate::id::TaskId::from_raw(7)), bundle: None };
    let mut at = |bundles: &[NodeId]| {
        all.choose(&Ask { resources: &cpus(1), strategy, inputs: &[], own: OWN, bundles }, Tick(0))
    };
    assert_eq!(at(&[NodeId(2), OWN]), Choice::Here);
    assert_eq!(at(&[NodeId(2), NodeId(3)]), Choice::There(NodeId(2)));
    assert_eq!(at(&[NodeId(2), NodeId(3)]), Choice::There(NodeId(3)), "in turns");
    assert_eq!(at(&[NodeId(9)]), Choice::Wait(Why::Unplaced), "it died with its node");
    assert_eq!(at(&[]), Choice::Wait(Why::Unplaced));
}

#[test]
fn an_idle_node_asks_where_work_waits_longest_and_not_twice_in_a_row() {
    let mut all = digest(vec![load(4, 4, 0), load(4, 0, 8), load(4, 0, 100), load(4, 0, 100)]);
    assert_eq!(all.whom_to_ask(OWN, Tick(0)), Some(NodeId(4)), "one of the two, by the asker's number");
    assert_eq!(all.whom_to_ask(OWN, Tick(1)), Some(NodeId(3)));
    assert_eq!(all.whom_to_ask(OWN, Tick(2)), Some(NodeId(2)));
    assert_eq!(all.whom_to_ask(OWN, Tick(3)), None);
    all.update(NodeId(2), load(4, 0, 6), 0, Tick(4));
    assert_eq!(all.whom_to_ask(OWN, Tick(4)), Some(NodeId(2)));
    assert_eq!(all.whom_to_ask(NodeId(2), Tick(4)), None, "it is not idle");
}

#[test]
fn a_wish_moves_to_a_node_that_starts_it_and_waits_twice_as_long_after_each_move() {
    let mut all = digest(vec![load(4, 0, 40), load(4, 2, 0)]);
    let one = cpus(1);
    let wish = |moves| Parked { resources: &one, inputs: &[], count: 5, since: Tick(0), moves };
    let moved = Some(Move { to: NodeId(2), count: 2 });
    assert_eq!(all.should_move(OWN, &wish(0), None, Tick(4_999)), None);
    assert_eq!(all.should_move(OWN, &wish(0), None, Tick(5_000)), moved);
    assert_eq!(all.should_move(OWN, &wish(0), Some(NodeId(2)), Tick(0)), moved, "who asks does not wait");
    assert_eq!(all.should_move(OWN, &wish(3), Some(NodeId(2)), Tick(39_999)), None);
    assert_eq!(all.should_move(OWN, &wish(3), None, Tick(40_000)), moved);
    let at = [OWN];
    let reads = [Input { at: &at, bytes: 1_000 * MEGABYTE }];
    let wish = Parked { inputs: &reads, ..wish(0) };
    assert_eq!(all.should_move(OWN, &wish, None, Tick(5_000)), None, "the transfer takes longer than the queue");
}

fn any_load() -> impl proptest::strategy::Strategy<Value = Load> {
    let numbers = (0u64..8, 0u64..8, 0u32..12, 0u64..50_000, 0u64..4, any::<(bool, bool, bool)>());
    numbers.prop_map(|(total, free, waiting, task_us, gigabytes, (gpu, rare, rarer))| {
        let mut load = load(total, free.min(total), waiting);
        load.total.gpus = Amount::whole(u64::from(gpu));
        (load.task_us, load.bandwidth) = (task_us, gigabytes * BANDWIDTH_DEFAULT);
        load.draining = rare && rarer;
        load.pressed = rare && !rarer;
        load
    })
}

/// Some changes of a digest.
#[derive(Clone, Debug)]
enum Change {
    Update(u32, Box<Load>),
    Remove(u32),
    Sent(u32, u32),
}

fn any_change() -> impl proptest::strategy::Strategy<Value = Change> {
    prop_oneof![
        4 => (1u32..12, any_load()).prop_map(|(node, load)| Change::Update(node, Box::new(load))),
        1 => (1u32..12).prop_map(Change::Remove),
        2 => (1u32..12, 1u32..5).prop_map(|(node, count)| Change::Sent(node, count)),
    ]
}

proptest! {
    #[test]
    fn the_tree_finds_what_a_search_of_all_nodes_finds(
        changes in proptest::collection::vec(any_change(), 1..60),
        bytes in prop_oneof![Just(0u64), 0..5_000 * MEGABYTE],
        holder in 1u32..12,
    ) {
        let mut all = Digest::new();
        for (time, change) in (1..).map(Tick).zip(changes) {
            match change {
                Change::Update(node, load) => all.update(NodeId(node), *load, 0, time),
                Change::Remove(node) => all.remove(NodeId(node)),
                Change::Sent(node, count) => all.sent(NodeId(node), &cpus(1), count, time),
            }
            let at = [NodeId(holder)];
            let inputs = [Input { at: &at, bytes }];
            let one = cpus(1);
            let ask = Ask { resources: &one, strategy: Strategy::Default, inputs: &inputs, own: OWN, bundles: &[] };
            let keys: Vec<u64> = (0..all.slots.len()).map(|place| all.key_with_inputs(place, &ask, bytes)).collect();
            let least = keys.iter().copied().min().unwrap_or(NONE);
            let (place, key) = all.nearest(&ask, bytes);
            prop_assert_eq!(key, least);
            prop_assert!(key == NONE || keys[place] == least);
            let emptiest = |slot: &super::digest::Slot| estimate::emptiest(&slot.load, &slot.effective, &one);
            let least = all.in_order().map(emptiest).min().unwrap_or(NONE);
            let (place, key) = all.best_from(&one, super::index::Order::Emptiest, time.0 as usize % 12);
            prop_assert_eq!(key, least);
            prop_assert!(key == NONE || all.slots[place].as_ref().is_some_and(|slot| emptiest(slot) == least));
        }
    }

    #[test]
    fn wishes_together_count_as_much_as_one_by_one(load in any_load(), count in 1u32..30) {
        let (mut together, mut single) = (Effective::of(&load), Effective::of(&load));
        together.add(&cpus(1), count);
        for _ in 0..count {
            single.add(&cpus(1), 1);
        }
        prop_assert_eq!((together.free, together.queued, together.running), (single.free, single.queued, single.running));
    }
}

#[test]
fn an_actor_that_nobody_can_start_waits_where_room_may_come_first_and_stays_where_there_is_room() {
    let ask = |digest: &mut Digest| {
        let resources = &cpus(1);
        digest
            .choose_host(&Ask { resources, strategy: Strategy::Default, inputs: &[], own: OWN, bundles: &[] }, Tick(0))
    };
    assert_eq!(ask(&mut digest(vec![load(4, 1, 0), load(4, 4, 0)])), Choice::Here);
    let mut crowded = digest(vec![load(1, 0, 1_000), load(64, 0, 1_000)]);
    assert_eq!(ask(&mut crowded), Choice::There(NodeId(2)));
}
