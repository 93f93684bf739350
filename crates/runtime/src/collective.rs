//! Collective groups, as front ends call them: join, call, wait.
//!
//! A member's thread carries its calls out itself: small ones in messages to the processes of other members, large ones as a stage
//! of its node, which works on objects of the store in place. What is decided is in `core::collective`; this is its shell.
//!
//! | file | what |
//! |---|---|
//! | `arithmetic` | what small arrays are combined with |
//! | `call` | one call from begin to end |
//! | `hear` | what other members and the node say |
//! | `input` | what a member brings to a large call |
//! | `line` | calls of one member in their order, and those that nobody waits for |
//! | `two` | arrays from one member to another |
//! | `work` | a call that goes on while its caller does something else |

mod arithmetic;
mod call;
mod hear;
mod input;
mod line;
mod two;
mod work;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bireme_core::collective::{ArrayKind, CollectiveId, MEMBERS_MAX, Trouble};
use bireme_core::id::{ActorId, NodeId};
use bireme_core::message::ToNode;
use bireme_core::shared::Shared;

pub(crate) use hear::Books;
pub use line::WORKS_MAX;
pub use work::Work;

use crate::client::Runtime;
use crate::error::Error;
use crate::fetched::Fetched;
use crate::process::Process;
use line::Line;

/// What a call gave a member.
#[derive(Clone)]
pub struct Outcome {
    /// What each array is.
    pub array: Option<ArrayKind>,
    /// The arrays: bytes, and the range of each.
    pub bytes: Fetched,
    /// The ranges.
    pub ranges: Vec<Range<usize>>,
    /// The result is what the member brought: its only array, or the one of its rank.
    pub own: bool,
}

impl Outcome {
    fn nothing() -> Self {
        Self { array: None, bytes: Fetched::Inline(Shared::default()), ranges: Vec::new(), own: false }
    }
}

/// A handle on a member of a group, in its process. The calls of a member are made in one order, by one thread at a time,
/// whatever handle they are made with.
pub struct Membership {
    process: Weak<Process>,
    group: CollectiveId,
    rank: u32,
    size: u32,
    timeout: Duration,
    line: SharedLine,
}

/// What the handles on one member share.
type SharedLine = Arc<Mutex<Line>>;

/// The members that live in this process.
#[derive(Default)]
pub(crate) struct Memberships(Mutex<BTreeMap<(CollectiveId, u32), SharedLine>>);

impl Runtime {
    /// The id of a new group, whose members find each other at this process's node.
    pub fn create_collective(&self) -> Result<CollectiveId, Error> {
        self.check_running()?;
        let name = self.process.with_lane(|lane| {
            lane.advance();
            lane.task_id()
        });
        Ok(CollectiveId { home: self.process.me.node, name })
    }

    /// The group that every process of this job means by a name.
    pub fn named_collective(&self, name: &str) -> Result<CollectiveId, Error> {
        self.check_running()?;
        let home = if self.process.me.node == NodeId::ALONE { NodeId::ALONE } else { NodeId::HEAD };
        Ok(CollectiveId::named(home, &format!("{}/{name}", self.process.job)))
    }

    /// The actor that lives in this process.
    pub fn own_actor_id(&self) -> Option<ActorId> {
        self.process.lock().hosted().map(|hosted| ActorId(hosted.spec.id))
    }

    /// This process is that member of the group. At once; calls wait until all members are there. A member that has joined
    /// before is the same; the timeout is that of the calls that are made with this handle. `actors` are all members by rank, when
    /// they are known: one that is dead for good will never come.
    pub fn join_collective(
        &self,
        group: CollectiveId,
        (rank, size): (u32, u32),
        (label, actors): (String, Vec<ActorId>),
        timeout: Duration,
    ) -> Result<Arc<Membership>, Error> {
        self.check_running()?;
        if size == 0 || size > MEMBERS_MAX || rank >= size {
            let text =
                format!("rank {rank} of {size} members cannot be: 1 to {MEMBERS_MAX} members have ranks from 0 on");
            return Err(Error::from(Trouble::Misuse(text)));
        }
        let mut known = self.process.memberships.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = known.entry((group, rank)).or_insert_with(|| {
            self.process.lock().collectives.join(group, rank, size);
            self.process.tell(&ToNode::JoinCollective { group, rank, size, label, actors });
            Arc::default()
        });
        let (process, line) = (Arc::downgrade(&self.process), Arc::clone(line));
        Ok(Arc::new(Membership { process, group, rank, size, timeout, line }))
    }
}

impl Membership {
    /// The rank of this member.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many members the group has.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Makes no other call: others that need this member for one hear so.
    pub fn leave(&self) {
        let Some(process) = self.process.upgrade().filter(|process| !process.is_over()) else { return };
        let mut known = process.memberships.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_this = |line| Arc::ptr_eq(line, &self.line);
        if !known.get(&(self.group, self.rank)).is_some_and(is_this) {
            return;
        }
        known.remove(&(self.group, self.rank));
        let calls = {
            let mut inner = process.lock();
            if let Some(member) = inner.collectives.member(self.group, self.rank) {
                member.say_farewell();
            }
            process.send_answers(&mut inner, self.group, self.rank);
            inner.collectives.leave(self.group, self.rank)
        };
        process.tell(&ToNode::LeaveCollective { group: self.group, rank: self.rank, calls });
    }

    fn process(&self) -> Result<Arc<Process>, Error> {
        let process = self.process.upgrade().ok_or(Error::NotRunning("shut down"))?;
        crate::forked::check_forked()?;
        if process.is_over() { Err(process.over_error()) } else { Ok(process) }
    }
}
