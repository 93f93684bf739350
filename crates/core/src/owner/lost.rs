//! Lost attempts: the node is asked whether a task had ended before it is run again (OWN-4).

use std::sync::Arc;

use super::tasks::TaskState;
use super::{Effect, Owner};
use crate::failure::{Death, DeathCause, Failure};
use crate::id::{ObjectId, TaskId};
use crate::message::{Adoption, RequestId, ToNode};
use crate::spec::TaskKind;
use crate::time::Tick;
use crate::value::Value;

/// A task whose worker was ended because memory ran short runs again after this time, doubled by each such failure.
pub const MEMORY_BACKOFF_US: u64 = 1_000_000;
/// The time is doubled at most so often.
pub const MEMORY_BACKOFFS_MAX: u32 = 4;

impl Owner {
    /// Tasks whose time has come look for a worker.
    pub(super) fn place_postponed(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        while let Some(&(due, task)) = self.postponed.first() {
            if due > now {
                return;
            }
            self.postponed.remove(&(due, task));
            // It may have been cancelled meanwhile.
            if self.tasks.get(&task).is_some_and(|entry| entry.state == TaskState::Queued) {
                self.place(task, now, effects);
            }
        }
    }

    /// Asks the node whether a lost attempt had ended before its worker died (OWN-4).
    pub(super) fn ask_about(&mut self, task: TaskId, death: &Arc<Death>, counts: bool, effects: &mut Vec<Effect>) {
        if let Some(entry) = self.tasks.get_mut(&task) {
            entry.state = TaskState::Asked;
            self.ask(task, Arc::clone(death), counts, effects);
        }
    }

    pub(super) fn ask(&mut self, task: TaskId, death: Arc<Death>, counts: bool, effects: &mut Vec<Effect>) {
        let Some(entry) = self.tasks.get(&task) else { return };
        let request = self.next_request;
        self.next_request += 1;
        self.questions.insert(request, super::Question { task, death, counts });
        let object = ObjectId::result(task, 0);
        let (digest, items) = (entry.spec.digest, self.items_known(task));
        effects.push(Effect::Node(ToNode::Adopt { request, object, digest, items }));
    }

    pub(super) fn answered(
        &mut self,
        request: RequestId,
        adoption: Adoption,
        (attempt, started): (u32, bool),
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let Some(mut question) = self.questions.remove(&request) else { return };
        // Our own order of the tasks may be older than the worker's, and the node has the record of the one that ran.
        question.counts |= started && question.death.culprit.is_none_or(|culprit| culprit == question.task);
        let task = question.task;
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let call = matches!(entry.spec.kind, TaskKind::Call { .. });
        let asked = entry.state == TaskState::Asked;
        let again = matches!(adoption, Adoption::New | Adoption::Different);
        if again && attempt > entry.spec.attempt + 1 {
            Arc::make_mut(&mut entry.spec).attempt = attempt - 1;
        }
        match adoption {
            Adoption::Finished(values) => {
                if call && asked {
                    self.call_answered(task);
                }
                for value in &values {
                    self.receive_from_node(&value.nested, self.me.node, effects);
                }
                self.complete(task, values, now, effects);
            }
            Adoption::Running => {
                // The same question is answered again when that run is lost.
                self.questions.insert(request, question);
            }
            Adoption::New | Adoption::Different => {
                if call && asked {
                    self.call_answered(task);
                }
                self.lost_attempt(task, &question.death, question.counts, now, effects);
            }
        }
        if call {
            self.flush_calls_of(task, now, effects);
        }
    }

    fn lost_attempt(&mut self, task: TaskId, death: &Death, counts: bool, now: Tick, effects: &mut Vec<Effect>) {
        let Some(entry) = self.tasks.get(&task) else { return };
        let spec = Arc::clone(&entry.spec);
        let exhausted = counts && entry.failures >= spec.options.retries_max;
        if entry.cancel_deadline.is_some() || self.is_deserted(task) {
            self.settle(task, Value::failed(Failure::Cancelled { task }), now, effects);
        } else if !exhausted {
            let short = counts && matches!(death.cause, DeathCause::MemoryPressure { .. });
            let delay_us = if short { MEMORY_BACKOFF_US << entry.failures.min(MEMORY_BACKOFFS_MAX) } else { 0 };
            self.run_again(task, counts, delay_us, now, effects);
        } else if let TaskKind::Call { actor, .. } = spec.kind {
            let reason = format!("it died before the call had ended: {death}");
            self.settle(task, Value::failed(Failure::ActorDied { actor, reason }), now, effects);
        } else {
            let failure = Failure::WorkerDied {
                task,
                name: spec.options.name.clone(),
                death: Box::new(death.clone()),
                attempts: entry.failures + 1,
            };
            self.settle(task, Value::failed(failure), now, effects);
        }
    }
}
