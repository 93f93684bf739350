//! Cancelling: a queued task is removed, a running one is asked to stop and loses its worker when it does not.

use super::tasks::TaskState;
use super::{Effect, Owner};
use crate::failure::Failure;
use crate::id::{ObjectId, TaskId};
use crate::message::{Peer, ToNode};
use crate::spec::TaskKind;
use crate::time::Tick;
use crate::value::Value;

/// How a task is cancelled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cancel {
    /// Its worker is killed at once instead of after the grace period.
    pub(super) force: bool,
    /// What it has submitted is cancelled too.
    pub(super) recursive: bool,
}

impl Owner {
    /// Cancels the task that makes `object`. A finished task is left as it is.
    pub(super) fn cancel(&mut self, object: ObjectId, how: Cancel, now: Tick, effects: &mut Vec<Effect>) {
        let Some(entry) = self.objects.get(&object) else { return };
        if let Some(owner) = entry.owner {
            if entry.value.is_none() && !self.is_departed(owner) {
                let Cancel { force, recursive } = how;
                effects.push(Effect::Send { to: owner, message: Peer::CancelObject { object, force, recursive } });
            }
            return;
        }
        if !self.cancel_reduce(object, now, effects) {
            self.cancel_task(object.task(), how, now, effects);
        }
    }

    fn cancel_task(&mut self, task: TaskId, how: Cancel, now: Tick, effects: &mut Vec<Effect>) {
        let recursive = how.recursive;
        let grace_us = if how.force { 0 } else { self.config.cancel_grace_us };
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
                let old = entry.cancel_deadline.replace(deadline);
                if let Some(old) = old {
                    self.cancels.remove(&(old, task));
                }
                if old.is_none() || (recursive && !entry.cancels_children) {
                    entry.cancels_children = recursive;
                    effects.push(Effect::Send { to: worker, message: Peer::Cancel { task, recursive } });
                }
                self.cancels.insert((deadline, task));
                self.end_patience(now, effects);
            }
            TaskState::CallSent { process } => {
                // The actor outlives its calls: it is asked, never killed.
                effects.push(Effect::Send { to: process, message: Peer::Cancel { task, recursive } });
            }
            TaskState::Asked | TaskState::Inherited => {
                entry.cancel_deadline = Some(now);
            }
            TaskState::Constructing => {
                let actor = crate::id::ActorId(task);
                effects.push(Effect::Node(ToNode::KillActor { actor, manager: self.me.node, restart: false }));
            }
        }
    }

    /// Nobody can read these streams any more. Their tasks are asked to stop and given time: what they do after the last
    /// item is their own business.
    pub(super) fn cancel_deserted(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        for task in std::mem::take(&mut self.deserted) {
            let Some(entry) = self.tasks.get(&task) else { continue };
            match entry.state {
                TaskState::Sent { worker, .. } if entry.cancel_deadline.is_none() => {
                    effects.push(Effect::Send { to: worker, message: Peer::Cancel { task, recursive: true } });
                }
                TaskState::Sent { .. } => {}
                _ => self.cancel_task(task, Cancel { force: false, recursive: true }, now, effects),
            }
        }
    }

    pub(super) fn cancel_children(&mut self, parent: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        for task in self.tasks.sorted_keys_where(|_, entry| entry.spec.parent == parent) {
            self.cancel_task(task, Cancel { force: false, recursive: true }, now, effects);
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
