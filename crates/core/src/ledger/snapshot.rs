//! The node's tables as rows for people: what `bireme::state()` lists.
//!
//! Made by [`crate::node::Node::snapshot`]; travels as postcard in pieces of [`crate::message::FromNode::State`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tables::Counts;
use crate::id::{ActorId, GroupId, JobId, LeaseId, NodeId, ObjectId, ProcessId, TaskId};
use crate::resources::{Amount, Resources};
use crate::spec::GroupStrategy;
use crate::time::Tick;

/// More open tasks or objects than this are counted, not listed.
pub const SNAPSHOT_ROWS_MAX: usize = 10_000;

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When.
    pub at: Tick,
    /// What there is, what is free.
    pub resources: ResourcesRow,
    /// Tasks that somebody can ask for, then the last finished ones.
    pub tasks: Vec<TaskRow>,
    /// Tasks that were left off.
    pub tasks_left_off: u64,
    /// Objects that have a value or will have one.
    pub objects: Vec<ObjectRow>,
    /// Objects that were left off.
    pub objects_left_off: u64,
    /// Actors, and the last dead ones.
    pub actors: Vec<ActorRow>,
    /// Workers.
    pub workers: Vec<WorkerRow>,
    /// Leases.
    pub leases: Vec<LeaseRow>,
    /// Jobs.
    pub jobs: Vec<JobRow>,
    /// Totals since the start.
    pub counts: Counts,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourcesRow {
    /// What there is.
    pub total: Resources,
    /// What nobody holds.
    pub free: Resources,
    /// CPUs that resumed tasks use beyond the total.
    pub debt: Amount,
    /// Wishes and actors that wait for resources or a process.
    pub queued: u64,
}

/// How far a task has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskStage {
    /// With its owner, or queued at a worker.
    Submitted,
    /// Running.
    Running,
    /// It was running on a process that died.
    Lost,
    /// It has results.
    Finished,
    /// It has failures.
    Failed,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRow {
    /// Which.
    pub task: TaskId,
    /// Name for people.
    pub name: String,
    /// Who submitted it, when that is known.
    pub parent: Option<TaskId>,
    /// The owner of record, when somebody can still ask.
    pub owner: Option<ProcessId>,
    /// How far it has come.
    pub stage: TaskStage,
    /// Who runs or ran it.
    pub worker: Option<ProcessId>,
    /// Which run.
    pub attempt: u32,
    /// When it was submitted, or for a forgotten task when its last run began.
    pub since: Tick,
    /// How long the last run took or has taken.
    pub run_us: Option<u64>,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectRow {
    /// Which.
    pub object: ObjectId,
    /// The owner of record.
    pub owner: ProcessId,
    /// Bytes, when it has a value.
    pub len: Option<u64>,
    /// Whether the bytes lie in the store.
    pub stored: bool,
    /// Whether it is a failure.
    pub failed: bool,
    /// Holders that outlived its owner.
    pub claims: u64,
}

/// An actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorRow {
    /// Which.
    pub actor: ActorId,
    /// The constructor's name.
    pub class: String,
    /// Under which others find it.
    pub name: Option<String>,
    /// Who owns it.
    pub owner: ProcessId,
    /// In a word or two.
    pub state: String,
    /// Where it lives.
    pub process: Option<ProcessId>,
    /// Which life.
    pub incarnation: u32,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// Which.
    pub job: JobId,
    /// Its driver; none when that is another node's, or gone and only detached actors are left.
    pub driver: Option<ProcessId>,
    /// Its driver is gone.
    pub over: bool,
    /// The driver's system process id; 0 when it is not known.
    pub pid: u32,
    /// Its worker processes.
    pub workers: u64,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRow {
    /// Which.
    pub process: ProcessId,
    /// Whose.
    pub job: JobId,
    /// Its system process id; 0 until it is known.
    pub pid: u32,
    /// In a word or two.
    pub state: String,
    /// Leases that it hosts.
    pub leases: u64,
    /// Of these, those whose task waits for something.
    pub blocked: u64,
    /// Tasks and puts that it owns.
    pub owned: u32,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRow {
    /// Which.
    pub lease: LeaseId,
    /// Who may run tasks.
    pub owner: ProcessId,
    /// Where.
    pub worker: ProcessId,
    /// What it holds.
    pub resources: Resources,
    /// Whether its task waits and has given its CPUs back.
    pub blocked: bool,
    /// Whether nothing runs under it: its owner keeps it for the next task, and what it holds counts as free.
    pub idle: bool,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Which.
    pub node: NodeId,
    /// Where others reach it; without a port when nobody can.
    pub address: String,
    /// The name of its machine; empty when that was not asked.
    pub hostname: String,
    /// In a word: "embedded", "head", "worker" or "driver".
    pub role: String,
    /// Whether it is there.
    pub alive: bool,
    /// Whether it takes nothing new, since it is about to leave.
    pub draining: bool,
    /// How it ended, when it has.
    pub reason: Option<String>,
    /// What it has.
    pub total: Resources,
    /// What of that nobody holds.
    pub free: Resources,
    /// What its user said about it.
    pub labels: BTreeMap<String, String>,
}

/// How far a placement group has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupStage {
    /// It waits for resources; in words, for which.
    Waiting(String),
    /// Every bundle is reserved.
    Placed,
    /// Nodes died, and their bundles wait for resources; in words, for which.
    Rescheduling(String),
    /// It can never be placed, and why.
    Failed(String),
    /// It was removed.
    Removed,
}

/// A placement group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupRow {
    /// Which.
    pub group: GroupId,
    /// Under which others find it.
    pub name: Option<String>,
    /// How its bundles lie on the nodes.
    pub strategy: GroupStrategy,
    /// What each bundle reserves, and where, once it is placed.
    pub bundles: Vec<(Resources, Option<NodeId>)>,
    /// How far it has come.
    pub stage: GroupStage,
    /// Whether it outlives its creator.
    pub detached: bool,
    /// Who made it.
    pub creator: ProcessId,
}
