//! Objects: one array in shared memory, read by many tasks without a copy.

use bireme::Array;
use ndarray::s;

const ROWS: usize = 1_000;
const COLUMNS: usize = 500;

/// The sum of some rows, read where they lie.
#[bireme::remote]
fn sum_rows(matrix: Array, from: usize, to: usize) -> bireme::Result<f64> {
    let matrix = matrix.view::<f64>()?;
    Ok(matrix.slice(s![from..to, ..]).sum())
}

/// A large result: its elements go straight into shared memory.
#[bireme::remote]
fn doubled(matrix: Array) -> bireme::Result<Array> {
    Ok(Array::from(&matrix.view::<f64>()? * 2.0))
}

fn main() -> bireme::Result<()> {
    let _context = bireme::init()?;
    let matrix = ndarray::Array2::from_shape_fn((ROWS, COLUMNS), |(row, _)| row as f64);
    let expected = matrix.sum();
    let shared = bireme::put(Array::from(matrix))?;
    let parts: Vec<_> = (0..10).map(|part| sum_rows::remote(&shared, part * 100, (part + 1) * 100)).collect();
    let total: f64 = bireme::get_all(&parts)?.iter().sum();
    println!("ten tasks summed a {ROWS} x {COLUMNS} array in shared memory: {total}");
    assert_eq!(total, expected);
    let twice = doubled::remote(&shared).get()?;
    assert_eq!(twice.view::<f64>()?.sum(), 2.0 * expected);
    Ok(())
}
