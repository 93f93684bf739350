//! The events that the shell feeds to an owner: calls of the user, messages of peers and of the node, time.

use crate::flow::Op;
use crate::id::{ActorId, GroupId, NodeId, ObjectId, ProcessId, TaskId};
use crate::message::{FromNode, Peer};
use crate::reduce::Options;
use crate::shared::Shared;
use crate::spec::TaskSpec;
use crate::value::{RefSpec, Value};

/// An event that an owner reacts to.
#[derive(Clone, Debug)]
pub enum Event {
    /// The user submitted a task, constructor or call.
    Submitted(TaskSpec),
    /// The user submitted a task that exists already: a repeated parent adopts it.
    Adopted {
        /// The task.
        spec: TaskSpec,
        /// Its results, when it is done; none when it runs and the node will tell.
        values: Option<Vec<Value>>,
    },
    /// The user put a value. `recorded` when a repeated parent found it in the ledger.
    Put {
        /// Its id.
        object: ObjectId,
        /// Hash of the bytes.
        digest: u64,
        /// The value.
        value: Value,
        /// Whether the ledger has it already.
        recorded: bool,
    },
    /// A handle came out of bytes.
    RefAdded(RefSpec),
    /// A handle was dropped.
    RefDropped(ObjectId),
    /// Someone waits for this object.
    Wanted(ObjectId),
    /// The user wants a handle of an item of a stream, which may not be there yet.
    ItemOpened {
        /// The end of the stream.
        end: ObjectId,
        /// The index of the item.
        index: u32,
    },
    /// The user has taken the items of a stream below this one.
    ItemsTaken {
        /// The end of the stream.
        end: ObjectId,
        /// Number of items taken.
        items: u32,
    },
    /// The node found items of a stream that a repeated parent is about to submit or adopt.
    ItemsFound {
        /// The task.
        task: TaskId,
        /// The items and their places.
        items: Vec<(u32, Value)>,
    },
    /// An object will be read on these nodes: when it is the result of a reduce, they have it brought while it is made.
    ReadEarly {
        /// The object.
        object: ObjectId,
        /// The nodes that will read it.
        nodes: Vec<NodeId>,
    },
    /// The user asks what is free: what was asked for and is not needed any more must not count as used.
    FreeAsked,
    /// The user cancels the task that makes this object.
    Cancelled {
        /// The object.
        object: ObjectId,
        /// Kill the worker at once instead of after the grace period.
        force: bool,
        /// Cancel what that task has submitted too.
        recursive: bool,
    },
    /// The user ends an actor: later calls of this process do not reach the life that ends.
    ActorKilled {
        /// The actor.
        actor: ActorId,
        /// Whether it may be started again.
        restart: bool,
    },
    /// A task of this process was asked to stop, and so are its children.
    ParentCancelled(TaskId),
    /// A task arrived to be run here: its references are held until it ends.
    ArgumentsArrived {
        /// The sender.
        from: ProcessId,
        /// The references.
        refs: Vec<RefSpec>,
    },
    /// That task ended or was returned.
    ArgumentsDone(Vec<RefSpec>),
    /// Results with references inside leave for `to`, which becomes a borrower.
    ResultsLeft {
        /// The receiver.
        to: ProcessId,
        /// The reply.
        message: Peer,
    },
    /// The user waits for a placement group by way of this new object, which has this value once the group is placed.
    GroupAwaited {
        /// The group.
        group: GroupId,
        /// A put of this process.
        object: ObjectId,
        /// Hash of the value.
        digest: u64,
        /// The value once the group is placed.
        value: Value,
    },
    /// The user reduces objects to this new one.
    Reduce {
        /// A put of this process.
        target: ObjectId,
        /// Hash of what is asked for.
        digest: u64,
        /// The inputs, each once.
        inputs: Vec<RefSpec>,
        /// The operation that makes one of two.
        op: Op,
        /// Number of inputs to take, the first that are there.
        count: u32,
        /// The options of the reduce.
        options: Options,
    },
    /// The shell has done what [`Effect::Combine`](super::Effect::Combine) asked for.
    Combined {
        /// The result.
        target: ObjectId,
        /// Its bytes, or why there are none.
        result: Result<Shared, String>,
    },
    /// The node speaks.
    FromNode(FromNode),
    /// A peer speaks.
    FromPeer {
        /// The sending peer.
        peer: ProcessId,
        /// Its message.
        message: Peer,
    },
    /// A deadline may have passed.
    Ticked,
}
