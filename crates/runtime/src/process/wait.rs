//! Waiting: who leads, who follows, and the pump that drives the process when nobody waits.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bireme_core::id::{LeaseId, ObjectId};
use bireme_core::{owner, worker};
use bireme_net::{Sleeper, SpinOutcome, SpinPolicy};

use super::interrupt::Watch;
use super::{Inner, Lead, Process, Waiter, current_seat, outside};
use crate::clock;
use crate::error::Error;

/// How often the pump looks while the process is busy.
pub const TICK: Duration = Duration::from_millis(1);
/// Ticks without progress after which the pump sleeps until it is rung.
const QUIET_TICKS_MAX: u32 = 20;
/// The pump naps instead of sleeping on the bell when so many messages came since it last looked, whoever read them:
/// more are on their way, and peers need not wake anyone for them.
const STREAM_MESSAGES: u64 = 8;
/// That nap.
const STREAM_NAP: Duration = Duration::from_micros(100);
/// The same for a waiting thread that finds no core to spin on.
const CALLER_NAP: Duration = Duration::from_micros(30);
/// The pump looks at least so often, for the owner's deadlines.
const PUMP_SLEEP_MAX: Duration = Duration::from_millis(500);

/// While a task runs here, the pump looks at least so often whether it waits through threads of its own.
const LOOK_EVERY: Duration = Duration::from_micros(worker::LOOK_EVERY_US);

/// How a wait ended.
pub(crate) enum Waited<R> {
    /// With what was waited for.
    Got(R),
    /// The deadline passed.
    TimedOut,
    /// The runtime was shut down.
    Over,
    /// The interrupt check said so.
    Interrupted,
}

/// What a parked thread wants to be woken for.
pub(crate) enum Interest<'a> {
    /// Any of these objects.
    Objects(&'a [ObjectId]),
    /// This object, or that any other one has failed.
    ObjectOrFailure(ObjectId),
    /// An answer of the node; such a wait is not interrupted.
    Answer,
    /// Room for another task: some of those that this process has submitted must end first.
    Room,
    /// The lead, and through it whatever comes.
    Anything,
    /// Something to run.
    Executions,
}

impl Interest<'_> {
    /// Whether a task that waits for this lends its CPU: only where another task may have to run first. An answer of the
    /// node needs no CPU, and a call of a group is made by tasks that run.
    fn lends_cpu(&self) -> bool {
        match self {
            Interest::Objects(_) | Interest::ObjectOrFailure(_) | Interest::Room => true,
            Interest::Answer | Interest::Anything | Interest::Executions => false,
        }
    }
}

thread_local! {
    static SPIN: RefCell<Option<SpinPolicy>> = const { RefCell::new(None) };
    /// The job whose fabric counts this thread.
    static RUNNING: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Counts the current thread as one that wants a core, except while it sleeps: the measure of whether one is spare.
pub(crate) fn count_as_running(process: &Process) {
    if RUNNING.replace(Some(process.job)) != Some(process.job) {
        process.fabric.enter_running(process.slot);
    }
}

impl Process {
    /// Waits until `check` gives something. The calling thread leads when nobody else does.
    pub(crate) fn wait_for<R>(
        &self,
        deadline: Option<Instant>,
        interest: &Interest<'_>,
        mut check: impl FnMut(&mut Inner) -> Option<R>,
    ) -> Waited<R> {
        let mut inner = self.lock();
        if inner.lead != Lead::Caller && self.doorbell.is_ready() {
            self.drain(&mut inner);
        }
        if let Some(result) = check(&mut inner) {
            return Waited::Got(result);
        }
        drop(inner);
        let begun = Instant::now();
        let watch = Watch::begin(interest);
        let _busy = Busy::begin(self);
        let lends = match current_seat() {
            _ if !interest.lends_cpu() => None,
            Some(lease) => Some(Lender::Task(lease)),
            None => Some(Lender::Process),
        };
        let mut wait = Wait { process: self, deadline, watch, lends, leading: false, blocked: false, streaming: false };
        let waited = outside(|| wait.run(interest, &mut check));
        SPIN.with_borrow_mut(|spin| {
            if let Some(spin) = spin {
                spin.waited(begun.elapsed());
            }
        });
        waited
    }

    /// Tells the worker whether code of no task waits, and how much the process computes.
    fn look_at_waits(&self, inner: &mut Inner) {
        let awaited = || inner.waiters.values().flatten().any(|waiter| matches!(waiter, Waiter::Task(_)));
        let waits = self.waits_of_no_task.load(Ordering::Acquire) > 0 || awaited();
        let (runs, processor_us) =
            if waits { (crate::thread::others_run(), clock::processor_us()) } else { (false, 0) };
        self.step_worker(inner, worker::Event::Looked { waits, runs, processor_us });
        self.flush(inner);
    }

    /// Runs something that sleeps: a sleeping thread needs no core.
    fn asleep(&self, sleep: impl FnOnce()) {
        let counted = RUNNING.get() == Some(self.job);
        if counted {
            self.fabric.leave_running(self.slot);
        }
        sleep();
        if counted {
            self.fabric.enter_running(self.slot);
        }
    }

    fn spin(&self) -> bool {
        SPIN.with_borrow_mut(|spin| {
            let policy = spin.get_or_insert_with(|| SpinPolicy::new(self.spin));
            policy.spin(&self.fabric, || self.doorbell.is_ready()) == SpinOutcome::Ready
        })
    }
}

/// Counts a thread that may sleep on the doorbell.
struct Busy<'a>(&'a Process);

