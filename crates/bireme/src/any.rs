//! References without a type, and what functions take that need none.

use std::time::Duration;

use bireme_runtime::core::id::ObjectId;
use bireme_runtime::{Ref, Runtime};
use serde::{Deserialize, Serialize};

use crate::{Error, ObjectRef, Result};

/// Stands for a type that is not known.
enum Unknown {}

/// A reference to a value of a type that is not said: references of different types in one list, as for [`wait`](crate::wait).
///
/// ```
/// use bireme::AnyRef;
/// let _context = bireme::init()?;
/// let (number, word) = (bireme::put(1)?, bireme::put("oar".to_owned())?);
/// let (ready, _) = bireme::wait(&[AnyRef::from(&number), AnyRef::from(&word)], 2, None)?;
/// assert_eq!(ready[1], word.untyped());
/// assert_eq!(ready[1].typed::<String>().get()?, "oar");
/// # Ok::<(), bireme::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[must_use = "the result, or the error in its place, is lost with the reference"]
pub struct AnyRef(ObjectRef<Unknown>);

impl AnyRef {
    /// The object's id; see [`ObjectRef::id`].
    pub fn id(&self) -> ObjectId {
        self.0.id()
    }

    /// The same object with a type. Reading it as a type that it is not gives
    /// [`Error::TypeMismatch`](crate::Error::TypeMismatch).
    pub fn typed<T>(&self) -> ObjectRef<T> {
        self.0.cast()
    }

    /// Whether `get` would return at once, with a value or an error.
    pub fn is_ready(&self) -> Result<bool> {
        self.0.is_ready()
    }

    /// Explains for people why the object is not ready.
    pub fn explain(&self) -> Result<String> {
        self.0.explain()
    }

    /// Asks the task that makes this object to stop: see [`bireme::cancel`](crate::cancel).
    pub fn cancel(&self) -> Result<()> {
        self.0.cancel()
    }
}

impl<T> ObjectRef<T> {
    /// The same object without its type: see [`AnyRef`].
    pub fn untyped(&self) -> AnyRef {
        AnyRef(self.cast())
    }
}

impl<T> From<ObjectRef<T>> for AnyRef {
    fn from(reference: ObjectRef<T>) -> Self {
        reference.untyped()
    }
}

impl<T> From<&ObjectRef<T>> for AnyRef {
    fn from(reference: &ObjectRef<T>) -> Self {
        reference.untyped()
    }
}

/// An [`ObjectRef`] of any type, an [`AnyRef`], or a borrow of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no reference to an object",
    note = "references of different types go into one list as `AnyRef`: `[a.untyped(), b.untyped()]`"
)]
pub trait Reference: Clone + private::Handle {}

impl<T> Reference for ObjectRef<T> {}
impl Reference for AnyRef {}
impl<R: Reference> Reference for &R {}

pub(crate) mod private {
    use super::*;

    /// The counted reference inside; nobody else implements it.
    pub trait Handle {
        fn handle(&self) -> Result<&Ref>;
    }

    impl<T> Handle for ObjectRef<T> {
        fn handle(&self) -> Result<&Ref> {
            self.reference()
        }
    }

    impl Handle for AnyRef {
        fn handle(&self) -> Result<&Ref> {
            self.0.reference()
        }
    }

    impl<H: Handle> Handle for &H {
        fn handle(&self) -> Result<&Ref> {
            (**self).handle()
        }
    }
}

/// Waits until `count` of the references are ready (with a value or an error) or the time is over.
///
/// Gives the first `count` that are ready and all others, both in the order given; fewer are ready only when the time
/// was over. No references, a count of zero, and a count of more than there are references are errors. References of different
/// types go into one list as [`AnyRef`].
///
/// ```
/// let _context = bireme::init()?;
/// let refs = [bireme::put(1)?, bireme::put(2)?];
/// let (ready, rest) = bireme::wait(&refs, 1, None)?;
/// assert_eq!((ready.len(), rest.len()), (1, 1));
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn wait<R: Reference>(references: &[R], count: usize, timeout: Option<Duration>) -> Result<(Vec<R>, Vec<R>)> {
    if references.is_empty() {
        return Err(Error::BadArgument("there is nothing to wait for: no references were given".to_owned()));
    }
    if count == 0 || count > references.len() {
        let given = references.len();
        return Err(Error::BadArgument(format!("cannot wait for {count} of {given} references; ask for 1 to {given}")));
    }
    let live: Vec<_> = references.iter().filter_map(|reference| reference.handle().ok()).collect();
    // A refused reference is ready: it has its error.
    let missing = count.saturating_sub(references.len() - live.len());
    let flags = match (missing, live.is_empty()) {
        (_, true) => Vec::new(),
        (0, false) => Runtime::current()?.wait(&live, 1, Some(Duration::ZERO))?,
        (missing, false) => Runtime::current()?.wait(&live, missing, timeout)?,
    };
    let mut flags = flags.into_iter();
    let (mut ready, mut rest) = (Vec::with_capacity(count), Vec::new());
    for reference in references {
        let is_ready = reference.handle().is_err() || flags.next().unwrap_or(false);
        if is_ready && ready.len() < count { &mut ready } else { &mut rest }.push(reference.clone());
    }
    Ok((ready, rest))
}
