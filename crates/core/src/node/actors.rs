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
use super::stock::Stock;
use super::{Effect, Node, open_link, send};
use crate::failure::{DeathCause, Failure};
use crate::id::{ActorId, JobId, NodeId, ObjectId, ProcessId};
use crate::message::{Between, FromNode, RequestId};
use crate::resources::Resources;
use crate::schedule::Choice;
use crate::spec::{Strategy, TaskKind, TaskSpec};
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
    /// Whose processes it lives in.
    pub(super) job: JobId,
    pub(super) state: ActorState,
    pub(super) incarnation: u32,
    pub(super) restarts_left: u32,
    pub(super) watchers: BTreeSet<ProcessId>,
    /// How the first construction ended.
    pub(super) created: Option<Value>,
    /// The node that manages it, when this one is only the host.
    pub(super) manager: Option<NodeId>,
    /// The other node that hosts it, when this one is only the manager.
    pub(super) host: Option<NodeId>,
    /// The lane of its constructor, as the manager gave it.
    lane: u32,
    /// The nodes that had no room in the bundles of its group.
    pub(super) tried: BTreeSet<NodeId>,
}

impl Actor {
    /// The entry of a host, for one life.
    pub(super) fn hosted(
        manager: NodeId,
        spec: Arc<TaskSpec>,
        resolved: Vec<Value>,
        incarnation: u32,
        lane: u32,
        (owner, job): (ProcessId, JobId),
    ) -> Self {
        let (state, watchers) = (ActorState::Queued, BTreeSet::new());
        let (manager, host, created) = (Some(manager), None, None);
        Self {
            spec,
            resolved,
            owner,
            job,
            state,
            incarnation,
            restarts_left: 0,
            watchers,
            created,
            manager,
            host,
            lane,
            tried: BTreeSet::new(),
        }
    }

    pub(super) fn name(&self) -> Option<&str> {
        match &self.spec.kind {
            TaskKind::Create(options) => options.name.as_deref(),
            TaskKind::Plain | TaskKind::Call { .. } => None,
        }
    }

    /// Whether it lives on without its owner and its job's driver.
    pub(super) fn is_detached(&self) -> bool {
        super::hosting::is_detached(&self.spec)
    }

    pub(super) fn is_dead(&self) -> bool {
        matches!(self.state, ActorState::Dead { .. })
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
        self.all.values().any(|actor| actor.owner == process && !actor.is_dead() && !actor.is_detached())
    }

    /// The actors of an owner that are not dead and end with it.
    pub(super) fn of_owner(&self, process: ProcessId) -> Vec<ActorId> {
        let alive = |actor: &Actor| actor.owner == process && !actor.is_dead() && !actor.is_detached();
        self.all.iter().filter(|(_, actor)| alive(actor)).map(|(id, _)| *id).collect()
    }

