//! The atomics of the shared table, swapped for loom's under `--cfg loom`.
//!
//! Only the words that several processes race on go through this shim (`table::Entry` and the pin words), so that the
//! protocol functions in `pin` are the same code in production and in the models. Under loom the mapped table itself
//! must not be used: loom's atomics have another layout.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
