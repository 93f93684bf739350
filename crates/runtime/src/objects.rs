//! Values in and out of the store, and what a process knows about an object it waits for.

use std::sync::Arc;
use std::task::Waker;

use bireme_core::id::{ActorId, NodeId, ObjectId};
use bireme_core::message::{FromNode, Peer, ToNode};
use bireme_core::owner::{ActorView, Event, Readiness, TaskState};
use bireme_core::shared::Shared;
use bireme_core::value::{Body, INLINE_BYTES_MAX, Location, RefSpec, Value};
use bireme_store::{Unsealed, UnsealedLocation};

use crate::error::Error;
use crate::function::Encoded;
use crate::process::{Inner, Process};

/// The store's name for a place.
pub(crate) fn to_store(at: Location) -> bireme_store::Location {
    bireme_store::Location { entry: at.entry, generation: at.generation, offset: at.offset, len: at.len }
}

/// The engine's name for a place in the store of this node.
pub(crate) fn from_store(node: NodeId, at: bireme_store::Location) -> Location {
    Location { node, entry: at.entry, generation: at.generation, offset: at.offset, len: at.len }
}

impl Process {
    /// Turns an encoded value into one that can travel: small ones inline, large ones through the store.
    pub(crate) fn store_value(&self, encoded: &Encoded) -> Result<Value, Error> {
        let body = if encoded.len() <= INLINE_BYTES_MAX {
            let bytes: Shared = match (&encoded.body, encoded.tail.is_empty()) {
                (None, true) => Shared::from(&*encoded.head),
                _ => encoded.parts().collect::<Vec<_>>().concat().into(),
            };
            Body::Inline(bytes)
        } else {
            Body::Stored(self.write(encoded)?)
        };
        Ok(Value { body, nested: encoded.nested.clone() })
    }

    /// Writes bytes into a new object of the store.
    pub(crate) fn write(&self, encoded: &Encoded) -> Result<Location, Error> {
        let (at, mut writer) = self.make_room(encoded.len() as u64)?;
        let written = || {
            for part in encoded.parts() {
                writer.copy_from(part)?;
            }
            writer.seal()
        };
        match written() {
            Ok(sealed) => Ok(from_store(self.me.node, sealed.0)),
            Err(error) => {
                self.tell(&ToNode::AbortObject { at });
                Err(Error::StoreFull(error.to_string()))
            }
        }
    }

    /// A new object of the store, and the right to write it.
    pub(crate) fn make_room(&self, len: u64) -> Result<(Location, Unsealed), Error> {
        let request = self.request_id();
        // It may take long: others have to be written to a slow disk first.
        let (at, warm) = match self.ask_patiently(request, &ToNode::CreateObject { request, len })? {
            FromNode::ObjectCreated { created: Ok(created), .. } => created,
            FromNode::ObjectCreated { created: Err(reason), .. } => return Err(Error::StoreFull(reason)),
            _ => return Err(Error::StoreFull("the node answered something else".into())),
        };
        let place = UnsealedLocation(to_store(at));
        if !warm {
            self.store.forget_pages(place);
        }
        let claimed = self.store.writer(place);
        let writer = claimed.map_err(|error| {
            self.tell(&ToNode::AbortObject { at });
            Error::StoreFull(error.to_string())
        })?;
        Ok((at, writer))
    }

    /// Has the node bring a copy of what lies on another one.
    pub(crate) fn bring(&self, object: RefSpec, at: Location) -> Result<Location, Error> {
        let request = self.request_id();
        let lost = |reason: String| {
            let failure = bireme_core::failure::Failure::ObjectLost { object: object.object, reason };
            Error::Failed(Arc::new(failure))
        };
        match self.ask_patiently(request, &ToNode::Fetch { request, object, at })? {
            FromNode::Located { located, .. } => located.map_err(lost),
            _ => Err(lost("the node answered something else".into())),
        }
    }

    /// Says that someone waits for an object, so that its owner is asked and its waiters are told.
    pub(crate) fn want(&self, inner: &mut Inner, object: ObjectId) {
        self.step_owner(inner, Event::Wanted(object));
        self.flush(inner);
    }

    /// The same for all of these that others own and that have no value here.
    pub(crate) fn want_borrowed(&self, objects: impl Iterator<Item = ObjectId>) {
        let mut inner = self.lock_with_room();
        for object in objects {
            if inner.owner.readiness(&object) == Readiness::Idle && !inner.owner.owns(&object) {
                self.step_owner(&mut inner, Event::Wanted(object));
            }
        }
        self.flush(&mut inner);
    }

