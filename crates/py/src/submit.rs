//! Remote functions, actor classes and methods, as the caller holds them.
//!
//! The code of a function or class is pickled once by the package and published under its hash before the first task of
//! it is submitted; each [`Function`] remembers for which job it was published.

use std::sync::{Arc, Mutex, PoisonError};

use bireme_runtime::core::id::{ActorId, FunctionKey, digest};
use bireme_runtime::core::resources::{Amount, Resources};
use bireme_runtime::core::spec::{ActorOptions, TaskOptions};
use bireme_runtime::core::stream::Stream;
use bireme_runtime::{Error, Ref, Runtime, Submit, Target};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::argument::{self, Arguments};
use crate::groups::Place;
use crate::reference::{self, ObjectRef};
use crate::{driver, error, gil, hooks, stream};

/// What a caller asks for: a dictionary of the package, already validated there.
pub struct Wishes {
    options: TaskOptions,
    results: Results,
    environment: Option<Py<PyAny>>,
    inherits: bool,
}

impl Wishes {
    /// Options and number of results of a task outside of any environment, and whether it goes where its parent is.
    pub fn into_plain(self) -> (TaskOptions, u32, bool) {
        (self.options, self.results.returns, self.inherits)
    }
}

impl<'py> FromPyObject<'_, 'py> for Wishes {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = given.py();
        let given = given.cast::<PyDict>()?;
        let number = |name: &str| -> PyResult<f64> {
            given.get_item(name)?.filter(|value| !value.is_none()).map_or(Ok(0.0), |value| value.extract())
        };
        let amount = |name: &str, value: f64| {
            Amount::from_f64(name, value).map_err(|bad| error::raise(py, Error::BadAmount(bad)))
        };
        let mut resources = Resources::cpus(amount("num_cpus", number("num_cpus")?)?);
        resources.gpus = amount("num_gpus", number("num_gpus")?)?;
        resources.memory_bytes = number("memory")? as u64;
        if let Some(custom) = given.get_item("resources")?.filter(|custom| !custom.is_none()) {
            for (name, value) in custom.cast::<PyDict>()?.iter() {
                let name: String = name.extract()?;
                let value = amount(&name, value.extract()?)?;
                resources.custom.insert(name, value);
            }
        }
        let retries: i64 = given.get_item("retries")?.map_or(Ok(0), |value| value.extract())?;
        let retry_on = given.get_item("retry_on")?.map_or(Ok(Vec::new()), |value| value.extract())?;
        let name = given.get_item("name")?.map_or(Ok(String::new()), |value| value.extract())?;
        // Below zero means for ever.
        let retries_max = u32::try_from(retries).unwrap_or(u32::MAX);
        let calls_max = given.get_item("calls_max")?.map_or(Ok(0), |value| value.extract())?;
        let threads_per_worker = given.get_item("threads_per_worker")?.map_or(Ok(1), |value| value.extract())?;
        let environment = given.get_item("environment")?.filter(|value| !value.is_none()).map(Bound::unbind);
        let stream: Option<(u32, u64)> = given.get_item("stream")?.map_or(Ok(None), |value| value.extract())?;
        let stream = stream.map(|(items_max, bytes_max)| Stream { items_max, bytes_max });
        let returns = given.get_item("returns")?.map_or(Ok(1), |value| value.extract())?;
        let Place { strategy, captures, inherits } = Place::read(given.get_item("strategy")?)?;
        Ok(Self {
            options: TaskOptions {
                name,
                resources,
                retries_max,
                retry_on,
                environment: 0,
                calls_max,
                threads_per_worker,
                strategy,
                captures,
            },
            results: Results { returns, stream },
            environment,
            inherits,
        })
    }
}

/// How many arguments fit without looking at names; anything else is checked by the package.
struct Signature {
    target: Py<PyAny>,
    least: usize,
    most: usize,
}

impl Signature {
    fn new(given: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if given.is_none() {
            return Ok(None);
        }
        let (target, least, most) = given.extract()?;
        Ok(Some(Self { target, least, most }))
    }

    fn check(&self, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        if kwargs.is_none_or(|kwargs| kwargs.is_empty()) && (self.least..=self.most).contains(&args.len()) {
            return Ok(());
        }
        let py = args.py();
        hooks::CHECK_ARGUMENTS.get(py)?.call1((&self.target, args, kwargs)).map(drop)
    }
}

/// A function or class that workers can load, with the options of its tasks.
#[pyclass(frozen, module = "bireme._native")]
pub struct Function {
    key: FunctionKey,
    code: Py<PyBytes>,
    wishes: Wishes,
    signature: Option<Signature>,
    published: Mutex<Option<Published>>,
}

