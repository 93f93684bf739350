//! Flows and stages: how bytes move and are combined between nodes, as plain data.
//!
//! A *stage* is one node's part in a reduce or in a call of a group. It takes streams of bytes in ([`IntakeSpec`]), each
//! from another stage or from an object of this node, and puts them piece by piece into areas of its store: as they are, or
//! combined with what is there. It offers streams ([`FlowSpec`]) of its areas and objects to other stages, which pull them
//! by name. A byte of a flow can be pulled when the intakes that the flow follows have come so far: so a chain, a tree
//! or a ring is a delay line from node to node, and one mechanism serves all of them.
//!
//! Planners make [`StageSpec`]s; the runtime carries them out and reports the end. Nothing here moves a byte.

use std::fmt;

pub use bireme_arith::{Number, Op};
use serde::{Deserialize, Serialize};

use crate::id::NodeId;
use crate::value::Location;

mod check;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use check::{
    AREAS_PER_STAGE_MAX, FLOWS_PER_STAGE_MAX, HEAD_BYTES_MAX, INPUTS_PER_STAGE_MAX, INTAKES_PER_STAGE_MAX,
    PIECES_PER_STREAM_MAX, WORDS_BYTES_MAX,
};

/// Names a stage: one participant (`slot`: a slot of a reduce, a rank of a group) of one operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StageId {
    /// The operation. Who plans it makes sure that no other has it: from the id of the result's object, or of group and call.
    pub id: u128,
    /// Which try of it: streams of different tries never meet.
    pub epoch: u32,
    /// Which participant.
    pub slot: u32,
}

impl fmt::Display for StageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} of operation {:016x}.{}", self.slot, self.id as u64, self.epoch)
    }
}

impl fmt::Debug for StageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Names a stream of bytes that one stage offers to another of the same operation and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FlowKey {
    /// The operation.
    pub id: u128,
    /// Which try of it.
    pub epoch: u32,
    /// The slot that sends.
    pub from: u32,
    /// The slot that receives.
    pub to: u32,
}

impl FlowKey {
    /// In place of the slot that takes: whichever takes it.
    pub const ANYONE: u32 = u32::MAX;

    /// The stage that sends.
    pub fn sender(self) -> StageId {
        StageId { id: self.id, epoch: self.epoch, slot: self.from }
    }

    /// The stage that receives.
    pub fn receiver(self) -> StageId {
        StageId { id: self.id, epoch: self.epoch, slot: self.to }
    }
}

/// Memory of a stage, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Part {
    /// [`StageSpec::areas`]: written and read.
    Area(u32),
    /// [`StageSpec::inputs`]: only read.
    Input(u32),
}

/// A range of bytes in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slice {
    /// In what.
    pub part: Part,
    /// The first byte.
    pub start: u64,
    /// How many.
    pub len: u64,
}

/// How arriving numbers are combined with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Combine {
    /// With which numbers, from which byte on: the area itself at the same place (in place), or an input or another
    /// place (then the area's old bytes do not matter).
    pub with: Part,
    /// The first byte of those in `with`.
    pub start: u64,
    /// How.
    pub op: Op,
    /// What everything is divided by after it, for a mean; 1 does nothing. The last stage of the operation has the count.
    pub divisor: u32,
}

/// What happens to the bytes of a piece when they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// They are put there as they are.
    Store,
    /// They are numbers, and there is put what they make together with others.
    Numbers(Number, Combine),
    /// They are a whole array object, header and elements, as `with` has one from `start` on. Headers have to be equal, and
    /// the header says what the elements are. What the piece has beyond the elements is nothing.
    Array(Combine),
    /// They are a whole array object and are put there as they are, when the operation is defined for its elements.
    Alone(Op),
    /// They have to be equal to the bytes of that part, from that byte on; nothing is written, and the area does not matter.
    Same(Part, u64),
}

/// A part of a stream that arrives: where its bytes go, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Piece {
    /// The area.
    pub area: u32,
    /// The first byte there.
    pub start: u64,
    /// How many.
    pub len: u64,
    /// What is done.
    pub action: Action,
}

