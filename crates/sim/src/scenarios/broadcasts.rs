//! Broadcasts on links with a bandwidth: how long they take, and that nothing is sent in vain.

use bireme_core::id::NodeId;

use crate::broadcasts::{Plan, run, run_plan};
use crate::planted::Planted;

#[test]
fn everybody_gets_what_it_wants_in_time_whoever_comes_late_or_dies() {
    for seed in 0..2_000 {
        let outcome = run(seed, None);
        assert!(outcome.failure.is_none(), "seed {seed}: {:#?}", outcome.failure);
    }
}

#[test]
fn equal_seeds_give_equal_broadcasts() {
    for seed in 0..50 {
        assert_eq!(run(seed, None).hash, run(seed, None).hash);
    }
}

/// Sixteen nodes that want it at once, in blocks of 0.02 S/n.
fn sixteen() -> Plan {
    let all = || (2..18).map(NodeId);
    Plan {
        nodes: 16,
        blocks: 800,
        block_us: 25,
        latency_us: 20,
        death_told_us: 1_000,
        joins: all().map(|node| (node, 0)).collect(),
        wants: all().map(|node| (node, 0)).collect(),
        deaths: Vec::new(),
        breaks: Vec::new(),
        drops: Vec::new(),
    }
}

#[test]
fn sixteen_nodes_take_little_longer_than_one() {
    let outcome = run_plan(sixteen(), None);
    assert!(outcome.failure.is_none(), "{:#?}", outcome.failure);
    let percent = outcome.took_us * 100 / outcome.plan.whole_us();
    assert!(percent <= 105, "{percent} % of the time of one transfer");
}

#[test]
fn the_death_of_one_of_sixteen_half_way_costs_the_others_what_they_still_had_to_get_at_most() {
    for number in 2..17 {
        let mut plan = sixteen();
        plan.deaths = vec![(NodeId(number), plan.whole_us() / 2)];
        let outcome = run_plan(plan, None);
        assert!(outcome.failure.is_none(), "{:#?}", outcome.failure);
    }
}

/// The first seed that shows a bug shows it again.
fn shows(planted: Planted) {
    let failed = |seed| run(seed, Some(planted)).failure;
    let first = (0..200).find_map(|seed| Some((seed, failed(seed)?)));
    let Some((seed, violation)) = first else { panic!("{} does not show", planted.name()) };
    assert_eq!(failed(seed), Some(violation), "its seed repeats it");
}

#[test]
fn a_directory_that_names_a_receiver_of_the_asker_is_caught() {
    shows(Planted::OwnDescendant);
}

#[test]
fn who_asks_again_for_what_it_has_is_caught() {
    shows(Planted::FromTheStart);
}
