//! What goes wrong in a run: each seed draws which faults are on and how strong they are (swarm testing).

mod nodes;

use crate::random::Random;

pub use nodes::{DRAIN_US_LONG, NODES_MAX, Nodes};

/// The faults of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// A worker is killed about every so many effects that workers carry out, between two effects of one step.
    pub kill_every_effects: Option<u64>,
    /// A worker is killed about every so many microseconds, at an event boundary.
    pub kill_every_us: Option<u64>,
    /// Kills hit only workers that host an actor.
    pub actors_only: bool,
    /// One start of a worker in so many fails.
    pub spawn_failure_one_in: Option<u64>,
    /// One worker in so many is slow, by this factor.
    pub slow_worker: Option<(u64, u64)>,
    /// The node takes up to so long between two rings.
    pub node_delay_us: u64,
    /// Messages take up to so long.
    pub latency_us: u64,
    /// The driver cancels about one task in so many.
    pub cancel_one_in: Option<u64>,
    /// A process reports a peer as corrupt about every so many microseconds.
    pub corrupt_every_us: Option<u64>,
    /// On a node alone there are two drivers at once with the same program, and the second one is killed at this time.
    pub second_driver_dies_us: Option<u64>,
    /// One call and one reply in so many comes to its process a second time, later.
    pub repeat_one_in: Option<u64>,
    /// When the faults end.
    pub end_us: u64,
    /// The nodes, and what goes wrong with them.
    pub nodes: Nodes,
}

impl Faults {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self {
            kill_every_effects: None,
            kill_every_us: None,
            actors_only: false,
            spawn_failure_one_in: None,
            slow_worker: None,
            node_delay_us: 5,
            latency_us: 20,
            cancel_one_in: None,
            corrupt_every_us: None,
            second_driver_dies_us: None,
            repeat_one_in: None,
            end_us: 0,
            nodes: Nodes::alone(),
        }
    }

    /// Draws the faults of a seed.
    pub fn draw(random: &mut Random) -> Self {
        let mut faults = Self::none();
        faults.end_us = random.within(2_000, 60_000);
        faults.latency_us = [5, 20, 200, 2_000][random.below(4) as usize];
        faults.node_delay_us = [2, 10, 100, 1_000][random.below(4) as usize];
        if random.one_in(2) {
            faults.kill_every_effects = Some([20, 60, 200, 600][random.below(4) as usize]);
        }
        if random.one_in(3) {
            faults.kill_every_us = Some(random.within(300, 10_000));
        }
        faults.actors_only = random.one_in(6);
        if random.one_in(5) {
            faults.spawn_failure_one_in = Some(random.within(3, 10));
        }
        if random.one_in(4) {
            faults.slow_worker = Some((random.within(2, 4), random.within(5, 50)));
        }
        if random.one_in(4) {
            faults.cancel_one_in = Some(random.within(2, 12));
        }
        if random.one_in(8) {
            faults.corrupt_every_us = Some(random.within(2_000, 20_000));
        }
        if random.one_in(4) {
            faults.repeat_one_in = Some(random.within(1, 8));
        }
        faults.nodes = Nodes::draw(random);
        if faults.nodes.count == 1 && random.one_in(3) {
            let most = [500, 5_000, 30_000][random.below(3) as usize];
            faults.second_driver_dies_us = Some(random.within(1, most));
        }
        faults
    }

    /// Whether a task can only fail because its code says so.
    pub fn is_calm(&self) -> bool {
        let killing = self.kill_every_effects.is_some() || self.kill_every_us.is_some();
        let other = self.spawn_failure_one_in.is_some() || self.cancel_one_in.is_some();
        !killing && !other && self.corrupt_every_us.is_none() && self.nodes.is_calm()
    }
}
