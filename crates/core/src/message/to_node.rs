//! What a process says to its node.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CONTROL, Peer, RequestId, decode_control, encode_control};
use crate::codec::{Malformed, Reader, Write};
use crate::collective::CollectiveId;
use crate::flow::{Op, StageId, StageSpec};
use crate::id::{ActorId, FunctionKey, GroupId, LeaseId, NodeId, ObjectId, ProcessId, TaskId};
use crate::record::Record;
use crate::reduce::Options;
use crate::resources::Resources;
use crate::shared::Shared;
use crate::spec::{GroupStrategy, Interned, Shape, TaskSpec};
use crate::time::Tick;
use crate::value::{Location, RefSpec, Value, decode_process, encode_process};

/// A process to its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToNode {
    /// The process has mapped everything and waits for work.
    Hello,
    /// An owner wants `count` leases of this shape in all (0 withdraws the wish). `depth` is the deepest task waiting.
    WantLeases {
        /// The owner's number for the shape.
        pool: u32,
        /// The shape.
        shape: Shape,
        /// How many leases the owner can use beyond those it has.
        count: u32,
        /// Deeper tasks go first, since others wait for them.
        depth: u32,
    },
    /// An owner gives a lease back.
    ReturnLease {
        /// Which.
        lease: LeaseId,
    },
    /// The task that runs under this lease waits for something and gives its CPU back.
    Blocked {
        /// Which.
        lease: LeaseId,
    },
    /// It runs on.
    Unblocked {
        /// Which.
        lease: LeaseId,
    },
    /// Start an actor.
    CreateActor {
        /// The constructor's task.
        spec: Arc<TaskSpec>,
        /// Its arguments by reference.
        resolved: Vec<Value>,
    },
    /// An actor's worker says how the constructor ended.
    ActorConstructed {
        /// Which.
        actor: ActorId,
        /// Unit bytes or a failure.
        value: Value,
    },
    /// Tell me where this actor is, now and whenever that changes.
    WatchActor {
        /// Which.
        actor: ActorId,
        /// The node that manages it, as far as the asker knows: its owner's.
        manager: NodeId,
    },
    /// Nobody holds the actor any more: let it finish its calls and end.
    ReleaseActor {
        /// Which.
        actor: ActorId,
    },
    /// End the actor now.
    KillActor {
        /// Which.
        actor: ActorId,
        /// The node that manages it, as far as the asker knows: its owner's.
        manager: NodeId,
        /// Whether it may be started again.
        restart: bool,
    },
    /// Which actor has this name?
    FindActor {
        /// Question number.
        request: RequestId,
        /// The name.
        name: String,
    },
    /// I run a task again and am about to submit or put this: does it exist already?
    Adopt {
        /// Question number.
        request: RequestId,
        /// The task or the put's object; for a task, its first result.
        object: ObjectId,
        /// What I would make.
        digest: u64,
        /// I have the items below this one, when it is a stream.
        items: u32,
    },
    /// I need a link to this process.
    Connect {
        /// Whom.
        peer: ProcessId,
    },
    /// What is the value of this object, whose owner is dead?
    Resolve {
        /// Which.
        object: ObjectId,
        /// The dead owner's node.
        home: NodeId,
    },
    /// I hold `count` grants of this object, whose owner is dead. Sent before [`ToNode::Settled`].
    Claim {
        /// Which.
        object: ObjectId,
        /// The node that counts it: the dead owner's.
        home: NodeId,
        /// Grants held; negative when some are given back.
        count: i64,
    },
    /// I send `holder` a reference under the node's name, to an object that I have from the node or from a dead owner:
    /// it holds it now, and gives it back by [`ToNode::Claim`].
    ClaimFor {
        /// Which.
        object: ObjectId,
        /// The node under whose name it goes.
        home: NodeId,
        /// Who gets it.
        holder: ProcessId,
    },
    /// The reference that `lender` claimed for me has come.
    ClaimArrived {
        /// Which.
        object: ObjectId,
        /// The node under whose name it came.
        home: NodeId,
        /// Who sent it.
        lender: ProcessId,
    },
    /// I have dropped what the dead process had queued with me and claimed what I hold of its objects.
    Settled {
        /// The dead process.
        dead: ProcessId,
    },
    /// I have read what had been sent to me when everybody knew of this death, and claimed what came in its name.
    Flushed {
        /// The dead process.
        dead: ProcessId,
    },
    /// End this worker because its task was cancelled and did not stop.
    KillWorker {
        /// Which.
        worker: ProcessId,
        /// For whose sake.
        task: TaskId,
    },
    /// What this process writes makes no sense.
    PeerCorrupt {
        /// Who.
        peer: ProcessId,
        /// What was wrong.
        reason: String,
    },
    /// Room for an object of this size, please.
    CreateObject {
        /// Question number.
        request: RequestId,
        /// Size.
        len: u64,
    },
    /// The writer gave up on an object.
    AbortObject {
        /// Where it would have been.
        at: Location,
    },
    /// Nobody can ask for this object any more.
    FreeObject {
        /// Where it lies (or lay, before it was spilled).
        at: Location,
    },
    /// Bring these objects of this node into memory, all together, and keep them there until [`ToNode::EndGather`]. Answered by
    /// [`FromNode::Gathered`](super::FromNode::Gathered).
    Gather {
        /// Question number.
        request: RequestId,
        /// Under which lease the task runs that wants them; none in a driver.
        lease: Option<LeaseId>,
        /// The function of a task that is about to start with them and holds nothing yet.
        function: Option<FunctionKey>,
        /// Their last known places.
        inputs: Vec<Location>,
        /// Bytes of objects on other nodes that I have copied here when I get the answer.
        arriving_bytes: u64,
    },
    /// I have pinned what was gathered, or do not want it any more; a task says so when it has ended.
    EndGather {
        /// The question's number.
        request: RequestId,
        /// Bytes that the task has put into the store as its results.
        output_bytes: Option<u64>,
    },
    /// My object lay on a node that is dead: is there another copy?
    FindCopy {
        /// Which.
        object: ObjectId,
        /// Where it lay.
        at: Location,
        /// The node that knows of its copies: its owner's.
        home: NodeId,
    },
    /// The value lies on another node: bring a copy here. Answered by [`FromNode::Located`](super::FromNode::Located).
    Fetch {
        /// Question number.
        request: RequestId,
        /// Which object, and who owns it.
        object: RefSpec,
        /// Where it lies.
        at: Location,
    },
    /// Keep this code for whoever runs tasks of that function.
    Publish {
        /// Question number.
        request: RequestId,
        /// The hash of the code.
        function: FunctionKey,
        /// The code, in the front end's encoding.
        code: Vec<u8>,
    },
    /// What is the code of this function?
    Lookup {
        /// Question number.
        request: RequestId,
        /// Which.
        function: FunctionKey,
    },
    /// What is in the node's tables?
    QueryState {
        /// Question number.
        request: RequestId,
    },
    /// What has the machine, and what of it is free?
    QueryResources {
        /// Question number.
        request: RequestId,
    },
    /// Which names do actors have?
    QueryNames {
        /// Question number.
        request: RequestId,
    },
    /// Why does this task not finish?
    Explain {
        /// Question number.
        request: RequestId,
        /// The task.
        task: TaskId,
    },
    /// A function has run here as often as it may: give me no more tasks, and end me when I have and own nothing.
    Spent,
    /// A call of the actor that I host never came, though a later one did: end me, and say why.
    CallLost {
        /// Whose.
        caller: ProcessId,
        /// The number of the first that is missing.
        expected: u64,
        /// The number of the one that came.
        came: u64,
    },
    /// The process ends in good order: nothing runs any more, and the user's code is having its last say.
    Goodbye,
    /// Which nodes are there, and what have they?
    QueryNodes {
        /// Question number.
        request: RequestId,
    },
    /// Reserve these bundles, all or none. A group that exists already is left as it is.
    CreateGroup {
        /// Its id, made by the creator.
        group: GroupId,
        /// Name under which others find it.
        name: Option<String>,
        /// How the bundles lie on the nodes.
        strategy: GroupStrategy,
        /// What to reserve.
        bundles: Vec<Resources>,
        /// It outlives its creator and ends only when it is removed.
        detached: bool,
    },
    /// Give up a placement group: what runs in it is ended.
    RemoveGroup {
        /// Which.
        group: GroupId,
    },
    /// Which placement group has this name?
    FindGroup {
        /// Question number.
        request: RequestId,
        /// The name.
        name: String,
    },
    /// Which placement groups are there?
    QueryGroups {
        /// Question number.
        request: RequestId,
    },
    /// Tell me once, by [`FromNode::GroupPlaced`](super::FromNode::GroupPlaced), when this group is placed or never will be.
    WatchGroup {
        /// Which.
        group: GroupId,
    },
    /// Reduce objects to one, which will be this put of mine; answered by [`FromNode::Reduced`](super::FromNode::Reduced).
    Reduce {
        /// The result.
        target: ObjectId,
        /// How two become one.
        op: Op,
        /// How many inputs there are.
        total: u32,
        /// So many of them are taken, the first that are there.
        count: u32,
        /// How it is done.
        options: Options,
    },
    /// Inputs of a reduce that have a place, also another one than I said before.
    ReduceInputs {
        /// The result.
        target: ObjectId,
        /// Which of its inputs, and where they lie; [`INPUTS_PER_MESSAGE`] at most.
        inputs: Vec<ReduceInput>,
        /// More are known and follow at once.
        more: bool,
    },
    /// I do not want the result any more.
    EndReduce {
        /// The result.
        target: ObjectId,
    },
    /// I am this member of a collective group. Answered by [`FromNode::CollectiveFormed`](super::FromNode::CollectiveFormed) when
    /// all are there, or by [`FromNode::CollectiveBroken`](super::FromNode::CollectiveBroken).
    JoinCollective {
        /// Which group.
        group: CollectiveId,
        /// My rank.
        rank: u32,
        /// How many members it has.
        size: u32,
        /// Who I am, for people.
        label: String,
        /// The members by rank, when the group is one of actors.
        actors: Vec<ActorId>,
    },
    /// I make no other call in this group.
    LeaveCollective {
        /// Which group.
        group: CollectiveId,
        /// My rank.
        rank: u32,
        /// So many I made.
        calls: u64,
    },
    /// Which members of this collective group have come?
    QueryCollective {
        /// Question number.
        request: RequestId,
        /// Which group.
        group: CollectiveId,
    },
    /// Run this stage for me. Its inputs are mine and go with it; I may still be writing them ([`ToNode::GrowStage`]). Answered by
    /// [`FromNode::StageDone`](super::FromNode::StageDone) or [`FromNode::StageFailed`](super::FromNode::StageFailed).
    RunStage {
        /// The stage.
        spec: Box<StageSpec>,
    },
    /// I have written more of the inputs of this stage.
    GrowStage {
        /// Which.
        id: StageId,
    },
    /// I want nothing more of this stage, or hold what it made.
    EndStage {
        /// Which.
        id: StageId,
        /// Why, for those who wait for it.
        reason: String,
    },
    /// Bring copies of a value to these nodes, whoever will want it there.
    Broadcast {
        /// Which object, and who owns it.
        object: RefSpec,
        /// Where it lies.
        at: Location,
        /// To which nodes.
        nodes: Vec<NodeId>,
    },
}

