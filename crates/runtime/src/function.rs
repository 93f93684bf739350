//! Remote functions as the worker sees them: a table from keys to code, filled before `main`.
//!
//! The front end's macros submit one [`Function`] per remote function, constructor and method. A worker looks the key of
//! a task up and calls `run` with an [`Invocation`], which hands over the arguments and takes the results.
//!
//! A key is made of the signature and of a type that stands for the function alone ([`Identity`]): neither its path nor its
//! place is enough, since functions in two bodies may have the same path, and all that one macro call generates has one
//! place. Driver and workers are one executable, so keys are the same in all of them.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use bireme_core::failure::Failure;
use bireme_core::id::{FunctionKey, TaskId, digest};
use bireme_core::spec::TaskSpec;
use bireme_core::value::RefSpec;

use crate::error::Error;
use crate::fetched::Fetched;
use crate::streams;
use crate::ticket::Deferral;

/// The identity of a remote function.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    signature: FunctionKey,
    item: TypeId,
}

impl Identity {
    /// The function with this signature. `item` is a type that was made for it, or for the actor whose method it is: no two
    /// functions have both in common.
    pub const fn new(signature: &str, item: TypeId) -> Self {
        Self { signature: FunctionKey::of(signature), item }
    }

    /// The key that a task carries.
    pub fn key(&self) -> FunctionKey {
        let mut sum = Sum(self.signature.0);
        self.item.hash(&mut sum);
        FunctionKey(sum.0)
    }
}

/// A hash that is the same in every process.
struct Sum(u64);

impl Hasher for Sum {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = digest(bytes) ^ self.0.rotate_left(31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A function that can run in a worker.
pub struct Function {
    /// The text that its key is made of.
    pub identity: Identity,
    /// Path, argument types and result type.
    pub signature: &'static str,
    /// File, line and column, for people.
    pub place: &'static str,
    /// Short name for people.
    pub name: &'static str,
    /// Decodes the arguments, runs the user's code, encodes the results.
    pub run: fn(&mut Invocation<'_>) -> Result<(), Failure>,
}

inventory::collect!(Function);

type Table = HashMap<FunctionKey, &'static Function>;

impl Function {
    /// A function that no macro has made, known by its signature alone.
    pub const fn by_hand(signature: &'static str, run: fn(&mut Invocation<'_>) -> Result<(), Failure>) -> Self {
        let identity = Identity::new(signature, TypeId::of::<()>());
        Self { identity, signature, place: "no place", name: signature, run }
    }

    /// The key that a task carries.
    pub fn key(&self) -> FunctionKey {
        self.identity.key()
    }

    /// The function with this key, when this executable has it, and has it once.
    pub fn find(key: FunctionKey) -> Option<&'static Function> {
        Self::table().as_ref().ok()?.get(&key).copied()
    }

    /// Refuses an executable in which two functions have one key: a task could run the wrong one.
    pub(crate) fn check_all() -> Result<(), Error> {
        Self::table().as_ref().map(|_| ()).map_err(Clone::clone)
    }

    fn table() -> &'static Result<Table, Error> {
        static TABLE: OnceLock<Result<Table, Error>> = OnceLock::new();
        TABLE.get_or_init(|| tabulate(Self::all()))
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

fn tabulate(functions: impl Iterator<Item = &'static Function>) -> Result<Table, Error> {
    let mut table = Table::new();
    for function in functions {
        if let Some(other) = table.insert(function.key(), function) {
            let shown = |function: &Function| format!("{} at {}", function.signature, function.place);
            let (one, two) = (shown(other), shown(function));
            return Err(Error::DuplicateFunction { one, two });
        }
    }
    Ok(table)
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    enum One {}
    enum Two {}

    const fn function<T: 'static>(signature: &'static str, place: &'static str) -> Function {
        Function { identity: Identity::new(signature, TypeId::of::<T>()), signature, place, name: "f", run: |_| Ok(()) }
    }

    #[test]
    fn functions_with_one_signature_and_place_have_different_keys() {
        static ALL: [Function; 3] = [
            function::<One>("a::f()", "a.rs:1:1"),
            function::<Two>("a::f()", "a.rs:1:1"),
            function::<One>("a::g()", ""),
        ];
        let table = tabulate(ALL.iter()).unwrap();
        assert_eq!(table.len(), ALL.len());
        assert!(ALL.iter().all(|function| std::ptr::eq(table[&function.key()], function)));
    }

    #[test]
    fn two_functions_with_one_key_are_refused_by_name() {
        static ALL: [Function; 2] = [function::<One>("a::f()", "a.rs:1:1"), function::<One>("a::f()", "b.rs:2:2")];
        let refused = tabulate(ALL.iter()).err().unwrap().to_string();
        assert!(refused.contains("a::f() at a.rs:1:1") && refused.contains("a::f() at b.rs:2:2"), "{refused}");
    }
}
