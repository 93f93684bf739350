//! Python objects as the bytes of an object, and back.
//!
//! ```text
//! 'B'...   an array or tensor, in the store's own format (`store::array`): read by Rust and Python alike
//! 2 ...    raw bytes, with the header of the Rust front end: read by both
//! 3 form   a Python value:
//!          0 None · 1 True · 2 False · 3 i64 · 4 f64 · 5 text · 6 pickle
//!          7 pickle with buffers: two bytes of zero, u32 number of buffers, u64 length of the pickle, then (u64 offset,
//!            u64 length) per buffer, the pickle, and the buffers, each at a multiple of 64 bytes
//! ```
//!
//! Numbers are little-endian. Small values without structure never meet pickle; arrays and the buffers of pickles are
//! copied once, straight into shared memory, and read in place.

use bireme_runtime::array::{ALIGN_BYTES, ArrayHeader, ByteOrder, Dtype, Library};
use bireme_runtime::core::value::INLINE_BYTES_MAX;
use bireme_runtime::{Encoded, Fetched, Part, Ref};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyList, PyMemoryView, PySlice, PyString, PyTuple, PyType,
};

use crate::hooks;
use crate::reference::collecting;
use crate::view::View;

const TAG_POSTCARD: u8 = 1;
const TAG_BYTES: u8 = 2;
const TAG_PYTHON: u8 = 3;
const TAG_ARRAY: u8 = b'B';

const FORM_NONE: u8 = 0;
const FORM_TRUE: u8 = 1;
const FORM_FALSE: u8 = 2;
const FORM_INT: u8 = 3;
const FORM_FLOAT: u8 = 4;
const FORM_TEXT: u8 = 5;
const FORM_PICKLE: u8 = 6;
const FORM_BUFFERS: u8 = 7;

/// The header of raw bytes: tag, three zeros, start of the payload (u32), fingerprint (u64, zero: of no Rust type).
const BYTES_HEADER: usize = 16;

/// A value as bytes, and the references inside it, which must live until the bytes have been handed over.
#[derive(Default)]
pub struct Packed {
    pub encoded: Encoded,
    pub keep: Vec<Ref>,
}

/// Memory of a Python object, borrowed until the value is stored.
struct Lent(PyUntypedBuffer);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the buffer was checked to be contiguous and is exported until it is released, so the range is valid. Whoever
        // writes to it meanwhile gets a value that is a mix of old and new, as with every other copy in Python.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), self.0.len_bytes()) }
    }
}

/// Encodes a value.
pub fn encode(value: &Bound<'_, PyAny>) -> PyResult<Packed> {
    if let Some(head) = encode_plain(value)? {
        return Ok(Packed { encoded: Encoded { head, ..Encoded::default() }, keep: Vec::new() });
    }
    if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        return encode_bytes(bytes);
    }
    if is_array(value)?
        && let Some(encoded) = encode_array(value)?
    {
        return Ok(Packed { encoded, keep: Vec::new() });
    }
    if is_tensor(value)?
        && let Some(encoded) = encode_tensor(value)?
    {
        return Ok(Packed { encoded, keep: Vec::new() });
    }
    encode_pickle(value)
}

/// Encodes what every language reads, an array or bytes; nothing for other values.
pub fn encode_shared(value: &Bound<'_, PyAny>) -> PyResult<Option<Encoded>> {
    if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        return Ok(Some(encode_bytes(bytes)?.encoded));
    }
    match (is_array(value)?, is_tensor(value)?) {
        (true, _) => encode_array(value),
        (_, true) => encode_tensor(value),
        _ => Ok(None),
    }
}

/// Values without structure.
fn encode_plain(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if value.is_none() {
        return Ok(Some(vec![TAG_PYTHON, FORM_NONE]));
    }
    if let Ok(flag) = value.cast_exact::<PyBool>() {
        return Ok(Some(vec![TAG_PYTHON, if flag.is_true() { FORM_TRUE } else { FORM_FALSE }]));
    }
    let with = |form: u8, bytes: &[u8]| {
        let mut head = Vec::with_capacity(2 + bytes.len());
        head.extend([TAG_PYTHON, form]);
        head.extend_from_slice(bytes);
        Some(head)
    };
    if value.is_exact_instance_of::<PyInt>() {
        // Larger numbers are pickled.
        return Ok(value.extract::<i64>().ok().and_then(|number| with(FORM_INT, &number.to_le_bytes())));
    }
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Ok(with(FORM_FLOAT, &number.value().to_le_bytes()));
    }
    if let Ok(text) = value.cast_exact::<PyString>() {
        // Lone surrogates are pickled.
        return Ok(text.to_str().ok().and_then(|text| with(FORM_TEXT, text.as_bytes())));
    }
    Ok(None)
}

