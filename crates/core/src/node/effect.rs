//! The effects of a node's machine, which the shell carries out in order.

use crate::controller::ToController;
use crate::flow::{StageId, StageSpec};
use crate::id::{JobId, NodeId, ProcessId};
use crate::message::{Between, CopySource, FromNode, ToNode};
use crate::value::{Location, RefSpec};

/// An action that a node asks its shell for.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start a worker process in this slot, of the job that [`Node::job_of`](super::Node::job_of) tells.
    Spawn(ProcessId),
    /// End this worker at once, or the connection of this driver; its death follows.
    Kill(ProcessId),
    /// Every process that had to end with this job is gone; only those of detached actors may be left.
    EndJob(JobId),
    /// Nothing of this job is left, and nothing will come.
    CloseJob(JobId),
    /// Tell a process something.
    Send {
        /// The receiving process.
        to: ProcessId,
        /// The message.
        message: FromNode,
    },
    /// Make sure that two different processes have rings to each other, and tell both before anything that follows.
    OpenLink {
        /// One.
        a: ProcessId,
        /// The other.
        b: ProcessId,
    },
    /// Everybody has let go of this dead process: free its links, slot, pins and unsealed objects.
    CloseProcess(ProcessId),
    /// Nobody can ask for this object any more.
    FreeStored(Location),
    /// Tell another node something.
    Tell {
        /// The receiving node.
        node: NodeId,
        /// The message.
        message: Between,
    },
    /// Tell the controller something.
    AskController(ToController),
    /// Keep an extra copy in the store until it is freed.
    Promote(Location),
    /// Make a copy of an object on another node; [`Event::Copied`](super::Event::Copied) or
    /// [`Event::NotBrought`](super::Event::NotBrought) follows.
    Bring {
        /// The object and its owner.
        object: RefSpec,
        /// Its place there.
        at: Location,
    },
    /// Memory is short: move so many bytes of objects that nobody uses to disk, and give the memory back.
    SpillSome {
        /// Number of bytes.
        bytes: u64,
    },
    /// The answer to [`Event::CopyWanted`](super::Event::CopyWanted): the sender of a copy, or the reason why there is
    /// none. Also sent when the copy is freed during the fetch.
    FetchFrom {
        /// The store's number for it.
        number: u64,
        /// The sender, or the reason.
        from: Result<CopySource, String>,
    },
    /// The store's business.
    Store {
        /// The process that asked.
        process: ProcessId,
        /// Its request.
        request: ToNode,
    },
    /// Do this node's part of a reduce or of a group's call; [`Event::StageDone`](super::Event::StageDone) or
    /// [`Event::StageFailed`](super::Event::StageFailed) follows.
    RunStage(StageSpec),
    /// There is more of the inputs of a stage, which the process that wants it is writing.
    GrowStage(StageId),
    /// Nobody wants a stage any more: it and what it offers end for this reason, and no event follows.
    EndStage {
        /// The stage.
        id: StageId,
        /// The reason, for people.
        reason: String,
    },
}
