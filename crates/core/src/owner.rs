//! The owner: what a process that submits tasks decides.
//!
//! Every driver and worker has one. It knows the tasks that the process submitted and the objects that they make, counts
//! references with borrowers, asks the node for leases and sends tasks straight to the leased workers, retries, cancels.
//! The shell turns calls of the user, messages of peers and words of the node into [`Event`]s and carries out the
//! [`Effect`]s in order (records first: nothing leaves before it is recorded).
//!
//! Invariants, checked by tests and the simulator:
//! - OWN-1: an object with a value never changes it.
//! - OWN-2: an object is freed only when no handle, hold or loan is left.
//! - OWN-3: a task is in one place: waiting, queued, with one worker, or being asked about.
//! - OWN-4: at most one attempt of a task is ever released: a lost attempt is asked about before it is run again.
//! - STR-1: the first record of an item wins, here and in the ledger.

mod call_queue;
mod calls;
mod cancel;
mod deaths;
mod effect;
mod event;
mod forward;
mod groups;
mod leases;
mod lost;
mod nodes;
mod objects;
mod pools;
mod previews;
mod reduces;
mod streams;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::departed::Departed;
use crate::failure::Death;
use crate::id::{ActorId, GroupId, LeaseId, NodeId, ObjectId, ProcessId, TaskId};
use crate::map::IdMap;
use crate::message::{FromNode, Peer, RequestId, ToNode};
use crate::spec::{Shape, TaskSpec};
use crate::time::Tick;
use crate::value::{Location, RefSpec, Value};

use cancel::Cancel;

use call_queue::CallQueue;
use calls::ActorEnd;
pub use calls::{ActorView, CALLS_IN_FLIGHT_MAX};
pub use effect::Effect;
pub use event::Event;
pub use leases::{DEPTH_MAX, LEASE_IDLE_US, QUEUE_AHEAD_US};
use pools::Pools;
use previews::Growing;
pub use tasks::TaskState;

/// What can be said about an object at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It has a value.
    Ready,
    /// It has none, and [`Effect::Ready`] will come when it has.
    Wanted,
    /// It has none, and nobody asked for it.
    Idle,
}

/// What is chosen for an owner when it is made.
#[derive(Clone, Debug)]
pub struct OwnerConfig {
    /// A cancelled task that does not stop within this time loses its worker.
    pub cancel_grace_us: u64,
}

impl Default for OwnerConfig {
    fn default() -> Self {
        Self { cancel_grace_us: 5_000_000 }
    }
}

/// An object that this process owns or borrows.
#[derive(Debug, Default)]
struct ObjectEntry {
    /// Who owns it; none for this process.
    owner: Option<ProcessId>,
    value: Option<Value>,
    /// Handles in the user's hands.
    local: u32,
    /// Tasks that need it and values that contain it.
    holds: u32,
    /// Grants received from the owner's side (borrowed objects).
    grants: u32,
    /// Grants under another owner's name: after a death, the object has the dead owner and its successor.
    other_grants: Vec<(ProcessId, u32)>,
    /// Who else has to do with it; most objects never have any.
    others: Option<Box<Others>>,
    /// Someone waits in `get`.
    watched: bool,
    /// The owner (or, after its death, the node) was asked.
    asked: bool,
    /// It stands in the place of an item that will never be: no record knows of it.
    unmade: bool,
}

/// Those that an object is kept for, besides handles and holds.
#[derive(Debug, Default)]
struct Others {
    /// Grants given to others (owned objects). Signed: a return can overtake the news of the loan.
    lent: BTreeMap<ProcessId, i64>,
    /// Tasks here that wait for the value.
    dependents: Vec<TaskId>,
    /// Processes that asked for the value.
    resolvers: Vec<ProcessId>,
    /// Reduces here that wait for the value, by their results.
    reduces: Vec<ObjectId>,
}

impl ObjectEntry {
    fn others(&mut self) -> &mut Others {
        self.others.get_or_insert_default()
    }

    fn is_used(&self) -> bool {
        let others = self.others.as_ref();
        self.local > 0
            || self.holds > 0
            || others.is_some_and(|o| !o.lent.is_empty() || !o.dependents.is_empty() || !o.resolvers.is_empty())
    }
}

#[derive(Debug)]
struct TaskEntry {
    spec: Arc<TaskSpec>,
    state: TaskState,
    /// Attempts that count against the retries.
    failures: u32,
    /// Where it was sent last.
    sent_to: NodeId,
    /// Set by a cancel; the tick when patience ends.
    cancel_deadline: Option<Tick>,
    /// Whether its worker was asked to cancel its children too.
    cancels_children: bool,
}

