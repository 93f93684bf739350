//! Bytes between processes: the message fabric of one machine, the locked door between machines, and
//! the links between nodes.
//!
//! # Between machines
//!
//! [`door`] is the one TCP port of a node: TLS with the cluster's own authority ([`tls`]), tokens for newcomers
//! ([`token`]), a greeting ([`hello`]), and then a [`wire`] that carries [`frame`]s. Peers are hostile until they have
//! shown a certificate.
//!
//! # On one machine
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
//! Between nodes there are wires ([`wire`]), frames on them ([`frame`]), the control link of each pair
//! ([`link`]) and heartbeats on a connection of their own ([`heart`]). The node's thread sleeps for its
//! sockets and its doorbell at once, in a [`Poller`].
//!
//! This crate moves bytes. It knows no task, and it does not decide who talks
//! to whom: the node allocates rings and slots and hands their numbers around.
//!
//! Trust: all processes of a machine belong to one user. A *buggy* peer is met with checks
//! (every word read from shared memory is validated, and a corrupt ring is a
//! typed error); a *hostile* one, which changes a frame while it is being read,
//! is out of scope. Who wants to be safe from that too copies the frame first
//! ([`Consumer::pop_into`]).

mod doorbell;
mod ring;
mod sync;

#[cfg(not(loom))]
pub mod bulk;
#[cfg(not(loom))]
pub mod door;
#[cfg(not(loom))]
mod fabric;
#[cfg(not(loom))]
pub mod frame;
#[cfg(not(loom))]
pub mod heart;
#[cfg(not(loom))]
pub mod hello;
#[cfg(not(loom))]
pub mod link;
#[cfg(not(loom))]
mod load;
#[cfg(not(loom))]
mod poller;
#[cfg(not(loom))]
pub mod secret;
#[cfg(not(loom))]
mod space;
#[cfg(not(loom))]
mod spin;
#[cfg(not(loom))]
pub mod tls;
#[cfg(not(loom))]
pub mod token;
#[cfg(not(loom))]
pub mod wire;

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
pub use poller::{Interest, Poller, PollerError, Ready};
#[cfg(not(loom))]
pub use space::{RING_CAPACITY_MAX, RING_CAPACITY_MIN, RING_REGION_BYTES, RingSpace, RingSpan, SlotSpace, SpaceError};
#[cfg(not(loom))]
pub use spin::{SPIN_MAX, SpinMode, SpinOutcome, SpinPolicy};
