//! What the package's verbs call: `get`, `put`, `wait`, `cancel`, `kill`, and questions about the state.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bireme_runtime::core::id::NodeId;
use bireme_runtime::core::value::INLINE_BYTES_MAX;
use bireme_runtime::{ASKED_TOGETHER_MAX, Fetched, Ref, Runtime};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::reference::{self, ObjectRef};
use crate::submit::{self, Actor};
use crate::value::{self, Packed};
use crate::{driver, error, gil};

/// A timeout of a century or more is none.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// So many of the objects that are there are taken out of a copy of the list; for more, a new list is made.
const FEW_READY: usize = 8;

/// The value of one object.
#[pyfunction]
#[pyo3(signature = (reference, timeout = None, copy = false))]
fn get<'py>(
    py: Python<'py>,
    reference: &Bound<'py, ObjectRef>,
    timeout: Option<f64>,
    copy: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let runtime = driver::running(py)?;
    let reference = reference.get();
    let fetched = fetch(py, &runtime, &reference.handle, patience(timeout))?;
    decode(py, reference, &fetched, copy)
}

fn decode<'py>(py: Python<'py>, reference: &ObjectRef, fetched: &Fetched, copy: bool) -> PyResult<Bound<'py, PyAny>> {
    match (reference.is_end, <[u8; 8]>::try_from(&**fetched)) {
        (true, Ok(items)) => Ok(u64::from_le_bytes(items).into_pyobject(py)?.into_any()),
        _ => value::decode(py, fetched, copy),
    }
}

/// The values of a list of objects, in order; the timeout is for all of them.
#[pyfunction]
#[pyo3(signature = (references, timeout = None, copy = false))]
fn get_many<'py>(
    py: Python<'py>,
    references: &Bound<'py, PyList>,
    timeout: Option<f64>,
    copy: bool,
) -> PyResult<Bound<'py, PyList>> {
    // All of them first: a mistake is told at once, not after the wait for those before it.
    for reference in references.iter() {
        if !reference.is_exact_instance_of::<ObjectRef>() {
            let kind = reference.get_type().name()?;
            let text = format!("get takes a reference or a list of references, and this list has a {kind} in it");
            return Err(PyValueError::new_err(text));
        }
    }
    let values = PyList::empty(py);
    if references.is_empty() {
        return Ok(values);
    }
    let runtime = driver::running(py)?;
    let deadline = patience(timeout).map(|patience| Instant::now() + patience);
    let references: Vec<_> =
        references.iter().map(|reference| reference.cast_into_exact()).collect::<Result<_, _>>()?;
    for few in references.chunks(ASKED_TOGETHER_MAX) {
        ask_for(py, &runtime, few)?;
        for reference in few.iter().map(Bound::get) {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let fetched = fetch(py, &runtime, &reference.handle, left)?;
            values.append(decode(py, reference, &fetched, copy)?)?;
        }
    }
    Ok(values)
}

fn ask_for(py: Python<'_>, runtime: &Runtime, references: &[Bound<'_, ObjectRef>]) -> PyResult<()> {
    if references.len() == 1 {
        return Ok(());
    }
    let handles: Vec<&Ref> = references.iter().map(|reference| &reference.get().handle).collect();
    // Outside of the lock: a full ring to the node makes it wait.
    let asked = gil::detach(py, || runtime.ask_for(handles.iter().copied()));
    asked.map_err(|error| error::raise(py, error))
}

fn fetch(py: Python<'_>, runtime: &Runtime, handle: &Ref, timeout: Option<Duration>) -> PyResult<Fetched> {
    if let Some(fetched) = runtime.try_get(handle).map_err(|error| error::raise(py, error))? {
        return Ok(fetched);
    }
    blocking(py, || runtime.get(handle, timeout)).map_err(|error| error::raise(py, error))
}

/// Runs a wait without the lock; signals end it.
pub(crate) fn blocking<R: Send>(py: Python<'_>, body: impl FnOnce() -> R + Send) -> R {
    gil::detach(py, || {
        let _guard = bireme_runtime::interruptible();
        body()
    })
}

pub(crate) fn patience(timeout: Option<f64>) -> Option<Duration> {
    // Later than a clock can say is for ever.
    let patience = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
    patience.filter(|patience| *patience < FOR_EVER)
}

