//! Results that come one by one: what the caller of a streaming task reads, and what the worker runs.
//!
//! The items are objects of their own. A reader opens the next one, waits for it, and takes it; taking is what lets a task
//! go on that was held back.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Context, Poll};
use std::time::Duration;

use bireme_runtime::core::failure::Failure;
use bireme_runtime::core::id::TaskId;
use bireme_runtime::{Invocation, Ref, Runtime};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::call::{Outcome, broken};
use crate::{Actor, Error, ObjectRef, Result, Value, actor, codec};

/// References to the items of a streaming task, as they are made: see [`macro@crate::remote`].
///
/// An iterator, whose `next` waits. An error of the task is the value of its last reference. It can be passed to another
/// task, which reads on where it stands. When it is dropped, the task is cancelled.
///
/// ```
/// #[bireme::remote(stream)]
/// fn count(n: u64) -> impl Iterator<Item = u64> {
///     0..n
/// }
///
/// #[bireme::remote]
/// fn total(numbers: bireme::ObjectRefStream<u64>) -> bireme::Result<u64> {
///     numbers.map(|number| number.get()).sum()
/// }
///
/// let _context = bireme::init()?;
/// let mut numbers = count::options().max_buffered_items(4).remote(4);
/// assert_eq!(numbers.next().map(|number| number.get()).transpose()?, Some(0));
/// assert_eq!(total::remote(numbers).get()?, 6);
/// # Ok::<(), bireme::Error>(())
/// ```
#[must_use = "the task is cancelled when its stream is dropped"]
pub struct ObjectRefStream<T> {
    /// The one result of the task; its references keep the task running.
    end: ObjectRef<()>,
    /// The next item's place.
    position: u64,
    /// The next item, once it was asked for.
    item: Option<Ref>,
    /// Nothing comes any more.
    over: bool,
    kind: PhantomData<fn() -> T>,
}

impl<T> ObjectRefStream<T> {
    pub(crate) fn new(end: ObjectRef<()>) -> Self {
        Self::at(end, 0)
    }

    fn at(end: ObjectRef<()>, position: u64) -> Self {
        Self { end, position, item: None, over: false, kind: PhantomData }
    }

    /// Waits for the next reference, at most so long; `None` at the end. After [`Error::Timeout`] the same item can be
    /// asked for again.
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[bireme::remote(stream)] fn count(n: u64) -> impl Iterator<Item = u64> { 0..n }
    /// let _context = bireme::init()?;
    /// let mut one = count::remote(1);
    /// assert!(one.next_timeout(Duration::from_secs(60))?.is_some());
    /// assert!(one.next_timeout(Duration::from_secs(60))?.is_none());
    /// # Ok::<(), bireme::Error>(())
    /// ```
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<ObjectRef<T>>> {
        self.step(Some(timeout))
    }

