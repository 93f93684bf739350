//! What is to be written, in several places.

use std::io::IoSlice;

use super::outgoing::SHORT_BYTES;

/// Bytes in several parts that have not been taken.
pub(super) struct Parts<'a> {
    parts: &'a [IoSlice<'a>],
    /// Of the first part, so many have.
    from: usize,
    /// A bit for each part that is bytes of a value, from the first on.
    values: u64,
}

impl<'a> Parts<'a> {
    pub(super) fn new(parts: &'a [IoSlice<'a>], values: u64) -> Self {
        let mut all = Self { parts, from: 0, values };
        all.advance(0);
        all
    }

    /// The rest of the first part; empty only when there is no more.
    pub(super) fn first(&self) -> &'a [u8] {
        self.parts.first().map_or(&[], |part| &part[self.from..])
    }

    /// Whether the first part is bytes of a value.
    pub(super) fn is_value(&self) -> bool {
        self.values & 1 == 1
    }

    pub(super) fn is_last(&self) -> bool {
        self.parts.len() <= 1
    }

    pub(super) fn advance(&mut self, count: usize) {
        self.from += count;
        while let Some((part, rest)) = self.parts.split_first()
            && self.from == part.len()
        {
            (self.parts, self.from, self.values) = (rest, 0, self.values >> 1);
        }
    }

    /// Copies short parts side by side, as many as fit, up to the next long one.
    pub(super) fn gather(&mut self, into: &mut [u8]) -> usize {
        let mut filled = 0;
        loop {
            let first = self.first();
            let count = first.len().min(into.len() - filled);
            if count == 0 || first.len() >= SHORT_BYTES {
                return filled;
            }
            into[filled..filled + count].copy_from_slice(&first[..count]);
            filled += count;
            self.advance(count);
        }
    }
}
