//! The controller's decisions: who is in the cluster, and where placement groups are.
//!
//! The shell of the head node feeds [`Event`]s and carries out [`Effect`]s in order. It is never on the path of a task:
//! what nodes need for that, the digest of all loads, rides on the answers to their heartbeats.
//!
//! Everything but times and loads is durable: after an event that changed [`Controller::generation`] the shell writes
//! [`Controller::snapshot`] before it carries out the effects. [`Controller::restore`] and [`Event::Started`] take up
//! where that ended; members have a whole lease to be heard of again.
//!
//! Invariants: MEMBER-1 (`members`): a silent node's lease ends here only after the node itself has considered it over.
//! MEMBER-2 (`members`): a dead node's number is never alive again, and what comes late from it is refused. GROUP-1
//! (`groups`): a bundle is committed only when every bundle that was missing is prepared, and is on one live node at
//! most.

pub mod groups;
pub mod members;
mod message;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::groups::Groups;
use self::members::Members;
pub use self::members::{Departure, Join, MemberRow, Tenure};
pub use self::message::{FromController, ToController};
use crate::id::NodeId;
use crate::schedule::Row;
use crate::time::Tick;

/// The first byte of a snapshot. Another one is refused.
pub const SNAPSHOT_VERSION: u8 = 2;

/// How often nodes show that they are alive, and how long leases are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerConfig {
    /// Nodes send heartbeats at this interval.
    pub heartbeat_us: u64,
    /// A node that is heard of regularly is dead after a silence of this.
    pub lease_us: u64,
    /// One whose heartbeats come irregularly is given more time, up to this.
    pub lease_longest_us: u64,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self { heartbeat_us: 100_000, lease_us: 2_000_000, lease_longest_us: 10_000_000 }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The controller runs, for the first time or again.
    Started,
    /// Somebody who has no number yet wants to join.
    JoinAsked {
        /// The connection, in the shell's numbers.
        link: u64,
        /// Who.
        join: Box<Join>,
    },
    /// A node asked for something or told something.
    Asked {
        /// Which.
        node: NodeId,
        /// What.
        request: Box<ToController>,
    },
    /// The connection to a node is gone.
    ConnectionLost {
        /// Which.
        node: NodeId,
        /// Nobody listens where it was: its process is dead. Else it may be the network.
        refused: bool,
    },
    /// A member has no right to be here any more.
    Expelled {
        /// Which.
        node: NodeId,
        /// The reason, for people.
        reason: String,
    },
    /// Time went by; due at [`Controller::deadline`].
    Ticked,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Answer a join.
    Welcome {
        /// The connection.
        link: u64,
        /// The number that it has from now on.
        node: NodeId,
        /// The lease, counted from when the join was sent.
        lease_us: u64,
        /// Everybody, itself included.
        members: Vec<MemberRow>,
        /// What the others have told.
        rows: Vec<Row>,
    },
    /// Turn a join away.
    TurnAway {
        /// The connection.
        link: u64,
        /// Why.
        reason: String,
    },
    /// Tell a node something.
    Send {
        /// Whom.
        to: NodeId,
        /// What.
        message: FromController,
    },
    /// Tell every live node something.
    SendAll(FromController),
    /// Something came from a node that is not alive: tell who holds the connection, and close it.
    Reject {
        /// The number that it used.
        node: NodeId,
        /// Why.
        reason: String,
    },
}

/// Why a snapshot could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotUnreadable {
    /// It is of another version.
    Version {
        /// The version that it has; none when it is empty.
        found: Option<u8>,
    },
    /// It is damaged.
    Damaged,
}

impl fmt::Display for SnapshotUnreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotUnreadable::Version { found: Some(found) } => write!(
                f,
                "the controller's state is of version {found}, this is version {SNAPSHOT_VERSION}; start the version that \
                 wrote it, or move the file away to begin anew"
            ),
            SnapshotUnreadable::Version { found: None } => {
                write!(f, "the controller's state is empty; move the file away to begin anew")
            }
            SnapshotUnreadable::Damaged => {
                write!(f, "the controller's state is damaged; move the file away to begin anew")
            }
        }
    }
}

impl std::error::Error for SnapshotUnreadable {}

/// The controller's decision machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Controller {
    config: ControllerConfig,
    members: Members,
    groups: Groups,
    /// Counts the changes of what is durable.
    #[serde(skip)]
    generation: u64,
}

