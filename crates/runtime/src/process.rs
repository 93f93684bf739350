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
//! Files: `drain` reads what came, `act` carries effects out, `wait` blocks, `ask` puts questions to the node.

mod act;
mod ask;
mod drain;
mod wait;

pub(crate) use wait::{Interest, Waited, count_as_running};

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::Waker;
use std::thread::Thread;

use bireme_core::failure::Failure;
use bireme_core::id::{LeaseId, ObjectId, ProcessId, TaskId};
use bireme_core::lane::Lane;
use bireme_core::message::FromNode;
use bireme_core::owner::{self, Owner, OwnerConfig};
use bireme_core::spec::{Interned, TaskSpec};
use bireme_core::worker::{self, Execution, Worker};
use bireme_net::{Connection, Doorbell, Fabric, RingSpan, SlotId, SpinMode};
use bireme_store::StoreClient;

use crate::error::Error;
use crate::link::{Incoming, Outgoing};

/// The node's place among a process's connections.
pub const NODE_CONNECTION: u16 = 0;

/// What a process needs to come to life.
pub struct Start {
    /// Who it is.
    pub me: ProcessId,
    /// Number of the job, the root of all ids.
    pub job: u64,
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
    /// Parked threads that could lead.
    followers: Vec<Thread>,
    answers: BTreeMap<u64, FromNode>,
    executions: VecDeque<Execution>,
    /// Executors that wait for something to run, leading or parked.
    idle_executors: u32,
    parked_executors: Vec<Thread>,
    executors: u32,
    /// The tasks that run here, and the flags by which they are asked to stop.
    flags: Vec<(TaskId, Arc<AtomicBool>)>,
    exit: bool,
    fail_point: Option<crate::fail_point::FailPoint>,
}

impl Process {
    /// Brings a process to life: opens its node link and starts its pump.
    pub fn start(start: Start) -> Result<Arc<Self>, Error> {
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
            followers: Vec::new(),
            answers: BTreeMap::new(),
            executions: VecDeque::new(),
            idle_executors: 0,
            parked_executors: Vec::new(),
            executors: 0,
            flags: Vec::new(),
            exit: false,
            fail_point: None,
        };
        let process = Arc::new_cyclic(|this| Self {
            me: start.me,
            job: start.job,
            doorbell: start.fabric.doorbell(slot),
            fabric: start.fabric,
            slot,
            store: start.store,
            spin: if start.spin { SpinMode::Adaptive } else { SpinMode::Never },
            inner: Mutex::new(inner),
            next_request: AtomicU64::new(1),
            next_lane: AtomicU32::new(0),
            over: AtomicBool::new(false),
            this: this.clone(),
        });
        wait::start_pump(&process)?;
        Ok(process)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic inside a machine is a bug that a poisoned lock would only repeat; the state is still the best we have.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Feeds the owner and carries out what it wants. Tells how much it has open after that.
    #[inline]
    pub(crate) fn own(&self, event: owner::Event) -> Open {
        let mut inner = self.lock();
        if inner.lead != Lead::Caller && self.doorbell.is_ready() {
            self.drain(&mut inner);
        }
        self.step_owner(&mut inner, event);
        self.flush(&mut inner);
        Open { tasks: inner.owner.pending(), objects: inner.owner.object_count() }
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

    /// The next execution for an executor that has just finished one. While the pump ticks, the executor stays present
    /// on the doorbell, so that peers feed it without a system call.
    pub(crate) fn next_execution(&self, inner: &mut Inner) -> Option<(Execution, Arc<AtomicBool>)> {
        if inner.lead != Lead::Caller && self.doorbell.is_ready() {
            self.drain(inner);
        }
        let next = inner.take_execution();
        match (&next, inner.lead) {
            (Some(_), Lead::Pump) if inner.pump_ticks => {
                inner.lead = Lead::Executor;
                self.doorbell.enter_caller();
            }
            (None, Lead::Executor) => {
                inner.lead = Lead::Pump;
                self.doorbell.leave_caller();
            }
            _ => {}
        }
        next
    }

    /// Itself, while it lives.
    pub(crate) fn this(&self) -> Option<Arc<Process>> {
        self.this.upgrade()
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
                });
            }
            let context = context.as_mut().expect("a context was just made");
            use_lane(&mut context.lane)
        })
    }
}

