//! Properties of the allocator under random use, against a plain list of ranges.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::bins::{bin_ceil, bin_floor};
use super::*;

const CAPACITY: u64 = 64 << 20;

#[derive(Debug, Clone)]
enum Step {
    Take(u64),
    Give(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0u64..4096).prop_map(Step::Take),
        (0u64..(3 << 20)).prop_map(Step::Take),
        ((1u64 << 20)..(40 << 20)).prop_map(Step::Take),
        any::<usize>().prop_map(Step::Give),
        any::<usize>().prop_map(Step::Give),
    ];
    prop::collection::vec(step, 1..200)
}

/// Checks every invariant that the header names, by walking all blocks.
fn check(allocator: &Allocator, held: &[Allocation]) {
    let mut ranges: Vec<(u64, u64)> = held.iter().map(|held| (held.offset(), held.len())).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "ranges overlap: {pair:?}");
    }
    if let Some((offset, len)) = ranges.last() {
        assert!(offset + len <= allocator.warm() && allocator.warm() <= allocator.capacity());
    }
    assert_eq!(allocator.used(), ranges.iter().map(|(_, len)| len).sum::<u64>());
    let mut block = allocator.top;
    let (mut end, mut upper_free) = (allocator.fresh, false);
    while block != NONE {
        let here = allocator.blocks[block as usize];
        assert_eq!(here.start + here.size, end, "blocks tile the warm range");
        assert!(here.taken || !upper_free, "two free neighbours");
        upper_free = !here.taken;
        end = here.start;
        block = here.lower;
    }
    assert_eq!(end, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranges_never_overlap_and_everything_freed_becomes_one_range(steps in steps()) {
        let mut allocator = Allocator::new(CAPACITY);
        let mut held: Vec<Allocation> = Vec::new();
        for step in steps {
            match step {
                Step::Take(len) => {
                    let largest = allocator.largest_free();
                    match allocator.allocate(len) {
                        Some(taken) => {
                            prop_assert!(taken.len() >= len && taken.len() <= largest);
                            let align = if len >= 1 << 20 { 4096 } else { 64 };
                            prop_assert_eq!(taken.offset() % align, 0);
                            held.push(taken);
                        }
                        // A page of slack: the longest range may be long enough but badly aligned.
                        None => prop_assert!(len + 8192 > largest, "refused {len} with {largest} free"),
                    }
                }
                Step::Give(pick) if !held.is_empty() => {
                    let taken = held.swap_remove(pick % held.len());
                    allocator.free(taken);
                }
                Step::Give(_) => {}
            }
            check(&allocator, &held);
        }
        for taken in held.drain(..) {
            allocator.free(taken);
        }
        check(&allocator, &held);
        prop_assert_eq!(allocator.used(), 0);
        prop_assert_eq!(allocator.largest_free(), CAPACITY);
        let all = allocator.allocate(CAPACITY);
        prop_assert!(all.is_some());
    }

    #[test]
    fn a_class_is_never_longer_than_its_blocks_nor_shorter_than_its_requests(size in 1u64..(1 << 50)) {
        prop_assert!(bin_floor(size) <= bin_ceil(size));
        prop_assert!(bin_ceil(size) <= bin_floor(size) + 1);
        prop_assert!(bin_floor(size) <= bin_floor(size + 1));
        prop_assert!(bin_ceil(size) <= bin_ceil(size + 1));
    }
}

#[test]
fn freed_bytes_are_used_again_before_fresh_ones() {
    let mut allocator = Allocator::new(CAPACITY);
    let first = allocator.allocate(8 << 20).unwrap();
    let second = allocator.allocate(64).unwrap();
    allocator.free(first);
    let third = allocator.allocate(4 << 20).unwrap();
    assert_eq!(third.offset(), 0);
    assert_eq!(allocator.warm(), (8 << 20) + 64);
    allocator.free(second);
    allocator.free(third);
}

#[test]
fn the_whole_capacity_fits_once_and_not_a_byte_more() {
    let mut allocator = Allocator::new(CAPACITY);
    assert!(!allocator.could_ever_fit(CAPACITY + 1));
    assert!(!allocator.could_ever_fit(u64::MAX));
    let all = allocator.allocate(CAPACITY).unwrap();
    assert_eq!(allocator.allocate(0), None);
    allocator.free(all);
    assert_eq!(allocator.largest_free(), CAPACITY);
}
