//! The nodes of a run and what goes wrong with them and between them.

use bireme_core::id::NodeId;
use bireme_core::throttle::QUEUED_BYTES_MAX;

use crate::random::Random;

/// How many nodes there are, and their faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// So many at first. One is the node that is embedded in its driver, alone.
    pub count: u32,
    /// Messages between nodes take up to so long.
    pub latency_us: u64,
    /// A node crashes with all its processes about every so many microseconds.
    pub crash_every_us: Option<u64>,
    /// A node joins about every so many microseconds, while there are fewer than [`NODES_MAX`].
    pub join_every_us: Option<u64>,
    /// A node leaves in good order about every so many microseconds.
    pub leave_every_us: Option<u64>,
    /// A node is drained about every so many microseconds, and is given so much time. Then drivers are with the head alone,
    /// since a drain waits for them.
    pub drain: Option<(u64, u64)>,
    /// Two nodes cannot hear each other, in one direction or both, about every so many microseconds, for up to so long.
    pub cut: Option<(u64, u64)>,
    /// A connection breaks about every so many microseconds.
    pub break_every_us: Option<u64>,
    /// One frame in so many comes twice.
    pub duplicate_one_in: Option<u64>,
    /// What a broken connection still carried comes late instead of never.
    pub late: bool,
    /// One node in so many is slow, by this factor.
    pub slow: Option<(u64, u64)>,
    /// How many times longer the user's code takes on each node, by its number and in turns; all alike when there are none.
    pub paces: Vec<u64>,
    /// A placement group is asked for about every so many microseconds.
    pub group_every_us: Option<u64>,
    /// One copy of a stored object in so many is dropped again to make room.
    pub evict_one_in: Option<u64>,
    /// Bytes of messages that wait for one other node, beyond which processes that have more for it wait.
    pub queue_bytes: usize,
}

/// So much time is enough for a node to be drained of all that any program has.
pub const DRAIN_US_LONG: u64 = 100_000_000;
/// Nodes at a time, at most.
pub const NODES_MAX: usize = 5;

impl Nodes {
    /// One node, alone.
    pub fn alone() -> Self {
        Self {
            count: 1,
            latency_us: 50,
            crash_every_us: None,
            join_every_us: None,
            leave_every_us: None,
            drain: None,
            cut: None,
            break_every_us: None,
            duplicate_one_in: None,
            late: false,
            slow: None,
            paces: Vec::new(),
            group_every_us: None,
            evict_one_in: None,
            queue_bytes: QUEUED_BYTES_MAX,
        }
    }

    /// So many nodes, and nothing goes wrong.
    pub fn calm(count: u32) -> Self {
        Self { count, ..Self::alone() }
    }

    /// Draws the nodes of a seed: alone in three of five.
    pub fn draw(random: &mut Random) -> Self {
        let mut nodes = Self::alone();
        if random.below(5) < 3 {
            return nodes;
        }
        nodes.count = random.within(2, 4) as u32;
        nodes.latency_us = [20, 100, 1_000, 10_000][random.below(4) as usize];
        if random.one_in(3) {
            nodes.crash_every_us = Some(random.within(2_000, 60_000));
        }
        if random.one_in(3) {
            nodes.join_every_us = Some(random.within(2_000, 60_000));
        }
        if random.one_in(5) {
            nodes.leave_every_us = Some(random.within(5_000, 60_000));
        }
        if random.one_in(4) {
            nodes.cut =
                Some((random.within(2_000, 40_000), [1_000, 20_000, 400_000, 6_000_000][random.below(4) as usize]));
        }
        if random.one_in(3) {
            nodes.break_every_us = Some(random.within(500, 20_000));
        }
        if random.one_in(3) {
            nodes.duplicate_one_in = Some(random.within(2, 20));
        }
        if random.one_in(5) {
            nodes.drain =
                Some((random.within(2_000, 40_000), [1_000, 20_000, DRAIN_US_LONG][random.below(3) as usize]));
        }
        nodes.late = random.one_in(2);
        if random.one_in(4) {
            nodes.slow = Some((random.within(1, 3), random.within(5, 50)));
        }
        if random.one_in(4) {
            nodes.group_every_us = Some(random.within(1_000, 20_000));
        }
        if random.one_in(3) {
            nodes.evict_one_in = Some(random.within(1, 6));
        }
        if random.one_in(3) {
            nodes.queue_bytes = [1, 500, 2_000, 8_000][random.below(4) as usize];
        }
        nodes
    }

    /// How many times longer the user's code takes on this node.
    pub fn pace(&self, node: NodeId) -> u64 {
        let turn = (node.0 as usize).checked_rem(self.paces.len());
        turn.map_or(1, |turn| self.paces[turn])
    }

    /// Whether no node can be lost with something on it.
    pub fn is_calm(&self) -> bool {
        let drained = self.drain.is_none_or(|(_, time_us)| time_us >= DRAIN_US_LONG);
        self.crash_every_us.is_none() && self.leave_every_us.is_none() && self.cut.is_none() && drained
    }
}
