//! A task as it is submitted, recorded and run: one set of bytes for all three.
//!
//! The record of a submit is enough to run the task again (design rule 2), so the spec that the worker receives and the
//! one that the ledger keeps are the same encoding.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::codec::{Malformed, Reader, Write};
use crate::id::{ActorId, FunctionKey, GroupId, NodeId, ObjectId, ProcessId, TaskId};
use crate::resources::Resources;
use crate::shared::Shared;
use crate::stream::Stream;
use crate::value::{Location, RefSpec, decode_process, decode_refs, encode_process, encode_refs, skim_refs};

/// Retries after a worker's death when the user does not say otherwise.
pub const RETRIES_DEFAULT: u32 = 3;
/// More results than this from one task are refused.
pub const RETURNS_MAX: u32 = 10_000;
/// More references than this in one task's arguments are refused.
pub const ARGUMENT_REFS_MAX: usize = 1_000_000;
/// More calls than this at once in one actor are refused.
pub const ACTOR_CONCURRENCY_MAX: u32 = 10_000;

/// What kind of work a spec describes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskKind {
    /// A function.
    Plain,
    /// An actor's constructor.
    Create(ActorOptions),
    /// An actor's method.
    Call {
        /// The actor.
        actor: ActorId,
        /// Who calls.
        caller: ProcessId,
        /// The caller's count of calls to this actor: increasing, never used twice.
        sequence: u64,
    },
}

/// What the user chose for an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorOptions {
    /// Name under which others find it.
    pub name: Option<String>,
    /// How often it is started again after a death.
    pub restarts_max: u32,
    /// How many of its calls run at once; 0 counts as 1.
    pub concurrency_max: u32,
    /// It outlives its owner and ends only when it is killed.
    pub detached: bool,
}

impl Default for ActorOptions {
    /// Without a name, never started again, one call at a time.
    fn default() -> Self {
        Self { name: None, restarts_max: 0, concurrency_max: 1, detached: false }
    }
}

impl ActorOptions {
    /// How many calls run at once, at least one.
    pub fn concurrency(&self) -> usize {
        self.concurrency_max.max(1) as usize
    }
}

/// Where a task or actor may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Strategy {
    /// Where it waits least: the own node first, then the one with the lowest estimated waiting time.
    #[default]
    Default,
    /// Evenly over the nodes that have the resources.
    Spread,
    /// On this node.
    Node {
        /// Which.
        node: NodeId,
        /// Anywhere else when that node is gone or can never give it.
        soft: bool,
    },
    /// In what a placement group has reserved.
    Group {
        /// Which group.
        group: GroupId,
        /// Which bundle; any when none.
        bundle: Option<u32>,
    },
}

impl Strategy {
    /// The placement group that it is bound to.
    pub fn group(&self) -> Option<GroupId> {
        match self {
            Strategy::Group { group, .. } => Some(*group),
            Strategy::Default | Strategy::Spread | Strategy::Node { .. } => None,
        }
    }
}

/// More bundles than this in one placement group are refused.
pub const BUNDLES_MAX: usize = 1_000;

/// How the bundles of a placement group lie on the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum GroupStrategy {
    /// On as few nodes as possible.
    #[default]
    Pack,
    /// On as many nodes as possible.
    Spread,
    /// On one node.
    StrictPack,
    /// Each on another node.
    StrictSpread,
}

impl GroupStrategy {
    /// All, for lists and messages.
    pub const ALL: [Self; 4] = [Self::Pack, Self::Spread, Self::StrictPack, Self::StrictSpread];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            GroupStrategy::Pack => "PACK",
            GroupStrategy::Spread => "SPREAD",
            GroupStrategy::StrictPack => "STRICT_PACK",
            GroupStrategy::StrictSpread => "STRICT_SPREAD",
        }
    }
}

/// Inputs of a task whose places are told; of more, the largest.
pub const NEAR_MAX: usize = 8;

/// What a lease is for: tasks of one shape can share it.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Shape {
    /// What one task needs.
    pub resources: Resources,
    /// What its process must look like.
    pub environment: u64,
    /// As [`TaskOptions::threads_per_worker`].
    pub threads_per_worker: u32,
    /// Where it may run.
    pub strategy: Strategy,
    /// Its largest inputs, at most [`NEAR_MAX`]: it is wanted where most of their bytes are.
    pub near: Vec<Location>,
}

/// Set beside the kind of a task that streams.
const STREAMS: u8 = 0x80;

