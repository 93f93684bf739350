//! What front ends call: submit, put, get, wait, cancel, actors, state.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bireme_core::id::{ActorId, FunctionKey, ObjectId, ProcessId, TaskId, digest};
use bireme_core::ledger::Snapshot;
use bireme_core::ledger::snapshot::ResourcesRow;
use bireme_core::message::{Adoption, FromNode, ToNode};
use bireme_core::owner::Event;
use bireme_core::resources::Resources;
use bireme_core::spec::{
    ACTOR_CONCURRENCY_MAX, ARGUMENT_REFS_MAX, ActorOptions, RETURNS_MAX, Strategy, TaskKind, TaskOptions, TaskSpec,
};
use bireme_core::stream::Stream;
use bireme_core::value::{RefSpec, Value, digest_without_owners};

use crate::config::Config;
use crate::driver::Driver;
use crate::error::Error;
use crate::fetched::Fetched;
use crate::forked::{check_forked, is_forked};
use crate::function::Encoded;
use crate::objects::Known;
use crate::output::OutputLine;
use crate::process::{self, Interest, Process, Waited, outside};
use crate::reference::Ref;

/// Tasks and calls of one process that have not ended; a submit beyond waits for one to end.
pub const TASKS_PENDING_MAX: usize = 10_000_000;
/// Objects that one process may have open; a put beyond is refused.
pub const OBJECTS_OPEN_MAX: usize = 100_000_000;
/// Code that can be published under one key; larger is refused.
pub const CODE_BYTES_MAX: usize = 64 << 20;
/// Maximum objects to ask for together when a list of them is got: it bounds the values that are on their way.
pub const ASKED_TOGETHER_MAX: usize = 1024;
/// How long an explanation may take before it is given up.
const EXPLAIN_WAIT: Duration = Duration::from_secs(2);

/// Items of a stream and their places.
type Items = Vec<(u32, Value)>;

/// The runtime of this program.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) process: Arc<Process>,
}

/// A task, constructor or call on its way in.
pub struct Submit {
    /// What to run.
    pub function: FunctionKey,
    /// How.
    pub options: Arc<TaskOptions>,
    /// How many objects it makes.
    pub returns: u32,
    /// Function, constructor or method.
    pub target: Target,
    /// Its items come one by one; the only result is the end of the stream.
    pub stream: Option<Stream>,
    /// Arguments by reference.
    pub dependencies: Vec<Ref>,
    /// References inside argument values.
    pub nested: Vec<RefSpec>,
    /// Arguments in the front end's encoding.
    pub payload: Vec<u8>,
    /// Handles that must live until the task is submitted.
    pub keep: Vec<Ref>,
    /// The user chose no place for it: it follows its parent into a placement group that captures.
    pub inherits: bool,
}

/// What a put is called.
pub(crate) enum Put {
    /// A repeated task has made it before.
    Adopted(Ref),
    /// It is new.
    New(ObjectId),
}

/// What a submit is for.
pub enum Target {
    /// A function.
    Plain,
    /// An actor's constructor.
    Create {
        /// How the actor lives; its name as the user said it.
        options: ActorOptions,
        /// Where the name is; none: in the job's namespace.
        namespace: Option<String>,
    },
    /// An actor's method.
    Call {
        /// The actor.
        actor: ActorId,
        /// A handle that keeps it alive.
        handle: Ref,
        /// More calls than this may not be pending.
        pending_max: usize,
    },
}

impl Runtime {
    /// Starts the runtime of this program: a node as threads in it, and worker processes.
    pub fn start(config: Config) -> Result<Self, Error> {
        Ok(Self { process: outside(|| Driver::start(config))? })
    }

    /// The runtime of this program, when it is a driver that has started or a worker.
    pub fn current() -> Result<Self, Error> {
        check_forked()?;
        let process = process::current().ok_or(Error::NotRunning("never started, or shut down"))?;
        Ok(Self { process })
    }

    /// Whether this process runs tasks for a driver.
    pub fn is_worker(&self) -> bool {
        self.process.is_worker()
    }

    /// Ends the runtime and all its processes. A second time does nothing, and so does a fork.
    pub fn shutdown(&self) {
        outside(|| Driver::shutdown(&self.process));
    }

