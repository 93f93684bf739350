//! The arguments of a task, constructor or call as bytes, and back.
//!
//! ```text
//! u8 length of the method's name, the name; u16 number of positional arguments; u16 number of named ones;
//! then each argument, named ones after u16 length and the name:
//!   0               the next resolved dependency: a reference at top level, or a value too large to travel inside
//!   1 u32 length    the value's bytes (`value`)
//! ```
//!
//! Each argument is a value of its own, as in Ray. A call without arguments has no bytes after the name.

use bireme_runtime::core::value::{INLINE_BYTES_MAX, RefSpec};
use bireme_runtime::{Fetched, Ref, Runtime};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::reference::ObjectRef;
use crate::value::{self, Packed};
use crate::{error, gil};

const RESOLVED: u8 = 0;
const INLINE: u8 = 1;
/// Arguments of one kind that a call may have.
pub const ARGUMENTS_MAX: usize = u16::MAX as usize;

/// Arguments on their way to a worker.
#[derive(Default)]
pub struct Arguments {
    pub payload: Vec<u8>,
    pub dependencies: Vec<Ref>,
    pub nested: Vec<RefSpec>,
    pub keep: Vec<Ref>,
}

/// Encodes the arguments of a call to `method` (empty for functions and constructors).
pub fn encode(
    runtime: &Runtime,
    method: &str,
    positional: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<Arguments> {
    let mut arguments = Arguments::default();
    let name_len = u8::try_from(method.len()).map_err(|_| PyValueError::new_err("the method's name is too long"))?;
    arguments.payload.push(name_len);
    arguments.payload.extend_from_slice(method.as_bytes());
    let named_len = named.map_or(0, |named| named.len());
    if positional.is_empty() && named_len == 0 {
        return Ok(arguments);
    }
    if positional.len() > ARGUMENTS_MAX || named_len > ARGUMENTS_MAX {
        return Err(PyTypeError::new_err(format!("a call may have {ARGUMENTS_MAX} arguments; pass a list instead")));
    }
    arguments.payload.extend((positional.len() as u16).to_le_bytes());
    arguments.payload.extend((named_len as u16).to_le_bytes());
    for value in positional.iter() {
        arguments.push(runtime, &value)?;
    }
    for (name, value) in named.into_iter().flat_map(|named| named.iter()) {
        let name = name.cast_into::<PyString>()?;
        let name = name.to_str()?;
        let len = u16::try_from(name.len()).map_err(|_| PyValueError::new_err("the argument's name is too long"))?;
        arguments.payload.extend(len.to_le_bytes());
        arguments.payload.extend_from_slice(name.as_bytes());
        arguments.push(runtime, &value)?;
    }
    Ok(arguments)
}

impl Arguments {
    fn push(&mut self, runtime: &Runtime, argument: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(reference) = argument.cast_exact::<ObjectRef>() {
            self.payload.push(RESOLVED);
            self.dependencies.push(reference.get().handle.clone());
            return Ok(());
        }
        let Packed { encoded, keep } = value::encode(argument)?;
        if self.payload.len() + encoded.len() >= INLINE_BYTES_MAX {
            let py = argument.py();
            let put = gil::detach(py, || runtime.put(encoded)).map_err(|error| error::raise(py, error))?;
            drop(keep);
            self.payload.push(RESOLVED);
            self.dependencies.push(put);
            return Ok(());
        }
        self.payload.push(INLINE);
        self.payload.extend((encoded.len() as u32).to_le_bytes());
        encoded.parts().for_each(|part| self.payload.extend_from_slice(part));
        self.nested.extend(encoded.nested);
        self.keep.extend(keep);
        Ok(())
    }
}

/// The arguments of a call, decoded.
pub struct Decoded<'py> {
    pub positional: Bound<'py, PyTuple>,
    pub named: Option<Bound<'py, PyDict>>,
}

/// The name of the method, and the bytes after it.
pub fn split_method(payload: &[u8]) -> PyResult<(&str, &[u8])> {
    let (len, rest) = payload.split_first().ok_or_else(damaged)?;
    let (name, rest) = rest.split_at_checked(usize::from(*len)).ok_or_else(damaged)?;
    Ok((std::str::from_utf8(name).map_err(|_| damaged())?, rest))
}

/// Decodes arguments; `resolved` are the values of the dependencies, in order.
pub fn decode<'py>(py: Python<'py>, payload: &[u8], resolved: &[Fetched]) -> PyResult<Decoded<'py>> {
    if payload.is_empty() {
        return Ok(Decoded { positional: PyTuple::empty(py), named: None });
    }
    let mut reader = Reader { rest: payload, resolved: resolved.iter() };
    let (positional, named) = (reader.short()?, reader.short()?);
    let values = (0..positional).map(|_| reader.value(py)).collect::<PyResult<Vec<_>>>()?;
    let positional = PyTuple::new(py, values)?;
    if named == 0 {
        return Ok(Decoded { positional, named: None });
    }
    let names = PyDict::new(py);
    for _ in 0..named {
        let len = usize::from(reader.short()?);
        let name = PyString::from_bytes(py, reader.take(len)?)?;
        names.set_item(name, reader.value(py)?)?;
    }
    Ok(Decoded { positional, named: Some(names) })
}

struct Reader<'a> {
    rest: &'a [u8],
    resolved: std::slice::Iter<'a, Fetched>,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> PyResult<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(damaged)?;
        self.rest = rest;
        Ok(taken)
    }

    fn short(&mut self) -> PyResult<u16> {
        Ok(u16::from_le_bytes(self.take(2)?.try_into().map_err(|_| damaged())?))
    }

    fn value<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.take(1)? {
            [RESOLVED] => value::decode(py, self.resolved.next().ok_or_else(damaged)?, false),
            [INLINE] => {
                let len = u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| damaged())?);
                let bytes = self.take(len as usize)?.into();
                value::decode(py, &Fetched::Inline(bytes), false)
            }
            _ => Err(damaged()),
        }
    }
}

fn damaged() -> PyErr {
    PyValueError::new_err("the arguments of the task are damaged; do driver and workers use the same version?")
}