/// An input of a reduce that has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReduceInput {
    /// Its number in the list.
    pub index: u32,
    /// What it is.
    pub object: ObjectId,
    /// Where it lies.
    pub at: Location,
    /// It is a result that is still being made there, and may come to nothing.
    pub is_growing: bool,
}

/// So many inputs of a reduce go in one message.
pub const INPUTS_PER_MESSAGE: usize = 256;

/// One item of the ring from a process to its node: a record, or a request.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeBound {
    /// Something for the ledger.
    Record(Record),
    /// Something for the node to do.
    Request(ToNode),
    /// Something for a process of another node.
    Relay {
        /// What the message says, for the ledger, before it leaves: a record that would repeat a long message is not written.
        record: Option<Record>,
        /// For whom.
        to: ProcessId,
        /// What, as [`Peer`](super::Peer) encodes it.
        bytes: Shared,
    },
}

/// First byte of what is to be passed on; records have small numbers of their own.
const RELAY: u8 = 0x40;
const RECORDED_RELAY: u8 = 0x41;

impl NodeBound {
    /// Appends a request. Records append themselves ([`Record::encode`]).
    pub fn encode_request(request: &ToNode, out: &mut Vec<u8>) {
        encode_control(request, out);
    }

    /// Begins a message for a process of another node: what follows is as [`Peer`] encodes it. With a time, it is a record of
    /// then as well ([`Record::is_said_by`]).
    pub fn begin_relay(to: ProcessId, recorded: Option<Tick>, out: &mut impl Write) {
        out.u8(if recorded.is_some() { RECORDED_RELAY } else { RELAY });
        encode_process(to, out);
        if let Some(at) = recorded {
            out.u64(at.0);
        }
    }

