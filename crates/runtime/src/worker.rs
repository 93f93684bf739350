//! A worker process: executors that run the user's code.
//!
//! Entered from the keeper right after the fork. The first executor is the main thread; others are started when a seat
//! opens while the existing ones are busy (a blocked task gave its CPU back). Executors wait like any caller, so the
//! thread that finds a task in the ring is the thread that runs it.

use std::any::Any;
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bireme_core::failure::Failure;
use bireme_core::id::{NodeId, ProcessId};
use bireme_core::message::ToNode;
use bireme_core::owner::OwnerConfig;
use bireme_core::value::Value;
use bireme_core::worker::{Event, Execution};
use bireme_net::{Fabric, RingSpan};
use bireme_store::{Arena, ProcessSlot, StoreClient, Table};

use crate::error::Error;
use crate::fail_point::FailPoint;
use crate::function::{Encoded, Function, Invocation, interpreter};
use crate::keeper::{EXIT_CODE_BROKEN, WorkerStart, exit_now, with_signals_unblocked};
use crate::link::{LEDGER_RING_BYTES, NOTICE_RING_BYTES};
use crate::process::{self, Inner, Interest, Process, Start, Waited, count_as_running, in_task};
use crate::ticket::Deferral;

/// Executor threads of one process, at most; the node opens no more seats than this.
const EXECUTORS_MAX: u32 = 4_096;

/// Runs a worker until its node ends it.
pub fn run(start: WorkerStart) -> ! {
    match begin(start) {
        Ok(process) => {
            run_executor(&process);
            std::process::exit(0)
        }
        Err(error) => {
            eprintln!("bireme: the worker could not start: {error}");
            std::process::exit(EXIT_CODE_BROKEN)
        }
    }
}

fn begin(mut start: WorkerStart) -> Result<Arc<Process>, Error> {
    crate::forked::become_original();
    Function::check_all()?;
    let broken = |what: &'static str| move |reason: String| Error::System { what, reason };
    let mut take = |name: &str| start.take(name).ok_or_else(|| broken("taking over shared memory")(name.to_owned()));
    let mut fabric = Fabric::from_fd(take("fabric")?).map_err(|e| broken("mapping the fabric")(e.to_string()))?;
    // There is one when the node has links to others: asleep in its poller, it can be woken by nothing else.
    if let Ok(bell) = take("bell") {
        fabric = fabric.with_bell(bell);
    }
    let arena = Arena::from_fd(take("arena")?).map_err(|e| broken("mapping the arena")(e.to_string()))?;
    let arena = arena.with_overflow(take("overflow")?);
    let table = Table::from_fd(take("table")?).map_err(|e| broken("mapping the object table")(e.to_string()))?;
    let slot = ProcessSlot::new(start.slot).ok_or_else(|| broken("finding the slot")(start.slot.to_string()))?;
    let [job, to_node, from_node, settings, node] = start.words;
    let node = NodeId(u32::try_from(node).unwrap_or_default());
    let span = |offset, capacity| {
        RingSpan::from_parts(offset, capacity).ok_or_else(|| broken("finding the node's rings")(offset.to_string()))
    };
    let process = Process::start(Start {
        me: ProcessId { node, slot: start.slot, incarnation: start.incarnation },
        job,
        namespace: crate::names::told_to_worker(),
        store: StoreClient::new(Arc::new(arena), Arc::new(table), slot),
        fabric,
        to_node: span(to_node, LEDGER_RING_BYTES)?,
        from_node: span(from_node, NOTICE_RING_BYTES)?,
        spin: settings & 1 == 1,
        owner: OwnerConfig { cancel_grace_us: settings >> 1 },
    })?;
    process::set_current(Some(Arc::clone(&process)));
    install_panic_hook();
    process.lock().plan(FailPoint::from_environment(start.incarnation));
    process.lock().begin_executor();
    process.tell(&ToNode::Hello);
    Ok(process)
}

