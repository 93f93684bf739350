//! Adoption: a task that runs again asks whether what it is about to make exists already (design rule 3).
//!
//! The answer must not overtake records. Everything that can be known about the object is with the node when two passes
//! over all rings have ended since the question (the first may have begun before it) and when every process has settled
//! the death of the object's owner. An owner that asks about its own task, whose worker is dead and drained, needs
//! neither: its own records came before its question.

use super::{Effect, Node, send};
use crate::id::{ActorId, ObjectId, ProcessId, TaskId};
use crate::ledger::tables::TaskState;
use crate::message::{Adoption, FromNode, RequestId};
use crate::spec::TaskKind;
use crate::value::Value;

/// Passes after which everything that was recorded before a question is in the ledger.
pub const ADOPTION_PASSES: u32 = 2;

/// A question that waits for its answer.
#[derive(Clone, Debug)]
pub(super) struct Question {
    process: ProcessId,
    request: RequestId,
    object: ObjectId,
    digest: u64,
    /// Items of a stream below this one are known to who asks.
    items: u32,
    pub(super) passes_left: u32,
}

impl Question {
    pub(super) fn new(process: ProcessId, request: RequestId, object: ObjectId, digest: u64, items: u32) -> Self {
        Self { process, request, object, digest, items, passes_left: ADOPTION_PASSES }
    }
}

/// Who waits for a task that was running when it was asked about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adopter {
    pub(super) process: ProcessId,
    request: RequestId,
    items: u32,
}

impl Adopter {
    fn of(question: &Question) -> Self {
        Self { process: question.process, request: question.request, items: question.items }
    }
}

impl Node {
    pub(super) fn adopt(&mut self, mut question: Question, effects: &mut Vec<Effect>) {
        let own = self.ledger.owner(question.object) == Some(question.process);
        if own {
            question.passes_left = 0;
        }
        self.questions.push(question);
        if own {
            self.answer_questions(effects);
        }
    }

    pub(super) fn pass_questions(&mut self, effects: &mut Vec<Effect>) {
        if self.questions.is_empty() {
            return;
        }
        for question in &mut self.questions {
            question.passes_left = question.passes_left.saturating_sub(1);
        }
        self.answer_questions(effects);
    }

    pub(super) fn answer_questions(&mut self, effects: &mut Vec<Effect>) {
        for question in std::mem::take(&mut self.questions) {
            let owner = self.ledger.owner(question.object);
            let unsettled = owner.is_some_and(|owner| self.settling.contains_key(&owner));
            if question.passes_left > 0 || unsettled {
                self.questions.push(question);
                continue;
            }
            let adoption = self.judge(&question, effects);
            let (process, request) = (question.process, question.request);
            if adoption != Adoption::Different && !question.object.is_put() {
                self.tell_items(process, request, question.object.task(), question.items, effects);
            }
            let is_new = adoption == Adoption::New;
            let attempt = if is_new { self.next_attempt(question.object.task()) } else { 0 };
            let started = is_new && self.has_begun(question.object.task());
            if is_new && !question.object.is_put() && owner.is_some_and(|owner| owner != process) {
                // Now, and not when its submission is read: items of the new run may be read before that.
                self.ledger.make_items_again(question.object.task());
            }
            send(process, FromNode::Adopted { request, adoption, attempt, started }, effects);
        }
    }

    /// Records of a run count only when its attempt is higher than all before, whoever owned those.
    fn next_attempt(&self, task: TaskId) -> u32 {
        // One of which nothing is left may have run all the same, and freed its large result: it asks for what it makes.
        self.ledger.task(task).map_or(1, |entry| entry.attempt + 1)
    }

    fn has_begun(&self, task: TaskId) -> bool {
        self.ledger.task(task).is_some_and(|entry| matches!(entry.state, TaskState::Running { .. }))
    }