impl TaskEntry {
    /// A task that was sent nowhere yet.
    fn new(spec: Arc<TaskSpec>, state: TaskState) -> Self {
        let sent_to = NodeId::ALONE;
        Self { spec, state, failures: 0, sent_to, cancel_deadline: None, cancels_children: false }
    }
}

#[derive(Debug)]
struct Lease {
    id: LeaseId,
    worker: ProcessId,
    in_flight: VecDeque<TaskId>,
    /// Those among them that were sent ahead of their dependencies: they can run nowhere else.
    chained: BTreeSet<TaskId>,
    blocked: bool,
    reclaim: bool,
    taking_back: bool,
    idle_since: Tick,
    /// When its first task was sent or its last reply came.
    moved_at: Tick,
}

#[derive(Debug)]
struct Pool {
    shape: Shape,
    /// The node that has most of the bytes of its tasks' large inputs.
    near: Option<NodeId>,
    ready: VecDeque<TaskId>,
    leases: Vec<Lease>,
    /// Leases asked for and not granted yet.
    wanted: u32,
    /// Average run time in sixteenths of a microsecond; none before the first reply.
    mean_us_16: Option<u64>,
}

#[derive(Debug)]
enum ActorPlace {
    Unknown,
    At { process: ProcessId },
    Restarting,
    Dead { reason: String },
}

#[derive(Debug)]
struct ActorEntry {
    place: ActorPlace,
    /// Calls that were not sent.
    queue: CallQueue,
    /// Calls that were sent and have not replied, in order.
    sent: VecDeque<TaskId>,
    /// So many may be sent.
    sent_max: usize,
    /// Calls whose fate is being asked about; nothing is sent before all are answered.
    asking: u32,
    next_sequence: u64,
    /// The process that calls were sent to last, and how many.
    numbered: (Option<ProcessId>, u64),
    /// The constructor, when this process owns the actor.
    creation: Option<Arc<TaskSpec>>,
    /// What is inside the constructor's arguments, in the names under which it travels.
    references: Vec<RefSpec>,
    /// The process that the constructor's references were lent to.
    lent_to: Option<ProcessId>,
    /// The user ended it for good: calls wait for the node to say how it ended.
    killed: bool,
}

#[derive(Debug)]
struct Question {
    task: TaskId,
    death: Arc<Death>,
    /// Whether the lost attempt counts against the retries.
    counts: bool,
}

/// The owner's machine.
#[derive(Debug)]
pub struct Owner {
    me: ProcessId,
    config: OwnerConfig,
    tasks: IdMap<TaskId, TaskEntry>,
    objects: IdMap<ObjectId, ObjectEntry>,
    pools: Pools,
    lease_pool: IdMap<LeaseId, u32>,
    actors: IdMap<ActorId, ActorEntry>,
    questions: BTreeMap<RequestId, Question>,
    next_request: RequestId,
    lent_to: BTreeMap<ProcessId, BTreeSet<ObjectId>>,
    borrowed_from: BTreeMap<ProcessId, BTreeSet<ObjectId>>,
    departed: Departed,
    cancels: BTreeSet<(Tick, TaskId)>,
    /// Tasks in state `Queued` that are not to run again before a time.
    postponed: BTreeSet<(Tick, TaskId)>,
    /// Tasks in state `Waiting`.
    waiting: usize,
    /// Streams of tasks of this process, until their end is freed.
    streams: IdMap<TaskId, streams::StreamEntry>,
    /// Streams that nobody can read any more and whose tasks have not been told.
    deserted: Vec<TaskId>,
    /// Items of streams that are about to be submitted again.
    found: BTreeMap<TaskId, Vec<(u32, Value)>>,
    /// Objects that wait for placement groups which the node was asked about.
    groups: BTreeMap<GroupId, Vec<groups::Awaiting>>,
    reduces: reduces::Reduces,
}

impl Owner {
    /// The owner of process `me`.
    pub fn new(me: ProcessId, config: OwnerConfig) -> Self {
        Self {
            me,
            config,
            tasks: IdMap::default(),
            objects: IdMap::default(),
            pools: Pools::default(),
            lease_pool: IdMap::default(),
            actors: IdMap::default(),
            questions: BTreeMap::new(),
            // The upper half of the numbers; the shell's own questions use the lower half.
            next_request: crate::route::OWNER_REQUESTS,
            lent_to: BTreeMap::new(),
            borrowed_from: BTreeMap::new(),
            departed: Departed::default(),
            cancels: BTreeSet::new(),
            postponed: BTreeSet::new(),
            waiting: 0,
            streams: IdMap::default(),
            deserted: Vec::new(),
            found: BTreeMap::new(),
            groups: BTreeMap::new(),
            reduces: reduces::Reduces::default(),
        }
    }

