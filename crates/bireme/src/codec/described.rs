//! The self-describing encoding: every value carries its kind, every field its name.
//!
//! For types that the plain encoding cannot carry: fields that are left out, `flatten`, sequences of unknown length, enums
//! that are recognised by their contents, values such as `serde_json::Value`. A format of our own because the usual ones
//! change values on the way: in CBOR, MessagePack and JSON `Some(None)` and `Some(())` become `None`.
//!
//! ```text
//! value    = kind (1 byte), then
//!   UNIT NONE FALSE TRUE   nothing
//!   UNSIGNED SIGNED        8 bytes; UNSIGNED_LONG SIGNED_LONG 16 bytes; FLOAT 4 bytes; DOUBLE 8 bytes; CHAR 4 bytes
//!   TEXT BYTES             u64 length, then the bytes
//!   SOME                   a value
//!   LIST                   u64 count, then so many values
//!   MAP                    u64 count, then so many pairs of values; a struct is a map with its field names as TEXT
//!   VARIANT                the name as TEXT without its kind, then a value: UNIT, the content, LIST or MAP
//! ```
//!
//! All numbers are little-endian.

mod read;
mod write;

pub(super) use read::decode;
pub(super) use write::encode;

const UNIT: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const UNSIGNED: u8 = 3;
const SIGNED: u8 = 4;
const UNSIGNED_LONG: u8 = 5;
const SIGNED_LONG: u8 = 6;
const FLOAT: u8 = 7;
const DOUBLE: u8 = 8;
const CHAR: u8 = 9;
const TEXT: u8 = 10;
const BYTES: u8 = 11;
const NONE: u8 = 12;
const SOME: u8 = 13;
const LIST: u8 = 14;
const MAP: u8 = 15;
const VARIANT: u8 = 16;
