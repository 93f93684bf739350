//! The waiting tasks of a node, as nodes tell each other so that one of them can explain a task.
//!
//! A node does not know which result a task waits for, but it knows which tasks wait, what they have submitted, and which call
//! each actor runs. A chain of these that comes back to where it began does not go on unless one of them waits for something
//! else. A chain may span nodes: the node of a task's owner knows who submitted it, the node of its worker whether it runs
//! and waits. A [`Graph`] is made of what all of them told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{ActorId, FunctionKey, ProcessId, TaskId};

/// Tasks that a node tells another one about, those first that can be part of a cycle.
pub const WAITS_TASKS_MAX: usize = 2_000;

/// The kind of a task, as far as waiting is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// A task.
    Plain,
    /// A constructor.
    Create,
    /// A call of this actor.
    Call(ActorId),
}

/// A task as the node of its owner knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The task that submitted it.
    pub parent: TaskId,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub work: Work,
}

/// A task as the node of its worker knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The worker.
    pub process: ProcessId,
    /// Whether it waits for others.
    pub is_blocked: bool,
}

/// A task that has not ended: submitted on this node, running on it, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTask {
    /// Its id.
    pub task: TaskId,
    /// Its submission, on the node of its owner.
    pub submission: Option<Submission>,
    /// Its run, on the node of its worker.
    pub run: Option<Run>,
}

/// The reason why a process needs memory of the object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryNeed {
    /// The inputs and the output of a task of this function, which has not started.
    Start(FunctionKey),
    /// Objects that a task or program reads.
    Read,
    /// A new object.
    Create,
}

/// A process that waits for memory of the object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryWait {
    /// The process.
    pub process: ProcessId,
    /// The reason.
    pub need: MemoryNeed,
    /// Bytes that it needs together.
    pub bytes: u64,
    /// Requests that are served before it.
    pub ahead: u32,
    /// Bytes of the store in use.
    pub used: u64,
    /// Bytes of the store.
    pub capacity: u64,
}

impl fmt::Display for MemoryWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
        let (bytes, used, capacity) = (megabytes(self.bytes), megabytes(self.used), megabytes(self.capacity));
        match self.need {
            MemoryNeed::Start(_) => write!(f, "its inputs and its output need {bytes} together")?,
            MemoryNeed::Read => write!(f, "the objects that it reads need {bytes} together")?,
            MemoryNeed::Create => write!(f, "a new object needs {bytes}")?,
        }
        write!(f, ", and {used} of the {capacity} of the object store are in use")?;
        if self.ahead > 0 {
            write!(f, " ({} requests are served before it)", self.ahead)?;
        }
        Ok(())
    }
}

/// The tasks of one node that have not ended, and where actors are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// The tasks.
    pub tasks: Vec<OpenTask>,
    /// The processes of actors that this node manages or hosts.
    pub actors: Vec<(ActorId, ProcessId)>,
    /// The processes that wait for memory.
    pub memory: Vec<MemoryWait>,
}

impl Waits {
    /// Keeps at most [`WAITS_TASKS_MAX`] tasks: those that wait and their children before the rest.
    pub fn truncate(&mut self) {
        if self.tasks.len() <= WAITS_TASKS_MAX {
            return;
        }
        let waits = |task: &OpenTask| task.run.is_some_and(|run| run.is_blocked);
        let blocked: BTreeSet<TaskId> = self.tasks.iter().filter(|task| waits(task)).map(|task| task.task).collect();
        let linked = |task: &OpenTask| {
            waits(task) || task.submission.as_ref().is_some_and(|submission| blocked.contains(&submission.parent))
        };
        self.tasks.sort_by_key(|task| !linked(task));
        self.tasks.truncate(WAITS_TASKS_MAX);
    }
}

/// The waits of several nodes, as a graph of tasks.
#[derive(Debug, Default)]
pub struct Graph {
    submissions: BTreeMap<TaskId, Submission>,
    runs: BTreeMap<TaskId, Run>,
    children: BTreeMap<TaskId, Vec<TaskId>>,
    running_on: BTreeMap<ProcessId, Vec<TaskId>>,
    actors: BTreeMap<ActorId, ProcessId>,
}

impl Graph {
    /// The graph of what these nodes told.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a Waits>) -> Self {
        let mut graph = Self::default();
        for waits in nodes {
            graph.actors.extend(waits.actors.iter().copied());
            for OpenTask { task, submission, run } in &waits.tasks {
                if let Some(submission) = submission {
                    graph.children.entry(submission.parent).or_default().push(*task);
                    graph.submissions.insert(*task, submission.clone());
                }
                if let Some(run) = run {
                    graph.running_on.entry(run.process).or_default().push(*task);
                    graph.runs.insert(*task, *run);
                }
            }
        }
        graph
    }

    /// The run of a task, if it runs.
    pub fn run(&self, task: TaskId) -> Option<Run> {
        self.runs.get(&task).copied()
    }

    /// The actor that a task constructs or calls.
    pub fn actor(&self, task: TaskId) -> Option<ActorId> {
        match self.submissions.get(&task)?.work {
            Work::Plain => None,
            Work::Create => Some(ActorId(task)),
            Work::Call(actor) => Some(actor),
        }
    }

    /// The name of a task.
    pub fn name(&self, task: TaskId) -> &str {
        self.submissions.get(&task).map_or("?", |submission| &submission.name)
    }

    /// The tasks on a cycle that can be reached from a task, in order.
    pub fn find_cycle(&self, from: TaskId) -> Option<Vec<TaskId>> {
        let mut path: Vec<(TaskId, Vec<TaskId>)> = vec![(from, self.waits_for(from))];
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
                path.push((task, self.waits_for(task)));
            }
        }
        None
    }

    /// The tasks that a task may wait for: one that is blocked for what it has submitted, a call that is queued for the
    /// one that its actor runs.
    fn waits_for(&self, task: TaskId) -> Vec<TaskId> {
        let submission = self.submissions.get(&task).map(|submission| submission.work);
        let next = match (self.runs.get(&task), submission) {
            (Some(run), _) => self.children.get(&task).filter(|_| run.is_blocked),
            (None, Some(Work::Call(actor))) => self.actors.get(&actor).and_then(|process| self.running_on.get(process)),
            (None, _) => None,
        };
        next.cloned().unwrap_or_default()
    }
}
