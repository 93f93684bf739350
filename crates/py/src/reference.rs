//! `ObjectRef`, and how references travel inside pickles.
//!
//! While a value is being pickled, each reference inside it is noted in a list of the pickling thread ([`collecting`]),
//! so that the engine can lend it to whoever gets the bytes. A reference that is pickled outside of that (by the user's
//! own pickle) keeps its object for as long as the runtime lives: nobody can say when the bytes are gone.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use bireme_runtime::core::id::ObjectId;
use bireme_runtime::core::value::RefSpec;
use bireme_runtime::{Error, Ref};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::{driver, error, hooks};

/// A reference to an object that exists or will exist.
#[pyclass(frozen, generic, weakref, module = "bireme", name = "ObjectRef")]
pub struct ObjectRef {
    /// The handle that counts.
    pub handle: Ref,
    /// The call of `wait` that met it last: finds a reference that is twice in a list.
    pub seen_in: AtomicU64,
    /// Whether it is the end of a stream, whose value is the number of items.
    pub is_end: bool,
}

impl ObjectRef {
    /// The reference with this handle.
    pub fn new(handle: Ref) -> Self {
        Self { handle, seen_in: AtomicU64::new(0), is_end: false }
    }

    /// The reference to the end of a stream.
    pub fn end(handle: Ref) -> Self {
        Self { is_end: true, ..Self::new(handle) }
    }
}

thread_local! {
    static COLLECTED: RefCell<Option<Vec<Ref>>> = const { RefCell::new(None) };
}

/// What the user's own pickles refer to.
static KEPT: Mutex<BTreeMap<ObjectId, Ref>> = Mutex::new(BTreeMap::new());

/// The runtime is over, and with it what the user's own pickles refer to.
pub fn release_kept() {
    let kept = std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    drop(kept);
}

/// Runs a pickling and gives the references that it met.
pub fn collecting<R>(body: impl FnOnce() -> PyResult<R>) -> PyResult<(R, Vec<Ref>)> {
    // Pickling can nest: a reducer may submit a task or put an object.
    let outer = COLLECTED.replace(Some(Vec::new()));
    let result = body();
    let collected = COLLECTED.replace(outer).unwrap_or_default();
    Ok((result?, collected))
}

/// Forgets what a failed attempt to pickle has noted.
#[pyfunction]
pub fn forget_collected() {
    COLLECTED.with_borrow_mut(|collected| {
        if let Some(collected) = collected {
            collected.clear();
        }
    });
}

/// Calls something whose pickling is not part of the value that is being pickled: its bytes are kept and used again.
#[pyfunction]
pub fn apart<'py>(body: &Bound<'py, PyAny>, argument: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let outer = COLLECTED.replace(None);
    let result = body.call1((argument,));
    COLLECTED.replace(outer);
    result
}

/// Notes a handle inside the value that is being pickled, and gives its bytes.
pub fn travel(handle: &Ref) -> PyResult<Vec<u8>> {
    let noted = COLLECTED.with_borrow_mut(|collected| match collected {
        Some(collected) => {
            collected.push(handle.clone());
            true
        }
        None => false,
    });
    if !noted {
        // Dropping a handle may wait for the node, and then the mutex must be free.
        let before = KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(handle.id(), handle.clone());
        drop(before);
    }
    postcard::to_allocvec(&handle.spec()).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The handle behind bytes of [`travel`].
pub fn arrive(py: Python<'_>, bytes: &[u8]) -> PyResult<Ref> {
    let spec: RefSpec = postcard::from_bytes(bytes)
        .map_err(|error| PyValueError::new_err(format!("these bytes are no reference: {error}")))?;
    Ref::adopt(spec).map_err(|error| error::raise(py, error))
}

#[pymethods]
impl ObjectRef {
    fn __hash__(&self) -> isize {
        let mut hasher = DefaultHasher::new();
        self.handle.id().hash(&mut hasher);
        hasher.finish() as isize
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<ObjectRef>().is_ok_and(|other| other.get().handle.id() == self.handle.id())
    }

    fn __repr__(&self) -> String {
        format!("ObjectRef({})", self.handle.id())
    }

    /// The object's id as text.
    fn hex(&self) -> String {
        let id = self.handle.id();
        format!("{:032x}{:016x}", id.task().raw(), id.index())
    }

    /// The object's id as bytes.
    fn binary<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let id = self.handle.id();
        let mut bytes = id.task().raw().to_be_bytes().to_vec();
        bytes.extend(id.index().to_be_bytes());
        PyBytes::new(py, &bytes)
    }

    /// The id of the task that makes the object, as text.
    fn task_id(&self) -> String {
        format!("{:032x}", self.handle.id().task().raw())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let rebuild = py.import("bireme._native")?.getattr("rebuild_reference")?;
        let bytes = PyBytes::new(py, &travel(&self.handle)?);
        PyTuple::new(py, [rebuild, PyTuple::new(py, [bytes])?.into_any()])
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        hooks::AWAIT.get(slf.py())?.call1((slf,))
    }

    /// A `concurrent.futures.Future` of the value.
    fn future<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        hooks::FUTURE.get(slf.py())?.call1((slf,))
    }

    /// Whether the object has a value or an error. This and the methods below make a reference future enough for
    /// `asyncio.wait`, which hands back what it was given.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        match driver::running(py)?.try_get(&self.handle) {
            Ok(value) => Ok(value.is_some()),
            Err(Error::Failed(_)) => Ok(true),
            Err(other) => Err(error::raise(py, other)),
        }
    }

    /// Whether the task that makes the object was cancelled.
    fn cancelled<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        hooks::CANCELLED.get(slf.py())?.call1((slf,))
    }

    /// The value of an object that is there.
    fn result<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        hooks::RESULT.get(slf.py())?.call1((slf,))
    }

    /// The error of an object that is there; None when it has a value.
    fn exception<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        hooks::EXCEPTION.get(slf.py())?.call1((slf,))
    }

    /// Has the running event loop call `callback(reference)` when the object is there.
    #[pyo3(signature = (callback, *, context = None))]
    fn add_done_callback<'py>(
        slf: &Bound<'py, Self>,
        callback: Bound<'py, PyAny>,
        context: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        hooks::ADD_DONE_CALLBACK.get(slf.py())?.call1((slf, callback, context))
    }

    /// Forgets a callback of the running event loop; how often it had been added.
    fn remove_done_callback<'py>(slf: &Bound<'py, Self>, callback: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        hooks::REMOVE_DONE_CALLBACK.get(slf.py())?.call1((slf, callback))
    }
}

/// The reference behind the bytes in a pickle.
#[pyfunction]
pub fn rebuild_reference(py: Python<'_>, bytes: &[u8]) -> PyResult<ObjectRef> {
    Ok(ObjectRef::new(arrive(py, bytes)?))
}
