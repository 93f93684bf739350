//! What the node is told about its transfers, and why they fail.

use bireme_core::id::{NodeId, ProcessId};
use bireme_core::message::{LostSender, RequestId};
use bireme_core::value::{Location, RefSpec};
use bireme_net::bulk::{Break, ReceiveError};

/// A process's question that is answered when its object is here.
pub(crate) type Waiter = (ProcessId, RequestId);

/// Why there is no copy here, or no more of it from one sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TransferError {
    /// The connection broke. What has come is kept: the rest may be had elsewhere, or there again.
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
    /// The sender was getting it itself, and gave up. What has come is kept: the rest may be had elsewhere.
    #[error("{from} has no more than the first {watermark} bytes: {why}")]
    Ended {
        /// Who was sending.
        from: NodeId,
        /// How many bytes are here.
        watermark: u64,
        /// What it says.
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
    #[error("{0} transfers are under way already, which is the limit: ask again when some have ended")]
    TooMany(usize),
    /// Nobody can send it.
    #[error("{why}{}", last.as_ref().map_or(String::new(), |last| format!(" ({last})")))]
    Nowhere {
        /// What the owner's node says.
        why: String,
        /// How the last sender was lost.
        last: Option<Box<TransferError>>,
    },
}

impl TransferError {
    pub(super) fn of(error: ReceiveError, from: NodeId, watermark: u64) -> Self {
        match error {
            ReceiveError::Gone { reason: why } => Self::Gone { from, why },
            ReceiveError::Ended { reason: why, .. } => Self::Ended { from, watermark, why },
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

    /// The sender that was lost, when another one may have it.
    pub(super) fn lost(&self) -> Option<LostSender> {
        match self {
            Self::Interrupted { from, .. } | Self::TimedOut { from, .. } => {
                Some(LostSender { node: *from, is_useless: false })
            }
            Self::Ended { from, .. } | Self::Gone { from, .. } => Some(LostSender { node: *from, is_useless: true }),
            Self::NoRoom(_) | Self::TooMany(_) | Self::Nowhere { .. } => None,
        }
    }
}

/// What the node is told about its transfers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TransferEvent {
    /// Who sends this? [`Transfers::assigned`](super::Transfers::assigned) answers.
    Wanted {
        /// Its number here.
        number: u64,
        /// What, and who owns it.
        object: RefSpec,
        /// The place that the owner knows.
        of: Location,
        /// Who was to send it and does not.
        lost: Option<LostSender>,
    },
    /// A fetch has ended.
    Ended {
        /// What, and who owns it.
        object: RefSpec,
        /// The place that the owner knows.
        of: Location,
        /// Who waited for it.
        waiters: Vec<Waiter>,
        /// Where the copy is, on this node, or why there is none.
        result: Result<Location, TransferError>,
    },
    /// A copy is here no more.
    Dropped {
        /// What, and who owns it.
        object: RefSpec,
        /// The place that the owner knows.
        of: Location,
    },
}
