//! The loops for numbers that the processor knows.

use crate::Op;

/// Two loops, in place and not, over elements of one type. Each call of `run` makes loops of its own, in which the
/// operation is known.
macro_rules! loops {
    ($number:ty) => {
        use super::Op;

        const BYTES: usize = size_of::<$number>();

        fn run(into: &mut [u8], from: &[u8], op: impl Fn($number, $number) -> $number) {
            for (into, from) in into.as_chunks_mut::<BYTES>().0.iter_mut().zip(from.as_chunks::<BYTES>().0) {
                *into = op(<$number>::from_ne_bytes(*into), <$number>::from_ne_bytes(*from)).to_ne_bytes();
            }
        }

        fn run3(out: &mut [u8], a: &[u8], b: &[u8], op: impl Fn($number, $number) -> $number) {
            let pairs = a.as_chunks::<BYTES>().0.iter().zip(b.as_chunks::<BYTES>().0);
            for (out, (a, b)) in out.as_chunks_mut::<BYTES>().0.iter_mut().zip(pairs) {
                *out = op(<$number>::from_ne_bytes(*a), <$number>::from_ne_bytes(*b)).to_ne_bytes();
            }
        }
    };
}

macro_rules! floats {
    ($name:ident, $number:ty) => {
        pub(crate) mod $name {
            loops!($number);

            pub(crate) fn combine(op: Op, into: &mut [u8], from: &[u8]) {
                match op {
                    Op::Sum | Op::Mean => run(into, from, |a, b| a + b),
                    Op::Product => run(into, from, |a, b| a * b),
                    Op::Min => run(into, from, super::super::kernels::min),
                    Op::Max => run(into, from, super::super::kernels::max),
                }
            }

            pub(crate) fn combine3(op: Op, out: &mut [u8], a: &[u8], b: &[u8]) {
                match op {
                    Op::Sum | Op::Mean => run3(out, a, b, |a, b| a + b),
                    Op::Product => run3(out, a, b, |a, b| a * b),
                    Op::Min => run3(out, a, b, super::super::kernels::min),
                    Op::Max => run3(out, a, b, super::super::kernels::max),
                }
            }

            pub(crate) fn divide(numbers: &mut [u8], divisor: $number) {
                for number in numbers.as_chunks_mut::<BYTES>().0 {
                    *number = (<$number>::from_ne_bytes(*number) / divisor).to_ne_bytes();
                }
            }
        }
    };
}

macro_rules! integers {
    ($name:ident, $number:ty) => {
        pub(crate) mod $name {
            loops!($number);

            pub(crate) fn combine(op: Op, into: &mut [u8], from: &[u8]) {
                match op {
                    Op::Sum | Op::Mean => run(into, from, <$number>::wrapping_add),
                    Op::Product => run(into, from, <$number>::wrapping_mul),
                    Op::Min => run(into, from, Ord::min),
                    Op::Max => run(into, from, Ord::max),
                }
            }

            pub(crate) fn combine3(op: Op, out: &mut [u8], a: &[u8], b: &[u8]) {
                match op {
                    Op::Sum | Op::Mean => run3(out, a, b, <$number>::wrapping_add),
                    Op::Product => run3(out, a, b, <$number>::wrapping_mul),
                    Op::Min => run3(out, a, b, Ord::min),
                    Op::Max => run3(out, a, b, Ord::max),
                }
            }
        }
    };
}

floats!(f32, f32);
floats!(f64, f64);
integers!(i32, i32);
integers!(i64, i64);
integers!(u8, u8);

/// The smaller; a NaN when there is one. (A comparison with NaN is false, so a NaN in `b` is taken by the second branch.)
#[allow(clippy::eq_op)] // Only NaN differs from itself.
pub(crate) fn min<T: PartialOrd>(a: T, b: T) -> T {
    if a < b || a != a { a } else { b }
}

/// The larger; a NaN when there is one.
#[allow(clippy::eq_op)] // As above.
pub(crate) fn max<T: PartialOrd>(a: T, b: T) -> T {
    if a > b || a != a { a } else { b }
}

/// One operation on `f32`, for numbers that are computed as such.
pub(crate) fn in_f32(op: Op, a: &mut [f32], b: &[f32]) {
    let run = |a: &mut [f32], op: fn(f32, f32) -> f32| a.iter_mut().zip(b).for_each(|(a, b)| *a = op(*a, *b));
    match op {
        Op::Sum | Op::Mean => a.iter_mut().zip(b).for_each(|(a, b)| *a += *b),
        Op::Product => a.iter_mut().zip(b).for_each(|(a, b)| *a *= *b),
        Op::Min => run(a, min),
        Op::Max => run(a, max),
    }
}