    /// Submits a task and gives handles of its results, at once.
    pub fn submit(&self, request: Submit) -> Result<Vec<Ref>, Error> {
        self.check_running()?;
        check_limits(&request)?;
        let handle = match &request.target {
            Target::Call { handle, .. } => Some(handle),
            Target::Plain | Target::Create { .. } => None,
        };
        self.check_refs(request.dependencies.iter().chain(&request.keep).chain(handle))?;
        let kind = match &request.target {
            Target::Plain => TaskKind::Plain,
            Target::Create { options, namespace } => {
                let full = options.name.as_deref().map(|name| self.full_name(name, namespace.as_deref()));
                TaskKind::Create(ActorOptions { name: full.transpose()?, ..options.clone() })
            }
            Target::Call { actor, pending_max, .. } => {
                if *pending_max != usize::MAX {
                    let pending = self.process.lock().owner.pending_calls(actor);
                    if pending >= *pending_max {
                        return Err(Error::PendingCallsLimit { actor: *actor, pending });
                    }
                }
                // The owner fills in who calls and the sequence.
                TaskKind::Call { actor: *actor, caller: self.process.me, sequence: 0 }
            }
        };
        let mut spec = TaskSpec {
            id: TaskId::from_raw(0),
            parent: TaskId::from_raw(0),
            function: request.function,
            digest: 0,
            attempt: 0,
            lane: 0,
            depth: 0,
            returns: request.returns,
            kind,
            stream: request.stream,
            options: request.options,
            dependencies: request.dependencies.iter().map(Ref::spec).collect(),
            nested: request.nested,
            payload: request.payload.into(),
        };
        spec.digest = spec.compute_digest();
        let repeated = self.process.with_lane(|lane| {
            lane.advance();
            spec.parent = lane.task();
            spec.depth = lane.child_depth();
            spec.id = lane.task_id();
            lane.repeated()
        });
        if request.inherits
            && let Some(group) = process::captured_group()
        {
            let strategy = Strategy::Group { group, bundle: None };
            spec.options = Arc::new(TaskOptions { strategy, captures: true, ..(*spec.options).clone() });
        }
        let (id, returns) = (spec.id, spec.returns);
        let (id, event) = if repeated { self.adopt(spec)? } else { (id, Event::Submitted(spec)) };
        let open = self.process.own(event);
        let refs = (0..returns).map(|index| Ref::counted(&self.process, ObjectId::result(id, index))).collect();
        if open.tasks >= TASKS_PENDING_MAX {
            self.wait_for_room()?;
        }
        Ok(refs)
    }

    /// Waits until fewer tasks are pending: the bound holds a runaway loop back instead of filling the memory.
    #[cold]
    fn wait_for_room(&self) -> Result<(), Error> {
        let room = |inner: &mut process::Inner| (inner.owner.pending() < TASKS_PENDING_MAX).then_some(());
        match self.process.wait_for(None, &Interest::Room, room) {
            Waited::Got(()) | Waited::TimedOut => Ok(()),
            Waited::Over => Err(self.process.over_error()),
            Waited::Interrupted => Err(Error::Interrupted),
        }
    }

    /// A repeated task asks before it makes anything: what exists is adopted (design rule 3).
    fn adopt(&self, mut spec: TaskSpec) -> Result<(TaskId, Event), Error> {
        loop {
            let object = ObjectId::result(spec.id, 0);
            let (adoption, attempt, items) = self.ask_adoption(object, spec.digest)?;
            let event = match adoption {
                Adoption::New => {
                    // Records of earlier runs must not be taken for this one's.
                    spec.attempt = attempt;
                    Event::Submitted(spec)
                }
                Adoption::Finished(values) => Event::Adopted { spec, values: Some(values) },
                Adoption::Running => Event::Adopted { spec, values: None },
                Adoption::Different => {
                    spec.id = self.other_epoch(|lane| lane.task_id())?;
                    continue;
                }
            };
            if let Event::Submitted(spec) | Event::Adopted { spec, .. } = &event
                && spec.stream.is_some()
            {
                self.process.own(Event::ItemsFound { task: spec.id, items });
            }
            let id = match &event {
                Event::Submitted(spec) | Event::Adopted { spec, .. } => spec.id,
                _ => unreachable!("only these two are made above"),
            };
            return Ok((id, event));
        }
    }

    /// Whether an object exists; for a stream, with the items that it has.
    fn ask_adoption(&self, object: ObjectId, digest: u64) -> Result<(Adoption, u32, Items), Error> {
        let request = self.process.request_id();
        match self.process.ask(request, &ToNode::Adopt { request, object, digest, items: 0 })? {
            FromNode::Adopted { adoption, attempt, .. } => {
                let items = self.process.lock().take_found(request);
                Ok((adoption, attempt, items))
            }
            _ => Err(Error::System { what: "adopting", reason: "the node answered something else".into() }),
        }
    }