/// Where a stream comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// From the stage `key.from`, which runs on that node (which may be this one). It is pulled by name: it does not
    /// matter who starts first.
    Flow {
        /// Where the sender runs.
        node: NodeId,
        /// The stream.
        key: FlowKey,
    },
    /// From an input or an area of this stage, from that byte on: a local copy or combination.
    Local {
        /// Which.
        part: Part,
        /// The first byte.
        start: u64,
    },
}

/// A stream that a stage takes in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntakeSpec {
    /// Where it comes from.
    pub origin: Origin,
    /// What happens to its bytes, in the order of the stream. Their lengths are the stream's.
    pub pieces: Vec<Piece>,
    /// An earlier intake that goes first: byte `x` of this stream is dealt with when that one has dealt with its byte `x`.
    /// For several that are combined in the same place.
    pub after: Option<u32>,
    /// Who sends, in words for an error: `rank 3 (Trainer-2)`. May be empty: then the node is named.
    pub who: String,
}

/// A stream that a stage offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSpec {
    /// The slot that receives it; the key follows from that and the stage's id.
    pub to: u32,
    /// Its bytes, in order.
    pub slices: Vec<Slice>,
    /// How many of them do not depend on `follows`.
    pub lead: u64,
    /// Byte `lead + x` can be sent when each of these intakes has dealt with its byte `x`. None: all bytes can be sent at
    /// once (of an input that still grows, those that are there).
    pub follows: Vec<u32>,
}

/// Memory that a stage writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AreaSpec {
    /// A new object of the store, which is the stage's output and sealed at the end. Every byte behind `head` has to be
    /// written by an intake.
    Output {
        /// Its length.
        len: u64,
        /// Its first bytes, for example the header of an array.
        head: Vec<u8>,
    },
    /// An object that a process of this node has made room for and not written: else as above.
    Given {
        /// Where.
        at: Location,
        /// Its first bytes.
        head: Vec<u8>,
    },
    /// Room that is given back at the end.
    Scratch {
        /// Its length.
        len: u64,
    },
}

impl AreaSpec {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Output { len, .. } | Self::Scratch { len } => *len,
            Self::Given { at, .. } => at.len,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its first bytes, which are there from the start.
    pub fn head(&self) -> &[u8] {
        match self {
            Self::Output { head, .. } | Self::Given { head, .. } => head,
            Self::Scratch { .. } => &[],
        }
    }
}

/// What both ends of a flow have to agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// A digest of it. Stages of one operation with different digests fail on both sides.
    pub digest: u64,
    /// The same in words for an error that names both sides: `all_reduce(sum, f32, [1024]) by rank 2`.
    pub words: String,
}

/// All that a node has to know to do its part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageSpec {
    /// Its name.
    pub id: StageId,
    /// What the other stages have to agree on.
    pub terms: Terms,
    /// Objects of this node that are read: whole ones, spilled ones, or ones that are still arriving or being made here, also by the
    /// process that runs the stage.
    pub inputs: Vec<Location>,
    /// What is written.
    pub areas: Vec<AreaSpec>,
    /// What comes in.
    pub intakes: Vec<IntakeSpec>,
    /// What is offered.
    pub flows: Vec<FlowSpec>,
    /// How long the first byte of an intake may take: a sender that does not exist by then is missing.
    pub patience_us: u64,
    /// The stage is done only when its flows have been taken to their last byte. Always so without areas to seal.
    pub await_flows: bool,
    /// The stage stays until it is ended, and is never done: what it offers can be taken more than once.
    pub until_ended: bool,
}

impl StageSpec {
    /// An empty one: does nothing and is done at once.
    pub fn new(id: StageId) -> Self {
        let (inputs, areas, intakes, flows) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let terms = Terms::default();
        let (patience_us, await_flows, until_ended) = (30_000_000, false, false);
        Self { id, terms, inputs, areas, intakes, flows, patience_us, await_flows, until_ended }
    }

    /// The name of the flow to another slot.
    pub fn flow_key(&self, to: u32) -> FlowKey {
        FlowKey { id: self.id.id, epoch: self.id.epoch, from: self.id.slot, to }
    }
}
