//! One object to many nodes on links with a bandwidth: nodes want it at any time, die, lose connections and drop copies.
//!
//! The nodes' machines and the directory in them are those of `bireme-core`; here are only links, on which bytes go in blocks, each
//! in its time. So the time that a broadcast takes can be compared with what it may take ([`Plan::bound_us`]), and what is sent
//! with what was wanted.
//!
//! | file | what |
//! |---|---|
//! | `stations` | nodes, what they have of the object, and what they say to each other |
//! | `lines` | streams of blocks between them |

mod lines;
mod stations;

use bireme_core::id::NodeId;

use crate::invariants::Violation;
use crate::planted::Planted;
use crate::random::Random;
use stations::Stations;

/// The node that owns the object, and never dies.
const HOME: NodeId = NodeId(1);
/// A run with more happenings than this does not end.
const HAPPENINGS_MAX: u64 = 1_000_000;

/// What a seed draws.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Nodes besides the one that owns it, when all have joined.
    pub nodes: u32,
    /// The object in blocks.
    pub blocks: usize,
    /// One block takes so long on a link.
    pub block_us: u64,
    /// From the end of one node's sending to the other's use.
    pub latency_us: u64,
    /// So long after the death of a node the others are told.
    pub death_told_us: u64,
    /// Who joins late, and when.
    pub joins: Vec<(NodeId, u64)>,
    /// Who wants a copy, and when. Some never do.
    pub wants: Vec<(NodeId, u64)>,
    /// Who dies, and when.
    pub deaths: Vec<(NodeId, u64)>,
    /// Whose connection to its sender breaks, and when.
    pub breaks: Vec<(NodeId, u64)>,
    /// Who drops its copy, and when, if it has one and sends to nobody.
    pub drops: Vec<(NodeId, u64)>,
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(random: &mut Random) -> Self {
        let nodes = random.within(1, 12) as u32;
        // Blocks of 0.02 S/n would be fifty for each node; some seeds have coarser ones.
        let blocks = (u64::from(nodes) * [5, 20, 50][random.below(3) as usize]).max(10) as usize;
        let block_us = random.within(10, 200);
        let whole_us = blocks as u64 * block_us;
        let latency_us = [1, block_us, 5 * block_us][random.below(3) as usize];
        let spread_us = [1, whole_us / 4, whole_us, 3 * whole_us][random.below(4) as usize].max(1);
        let mut plan = Self {
            nodes,
            blocks,
            block_us,
            latency_us,
            death_told_us: random.within(latency_us, whole_us),
            joins: Vec::new(),
            wants: Vec::new(),
            deaths: Vec::new(),
            breaks: Vec::new(),
            drops: Vec::new(),
        };
        let (deadly, fragile, full) = (random.one_in(2), random.one_in(3), random.one_in(4));
        let joined = |_| if random.one_in(4) { random.within(1, spread_us) } else { 0 };
        let mut joined: Vec<u64> = (0..nodes).map(joined).collect();
        // Nodes are numbered in the order of their joins.
        joined.sort_unstable();
        for (node, joined) in (HOME.0 + 1..).map(NodeId).zip(joined) {
            plan.joins.push((node, joined));
            if random.one_in(8) {
                continue;
            }
            let wanted = joined + random.below(spread_us);
            plan.wants.push((node, wanted));
            let later = |random: &mut Random| wanted + random.within(1, 2 * whole_us);
            if deadly && random.one_in(4) {
                plan.deaths.push((node, later(random)));
            }
            if fragile && random.one_in(3) {
                plan.breaks.push((node, later(random)));
            }
            if full && random.one_in(3) {
                plan.drops.push((node, later(random)));
            }
        }
        plan
    }

    /// The time that all of it takes on one link.
    pub fn whole_us(&self) -> u64 {
        self.blocks as u64 * self.block_us
    }

    /// How long it may take after the last change until everybody has it: once all of it over a link, a block and the latency for each
    /// node that passes it on, and what those still missed who lost a sender: another one may send that beside its own.
    pub fn bound_us(&self, missed_blocks: u64, losses: u64) -> u64 {
        let hops = u64::from(self.nodes) * (self.latency_us + self.block_us);
        let asked = 3 * self.latency_us * (1 + losses);
        self.whole_us() + hops + asked + missed_blocks * self.block_us
    }
}

/// How a seed went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it drew.
    pub plan: Plan,
    /// From the last change until everybody had it, and how long that may take.
    pub took_us: u64,
    /// How long it may have taken.
    pub bound_us: u64,
    /// Senders that were lost.
    pub losses: u64,
    /// Blocks that were sent and not used.
    pub wasted: u64,
    /// The hash of everything that happened.
    pub hash: u64,
    /// What went wrong.
    pub failure: Option<Violation>,
}

/// Runs a seed.
pub fn run(seed: u64, planted: Option<Planted>) -> Outcome {
    let plan = Plan::draw(&mut Random::new(seed.wrapping_mul(0x9e6c_63d0_876a_68de)));
    run_plan(plan, planted)
}

/// Runs a plan.
pub fn run_plan(plan: Plan, planted: Option<Planted>) -> Outcome {
    let mut stations = Stations::new(plan.clone(), planted);
    let result = stations.run();
    let (took_us, bound_us) = stations.times();
    let failure = result.and_then(|()| stations.check_end()).err().map(|(invariant, text)| {
        let concerns = Vec::new();
        Violation { invariant, text: format!("{text}\n{plan:?}"), concerns }
    });
    let (losses, wasted, hash) = (stations.losses, stations.wasted, stations.hash);
    Outcome { plan, took_us, bound_us, losses, wasted, hash, failure }
}