/// The process ends in good order, on a thread of its own: the caller may be the pump, which no user code may run on, and
/// which has to go on for what that code still asks of the runtime. The first call counts.
pub(crate) fn leave(process: &Process) {
    static LEAVING: AtomicBool = AtomicBool::new(false);
    let Some(process) = process.this() else { return };
    if LEAVING.swap(true, Ordering::AcqRel) {
        return;
    }
    let builder = std::thread::Builder::new().name("bireme-last".into()).stack_size(8 << 20);
    if with_signals_unblocked(|| builder.spawn(move || run_last_code(&process))).is_err() {
        // Without a thread there is nothing that could run.
        std::process::exit(0);
    }
}

/// The user's last say: the actor is dropped, then the interpreter's exit handlers run. Everything that this process wrote
/// is with its node when it ends. The node bounds the time.
fn run_last_code(process: &Process) -> ! {
    let mut say_goodbye = || process.tell(&ToNode::Goodbye);
    match interpreter() {
        // A task that was given up may hold the interpreter's lock. Until it lets go no last code can run, and that time is
        // still the task's.
        Some(interpreter) => interpreter.on_thread(&mut say_goodbye),
        None => say_goodbye(),
    }
    // A panic was printed by its hook, and the process ends in any case.
    let _ = std::panic::catch_unwind(|| drop(take_actor()));
    if let Some(interpreter) = interpreter() {
        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| interpreter.before_exit()));
    }
    let busy = {
        let mut inner = process.lock();
        process.flush(&mut inner);
        inner.is_busy()
    };
    if busy {
        // Tasks that were given up still run: the C library's exit would take their memory away under them.
        exit_now(0);
    }
    std::process::exit(0)
}

/// An execution was queued: make sure that a thread will take it.
pub(crate) fn call_executor(process: &Process, inner: &mut Inner) {
    if inner.executor_needed(EXECUTORS_MAX)
        && let Some(process) = process.this()
    {
        inner.begin_executor();
        // Stack as the main thread's: user code runs here.
        let builder = std::thread::Builder::new().name("bireme-executor".into()).stack_size(8 << 20);
        let spawned = with_signals_unblocked(|| builder.spawn(move || run_executor(&process)));
        if spawned.is_err() {
            inner.end_executor();
        }
    }
}

/// An executor's life, inside the interpreter if there is one.
fn run_executor(process: &Arc<Process>) {
    match interpreter() {
        Some(interpreter) => interpreter.on_thread(&mut || execute_forever(process)),
        None => execute_forever(process),
    }
}

/// Takes and runs executions until the process ends.
fn execute_forever(process: &Arc<Process>) {
    count_as_running(process);
    crate::thread::nap_exactly();
    loop {
        let waited = process.wait_for(None, &Interest::Executions, Inner::take_execution);
        let (mut execution, mut flag) = match waited {
            Waited::Got(taken) => taken,
            // Whatever the check did, there is nothing here to interrupt.
            Waited::Interrupted => continue,
            Waited::TimedOut | Waited::Over => return,
        };
        loop {
            // The outputs keep the references inside them until the worker has lent these to whom the results go to.
            let (values, _outputs) = in_task(process, &execution, &flag, || run_one(process, &execution, &flag));
            let (lease, task) = (execution.lease, execution.spec.id);
            let mut inner = process.lock();
            inner.free_executor();
            if let Some(values) = values {
                inner.end_task(&task);
                process.step_worker(&mut inner, Event::Finished { lease, task, values });
                process.flush(&mut inner);
            }
            let next = process.next_execution(&mut inner);
            process.wake_leader(&inner);
            match next {
                Some(next) => (execution, flag) = next,
                None => break,
            }
        }
    }
}

/// The values of a task, with the outputs that they come from. No values: its end is left to whoever has its ticket.
type Ran = (Option<Vec<Value>>, Vec<Encoded>);

fn run_one(process: &Arc<Process>, execution: &Execution, flag: &Arc<AtomicBool>) -> Ran {
    let mut taken = None;
    let ran = invoke(process, execution, flag, &mut taken);
    match (ran, taken) {
        (Ok(_), Some(_ticket)) => (None, Vec::new()),
        // The function gave its task away and failed: whoever is first ends it.
        (Err(_), Some(ended)) if ended.swap(true, Ordering::AcqRel) => (None, Vec::new()),
        // A cancelled task may meet the end of its children first, or fail while it cleans up: it was cancelled all the same.
        (Err(_), _) if flag.load(Ordering::Acquire) => {
            (Some(failed(execution, &Failure::Cancelled { task: execution.spec.id })), Vec::new())
        }
        (Err(failure), _) => (Some(failed(execution, &failure)), Vec::new()),
        (Ok((values, outputs)), None) => (Some(values), outputs),
    }
}

