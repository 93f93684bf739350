//! Bundles that wait in the queue of this node, because the controller insists on them.
//!
//! A group that has waited long is planned without regard to what is free: its nodes are asked to reserve its bundles as
//! soon as they can. Each is one who waits like others: leases that stand in the way are asked for, and what comes free is
//! kept for it once it was passed over often enough.

use super::sum;
use crate::controller::ToController;
use crate::id::{GroupId, JobId, ProcessId};
use crate::node::queue::{Ask, OVERTAKES_MAX, Waiting};
use crate::node::{Effect, Node};
use crate::resources::Resources;
use crate::spec::Strategy;
use crate::time::Tick;

/// What is to be reserved for a group.
#[derive(Debug)]
pub(super) struct Insisted {
    attempt: u32,
    /// Their places in the group.
    indices: Vec<u32>,
    pub(super) bundles: Vec<Resources>,
}

impl Node {
    pub(super) fn insist(&mut self, group: GroupId, attempt: u32, asked: Vec<(u32, Resources)>, now: Tick) {
        self.insist_no_more(group, None);
        let (indices, bundles): (Vec<u32>, Vec<Resources>) = asked.into_iter().unzip();
        let waiting = Waiting {
            ask: Ask::Group { group, creator: ProcessId::of_node(self.config.id) },
            job: JobId::default(),
            resources: sum(&bundles),
            environment: 0,
            threads: 0,
            strategy: Strategy::Default,
            near: Vec::new(),
            since: now,
            overtaken: 0,
        };
        self.queue.push(0, waiting);
        self.groups.insisted.insert(group, Insisted { attempt, indices, bundles });
    }

    /// There is room: they are reserved, and the controller hears of it.
    pub(super) fn place_insisted(&mut self, group: GroupId, effects: &mut Vec<Effect>) {
        let Some(Insisted { attempt, indices, bundles }) = self.groups.insisted.remove(&group) else { return };
        let asked: Vec<(u32, Resources)> = indices.into_iter().zip(bundles).collect();
        self.reserve(group, attempt, false, &asked);
        let free = Box::new(self.free_to_keep());
        effects.push(Effect::AskController(ToController::Prepared { group, attempt, refused: None, free }));
    }

    /// The controller gives that try up, or all.
    pub(super) fn insist_no_more(&mut self, group: GroupId, attempt: Option<u32>) {
        let of_it = |insisted: &Insisted| attempt.is_none_or(|attempt| attempt == insisted.attempt);
        if self.groups.insisted.get(&group).is_some_and(of_it) {
            self.groups.insisted.remove(&group);
            if let Some(place) = self.queue.group(group) {
                self.queue.remove(place);
            }
        }
    }

    /// Whether these would take what is kept for bundles that wait here.
    pub(super) fn is_kept_for_group(&self, asked: &[(u32, Resources)]) -> bool {
        let kept = |group: &GroupId| {
            let waiting = self.queue.group(*group).and_then(|place| self.queue.get(place));
            waiting.is_some_and(|waiting| {
                waiting.overtaken >= OVERTAKES_MAX
                    && asked.iter().any(|(_, bundle)| waiting.competes(None, bundle))
                    && self.within_reach(waiting)
            })
        };
        self.groups.insisted.keys().any(kept)
    }
}
