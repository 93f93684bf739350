//! Tasks: submitted, waiting for their dependencies, queued, sent, ended.

use std::sync::Arc;

use super::{Effect, Owner, TaskEntry};
use crate::failure::{Death, DeathCause, Failure};
use crate::id::{LeaseId, NodeId, ObjectId, ProcessId, TaskId};
use crate::lane::THREAD_LANES_BITS;
use crate::message::Peer;
use crate::record::Record;
use crate::spec::{TaskKind, TaskSpec};
use crate::time::Tick;
use crate::value::Value;

/// Where a task of this owner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Some of its dependencies have no value yet.
    Waiting {
        /// How many.
        missing: u32,
    },
    /// It waits for a worker of its shape.
    Queued,
    /// A leased worker has it.
    Sent {
        /// Under which lease.
        lease: LeaseId,
        /// Who.
        worker: ProcessId,
    },
    /// Its worker died; the node is asked whether it had ended.
    Asked,
    /// It runs for an owner that died before us; the node will tell the result.
    Inherited,
    /// A constructor that the node places.
    Constructing,
    /// A call that waits for its turn or for its actor.
    CallQueued,
    /// A call that the actor's process has.
    CallSent {
        /// Who.
        process: ProcessId,
    },
}

impl Owner {
    pub(super) fn submit(&mut self, mut spec: TaskSpec, now: Tick, effects: &mut Vec<Effect>) {
        if let TaskKind::Call { actor, caller, sequence } = &mut spec.kind {
            *caller = self.me;
            *sequence = self.next_sequence(*actor, effects);
        }
        let spec = Arc::new(spec);
        effects.push(Effect::Record(Record::Submitted { at: now, spec: Arc::clone(&spec) }));
        let missing = self.enter(&spec, now, effects);
        let state = if missing > 0 { TaskState::Waiting { missing } } else { TaskState::Queued };
        self.waiting += usize::from(missing > 0);
        let id = spec.id;
        let call = matches!(spec.kind, TaskKind::Call { .. });
        self.tasks.insert(id, TaskEntry::new(spec, state));
        if call {
            self.queue_call(id, missing, now, effects);
        } else if missing == 0 {
            self.runnable(id, now, effects);
        } else if self.forward(id, effects) {
            self.forward_dependents(id, effects);
        }
    }

    /// A repeated parent submits what exists already.
    pub(super) fn adopt(
        &mut self,
        mut spec: TaskSpec,
        values: Option<Vec<Value>>,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        if let TaskKind::Call { caller, .. } = &mut spec.kind {
            // Not called in our name: it gets a number among our calls when it has to be called again.
            *caller = ProcessId::of_node(self.me.node);
        }
        let spec = Arc::new(spec);
        let id = spec.id;
        self.enter(&spec, now, effects);
        for object in &spec.dependencies {
            self.forget_dependent(object.object, id);
        }
        match spec.kind {
            TaskKind::Plain => {}
            TaskKind::Create(_) => self.adopt_actor(&spec, effects),
            TaskKind::Call { actor, .. } => self.hold_actor(actor),
        }
        let state = TaskState::Inherited;
        self.tasks.insert(id, TaskEntry::new(spec, state));
        if let Some(values) = values {
            for value in &values {
                self.receive_from_node(&value.nested, self.me.node, effects);
            }
            self.complete(id, values, now, effects);
        } else {
            // The shell's question is over; this one is answered again when the run that goes on is lost.
            let cause = DeathCause::Ended("it ran the task for an owner that died".into());
            let death = Death {
                process: self.me,
                pid: 0,
                cause,
                stderr_tail: String::new(),
                memory_peak_bytes: 0,
                culprit: None,
            };
            self.ask(id, Arc::new(death), false, effects);
        }
    }

    /// Makes the entries of the results, holds the arguments, and counts the dependencies without a value.
    fn enter(&mut self, spec: &Arc<TaskSpec>, now: Tick, effects: &mut Vec<Effect>) -> u32 {
        for object in spec.results() {
            self.own(object, effects).local += 1;
        }
        if let Some(limits) = spec.stream {
            self.begin_stream(spec.id, limits, now, effects);
        }
        self.hold_all(&spec.nested);
        let mut missing = 0;
        for dependency in &spec.dependencies {
            let entry = self.entry_of(*dependency);
            entry.holds += 1;
            if entry.value.is_none() {
                missing += 1;
                entry.others().dependents.push(spec.id);
                self.ask_owner(dependency.object, effects);
                self.dependent_reads_early(dependency.object, &spec.kind, effects);
            }
        }
        missing
    }

    fn forget_dependent(&mut self, object: ObjectId, task: TaskId) {
        if let Some(others) = self.objects.get_mut(&object).and_then(|entry| entry.others.as_mut()) {
            others.dependents.retain(|t| *t != task);
        }
    }

