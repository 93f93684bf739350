//! Remote functions as the worker sees them: a table from keys to code, filled before `main`.
//!
//! The front end's macros submit one [`Function`] per remote function, constructor and method. A worker looks the key of
//! a task up and calls `run` with an [`Invocation`], which hands over the arguments and takes the results.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bireme_core::failure::Failure;
use bireme_core::id::{FunctionKey, TaskId};
use bireme_core::spec::TaskSpec;
use bireme_core::value::RefSpec;

use crate::fetched::Fetched;
use crate::streams;
use crate::ticket::Deferral;

/// A function that can run in a worker.
pub struct Function {
    /// Path, argument types and result type: what its key is the hash of.
    pub signature: &'static str,
    /// Short name for people.
    pub name: &'static str,
    /// Decodes the arguments, runs the user's code, encodes the results.
    pub run: fn(&mut Invocation<'_>) -> Result<(), Failure>,
}

inventory::collect!(Function);

impl Function {
    /// The key that a task carries.
    pub const fn key(&self) -> FunctionKey {
        FunctionKey::of(self.signature)
    }

    /// The function with this key, when this executable has it.
    pub fn find(key: FunctionKey) -> Option<&'static Function> {
        static TABLE: OnceLock<HashMap<FunctionKey, &'static Function>> = OnceLock::new();
        let table = TABLE.get_or_init(|| inventory::iter::<Function>.into_iter().map(|f| (f.key(), f)).collect());
        table.get(&key).copied()
    }

    /// All functions of this executable or library.
    pub fn all() -> impl Iterator<Item = &'static Function> {
        inventory::iter::<Function>.into_iter()
    }

    /// Its path: crate, modules and name.
    pub fn path(&self) -> &'static str {
        self.signature.split_once('(').map_or(self.signature, |(path, _)| path)
    }
}

/// A piece of a value, borrowed from wherever it is until it is copied into the store.
pub type Part = Box<dyn AsRef<[u8]> + Send>;

/// A value on its way into an object: a small head, and a body that is copied straight into the store when it is large.
#[derive(Default)]
pub struct Encoded {
    /// First bytes.
    pub head: Vec<u8>,
    /// The bytes after them, borrowed from wherever they are.
    pub body: Option<Part>,
    /// Further pieces, one after the other.
    pub tail: Vec<Part>,
    /// References inside.
    pub nested: Vec<RefSpec>,
}

impl Encoded {
    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.parts().map(<[u8]>::len).sum()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All pieces in order, the head first.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let rest = self.body.iter().chain(&self.tail).map(|part| (**part).as_ref());
        std::iter::once(self.head.as_slice()).chain(rest)
    }
}

/// What runs functions that are not in this executable: the interpreter of another language inside the worker.
pub trait Interpreter: Sync {
    /// Runs everything that one executor thread does, with the thread known to the interpreter. `body` begins and ends
    /// outside of the interpreter's lock.
    fn on_thread(&self, body: &mut dyn FnMut());

    /// Runs one task, constructor or call.
    fn run(&self, invocation: &mut Invocation<'_>) -> Result<(), Failure>;

    /// The process ends in good order: the last that the user's code may do. On a thread of its own, once; the node kills
    /// the process when it takes longer than `LAST_CODE_GRACE_US`.
    fn before_exit(&self) {}
}

static INTERPRETER: OnceLock<&'static dyn Interpreter> = OnceLock::new();

/// Sets the interpreter of this process; the first one counts. To be called before the worker begins.
pub fn set_interpreter(interpreter: &'static dyn Interpreter) {
    // The first one counts.
    let _ = INTERPRETER.set(interpreter);
}

/// The interpreter of this process.
pub(crate) fn interpreter() -> Option<&'static dyn Interpreter> {
    INTERPRETER.get().copied()
}

/// One run of a function: what goes in, and where the results go.
pub struct Invocation<'a> {
    /// The task as it was submitted.
    pub spec: &'a Arc<TaskSpec>,
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: &'a str,
    /// Arguments in the front end's encoding.
    pub payload: &'a [u8],
    /// Values of the arguments by reference, in order.
    pub resolved: Vec<Fetched>,
    /// How many results the caller expects.
    pub returns: u32,
    /// The actor's state: taken out by a method, put in by a constructor. Of an actor that runs several calls at once
    /// the interpreter keeps the state itself: here only one call at a time would find it.
    pub actor: &'a mut Option<Box<dyn Any + Send>>,
    /// Results, in order.
    pub outputs: Vec<Encoded>,
    pub(crate) deferral: Deferral<'a>,
}

impl Invocation<'_> {
    /// Gives the next item of a stream to who reads it, and waits while that one is too far behind. The item is on its
    /// way when this returns, whatever it returns. A task that is told `Cancelled` has nobody to yield to and should
    /// end with that failure.
    pub fn yield_item(&mut self, item: Encoded) -> Result<(), Failure> {
        streams::yield_item(self.deferral.process, self.task, item)?;
        streams::wait_for_room(self.deferral.process, self.task)
    }
}
