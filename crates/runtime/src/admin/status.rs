//! What `bireme status` shows: the cluster as the asked node knows it. Plain values, made for reading.

use std::collections::BTreeMap;
use std::fmt;

use bireme_core::id::NodeId;
use serde::{Deserialize, Serialize};

/// A cluster at one moment. Lists are in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Its id.
    pub cluster: String,
    /// The node that was asked.
    pub asked: NodeId,
    /// The version of the asked node.
    pub version: String,
    /// How nodes talk to each other.
    pub security: Security,
    /// Every node that has joined, and those that went lately.
    pub nodes: Vec<NodeStatus>,
    /// Every driver.
    pub jobs: Vec<JobStatus>,
    /// Actors that are not dead.
    pub actors: Vec<ActorStatus>,
    /// Placement groups that are not removed.
    pub groups: Vec<GroupStatus>,
    /// What waits, and why.
    pub waiting: Vec<WaitingStatus>,
    /// Rows that were left out because there are too many.
    pub rows_left_out: u64,
}

/// How nodes talk to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Security {
    /// Whether links are encrypted and both ends are known; else only this machine can connect.
    pub mutual_tls: bool,
    /// Whether the bytes of objects are encrypted as well.
    pub bulk_encryption: bool,
    /// With the head: how far the authority is replaced; empty when it is not.
    pub rotation: String,
}

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    /// It takes part.
    Alive,
    /// It takes no new work, and leaves when the rest is done or moved.
    Draining,
    /// It was declared dead.
    Dead,
    /// It left after a drain or a stop.
    Left,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Alive => "alive",
            Self::Draining => "draining",
            Self::Dead => "dead",
            Self::Left => "left",
        })
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub node: NodeId,
    /// Where it listens; empty for a driver that only dials out.
    pub address: String,
    /// Whether it has the controller.
    pub head: bool,
    /// Whether it is a driver's, and takes no work.
    pub driver_only: bool,
    /// Where it is in its life.
    pub state: NodeState,
    /// CPUs in use.
    pub cpus_used: f64,
    /// CPUs that it has.
    pub cpus_total: f64,
    /// GPUs in use.
    pub gpus_used: f64,
    /// GPUs that it has.
    pub gpus_total: f64,
    /// Memory that tasks were promised.
    pub memory_used_bytes: u64,
    /// Memory that it may promise.
    pub memory_total_bytes: u64,
    /// Named resources: in use, and all.
    pub resources: BTreeMap<String, (f64, f64)>,
    /// What its user says of the machine.
    pub labels: BTreeMap<String, String>,
    /// Objects in its store.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// The room that the store has.
    pub object_store_bytes: u64,
    /// Tasks that wait there for a worker.
    pub queued: u64,
    /// Worker processes.
    pub workers: u32,
    /// What else there is to say: how it ended, or that it did not answer and is shown as its last load tells.
    pub note: String,
}

/// One driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    /// Its id.
    pub job: String,
    /// The node that it is attached to.
    pub node: NodeId,
    /// Its process id there; 0 when that is not known.
    pub process: u32,
    /// Its driver is gone, and only what is detached is left.
    pub over: bool,
    /// Its worker processes on all nodes.
    pub workers: u64,
    /// Tasks that have not ended.
    pub tasks_open: u64,
}

/// One actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorStatus {
    /// Its id.
    pub actor: String,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The namespace of its name, if that has one.
    pub namespace: Option<String>,
    /// Its class.
    pub class: String,
    /// Where it is in its life.
    pub state: String,
    /// The node that hosts it, if one does.
    pub node: Option<NodeId>,
    /// Whether it outlives its driver.
    pub detached: bool,
}

/// One placement group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its id.
    pub group: String,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The namespace of its name, if that has one.
    pub namespace: Option<String>,
    /// How its bundles are placed.
    pub strategy: String,
    /// Where it is in its life.
    pub state: String,
    /// Each bundle: its resources and node.
    pub bundles: Vec<String>,
}

/// Something that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingStatus {
    /// The node where it waits.
    pub node: NodeId,
    /// What: tasks of one shape, an actor, a group.
    pub what: String,
    /// How many of these.
    pub count: u64,
    /// For what.
    pub why: String,
}
