//! The node's tables, made from the records of all processes (design rule 2).
//!
//! [`crate::node`] applies every record here and asks here when a process died: what did it submit, what ran, what came
//! out. One lookup per record on the hot path, no index besides the id: questions about a dead process scan the table,
//! which is rare.
//!
//! Records of one process arrive in order, records of two processes in any order: a worker's `Started` may come before
//! its owner's `Submitted`. Such an entry has no spec for a moment; when none came within [`UNNAMED_PASSES_MAX`] full
//! passes it never will (the entry had been dropped) and it goes.
//!
//! LED-1: an entry stays until its task is finished and every result is freed, then it is dropped: the table holds what
//! somebody can still ask for, nothing else. LED-2: the first `Finished` of the highest attempt wins.

mod items;
pub mod snapshot;
pub mod tables;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::snapshot::Snapshot;
use self::tables::{Counts, OwnedCounts, PutEntry, Recent, RecentTask, TaskEntry, TaskState};
use crate::failure::Failure;
use crate::id::{ObjectId, ProcessId, TaskId};
use crate::map::IdMap;
use crate::record::Record;
use crate::spec::{TaskKind, TaskSpec};
use crate::time::Tick;
use crate::value::{Body, Location, Value};

/// An entry without a spec is dropped after so many full passes over all rings.
pub const UNNAMED_PASSES_MAX: u64 = 2;

/// All that the node knows from records.
#[derive(Default)]
pub struct Ledger {
    tasks: IdMap<TaskId, TaskEntry>,
    puts: IdMap<ObjectId, PutEntry>,
    owned: OwnedCounts,
    unnamed: Vec<(TaskId, u64)>,
    /// Where values lie that nobody can ask for since the last record.
    lost: Vec<Location>,
    passes: u64,
    recent: Recent,
    counts: Counts,
}

impl Ledger {
    /// Takes one record of `process`.
    pub fn apply(&mut self, process: ProcessId, record: Record) {
        match record {
            Record::Submitted { at, spec } => self.submitted(process, at, spec),
            Record::Started { at, task, attempt } => self.started(process, at, task, attempt),
            Record::Finished { at, task, attempt, values } => self.finished(process, at, task, attempt, values),
            Record::Yielded { task, attempt, index, value } => {
                self.yielded(task, attempt, index, value);
            }
            Record::Put { object, digest, value } => {
                self.counts.puts += 1;
                let entry = PutEntry { owner: process, digest, value, freed: false, held: false };
                self.owned.add(process);
                if let Some(before) = self.puts.insert(object, entry) {
                    self.owned.remove(before.owner);
                    self.lost.extend(stored(&before.value));
                }
            }
            Record::Freed { object } if self.is_item(object) => {
                self.free_item(object, false);
            }
            Record::Freed { object } => self.freed(object),
            Record::Settled { task, value } => self.settle(task, value),
        }
    }

    fn submitted(&mut self, process: ProcessId, at: Tick, spec: Arc<TaskSpec>) {
        let id = spec.id;
        let entry = self.tasks.get_or_insert_with(id, || TaskEntry::unnamed(spec.attempt));
        if entry.spec.is_none() {
            self.counts.submitted += 1;
            self.owned.add(process);
            (entry.owner, entry.submitted) = (process, at);
        } else if entry.owner != process {
            self.owned.remove(entry.owner);
            self.owned.add(process);
            (entry.owner, entry.freed) = (process, 0);
            if let Some(items) = &mut entry.items {
                items.change_owner();
            }
        }
        if spec.attempt > entry.attempt {
            entry.attempt = spec.attempt;
            if let TaskState::Finished { values, .. } = std::mem::replace(&mut entry.state, TaskState::Submitted) {
                self.lost.extend(values.iter().filter_map(stored));
            }
        }
        entry.spec = Some(spec);
        if entry.is_over() {
            self.drop_task(id);
        }
    }

    fn started(&mut self, process: ProcessId, at: Tick, task: TaskId, attempt: u32) {
        let entry = entry_or_unnamed(&mut self.tasks, &mut self.unnamed, self.passes, task, attempt);
        let done = matches!(entry.state, TaskState::Finished { .. }) && attempt == entry.attempt;
        if attempt >= entry.attempt && !done {
            entry.attempt = attempt;
            entry.state = TaskState::Running { worker: process, since: at };
        }
    }

