//! What nodes and the controller say to each other, in order and once, until the node is dead.

use serde::{Deserialize, Serialize};

use super::groups::{Ends, GroupSpec, Placement};
use super::members::{Departure, MemberRow};
use crate::id::{GroupId, NodeId, ProcessId};
use crate::ledger::snapshot::GroupRow;
use crate::message::RequestId;
use crate::resources::Resources;
use crate::schedule::{Load, Row};

/// A node to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToController {
    /// I am alive, and this is my load. Answered by [`FromController::Renewed`].
    Heartbeat {
        /// Counts my heartbeats.
        sequence: u64,
        /// The load.
        load: Box<Load>,
    },
    /// I end in good order.
    Leave,
    /// A node is to leave when nothing is on it any more.
    Drain {
        /// Number of the question.
        request: RequestId,
        /// Which.
        node: NodeId,
        /// It leaves after this time in any case.
        grace_us: u64,
    },
    /// I was being drained, and nothing runs on me any more: it has moved, or my time was over.
    Drained,
    /// Reserve bundles together. I am told where they are from then on, or why they never will be.
    CreateGroup {
        /// The group.
        group: GroupId,
        /// What it is.
        spec: Box<GroupSpec>,
    },
    /// Give the bundles back and end what runs in them.
    RemoveGroup {
        /// The group.
        group: GroupId,
        /// Why, for those who use it.
        reason: String,
    },
    /// Tell me where the bundles are, now and whenever that changes.
    WatchGroup {
        /// The group.
        group: GroupId,
    },
    /// A process of mine asks which group has this name.
    FindGroup {
        /// Who asks.
        process: ProcessId,
        /// Number of its question.
        request: RequestId,
        /// The name.
        name: String,
    },
    /// A process of mine asks for all groups.
    ListGroups {
        /// Who asks.
        process: ProcessId,
        /// Number of its question.
        request: RequestId,
    },
    /// The bundles of [`FromController::Prepare`] are reserved, or not.
    Prepared {
        /// The group.
        group: GroupId,
        /// Which try.
        attempt: u32,
        /// Why not.
        refused: Option<String>,
        /// What I have free now.
        free: Box<Resources>,
    },
    /// The bundles of [`FromController::Commit`] can be used.
    Committed {
        /// The group.
        group: GroupId,
        /// Which try.
        attempt: u32,
    },
}

/// The controller to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromController {
    /// You have another lease, counted from when you sent this heartbeat.
    Renewed {
        /// Which heartbeat.
        sequence: u64,
        /// How long.
        lease_us: u64,
        /// The loads that changed since your last heartbeat.
        rows: Vec<Row>,
    },
    /// A node has joined.
    NodeJoined(Box<MemberRow>),
    /// A node is being drained: nothing new goes there.
    NodeDraining {
        /// Which.
        node: NodeId,
    },
    /// A node is gone with all its processes, and its number is never used again.
    NodeDied {
        /// Which.
        node: NodeId,
        /// Why.
        departure: Departure,
    },
    /// Take nothing new, move away what you can, and say when nothing is left.
    Drain {
        /// How much time you have.
        grace_us: u64,
    },
    /// Your time to be drained is over: end what runs, say [`ToController::Drained`], and end. The answer to that word too.
    Leave,
    /// The node is being drained, or why not.
    Draining {
        /// Number of the question.
        request: RequestId,
        /// Why it is not.
        refused: Option<String>,
    },
    /// The answer to a process that asked for the group of a name.
    GroupFound {
        /// Who asked.
        process: ProcessId,
        /// Number of its question.
        request: RequestId,
        /// Which, if any.
        found: Option<Box<GroupRow>>,
    },
    /// The answer to a process that asked for all groups.
    GroupsListed {
        /// Who asked.
        process: ProcessId,
        /// Number of its question.
        request: RequestId,
        /// The groups, and the last that are gone.
        rows: Vec<GroupRow>,
    },
    /// Where the bundles of a group are that you watch.
    GroupAt {
        /// The group.
        group: GroupId,
        /// What each bundle has; empty when there is no such group.
        bundles: Vec<Resources>,
        /// Where.
        placement: Placement,
    },
    /// This group ends with something of yours: ask for its removal when that is over, at once if it is.
    KeepGroup {
        /// The group.
        group: GroupId,
        /// With what.
        ends: Ends,
    },
    /// Reserve these bundles, all or none, and answer [`ToController::Prepared`]: at once, or when there is room for them.
    Prepare {
        /// The group.
        group: GroupId,
        /// Which try.
        attempt: u32,
        /// The bundles by their place in the group.
        bundles: Vec<(u32, Resources)>,
        /// Without room they wait like tasks do, and what comes free is kept for them; else say so.
        waits: bool,
    },
    /// What you reserved can be used; answer [`ToController::Committed`].
    Commit {
        /// The group.
        group: GroupId,
        /// Which try.
        attempt: u32,
    },
    /// Give back what you reserved and end what runs in it.
    Release {
        /// The group.
        group: GroupId,
        /// Only what was reserved in this try; all of it when none.
        attempt: Option<u32>,
        /// Why, for those who run in it.
        reason: String,
    },
}
