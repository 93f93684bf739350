//! Why an object has no value: what happened, to what, and what can be done.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{ActorId, GroupId, NodeId, ObjectId, ProcessId, TaskId};

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// The process.
    pub process: ProcessId,
    /// Its system process id.
    pub pid: u32,
    /// How.
    pub cause: DeathCause,
    /// The last lines that it wrote to standard error.
    pub stderr_tail: String,
    /// The most memory that it had at one time; 0 when unknown.
    pub memory_peak_bytes: u64,
    /// The task for whose sake the node ended it (a forced cancel); other tasks there are not to blame.
    pub culprit: Option<TaskId>,
}

impl Death {
    /// Who ended, and how.
    pub fn in_words(&self) -> String {
        let Self { process, pid, cause, .. } = self;
        // Whoever heard of it from others, or before it had begun, knows no pid.
        if *pid == 0 { format!("{process} {cause}") } else { format!("{process} (pid {pid}) {cause}") }
    }
}

/// The causes of a process's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeathCause {
    /// It called exit.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// The kernel ended it because memory ran out.
    OutOfMemory,
    /// The node ended it, and why.
    Ended(String),
    /// It wrote something to a ring that no sound process writes.
    Corrupt(String),
    /// An actor's: a call was lost on its way to it, so that those behind it must not run.
    CallLost {
        /// Whose.
        caller: ProcessId,
        /// The first that is missing, counted by its caller.
        expected: u64,
        /// The one that came in its place.
        came: u64,
    },
    /// It could not be started.
    NotStarted(String),
    /// It went with its node.
    NodeDied(String),
    /// An actor's: it left this node, which is being drained, with nothing running in it, to be started on another.
    Moved(NodeId),
    /// It is not the node's child, and how it went.
    Left(String),
    /// The node ended it because memory ran short and it had most of it.
    MemoryPressure {
        /// Bytes that it had.
        used: u64,
        /// Bytes that there are.
        limit: u64,
        /// Bytes of these that were in use.
        node_used: u64,
    },
}

impl fmt::Display for DeathCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeathCause::Exited(code) => write!(f, "exited with code {code}"),
            DeathCause::Signalled(signal) => write!(f, "killed by signal {signal} ({})", signal_name(*signal)),
            DeathCause::OutOfMemory => {
                write!(f, "killed by the kernel because memory ran out; ask for less or declare `memory`")
            }
            DeathCause::Ended(why) => write!(f, "ended by its node: {why}"),
            DeathCause::Corrupt(why) => write!(f, "dropped because its messages were corrupt: {why}"),
            DeathCause::CallLost { caller, expected, came } => write!(
                f,
                "ended because message {expected} of {caller} with a call never came and message {came} did; \
                 this is a bug of bireme, please report it"
            ),
            DeathCause::NotStarted(why) => write!(f, "could not be started: {why}"),
            DeathCause::NodeDied(why) => write!(f, "went with its node: {why}"),
            DeathCause::Moved(node) => write!(f, "left {node}, which is being drained, for another node"),
            DeathCause::Left(how) => write!(f, "{how}"),
            DeathCause::MemoryPressure { used, limit, node_used } => {
                let (used, limit, node_used) = (used >> 20, limit >> 20, node_used >> 20);
                write!(
                    f,
                    "ended by its node because memory ran short: it had {used} MiB, and {node_used} of {limit} MiB "
                )?;
                write!(f, "were in use; use less at a time, or declare `memory` so that fewer run at once")
            }
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words())?;
        if self.memory_peak_bytes > 0 {
            write!(f, " (it had {} MiB of memory at most)", self.memory_peak_bytes >> 20)?;
        }
        if !self.stderr_tail.is_empty() {
            write!(f, "; last lines on its standard error:\n{}", self.stderr_tail.trim_end())?;
        }
        Ok(())
    }
}

/// The usual name of a signal number.
pub fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => "signal",
    }
}