    /// Takes one event and appends what is to be done.
    pub fn step(&mut self, event: Event, now: Tick, effects: &mut Vec<Effect>) {
        match event {
            Event::Submitted(spec) => self.submit(spec, now, effects),
            Event::Adopted { spec, values } => self.adopt(spec, values, now, effects),
            Event::Put { object, digest, value, recorded } => self.put(object, digest, value, recorded, effects),
            Event::RefAdded(spec) => self.add_handle(spec),
            Event::RefDropped(object) => self.drop_handle(object, effects),
            Event::Wanted(object) => self.want(object, effects),
            Event::ItemOpened { end, index } => self.open_item(end, index, effects),
            Event::ItemsTaken { end, items } => self.take_items(end, items, effects),
            Event::ItemsFound { task, items } => {
                self.found.insert(task, items);
            }
            Event::ReadEarly { object, nodes } => self.read_early(object, nodes, effects),
            Event::FreeAsked => self.withdraw_unneeded(effects),
            Event::Cancelled { object, force, recursive } => {
                self.cancel(object, Cancel { force, recursive }, now, effects);
            }
            Event::ActorKilled { actor, restart } => self.kill_actor(actor, restart, now, effects),
            Event::ParentCancelled(parent) => self.cancel_children(parent, now, effects),
            Event::ArgumentsArrived { from, refs } => self.receive(&refs, from, effects),
            Event::ArgumentsDone(refs) => self.release_all(&refs, effects),
            Event::ResultsLeft { to, message } => self.send_results(to, message, effects),
            Event::GroupAwaited { group, object, digest, value } => {
                self.await_group(group, object, digest, value, effects);
            }
            Event::Reduce { target, digest, inputs, op, count, options } => {
                let wanted = reduces::Wanted { digest, inputs, op, count, options };
                self.reduce(target, wanted, now, effects);
            }
            Event::Combined { target, result } => self.combined(target, result, now, effects),
            Event::FromNode(message) => self.hear_node(message, now, effects),
            Event::FromPeer { peer, message } => self.hear_peer(peer, message, now, effects),
            Event::Ticked => self.tick(now, effects),
        }
        if !self.deserted.is_empty() {
            self.cancel_deserted(now, effects);
        }
    }

    /// The value of an object, when this process knows it.
    #[inline]
    pub fn value(&self, object: &ObjectId) -> Option<&Value> {
        self.objects.get(object)?.value.as_ref()
    }

    /// Whether an object has a value, or somebody waits for it.
    #[inline]
    pub fn readiness(&self, object: &ObjectId) -> Readiness {
        match self.objects.get(object) {
            Some(entry) if entry.value.is_some() => Readiness::Ready,
            Some(entry) if entry.watched => Readiness::Wanted,
            Some(_) | None => Readiness::Idle,
        }
    }

    /// Whether this process owns the object.
    pub fn owns(&self, object: &ObjectId) -> bool {
        self.objects.get(object).is_some_and(|entry| entry.owner.is_none())
    }

    /// Whether this process knows the object at all.
    pub fn knows(&self, object: &ObjectId) -> bool {
        self.objects.contains(object)
    }

    /// A task that has not ended, and where it is.
    pub fn task_state(&self, task: &TaskId) -> Option<(&Arc<TaskSpec>, &TaskState)> {
        self.tasks.get(task).map(|entry| (&entry.spec, &entry.state))
    }

    /// Tasks that were submitted and have not ended.
    pub fn pending(&self) -> usize {
        self.tasks.len()
    }

    /// Objects owned or borrowed.
    pub fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// When `Ticked` is due next.
    pub fn deadline(&self) -> Option<Tick> {
        let idle = self
            .pools
            .values()
            .flat_map(|pool| &pool.leases)
            .filter(|lease| lease.in_flight.is_empty())
            .map(|lease| lease.idle_since.plus_us(LEASE_IDLE_US))
            .min();
        let cancel = self.cancels.first().map(|(at, _)| *at);
        let stuck = self.pools.values().filter_map(Pool::stuck_at).min();
        let postponed = self.postponed.first().map(|(at, _)| *at);
        [idle, cancel, stuck, postponed].into_iter().flatten().min()
    }

    fn tick(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        self.return_idle_leases(now, effects);
        self.end_patience(now, effects);
        self.place_postponed(now, effects);
    }

