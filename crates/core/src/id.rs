//! Names of things: tasks, objects, actors, processes, leases, functions.
//!
//! Ids derive from their parents (design rule 3: same parent, same ids). A task id is a family, the 80-bit hash of its
//! parent's id, the lane (thread of the parent) and an epoch, and a 48-bit counter within it; an object id contains the
//! id of the task that makes it. Running a task again therefore yields the same ids for everything it submits, and nobody
//! is asked for a name. That siblings are neighbours also keeps them together in hash tables (`map`), so a million
//! outstanding tasks are walked in order instead of at random.
//!
//! A process id is a slot and an incarnation: a slot is used again, an incarnation never, so anything late from a dead
//! process is recognised by its incarnation.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128};

/// A task: one run (with its retries) of a function, an actor's constructor or an actor's method.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId(pub(crate) u128);

impl TaskId {
    /// The id of a process's own code, the parent of all that it submits outside any task.
    pub fn root(job: u64, process: ProcessId) -> Self {
        let mut key = [0u8; 20];
        key[..8].copy_from_slice(&job.to_le_bytes());
        key[8..12].copy_from_slice(&process.slot.to_le_bytes());
        key[12..16].copy_from_slice(&process.incarnation.to_le_bytes());
        key[16..].copy_from_slice(&process.node.0.to_le_bytes());
        Self(xxh3_128(&key) & !COUNTER_MASK)
    }

    /// The id of the `counter`-th thing that `lane` of this task submits in `epoch`.
    #[inline]
    pub fn child(self, lane: u32, counter: u64, epoch: u32) -> Self {
        self.family(lane, epoch).sibling(counter)
    }

    /// The first of all that `lane` of this task submits in `epoch`.
    pub fn family(self, lane: u32, epoch: u32) -> Self {
        let mut key = [0u8; 24];
        key[..16].copy_from_slice(&self.0.to_le_bytes());
        key[16..20].copy_from_slice(&lane.to_le_bytes());
        key[20..].copy_from_slice(&epoch.to_le_bytes());
        Self(xxh3_128(&key) & !COUNTER_MASK)
    }

    /// The member of this family with another counter.
    #[inline]
    pub fn sibling(self, counter: u64) -> Self {
        Self((self.0 & !COUNTER_MASK) | (u128::from(counter) & COUNTER_MASK))
    }

    /// The raw value, for codecs.
    #[inline]
    pub fn raw(self) -> u128 {
        self.0
    }

    /// A task id read from the wire.
    #[inline]
    pub fn from_raw(raw: u128) -> Self {
        Self(raw)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task-{:08x}.{}", (self.0 >> 96) as u32, self.0 & COUNTER_MASK)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The counter's part of a task id.
const COUNTER_MASK: u128 = (1 << 48) - 1;
const PUT: u64 = 1 << 63;
/// Distance of a task's results in hash tables: more than the siblings that are likely to be there together.
const RESULT_STRIDE: u128 = 1_000_003;

/// An object: a result of a task, or a value put by one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId {
    task: TaskId,
    index: u64,
}

impl ObjectId {
    /// The `index`-th result of `task`.
    #[inline]
    pub fn result(task: TaskId, index: u32) -> Self {
        Self { task, index: u64::from(index) }
    }

    /// The `index`-th item of the stream that `task` yields; its end is result 0.
    #[inline]
    pub fn item(task: TaskId, index: u32) -> Self {
        Self { task, index: u64::from(index) + 1 }
    }

    /// Which item this is, when its task is a stream.
    #[inline]
    pub fn item_index(self) -> Option<u32> {
        u32::try_from(self.index.checked_sub(1)?).ok()
    }

    /// The `counter`-th value that `lane` of `task` puts in `epoch`.
    #[inline]
    pub fn put(task: TaskId, lane: u32, counter: u64, epoch: u32) -> Self {
        let lane = u64::from(lane & 0x7fff) << 48;
        let epoch = u64::from(epoch & 0xff) << 40;
        Self { task, index: PUT | lane | epoch | (counter & 0xff_ffff_ffff) }
    }

    /// The task that makes this object.
    #[inline]
    pub fn task(self) -> TaskId {
        self.task
    }

    /// Whether the object was put rather than returned.
    #[inline]
    pub fn is_put(self) -> bool {
        self.index & PUT != 0
    }

