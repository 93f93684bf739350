//! The bytes of an object in the reader's hands: a small copy, or a pinned view of the arena.

use std::ops::Deref;
use std::sync::Arc;

use bireme_core::failure::Failure;
use bireme_core::shared::Shared;
use bireme_core::value::Body;
use bireme_store::Pinned;

use crate::client::Runtime;
use crate::error::Error;
use crate::reference::Ref;

/// Bytes of an object. A pinned view keeps the object in the arena until it is dropped.
#[derive(Clone)]
pub enum Fetched {
    /// Small values are copies.
    Inline(Shared),
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

/// What is known of a value without its bytes being brought here.
#[derive(Clone)]
pub enum Glance {
    /// There is no value, and why.
    Failed(Arc<Failure>),
    /// It is small, and here.
    Small(Fetched),
    /// It lies in a store, of this node or another.
    Stored,
}

impl Runtime {
    /// What is known of the value of an object; nothing while there is none.
    pub fn glance(&self, r: &Ref) -> Result<Option<Glance>, Error> {
        self.check_refs([r])?;
        Ok(r.process().value_now(r.id()).map(|value| match value.body {
            Body::Failed(failure) => Glance::Failed(failure),
            Body::Inline(bytes) => Glance::Small(Fetched::Inline(bytes)),
            Body::Stored(_) => Glance::Stored,
        }))
    }
}
