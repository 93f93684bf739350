//! Nodes and placement groups, as the package asks for them. Ids are text, resources are dictionaries with Ray's names.

use std::collections::BTreeMap;

use bireme_runtime::core::id::{GroupId, NodeId};
use bireme_runtime::core::ledger::snapshot::{GroupRow, GroupStage, NodeRow};
use bireme_runtime::core::resources::{Amount, Resources};
use bireme_runtime::core::spec::{GroupStrategy, Strategy};
use bireme_runtime::{Error, NewGroup, Runtime};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::reference::ObjectRef;
use crate::value::{self, Packed};
use crate::{driver, error, gil};

/// Where a task or actor may run, as `task.wishes` says it: nothing when the user chose no place.
pub struct Place {
    pub strategy: Strategy,
    pub captures: bool,
    pub inherits: bool,
}

impl Place {
    /// Reads `None`, `("DEFAULT",)`, `("SPREAD",)`, `("NODE", id, soft)` or `("GROUP", id, bundle or -1, captures)`.
    pub fn read(given: Option<Bound<'_, PyAny>>) -> PyResult<Self> {
        let chosen = |strategy, captures| Self { strategy, captures, inherits: false };
        let Some(given) = given.filter(|given| !given.is_none()) else {
            return Ok(Self { strategy: Strategy::Default, captures: false, inherits: true });
        };
        let kind: String = given.get_item(0)?.extract()?;
        match kind.as_str() {
            "SPREAD" => Ok(chosen(Strategy::Spread, false)),
            "NODE" => {
                let (node, soft): (String, bool) = (given.get_item(1)?.extract()?, given.get_item(2)?.extract()?);
                let node = NodeId::from_hex(&node)
                    .ok_or_else(|| PyValueError::new_err(format!("{node:?} is not the id of a node")))?;
                Ok(chosen(Strategy::Node { node, soft }, false))
            }
            "GROUP" => {
                let (group, bundle): (String, i64) = (given.get_item(1)?.extract()?, given.get_item(2)?.extract()?);
                let (group, bundle) = (group_id(&group)?, u32::try_from(bundle).ok());
                Ok(chosen(Strategy::Group { group, bundle }, given.get_item(3)?.extract()?))
            }
            _ => Ok(chosen(Strategy::Default, false)),
        }
    }
}

fn group_id(text: &str) -> PyResult<GroupId> {
    GroupId::from_hex(text).ok_or_else(|| PyValueError::new_err(format!("{text:?} is not the id of a placement group")))
}

/// Resources under the names that Ray's users know, as the package has checked them.
fn resources(py: Python<'_>, named: BTreeMap<String, f64>) -> PyResult<Resources> {
    let mut resources = Resources::default();
    for (name, given) in named {
        let amount = || Amount::from_f64(&name, given).map_err(|bad| error::raise(py, Error::BadAmount(bad)));
        match name.as_str() {
            "CPU" => resources.cpus = amount()?,
            "GPU" => resources.gpus = amount()?,
            "memory" => resources.memory_bytes = given as u64,
            _ => drop(resources.custom.insert(name.clone(), amount()?)),
        }
    }
    Ok(resources)
}

/// Asks for a placement group; its id.
#[pyfunction]
fn create_group(
    py: Python<'_>,
    bundles: Vec<BTreeMap<String, f64>>,
    strategy: &str,
    name: Option<String>,
    detached: bool,
) -> PyResult<String> {
    let strategy = GroupStrategy::ALL.into_iter().find(|known| known.name() == strategy);
    let strategy = strategy.ok_or_else(|| PyValueError::new_err("the strategy is none that there is"))?;
    let bundles = bundles.into_iter().map(|bundle| resources(py, bundle)).collect::<PyResult<_>>()?;
    let runtime = driver::runtime(py)?;
    let wanted = NewGroup { name, strategy, bundles, detached };
    let group = gil::detach(py, || runtime.create_group(wanted)).map_err(|error| error::raise(py, error))?;
    Ok(group.hex())
}