/// An exception of an interpreted language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// The task.
    pub task: TaskId,
    /// The function's name.
    pub name: String,
    /// The exception's type and the types that it derives from, most special first.
    pub type_names: Vec<String>,
    /// The exception's text.
    pub message: String,
    /// Where it was raised, in the words of the language.
    pub traceback: String,
    /// The process that ran the task.
    pub pid: u32,
    /// The exception itself, in the front end's encoding; empty when it could not be encoded.
    pub exception: Vec<u8>,
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// The user's function returned an error.
    Returned {
        /// The task.
        task: TaskId,
        /// The function's name.
        name: String,
        /// The error's type.
        type_name: String,
        /// The error's text.
        message: String,
    },
    /// The user's function raised an exception of an interpreted language.
    Raised(Box<Raised>),
    /// The user's function panicked.
    Panicked {
        /// The task.
        task: TaskId,
        /// The function's name.
        name: String,
        /// The panic's text.
        message: String,
        /// File, line and column.
        location: String,
    },
    /// The worker that ran the task died, and there are no retries left.
    WorkerDied {
        /// The task.
        task: TaskId,
        /// The function's name.
        name: String,
        /// How it died.
        death: Box<Death>,
        /// How often the task was run.
        attempts: u32,
    },
    /// The task was cancelled.
    Cancelled {
        /// The task.
        task: TaskId,
    },
    /// The actor is gone.
    ActorDied {
        /// The actor.
        actor: ActorId,
        /// Why.
        reason: String,
    },
    /// The owner of the object died before the object had a value, and nobody will make it again.
    OwnerDied {
        /// The object.
        object: ObjectId,
        /// Who owned it.
        owner: ProcessId,
    },
    /// The object was there and is not any more.
    ObjectLost {
        /// The object.
        object: ObjectId,
        /// Why.
        reason: String,
    },
    /// The task asks for more than the machine has.
    Infeasible {
        /// What was asked.
        asked: String,
        /// What there is.
        available: String,
    },
    /// Another actor has the name.
    NameTaken {
        /// The name.
        name: String,
        /// Who has it.
        holder: ActorId,
    },
    /// The worker does not know the function.
    UnknownFunction {
        /// The task.
        task: TaskId,
        /// The function's name.
        name: String,
    },
    /// Bytes of one type were read as another.
    TypeMismatch {
        /// What the reader wanted.
        expected: String,
        /// What was there.
        found: String,
    },
    /// A value could not be stored.
    StoreFull {
        /// The store's own words.
        reason: String,
    },
    /// The stream has no such item: it has ended.
    StreamEnded {
        /// The streaming task.
        task: TaskId,
        /// How many items there are.
        items: u32,
    },
    /// The runtime ended first.
    ShutDown,
    /// The placement group can never be placed.
    GroupUnplaceable {
        /// Which.
        group: GroupId,
        /// Why.
        reason: String,
    },
    /// The placement group was removed, or its creator is gone.
    GroupRemoved {
        /// Which.
        group: GroupId,
        /// By whom or why.
        reason: String,
    },
    /// A reduce could not be done.
    Reduce {
        /// Its result.
        object: ObjectId,
        /// Why, with the inputs that it is about.
        reason: String,
    },
    /// The arguments of a task could not be read, so that it did not run, or its results could not be written.
    NotPassed {
        /// The task.
        task: TaskId,
        /// The function's name.
        name: String,
        /// Which value, and why.
        reason: String,
    },
}

