//! Properties of plans.

use proptest::prelude::*;

use super::*;

fn any_shape() -> impl Strategy<Value = Shape> {
    prop_oneof![Just(Shape::Chain), Just(Shape::TwoLevel), Just(Shape::Star), (1u32..20).prop_map(Shape::Tree)]
}

fn any_network() -> impl Strategy<Value = Network> {
    (1_000u64..10_000_000_000, 0u64..10_000).prop_map(|(bandwidth, latency_us)| Network { bandwidth, latency_us })
}

/// The cheapest of all trees in which every slot comes after those below it.
fn brute_force(n: usize, bytes: u64, network: Network) -> u64 {
    fn extend(at: usize, parents: &mut Vec<Option<u32>>, n: usize, best: &mut dyn FnMut(&[Option<u32>])) {
        if at == n {
            best(parents);
            return;
        }
        for parent in (at + 1..=n).map(|parent| if parent == n { None } else { u32::try_from(parent).ok() }) {
            parents.push(parent);
            extend(at + 1, parents, n, best);
            parents.pop();
        }
    }
    let mut least = u64::MAX;
    extend(0, &mut Vec::new(), n, &mut |parents| least = least.min(cost_us(parents, bytes, network)));
    least
}

proptest! {
    #[test]
    fn a_plan_is_a_tree_in_which_each_slot_comes_after_those_below_it(shape in any_shape(), n in 0usize..300) {
        let parents = parents(shape, n);
        prop_assert_eq!(parents.len(), n);
        for (slot, parent) in parents.iter().enumerate() {
            prop_assert!(parent.is_none_or(|parent| (parent as usize) > slot && (parent as usize) < n));
        }
        // The last slot is always below the receiver itself, so every slot reaches it.
        prop_assert!(parents.last().is_none_or(Option::is_none));
    }

    #[test]
    fn slots_below_one_are_consecutive(shape in any_shape(), n in 1usize..200) {
        let parents = parents(shape, n);
        let mut below = vec![1usize; n];
        for slot in 0..n {
            if let Some(parent) = parents[slot] {
                below[parent as usize] += below[slot];
            }
        }
        for (slot, parent) in parents.iter().enumerate() {
            let until = parent.map_or(n, |parent| parent as usize);
            // Between a slot and its parent there are only whole subtrees of the same parent.
            let mut next = slot + 1;
            while next < until {
                let head = (next..until).rev().find(|head| head + 1 - below[*head] == next);
                prop_assert!(head.is_some_and(|head| parents[head] == *parent), "slot {slot} of {parents:?}");
                next = head.map_or(until, |head| head + 1);
            }
        }
    }

    #[test]
    fn nobody_takes_from_more_than_the_shape_allows(shape in any_shape(), n in 1usize..300) {
        let allowed = match shape {
            Shape::Chain => 1,
            Shape::TwoLevel => 2,
            Shape::Tree(degree) => degree,
            Shape::Star => u32::try_from(n).unwrap_or(u32::MAX),
        };
        prop_assert!(degree(&parents(shape, n)) <= allowed);
    }

    #[test]
    fn a_tree_is_as_flat_as_its_degree_allows(limit in 2u32..9, n in 1usize..600) {
        let depth = depth(&parents(Shape::Tree(limit), n));
        let capacity = |levels: u32| (1..=levels).map(|level| u64::from(limit).pow(level)).sum::<u64>();
        prop_assert!(capacity(depth) >= n as u64);
        prop_assert!(depth == 1 || capacity(depth - 1) < n as u64);
    }

    #[test]
    fn two_levels_are_about_two_square_roots_deep(n in 1usize..2_000) {
        let root = n.isqrt();
        prop_assert!(depth(&parents(Shape::TwoLevel, n)) as usize <= 2 * root + 2);
    }

    #[test]
    fn the_choice_costs_no_more_than_any_shape(n in 1usize..80, bytes in 1u64..1 << 32, network in any_network()) {
        let chosen = cost_us(&parents(choose(Choice::Model, n, bytes, network), n), bytes, network);
        for limit in 1..=80 {
            prop_assert!(chosen <= cost_us(&parents(Shape::Tree(limit), n), bytes, network));
        }
        prop_assert!(chosen <= cost_us(&parents(Shape::TwoLevel, n), bytes, network));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_choice_costs_what_the_best_of_all_trees_costs(n in 1usize..8, bytes in 1u64..1 << 30, network in any_network()) {
        let chosen = cost_us(&parents(choose(Choice::Model, n, bytes, network), n), bytes, network);
        prop_assert_eq!(chosen, brute_force(n, bytes, network));
    }
}

#[test]
fn large_objects_go_along_a_chain_and_small_ones_over_a_flat_tree() {
    let network = Network { bandwidth: 125_000_000, latency_us: 125 };
    assert_eq!(choose(Choice::Model, 16, 100_000_000, network), Shape::Chain);
    assert_eq!(choose(Choice::Model, 16, 200, network), Shape::Star);
    assert!(matches!(choose(Choice::Model, 256, 100_000, network), Shape::Tree(_)));
}

#[test]
fn the_rule_of_the_paper_compares_what_is_in_flight_with_the_bytes() {
    // Ten gigabits and 125 µs: more than six objects of a megabyte take two levels.
    let network = Network { bandwidth: 1_250_000_000, latency_us: 125 };
    assert_eq!(choose(Choice::Paper, 6, 1_000_000, network), Shape::Chain);
    assert_eq!(choose(Choice::Paper, 7, 1_000_000, network), Shape::TwoLevel);
}

#[test]
fn a_forced_shape_is_taken_whatever_it_costs() {
    assert_eq!(choose(Choice::Forced(Shape::Star), 1_000, 1 << 30, Network::default()), Shape::Star);
}