impl Controller {
    /// A cluster without a node.
    pub fn new(config: ControllerConfig) -> Self {
        Self { members: Members::default(), groups: Groups::default(), generation: 0, config }
    }

    /// The one door: takes an event, appends effects.
    pub fn step(&mut self, event: Event, now: Tick, effects: &mut Vec<Effect>) {
        match event {
            Event::Started => self.resume_groups(now, effects),
            Event::JoinAsked { link, join } => self.join(link, *join, now, effects),
            Event::Asked { node, request } => self.asked(node, *request, now, effects),
            Event::ConnectionLost { node, refused } => self.connection_lost(node, refused, now, effects),
            Event::Expelled { node, reason } => self.depart(node, Departure::Expelled { reason }, now, effects),
            Event::Ticked => {
                self.expire_members(now, effects);
                self.expire_early(now, effects);
                self.place_due_groups(now, effects);
            }
        }
    }

    /// When time must go by next, if it must.
    pub fn deadline(&self) -> Option<Tick> {
        let groups = self.groups.due();
        let members = self.members.due();
        groups.into_iter().chain(members).min()
    }

    /// Changes whenever something durable does.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// All that is durable, as bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let bytes = vec![SNAPSHOT_VERSION];
        postcard::to_extend(self, bytes).expect("the state is plain data and always encodes")
    }

    /// The state of a snapshot. Everybody who was alive has the longest lease from now on: nobody knows how much of the
    /// one that they had is left.
    pub fn restore(bytes: &[u8], now: Tick) -> Result<Self, SnapshotUnreadable> {
        let (version, rest) = bytes.split_first().ok_or(SnapshotUnreadable::Version { found: None })?;
        if *version != SNAPSHOT_VERSION {
            return Err(SnapshotUnreadable::Version { found: Some(*version) });
        }
        let (mut controller, left): (Self, &[u8]) =
            postcard::take_from_bytes(rest).map_err(|_| SnapshotUnreadable::Damaged)?;
        if !left.is_empty() {
            return Err(SnapshotUnreadable::Damaged);
        }
        controller.members.resume(controller.config.lease_longest_us, now);
        Ok(controller)
    }

    /// Who is in the cluster.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The placement groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    fn asked(&mut self, node: NodeId, request: ToController, now: Tick, effects: &mut Vec<Effect>) {
        // MEMBER-2: whatever it is, the dead have no say.
        if let Some(reason) = self.members.refusal(node) {
            effects.push(Effect::Reject { node, reason });
            return;
        }
        // A member that asks for what it has no right to is no honest one, and its later words are not wanted either.
        let checked = self.members.speaker(node).map_or(Ok(()), |speaker| request.check(speaker));
        if let Err(denied) = checked {
            let reason = denied.to_string();
            self.depart(node, Departure::Expelled { reason: reason.clone() }, now, effects);
            effects.push(Effect::Reject { node, reason });
            return;
        }
        match request {
            ToController::Heartbeat { sequence, load } => self.heartbeat(node, sequence, *load, now, effects),
            ToController::Leave => self.depart(node, Departure::Left, now, effects),
            ToController::Drain { request, node: who, grace_us } => {
                self.drain(node, request, who, grace_us, now, effects);
            }
            ToController::Drained => self.drained(node, now, effects),
            ToController::CreateGroup { group, spec } => self.create_group(node, group, *spec, now, effects),
            ToController::RemoveGroup { group, reason } => self.removal_asked(group, &reason, now, effects),
            ToController::WatchGroup { group } => self.watch_group(node, group, now, effects),
            ToController::FindGroup { process, request, name } => {
                let found = self.groups.find(&name).and_then(|group| self.groups.row(group)).map(Box::new);
                send(node, FromController::GroupFound { process, request, found }, effects);
            }
            ToController::ListGroups { process, request } => {
                let rows = self.groups.table();
                send(node, FromController::GroupsListed { process, request, rows }, effects);
            }
            ToController::Prepared { group, attempt, refused, free } => {
                self.bundles_prepared(node, group, attempt, refused, *free, now, effects);
            }
            ToController::Committed { group, attempt } => self.bundles_committed(node, group, attempt, now, effects),
        }
    }
}

fn send(to: NodeId, message: FromController, effects: &mut Vec<Effect>) {
    effects.push(Effect::Send { to, message });
}