    fn judge(&mut self, question: &Question, effects: &mut Vec<Effect>) -> Adoption {
        let object = question.object;
        let Some(owner) = self.ledger.owner(object) else { return Adoption::New };
        if owner != question.process && self.live.contains(&owner) {
            // Somebody alive owns it and will go on to: two owners of one id there cannot be.
            return Adoption::Different;
        }
        if object.is_put() {
            let Some(entry) = self.ledger.put(object) else { return Adoption::New };
            if entry.digest != question.digest {
                return Adoption::Different;
            }
            let value = entry.value.clone();
            self.inherit(question, effects);
            return Adoption::Finished(vec![value]);
        }
        let Some(entry) = self.ledger.task(object.task()) else { return Adoption::New };
        let Some(spec) = &entry.spec else { return Adoption::New };
        if spec.digest != question.digest {
            return Adoption::Different;
        }
        if matches!(spec.kind, TaskKind::Create(_)) {
            return self.judge_actor(question, effects);
        }
        let adoption = match &entry.state {
            TaskState::Finished { .. } if self.is_torn(object.task(), owner == question.process) => {
                return Adoption::New;
            }
            TaskState::Finished { values, .. } => Adoption::Finished(values.clone()),
            TaskState::Running { worker, .. } if self.live.contains(worker) => Adoption::Running,
            TaskState::Running { .. } | TaskState::Submitted => return Adoption::New,
        };
        self.inherit(question, effects);
        if adoption == Adoption::Running {
            self.adopters.insert(object.task(), Adopter::of(question));
        }
        adoption
    }

    /// The asker is the owner of record from here on.
    fn inherit(&mut self, question: &Question, effects: &mut Vec<Effect>) {
        self.ledger.set_owner(question.object, question.process);
        self.unorphan(question.object, effects);
    }

    /// An actor is what the table of actors says, not what its constructor's records say.
    fn judge_actor(&mut self, question: &Question, effects: &mut Vec<Effect>) -> Adoption {
        let id = ActorId(question.object.task());
        let Some(actor) = self.actors.all.get_mut(&id) else { return Adoption::New };
        let dead = matches!(actor.state, super::ActorState::Dead { .. });
        let adoption = match &actor.created {
            Some(value) if !dead || value.failure().is_some() => Adoption::Finished(vec![value.clone()]),
            None if !dead => Adoption::Running,
            Some(_) | None => return Adoption::New,
        };
        actor.owner = question.process;
        self.inherit(question, effects);
        if adoption == Adoption::Running {
            self.adopters.insert(id.0, Adopter::of(question));
        }
        adoption
    }

    /// A task that somebody adopted while it ran has ended.
    pub(super) fn answer_adopter(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        let Some(adopter) = self.adopters.get(&task).copied() else { return };
        let Some(TaskState::Finished { values, .. }) = self.ledger.task(task).map(|entry| &entry.state) else { return };
        if self.actors.all.contains_key(&ActorId(task)) {
            return;
        }
        let values: Vec<Value> = values.clone();
        if self.is_torn(task, true) {
            self.lose_run(task, effects);
            return;
        }
        self.adopters.remove(&task);
        self.tell_items(adopter.process, adopter.request, task, adopter.items, effects);
        for (index, value) in values.into_iter().enumerate() {
            let object = ObjectId::result(task, index as u32);
            send(adopter.process, FromNode::Resolved { object, value, home: self.config.id }, effects);
        }
    }

    /// The worker of adopted tasks is gone: who adopted them runs them itself.
    pub(super) fn lose_runs(&mut self, is_dead: impl Fn(ProcessId) -> bool, effects: &mut Vec<Effect>) {
        let ran_there = |task: &TaskId| {
            self.ledger
                .task(*task)
                .is_some_and(|e| matches!(e.state, TaskState::Running { worker, .. } if is_dead(worker)))
        };
        let lost: Vec<TaskId> = self.adopters.keys().copied().filter(ran_there).collect();
        for task in lost {
            self.lose_run(task, effects);
        }
    }

    pub(super) fn lose_run(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        if let Some(adopter) = self.adopters.remove(&task) {
            let (request, adoption, attempt) = (adopter.request, Adoption::New, self.next_attempt(task));
            self.tell_items(adopter.process, request, task, adopter.items, effects);
            // That run is not one of the adopter's own.
            send(adopter.process, FromNode::Adopted { request, adoption, attempt, started: false }, effects);
        }
    }

    /// A dead process asks for nothing, waits for nothing, holds nothing and watches nothing.
    pub(super) fn forget_asker(&mut self, is_dead: impl Fn(ProcessId) -> bool, effects: &mut Vec<Effect>) {
        self.questions.retain(|question| !is_dead(question.process));
        self.adopters.retain(|_, adopter| !is_dead(adopter.process));
        self.actors.forget_watchers(&is_dead);
        self.cluster.loads.forget(&is_dead);
        self.cluster.waits.forget(&is_dead);
        self.forget_reduces(&is_dead, effects);
        let mut deserted = Vec::new();
        self.resolving.retain(|object, waiting| {
            waiting.retain(|process| !is_dead(*process));
            if waiting.is_empty() {
                deserted.push(*object);
            }
            !waiting.is_empty()
        });
        for object in deserted {
            self.let_go(object, effects);
        }
    }
}