    fn other_epoch<R>(&self, name: impl FnOnce(&bireme_core::lane::Lane) -> R) -> Result<R, Error> {
        self.process.with_lane(|lane| {
            if lane.open_epoch() {
                Ok(name(lane))
            } else {
                let text = "a repeated task submitted something else too often; make it deterministic";
                Err(Error::BadArgument(text.into()))
            }
        })
    }

    /// Makes an object of a value.
    pub fn put(&self, value: Encoded) -> Result<Ref, Error> {
        self.check_running()?;
        // A large value is named by its length only: hashing it would cost as much as storing it.
        let head = digest_without_owners(0, &value.head, &value.nested);
        let digest = match value.len() {
            len if len <= bireme_core::value::INLINE_BYTES_MAX => {
                value.parts().skip(1).fold(head, |all, part| all.rotate_left(1) ^ digest(part))
            }
            len => head ^ len as u64,
        };
        let object = match self.name_put(digest)? {
            Put::Adopted(adopted) => return Ok(adopted),
            Put::New(object) => object,
        };
        let value = self.process.store_value(&value)?;
        let open = self.process.own(Event::Put { object, digest, value, recorded: false });
        let put = Ref::counted(&self.process, object);
        if open.objects > OBJECTS_OPEN_MAX {
            // The handle goes with the error, and the object with it.
            return Err(Error::StoreFull(format!(
                "{OBJECTS_OPEN_MAX} objects are open in this process; drop some references"
            )));
        }
        Ok(put)
    }

    /// The name of the next put of the current thread; a repeated task adopts what exists under it.
    pub(crate) fn name_put(&self, digest: u64) -> Result<Put, Error> {
        let (mut object, repeated) = self.process.with_lane(|lane| {
            lane.advance();
            (lane.put_id(), lane.repeated())
        });
        if !repeated {
            return Ok(Put::New(object));
        }
        loop {
            match self.ask_adoption(object, digest)?.0 {
                Adoption::New | Adoption::Running => return Ok(Put::New(object)),
                Adoption::Finished(mut values) if values.len() == 1 => {
                    let value = values.remove(0);
                    self.process.own(Event::Put { object, digest, value, recorded: true });
                    return Ok(Put::Adopted(Ref::counted(&self.process, object)));
                }
                Adoption::Finished(_) | Adoption::Different => object = self.other_epoch(|lane| lane.put_id())?,
            }
        }
    }

    /// The bytes of an object, waiting until there is a value.
    pub fn get(&self, r: &Ref, timeout: Option<Duration>) -> Result<Fetched, Error> {
        self.check_refs([r])?;
        let object = r.id();
        let deadline = timeout.and_then(crate::clock::deadline);
        let mut asked = false;
        let waited = r.process().wait_for(deadline, &Interest::Objects(&[object]), |inner| {
            if let Some(value) = inner.owner.value(&object) {
                return Some(value.clone());
            }
            if !std::mem::replace(&mut asked, true) {
                r.process().want(inner, object);
            }
            None
        });
        match waited {
            Waited::Got(value) => r.process().fetch(&value, r.spec()),
            Waited::Over => Err(r.process().over_error()),
            Waited::Interrupted => Err(Error::Interrupted),
            Waited::TimedOut => {
                let waiting_for = self.explain(r).unwrap_or_else(|error| error.to_string());
                Err(Error::Timeout { object, waited: timeout.unwrap_or_default(), waiting_for })
            }
        }
    }

