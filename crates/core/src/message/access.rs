//! Authorization by role: one table for all messages from other nodes.
//!
//! A member is a node or a client by its certificate. A client submits work and owns what it made; it takes no work, and has no say
//! about the cluster. The shell asks [`Between::check`] about everything that it hears before anything else looks at it, and the
//! controller asks [`ToController::check`]. The matches have no wildcard: a new message has to be given a row.
//!
//! Roles bound what a stolen or misused certificate does to the cluster itself. They are no boundary between users: whoever
//! submits tasks runs code as the user of the nodes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Between, ToNode};
use crate::controller::ToController;
use crate::id::NodeId;

/// The role that a certificate or a token gives its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// A node of the cluster: dials and is dialled.
    Node,
    /// A driver elsewhere: it only dials.
    Client,
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Role::Node => "node",
            Role::Client => "client",
        })
    }
}

/// A member that says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speaker {
    /// Its number.
    pub node: NodeId,
    /// The role of its certificate.
    pub role: Role,
}

/// The senders that a message is accepted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nodes and clients.
    Members,
    /// Nodes alone.
    Nodes,
    /// The head alone.
    Head,
    /// Only a process of the node itself: nobody sends it to another node.
    Nobody,
}

impl Access {
    fn includes(self, speaker: Speaker) -> bool {
        match self {
            Access::Members => true,
            Access::Nodes => speaker.role == Role::Node,
            Access::Head => speaker.node == NodeId::HEAD,
            Access::Nobody => false,
        }
    }
}

/// A message that its speaker has no right to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    speaker: Speaker,
    message: String,
    access: Access,
}

impl fmt::Display for Denied {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { speaker: Speaker { node, role }, message, access } = self;
        let may = match access {
            Access::Members => "members may",
            Access::Nodes => "nodes may",
            Access::Head => "the head may",
            Access::Nobody => "no other node may",
        };
        write!(formatter, "{node}, a {role}, sent {message}, which only {may}")
    }
}

impl std::error::Error for Denied {}

/// The name of a message: its variant, without what is in it.
fn name_of(message: &impl fmt::Debug) -> String {
    let text = format!("{message:?}");
    text.chars().take_while(char::is_ascii_alphanumeric).collect()
}

fn check(access: Access, speaker: Speaker, message: &impl fmt::Debug) -> Result<(), Denied> {
    if access.includes(speaker) { Ok(()) } else { Err(Denied { speaker, message: name_of(message), access }) }
}

impl Between {
    /// The senders that this is accepted from.
    pub fn access(&self) -> Access {
        match self {
            // Work: whoever submits it, runs it or owns what it made.
            Between::Relay { .. }
            | Between::Told { .. }
            | Between::JobEnded { .. }
            | Between::ProcessDied(_)
            | Between::Settled { .. }
            | Between::Flush { .. }
            | Between::Flushed { .. }
            | Between::Buried { .. }
            | Between::Host { .. }
            | Between::Unhost { .. }
            | Between::Recall { .. }
            | Between::WantLoad { .. }
            | Between::GiveLoad { .. }
            | Between::WantWaits { .. }
            | Between::GiveWaits { .. }
            | Between::TakeName { .. }
            | Between::DropName { .. }
            | Between::GiveProgram { .. }
            | Between::GivePiece { .. }
            | Between::GiveStatus { .. }
            | Between::Through { .. }
            | Between::Leaving { .. }
            | Between::Ping { .. }
            | Between::Pong { .. }
            | Between::Knows { .. } => Access::Members,
            Between::Asked { request, .. } => request.access(),
            // Objects: whoever owns one or has a copy.
            Between::CopyMade { .. }
            | Between::CopyDropped { .. }
            | Between::Promote { .. }
            | Between::Free { .. }
            | Between::Kept { .. }
            | Between::Seek { .. }
            | Between::Sought { .. }
            | Between::WantCopy(_)
            | Between::CopyFrom { .. }
            | Between::Prefetch { .. }
            | Between::WantTicket { .. }
            | Between::GiveTicket { .. }
            | Between::RunStage(_)
            | Between::EndStage { .. }
            | Between::StageFailed { .. } => Access::Members,
            // A client takes no work, keeps nothing for others, is not drained and is reached by nobody.
            Between::Runs { .. }
            | Between::Hosted { .. }
            | Between::Unhosted { .. }
            | Between::Recalled { .. }
            | Between::WantProgram { .. }
            | Between::WantPiece { .. }
            | Between::WantStatus { .. }
            | Between::Lines { .. }
            | Between::LinesOver { .. }
            | Between::Come { .. }
            | Between::Idle { .. }
            | Between::Take { .. }
            | Between::NotTaken { .. }
            | Between::Moved { .. } => Access::Nodes,
            // The head has the names.
            Between::NameGiven { .. } => Access::Head,
            // To the controller, which checks what is in it; from it, which only the head is.
            Between::Controller(_) => Access::Members,
        }
    }

    /// Whether this speaker may say it.
    pub fn check(&self, speaker: Speaker) -> Result<(), Denied> {
        match self {
            Between::Asked { request, .. } => check(request.access(), speaker, request),
            message => check(message.access(), speaker, message),
        }
    }
}

