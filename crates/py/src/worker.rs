//! Running tasks, constructors and calls inside a worker process.
//!
//! An executor thread of the runtime is known to the interpreter for its whole life and holds the lock only while it
//! decodes arguments, runs the user's code and encodes results.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bireme_runtime::core::failure::{Failure, Raised};
use bireme_runtime::core::id::{ActorId, FunctionKey};
use bireme_runtime::core::resources::Amount;
use bireme_runtime::core::spec::{TaskKind, TaskSpec};
use bireme_runtime::{Encoded, Interpreter, Invocation, Ref, Runtime};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::interrupt::{self, OnThread};
use crate::value::{self, Packed};
use crate::{argument, current, error, gil, hooks, stream, ticket};

struct Python3;

/// Functions and classes that this process has loaded.
static LOADED: Mutex<Option<HashMap<FunctionKey, Py<PyAny>>>> = Mutex::new(None);
/// The actor that lives here.
static ACTOR: Mutex<Option<Py<PyAny>>> = Mutex::new(None);
/// Whether something printed waits for the end of its line.
static UNFLUSHED: AtomicBool = AtomicBool::new(false);
/// Whether its calls run on an event loop.
static ON_LOOP: AtomicBool = AtomicBool::new(false);

/// Whether the actor has left: what arrives before its process ends does not run.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Makes Python the interpreter of this process.
pub fn begin() {
    bireme_runtime::set_interpreter(&Python3);
}

impl Interpreter for Python3 {
    fn on_thread(&self, body: &mut dyn FnMut()) {
        gil::attach(|py| {
            gil::detach_here(py, || {
                let _guard = bireme_runtime::interruptible();
                body();
            });
        });
    }

    fn run(&self, invocation: &mut Invocation<'_>) -> Result<(), Failure> {
        gil::attach(|py| {
            let outer = current::replace(Some(Arc::clone(invocation.spec)));
            let place = OnThread::begin(invocation.task);
            // Whoever cancelled it before it was known to be here has found nothing to interrupt.
            let ran = match is_cancelled() {
                true => Err(PyKeyboardInterrupt::new_err("the task was cancelled")),
                false => run_with_gpus(py, invocation),
            };
            if bireme_runtime::is_forked() {
                end_fork(py, ran.err());
            }
            drop(place);
            if UNFLUSHED.swap(false, Ordering::AcqRel)
                && let Err(error) = hooks::FLUSH.get(py).and_then(|flush| flush.call0())
            {
                error.print(py);
            }
            current::replace(outer);
            let cancelled = is_cancelled();
            if cancelled {
                interrupt::clear_pending(py);
            }
            ran.unwrap_or_else(|error| {
                Err(match cancelled && error.is_instance_of::<PyKeyboardInterrupt>(py) {
                    true => Failure::Cancelled { task: invocation.task },
                    false => describe(py, invocation.spec, &error),
                })
            })
        })
    }

    fn before_exit(&self) {
        gil::attach(before_exit);
    }
}

/// Ends this process, a copy that the user's code made of the worker and that has come to the end of that code. It is no worker
/// and may touch nothing of one: locks may be held by threads that it does not have.
pub fn end_fork(py: Python<'_>, raised: Option<PyErr>) -> ! {
    let raised = raised.map(|error| error.into_value(py));
    // It ends there, unless that fails.
    let failed = hooks::END_FORK.get(py).and_then(|end| end.call1((raised,)));
    if let Err(error) = failed {
        error.print(py);
    }
    // Not `exit`, which would run what belongs to the worker.
    std::process::abort()
}

/// Runs what the user's code wants to do at the end, and prints what goes wrong.
///
/// An actor that leaves by itself has done so before its process is told to end.
fn before_exit(py: Python<'_>) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::AcqRel) {
        return;
    }
    let prepared = hooks::BEFORE_EXIT.get(py).and_then(|hook| hook.call1((actor(py).ok(),)));
    if let Err(error) = prepared {
        error.print(py);
    }
}

/// The actor that lives here.
fn actor(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let actor = ACTOR.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|actor| actor.clone_ref(py));
    let actor = actor.ok_or_else(|| PyRuntimeError::new_err("the actor's constructor has not run here"))?;
    Ok(actor.into_bound(py))
}

fn is_cancelled() -> bool {
    Runtime::current().is_ok_and(|runtime| runtime.is_cancelled())
}

