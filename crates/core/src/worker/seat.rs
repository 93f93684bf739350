//! A seat: the queue of one lease, what runs under it, and the last results, for tasks that need them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Effect;
use crate::id::{LeaseId, ProcessId, TaskId};
use crate::map::IdMap;
use crate::message::ToNode;
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

/// What runs under a seat. The first place is all that a lease ever needs; the calls of a concurrent actor go beside it.
#[derive(Debug, Default)]
pub(super) struct RunningSet {
    first: Option<Running>,
    others: IdMap<TaskId, Running>,
}

impl RunningSet {
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    pub(super) fn contains(&self, task: &TaskId) -> bool {
        self.first.as_ref().is_some_and(|running| running.spec.id == *task) || self.others.contains(task)
    }

    /// When the first of it began.
    pub(super) fn since(&self) -> Option<Tick> {
        self.first.as_ref().map(|running| running.since)
    }

    pub(super) fn insert(&mut self, running: Running) {
        if self.first.is_none() {
            self.first = Some(running);
        } else {
            self.others.insert(running.spec.id, running);
        }
    }

    pub(super) fn remove(&mut self, task: &TaskId) -> Option<Running> {
        self.first.take_if(|running| running.spec.id == *task).or_else(|| self.others.remove(task))
    }
}

/// Whether a seat lends its CPU, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lends {
    /// It keeps it.
    Nothing,
    /// The thread of its task waits.
    Waits,
    /// Its process is idle, and something in it waits: see [`super::idle`].
    Idle,
}

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) owner: ProcessId,
    /// Which GPUs its tasks have.
    pub(super) gpus: Vec<u32>,
    pub(super) queue: VecDeque<Queued>,
    pub(super) running: RunningSet,
    /// So many may run at once (WRK-1): one, until the constructor of a concurrent actor has ended.
    pub(super) running_max: usize,
    pub(super) lending: Lends,
    /// The lease is over: the seat goes when its task has ended.
    pub(super) closed: bool,
    /// Results of the last tasks, for those that were sent ahead of their dependencies.
    pub(super) recent: VecDeque<(TaskId, Vec<Value>)>,
}

impl Seat {
    pub(super) fn new(owner: ProcessId, gpus: Vec<u32>) -> Self {
        Self {
            owner,
            gpus,
            queue: VecDeque::new(),
            running: RunningSet::default(),
            running_max: 1,
            lending: Lends::Nothing,
            closed: false,
            recent: VecDeque::new(),
        }
    }

    /// Whether its CPU is lent.
    pub(super) fn lends(&self) -> bool {
        self.lending != Lends::Nothing
    }

    /// Its task runs on, or has ended: the CPU is wanted back when it was lent.
    pub(super) fn take_cpu_back(&mut self, lease: LeaseId, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.lending, Lends::Nothing) != Lends::Nothing {
            effects.push(Effect::Node(ToNode::Unblocked { lease }));
        }
    }

    /// Whether another task may start.
    pub(super) fn has_room(&self) -> bool {
        self.running.len() < self.running_max
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
