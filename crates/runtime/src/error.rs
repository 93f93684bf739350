//! What can go wrong for a caller of the runtime.

use std::sync::Arc;
use std::time::Duration;

use bireme_core::collective::Trouble;
use bireme_core::failure::Failure;
use bireme_core::id::{ActorId, ObjectId};
use bireme_core::resources::BadAmount;

use crate::settings::SettingsError;

/// An error of the runtime, as both front ends show it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object has no value: its task failed, was cancelled, or was lost.
    #[error("{0}")]
    Failed(Arc<Failure>),
    /// The value did not come in time; `waiting_for` says what it waits for.
    #[error("{object} was not ready after {waited:?}: {waiting_for}")]
    Timeout {
        /// Which object.
        object: ObjectId,
        /// How long the caller waited.
        waited: Duration,
        /// What the object waits for.
        waiting_for: String,
    },
    /// The runtime is not there: never started, or shut down.
    #[error("the runtime is not running ({0}); call `bireme::init()` first")]
    NotRunning(&'static str),
    /// `init` was called twice.
    #[error("the runtime is running already; call `shutdown` before another `init`")]
    AlreadyRunning,
    /// `init` was called while a runtime with another configuration runs.
    #[error(
        "the runtime is running already with another configuration: {0}; ask for the same, or call `shutdown` before"
    )]
    OtherConfig(String),
    /// `init` was called by a task or actor.
    #[error("a task or actor has the runtime of its program; leave `init` to that program")]
    InWorker,
    /// Two remote functions of this program cannot be told apart.
    #[error(
        "two remote functions have the same key, so that a task could run the wrong one: {one}, and {two}; give one of them \
         another name"
    )]
    DuplicateFunction {
        /// One of them, with its place.
        one: String,
        /// The other.
        two: String,
    },
    /// This code is in a shared library, and the program that has loaded it cannot be a worker.
    #[error(
        "bireme is linked into a shared library: workers are the program itself, started again, and {program} would run its \
         own `main` instead; link bireme into the executable, or load the library from Python with the `bireme` package"
    )]
    InSharedLibrary {
        /// The program that has loaded it.
        program: String,
    },
    /// This process is a fork of one with a runtime, which has none of its threads and links.
    #[error(
        "this process was forked from a driver or worker and cannot use its runtime; start tasks instead of processes, or \
         call `init` in a fresh process (multiprocessing: start method \"spawn\")"
    )]
    Forked,
    /// A signal ended the wait of a thread that can be interrupted.
    #[error("the wait was interrupted by a signal; what was waited for goes on")]
    Interrupted,
    /// An amount of a resource makes no sense.
    #[error(transparent)]
    BadAmount(#[from] BadAmount),
    /// An argument of the call makes no sense.
    #[error("{0}")]
    BadArgument(String),
    /// An object can never fit, or there is no room and nothing can be spilled.
    #[error("{0}")]
    StoreFull(String),
    /// Too many calls of this actor wait.
    #[error("{actor} has {pending} calls pending, which is its limit; wait for some of them")]
    PendingCallsLimit {
        /// Which actor.
        actor: ActorId,
        /// How many wait.
        pending: usize,
    },
    /// A value could not be encoded or decoded.
    #[error("a value of type {type_name} cannot be {action}: {reason}")]
    Codec {
        /// The Rust type.
        type_name: &'static str,
        /// "encoded" or "decoded".
        action: &'static str,
        /// The codec's words.
        reason: String,
    },
    /// A value of another type was there.
    #[error("expected a value of type {expected}, found one of type {found}")]
    TypeMismatch {
        /// What the reader wanted.
        expected: String,
        /// What was there.
        found: String,
    },
    /// No actor has this name.
    #[error("there is no actor named {0:?}")]
    NoSuchActor(String),
    /// No placement group has this name.
    #[error("there is no placement group named {0:?}")]
    NoSuchGroup(String),
    /// A setting cannot be used, or there is no node where one was looked for.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The node does not take this program as a driver.
    #[error("the node refused this program: {0}")]
    Refused(String),
    /// The node that this program was attached to is gone.
    #[error(
        "the node of this program is gone: {0}; what it held is lost, call `shutdown` and `init` to go on with another"
    )]
    NodeGone(String),
    /// A call of a collective group has no result.
    #[error("{0}")]
    Collective(Arc<Trouble>),
    /// The operating system said no.
    #[error("{what}: {reason}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        reason: String,
    },
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        Error::Collective(Arc::new(trouble))
    }
}

impl Error {
    /// The failure behind this error, when an object has one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Error::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}
