//! What processes say to each other.
//!
//! Three conversations: a process to its node ([`ToNode`], in the same ring as its ledger records, so that a request can
//! never overtake the record before it), the node to a process ([`FromNode`]), and a process to another ([`Peer`]). Runs
//! and replies are coded by hand, everything else is postcard.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::codec::{Malformed, Reader, Write};
use crate::failure::Death;
use crate::id::{ActorId, LeaseId, ObjectId, ProcessId, TaskId};
use crate::record::Record;
use crate::resources::Resources;
use crate::spec::{Interned, TaskSpec};
use crate::value::{Location, Value};

/// Number of a question, so that its answer finds the asker. Unique within the asking process.
pub type RequestId = u64;

/// A process to its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToNode {
    /// The process has mapped everything and waits for work.
    Hello,
    /// An owner wants `count` leases of this shape in all (0 withdraws the wish). `depth` is the deepest task waiting.
    WantLeases {
        /// The owner's number for the shape.
        pool: u32,
        /// What one task needs.
        resources: Resources,
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
    },
    /// I hold `count` grants of this object, whose owner is dead. Sent before [`ToNode::Settled`].
    Claim {
        /// Which.
        object: ObjectId,
        /// Grants held; negative when some are given back.
        count: i64,
    },
    /// I send `holder` a reference under the node's name, to an object that I have from the node or from a dead owner:
    /// it holds it now, and gives it back by [`ToNode::Claim`].
    ClaimFor {
        /// Which.
        object: ObjectId,
        /// Who gets it.
        holder: ProcessId,
    },
    /// The reference that `lender` claimed for me has come.
    ClaimArrived {
        /// Which.
        object: ObjectId,
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
    /// The object moved: where is it now? Restores it when it was spilled.
    Locate {
        /// Question number.
        request: RequestId,
        /// Where it was.
        at: Location,
    },
    /// What is in the node's tables?
    QueryState {
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
    /// The process ends in good order.
    Goodbye,
}

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
    /// Everybody knows of this death: read all that peers have sent, then answer [`ToNode::Flushed`].
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
        /// Who owns it.
        owner: ProcessId,
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
    },
    /// The actor died and is being started again.
    ActorRestarting {
        /// Which.
        actor: ActorId,
        /// Why.
        reason: String,
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
    /// The answer to [`ToNode::FindActor`].
    ActorFound {
        /// Question number.
        request: RequestId,
        /// The actor, its owner and the function that makes it.
        found: Option<(ActorId, ProcessId, crate::id::FunctionKey)>,
    },
    /// The answer to [`ToNode::Adopt`].
    Adopted {
        /// Question number.
        request: RequestId,
        /// The answer.
        adoption: Adoption,
        /// The attempt to begin with when it is to be run: higher than any that was recorded.
        attempt: u32,
    },
    /// The value of an object whose owner is dead.
    Resolved {
        /// Which.
        object: ObjectId,
        /// Its value.
        value: Value,
    },
    /// The answer to [`ToNode::CreateObject`].
    ObjectCreated {
        /// Question number.
        request: RequestId,
        /// Where to write, and whether the pages were touched before.
        created: Result<(Location, bool), String>,
    },
    /// The answer to [`ToNode::Locate`].
    Located {
        /// Question number.
        request: RequestId,
        /// Where it is now.
        located: Result<Location, String>,
    },
    /// The answer to [`ToNode::QueryState`], in pieces.
    State {
        /// Question number.
        request: RequestId,
        /// A piece of the postcard of `ledger::Snapshot`.
        bytes: Vec<u8>,
        /// Whether it is the last.
        last: bool,
    },
    /// The answer to [`ToNode::Explain`].
    Explained {
        /// Question number.
        request: RequestId,
        /// In words.
        text: String,
    },
}

/// A process to another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Peer {
    /// Run this under the lease (or as a call of the actor that you host, lease 0).
    Run {
        /// The lease.
        lease: LeaseId,
        /// The task.
        spec: Arc<TaskSpec>,
        /// Values of its dependencies, in order.
        resolved: Vec<Value>,
    },
    /// The same for a task that needs results of tasks ahead of it under this lease: the owner need not wait for them.
    RunAfter {
        /// The lease.
        lease: LeaseId,
        /// The task.
        spec: Arc<TaskSpec>,
        /// Values of its dependencies, in order; those that come from ahead are empty.
        resolved: Vec<Value>,
        /// Which dependencies come from ahead, by place.
        ahead: Vec<u32>,
    },
    /// The task has ended.
    Reply {
        /// Which.
        task: TaskId,
        /// Which run of it.
        attempt: u32,
        /// Its results, in order.
        values: Vec<Value>,
        /// How long the user's code ran.
        duration_us: u32,
    },
    /// Give back tasks that have not started, from the end of the queue, until `keep` are left.
    TakeBack {
        /// Of which lease.
        lease: LeaseId,
        /// How many may stay.
        keep: u32,
    },
    /// These tasks did not start and will not.
    Returned {
        /// Under which lease.
        lease: LeaseId,
        /// Which.
        tasks: Vec<TaskId>,
        /// The running task waits for something, so send nothing more until it replies.
        blocked: bool,
    },
    /// Stop this task.
    Cancel {
        /// Which.
        task: TaskId,
    },
    /// What is the value of this object of yours? Answered when there is one.
    Resolve {
        /// Which.
        object: ObjectId,
    },
    /// The value.
    Resolved {
        /// Of which object.
        object: ObjectId,
        /// The value; references inside are granted.
        value: Value,
    },
    /// I passed a reference to your object on to `borrower`, `count` times.
    Lent {
        /// Which.
        object: ObjectId,
        /// To whom.
        borrower: ProcessId,
        /// How often.
        count: u32,
    },
    /// I give back `count` grants of your object.
    GiveBack {
        /// Which.
        object: ObjectId,
        /// How many.
        count: u32,
    },
    /// Cancel the task that makes this object of yours.
    CancelObject {
        /// Which.
        object: ObjectId,
        /// Kill the worker when it does not stop.
        force: bool,
    },
}

