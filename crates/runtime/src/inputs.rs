//! Values that are read: inline ones are at hand, stored ones are pinned, all of a task's together or none.
//!
//! Objects in memory are pinned without a word to the node. When one of several is not there (it was spilled, or lies on
//! another node) every pin is given back before anything is asked, so that nobody holds a part of what it needs while it
//! waits for the rest: the node brings them all into memory, when they fit, and keeps them there until they are pinned
//! (`core::gather`, MEM-1). Copies of what lies on other nodes are fetched when there is room for all of them.

use std::sync::Arc;

use bireme_core::id::{FunctionKey, NodeId, ObjectId};
use bireme_core::message::{FromNode, RequestId, ToNode};
use bireme_core::shared::Shared;
use bireme_core::value::{Body, Location, RefSpec, Value};
use bireme_store::{PinError, Pinned, Sealed};

use crate::error::Error;
use crate::fetched::Fetched;
use crate::objects::to_store;
use crate::process::{Interest, Process, Waited, current_seat};

/// Objects that move while they are being pinned are looked up again at most so often.
const PIN_TRIES_MAX: u32 = 16;
/// Copies from other nodes are fetched without a reservation when they are at most this part of the store.
const FEW_BYTES_PART: u64 = 8;
/// A node that does not answer is declared dead within this time, and then another copy is sought.
const COPY_WAIT: std::time::Duration = std::time::Duration::from_secs(5);

/// The objects that the node keeps in memory for a task, until this is dropped.
pub(crate) struct Gathered<'a> {
    process: &'a Process,
    request: RequestId,
    output_bytes: Option<u64>,
}

impl Gathered<'_> {
    /// Says how much the task made of it: the node expects as much the next time.
    pub(crate) fn note_output(&mut self, values: &[Value]) {
        let stored = |value: &Value| if let Body::Stored(at) = value.body { at.len } else { 0 };
        self.output_bytes = Some(values.iter().map(stored).sum());
    }
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        let (request, output_bytes) = (self.request, self.output_bytes);
        self.process.tell(&ToNode::EndGather { request, output_bytes });
    }
}

/// One value on its way to being readable.
enum Input {
    Inline(Shared),
    /// Its first place, and its place on this node as far as is known.
    Stored {
        object: RefSpec,
        first: Location,
        here: Option<Location>,
    },
}

/// Bytes of objects on other nodes of which there is no copy here yet.
fn arriving_bytes(inputs: &[Input]) -> u64 {
    let missing = |input: &Input| if let Input::Stored { first, here: None, .. } = input { first.len } else { 0 };
    inputs.iter().map(missing).sum()
}

/// Bytes of objects on other nodes, whether or not there are copies.
fn arriving_bytes_from(inputs: &[Input], here: NodeId) -> u64 {
    let foreign = |input: &Input| match input {
        Input::Stored { first, .. } if first.node != here => first.len,
        Input::Inline(_) | Input::Stored { .. } => 0,
    };
    inputs.iter().map(foreign).sum()
}

fn moved_too_often() -> Error {
    let text = format!("an object was moved out {PIN_TRIES_MAX} times while it was being read; the store is too small");
    Error::StoreFull(text)
}

impl Process {
    /// The bytes behind a value.
    pub(crate) fn fetch(&self, value: &Value, object: RefSpec) -> Result<Fetched, Error> {
        let (mut fetched, _) = self.fetch_all([(value, object)], None)?;
        fetched.pop().ok_or_else(|| Error::StoreFull("nothing was fetched".into()))
    }

    /// A view of an object of this node.
    pub(crate) fn pin(&self, object: RefSpec, at: Location) -> Result<Fetched, Error> {
        self.fetch(&Value { body: Body::Stored(at), nested: Vec::new() }, object)
    }

    /// The bytes behind several values, all of them or none; with `function`, for a task of it that is about to start.
    pub(crate) fn fetch_all<'a>(
        &self,
        values: impl IntoIterator<Item = (&'a Value, RefSpec)>,
        function: Option<FunctionKey>,
    ) -> Result<(Vec<Fetched>, Option<Gathered<'_>>), Error> {
        let inputs = values.into_iter().map(|(value, object)| self.input(value, object));
        let mut inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        for _ in 0..PIN_TRIES_MAX {
            // Few copies from other nodes are fetched without a word.
            if arriving_bytes(&inputs) <= self.store.arena().capacity() / FEW_BYTES_PART {
                self.bring_missing(&mut inputs)?;
                if let Some(fetched) = self.pin_all(&inputs)? {
                    return Ok((fetched, None));
                }
            }
            let gathered = self.gather(&mut inputs, function)?;
            if let Some(fetched) = self.pin_gathered(&mut inputs)? {
                // A reader has its pins now, and needs nothing else.
                return Ok((fetched, function.is_some().then_some(gathered)));
            }
        }
        Err(moved_too_often())
    }