    fn finished(&mut self, process: ProcessId, at: Tick, task: TaskId, attempt: u32, values: Vec<Value>) {
        let entry = entry_or_unnamed(&mut self.tasks, &mut self.unnamed, self.passes, task, attempt);
        let done = matches!(entry.state, TaskState::Finished { .. }) && attempt == entry.attempt;
        if attempt < entry.attempt || done {
            // The same may come twice: what lies where the values that count lie is theirs.
            let kept = |value: &Value| match &entry.state {
                TaskState::Finished { values, .. } => values.iter().any(|kept| kept.body == value.body),
                TaskState::Submitted | TaskState::Running { .. } => false,
            };
            self.lost.extend(values.iter().filter(|value| !kept(value)).filter_map(stored));
            return;
        }
        let since = match entry.state {
            TaskState::Running { since, .. } => since,
            TaskState::Submitted | TaskState::Finished { .. } => at,
        };
        if entry.is_stream() && values.first().is_some_and(stopped) {
            // It had to stop because its owner died: a run that is lost, not one that failed.
            entry.state = TaskState::Submitted;
            return;
        }
        let failed = values.iter().any(|value| value.failure().is_some());
        self.counts.finished += 1;
        self.counts.failed += u64::from(failed);
        let options = entry.spec.as_ref().map(|spec| spec.options.clone());
        self.recent.push(RecentTask { task, options, worker: process, attempt, started: since, finished: at, failed });
        entry.attempt = attempt;
        entry.state = TaskState::Finished { worker: Some(process), values };
        if entry.is_over() {
            let dropped = self.drop_task(task);
            self.lost.extend(dropped);
        }
    }

    fn freed(&mut self, object: ObjectId) {
        if object.is_put() {
            if self.puts.get(&object).is_some_and(|entry| !entry.held) {
                let dropped = self.drop_put(object);
                self.lost.extend(dropped);
            } else if let Some(entry) = self.puts.get_mut(&object) {
                entry.freed = true;
            }
            return;
        }
        // The usual case takes the entry out for good: one lookup.
        let Some(mut entry) = self.tasks.remove(&object.task()) else { return };
        entry.freed += 1;
        if entry.is_over() {
            self.owned.remove(entry.owner);
            if let TaskState::Finished { values, .. } = &entry.state {
                self.lost.extend(values.get(object.index() as usize).and_then(stored));
            }
            return;
        }
        if let (TaskState::Finished { values, .. }, false) = (&mut entry.state, entry.held)
            && let Some(value) = values.get_mut(object.index() as usize)
            && let Body::Stored(at) = value.body
        {
            self.lost.push(at);
            let reason = "its owner freed it before it died".into();
            *value = Value::failed(Failure::ObjectLost { object, reason });
        }
        self.tasks.insert(object.task(), entry);
    }

