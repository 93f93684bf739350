//! Why a call of a group has no result.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A rank and who it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// The rank.
    pub rank: u32,
    /// Who, for people: an actor, or a process.
    pub label: String,
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.label.is_empty() {
            write!(f, "rank {}", self.rank)
        } else {
            write!(f, "rank {} ({})", self.rank, self.label)
        }
    }
}

/// Why a call of a group has no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// Two members called different things.
    Mismatch {
        /// Which call of the group, from 1.
        call: u64,
        /// One, and what it called.
        ours: (Seat, String),
        /// The other.
        theirs: (Seat, String),
    },
    /// Members did not come in time.
    Missing {
        /// What was called, and which call of the group that is.
        what: String,
        /// Who did not come.
        missing: Vec<Seat>,
        /// How long the others waited.
        waited_ms: u64,
    },
    /// A member is dead.
    Lost {
        /// Who.
        member: Seat,
        /// How it ended.
        why: String,
    },
    /// A member has left the group.
    Left {
        /// Who.
        member: Seat,
        /// So many calls it took part in; none when it left before the first.
        calls: u64,
    },
    /// The group has no such member, or not with this rank.
    NotMember(String),
    /// The call makes no sense.
    Misuse(String),
    /// Bytes could not be moved.
    Transfer(String),
}

fn list(seats: &[Seat]) -> String {
    seats.iter().map(Seat::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch { call, ours, theirs } => write!(
                f,
                "the members disagree in call {call} of the group: {} called {}, but {} called {}; all members have to make \
                 the same calls in the same order",
                ours.0, ours.1, theirs.0, theirs.1
            ),
            Self::Missing { what, missing, waited_ms } => {
                let waited = *waited_ms as f64 / 1_000.0;
                write!(
                    f,
                    "{what} waited {waited} s for {}: not there; it may be stuck, or not call it at all",
                    list(missing)
                )
            }
            Self::Lost { member, why } => {
                write!(
                    f,
                    "{member} of the group is dead: {why}; the group is broken, make another one of those that are left"
                )
            }
            Self::Left { member, calls: 0 } => write!(
                f,
                "{member} has left the group before its first call; the group is broken, make another one of those that are left"
            ),
            Self::Left { member, calls } => {
                write!(f, "{member} has left the group after {calls} calls, so this one can never have a result")
            }
            Self::NotMember(text) | Self::Misuse(text) | Self::Transfer(text) => write!(f, "{text}"),
        }
    }
}
