//! Questions about all nodes: they are answered when every node has told its load after the question.
//!
//! Loads come with heartbeats, so what is known of another node is old. Who asks which resources are free has to get what
//! is free now: a program that has just seen its tasks end counts on that. A node that does not answer within
//! [`CENSUS_WAIT_US`] is shown as its last load tells.

use std::collections::BTreeSet;

use super::{Effect, Node};
use crate::id::{NodeId, ProcessId};
use crate::message::{Between, ToNode};
use crate::time::Tick;

/// Longer than this nobody waits for the load of another node.
pub const CENSUS_WAIT_US: u64 = 1_000_000;

/// One round of questions, and those who wait for the next.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// Counts the rounds.
    round: u64,
    /// Who has not answered in this round.
    missing: BTreeSet<NodeId>,
    until: Tick,
    asking: Vec<(ProcessId, ToNode)>,
    /// They asked after this round had begun.
    next: Vec<(ProcessId, ToNode)>,
}

impl Census {
    /// When the round ends in any case.
    pub(super) fn deadline(&self) -> Option<Tick> {
        (!self.asking.is_empty()).then_some(self.until)
    }

    /// A process is dead: nobody waits for its answers.
    pub(super) fn forget(&mut self, is_dead: impl Fn(ProcessId) -> bool) {
        self.asking.retain(|(process, _)| !is_dead(*process));
        self.next.retain(|(process, _)| !is_dead(*process));
    }
}

impl Node {
    /// A process asks about all nodes.
    pub(super) fn ask_all(&mut self, process: ProcessId, request: ToNode, now: Tick, effects: &mut Vec<Effect>) {
        self.cluster.census.next.push((process, request));
        if self.cluster.census.asking.is_empty() {
            self.begin_census(now, effects);
        }
    }

    fn begin_census(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let missing: BTreeSet<NodeId> = self.live.nodes().collect();
        let census = &mut self.cluster.census;
        census.asking = std::mem::take(&mut census.next);
        if census.asking.is_empty() {
            return;
        }
        census.round += 1;
        (census.missing, census.until) = (missing, now.plus_us(CENSUS_WAIT_US));
        let request = census.round;
        for node in &census.missing {
            effects.push(Effect::Tell { node: *node, message: Between::WantLoad { request } });
        }
        self.review_census(now, effects);
    }

    /// Another node asks for our load.
    pub(super) fn load_wanted(&self, from: NodeId, request: u64, effects: &mut Vec<Effect>) {
        let mut load = self.load();
        load.free = self.unused().0;
        effects.push(Effect::Tell { node: from, message: Between::GiveLoad { request, load: Box::new(load) } });
    }

    /// Another node tells its load because it was asked to.
    pub(super) fn load_given(
        &mut self,
        from: NodeId,
        request: u64,
        load: crate::schedule::Load,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        self.cluster.passing.digest.update(from, load, 0, now);
        if self.cluster.census.round == request {
            self.cluster.census.missing.remove(&from);
        }
        self.review_census(now, effects);
    }

    /// Answers when everybody who lives has told, or the time is up; then the next round begins.
    pub(super) fn review_census(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let live = &self.live;
        let census = &mut self.cluster.census;
        census.missing.retain(|node| live.has_node(*node));
        if census.asking.is_empty() || (!census.missing.is_empty() && now < census.until) {
            return;
        }
        for (process, request) in std::mem::take(&mut census.asking) {
            effects.push(Effect::Store { process, request });
        }
        self.begin_census(now, effects);
    }
}