    /// The next reference when it is there, `None` at the end; else the task is woken when to ask again. This is
    /// `poll_next` of the streams of async libraries.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<ObjectRef<T>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let polled = self.upcoming().and_then(|item| Ok(Runtime::current()?.poll(item, context)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(found)) => {
                Poll::Ready(self.settle(found.map(drop)).unwrap_or_else(|error| self.fail(error)))
            }
            Err(error) => Poll::Ready(self.fail(error)),
        }
    }

    /// The next reference under any executor; `None` at the end.
    pub async fn next_async(&mut self) -> Option<ObjectRef<T>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The stream itself, or at once the error because the submission was refused.
    pub fn submitted(self) -> Result<Self> {
        self.end.reference()?;
        Ok(self)
    }

    /// The task that makes the items.
    pub fn task_id(&self) -> TaskId {
        self.end.id().task()
    }

    /// Asks the task to stop. Items that it made can still be read; the last reference has
    /// [`Failure::Cancelled`](crate::Failure::Cancelled).
    pub fn cancel(&self) -> Result<()> {
        self.end.cancel()
    }

    /// What the task waits for, for people.
    pub fn explain(&self) -> Result<String> {
        self.end.explain()
    }

    /// The next item, which need not exist yet.
    fn upcoming(&mut self) -> Result<&Ref> {
        if self.item.is_none() {
            self.item = Some(Runtime::current()?.stream_item(self.end.reference()?, self.position)?);
        }
        Ok(self.item.as_ref().expect("it was put there above"))
    }

    fn step(&mut self, timeout: Option<Duration>) -> Result<Option<ObjectRef<T>>> {
        if self.over {
            return Ok(None);
        }
        let item = self.upcoming()?;
        let found = Runtime::current()?.get(item, timeout).map(drop);
        self.settle(found)
    }

    /// Takes an item that was looked at: it has a value, or a failure in its place, or is past the end.
    fn settle(&mut self, found: Result<()>) -> Result<Option<ObjectRef<T>>> {
        match found {
            Err(Error::Failed(failure)) if matches!(*failure, Failure::StreamEnded { .. }) => {
                self.over = true;
                self.item = None;
                Ok(None)
            }
            Ok(()) | Err(Error::Failed(_)) => {
                Runtime::current()?.take_item(self.end.reference()?, self.position)?;
                self.position += 1;
                Ok(self.item.take().map(ObjectRef::live))
            }
            Err(error) => Err(error),
        }
    }

    /// An error that is not the task's: the last thing that comes.
    fn fail(&mut self, error: Error) -> Option<ObjectRef<T>> {
        self.over = true;
        Some(ObjectRef::refused(error))
    }
}

impl<T> Iterator for ObjectRefStream<T> {
    type Item = ObjectRef<T>;

    fn next(&mut self) -> Option<ObjectRef<T>> {
        self.step(None).unwrap_or_else(|error| self.fail(error))
    }
}

impl<T> std::iter::FusedIterator for ObjectRefStream<T> {}

impl<T> fmt::Debug for ObjectRefStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectRefStream({:?}, next item {})", self.end, self.position)
    }
}

impl<T> Serialize for ObjectRefStream<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        (&self.end, self.position).serialize(serializer)
    }
}

impl<'de, T> Deserialize<'de> for ObjectRefStream<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let (end, position) = Deserialize::deserialize(deserializer)?;
        Ok(Self::at(end, position))
    }
}

/// Hands the items over to the runtime, each as soon as it is made.
pub fn yield_all<T: Value>(
    call: &mut Invocation<'_>,
    items: impl IntoIterator<Item = T>,
) -> std::result::Result<(), Failure> {
    items.into_iter().try_for_each(|item| yield_one(call, item))
}

/// The same for items that may be errors: the first one ends the stream.
pub fn try_yield_all<O: Outcome<IS_RESULT>, const IS_RESULT: bool>(
    call: &mut Invocation<'_>,
    items: impl IntoIterator<Item = O>,
) -> std::result::Result<(), Failure>
where
    O::Value: Value,
{
    items.into_iter().try_for_each(|item| {
        let item = item.split(call)?;
        yield_one(call, item)
    })
}

fn yield_one<T: Value>(call: &mut Invocation<'_>, item: T) -> std::result::Result<(), Failure> {
    let packed = codec::pack(item).map_err(|error| broken(call, error))?;
    call.yield_item(packed.into_kept())
}

/// Runs a streaming method, whose items borrow the actor while the call yields them.
pub fn yield_from<A: Actor>(
    call: &mut Invocation<'_>,
    run: impl FnOnce(&mut A, &mut Invocation<'_>) -> std::result::Result<(), Failure>,
) -> std::result::Result<(), Failure> {
    actor::state::<A>(call)?;
    let mut state = call.actor.take();
    let own = state.as_mut().and_then(|state| state.downcast_mut::<A>()).expect("`state` found it there");
    let ran = catch_unwind(AssertUnwindSafe(|| run(own, call)));
    // Also after a panic: the actor lives on, as after a panic of any method.
    *call.actor = state;
    ran.unwrap_or_else(|panic| resume_unwind(panic))
}
