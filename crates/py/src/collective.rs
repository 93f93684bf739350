//! Collective groups, as the package calls them: arrays come as buffers with the number of their element type and their shape.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bireme_runtime::collective::{Membership, Outcome, Work};
use bireme_runtime::core::collective::{ArrayKind, Call, CollectiveId, Kind, op_from_name};
use bireme_runtime::core::id::ActorId;
use bireme_runtime::{Error, Runtime};
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::view::View;
use crate::{driver, error, gil, value};

/// A wait for a call that nobody else ends looks so often whether a signal came.
const LOOK: Duration = Duration::from_millis(100);

/// The id of a new group, or of the one with a name.
#[pyfunction]
#[pyo3(signature = (name=None))]
fn create_collective(py: Python<'_>, name: Option<&str>) -> PyResult<String> {
    let runtime = driver::runtime(py)?;
    let made = match name {
        Some(name) => runtime.named_collective(name),
        None => runtime.create_collective(),
    };
    made.map(CollectiveId::hex).map_err(|error| error::raise(py, error))
}

/// A member of a group, in its process.
#[pyclass(frozen, module = "bireme._native")]
pub struct Member(Arc<Membership>);

/// A call that was begun.
#[pyclass(frozen, module = "bireme._native", name = "CollectiveWork")]
pub struct CollectiveWork(Arc<Work>);

/// What an array is: the number of its element type, and its shape.
type Described = Option<(u8, Vec<u64>)>;

fn described(array: Described) -> Option<ArrayKind> {
    array.map(|(dtype, shape)| ArrayKind { dtype, shape })
}

/// What a call gave: its own input, or element type, shape and views of its arrays.
fn shown<'py>(py: Python<'py>, outcome: &Outcome) -> PyResult<Bound<'py, PyTuple>> {
    let (dtype, shape) = outcome.array.as_ref().map_or((0, Vec::new()), |array| (array.dtype, array.shape.clone()));
    let view =
        |range: &std::ops::Range<usize>| Bound::new(py, View::new(outcome.bytes.clone(), range.start, range.len()));
    let views = PyList::new(py, outcome.ranges.iter().map(view).collect::<PyResult<Vec<_>>>()?)?;
    (outcome.own, dtype, shape, views).into_pyobject(py)
}

#[pymethods]
impl Member {
    #[new]
    fn new(
        py: Python<'_>,
        group: &str,
        place: (u32, u32),
        label: String,
        actors: Vec<String>,
        timeout: f64,
    ) -> PyResult<Self> {
        let wrong = || PyValueError::new_err(format!("{group:?} is not the id of a collective group"));
        let group = CollectiveId::from_hex(group).ok_or_else(wrong)?;
        let timeout = Duration::try_from_secs_f64(timeout).map_err(|bad| PyValueError::new_err(bad.to_string()))?;
        let actors = actors.iter().filter_map(|actor| ActorId::from_hex(actor)).collect();
        let runtime = driver::runtime(py)?;
        let joined = gil::detach(py, || runtime.join_collective(group, place, (label, actors), timeout));
        joined.map(Self).map_err(|error| error::raise(py, error))
    }

    /// Makes a call; with `later`, only begins it.
    fn call<'py>(
        &self,
        py: Python<'py>,
        kind: (String, Option<String>),
        root: Option<u32>,
        array: Described,
        buffers: Vec<Bound<'py, PyAny>>,
        later: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (kind, op) = kind;
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind);
        let kind = kind.ok_or_else(|| PyValueError::new_err("the call is none that there is"))?;
        let op = op.map(|op| {
            let wrong =
                || PyValueError::new_err(format!("there is no op {op:?}; sum, mean, product, min and max are there"));
            op_from_name(&op).ok_or_else(wrong)
        });
        let call = Call { kind, op: op.transpose()?, root, array: described(array) };
        let inputs = buffers.iter().map(value::lend).collect::<PyResult<Vec<_>>>()?;
        if later {
            let begun = gil::detach_here(py, || self.0.begin(call, inputs)).map_err(|error| error::raise(py, error))?;
            return Ok(Bound::new(py, CollectiveWork(begun))?.into_any());
        }
        let made = gil::detach_here(py, || self.0.call(call, inputs)).map_err(|error| error::raise(py, error))?;
        shown(py, &made).map(Bound::into_any)
    }

    /// Sends an array; with `later`, only begins to.
    fn send(
        &self,
        py: Python<'_>,
        to: u32,
        tag: u32,
        array: (u8, Vec<u64>),
        buffer: &Bound<'_, PyAny>,
        later: bool,
    ) -> PyResult<Option<CollectiveWork>> {
        let array = ArrayKind { dtype: array.0, shape: array.1 };
        let input = value::lend(buffer)?;
        if later {
            let begun = gil::detach_here(py, || self.0.begin_send(to, tag, array, input));
            return begun.map(|work| Some(CollectiveWork(work))).map_err(|error| error::raise(py, error));
        }
        let sent = gil::detach_here(py, || self.0.send(to, tag, array, input));
        sent.map(|()| None).map_err(|error| error::raise(py, error))
    }

    /// Takes an array; with `later`, only begins to.
    fn receive<'py>(&self, py: Python<'py>, from: u32, tag: u32, later: bool) -> PyResult<Bound<'py, PyAny>> {
        if later {
            let begun = self.0.begin_receive(from, tag).map_err(|error| error::raise(py, error))?;
            return Ok(Bound::new(py, CollectiveWork(begun))?.into_any());
        }
        let came = gil::detach(py, || self.0.receive(from, tag)).map_err(|error| error::raise(py, error))?;
        shown(py, &came).map(Bound::into_any)
    }

    /// Makes no other call.
    fn leave(&self, py: Python<'_>) {
        gil::detach(py, || self.0.leave());
    }
}

#[pymethods]
impl CollectiveWork {
    /// Whether the call is over.
    fn done(&self) -> bool {
        self.0.is_done()
    }

    /// Waits until the call is over.
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyTuple>> {
        let timeout = crate::verbs::patience(timeout);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map_or(LOOK, |deadline| deadline.saturating_duration_since(Instant::now()).min(LOOK));
            let waited: Option<Result<Outcome, Error>> = gil::detach(py, || self.0.wait(Some(left)));
            match waited {
                Some(Ok(outcome)) => return shown(py, &outcome),
                Some(Err(error)) => return Err(error::raise(py, error)),
                None => py.check_signals()?,
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let text = format!("the call was not over after {:?}; it goes on", timeout.unwrap_or_default());
                return Err(PyTimeoutError::new_err(text));
            }
        }
    }
}

/// The actor that lives in this process.
#[pyfunction]
fn own_actor_id() -> Option<String> {
    Runtime::current().ok()?.own_actor_id().map(ActorId::hex)
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Member>()?;
    module.add_class::<CollectiveWork>()?;
    module.add_function(wrap_pyfunction!(create_collective, module)?)?;
    module.add_function(wrap_pyfunction!(own_actor_id, module)?)
}
