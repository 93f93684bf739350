//! The bytes of an object: an array as the store defines it, or a small header and then a value or raw bytes.
//!
//! ```text
//! 0      tag: 1 plain, 2 bytes, 4 self-describing (`B` is the first letter of an array's own header)
//! 1..4   zero
//! 4..8   u32: where the payload starts (a multiple of 64 for large bytes, so that views are aligned)
//! 8..16  u64: fingerprint of the Rust type; 0 for raw bytes of another language
//! ```
//!
//! All numbers are little-endian. Values are serde types; [`Bytes`], [`Array`] and `Vec<u8>` are told apart at run time
//! by their type id, so that they go as they are. Called by `object`, `argument` and the generated code.
//!
//! A value comes back as it went, or there is an error that names its type. Files: `form` (which encoding a type gets), `plain`
//! (postcard), `described` (with kinds and names), `shape` (what writer and reader must agree on), `probe` (what a type asks
//! for when it is read), `fault` (their errors).

mod described;
mod fault;
mod form;
mod plain;
pub(crate) mod probe;
mod shape;

use std::any::{Any, type_name};

use bireme_runtime::core::value::{INLINE_BYTES_MAX, LONG_BYTES};
use bireme_runtime::{Encoded, Fetched, Ref};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::scope::{self, Collected};
use crate::{Array, Bytes, Error, Result, names};

pub(crate) use form::Form as Encoding;

const HEADER_BYTES: usize = 16;
/// Payloads that are read in place start at a multiple of this.
const PAYLOAD_ALIGN: usize = 64;
const TAG_PLAIN: u8 = 1;
const TAG_BYTES: u8 = 2;
/// A value that only Python reads.
const TAG_PYTHON: u8 = 3;
const TAG_DESCRIBED: u8 = 4;
/// First byte of the store's header for arrays.
const TAG_ARRAY: u8 = b'B';
/// First allocation for a value: most are smaller.
const SMALL_VALUE_BYTES: usize = 128;

/// A type that can be an argument, a result or an object: any owned serde type.
///
/// Implemented for all of them; there is nothing to do but `#[derive(Serialize, Deserialize)]`. A value arrives as it was, or
/// there is an error that names its type: `Serialize` and `Deserialize` have to agree, so skip fields and variants in both
/// directions or in none.
///
/// ```
/// fn is_value<T: bireme::Value>() {}
/// is_value::<(i64, Vec<String>)>();
/// is_value::<bireme::ObjectRef<bireme::Array>>();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel between processes",
    note = "arguments, results and objects are owned types with `#[derive(serde::Serialize, serde::Deserialize)]`"
)]
pub trait Value: Serialize + DeserializeOwned + 'static {}

impl<T: Serialize + DeserializeOwned + 'static> Value for T {}

/// A value as bytes, and the references that must live until the bytes have been handed over.
pub(crate) struct Packed {
    pub(crate) encoded: Encoded,
    pub(crate) keep: Vec<Ref>,
}

impl Packed {
    /// For results, which are handed over after the generated code has returned: the references move into the body.
    pub(crate) fn into_kept(mut self) -> Encoded {
        if !self.keep.is_empty() {
            let body = self.encoded.body.take();
            self.encoded.body = Some(Box::new(Kept { body, _references: self.keep }));
        }
        self.encoded
    }
}

/// A body that keeps references alive for as long as it is not dropped.
struct Kept {
    body: Option<Box<dyn AsRef<[u8]> + Send>>,
    _references: Vec<Ref>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        self.body.as_ref().map_or(&[], |body| (**body).as_ref())
    }
}

/// How a value goes: as it is, or through serde.
pub(crate) enum Form<T> {
    Raw(Encoded),
    Serde(T),
}