    pub(super) fn dependency_ready(&mut self, task: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let call = matches!(entry.spec.kind, TaskKind::Call { .. });
        let TaskState::Waiting { missing } = &mut entry.state else { return };
        *missing -= 1;
        if *missing > 0 {
            return;
        }
        self.waiting -= 1;
        // No longer waiting, whatever comes next: a failed dependency settles it, which must not count it again.
        entry.state = if call { TaskState::CallQueued } else { TaskState::Queued };
        if call {
            self.call_ready(task, now, effects);
        } else {
            self.runnable(task, now, effects);
        }
    }

    /// All dependencies have values: fail with the first failure among them, or go to where the task can run.
    pub(super) fn runnable(&mut self, task: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        if let Some(failure) = self.failed_dependency(task) {
            self.settle(task, failure, now, effects);
            return;
        }
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        match entry.spec.kind {
            TaskKind::Create(_) => {
                entry.state = TaskState::Constructing;
                self.create_actor(task, effects);
            }
            TaskKind::Plain | TaskKind::Call { .. } => {
                entry.state = TaskState::Queued;
                self.enqueue(task, now, effects);
            }
        }
    }

    pub(super) fn failed_dependency(&self, task: TaskId) -> Option<Value> {
        let spec = &self.tasks.get(&task)?.spec;
        let values = spec.dependencies.iter().filter_map(|d| self.value(&d.object));
        values.into_iter().find(|value| value.failure().is_some()).cloned()
    }

    /// The values of a task's dependencies, in order.
    pub(super) fn resolved_arguments(&self, spec: &TaskSpec) -> Vec<Value> {
        spec.dependencies.iter().filter_map(|d| self.value(&d.object).cloned()).collect()
    }

    /// What a task that runs again makes has the names of the first run only where that run's records are: a node can
    /// tell it what exists there, and only there.
    pub(super) fn choose_lane(&mut self, task: TaskId, to: ProcessId) {
        let Some(entry) = self.tasks.get_mut(&task).filter(|_| to.node != NodeId::ALONE) else { return };
        // Only here the ledger knows that it may run again, and keeps what it has made and freed.
        if entry.spec.attempt > 0 && (entry.sent_to != to.node || to.node != self.me.node) {
            let spec = Arc::make_mut(&mut entry.spec);
            spec.lane = spec.attempt << THREAD_LANES_BITS;
        }
        entry.sent_to = to.node;
    }

    /// Hands a task to a process: lends the references and sends.
    pub(super) fn send_task(&mut self, task: TaskId, lease: LeaseId, to: ProcessId, effects: &mut Vec<Effect>) {
        if let Some((spec, resolved)) = self.prepare_task(task, to, effects) {
            effects.push(Effect::Send { to, message: Peer::Run { lease, spec, resolved } });
        }
    }

    /// The same for a call, which is the so many-th that this process has for that one.
    pub(super) fn send_call(&mut self, task: TaskId, number: u64, to: ProcessId, effects: &mut Vec<Effect>) {
        if let Some((spec, resolved)) = self.prepare_task(task, to, effects) {
            effects.push(Effect::Send { to, message: Peer::Call { number, spec, resolved } });
        }
    }

    fn prepare_task(
        &mut self,
        task: TaskId,
        to: ProcessId,
        effects: &mut Vec<Effect>,
    ) -> Option<(Arc<TaskSpec>, Vec<Value>)> {
        self.choose_lane(task, to);
        let mut spec = Arc::clone(&self.tasks.get(&task)?.spec);
        let mut resolved = self.resolved_arguments(&spec);
        self.lend_arguments(&mut spec, &mut resolved, to, effects);
        Some((spec, resolved))
    }

    pub(super) fn replied(
        &mut self,
        task: TaskId,
        attempt: u32,
        values: Vec<Value>,
        duration_us: u32,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let current = match self.tasks.get(&task) {
            Some(entry) if entry.spec.attempt == attempt => match entry.state {
                TaskState::Sent { lease, .. } => {
                    self.lease_replied(lease, task, duration_us, now);
                    Some(Some(lease))
                }
                TaskState::CallSent { .. } => Some(None),
                _ => None,
            },
            _ => None,
        };
        let Some(lease) = current else {
            for value in &values {
                self.release_all(&value.nested, effects);
            }
            return;
        };
        let actor = if lease.is_none() { self.call_replied(task) } else { None };
        if !self.retry_wanted(task, &values) {
            self.complete(task, values, now, effects);
        } else {
            for value in &values {
                self.release_all(&value.nested, effects);
            }
            self.run_again(task, true, 0, now, effects);
        }
        match (lease, actor) {
            (Some(lease), _) => self.lease_free(lease, now, effects),
            (None, Some(actor)) => self.flush_calls(actor, now, effects),
            (None, None) => {}
        }
    }

