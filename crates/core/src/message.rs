//! What processes say to each other.
//!
//! Four conversations: a process to its node ([`ToNode`], in the same ring as its ledger records, so that a request can
//! never overtake the record before it), the node to a process ([`FromNode`]), a process to another ([`Peer`]), and a node to
//! another ([`Between`]). Runs
//! and replies are coded by hand, everything else is postcard.

mod access;
mod between;
mod copying;
mod from_node;
mod peer;
mod skim;
mod to_node;

use serde::{Deserialize, Serialize};

use crate::codec::{Malformed, Reader, Write};
use crate::value::Value;

pub use access::{Access, Denied, Role, Speaker};
pub use between::Between;
pub use copying::{CopySource, CopyWish, LostSender};
pub use from_node::{Adoption, FromNode};
pub use peer::{Peer, PeerKind};
pub use skim::longest_value;
pub use to_node::{INPUTS_PER_MESSAGE, NodeBound, ReduceInput, ToNode};

/// Number of a question, so that its answer finds the asker. Unique within the asking process.
pub type RequestId = u64;

/// First byte of what is not coded by hand; between nodes the last one.
const CONTROL: u8 = 0;

fn encode_control<T: Serialize>(message: &T, out: &mut impl Write) {
    out.u8(CONTROL);
    encode_plain(message, out);
}

fn encode_plain<T: Serialize>(message: &T, out: &mut impl Write) {
    let bytes = postcard::to_allocvec(message).expect("a control message is plain data and always encodes");
    out.raw(&bytes);
}

fn decode_control<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(|_| Malformed::Unknown("control message"))?;
    if rest.is_empty() { Ok(message) } else { Err(Malformed::Trailing) }
}

/// Appends a list of values.
pub fn encode_values(values: &[Value], out: &mut impl Write) {
    out.u32(values.len() as u32);
    for value in values {
        value.encode(out);
    }
}

/// Takes a list of values.
pub fn decode_values(from: &mut Reader<'_>) -> Result<Vec<Value>, Malformed> {
    let n = from.count(9)?;
    (0..n).map(|_| Value::decode(from)).collect()
}
