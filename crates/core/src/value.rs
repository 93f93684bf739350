//! What an object is: bytes in a message, bytes in the store, or a failure.
//!
//! Values are opaque here; the front ends know their encoding. A value that contains references lists them beside its
//! bytes, because whoever passes the value on must also pass on the right to use them (`owner::borrow`).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::codec::{Malformed, Reader, Write};
use crate::failure::Failure;
use crate::id::{NodeId, ObjectId, ProcessId, TaskId};
use crate::shared::Shared;

/// Results and arguments below this many bytes travel inside messages; larger ones live in the store.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// A reference as it travels: the object and the process that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RefSpec {
    /// The object.
    pub object: ObjectId,
    /// Who keeps its count and knows its value.
    pub owner: ProcessId,
}

/// Hash of encoded bytes whatever the owners of the references inside: a repeated run may have become the owner of what
/// the run before it made, and still does the same.
pub fn digest_without_owners(earlier: u64, bytes: &[u8], nested: &[RefSpec]) -> u64 {
    let (mut digest, mut rest) = (earlier, bytes);
    for spec in nested {
        let whole = postcard::to_allocvec(spec).unwrap_or_default();
        let owner_len = postcard::to_allocvec(&spec.owner).map_or(0, |owner| owner.len());
        let Some(at) = rest.windows(whole.len().max(1)).position(|part| part == whole) else { continue };
        let end = at + whole.len();
        digest = crate::id::digest_from(digest, &rest[..end - owner_len]);
        rest = &rest[end..];
    }
    crate::id::digest_from(digest, rest)
}

/// Where a sealed object lies in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Location {
    /// In whose store.
    pub node: NodeId,
    /// Entry of the object table.
    pub entry: u32,
    /// Use of that entry; a stale one is refused by the store.
    pub generation: u32,
    /// First byte in the arena.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Location {
    /// Whether this is the same thing in the same store: it may lie elsewhere there by now.
    pub fn is_same_as(&self, other: &Location) -> bool {
        (self.node, self.entry, self.generation) == (other.node, other.entry, other.generation)
    }
}

/// From so many bytes on it pays to write them only once.
pub const LONG_BYTES: usize = 4 << 10;

/// The three forms of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Small: the bytes themselves.
    Inline(Shared),
    /// Large: where they lie.
    Stored(Location),
    /// There is no value, and why.
    Failed(Arc<Failure>),
}

/// The value of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The bytes, their place, or the failure.
    pub body: Body,
    /// References inside the bytes.
    pub nested: Vec<RefSpec>,
}

impl Value {
    /// A small value without references.
    pub fn inline(bytes: impl Into<Shared>) -> Self {
        Self { body: Body::Inline(bytes.into()), nested: Vec::new() }
    }

    /// A failure in the place of a value.
    pub fn failed(failure: Failure) -> Self {
        Self { body: Body::Failed(Arc::new(failure)), nested: Vec::new() }
    }

    /// The failure, when there is one.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.body {
            Body::Failed(failure) => Some(failure),
            Body::Inline(_) | Body::Stored(_) => None,
        }
    }

    /// Whether its bytes are here and many.
    pub fn is_long(&self) -> bool {
        matches!(&self.body, Body::Inline(bytes) if bytes.len() >= LONG_BYTES)
    }

    /// Appends the value to a message.
    pub fn encode(&self, out: &mut impl Write) {
        match &self.body {
            Body::Inline(bytes) => {
                out.u8(0);
                out.bytes(bytes);
            }
            Body::Stored(at) => {
                out.u8(1);
                out.u32(at.node.0);
                out.u32(at.entry);
                out.u32(at.generation);
                out.u64(at.offset);
                out.u64(at.len);
            }
            Body::Failed(failure) => {
                out.u8(2);
                out.bytes(&postcard::to_allocvec(&**failure).unwrap_or_default());
            }
        }
        encode_refs(&self.nested, out);
    }

    /// Goes past a value in a message; its bytes, when they are in it, are shown on the way.
    pub(crate) fn skim<'a>(from: &mut Reader<'a>, mut see: impl FnMut(&'a [u8], &Reader<'a>)) -> Result<(), Malformed> {
        match from.u8()? {
            0 => {
                let bytes = from.bytes()?;
                see(bytes, from);
            }
            1 => drop(from.raw(28)?),
            2 => drop(from.bytes()?),
            _ => return Err(Malformed::Unknown("value form")),
        }
        skim_refs(from)
    }

    /// Takes a value off a message.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let body = match from.u8()? {
            0 => Body::Inline(from.shared()?),
            1 => Body::Stored(Location {
                node: NodeId(from.u32()?),
                entry: from.u32()?,
                generation: from.u32()?,
                offset: from.u64()?,
                len: from.u64()?,
            }),
            2 => {
                Body::Failed(Arc::new(postcard::from_bytes(from.bytes()?).map_err(|_| Malformed::Unknown("failure"))?))
            }
            _ => return Err(Malformed::Unknown("value form")),
        };
        Ok(Self { body, nested: decode_refs(from)? })
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Inline(bytes) => write!(f, "{} bytes inline", bytes.len()),
            Body::Stored(at) => write!(f, "{} bytes in the store", at.len),
            Body::Failed(failure) => write!(f, "failed: {failure}"),
        }
    }
}

/// What a reference takes in a message.
const REF_BYTES: usize = 36;

/// Appends a list of references.
pub fn encode_refs(refs: &[RefSpec], out: &mut impl Write) {
    out.u32(refs.len() as u32);
    for r in refs {
        encode_object(r.object, out);
        encode_process(r.owner, out);
    }
}

/// Goes past a list of references.
pub(crate) fn skim_refs(from: &mut Reader<'_>) -> Result<(), Malformed> {
    let n = from.count(REF_BYTES)?;
    from.raw(n * REF_BYTES).map(|_| ())
}

/// Takes a list of references.
pub fn decode_refs(from: &mut Reader<'_>) -> Result<Vec<RefSpec>, Malformed> {
    let n = from.count(REF_BYTES)?;
    let mut refs = Vec::with_capacity(n);
    for _ in 0..n {
        let object = decode_object(from)?;
        refs.push(RefSpec { object, owner: decode_process(from)? });
    }
    Ok(refs)
}

/// Appends a process id.
#[inline]
pub fn encode_process(process: ProcessId, out: &mut impl Write) {
    out.u32(process.node.0);
    out.u32(process.slot);
    out.u32(process.incarnation);
}

/// Takes a process id.
#[inline]
pub fn decode_process(from: &mut Reader<'_>) -> Result<ProcessId, Malformed> {
    Ok(ProcessId { node: NodeId(from.u32()?), slot: from.u32()?, incarnation: from.u32()? })
}

/// Appends an object id.
#[inline]
pub fn encode_object(object: ObjectId, out: &mut impl Write) {
    out.u128(object.task().raw());
    out.u64(object.index());
}

/// Takes an object id.
#[inline]
pub fn decode_object(from: &mut Reader<'_>) -> Result<ObjectId, Malformed> {
    Ok(ObjectId::from_raw(TaskId::from_raw(from.u128()?), from.u64()?))
}
