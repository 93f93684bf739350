//! A process of the runtime, driver or worker: the shell around its owner and worker machines.
//!
//! One lock holds the machines and the receiving ends of all links. Whoever needs something holds the lock for a moment:
//! a user's thread that submits writes straight into the worker's ring; a user's thread that waits (the *caller*) leads,
//! that is, drains the process's doorbell itself, spinning and then sleeping on it; other waiting threads are parked and
//! woken when their object is ready or the lead is free. When no user's thread waits, the *pump* thread leads, so progress
//! never needs a caller.
//!
//! An executor that runs a stream of short tasks stays *present* on the doorbell while it runs, so that peers need no
//! system call to feed it; the pump looks every [`wait::TICK`] whether it still makes progress and takes over when not.
//!
//! Files: `drain` reads what came, `act` carries effects out, `wait` blocks, `interrupt` ends waits for a signal, `outside` leaves a
//! front end's lock for them, `ask` puts questions to the node, `executors` keeps the books of the threads that run tasks.

mod act;
mod ask;
mod drain;
mod executors;
mod interrupt;
mod outside;
mod wait;

pub use interrupt::{Interruptible, interruptible, set_cancel_hook, set_interrupt_check, wake_executors};
pub(crate) use outside::outside;
pub use outside::set_wait_scope;
pub(crate) use wait::{Interest, Waited, count_as_running};

use executors::Executors;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::task::Waker;
use std::thread::Thread;
use std::time::{Duration, Instant};

use bireme_core::failure::Failure;
use bireme_core::id::{GroupId, LeaseId, ObjectId, ProcessId, TaskId};
use bireme_core::lane::Lane;
use bireme_core::message::{FromNode, Peer};
use bireme_core::names::Namespace;
use bireme_core::owner::{self, Owner, OwnerConfig};
use bireme_core::spec::{Interned, TaskKind, TaskSpec};
use bireme_core::value::Value;
use bireme_core::worker::{self, Execution, Pace, Worker};
use bireme_net::{Connection, Doorbell, Fabric, RingSpan, SlotId, SpinMode};
use bireme_store::StoreClient;

use crate::collective::{Books, Memberships};
use crate::error::Error;
use crate::link::{Incoming, Outgoing};
use crate::output::Outputs;

/// The pause between two looks whether all threads have left.
const QUIET_PAUSE: Duration = Duration::from_millis(1);

/// The node's place among a process's connections.
pub const NODE_CONNECTION: u16 = 0;

/// What a process needs to come to life.
pub struct Start {
    /// Who it is.
    pub me: ProcessId,
    /// Number of the job, the root of all ids.
    pub job: u64,
    /// Where the job's names are.
    pub namespace: Namespace,
    /// The shared fabric.
    pub fabric: Fabric,
    /// The store, as this process sees it.
    pub store: StoreClient,
    /// Ring to the node.
    pub to_node: RingSpan,
    /// Ring from the node.
    pub from_node: RingSpan,
    /// Whether waiting threads may spin.
    pub spin: bool,
    /// The owner's settings.
    pub owner: OwnerConfig,
}

/// A process.
pub struct Process {
    pub(crate) me: ProcessId,
    pub(crate) job: u64,
    /// The name of the job's namespace.
    pub(crate) namespace: String,
    pub(crate) fabric: Fabric,
    pub(crate) slot: SlotId,
    pub(crate) doorbell: Doorbell,
    pub(crate) store: StoreClient,
    pub(crate) spin: SpinMode,
    inner: Mutex<Inner>,
    next_request: AtomicU64,
    next_lane: AtomicU32,
    /// Set when the runtime is over; every wait ends with an error.
    over: AtomicBool,
    /// Why it is over, when the node is gone.
    lost: OnceLock<String>,
    /// Threads that may be asleep on the doorbell: those that wait, and the pump.
    busy: AtomicUsize,
    /// Threads that belong to no task and sleep until an object is there.
    waits_of_no_task: AtomicUsize,
    /// What workers print, in a driver.
    outputs: OnceLock<Arc<Outputs>>,
    /// The placement group of the actor that lives here.
    actor_place: OnceLock<GroupPlace>,
    /// The members of collective groups that live here.
    pub(crate) memberships: Memberships,
    /// Itself, for the threads that it starts.
    this: Weak<Process>,
}