impl<'a> Busy<'a> {
    fn begin(process: &'a Process) -> Self {
        process.busy.fetch_add(1, Ordering::AcqRel);
        Self(process)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The task whose CPU may be lent during a wait.
#[derive(Clone, Copy)]
enum Lender {
    /// The task of this thread.
    Task(LeaseId),
    /// The thread belongs to no task, but may have been started by one: see [`bireme_core::worker::Event::Looked`].
    Process,
}

struct Wait<'a> {
    process: &'a Process,
    deadline: Option<Instant>,
    watch: Watch,
    /// The task whose CPU may be lent while this waits.
    lends: Option<Lender>,
    leading: bool,
    blocked: bool,
    streaming: bool,
}

impl Wait<'_> {
    fn run<R>(&mut self, interest: &Interest<'_>, check: &mut impl FnMut(&mut Inner) -> Option<R>) -> Waited<R> {
        let process = self.process;
        let mut inner = process.lock();
        let waited = loop {
            if self.leading || inner.lead != Lead::Caller {
                process.drain(&mut inner);
            }
            if let Some(result) = check(&mut inner) {
                break Waited::Got(result);
            }
            if process.is_over() {
                break Waited::Over;
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break Waited::TimedOut;
            }
            if !self.leading && inner.lead == Lead::Caller {
                self.tell_blocked(&mut inner);
                inner.follow(interest);
                drop(inner);
                process.asleep(|| self.park());
                let interrupted = self.watch.is_due(false) && self.watch.is_interrupted();
                inner = process.lock();
                let me = std::thread::current().id();
                inner.followers.retain(|thread| thread.id() != me);
                inner.executors.parked.retain(|thread| thread.id() != me);
                inner.failure_watchers.retain(|thread| thread.id() != me);
                if interrupted {
                    break Waited::Interrupted;
                }
                continue;
            }
            if !self.leading {
                self.leading = true;
                inner.lead = Lead::Caller;
                process.doorbell.enter_caller();
            }
            self.streaming = inner.progress - inner.rested_at >= STREAM_MESSAGES;
            inner.rested_at = inner.progress;
            drop(inner);
            let news = process.spin() || self.sleep();
            let due = self.watch.is_due(!news);
            inner = process.lock();
            if due {
                // The check may wait for a lock of the interpreter, and nobody else reads what comes while this thread leads.
                self.leave_lead(&mut inner);
                drop(inner);
                let interrupted = self.watch.is_interrupted();
                inner = process.lock();
                if interrupted {
                    break Waited::Interrupted;
                }
            }
        };
        self.leave(&mut inner);
        waited
    }

    /// Sleeps as the leader. False when it ended without anything to read: the time is up, or a signal came.
    fn sleep(&mut self) -> bool {
        let process = self.process;
        if self.lends.is_some() && !self.blocked {
            let mut inner = process.lock();
            self.tell_blocked(&mut inner);
        }
        if self.watch.is_nudged() {
            return true;
        }
        if self.streaming {
            // More is on its way: look again soon instead of being woken for each message.
            process.asleep(|| std::thread::sleep(CALLER_NAP));
            return true;
        }
        if process.doorbell.prepare_sleep(Sleeper::Caller) {
            let timeout = self.watch.sleep(self.remaining());
            process.asleep(|| {
                process.doorbell.sleep(Sleeper::Caller, timeout);
            });
        }
        process.doorbell.is_ready()
    }

    fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    fn park(&self) {
        if self.watch.is_nudged() {
            return;
        }
        match self.watch.sleep(self.remaining()) {
            Some(left) => std::thread::park_timeout(left),
            None => std::thread::park(),
        }
    }

    /// A task that really waits gives its CPU back, once per wait.
    fn tell_blocked(&mut self, inner: &mut Inner) {
        if self.blocked {
            return;
        }
        match self.lends {
            Some(Lender::Task(lease)) => {
                self.process.step_worker(inner, worker::Event::Blocked { lease });
                self.process.flush(inner);
            }
            Some(Lender::Process) => drop(self.process.waits_of_no_task.fetch_add(1, Ordering::AcqRel)),
            None => return,
        }
        self.blocked = true;
    }

    fn leave(&mut self, inner: &mut Inner) {
        match self.lends.filter(|_| self.blocked) {
            Some(Lender::Task(lease)) => {
                self.process.step_worker(inner, worker::Event::Unblocked { lease });
                self.process.flush(inner);
            }
            Some(Lender::Process) => drop(self.process.waits_of_no_task.fetch_sub(1, Ordering::AcqRel)),
            None => {}
        }
        self.leave_lead(inner);
    }

    fn leave_lead(&mut self, inner: &mut Inner) {
        if std::mem::take(&mut self.leading) {
            inner.lead = Lead::Pump;
            if let Some(next) = inner.followers.first() {
                next.unpark();
            }
            self.process.doorbell.leave_caller();
        }
    }
}

impl Inner {
    fn follow(&mut self, interest: &Interest<'_>) {
        let me = std::thread::current();
        let objects = match interest {
            Interest::Objects(objects) => objects,
            Interest::ObjectOrFailure(object) => std::slice::from_ref(object),
            Interest::Answer | Interest::Room | Interest::Anything | Interest::Executions => &[],
        };
        for object in objects {
            let waiters = self.waiters.entry(*object).or_default();
            let known = |waiter: &Waiter| matches!(waiter, Waiter::Thread(thread) if thread.id() == me.id());
            if !waiters.iter().any(known) {
                waiters.push(Waiter::Thread(me.clone()));
            }
        }
        if matches!(interest, Interest::ObjectOrFailure(_)) {
            self.failure_watchers.push(me.clone());
        }
        if matches!(interest, Interest::Executions) {
            self.executors.parked.push(me.clone());
        }
        self.followers.push(me);
    }
}

/// Starts the thread that drives the process when no caller waits.
pub(super) fn start_pump(process: &Arc<Process>) -> Result<(), Error> {
    let process = Arc::clone(process);
    crate::thread::spawn("bireme-pump", move || pump(&process)).map(drop)
}

fn pump(process: &Process) {
    let _busy = Busy::begin(process);
    crate::thread::nap_exactly();
    let (mut seen, mut strays, mut quiet) = (0, 0, 0);
    let mut looked = clock::now();
    loop {
        let mut inner = process.lock();
        if process.is_over() {
            return;
        }
        if inner.lead == Lead::Executor && inner.progress == seen {
            // It runs something long: from here on peers wake the pump.
            inner.lead = Lead::Pump;
            process.doorbell.leave_caller();
        }
        if inner.lead == Lead::Pump {
            process.drain(&mut inner);
        }
        let now = clock::now();
        let due = inner.owner.deadline();
        if due.is_some_and(|due| due <= now) {
            process.step_owner(&mut inner, owner::Event::Ticked);
            process.flush(&mut inner);
        }
        if inner.is_busy() && now.since_us(looked) >= worker::LOOK_EVERY_US {
            looked = now;
            process.look_at_waits(&mut inner);
        }
        // What a caller reads itself is none of the pump's business: it must not take a core from a caller that spins.
        let streaming = inner.strays - strays >= STREAM_MESSAGES;
        quiet = if streaming { 0 } else { quiet + 1 };
        (seen, strays) = (inner.progress, inner.strays);
        inner.pump_ticks = quiet < QUIET_TICKS_MAX;
        let timeout = if inner.pump_ticks {
            TICK
        } else {
            let left = inner.owner.deadline().map(|due| Duration::from_micros(due.since_us(now)));
            let most = if inner.is_busy() { LOOK_EVERY } else { PUMP_SLEEP_MAX };
            left.map_or(most, |left| left.min(most))
        };
        drop(inner);
        if streaming {
            std::thread::sleep(STREAM_NAP);
        } else if process.doorbell.prepare_sleep(Sleeper::Pump) {
            process.doorbell.sleep(Sleeper::Pump, Some(timeout));
        }
    }
}
