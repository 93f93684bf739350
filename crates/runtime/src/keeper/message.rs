//! What the node and its keeper say to each other.
//!
//! One message is one packet of a Unix `SEQPACKET` socket, in postcard. Commands go down, reports come up. Both ends are
//! the same executable, so there is one version ([`PROTOCOL_VERSION`]), checked when the keeper starts. A packet is at
//! most [`MESSAGE_BYTES_MAX`] long and must be used up by its message; anything else is a [`MessageError`], never a panic.

use crate::output::Stream;
use bireme_core::time::Tick;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Version of the messages and of the environment variable that starts a keeper.
pub const PROTOCOL_VERSION: u32 = 3;

/// Longest message either way. A report with the largest possible stderr tail fits: every byte of the tail can
/// become a three-byte replacement character.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Numbers from the node to one worker, such as the places of its rings.
pub type Words = [u64; 5];

/// From the node to the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Fork a worker into a free slot. Answered by `Spawned` or `SpawnFailed`.
    Spawn {
        /// Place of the worker in the node's pool.
        slot: u32,
        /// Which worker of that slot this is.
        incarnation: u32,
        /// For the worker itself; the keeper only passes them on.
        words: Words,
    },
    /// Send a signal to the worker in a slot; nothing happens when the slot is empty.
    Signal {
        /// Place of the worker in the node's pool.
        slot: u32,
        /// Signal number.
        signal: i32,
    },
    /// The node may have workers until this time of the machine's clock, or until the next such command says: a node that
    /// is stopped cannot end them itself. When the time has come, the same as for `Shutdown`.
    LiveUntil(Tick),
    /// End every descendant, then the keeper. No report follows.
    Shutdown,
}

/// From the keeper to the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// A worker process exists.
    Spawned {
        /// Place of the worker in the node's pool.
        slot: u32,
        /// Which worker of that slot this is.
        incarnation: u32,
        /// Its process id.
        pid: i32,
    },
    /// No worker process was made.
    SpawnFailed {
        /// Place of the worker in the node's pool.
        slot: u32,
        /// Which worker of that slot was asked for.
        incarnation: u32,
        /// Why, for people.
        reason: String,
    },
    /// Lines that a worker wrote, while the driver wants lines.
    Output {
        /// Place of the worker in the node's pool.
        slot: u32,
        /// Its process id.
        pid: i32,
        /// Where it wrote them.
        stream: Stream,
        /// What it said that it runs.
        name: String,
        /// One line or more, with newlines between them.
        text: String,
    },
    /// Lines that did not fit on their way to the node.
    OutputDropped {
        /// How many.
        lines: u64,
    },
    /// A worker process has ended and its slot is free.
    Exited(WorkerExit),
}

/// How a worker ended, with what is known about why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerExit {
    /// Place of the worker in the node's pool.
    pub slot: u32,
    /// Which worker of that slot it was.
    pub incarnation: u32,
    /// Its process id.
    pub pid: i32,
    /// Exit code or signal.
    pub status: ExitKind,
    /// The kernel wrote a core file.
    pub core_dumped: bool,
    /// Killed by the kernel for want of memory; see `keeper::memory` for how sure this is.
    pub out_of_memory: bool,
    /// The last lines of its standard error.
    pub stderr_tail: String,
    /// The most memory that it had at one time.
    pub memory_peak_bytes: u64,
}

/// The two ways in which a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitKind {
    /// It exited with this code.
    Exit(i32),
    /// This signal ended it.
    Signal(i32),
}

impl fmt::Display for ExitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitKind::Exit(code) => write!(f, "exited with code {code}"),
            ExitKind::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
        }
    }
}

impl fmt::Display for WorkerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}.{} (pid {}) {}", self.slot, self.incarnation, self.pid, self.status)?;
        if self.out_of_memory {
            write!(f, ", out of memory")?;
        }
        if self.core_dumped {
            write!(f, ", core dumped")?;
        }
        Ok(())
    }
}

/// Names of the signals that end a worker in practice.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

/// A packet that is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Longer than any message.
    #[error("a keeper message of {0} bytes exceeds the limit of {MESSAGE_BYTES_MAX}")]
    TooLong(usize),
    /// Not a message, or a message with bytes left over.
    #[error("a keeper message of {length} bytes cannot be read: {reason}")]
    Malformed {
        /// Length of the packet.
        length: usize,
        /// What the decoder said.
        reason: String,
    },
}

/// Writes a message.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, MessageError> {
    let bytes = postcard::to_allocvec(message)
        .map_err(|error| MessageError::Malformed { length: 0, reason: error.to_string() })?;
    match bytes.len() {
        length if length > MESSAGE_BYTES_MAX => Err(MessageError::TooLong(length)),
        _ => Ok(bytes),
    }
}

/// Reads a [`Command`] or a [`Report`] from one packet.
pub fn decode<M: DeserializeOwned>(packet: &[u8]) -> Result<M, MessageError> {
    let length = packet.len();
    if length > MESSAGE_BYTES_MAX {
        return Err(MessageError::TooLong(length));
    }
    match postcard::take_from_bytes(packet) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(MessageError::Malformed { length, reason: format!("{} bytes are left over", rest.len()) }),
        Err(error) => Err(MessageError::Malformed { length, reason: error.to_string() }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_round_trip_and_bad_bytes_are_typed_errors() {
        let exit = Report::Exited(WorkerExit {
            slot: 3,
            incarnation: 9,
            pid: 77,
            status: ExitKind::Signal(libc::SIGKILL),
            core_dumped: false,
            out_of_memory: true,
            stderr_tail: "one\ntwo".to_owned(),
            memory_peak_bytes: 1 << 20,
        });
        let mut bytes = encode(&exit).unwrap();
        assert_eq!(decode::<Report>(&bytes).unwrap(), exit);
        for cut in 0..bytes.len() {
            assert!(decode::<Report>(&bytes[..cut]).is_err());
        }
        bytes.push(0);
        assert!(matches!(decode::<Report>(&bytes), Err(MessageError::Malformed { .. })));
        assert_eq!(
            decode::<Command>(&vec![0; MESSAGE_BYTES_MAX + 1]),
            Err(MessageError::TooLong(MESSAGE_BYTES_MAX + 1))
        );
        let Report::Exited(exit) = exit else { unreachable!() };
        assert_eq!(exit.to_string(), "worker 3.9 (pid 77) was killed by signal 9 (SIGKILL), out of memory");
    }
}
