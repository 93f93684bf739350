//! References to objects.
//!
//! An [`ObjectRef`] is a counted reference with a type. A submission that failed gives a reference without an object,
//! which holds the error and gives it to whoever asks: so `remote` needs no `?` and no error is lost.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bireme_runtime::core::id::{ObjectId, TaskId};
use bireme_runtime::core::value::RefSpec;
use bireme_runtime::{Ref, Runtime};
use serde::de::Visitor;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Error, Result, Value, codec, names, scope};

/// Bytes of where a reference comes from: numbers of at most 19 bytes each.
const SPEC_BYTES_MAX: usize = 160;

/// A reference to a value of type `T` that is there, or will be.
///
/// Clones share one object; when the last reference anywhere is dropped, the object is freed. References can be sent to
/// other threads, given to tasks and actors as arguments, and put into other values.
///
/// ```
/// let _context = bireme::init()?;
/// let word = bireme::put("galley".to_owned())?;
/// assert_eq!(word.get()?, "galley");
/// # Ok::<(), bireme::Error>(())
/// ```
#[must_use = "the result, or the error in its place, is lost with the reference: `get` it, or drop it with `let _ = ...`"]
pub struct ObjectRef<T> {
    state: State,
    kind: PhantomData<fn() -> T>,
}

#[derive(Clone)]
enum State {
    /// Owned or borrowed.
    Live(Ref),
    /// The result of a reduce by an op of the user, and the object that says which inputs it is made of.
    Reduced(Arc<(Ref, Ref)>),
    /// There is no object, because it could not be asked for.
    Refused(Arc<Error>),
}

impl<T> ObjectRef<T> {
    pub(crate) fn live(reference: Ref) -> Self {
        Self { state: State::Live(reference), kind: PhantomData }
    }

    pub(crate) fn refused(error: Error) -> Self {
        Self { state: State::Refused(Arc::new(error)), kind: PhantomData }
    }

    pub(crate) fn reduced(result: Ref, used: Ref) -> Self {
        Self { state: State::Reduced(Arc::new((result, used))), kind: PhantomData }
    }

    /// The object that says which inputs a reduce has taken, where it is one of its own.
    pub(crate) fn used(&self) -> Option<&Ref> {
        match &self.state {
            State::Reduced(both) => Some(&both.1),
            State::Live(_) | State::Refused(_) => None,
        }
    }

    pub(crate) fn reference(&self) -> Result<&Ref> {
        match &self.state {
            State::Live(reference) => Ok(reference),
            State::Reduced(both) => Ok(&both.0),
            State::Refused(error) => Err((**error).clone()),
        }
    }

    /// The object's id; all zero when the submission was refused (see [`submitted`](ObjectRef::submitted)).
    pub fn id(&self) -> ObjectId {
        self.reference().map_or(ObjectId::from_raw(TaskId::from_raw(0), 0), Ref::id)
    }

    /// The reference itself, or at once the error that `get` would give because the submission was refused.
    ///
    /// ```
    /// # #[bireme::remote] fn work() {}
    /// let _context = bireme::init()?;
    /// assert!(work::options().cpus(-1.0).remote().submitted().is_err());
    /// # Ok::<(), bireme::Error>(())
    /// ```
    pub fn submitted(self) -> Result<Self> {
        self.reference()?;
        Ok(self)
    }

    /// The same object under another type. Reading it as a type that it is not gives
    /// [`Error::TypeMismatch`](crate::Error::TypeMismatch).
    pub fn cast<U>(&self) -> ObjectRef<U> {
        ObjectRef { state: self.state.clone(), kind: PhantomData }
    }

    /// Whether `get` would return at once, with a value or an error.
    pub fn is_ready(&self) -> Result<bool> {
        match self.reference() {
            Ok(reference) => Ok(Runtime::current()?.wait(&[reference], 1, Some(Duration::ZERO))?[0]),
            Err(_) => Ok(true),
        }
    }

    /// What the object waits for, for people.
    ///
    /// ```
    /// let _context = bireme::init()?;
    /// println!("{}", bireme::put(1)?.explain()?);
    /// # Ok::<(), bireme::Error>(())
    /// ```
    pub fn explain(&self) -> Result<String> {
        Runtime::current()?.explain(self.reference()?)
    }

    /// Asks the task that makes this object to stop: see [`bireme::cancel`](crate::cancel).
    pub fn cancel(&self) -> Result<()> {
        crate::cancel(self, false)
    }
}

impl<T: Value> ObjectRef<T> {
    /// Waits for the value.
    pub fn get(&self) -> Result<T> {
        self.fetch(None)
    }

    /// Waits for the value, at most so long; the error says what the object waits for.
    ///
    /// ```
    /// use std::time::Duration;
    /// let _context = bireme::init()?;
    /// assert_eq!(bireme::put(1)?.get_timeout(Duration::from_secs(1))?, 1);
    /// # Ok::<(), bireme::Error>(())
    /// ```
    pub fn get_timeout(&self, timeout: Duration) -> Result<T> {
        self.fetch(Some(timeout))
    }

    fn fetch(&self, timeout: Option<Duration>) -> Result<T> {
        let fetched = Runtime::current()?.get(self.reference()?, timeout).map_err(names::complete)?;
        codec::unpack(&fetched)
    }
}

impl<T> Clone for ObjectRef<T> {
    fn clone(&self) -> Self {
        self.cast()
    }
}

impl<T> fmt::Debug for ObjectRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reference() {
            Ok(reference) => write!(f, "ObjectRef({})", reference.id()),
            Err(error) => write!(f, "ObjectRef(refused: {error})"),
        }
    }
}

impl<T> PartialEq for ObjectRef<T> {
    fn eq(&self, other: &Self) -> bool {
        match (&self.state, &other.state) {
            (State::Refused(a), State::Refused(b)) => Arc::ptr_eq(a, b),
            (State::Refused(_), _) | (_, State::Refused(_)) => false,
            _ => self.id() == other.id(),
        }
    }
}

impl<T> Eq for ObjectRef<T> {}

impl<T> Hash for ObjectRef<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl<T> Serialize for ObjectRef<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.reference() {
            Ok(reference) => {
                let spec = scope::note(reference).map_err(S::Error::custom)?;
                // The same bytes in every encoding: the digest of a value leaves out the owners in it.
                let mut bytes = [0; SPEC_BYTES_MAX];
                serializer.serialize_bytes(postcard::to_slice(&spec, &mut bytes).map_err(S::Error::custom)?)
            }
            Err(error) => {
                scope::note_error(&error);
                Err(S::Error::custom(error))
            }
        }
    }
}

impl<'de, T> Deserialize<'de> for ObjectRef<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_bytes(SpecVisitor(PhantomData))
    }
}

/// Reads where a reference comes from.
struct SpecVisitor<T>(PhantomData<fn() -> T>);

impl<T> Visitor<'_> for SpecVisitor<T> {
    type Value = ObjectRef<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reference to an object")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> std::result::Result<ObjectRef<T>, E> {
        if codec::probe::is_probing() {
            return Ok(ObjectRef::refused(Error::BadArgument("this reference was invented".to_owned())));
        }
        let spec: RefSpec = postcard::from_bytes(bytes).map_err(E::custom)?;
        Ref::adopt(spec).map(ObjectRef::live).map_err(E::custom)
    }
}
