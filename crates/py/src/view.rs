//! Bytes of an object as a Python buffer: read-only, and pinned as long as anything looks at them.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use bireme_runtime::Fetched;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A range of an object's bytes.
#[pyclass(frozen, module = "bireme._native")]
pub struct View {
    bytes: Fetched,
    start: usize,
    len: usize,
}

impl View {
    /// A view of a range, which the caller has checked to be inside.
    pub fn new(bytes: Fetched, start: usize, len: usize) -> Self {
        debug_assert!(start + len <= bytes.len());
        Self { bytes, start, len }
    }
}

#[pymethods]
impl View {
    fn __len__(&self) -> usize {
        self.len
    }

    /// # Safety
    /// Called by the interpreter with a valid buffer to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        const FORMAT: &CStr = c"B";
        if view.is_null() {
            return Err(PyBufferError::new_err("no buffer to fill"));
        }
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err(
                "objects are read-only, since other processes read the same memory; make a copy to change it \
                 (`bireme.get(ref, copy=True)`, or `array.copy()`)",
            ));
        }
        let this = slf.get();
        let bytes = &this.bytes[this.start..this.start + this.len];
        let data = bytes.as_ptr().cast_mut().cast::<c_void>();
        let len = this.len as ffi::Py_ssize_t;
        let owner = slf.into_any().into_ptr();
        // SAFETY: `view` is valid by contract; the object that owns the bytes is kept alive through `obj`, its bytes
        // never move or change, and shape and strides point into the view itself, as the protocol allows.
        unsafe {
            (*view).obj = owner;
            (*view).buf = data;
            (*view).len = len;
            (*view).readonly = 1;
            (*view).itemsize = 1;
            (*view).format = if flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT {
                FORMAT.as_ptr().cast_mut()
            } else {
                ptr::null_mut()
            };
            (*view).ndim = 1;
            (*view).shape = if flags & ffi::PyBUF_ND == ffi::PyBUF_ND { &raw mut (*view).len } else { ptr::null_mut() };
            (*view).strides = if flags & ffi::PyBUF_STRIDES == ffi::PyBUF_STRIDES {
                &raw mut (*view).itemsize
            } else {
                ptr::null_mut()
            };
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = ptr::null_mut();
        }
        Ok(())
    }
}
