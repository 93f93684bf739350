//! Actors: placed in a process of their own, watched by their callers, started again, named, ended.
//!
//! An actor's resources are held by its process until that is gone, so a dying actor never overlaps its successor. A name
//! belongs to its actor until the actor is dead. The owner hears of the first construction only; watchers hear of every
//! place, restart and of the end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::gpus;
use super::pool::{Pick, Reserved, WorkerState};
use super::queue::{Ask, Waiting};
use super::{Effect, Node, open_link, send};
use crate::failure::{DeathCause, Failure};
use crate::id::{ActorId, ProcessId};
use crate::message::{FromNode, RequestId};
use crate::resources::Resources;
use crate::spec::{TaskKind, TaskSpec};
use crate::time::Tick;
use crate::value::Value;

/// So many dead actors are remembered; watchers of older ones hear that the actor is unknown.
pub const DEAD_ACTORS_MAX: usize = 1_000;

/// Where an actor is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActorState {
    /// It waits for resources or a process.
    Queued,
    /// Its process starts or its constructor runs.
    Starting {
        /// Where.
        process: ProcessId,
    },
    /// It takes calls.
    Alive {
        /// Where.
        process: ProcessId,
    },
    /// It finishes its calls and ends.
    Retiring {
        /// Where.
        process: ProcessId,
    },
    /// It is being killed.
    Ending {
        /// Where.
        process: ProcessId,
        /// Why.
        reason: String,
        /// Whether it may be started again.
        restart: bool,
    },
    /// It is gone for good.
    Dead {
        /// Why.
        reason: String,
    },
}

impl ActorState {
    pub(super) fn process(&self) -> Option<ProcessId> {
        match self {
            ActorState::Starting { process }
            | ActorState::Alive { process }
            | ActorState::Retiring { process }
            | ActorState::Ending { process, .. } => Some(*process),
            ActorState::Queued | ActorState::Dead { .. } => None,
        }
    }
}

/// An actor.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub(super) spec: Arc<TaskSpec>,
    pub(super) resolved: Vec<Value>,
    pub(super) owner: ProcessId,
    pub(super) state: ActorState,
    pub(super) incarnation: u32,
    pub(super) restarts_left: u32,
    pub(super) watchers: BTreeSet<ProcessId>,
    /// How the first construction ended.
    pub(super) created: Option<Value>,
}

impl Actor {
    pub(super) fn name(&self) -> Option<&str> {
        match &self.spec.kind {
            TaskKind::Create(options) => options.name.as_deref(),
            TaskKind::Plain | TaskKind::Call { .. } => None,
        }
    }

    fn concurrency_max(&self) -> u32 {
        match &self.spec.kind {
            TaskKind::Create(options) => options.concurrency_max,
            TaskKind::Plain | TaskKind::Call { .. } => 1,
        }
    }
}

/// All actors.
#[derive(Default)]
pub(super) struct Actors {
    pub(super) all: BTreeMap<ActorId, Actor>,
    pub(super) names: BTreeMap<String, ActorId>,
    pub(super) dead: VecDeque<ActorId>,
}

impl Actors {
    pub(super) fn has_owner(&self, process: ProcessId) -> bool {
        self.all.values().any(|actor| actor.owner == process && !matches!(actor.state, ActorState::Dead { .. }))
    }

    /// The actors of an owner that are not dead.
    pub(super) fn of_owner(&self, process: ProcessId) -> Vec<ActorId> {
        let alive = |actor: &Actor| actor.owner == process && !matches!(actor.state, ActorState::Dead { .. });
        self.all.iter().filter(|(_, actor)| alive(actor)).map(|(id, _)| *id).collect()
    }

    pub(super) fn forget_watcher(&mut self, process: ProcessId) {
        for actor in self.all.values_mut() {
            actor.watchers.remove(&process);
        }
    }
}

impl Node {
    pub(super) fn create_actor(
        &mut self,
        owner: ProcessId,
        spec: Arc<TaskSpec>,
        resolved: Vec<Value>,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let id = ActorId(spec.id);
        let TaskKind::Create(options) = &spec.kind else { return };
        let before = self.actors.all.get(&id);
        if before.is_some_and(|actor| !matches!(actor.state, ActorState::Dead { .. })) {
            return;
        }
        // A second life under the same id (its creator ran again) must not look like the first one.
        let incarnation = before.map_or(0, |actor| actor.incarnation + 1);
        let watchers = before.map(|actor| actor.watchers.clone()).unwrap_or_default();
        let (state, restarts_left) = (ActorState::Queued, options.restarts_max);
        let (name, refusal) = (options.name.clone(), self.refusal(&spec, options.name.as_deref()));
        let actor = Actor { spec, resolved, owner, state, incarnation, restarts_left, watchers, created: None };
        self.actors.dead.retain(|dead| *dead != id);
        self.actors.all.insert(id, actor);
        if let Some(failure) = refusal {
            // Dead from the start, so that its callers hear why.
            let reason = failure.to_string();
            self.actor_failed(id, failure, reason, effects);
            return;
        }
        if let Some(name) = name {
            self.actors.names.insert(name, id);
        }
        self.enqueue_actor(id, now, effects);
    }