    /// Asks the owners of these objects for the values that this process does not have, all at once. To be called before
    /// [`get`](Self::get) of each, which would ask for one after another and wait for every answer.
    pub fn ask_for<'a>(&self, refs: impl Iterator<Item = &'a Ref> + Clone) -> Result<(), Error> {
        self.check_refs(refs.clone())?;
        self.process.want_borrowed(refs.map(Ref::id));
        Ok(())
    }

    /// The bytes of an object, when there is a value already.
    pub fn try_get(&self, r: &Ref) -> Result<Option<Fetched>, Error> {
        self.check_refs([r])?;
        match r.process().value_now(r.id()) {
            Some(value) => r.process().fetch(&value, r.spec()).map(Some),
            None => Ok(None),
        }
    }

    /// Whether an object has a value; if not, the waker is woken when it has one, or when the runtime ends.
    pub fn is_ready_or_wake(&self, r: &Ref, waker: &Waker) -> bool {
        is_forked() || r.process().is_over() || r.process().value_or_wake(r.id(), waker).is_some()
    }

    /// Who this process is to the others.
    pub fn process_id(&self) -> ProcessId {
        self.process.me
    }

    /// Number of the job, which no other runtime of this machine has.
    pub fn job(&self) -> u64 {
        self.process.job
    }

    /// The bytes of an object when there are any, else a promise to wake the task.
    pub fn poll(&self, r: &Ref, context: &mut Context<'_>) -> Poll<Result<Fetched, Error>> {
        if let Err(error) = check_forked() {
            return Poll::Ready(Err(error));
        }
        let process = r.process();
        if process.is_over() {
            return Poll::Ready(Err(process.over_error()));
        }
        match process.value_or_wake(r.id(), context.waker()) {
            Some(value) => Poll::Ready(process.fetch(&value, r.spec())),
            None => Poll::Pending,
        }
    }

    /// Waits until `count` of the objects have a value. Gives for each whether it has one.
    pub fn wait(&self, refs: &[&Ref], count: usize, timeout: Option<Duration>) -> Result<Vec<bool>, Error> {
        if refs.is_empty() || count == 0 || count > refs.len() {
            let text = format!("wait for {count} of {} references makes no sense; give 1 to {0}", refs.len());
            return Err(Error::BadArgument(text));
        }
        self.check_running()?;
        self.check_refs(refs.iter().copied())?;
        let objects: Vec<ObjectId> = refs.iter().map(|r| r.id()).collect();
        let deadline = timeout.and_then(crate::clock::deadline);
        let mut flags = vec![false; objects.len()];
        let mut missing = count;
        let process = &self.process;
        let mut seen = None;
        let waited = process.wait_for(deadline, &Interest::Objects(&objects), |inner| {
            // Between two looks something must have become ready, or a look is in vain.
            if seen.replace(inner.readied) != Some(inner.readied) {
                missing -= process.count_ready(inner, &objects, &mut flags, missing);
            }
            (missing == 0).then_some(())
        });
        match waited {
            Waited::Got(()) | Waited::TimedOut => Ok(flags),
            Waited::Over => Err(self.process.over_error()),
            Waited::Interrupted => Err(Error::Interrupted),
        }
    }

    /// Cancels the task that makes this object, and with `recursive` what it has submitted. A finished task is left as it is.
    pub fn cancel(&self, r: &Ref, force: bool, recursive: bool) -> Result<(), Error> {
        self.check_refs([r])?;
        r.process().own(Event::Cancelled { object: r.id(), force, recursive });
        r.process().doorbell.ring_self();
        Ok(())
    }

    /// Ends an actor now. A dead or unknown actor is left as it is.
    pub fn kill_actor(&self, actor: ActorId, restart: bool) -> Result<(), Error> {
        self.check_running()?;
        self.process.own(Event::ActorKilled { actor, restart });
        Ok(())
    }

    /// Keeps code for whoever runs tasks of this function; the key is the code's hash. Returns when the node has it.
    pub fn publish(&self, function: FunctionKey, code: Vec<u8>) -> Result<(), Error> {
        self.check_running()?;
        if code.len() > CODE_BYTES_MAX {
            let text =
                format!("code of {} bytes is more than {CODE_BYTES_MAX}; pass large values as arguments", code.len());
            return Err(Error::BadArgument(text));
        }
        let request = self.process.request_id();
        match self.process.ask(request, &ToNode::Publish { request, function, code })? {
            FromNode::Published { .. } => Ok(()),
            _ => Err(Error::System { what: "publishing", reason: "the node answered something else".into() }),
        }
    }

    /// The code that was published under this key.
    pub fn lookup(&self, function: FunctionKey) -> Result<Option<Vec<u8>>, Error> {
        self.check_running()?;
        let request = self.process.request_id();
        match self.process.ask(request, &ToNode::Lookup { request, function })? {
            FromNode::Code { code, .. } => Ok(code),
            _ => Err(Error::System { what: "looking code up", reason: "the node answered something else".into() }),
        }
    }

    /// What an object waits for, in words.
    pub fn explain(&self, r: &Ref) -> Result<String, Error> {
        self.check_refs([r])?;
        let process = r.process();
        let known = match process.explain_here(r.spec()) {
            Some(Known::All(text)) => return Ok(text),
            Some(Known::Part(text)) => Some(text),
            None => None,
        };
        let request = process.request_id();
        let group = process.lock().owner.awaited_group(&r.id());
        let question = ToNode::Explain { request, task: group.map_or(r.id().task(), |group| group.0) };
        let said = match process.ask_within(request, &question, EXPLAIN_WAIT) {
            Ok(FromNode::Explained { text, .. }) => Ok(text),
            Ok(_) => Err(Error::System { what: "explaining", reason: "the node answered something else".into() }),
            Err(error) => Err(error),
        };
        match (known, said) {
            (Some(known), Ok(said)) => Ok(format!("{known}; {said}")),
            (Some(known), Err(_)) => Ok(known),
            (None, said) => said,
        }
    }

    /// What the machine has and what of it is free: one small message, whatever else the node knows.
    pub fn resources(&self) -> Result<(Resources, Resources), Error> {
        self.resources_row().map(|row| (row.total, row.free))
    }

    /// The same with what is owed and how many wait.
    pub fn resources_row(&self) -> Result<ResourcesRow, Error> {
        self.check_running()?;
        self.process.own(Event::FreeAsked);
        let request = self.process.request_id();
        match self.process.ask(request, &ToNode::QueryResources { request })? {
            FromNode::Resources { row, .. } => Ok(row),
            _ => Err(Error::System { what: "asking for resources", reason: "the node answered something else".into() }),
        }
    }

    /// The node's tables.
    pub fn state(&self) -> Result<Snapshot, Error> {
        self.check_running()?;
        let request = self.process.request_id();
        match self.process.ask(request, &ToNode::QueryState { request })? {
            FromNode::State { bytes, .. } => postcard::from_bytes(&bytes)
                .map_err(|error| Error::System { what: "reading the node's state", reason: error.to_string() }),
            _ => Err(Error::System {
                what: "reading the node's state",
                reason: "the node answered something else".into(),
            }),
        }
    }

    /// The next lines that workers wrote, in a driver with [`Output::Lines`](crate::Output::Lines); to be called by one
    /// thread. Waits until there are any: an empty list when the time is up, and `None` when the runtime is shut down
    /// and everything was delivered.
    pub fn next_output(&self, timeout: Option<Duration>) -> Option<Vec<OutputLine>> {
        if is_forked() {
            return None;
        }
        let outputs = self.process.outputs()?;
        outside(|| outputs.next(timeout))
    }

    /// Whether the current task was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        process::is_cancelled()
    }

    /// The task that the current thread runs, or the root of this process.
    pub fn current_task(&self) -> TaskId {
        self.process.with_lane(|lane| lane.task())
    }

    /// A reference of a runtime that was shut down stays unusable, also when another one has started since.
    pub(crate) fn check_refs<'a>(&self, refs: impl IntoIterator<Item = &'a Ref>) -> Result<(), Error> {
        check_forked()?;
        match refs.into_iter().find(|r| r.process().is_over()) {
            Some(over) => Err(over.process().over_error()),
            None => Ok(()),
        }
    }

    /// An error when the runtime was shut down or its node is gone.
    pub fn check_running(&self) -> Result<(), Error> {
        check_forked()?;
        if self.process.is_over() { Err(self.process.over_error()) } else { Ok(()) }
    }
}

fn check_limits(request: &Submit) -> Result<(), Error> {
    let refs = request.dependencies.len() + request.nested.len();
    if refs > ARGUMENT_REFS_MAX {
        return Err(Error::BadArgument(format!("{refs} references in one task are more than {ARGUMENT_REFS_MAX}")));
    }
    if request.stream.is_some() && (request.returns != 1 || matches!(request.target, Target::Create { .. })) {
        let text = "a stream has one result, its end, and a constructor cannot stream";
        return Err(Error::BadArgument(text.into()));
    }
    if request.returns > RETURNS_MAX {
        return Err(Error::BadArgument(format!("{} results of one task are more than {RETURNS_MAX}", request.returns)));
    }
    if let Target::Create { options, .. } = &request.target
        && options.concurrency_max > ACTOR_CONCURRENCY_MAX
    {
        let asked = options.concurrency_max;
        let text =
            format!("{asked} calls at once in one actor are more than {ACTOR_CONCURRENCY_MAX}; make more actors");
        return Err(Error::BadArgument(text));
    }
    Ok(())
}
