//! Objects as users see them: zero-copy bytes and arrays, references inside objects, freeing.
#![allow(clippy::unwrap_used, missing_docs)]

use bireme::{Array, Bytes, Context, ObjectRef};
use ndarray::Axis;
use serde::{Deserialize, Serialize};

fn start() -> Context {
    bireme::init_with(bireme::Config::default().cpus(2.0).object_store_memory(256 << 20)).unwrap()
}

#[bireme::remote]
fn total(bytes: Bytes) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

#[bireme::remote]
fn fill(byte: u8, len: usize) -> Bytes {
    vec![byte; len].into()
}

#[test]
fn bytes_of_any_size_are_arguments_results_and_objects() {
    let _context = start();
    for len in [0, 1, 1_000, 65_535, 65_536, 4 << 20] {
        assert_eq!(total::remote(Bytes::from(vec![1; len])).get().unwrap(), len as u64);
        let filled = fill::remote(3, len);
        assert_eq!(total::remote(&filled).get().unwrap(), 3 * len as u64);
        assert_eq!(filled.get().unwrap(), Bytes::from(vec![3; len]));
        assert_eq!(bireme::put(vec![7_u8; len]).unwrap().get().unwrap(), vec![7; len]);
    }
}

#[test]
fn large_bytes_and_arrays_are_read_in_place() {
    let _context = start();
    let bytes = bireme::put(Bytes::from(vec![5; 1 << 20])).unwrap();
    let (first, second) = (bytes.get().unwrap(), bytes.get().unwrap());
    assert_eq!(first.as_ptr(), second.as_ptr(), "two reads of one object are two views of the same memory");
    let array = bireme::put(Array::from(vec![1.0_f64; 1 << 16])).unwrap();
    let (first, second) = (array.get().unwrap(), array.get().unwrap());
    assert_eq!(first.bytes().as_ptr(), second.bytes().as_ptr());
    assert_eq!(first.bytes().as_ptr() as usize % 64, 0);
}

#[test]
fn a_view_outlives_its_reference() {
    let _context = start();
    let reference = bireme::put(Bytes::from(vec![9; 1 << 20])).unwrap();
    let view = reference.get().unwrap();
    drop(reference);
    for round in 0..20 {
        drop(bireme::put(Bytes::from(vec![round; 1 << 20])).unwrap());
    }
    assert!(view.iter().all(|byte| *byte == 9));
}

#[bireme::remote]
fn row_sums(matrix: Array) -> bireme::Result<Array> {
    Ok(Array::from(matrix.view::<f32>()?.sum_axis(Axis(1))))
}

#[test]
fn arrays_keep_type_and_shape_and_are_ndarray_views() {
    let _context = start();
    for side in [2_usize, 300] {
        let matrix = ndarray::Array2::<f32>::from_shape_fn((side, side), |(i, _)| i as f32);
        let reference = bireme::put(Array::from(matrix)).unwrap();
        let sums = row_sums::remote(&reference).get().unwrap();
        assert_eq!(sums.shape(), [side]);
        assert_eq!(sums.view::<f32>().unwrap()[[1]], side as f32);
        let error = reference.get().unwrap().view::<f64>().unwrap_err().to_string();
        assert!(error.contains("F64") && error.contains("F32"), "{error}");
    }
}

#[derive(Serialize, Deserialize)]
struct Batch {
    label: String,
    pixels: Array,
    raw: Bytes,
    more: Option<ObjectRef<Batch>>,
}

#[bireme::remote]
fn length(batch: Batch) -> bireme::Result<usize> {
    let own = batch.pixels.as_slice::<u16>()?.len() + batch.raw.len() + batch.label.len();
    let more = batch.more.map(|next| length::remote(next).get()).transpose()?;
    Ok(own + more.unwrap_or(0))
}

#[test]
fn arrays_bytes_and_references_can_be_inside_other_values() {
    let _context = start();
    let batch = |more| Batch {
        label: "ab".to_owned(),
        pixels: Array::from(vec![1_u16, 2, 3]),
        raw: Bytes::from(vec![0; 100_000]),
        more,
    };
    let inner = bireme::put(batch(None)).unwrap();
    let outer = bireme::put(batch(Some(inner))).unwrap();
    assert_eq!(length::remote(outer).get().unwrap(), 2 * 100_005);
}

#[test]
fn a_reference_inside_an_object_keeps_its_object() {
    let _context = start();
    let inner = bireme::put("kept".to_owned()).unwrap();
    let outer = bireme::put(vec![inner.clone()]).unwrap();
    drop(inner);
    let again = outer.get().unwrap().remove(0);
    drop(outer);
    assert_eq!(again.get().unwrap(), "kept");
}

#[test]
fn dropping_the_last_reference_frees_the_object() {
    // 100 times 16 MiB pass through a store of 256 MiB only if each is freed.
    let _context = start();
    for round in 0..100_u8 {
        let object = bireme::put(Bytes::from(vec![round; 16 << 20])).unwrap();
        assert_eq!(object.get().unwrap()[5], round);
    }
}

// A reference is its id; what is mutable behind it does not count.
#[allow(clippy::mutable_key_type)]
#[test]
fn references_are_equal_when_their_objects_are() {
    let _context = start();
    let (a, b) = (bireme::put(1).unwrap(), bireme::put(1).unwrap());
    let set: std::collections::HashSet<_> = [a.clone(), a.clone(), b.clone()].into();
    assert_eq!(set.len(), 2);
    assert!(a != b && a == a.clone());
    assert!(format!("{a:?}").contains(&a.id().to_string()));
}
