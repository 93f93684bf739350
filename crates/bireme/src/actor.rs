//! Actors: the trait that ties a type to its handle, and what all handles have in common.

mod calls;

use std::any::type_name;
use std::fmt;
use std::sync::Arc;

use bireme_runtime::core::failure::Failure;
use bireme_runtime::core::id::{ActorId, FunctionKey};
use bireme_runtime::core::spec::TaskOptions;
use bireme_runtime::{Function, Invocation, Ref, Runtime, Target};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::argument::Arguments;
use crate::call::{Results, Site};
use crate::options::Options;
use crate::{Error, ObjectRef, Result};

pub use calls::CallOptions;

/// A type with `#[bireme::actor]` on its `impl`.
pub trait Actor: Send + Sized + 'static {
    /// Where its methods are called from.
    type Handle: Clone + fmt::Debug + Send + Sync;

    /// The constructor, which tells actor types apart.
    #[doc(hidden)]
    fn constructor() -> FunctionKey;

    /// A handle around a reference that was found by name.
    #[doc(hidden)]
    fn handle(inner: Handle) -> Self::Handle;
}

/// What all handles have in common.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The actor's own object: ready when the constructor has run, and its references keep the actor alive.
    object: ObjectRef<()>,
    pending_max: usize,
    call_retries: u32,
    /// Choices for the calls of this handle, when there are some.
    calls: Option<Arc<CallOptions>>,
}

impl Handle {
    /// Starts an actor.
    pub fn create(site: &Site, options: Option<Options>, arguments: Arguments) -> Self {
        let created = options.map_or_else(|| site.chosen().cloned(), Options::finish).and_then(|chosen| {
            let sent = site.send(
                chosen.task,
                None,
                (Target::Create { options: chosen.actor, namespace: None }, chosen.inherits),
                arguments,
            );
            Ok((sent?, chosen.pending_max, chosen.call_retries))
        });
        match created {
            Ok((references, pending_max, call_retries)) => {
                Self { object: Results::of(Ok(references)).take(), pending_max, call_retries, calls: None }
            }
            Err(error) => Self { object: ObjectRef::refused(error), pending_max: 0, call_retries: 0, calls: None },
        }
    }

    /// The same actor, whose calls through this handle have these choices.
    pub fn with_options(&self, options: CallOptions) -> Self {
        Self { calls: Some(Arc::new(options)), ..self.clone() }
    }

    /// Calls a method.
    pub fn call(&self, site: &Site, arguments: Arguments) -> Results {
        Results::of(self.submit(site, arguments))
    }

    fn submit(&self, site: &Site, arguments: Arguments) -> Result<Vec<Ref>> {
        let handle = self.object.reference()?.clone();
        let chosen = site.chosen()?;
        let mut options = chosen.task.clone();
        let mut stream = chosen.stream;
        if self.call_retries != options.retries_max {
            options = Arc::new(TaskOptions { retries_max: self.call_retries, ..(*options).clone() });
        }
        if let Some(calls) = &self.calls {
            options = Arc::new(calls.applied_to((*options).clone()));
            stream = calls.limits(stream)?;
        }
        let target = Target::Call { actor: ActorId(handle.id().task()), handle, pending_max: self.pending_max };
        site.send(options, stream, (target, false), arguments)
    }

    /// The handle itself, or at once the error because the actor was refused.
    pub fn submitted(self) -> Result<Self> {
        self.object.reference()?;
        Ok(self)
    }

    /// The actor.
    pub fn id(&self) -> ActorId {
        ActorId(self.object.id().task())
    }

    /// Ready when the constructor has run.
    pub fn ready(&self) -> ObjectRef<()> {
        self.object.clone()
    }

    /// Ends the actor for good.
    pub fn kill(&self) -> Result<()> {
        let actor = ActorId(self.object.reference()?.id().task());
        Runtime::current()?.kill_actor(actor, false)
    }
}

impl Serialize for Handle {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        (&self.object, self.pending_max, self.call_retries, &self.calls).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Handle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let (object, pending_max, call_retries, calls) = Deserialize::deserialize(deserializer)?;
        Ok(Self { object, pending_max, call_retries, calls })
    }
}

/// The actor with this name in the namespace of this program (see [`Config::namespace`](crate::Config::namespace)); [`Error::TypeMismatch`] when it is another type than `A`.
///
/// The limit of pending calls and the retries of calls belong to a handle, not to the actor: a handle that was found by
/// name has the defaults (no limit, no retries).
///
/// ```
/// pub struct Greeter;
///
/// #[bireme::actor]
/// impl Greeter {
///     pub fn new() -> Self {
///         Greeter
///     }
///
///     pub fn greet(&self, name: String) -> String {
///         format!("ahoy {name}")
///     }
/// }
///
/// let _context = bireme::init()?;
/// let _greeter = Greeter::options().name("greeter").remote();
/// let found = bireme::get_actor::<Greeter>("greeter")?;
/// assert_eq!(found.greet("crew").get()?, "ahoy crew");
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn get_actor<A: Actor>(name: &str) -> Result<A::Handle> {
    let (_, constructor, reference) = Runtime::current()?.find_actor(name, None)?;
    if constructor != A::constructor() {
        let found = Function::find(constructor).map_or("unknown", |function| function.signature);
        let found = found.split_once('(').map_or(found, |(path, _)| path);
        let found = found.rsplit_once("::").map_or(found, |(actor, _)| actor).to_owned();
        return Err(Error::TypeMismatch { expected: type_name::<A>().to_owned(), found });
    }
    Ok(A::handle(Handle { object: ObjectRef::live(reference), pending_max: usize::MAX, call_retries: 0, calls: None }))
}

/// Ends an actor for good: calls that wait and later ones fail. Killing it again changes nothing. A call that runs has a
/// second to end, so that the actor can be dropped; then its process is killed.
///
/// The same as `handle.kill()`.
pub fn kill(actor: &impl AsRef<Handle>) -> Result<()> {
    actor.as_ref().kill()
}

/// The state of the actor that runs this call.
pub fn state<'a, A: Actor>(call: &'a mut Invocation<'_>) -> std::result::Result<&'a mut A, Failure> {
    let state = call.actor.as_mut().and_then(|state| state.downcast_mut());
    state.ok_or_else(|| Failure::TypeMismatch {
        expected: type_name::<A>().to_owned(),
        found: "no actor of this type in the worker".to_owned(),
    })
}