/// Takes `value` apart when it is one of the types that go as they are.
pub(crate) fn form<T: Value>(value: T) -> Result<Form<T>> {
    let mut slot = Some(value);
    let any: &mut dyn Any = &mut slot;
    if let Some(bytes) = any.downcast_mut::<Option<Bytes>>().and_then(Option::take) {
        return Ok(Form::Raw(raw_bytes::<T>(bytes)));
    }
    if let Some(bytes) = any.downcast_mut::<Option<Vec<u8>>>().and_then(Option::take) {
        return Ok(Form::Raw(raw_bytes::<T>(bytes)));
    }
    if let Some(array) = any.downcast_mut::<Option<Array>>().and_then(Option::take) {
        let head = array.header().and_then(|header| header.encode());
        let head = head.map_err(|error| cannot::<T>("encoded", &error))?;
        return Ok(Form::Raw(joined(head, array.bytes().clone())));
    }
    Ok(Form::Serde(slot.expect("each branch that empties the slot returns")))
}

fn raw_bytes<T: Value>(body: impl AsRef<[u8]> + Send + 'static) -> Encoded {
    let len = body.as_ref().len();
    let start = if len < INLINE_BYTES_MAX { HEADER_BYTES } else { PAYLOAD_ALIGN };
    let mut head = Vec::with_capacity(if len < LONG_BYTES { start + len } else { start });
    write_header(&mut head, TAG_BYTES, start, names::fingerprint::<T>());
    head.resize(start, 0);
    joined(head, body)
}

/// A short body joins the head; a long one stays where it is until it is copied into a message or the store.
fn joined(mut head: Vec<u8>, body: impl AsRef<[u8]> + Send + 'static) -> Encoded {
    if body.as_ref().len() < LONG_BYTES {
        head.extend_from_slice(body.as_ref());
        return Encoded { head, ..Encoded::default() };
    }
    Encoded { head, body: Some(Box::new(body)), ..Encoded::default() }
}

fn write_header(head: &mut Vec<u8>, tag: u8, start: usize, print: u64) {
    head.extend_from_slice(&[tag, 0, 0, 0]);
    head.extend_from_slice(&(start as u32).to_le_bytes());
    head.extend_from_slice(&print.to_le_bytes());
}

/// The header of an object of type `T` in this encoding.
pub(crate) fn start_object<T: Value>(head: &mut Vec<u8>, encoding: Encoding) {
    let tag = match encoding {
        Encoding::Plain => TAG_PLAIN,
        Encoding::Described => TAG_DESCRIBED,
    };
    write_header(head, tag, HEADER_BYTES, names::fingerprint::<T>());
}

/// A value as an object.
pub(crate) fn pack<T: Value>(value: T) -> Result<Packed> {
    let value = match form(value)? {
        Form::Raw(encoded) => return Ok(Packed { encoded, keep: Vec::new() }),
        Form::Serde(value) => value,
    };
    let mut head = Vec::with_capacity(HEADER_BYTES + size_of::<T>().max(SMALL_VALUE_BYTES));
    start_object::<T>(&mut head, Encoding::Plain);
    let (encoding, Collected { nested, keep, .. }) = append(&value, &mut head)?;
    if encoding == Encoding::Described {
        head[0] = TAG_DESCRIBED;
    }
    Ok(Packed { encoded: Encoded { head, nested, ..Encoded::default() }, keep })
}

/// Appends a value in the encoding of its type; the references inside are collected.
pub(crate) fn append<T: Value>(value: &T, out: &mut Vec<u8>) -> Result<(Encoding, Collected)> {
    let start = out.len();
    if form::of::<T>() == Encoding::Plain {
        let written = scope::collect(|| match plain::encode(value, out) {
            Ok(()) => Ok(true),
            Err(fault) if fault.is_not_plain() => Ok(false),
            Err(fault) => Err(cannot::<T>("encoded", &fault)),
        })?;
        if let (true, collected) = written {
            return Ok((Encoding::Plain, collected));
        }
        form::set_described::<T>();
        out.truncate(start);
    }
    let ((), collected) =
        scope::collect(|| described::encode(value, out).map_err(|fault| cannot::<T>("encoded", &fault)))?;
    Ok((Encoding::Described, collected))
}

