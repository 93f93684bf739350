//! Cancelling: a queued task is removed, a running one is asked to stop and loses its worker when it does not.

use super::tasks::TaskState;
use super::{Effect, Owner};
use crate::failure::Failure;
use crate::id::{ObjectId, TaskId};
use crate::message::{Peer, ToNode};
use crate::spec::TaskKind;
use crate::time::Tick;
use crate::value::Value;

impl Owner {
    /// Cancels the task that makes `object`. A finished task is left as it is.
    pub(super) fn cancel(&mut self, object: ObjectId, force: bool, now: Tick, effects: &mut Vec<Effect>) {
        let Some(entry) = self.objects.get(&object) else { return };
        if let Some(owner) = entry.owner {
            if entry.value.is_none() && !self.is_departed(owner) {
                effects.push(Effect::Send { to: owner, message: Peer::CancelObject { object, force } });
            }
            return;
        }
        self.cancel_task(object.task(), force, now, effects);
    }

    fn cancel_task(&mut self, task: TaskId, force: bool, now: Tick, effects: &mut Vec<Effect>) {
        let grace_us = if force { 0 } else { self.config.cancel_grace_us };
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        match entry.state {
            TaskState::Waiting { .. } | TaskState::Queued | TaskState::CallQueued => {
                let call = matches!(entry.spec.kind, TaskKind::Call { .. });
                self.settle(task, Value::failed(Failure::Cancelled { task }), now, effects);
                if call {
                    // It may have held the calls behind it.
                    self.flush_calls_of(task, now, effects);
                }
            }
            TaskState::Sent { worker, .. } => {
                let deadline = now.plus_us(grace_us);
                if let Some(old) = entry.cancel_deadline.replace(deadline) {
                    self.cancels.remove(&(old, task));
                } else {
                    effects.push(Effect::Send { to: worker, message: Peer::Cancel { task } });
                }
                self.cancels.insert((deadline, task));
                self.end_patience(now, effects);
            }
            TaskState::CallSent { process } => {
                // The actor outlives its calls: it is asked, never killed.
                effects.push(Effect::Send { to: process, message: Peer::Cancel { task } });
            }
            TaskState::Asked | TaskState::Inherited => {
                entry.cancel_deadline = Some(now);
            }
            TaskState::Constructing => {
                let actor = crate::id::ActorId(task);
                effects.push(Effect::Node(ToNode::KillActor { actor, restart: false }));
            }
        }
    }

    pub(super) fn cancel_children(&mut self, parent: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        for task in self.tasks.sorted_keys_where(|_, entry| entry.spec.parent == parent) {
            self.cancel_task(task, false, now, effects);
        }
    }

    /// Kills the workers of cancelled tasks whose grace period is over.
    pub(super) fn end_patience(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        while let Some(&(deadline, task)) = self.cancels.first() {
            if deadline > now {
                return;
            }
            self.cancels.remove(&(deadline, task));
            if let Some(entry) = self.tasks.get(&task)
                && let TaskState::Sent { worker, .. } = entry.state
            {
                effects.push(Effect::Node(ToNode::KillWorker { worker, task }));
            }
        }
    }
}
