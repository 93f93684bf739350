//! Sending a task ahead of its dependencies: when they are made by tasks that the same worker has in front of it, the
//! worker fills them in itself, and a chain of small tasks costs no round trip per link.
//!
//! The worker keeps the results of its last tasks for this. When one is not there (it came too late, its maker was
//! cancelled or handed back), the worker returns the task and it waits here as usual.

use std::sync::Arc;

use super::leases::depth_for;
use super::tasks::TaskState;
use super::{Effect, Owner};
use crate::id::{LeaseId, NodeId, ProcessId, TaskId};
use crate::message::Peer;
use crate::spec::TaskKind;
use crate::time::Tick;
use crate::value::Value;

impl Owner {
    /// Sends what waits for the results of `task`, and what waits for theirs, as far as the worker's queue goes.
    pub(super) fn forward_dependents(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        if self.waiting == 0 {
            return;
        }
        let mut makers = vec![task];
        while let Some(maker) = makers.pop() {
            let Some(spec) = self.tasks.get(&maker).map(|entry| Arc::clone(&entry.spec)) else { continue };
            for object in spec.results() {
                let dependents = self.objects.get(&object).and_then(|entry| entry.others.as_ref());
                let dependents = dependents.map(|others| others.dependents.clone());
                for dependent in dependents.unwrap_or_default() {
                    if self.forward(dependent, effects) {
                        makers.push(dependent);
                    }
                }
            }
        }
    }

    /// Sends a waiting task to the worker that makes all its missing dependencies, when there is one with room.
    pub(super) fn forward(&mut self, task: TaskId, effects: &mut Vec<Effect>) -> bool {
        let Some((lease, worker)) = self.one_maker(task) else { return false };
        let Some(&pool) = self.lease_pool.get(&lease) else { return false };
        let pool = &mut self.pools[pool as usize];
        let depth = pool.depth();
        let Some(entry) = self.tasks.get_mut(&task) else { return false };
        if entry.spec.attempt > 0 && worker.node != NodeId::ALONE {
            // Where it ran before counts: it goes the usual way.
            return false;
        }
        entry.sent_to = worker.node;
        let mut spec = Arc::clone(&entry.spec);
        if !pool.is_for(&spec.options) {
            return false;
        }
        let Some(seat) = pool.lease_mut(lease) else { return false };
        if seat.blocked || seat.reclaim || seat.taking_back || seat.in_flight.len() >= depth_for(depth, &spec.options) {
            return false;
        }
        seat.in_flight.push_back(task);
        seat.chained.insert(task);
        entry.state = TaskState::Sent { lease, worker };
        self.waiting -= 1;
        let mut ahead = Vec::new();
        let mut resolved = Vec::with_capacity(spec.dependencies.len());
        for (place, dependency) in spec.dependencies.iter().enumerate() {
            resolved.push(self.value(&dependency.object).cloned().unwrap_or_else(|| {
                ahead.push(place as u32);
                Value::inline(Vec::new())
            }));
        }
        self.lend_arguments(&mut spec, &mut resolved, worker, effects);
        effects.push(Effect::Send { to: worker, message: Peer::RunAfter { lease, spec, resolved, ahead } });
        true
    }

    /// The lease under which every missing dependency of a plain waiting task is being made.
    fn one_maker(&self, task: TaskId) -> Option<(LeaseId, ProcessId)> {
        let entry = self.tasks.get(&task)?;
        if !matches!((&entry.state, &entry.spec.kind), (TaskState::Waiting { .. }, TaskKind::Plain)) {
            return None;
        }
        let mut found = None;
        for dependency in &entry.spec.dependencies {
            match self.value(&dependency.object) {
                // A failure ends the task here, without a worker.
                Some(value) if value.failure().is_some() => return None,
                Some(_) => continue,
                None => {}
            }
            let maker = self.tasks.get(&dependency.object.task())?;
            let TaskState::Sent { lease, worker } = maker.state else { return None };
            // An error that will be tried again must not reach the dependents.
            // Items come long before their task ends, and are kept by nobody there.
            if maker.spec.stream.is_some() && dependency.object.index() > 0 {
                return None;
            }
            let settled = maker.spec.options.retry_on.is_empty() && maker.cancel_deadline.is_none();
            if dependency.owner != self.me || !settled || found.is_some_and(|(other, _)| other != lease) {
                return None;
            }
            found = Some((lease, worker));
        }
        found
    }

    /// Puts a task that came back where it belongs: waiting, or queued.
    pub(super) fn place(&mut self, task: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(entry) = self.tasks.get(&task) else { return };
        let missing = entry.spec.dependencies.iter().filter(|d| self.value(&d.object).is_none()).count() as u32;
        if missing == 0 {
            self.runnable(task, now, effects);
            return;
        }
        if let Some(entry) = self.tasks.get_mut(&task) {
            self.waiting += usize::from(!matches!(entry.state, TaskState::Waiting { .. }));
            entry.state = TaskState::Waiting { missing };
        }
    }
}
