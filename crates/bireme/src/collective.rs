//! Collective groups: actors or tasks that exchange arrays all together, as in MPI and `torch.distributed`.
//!
//! All members make the same calls in the same order. Small arrays go in messages between the members, large ones are streamed
//! between their nodes while they are combined; results are read in shared memory without a copy.
//!
//! Each verb has a form `..._later`, which begins the call and gives a [`Work`]: it goes on by itself and can be waited for or
//! awaited. Calls of one member are made in the order in which they were begun.
//!
//! ```
//! use bireme::collective::{Group, Op};
//! use bireme::Array;
//!
//! pub struct Trainer;
//!
//! #[bireme::actor]
//! impl Trainer {
//!     pub fn new() -> Self {
//!         Trainer
//!     }
//!
//!     pub fn step(&mut self, group: Group, gradient: f32) -> bireme::Result<Vec<f32>> {
//!         let sum = group.all_reduce(&Array::from(vec![gradient; 3]), Op::Sum)?;
//!         Ok(sum.as_slice::<f32>()?.to_vec())
//!     }
//! }
//!
//! let _context = bireme::init_with(bireme::Config::default().cpus(2.0))?;
//! let trainers = [Trainer::remote(), Trainer::remote()];
//! let group = Group::of(trainers.iter().map(|trainer| trainer.id()))?;
//! let sums = [trainers[0].step(group.clone(), 1.0), trainers[1].step(group, 2.0)];
//! for sum in sums {
//!     assert_eq!(sum.get()?, [3.0; 3]);
//! }
//! # Ok::<(), bireme::Error>(())
//! ```

mod group;
mod member;
mod work;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bireme_runtime::collective::{Membership, Outcome};
use bireme_runtime::core::collective::{ArrayKind, CollectiveId};
pub use bireme_runtime::core::collective::{MEMBERS_MAX, Seat, Trouble};
pub use bireme_runtime::core::flow::Op;
use bireme_runtime::core::id::ActorId;
use bireme_runtime::{Fetched, Part};
use serde::{Deserialize, Serialize};
pub use work::Work;

use crate::array::{self, Array};
use crate::{Bytes, Error, Result, context};

/// A call waits so long for a member that is not there, unless the group says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// A collective group of known members. It can be sent to tasks and actors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    id: CollectiveId,
    size: u32,
    /// The actors in the order of their ranks; none when members take their ranks themselves.
    members: Option<Vec<ActorId>>,
    timeout: Duration,
}

/// A group as one of its members calls it.
#[derive(Clone)]
pub struct Member(Arc<Membership>);

/// A member that leaves its group when this is dropped: for tasks, which have no rank of their own.
#[derive(Debug)]
pub struct Joined(Member);

impl Group {
    /// A group of actors, in the order of their ranks. What they call on it they call as members.
    pub fn of(members: impl IntoIterator<Item = ActorId>) -> Result<Self> {
        let members: Vec<ActorId> = members.into_iter().collect();
        if (1..members.len()).any(|at| members[..at].contains(&members[at])) {
            return Err(misuse("an actor is in the list of members twice; a member has one rank"));
        }
        let group = Self::of_size(members.len(), context::runtime()?.create_collective()?)?;
        Ok(Self { members: Some(members), ..group })
    }

    /// A group whose members take their ranks themselves, by [`Group::join`].
    pub fn new(size: usize) -> Result<Self> {
        Self::of_size(size, context::runtime()?.create_collective()?)
    }

    /// The same; all of a program that use the same name mean the same group.
    pub fn named(name: &str, size: usize) -> Result<Self> {
        Self::of_size(size, context::runtime()?.named_collective(name)?)
    }

    fn of_size(size: usize, id: CollectiveId) -> Result<Self> {
        let fits = u32::try_from(size).ok().filter(|size| (1..=MEMBERS_MAX).contains(size));
        let size = fits.ok_or_else(|| misuse(&format!("a group has 1 to {MEMBERS_MAX} members, not {size}")))?;
        Ok(Self { id, size, members: None, timeout: TIMEOUT_DEFAULT })
    }

    /// How long a call waits for a member that is not there.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many members there are.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// The member with this rank, for the caller; it is one until the result is dropped.
    pub fn join(&self, rank: usize) -> Result<Joined> {
        if self.members.is_some() {
            return Err(misuse("this group is made of actors, which are its members without joining"));
        }
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        let runtime = context::runtime()?;
        let label = runtime.process_id().to_string();
        let member = runtime.join_collective(self.id, (rank, self.size), (label, Vec::new()), self.timeout)?;
        Ok(Joined(Member(member)))
    }

    /// The member that the calling actor is.
    pub fn member(&self) -> Result<Member> {
        let runtime = context::runtime()?;
        let Some(members) = &self.members else {
            return Err(misuse("this is no member of the group yet; use `group.join(rank)`"));
        };
        let own = runtime.own_actor_id();
        let Some(rank) = members.iter().position(|member| Some(*member) == own) else {
            let who = own.map_or_else(|| "this program".to_owned(), |actor| actor.to_string());
            return Err(misuse(&format!("{who} is no member of the group; only its {} actors can call it", self.size)));
        };
        let who = (members[rank].to_string(), members.clone());
        runtime.join_collective(self.id, (rank as u32, self.size), who, self.timeout).map(Member)
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member(rank {} of {})", self.rank(), self.size())
    }
}

impl std::ops::Deref for Joined {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.0
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.0.0.leave();
    }
}

fn misuse(text: &str) -> Error {
    Error::from(Trouble::Misuse(text.to_owned()))
}

/// A rank that cannot be is refused further down, with the ranks that can.
fn rank_of(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}

pub(crate) fn described(array: &Array) -> ArrayKind {
    ArrayKind { dtype: array.dtype() as u8, shape: array.shape().iter().map(|length| *length as u64).collect() }
}

fn parts(given: &[Array]) -> Vec<Part> {
    given.iter().map(|array| Box::new(array.bytes().clone()) as Part).collect()
}

fn arrays(made: &Outcome) -> Result<Vec<Array>> {
    let Some(kind) = &made.array else { return Ok(Vec::new()) };
    let shape: Vec<usize> = kind.shape.iter().map(|length| *length as usize).collect();
    let bytes = Bytes::from_owner(Owned(made.bytes.clone()));
    made.ranges.iter().map(|range| array::of_number(kind.dtype, &shape, bytes.slice(range.clone()))).collect()
}

fn only(made: &Outcome) -> Result<Array> {
    arrays(made)?.pop().ok_or_else(|| misuse("the call gave no array"))
}

struct Owned(Fetched);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
