//! Shared-memory objects on one machine.
//!
//! One [`Arena`] (a sealed memfd) holds the bytes of all objects; one [`Table`] (a second memfd) holds the state word
//! of each object and, for each process, a row of pin counts. The node owns a [`Store`]: it alone allocates, frees,
//! spills and restores, and what it decides by lives in its private memory, never in the shared mappings. Every other
//! process has a [`StoreClient`]: it writes an object once through [`Unsealed`], hands the [`Sealed`] descriptor
//! around as 24 bytes, and reads through [`Pinned`], a view of the read-only mapping.
//!
//! Invariants:
//! - `OBJ-1` bytes below an object's watermark never change until the object is retired;
//! - `OBJ-2` an object's range is given to another object only after no live process holds a pin on it;
//! - `OBJ-3` the death of a process at any instruction leaks nothing once the node has called
//!   [`Store::release_process`];
//! - `OBJ-4` a descriptor from another process is checked against table and arena before a byte is touched.
//!
//! The crate knows nothing of tasks, nodes or the network.

mod alloc;
mod arena;
pub mod array;
mod client;
mod copy;
mod mapping;
mod object;
mod pin;
mod server;
mod spill;
mod sync;
mod table;

pub use alloc::{Allocation, Allocator};
pub use arena::{Arena, ArenaError, OVERFLOW_FACTOR_MAX, POPULATE_STEP_BYTES};
pub use client::{PinError, StoreClient, WriteError};
pub use object::{
    Area, AreaError, AreaWrite, Growing, LOCATION_BYTES, Location, LocationError, Pinned, PrivateView, Sealed,
    Unsealed, UnsealedLocation,
};
pub use pin::{disown_pins, own_pins};
pub use server::{DropError, FreeOutcome, Stats, Store, StoreError};
pub use spill::{
    OVERFLOW_BYTES_MAX, RestoreDone, RestoreError, RestoreJob, SpillDone, SpillError, SpillJob, SpillOptions,
    SpillTicket,
};
pub use table::{EntryState, OBJECTS_MAX, PROCESSES_MAX, ProcessSlot, Table};
