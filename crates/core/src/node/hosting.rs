//! Actors in a cluster: the node of the owner manages an actor, any node may host it, and the head keeps the names.
//!
//! The manager has the actor's whole state (`actors`, `endings`); where a process would be started here, another node is asked to
//! be the host. A host has an entry of its own for the time of one life and decides nothing: how the life ended is
//! known by the death of its process, which every node hears of. An actor that outlives its owner is managed by the head.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::actors::{Actor, ActorState};
use super::{Effect, Node};
use crate::failure::{Death, DeathCause, Failure};
use crate::id::{ActorId, FunctionKey, JobId, NodeId, ProcessId};
use crate::message::Between;
use crate::record::Record;
use crate::spec::{TaskKind, TaskSpec};
use crate::time::Tick;
use crate::value::Value;

/// Whether an actor outlives its owner.
pub(super) fn is_detached(spec: &TaskSpec) -> bool {
    matches!(&spec.kind, TaskKind::Create(options) if options.detached)
}

/// A name that an actor of another node has.
struct Named {
    actor: ActorId,
    owner: ProcessId,
    function: FunctionKey,
}

/// What is known of actors that other nodes manage.
#[derive(Default)]
pub(super) struct Names {
    /// Actors that our processes created and another node manages.
    pub(super) away: BTreeMap<ActorId, NodeId>,
    /// With the head: names of actors that other nodes manage.
    foreign: BTreeMap<String, Named>,
}

impl Names {
    pub(super) fn drop_foreign(&mut self, name: &str, actor: ActorId) {
        if self.foreign.get(name).is_some_and(|named| named.actor == actor) {
            self.foreign.remove(name);
        }
    }

    pub(super) fn forget_node(&mut self, node: NodeId) {
        self.foreign.retain(|_, named| named.owner.node != node);
        self.away.retain(|_, manager| *manager != node);
    }

    pub(super) fn find(&self, name: &str) -> Option<(ActorId, ProcessId, FunctionKey)> {
        self.foreign.get(name).map(|named| (named.actor, named.owner, named.function))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.foreign.keys()
    }
}

impl Node {
    /// Asks the head for the name of a new actor. Says whether the actor has to wait for the answer.
    pub(super) fn asks_for_name(&self, id: ActorId, name: &str, effects: &mut Vec<Effect>) -> bool {
        if !self.is_clustered() || self.config.id == NodeId::HEAD {
            return false;
        }
        let Some(actor) = self.actors.all.get(&id) else { return false };
        let (name, owner, function) = (name.to_owned(), actor.owner, actor.spec.function);
        let message = Between::TakeName { name, actor: id, owner, function };
        effects.push(Effect::Tell { node: NodeId::HEAD, message });
        true
    }

    /// The head gives a name, or says who has it.
    pub(super) fn take_name(
        &mut self,
        name: String,
        actor: ActorId,
        owner: ProcessId,
        function: FunctionKey,
    ) -> Option<ActorId> {
        let here = self.actors.names.get(&name).copied();
        let holder = here.or_else(|| self.cluster.names.foreign.get(&name).map(|named| named.actor));
        if holder.is_none() {
            self.cluster.names.foreign.insert(name, Named { actor, owner, function });
        }
        holder.filter(|holder| *holder != actor)
    }

    pub(super) fn name_given(&mut self, id: ActorId, holder: Option<ActorId>, now: Tick, effects: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.get(&id) else { return };
        let Some(name) = actor.name().map(str::to_owned) else { return };
        if matches!(actor.state, ActorState::Dead { .. }) {
            if holder.is_none() {
                effects.push(Effect::Tell { node: NodeId::HEAD, message: Between::DropName { name, actor: id } });
            }
            return;
        }
        match holder {
            Some(holder) => {
                let failure = Failure::NameTaken { name, holder };
                let reason = failure.to_string();
                self.actor_failed(id, failure, reason, effects);
            }
            None => {
                self.actors.names.insert(name, id);
                self.enqueue_actor(id, now, effects);
            }
        }
    }

