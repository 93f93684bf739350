//! The bytes of an object in the reader's hands: a small copy, or a pinned view of the arena.

use std::ops::Deref;
use std::sync::Arc;

use bireme_store::Pinned;

/// Bytes of an object. A pinned view keeps the object in the arena until it is dropped.
#[derive(Clone)]
pub enum Fetched {
    /// Small values are copies.
    Inline(Arc<[u8]>),
    /// Large ones are views of shared memory.
    Pinned(Arc<Pinned>),
}

impl Deref for Fetched {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Fetched::Inline(bytes) => bytes,
            Fetched::Pinned(view) => view,
        }
    }
}

impl AsRef<[u8]> for Fetched {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