    /// Why an actor cannot be started, when it cannot.
    fn refusal(&self, spec: &TaskSpec, name: Option<&str>) -> Option<Failure> {
        if let Some(name) = name
            && let Some(holder) = self.actors.names.get(name)
        {
            return Some(Failure::NameTaken { name: name.to_owned(), holder: *holder });
        }
        let (asked, available) = gpus::impossible(&spec.options.resources, &self.config.total)?;
        Some(Failure::Infeasible { asked, available })
    }

    pub(super) fn enqueue_actor(&mut self, id: ActorId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.get_mut(&id) else { return };
        actor.state = ActorState::Queued;
        let ask = Ask::Actor { actor: id, owner: actor.owner };
        let (resources, environment) = (actor.spec.options.resources.clone(), actor.spec.options.environment);
        self.queue.push(actor.spec.depth, Waiting { ask, resources, environment, since: now, overtaken: 0 });
        self.schedule(now, effects);
    }

    /// The resources are taken and the process is chosen.
    pub(super) fn place_actor(
        &mut self,
        id: ActorId,
        held: Resources,
        gpus: Vec<u32>,
        pick: Pick,
        effects: &mut Vec<Effect>,
    ) {
        let environment = self.actors.all.get(&id).map_or(0, |actor| actor.spec.options.environment);
        let (process, ready) = self.take(pick, Reserved::Actor(id), environment, effects);
        if let Some(worker) = self.pool.workers.get_mut(&process) {
            (worker.held, worker.gpus) = (held, gpus);
        }
        if let Some(actor) = self.actors.all.get_mut(&id) {
            actor.state = ActorState::Starting { process };
        }
        if ready {
            self.construct(id, process, effects);
            self.keep_minimum(effects);
        }
    }

    /// The process is there: it becomes the actor's.
    pub(super) fn construct(&mut self, id: ActorId, process: ProcessId, effects: &mut Vec<Effect>) {
        let mut gpus = Vec::new();
        if let Some(worker) = self.pool.workers.get_mut(&process) {
            worker.state = WorkerState::Hosting(id);
            gpus.clone_from(&worker.gpus);
        }
        let Some(actor) = self.actors.all.get(&id) else { return };
        let (spec, resolved) = (actor.spec.clone(), actor.resolved.clone());
        let (incarnation, owner) = (actor.incarnation, actor.owner);
        // A constructor that has ended does not run again: this is another one, and what it makes has other names.
        let lane = if self.ledger.is_final(id.0) { incarnation } else { 0 };
        send(process, FromNode::Construct { spec, resolved, incarnation, lane, owner, gpus }, effects);
    }

    pub(super) fn actor_constructed(
        &mut self,
        process: ProcessId,
        id: ActorId,
        value: Value,
        effects: &mut Vec<Effect>,
    ) {
        let Some(actor) = self.actors.all.get_mut(&id) else { return };
        let here = actor.state.process() == Some(process);
        if here && let Some(failure) = value.failure().cloned() {
            let mut reason = format!("its constructor failed: {failure}");
            if let Failure::Raised(raised) = &failure
                && !raised.traceback.is_empty()
            {
                reason += &format!("\n{}", raised.traceback.trim_end());
            }
            self.kill(process, DeathCause::Ended(reason.clone()), effects);
            self.actor_failed(id, failure, reason, effects);
            return;
        }
        if actor.state != (ActorState::Starting { process }) {
            return;
        }
        actor.state = ActorState::Alive { process };
        let (incarnation, concurrency_max) = (actor.incarnation, actor.concurrency_max());
        let watchers = actor.watchers.clone();
        if actor.created.is_none() {
            self.tell_created(id, value, effects);
        }
        for watcher in watchers {
            open_link(watcher, process, effects);
            send(watcher, FromNode::ActorAt { actor: id, process, incarnation, concurrency_max }, effects);
        }
    }

    pub(super) fn tell_created(&mut self, id: ActorId, value: Value, effects: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.get_mut(&id) else { return };
        actor.created = Some(value.clone());
        let owner = actor.owner;
        match self.adopters.remove(&id.0) {
            Some(adopter) => send(adopter.process, FromNode::Resolved { object: id.object(), value }, effects),
            None => send(owner, FromNode::ActorCreated { actor: id, value }, effects),
        }
    }

    pub(super) fn watch_actor(&mut self, process: ProcessId, id: ActorId, effects: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.get_mut(&id) else {
            send(process, FromNode::ActorDead { actor: id, reason: "unknown actor".into() }, effects);
            return;
        };
        match &actor.state {
            ActorState::Dead { reason } => {
                send(process, FromNode::ActorDead { actor: id, reason: reason.clone() }, effects);
                return;
            }
            ActorState::Alive { process: at } => {
                let (at, incarnation, concurrency_max) = (*at, actor.incarnation, actor.concurrency_max());
                open_link(process, at, effects);
                send(process, FromNode::ActorAt { actor: id, process: at, incarnation, concurrency_max }, effects);
            }
            ActorState::Queued
            | ActorState::Starting { .. }
            | ActorState::Retiring { .. }
            | ActorState::Ending { .. } => {}
        }
        actor.watchers.insert(process);
    }

    pub(super) fn find_actor(&self, process: ProcessId, request: RequestId, name: &str, effects: &mut Vec<Effect>) {
        let found = self.actors.names.get(name).and_then(|id| {
            let actor = self.actors.all.get(id)?;
            Some((*id, actor.owner, actor.spec.function))
        });
        send(process, FromNode::ActorFound { request, found }, effects);
    }
}
