//! Streams at both ends: a task that yields items, and who reads them.
//!
//! What yields needs only the process and the task, so that a task which ends later than its call can yield too.

use std::task::Waker;

use bireme_core::failure::Failure;
use bireme_core::id::{ObjectId, TaskId};
use bireme_core::owner::Event;
use bireme_core::stream::ITEMS_MAX;
use bireme_core::value::RefSpec;
use bireme_core::worker::{self, Pace};

use crate::client::Runtime;
use crate::error::Error;
use crate::function::Encoded;
use crate::process::{Interest, Process, Waited};
use crate::reference::Ref;
use crate::ticket::Ticket;

/// Stores, records and sends the next item of a streaming task that runs here. Gives whether the task should pause until
/// [`may_yield`] says otherwise.
pub(crate) fn yield_item(process: &Process, task: TaskId, item: Encoded) -> Result<bool, Failure> {
    // Whether there is room is for who asks before: an item that was made goes out.
    may_yield(process, task, None)?;
    let value = process.store_value(&item).map_err(|error| match error {
        Error::Failed(failure) => (*failure).clone(),
        error => Failure::StoreFull { reason: error.to_string() },
    })?;
    let mut inner = process.lock();
    process.step_worker(&mut inner, worker::Event::Yielded { task, value });
    process.flush(&mut inner);
    let paused = inner.pace(&task) == Some(Pace::Pause);
    // The item keeps the references inside it until the owner's machine has lent these; they go back without the lock.
    drop(inner);
    drop(item);
    Ok(paused)
}

/// Whether a streaming task may yield its next item. While it may not, `waker` is woken when to look again.
pub(crate) fn may_yield(process: &Process, task: TaskId, waker: Option<&Waker>) -> Result<Option<()>, Failure> {
    let mut inner = process.lock();
    let pace = judge(task, inner.pace(&task))?;
    if let (None, Some(waker)) = (pace, waker) {
        inner.add_waker(ObjectId::result(task, 0), waker);
    }
    Ok(pace)
}

/// Waits until a streaming task may yield its next item, as any task waits: without its CPU.
pub(crate) fn wait_for_room(process: &Process, task: TaskId) -> Result<(), Failure> {
    if may_yield(process, task, None)?.is_some() {
        return Ok(());
    }
    let end = ObjectId::result(task, 0);
    let waited = process.wait_for(None, &Interest::Objects(&[end]), |inner| judge(task, inner.pace(&task)).transpose());
    process.lock().forget_waiters(&end);
    match waited {
        Waited::Got(paced) => paced,
        // Whoever interrupts a task that yields wants it to stop.
        Waited::Interrupted => Err(Failure::Cancelled { task }),
        Waited::TimedOut | Waited::Over => Err(Failure::ShutDown),
    }
}

fn judge(task: TaskId, pace: Option<Pace>) -> Result<Option<()>, Failure> {
    match pace {
        Some(Pace::Go) => Ok(Some(())),
        Some(Pace::Pause) => Ok(None),
        Some(Pace::Stop) => Err(Failure::Cancelled { task }),
        None => Err(Failure::Returned {
            task,
            name: "yield".into(),
            type_name: "bireme::Error".into(),
            message: "an item was yielded outside of a streaming task; submit the task as a stream".into(),
        }),
    }
}

impl Ticket {
    /// Gives the next item of a stream to who reads it, without waiting. True when the task should pause until
    /// [`Ticket::may_yield`] says otherwise. `Cancelled` means that there is nobody to yield to.
    pub fn yield_item(&self, item: Encoded) -> Result<bool, Failure> {
        yield_item(self.process(), self.task(), item)
    }

    /// Whether the task may yield its next item. When not, `waker` is woken when to ask again.
    pub fn may_yield(&self, waker: &Waker) -> Result<bool, Failure> {
        Ok(may_yield(self.process(), self.task(), Some(waker))?.is_some())
    }
}

impl Runtime {
    /// A handle of item `index` of the stream that has this end, whether or not the item is there yet. Its value is the
    /// item; past the end it is `StreamEnded`, right after the last item of a stream that failed the failure.
    ///
    /// A stream is read once: an item that was taken and of which no handle is left is gone.
    pub fn stream_item(&self, end: &Ref, index: u64) -> Result<Ref, Error> {
        let (process, place) = (end.process(), check(end, index)?);
        let object = ObjectId::item(end.id().task(), place);
        process.own(Event::ItemOpened { end: end.id(), index: place });
        Ok(Ref::counted_as(process, RefSpec { object, owner: end.spec().owner }))
    }

    /// Says that the reader is done with the items up to and including `index`: the stream holds them no longer, and who
    /// yields them may go on. Handles of items keep them as they keep any object.
    pub fn take_item(&self, end: &Ref, index: u64) -> Result<(), Error> {
        let items = check(end, index)?.saturating_add(1);
        end.process().own(Event::ItemsTaken { end: end.id(), items });
        Ok(())
    }
}

fn check(end: &Ref, index: u64) -> Result<u32, Error> {
    if end.process().is_over() {
        return Err(end.process().over_error());
    }
    let place = u32::try_from(index).ok().filter(|_| index < ITEMS_MAX);
    place
        .ok_or_else(|| Error::BadArgument(format!("item {index} of a stream is beyond the last possible, {ITEMS_MAX}")))
}