    fn hear_node(&mut self, message: FromNode, now: Tick, effects: &mut Vec<Effect>) {
        match message {
            FromNode::Granted { pool, lease, worker } => self.granted(pool, lease, worker, now, effects),
            FromNode::Infeasible { pool, asked, available } => {
                self.infeasible(pool, asked, available, now, effects);
            }
            FromNode::Reclaim { lease } => self.reclaim(lease, effects),
            FromNode::ProcessDied(death) => self.process_died(Arc::new(*death), now, effects),
            FromNode::ActorCreated { actor, value } => self.actor_created(actor, value, now, effects),
            FromNode::ActorAt { actor, process, incarnation: _, concurrency_max } => {
                self.actor_at(actor, process, concurrency_max, effects);
            }
            FromNode::ActorRestarting { actor, reason, moved } => {
                let end = if moved { ActorEnd::Moves } else { ActorEnd::Restarts };
                self.actor_lost(actor, reason, end, now, effects);
            }
            FromNode::ActorDead { actor, reason } => {
                self.actor_lost(actor, reason, ActorEnd::Dies, now, effects);
            }
            FromNode::Adopted { request, adoption, attempt, started } => {
                self.answered(request, adoption, (attempt, started), now, effects);
            }
            FromNode::ItemFound { request, index, value } => self.item_found(request, index, value, now, effects),
            FromNode::Resolved { object, value, home } => self.resolved_by_node(object, value, home, now, effects),
            FromNode::NodeDied { node, reason } => self.node_died(node, &reason, now, effects),
            FromNode::CopyFound { object, found } => self.copy_found(object, found, now, effects),
            FromNode::Kept { object, at } => self.free_unless_known(object, at, effects),
            FromNode::Refused { pool, failure } => self.refused(pool, &failure, now, effects),
            FromNode::GroupPlaced { group, result } => self.group_placed(group, result, now, effects),
            FromNode::ReducePlaced { target, at, to_readers } => {
                self.reduce_placed(target, Growing { at, to_readers }, now, effects);
            }
            FromNode::Reduced { target, result, used } => self.reduced(target, result, used, now, effects),
            FromNode::Relayed { .. }
            | FromNode::LeaseOpened { .. }
            | FromNode::LeaseClosed { .. }
            | FromNode::LinkOpened { .. }
            | FromNode::Flush { .. }
            | FromNode::Construct { .. }
            | FromNode::Retire
            | FromNode::Move
            | FromNode::End
            | FromNode::ActorFound { .. }
            | FromNode::ObjectCreated { .. }
            | FromNode::Gathered { .. }
            | FromNode::Located { .. }
            | FromNode::State { .. }
            | FromNode::Published { .. }
            | FromNode::Code { .. }
            | FromNode::Resources { .. }
            | FromNode::Names { .. }
            | FromNode::Explained { .. }
            | FromNode::Nodes { .. }
            | FromNode::GroupFound { .. }
            | FromNode::Groups { .. }
            | FromNode::CollectiveFormed { .. }
            | FromNode::CollectiveBroken { .. }
            | FromNode::CollectiveLeft { .. }
            | FromNode::CollectiveJoined { .. }
            | FromNode::StageDone { .. }
            | FromNode::StageFailed { .. }
            | FromNode::Warning { .. } => {}
        }
    }

    fn hear_peer(&mut self, peer: ProcessId, message: Peer, now: Tick, effects: &mut Vec<Effect>) {
        match message {
            Peer::Reply { task, attempt, values, duration_us } => {
                self.receive_values(&values, peer, effects);
                self.replied(task, attempt, values, duration_us, now, effects);
            }
            Peer::Item { task, attempt: _, index, value } => {
                self.receive(&value.nested, peer, effects);
                self.item_arrived(task, index, value, now, effects);
            }
            Peer::Took { task, items } => self.take(task, items, effects),
            Peer::Returned { lease, tasks, blocked } => self.returned(lease, tasks, blocked, now, effects),
            Peer::Closing { lease } => self.reclaim(lease, effects),
            Peer::Resolve { object } => self.resolve_for(peer, object, effects),
            Peer::Resolved { object, value } => self.resolved(peer, object, value, now, effects),
            Peer::Lent { object, borrower, count } => self.lent_by_other(object, borrower, count, effects),
            Peer::GiveBack { object, count } => self.given_back(object, peer, count, effects),
            Peer::CancelObject { object, force, recursive } => {
                self.cancel(object, Cancel { force, recursive }, now, effects);
            }
            Peer::Run { .. }
            | Peer::Call { .. }
            | Peer::RunAfter { .. }
            | Peer::TakeBack { .. }
            | Peer::Cancel { .. }
            | Peer::Taken { .. }
            | Peer::Collective(_) => {}
        }
    }

    fn is_departed(&self, process: ProcessId) -> bool {
        // What a node lends is under its own name, and asked for as if its owner were dead.
        process.is_node() || self.departed.contains(process)
    }

    /// Where a stored value lies that this process just freed; the shell tells the node.
    fn free_stored(at: Location, effects: &mut Vec<Effect>) {
        effects.push(Effect::Node(ToNode::FreeObject { at }));
    }
}
