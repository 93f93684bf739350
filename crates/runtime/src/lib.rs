//! The shells: threads and processes that turn the world into events and effects into the world.
//!
//! Entry points: [`Runtime::start`] makes the user's program a driver with a node inside; `worker` is what the keeper
//! forks; `process` is the shell that both have around their owner and worker machines; `node` is the node's shell;
//! `keeper` is the parent of all workers. `daemon` is a node that is a process of its own, and `attach` how programs become
//! drivers of it; `settings` is what it is told, `local` what a user has running on a machine, `admin` what commands ask
//! a running node, `tokens` with what others come into its cluster. Nothing here decides: decisions are in `bireme-core`.

#![deny(unsafe_code)]

pub mod admin;
pub mod attach;
mod broadcast;
mod client;
pub mod clock;
pub mod cluster;
pub mod collective;
mod config;
pub mod daemon;
mod driver;
// A constructor that runs before `main` cannot be written without a linker section.
#[allow(unsafe_code)]
pub mod entry;
mod error;
pub mod fail_point;
mod fetched;
mod forked;
mod function;
mod groups;
mod heap;
mod hosted;
mod inputs;
pub mod keeper;
pub mod link;
pub mod local;
mod names;
mod node;
mod objects;
pub mod output;
mod process;
mod reduces;
mod reference;
pub mod settings;
mod streams;
mod thread;
mod ticket;
mod together;
pub mod tokens;
pub mod worker;

pub use attach::Program;
pub use bireme_core as core;
pub use bireme_net as net;
pub use bireme_store::{PrivateView, array};
pub use client::{ASKED_TOGETHER_MAX, Runtime, Submit, Target};
pub use config::{Config, OBJECT_STORE_BYTES_MIN};
pub use error::Error;
pub use fetched::{Fetched, Glance};
pub use forked::{check_forked, is_forked};
pub use function::{Encoded, Function, Identity, Interpreter, Invocation, Part, set_interpreter};
pub use groups::NewGroup;
pub use inventory;
pub use output::{Output, OutputLine, Stream, Throttle};
pub use process::{Interruptible, interruptible, set_cancel_hook, set_interrupt_check, set_wait_scope, wake_executors};
pub use reduces::NewReduce;
pub use reference::Ref;
pub use thread::is_runtime_thread;
pub use ticket::{Outcome, Ticket};
pub use together::Together;
