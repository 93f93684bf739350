//! Remote functions of Rust that Python calls: those of an extension which carries both this crate and `#[bireme::remote]`
//! functions.
//!
//! Arguments and results are what both languages read: arrays and bytes. A call has the payload that the Rust front end
//! writes for arguments by reference, one byte per argument; a value is put first. A constructor or method of a Rust
//! actor is no function of its own and is not found here.

use std::sync::Arc;

use bireme_runtime::core::spec::{ARGUMENT_REFS_MAX, TaskOptions};
use bireme_runtime::{Encoded, Runtime, Target};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::argument::Arguments;
use crate::reference::ObjectRef;
use crate::submit::{self, Results, Wishes};
use crate::{driver, error, gil, value};

/// The tag of an argument by reference in the payload of the Rust front end.
const REFERENCE: u8 = 1;

/// A Rust function as Python's callers hold it.
#[pyclass(frozen, module = "bireme._native")]
pub struct RustFunction {
    function: &'static bireme_runtime::Function,
    options: Arc<TaskOptions>,
    returns: u32,
    inherits: bool,
}

#[pymethods]
impl RustFunction {
    #[new]
    fn new(path: &str, wishes: Wishes) -> PyResult<Self> {
        let mut functions = bireme_runtime::Function::all().filter(|function| function.path() == path);
        let function = functions.next();
        if let (Some(one), Some(two)) = (function, functions.next()) {
            let (one, two) = (one.place, two.place);
            let text = format!("there are two remote Rust functions {path}, at {one} and at {two}: rename one of them");
            return Err(PyValueError::new_err(text));
        }
        let function = function.ok_or_else(|| {
            let mut known: Vec<_> = bireme_runtime::Function::all().map(bireme_runtime::Function::path).collect();
            known.sort_unstable();
            let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
            let text = format!(
                "the loaded extension has no remote Rust function {path}; {known} (BIREME_NATIVE names the extension to load)"
            );
            PyValueError::new_err(text)
        })?;
        let (options, returns, inherits) = wishes.into_plain();
        Ok(Self { function, options: Arc::new(options), returns, inherits })
    }

    /// The types of arguments and results, in Rust's words.
    #[getter]
    fn signature(&self) -> &'static str {
        self.function.signature
    }

    /// Submits a task.
    #[pyo3(signature = (*args))]
    fn remote<'py>(&self, py: Python<'py>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let runtime = driver::runtime(py)?;
        if args.len() > ARGUMENT_REFS_MAX {
            return Err(PyTypeError::new_err(format!("a task takes at most {ARGUMENT_REFS_MAX} references")));
        }
        let mut arguments = Arguments::default();
        for argument in args.iter() {
            arguments.payload.push(REFERENCE);
            arguments.dependencies.push(match argument.cast_exact::<ObjectRef>() {
                Ok(reference) => reference.get().handle.clone(),
                Err(_) => put(&runtime, &argument)?,
            });
        }
        let options = Arc::clone(&self.options);
        let results = Results { returns: self.returns, stream: None };
        let target = (Target::Plain, self.inherits);
        let refs = submit::submit(py, &runtime, self.function.key(), options, results, target, arguments)?;
        submit::give(py, refs, results)
    }
}

/// Makes an object of an array or of bytes.
fn put(runtime: &Runtime, argument: &Bound<'_, PyAny>) -> PyResult<bireme_runtime::Ref> {
    let py = argument.py();
    let encoded: Option<Encoded> = value::encode_shared(argument)?;
    let encoded = encoded.ok_or_else(|| {
        let kind = argument.get_type().name().map_or_else(|_| "value".to_owned(), |kind| kind.to_string());
        PyTypeError::new_err(format!(
            "a Rust function takes contiguous arrays of numbers and bytes, or references to them, not a {kind}"
        ))
    })?;
    gil::detach(py, || runtime.put(encoded)).map_err(|error| error::raise(py, error))
}
