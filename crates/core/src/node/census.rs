//! Questions about all nodes: they are answered when every node has told its part after the question.
//!
//! Loads come with heartbeats, so what is known of another node is old. A program that asks which resources are free has to
//! get what is free now: it may have just seen its tasks end. A node that does not answer within [`CENSUS_WAIT_US`] is
//! shown as its last load tells. The other subject is what waits on all nodes ([`crate::waits`]), for a program that asks why
//! a task does not end.

use std::collections::BTreeSet;

use super::{Effect, Node, send};
use crate::id::{NodeId, ProcessId};
use crate::message::{Between, FromNode, ToNode};
use crate::time::Tick;
use crate::waits::Waits;

/// Maximum time to wait for the answer of another node.
pub const CENSUS_WAIT_US: u64 = 1_000_000;
/// The same for an explanation: a `get` whose time is over has to end, also when a node is out of reach.
pub const EXPLANATION_WAIT_US: u64 = 100_000;

/// One round of questions, and those who wait for the next.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// Counts the rounds.
    round: u64,
    /// The nodes that have not answered in this round.
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

/// A subject that nodes are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// Their loads.
    Loads,
    /// The tasks that wait there.
    Waits,
}

impl Subject {
    fn patience_us(self) -> u64 {
        match self {
            Subject::Loads => CENSUS_WAIT_US,
            Subject::Waits => EXPLANATION_WAIT_US,
        }
    }
}

impl Node {
    fn census(&mut self, subject: Subject) -> &mut Census {
        match subject {
            Subject::Loads => &mut self.cluster.loads,
            Subject::Waits => &mut self.cluster.waits,
        }
    }

    /// A process asks about all nodes.
    pub(super) fn ask_all(
        &mut self,
        subject: Subject,
        process: ProcessId,
        request: ToNode,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let census = self.census(subject);
        census.next.push((process, request));
        if census.asking.is_empty() {
            self.begin_census(subject, now, effects);
        }
    }

    fn begin_census(&mut self, subject: Subject, now: Tick, effects: &mut Vec<Effect>) {
        let missing: BTreeSet<NodeId> = self.live.nodes().collect();
        let census = self.census(subject);
        census.asking = std::mem::take(&mut census.next);
        if census.asking.is_empty() {
            return;
        }
        census.round += 1;
        (census.missing, census.until) = (missing, now.plus_us(subject.patience_us()));
        let request = census.round;
        for node in &census.missing {
            let message = match subject {
                Subject::Loads => Between::WantLoad { request },
                Subject::Waits => Between::WantWaits { request },
            };
            effects.push(Effect::Tell { node: *node, message });
        }
        self.review_census(subject, now, effects);
    }

    /// Another node asks for our load.
    pub(super) fn load_wanted(&self, from: NodeId, request: u64, effects: &mut Vec<Effect>) {
        let mut load = self.load();
        load.free = self.unused().0;
        effects.push(Effect::Tell { node: from, message: Between::GiveLoad { request, load: Box::new(load) } });
    }

    /// Another node asks what waits here.
    pub(super) fn waits_wanted(&self, from: NodeId, request: u64, effects: &mut Vec<Effect>) {
        let mut waits = Box::new(self.waits());
        waits.truncate();
        effects.push(Effect::Tell { node: from, message: Between::GiveWaits { request, waits } });
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
        self.answered(Subject::Loads, from, request, now, effects);
    }

    /// Another node tells what waits there because it was asked to.
    pub(super) fn waits_given(
        &mut self,
        from: NodeId,
        request: u64,
        waits: Waits,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        if self.cluster.waits.round == request && self.cluster.waits.missing.contains(&from) {
            self.cluster.told_waits.insert(from, waits);
        }
        self.answered(Subject::Waits, from, request, now, effects);
    }

    fn answered(&mut self, subject: Subject, from: NodeId, request: u64, now: Tick, effects: &mut Vec<Effect>) {
        let census = self.census(subject);
        if census.round == request {
            census.missing.remove(&from);
        }
        self.review_census(subject, now, effects);
    }

    /// Answers all questions for which everybody who lives has told, or the time is up.
    pub(super) fn review_questions(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        self.review_census(Subject::Loads, now, effects);
        self.review_census(Subject::Waits, now, effects);
    }

    /// Answers when everybody who lives has told, or the time is up; then the next round begins.
    fn review_census(&mut self, subject: Subject, now: Tick, effects: &mut Vec<Effect>) {
        let live: BTreeSet<NodeId> = self.live.nodes().collect();
        let census = self.census(subject);
        if census.asking.is_empty() {
            return;
        }
        census.missing.retain(|node| live.contains(node));
        if !census.missing.is_empty() && now < census.until {
            return;
        }
        for (process, request) in std::mem::take(&mut census.asking) {
            if let ToNode::Explain { request, task } = request {
                let text = self.explain(task, now);
                send(process, FromNode::Explained { request, text }, effects);
            } else {
                effects.push(Effect::Store { process, request });
            }
        }
        if subject == Subject::Waits {
            self.cluster.told_waits.clear();
        }
        self.begin_census(subject, now, effects);
    }
}
