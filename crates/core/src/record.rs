//! What a process writes into its ledger ring before anything leaves it (design rule 2).
//!
//! Records are complete: a submit holds the whole spec, a result holds its inline bytes or the place of the sealed
//! object. One stream serves lineage, adoption after an owner's death, the state tables and the timeline. A long record that the
//! message behind it would repeat, on its way to another node, is that message ([`Record::is_said_by`]): one item of the ring.

use std::sync::Arc;

use crate::codec::{Malformed, Reader, Write};
use crate::id::{ObjectId, TaskId};
use crate::message::{Peer, decode_values, encode_values};
use crate::spec::{Interned, TaskSpec};
use crate::time::Tick;
use crate::value::{LONG_BYTES, Value, decode_object, encode_object};

/// One entry of the ledger.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// An owner submitted a task, or submits it again with a higher attempt.
    Submitted {
        /// When.
        at: Tick,
        /// All of it.
        spec: Arc<TaskSpec>,
    },
    /// A worker is about to run the user's code.
    Started {
        /// When.
        at: Tick,
        /// Which task.
        task: TaskId,
        /// Which run of it.
        attempt: u32,
    },
    /// The user's code has ended; written before the reply is sent.
    Finished {
        /// When.
        at: Tick,
        /// Which task.
        task: TaskId,
        /// Which run of it.
        attempt: u32,
        /// The results.
        values: Vec<Value>,
    },
    /// A streaming task yielded an item; written before the item is sent.
    Yielded {
        /// Which task.
        task: TaskId,
        /// Which run of it.
        attempt: u32,
        /// Which item.
        index: u32,
        /// The item.
        value: Value,
    },
    /// A process put a value.
    Put {
        /// Which object.
        object: ObjectId,
        /// Hash of the bytes.
        digest: u64,
        /// The value.
        value: Value,
    },
    /// The owner's count went to zero: nobody can ask any more.
    Freed {
        /// Which object.
        object: ObjectId,
    },
    /// The owner gave a result without a worker's reply (cancelled, infeasible, retries exhausted).
    Settled {
        /// Which task.
        task: TaskId,
        /// What its objects hold now.
        value: Value,
    },
}

const SUBMITTED: u8 = 1;
const STARTED: u8 = 2;
const FINISHED: u8 = 3;
const PUT: u8 = 4;
const FREED: u8 = 5;
const SETTLED: u8 = 6;
const YIELDED: u8 = 7;

impl Record {
    /// Whether there is much in it ([`LONG_BYTES`]).
    pub fn is_long(&self) -> bool {
        match self {
            Record::Submitted { spec, .. } => spec.payload.len() >= LONG_BYTES,
            Record::Finished { values, .. } => values.iter().any(Value::is_long),
            Record::Yielded { value, .. } | Record::Put { value, .. } | Record::Settled { value, .. } => {
                value.is_long()
            }
            Record::Started { .. } | Record::Freed { .. } => false,
        }
    }

    /// Whether a message says all that this record does, so that it need not be written for itself.
    pub fn is_said_by(&self, message: &Peer) -> bool {
        match (self, message) {
            (Record::Submitted { spec, .. }, Peer::Run { spec: sent, .. } | Peer::Call { spec: sent, .. }) => {
                Arc::ptr_eq(spec, sent)
            }
            (Record::Finished { task, attempt, .. }, Peer::Reply { task: of, attempt: number, .. }) => {
                (task, attempt) == (of, number)
            }
            _ => false,
        }
    }

    /// When it was, if it says so.
    pub fn at(&self) -> Option<Tick> {
        match self {
            Record::Submitted { at, .. } | Record::Started { at, .. } | Record::Finished { at, .. } => Some(*at),
            _ => None,
        }
    }

    /// The record that a message is besides.
    pub fn said_by(message: Peer, at: Tick) -> Result<Self, Malformed> {
        match message {
            Peer::Run { spec, .. } | Peer::Call { spec, .. } => Ok(Record::Submitted { at, spec }),
            Peer::Reply { task, attempt, values, .. } => Ok(Record::Finished { at, task, attempt, values }),
            _ => Err(Malformed::Unknown("record")),
        }
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut impl Write) {
        match self {
            Record::Submitted { at, spec } => {
                out.u8(SUBMITTED);
                out.u64(at.0);
                spec.encode(out);
            }
            Record::Started { at, task, attempt } => {
                out.u8(STARTED);
                out.u64(at.0);
                out.u128(task.raw());
                out.u32(*attempt);
            }
            Record::Finished { at, task, attempt, values } => {
                out.u8(FINISHED);
                out.u64(at.0);
                out.u128(task.raw());
                out.u32(*attempt);
                encode_values(values, out);
            }
            Record::Yielded { task, attempt, index, value } => {
                out.u8(YIELDED);
                out.u128(task.raw());
                out.u32(*attempt);
                out.u32(*index);
                value.encode(out);
            }
            Record::Put { object, digest, value } => {
                out.u8(PUT);
                encode_object(*object, out);
                out.u64(*digest);
                value.encode(out);
            }
            Record::Freed { object } => {
                out.u8(FREED);
                encode_object(*object, out);
            }
            Record::Settled { task, value } => {
                out.u8(SETTLED);
                out.u128(task.raw());
                value.encode(out);
            }
        }
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::decode_with(bytes, &mut Interned::default())
    }

    /// Reads one of a stream of records.
    pub fn decode_with(bytes: &[u8], interned: &mut Interned) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        let record = match from.u8()? {
            SUBMITTED => {
                let at = Tick(from.u64()?);
                Record::Submitted { at, spec: Arc::new(TaskSpec::decode_with(&mut from, interned)?) }
            }
            STARTED => {
                let at = Tick(from.u64()?);
                Record::Started { at, task: TaskId::from_raw(from.u128()?), attempt: from.u32()? }
            }
            FINISHED => {
                let at = Tick(from.u64()?);
                let (task, attempt) = (TaskId::from_raw(from.u128()?), from.u32()?);
                Record::Finished { at, task, attempt, values: decode_values(&mut from)? }
            }
            YIELDED => {
                let (task, attempt, index) = (TaskId::from_raw(from.u128()?), from.u32()?, from.u32()?);
                Record::Yielded { task, attempt, index, value: Value::decode(&mut from)? }
            }
            PUT => {
                let object = decode_object(&mut from)?;
                Record::Put { object, digest: from.u64()?, value: Value::decode(&mut from)? }
            }
            FREED => Record::Freed { object: decode_object(&mut from)? },
            SETTLED => {
                let task = TaskId::from_raw(from.u128()?);
                Record::Settled { task, value: Value::decode(&mut from)? }
            }
            _ => return Err(Malformed::Unknown("record kind")),
        };
        from.finish()?;
        Ok(record)
    }
}
