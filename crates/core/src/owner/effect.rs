//! The effects of an owner, which the shell carries out in order.

use crate::flow::Op;
use crate::id::{ObjectId, ProcessId};
use crate::message::{Peer, ToNode};
use crate::record::Record;
use crate::shared::Shared;

/// An action that an owner asks its shell for, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write this into the ledger ring.
    Record(Record),
    /// Say this to a peer; the shell opens a link when there is none.
    Send {
        /// The receiving process.
        to: ProcessId,
        /// The message.
        message: Peer,
    },
    /// Say this to the node.
    Node(ToNode),
    /// This object, which someone waits for, has a value.
    Ready(ObjectId),
    /// Combine these small arrays in this order; [`Event::Combined`](super::Event::Combined) follows.
    Combine {
        /// The result.
        target: ObjectId,
        /// The operation.
        op: Op,
        /// The inputs by number, and their bytes.
        inputs: Vec<(u32, ObjectId, Shared)>,
    },
}
