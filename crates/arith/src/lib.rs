//! The arithmetic of reduces: many numbers, as the bytes that lie in objects and come over the network.
//!
//! Everything works on byte slices of any alignment, in this machine's byte order. The loops are plain, so that the
//! compiler vectorises them (`examples/rates.rs` measures them against a copy); there is no unsafe code.
//!
//! Rules: integers wrap; `f16` and `bf16` are computed in `f32` and rounded once per step; of `Min` and `Max` a NaN is the
//! result whenever one of the two is NaN, as in numpy, and of a zero and a negative zero either may be it; a mean is a sum
//! that is divided once, at the end ([`divide`]), and is refused for integers, since it would not be one.
//!
//! ```
//! use bireme_arith::{Number, Op, combine};
//!
//! let mut sum = 1.5f32.to_ne_bytes();
//! combine(Op::Sum, Number::F32, &mut sum, &2.0f32.to_ne_bytes())?;
//! assert_eq!(f32::from_ne_bytes(sum), 3.5);
//! # Ok::<(), bireme_arith::ArithError>(())
//! ```

use serde::{Deserialize, Serialize};

mod halves;
mod kernels;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

/// How two numbers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    /// Their sum; of integers, it wraps.
    Sum,
    /// Their sum, to be divided by the count at the end.
    Mean,
    /// Their product; of integers, it wraps.
    Product,
    /// The smaller; a NaN wins.
    Min,
    /// The larger; a NaN wins.
    Max,
}

/// What the numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)] // The names say it all.
pub enum Number {
    F16,
    Bf16,
    F32,
    F64,
    I32,
    I64,
    U8,
}

impl Number {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::F16, Self::Bf16, Self::F32, Self::F64, Self::I32, Self::I64, Self::U8];

    /// The size of one in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U8 => "uint8",
        }
    }
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Mean, Self::Product, Self::Min, Self::Max];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    /// Whether it can be had of these numbers.
    pub fn check(self, number: Number) -> Result<(), ArithError> {
        let is_integer = matches!(number, Number::I32 | Number::I64 | Number::U8);
        if self == Self::Mean && is_integer { Err(ArithError::MeanOfIntegers { number }) } else { Ok(()) }
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArithError {
    /// The mean of integers is none.
    #[error("the mean of {number} is not an integer in general: take the sum, or convert to a float first")]
    MeanOfIntegers {
        /// What they are.
        number: Number,
    },
    /// The two are not of equal length.
    #[error("{into} bytes cannot be combined with {from}: arrays of equal shape are needed")]
    Lengths {
        /// Bytes of one.
        into: usize,
        /// Bytes of the other.
        from: usize,
    },
    /// A part of a number is left.
    #[error("{bytes} bytes are not a whole number of {number} elements")]
    Remainder {
        /// How many there are.
        bytes: usize,
        /// What they should be.
        number: Number,
    },
    /// Division by zero.
    #[error("a mean of nothing does not exist")]
    DivisorZero,
}

fn check(op: Op, number: Number, into: usize, from: usize) -> Result<(), ArithError> {
    op.check(number)?;
    if into != from {
        return Err(ArithError::Lengths { into, from });
    }
    if !into.is_multiple_of(number.bytes()) {
        return Err(ArithError::Remainder { bytes: into, number });
    }
    Ok(())
}

/// `into[i] = into[i] op from[i]`
pub fn combine(op: Op, number: Number, into: &mut [u8], from: &[u8]) -> Result<(), ArithError> {
    check(op, number, into.len(), from.len())?;
    match number {
        Number::F16 => halves::combine::<half::f16>(op, into, from),
        Number::Bf16 => halves::combine::<half::bf16>(op, into, from),
        Number::F32 => kernels::f32::combine(op, into, from),
        Number::F64 => kernels::f64::combine(op, into, from),
        Number::I32 => kernels::i32::combine(op, into, from),
        Number::I64 => kernels::i64::combine(op, into, from),
        Number::U8 => kernels::u8::combine(op, into, from),
    }
    Ok(())
}

/// `out[i] = a[i] op b[i]`: what was in `out` does not matter.
pub fn combine3(op: Op, number: Number, out: &mut [u8], a: &[u8], b: &[u8]) -> Result<(), ArithError> {
    check(op, number, out.len(), a.len())?;
    check(op, number, out.len(), b.len())?;
    match number {
        Number::F16 => halves::combine3::<half::f16>(op, out, a, b),
        Number::Bf16 => halves::combine3::<half::bf16>(op, out, a, b),
        Number::F32 => kernels::f32::combine3(op, out, a, b),
        Number::F64 => kernels::f64::combine3(op, out, a, b),
        Number::I32 => kernels::i32::combine3(op, out, a, b),
        Number::I64 => kernels::i64::combine3(op, out, a, b),
        Number::U8 => kernels::u8::combine3(op, out, a, b),
    }
    Ok(())
}

/// `numbers[i] = numbers[i] / divisor`: the end of a mean.
pub fn divide(number: Number, numbers: &mut [u8], divisor: u32) -> Result<(), ArithError> {
    check(Op::Mean, number, numbers.len(), numbers.len())?;
    if divisor == 0 {
        return Err(ArithError::DivisorZero);
    }
    match number {
        Number::F16 => halves::divide::<half::f16>(numbers, divisor),
        Number::Bf16 => halves::divide::<half::bf16>(numbers, divisor),
        Number::F32 => kernels::f32::divide(numbers, divisor as f32),
        Number::F64 => kernels::f64::divide(numbers, f64::from(divisor)),
        Number::I32 | Number::I64 | Number::U8 => return Err(ArithError::MeanOfIntegers { number }),
    }
    Ok(())
}