    fn input(&self, value: &Value, object: RefSpec) -> Result<Input, Error> {
        match &value.body {
            Body::Inline(bytes) => Ok(Input::Inline(bytes.clone())),
            Body::Failed(failure) => Err(Error::Failed(Arc::clone(failure))),
            Body::Stored(at) => {
                let here = (at.node == self.me.node).then_some(*at);
                Ok(Input::Stored { object, first: *at, here })
            }
        }
    }

    /// Has copies made of what lies on other nodes. Nothing is pinned meanwhile.
    fn bring_missing(&self, inputs: &mut [Input]) -> Result<(), Error> {
        inputs.iter_mut().try_for_each(|input| self.bring_one(input))
    }

    fn bring_one(&self, input: &mut Input) -> Result<(), Error> {
        while let Input::Stored { object, first, here: here @ None } = input {
            match self.bring(*object, *first) {
                Ok(at) => *here = Some(at),
                Err(error) => match self.value_elsewhere(object.object, *first) {
                    Some(value) => *input = self.input(&value, *object)?,
                    None => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Pins all that are stored; none when one of them is not where it was.
    fn pin_all(&self, inputs: &[Input]) -> Result<Option<Vec<Fetched>>, Error> {
        inputs.iter().map(|input| self.pin_one(input).transpose()).collect::<Option<Result<_, _>>>().transpose()
    }

    fn pin_one(&self, input: &Input) -> Result<Option<Fetched>, Error> {
        match input {
            Input::Inline(bytes) => Ok(Some(Fetched::Inline(bytes.clone()))),
            Input::Stored { here: None, .. } => Ok(None),
            Input::Stored { here: Some(at), .. } => match self.store.pin(Sealed(to_store(*at))) {
                Ok(pinned) => Ok(Some(Fetched::Pinned(Arc::<Pinned>::new(pinned)))),
                Err(PinError::Moved) => Ok(None),
                Err(error) => Err(Error::StoreFull(error.to_string())),
            },
        }
    }

    /// Pins what the node has gathered. Room was left for copies from other nodes: each is pinned when it has come.
    fn pin_gathered(&self, inputs: &mut [Input]) -> Result<Option<Vec<Fetched>>, Error> {
        let mut fetched = Vec::with_capacity(inputs.len());
        for input in inputs {
            let mut tries = 0;
            fetched.push(loop {
                self.bring_one(input)?;
                match (self.pin_one(input)?, &mut *input) {
                    (Some(pinned), _) => break pinned,
                    // A copy may be dropped before it is pinned.
                    (None, Input::Stored { first, here, .. }) if first.node != self.me.node => *here = None,
                    (None, _) => return Ok(None),
                }
                tries += 1;
                if tries == PIN_TRIES_MAX {
                    return Err(moved_too_often());
                }
            });
        }
        Ok(Some(fetched))
    }

    /// Has the node bring all that are stored into memory together, and notes where they are then.
    fn gather(&self, inputs: &mut [Input], function: Option<FunctionKey>) -> Result<Gathered<'_>, Error> {
        let request = self.request_id();
        // The node knows what was made here by its first place.
        let own = |input: &Input| match input {
            Input::Stored { first, .. } if first.node == self.me.node => Some(*first),
            Input::Inline(_) | Input::Stored { .. } => None,
        };
        let named = inputs.iter().filter_map(own).collect();
        let arriving_bytes = arriving_bytes_from(inputs, self.me.node);
        let question = ToNode::Gather { request, lease: current_seat(), function, inputs: named, arriving_bytes };
        // From here on the node keeps them, also when the answer is not waited for.
        let gathered = Gathered { process: self, request, output_bytes: None };
        let located = match self.ask_patiently(request, &question)? {
            FromNode::Gathered { located, .. } => located.map_err(Error::StoreFull)?,
            _ => return Err(Error::StoreFull("the node answered something else".into())),
        };
        let mut located = located.into_iter();
        for input in inputs {
            if own(input).is_some()
                && let Input::Stored { here, .. } = input
            {
                *here = located.next().flatten();
                if here.is_none() {
                    let text = "the object was freed; keep a reference while you read it";
                    return Err(Error::StoreFull(text.into()));
                }
            }
        }
        Ok(gathered)
    }

    /// What an object of this process is when it cannot be had from another node any more: another copy, or a failure. None
    /// when nothing is heard of that.
    fn value_elsewhere(&self, object: ObjectId, at: Location) -> Option<Value> {
        if !self.lock().owner.owns(&object) {
            return None;
        }
        let deadline = Some(std::time::Instant::now() + COPY_WAIT);
        let waited = self.wait_for(deadline, &Interest::Objects(&[object]), |inner| {
            inner.owner.value(&object).filter(|value| value.body != Body::Stored(at)).cloned()
        });
        match waited {
            Waited::Got(value) => Some(value),
            Waited::Over | Waited::Interrupted | Waited::TimedOut => None,
        }
    }
}
