//! Streams: results that come one by one. `ObjectRefGenerator` of the package is made of these.

use bireme_runtime::core::failure::Failure;
use bireme_runtime::{Error, Invocation};
use pyo3::prelude::*;

use crate::reference::ObjectRef;
use crate::{driver, error, gil, hooks, interrupt, worker};

/// The reference of an item, which need not exist yet.
#[pyfunction]
fn stream_item(py: Python<'_>, end: &Bound<'_, ObjectRef>, index: u64) -> PyResult<ObjectRef> {
    let item = driver::running(py)?.stream_item(&end.get().handle, index);
    item.map(ObjectRef::new).map_err(|error| error::raise(py, error))
}

/// The reader is done with the items up to and including this one.
#[pyfunction]
fn take_item(py: Python<'_>, end: &Bound<'_, ObjectRef>, index: u64) -> PyResult<()> {
    driver::running(py)?.take_item(&end.get().handle, index).map_err(|error| error::raise(py, error))
}

/// The same reference, whose value is the number of items.
#[pyfunction]
fn as_end(end: &Bound<'_, ObjectRef>) -> ObjectRef {
    ObjectRef::end(end.get().handle.clone())
}

/// Whether an object has a value, or an error in its place.
#[pyfunction]
fn is_ready(py: Python<'_>, reference: &Bound<'_, ObjectRef>) -> PyResult<bool> {
    match driver::running(py)?.try_get(&reference.get().handle) {
        Ok(value) => Ok(value.is_some()),
        Err(Error::Failed(_)) => Ok(true),
        Err(other) => Err(error::raise(py, other)),
    }
}

/// Whether an item that is ready is past the end of its stream.
#[pyfunction]
fn is_past_end(py: Python<'_>, item: &Bound<'_, ObjectRef>) -> PyResult<bool> {
    let found = driver::running(py)?.try_get(&item.get().handle);
    Ok(matches!(found, Err(Error::Failed(failure)) if matches!(*failure, Failure::StreamEnded { .. })))
}

/// The generator of the package for the end of a stream.
pub fn generator<'py>(py: Python<'py>, end: ObjectRef) -> PyResult<Bound<'py, PyAny>> {
    hooks::GENERATOR.get(py)?.call1((end,))
}

/// Yields what the user's generator gives, item by item.
pub fn yield_all(invocation: &mut Invocation<'_>, items: &Bound<'_, PyAny>) -> PyResult<Result<(), Failure>> {
    let py = items.py();
    for item in items.try_iter()? {
        let encoded = worker::encode_result(&item?)?;
        if bireme_runtime::is_forked() {
            worker::end_fork(py, None);
        }
        let yielder = &mut *invocation;
        let sent = gil::detach_here(py, move || yielder.yield_item(encoded));
        if let Err(failure) = sent {
            // It stops by being closed, not by an interrupt as well: that would cut its `finally` blocks short.
            interrupt::forget(invocation.task);
            interrupt::clear_pending(py);
            if let Ok(close) = items.getattr("close") {
                close.call0()?;
            }
            return Ok(Err(failure));
        }
    }
    Ok(Ok(()))
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(stream_item, module)?)?;
    module.add_function(wrap_pyfunction!(take_item, module)?)?;
    module.add_function(wrap_pyfunction!(as_end, module)?)?;
    module.add_function(wrap_pyfunction!(is_ready, module)?)?;
    module.add_function(wrap_pyfunction!(is_past_end, module)?)
}