/// Makes an object of a value.
#[pyfunction]
fn put(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<ObjectRef> {
    let runtime = driver::runtime(py)?;
    let Packed { encoded, keep } = value::encode(value)?;
    let put =
        if encoded.len() > INLINE_BYTES_MAX { gil::detach(py, || runtime.put(encoded)) } else { runtime.put(encoded) };
    drop(keep);
    Ok(ObjectRef::new(put.map_err(|error| error::raise(py, error))?))
}

/// Waits until `count` of the objects are there: those, and the others, each in the given order.
#[pyfunction]
fn wait<'py>(
    py: Python<'py>,
    references: &Bound<'py, PyList>,
    count: usize,
    timeout: Option<f64>,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    // A copy, since the list can change while the lock is given away.
    let given = references.to_tuple();
    let bound = read_distinct(&given)?;
    let runtime = driver::running(py)?;
    let handles: Vec<&Ref> = bound.iter().map(|reference| &reference.get().handle).collect();
    let flags = blocking(py, || runtime.wait(&handles, count, patience(timeout)));
    let flags = flags.map_err(|error| error::raise(py, error))?;
    let at: Vec<usize> = flags.iter().enumerate().filter(|(_, flag)| **flag).map(|(at, _)| at).collect();
    let ready = PyList::new(py, at.iter().map(|at| bound[*at]))?;
    if at.len() > FEW_READY {
        let others = bound.iter().zip(&flags).filter(|(_, flag)| !**flag).map(|(reference, _)| *reference);
        return Ok((ready, PyList::new(py, others.collect::<Vec<_>>())?));
    }
    let others = given.to_list();
    for at in at.iter().rev() {
        others.del_item(*at)?;
    }
    Ok((ready, others))
}

/// The references of a tuple, each only once.
fn read_distinct<'a, 'py>(references: &'a Bound<'py, PyTuple>) -> PyResult<Vec<Borrowed<'a, 'py, ObjectRef>>> {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    let mut read = Vec::with_capacity(references.len());
    for reference in references.iter_borrowed() {
        let Ok(reference) = reference.cast_exact::<ObjectRef>() else {
            let kind = reference.get_type().name()?;
            return Err(PyTypeError::new_err(format!("wait takes references, and this list has a {kind} in it")));
        };
        if reference.get().seen_in.swap(call, Ordering::Relaxed) == call {
            let text =
                format!("{} is twice in the list to wait for; each reference may be there once", reference.repr()?);
            return Err(PyValueError::new_err(text));
        }
        read.push(reference);
    }
    Ok(read)
}

/// Cancels the task that makes an object.
#[pyfunction]
fn cancel(py: Python<'_>, reference: &Bound<'_, ObjectRef>, force: bool, recursive: bool) -> PyResult<()> {
    let runtime = driver::running(py)?;
    runtime.cancel(&reference.get().handle, force, recursive).map_err(|error| error::raise(py, error))
}

/// Sends a value ahead to nodes.
#[pyfunction]
#[pyo3(signature = (reference, nodes = None))]
fn broadcast(py: Python<'_>, reference: &Bound<'_, ObjectRef>, nodes: Option<Vec<String>>) -> PyResult<()> {
    let runtime = driver::running(py)?;
    let named = |node: &String| {
        NodeId::from_hex(node).ok_or_else(|| {
            PyValueError::new_err(format!("{node:?} is no node id; take the \"NodeID\" of an entry of bireme.nodes()"))
        })
    };
    let nodes = nodes.map(|nodes| nodes.iter().map(named).collect::<PyResult<Vec<_>>>()).transpose()?;
    let handle = &reference.get().handle;
    gil::detach(py, || runtime.broadcast(handle, nodes.as_deref())).map_err(|error| error::raise(py, error))
}

/// Ends an actor.
#[pyfunction]
fn kill(py: Python<'_>, actor: &Bound<'_, Actor>, restart: bool) -> PyResult<()> {
    let runtime = driver::running(py)?;
    runtime.kill_actor(actor.get().id, restart).map_err(|error| error::raise(py, error))
}

/// What an object waits for, in words.
#[pyfunction]
fn explain<'py>(py: Python<'py>, reference: &Bound<'py, ObjectRef>) -> PyResult<Bound<'py, PyString>> {
    let runtime = driver::running(py)?;
    let handle = &reference.get().handle;
    let text = gil::detach(py, || runtime.explain(handle));
    Ok(PyString::new(py, &text.map_err(|error| error::raise(py, error))?))
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(get, module)?)?;
    module.add_function(wrap_pyfunction!(get_many, module)?)?;
    module.add_function(wrap_pyfunction!(put, module)?)?;
    module.add_function(wrap_pyfunction!(wait, module)?)?;
    module.add_function(wrap_pyfunction!(broadcast, module)?)?;
    module.add_function(wrap_pyfunction!(cancel, module)?)?;
    module.add_function(wrap_pyfunction!(kill, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)?;
    module.add_function(wrap_pyfunction!(submit::find_actor, module)?)?;
    module.add_function(wrap_pyfunction!(submit::lookup_code, module)?)?;
    module.add_function(wrap_pyfunction!(submit::rebuild_actor, module)?)?;
    module.add_function(wrap_pyfunction!(reference::rebuild_reference, module)?)?;
    module.add_function(wrap_pyfunction!(reference::apart, module)?)?;
    module.add_function(wrap_pyfunction!(reference::forget_collected, module)?)
}
