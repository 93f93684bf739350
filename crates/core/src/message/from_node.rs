//! What the node says to a process.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CONTROL, RequestId, decode_control, encode_control};
use crate::codec::{Malformed, Reader};
use crate::collective::{CollectiveId, Peers, Trouble};
use crate::failure::{Death, Failure};
use crate::flow::StageId;
use crate::id::{ActorId, FunctionKey, GroupId, LeaseId, NodeId, ObjectId, ProcessId};
use crate::ledger::snapshot::{GroupRow, NodeRow, ResourcesRow};
use crate::shared::Shared;
use crate::spec::TaskSpec;
use crate::value::{Location, Value, decode_process, encode_process};

/// What the node knows of an object that a repeated task is about to make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Adoption {
    /// Never heard of it, or it never started: go ahead under this id.
    New,
    /// It is done: these are the values, in order.
    Finished(Vec<Value>),
    /// It runs; [`FromNode::Resolved`] will come for each result.
    Running,
    /// Something else was made under this id: open a new epoch for it and its later siblings.
    Different,
}

/// The node to a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromNode {
    /// A lease. The link to the worker is open.
    Granted {
        /// The owner's number for the shape.
        pool: u32,
        /// The lease.
        lease: LeaseId,
        /// On whom.
        worker: ProcessId,
    },
    /// The worker side of the same: this owner may run tasks here under this lease.
    LeaseOpened {
        /// The lease.
        lease: LeaseId,
        /// Whose.
        owner: ProcessId,
        /// Which GPUs, by index.
        gpus: Vec<u32>,
    },
    /// The lease is over: return what is queued under it.
    LeaseClosed {
        /// The lease.
        lease: LeaseId,
    },
    /// The machine can never give this shape.
    Infeasible {
        /// The owner's number for the shape.
        pool: u32,
        /// What was asked.
        asked: String,
        /// What there is.
        available: String,
    },
    /// Others wait: return the lease when it is idle.
    Reclaim {
        /// Which.
        lease: LeaseId,
    },
    /// There is a link to this process now.
    LinkOpened {
        /// To whom.
        peer: ProcessId,
        /// The bit of my doorbell that this link sets.
        connection: u32,
        /// The bit of the peer's doorbell that I set.
        peer_connection: u32,
        /// Ring that I read.
        incoming: u64,
        /// Ring that I write.
        outgoing: u64,
        /// Bytes in each of the two rings.
        capacity: u32,
    },
    /// A process died. What it wrote before has been drained.
    ProcessDied(Box<Death>),
    /// Everybody knows of this death: read all that peers have sent, then answer [`ToNode::Flushed`](super::ToNode::Flushed).
    Flush {
        /// The dead process.
        dead: ProcessId,
    },
    /// Run this constructor and become its actor.
    Construct {
        /// The constructor's task.
        spec: Arc<TaskSpec>,
        /// Its arguments by reference.
        resolved: Vec<Value>,
        /// Counts the actor's lives from 0.
        incarnation: u32,
        /// The lane in which the constructor names what it makes: another one when an earlier life's constructor has ended.
        lane: u32,
        /// Who owns it.
        owner: ProcessId,
        /// Which GPUs, by index.
        gpus: Vec<u32>,
    },
    /// The actor's constructor has ended; to its owner.
    ActorCreated {
        /// Which.
        actor: ActorId,
        /// Unit bytes or a failure.
        value: Value,
    },
    /// The actor is here.
    ActorAt {
        /// Which.
        actor: ActorId,
        /// Where.
        process: ProcessId,
        /// Which life.
        incarnation: u32,
        /// How many calls it runs at once.
        concurrency_max: u32,
    },
    /// The actor died and is being started again.
    ActorRestarting {
        /// Which.
        actor: ActorId,
        /// Why.
        reason: String,
        /// It moves to another node and was at rest: what it has not answered it has not begun.
        moved: bool,
    },
    /// The actor is gone for good.
    ActorDead {
        /// Which.
        actor: ActorId,
        /// Why.
        reason: String,
    },
    /// Finish your calls and end.
    Retire,
    /// You are an actor and this node is being drained: begin no other call, finish those that run, and end.
    Move,
    /// End now: begin nothing more. A running call of an actor may finish, so that the actor's state can be dropped;
    /// tasks are given up.
    End,
    /// The answer to [`ToNode::FindActor`](super::ToNode::FindActor).
    ActorFound {
        /// Question number.
        request: RequestId,
        /// The actor, its owner and the function that makes it.
        found: Option<(ActorId, ProcessId, FunctionKey)>,
    },
    /// The answer to [`ToNode::Adopt`](super::ToNode::Adopt).
    Adopted {
        /// Question number.
        request: RequestId,
        /// The answer.
        adoption: Adoption,
        /// The attempt to begin with when it is to be run: higher than any that was recorded.
        attempt: u32,
        /// Whether the last attempt had begun to run when its worker died.
        started: bool,
    },
    /// Before [`FromNode::Adopted`]: an item that the stream in question has yielded.
    ItemFound {
        /// Question number.
        request: RequestId,
        /// Which item.
        index: u32,
        /// The item.
        value: Value,
    },
    /// The value of an object whose owner is dead.
    Resolved {
        /// Which.
        object: ObjectId,
        /// Its value.
        value: Value,
        /// The node that tells, and keeps what is inside.
        home: NodeId,
    },
    /// A process of another node says this, as [`Peer`](super::Peer) encodes it.
    Relayed {
        /// Who.
        from: ProcessId,
        /// What.
        bytes: Shared,
    },
    /// A node is dead, with all its processes and all that lay there alone.
    NodeDied {
        /// Which.
        node: NodeId,
        /// How it ended, for people.
        reason: String,
    },
    /// The answer to [`ToNode::FindCopy`](super::ToNode::FindCopy).
    CopyFound {
        /// Which.
        object: ObjectId,
        /// Another copy, or why there is none.
        found: Result<Location, String>,
    },
    /// What you own lay on a node that is dead now, and another node keeps it: free it when you do not know it there.
    Kept {
        /// What.
        object: ObjectId,
        /// Where it lay.
        at: Location,
    },
    /// The answer to [`ToNode::CreateObject`](super::ToNode::CreateObject).
    ObjectCreated {
        /// Question number.
        request: RequestId,
        /// The place to write to, and whether its memory is still there if it was used before.
        created: Result<(Location, bool), String>,
    },
    /// The answer to [`ToNode::Gather`](super::ToNode::Gather).
    Gathered {
        /// Question number.
        request: RequestId,
        /// Their places now, in the order of the question; none for one that was freed or dropped.
        located: Result<Vec<Option<Location>>, String>,
    },
    /// The answer to [`ToNode::Fetch`](super::ToNode::Fetch).
    Located {
        /// Question number.
        request: RequestId,
        /// Where it is now.
        located: Result<Location, String>,
    },
    /// The answer to [`ToNode::Publish`](super::ToNode::Publish).
    Published {
        /// Question number.
        request: RequestId,
    },
    /// The answer to [`ToNode::Lookup`](super::ToNode::Lookup).
    Code {
        /// Question number.
        request: RequestId,
        /// Which function's.
        function: FunctionKey,
        /// The code, when somebody published it.
        code: Option<Vec<u8>>,
    },
    /// The answer to [`ToNode::QueryState`](super::ToNode::QueryState), in pieces.
    State {
        /// Question number.
        request: RequestId,
        /// A piece of the postcard of `ledger::Snapshot`.
        bytes: Vec<u8>,
        /// Whether it is the last.
        last: bool,
    },
    /// The answer to [`ToNode::QueryResources`](super::ToNode::QueryResources).
    Resources {
        /// Question number.
        request: RequestId,
        /// The machine.
        row: ResourcesRow,
    },
    /// The answer to [`ToNode::QueryNames`](super::ToNode::QueryNames).
    Names {
        /// Question number.
        request: RequestId,
        /// In order.
        names: Vec<String>,
    },
    /// The answer to [`ToNode::Explain`](super::ToNode::Explain).
    Explained {
        /// Question number.
        request: RequestId,
        /// In words.
        text: String,
    },
    /// The answer to [`ToNode::QueryNodes`](super::ToNode::QueryNodes).
    Nodes {
        /// Question number.
        request: RequestId,
        /// In the order of their numbers.
        rows: Vec<NodeRow>,
    },
    /// What was asked for in this shape will never be granted, and why.
    Refused {
        /// The owner's number for the shape.
        pool: u32,
        /// What becomes of its tasks.
        failure: Box<Failure>,
    },
    /// The answer to [`ToNode::WatchGroup`](super::ToNode::WatchGroup).
    GroupPlaced {
        /// Which.
        group: GroupId,
        /// Where each of its bundles is, or why there are none.
        result: Result<Vec<NodeId>, Box<Failure>>,
    },
    /// The answer to [`ToNode::FindGroup`](super::ToNode::FindGroup).
    GroupFound {
        /// Question number.
        request: RequestId,
        /// The group, when one has the name.
        found: Option<GroupRow>,
    },
    /// The answer to [`ToNode::QueryGroups`](super::ToNode::QueryGroups).
    Groups {
        /// Question number.
        request: RequestId,
        /// In the order of their ids, those that are gone too as long as they are remembered.
        rows: Vec<GroupRow>,
    },
    /// The result of a reduce has a place and grows there; perhaps it is another one in the end.
    ReducePlaced {
        /// The result.
        target: ObjectId,
        /// Where it grows.
        at: Location,
        /// Who reads it should get it while it grows; else only other reduces do.
        to_readers: bool,
    },
    /// The answer to [`ToNode::Reduce`](super::ToNode::Reduce).
    Reduced {
        /// The result.
        target: ObjectId,
        /// Where it lies, and it is the asker's now; or why there is none.
        result: Result<Location, String>,
        /// Which inputs it is made of.
        used: Vec<u32>,
    },
    /// All members of a collective group are there.
    CollectiveFormed {
        /// Which group.
        group: CollectiveId,
        /// Which member this is for.
        rank: u32,
        /// Counts the formings of groups at their home.
        life: u64,
        /// Where each rank is, and who.
        members: Peers,
    },
    /// A collective group will never be, or never again.
    CollectiveBroken {
        /// Which group.
        group: CollectiveId,
        /// Which member this is for.
        rank: u32,
        /// Why.
        trouble: Trouble,
    },
    /// A member of a collective group makes no other call.
    CollectiveLeft {
        /// Which group.
        group: CollectiveId,
        /// Which member this is for.
        rank: u32,
        /// Who.
        member: u32,
        /// So many it made.
        calls: u64,
    },
    /// The answer to [`ToNode::QueryCollective`](super::ToNode::QueryCollective).
    CollectiveJoined {
        /// Question number.
        request: RequestId,
        /// The ranks that have come, in order.
        joined: Vec<u32>,
    },
    /// The stage that this process wanted is done.
    StageDone {
        /// Which.
        id: StageId,
        /// What it made.
        at: Vec<Location>,
    },
    /// The stage that this process wanted has no result.
    StageFailed {
        /// Which.
        id: StageId,
        /// Why.
        reason: String,
        /// The node whose stream broke, if that is why.
        peer: Option<NodeId>,
    },
    /// The user should know this: it is printed among what the process writes.
    Warning {
        /// For people.
        text: String,
    },
}

/// First byte of what is passed on from another node: it is on the path of tasks, so it is not postcard.
const RELAYED: u8 = 1;

impl FromNode {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            FromNode::Relayed { from, bytes } => {
                Self::begin_relayed(*from, out);
                out.extend_from_slice(bytes);
            }
            other => encode_control(other, out),
        }
    }

    /// Of what is passed on from a process of another node: who said it, and what.
    pub fn relayed(bytes: &[u8]) -> Option<Result<(ProcessId, &[u8]), Malformed>> {
        let mut from = Reader::new(bytes.strip_prefix(&[RELAYED])?);
        Some(decode_process(&mut from).map(|sender| (sender, from.rest())))
    }

    /// Appends what comes before the message of a process of another node.
    pub fn begin_relayed(from: ProcessId, out: &mut Vec<u8>) {
        out.push(RELAYED);
        encode_process(from, out);
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if let Some(relayed) = Self::relayed(bytes) {
            return relayed.map(|(from, bytes)| FromNode::Relayed { from, bytes: bytes.into() });
        }
        match bytes.first() {
            Some(&CONTROL) => decode_control(&bytes[1..]),
            Some(_) => Err(Malformed::Unknown("message kind")),
            None => Err(Malformed::Short),
        }
    }
}
