//! The events that the shell feeds to a node's machine, in the order in which they happened.

use crate::controller::FromController;
use crate::failure::Death;
use crate::flow::StageId;
use crate::id::{JobId, NodeId, ProcessId};
use crate::message::{Between, CopyWish, ToNode};
use crate::record::Record;
use crate::resources::Resources;
use crate::shared::Shared;
use crate::value::{Location, RefSpec};
use crate::waits::MemoryWait;

/// An event that a node reacts to.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The node runs.
    Started,
    /// A process asked for something.
    Requested {
        /// The process that asks.
        process: ProcessId,
        /// Its request.
        request: ToNode,
    },
    /// A process recorded something.
    Recorded {
        /// The process that writes the record.
        process: ProcessId,
        /// The record.
        record: Record,
    },
    /// The keeper started a worker.
    WorkerSpawned {
        /// The worker.
        process: ProcessId,
        /// Its system process id.
        pid: u32,
    },
    /// A worker is gone and its rings are drained, or it could not be started.
    WorkerExited(Death),
    /// A driver has mapped everything, under the name that [`Node::next_driver`](super::Node::next_driver) gave: a job
    /// begins.
    DriverAttached {
        /// The driver.
        process: ProcessId,
        /// Its system process id.
        pid: u32,
        /// Its job.
        job: JobId,
    },
    /// A driver is gone and its rings are drained: its job ends.
    DriverGone(Death),
    /// The messages or records of this process cannot be decoded.
    ProcessCorrupt {
        /// The process.
        process: ProcessId,
        /// The error, for people.
        reason: String,
    },
    /// The shell has drained all rings once, completely.
    Passed,
    /// The shell has drained all rings but those of processes that wait for another node (`core::throttle`): what is in
    /// those may be older than anything that was read.
    PassedInPart,
    /// Time went by; due at [`Node::deadline`](super::Node::deadline).
    Ticked,
    /// A process of this node has a message for a process of another, as `Peer` encodes it.
    Relay {
        /// The sending process.
        process: ProcessId,
        /// The receiving process.
        to: ProcessId,
        /// The encoded message.
        bytes: Shared,
    },
    /// Another node said something.
    Heard {
        /// The sending node.
        from: NodeId,
        /// Its message.
        message: Between,
    },
    /// There is another node.
    NodeJoined {
        /// The new node.
        node: NodeId,
        /// All that it can grant.
        total: Resources,
    },
    /// A node was declared dead, or left.
    NodeDied {
        /// The dead node.
        node: NodeId,
        /// The reason, for people.
        reason: String,
    },
    /// A node is being drained: nothing new goes there.
    NodeDraining {
        /// The node.
        node: NodeId,
    },
    /// This node is to leave the cluster when nothing is on it any more ([`Node::is_drained`](super::Node::is_drained)).
    Drain,
    /// This node ends: every worker is asked to end, and nothing more is started.
    Stop,
    /// The loads of all nodes.
    Loads(Vec<crate::schedule::Row>),
    /// This node's store could not make the copy that [`Effect::Bring`](super::Effect::Bring) asked for.
    NotBrought {
        /// The place of the object that was asked for.
        of: Location,
    },
    /// The controller said something about placement groups.
    Controller(FromController),
    /// This node's store has made a copy of another's object, or dropped one.
    Copied {
        /// The object and its owner.
        object: RefSpec,
        /// The place that the owner knows.
        of: Location,
        /// The copy; none when it was dropped.
        at: Option<Location>,
    },
    /// Bytes have come from other nodes: of an object, or of a stage's streams.
    Fetched {
        /// Number of bytes.
        bytes: u64,
        /// Time that they took, without the wait for the first.
        took_us: u64,
        /// Free bytes of the arena.
        arena_free_bytes: u64,
    },
    /// The memory in use, as long as it is near the limit, and once more when it no longer is.
    Memory {
        /// Bytes in use.
        used_bytes: u64,
        /// Bytes that there are.
        limit_bytes: u64,
        /// Private bytes of each worker.
        workers: Vec<(ProcessId, u64)>,
    },
    /// The processes that wait for memory of this node's store, told before a question that needs it.
    MemoryAwaited(Vec<MemoryWait>),
    /// The outputs of a stage have their places and begin to grow; others may fetch them while they do.
    StagePlaced {
        /// The stage.
        id: StageId,
        /// The places, in the order of its areas.
        at: Vec<Location>,
    },
    /// The outputs of a stage are complete; one without any has been taken by those whom it was for.
    StageDone {
        /// The stage.
        id: StageId,
        /// The places, in the order of its areas.
        at: Vec<Location>,
    },
    /// A stage is over without an output. Those downstream of it hear the reason by themselves.
    StageFailed {
        /// The stage.
        id: StageId,
        /// The reason, for people.
        reason: String,
        /// The node whose stream broke, if that is why.
        peer: Option<NodeId>,
    },
    /// This node's store wants a copy, or the rest of one; [`Effect::FetchFrom`](super::Effect::FetchFrom) names the sender.
    CopyWanted(CopyWish),
}
