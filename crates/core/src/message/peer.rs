//! What a process says to another.

use std::cmp::Ordering;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CONTROL, decode_control, decode_values, encode_control, encode_values};
use crate::codec::{Malformed, Reader, Write};
use crate::collective::Packet;
use crate::id::{LeaseId, ObjectId, ProcessId, TaskId};
use crate::shared::Shared;
use crate::spec::{Interned, TaskSpec};
use crate::value::{LONG_BYTES, Value};

/// A process to another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Peer {
    /// Run this under the lease.
    Run {
        /// The lease.
        lease: LeaseId,
        /// The task.
        spec: Arc<TaskSpec>,
        /// Values of its dependencies, in order.
        resolved: Vec<Value>,
    },
    /// Run this call of the actor that you host.
    Call {
        /// Counts what I have sent to you as calls, from 1: you have the one before.
        number: u64,
        /// The call.
        spec: Arc<TaskSpec>,
        /// Values of its dependencies, in order.
        resolved: Vec<Value>,
    },
    /// The same as `Run` for a task that needs results of tasks ahead of it under this lease: the owner need not wait for them.
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
    /// The task has yielded an item.
    Item {
        /// Which.
        task: TaskId,
        /// Which run of it.
        attempt: u32,
        /// Which item.
        index: u32,
        /// The item.
        value: Value,
    },
    /// The items below this one of your stream were taken: who yields them may go on.
    Taken {
        /// Which task.
        task: TaskId,
        /// How many.
        items: u32,
    },
    /// I, a borrower, have taken the items below this one of your stream.
    Took {
        /// Which task.
        task: TaskId,
        /// How many.
        items: u32,
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
    /// This worker is about to end: send nothing more under this lease, and return it.
    Closing {
        /// Which.
        lease: LeaseId,
    },
    /// Stop this task.
    Cancel {
        /// Which.
        task: TaskId,
        /// And all that it has submitted.
        recursive: bool,
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
        /// Cancel what that task has submitted too.
        recursive: bool,
    },
    /// A member of a collective group to another.
    Collective(Box<Packet>),
}

pub(super) const RUN: u8 = 1;
pub(super) const REPLY: u8 = 2;
pub(super) const RUN_AFTER: u8 = 3;
pub(super) const ITEM: u8 = 4;
pub(super) const COLLECTIVE: u8 = 5;
pub(super) const CALL: u8 = 6;

/// What a message is about, as its first byte tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// [`Peer::Run`], [`Peer::RunAfter`] or [`Peer::Call`]: lease or number (8 bytes), then the spec, which begins with the task.
    Run,
    /// [`Peer::Reply`]: begins with the task.
    Reply,
    /// [`Peer::Item`]: task, attempt, index.
    Item,
    /// [`Peer::Collective`].
    Collective,
    /// Any other.
    Control,
}

impl Peer {
    /// What an encoded message is about, without decoding it.
    pub fn kind(bytes: &[u8]) -> Option<PeerKind> {
        match *bytes.first()? {
            RUN | RUN_AFTER | CALL => Some(PeerKind::Run),
            REPLY => Some(PeerKind::Reply),
            ITEM => Some(PeerKind::Item),
            COLLECTIVE => Some(PeerKind::Collective),
            CONTROL => Some(PeerKind::Control),
            _ => None,
        }
    }

    /// Whether there is much in it: it is worth a look at how long it will be to write it only once.
    pub fn is_long(&self) -> bool {
        match self {
            Peer::Run { spec, resolved, .. }
            | Peer::Call { spec, resolved, .. }
            | Peer::RunAfter { spec, resolved, .. } => {
                spec.payload.len() >= LONG_BYTES || resolved.iter().any(Value::is_long)
            }
            Peer::Reply { values, .. } => values.iter().any(Value::is_long),
            Peer::Item { value, .. } => value.is_long(),
            Peer::Collective(packet) => packet.bytes.len() >= LONG_BYTES,
            _ => false,
        }
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut impl Write) {
        match self {
            Peer::Run { lease, spec, resolved } => {
                out.u8(RUN);
                out.u64(lease.0);
                spec.encode(out);
                encode_values(resolved, out);
            }
            Peer::Call { number, spec, resolved } => {
                out.u8(CALL);
                out.u64(*number);
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
            Peer::Item { task, attempt, index, value } => {
                out.u8(ITEM);
                out.u128(task.raw());
                out.u32(*attempt);
                out.u32(*index);
                value.encode(out);
            }
            // Elements are many: they go as they are, behind what postcard makes of the rest.
            Peer::Collective(packet) => {
                out.u8(COLLECTIVE);
                out.u64(packet.bytes.len() as u64);
                let head = postcard::to_allocvec(packet).expect("a packet is plain data and always encodes");
                out.raw(&head);
                out.raw(&packet.bytes);
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
        Self::read(Reader::new(bytes), interned)
    }

    /// The same of bytes that the message may share.
    pub fn decode_shared(bytes: &Shared, interned: &mut Interned) -> Result<Self, Malformed> {
        Self::read(Reader::of(bytes), interned)
    }

    fn read(mut from: Reader<'_>, interned: &mut Interned) -> Result<Self, Malformed> {
        let message = match from.u8()? {
            RUN => Peer::Run {
                lease: LeaseId(from.u64()?),
                spec: Arc::new(TaskSpec::decode_with(&mut from, interned)?),
                resolved: decode_values(&mut from)?,
            },
            CALL => Peer::Call {
                number: from.u64()?,
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
            ITEM => {
                let (task, attempt, index) = (TaskId::from_raw(from.u128()?), from.u32()?, from.u32()?);
                Peer::Item { task, attempt, index, value: Value::decode(&mut from)? }
            }
            COLLECTIVE => {
                let len = from.u64()?;
                let (mut packet, rest): (Packet, _) =
                    postcard::take_from_bytes(from.rest()).map_err(|_| Malformed::Unknown("packet of a group"))?;
                match (rest.len() as u64).cmp(&len) {
                    Ordering::Less => return Err(Malformed::Short),
                    Ordering::Greater => return Err(Malformed::Trailing),
                    Ordering::Equal => packet.bytes = rest.to_vec(),
                }
                return Ok(Peer::Collective(Box::new(packet)));
            }
            CONTROL => return decode_control(from.rest()),
            _ => return Err(Malformed::Unknown("message kind")),
        };
        from.finish()?;
        Ok(message)
    }
}
