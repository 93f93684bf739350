//! The plans of reduces on links with a bandwidth: their times are those of the cost model, and the chosen one is among the best.

use bireme_core::reduce::{Choice, HOP_BYTES, Network, Shape, choose, cost_us, degree, depth, parents};

use crate::random::Random;
use crate::trees::{Links, finish_us};

/// Links and the same in the words of the cost model: a block is the least piece that is passed on.
fn draw(random: &mut Random) -> (Links, Network) {
    let block_us = random.within(10, 200);
    let links =
        Links { blocks: random.within(1, 40), block_us, latency_us: [1, 50, 1_000, 5_000][random.below(4) as usize] };
    (links, Network { bandwidth: HOP_BYTES * 1_000_000 / block_us, latency_us: links.latency_us })
}

fn shapes() -> [Shape; 6] {
    [Shape::Chain, Shape::TwoLevel, Shape::Tree(2), Shape::Tree(3), Shape::Tree(4), Shape::Star]
}

#[test]
fn a_tree_takes_what_the_model_says_after_its_last_input_whenever_they_come() {
    let mut random = Random::new(1);
    for _ in 0..2_000 {
        let (links, _) = draw(&mut random);
        let n = random.within(1, 16) as usize;
        let shape = shapes()[random.below(6) as usize];
        let spread_us = [1, links.blocks * links.block_us, 3 * links.blocks * links.block_us][random.below(3) as usize];
        let mut arrivals_us: Vec<u64> = (0..n).map(|_| random.below(spread_us)).collect();
        // Slots are filled in the order of arrival.
        arrivals_us.sort_unstable();
        let tree = parents(shape, n);
        let (degree, depth) = (u64::from(degree(&tree)), u64::from(depth(&tree)));
        let last_us = arrivals_us.last().copied().unwrap_or(0);
        let took_us = finish_us(&tree, &arrivals_us, links) - last_us;
        let bound_us = degree * links.blocks * links.block_us + depth * (links.latency_us + degree * links.block_us);
        assert!(took_us <= bound_us, "{shape:?} of {n} on {links:?}: {took_us} us, and may take {bound_us}");
        let least_us = links.blocks * links.block_us + links.latency_us;
        assert!(took_us + last_us >= least_us, "{took_us} us is less than one transfer");
    }
}

#[test]
fn the_chosen_tree_is_little_slower_than_the_best_forced_one() {
    let mut random = Random::new(2);
    for _ in 0..500 {
        let (links, network) = draw(&mut random);
        let n = random.within(1, 16) as usize;
        let bytes = links.blocks * HOP_BYTES;
        let arrivals_us = vec![0; n];
        let time = |shape: Shape| finish_us(&parents(shape, n), &arrivals_us, links);
        let best_us = shapes().map(time).into_iter().min().unwrap();
        let chosen = choose(Choice::Model, n, bytes, network);
        let said_us = cost_us(&parents(chosen, n), bytes, network);
        let took_us = time(chosen);
        // The model has all senders of a taker begin at once: where they do not, a flatter tree is better than it says.
        assert!(took_us * 3 <= best_us * 4, "{chosen:?} of {n} on {links:?}: {took_us} us, the best {best_us}");
        assert!(took_us <= said_us + links.block_us * n as u64, "{chosen:?}: {took_us} us, the model says {said_us}");
    }
}
