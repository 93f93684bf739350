//! The one map from the runtime's errors to Python's exceptions, which are declared in `bireme.exceptions`.

use bireme_runtime::Error;
use bireme_runtime::core::collective::Trouble;
use bireme_runtime::core::failure::{Death, DeathCause, Failure, Raised};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::hooks;

/// The Python exception for an error. An error while it is made is raised instead.
pub fn raise(py: Python<'_>, error: Error) -> PyErr {
    let message = match &error {
        Error::NotRunning(why) => format!("the runtime is not running ({why}); call `bireme.init()` first"),
        _ => error.to_string(),
    };
    let made = match &error {
        Error::Failed(failure) => return raise_failure(py, failure),
        Error::Interrupted => return crate::interrupt::take_raised(),
        Error::Timeout { .. } => make(py, "GetTimeoutError", &message, &[]),
        Error::NotRunning(_) => make(py, "NotRunningError", &message, &[]),
        Error::NodeGone(_) => make(py, "LocalNodeDiedError", &message, &[]),
        Error::Refused(_) => make(py, "ConnectionError", &message, &[]),
        Error::Forked => make(py, "ForkedProcessError", &message, &[]),
        Error::AlreadyRunning | Error::OtherConfig(_) | Error::InWorker => make(py, "RuntimeError", &message, &[]),
        Error::BadAmount(_) | Error::BadArgument(_) => make(py, "ValueError", &message, &[]),
        Error::StoreFull(_) => make(py, "ObjectStoreFullError", &message, &[]),
        Error::PendingCallsLimit { .. } => make(py, "PendingCallsLimitExceeded", &message, &[]),
        Error::Codec { .. } | Error::TypeMismatch { .. } => make(py, "TypeError", &message, &[]),
        Error::Collective(trouble) => raise_trouble(py, trouble, &message),
        Error::NoSuchActor(_) | Error::NoSuchGroup(_) => make(py, "ValueError", &message, &[]),
        _ => make(py, "BiremeSystemError", &message, &[]),
    };
    made.unwrap_or_else(|broken| broken)
}

/// The Python exception for a call of a group without a result.
fn raise_trouble(py: Python<'_>, trouble: &Trouble, message: &str) -> PyResult<PyErr> {
    let (class, ranks) = match trouble {
        Trouble::Mismatch { ours, theirs, .. } => ("CollectiveMismatchError", vec![ours.0.rank, theirs.0.rank]),
        Trouble::Missing { missing, .. } => ("CollectiveTimeoutError", missing.iter().map(|seat| seat.rank).collect()),
        Trouble::Lost { member, .. } | Trouble::Left { member, .. } => ("CollectiveMemberLostError", vec![member.rank]),
        Trouble::NotMember(_) | Trouble::Misuse(_) => ("CollectiveUsageError", Vec::new()),
        Trouble::Transfer(_) => ("CollectiveError", Vec::new()),
    };
    let fields = PyDict::new(py);
    fields.set_item("ranks", ranks)?;
    make_from(py, class, message, &fields)
}

/// The Python exception for an object without a value.
pub fn raise_failure(py: Python<'_>, failure: &Failure) -> PyErr {
    map_failure(py, failure).unwrap_or_else(|broken| broken)
}