    /// The place among its task's objects, for codecs.
    #[inline]
    pub fn index(self) -> u64 {
        self.index
    }

    /// An object id read from the wire.
    #[inline]
    pub fn from_raw(task: TaskId, index: u64) -> Self {
        Self { task, index }
    }
}

impl std::hash::Hash for ObjectId {
    #[inline]
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // One number, so that the objects of siblings are neighbours as their tasks are.
        let mut counter = u128::from(self.index & 0xff_ffff_ffff);
        if !self.is_put() {
            // The items of one stream must not fall on the results of its siblings.
            counter = counter.wrapping_mul(RESULT_STRIDE) & COUNTER_MASK;
        }
        state.write_u128(self.task.0.wrapping_add(counter) ^ (u128::from(self.index >> 40) << 64));
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (family, counter) = ((self.task.0 >> 96) as u32, self.task.0 & COUNTER_MASK);
        if self.is_put() {
            write!(f, "object-{family:08x}.{counter}.p{}", self.index & 0xff_ffff_ffff)?;
            // Only threads of one task, and repeated runs that do something else, have lanes and epochs.
            let (lane, epoch) = (self.index >> 48 & 0x7fff, self.index >> 40 & 0xff);
            if lane > 0 {
                write!(f, "-lane{lane}")?;
            }
            if epoch > 0 { write!(f, "-epoch{epoch}") } else { Ok(()) }
        } else {
            write!(f, "object-{family:08x}.{counter}.{}", self.index)
        }
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An actor, named by the task that creates it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ActorId(pub TaskId);

impl ActorId {
    /// The object that becomes ready when the constructor has run, and whose references keep the actor alive.
    pub fn object(self) -> ObjectId {
        ObjectId::result(self.0, 0)
    }

    /// The id as the Python package writes it.
    pub fn hex(self) -> String {
        GroupId(self.0).hex()
    }

    /// The actor that was written so; none when it is no id.
    pub fn from_hex(text: &str) -> Option<Self> {
        GroupId::from_hex(text).map(|GroupId(task)| Self(task))
    }
}

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "actor-{:08x}.{}", (self.0.0 >> 96) as u32, self.0.0 & COUNTER_MASK)
    }
}

impl fmt::Debug for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A node of the cluster, numbered anew at each join: a machine that was declared dead and comes back has another number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NodeId(pub u32);

impl NodeId {
    /// A node that has joined no cluster: the embedded one.
    pub const ALONE: Self = Self(0);
    /// The first node of a cluster, where the controller is.
    pub const HEAD: Self = Self(1);

    /// The id as users write it: eight hexadecimal digits.
    pub fn hex(self) -> String {
        format!("{:08x}", self.0)
    }

    /// The node that a user wrote; none when it is no id.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if digits { u32::from_str_radix(text, 16).ok().map(Self) } else { None }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node-{}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A job: one driver with all that it starts. The number is the root of its ids, and no other job has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl JobId {
    /// A job whose driver is a process of this node.
    pub const fn new(node: NodeId, number: u64) -> Self {
        Self(LeaseId::new(node, number).0)
    }

    /// Where its driver is.
    pub const fn node(self) -> NodeId {
        LeaseId(self.0).node()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job-{:016x}", self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Drivers that a node serves at a time.
pub const DRIVERS_MAX: u32 = 256;
/// The first slot of a driver that attached to a running node. Workers are below.
pub const FIRST_ATTACHED_SLOT: u32 = 3_584;

/// A process of a node: a slot in its fabric and the incarnation that uses it.
/// A process of this machine: a slot in the fabric and the incarnation that uses it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The node that it belongs to.
    pub node: NodeId,
    /// Place in the fabric, used again after a death.
    pub slot: u32,
    /// Counts the uses of the slot from 1.
    pub incarnation: u32,
}

impl ProcessId {
    /// The embedded node itself.
    pub const NODE: Self = Self::of_node(NodeId::ALONE);
    /// The driver of an embedded node.
    pub const DRIVER: Self = Self::first_driver(NodeId::ALONE);

    /// A node, where it speaks for itself.
    pub const fn of_node(node: NodeId) -> Self {
        Self { node, slot: 0, incarnation: 1 }
    }

    /// The driver that a node is embedded in.
    pub const fn first_driver(node: NodeId) -> Self {
        Self { node, slot: 1, incarnation: 1 }
    }