    /// The actor is dead: the head may give its name to another.
    pub(super) fn drop_name(&self, name: &str, actor: ActorId, effects: &mut Vec<Effect>) {
        if self.is_clustered() && self.config.id != NodeId::HEAD {
            let message = Between::DropName { name: name.to_owned(), actor };
            effects.push(Effect::Tell { node: NodeId::HEAD, message });
        }
    }

    /// Another node is asked to be the host of an actor that is managed here.
    pub(super) fn send_to_host(
        &mut self,
        id: ActorId,
        node: NodeId,
        waits: bool,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        self.note_stay(id, now);
        let lane = self.constructor_lane(id);
        let Some(actor) = self.actors.all.get_mut(&id) else { return };
        (actor.state, actor.host) = (ActorState::Queued, Some(node));
        let (spec, resolved) = (Arc::clone(&actor.spec), actor.resolved.clone());
        let (incarnation, owner, job) = (actor.incarnation, actor.owner, actor.job);
        let message = Between::Host { spec, resolved, incarnation, lane, owner, job, waits };
        effects.push(Effect::Tell { node, message });
    }

    /// We are asked to be the host.
    pub(super) fn host(
        &mut self,
        manager: NodeId,
        (spec, resolved): (Arc<TaskSpec>, Vec<Value>),
        (incarnation, lane, waits): (u32, u32, bool),
        (owner, job): (ProcessId, JobId),
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let id = ActorId(spec.id);
        let (strategy, resources) = (spec.options.strategy, &spec.options.resources);
        let drained = self.is_draining().then(|| self.drained_away(resources));
        let impossible = super::gpus::impossible(resources, &self.config.total);
        let impossible = impossible.map(|(asked, available)| Failure::Infeasible { asked, available });
        let refusal = || self.refusal_of_host(strategy, resources, waits);
        if let Some(failure) = drained.or(impossible).or_else(refusal) {
            effects
                .push(Effect::Tell { node: manager, message: Between::Unhosted { actor: id, incarnation, failure } });
            return;
        }
        if !self.know_job(job) {
            let failure = Failure::ActorDied { actor: id, reason: format!("{job} has ended") };
            effects
                .push(Effect::Tell { node: manager, message: Between::Unhosted { actor: id, incarnation, failure } });
            return;
        }
        self.actors.dead.retain(|dead| *dead != id);
        self.actors.all.insert(id, Actor::hosted(manager, spec, resolved, incarnation, lane, (owner, job)));
        self.enqueue_here(id, now, effects);
    }

    /// The manager's word that the life that we host is to end.
    pub(super) fn unhost(&mut self, id: ActorId, incarnation: u32, reason: &str, now: Tick, effects: &mut Vec<Effect>) {
        if self.actors.all.get(&id).is_some_and(|actor| actor.manager.is_some() && actor.incarnation == incarnation) {
            self.end_actor(id, reason, false, now, effects);
        }
    }

    /// The life of an actor that we host is over, or never began.
    pub(super) fn hosting_over(&mut self, id: ActorId, failure: Option<Failure>, effects: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.remove(&id) else { return };
        self.jobs.actor_over(actor.job, None);
        if let Some(place) = self.queue.actor(id) {
            self.queue.remove(place);
        }
        let begun = actor.state.process().is_some_and(|process| self.deaths.contains_key(&process));
        if let (Some(node), Some(failure), false) = (actor.manager, failure, begun) {
            let incarnation = actor.incarnation;
            effects.push(Effect::Tell { node, message: Between::Unhosted { actor: id, incarnation, failure } });
        }
    }

    /// The host's word of the process and of the constructor.
    pub(super) fn hosted(
        &mut self,
        id: ActorId,
        incarnation: u32,
        process: ProcessId,
        value: Option<Value>,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let Some(actor) = self.actors.all.get_mut(&id) else { return };
        if actor.incarnation != incarnation || actor.manager.is_some() {
            return;
        }
        let (task, attempt) = (id.0, actor.spec.attempt);
        // What its process records stays with its host: the ledger here has it from the host's word.
        match value {
            Some(value) => {
                let record = Record::Finished { at: now, task, attempt, values: vec![value.clone()] };
                self.recorded(process, record, now, effects);
                self.actor_constructed(process, id, value, effects);
            }
            None => {
                if matches!(actor.state, ActorState::Queued) {
                    actor.state = ActorState::Starting { process };
                }
                self.recorded(process, Record::Started { at: now, task, attempt }, now, effects);
            }
        }
    }