fn map_failure(py: Python<'_>, failure: &Failure) -> PyResult<PyErr> {
    let message = failure.to_string();
    let text = |text: &str| text.into_pyobject(py).map(|text| text.into_any().unbind());
    match failure {
        Failure::Raised(raised) => {
            let Raised { task, name, type_names, message, traceback, pid, exception } = &**raised;
            let fields = PyDict::new(py);
            fields.set_item("function_name", name)?;
            fields.set_item("task_id", format!("{:032x}", task.raw()))?;
            fields.set_item("traceback_text", traceback)?;
            fields.set_item("pid", pid)?;
            fields.set_item("type_name", type_names.first())?;
            fields.set_item("exception", PyBytes::new(py, exception))?;
            make_from(py, "TaskError", message, &fields)
        }
        Failure::Returned { name, task, .. } | Failure::Panicked { name, task, .. } => {
            let task = format!("{:032x}", task.raw());
            make(py, "TaskError", &message, &[("function_name", text(name)?), ("task_id", text(&task)?)])
        }
        Failure::WorkerDied { death, .. } => {
            let class = match death.cause {
                DeathCause::OutOfMemory | DeathCause::MemoryPressure { .. } => "OutOfMemoryError",
                DeathCause::NodeDied(_) => "NodeDiedError",
                _ => "WorkerCrashedError",
            };
            make_from(py, class, &message, &describe_death(py, death)?)
        }
        Failure::Cancelled { task } => {
            make(py, "TaskCancelledError", &message, &[("task_id", text(&format!("{:032x}", task.raw()))?)])
        }
        Failure::ActorDied { actor, reason } => {
            let actor = format!("{:032x}", actor.0.raw());
            make(py, "ActorDiedError", &message, &[("actor_id", text(&actor)?), ("reason", text(reason)?)])
        }
        Failure::OwnerDied { object, owner } => {
            let facts = [("object_id", text(&object.to_string())?), ("node_id", text(&owner.node.hex())?)];
            make(py, "OwnerDiedError", &message, &facts)
        }
        Failure::ObjectLost { object, reason } => {
            let facts = [("object_id", text(&object.to_string())?), ("reason", text(reason)?)];
            make(py, "ObjectLostError", &message, &facts)
        }
        Failure::GroupUnplaceable { group, reason } => {
            let facts = [("placement_group_id", text(&group.hex())?), ("reason", text(reason)?)];
            make(py, "PlacementGroupUnschedulableError", &message, &facts)
        }
        Failure::GroupRemoved { .. } => make(py, "TaskPlacementGroupRemoved", &message, &[]),
        Failure::Reduce { object, reason } => {
            let facts = [("object_id", text(&object.to_string())?), ("reason", text(reason)?)];
            make(py, "ReduceError", &message, &facts)
        }
        Failure::Infeasible { .. } => make(py, "TaskUnschedulableError", &message, &[]),
        Failure::UnknownFunction { .. } => make(py, "TaskError", &message, &[]),
        Failure::TypeMismatch { .. } | Failure::NotPassed { .. } => make(py, "TypeError", &message, &[]),
        Failure::StreamEnded { .. } => make(py, "StopIteration", &message, &[]),
        Failure::NameTaken { .. } => make(py, "ValueError", &message, &[]),
        Failure::StoreFull { .. } => make(py, "ObjectStoreFullError", &message, &[]),
        Failure::ShutDown => make(py, "NotRunningError", &message, &[]),
    }
}

fn describe_death<'py>(py: Python<'py>, death: &Death) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("pid", death.pid)?;
    fields.set_item("node_id", death.process.node.hex())?;
    fields.set_item("reason", death.cause.to_string())?;
    fields.set_item("stderr_tail", &death.stderr_tail)?;
    if death.memory_peak_bytes > 0 {
        fields.set_item("memory_used_bytes", death.memory_peak_bytes)?;
    }
    match death.cause {
        DeathCause::Exited(code) => fields.set_item("exit_code", code)?,
        DeathCause::Signalled(signal) => fields.set_item("signal", signal)?,
        DeathCause::MemoryPressure { used, limit, .. } => {
            fields.set_item("memory_used_bytes", used)?;
            fields.set_item("memory_limit_bytes", limit)?;
        }
        _ => {}
    }
    Ok(fields)
}

fn make(py: Python<'_>, class: &str, message: &str, fields: &[(&str, Py<PyAny>)]) -> PyResult<PyErr> {
    let named = PyDict::new(py);
    for (name, value) in fields {
        named.set_item(name, value)?;
    }
    make_from(py, class, message, &named)
}

fn make_from(py: Python<'_>, class: &str, message: &str, fields: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let made = hooks::MAKE_EXCEPTION.get(py)?.call1((class, message, fields))?;
    Ok(PyErr::from_value(made))
}