/// For which job the code was published, and the options of its tasks there.
struct Published {
    job: u64,
    options: Arc<TaskOptions>,
}

#[pymethods]
impl Function {
    #[new]
    fn new(code: Bound<'_, PyBytes>, wishes: Wishes, signature: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            key: FunctionKey(digest(code.as_bytes())),
            code: code.unbind(),
            wishes,
            signature: Signature::new(signature)?,
            published: Mutex::new(None),
        })
    }

    /// The hash of the code.
    #[getter]
    fn key(&self) -> u64 {
        self.key.0
    }

    /// Submits a task.
    #[pyo3(signature = (*args, **kwargs))]
    fn remote<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(signature) = &self.signature {
            signature.check(args, kwargs)?;
        }
        let runtime = driver::runtime(py)?;
        let options = self.publish(py, &runtime)?;
        let arguments = argument::encode(&runtime, "", args, kwargs)?;
        let target = (Target::Plain, self.wishes.inherits);
        let refs = submit(py, &runtime, self.key, options, self.wishes.results, target, arguments)?;
        give(py, refs, self.wishes.results)
    }

    /// Creates an actor of this class, with its name, its namespace unless that is the job's, restarts, calls at once, and whether it outlives its owner.
    fn create(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        life: (Option<String>, Option<String>, i64, u32, bool),
    ) -> PyResult<Actor> {
        let (name, namespace, restarts, concurrency, detached) = life;
        if let Some(signature) = &self.signature {
            signature.check(args, kwargs)?;
        }
        let runtime = driver::runtime(py)?;
        let task_options = self.publish(py, &runtime)?;
        let arguments = argument::encode(&runtime, "", args, kwargs)?;
        let options = ActorOptions {
            name,
            restarts_max: u32::try_from(restarts).unwrap_or(u32::MAX),
            concurrency_max: concurrency,
            detached,
        };
        let target = (Target::Create { options, namespace }, self.wishes.inherits);
        let mut refs = submit(py, &runtime, self.key, task_options, Results::default(), target, arguments)?;
        let handle = refs.pop().ok_or_else(|| PyTypeError::new_err("the engine gave no handle of the actor"))?;
        Ok(Actor { id: ActorId(handle.id().task()), handle, class_key: self.key })
    }
}

impl Function {
    /// Makes sure that workers find the code and its environment; the options of its tasks.
    fn publish(&self, py: Python<'_>, runtime: &Runtime) -> PyResult<Arc<TaskOptions>> {
        let job = runtime.job();
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(published) = published.as_ref().filter(|published| published.job == job) {
            return Ok(Arc::clone(&published.options));
        }
        // The lock is not held while the interpreter's lock is given away.
        drop(published);
        let code = self.code.as_bytes(py).to_vec();
        gil::detach(py, || runtime.publish(self.key, code)).map_err(|error| error::raise(py, error))?;
        let mut options = self.wishes.options.clone();
        options.environment = publish_environment(py, runtime, self.wishes.environment.as_ref())?;
        let options = Arc::new(options);
        let published = Published { job, options: Arc::clone(&options) };
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Some(published);
        Ok(options)
    }
}

/// The key of the environment that a task runs in, after its contents were published; 0 for the plain one.
fn publish_environment(py: Python<'_>, runtime: &Runtime, chosen: Option<&Py<PyAny>>) -> PyResult<u64> {
    let packed: Option<(u64, Option<Vec<u8>>)> = hooks::ENVIRONMENT.get(py)?.call1((chosen,))?.extract()?;
    let Some((key, contents)) = packed else { return Ok(0) };
    if let Some(contents) = contents {
        gil::detach(py, || runtime.publish(FunctionKey(key), contents)).map_err(|error| error::raise(py, error))?;
    }
    Ok(key)
}

/// What a task gives.
#[derive(Clone, Copy, Default)]
pub struct Results {
    /// How many objects.
    pub returns: u32,
    /// Or items, one by one.
    pub stream: Option<Stream>,
}

/// Hands a task, constructor or call to the engine.
pub fn submit(
    py: Python<'_>,
    runtime: &Runtime,
    function: FunctionKey,
    options: Arc<TaskOptions>,
    results: Results,
    (target, inherits): (Target, bool),
    arguments: Arguments,
) -> PyResult<Vec<Ref>> {
    let Arguments { payload, dependencies, nested, keep } = arguments;
    // A task without a result still has an end.
    let (returns, stream) = (results.returns.max(1), results.stream);
    let request = Submit { function, options, returns, stream, target, dependencies, nested, payload, keep, inherits };
    runtime.submit(request).map_err(|error| error::raise(py, error))
}