/// What an owner has open: its bounds are checked by those who add to it.
pub(crate) struct Open {
    /// Tasks and calls that have not ended.
    pub(crate) tasks: usize,
    /// Objects that it owns or borrows.
    pub(crate) objects: usize,
}

/// Who drains the doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    /// The pump, when it wakes.
    Pump,
    /// A thread that waits.
    Caller,
    /// An executor that runs tasks and looks in between; the number counts its tasks.
    Executor,
}

/// Who is told when an object is ready.
enum Waiter {
    Thread(Thread),
    Task(Waker),
}

struct LinkEnd {
    peer: ProcessId,
    incoming: Incoming,
    outgoing: Outgoing,
}

pub(crate) struct Inner {
    pub(crate) owner: Owner,
    worker: Worker,
    owner_effects: Vec<owner::Effect>,
    worker_effects: Vec<worker::Effect>,
    node: LinkEnd,
    /// Whether the node has to be rung at the end of this turn.
    ring_node: bool,
    links: Vec<Option<LinkEnd>>,
    connection_of: BTreeMap<ProcessId, u16>,
    /// Messages that wait for a link, and all that came after them: a loan must reach its owner before the message that
    /// carries the reference reaches anyone, or this process's death in between would lose the loan.
    parked: VecDeque<(ProcessId, Vec<u8>)>,
    /// Links with something to publish.
    dirty: Vec<u16>,
    scratch: Vec<u8>,
    interned: Interned,
    /// Connections that are ready, between taking them and draining them.
    ready: Vec<u16>,
    lead: Lead,
    /// Counts tasks run and messages drained, for the pump to see progress.
    progress: u64,
    /// Messages drained while no caller led: the pump's business.
    strays: u64,
    /// What `progress` was when a waiting thread last looked around.
    rested_at: u64,
    pump_ticks: bool,
    waiters: HashMap<ObjectId, Vec<Waiter>>,
    /// Counts the objects that became ready while somebody wanted them.
    pub(crate) readied: u64,
    /// How many of these have a failure in the place of a value.
    pub(crate) failures: u64,
    /// Parked threads that a failure of any object wakes.
    failure_watchers: Vec<Thread>,
    /// Parked threads that could lead.
    followers: Vec<Thread>,
    answers: BTreeMap<u64, FromNode>,
    /// Items of streams that a repeated thread asks about, before the answer.
    found: BTreeMap<u64, Vec<(u32, Value)>>,
    /// What this process tells itself: an actor may call itself. Heard at the end of the turn.
    to_self: VecDeque<Peer>,
    executors: Executors,
    /// Nothing of the shared memory is to be touched any more: the slot may become another process's.
    closed: bool,
    pub(crate) collectives: Books,
    fail_point: Option<crate::fail_point::FailPoint>,
}

