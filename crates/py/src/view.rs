//! Bytes of an object as a Python buffer, pinned as long as anything looks at them: read-only, or private to who got them.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use bireme_runtime::{Fetched, PrivateView};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

/// A private view of fewer bytes is a copy: that takes less time than to map them.
const COPIED_BYTES_MAX: usize = 128 << 10;

/// A range of an object's bytes.
#[pyclass(frozen, module = "bireme._native")]
pub struct View {
    bytes: Fetched,
    start: usize,
    len: usize,
    /// Its own pages, when it may be written.
    private: Option<PrivateView>,
}

impl View {
    /// A view of a range, which the caller has checked to be inside.
    pub fn new(bytes: Fetched, start: usize, len: usize) -> Self {
        debug_assert!(start + len <= bytes.len());
        Self { bytes, start, len, private: None }
    }
}

#[pymethods]
impl View {
    fn __len__(&self) -> usize {
        self.len
    }

    /// The same bytes in a buffer that may be written, for libraries that cannot tell memory that is read-only. Nobody else
    /// sees what is written; a large buffer shares its memory with the object up to then, page by page.
    fn private<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = &self.bytes[self.start..self.start + self.len];
        if let Fetched::Pinned(pinned) = &self.bytes
            && self.len > COPIED_BYTES_MAX
            // Where the system has no room for another mapping, a copy does as well.
            && let Ok(private) = pinned.map_private(self.start as u64, self.len as u64)
        {
            let view = Self { bytes: self.bytes.clone(), start: self.start, len: self.len, private: Some(private) };
            return Ok(Bound::new(py, view)?.into_any());
        }
        Ok(PyByteArray::new(py, bytes).into_any())
    }

    /// # Safety
    /// Called by the interpreter with a valid buffer to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        const FORMAT: &CStr = c"B";
        if view.is_null() {
            return Err(PyBufferError::new_err("no buffer to fill"));
        }
        let this = slf.get();
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE && this.private.is_none() {
            return Err(PyBufferError::new_err(
                "objects are read-only, since other processes read the same memory; make a copy to change it \
                 (`bireme.get(ref, copy=True)`, or `array.copy()`)",
            ));
        }
        let (data, readonly) = match &this.private {
            Some(private) => (private.as_ptr(), 0),
            None => (this.bytes[this.start..this.start + this.len].as_ptr().cast_mut(), 1),
        };
        let len = this.len as ffi::Py_ssize_t;
        let owner = slf.into_any().into_ptr();
        // SAFETY: `view` is valid by contract; the object that owns the bytes is kept alive through `obj`, its bytes
        // never move and are changed by who holds a private view only, and shape and strides point into the view itself, as the protocol allows.
        unsafe {
            (*view).obj = owner;
            (*view).buf = data.cast::<c_void>();
            (*view).len = len;
            (*view).readonly = readonly;
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
