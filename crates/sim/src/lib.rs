//! A whole cluster in one thread, from one seed: nodes and the controller, drivers, workers, rings and links between them,
//! stores, and faults.
//!
//! The machines are those of `bireme-core`, unchanged; this crate is another shell around them. One ordered queue of
//! happenings, one generator, no clock and no thread: equal seeds give equal runs, and [`run::run`] proves it by a hash
//! of everything that happened. A run has two phases: with faults (safety: the invariants hold at every step) and
//! without (liveness: everything that was submitted ends, and nothing is left at rest).

pub mod broadcasts;
pub mod cluster;
pub mod faults;
pub mod invariants;
pub mod network;
pub mod planted;
pub mod program;
pub mod random;
pub mod run;
pub mod trees;
pub mod workload;

#[cfg(test)]
mod scenarios;
