//! The shape on which the writer and the reader of a plain value must agree.
//!
//! The plain encoding has neither kinds nor names, so a type whose `Serialize` and `Deserialize` differ (a field or variant
//! that is skipped in one direction only, `into` and `from` of different types) would be read as another value. Both sides
//! note what they write or ask for; the sums travel behind the value and are compared.

use std::num::Wrapping;

/// Bytes of both sums.
pub(super) const SHAPE_BYTES: usize = 8;

/// Sums of what was written or asked for, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    kinds: Wrapping<u64>,
    names: Wrapping<u64>,
}

/// The kinds of parts that have a place in the bytes.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Bool = 1,
    U8,
    U16,
    U32,
    U64,
    U128,
    I8,
    I16,
    I32,
    I64,
    I128,
    F32,
    F64,
    Char,
    Text,
    Bytes,
    Option,
    List,
    Map,
    Tuple,
    Struct,
    Variant,
}

/// An odd number with its bits well spread.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Shape {
    /// One more part. Cheap: there is one for every element of a list.
    #[inline(always)]
    pub(super) fn note(&mut self, kind: Kind) {
        self.kinds += Wrapping((kind as u64).wrapping_mul(SPREAD));
    }

    /// The end of a part of a tuple or struct: those have an order, while the elements of a list are alike.
    #[inline(always)]
    pub(super) fn next_part(&mut self) {
        self.kinds = self.kinds * Wrapping(3) + Wrapping(1);
    }

    /// The end of a tuple or struct, with so many parts that took bytes.
    #[inline(always)]
    pub(super) fn note_parts(&mut self, kind: Kind, parts: u32) {
        self.note(kind);
        self.kinds = self.kinds * Wrapping(3) + Wrapping(u64::from(parts));
    }

    /// The names of a struct's fields, or of a variant.
    #[inline(always)]
    pub(super) fn note_names(&mut self, names: Names) {
        self.names = self.names * Wrapping(SPREAD) + names.0;
    }

    pub(super) fn to_bytes(self) -> [u8; SHAPE_BYTES] {
        let fold = |sum: Wrapping<u64>| ((sum * Wrapping(SPREAD)).0 >> 32) as u32;
        let [a, b, c, d] = fold(self.kinds).to_le_bytes();
        let [e, f, g, h] = fold(self.names).to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// Whether this is the shape in `bytes`; names count only where the reader knows them all.
    pub(super) fn is(self, bytes: [u8; SHAPE_BYTES], with_names: bool) -> bool {
        let (own, compared) = (self.to_bytes(), if with_names { SHAPE_BYTES } else { SHAPE_BYTES / 2 });
        own[..compared] == bytes[..compared]
    }
}

/// A sum of names in order. Names are literals, so that the compiler can do most of this.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Names(Wrapping<u64>);

impl Names {
    #[inline]
    pub(super) fn and(self, name: &str) -> Self {
        let mut sum = self.0 * Wrapping(SPREAD) + Wrapping(name.len() as u64);
        for chunk in name.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            sum = sum * Wrapping(SPREAD) + Wrapping(u64::from_le_bytes(word));
        }
        Self(sum)
    }
}
