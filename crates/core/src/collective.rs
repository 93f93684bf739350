//! Collective groups: members that call the same verbs in the same order and exchange arrays.
//!
//! | file | what |
//! |---|---|
//! | `call` | what a member calls, in data and in words; two calls that belong together are equal |
//! | `layout` | where input and result of a call lie in a member's buffer |
//! | `steps` | small calls: messages between members, as an order of sends and receives for each rank |
//! | `stage` | large calls: streams between members, as the stage of each rank's node |
//! | `exchange` | carries the steps of one small call out |
//! | `member` | one member of one group as its process knows it: who the others are, what came from them, what is over |
//!
//! Members find each other through the group's home, the node of its creator (`core::node::collectives`). From then on they
//! speak to each other directly; each word names group, life, call and arrays, so that a mismatch is found by whoever hears it.
//!
//! COLL-1: a call ends with the result of its definition, or with a [`Trouble`] that names a rank or both sides of a mismatch;
//! no member of a group waits for one that is known to be gone.

mod call;
mod exchange;
mod layout;
mod member;
mod packet;
mod stage;
mod steps;
mod trouble;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::call::{ArrayKind, Call, Kind, dtype_name, dtype_size, number, op_from_name, op_name};
pub use self::exchange::{Exchange, Progress};
pub use self::layout::Layout;
pub use self::member::{AHEAD_MAX, Came, Member, Peers, SENT_MAX};
pub use self::packet::{Packet, Word};
pub use self::stage::{Ground, has_stage, stage, stage_id, uses};
pub use self::steps::{Action, Step, steps};
pub use self::trouble::{Seat, Trouble};

use crate::id::{NodeId, TaskId, digest, digest_from};

/// Members that a group can have.
pub const MEMBERS_MAX: u32 = 128;
/// The largest block that goes inside messages between members.
pub const SMALL_BLOCK_BYTES_MAX: u64 = 32 << 10;
/// What one member may have to send inside messages in one call.
pub const SMALL_CALL_BYTES_MAX: u64 = 256 << 10;

/// Set in the ids of groups that are found by a name. No task of a process has so high a number.
const NAMED: u128 = 1 << 47;

/// A collective group: named like a task by the process that creates it, and kept by that process's node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CollectiveId {
    /// The node where its members find each other.
    pub home: NodeId,
    /// Its name.
    pub name: TaskId,
}

impl CollectiveId {
    /// The group that everybody who uses this name means.
    pub fn named(home: NodeId, name: &str) -> Self {
        let low = digest(name.as_bytes());
        let high = digest_from(low, name.as_bytes());
        Self { home, name: TaskId::from_raw(u128::from(high) << 64 | u128::from(low) | NAMED) }
    }

    /// Whether it is found by a name, under which it can be formed again; else it is the one that its creator passed on.
    pub fn is_named(self) -> bool {
        self.name.raw() & NAMED != 0
    }

    /// The id as users see it.
    pub fn hex(self) -> String {
        format!("{}{:032x}", self.home.hex(), self.name.raw())
    }

    /// The group that a user wrote; none when it is no id.
    pub fn from_hex(text: &str) -> Option<Self> {
        let (home, name) = text.split_at_checked(8)?;
        let digits = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let raw = if digits { u128::from_str_radix(name, 16).ok()? } else { return None };
        Some(Self { home: NodeId::from_hex(home)?, name: TaskId::from_raw(raw) })
    }
}

impl fmt::Display for CollectiveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "collective-{:08x}", (self.name.raw() >> 96) as u32)
    }
}

impl fmt::Debug for CollectiveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
