//! The plain encoding: postcard, and behind it the shape of what was written ([`super::shape`]).
//!
//! Small and fast, with neither kinds nor names, so it carries only values whose reader asks for exactly what was written.
//! What it cannot carry is a fault that says so: the caller takes the self-describing encoding instead. What turns out to be
//! different at the reader's side is an error.

mod read;
mod write;

pub(super) use read::decode;
pub(super) use write::encode;
