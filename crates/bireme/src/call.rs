//! Calls: what the generated code uses to submit them and, in the worker, to run them.

use std::any::type_name;
use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::OnceLock;

use bireme_runtime::core::failure::Failure;
use bireme_runtime::core::stream::Stream;
use bireme_runtime::{Identity, Invocation, Ref, Submit, Target};

use crate::argument::Arguments;
use crate::options::{Chosen, Defaults, Options};
use crate::{Error, ObjectRef, ObjectRefStream, Result, Value, codec, context};

/// A remote function, constructor or method at the caller's side.
pub struct Site {
    identity: Identity,
    returns: u32,
    defaults: Defaults,
    chosen: OnceLock<Result<Chosen>>,
}

impl Site {
    /// What the macros know of a function.
    pub const fn new(identity: Identity, returns: u32, defaults: Defaults) -> Self {
        Self { identity, returns, defaults, chosen: OnceLock::new() }
    }

    /// Options to choose from, starting with the attribute's.
    pub fn options(&self) -> Options {
        Options::of(&self.defaults)
    }

    /// The attribute's options; made once, shared by all calls without options.
    pub(crate) fn chosen(&self) -> Result<&Chosen> {
        self.chosen.get_or_init(|| self.options().finish()).as_ref().map_err(Clone::clone)
    }

    /// Submits a task. `None` stands for the attribute's options.
    pub fn submit(&self, options: Option<Options>, arguments: Arguments) -> Result<Vec<Ref>> {
        let (options, stream, inherits) = match options {
            None => {
                let chosen = self.chosen()?;
                (chosen.task.clone(), chosen.stream, chosen.inherits)
            }
            Some(options) => {
                let chosen = options.finish()?;
                (chosen.task, chosen.stream, chosen.inherits)
            }
        };
        self.send(options, stream, (Target::Plain, inherits), arguments)
    }

    pub(crate) fn send(
        &self,
        options: std::sync::Arc<bireme_runtime::core::spec::TaskOptions>,
        stream: Option<Stream>,
        (target, inherits): (Target, bool),
        arguments: Arguments,
    ) -> Result<Vec<Ref>> {
        let Arguments { payload, dependencies, nested, keep, .. } = arguments.finish()?;
        context::runtime()?.submit(Submit {
            function: self.identity.key(),
            options,
            returns: self.returns,
            target,
            stream,
            dependencies,
            nested,
            payload,
            keep,
            inherits,
        })
    }
}

/// The results of one submit, handed out in order with their types.
pub struct Results(Result<std::vec::IntoIter<Ref>>);

impl Results {
    /// The references of a submit that may have failed.
    pub fn of(submitted: Result<Vec<Ref>>) -> Self {
        Self(submitted.map(Vec::into_iter))
    }

    /// The next result; without an object when the submission was refused.
    pub fn take<T>(&mut self) -> ObjectRef<T> {
        match &mut self.0 {
            Ok(references) => match references.next() {
                Some(reference) => ObjectRef::live(reference),
                None => ObjectRef::refused(Error::BadArgument("the runtime gave fewer results than asked".to_owned())),
            },
            Err(error) => ObjectRef::refused(error.clone()),
        }
    }

    /// The results of a task that gives them one by one.
    pub fn take_stream<T>(&mut self) -> ObjectRefStream<T> {
        ObjectRefStream::new(self.take())
    }
}

/// Hands a result over to the runtime.
pub fn give<T: Value>(call: &mut Invocation<'_>, value: T) -> std::result::Result<(), Failure> {
    let packed = codec::pack(value).map_err(|error| broken(call, error))?;
    call.outputs.push(packed.into_kept());
    Ok(())
}

/// The failure for an `Err` that the user's function returned.
pub fn returned<E: Display>(call: &Invocation<'_>, error: &E) -> Failure {
    Failure::Returned {
        task: call.task,
        name: call.name.to_owned(),
        type_name: type_name::<E>().to_owned(),
        message: error.to_string(),
    }
}

/// The failure for arguments or results that could not be decoded or encoded.
pub fn broken(call: &Invocation<'_>, error: Error) -> Failure {
    match error {
        Error::TypeMismatch { expected, found } => Failure::TypeMismatch { expected, found },
        Error::Failed(failure) => (*failure).clone(),
        error => Failure::NotPassed { task: call.task, name: call.name.to_owned(), reason: error.to_string() },
    }
}

/// An error that a function can return.
#[diagnostic::on_unimplemented(
    message = "the error `{Self}` cannot be told to the caller: it does not implement `std::fmt::Display`"
)]
pub trait Tellable: Display {}

impl<E: Display> Tellable for E {}

/// The return value of a function, taken apart by its type, whatever the name of the type: `IS_RESULT` is [`Returned`]'s.
pub trait Outcome<const IS_RESULT: bool> {
    /// The type that the caller gets on success.
    type Value;

    /// The value, or the failure of the task.
    fn split(self, call: &Invocation<'_>) -> std::result::Result<Self::Value, Failure>;
}

impl<T> Outcome<false> for T {
    type Value = T;

    fn split(self, _: &Invocation<'_>) -> std::result::Result<T, Failure> {
        Ok(self)
    }
}

impl<T, E: Tellable> Outcome<true> for std::result::Result<T, E> {
    type Value = T;

    fn split(self, call: &Invocation<'_>) -> std::result::Result<T, Failure> {
        self.map_err(|error| returned(call, &error))
    }
}

/// Says whether a type is a `Result`: then it has the constant itself, else from [`NoResult`], which counts for less.
pub struct Returned<T>(PhantomData<T>);

impl<T, E> Returned<std::result::Result<T, E>> {
    /// It is one.
    pub const IS_RESULT: bool = true;
}

/// The constant of all other types.
pub trait NoResult {
    /// It is none.
    const IS_RESULT: bool = false;
}

impl<T> NoResult for Returned<T> {}
