//! What the calling code belongs to: the task of its thread and the actor of its process.
//!
//! Called by `worker` around everything that an executor runs, and by the package for its questions.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bireme_runtime::Runtime;
use bireme_runtime::core::id::TaskId;
use bireme_runtime::core::spec::{TaskKind, TaskSpec};
use pyo3::prelude::*;

use crate::submit::Actor;
use crate::{driver, error, gil};

thread_local! {
    /// What the current thread runs.
    static CURRENT: RefCell<Option<Arc<TaskSpec>>> = const { RefCell::new(None) };
}

/// Says what the current thread runs from here on, and gives what it ran before.
pub fn replace(spec: Option<Arc<TaskSpec>>) -> Option<Arc<TaskSpec>> {
    CURRENT.replace(spec)
}

/// A task as Python sees it: id, name, actor and attempt.
pub fn portray(spec: &TaskSpec) -> (String, String, Option<String>, u32) {
    let actor = match &spec.kind {
        TaskKind::Plain => None,
        TaskKind::Create(_) => Some(spec.id),
        TaskKind::Call { actor, .. } => Some(actor.0),
    };
    let hex = |task: TaskId| format!("{:032x}", task.raw());
    (hex(spec.id), spec.options.name.clone(), actor.map(hex), spec.attempt)
}

/// What the current thread runs: task, name, actor and attempt; nothing outside of tasks.
#[pyfunction]
fn current_task() -> Option<(String, String, Option<String>, u32)> {
    CURRENT.with_borrow(|current| current.as_deref().map(portray))
}

/// What the running task or the actor that lives here was given, under the names that Ray's users know.
#[pyfunction]
fn assigned_resources() -> BTreeMap<String, f64> {
    let plain = CURRENT.with_borrow(|current| {
        let spec = current.as_ref().filter(|spec| matches!(spec.kind, TaskKind::Plain));
        spec.map(|spec| driver::amounts(&spec.options.resources))
    });
    let hosted = || Runtime::current().ok()?.actor_resources().map(|resources| driver::amounts(&resources));
    let mut assigned = plain.or_else(hosted).unwrap_or_default();
    assigned.retain(|_, amount| *amount > 0.0);
    assigned
}

/// The GPUs of the running task or of the actor that lives here.
#[pyfunction]
fn gpu_ids() -> Vec<u32> {
    Runtime::current().map(|runtime| runtime.gpu_indices()).unwrap_or_default()
}

/// The actor that lives in this process.
#[pyfunction]
fn own_actor(py: Python<'_>) -> PyResult<Option<Actor>> {
    let Ok(runtime) = Runtime::current() else { return Ok(None) };
    let own = gil::detach(py, || runtime.own_actor()).map_err(|error| error::raise(py, error))?;
    Ok(own.map(|(id, class_key, handle)| Actor { id, handle, class_key }))
}

/// How often the actor that lives here was started again.
#[pyfunction]
fn actor_restarts() -> u32 {
    Runtime::current().map_or(0, |runtime| runtime.actor_restarts())
}

/// The name of the actor that lives here, as the engine knows it.
#[pyfunction]
fn actor_name() -> Option<String> {
    Runtime::current().ok()?.actor_name()
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(current_task, module)?)?;
    module.add_function(wrap_pyfunction!(assigned_resources, module)?)?;
    module.add_function(wrap_pyfunction!(gpu_ids, module)?)?;
    module.add_function(wrap_pyfunction!(own_actor, module)?)?;
    module.add_function(wrap_pyfunction!(actor_restarts, module)?)?;
    module.add_function(wrap_pyfunction!(actor_name, module)?)
}