    /// Nothing of this job is left but the memory of its dead actors.
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.all.retain(|_, actor| actor.job != job);
        self.dead.retain(|id| self.all.contains_key(id));
    }

    pub(super) fn forget_watchers(&mut self, is_dead: impl Fn(ProcessId) -> bool) {
        for actor in self.all.values_mut() {
            actor.watchers.retain(|watcher| !is_dead(*watcher));
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
        let Some(job) = self.served_job(owner) else { return };
        let before = self.actors.all.get(&id);
        if before.is_some_and(|actor| !matches!(actor.state, ActorState::Dead { .. })) {
            return;
        }
        // A second life under the same id (its creator ran again) must not look like the first one.
        let incarnation = before.map_or(0, |actor| actor.incarnation + 1);
        let watchers = before.map(|actor| actor.watchers.clone()).unwrap_or_default();
        let (state, restarts_left) = (ActorState::Queued, options.restarts_max);
        let (name, refusal) = (options.name.clone(), self.refusal(owner, &spec, options.name.as_deref(), effects));
        if options.detached {
            self.keep_arguments(&spec, 1, now);
        }
        let actor = Actor {
            spec,
            resolved,
            owner,
            job,
            state,
            incarnation,
            restarts_left,
            watchers,
            created: None,
            manager: None,
            host: None,
            lane: 0,
            tried: BTreeSet::new(),
        };
        self.actors.dead.retain(|dead| *dead != id);
        self.actors.all.insert(id, actor);
        if let Some(failure) = refusal {
            // Dead from the start, so that its callers hear why.
            let reason = failure.to_string();
            self.actor_failed(id, failure, reason, effects);
            return;
        }
        if let Some(name) = name {
            if self.asks_for_name(id, &name, effects) {
                return;
            }
            self.actors.names.insert(name, id);
        }
        self.enqueue_actor(id, now, effects);
    }

    /// Why an actor cannot be started, when it cannot.
    fn refusal(
        &mut self,
        owner: ProcessId,
        spec: &TaskSpec,
        name: Option<&str>,
        effects: &mut Vec<Effect>,
    ) -> Option<Failure> {
        if let Some(name) = name
            && let Some(holder) =
                self.actors.names.get(name).copied().or_else(|| self.cluster.names.find(name).map(|found| found.0))
        {
            return Some(Failure::NameTaken { name: name.to_owned(), holder });
        }
        let (strategy, resources) = (spec.options.strategy, &spec.options.resources);
        if let Some(failure) = self.misplaced(owner, strategy, resources, effects) {
            return Some(failure);
        }
        if self.is_clustered() || strategy.group().is_some() {
            return None;
        }
        let (asked, available) = gpus::impossible(resources, &self.config.total)?;
        Some(Failure::Infeasible { asked, available })
    }

    /// Whether this node can never be the host of an actor.
    fn is_never_here(&self, id: ActorId) -> bool {
        let Some(actor) = self.actors.all.get(&id) else { return false };
        let elsewhere = match actor.spec.options.strategy {
            Strategy::Node { node, soft } => node != self.config.id && !soft,
            _ => false,
        };
        elsewhere
            || self.is_draining() && actor.spec.options.strategy.group().is_none()
            || gpus::impossible(&actor.spec.options.resources, &self.config.total).is_some()
    }

    pub(super) fn wait_for_host(&mut self, id: ActorId) {
        if let Some(actor) = self.actors.all.get_mut(&id) {
            // Who refused it is not its host: that node's death is no reason to look for another one.
            (actor.state, actor.host) = (ActorState::Queued, None);
            self.cluster.unplaced.insert(id);
        }
    }

    /// The loads are known anew: actors that no node could have are tried again.
    pub(super) fn place_unplaced(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        for id in std::mem::take(&mut self.cluster.unplaced) {
            if self.actors.all.get(&id).is_some_and(|actor| actor.state == ActorState::Queued) {
                self.enqueue_actor(id, now, effects);
            }
        }
    }

    /// Finds a node for an actor that is managed here.
    pub(super) fn enqueue_actor(&mut self, id: ActorId, now: Tick, effects: &mut Vec<Effect>) {
        self.cluster.unplaced.remove(&id);
        let managed = self.actors.all.get(&id).is_some_and(|actor| actor.manager.is_none());
        if !self.is_clustered() || !managed {
            self.enqueue_here(id, now, effects);
            return;
        }
        if self.actors.all.get(&id).is_some_and(|actor| actor.spec.options.strategy.group().is_some()) {
            self.enqueue_in_group(id, now, effects);
            return;
        }
        match self.choose_host(id, now) {
            Choice::There(node) if self.live.has_node(node) => self.send_to_host(id, node, true, now, effects),
            Choice::Here => self.enqueue_here(id, now, effects),
            // Who can have it has no room, or has not told of itself: the next loads say more.
            Choice::Wait(_) | Choice::There(_) if self.is_never_here(id) => self.wait_for_host(id),
            Choice::Wait(_) | Choice::There(_) => self.enqueue_here(id, now, effects),
            Choice::Never(_) if !self.knows_all_loads() => self.wait_for_host(id),
            Choice::Never(never) => {
                let failure = Failure::Infeasible { asked: never.asked, available: never.available };
                let reason = failure.to_string();
                self.actor_failed(id, failure, reason, effects);
            }
        }
    }

    /// An actor waits for a process of this node.
    pub(super) fn enqueue_here(&mut self, id: ActorId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.get_mut(&id) else { return };
        (actor.state, actor.host) = (ActorState::Queued, None);
        let (ask, job) = (Ask::Actor { actor: id, owner: actor.owner }, actor.job);
        let (resources, environment) = (actor.spec.options.resources.clone(), actor.spec.options.environment);
        let (strategy, near) = (actor.spec.options.strategy, Vec::new());
        let waiting =
            Waiting { ask, job, resources, environment, threads: 1, strategy, near, since: now, overtaken: 0 };
        self.queue.push(actor.spec.depth, waiting);
        self.note_stay(id, now);
        self.schedule(now, effects);
    }

    /// The resources are taken and the process is chosen.
    pub(super) fn place_actor(
        &mut self,
        id: ActorId,
        (held, gpus, stock): (Resources, Vec<u32>, Stock),
        pick: Pick,
        effects: &mut Vec<Effect>,
    ) {
        let Some(actor) = self.actors.all.get(&id) else { return };
        let shape = (actor.job, actor.spec.options.environment);
        let (process, ready) = self.take(pick, Reserved::Actor(id), shape, effects);
        if let Some(worker) = self.pool.workers.get_mut(&process) {
            (worker.held, worker.gpus, worker.stock) = (held, gpus, stock);
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
        if let Some(actor) = self.actors.all.get(&id)
            && let Some(node) = actor.manager
        {
            let (incarnation, value) = (actor.incarnation, None);
            effects.push(Effect::Tell { node, message: Between::Hosted { actor: id, incarnation, process, value } });
        }
        let mut gpus = Vec::new();
        if let Some(worker) = self.pool.workers.get_mut(&process) {
            worker.state = WorkerState::Hosting(id);
            gpus.clone_from(&worker.gpus);
        }
        let Some(actor) = self.actors.all.get(&id) else { return };
        let (spec, resolved) = (actor.spec.clone(), actor.resolved.clone());
        let (incarnation, owner) = (actor.incarnation, self.owner_for_others(actor));
        let lane = self.constructor_lane(id);
        send(process, FromNode::Construct { spec, resolved, incarnation, lane, owner, gpus }, effects);
    }

    /// A constructor that has ended does not run again: this is another one, and what it makes has other names.
    pub(super) fn constructor_lane(&self, id: ActorId) -> u32 {
        match self.actors.all.get(&id) {
            Some(actor) if actor.manager.is_some() => actor.lane,
            // Its last life may have been on another node, whose ledger has what it made.
            Some(actor) if self.is_clustered() || self.ledger.is_final(id.0) => actor.incarnation,
            _ => 0,
        }
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
        if here && let Some(node) = actor.manager {
            let (incarnation, failed) = (actor.incarnation, value.failure().is_some());
            if matches!(actor.state, ActorState::Starting { .. }) {
                actor.state = ActorState::Alive { process };
            }
            let value = Some(value);
            effects.push(Effect::Tell { node, message: Between::Hosted { actor: id, incarnation, process, value } });
            if failed {
                self.kill(process, DeathCause::Ended("its constructor failed".into()), effects);
            }
            return;
        }
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
        let (owner, detached) = (actor.owner, actor.is_detached());
        match self.adopters.remove(&id.0) {
            Some(adopter) => {
                send(adopter.process, FromNode::Resolved { object: id.object(), value, home: self.config.id }, effects)
            }
            None => send(owner, FromNode::ActorCreated { actor: id, value }, effects),
        }
        if detached {
            self.answer_resolvers(id.object(), effects);
        }
    }

    /// Who counts the handles of an actor. Of a detached one nobody has to, and its creator may be gone.
    fn owner_for_others(&self, actor: &Actor) -> ProcessId {
        let manager = actor.manager.unwrap_or(self.config.id);
        if actor.is_detached() { ProcessId::of_node(manager) } else { actor.owner }
    }

    /// What the constructor of a detached actor is given stays as long as it may run again.
    pub(super) fn keep_arguments(&mut self, spec: &TaskSpec, count: i64, now: Tick) {
        let node = ProcessId::of_node(self.config.id);
        for argument in spec.dependencies.iter().chain(&spec.nested) {
            self.claim(node, argument.object, count, now);
        }
    }

    /// How the construction of a detached actor went, for those who ask for it by its object.
    pub(super) fn detached_value(&self, object: ObjectId) -> Option<Value> {
        let actor = self.actors.all.get(&ActorId(object.task())).filter(|actor| actor.is_detached())?;
        actor.created.clone().filter(|_| !object.is_put())
    }

    /// Whether this is the object of a detached actor that is not dead.
    pub(super) fn is_detached_actor(&self, object: ObjectId) -> bool {
        let actor = self.actors.all.get(&ActorId(object.task()));
        !object.is_put() && actor.is_some_and(|actor| actor.is_detached() && !actor.is_dead())
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
            Some((*id, self.owner_for_others(actor), actor.spec.function))
        });
        let found = found.or_else(|| self.cluster.names.find(name));
        send(process, FromNode::ActorFound { request, found }, effects);
    }
}
