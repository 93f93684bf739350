//! A worker process: executors that run the user's code.
//!
//! Entered from the keeper right after the fork. The first executor is the main thread; others are started when a seat
//! opens while the existing ones are busy (a blocked task gave its CPU back). Executors wait like any caller, so the
//! thread that finds a task in the ring is the thread that runs it.

use std::any::Any;
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use bireme_core::failure::Failure;
use bireme_core::id::ProcessId;
use bireme_core::message::ToNode;
use bireme_core::owner::OwnerConfig;
use bireme_core::value::Value;
use bireme_core::worker::{Event, Execution};
use bireme_net::{Fabric, RingSpan};
use bireme_store::{Arena, ProcessSlot, StoreClient, Table};

use crate::error::Error;
use crate::fail_point::FailPoint;
use crate::function::{Encoded, Function, Invocation};
use crate::keeper::{EXIT_CODE_BROKEN, WorkerStart};
use crate::link::{LEDGER_RING_BYTES, NOTICE_RING_BYTES};
use crate::process::{self, Inner, Interest, Process, Start, Waited, count_as_running, in_task};

/// Executor threads of one process, at most; the node opens no more seats than this.
const EXECUTORS_MAX: u32 = 4_096;

/// Runs a worker until its node ends it.
pub fn run(start: WorkerStart) -> ! {
    match begin(start) {
        Ok(process) => {
            execute_forever(&process);
            std::process::exit(0)
        }
        Err(error) => {
            eprintln!("bireme: the worker could not start: {error}");
            std::process::exit(EXIT_CODE_BROKEN)
        }
    }
}

fn begin(mut start: WorkerStart) -> Result<Arc<Process>, Error> {
    let broken = |what: &'static str| move |reason: String| Error::System { what, reason };
    let mut take = |name: &str| start.take(name).ok_or_else(|| broken("taking over shared memory")(name.to_owned()));
    let fabric = Fabric::from_fd(take("fabric")?).map_err(|e| broken("mapping the fabric")(e.to_string()))?;
    let arena = Arena::from_fd(take("arena")?).map_err(|e| broken("mapping the arena")(e.to_string()))?;
    let table = Table::from_fd(take("table")?).map_err(|e| broken("mapping the object table")(e.to_string()))?;
    let slot = ProcessSlot::new(start.slot).ok_or_else(|| broken("finding the slot")(start.slot.to_string()))?;
    let [job, to_node, from_node, settings] = start.words;
    let span = |offset, capacity| {
        RingSpan::from_parts(offset, capacity).ok_or_else(|| broken("finding the node's rings")(offset.to_string()))
    };
    let process = Process::start(Start {
        me: ProcessId { slot: start.slot, incarnation: start.incarnation },
        job,
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

/// The process ends in good order: everything that it wrote is with its node.
pub(crate) fn leave(process: &Process) -> ! {
    process.tell(&ToNode::Goodbye);
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
        let spawned = builder.spawn(move || execute_forever(&process));
        if spawned.is_err() {
            inner.end_executor();
        }
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
            Waited::TimedOut | Waited::Over => return,
        };
        loop {
            // The outputs keep the references inside them until the worker has lent these to whom the results go to.
            let (values, _outputs) = in_task(process, &execution, flag, || run_one(process, &execution));
            let (lease, task) = (execution.lease, execution.spec.id);
            let mut inner = process.lock();
            inner.end_task(&task);
            process.step_worker(&mut inner, Event::Finished { lease, task, values });
            process.flush(&mut inner);
            match process.next_execution(&mut inner) {
                Some(next) => (execution, flag) = next,
                None => break,
            }
        }
    }
}

fn run_one(process: &Process, execution: &Execution) -> (Vec<Value>, Vec<Encoded>) {
    let spec = &execution.spec;
    match invoke(process, execution) {
        Ok(results) => results,
        Err(failure) => (vec![Value::failed(failure); spec.returns.max(1) as usize], Vec::new()),
    }
}

/// The state of the actor that this process hosts.
static ACTOR: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);

fn invoke(process: &Process, execution: &Execution) -> Result<(Vec<Value>, Vec<Encoded>), Failure> {
    let spec = &execution.spec;
    let name = spec.options.name.as_str();
    let function =
        Function::find(spec.function).ok_or_else(|| Failure::UnknownFunction { task: spec.id, name: name.into() })?;
    let resolved = execution.resolved.iter().map(|value| process.fetch(value)).collect::<Result<Vec<_>, _>>();
    let resolved = resolved.map_err(|error| as_failure(&error, execution))?;
    let stateless = matches!(spec.kind, bireme_core::spec::TaskKind::Plain);
    let mut actor = if stateless { None } else { take_actor() };
    let mut invocation = Invocation {
        task: spec.id,
        name,
        payload: &spec.payload,
        resolved,
        returns: spec.returns,
        actor: &mut actor,
        outputs: Vec::new(),
    };
    let ran = std::panic::catch_unwind(AssertUnwindSafe(|| (function.run)(&mut invocation)));
    let outputs = std::mem::take(&mut invocation.outputs);
    if !stateless {
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
    Ok((values, outputs))
}

fn take_actor() -> Option<Box<dyn Any + Send>> {
    ACTOR.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn as_failure(error: &Error, execution: &Execution) -> Failure {
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