impl ToNode {
    /// The senders whose processes another node accepts this from. A request about the asking process itself is for its own node.
    pub fn access(&self) -> Access {
        match self {
            ToNode::WantLeases { .. }
            | ToNode::ReturnLease { .. }
            | ToNode::CreateActor { .. }
            | ToNode::WatchActor { .. }
            | ToNode::ReleaseActor { .. }
            | ToNode::KillActor { .. }
            | ToNode::FindActor { .. }
            | ToNode::Resolve { .. }
            | ToNode::Claim { .. }
            | ToNode::ClaimFor { .. }
            | ToNode::ClaimArrived { .. }
            | ToNode::KillWorker { .. }
            | ToNode::PeerCorrupt { .. }
            | ToNode::AbortObject { .. }
            | ToNode::FreeObject { .. }
            | ToNode::FindCopy { .. }
            | ToNode::Publish { .. }
            | ToNode::Lookup { .. }
            | ToNode::QueryNames { .. }
            | ToNode::JoinCollective { .. }
            | ToNode::LeaveCollective { .. }
            | ToNode::QueryCollective { .. } => Access::Members,
            ToNode::Hello
            | ToNode::Blocked { .. }
            | ToNode::Unblocked { .. }
            | ToNode::ActorConstructed { .. }
            | ToNode::Adopt { .. }
            | ToNode::Connect { .. }
            | ToNode::Settled { .. }
            | ToNode::Flushed { .. }
            | ToNode::CreateObject { .. }
            | ToNode::Fetch { .. }
            | ToNode::Gather { .. }
            | ToNode::EndGather { .. }
            | ToNode::QueryState { .. }
            | ToNode::QueryResources { .. }
            | ToNode::Explain { .. }
            | ToNode::CallLost { .. }
            | ToNode::Spent
            | ToNode::Goodbye
            | ToNode::QueryNodes { .. }
            | ToNode::CreateGroup { .. }
            | ToNode::RemoveGroup { .. }
            | ToNode::FindGroup { .. }
            | ToNode::QueryGroups { .. }
            | ToNode::WatchGroup { .. }
            | ToNode::Reduce { .. }
            | ToNode::ReduceInputs { .. }
            | ToNode::EndReduce { .. }
            | ToNode::RunStage { .. }
            | ToNode::GrowStage { .. }
            | ToNode::EndStage { .. }
            | ToNode::Broadcast { .. } => Access::Nobody,
        }
    }
}

impl ToController {
    /// The senders that the controller accepts this from.
    pub fn access(&self) -> Access {
        match self {
            ToController::Heartbeat { .. }
            | ToController::Leave
            | ToController::CreateGroup { .. }
            | ToController::RemoveGroup { .. }
            | ToController::WatchGroup { .. }
            | ToController::FindGroup { .. }
            | ToController::ListGroups { .. } => Access::Members,
            // The cluster itself, and what only those do that take work.
            ToController::Drain { .. }
            | ToController::Drained
            | ToController::Prepared { .. }
            | ToController::Committed { .. } => Access::Nodes,
        }
    }

    /// Whether this speaker may ask for it.
    pub fn check(&self, speaker: Speaker) -> Result<(), Denied> {
        check(self.access(), speaker, self)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::id::{ActorId, JobId, ProcessId, TaskId};

    const HEAD: Speaker = Speaker { node: NodeId::HEAD, role: Role::Node };
    const NODE: Speaker = Speaker { node: NodeId(2), role: Role::Node };
    const CLIENT: Speaker = Speaker { node: NodeId(3), role: Role::Client };

    fn allowed(check: impl Fn(Speaker) -> Result<(), Denied>) -> [bool; 3] {
        [HEAD, NODE, CLIENT].map(|speaker| check(speaker).is_ok())
    }

    #[test]
    fn a_client_submits_work_and_has_no_say_about_the_cluster() {
        let drain = ToController::Drain { request: 1, node: NodeId(2), grace_us: 0 };
        assert_eq!(allowed(|speaker| drain.check(speaker)), [true, true, false]);
        assert_eq!(allowed(|speaker| ToController::Leave.check(speaker)), [true, true, true]);
        assert_eq!(allowed(|speaker| Between::Leaving { node: NodeId(2) }.check(speaker)), [true, true, true]);
        let wants = Between::WantProgram { job: JobId::default() };
        assert_eq!(allowed(|speaker| wants.check(speaker)), [true, true, false]);
        let given = Between::NameGiven { actor: ActorId(TaskId::from_raw(1)), holder: None };
        assert_eq!(allowed(|speaker| given.check(speaker)), [true, false, false]);
    }

    #[test]
    fn what_is_about_the_asking_process_is_for_its_own_node_alone() {
        let asked = |request| Between::Asked {
            process: ProcessId::of_node(NodeId(3)),
            job: JobId::default(),
            request: Box::new(request),
        };
        assert_eq!(allowed(|speaker| asked(ToNode::QueryNames { request: 1 }).check(speaker)), [true; 3]);
        assert_eq!(allowed(|speaker| asked(ToNode::Goodbye).check(speaker)), [false; 3]);
    }

    #[test]
    fn a_denial_names_the_speaker_and_the_message_and_nothing_that_is_in_it() {
        let drain = ToController::Drain { request: 1, node: NodeId(2), grace_us: 0 };
        assert_eq!(drain.check(CLIENT).unwrap_err().to_string(), "node-3, a client, sent Drain, which only nodes may");
    }
}