/// An object that has this value when the group is placed.
#[pyfunction]
fn group_ready(py: Python<'_>, group: &str, value: &Bound<'_, PyAny>) -> PyResult<ObjectRef> {
    let (runtime, group) = (driver::running(py)?, group_id(group)?);
    let Packed { encoded, .. } = value::encode(value)?;
    let ready = gil::detach(py, || runtime.group_ready(group, encoded)).map_err(|error| error::raise(py, error))?;
    Ok(ObjectRef::new(ready))
}

/// Gives a placement group up.
#[pyfunction]
fn remove_group(py: Python<'_>, group: &str) -> PyResult<()> {
    let (runtime, group) = (driver::running(py)?, group_id(group)?);
    runtime.remove_group(group).map_err(|error| error::raise(py, error))
}

/// The placement group with a name.
#[pyfunction]
fn find_group<'py>(py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyDict>>> {
    let runtime = driver::runtime(py)?;
    let found = gil::detach(py, || runtime.find_group(name)).map_err(|error| error::raise(py, error))?;
    found.map(|row| describe_group(py, &row)).transpose()
}

/// All placement groups.
#[pyfunction]
fn groups(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let runtime = driver::runtime(py)?;
    let rows = gil::detach(py, || runtime.groups()).map_err(|error| error::raise(py, error))?;
    PyList::new(py, rows.iter().map(|row| describe_group(py, row)).collect::<PyResult<Vec<_>>>()?)
}

/// The placement group that the calling code runs in.
#[pyfunction]
fn current_group() -> Option<String> {
    Runtime::current().ok()?.current_group().map(GroupId::hex)
}

fn describe_group<'py>(py: Python<'py>, row: &GroupRow) -> PyResult<Bound<'py, PyDict>> {
    let (state, reason) = match &row.stage {
        GroupStage::Waiting(reason) => ("PENDING", Some(reason.as_str())),
        GroupStage::Placed => ("CREATED", None),
        GroupStage::Rescheduling(reason) => ("RESCHEDULING", Some(reason.as_str())),
        GroupStage::Failed(reason) => ("INFEASIBLE", Some(reason.as_str())),
        GroupStage::Removed => ("REMOVED", None),
    };
    let fields = PyDict::new(py);
    fields.set_item("id", row.group.hex())?;
    fields.set_item("name", row.name.as_deref())?;
    fields.set_item("strategy", row.strategy.name())?;
    fields.set_item("state", state)?;
    fields.set_item("reason", reason)?;
    let bundles: Vec<_> = row.bundles.iter().map(|(resources, _)| driver::asked(resources)).collect();
    fields.set_item("bundles", bundles)?;
    let nodes: Vec<_> = row.bundles.iter().map(|(_, node)| node.map(NodeId::hex)).collect();
    fields.set_item("nodes", nodes)?;
    Ok(fields)
}

/// The nodes of the cluster.
#[pyfunction]
fn nodes(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let runtime = driver::runtime(py)?;
    let rows = gil::detach(py, || runtime.nodes()).map_err(|error| error::raise(py, error))?;
    PyList::new(py, rows.iter().map(|row| describe_node(py, row)).collect::<PyResult<Vec<_>>>()?)
}

fn describe_node<'py>(py: Python<'py>, row: &NodeRow) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("id", row.node.hex())?;
    fields.set_item("address", &row.address)?;
    fields.set_item("hostname", &row.hostname)?;
    fields.set_item("role", &row.role)?;
    fields.set_item("alive", row.alive)?;
    fields.set_item("draining", row.draining)?;
    fields.set_item("reason", row.reason.as_deref())?;
    fields.set_item("total", driver::amounts(&row.total))?;
    fields.set_item("free", driver::amounts(&row.free))?;
    fields.set_item("labels", &row.labels)?;
    Ok(fields)
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(create_group, module)?)?;
    module.add_function(wrap_pyfunction!(group_ready, module)?)?;
    module.add_function(wrap_pyfunction!(remove_group, module)?)?;
    module.add_function(wrap_pyfunction!(find_group, module)?)?;
    module.add_function(wrap_pyfunction!(groups, module)?)?;
    module.add_function(wrap_pyfunction!(current_group, module)?)?;
    module.add_function(wrap_pyfunction!(nodes, module)?)
}