/// The value at the beginning of `bytes`, and what follows it.
pub(crate) fn take<T: Value>(bytes: &[u8], encoding: Encoding) -> Result<(T, &[u8])> {
    let taken = match encoding {
        Encoding::Plain => plain::decode(bytes),
        Encoding::Described => described::decode(bytes),
    };
    taken.map_err(|fault| cannot::<T>("decoded", &fault))
}

fn take_all<T: Value>(bytes: &[u8], encoding: Encoding) -> Result<T> {
    match take(bytes, encoding)? {
        (value, []) => Ok(value),
        (_, rest) => Err(cannot::<T>("decoded", &format!("{} bytes are left over", rest.len()))),
    }
}

pub(crate) fn cannot<T: ?Sized>(action: &'static str, error: &dyn std::fmt::Display) -> Error {
    Error::Codec { type_name: type_name::<T>(), action, reason: error.to_string() }
}

/// The value in an object's bytes.
pub(crate) fn unpack<T: Value>(object: &Fetched) -> Result<T> {
    let broken = |reason: &str| cannot::<T>("decoded", &reason);
    if object.first() == Some(&TAG_ARRAY) {
        let array = Array::from_object(&Bytes::from_owner(object.clone()));
        let array = array.map_err(|error| cannot::<T>("decoded", &error))?;
        return give(|| array).ok_or_else(|| mismatch::<T>(type_name::<Array>().to_owned()));
    }
    if object.first() == Some(&TAG_PYTHON) {
        return Err(mismatch::<T>("a Python object (arrays and bytes are what both languages read)".to_owned()));
    }
    let header = object.first_chunk::<HEADER_BYTES>().ok_or_else(|| broken("the object has no header"))?;
    let (tag, start, print) = split(header);
    let foreign_bytes = tag == TAG_BYTES && print == 0 && is_raw::<T>();
    if !foreign_bytes && print != names::fingerprint::<T>() {
        let found = if print == 0 { "raw bytes of another language".to_owned() } else { names::name_of(print) };
        return Err(mismatch::<T>(found));
    }
    let payload = object.get(start..).ok_or_else(|| broken("the object is shorter than its header says"))?;
    match tag {
        TAG_PLAIN => take_all(payload, Encoding::Plain),
        TAG_DESCRIBED => take_all(payload, Encoding::Described),
        TAG_BYTES => {
            let view = || Bytes::from_owner(object.clone()).slice(start..);
            give(view).or_else(|| give(|| payload.to_vec())).ok_or_else(|| broken("it is not made of raw bytes"))
        }
        _ => Err(broken("the object's encoding is unknown")),
    }
}

/// Whether `T` is a type that raw bytes of any origin can be.
fn is_raw<T: 'static>() -> bool {
    let it = std::any::TypeId::of::<T>();
    it == std::any::TypeId::of::<Bytes>() || it == std::any::TypeId::of::<Vec<u8>>()
}

/// Tag, start of the payload, fingerprint.
fn split(header: &[u8; HEADER_BYTES]) -> (u8, usize, u64) {
    let [tag, _, _, _, a, b, c, d, print @ ..] = *header;
    (tag, u32::from_le_bytes([a, b, c, d]) as usize, u64::from_le_bytes(print))
}

fn mismatch<T>(found: String) -> Error {
    Error::TypeMismatch { expected: type_name::<T>().to_owned(), found }
}

/// What `make` makes, when that is a `T`.
fn give<T: 'static, M: 'static>(make: impl FnOnce() -> M) -> Option<T> {
    if std::any::TypeId::of::<T>() != std::any::TypeId::of::<M>() {
        return None;
    }
    let mut slot = Some(make());
    let any: &mut dyn Any = &mut slot;
    any.downcast_mut::<Option<T>>().and_then(Option::take)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod nasty;
