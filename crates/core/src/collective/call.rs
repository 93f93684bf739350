//! What a member calls, in data and in words.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::flow::{Number, Op};

use super::{SMALL_BLOCK_BYTES_MAX, SMALL_CALL_BYTES_MAX};

/// The verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// The root's array to all.
    Broadcast,
    /// All arrays combined, to the root.
    Reduce,
    /// All arrays combined, to all.
    AllReduce,
    /// All arrays, to the root.
    Gather,
    /// All arrays, to all.
    AllGather,
    /// One of the root's arrays to each.
    Scatter,
    /// All arrays combined; each gets one part of the first axis.
    ReduceScatter,
    /// One array from each to each.
    AllToAll,
    /// Nobody goes on before everybody is there.
    Barrier,
    /// One array from one to another.
    Send,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Broadcast,
        Self::Reduce,
        Self::AllReduce,
        Self::Gather,
        Self::AllGather,
        Self::Scatter,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Barrier,
        Self::Send,
    ];

    /// The verb as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllReduce => "all_reduce",
            Self::Gather => "gather",
            Self::AllGather => "all_gather",
            Self::Scatter => "scatter",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Barrier => "barrier",
            Self::Send => "send",
        }
    }

    /// Whether one rank has another part in it than all the others.
    pub const fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// Whether arrays are combined.
    pub const fn has_op(self) -> bool {
        matches!(self, Self::Reduce | Self::AllReduce | Self::ReduceScatter)
    }
}

/// The ops and their names.
const OPS: [(Op, &str); 5] =
    [(Op::Sum, "sum"), (Op::Mean, "mean"), (Op::Product, "product"), (Op::Min, "min"), (Op::Max, "max")];

/// An op as users write it.
pub fn op_name(op: Op) -> &'static str {
    OPS.iter().find(|(known, _)| *known == op).map_or("", |(_, name)| name)
}

/// The op that a user wrote.
pub fn op_from_name(name: &str) -> Option<Op> {
    OPS.iter().find(|(_, known)| *known == name).map(|(op, _)| *op)
}

/// Names and sizes of element types, by their numbers in array objects, from 1.
const DTYPES: [(&str, u64); 13] = [
    ("uint8", 1),
    ("uint16", 2),
    ("uint32", 4),
    ("uint64", 8),
    ("int8", 1),
    ("int16", 2),
    ("int32", 4),
    ("int64", 8),
    ("float16", 2),
    ("bfloat16", 2),
    ("float32", 4),
    ("float64", 8),
    ("bool", 1),
];

fn dtype(number: u8) -> Option<&'static (&'static str, u64)> {
    DTYPES.get(usize::from(number).checked_sub(1)?)
}

/// What an element type is called.
pub fn dtype_name(number: u8) -> &'static str {
    dtype(number).map_or("unknown", |(name, _)| name)
}

/// How large an element of it is; one byte when there is no such type.
pub fn dtype_size(number: u8) -> u64 {
    dtype(number).map_or(1, |(_, size)| *size)
}

/// How elements of this type are combined; none when they cannot be.
pub fn number(dtype: u8) -> Option<Number> {
    Some(match dtype_name(dtype) {
        "uint8" => Number::U8,
        "int32" => Number::I32,
        "int64" => Number::I64,
        "float16" => Number::F16,
        "bfloat16" => Number::Bf16,
        "float32" => Number::F32,
        "float64" => Number::F64,
        _ => return None,
    })
}

/// What kind of array a member brings.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArrayKind {
    /// The element type, by its number in array objects.
    pub dtype: u8,
    /// The length of each dimension.
    pub shape: Vec<u64>,
}

impl ArrayKind {
    /// How large an element is.
    pub fn element_bytes(&self) -> u64 {
        dtype_size(self.dtype)
    }

    /// How large the array is.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().fold(self.element_bytes(), |bytes, length| bytes.saturating_mul(*length))
    }
}

impl fmt::Display for ArrayKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", dtype_name(self.dtype), self.shape)
    }
}

/// What a member calls. All members of a group make equal calls in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Call {
    /// The verb.
    pub kind: Kind,
    /// How arrays are combined.
    pub op: Option<Op>,
    /// The rank with the other part.
    pub root: Option<u32>,
    /// The array of this member, or each of its arrays when there are several; none where it is told what comes.
    pub array: Option<ArrayKind>,
}

impl Call {
    /// Whether two members' calls belong together.
    pub fn matches(&self, other: &Self) -> bool {
        let arrays = match (&self.array, &other.array) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        arrays && self.kind == other.kind && self.op == other.op && self.root == other.root
    }

    /// A digest of it, for names.
    pub fn digest(&self) -> u64 {
        crate::id::digest(self.to_string().as_bytes())
    }

    /// How large each array is.
    pub fn block_bytes(&self) -> u64 {
        self.array.as_ref().map_or(0, ArrayKind::bytes)
    }

    /// How large an element is.
    pub fn element_bytes(&self) -> u64 {
        self.array.as_ref().map_or(1, ArrayKind::element_bytes)
    }

    /// What each array of the result is, with so many members.
    pub fn result_kind(&self, size: u32) -> Option<ArrayKind> {
        let mut array = self.array.clone()?;
        if self.kind == Kind::ReduceScatter
            && let Some(first) = array.shape.first_mut()
        {
            *first /= u64::from(size);
        }
        Some(array)
    }

    /// Whether the arrays go inside messages between `size` members; else they are streamed.
    pub fn is_small(&self, size: u32) -> bool {
        let (block, size) = (self.block_bytes(), u64::from(size));
        let (block, sent) = match self.kind {
            Kind::Broadcast | Kind::Reduce | Kind::AllReduce | Kind::Gather | Kind::Send | Kind::Barrier => {
                (block, block)
            }
            Kind::AllGather | Kind::Scatter | Kind::AllToAll => (block, block.saturating_mul(size)),
            Kind::ReduceScatter => (block / size.max(1), block),
        };
        size < 2 || block <= SMALL_BLOCK_BYTES_MAX && sent <= SMALL_CALL_BYTES_MAX
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.name())?;
        let op = self.op.map(|op| format!("op={}", op_name(op)));
        let root = self.root.map(|root| format!("root={root}"));
        let choices: Vec<String> = op.into_iter().chain(root).collect();
        write!(f, "({})", choices.join(", "))?;
        match &self.array {
            Some(array) if self.kind != Kind::Barrier => write!(f, " of {array}"),
            _ => Ok(()),
        }
    }
}
