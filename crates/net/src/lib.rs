//! The message fabric of one machine: rings, doorbells and waiting.
//!
//! Every process of one machine (driver, node, workers, keeper) maps the same
//! [`Fabric`], one sparse `memfd`. It holds
//!
//! * one doorbell per process: which of its connections have something to
//!   read, and which of its threads, if any, sleeps for it;
//! * rings: single-producer single-consumer byte queues, one per direction and
//!   pair of processes;
//! * a counter of the threads that occupy a core, for deciding when to spin.
//!
//! A message costs no system call unless its receiver sleeps. A process that is
//! killed at any instruction leaves at most an unpublished frame behind: it
//! blocks nobody, and its peers read everything that it had published.
//!
//! This crate moves bytes. It knows no task, and it does not decide who talks
//! to whom: the node allocates rings and slots and hands their numbers around.
//!
//! Trust: all processes belong to one user. A *buggy* peer is met with checks
//! (every word read from shared memory is validated, and a corrupt ring is a
//! typed error); a *hostile* one, which changes a frame while it is being read,
//! is out of scope. Who wants to be safe from that too copies the frame first
//! ([`Consumer::pop_into`]).

mod doorbell;
mod ring;
mod sync;

#[cfg(not(loom))]
mod fabric;
#[cfg(not(loom))]
mod load;
#[cfg(not(loom))]
mod space;
#[cfg(not(loom))]
mod spin;

pub use doorbell::words::{CONNECTIONS_MAX, Connection, Sleeper, Woken};
pub use ring::consumer::Consumer;
pub use ring::producer::{Producer, PushError};
pub use ring::{Corrupt, Corruption};

#[cfg(not(loom))]
pub use doorbell::{Bell, Doorbell};
#[cfg(not(loom))]
pub use fabric::{AttachError, End, Fabric, FabricError, PROCESSES_MAX, SlotId};
#[cfg(not(loom))]
pub use load::RunningGuard;
#[cfg(not(loom))]
pub use space::{RING_CAPACITY_MAX, RING_CAPACITY_MIN, RING_REGION_BYTES, RingSpace, RingSpan, SlotSpace, SpaceError};
#[cfg(not(loom))]
pub use spin::{SPIN_MAX, SpinMode, SpinOutcome, SpinPolicy};
