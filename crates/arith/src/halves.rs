//! Numbers of 16 bits: converted in blocks, computed in `f32`, rounded once.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::Op;
use crate::kernels::in_f32;

/// Elements that are converted together: three buffers of them stay in the fastest cache.
const BLOCK: usize = 1024;
const BYTES: usize = 2;

/// A number of 16 bits.
pub(crate) trait Half: Copy + 'static {
    const ZERO: Self;
    fn of(bytes: [u8; BYTES]) -> Self;
    fn bytes(self) -> [u8; BYTES];
    fn to_f32(from: &[Self], into: &mut [f32]);
    fn from_f32(from: &[f32], into: &mut [Self]);
}

impl Half for f16 {
    const ZERO: Self = Self::ZERO;

    fn of(bytes: [u8; BYTES]) -> Self {
        Self::from_ne_bytes(bytes)
    }

    fn bytes(self) -> [u8; BYTES] {
        self.to_ne_bytes()
    }

    fn to_f32(from: &[Self], into: &mut [f32]) {
        from.convert_to_f32_slice(into);
    }

    fn from_f32(from: &[f32], into: &mut [Self]) {
        into.convert_from_f32_slice(from);
    }
}

/// The upper half of an `f32`: plain shifts, which the compiler vectorises.
impl Half for bf16 {
    const ZERO: Self = Self::ZERO;

    fn of(bytes: [u8; BYTES]) -> Self {
        Self::from_ne_bytes(bytes)
    }

    fn bytes(self) -> [u8; BYTES] {
        self.to_ne_bytes()
    }

    fn to_f32(from: &[Self], into: &mut [f32]) {
        for (into, from) in into.iter_mut().zip(from) {
            *into = f32::from_bits(u32::from(from.to_bits()) << 16);
        }
    }

    fn from_f32(from: &[f32], into: &mut [Self]) {
        for (into, from) in into.iter_mut().zip(from) {
            let bits = from.to_bits();
            // To the nearest, and to the even one of two; a NaN stays one, quiet.
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
            *into = Self::from_bits(if is_nan { bits >> 16 | 0x40 } else { rounded } as u16);
        }
    }
}

/// The conversions of one block.
struct Block<H> {
    halves: [H; BLOCK],
    a: [f32; BLOCK],
    b: [f32; BLOCK],
}

impl<H: Half> Block<H> {
    fn new() -> Self {
        Self { halves: [H::ZERO; BLOCK], a: [0.0; BLOCK], b: [0.0; BLOCK] }
    }

    fn read(halves: &mut [H; BLOCK], from: &[[u8; BYTES]], into: &mut [f32; BLOCK]) {
        for (half, bytes) in halves.iter_mut().zip(from) {
            *half = H::of(*bytes);
        }
        H::to_f32(&halves[..from.len()], &mut into[..from.len()]);
    }

    fn write(&mut self, into: &mut [[u8; BYTES]]) {
        let count = into.len();
        H::from_f32(&self.a[..count], &mut self.halves[..count]);
        for (bytes, half) in into.iter_mut().zip(&self.halves) {
            *bytes = half.bytes();
        }
    }
}

pub(crate) fn combine<H: Half>(op: Op, into: &mut [u8], from: &[u8]) {
    let mut block = Block::<H>::new();
    let (into, from) = (into.as_chunks_mut::<BYTES>().0, from.as_chunks::<BYTES>().0);
    for (into, from) in into.chunks_mut(BLOCK).zip(from.chunks(BLOCK)) {
        Block::read(&mut block.halves, into, &mut block.a);
        Block::read(&mut block.halves, from, &mut block.b);
        in_f32(op, &mut block.a[..into.len()], &block.b[..into.len()]);
        block.write(into);
    }
}

pub(crate) fn combine3<H: Half>(op: Op, out: &mut [u8], a: &[u8], b: &[u8]) {
    let mut block = Block::<H>::new();
    let (a, b) = (a.as_chunks::<BYTES>().0, b.as_chunks::<BYTES>().0);
    let pairs = a.chunks(BLOCK).zip(b.chunks(BLOCK));
    for (out, (a, b)) in out.as_chunks_mut::<BYTES>().0.chunks_mut(BLOCK).zip(pairs) {
        Block::read(&mut block.halves, a, &mut block.a);
        Block::read(&mut block.halves, b, &mut block.b);
        in_f32(op, &mut block.a[..out.len()], &block.b[..out.len()]);
        block.write(out);
    }
}

pub(crate) fn divide<H: Half>(numbers: &mut [u8], divisor: u32) {
    let mut block = Block::<H>::new();
    for numbers in numbers.as_chunks_mut::<BYTES>().0.chunks_mut(BLOCK) {
        Block::read(&mut block.halves, numbers, &mut block.a);
        block.a[..numbers.len()].iter_mut().for_each(|number| *number /= divisor as f32);
        block.write(numbers);
    }
}