/// Only what asked for GPUs is shown any, and a task only as long as it runs; to all others the variable is as it was.
fn run_with_gpus(py: Python<'_>, invocation: &mut Invocation<'_>) -> PyResult<Result<(), Failure>> {
    let asks = invocation.spec.options.resources.gpus.0 > 0;
    let (is_task, is_call) = match invocation.spec.kind {
        TaskKind::Plain => (true, false),
        TaskKind::Create(_) => (false, false),
        TaskKind::Call { .. } => (false, true),
    };
    if !asks || is_call {
        return run(py, invocation);
    }
    let indices = Runtime::current().map(|runtime| runtime.gpu_indices()).unwrap_or_default();
    hooks::SHOW_GPUS.get(py)?.call1((indices,))?;
    let ran = run(py, invocation);
    if is_task {
        hooks::HIDE_GPUS.get(py)?.call0()?;
    }
    ran
}

/// The outer error is the user's, the inner one the engine's.
fn run(py: Python<'_>, invocation: &mut Invocation<'_>) -> PyResult<Result<(), Failure>> {
    enter_environment(py, invocation.spec.options.environment)?;
    begin_work(py, invocation.spec)?;
    let (method, payload) = argument::split_method(invocation.payload)?;
    let arguments = argument::decode(py, payload, &invocation.resolved)?;
    let (positional, named) = (&arguments.positional, arguments.named.as_ref());
    let result = match &invocation.spec.kind {
        TaskKind::Plain => load(py, invocation.spec.function)?.call(positional, named)?,
        TaskKind::Create(_) => {
            let class = load(py, invocation.spec.function)?;
            let made = hooks::CONSTRUCT.get(py)?.call1((class, positional, named))?;
            let (actor, on_loop): (Py<PyAny>, bool) = made.extract()?;
            if on_loop {
                ON_LOOP.store(true, Ordering::Release);
                invocation.calls_defer();
            }
            *ACTOR.lock().unwrap_or_else(PoisonError::into_inner) = Some(actor);
            py.None().into_bound(py)
        }
        TaskKind::Call { actor: id, .. } if LEFT.load(Ordering::Acquire) => return Ok(Err(left(*id))),
        TaskKind::Call { .. } => {
            let actor = actor(py)?;
            match method.starts_with("__ray_") || method.starts_with("__bireme_") {
                false if ON_LOOP.load(Ordering::Acquire) => {
                    let method = actor.getattr(method)?;
                    return ticket::hand_over(invocation, &method, positional, named).map(Ok);
                }
                false => actor.getattr(method)?.call(positional, named)?,
                true => hooks::CALL_SPECIAL.get(py)?.call1((actor, method, positional, named))?,
            }
        }
    };
    drop(arguments);
    if invocation.spec.stream.is_some() {
        return stream::yield_all(invocation, &result);
    }
    invocation.outputs = encode_results(&result, invocation.returns, invocation.name)?;
    Ok(Ok(()))
}

/// Makes this process run in the environment of its tasks, once: the node sends no tasks of another one.
fn enter_environment(py: Python<'_>, key: u64) -> PyResult<()> {
    static ENTERED: AtomicU64 = AtomicU64::new(0);
    if key == 0 || ENTERED.load(Ordering::Acquire) == key {
        return Ok(());
    }
    let contents = look_up(py, FunctionKey(key))?;
    hooks::ENTER_ENVIRONMENT.get(py)?.call1((key, contents))?;
    ENTERED.store(key, Ordering::Release);
    Ok(())
}

/// Says what this process does, when that is another task or actor than before: the next task of a function costs nothing.
fn begin_work(py: Python<'_>, spec: &TaskSpec) -> PyResult<()> {
    static LAST: Mutex<(String, Amount)> = Mutex::new((String::new(), Amount(0)));
    let options = &spec.options;
    let name = match spec.kind {
        TaskKind::Plain => options.name.as_str(),
        TaskKind::Create(_) => options.name.strip_suffix(".__init__").unwrap_or(&options.name),
        // It belongs to the actor, which has said so.
        TaskKind::Call { .. } => return Ok(()),
    };
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.0 == name && last.1 == options.resources.cpus {
        return Ok(());
    }
    *last = (name.to_owned(), options.resources.cpus);
    drop(last);
    hooks::BEGIN_WORK.get(py)?.call1((name, options.resources.cpus.as_f64())).map(drop)
}

