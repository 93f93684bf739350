//! Which machine of a process hears which message, said once for every shell.

use crate::message::{FromNode, Peer, RequestId};

/// Questions numbered from here on are the owner machine's own; smaller numbers belong to threads that wait in the shell.
pub const OWNER_REQUESTS: RequestId = 1 << 63;

/// Who a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearer {
    /// The machine that submits.
    Owner,
    /// The machine that runs.
    Worker,
    /// The shell itself: links, deaths, answers to its threads.
    Shell,
}

impl Peer {
    /// Who this is for.
    pub fn hearer(&self) -> Hearer {
        match self {
            Peer::Run { .. }
            | Peer::Call { .. }
            | Peer::RunAfter { .. }
            | Peer::TakeBack { .. }
            | Peer::Cancel { .. }
            | Peer::Taken { .. } => Hearer::Worker,
            Peer::Reply { .. }
            | Peer::Item { .. }
            | Peer::Took { .. }
            | Peer::Returned { .. }
            | Peer::Closing { .. }
            | Peer::Resolve { .. }
            | Peer::Resolved { .. }
            | Peer::Lent { .. }
            | Peer::GiveBack { .. }
            | Peer::CancelObject { .. } => Hearer::Owner,
            Peer::Collective(_) => Hearer::Shell,
        }
    }
}

impl FromNode {
    /// Who this is for.
    pub fn hearer(&self) -> Hearer {
        match self {
            FromNode::LeaseOpened { .. }
            | FromNode::LeaseClosed { .. }
            | FromNode::Construct { .. }
            | FromNode::Retire
            | FromNode::Move
            | FromNode::End => Hearer::Worker,
            FromNode::Adopted { request, .. } | FromNode::ItemFound { request, .. } if *request < OWNER_REQUESTS => {
                Hearer::Shell
            }
            FromNode::Adopted { .. }
            | FromNode::ItemFound { .. }
            | FromNode::Granted { .. }
            | FromNode::Infeasible { .. }
            | FromNode::Reclaim { .. }
            | FromNode::ActorCreated { .. }
            | FromNode::ActorAt { .. }
            | FromNode::ActorRestarting { .. }
            | FromNode::ActorDead { .. }
            | FromNode::CopyFound { .. }
            | FromNode::Kept { .. }
            | FromNode::Resolved { .. }
            | FromNode::Refused { .. }
            | FromNode::ReducePlaced { .. }
            | FromNode::Reduced { .. }
            | FromNode::GroupPlaced { .. } => Hearer::Owner,
            // Deaths concern both machines, after the shell has read what the dead had sent.
            FromNode::ProcessDied(_)
            | FromNode::NodeDied { .. }
            | FromNode::Relayed { .. }
            | FromNode::LinkOpened { .. }
            | FromNode::Flush { .. }
            | FromNode::ActorFound { .. }
            | FromNode::ObjectCreated { .. }
            | FromNode::Gathered { .. }
            | FromNode::Located { .. }
            | FromNode::State { .. }
            | FromNode::Published { .. }
            | FromNode::Code { .. }
            | FromNode::Resources { .. }
            | FromNode::Names { .. }
            | FromNode::Explained { .. }
            | FromNode::Nodes { .. }
            | FromNode::GroupFound { .. }
            | FromNode::Groups { .. }
            | FromNode::CollectiveFormed { .. }
            | FromNode::CollectiveBroken { .. }
            | FromNode::CollectiveLeft { .. }
            | FromNode::CollectiveJoined { .. }
            | FromNode::StageDone { .. }
            | FromNode::StageFailed { .. }
            | FromNode::Warning { .. } => Hearer::Shell,
        }
    }
}