    /// Gives every result of `task` this value, when it has none yet.
    pub fn settle(&mut self, task: TaskId, value: Value) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        if matches!(entry.state, TaskState::Finished { .. }) {
            return;
        }
        self.counts.settled += 1;
        let returns = entry.returns() as usize;
        entry.state = TaskState::Finished { worker: None, values: vec![value; returns] };
        if entry.is_over() {
            self.drop_task(task);
        }
    }

    /// All rings have been drained once: entries whose spec must have come by now and has not are dropped. Gives the
    /// places of values that were dropped with them.
    pub fn pass(&mut self) -> Vec<Location> {
        self.passes += 1;
        let passes = self.passes;
        let due = self.unnamed.iter().take_while(|(_, seen)| passes - seen > UNNAMED_PASSES_MAX).count();
        let mut dropped = Vec::new();
        for (task, _) in self.unnamed.drain(..due).collect::<Vec<_>>() {
            if self.tasks.get(&task).is_some_and(|entry| entry.spec.is_none()) {
                dropped.extend(self.drop_task(task));
            }
        }
        dropped
    }

    /// Entries of which no spec has come.
    pub fn unnamed_count(&self) -> usize {
        self.unnamed.len()
    }

    /// Where values lie that nobody can ask for: their owner freed them, and may die before it tells the store, or
    /// others count in their place.
    pub fn take_lost(&mut self) -> Vec<Location> {
        std::mem::take(&mut self.lost)
    }

    /// Whether there is any.
    #[inline]
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The entry of a task.
    pub fn task(&self, task: TaskId) -> Option<&TaskEntry> {
        self.tasks.get(&task)
    }

    /// The entry of a put.
    pub fn put(&self, object: ObjectId) -> Option<&PutEntry> {
        self.puts.get(&object)
    }

    /// The value of an object, when there is one.
    pub fn value(&self, object: ObjectId) -> Option<&Value> {
        if object.is_put() {
            return self.puts.get(&object).map(|entry| &entry.value);
        }
        let entry = self.tasks.get(&object.task())?;
        if let (Some(items), Some(index)) = (&entry.items, object.item_index()) {
            return items.value(index);
        }
        match &entry.state {
            TaskState::Finished { values, .. } => values.get(object.index() as usize),
            TaskState::Submitted | TaskState::Running { .. } => None,
        }
    }

    /// Whether there is an entry for the maker of this object.
    pub fn knows(&self, object: ObjectId) -> bool {
        if object.is_put() { self.puts.contains(&object) } else { self.tasks.contains(&object.task()) }
    }

    /// Whether a value of this task, or of this put, lies in the store.
    pub fn is_stored(&self, object: ObjectId) -> bool {
        if object.is_put() {
            return self.puts.get(&object).is_some_and(|entry| stored(&entry.value).is_some());
        }
        match self.tasks.get(&object.task()).map(|entry| &entry.state) {
            Some(TaskState::Finished { values, .. }) => values.iter().any(|value| stored(value).is_some()),
            _ => false,
        }
    }

    /// The owner of record.
    pub fn owner(&self, object: ObjectId) -> Option<ProcessId> {
        if object.is_put() {
            self.puts.get(&object).map(|entry| entry.owner)
        } else {
            self.tasks.get(&object.task()).filter(|entry| entry.spec.is_some()).map(|entry| entry.owner)
        }
    }

    /// The task whose code made this object: the submitter of a task, the putter of a put.
    pub fn parent(&self, object: ObjectId) -> Option<TaskId> {
        if object.is_put() {
            return Some(object.task());
        }
        self.tasks.get(&object.task())?.spec.as_ref().map(|spec| spec.parent)
    }

    /// Whether nothing more will come from this task's code: it is finished, or the ledger has forgotten it.
    pub fn is_final(&self, task: TaskId) -> bool {
        self.tasks.get(&task).is_none_or(|entry| matches!(entry.state, TaskState::Finished { .. }))
    }

    /// Makes `process` the owner of record.
    pub fn set_owner(&mut self, object: ObjectId, process: ProcessId) {
        let owner = if object.is_put() {
            self.puts.get_mut(&object).map(|entry| {
                entry.freed = false;
                &mut entry.owner
            })
        } else {
            self.tasks.get_mut(&object.task()).map(|entry| {
                entry.freed = 0;
                // An owner that asks for its own task again has freed what it has freed.
                if let Some(items) = entry.items.as_mut().filter(|_| entry.owner != process) {
                    items.change_owner();
                }
                &mut entry.owner
            })
        };
        if let Some(owner) = owner {
            self.owned.remove(*owner);
            self.owned.add(process);
            *owner = process;
        }
    }

    /// Keeps the entry of this object even when its owner frees it, or no longer. Gives the places of the values that
    /// were dropped with the entry.
    pub fn hold(&mut self, object: ObjectId, held: bool) -> Vec<Location> {
        if object.is_put() {
            let Some(entry) = self.puts.get_mut(&object) else { return Vec::new() };
            entry.held = held;
            return if !held && entry.freed { self.drop_put(object) } else { Vec::new() };
        }
        let Some(entry) = self.tasks.get_mut(&object.task()) else { return Vec::new() };
        entry.held = held;
        let dropped = match &mut entry.items {
            Some(items) if !held => items.drop_freed(),
            _ => Vec::new(),
        };
        if entry.is_over() { [dropped, self.drop_task(object.task())].concat() } else { dropped }
    }

    /// Forgets a task; gives the places of its stored values.
    pub fn drop_task(&mut self, task: TaskId) -> Vec<Location> {
        let Some(entry) = self.tasks.remove(&task) else { return Vec::new() };
        self.owned.remove(entry.owner);
        let items = entry.items.iter().flat_map(|items| items.values());
        let results = match &entry.state {
            TaskState::Finished { values, .. } => values.as_slice(),
            TaskState::Submitted | TaskState::Running { .. } => &[],
        };
        results.iter().chain(items).filter_map(stored).collect()
    }

    /// Forgets a put; gives its place when it was stored.
    pub fn drop_put(&mut self, object: ObjectId) -> Vec<Location> {
        let Some(entry) = self.puts.remove(&object) else { return Vec::new() };
        self.owned.remove(entry.owner);
        stored(&entry.value).into_iter().collect()
    }

    /// How many tasks and puts have this owner.
    pub fn owned_by(&self, process: ProcessId) -> u32 {
        self.owned.of(process)
    }

    /// The objects of this owner, a task by its first result. A scan.
    pub fn objects_of(&self, process: ProcessId) -> Vec<ObjectId> {
        if self.owned_by(process) == 0 {
            return Vec::new();
        }
        let tasks = self.tasks.sorted_keys_where(|_, entry| entry.spec.is_some() && entry.owner == process);
        let puts = self.puts.sorted_keys_where(|_, entry| entry.owner == process);
        tasks.into_iter().map(|task| ObjectId::result(task, 0)).chain(puts).collect()
    }

    /// The tasks that are running on this worker, or on any. A scan.
    pub fn running(&self, on: Option<ProcessId>) -> Vec<TaskId> {
        self.tasks.sorted_keys_where(|_, entry| match entry.state {
            TaskState::Running { worker, .. } => on.is_none_or(|wanted| wanted == worker),
            TaskState::Submitted | TaskState::Finished { .. } => false,
        })
    }

    /// Tasks that run, calls that have not ended and tasks whose parents run, `most` of them at most. A scan.
    pub fn open(&self, most: usize, runs: impl Fn(TaskId) -> bool) -> Vec<TaskId> {
        let linked = |entry: &TaskEntry| {
            let spec = entry.spec.as_ref();
            let linked = spec.is_some_and(|spec| matches!(spec.kind, TaskKind::Call { .. }) || runs(spec.parent));
            match entry.state {
                TaskState::Running { .. } => true,
                TaskState::Submitted => linked,
                TaskState::Finished { .. } => false,
            }
        };
        let mut open = self.tasks.sorted_keys_where(|_, entry| linked(entry));
        open.truncate(most);
        open
    }

    /// The tasks of which this worker has made results or items that contain references. A scan.
    pub fn referring_results_of(&self, worker: ProcessId) -> Vec<TaskId> {
        let refers = |value: &Value| !value.nested.is_empty();
        self.tasks.sorted_keys_where(|_, entry| {
            let items = entry.items.as_ref().is_some_and(|items| items.values().any(refers));
            match &entry.state {
                TaskState::Finished { worker: by, values } => {
                    *by == Some(worker) && (items || values.iter().any(refers))
                }
                TaskState::Running { worker: by, .. } => *by == worker && items,
                TaskState::Submitted => false,
            }
        })
    }

    /// The values of a task: its results, and the items of a stream.
    pub fn values_of(&self, task: TaskId) -> impl Iterator<Item = &Value> {
        let entry = self.tasks.get(&task);
        let results = match entry.map(|entry| &entry.state) {
            Some(TaskState::Finished { values, .. }) => values.as_slice(),
            _ => &[],
        };
        let items = entry.and_then(|entry| entry.items.as_ref());
        results.iter().chain(items.into_iter().flat_map(|items| items.values()))
    }

    /// All task ids in order. A sort: for the state tables.
    pub fn task_ids(&self) -> Vec<TaskId> {
        self.tasks.sorted_keys()
    }

    /// All puts in order. A sort: for the state tables.
    pub fn put_ids(&self) -> Vec<ObjectId> {
        self.puts.sorted_keys()
    }

    /// How many tasks of each owner have not ended. A scan.
    pub fn open_by_owner(&self) -> BTreeMap<ProcessId, u64> {
        let mut open: BTreeMap<ProcessId, u64> = BTreeMap::new();
        self.tasks.sorted_keys_where(|_, entry| {
            if entry.spec.is_some() && !matches!(entry.state, TaskState::Finished { .. }) {
                *open.entry(entry.owner).or_default() += 1;
            }
            false
        });
        open
    }

    /// Totals since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The last tasks that finished, oldest first.
    pub fn recent(&self) -> impl Iterator<Item = &RecentTask> {
        self.recent.iter()
    }
}

/// Whether the end of a stream says that its owner died.
pub(crate) fn stopped(end: &Value) -> bool {
    matches!(end.failure(), Some(Failure::OwnerDied { .. }))
}

fn stored(value: &Value) -> Option<Location> {
    match value.body {
        Body::Stored(at) => Some(at),
        Body::Inline(_) | Body::Failed(_) => None,
    }
}

fn entry_or_unnamed<'a>(
    tasks: &'a mut IdMap<TaskId, TaskEntry>,
    unnamed: &mut Vec<(TaskId, u64)>,
    passes: u64,
    task: TaskId,
    attempt: u32,
) -> &'a mut TaskEntry {
    tasks.get_or_insert_with(task, || {
        unnamed.push((task, passes));
        TaskEntry::unnamed(attempt)
    })
}