fn encode_bytes(bytes: &Bound<'_, PyBytes>) -> PyResult<Packed> {
    let contents = bytes.as_bytes();
    let large = contents.len() >= INLINE_BYTES_MAX;
    let start = if large { ALIGN_BYTES } else { BYTES_HEADER };
    let mut head = Vec::with_capacity(start + if large { 0 } else { contents.len() });
    head.extend([TAG_BYTES, 0, 0, 0]);
    head.extend((start as u32).to_le_bytes());
    head.resize(start, 0);
    let mut encoded = Encoded { head, ..Encoded::default() };
    if large {
        encoded.body = Some(lend(bytes.as_any())?);
    } else {
        encoded.head.extend_from_slice(contents);
    }
    Ok(Packed { encoded, keep: Vec::new() })
}

/// Memory of a Python object, borrowed until it was copied.
pub fn lend(object: &Bound<'_, PyAny>) -> PyResult<Part> {
    let buffer = PyUntypedBuffer::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("a buffer is not contiguous"));
    }
    Ok(Box::new(Lent(buffer)))
}

/// Whether this is exactly a numpy array; numpy is not imported for it.
fn is_array(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    is_exactly(value, &NDARRAY, "numpy", "ndarray")
}

/// Whether this is exactly a tensor of torch, which is not imported for it either.
fn is_tensor(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static TENSOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    is_exactly(value, &TENSOR, "torch", "Tensor")
}

fn is_exactly(value: &Bound<'_, PyAny>, known: &PyOnceLock<Py<PyType>>, module: &str, name: &str) -> PyResult<bool> {
    let py = value.py();
    let class = value.get_type();
    if let Some(known) = known.get(py) {
        return Ok(class.is(known));
    }
    if class.name()? != name || class.module()? != module {
        return Ok(false);
    }
    known.get_or_init(py, || class.unbind());
    Ok(true)
}

/// A tensor of numbers in this process's memory, in the format of arrays; nothing for other tensors.
fn encode_tensor(value: &Bound<'_, PyAny>) -> PyResult<Option<Encoded>> {
    type Parts<'py> = (Bound<'py, PyAny>, u8, Vec<u64>);
    let Some((buffer, dtype, shape)) =
        hooks::TENSOR_ARRAY.get(value.py())?.call1((value,))?.extract::<Option<Parts<'_>>>()?
    else {
        return Ok(None);
    };
    let Some(dtype) = Dtype::from_number(dtype) else { return Ok(None) };
    let Ok(header) = ArrayHeader::new(dtype, &shape) else { return Ok(None) };
    let Ok(head) = ArrayHeader { library: Library::Torch, ..header }.encode() else { return Ok(None) };
    Ok(Some(Encoded { head, body: Some(lend(&buffer)?), ..Encoded::default() }))
}

/// A contiguous array of numbers, in the format that Rust reads; nothing for other arrays.
fn encode_array(value: &Bound<'_, PyAny>) -> PyResult<Option<Encoded>> {
    let (buffer, shape) = match PyUntypedBuffer::get(value) {
        Ok(buffer) => {
            let shape: Vec<u64> = buffer.shape().iter().map(|n| *n as u64).collect();
            (buffer, shape)
        }
        // A buffer without dimensions has no list of them, and is refused for that.
        Err(_) if value.getattr("ndim")?.extract::<usize>()? == 0 => {
            let Ok(buffer) = PyUntypedBuffer::get(&value.call_method1("reshape", (1,))?) else { return Ok(None) };
            (buffer, Vec::new())
        }
        Err(_) => return Ok(None),
    };
    let Some(dtype) = element_type(buffer.format().to_bytes(), buffer.item_size()) else { return Ok(None) };
    if !buffer.is_c_contiguous() {
        return Ok(None);
    }
    let Ok(header) = ArrayHeader::new(dtype, &shape) else { return Ok(None) };
    let Ok(head) = header.encode() else { return Ok(None) };
    Ok(Some(Encoded { head, body: Some(Box::new(Lent(buffer))), ..Encoded::default() }))
}