const RUN: u8 = 1;
const REPLY: u8 = 2;
const RUN_AFTER: u8 = 3;
const CONTROL: u8 = 0;

impl Peer {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Peer::Run { lease, spec, resolved } => {
                out.u8(RUN);
                out.u64(lease.0);
                spec.encode(out);
                encode_values(resolved, out);
            }
            Peer::RunAfter { lease, spec, resolved, ahead } => {
                out.u8(RUN_AFTER);
                out.u64(lease.0);
                spec.encode(out);
                encode_values(resolved, out);
                out.u32(ahead.len() as u32);
                ahead.iter().for_each(|place| out.u32(*place));
            }
            Peer::Reply { task, attempt, values, duration_us } => {
                out.u8(REPLY);
                out.u128(task.raw());
                out.u32(*attempt);
                out.u32(*duration_us);
                encode_values(values, out);
            }
            other => encode_control(other, out),
        }
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::decode_with(bytes, &mut Interned::default())
    }

    /// Reads one of a stream of messages.
    pub fn decode_with(bytes: &[u8], interned: &mut Interned) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        let message = match from.u8()? {
            RUN => Peer::Run {
                lease: LeaseId(from.u64()?),
                spec: Arc::new(TaskSpec::decode_with(&mut from, interned)?),
                resolved: decode_values(&mut from)?,
            },
            RUN_AFTER => {
                let lease = LeaseId(from.u64()?);
                let spec = Arc::new(TaskSpec::decode_with(&mut from, interned)?);
                let resolved = decode_values(&mut from)?;
                let n = from.count(4)?;
                let ahead = (0..n).map(|_| from.u32()).collect::<Result<_, _>>()?;
                Peer::RunAfter { lease, spec, resolved, ahead }
            }
            REPLY => {
                let task = TaskId::from_raw(from.u128()?);
                let (attempt, duration_us) = (from.u32()?, from.u32()?);
                Peer::Reply { task, attempt, duration_us, values: decode_values(&mut from)? }
            }
            CONTROL => return decode_control(from.rest()),
            _ => return Err(Malformed::Unknown("message kind")),
        };
        from.finish()?;
        Ok(message)
    }
}

/// One item of the ring from a process to its node: a record, or a request.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeBound {
    /// Something for the ledger.
    Record(Record),
    /// Something for the node to do.
    Request(ToNode),
}

impl NodeBound {
    /// Appends a request. Records append themselves ([`Record::encode`]).
    pub fn encode_request(request: &ToNode, out: &mut Vec<u8>) {
        encode_control(request, out);
    }

    /// Reads an item.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::decode_with(bytes, &mut Interned::default())
    }

    /// Reads one of a stream of items.
    pub fn decode_with(bytes: &[u8], interned: &mut Interned) -> Result<Self, Malformed> {
        match bytes.first() {
            Some(&CONTROL) => Ok(NodeBound::Request(decode_control(&bytes[1..])?)),
            Some(_) => Ok(NodeBound::Record(Record::decode_with(bytes, interned)?)),
            None => Err(Malformed::Short),
        }
    }
}

impl FromNode {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_control(self, out);
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        match bytes.first() {
            Some(&CONTROL) => decode_control(&bytes[1..]),
            Some(_) => Err(Malformed::Unknown("message kind")),
            None => Err(Malformed::Short),
        }
    }
}

fn encode_control<T: Serialize>(message: &T, out: &mut Vec<u8>) {
    out.push(CONTROL);
    let bytes = postcard::to_allocvec(message).expect("a control message is plain data and always encodes");
    out.extend_from_slice(&bytes);
}

fn decode_control<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(|_| Malformed::Unknown("control message"))?;
    if rest.is_empty() { Ok(message) } else { Err(Malformed::Trailing) }
}

/// Appends a list of values.
pub fn encode_values(values: &[Value], out: &mut impl Write) {
    out.u32(values.len() as u32);
    for value in values {
        value.encode(out);
    }
}

/// Takes a list of values.
pub fn decode_values(from: &mut Reader<'_>) -> Result<Vec<Value>, Malformed> {
    let n = from.count(9)?;
    (0..n).map(|_| Value::decode(from)).collect()
}