    /// Whether this is a node and no process of it.
    pub const fn is_node(self) -> bool {
        self.slot == 0
    }

    /// Whether this is a driver: the one that its node is embedded in, or one that attached.
    pub const fn is_driver(self) -> bool {
        self.slot == 1 || self.slot >= FIRST_ATTACHED_SLOT
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot {
            0 => write!(f, "node")?,
            1 => write!(f, "driver")?,
            slot if self.is_driver() => write!(f, "driver-{}.{}", slot - FIRST_ATTACHED_SLOT + 1, self.incarnation)?,
            slot => write!(f, "worker-{slot}.{}", self.incarnation)?,
        }
        if self.node == NodeId::ALONE { Ok(()) } else { write!(f, "@{}", self.node.0) }
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The right to run tasks of one shape on one worker, given by the node to an owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

/// Where the node's number begins in a lease's.
const LEASE_NODE_SHIFT: u32 = 40;

impl LeaseId {
    /// The `counter`-th lease that a node gives.
    pub const fn new(node: NodeId, counter: u64) -> Self {
        Self((node.0 as u64) << LEASE_NODE_SHIFT | counter & ((1 << LEASE_NODE_SHIFT) - 1))
    }

    /// Who gave it.
    pub const fn node(self) -> NodeId {
        NodeId((self.0 >> LEASE_NODE_SHIFT) as u32)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease-{}", self.0)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A placement group: named like a task by the process that creates it, so that the id is there before the group is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub TaskId);

impl GroupId {
    /// The id as users write it.
    pub fn hex(self) -> String {
        format!("{:032x}", self.0.raw())
    }

    /// The group that a user wrote; none when it is no id.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if digits { u128::from_str_radix(text, 16).ok().map(|raw| Self(TaskId::from_raw(raw))) } else { None }
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group-{:08x}.{}", (self.0.0 >> 96) as u32, self.0.0 & COUNTER_MASK)
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A remote function, constructor or method: the hash of its path and of its argument and result types.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FunctionKey(pub u64);

impl FunctionKey {
    /// The key of a function with this full signature text.
    pub const fn of(signature: &str) -> Self {
        Self(xxhash_rust::const_xxh3::xxh3_64(signature.as_bytes()))
    }
}

impl fmt::Display for FunctionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "function-{:016x}", self.0)
    }
}

impl fmt::Debug for FunctionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Content hash that tells a repeated submit or put from a different one under the same id.
#[inline]
pub fn digest(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The same, continued from an earlier hash.
#[inline]
pub fn digest_from(earlier: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, earlier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_parent_gives_the_same_ids_and_every_coordinate_counts() {
        let root = TaskId::root(7, ProcessId::DRIVER);
        assert_eq!(root.child(0, 1, 0), root.child(0, 1, 0));
        let other = [root.child(1, 1, 0), root.child(0, 2, 0), root.child(0, 1, 1)];
        for id in other {
            assert_ne!(id, root.child(0, 1, 0));
        }
        assert_ne!(TaskId::root(8, ProcessId::DRIVER), root);
    }

    #[test]
    fn ids_of_nodes_and_groups_come_back_from_their_text() {
        for node in [NodeId::ALONE, NodeId::HEAD, NodeId(u32::MAX)] {
            assert_eq!(NodeId::from_hex(&node.hex()), Some(node));
        }
        let group = GroupId(TaskId::root(7, ProcessId::DRIVER).child(0, 1, 0));
        assert_eq!(GroupId::from_hex(&group.hex()), Some(group));
        for wrong in ["", "1", "+0000001", "0000000g", "node-000", "000000001"] {
            assert_eq!((NodeId::from_hex(wrong), GroupId::from_hex(wrong)), (None, None), "{wrong}");
        }
    }

    #[test]
    fn an_object_id_contains_its_task_and_tells_puts_from_results() {
        let task = TaskId::root(7, ProcessId::DRIVER).child(0, 1, 0);
        let result = ObjectId::result(task, 2);
        let put = ObjectId::put(task, 0, 2, 0);
        assert_eq!((result.task(), put.task()), (task, task));
        assert!(put.is_put() && !result.is_put());
        assert_ne!(ObjectId::put(task, 0, 2, 1), put);
        assert_ne!(ObjectId::put(task, 1, 2, 0), put);
    }
}
