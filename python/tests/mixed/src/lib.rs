//! Remote functions of Rust for a Python program: an extension that is `bireme._native` and carries these as well.
//!
//! `BIREME_NATIVE` names the built library; `python/tests/test_mixed.py` builds and loads it.

use bireme::{Array, Bytes};
use pyo3::prelude::*;

/// Each element of `array` times the first of `factor`.
#[bireme::remote]
fn scale(array: Array, factor: Array) -> bireme::Result<Array> {
    let factor = factor.view::<f64>()?.first().copied().unwrap_or(1.0);
    Ok(Array::from(array.view::<f64>()?.mapv(|element| element * factor)))
}

/// Whether the elements lie in the memory that processes share (0 or 1), and at which offset from a multiple of 64.
#[bireme::remote]
fn place(array: Array) -> bireme::Result<Array> {
    let address = array.bytes().as_ptr().addr();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let shared = maps.lines().filter(|line| line.contains(" rw-s ") || line.contains(" r--s ")).any(|line| {
        let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
        range.is_some_and(|(start, end)| (number(start)..number(end)).contains(&address))
    });
    Ok(Array::from(vec![u64::from(shared), (address % 64) as u64]))
}

/// The bytes as they came.
#[bireme::remote]
fn pass_bytes(bytes: Bytes) -> Bytes {
    bytes
}

/// The array as it came.
#[bireme::remote]
fn pass_array(array: Array) -> Array {
    array
}

/// The bytes in two halves.
#[bireme::remote(returns = 2)]
fn halve(bytes: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let (left, right) = bytes.split_at(bytes.len() / 2);
    (left.to_vec(), right.to_vec())
}

/// Panics.
#[bireme::remote(retries = 0)]
fn give_up(reason: Vec<u8>) -> Vec<u8> {
    panic!("{}", String::from_utf8_lossy(&reason))
}

/// What a Rust program hears that starts a runtime in this library: the interpreter, started again, would be no worker.
#[pyfunction]
fn start_from_rust(py: Python<'_>) -> String {
    py.detach(|| match bireme::init() {
        Ok(_) => "started".to_owned(),
        Err(error) => error.to_string(),
    })
}

#[pymodule(gil_used = true)]
fn bireme_mixed(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(start_from_rust, module)?)?;
    _native::fill(module)
}
