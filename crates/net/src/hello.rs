//! What each side of a connection says first: a hello, then a welcome or a refusal in words.
//!
//! On TLS this comes after the handshake, so nobody but the peer reads it. One frame each way, of at most
//! [`HELLO_BYTES_MAX`]; every text in it has a bound of its own. The frame's header has the wire version, which is
//! compared before the body is looked at: a refusal can be read by every version.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::frame::{FrameKind, WIRE_VERSION};
use crate::tls::Role;

#[cfg(test)]
mod tests;

/// The largest body of a frame before both sides know each other.
pub const HELLO_BYTES_MAX: usize = 4096;
/// The longest text in a hello or welcome: the build's version, a token.
pub const TEXT_BYTES_MAX: usize = 512;
/// The longest reason in a refusal; a longer one is cut.
pub const REASON_BYTES_MAX: usize = 1024;
/// Bytes of a ticket.
pub const TICKET_BYTES: usize = 32;
/// Bytes of a public key that is sent for a certificate.
pub const PUBLIC_KEY_BYTES: usize = 32;

/// The right to open one bulk stream. Whoever has the bytes has the right, so it is never printed.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket(pub [u8; TICKET_BYTES]);

impl fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Ticket(..)")
    }
}

/// What a connection is for.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Messages between two nodes.
    Control,
    /// Heartbeats and leases.
    Heart,
    /// Bytes of objects, by the right that a control link handed out.
    Bulk {
        /// The right.
        ticket: Ticket,
        /// Whether the bytes are encrypted; if not, they are authenticated all the same. Both ends have to want it so.
        encrypted: bool,
    },
    /// A certificate, for a token or for the certificate that the peer has shown.
    Enrol {
        /// The token's text; empty when the certificate of this connection is to be renewed.
        token: String,
        /// What the certificate is to be for.
        role: Role,
        /// The public half of the key that it is to be for.
        public_key: [u8; PUBLIC_KEY_BYTES],
    },
}

impl fmt::Debug for Purpose {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Purpose::Control => formatter.write_str("Control"),
            Purpose::Heart => formatter.write_str("Heart"),
            Purpose::Bulk { ticket, encrypted } => {
                formatter.debug_struct("Bulk").field("ticket", ticket).field("encrypted", encrypted).finish()
            }
            // The token is a secret and stays out of every log.
            Purpose::Enrol { role, .. } => formatter.debug_struct("Enrol").field("role", role).finish_non_exhaustive(),
        }
    }
}

/// The first word of the side that dialled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What it speaks: [`WIRE_VERSION`].
    pub wire_version: u16,
    /// The cluster that it belongs to; 0 when it has not been told yet.
    pub cluster: u128,
    /// What it wants.
    pub purpose: Purpose,
    /// The number of its node; 0 when it has none yet.
    pub node: u32,
    /// Which build it is, for people to read.
    pub build: String,
}

impl Hello {
    /// A hello of this build.
    pub fn new(cluster: u128, node: u32, purpose: Purpose) -> Self {
        Self { wire_version: WIRE_VERSION, cluster, purpose, node, build: build() }
    }
}

/// The answer: come in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The cluster of the side that answers.
    pub cluster: u128,
    /// The number of its node.
    pub node: u32,
    /// The epoch of its keys. Who wants to join the head and has another renews its certificate first.
    pub epoch: u64,
    /// Which build it is, for people to read.
    pub build: String,
}

impl Welcome {
    /// A welcome of this build.
    pub fn new(cluster: u128, node: u32) -> Self {
        Self { cluster, node, epoch: 0, build: build() }
    }
}

/// The answer to an enrolment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolled {
    /// The cluster that the certificate is for.
    pub cluster: u128,
    /// The certificate, DER.
    pub certificate: Vec<u8>,
    /// The certificate of the cluster's authority, DER.
    pub authority: Vec<u8>,
    /// Until when the certificate is good, in seconds since 1970.
    pub expires: u64,
    /// The epoch of the cluster's keys.
    pub epoch: u64,
    /// While the authority is being replaced.
    pub other: Option<OtherAuthority>,
}