    /// The host could not give it a process.
    pub(super) fn unhosted(
        &mut self,
        from: NodeId,
        id: ActorId,
        incarnation: u32,
        failure: Failure,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let current = |actor: &Actor| actor.incarnation == incarnation && actor.host == Some(from);
        let Some(actor) = self.actors.all.get_mut(&id).filter(|actor| current(actor)) else { return };
        match (&actor.state, failure) {
            (ActorState::Dead { .. }, _) => {}
            (ActorState::Queued, Failure::Infeasible { .. }) if actor.spec.options.strategy.group().is_some() => {
                actor.tried.insert(from);
                self.enqueue_in_group(id, now, effects);
            }
            // It was chosen by an old word of what it has.
            (ActorState::Queued, Failure::Infeasible { .. }) => {
                self.cluster.passing.digest.remove(from);
                self.enqueue_actor(id, now, effects);
            }
            (_, failure) => {
                let reason = failure.to_string();
                self.actor_failed(id, failure, reason, effects);
            }
        }
    }

    /// Tells the host to end the life of an actor that is managed here. Says whether there is one.
    pub(super) fn tells_host(&self, id: ActorId, reason: &str, effects: &mut Vec<Effect>) -> bool {
        let Some(actor) = self.actors.all.get(&id) else { return false };
        let Some(node) = actor.host.filter(|node| *node != self.config.id && self.live.has_node(*node)) else {
            return false;
        };
        let (incarnation, reason) = (actor.incarnation, reason.to_owned());
        effects.push(Effect::Tell { node, message: Between::Unhost { actor: id, incarnation, reason } });
        true
    }

    /// The process of an actor on another node is dead, and every caller has what it had said.
    pub(super) fn hosted_process_buried(&mut self, dead: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        let there = |actor: &Actor| actor.manager.is_none() && actor.state.process() == Some(dead);
        let lost: Vec<ActorId> = self.actors.all.iter().filter(|(_, a)| there(a)).map(|(id, _)| *id).collect();
        let Some(death) = self.deaths.get(&dead).cloned() else { return };
        for id in lost {
            self.actor_process_died(id, &death, now, effects);
        }
    }

    /// A node is dead: the actors that it hosted for us start elsewhere or end, and those that we hosted for it end.
    pub(super) fn lose_hosts(&mut self, node: NodeId, reason: &str, now: Tick, effects: &mut Vec<Effect>) {
        let guests = |actor: &Actor| actor.manager == Some(node);
        let guests: Vec<ActorId> = self.actors.all.iter().filter(|(_, a)| guests(a)).map(|(id, _)| *id).collect();
        for id in guests {
            self.end_actor(id, &format!("{node}, which managed it, is gone: {reason}"), false, now, effects);
        }
        let there = |actor: &Actor| actor.manager.is_none() && actor.host == Some(node);
        let lost: Vec<ActorId> = self.actors.all.iter().filter(|(_, a)| there(a)).map(|(id, _)| *id).collect();
        for id in lost {
            let Some(actor) = self.actors.all.get_mut(&id) else { continue };
            actor.host = None;
            let process = match &actor.state {
                ActorState::Dead { .. } => continue,
                // Its constructor has not begun, as far as anybody knows: this is no restart.
                ActorState::Queued => {
                    self.enqueue_actor(id, now, effects);
                    continue;
                }
                state => state.process().unwrap_or(ProcessId::of_node(node)),
            };
            let cause = DeathCause::NodeDied(format!("{node} {reason}"));
            let death =
                Death { process, pid: 0, cause, stderr_tail: String::new(), memory_peak_bytes: 0, culprit: None };
            self.actor_process_died(id, &death, now, effects);
        }
    }
}
