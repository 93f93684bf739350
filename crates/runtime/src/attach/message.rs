//! What a driver and its node say to each other over the socket: one packet each.
//!
//! The first packet of a driver begins with [`MAGIC`] and the wire version, which are compared before anything else is
//! looked at; the answer is a byte and text, so every version can read a refusal.

use bireme_core::id::{JobId, NodeId, ProcessId};
use bireme_net::frame::WIRE_VERSION;
use serde::{Deserialize, Serialize};

use crate::output::Stream;

/// Longest first packet of a driver.
pub const HELLO_BYTES_MAX: usize = 128 << 10;
/// Longest packet after that, either way.
pub const PACKET_BYTES_MAX: usize = 32 << 10;
/// Begins every first packet.
pub(crate) const MAGIC: [u8; 6] = *b"bireme";

const REFUSED: u8 = 0;
const WELCOME: u8 = 1;

/// What the workers of a job are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// The driver's own executable.
    Rust {
        /// What it was compiled for, such as `x86_64`.
        target: String,
        /// Variables for it.
        environment: Vec<(String, String)>,
    },
    /// An interpreter of the node that runs this.
    Python {
        /// The driver's version, such as `3.12`.
        python: String,
        /// The driver's version of cloudpickle.
        cloudpickle: String,
        /// The driver's interpreter.
        executable: String,
        /// What makes an interpreter a zygote of this program.
        arguments: Vec<String>,
        /// What makes an interpreter print its own version and that of cloudpickle, a line each.
        probe: Vec<String>,
        /// Variables for both.
        environment: Vec<(String, String)>,
    },
}

/// What a driver says first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The version of the package, for people.
    pub(crate) build: String,
    pub(crate) program: Program,
    /// Whether it wants what its workers print.
    pub(crate) lines: bool,
    /// For its workers: the cancel grace in microseconds shifted left by one; the lowest bit says whether to spin.
    pub(crate) settings: u64,
}

/// What the node answers, beside the descriptors of fabric, arena, table, overflow file and, if it has one, its bell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// Who the driver is.
    pub(crate) me: ProcessId,
    pub(crate) job: JobId,
    /// Where its rings begin.
    pub(crate) to_node: u64,
    pub(crate) from_node: u64,
}

/// From the node to an attached driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToDriver {
    /// Lines that a worker wrote.
    Lines {
        /// The worker's process id.
        pid: u32,
        /// What it said that it runs.
        name: String,
        /// Where it wrote them.
        stream: Stream,
        /// Its node, when that is not the driver's.
        node: Option<NodeId>,
        /// One line or more, with newlines between them.
        text: String,
    },
    /// Lines that did not fit.
    LinesDropped(u64),
    /// The connection ends: the driver has left and nothing of it is here, or why the node ends it.
    Over(String),
}

/// From an attached driver to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromDriver {
    /// It uses nothing of the node any more.
    Detach,
}

/// Why a first packet was not a hello.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadHello {
    #[error("the peer is no driver of bireme")]
    Stranger,
    #[error(
        "the program speaks wire version {0}, this node {WIRE_VERSION}: install the same version of bireme for both"
    )]
    Version(u16),
    #[error("the program's first words cannot be read: {0}")]
    Malformed(String),
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut packet = MAGIC.to_vec();
        packet.extend(WIRE_VERSION.to_le_bytes());
        packet.extend(encode(self));
        packet
    }

    pub(crate) fn decode(packet: &[u8]) -> Result<Self, BadHello> {
        let rest = packet.strip_prefix(&MAGIC).ok_or(BadHello::Stranger)?;
        let (version, body) = rest.split_first_chunk().ok_or(BadHello::Stranger)?;
        match u16::from_le_bytes(*version) {
            WIRE_VERSION => decode(body).map_err(BadHello::Malformed),
            other => Err(BadHello::Version(other)),
        }
    }
}

/// The node's answer as a packet.
pub(crate) fn encode_answer(answer: &Result<Welcome, String>) -> Vec<u8> {
    match answer {
        Ok(welcome) => [vec![WELCOME], encode(welcome)].concat(),
        Err(reason) => [&[REFUSED], reason.as_bytes()].concat(),
    }
}

/// The answer in a packet: the outer error says what is wrong with it, the inner one why the node refuses.
pub(crate) fn decode_answer(packet: &[u8]) -> Result<Result<Welcome, String>, String> {
    match packet.split_first() {
        Some((&WELCOME, body)) => decode(body).map(Ok),
        Some((&REFUSED, reason)) => Ok(Err(String::from_utf8_lossy(reason).into_owned())),
        _ => Err("the node answered something else".to_owned()),
    }
}

/// A message as a packet.
pub(crate) fn encode<M: Serialize>(message: &M) -> Vec<u8> {
    postcard::to_allocvec(message).expect("plain data always encodes")
}

/// The message in a packet, which it fills.
pub(crate) fn decode<'a, M: Deserialize<'a>>(packet: &'a [u8]) -> Result<M, String> {
    match postcard::take_from_bytes(packet) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}
