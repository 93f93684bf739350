//! Remote functions as the worker sees them: a table from keys to code, filled before `main`.
//!
//! The front end's macros submit one [`Function`] per remote function, constructor and method. A worker looks the key of
//! a task up and calls `run` with an [`Invocation`], which hands over the arguments and takes the results.

use std::any::Any;
use std::collections::HashMap;
use std::sync::OnceLock;

use bireme_core::failure::Failure;
use bireme_core::id::{FunctionKey, TaskId};
use bireme_core::value::RefSpec;

use crate::fetched::Fetched;

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
}

/// A value on its way into an object: a small head, and a body that is copied straight into the store when it is large.
#[derive(Default)]
pub struct Encoded {
    /// First bytes.
    pub head: Vec<u8>,
    /// The bytes after them, borrowed from wherever they are.
    pub body: Option<Box<dyn AsRef<[u8]> + Send>>,
    /// References inside.
    pub nested: Vec<RefSpec>,
}

impl Encoded {
    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.head.len() + self.body().len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The body's bytes; empty when there is none.
    pub fn body(&self) -> &[u8] {
        self.body.as_ref().map_or(&[], |body| (**body).as_ref())
    }
}

/// One run of a function: what goes in, and where the results go.
pub struct Invocation<'a> {
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
    /// The actor's state: taken out by a method, put in by a constructor.
    pub actor: &'a mut Option<Box<dyn Any + Send>>,
    /// Results, in order.
    pub outputs: Vec<Encoded>,
}
