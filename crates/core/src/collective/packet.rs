//! What members of a group say to each other.

use serde::{Deserialize, Serialize};

use super::{Call, CollectiveId, Trouble};

/// A member to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Packet {
    /// Of which group.
    pub group: CollectiveId,
    /// Which forming of it.
    pub life: u64,
    /// Who.
    pub from: u32,
    /// To whom.
    pub to: u32,
    /// What.
    pub word: Word,
    /// Elements of arrays; coded apart, behind the rest.
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

/// What a packet is about. Calls of a group are numbered from 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Word {
    /// Elements that belong to a call.
    Part {
        /// Which call.
        number: u64,
        /// What the sender called.
        call: Call,
    },
    /// The sender makes this call. No elements.
    Note {
        /// Which call.
        number: u64,
        /// What it called.
        call: Call,
    },
    /// The sender has waited for long in this call: are you in it too? Who is answers by [`Word::Here`].
    Waiting {
        /// Which call.
        number: u64,
    },
    /// The sender has begun this call.
    Here {
        /// Which call.
        number: u64,
    },
    /// This call has no result.
    Failed {
        /// Which call.
        number: u64,
        /// Why.
        trouble: Trouble,
    },
    /// An array from one to another: the elements are here, or to be streamed.
    Sent {
        /// The sender's word for what it is.
        tag: u32,
        /// Counts the arrays with this tag between the two, from 1.
        number: u64,
        /// What array.
        call: Call,
        /// The elements are streamed.
        streamed: bool,
    },
    /// The array was taken.
    Took {
        /// Its tag.
        tag: u32,
        /// Its number.
        number: u64,
    },
    /// I send you nothing more: I leave the group.
    Left,
}