/// The element type behind a format of the buffer protocol, in this machine's byte order.
fn element_type(format: &[u8], size: usize) -> Option<Dtype> {
    let code = match format {
        [code] | [b'@' | b'=', code] => *code,
        [b'<', code] if cfg!(target_endian = "little") => *code,
        _ => return None,
    };
    let dtype = match (code, size) {
        (b'B', 1) => Dtype::U8,
        (b'b', 1) => Dtype::I8,
        (b'?', 1) => Dtype::Bool,
        (b'H', 2) => Dtype::U16,
        (b'h', 2) => Dtype::I16,
        (b'e', 2) => Dtype::F16,
        (b'I' | b'L', 4) => Dtype::U32,
        (b'i' | b'l', 4) => Dtype::I32,
        (b'f', 4) => Dtype::F32,
        (b'L' | b'Q', 8) => Dtype::U64,
        (b'l' | b'q', 8) => Dtype::I64,
        (b'd', 8) => Dtype::F64,
        _ => return None,
    };
    Some(dtype)
}

/// The name of an element type in numpy.
fn element_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::U8 => "u1",
        Dtype::U16 => "u2",
        Dtype::U32 => "u4",
        Dtype::U64 => "u8",
        Dtype::I8 => "i1",
        Dtype::I16 => "i2",
        Dtype::I32 => "i4",
        Dtype::I64 => "i8",
        Dtype::F16 => "f2",
        Dtype::Bf16 => "bfloat16",
        Dtype::F32 => "f4",
        Dtype::F64 => "f8",
        Dtype::Bool => "?",
    }
}

fn encode_pickle(value: &Bound<'_, PyAny>) -> PyResult<Packed> {
    let py = value.py();
    let (dumped, keep) = collecting(|| hooks::DUMPS.get(py)?.call1((value,)))?;
    let dumped = dumped.cast_into::<PyTuple>()?;
    let pickle = dumped.get_item(0)?.cast_into::<PyBytes>()?;
    let buffers = dumped.get_item(1)?;
    let nested = keep.iter().map(Ref::spec).collect();
    let contents = pickle.as_bytes();
    let mut encoded = Encoded { nested, ..Encoded::default() };
    if buffers.is_none() {
        encoded.head.reserve(2 + contents.len());
        encoded.head.extend([TAG_PYTHON, FORM_PICKLE]);
        encoded.head.extend_from_slice(contents);
        return Ok(Packed { encoded, keep });
    }
    let buffers = buffers.cast_into::<PyList>()?;
    let parts = buffers.iter().map(|buffer| lend(&buffer)).collect::<PyResult<Vec<_>>>()?;
    let head = &mut encoded.head;
    head.extend([TAG_PYTHON, FORM_BUFFERS, 0, 0]);
    head.extend((parts.len() as u32).to_le_bytes());
    head.extend((contents.len() as u64).to_le_bytes());
    let mut at = (16 + 16 * parts.len() + contents.len()).next_multiple_of(ALIGN_BYTES);
    let end_of_head = at;
    for part in &parts {
        let len = (**part).as_ref().len();
        head.extend((at as u64).to_le_bytes());
        head.extend((len as u64).to_le_bytes());
        at = (at + len).next_multiple_of(ALIGN_BYTES);
    }
    head.extend_from_slice(contents);
    head.resize(end_of_head, 0);
    for part in parts {
        let len = (*part).as_ref().len();
        let padding = len.next_multiple_of(ALIGN_BYTES) - len;
        encoded.tail.push(part);
        encoded.tail.push(Box::new(&[0; ALIGN_BYTES][..padding]));
    }
    Ok(Packed { encoded, keep })
}

/// Where a value's bytes are while it is decoded: shared and read-only, or a private copy that may be changed.
struct Source<'a, 'py> {
    py: Python<'py>,
    bytes: &'a Fetched,
    private: Option<Bound<'py, PyByteArray>>,
}