impl Failure {
    /// Whether a retry policy that lists error names or texts wants this failure tried again.
    pub fn matches(&self, wanted: &[String]) -> bool {
        let (type_name, message) = match self {
            Failure::Returned { type_name, message, .. } => (type_name.as_str(), message.as_str()),
            Failure::Raised(raised) => {
                return wanted.iter().any(|w| w == "*" || raised.type_names.iter().any(|name| name == w));
            }
            Failure::Panicked { message, .. } => ("panic", message.as_str()),
            Failure::WorkerDied { .. }
            | Failure::Cancelled { .. }
            | Failure::ActorDied { .. }
            | Failure::OwnerDied { .. }
            | Failure::ObjectLost { .. }
            | Failure::Infeasible { .. }
            | Failure::NameTaken { .. }
            | Failure::UnknownFunction { .. }
            | Failure::TypeMismatch { .. }
            | Failure::StoreFull { .. }
            | Failure::StreamEnded { .. }
            | Failure::GroupUnplaceable { .. }
            | Failure::GroupRemoved { .. }
            | Failure::Reduce { .. }
            | Failure::NotPassed { .. }
            | Failure::ShutDown => return false,
        };
        wanted
            .iter()
            .any(|w| w == "*" || type_name == w || type_name.ends_with(&format!("::{w}")) || message.contains(w))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Returned { task, name, type_name, message } => {
                write!(f, "{name} ({task}) returned an error: {message} [{type_name}]")
            }
            Failure::Raised(raised) => {
                let Raised { task, name, type_names, message, .. } = &**raised;
                let type_name = type_names.first().map_or("an exception", String::as_str);
                write!(f, "{name} ({task}) raised {type_name}: {message}")
            }
            Failure::Panicked { task, name, message, location } => {
                write!(f, "{name} ({task}) panicked at {location}: {message}")
            }
            Failure::WorkerDied { task, name, death, attempts } => {
                write!(f, "{name} ({task}) was lost after {attempts} attempts: {death}")
            }
            Failure::Cancelled { task } => write!(f, "{task} was cancelled"),
            Failure::ActorDied { actor, reason } => write!(f, "{actor} is dead: {reason}"),
            Failure::OwnerDied { object, owner } => {
                let node = owner.node;
                let place = if node == NodeId::ALONE { String::new() } else { format!(" on {node}") };
                write!(f, "{object} will never have a value: its owner {owner}{place} died before it was made")
            }
            Failure::ObjectLost { object, reason } => write!(f, "{object} is lost: {reason}"),
            Failure::Infeasible { asked, available } => {
                write!(f, "a task asks for {asked}, but there is only {available}; ask for less or start with more")
            }
            Failure::NameTaken { name, holder } => {
                let name = crate::names::in_words(name);
                write!(f, "the name {name} belongs to {holder}; choose another or find that one")
            }
            Failure::UnknownFunction { task, name } => {
                write!(f, "{name} ({task}) is not registered in the worker; is it the same executable?")
            }
            Failure::NotPassed { task, name, reason } => {
                write!(f, "values cannot be passed to or from {name} ({task}): {reason}")
            }
            Failure::TypeMismatch { expected, found } => {
                write!(f, "expected a value of type {expected}, found one of type {found}")
            }
            Failure::StoreFull { reason } => write!(f, "the value could not be stored: {reason}"),
            Failure::StreamEnded { task, items } => write!(f, "the stream of {task} ended after {items} items"),
            Failure::ShutDown => write!(f, "the runtime was shut down"),
            Failure::GroupUnplaceable { group, reason } => {
                write!(f, "{group} can never be placed: {reason}; ask for less in its bundles, or for another strategy")
            }
            Failure::GroupRemoved { group, reason } => {
                write!(f, "{group} is gone: {reason}; create a placement group anew for what is to run")
            }
            Failure::Reduce { object, reason } => write!(f, "the reduce that makes {object} failed: {reason}"),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_with_a_node_names_the_node() {
        let node = NodeId(3);
        let owner = ProcessId { node, slot: 2, incarnation: 1 };
        let task = TaskId::root(1, owner);
        let lost = Failure::OwnerDied { object: ObjectId::result(task, 0), owner }.to_string();
        assert!(lost.contains("its owner worker-2.1@3 on node-3 died"), "{lost}");
        let alone = Failure::OwnerDied { object: ObjectId::result(task, 0), owner: ProcessId::DRIVER }.to_string();
        assert!(!alone.contains("node"), "{alone}");
        let cause = DeathCause::NodeDied(format!("{node} was silent for 2 s"));
        let death =
            Death { process: owner, pid: 7, cause, stderr_tail: String::new(), memory_peak_bytes: 0, culprit: None };
        let failure = Failure::WorkerDied { task, name: "work".into(), death: Box::new(death), attempts: 1 };
        assert!(failure.to_string().contains("went with its node: node-3 was silent for 2 s"), "{failure}");
    }
}