    /// Flags up to `most` more of the objects that have a value, from the front, and wants those before them that have none.
    /// Gives how many were flagged.
    pub(crate) fn count_ready(
        &self,
        inner: &mut Inner,
        objects: &[ObjectId],
        flags: &mut [bool],
        most: usize,
    ) -> usize {
        let mut found = 0;
        for (flag, object) in flags.iter_mut().zip(objects).filter(|(flag, _)| !**flag) {
            match inner.owner.readiness(object) {
                Readiness::Ready => {
                    *flag = true;
                    found += 1;
                    if found == most {
                        break;
                    }
                }
                Readiness::Wanted => {}
                Readiness::Idle => self.step_owner(inner, Event::Wanted(*object)),
            }
        }
        self.flush(inner);
        found
    }

    /// The value of an object, when it is there or has just come.
    pub(crate) fn value_now(&self, object: ObjectId) -> Option<Value> {
        let mut inner = self.lock();
        self.look(&mut inner);
        inner.owner.value(&object).cloned()
    }

    /// The value of an object, or a promise to wake.
    pub(crate) fn value_or_wake(&self, object: ObjectId, waker: &Waker) -> Option<Value> {
        let mut inner = self.lock();
        if let Some(value) = inner.owner.value(&object) {
            return Some(value.clone());
        }
        inner.add_waker(object, waker);
        self.want(&mut inner, object);
        // The pump may have been told that somebody else looks.
        drop(inner);
        None
    }

    /// Becomes a borrower of an object that nobody lent, a named actor's, while a handle of it is held.
    pub(crate) fn borrow_unasked(&self, spec: RefSpec) {
        // What a node names itself it keeps by itself.
        if spec.owner == self.me || spec.owner.is_node() {
            return;
        }
        let message = Peer::Lent { object: spec.object, borrower: self.me, count: 1 };
        let mut inner = self.lock();
        self.send(&mut inner, spec.owner, &message);
        self.step_owner(&mut inner, Event::ArgumentsArrived { from: spec.owner, refs: vec![spec] });
        self.step_owner(&mut inner, Event::ArgumentsDone(vec![spec]));
        self.flush(&mut inner);
    }

    /// What this process itself knows about why an object has no value; none when the node knows more.
    pub(crate) fn explain_here(&self, spec: RefSpec) -> Option<Known> {
        let inner = self.lock();
        let object = spec.object;
        if let Some(value) = inner.owner.value(&object) {
            return Some(Known::All(format!("{object} is ready: {}", value.body)));
        }
        if spec.owner != self.me {
            // Its owner is another process; the node has that one's records.
            return None;
        }
        if let Some(text) = inner.owner.explain_reduce(&object) {
            return Some(Known::All(text));
        }
        let (task, state) = inner.owner.task_state(&object.task())?;
        let name = &task.options.name;
        let text = match state {
            TaskState::Waiting { missing } => {
                let missing = format!("{missing} of its arguments: {}", inner.missing(task));
                Known::All(format!("{name} ({}) waits for {missing}", task.id))
            }
            TaskState::CallQueued => {
                let bireme_core::spec::TaskKind::Call { actor, .. } = task.kind else { return None };
                let view = inner.owner.actor_view(&actor);
                let text = format!("{name} ({}) waits for its turn at {}", task.id, view_text(actor, &view));
                match view {
                    ActorView::Dead(_) => Known::All(text),
                    ActorView::Unknown | ActorView::At(_) | ActorView::Restarting => Known::Part(text),
                }
            }
            TaskState::CallSent { process } => {
                let bireme_core::spec::TaskKind::Call { actor, .. } = task.kind else { return None };
                let pending = inner.owner.pending_calls(&actor);
                let text = format!("{name} ({}) is with {actor} in {process}, one of {pending} pending calls", task.id);
                Known::Part(text)
            }
            TaskState::Queued
            | TaskState::Sent { .. }
            | TaskState::Asked
            | TaskState::Inherited
            | TaskState::Constructing => return None,
        };
        Some(text)
    }
}

/// The knowledge of an owner about an object that is not there yet.
pub(crate) enum Known {
    /// All that there is to say.
    All(String),
    /// Why the actor does not come to it, only the node knows.
    Part(String),
}

fn view_text(actor: ActorId, view: &ActorView) -> String {
    match view {
        ActorView::Unknown => format!("{actor}, which has not started yet"),
        ActorView::At(process) => format!("{actor} in {process}"),
        ActorView::Restarting => format!("{actor}, which is being started again"),
        ActorView::Dead(reason) => format!("{actor}, which is dead: {reason}"),
    }
}
