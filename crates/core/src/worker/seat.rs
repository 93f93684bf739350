//! A seat: the queue of one lease, the task that runs under it, and the last results, for tasks that need them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::id::{ProcessId, TaskId};
use crate::spec::TaskSpec;
use crate::time::Tick;
use crate::value::{RefSpec, Value};

/// Results that a seat keeps for tasks that were sent ahead of their dependencies.
pub(super) const RECENT_RESULTS_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Queued {
    pub(super) from: ProcessId,
    pub(super) spec: Arc<TaskSpec>,
    pub(super) resolved: Vec<Value>,
    /// Dependencies that come from tasks in front, by place.
    pub(super) ahead: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) from: ProcessId,
    pub(super) spec: Arc<TaskSpec>,
    pub(super) refs: Vec<RefSpec>,
    pub(super) since: Tick,
}

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) owner: ProcessId,
    pub(super) queue: VecDeque<Queued>,
    pub(super) running: Option<Running>,
    pub(super) blocked: bool,
    /// The lease is over: the seat goes when its task has ended.
    pub(super) closed: bool,
    /// Results of the last tasks, for those that were sent ahead of their dependencies.
    pub(super) recent: VecDeque<(TaskId, Vec<Value>)>,
}

impl Seat {
    pub(super) fn new(owner: ProcessId) -> Self {
        Self { owner, queue: VecDeque::new(), running: None, blocked: false, closed: false, recent: VecDeque::new() }
    }

    /// Keeps results for tasks behind. Those with references inside are given back with their task, so they do not stay.
    pub(super) fn remember(&mut self, task: TaskId, values: &[Value]) {
        if values.iter().all(|value| value.nested.is_empty()) {
            if self.recent.len() == RECENT_RESULTS_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back((task, values.to_vec()));
        }
    }

    /// Fills in the dependencies that come from ahead. False when one is not there, or failed: then the owner decides.
    pub(super) fn fill_in(&self, queued: &mut Queued) -> bool {
        queued.ahead.iter().all(|place| {
            let place = *place as usize;
            let Some(object) = queued.spec.dependencies.get(place).map(|d| d.object) else { return false };
            let made = self.recent.iter().rev().find(|(task, _)| *task == object.task());
            let value = made.and_then(|(_, values)| values.get(object.index() as usize));
            match (value, queued.resolved.get_mut(place)) {
                (Some(value), Some(slot)) if value.failure().is_none() => {
                    *slot = value.clone();
                    true
                }
                _ => false,
            }
        })
    }
}