/// Forms of a task's options: CPUs only.
const PLAIN: u8 = 0;
/// All of them.
const IN_FULL: u8 = 1;
/// CPUs only, in a process of its own.
const PLAIN_ALONE: u8 = 2;

/// The options of one task that are not on the hot path.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TaskOptions {
    /// Name for people.
    pub name: String,
    /// What it needs.
    pub resources: Resources,
    /// Runs again after a worker's death, at most so often.
    pub retries_max: u32,
    /// Errors (type or text) that are tried again too.
    pub retry_on: Vec<String>,
    /// What its process must look like: 0 is the job's own environment, else the hash of what was asked for. A process
    /// that was leased for one never serves another.
    pub environment: u64,
    /// A process that has run the function so often ends in good order after the last reply; 0 for no limit.
    pub calls_max: u32,
    /// Tasks that may be in its process at a time, itself and those that are blocked: 1 for a process of its own, 0 for as
    /// many as the node allows.
    pub threads_per_worker: u32,
    /// Where it may run.
    pub strategy: Strategy,
    /// What it submits without a strategy of its own goes into its placement group too.
    pub captures: bool,
}

/// The plain options that a reader of specs met last, to share instead of making them again.
#[derive(Clone, Debug, Default)]
pub struct Interned(Option<Arc<TaskOptions>>);

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// The task.
    pub id: TaskId,
    /// Who submitted it.
    pub parent: TaskId,
    /// What to run.
    pub function: FunctionKey,
    /// Hash of function and arguments: tells a repeated submit from a different one.
    pub digest: u64,
    /// Runs so far, from 0.
    pub attempt: u32,
    /// The lane in which it names what it makes: another one when it may have run on another node before, whose ledger
    /// has what it made there.
    pub lane: u32,
    /// Submits between the driver and this task.
    pub depth: u32,
    /// How many objects it makes.
    pub returns: u32,
    /// Function, constructor or method.
    pub kind: TaskKind,
    /// Its items come one by one and its only result is the end of them.
    pub stream: Option<Stream>,
    /// The rest; shared between the tasks of one call site.
    pub options: Arc<TaskOptions>,
    /// Arguments by reference, resolved before the task starts, in the order in which the payload names them.
    pub dependencies: Vec<RefSpec>,
    /// References inside argument values; they travel as references.
    pub nested: Vec<RefSpec>,
    /// Arguments in the front end's encoding.
    pub payload: Shared,
}

impl TaskSpec {
    /// The ids of the results.
    pub fn results(&self) -> impl Iterator<Item = ObjectId> + use<> {
        let id = self.id;
        (0..self.returns).map(move |index| ObjectId::result(id, index))
    }

    /// Hash of what makes two submits the same: function, arguments, references, shape of the result.
    pub fn compute_digest(&self) -> u64 {
        let shape = u64::from(self.returns) | u64::from(self.stream.is_some()) << 32;
        let mut digest = crate::value::digest_without_owners(self.function.0 ^ shape, &self.payload, &self.nested);
        for r in self.dependencies.iter().chain(&self.nested) {
            let mut key = [0; 24];
            key[..16].copy_from_slice(&r.object.task().raw().to_le_bytes());
            key[16..].copy_from_slice(&r.object.index().to_le_bytes());
            digest = crate::id::digest_from(digest, &key);
        }
        digest
    }

    /// Appends the spec to a message or record.
    pub fn encode(&self, out: &mut impl Write) {
        out.u128(self.id.raw());
        out.u128(self.parent.raw());
        out.u64(self.function.0);
        out.u64(self.digest);
        out.u32(self.attempt);
        out.u32(self.lane);
        out.u32(self.depth);
        out.u32(self.returns);
        let streams = if self.stream.is_some() { STREAMS } else { 0 };
        match &self.kind {
            TaskKind::Plain => out.u8(streams),
            TaskKind::Create(options) => {
                out.u8(1 | streams);
                out.bytes(&postcard::to_allocvec(options).unwrap_or_default());
            }
            TaskKind::Call { actor, caller, sequence } => {
                out.u8(2 | streams);
                out.u128(actor.0.raw());
                encode_process(*caller, out);
                out.u64(*sequence);
            }
        }
        if let Some(stream) = self.stream {
            out.u32(stream.items_max);
            out.u64(stream.bytes_max);
        }
        self.options.encode(out);
        encode_refs(&self.dependencies, out);
        encode_refs(&self.nested, out);
        out.bytes(&self.payload);
    }

