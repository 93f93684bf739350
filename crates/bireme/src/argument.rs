//! Arguments of remote calls: how they are given, how they travel, how the worker reads them.
//!
//! The payload of a task is one entry per argument: a tag, then
//! - `VALUE`: the value in the plain encoding;
//! - `DESCRIBED`: the value in the self-describing one;
//! - `REFERENCE`: nothing, the value is the next of the task's dependencies;
//! - `RAW`: a u32 length and the bytes of an object (small bytes and arrays).
//!
//! Values that would make the payload large are put into the store and travel as dependencies.

use bireme_runtime::core::shared::Shared;
use bireme_runtime::core::spec::ARGUMENT_REFS_MAX;
use bireme_runtime::core::value::{INLINE_BYTES_MAX, RefSpec};
use bireme_runtime::{Encoded, Fetched, Invocation, Ref};

use crate::codec::{Encoding, Form};
use crate::{Error, ObjectRef, Result, Value, codec, context, scope};

const VALUE: u8 = 0;
const REFERENCE: u8 = 1;
const RAW: u8 = 2;
const DESCRIBED: u8 = 3;
/// First allocation for a payload: most are smaller.
const SMALL_PAYLOAD_BYTES: usize = 64;

/// One argument of a remote call: a value, or a reference to one.
#[derive(Debug)]
pub enum Arg<T> {
    /// Travels with the call.
    Value(T),
    /// Resolved before the call starts.
    Ref(ObjectRef<T>),
}

/// What can be given where a remote function takes a `T`: a `T`, an [`ObjectRef<T>`], or a `&ObjectRef<T>`.
///
/// ```
/// #[bireme::remote]
/// fn shout(text: String) -> String {
///     text.to_uppercase()
/// }
///
/// let _context = bireme::init()?;
/// let once = shout::remote("row");
/// let twice = shout::remote(&once);
/// assert_eq!(twice.get()?, "ROW");
/// # Ok::<(), bireme::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "this argument is a `{T}`, but `{Self}` was given",
    label = "expected `{T}`, `ObjectRef<{T}>` or `&ObjectRef<{T}>`"
)]
pub trait IntoArg<T> {
    /// The argument.
    fn into_arg(self) -> Arg<T>;
}

impl<T> IntoArg<T> for T {
    fn into_arg(self) -> Arg<T> {
        Arg::Value(self)
    }
}

impl<T> IntoArg<T> for ObjectRef<T> {
    fn into_arg(self) -> Arg<T> {
        Arg::Ref(self)
    }
}

impl<T> IntoArg<T> for &ObjectRef<T> {
    fn into_arg(self) -> Arg<T> {
        Arg::Ref(self.clone())
    }
}

impl IntoArg<String> for &str {
    fn into_arg(self) -> Arg<String> {
        Arg::Value(self.to_owned())
    }
}

/// Arguments on their way out.
#[derive(Default)]
pub struct Arguments {
    pub(crate) payload: Vec<u8>,
    pub(crate) dependencies: Vec<Ref>,
    pub(crate) nested: Vec<RefSpec>,
    pub(crate) keep: Vec<Ref>,
    error: Option<Error>,
}

impl Arguments {
    /// The next argument. An error is kept until the call is submitted.
    #[must_use]
    pub fn with<T: Value>(mut self, argument: impl IntoArg<T>) -> Self {
        if self.error.is_none() {
            self.error = self.push(argument.into_arg()).err();
        }
        self
    }

    /// The arguments, when all could be encoded.
    pub(crate) fn finish(self) -> Result<Self> {
        match self.error {
            Some(error) => Err(error),
            None if self.dependencies.len() + self.nested.len() > ARGUMENT_REFS_MAX => {
                let given = self.dependencies.len() + self.nested.len();
                Err(Error::BadArgument(format!(
                    "a task takes at most {ARGUMENT_REFS_MAX} references, {given} were given; put some into an object"
                )))
            }
            None => Ok(self),
        }
    }