impl Process {
    /// Brings a process to life: opens its node link and starts its pump.
    pub fn start(start: Start) -> Result<Arc<Self>, Error> {
        crate::heap::keep_some();
        crate::forked::watch_forks()?;
        let slot = u16::try_from(start.me.slot).ok().and_then(SlotId::new).ok_or(Error::System {
            what: "finding the process's slot",
            reason: format!("slot {} is out of range", start.me.slot),
        })?;
        let node_slot = SlotId::new(0).expect("the node's slot is in range");
        let to_us = Connection::new(start.me.slot as u16).ok_or(Error::System {
            what: "finding the process's connection",
            reason: format!("slot {} is out of range", start.me.slot),
        })?;
        let open = |reason: String| Error::System { what: "opening the link to the node", reason };
        let node = LinkEnd {
            peer: ProcessId::NODE,
            incoming: Incoming::open(&start.fabric, start.from_node).map_err(open)?,
            outgoing: Outgoing::open(&start.fabric, start.to_node, node_slot, to_us).map_err(open)?,
        };
        let inner = Inner {
            owner: Owner::new(start.me, start.owner),
            worker: Worker::default(),
            owner_effects: Vec::new(),
            worker_effects: Vec::new(),
            node,
            ring_node: false,
            links: Vec::new(),
            connection_of: BTreeMap::new(),
            parked: VecDeque::new(),
            dirty: Vec::new(),
            scratch: Vec::new(),
            interned: Interned::default(),
            ready: Vec::new(),
            lead: Lead::Pump,
            progress: 0,
            strays: 0,
            rested_at: 0,
            pump_ticks: false,
            waiters: HashMap::new(),
            readied: 0,
            failures: 0,
            failure_watchers: Vec::new(),
            followers: Vec::new(),
            answers: BTreeMap::new(),
            found: BTreeMap::new(),
            to_self: VecDeque::new(),
            executors: Executors::default(),
            closed: false,
            collectives: Books::default(),
            fail_point: None,
        };
        let process = Arc::new_cyclic(|this| Self {
            me: start.me,
            job: start.job,
            namespace: start.namespace.name(start.job),
            doorbell: start.fabric.doorbell(slot),
            fabric: start.fabric,
            slot,
            store: start.store,
            spin: if start.spin { SpinMode::Adaptive } else { SpinMode::Never },
            inner: Mutex::new(inner),
            next_request: AtomicU64::new(1),
            next_lane: AtomicU32::new(0),
            over: AtomicBool::new(false),
            lost: OnceLock::new(),
            busy: AtomicUsize::new(0),
            waits_of_no_task: AtomicUsize::new(0),
            outputs: OnceLock::new(),
            actor_place: OnceLock::new(),
            memberships: Memberships::default(),
            this: this.clone(),
        });
        wait::start_pump(&process)?;
        Ok(process)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic inside a machine is a bug that a poisoned lock would only repeat; the state is still the best we have.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, once the ring to the node has room for what a turn writes as a rule: a node that is held up reads no more, and
    /// whoever waited for it under the lock would stop every other thread of the program.
    #[inline]
    pub(crate) fn lock_with_room(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        if inner.has_ledger_room() || self.is_over() || crate::thread::is_runtime_thread() {
            return inner;
        }
        drop(inner);
        self.await_ledger_room()
    }

    /// Feeds the owner and carries out what it wants. Tells how much it has open after that.
    #[inline]
    pub(crate) fn own(&self, event: owner::Event) -> Open {
        let mut inner = self.lock_with_room();
        self.look(&mut inner);
        self.step_owner(&mut inner, event);
        self.flush(&mut inner);
        Open { tasks: inner.owner.pending(), objects: inner.owner.object_count() }
    }

    /// Reads what came, unless a waiting thread does.
    #[inline]
    pub(crate) fn look(&self, inner: &mut Inner) {
        if inner.lead != Lead::Caller && self.doorbell.is_ready() {
            self.drain(inner);
        }
    }

    /// The end: every wait returns, every later call is an error.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        let mut inner = self.lock();
        for (_, waiters) in inner.waiters.drain() {
            waiters.into_iter().for_each(Waiter::wake);
        }
        for thread in inner.followers.drain(..) {
            thread.unpark();
        }
        drop(inner);
        self.doorbell.ring_self();
    }

    /// The node is gone: every wait returns, and every later call is an error that says so.
    pub(crate) fn lose_node(&self, reason: String) {
        // The first reason is the one that counts.
        let _ = self.lost.set(reason);
        self.end();
    }

    /// The error of a call after the end.
    pub(crate) fn over_error(&self) -> Error {
        match self.lost.get() {
            Some(reason) => Error::NodeGone(reason.clone()),
            None => Error::Failed(Arc::new(Failure::ShutDown)),
        }
    }

