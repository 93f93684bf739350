//! Calls of an async actor: they leave the executor as tickets and end when the event loop says so.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use bireme_runtime::core::failure::Failure;
use bireme_runtime::core::spec::TaskSpec;
use bireme_runtime::{Invocation, Outcome, Ticket as Duty};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::{current, error, gil, hooks, interrupt, worker};

/// A call that runs on the event loop.
#[pyclass(frozen, module = "bireme._native")]
pub struct Ticket {
    duty: Mutex<Option<Duty>>,
    spec: Arc<TaskSpec>,
}

#[pymethods]
impl Ticket {
    /// The id of the call as text.
    #[getter]
    fn task_id(&self) -> String {
        format!("{:032x}", self.spec.id.raw())
    }

    /// Whether the call yields items.
    #[getter]
    fn streams(&self) -> bool {
        self.spec.stream.is_some()
    }

    /// Gives the next item to who reads it. True when the generator should pause until there is room.
    fn yield_item(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        let encoded = worker::encode_result(item)?;
        match self.with_duty(py, |duty| duty.yield_item(encoded)) {
            Some(Ok(pause)) => Ok(pause),
            Some(Err(failure)) => Err(self.stopped(py, &failure)),
            None => Ok(false),
        }
    }

    /// Whether the generator may yield its next item.
    fn may_yield(&self, py: Python<'_>) -> PyResult<bool> {
        match self.with_duty(py, |duty| duty.may_yield(Waker::noop())) {
            Some(Ok(may)) => Ok(may),
            Some(Err(failure)) => Err(self.stopped(py, &failure)),
            None => Ok(true),
        }
    }

    /// The call as `current_task` gives it.
    fn current(&self) -> (String, String, Option<String>, u32) {
        current::portray(&self.spec)
    }
}

impl Ticket {
    /// Whether the generator may go on or shall stop; if not, the waker is woken when to look again.
    pub fn has_room_or_wake(&self, py: Python<'_>, waker: &Waker) -> bool {
        self.with_duty(py, |duty| duty.may_yield(waker).unwrap_or(true)).unwrap_or(true)
    }

    /// Uses the call while it has not ended. Its mutex is held during waits, so it is taken outside of the interpreter's lock.
    fn with_duty<R: Send>(&self, py: Python<'_>, body: impl FnOnce(&Duty) -> R + Send) -> Option<R> {
        gil::detach(py, || self.duty.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(body))
    }

    /// What a generator is told when there is nobody to yield to.
    fn stopped(&self, py: Python<'_>, failure: &Failure) -> PyErr {
        match (failure, hooks::CANCELLED_ERROR.get(py)) {
            (Failure::Cancelled { .. }, Ok(class)) => match class.call0() {
                Ok(cancelled) => PyErr::from_value(cancelled),
                Err(broken) => broken,
            },
            _ => error::raise_failure(py, failure),
        }
    }
}

/// Hands a call over to the event loop.
pub fn hand_over<'py>(
    invocation: &mut Invocation<'_>,
    method: &Bound<'py, PyAny>,
    positional: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<()> {
    let py = method.py();
    let spec = Arc::clone(invocation.spec);
    let task = spec.id;
    interrupt::on_loop(task);
    let duty = invocation.defer();
    // Whoever cancelled it before it was known to be on the loop has found nothing to cancel.
    let cancelled = duty.is_cancelled();
    let ticket = Ticket { duty: Mutex::new(Some(duty)), spec };
    hooks::SUBMIT_TO_LOOP.get(py)?.call1((ticket, method, positional, named, cancelled)).map(drop)
}

/// Ends calls: each with its ticket, its result and its exception.
#[pyfunction]
fn finish_calls(py: Python<'_>, ended: &Bound<'_, PyList>) -> PyResult<()> {
    let mut finished = Vec::with_capacity(ended.len());
    for call in ended.iter() {
        let (ticket, result, raised) =
            call.extract::<(Bound<'_, Ticket>, Bound<'_, PyAny>, Option<Bound<'_, PyBaseException>>)>()?;
        let ticket = ticket.get();
        interrupt::forget(ticket.spec.id);
        let duty = gil::detach(py, || ticket.duty.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(duty) = duty {
            let outcome = outcome(py, &ticket.spec, &duty, &result, raised);
            finished.push((duty, outcome));
        }
    }
    gil::detach(py, || Duty::finish_all(finished));
    Ok(())
}

fn outcome(
    py: Python<'_>,
    spec: &TaskSpec,
    duty: &Duty,
    result: &Bound<'_, PyAny>,
    raised: Option<Bound<'_, PyBaseException>>,
) -> Outcome {
    let failed = |error: PyErr| {
        let is_cancel = hooks::CANCELLED_ERROR.get(py).and_then(|class| error.value(py).is_instance(class));
        match duty.is_cancelled() && is_cancel.unwrap_or(false) {
            true => Failure::Cancelled { task: spec.id },
            false => worker::describe(py, spec, &error),
        }
    };
    match raised {
        Some(raised) => Err(failed(PyErr::from_value(raised.into_any()))),
        None if spec.stream.is_some() => Ok(Vec::new()),
        None => worker::encode_results(result, spec.returns, &spec.options.name).map_err(failed),
    }
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(finish_calls, module)?)
}
