//! Bytes that several hold: a message that is passed on, the record of what it says, the value that is inside of it.
//!
//! A long value is on its way through many hands, and each copy of it takes microseconds. So what is long is copied when it
//! leaves memory that another process writes, and is shared from there on. What is short is one allocation, as small as it gets.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::value::LONG_BYTES;

/// Bytes that never change. A clone shares them.
#[derive(Clone)]
pub struct Shared(Holder);

#[derive(Clone)]
enum Holder {
    /// Short ones.
    Whole(Arc<[u8]>),
    /// Some of the bytes of a long vector, most of them: the first of them, and how many.
    Part(Arc<Vec<u8>>, usize, usize),
}

impl Shared {
    /// A part of these bytes: shared when it is long and most of what is held with it, else a copy, since who keeps a part
    /// keeps all.
    ///
    /// # Panics
    /// When the range is not within the bytes, as with slices.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let bytes = &self[range.clone()];
        match &self.0 {
            Holder::Part(whole, start, _) if bytes.len() >= LONG_BYTES && bytes.len() > whole.len() / 2 => {
                Self(Holder::Part(Arc::clone(whole), start + range.start, bytes.len()))
            }
            _ => bytes.into(),
        }
    }
}

impl Deref for Shared {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Holder::Whole(bytes) => bytes,
            Holder::Part(whole, start, len) => &whole[*start..*start + *len],
        }
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self(Holder::Whole(Arc::default()))
    }
}

impl From<Vec<u8>> for Shared {
    #[inline]
    fn from(bytes: Vec<u8>) -> Self {
        match bytes.len() {
            len @ LONG_BYTES.. => Self(Holder::Part(Arc::new(bytes), 0, len)),
            _ => Self(Holder::Whole(bytes.into())),
        }
    }
}

impl From<&[u8]> for Shared {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        match bytes.len() {
            LONG_BYTES.. => bytes.to_vec().into(),
            _ => Self(Holder::Whole(bytes.into())),
        }
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Shared {}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Serialize for Shared {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for Shared {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Plain)
    }
}

struct Plain;

impl Visitor<'_> for Plain {
    type Value = Shared;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Shared, E> {
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_shared_when_it_is_long_and_most_of_what_it_keeps() {
        let bytes = Shared::from((0..4 * LONG_BYTES).map(|at| at as u8).collect::<Vec<u8>>());
        let is_inside = |part: &Shared| bytes.as_ptr_range().contains(&part.as_ptr());
        let most = bytes.part(10..3 * LONG_BYTES);
        assert_eq!(most[..], bytes[10..3 * LONG_BYTES]);
        assert!(is_inside(&most) && is_inside(&most.clone()));
        let of_it = most.part(1..most.len());
        assert_eq!(of_it[..], bytes[11..3 * LONG_BYTES]);
        assert!(is_inside(&of_it));
        let little = bytes.part(10..10 + LONG_BYTES);
        assert_eq!(little[..], bytes[10..10 + LONG_BYTES]);
        assert!(!is_inside(&little) && !is_inside(&of_it.part(0..LONG_BYTES)));
    }

    #[test]
    fn short_ones_are_copied() {
        let bytes = Shared::from(vec![1, 2, 3]);
        assert_eq!(bytes.part(1..3), Shared::from(&[2, 3][..]));
        assert_eq!(bytes.part(3..3), Shared::default());
    }
}
