//! Calls that wait for each other: an actor that waits for a call of itself, or actors that wait for calls of one another.
//!
//! The node does not know which result a task waits for, but it knows which tasks wait, what they have submitted, and which call
//! each actor runs. A chain of these that comes back to where it began does not go on unless one of them waits for something
//! else. Only what this node's ledger has is looked at: a chain over other nodes is not found.

use std::collections::{BTreeMap, BTreeSet};

use super::{ActorState, Node};
use crate::id::{ProcessId, TaskId};
use crate::ledger::tables::{TaskEntry, TaskState};
use crate::spec::TaskKind;

/// So many tasks are looked at in search of a cycle.
const CYCLE_TASKS_MAX: usize = 10_000;
/// So many calls of a cycle are named.
const CYCLE_NAMED_MAX: usize = 8;

/// What waits for what, as far as it is open.
struct Open {
    running_on: BTreeMap<ProcessId, Vec<TaskId>>,
    children: BTreeMap<TaskId, Vec<TaskId>>,
}

impl Node {
    /// The cycle that a call waits for, in words.
    pub(super) fn explain_cycle(&self, call: TaskId) -> Option<String> {
        let open = self.open_tasks();
        let cycle = self.find_cycle(call, &open)?;
        let mut lines: Vec<String> = cycle.iter().take(CYCLE_NAMED_MAX).map(|task| self.step_in_words(*task)).collect();
        if cycle.len() > CYCLE_NAMED_MAX {
            lines.push(format!("{} more", cycle.len() - CYCLE_NAMED_MAX));
        }
        let ends = match cycle.as_slice() {
            [outer, inner] if self.actor_of(*outer) == self.actor_of(*inner) => {
                "an actor runs one call at a time, so it waits for itself for ever if it waits for that call; call the \
                 method directly, or let the actor run several calls at once"
            }
            _ => {
                "each runs one call at a time, so they wait for each other for ever if each waits for its call; let one \
                 of them not wait, or run several calls at once"
            }
        };
        Some(format!("calls in a circle: {}, and so on: {ends}", lines.join(", which waits for ")))
    }

    /// Everything that has been submitted here and has not ended.
    fn open_tasks(&self) -> Open {
        let mut open = Open { running_on: BTreeMap::new(), children: BTreeMap::new() };
        for task in self.ledger.open(CYCLE_TASKS_MAX) {
            let Some(entry) = self.ledger.task(task) else { continue };
            if let TaskState::Running { worker, .. } = entry.state {
                open.running_on.entry(worker).or_default().push(task);
            }
            if let Some(spec) = &entry.spec {
                open.children.entry(spec.parent).or_default().push(task);
            }
        }
        open
    }

    /// The tasks on a cycle that can be reached from a task, in order.
    fn find_cycle(&self, from: TaskId, open: &Open) -> Option<Vec<TaskId>> {
        let mut path: Vec<(TaskId, Vec<TaskId>)> = vec![(from, self.waits_for(from, open))];
        let mut seen = BTreeSet::from([from]);
        while let Some((_, next)) = path.last_mut() {
            let Some(task) = next.pop() else {
                path.pop();
                continue;
            };
            if let Some(at) = path.iter().position(|(on_path, _)| *on_path == task) {
                return Some(path[at..].iter().map(|(task, _)| *task).collect());
            }
            if seen.insert(task) {
                path.push((task, self.waits_for(task, open)));
            }
        }
        None
    }

    /// What a task may wait for: one that is blocked for what it has submitted, a call that is queued for the one that its
    /// actor runs.
    fn waits_for(&self, task: TaskId, open: &Open) -> Vec<TaskId> {
        let Some(entry) = self.ledger.task(task) else { return Vec::new() };
        match (&entry.state, entry.spec.as_ref().map(|spec| &spec.kind)) {
            (TaskState::Running { worker, .. }, _) if self.is_blocked(*worker) => {
                open.children.get(&task).cloned().unwrap_or_default()
            }
            (TaskState::Submitted, Some(TaskKind::Call { actor, .. })) => {
                match self.actors.all.get(actor).map(|actor| &actor.state) {
                    Some(ActorState::Alive { process }) => open.running_on.get(process).cloned().unwrap_or_default(),
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    /// Whether what runs in a process waits. One that runs several calls at once never says so.
    fn is_blocked(&self, process: ProcessId) -> bool {
        self.pool.workers.get(&process).is_some_and(|worker| {
            let mut leases = worker.leases.iter().filter_map(|id| self.leases.get(id));
            worker.actor_blocked || leases.any(|lease| lease.blocked)
        })
    }

    fn actor_of(&self, task: TaskId) -> Option<crate::id::ActorId> {
        match self.ledger.task(task)?.spec.as_ref()?.kind {
            TaskKind::Call { actor, .. } => Some(actor),
            TaskKind::Create(_) => Some(crate::id::ActorId(task)),
            TaskKind::Plain => None,
        }
    }

    fn step_in_words(&self, task: TaskId) -> String {
        let name = self.ledger.task(task).map_or("?", TaskEntry::name);
        match self.actor_of(task) {
            Some(actor) => format!("`{name}` of {actor}"),
            None => format!("`{name}`"),
        }
    }
}