    /// After the end: nothing is read from shared memory or written to it any more, whatever is still dropped.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.links.clear();
        inner.connection_of.clear();
        inner.parked.clear();
        self.store.close();
    }

    /// After the end: whether all threads have left the doorbell within the time.
    pub(crate) fn is_quiet_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.busy.load(Ordering::Acquire) > 0 {
            if Instant::now() >= deadline {
                return false;
            }
            // Whoever wakes finds that it is over, and the next one may still sleep.
            self.doorbell.ring_self();
            std::thread::sleep(QUIET_PAUSE);
        }
        true
    }

    /// Itself, while it lives.
    pub(crate) fn this(&self) -> Option<Arc<Process>> {
        self.this.upgrade()
    }

    /// Where the lines of workers come from.
    pub(crate) fn take_outputs_from(&self, outputs: Arc<Outputs>) {
        // A process is started once, and so is its node.
        let _ = self.outputs.set(outputs);
    }

    /// What workers print; none in a worker.
    pub(crate) fn outputs(&self) -> Option<&Outputs> {
        self.outputs.get().map(|outputs| &**outputs)
    }

    /// Whether it runs tasks for a driver.
    pub(crate) fn is_worker(&self) -> bool {
        self.outputs.get().is_none()
    }

    /// Whether the runtime is over.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn request_id(&self) -> u64 {
        self.next_request.fetch_add(1, Ordering::Relaxed)
    }

    /// The lane of the current thread: of the task that it runs, or of the process's own code.
    pub(crate) fn with_lane<R>(&self, use_lane: impl FnOnce(&mut Lane) -> R) -> R {
        CONTEXT.with_borrow_mut(|context| {
            let stale = context.as_ref().is_none_or(|c| c.process != (self.job, self.me));
            if stale {
                let number = self.next_lane.fetch_add(1, Ordering::Relaxed);
                let root = TaskId::root(self.job, self.me);
                *context = Some(Context {
                    process: (self.job, self.me),
                    lane: Lane::new(root, number, 0, false),
                    seat: None,
                    flag: None,
                    gpus: Vec::new(),
                    place: self.actor_place.get().copied(),
                });
            }
            let context = context.as_mut().expect("a context was just made");
            use_lane(&mut context.lane)
        })
    }
}

impl Inner {
    /// The items that came before the answer to this question.
    pub(crate) fn take_found(&mut self, request: u64) -> Vec<(u32, Value)> {
        self.found.remove(&request).unwrap_or_default()
    }

    /// How the streaming task may go on; none when it does not run here.
    pub(crate) fn pace(&self, task: &TaskId) -> Option<Pace> {
        self.worker.pace(task)
    }

    /// Wakes every thread that waits and does not lead: what came may be for it.
    pub(crate) fn rouse(&self) {
        for thread in &self.followers {
            thread.unpark();
        }
    }

    /// Nobody waits for this any more.
    pub(crate) fn forget_waiters(&mut self, object: &ObjectId) {
        self.waiters.remove(object);
    }

    pub(crate) fn add_waker(&mut self, object: ObjectId, waker: &Waker) {
        let waiters = self.waiters.entry(object).or_default();
        let known = |waiter: &Waiter| matches!(waiter, Waiter::Task(other) if other.will_wake(waker));
        if !waiters.iter().any(known) {
            waiters.push(Waiter::Task(waker.clone()));
        }
    }

    /// The actor that lives in this process.
    pub(crate) fn hosted(&self) -> Option<&worker::Hosted> {
        self.worker.hosted()
    }

    /// The arguments of a task that have no value, by name.
    pub(crate) fn missing(&self, task: &TaskSpec) -> String {
        let missing = task.dependencies.iter().filter(|d| self.owner.value(&d.object).is_none());
        let names: Vec<String> = missing.take(4).map(|d| d.object.to_string()).collect();
        names.join(", ")
    }
}

impl Waiter {
    fn wake(self) {
        match self {
            Waiter::Thread(thread) => thread.unpark(),
            Waiter::Task(waker) => waker.wake(),
        }
    }
}

/// What the current thread works on.
pub(crate) struct Context {
    process: (u64, ProcessId),
    lane: Lane,
    /// The lease of the task that this thread runs.
    seat: Option<LeaseId>,
    flag: Option<Arc<AtomicBool>>,
    /// The GPUs of that task.
    gpus: Vec<u32>,
    /// The placement group of that task, or of the actor that lives here.
    place: Option<GroupPlace>,
}