impl<'py> Source<'_, 'py> {
    /// A part of the bytes as a Python buffer.
    fn part(&self, start: usize, len: usize) -> PyResult<Bound<'py, PyAny>> {
        let end = start.checked_add(len).filter(|end| *end <= self.bytes.len()).ok_or_else(damaged)?;
        match &self.private {
            None => Ok(View::new(self.bytes.clone(), start, len).into_pyobject(self.py)?.into_any()),
            Some(copy) => PyMemoryView::from(copy)?.get_item(PySlice::new(self.py, start as isize, end as isize, 1)),
        }
    }

    fn number(&self, at: usize) -> PyResult<usize> {
        let eight = self.bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).ok_or_else(damaged)?;
        usize::try_from(u64::from_le_bytes(eight)).map_err(|_| damaged())
    }
}

/// Decodes a value; `copy` makes arrays and buffers private, so that they can be changed.
pub fn decode<'py>(py: Python<'py>, bytes: &Fetched, copy: bool) -> PyResult<Bound<'py, PyAny>> {
    let source = || Source { py, bytes, private: copy.then(|| PyByteArray::new(py, bytes)) };
    match bytes.first() {
        Some(&TAG_PYTHON) if bytes.get(1) == Some(&FORM_BUFFERS) => decode_buffers(&source()),
        Some(&TAG_PYTHON) => decode_python(py, bytes),
        Some(&TAG_ARRAY) => decode_array(&source()),
        Some(&TAG_BYTES) => {
            let start = bytes.get(4..8).and_then(|start| start.try_into().ok()).map_or(0, u32::from_le_bytes);
            let payload = bytes.get(start as usize..).ok_or_else(damaged)?;
            Ok(PyBytes::new(py, payload).into_any())
        }
        Some(&TAG_POSTCARD) => Err(PyValueError::new_err(
            "the object is a value of the Rust front end; arrays and bytes are what both languages read",
        )),
        _ => Err(damaged()),
    }
}

fn damaged() -> PyErr {
    PyValueError::new_err("the object's bytes are damaged, or were made by a later version")
}

fn decode_python<'py>(py: Python<'py>, bytes: &Fetched) -> PyResult<Bound<'py, PyAny>> {
    let form = *bytes.get(1).ok_or_else(damaged)?;
    let rest = &bytes[2..];
    let eight = || -> PyResult<[u8; 8]> { rest.try_into().map_err(|_| damaged()) };
    Ok(match form {
        FORM_NONE => py.None().into_bound(py),
        FORM_TRUE | FORM_FALSE => PyBool::new(py, form == FORM_TRUE).to_owned().into_any(),
        FORM_INT => i64::from_le_bytes(eight()?).into_pyobject(py)?.into_any(),
        FORM_FLOAT => PyFloat::new(py, f64::from_le_bytes(eight()?)).into_any(),
        FORM_TEXT => PyString::from_bytes(py, rest)?.into_any(),
        FORM_PICKLE if rest.len() <= INLINE_BYTES_MAX => {
            hooks::LOADS.get(py)?.call1((PyBytes::new(py, rest), py.None()))?
        }
        FORM_PICKLE => {
            let pickle = View::new(bytes.clone(), 2, rest.len());
            hooks::LOADS.get(py)?.call1((pickle, py.None()))?
        }
        _ => return Err(damaged()),
    })
}

fn decode_buffers<'py>(source: &Source<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let (py, bytes) = (source.py, source.bytes);
    let count = bytes.get(4..8).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes).ok_or_else(damaged)?;
    let buffers = PyList::empty(py);
    for index in 0..count as usize {
        let at = 16 + 16 * index;
        buffers.append(source.part(source.number(at)?, source.number(at + 8)?)?)?;
    }
    let pickle = source.part(16 + 16 * count as usize, source.number(8)?)?;
    hooks::LOADS.get(py)?.call1((pickle, buffers))
}

fn decode_array<'py>(source: &Source<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = source.py;
    let (header, elements) =
        ArrayHeader::decode(source.bytes).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let order = match header.byte_order {
        ByteOrder::Little => "<",
        ByteOrder::Big => ">",
    };
    let name = match header.dtype {
        Dtype::Bf16 => element_name(header.dtype).to_owned(),
        dtype => format!("{order}{}", element_name(dtype)),
    };
    let view = source.part(header.payload_offset(), elements.len())?;
    let shape = PyTuple::new(py, header.shape)?;
    let make = match header.library {
        Library::Plain => &hooks::MAKE_ARRAY,
        Library::Torch => &hooks::MAKE_TENSOR,
    };
    make.get(py)?.call1((view, name, shape))
}
