//! Starting and ending the runtime, and finding the one that runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use bireme_runtime::core::id::ProcessId;
use bireme_runtime::core::resources::Resources;
use bireme_runtime::{Config, Error, Output, OutputLine, Program, Runtime, Stream};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{error, gil, hooks, interrupt, reference};

/// The part of the memory in use at which the largest worker is ended; the same name as for `bireme start`.
const MEMORY_LIMIT_VARIABLE: &str = "BIREME_MEMORY_LIMIT_FRACTION";

/// The runtime of this process; started with the defaults when there is none yet.
pub fn runtime(py: Python<'_>) -> PyResult<Runtime> {
    match Runtime::current() {
        Ok(runtime) => Ok(runtime),
        Err(Error::NotRunning(_)) => {
            hooks::AUTO_INIT.get(py)?.call0()?;
            Runtime::current().map_err(|error| error::raise(py, error))
        }
        Err(other) => Err(error::raise(py, other)),
    }
}

/// The runtime of this process, for who holds something of it: no new one is started for a reference of an old one.
pub fn running(py: Python<'_>) -> PyResult<Runtime> {
    Runtime::current().map_err(|error| error::raise(py, error))
}

/// Starts the runtime. The package has validated the settings.
#[pyfunction]
fn start(py: Python<'_>, settings: &Bound<'_, PyDict>, program: Vec<OsString>, scratch: PathBuf) -> PyResult<()> {
    let mut config = Config { worker_program: Some(program), scratch_directory: Some(scratch), ..Config::default() };
    let given = |name: &str| PyResult::Ok(settings.get_item(name)?.filter(|value| !value.is_none()));
    if let Some(value) = given("num_cpus")? {
        config.cpus = Some(value.extract()?);
    }
    if let Some(value) = given("num_gpus")? {
        config.gpus = value.extract()?;
    }
    if let Some(value) = given("memory")? {
        config.memory_bytes = Some(value.extract()?);
    }
    if let Some(value) = given("resources")? {
        config.resources = value.extract()?;
    }
    if let Some(value) = given("object_store_memory")? {
        config.object_store_bytes = Some(value.extract()?);
    }
    if let Some(value) = given("address")? {
        config.address = Some(value.extract()?);
    }
    if let Some(value) = given("namespace")? {
        config.namespace = Some(value.extract()?);
    }
    if let Some(value) = given("python")? {
        let (python, cloudpickle, executable, arguments, probe, environment) = value.extract()?;
        let program = Program::Python { python, cloudpickle, executable, arguments, probe, environment };
        (config.program, config.worker_program) = (Some(program), None);
    }
    if let Ok(text) = std::env::var(MEMORY_LIMIT_VARIABLE) {
        let wrong = |_| PyValueError::new_err(format!("{MEMORY_LIMIT_VARIABLE} is {text:?}; give 0.1 to 1.0"));
        config.memory_limit_fraction = text.parse().map_err(wrong)?;
    }
    let log_to_driver = given("log_to_driver")?.map_or(Ok(true), |value| value.extract())?;
    config.output = if log_to_driver { Output::Lines } else { Output::Silent };
    interrupt::install();
    gil::detach(py, || Runtime::start(config)).map(drop).map_err(|error| error::raise(py, error))
}

/// Ends the runtime and all its processes.
#[pyfunction]
fn shutdown(py: Python<'_>) {
    if let Ok(runtime) = Runtime::current() {
        gil::detach(py, || runtime.shutdown());
        reference::release_kept();
    }
}

/// The job's id as text.
#[pyfunction]
fn job_id(py: Python<'_>) -> PyResult<String> {
    Ok(format!("{:016x}", runtime(py)?.job()))
}

/// The id of this process as text.
#[pyfunction]
fn process_id(py: Python<'_>) -> PyResult<String> {
    Ok(process_text(runtime(py)?.process_id()))
}

/// A process as Python names it.
pub fn process_text(process: ProcessId) -> String {
    format!("{:08x}{:08x}{:08x}", process.node.0, process.slot, process.incarnation)
}

/// The id of the node of this process, as text.
#[pyfunction]
fn node_id(py: Python<'_>) -> PyResult<String> {
    Ok(runtime(py)?.node_id().hex())
}

/// The namespace of this program's names.
#[pyfunction]
fn namespace(py: Python<'_>) -> PyResult<String> {
    Ok(runtime(py)?.namespace().to_owned())
}

/// Namespace and name of the actors that have one: of this program's namespace, or of all.
#[pyfunction]
fn actor_names(py: Python<'_>, all_namespaces: bool) -> PyResult<Vec<(String, String)>> {
    let runtime = runtime(py)?;
    gil::detach(py, || runtime.named_actors(all_namespaces)).map_err(|error| error::raise(py, error))
}

type Amounts = BTreeMap<String, f64>;

/// Resources under the names that Ray's users know.
pub fn amounts(resources: &Resources) -> Amounts {
    let mut named: Amounts = resources.custom.iter().map(|(name, amount)| (name.clone(), amount.as_f64())).collect();
    named.insert("CPU".into(), resources.cpus.as_f64());
    if resources.gpus.0 > 0 {
        named.insert("GPU".into(), resources.gpus.as_f64());
    }
    if resources.memory_bytes > 0 {
        named.insert("memory".into(), resources.memory_bytes as f64);
    }
    named
}

/// The same for what was asked for: without what is not.
pub fn asked(resources: &Resources) -> Amounts {
    let mut named = amounts(resources);
    named.retain(|_, amount| *amount > 0.0);
    named
}

/// A line as [`WorkerOutput::next`] gives it.
type NamedLine = (u32, Option<String>, String, bool, String);

/// The output of the runtime's workers, for one reader.
#[pyclass(frozen, module = "bireme._native", name = "Output")]
pub struct WorkerOutput(Runtime);

#[pymethods]
impl WorkerOutput {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        Runtime::current().map(Self).map_err(|error| error::raise(py, error))
    }

    /// The next lines: process, node when that is another one, name, whether it is standard error, text. None when the
    /// runtime is over and all is read.
    fn next(&self, py: Python<'_>) -> Option<Vec<NamedLine>> {
        let lines = gil::detach(py, || self.0.next_output(None))?;
        let named = |line: OutputLine| {
            let node = line.node.map(|node| node.to_string());
            (line.pid, node, line.name, line.stream == Stream::Stderr, line.text)
        };
        Some(lines.into_iter().map(named).collect())
    }
}

/// Whether this process runs tasks for a driver.
#[pyfunction]
fn is_worker() -> bool {
    Runtime::current().is_ok_and(|runtime| runtime.is_worker())
}

/// Whether there is a runtime.
#[pyfunction]
fn is_running() -> bool {
    Runtime::current().is_ok()
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(start, module)?)?;
    module.add_function(wrap_pyfunction!(shutdown, module)?)?;
    module.add_function(wrap_pyfunction!(job_id, module)?)?;
    module.add_function(wrap_pyfunction!(namespace, module)?)?;
    module.add_function(wrap_pyfunction!(is_worker, module)?)?;
    module.add_function(wrap_pyfunction!(process_id, module)?)?;
    module.add_function(wrap_pyfunction!(node_id, module)?)?;
    module.add_function(wrap_pyfunction!(actor_names, module)?)?;
    module.add_function(wrap_pyfunction!(is_running, module)?)
}
