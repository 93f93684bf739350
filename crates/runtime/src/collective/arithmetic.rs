//! What small arrays are combined with.

use bireme_arith as arith;
use bireme_core::collective::{Call, Trouble, dtype_name, number, op_name};
use bireme_core::flow::{Number, Op};

/// How the arrays of one call are combined; none when they are not.
#[derive(Clone, Copy)]
pub(super) struct Arithmetic(Option<(Op, Number)>);

impl Arithmetic {
    /// What a call asks for; a trouble when there is no such thing.
    pub(super) fn of(call: &Call) -> Result<Self, Trouble> {
        let (Some(op), Some(array)) = (call.op, &call.array) else { return Ok(Self(None)) };
        let dtype = dtype_name(array.dtype);
        let Some(number) = number(array.dtype) else {
            let text = format!(
                "{} cannot combine arrays of {dtype}; float16, bfloat16, float32, float64, int32, int64 and uint8 can be",
                call.kind.name()
            );
            return Err(Trouble::Misuse(text));
        };
        match op.check(number) {
            Ok(()) => Ok(Self(Some((op, number)))),
            Err(error) => {
                let text = format!("op {} is not defined for arrays of {dtype}: {error}", op_name(op));
                Err(Trouble::Misuse(text))
            }
        }
    }

    /// Puts what came together with what is there.
    pub(super) fn combine(self, into: &mut [u8], from: &[u8]) {
        if let Some((op, number)) = self.0 {
            // Lengths are those of equal calls, and the op was checked.
            let _ = arith::combine(op, number, into, from);
        }
    }

    /// Makes a mean of a sum of so many.
    pub(super) fn finish(self, numbers: &mut [u8], count: u32) {
        if let Some((Op::Mean, number)) = self.0 {
            let _ = arith::divide(number, numbers, count);
        }
    }
}
