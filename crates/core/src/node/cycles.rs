//! Calls that wait for each other: an actor that waits for a call of itself, or actors that wait for calls of one another,
//! also on other nodes ([`crate::waits`]).

use std::collections::BTreeMap;

use super::{ActorState, Node};
use crate::id::{ProcessId, TaskId};
use crate::ledger::tables::TaskState;
use crate::spec::TaskKind;
use crate::waits::{Graph, MemoryNeed, MemoryWait, OpenTask, Run, Submission, Waits, Work};

/// Maximum number of tasks to search for a cycle.
const CYCLE_TASKS_MAX: usize = 10_000;
/// Maximum number of calls of a cycle to name.
const CYCLE_NAMED_MAX: usize = 8;

impl Node {
    /// The waits of this node and of those that were asked.
    pub(super) fn wait_graph(&self) -> Graph {
        let own = self.waits();
        Graph::of(self.cluster.told_waits.values().chain([&own]))
    }

    /// The cycle that a call waits for, in words.
    pub(super) fn explain_cycle(call: TaskId, graph: &Graph) -> Option<String> {
        let cycle = graph.find_cycle(call)?;
        let step = |task: &TaskId| match graph.actor(*task) {
            Some(actor) => format!("`{}` of {actor}", graph.name(*task)),
            None => format!("`{}`", graph.name(*task)),
        };
        let mut lines: Vec<String> = cycle.iter().take(CYCLE_NAMED_MAX).map(step).collect();
        if cycle.len() > CYCLE_NAMED_MAX {
            lines.push(format!("{} more", cycle.len() - CYCLE_NAMED_MAX));
        }
        let ends = match cycle.as_slice() {
            [outer, inner] if graph.actor(*outer) == graph.actor(*inner) => {
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

    /// The tasks and processes that wait on this node.
    pub(super) fn waits(&self) -> Waits {
        let mut tasks: BTreeMap<TaskId, OpenTask> = BTreeMap::new();
        let open = |task| OpenTask { task, submission: None, run: None };
        for (task, process) in self.cluster.guests.running() {
            let run = Some(Run { process, is_blocked: self.is_blocked(process) });
            tasks.insert(task, OpenTask { run, ..open(task) });
        }
        let runs = |parent: TaskId| {
            let here = self.ledger.task(parent).is_some_and(|entry| matches!(entry.state, TaskState::Running { .. }));
            here || tasks.contains_key(&parent)
        };
        for task in self.ledger.open(CYCLE_TASKS_MAX, runs) {
            let Some(entry) = self.ledger.task(task) else { continue };
            let found = tasks.entry(task).or_insert_with(|| open(task));
            if let TaskState::Running { worker, .. } = entry.state
                && worker.node == self.config.id
            {
                found.run = Some(Run { process: worker, is_blocked: self.is_blocked(worker) });
            }
            found.submission = entry.spec.as_ref().map(|spec| {
                let work = match spec.kind {
                    TaskKind::Plain => Work::Plain,
                    TaskKind::Create(_) => Work::Create,
                    TaskKind::Call { actor, .. } => Work::Call(actor),
                };
                Submission { parent: spec.parent, name: entry.name().to_owned(), work }
            });
        }
        let alive = self.actors.all.iter().filter_map(|(actor, entry)| match entry.state {
            ActorState::Alive { process } => Some((*actor, process)),
            _ => None,
        });
        Waits { tasks: tasks.into_values().collect(), actors: alive.collect(), memory: self.memory_waits.clone() }
    }

    /// Whether what runs in a process waits. One that runs several calls at once never says so.
    fn is_blocked(&self, process: ProcessId) -> bool {
        self.pool.workers.get(&process).is_some_and(|worker| {
            let mut leases = worker.leases.iter().filter_map(|id| self.leases.get(id));
            worker.actor_blocked || leases.any(|lease| lease.blocked)
        })
    }

    /// Explains that a task waits for memory in its process.
    pub(super) fn explain_memory(&self, task: TaskId, process: ProcessId) -> Option<String> {
        let function = self.ledger.task(task).and_then(|entry| entry.spec.as_ref()).map(|spec| spec.function);
        let told = self.cluster.told_waits.values().flat_map(|waits| &waits.memory);
        let concerns = |wait: &&MemoryWait| {
            let other = matches!(wait.need, MemoryNeed::Start(of) if function.is_some_and(|function| function != of));
            wait.process == process && !other
        };
        let wait = self.memory_waits.iter().chain(told).find(concerns)?;
        Some(format!("it waits for memory: {wait}"))
    }
}