/// The authority that replaces another, or is replaced by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherAuthority {
    /// Its certificate, DER.
    pub authority: Vec<u8>,
    /// By which each vouches for the other, DER: who trusts one can trust both.
    pub endorsements: [Vec<u8>; 2],
}

/// This build, as it calls itself.
pub fn build() -> String {
    format!("bireme {}", env!("CARGO_PKG_VERSION"))
}

/// Why bytes are no word of a greeting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// A frame of another kind came.
    #[error("a frame of kind {} where a greeting belongs: the peer is no node of bireme", found.0)]
    Kind {
        /// The kind that came.
        found: FrameKind,
    },
    /// The body cannot be read.
    #[error("a greeting that cannot be read: the peer is no node of bireme, or of another version")]
    Malformed,
    /// A text is longer than it may be.
    #[error("a greeting with a text of {found} bytes, of which at most {TEXT_BYTES_MAX} are taken")]
    TextTooLong {
        /// Its length.
        found: usize,
    },
    /// The hello is of another version than its frame.
    #[error(
        "the peer speaks wire version {theirs}, this side {WIRE_VERSION}: install the same version of bireme on both"
    )]
    Version {
        /// What it says.
        theirs: u16,
    },
}

/// One of the words that open a connection.
pub trait Greeting: Serialize + for<'de> Deserialize<'de> {
    /// The kind of its frame.
    const KIND: FrameKind;

    /// Whether everything in it is within its bounds.
    fn check(&self) -> Result<(), HelloError>;

    /// The body of its frame.
    fn encode(&self) -> Result<Vec<u8>, HelloError> {
        self.check()?;
        let body = postcard::to_allocvec(self).map_err(|_| HelloError::Malformed)?;
        if body.len() > HELLO_BYTES_MAX { Err(HelloError::Malformed) } else { Ok(body) }
    }

    /// Reads the body of a frame, all of it.
    fn decode(kind: FrameKind, body: &[u8]) -> Result<Self, HelloError> {
        if kind != Self::KIND {
            return Err(HelloError::Kind { found: kind });
        }
        if body.len() > HELLO_BYTES_MAX {
            return Err(HelloError::Malformed);
        }
        match postcard::take_from_bytes::<Self>(body) {
            Ok((greeting, [])) => greeting.check().map(|()| greeting),
            _ => Err(HelloError::Malformed),
        }
    }
}

fn check_text(text: &str) -> Result<(), HelloError> {
    if text.len() > TEXT_BYTES_MAX { Err(HelloError::TextTooLong { found: text.len() }) } else { Ok(()) }
}

impl Greeting for Hello {
    const KIND: FrameKind = FrameKind::HELLO;

    fn check(&self) -> Result<(), HelloError> {
        if self.wire_version != WIRE_VERSION {
            return Err(HelloError::Version { theirs: self.wire_version });
        }
        if let Purpose::Enrol { token, .. } = &self.purpose {
            check_text(token)?;
        }
        check_text(&self.build)
    }
}

impl Greeting for Welcome {
    const KIND: FrameKind = FrameKind::WELCOME;

    fn check(&self) -> Result<(), HelloError> {
        check_text(&self.build)
    }
}

impl Greeting for Enrolled {
    const KIND: FrameKind = FrameKind::ENROLLED;

    fn check(&self) -> Result<(), HelloError> {
        Ok(())
    }
}

/// The body of a refusal: its text, cut at a character when it is too long.
pub fn encode_reason(reason: &str) -> &[u8] {
    &reason.as_bytes()[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

/// The text of a refusal by a peer, without what could play tricks on a terminal or a log.
pub fn decode_reason(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(REASON_BYTES_MAX)]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
