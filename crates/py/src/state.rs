//! The node's tables as the package asks for them: rows are dictionaries, ids are text as everywhere in Python.

use bireme_runtime::core::id::{JobId, NodeId, ObjectId, TaskId};
use bireme_runtime::core::ledger::snapshot::{
    ActorRow, JobRow, LeaseRow, ObjectRow, Snapshot, TaskRow, TaskStage, WorkerRow,
};
use bireme_runtime::core::names;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::{driver, error, gil};

/// The tables of the node of this process.
#[pyfunction]
fn state(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let runtime = driver::runtime(py)?;
    let snapshot = gil::detach(py, || runtime.state()).map_err(|error| error::raise(py, error))?;
    portray(py, &snapshot, runtime.node_id())
}

fn portray<'py>(py: Python<'py>, snapshot: &Snapshot, node: NodeId) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("node_id", node.hex())?;
    let resources = PyDict::new(py);
    resources.set_item("total", driver::amounts(&snapshot.resources.total))?;
    resources.set_item("free", driver::amounts(&snapshot.resources.free))?;
    resources.set_item("queued", snapshot.resources.queued)?;
    fields.set_item("resources", resources)?;
    fields.set_item("tasks", rows(py, &snapshot.tasks, |py, row| task(py, row, snapshot))?)?;
    fields.set_item("tasks_left_off", snapshot.tasks_left_off)?;
    fields.set_item("objects", rows(py, &snapshot.objects, object)?)?;
    fields.set_item("objects_left_off", snapshot.objects_left_off)?;
    fields.set_item("actors", rows(py, &snapshot.actors, |py, row| actor(py, row, snapshot))?)?;
    fields.set_item("workers", rows(py, &snapshot.workers, worker)?)?;
    fields.set_item("leases", rows(py, &snapshot.leases, lease)?)?;
    fields.set_item("jobs", rows(py, &snapshot.jobs, job)?)?;
    let (counted, counts) = (&snapshot.counts, PyDict::new(py));
    counts.set_item("submitted", counted.submitted)?;
    counts.set_item("finished", counted.finished)?;
    counts.set_item("failed", counted.failed)?;
    counts.set_item("settled", counted.settled)?;
    counts.set_item("puts", counted.puts)?;
    fields.set_item("counts", counts)?;
    Ok(fields)
}

fn rows<'py, R>(
    py: Python<'py>,
    rows: &[R],
    portray: impl Fn(Python<'py>, &R) -> PyResult<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, rows.iter().map(|row| portray(py, row)).collect::<PyResult<Vec<_>>>()?)
}

fn task<'py>(py: Python<'py>, row: &TaskRow, snapshot: &Snapshot) -> PyResult<Bound<'py, PyDict>> {
    let state = match row.stage {
        TaskStage::Submitted => "submitted",
        TaskStage::Running => "running",
        TaskStage::Lost => "lost",
        TaskStage::Finished => "finished",
        TaskStage::Failed => "failed",
    };
    let fields = PyDict::new(py);
    fields.set_item("task_id", task_id(row.task))?;
    fields.set_item("name", &row.name)?;
    fields.set_item("parent_task_id", row.parent.map(task_id))?;
    fields.set_item("owner_id", row.owner.map(driver::process_text))?;
    fields.set_item("state", state)?;
    fields.set_item("worker_id", row.worker.map(driver::process_text))?;
    fields.set_item("node_id", row.worker.map(|worker| worker.node.hex()))?;
    fields.set_item("attempt", row.attempt)?;
    fields.set_item("age_s", seconds(snapshot.at.since_us(row.since)))?;
    fields.set_item("run_s", row.run_us.map(seconds))?;
    Ok(fields)
}

fn object<'py>(py: Python<'py>, row: &ObjectRow) -> PyResult<Bound<'py, PyDict>> {
    let state = match (row.failed, row.len) {
        (true, _) => "failed",
        (false, Some(_)) => "ready",
        (false, None) => "awaited",
    };
    let fields = PyDict::new(py);
    fields.set_item("object_id", object_id(row.object))?;
    fields.set_item("task_id", task_id(row.object.task()))?;
    fields.set_item("owner_id", driver::process_text(row.owner))?;
    fields.set_item("node_id", row.owner.node.hex())?;
    fields.set_item("state", state)?;
    fields.set_item("size_bytes", row.len)?;
    fields.set_item("stored", row.stored)?;
    fields.set_item("claims", row.claims)?;
    Ok(fields)
}

fn actor<'py>(py: Python<'py>, row: &ActorRow, snapshot: &Snapshot) -> PyResult<Bound<'py, PyDict>> {
    let (state, reason) = match row.state.split_once(": ") {
        Some((state, reason)) => (state, Some(reason)),
        None => (row.state.as_str(), None),
    };
    let (namespace, name) = row.name.as_deref().map(names::split).unzip();
    let host = snapshot.workers.iter().find(|worker| Some(worker.process) == row.process);
    let fields = PyDict::new(py);
    fields.set_item("actor_id", row.actor.hex())?;
    fields.set_item("class_name", row.class.strip_suffix(".__init__").unwrap_or(&row.class))?;
    fields.set_item("name", name)?;
    fields.set_item("namespace", namespace.flatten())?;
    fields.set_item("owner_id", driver::process_text(row.owner))?;
    fields.set_item("state", state)?;
    fields.set_item("reason", reason)?;
    fields.set_item("worker_id", row.process.map(driver::process_text))?;
    fields.set_item("node_id", row.process.map(|process| process.node.hex()))?;
    fields.set_item("pid", host.map(|worker| worker.pid))?;
    fields.set_item("restarts", row.incarnation)?;
    Ok(fields)
}

fn worker<'py>(py: Python<'py>, row: &WorkerRow) -> PyResult<Bound<'py, PyDict>> {
    // "hosting" has the actor behind it, which the actor's own row has too.
    let state = row.state.split_once(' ').map_or(row.state.as_str(), |(state, _)| state);
    let fields = PyDict::new(py);
    fields.set_item("worker_id", driver::process_text(row.process))?;
    fields.set_item("node_id", row.process.node.hex())?;
    fields.set_item("job_id", job_id(row.job))?;
    fields.set_item("pid", row.pid)?;
    fields.set_item("state", state)?;
    fields.set_item("leases", row.leases)?;
    fields.set_item("blocked", row.blocked)?;
    fields.set_item("owned", row.owned)?;
    Ok(fields)
}

fn lease<'py>(py: Python<'py>, row: &LeaseRow) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("lease_id", row.lease.to_string())?;
    fields.set_item("owner_id", driver::process_text(row.owner))?;
    fields.set_item("worker_id", driver::process_text(row.worker))?;
    fields.set_item("resources", driver::asked(&row.resources))?;
    fields.set_item("blocked", row.blocked)?;
    fields.set_item("idle", row.idle)?;
    Ok(fields)
}

fn job<'py>(py: Python<'py>, row: &JobRow) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("job_id", job_id(row.job))?;
    fields.set_item("driver_id", row.driver.map(driver::process_text))?;
    fields.set_item("pid", Some(row.pid).filter(|pid| *pid > 0))?;
    fields.set_item("over", row.over)?;
    fields.set_item("workers", row.workers)?;
    Ok(fields)
}

fn task_id(task: TaskId) -> String {
    format!("{:032x}", task.raw())
}

fn object_id(object: ObjectId) -> String {
    format!("{:032x}{:016x}", object.task().raw(), object.index())
}

fn job_id(job: JobId) -> String {
    format!("{:016x}", job.0)
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(state, module)?)
}
