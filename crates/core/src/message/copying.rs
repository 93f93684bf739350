//! What nodes say to each other about who sends a copy to whom.

use serde::{Deserialize, Serialize};

use crate::id::NodeId;
use crate::value::{Location, RefSpec};

/// A node wants a copy of something, and asks the owner's node who is to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyWish {
    /// What, and who owns it.
    pub object: RefSpec,
    /// The place that the owner knows, as far as the asker has heard.
    pub of: Location,
    /// The asker's number for it. The answer has the same, so that one to an earlier question is not taken for it.
    pub number: u64,
    /// Who was to send it and does not.
    pub lost: Option<LostSender>,
}

/// A sender of which its receiver gets nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostSender {
    /// Which node.
    pub node: NodeId,
    /// It says that it does not have it, or cannot be reached from there at all: it is no use to ask it again. Otherwise
    /// the connection broke, and it may be dead.
    pub is_useless: bool,
}

/// Who sends a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySource {
    /// Which node.
    pub node: NodeId,
    /// Where it lies there when it is complete. Otherwise it is still arriving there, and has this name: the place that its
    /// owner knew when that node asked for it.
    pub at: Location,
    /// All of it is there.
    pub is_complete: bool,
}
