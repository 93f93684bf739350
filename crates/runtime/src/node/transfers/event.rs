//! What the node is told about its transfers, and why they fail.

use bireme_core::id::{NodeId, ObjectId, ProcessId};
use bireme_core::message::RequestId;
use bireme_core::value::Location;
use bireme_net::bulk::{Break, ReceiveError, TurnsFull};

/// A process's question that is answered when its object is here.
pub(crate) type Waiter = (ProcessId, RequestId);

/// Why there is no copy here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TransferError {
    /// The connection or the sender's own source broke. What has come is kept: fetch the rest elsewhere, or there again.
    #[error("the transfer from {from} broke after {watermark} bytes: {why}")]
    Interrupted {
        /// Who was sending.
        from: NodeId,
        /// How many bytes are here.
        watermark: u64,
        /// What happened.
        why: String,
    },
    /// The sender was silent for too long. As above.
    #[error("the transfer from {from} came to a halt after {watermark} bytes: {why}")]
    TimedOut {
        /// Who should have sent.
        from: NodeId,
        /// How many bytes are here.
        watermark: u64,
        /// What was waited for.
        why: String,
    },
    /// The sender does not have the object.
    #[error("{from} does not have the object: {why}")]
    Gone {
        /// Who was asked.
        from: NodeId,
        /// What it says.
        why: String,
    },
    /// This node's store has no room for it.
    #[error("no room for a copy here: {0}")]
    NoRoom(String),
    /// Too many transfers wait.
    #[error(transparent)]
    TooMany(#[from] TurnsFull),
    /// Nobody wants it any more.
    #[error("the transfer was cancelled")]
    Cancelled,
}

impl TransferError {
    pub(super) fn of(error: ReceiveError, from: NodeId, watermark: u64) -> Self {
        match error {
            ReceiveError::Gone { reason: why } => Self::Gone { from, why },
            ReceiveError::Ended { reason: why, .. } => Self::Interrupted { from, watermark, why },
            ReceiveError::Broken { why: Break::NoPlace(why), .. } => Self::NoRoom(why),
            ReceiveError::Broken { why: why @ Break::Silent { .. }, .. } => {
                Self::TimedOut { from, watermark, why: why.to_string() }
            }
            ReceiveError::Broken { why: Break::Stopped, .. } => {
                Self::Interrupted { from, watermark, why: "that node is dead, or this one stops".into() }
            }
            ReceiveError::Broken { why, .. } => Self::Interrupted { from, watermark, why: why.to_string() },
        }
    }
}

/// What the node is told about its transfers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TransferEvent {
    /// An object begins to arrive; what is there can be sent on from this place.
    Started {
        /// Which.
        object: ObjectId,
        /// Where, on this node.
        at: Location,
    },
    /// A fetch has ended. On an error, other sources can be tried.
    Ended {
        /// Which.
        object: ObjectId,
        /// Who waited for it.
        waiters: Vec<Waiter>,
        /// Where the copy is, on this node, or why there is none.
        result: Result<Location, TransferError>,
    },
    /// A copy is here no more (nor a part of one that had `Started`).
    Dropped {
        /// Which.
        object: ObjectId,
        /// Where it was.
        at: Location,
    },
}