impl Inner {
    /// One more executor, which is about to wait for work.
    pub(crate) fn begin_executor(&mut self) {
        self.executors += 1;
        self.idle_executors += 1;
    }

    /// An executor could not be started.
    pub(crate) fn end_executor(&mut self) {
        self.executors -= 1;
        self.idle_executors -= 1;
    }

    /// Wakes a parked executor for a queued execution. True when a new one has to be started.
    pub(crate) fn executor_needed(&mut self, executors_max: u32) -> bool {
        if let Some(parked) = self.parked_executors.pop() {
            parked.unpark();
        }
        self.executions.len() > self.idle_executors as usize && self.executors < executors_max
    }

    /// Takes the next execution for an idle executor, with the flag by which it can be asked to stop.
    pub(crate) fn take_execution(&mut self) -> Option<(Execution, Arc<AtomicBool>)> {
        let execution = self.executions.pop_front()?;
        self.idle_executors -= 1;
        let flag = Arc::new(AtomicBool::new(false));
        self.flags.push((execution.spec.id, Arc::clone(&flag)));
        Some((execution, flag))
    }

    /// An executor has finished a task and is about to look for another.
    pub(crate) fn end_task(&mut self, task: &TaskId) {
        self.flags.retain(|(running, _)| running != task);
        self.progress += 1;
        self.idle_executors += 1;
    }

    pub(crate) fn add_waker(&mut self, object: ObjectId, waker: &Waker) {
        let waiters = self.waiters.entry(object).or_default();
        let known = |waiter: &Waiter| matches!(waiter, Waiter::Task(other) if other.will_wake(waker));
        if !waiters.iter().any(known) {
            waiters.push(Waiter::Task(waker.clone()));
        }
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
}

thread_local! {
    static CONTEXT: RefCell<Option<Context>> = const { RefCell::new(None) };
}

/// Runs `body` as a task: what it submits is named by the task.
pub(crate) fn in_task<R>(
    process: &Process,
    execution: &Execution,
    flag: Arc<AtomicBool>,
    body: impl FnOnce() -> R,
) -> R {
    let spec = &execution.spec;
    let context = Context {
        process: (process.job, process.me),
        lane: Lane::new(spec.id, 0, spec.depth, spec.attempt > 0),
        seat: Some(execution.lease),
        flag: Some(flag),
    };
    CONTEXT.with_borrow_mut(|slot| *slot = Some(context));
    let result = body();
    CONTEXT.with_borrow_mut(|slot| *slot = None);
    result
}

/// Whether the current thread's task was asked to stop.
pub(crate) fn is_cancelled() -> bool {
    CONTEXT.with_borrow(|context| {
        context.as_ref().and_then(|c| c.flag.as_ref()).is_some_and(|flag| flag.load(Ordering::Acquire))
    })
}

fn current_seat() -> Option<LeaseId> {
    CONTEXT.with_borrow(|context| context.as_ref().and_then(|c| c.seat))
}

static CURRENT: RwLock<Option<Arc<Process>>> = RwLock::new(None);
static GENERATION: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static CACHED: RefCell<(u64, Option<Arc<Process>>)> = const { RefCell::new((u64::MAX, None)) };
}

/// The process that this program is, once it has started.
#[inline]
pub(crate) fn current() -> Option<Arc<Process>> {
    let generation = GENERATION.load(Ordering::Acquire);
    CACHED.with_borrow_mut(|cached| {
        if cached.0 != generation {
            let process = CURRENT.read().unwrap_or_else(PoisonError::into_inner).clone();
            *cached = (generation, process);
        }
        cached.1.clone()
    })
}

/// Sets or clears the process of this program.
pub(crate) fn set_current(process: Option<Arc<Process>>) {
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = process;
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// The error of a call after the end.
pub(crate) fn shut_down() -> Error {
    Error::Failed(Arc::new(Failure::ShutDown))
}