    /// Appends a message for a process of another node.
    pub fn encode_relay(to: ProcessId, message: &[u8], out: &mut Vec<u8>) {
        Self::begin_relay(to, None, out);
        out.extend_from_slice(message);
    }

    /// Reads an item.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::decode_with(bytes, &mut Interned::default())
    }

    /// Reads one of a stream of items.
    pub fn decode_with(bytes: &[u8], interned: &mut Interned) -> Result<Self, Malformed> {
        match bytes.first() {
            Some(&CONTROL) => Ok(NodeBound::Request(decode_control(&bytes[1..])?)),
            Some(&kind @ (RELAY | RECORDED_RELAY)) => {
                let mut from = Reader::new(&bytes[1..]);
                let to = decode_process(&mut from)?;
                let recorded = if kind == RECORDED_RELAY { Some(Tick(from.u64()?)) } else { None };
                // Its one copy: the record shares it with the message, which is kept until the other node has it.
                let bytes = Shared::from(from.rest());
                let record =
                    recorded.map(|at| Record::said_by(Peer::decode_shared(&bytes, interned)?, at)).transpose()?;
                Ok(NodeBound::Relay { record, to, bytes })
            }
            Some(_) => Ok(NodeBound::Record(Record::decode_with(bytes, interned)?)),
            None => Err(Malformed::Short),
        }
    }
}
