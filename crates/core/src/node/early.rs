//! Questions about actors and placement groups that the node does not know, or not yet, and members of a group that come before
//! the node has read that their predecessors have left.
//!
//! A handle comes with the reply of the task that made the actor, straight from worker to owner, while the creation is in
//! the worker's ring to the node; the node may read the owner's question first. Everything that was written before a
//! question is with the node when [`ADOPTION_PASSES`] passes over all rings are over: only then is an actor unknown.

use super::adoption::ADOPTION_PASSES;
use super::collectives::Newcomer;
use super::{Effect, Node};
use crate::collective::CollectiveId;
use crate::id::{ActorId, GroupId, ProcessId};
use crate::message::RequestId;
use crate::time::Tick;

/// What is asked about an actor or a placement group.
#[derive(Clone, Debug)]
pub(super) enum About {
    /// Tell me where it is.
    Watch(ActorId),
    /// End it.
    Kill { actor: ActorId, restart: bool },
    /// Tell me who has this name.
    Find { request: RequestId, name: String },
    /// Tell me which group has this name.
    FindGroup { request: RequestId, name: String },
    /// Tell me when it is placed.
    WatchGroup(GroupId),
    /// Give it up.
    RemoveGroup(GroupId),
    /// I want to run something in it, which is queued.
    EnterGroup(GroupId),
    /// I want to be this member of a collective group.
    Join { group: CollectiveId, newcomer: Newcomer },
}

/// A question that came before what it is about.
#[derive(Clone, Debug)]
pub(super) struct Early {
    process: ProcessId,
    about: About,
    passes_left: u32,
}

impl Node {
    pub(super) fn ask_about(&mut self, process: ProcessId, about: About, now: Tick, effects: &mut Vec<Effect>) {
        if self.is_known(&about) {
            self.answer_about(process, about, now, effects);
        } else {
            self.enter_early(process, about);
        }
    }

    /// Asks again when everything that was written before is read.
    pub(super) fn enter_early(&mut self, process: ProcessId, about: About) {
        self.early.push(Early { process, about, passes_left: ADOPTION_PASSES });
    }

    /// A member goes that was not let in yet. Says whether there was one.
    pub(super) fn forget_early_join(&mut self, process: ProcessId, left: CollectiveId, seat: u32) -> bool {
        let joins = |early: &Early| match &early.about {
            About::Join { group, newcomer } => early.process == process && *group == left && newcomer.rank == seat,
            _ => false,
        };
        let found = self.early.iter().position(joins);
        found.map(|at| self.early.remove(at)).is_some()
    }

    /// A pass is over. One that has left rings out tells nothing about what is not known, only about what is known by now.
    pub(super) fn pass_early(&mut self, is_whole: bool, now: Tick, effects: &mut Vec<Effect>) {
        // What is removed in this pass is removed at once (GRANT-1).
        let mut removed = Vec::new();
        let mut answered = Vec::new();
        for mut early in std::mem::take(&mut self.early) {
            early.passes_left = early.passes_left.saturating_sub(u32::from(is_whole));
            if !self.live.contains(&early.process) {
                continue;
            }
            if early.passes_left > 0 && !self.is_known(&early.about) {
                self.early.push(early);
            } else if let About::RemoveGroup(group) = early.about {
                removed.push(group);
            } else {
                answered.push(early);
            }
        }
        self.remove_groups(&removed, "it was removed", now, effects);
        for early in answered {
            self.answer_about(early.process, early.about, now, effects);
        }
    }

    fn is_known(&self, about: &About) -> bool {
        match about {
            About::Watch(actor) | About::Kill { actor, .. } => self.actors.all.contains_key(actor),
            About::Find { name, .. } => self.actors.names.contains_key(name),
            About::FindGroup { name, .. } => self.groups.names.contains_key(name),
            // The controller waits for those that are on their way.
            About::WatchGroup(_) | About::RemoveGroup(_) if self.is_clustered() => true,
            About::WatchGroup(group) | About::RemoveGroup(group) | About::EnterGroup(group) => {
                self.groups.all.contains_key(group)
            }
            About::Join { group, newcomer } => !self.is_rank_held(*group, newcomer),
        }
    }

    fn answer_about(&mut self, process: ProcessId, about: About, now: Tick, effects: &mut Vec<Effect>) {
        match about {
            About::Watch(actor) => self.watch_actor(process, actor, effects),
            About::Kill { actor, restart } => self.kill_actor(process, actor, restart, now, effects),
            About::Find { request, name } => self.find_actor(process, request, &name, effects),
            About::FindGroup { request, name } => self.find_group(process, request, &name, now, effects),
            About::WatchGroup(group) => self.watch_group(process, group, effects),
            About::RemoveGroup(group) => self.remove_groups(&[group], "it was removed", now, effects),
            About::EnterGroup(group) => self.refuse_in_group(group, effects),
            About::Join { group, newcomer } => self.admit_member(group, newcomer, effects),
        }
    }
}