/// What all results of a task are when it failed.
pub(crate) fn failed(execution: &Execution, failure: &Failure) -> Vec<Value> {
    vec![Value::failed(failure.clone()); execution.spec.returns.max(1) as usize]
}

/// The state of the actor that this process hosts. A method of the Rust front end has it to itself (`&mut self`), so
/// those actors run one call at a time; an interpreter that runs several keeps the state of its actors itself.
static ACTOR: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);

fn invoke(
    process: &Arc<Process>,
    execution: &Execution,
    flag: &Arc<AtomicBool>,
    taken: &mut Option<Arc<AtomicBool>>,
) -> Result<(Vec<Value>, Vec<Encoded>), Failure> {
    let spec = &execution.spec;
    let name = spec.options.name.as_str();
    let function = Function::find(spec.function);
    if function.is_none() && interpreter().is_none() {
        return Err(Failure::UnknownFunction { task: spec.id, name: name.into() });
    }
    let wanted = execution.resolved.iter().zip(spec.dependencies.iter().copied());
    let fetched = process.fetch_all(wanted, Some(spec.function));
    let (resolved, mut gathered) = fetched.map_err(|error| as_failure(&error, execution))?;
    let stateless = matches!(spec.kind, bireme_core::spec::TaskKind::Plain);
    let mut actor = if stateless { None } else { take_actor() };
    let mut invocation = Invocation {
        spec,
        task: spec.id,
        name,
        payload: &spec.payload,
        resolved,
        returns: spec.returns,
        actor: &mut actor,
        outputs: Vec::new(),
        deferral: Deferral { process, execution, flag, taken: None },
    };
    let ran = std::panic::catch_unwind(AssertUnwindSafe(|| match (function, interpreter()) {
        (Some(function), _) => (function.run)(&mut invocation),
        (None, Some(interpreter)) => interpreter.run(&mut invocation),
        (None, None) => unreachable!("one of the two was found above"),
    }));
    let outputs = std::mem::take(&mut invocation.outputs);
    *taken = invocation.deferral.taken.take();
    if actor.is_some() {
        *ACTOR.lock().unwrap_or_else(PoisonError::into_inner) = actor;
    }
    match ran {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => return Err(failure),
        Err(payload) => {
            let (message, location) = last_panic(payload.as_ref());
            return Err(Failure::Panicked { task: spec.id, name: name.into(), message, location });
        }
    }
    let stored = outputs.iter().map(|output| process.store_value(output)).collect::<Result<Vec<_>, _>>();
    let values = stored.map_err(|error| as_failure(&error, execution))?;
    if let Some(gathered) = &mut gathered {
        gathered.note_output(&values);
    }
    Ok((values, outputs))
}

fn take_actor() -> Option<Box<dyn Any + Send>> {
    ACTOR.lock().unwrap_or_else(PoisonError::into_inner).take()
}

pub(crate) fn as_failure(error: &Error, execution: &Execution) -> Failure {
    match error {
        Error::Failed(failure) => (**failure).clone(),
        Error::StoreFull(reason) => Failure::StoreFull { reason: reason.clone() },
        other => Failure::Returned {
            task: execution.spec.id,
            name: execution.spec.options.name.clone(),
            type_name: "bireme::Error".into(),
            message: other.to_string(),
        },
    }
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Remembers where a panic happened; the default message still goes to standard error.
fn install_panic_hook() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let location = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        PANIC.with_borrow_mut(|last| *last = Some(location));
        before(panic);
    }));
}

fn last_panic(payload: &(dyn Any + Send)) -> (String, String) {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let location = PANIC.with_borrow_mut(Option::take).unwrap_or_else(|| "an unknown place".into());
    (text.unwrap_or_else(|| "a panic without text".into()), location)
}
