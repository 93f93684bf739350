//! How fast numbers are combined, beside a copy of the same bytes: `cargo run --release -p bireme-arith --example rates`.

use std::hint::black_box;
use std::time::Instant;

use bireme_arith::{Number, Op, combine, combine3};

const ROUNDS: usize = 40;

/// Bytes of the result per second, the best of some rounds.
fn rate(bytes: usize, mut run: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    bytes as f64 / times.fold(f64::INFINITY, f64::min) / 1e9
}

fn main() {
    for (what, bytes) in [("in the cache (256 KiB)", 256 << 10), ("in memory (64 MiB)", 64 << 20)] {
        let (a, b, mut out) = (vec![1u8; bytes], vec![2u8; bytes], vec![0u8; bytes]);
        let copy = rate(bytes, || black_box(&mut out).copy_from_slice(black_box(&a)));
        println!("{what}: copy {copy:.1} GB/s");
        for number in Number::ALL {
            print!("  {number:8}");
            for op in [Op::Sum, Op::Product, Op::Min, Op::Max] {
                let two = rate(bytes, || {
                    combine(op, number, black_box(&mut out), black_box(&a)).expect("it fits");
                });
                let three = rate(bytes, || {
                    combine3(op, number, black_box(&mut out), black_box(&a), black_box(&b)).expect("it fits");
                });
                print!("  {op} {two:.1} / {three:.1}");
            }
            println!();
        }
    }
}
