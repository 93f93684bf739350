//! Reduces of objects.

use bireme_runtime::core::flow::Op;
use bireme_runtime::core::reduce::{Choice, Options, Order, Shape};
use bireme_runtime::{NewReduce, Ref};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::reference::ObjectRef;
use crate::{driver, error, gil};

/// The operation that a user wrote.
fn op(name: &str) -> PyResult<Op> {
    match name {
        "sum" => Ok(Op::Sum),
        "mean" => Ok(Op::Mean),
        "product" => Ok(Op::Product),
        "min" => Ok(Op::Min),
        "max" => Ok(Op::Max),
        _ => Err(PyValueError::new_err(format!("there is no reduce operation {name:?}"))),
    }
}

/// The plan that a user wrote: a name, and the degree of a tree.
fn choice(name: &str, degree: u32) -> PyResult<Choice> {
    match name {
        "model" => Ok(Choice::Model),
        "paper" => Ok(Choice::Paper),
        "chain" => Ok(Choice::Forced(Shape::Chain)),
        "two_level" => Ok(Choice::Forced(Shape::TwoLevel)),
        "tree" => Ok(Choice::Forced(Shape::Tree(degree))),
        "star" => Ok(Choice::Forced(Shape::Star)),
        _ => Err(PyValueError::new_err(format!("there is no reduce plan {name:?}"))),
    }
}

/// Reduces objects to one.
#[pyfunction]
fn reduce(
    py: Python<'_>,
    references: Vec<Bound<'_, ObjectRef>>,
    operation: &str,
    count: Option<usize>,
    fixed: bool,
    plan: (&str, u32),
) -> PyResult<ObjectRef> {
    let inputs: Vec<Ref> = references.iter().map(|reference| reference.get().handle.clone()).collect();
    let order = if fixed { Order::Fixed } else { Order::Arrival };
    let options = Options { order, choice: choice(plan.0, plan.1)? };
    let wanted = NewReduce { inputs, op: op(operation)?, count, options };
    let runtime = driver::runtime(py)?;
    let reduced = gil::detach(py, || runtime.reduce(wanted)).map_err(|error| error::raise(py, error))?;
    Ok(ObjectRef::new(reduced))
}

/// Which inputs the result of a reduce is made of.
#[pyfunction]
fn used_inputs(py: Python<'_>, reference: &Bound<'_, ObjectRef>, timeout: Option<f64>) -> PyResult<Vec<u32>> {
    let runtime = driver::running(py)?;
    let handle = &reference.get().handle;
    let used = crate::verbs::blocking(py, || runtime.used_inputs(handle, crate::verbs::patience(timeout)));
    used.map_err(|error| error::raise(py, error))
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(reduce, module)?)?;
    module.add_function(wrap_pyfunction!(used_inputs, module)?)
}