fn look_up(py: Python<'_>, key: FunctionKey) -> PyResult<Bound<'_, PyBytes>> {
    let runtime = Runtime::current().map_err(|error| error::raise(py, error))?;
    let code = gil::detach(py, || runtime.lookup(key)).map_err(|error| error::raise(py, error))?;
    let code = code.ok_or_else(|| PyRuntimeError::new_err(format!("the node has nothing under {key}")))?;
    Ok(PyBytes::new(py, &code))
}

/// The function or class with this key, loaded once per process.
fn load(py: Python<'_>, key: FunctionKey) -> PyResult<Bound<'_, PyAny>> {
    let known = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.as_ref().and_then(|known| known.get(&key)) {
        return Ok(known.bind(py).clone());
    }
    drop(known);
    let loaded = hooks::LOAD_CODE.get(py)?.call1((look_up(py, key)?,))?;
    let mut known = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    known.get_or_insert_default().insert(key, loaded.clone().unbind());
    Ok(loaded)
}

/// References inside a result, kept until the result has been handed over; no bytes.
struct Kept(#[allow(dead_code)] Vec<Ref>);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}

pub fn encode_results(result: &Bound<'_, PyAny>, returns: u32, name: &str) -> PyResult<Vec<Encoded>> {
    if returns == 1 {
        return Ok(vec![encode_result(result)?]);
    }
    let wrong = |found: String| {
        PyValueError::new_err(format!(
            "{name} has num_returns={returns}, so it must return {returns} values, not {found}"
        ))
    };
    let values = result.try_iter().map_err(|_| {
        let kind = result.get_type().name().map_or_else(|_| "something else".into(), |kind| kind.to_string());
        PyTypeError::new_err(format!(
            "{name} has num_returns={returns}, so it must return {returns} values, not a {kind}"
        ))
    })?;
    let mut outputs = Vec::with_capacity(returns as usize);
    for value in values {
        if outputs.len() == returns as usize {
            return Err(wrong(format!("more than {returns}")));
        }
        outputs.push(encode_result(&value?)?);
    }
    if outputs.len() < returns as usize { Err(wrong(outputs.len().to_string())) } else { Ok(outputs) }
}

/// One result as bytes, with the references inside it.
pub fn encode_result(value: &Bound<'_, PyAny>) -> PyResult<Encoded> {
    let Packed { mut encoded, keep } = value::encode(value)?;
    if !keep.is_empty() {
        encoded.tail.push(Box::new(Kept(keep)));
    }
    Ok(encoded)
}

/// The actor ends in good order.
fn leave(py: Python<'_>, id: ActorId) -> Failure {
    LEFT.store(true, Ordering::Release);
    if !ON_LOOP.load(Ordering::Acquire) {
        // On the loop it could not wait for what the loop has to do: it runs when the process is told to end.
        before_exit(py);
    }
    if let Ok(runtime) = Runtime::current() {
        // Should it fail, the runtime is over and this process with it.
        let _ = runtime.kill_actor(id, false);
    }
    left(id)
}

fn left(id: ActorId) -> Failure {
    Failure::ActorDied { actor: id, reason: "it left by itself (exit_actor)".into() }
}

/// What the caller is told about an exception.
pub fn describe(py: Python<'_>, spec: &TaskSpec, raised: &PyErr) -> Failure {
    if let TaskKind::Call { actor, .. } = spec.kind
        && hooks::ACTOR_EXIT.get(py).is_ok_and(|exit| raised.value(py).is_instance(exit).unwrap_or(false))
    {
        return leave(py, actor);
    }
    let (task, name) = (spec.id, spec.options.name.clone());
    type Description = (Vec<String>, String, String, Vec<u8>);
    if let Some(traceback) = raised.traceback(py) {
        // Without it the report only has no places in it.
        let _ = raised.value(py).setattr("__traceback__", traceback);
    }
    let described = hooks::DESCRIBE_EXCEPTION.get(py).and_then(|describe| describe.call1((raised.value(py),)));
    let described = described.and_then(|described| described.extract::<Description>());
    let (type_names, message, traceback, exception) = described
        .unwrap_or_else(|broken| (vec!["an exception".into()], raised.to_string(), broken.to_string(), Vec::new()));
    let pid = std::process::id();
    Failure::Raised(Box::new(Raised { task, name, type_names, message, traceback, pid, exception }))
}

/// The user's code has printed an unfinished line.
#[pyfunction]
fn note_unflushed() {
    UNFLUSHED.store(true, Ordering::Release);
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(note_unflushed, module)?)
}