    /// Goes past a spec in a message: its payload.
    pub(crate) fn skim<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
        from.raw(64)?;
        let form = from.u8()?;
        match form & !STREAMS {
            0 => {}
            1 => drop(from.bytes()?),
            2 => drop(from.raw(36)?),
            _ => return Err(Malformed::Unknown("task kind")),
        }
        if form & STREAMS != 0 {
            from.raw(12)?;
        }
        TaskOptions::skim(from)?;
        skim_refs(from)?;
        skim_refs(from)?;
        from.bytes()
    }

    /// Takes a spec off a message or record.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::decode_with(from, &mut Interned::default())
    }

    /// The same for a stream of specs, most of which have the options of the one before.
    pub fn decode_with(from: &mut Reader<'_>, interned: &mut Interned) -> Result<Self, Malformed> {
        let id = TaskId::from_raw(from.u128()?);
        let parent = TaskId::from_raw(from.u128()?);
        let function = FunctionKey(from.u64()?);
        let digest = from.u64()?;
        let (attempt, lane) = (from.u32()?, from.u32()?);
        let (depth, returns) = (from.u32()?, from.u32()?);
        if returns > RETURNS_MAX {
            return Err(Malformed::Unknown("number of results"));
        }
        let form = from.u8()?;
        let kind = match form & !STREAMS {
            0 => TaskKind::Plain,
            1 => {
                TaskKind::Create(postcard::from_bytes(from.bytes()?).map_err(|_| Malformed::Unknown("actor options"))?)
            }
            2 => TaskKind::Call {
                actor: ActorId(TaskId::from_raw(from.u128()?)),
                caller: decode_process(from)?,
                sequence: from.u64()?,
            },
            _ => return Err(Malformed::Unknown("task kind")),
        };
        let stream = match form & STREAMS {
            0 => None,
            _ => Some(Stream { items_max: from.u32()?, bytes_max: from.u64()? }),
        };
        let options = TaskOptions::decode(from, interned)?;
        let dependencies = decode_refs(from)?;
        let nested = decode_refs(from)?;
        let payload = from.shared()?;
        Ok(Self {
            id,
            parent,
            function,
            digest,
            attempt,
            lane,
            depth,
            returns,
            kind,
            stream,
            options,
            dependencies,
            nested,
            payload,
        })
    }
}

impl TaskOptions {
    fn encode(&self, out: &mut impl Write) {
        out.bytes(self.name.as_bytes());
        out.u64(self.resources.cpus.0);
        out.u32(self.retries_max);
        // The common cases, CPUs only with a shared process or one of its own, are one byte; anything else is postcard.
        let plain = self.resources.gpus.0 == 0
            && self.resources.memory_bytes == 0
            && self.resources.custom.is_empty()
            && self.retry_on.is_empty()
            && self.environment == 0
            && self.calls_max == 0
            && self.strategy == Strategy::Default
            && !self.captures;
        match self.threads_per_worker {
            0 if plain => out.u8(PLAIN),
            1 if plain => out.u8(PLAIN_ALONE),
            _ => {
                out.u8(IN_FULL);
                out.bytes(&postcard::to_allocvec(self).unwrap_or_default());
            }
        }
    }

    fn skim(from: &mut Reader<'_>) -> Result<(), Malformed> {
        from.bytes()?;
        from.raw(12)?;
        if from.u8()? == IN_FULL {
            from.bytes()?;
        }
        Ok(())
    }

    fn decode(from: &mut Reader<'_>, interned: &mut Interned) -> Result<Arc<Self>, Malformed> {
        let name = from.bytes()?;
        let cpus = crate::resources::Amount(from.u64()?);
        let retries_max = from.u32()?;
        let threads_per_worker = match from.u8()? {
            PLAIN => 0,
            PLAIN_ALONE => 1,
            IN_FULL => return postcard::from_bytes(from.bytes()?).map_err(|_| Malformed::Unknown("task options")),
            _ => return Err(Malformed::Unknown("task options form")),
        };
        if let Some(last) = &interned.0
            && last.name.as_bytes() == name
            && last.resources.cpus == cpus
            && last.retries_max == retries_max
            && last.threads_per_worker == threads_per_worker
        {
            return Ok(Arc::clone(last));
        }
        let name = std::str::from_utf8(name).map_err(|_| Malformed::Unknown("task name"))?.to_owned();
        let resources = Resources::cpus(cpus);
        let options = Arc::new(Self { name, resources, retries_max, threads_per_worker, ..Self::default() });
        interned.0 = Some(Arc::clone(&options));
        Ok(options)
    }
}
