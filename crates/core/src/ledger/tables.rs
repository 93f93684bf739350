//! The rows of the ledger's tables and the counters beside them.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::items::Items;
use crate::id::{ProcessId, TaskId};
use crate::spec::{TaskOptions, TaskSpec};
use crate::time::Tick;
use crate::value::Value;

/// So many finished tasks are remembered for the state tables; the oldest goes first.
pub const RECENT_TASKS_MAX: usize = 1_000;

/// How far a task has come, as records tell.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskState {
    /// Its owner has it, or it is queued at a worker.
    Submitted,
    /// A worker runs the user's code, or ran it until it died.
    Running {
        /// Which.
        worker: ProcessId,
        /// Since when.
        since: Tick,
    },
    /// It has its results.
    Finished {
        /// Who made them; nobody when the owner settled it.
        worker: Option<ProcessId>,
        /// The results, in order.
        values: Vec<Value>,
    },
}

/// A task.
#[derive(Clone, Debug)]
pub struct TaskEntry {
    /// What was submitted; missing while only the worker's records have come.
    pub spec: Option<Arc<TaskSpec>>,
    /// The owner of record; meaningless without a spec.
    pub owner: ProcessId,
    /// The highest attempt heard of.
    pub attempt: u32,
    /// How far it has come.
    pub state: TaskState,
    /// When it was first submitted.
    pub submitted: Tick,
    /// Results that its owner has freed.
    pub(super) freed: u32,
    /// Somebody else than the owner may still ask.
    pub(super) held: bool,
    /// What a streaming task has yielded.
    pub(super) items: Option<Box<Items>>,
}

impl TaskEntry {
    pub(super) fn unnamed(attempt: u32) -> Self {
        Self {
            spec: None,
            owner: ProcessId::NODE,
            attempt,
            state: TaskState::Submitted,
            submitted: Tick::default(),
            freed: 0,
            held: false,
            items: None,
        }
    }

    /// How many results it has.
    pub fn returns(&self) -> u32 {
        self.spec.as_ref().map_or(1, |spec| spec.returns)
    }

    /// The name for people.
    pub fn name(&self) -> &str {
        self.spec.as_ref().map_or("?", |spec| spec.options.name.as_str())
    }

    /// Whether its results come one by one.
    pub fn is_stream(&self) -> bool {
        self.items.is_some() || self.spec.as_ref().is_some_and(|spec| spec.stream.is_some())
    }

    /// LED-1: finished, all freed, nobody else asks.
    pub(super) fn is_over(&self) -> bool {
        let finished = matches!(self.state, TaskState::Finished { .. });
        let items_left = self.items.as_ref().is_some_and(|items| !items.is_empty());
        finished && !self.held && !items_left && self.spec.as_ref().is_some_and(|spec| self.freed >= spec.returns)
    }
}

/// A put.
#[derive(Clone, Debug)]
pub struct PutEntry {
    /// The owner of record.
    pub owner: ProcessId,
    /// Hash of the bytes.
    pub digest: u64,
    /// The value.
    pub value: Value,
    pub(super) freed: bool,
    pub(super) held: bool,
}

/// Totals since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Tasks submitted, each once.
    pub submitted: u64,
    /// Runs that ended.
    pub finished: u64,
    /// Of these, those with a failure.
    pub failed: u64,
    /// Tasks that got their result without a run.
    pub settled: u64,
    /// Values put.
    pub puts: u64,
}

/// A finished task in short.
#[derive(Clone, Debug)]
pub struct RecentTask {
    /// Which.
    pub task: TaskId,
    /// Its options, when they were known at the time.
    pub options: Option<Arc<TaskOptions>>,
    /// Who ran it.
    pub worker: ProcessId,
    /// Which run.
    pub attempt: u32,
    /// When the run began.
    pub started: Tick,
    /// When it ended.
    pub finished: Tick,
    /// Whether it failed.
    pub failed: bool,
}

/// The last finished tasks.
#[derive(Default)]
pub(super) struct Recent(VecDeque<RecentTask>);

impl Recent {
    pub(super) fn push(&mut self, row: RecentTask) {
        if self.0.len() == RECENT_TASKS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(row);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RecentTask> {
        self.0.iter()
    }
}

/// Entries per owner, by slot: an array access on the hot path.
#[derive(Default)]
pub(super) struct OwnedCounts(Vec<(u32, u32)>);

impl OwnedCounts {
    pub(super) fn add(&mut self, owner: ProcessId) {
        let slot = owner.slot as usize;
        if self.0.len() <= slot {
            self.0.resize(slot + 1, (0, 0));
        }
        let (incarnation, count) = &mut self.0[slot];
        if *incarnation < owner.incarnation {
            (*incarnation, *count) = (owner.incarnation, 0);
        }
        if *incarnation == owner.incarnation {
            *count += 1;
        }
    }

    pub(super) fn remove(&mut self, owner: ProcessId) {
        if let Some((incarnation, count)) = self.0.get_mut(owner.slot as usize)
            && *incarnation == owner.incarnation
        {
            *count = count.saturating_sub(1);
        }
    }

    pub(super) fn of(&self, owner: ProcessId) -> u32 {
        self.0.get(owner.slot as usize).map_or(
            0,
            |(incarnation, count)| {
                if *incarnation == owner.incarnation { *count } else { 0 }
            },
        )
    }
}