/// No reference, one, or a list of them.
pub fn give(py: Python<'_>, mut refs: Vec<Ref>, results: Results) -> PyResult<Bound<'_, PyAny>> {
    let Results { returns, stream } = results;
    if stream.is_some()
        && let Some(end) = refs.pop()
    {
        return stream::generator(py, ObjectRef::end(end));
    }
    let mut refs = refs.into_iter().map(ObjectRef::new);
    match returns {
        0 => Ok(py.None().into_bound(py)),
        1 => match refs.next() {
            Some(one) => Ok(one.into_pyobject(py)?.into_any()),
            None => Ok(py.None().into_bound(py)),
        },
        _ => Ok(PyList::new(py, refs.map(|one| Py::new(py, one)).collect::<PyResult<Vec<_>>>()?)?.into_any()),
    }
}

/// An actor, kept alive by this.
#[pyclass(frozen, module = "bireme._native")]
pub struct Actor {
    pub id: ActorId,
    pub handle: Ref,
    pub class_key: FunctionKey,
}

#[pymethods]
impl Actor {
    /// The actor's id as text.
    fn hex(&self) -> String {
        self.id.hex()
    }

    /// The hash of the class's code.
    #[getter]
    fn class_key(&self) -> u64 {
        self.class_key.0
    }

    /// The object that is there when the constructor has ended.
    fn created(&self) -> ObjectRef {
        ObjectRef::new(self.handle.clone())
    }

    fn __hash__(&self) -> u64 {
        self.id.0.raw() as u64
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Actor>().is_ok_and(|other| other.get().id == self.id)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let rebuild = py.import("bireme._native")?.getattr("rebuild_actor")?;
        let bytes = PyBytes::new(py, &reference::travel(&self.handle)?);
        PyTuple::new(py, [rebuild, (bytes, self.class_key.0).into_pyobject(py)?.into_any()])
    }
}

/// The actor behind the bytes in a pickle.
#[pyfunction]
pub fn rebuild_actor(py: Python<'_>, bytes: &[u8], class_key: u64) -> PyResult<Actor> {
    let handle = reference::arrive(py, bytes)?;
    Ok(Actor { id: ActorId(handle.id().task()), handle, class_key: FunctionKey(class_key) })
}

/// A method of an actor, with the options of its calls.
#[pyclass(frozen, module = "bireme._native")]
pub struct Method {
    actor: ActorId,
    handle: Ref,
    function: FunctionKey,
    name: String,
    options: Arc<TaskOptions>,
    results: Results,
    pending_max: usize,
    signature: Option<Signature>,
}

#[pymethods]
impl Method {
    #[new]
    fn new(
        actor: &Actor,
        name: String,
        wishes: Wishes,
        pending_max: i64,
        signature: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        Ok(Self {
            actor: actor.id,
            handle: actor.handle.clone(),
            function: actor.class_key,
            name,
            options: Arc::new(wishes.options),
            results: wishes.results,
            pending_max: usize::try_from(pending_max).ok().filter(|max| *max > 0).unwrap_or(usize::MAX),
            signature: Signature::new(signature)?,
        })
    }

    /// Calls the method.
    #[pyo3(signature = (*args, **kwargs))]
    fn remote<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(signature) = &self.signature {
            signature.check(args, kwargs)?;
        }
        let runtime = driver::running(py)?;
        let arguments = argument::encode(&runtime, &self.name, args, kwargs)?;
        let target = Target::Call { actor: self.actor, handle: self.handle.clone(), pending_max: self.pending_max };
        let target = (target, false);
        let refs = submit(py, &runtime, self.function, Arc::clone(&self.options), self.results, target, arguments)?;
        give(py, refs, self.results)
    }
}

/// The actor with a name in a namespace, the job's unless given: itself, or nothing.
#[pyfunction]
pub fn find_actor(py: Python<'_>, name: &str, namespace: Option<String>) -> PyResult<Option<Actor>> {
    let runtime = driver::runtime(py)?;
    match gil::detach(py, || runtime.find_actor(name, namespace.as_deref())) {
        Ok((id, class_key, handle)) => Ok(Some(Actor { id, handle, class_key })),
        Err(Error::NoSuchActor(_)) => Ok(None),
        Err(other) => Err(error::raise(py, other)),
    }
}

/// The code that was published under a key.
#[pyfunction]
pub fn lookup_code(py: Python<'_>, key: u64) -> PyResult<Option<Py<PyBytes>>> {
    let runtime = driver::runtime(py)?;
    let code = gil::detach(py, || runtime.lookup(FunctionKey(key))).map_err(|error| error::raise(py, error))?;
    Ok(code.map(|code| PyBytes::new(py, &code).unbind()))
}