/// In which placement group something runs.
#[derive(Clone, Copy)]
pub(crate) struct GroupPlace {
    pub(crate) group: GroupId,
    /// What it submits goes there too.
    captures: bool,
}

impl GroupPlace {
    fn of(spec: &TaskSpec) -> Option<Self> {
        spec.options.strategy.group().map(|group| Self { group, captures: spec.options.captures })
    }
}

impl Process {
    /// An actor lives here from now on.
    pub(crate) fn become_actor(&self, spec: &TaskSpec) {
        if let Some(place) = GroupPlace::of(spec) {
            // Only once: a process is one actor's for its whole life.
            let _ = self.actor_place.set(place);
        }
    }
}

/// In which placement group the current thread's code runs.
pub(crate) fn current_place() -> Option<GroupPlace> {
    CONTEXT.with_borrow(|context| context.as_ref().and_then(|c| c.place))
}

/// The placement group into which goes what the current thread submits.
pub(crate) fn captured_group() -> Option<GroupId> {
    current_place().filter(|place| place.captures).map(|place| place.group)
}

thread_local! {
    static CONTEXT: RefCell<Option<Context>> = const { RefCell::new(None) };
}

/// Runs `body` as a task: what it submits is named by the task.
pub(crate) fn in_task<R>(
    process: &Process,
    execution: &Execution,
    flag: &Arc<AtomicBool>,
    body: impl FnOnce() -> R,
) -> R {
    let spec = &execution.spec;
    let context = Context {
        process: (process.job, process.me),
        lane: Lane::new(spec.id, execution.lane, spec.depth, spec.attempt > 0),
        seat: Some(execution.lease),
        flag: Some(Arc::clone(flag)),
        gpus: execution.gpus.clone(),
        place: match spec.kind {
            TaskKind::Plain | TaskKind::Create(_) => GroupPlace::of(spec),
            TaskKind::Call { .. } => process.actor_place.get().copied(),
        },
    };
    CONTEXT.with_borrow_mut(|slot| *slot = Some(context));
    let result = body();
    CONTEXT.with_borrow_mut(|slot| *slot = None);
    result
}

/// Puts a context under the current thread and gives back the one that was there.
pub(crate) fn swap_context(context: Option<Context>) -> Option<Context> {
    CONTEXT.with_borrow_mut(|slot| std::mem::replace(slot, context))
}

/// Whether the current thread's task was asked to stop.
pub(crate) fn is_cancelled() -> bool {
    CONTEXT.with_borrow(|context| {
        context.as_ref().and_then(|c| c.flag.as_ref()).is_some_and(|flag| flag.load(Ordering::Acquire))
    })
}

/// The GPUs of the current thread's task, when it runs one.
pub(crate) fn gpu_indices() -> Option<Vec<u32>> {
    CONTEXT.with_borrow(|context| context.as_ref().filter(|c| c.seat.is_some()).map(|c| c.gpus.clone()))
}

pub(crate) fn current_seat() -> Option<LeaseId> {
    CONTEXT.with_borrow(|context| context.as_ref().and_then(|c| c.seat))
}

static CURRENT: RwLock<Option<Arc<Process>>> = RwLock::new(None);
static GENERATION: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // Weak: a thread that never asks again must not keep the shared memory of a runtime that is over.
    static CACHED: RefCell<(u64, Weak<Process>)> = const { RefCell::new((u64::MAX, Weak::new())) };
}

/// The process that this program is, once it has started.
#[inline]
pub(crate) fn current() -> Option<Arc<Process>> {
    let generation = GENERATION.load(Ordering::Acquire);
    CACHED.with_borrow_mut(|cached| {
        if cached.0 != generation {
            let process = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
            *cached = (generation, process.as_ref().map(Arc::downgrade).unwrap_or_default());
        }
        cached.1.upgrade()
    })
}

/// Sets or clears the process of this program.
pub(crate) fn set_current(process: Option<Arc<Process>>) {
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = process;
    GENERATION.fetch_add(1, Ordering::AcqRel);
}