    fn push<T: Value>(&mut self, argument: Arg<T>) -> Result<()> {
        let value = match argument {
            Arg::Value(value) => value,
            Arg::Ref(reference) => {
                self.payload.push(REFERENCE);
                self.dependencies.push(reference.reference()?.clone());
                return Ok(());
            }
        };
        match codec::form(value)? {
            Form::Raw(encoded) => self.push_raw(encoded),
            Form::Serde(value) => self.push_value(&value),
        }
    }

    fn push_raw(&mut self, encoded: Encoded) -> Result<()> {
        if self.payload.len() + encoded.len() >= INLINE_BYTES_MAX {
            return self.push_stored(encoded);
        }
        self.payload.reserve(1 + size_of::<u32>() + encoded.len());
        self.payload.push(RAW);
        self.payload.extend_from_slice(&(encoded.len() as u32).to_le_bytes());
        encoded.parts().for_each(|part| self.payload.extend_from_slice(part));
        Ok(())
    }

    fn push_value<T: Value>(&mut self, value: &T) -> Result<()> {
        if self.payload.is_empty() {
            self.payload.reserve(SMALL_PAYLOAD_BYTES);
        }
        let start = self.payload.len();
        self.payload.push(VALUE);
        let (encoding, scope::Collected { nested, keep, .. }) = codec::append(value, &mut self.payload)?;
        if encoding == Encoding::Described {
            self.payload[start] = DESCRIBED;
        }
        if self.payload.len() < INLINE_BYTES_MAX {
            self.nested.extend(nested);
            self.keep.extend(keep);
            return Ok(());
        }
        let mut head = Vec::with_capacity(self.payload.len() - start + 16);
        codec::start_object::<T>(&mut head, encoding);
        head.extend_from_slice(&self.payload[start + 1..]);
        self.payload.truncate(start);
        // `keep` lives until the put is done: from then on the object keeps what is inside it.
        self.push_stored(Encoded { head, nested, ..Encoded::default() })
    }

    fn push_stored(&mut self, encoded: Encoded) -> Result<()> {
        let reference = context::runtime()?.put(encoded)?;
        self.payload.push(REFERENCE);
        self.dependencies.push(reference);
        Ok(())
    }
}

/// Arguments as the worker reads them, in the same order.
pub struct Inputs<'a> {
    payload: &'a Shared,
    rest: &'a [u8],
    resolved: std::vec::IntoIter<Fetched>,
}

impl<'a> Inputs<'a> {
    /// The arguments of this call.
    pub fn of(call: &mut Invocation<'a>) -> Self {
        Self {
            payload: &call.spec.payload,
            rest: call.payload,
            resolved: std::mem::take(&mut call.resolved).into_iter(),
        }
    }

    /// The next argument.
    pub fn take<T: Value>(&mut self) -> Result<T> {
        let short = || codec::cannot::<T>("decoded", &"the task has fewer arguments than the function");
        let (tag, rest) = self.rest.split_first().ok_or_else(short)?;
        self.rest = rest;
        match *tag {
            VALUE | DESCRIBED => {
                let encoding = if *tag == VALUE { Encoding::Plain } else { Encoding::Described };
                let (value, rest) = codec::take(rest, encoding)?;
                self.rest = rest;
                Ok(value)
            }
            REFERENCE => codec::unpack(&self.resolved.next().ok_or_else(short)?),
            RAW => {
                let (len, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
                let len = u32::from_le_bytes(*len) as usize;
                let (object, rest) = rest.split_at_checked(len).ok_or_else(short)?;
                self.rest = rest;
                let end = self.payload.len() - rest.len();
                codec::unpack(&Fetched::Inline(self.payload.part(end - object.len()..end)))
            }
            _ => Err(codec::cannot::<T>("decoded", &"the argument's encoding is unknown")),
        }
    }
}
