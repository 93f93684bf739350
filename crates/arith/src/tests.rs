//! Every kernel against one number at a time, at any alignment.

use half::{bf16, f16};
use proptest::prelude::*;

use super::*;

/// What one pair gives, computed without any of the loops.
fn reference(op: Op, number: Number, a: &[u8], b: &[u8]) -> Vec<u8> {
    macro_rules! float {
        ($of:expr, $to:expr) => {{
            let (a, b) = ($of(a), $of(b));
            let min = if a.is_nan() || b.is_nan() { a + b } else { a.min(b) };
            let max = if a.is_nan() || b.is_nan() { a + b } else { a.max(b) };
            let result = match op {
                Op::Sum | Op::Mean => a + b,
                Op::Product => a * b,
                Op::Min => min,
                Op::Max => max,
            };
            $to(result).to_vec()
        }};
    }
    macro_rules! integer {
        ($number:ty) => {{
            let of = |bytes: &[u8]| <$number>::from_ne_bytes(bytes.try_into().unwrap());
            let (a, b) = (of(a), of(b));
            let result = match op {
                Op::Sum | Op::Mean => a.wrapping_add(b),
                Op::Product => a.wrapping_mul(b),
                Op::Min => a.min(b),
                Op::Max => a.max(b),
            };
            result.to_ne_bytes().to_vec()
        }};
    }
    match number {
        Number::F16 => float!(|x: &[u8]| f16::from_ne_bytes(x.try_into().unwrap()).to_f32(), |x: f32| f16::from_f32(x)
            .to_ne_bytes()),
        Number::Bf16 => {
            float!(|x: &[u8]| bf16::from_ne_bytes(x.try_into().unwrap()).to_f32(), |x: f32| bf16::from_f32(x)
                .to_ne_bytes())
        }
        Number::F32 => float!(|x: &[u8]| f32::from_ne_bytes(x.try_into().unwrap()), |x: f32| x.to_ne_bytes()),
        Number::F64 => float!(|x: &[u8]| f64::from_ne_bytes(x.try_into().unwrap()), |x: f64| x.to_ne_bytes()),
        Number::I32 => integer!(i32),
        Number::I64 => integer!(i64),
        Number::U8 => integer!(u8),
    }
}

fn value(number: Number, bytes: &[u8]) -> f64 {
    match number {
        Number::F16 => f16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
        Number::Bf16 => bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
        Number::F32 => f64::from(f32::from_ne_bytes(bytes.try_into().unwrap())),
        Number::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()),
        Number::I32 | Number::I64 | Number::U8 => f64::INFINITY,
    }
}

/// Equal, or both NaN, or zeros of either sign.
fn same(number: Number, a: &[u8], b: &[u8]) -> bool {
    let (x, y) = (value(number, a), value(number, b));
    a == b || x.is_nan() && y.is_nan() || x == 0.0 && y == 0.0
}

proptest! {
    #[test]
    fn every_kernel_is_one_number_at_a_time(
        op in prop::sample::select(Op::ALL.to_vec()),
        number in prop::sample::select(Number::ALL.to_vec()),
        bytes in prop::collection::vec(any::<u8>(), 0..9000),
        shift in 0usize..8,
    ) {
        let size = number.bytes();
        let count = bytes.len().saturating_sub(shift) / 2 / size;
        let a = &bytes[shift.min(bytes.len())..][..count * size];
        let b = &bytes[bytes.len() - count * size..];
        let mut out = vec![0xaa; count * size];
        if op.check(number).is_err() {
            prop_assert!(combine3(op, number, &mut out, a, b).is_err());
            return Ok(());
        }
        combine3(op, number, &mut out, a, b).unwrap();
        let mut in_place = [&bytes[..shift.min(bytes.len())], a].concat();
        let start = in_place.len() - a.len();
        combine(op, number, &mut in_place[start..], b).unwrap();
        for at in (0..out.len()).step_by(size) {
            let expected = reference(op, number, &a[at..at + size], &b[at..at + size]);
            prop_assert!(same(number, &out[at..at + size], &expected), "{op} of {number}");
            prop_assert!(same(number, &in_place[start + at..][..size], &expected), "{op} of {number} in place");
        }
    }

    #[test]
    fn a_mean_is_a_sum_that_is_divided_once(numbers in prop::collection::vec(-1000i16..1000, 1..3000), by in 1u32..100) {
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|x| f32::from(*x).to_ne_bytes()).collect();
        divide(Number::F32, &mut bytes, by).unwrap();
        for (bytes, x) in bytes.as_chunks::<4>().0.iter().zip(&numbers) {
            prop_assert_eq!(f32::from_ne_bytes(*bytes), f32::from(*x) / by as f32);
        }
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|x| f16::from_f32(f32::from(*x)).to_ne_bytes()).collect();
        divide(Number::F16, &mut bytes, by).unwrap();
        for (bytes, x) in bytes.as_chunks::<2>().0.iter().zip(&numbers) {
            prop_assert_eq!(f16::from_ne_bytes(*bytes), f16::from_f32(f32::from(*x) / by as f32));
        }
    }
}

#[test]
fn a_nan_wins_on_either_side() {
    for op in [Op::Min, Op::Max] {
        for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            let mut into = a.to_ne_bytes();
            combine(op, Number::F32, &mut into, &b.to_ne_bytes()).unwrap();
            assert!(f32::from_ne_bytes(into).is_nan(), "{op} of {a} and {b}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let mean = combine(Op::Mean, Number::I32, &mut [0; 4], &[0; 4]).unwrap_err();
    assert_eq!(mean, ArithError::MeanOfIntegers { number: Number::I32 });
    assert!(mean.to_string().contains("int32"), "{mean}");
    let lengths = combine(Op::Sum, Number::F32, &mut [0; 8], &[0; 4]).unwrap_err();
    assert_eq!(lengths, ArithError::Lengths { into: 8, from: 4 });
    let part = combine3(Op::Sum, Number::F64, &mut [0; 12], &[0; 12], &[0; 12]).unwrap_err();
    assert_eq!(part, ArithError::Remainder { bytes: 12, number: Number::F64 });
    assert_eq!(divide(Number::F64, &mut [0; 8], 0), Err(ArithError::DivisorZero));
    assert_eq!(divide(Number::U8, &mut [0; 8], 2), Err(ArithError::MeanOfIntegers { number: Number::U8 }));
}
