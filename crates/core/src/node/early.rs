//! Questions about actors that the node does not know, or not yet.
//!
//! A handle comes with the reply of the task that made the actor, straight from worker to owner, while the creation is in
//! the worker's ring to the node; the node may read the owner's question first. Everything that was written before a
//! question is with the node when [`ADOPTION_PASSES`] passes over all rings are over: only then is an actor unknown.

use super::adoption::ADOPTION_PASSES;
use super::{Effect, Node};
use crate::id::{ActorId, ProcessId};
use crate::message::RequestId;
use crate::time::Tick;

/// What is asked about an actor.
#[derive(Clone, Debug)]
pub(super) enum About {
    /// Tell me where it is.
    Watch(ActorId),
    /// End it.
    Kill { actor: ActorId, restart: bool },
    /// Tell me who has this name.
    Find { request: RequestId, name: String },
}

/// A question that came before its actor.
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
            self.early.push(Early { process, about, passes_left: ADOPTION_PASSES });
        }
    }

    pub(super) fn pass_early(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        for mut early in std::mem::take(&mut self.early) {
            early.passes_left = early.passes_left.saturating_sub(1);
            if !self.live.contains(&early.process) {
                continue;
            }
            if early.passes_left > 0 && !self.is_known(&early.about) {
                self.early.push(early);
            } else {
                self.answer_about(early.process, early.about, now, effects);
            }
        }
    }

    fn is_known(&self, about: &About) -> bool {
        match about {
            About::Watch(actor) | About::Kill { actor, .. } => self.actors.all.contains_key(actor),
            About::Find { name, .. } => self.actors.names.contains_key(name),
        }
    }

    fn answer_about(&mut self, process: ProcessId, about: About, now: Tick, effects: &mut Vec<Effect>) {
        match about {
            About::Watch(actor) => self.watch_actor(process, actor, effects),
            About::Kill { actor, restart } => self.kill_actor(process, actor, restart, now, effects),
            About::Find { request, name } => self.find_actor(process, request, &name, effects),
        }
    }
}
