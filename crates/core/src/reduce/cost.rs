//! What a tree costs, and the choice of one.
//!
//! Bytes are passed on as they arrive, so a tree takes as long as its busiest taker needs for all that it takes (its
//! incoming link carries `degree` times the bytes), and one hop of latency for each level. A hop is the latency of a link
//! and the time that the least piece which is passed on takes on it.

use serde::{Deserialize, Serialize};

use super::shape::{Shape, degree, depth, parents};

/// The least piece that is passed on.
pub const HOP_BYTES: u64 = 16 * 1024;
/// Bytes per second of a link that nothing was measured of.
pub const BANDWIDTH_DEFAULT: u64 = 125_000_000;
/// Latency of a link that nothing was measured of: two wake-ups of threads and a small network.
pub const LATENCY_US_DEFAULT: u64 = 200;

/// What is known of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Bytes per second that one node can take.
    pub bandwidth: u64,
    /// From the send of a byte on one node to its use on another.
    pub latency_us: u64,
}

impl Default for Network {
    fn default() -> Self {
        Self { bandwidth: BANDWIDTH_DEFAULT, latency_us: LATENCY_US_DEFAULT }
    }
}

/// How a tree is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Choice {
    /// The cheapest by the cost model.
    #[default]
    Model,
    /// The rule of the paper: two levels when n · bandwidth · latency is more than the bytes, else a chain.
    Paper,
    /// This one, whatever it costs.
    Forced(Shape),
}

impl Network {
    /// How long so many bytes take over a link.
    pub fn transfer_us(self, bytes: u64) -> u64 {
        let us = u128::from(bytes) * 1_000_000 / u128::from(self.bandwidth.max(1));
        u64::try_from(us).unwrap_or(u64::MAX)
    }

    fn hop_us(self, bytes: u64) -> u64 {
        self.latency_us.saturating_add(self.transfer_us(bytes.min(HOP_BYTES)))
    }
}

/// The time that a tree takes, given by the parents of its slots.
pub fn cost_us(parents: &[Option<u32>], bytes: u64, network: Network) -> u64 {
    let links = network.transfer_us(bytes).saturating_mul(u64::from(degree(parents)));
    links.saturating_add(network.hop_us(bytes).saturating_mul(u64::from(depth(parents))))
}

/// The shape for `n` slots of so many bytes each.
pub fn choose(choice: Choice, n: usize, bytes: u64, network: Network) -> Shape {
    match choice {
        Choice::Forced(shape) => shape,
        Choice::Paper => {
            let in_flight = n as u128 * u128::from(network.bandwidth) * u128::from(network.latency_us) / 1_000_000;
            if in_flight > u128::from(bytes) { Shape::TwoLevel } else { Shape::Chain }
        }
        Choice::Model => cheapest(n, bytes, network),
    }
}

/// Of all trees with the same degree the flattest is best, so one per degree is looked at. A higher degree pays only
/// while it makes the tree flatter: from √n on the depth is two, and then only a star has less.
fn cheapest(n: usize, bytes: u64, network: Network) -> Shape {
    let root = u32::try_from(n.isqrt()).unwrap_or(u32::MAX).saturating_add(1);
    let trees = (2..=root).map(Shape::Tree);
    let all = [Shape::Chain].into_iter().chain(trees).chain([Shape::Star]);
    all.min_by_key(|shape| cost_us(&parents(*shape, n), bytes, network)).unwrap_or(Shape::Chain)
}
