//! Starting and ending the runtime, and finding the one that runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use bireme_runtime::core::resources::Resources;
use bireme_runtime::{Config, Error, Output, Runtime, Stream};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{error, gil, hooks, interrupt, reference};

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
    let me = runtime(py)?.process_id();
    Ok(format!("{:08x}{:08x}", me.slot, me.incarnation))
}

/// The node's id as text. A job has one node, and a node one job.
#[pyfunction]
fn node_id(py: Python<'_>) -> PyResult<String> {
    job_id(py)
}

/// All that tasks can ask for, and what of it nobody has.
#[pyfunction]
fn resources(py: Python<'_>) -> PyResult<(Amounts, Amounts)> {
    let runtime = runtime(py)?;
    let (total, free) = gil::detach(py, || runtime.resources()).map_err(|error| error::raise(py, error))?;
    Ok((amounts(&total), amounts(&free)))
}

/// Names of actors, as the engine knows them.
#[pyfunction]
fn actor_names(py: Python<'_>) -> PyResult<Vec<String>> {
    let runtime = runtime(py)?;
    gil::detach(py, || runtime.named_actors()).map_err(|error| error::raise(py, error))
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

/// The output of the runtime's workers, for one reader.
#[pyclass(frozen, module = "bireme._native", name = "Output")]
pub struct WorkerOutput(Runtime);

#[pymethods]
impl WorkerOutput {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        Runtime::current().map(Self).map_err(|error| error::raise(py, error))
    }

    /// The next lines: process, name, whether it is standard error, text. None when the runtime is over and all is read.
    fn next(&self, py: Python<'_>) -> Option<Vec<(u32, String, bool, String)>> {
        let lines = gil::detach(py, || self.0.next_output(None))?;
        Some(lines.into_iter().map(|line| (line.pid, line.name, line.stream == Stream::Stderr, line.text)).collect())
    }
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
    module.add_function(wrap_pyfunction!(process_id, module)?)?;
    module.add_function(wrap_pyfunction!(node_id, module)?)?;
    module.add_function(wrap_pyfunction!(resources, module)?)?;
    module.add_function(wrap_pyfunction!(actor_names, module)?)?;
    module.add_function(wrap_pyfunction!(is_running, module)?)
}
