//! The plan of a reduce: who sends to whom, and what that costs.
//!
//! Everything here is a pure function of numbers. The inputs of a reduce are put in *slots* as they arrive; a slot takes
//! what its children have combined, adds its own, and passes it on. The machine that fills slots is `node::reducing`.
//!
//! | file | what |
//! |---|---|
//! | `shape` | the trees that are considered, over slots in post-order |
//! | `cost` | what a tree costs on a network, and the choice of one |

mod cost;
mod shape;

#[cfg(test)]
mod tests;

pub use cost::{BANDWIDTH_DEFAULT, Choice, HOP_BYTES, LATENCY_US_DEFAULT, Network, choose, cost_us};
pub use shape::{Shape, degree, depth, parents};

use serde::{Deserialize, Serialize};

/// So many inputs may one reduce have; more are refused with an error.
pub const INPUTS_MAX: usize = 100_000;

/// In which order inputs are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Order {
    /// As they arrive and where they are.
    #[default]
    Arrival,
    /// From the first of the list to the last, whatever arrives when and where: equal inputs give equal bits.
    Fixed,
}

/// How a reduce is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Options {
    /// In which order inputs are combined.
    pub order: Order,
    /// How the tree is chosen.
    pub choice: Choice,
}