    fn retry_wanted(&self, task: TaskId, values: &[Value]) -> bool {
        let Some(entry) = self.tasks.get(&task) else { return false };
        let options = &entry.spec.options;
        !options.retry_on.is_empty()
            && entry.cancel_deadline.is_none()
            && !self.is_deserted(task)
            && entry.failures < options.retries_max
            && matches!(entry.spec.kind, TaskKind::Plain)
            && values.iter().any(|value| value.failure().is_some_and(|f| f.matches(&options.retry_on)))
    }

    /// A new attempt of a task, recorded before it leaves; a task finds a worker after `delay_us`.
    pub(super) fn run_again(
        &mut self,
        task: TaskId,
        counts: bool,
        delay_us: u64,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        entry.failures += u32::from(counts);
        let spec = Arc::make_mut(&mut entry.spec);
        spec.attempt += 1;
        let call = match spec.kind {
            TaskKind::Call { actor, caller, .. } => {
                if caller != self.me {
                    self.adopt_call(task, actor, effects);
                }
                Some(actor)
            }
            TaskKind::Plain | TaskKind::Create(_) => None,
        };
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        entry.state = if call.is_some() { TaskState::CallQueued } else { TaskState::Queued };
        let spec = Arc::clone(&entry.spec);
        effects.push(Effect::Record(Record::Submitted { at: now, spec }));
        match call {
            Some(actor) => self.requeue_call(actor, task),
            None if delay_us > 0 => drop(self.postponed.insert((now.plus_us(delay_us), task))),
            None => self.place(task, now, effects),
        }
    }

    /// Ends a task with the values that its worker gave.
    pub(super) fn complete(&mut self, task: TaskId, values: Vec<Value>, now: Tick, effects: &mut Vec<Effect>) {
        let Some(entry) = self.tasks.remove(&task) else { return };
        self.end_entry(&entry, effects);
        let returns = entry.spec.returns as usize;
        if values.len() == returns {
            for (object, value) in entry.spec.results().zip(values) {
                self.set_value(object, value, now, effects);
            }
        } else {
            for value in &values {
                self.release_all(&value.nested, effects);
            }
            // A lone failure stands for every result.
            let failure = match values.into_iter().next() {
                Some(value) if value.failure().is_some() => value,
                _ => Value::failed(Failure::ObjectLost {
                    object: ObjectId::result(task, 0),
                    reason: format!("the worker did not give {returns} results"),
                }),
            };
            for object in entry.spec.results() {
                self.set_value(object, failure.clone(), now, effects);
            }
        }
    }

    /// Ends a task without a worker: cancelled, infeasible, lost, or with the failure of a dependency.
    pub(super) fn settle(&mut self, task: TaskId, value: Value, now: Tick, effects: &mut Vec<Effect>) {
        let Some(entry) = self.tasks.remove(&task) else { return };
        self.waiting -= usize::from(matches!(entry.state, TaskState::Waiting { .. }));
        effects.push(Effect::Record(Record::Settled { task, value: value.clone() }));
        for dependency in &entry.spec.dependencies {
            self.forget_dependent(dependency.object, task);
        }
        self.end_entry(&entry, effects);
        for object in entry.spec.results() {
            self.set_value(object, value.clone(), now, effects);
        }
        if matches!(entry.spec.kind, TaskKind::Create(_)) {
            self.actor_unmade(&entry.spec, &value, now, effects);
        }
    }

    fn end_entry(&mut self, entry: &TaskEntry, effects: &mut Vec<Effect>) {
        if let Some(deadline) = entry.cancel_deadline {
            self.cancels.remove(&(deadline, entry.spec.id));
        }
        match &entry.spec.kind {
            // The arguments of a constructor are needed again at a restart; they go with the actor.
            TaskKind::Create(_) => {}
            TaskKind::Plain => self.release_arguments(&entry.spec, effects),
            TaskKind::Call { actor, .. } => {
                self.release_arguments(&entry.spec, effects);
                self.call_ended(*actor, entry, effects);
            }
        }
    }

    /// A task whose results came one by one from the node has ended.
    pub(super) fn complete_inherited(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        if let Some(entry) = self.tasks.remove(&task) {
            self.end_entry(&entry, effects);
            for object in entry.spec.results() {
                self.free_if_unused(object, effects);
            }
        }
    }

    pub(super) fn release_arguments(&mut self, spec: &TaskSpec, effects: &mut Vec<Effect>) {
        self.release_all(&spec.dependencies, effects);
        self.release_all(&spec.nested, effects);
    }
}
