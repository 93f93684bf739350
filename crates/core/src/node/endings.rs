//! How actors end: released, killed, failed, lost with their process; and when they get another life.

use std::sync::Arc;

use super::actors::{ActorState, DEAD_ACTORS_MAX};
use super::pool::{Reserved, WorkerState};
use super::{Effect, Node, send};
use crate::failure::{Death, DeathCause, Failure};
use crate::id::{ActorId, ProcessId};
use crate::message::FromNode;
use crate::time::Tick;
use crate::value::Value;

impl Node {
    /// The actor ends; its owner hears `failure` when it has heard nothing before, its watchers the reason.
    pub(super) fn actor_failed(&mut self, id: ActorId, failure: Failure, reason: String, effects: &mut Vec<Effect>) {
        if self.actors.all.get(&id).is_some_and(|actor| actor.manager.is_some()) {
            self.hosting_over(id, Some(failure), effects);
            return;
        }
        let Some(actor) = self.actors.all.get_mut(&id) else { return };
        if matches!(actor.state, ActorState::Dead { .. }) {
            return;
        }
        let before = std::mem::replace(&mut actor.state, ActorState::Dead { reason: reason.clone() });
        let watchers = std::mem::take(&mut actor.watchers);
        actor.resolved = Vec::new();
        let (job, detached, spec) = (actor.job, actor.is_detached(), Arc::clone(&actor.spec));
        let unheard = actor.created.is_none();
        let name = actor.name().map(str::to_owned);
        if let Some(name) = name.filter(|name| self.actors.names.get(name) == Some(&id)) {
            self.actors.names.remove(&name);
            self.drop_name(&name, id, effects);
        }
        if unheard {
            self.tell_created(id, Value::failed(failure), effects);
        }
        for watcher in watchers {
            send(watcher, FromNode::ActorDead { actor: id, reason: reason.clone() }, effects);
        }
        if let Some(place) = self.queue.actor(id) {
            self.queue.remove(place);
        }
        self.unreserve(before);
        self.groups.note_dead(id);
        self.member_actor_died(id, &reason, effects);
        self.jobs.actor_over(job, detached.then_some(spec));
        self.actors.dead.push_back(id);
        while self.actors.dead.len() > DEAD_ACTORS_MAX {
            if let Some(oldest) = self.actors.dead.pop_front() {
                self.actors.all.remove(&oldest);
            }
        }
    }

    /// A process that was only starting for a dead actor is nobody's again.
    pub(super) fn unreserve(&mut self, state: ActorState) {
        let Some(worker) = state.process().and_then(|process| self.pool.workers.get_mut(&process)) else { return };
        if matches!(worker.state, WorkerState::Starting(_)) {
            worker.state = WorkerState::Starting(Reserved::Nobody);
            worker.environment = None;
            let (held, gpus) = (std::mem::take(&mut worker.held), std::mem::take(&mut worker.gpus));
            let stock = std::mem::take(&mut worker.stock);
            self.give_back(stock, &held, &gpus);
        }
    }

    pub(super) fn release_actor(&mut self, owner: ProcessId, id: ActorId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.get_mut(&id) else { return };
        if actor.owner != owner || actor.is_detached() {
            return;
        }
        let reason = "all handles were dropped";
        match actor.state {
            ActorState::Queued => {
                self.tells_host(id, reason, effects);
                self.end_before_start(id, reason, now, effects);
            }
            ActorState::Starting { process } | ActorState::Alive { process } => {
                let begun = self.live.contains(&process);
                if begun {
                    actor.state = ActorState::Retiring { process };
                    send(process, FromNode::Retire, effects);
                } else {
                    self.end_before_start(id, reason, now, effects);
                }
            }
            ActorState::Retiring { .. } | ActorState::Ending { .. } | ActorState::Dead { .. } => {}
        }
    }

    fn end_before_start(&mut self, id: ActorId, reason: &str, now: Tick, effects: &mut Vec<Effect>) {
        let failure = Failure::ActorDied { actor: id, reason: reason.into() };
        self.actor_failed(id, failure, reason.into(), effects);
        self.schedule(now, effects);
    }

    pub(super) fn kill_actor(
        &mut self,
        asker: ProcessId,
        id: ActorId,
        restart: bool,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let own = self.actors.all.get(&id).and_then(|actor| actor.state.process()) == Some(asker);
        let reason = if own { "it left by itself (exit_actor)" } else { "it was killed" };
        self.end_actor(id, reason, restart, now, effects);
    }

    /// Ends an actor's process in good order if it can; what follows is decided when it is gone.
    pub(super) fn end_actor(&mut self, id: ActorId, reason: &str, restart: bool, now: Tick, effects: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.get_mut(&id) else { return };
        let process = match &mut actor.state {
            ActorState::Queued if restart => return,
            ActorState::Queued => {
                self.tells_host(id, reason, effects);
                self.end_before_start(id, reason, now, effects);
                return;
            }
            ActorState::Dead { .. } => return,
            ActorState::Ending { restart: may, .. } => {
                *may &= restart;
                return;
            }
            ActorState::Starting { process } | ActorState::Alive { process } => *process,
            ActorState::Retiring { process } => *process,
        };
        let restart = restart && !matches!(actor.state, ActorState::Retiring { .. });
        if !self.live.contains(&process) && !restart {
            self.end_before_start(id, reason, now, effects);
            return;
        }
        actor.state = ActorState::Ending { process, reason: reason.into(), restart };
        if self.tells_host(id, reason, effects) {
            return;
        }
        self.ask_to_end(process, DeathCause::Ended(reason.into()), now, effects);
    }

    /// The process of an actor is gone: another life, or the end.
    pub(super) fn actor_process_died(&mut self, id: ActorId, death: &Death, now: Tick, effects: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.get_mut(&id) else { return };
        if actor.state.process() != Some(death.process) {
            return;
        }
        if actor.manager.is_some() {
            self.hosting_over(id, None, effects);
            return;
        }
        let (restart, reason) = match &actor.state {
            ActorState::Retiring { .. } => (false, "all handles were dropped".to_owned()),
            ActorState::Ending { reason, restart, .. } => (*restart, reason.clone()),
            ActorState::Queued | ActorState::Starting { .. } | ActorState::Alive { .. } | ActorState::Dead { .. } => {
                (true, death.to_string())
            }
        };
        // A move was planned, and was not the actor's fault.
        let moved = restart && matches!(death.cause, DeathCause::Moved(_));
        if !restart || actor.restarts_left == 0 && !moved {
            let failure = Failure::ActorDied { actor: id, reason: reason.clone() };
            self.actor_failed(id, failure, reason, effects);
            return;
        }
        actor.restarts_left -= u32::from(!moved);
        actor.incarnation += 1;
        if !self.ledger.is_final(id.0) {
            // The constructor had begun: like any task that runs again, it adopts what it has made.
            Arc::make_mut(&mut actor.spec).attempt += 1;
        }
        for watcher in actor.watchers.clone() {
            send(watcher, FromNode::ActorRestarting { actor: id, reason: reason.clone(), moved }, effects);
        }
        self.enqueue_actor(id, now, effects);
    }
}
