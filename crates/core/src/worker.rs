//! The worker: what a process that runs other people's tasks decides.
//!
//! A worker has a seat per lease, and a seat runs one task at a time in the order of arrival. When its task blocks, the
//! seat hands the tasks behind it back to their owner and gives its CPU back to the node; the node may then open another
//! seat in the same process, which runs on another thread. An actor is a seat that never closes, takes calls from many
//! callers, and drops a call that it has seen (caller, calling task and sequence).
//!
//! The seat of a concurrent actor starts calls in the order of arrival while fewer than its limit run; they end in any
//! order. Its constructor runs alone. Such an actor keeps its CPU when a call waits: others of its calls may run on.
//!
//! A function may ask for a process that ends after so many runs of it. When the last of them starts, the worker is spent:
//! it hands back what is queued, says so to the owners of its leases and to the node, and ends when the node tells it to.
//!
//! Invariants:
//! - WRK-1: a seat runs at most one task; an actor's seat at most the actor's limit, and its constructor alone.
//! - WRK-2: `Started` is recorded before the user's code runs, `Finished` before the reply leaves.
//! - WRK-3: a task that was handed back has not started and never will under this run.

mod calls;
mod delivered;
mod idle;
mod seat;
mod streams;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::departed::Departed;
use crate::failure::Failure;
use crate::id::{ActorId, LeaseId, ProcessId, TaskId};
use crate::map::IdMap;
use crate::message::{FromNode, Peer, ToNode};
use crate::owner;
use crate::record::Record;
use crate::spec::{TaskKind, TaskSpec};
use crate::time::Tick;
use crate::value::{RefSpec, Value};

use calls::Calls;
pub use delivered::CALLING_TASKS_MAX;
use delivered::Delivered;
pub use idle::LOOK_EVERY_US;
use idle::Looks;
use seat::{Lends, Queued, Running, Seat};
pub use streams::Pace;
use streams::Yielding;

/// The seat of an actor's calls.
const ACTOR_SEAT: LeaseId = LeaseId(0);

/// What happens to a worker.
#[derive(Clone, Debug)]
pub enum Event {
    /// The node speaks.
    FromNode(FromNode),
    /// A peer speaks.
    FromPeer {
        /// Who.
        peer: ProcessId,
        /// What.
        message: Peer,
    },
    /// The user's code has ended.
    Finished {
        /// Under which lease.
        lease: LeaseId,
        /// Which task.
        task: TaskId,
        /// Its results.
        values: Vec<Value>,
    },
    /// The user's code has yielded an item.
    Yielded {
        /// Which task.
        task: TaskId,
        /// The item.
        value: Value,
    },
    /// The running task waits for something.
    Blocked {
        /// Under which lease.
        lease: LeaseId,
    },
    /// It runs on.
    Unblocked {
        /// Under which lease.
        lease: LeaseId,
    },
    /// A look at the whole process while something runs in it; [`LOOK_EVERY_US`] apart or more.
    Looked {
        /// Whether code that belongs to no task, such as a thread that a task has started, waits for an object.
        waits: bool,
        /// Whether a thread has a core now, or wants one.
        runs: bool,
        /// The processor time that the process has used since it began.
        processor_us: u64,
    },
}

/// What a worker wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write this into the ledger ring.
    Record(Record),
    /// Say this to a peer.
    Send {
        /// To whom.
        to: ProcessId,
        /// What.
        message: Peer,
    },
    /// Say this to the node.
    Node(ToNode),
    /// Run this on a thread of its own.
    Execute(Execution),
    /// The owner of this process has to know about references.
    Refs(RefsMoved),
    /// Tell the running task that it should stop.
    Flag(TaskId),
    /// A streaming task that pauses should look at its pace again.
    Rouse(TaskId),
    /// End the process.
    Exit,
}

/// A task that may run now.
#[derive(Clone, Debug, PartialEq)]
pub struct Execution {
    /// Under which lease.
    pub lease: LeaseId,
    /// The task.
    pub spec: Arc<TaskSpec>,
    /// The lane in which it names what it makes: 0, but for the constructors of an actor's later lives and for what
    /// may have run on another node before.
    pub lane: u32,
    /// The values of its dependencies.
    pub resolved: Vec<Value>,
    /// Which GPUs it has.
    pub gpus: Vec<u32>,
}

/// References that came with a task or leave with its results.
#[derive(Clone, Debug, PartialEq)]
pub enum RefsMoved {
    /// They came with a task's arguments.
    Arrived {
        /// From whom.
        from: ProcessId,
        /// Which.
        refs: Vec<RefSpec>,
    },
    /// That task is over.
    Done(Vec<RefSpec>),
    /// They leave inside results: the owner's machine lends them and sends the reply.
    Left {
        /// To whom.
        to: ProcessId,
        /// The reply.
        message: Peer,
    },
    /// A task was asked to stop, and so are its children.
    ParentCancelled(TaskId),
}

impl From<RefsMoved> for owner::Event {
    fn from(moved: RefsMoved) -> Self {
        match moved {
            RefsMoved::Arrived { from, refs } => owner::Event::ArgumentsArrived { from, refs },
            RefsMoved::Done(refs) => owner::Event::ArgumentsDone(refs),
            RefsMoved::Left { to, message } => owner::Event::ResultsLeft { to, message },
            RefsMoved::ParentCancelled(task) => owner::Event::ParentCancelled(task),
        }
    }
}

/// The actor that lives in a process.
#[derive(Clone, Debug)]
pub struct Hosted {
    /// Its constructor.
    pub spec: Arc<TaskSpec>,
    /// Counts the actor's lives from 0.
    pub incarnation: u32,
    /// The lane in which the constructor names what it makes.
    pub lane: u32,
    /// Who owned it when it was placed here.
    pub owner: ProcessId,
    /// Which GPUs it has, by index.
    pub gpus: Vec<u32>,
}

/// The worker's machine.
#[derive(Debug, Default)]
pub struct Worker {
    seats: IdMap<LeaseId, Seat>,
    hosted: Option<Hosted>,
    delivered: Delivered,
    /// The number of the last call that came from each caller.
    last_number: BTreeMap<ProcessId, u64>,
    /// A call never came: nothing that came after it may run here.
    missed_call: bool,
    departed: Departed,
    retiring: bool,
    /// It is an actor that goes to another node: no call begins here any more.
    moving: bool,
    /// It was told to end: nothing begins here any more.
    ending: bool,
    /// Runs of functions that have a limit.
    calls: Calls,
    /// One of them has run as often as it may.
    spent: bool,
    /// Streaming tasks that run.
    yielding: BTreeMap<TaskId, Yielding>,
    looks: Looks,
}

impl Worker {
    /// Takes one event and appends what is to be done.
    pub fn step(&mut self, event: Event, now: Tick, effects: &mut Vec<Effect>) {
        match event {
            Event::FromNode(message) => self.hear_node(message, now, effects),
            Event::FromPeer { peer, message } => self.hear_peer(peer, message, now, effects),
            Event::Finished { lease, task, values } => self.finished(lease, task, values, now, effects),
            Event::Yielded { task, value } => self.yielded(task, value, effects),
            Event::Blocked { lease } => self.lend_cpu(lease, Lends::Waits, effects),
            Event::Unblocked { lease } => {
                if let Some(seat) = self.seats.get_mut(&lease) {
                    seat.take_cpu_back(lease, effects);
                }
            }
            Event::Looked { waits, runs, processor_us } => {
                self.looked(waits.then_some((runs, processor_us)), now, effects);
            }
        }
    }

    /// The actor that lives here.
    pub fn hosted(&self) -> Option<&Hosted> {
        self.hosted.as_ref()
    }

    /// Whether a task runs here.
    pub fn is_running(&self, task: &TaskId) -> bool {
        !self.seats.sorted_keys_where(|_, seat| seat.running.contains(task)).is_empty()
    }

    fn hear_node(&mut self, message: FromNode, now: Tick, effects: &mut Vec<Effect>) {
        match message {
            FromNode::LeaseOpened { lease, owner, gpus } => {
                self.seats.insert(lease, Seat::new(owner, gpus));
            }
            FromNode::LeaseClosed { lease } => self.close(lease, effects),
            FromNode::Construct { spec, resolved, incarnation, lane, owner, gpus } => {
                self.hosted = Some(Hosted { spec: Arc::clone(&spec), incarnation, lane, owner, gpus: gpus.clone() });
                self.seats.insert(ACTOR_SEAT, Seat::new(owner, gpus));
                self.arrive(ACTOR_SEAT, Queued { from: owner, spec, resolved, ahead: Vec::new() }, now, effects);
            }
            FromNode::Retire => {
                self.retiring = true;
                self.exit_if_retired(effects);
            }
            FromNode::Move => {
                self.moving = true;
                self.exit_if_retired(effects);
            }
            FromNode::End => {
                self.ending = true;
                self.exit_if_retired(effects);
            }
            FromNode::ProcessDied(death) => {
                self.departed.insert(death.process);
                self.callers_died(|process| process == death.process, effects);
            }
            FromNode::NodeDied { node, .. } => {
                self.departed.insert_node(node);
                self.callers_died(|process| process.node == node, effects);
            }
            _ => {}
        }
    }

    fn hear_peer(&mut self, peer: ProcessId, message: Peer, now: Tick, effects: &mut Vec<Effect>) {
        match message {
            Peer::Run { lease, spec, resolved } => {
                self.run(lease, Queued { from: peer, spec, resolved, ahead: Vec::new() }, now, effects);
            }
            Peer::Call { number, spec, resolved } => {
                self.call(number, Queued { from: peer, spec, resolved, ahead: Vec::new() }, now, effects);
            }
            Peer::RunAfter { lease, spec, resolved, ahead } => {
                self.run(lease, Queued { from: peer, spec, resolved, ahead }, now, effects);
            }
            Peer::TakeBack { lease, keep } => self.take_back(peer, lease, keep, effects),
            Peer::Cancel { task, recursive } => self.cancel(task, recursive, now, effects),
            Peer::Taken { task, items } => self.taken(task, items, effects),
            _ => {}
        }
    }

    /// A call came. The one before it is here; else it was lost on its way, and what this actor is asked to do is not what
    /// its caller said: the process ends, and its callers hear why.
    fn call(&mut self, number: u64, queued: Queued, now: Tick, effects: &mut Vec<Effect>) {
        if self.missed_call {
            return;
        }
        let caller = queued.from;
        if !self.departed.contains(caller) {
            let last = self.last_number.get(&caller).copied().unwrap_or(0);
            if number > last + 1 {
                self.missed_call = true;
                effects.push(Effect::Node(ToNode::CallLost { caller, expected: last + 1, came: number }));
                return;
            }
            self.last_number.insert(caller, number.max(last));
            if number <= last {
                drop_seen(&queued, effects);
                return;
            }
        }
        self.run(ACTOR_SEAT, queued, now, effects);
    }

    fn run(&mut self, lease: LeaseId, queued: Queued, now: Tick, effects: &mut Vec<Effect>) {
        let seat = self.seats.get(&lease);
        let blocked = seat.is_some_and(|seat| seat.lends() && lease != ACTOR_SEAT);
        let spent = self.spent && lease != ACTOR_SEAT;
        if seat.is_none() || blocked || spent {
            if spent {
                // Said before, but perhaps before its owner knew of the lease.
                effects.push(Effect::Send { to: queued.from, message: Peer::Closing { lease } });
            }
            accept(queued.from, references(&queued.spec, &queued.resolved), effects);
            give_back(queued.from, lease, vec![queued], blocked, effects);
        } else if self.is_duplicate(&queued.spec) {
            drop_seen(&queued, effects);
        } else {
            self.arrive(lease, queued, now, effects);
        }
    }

    /// Whether a call was delivered before. A retried call is a new delivery.
    fn is_duplicate(&mut self, spec: &TaskSpec) -> bool {
        let TaskKind::Call { caller, sequence, .. } = spec.kind else { return false };
        if spec.attempt > 0 {
            return false;
        }
        self.delivered.again(caller, spec.parent, sequence)
    }

    fn arrive(&mut self, lease: LeaseId, queued: Queued, now: Tick, effects: &mut Vec<Effect>) {
        accept(queued.from, references(&queued.spec, &queued.resolved), effects);
        if let Some(seat) = self.seats.get_mut(&lease) {
            seat.queue.push_back(queued);
        }
        self.start_next(lease, now, effects);
    }

    fn start_next(&mut self, lease: LeaseId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(seat) = self.seats.get_mut(&lease) else { return };
        while seat.has_room()
            && !self.moving
            && !self.ending
            && let Some(mut queued) = seat.queue.pop_front()
        {
            if !seat.fill_in(&mut queued) {
                give_back(queued.from, lease, vec![queued], false, effects);
                continue;
            }
            let Queued { from, spec, resolved, ahead: _ } = queued;
            let refs = references(&spec, &resolved);
            let last = self.calls.is_last(&spec);
            effects.push(Effect::Record(Record::Started { at: now, task: spec.id, attempt: spec.attempt }));
            if let Some(stream) = spec.stream {
                self.yielding.insert(spec.id, Yielding::new(from, spec.attempt, stream));
            }
            seat.running.insert(Running { from, spec: Arc::clone(&spec), refs, since: now });
            let gpus = seat.gpus.clone();
            let lane = match (&spec.kind, &self.hosted) {
                (TaskKind::Create(_), Some(hosted)) => hosted.lane,
                _ => spec.lane,
            };
            effects.push(Effect::Execute(Execution { lease, spec, lane, resolved, gpus }));
            if last {
                self.spend(effects);
                return;
            }
        }
    }

    /// The last run that this process may do has started: what is queued behind it goes elsewhere at once.
    fn spend(&mut self, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.spent, true) {
            return;
        }
        effects.push(Effect::Node(ToNode::Spent));
        for lease in self.seats.sorted_keys() {
            let Some(seat) = self.seats.get_mut(&lease) else { continue };
            if lease == ACTOR_SEAT || seat.closed || self.departed.contains(seat.owner) {
                continue;
            }
            effects.push(Effect::Send { to: seat.owner, message: Peer::Closing { lease } });
            let returned: Vec<Queued> = seat.queue.drain(..).collect();
            if !returned.is_empty() {
                give_back(seat.owner, lease, returned, seat.lends(), effects);
            }
        }
    }

    fn finished(&mut self, lease: LeaseId, task: TaskId, mut values: Vec<Value>, now: Tick, effects: &mut Vec<Effect>) {
        let Some(seat) = self.seats.get_mut(&lease) else { return };
        let Some(running) = seat.running.remove(&task) else { return };
        seat.take_cpu_back(lease, effects);
        if let Some(yielding) = self.yielding.remove(&task) {
            values = yielding.end(task, values, self.departed.contains(running.from));
        }
        if lease != ACTOR_SEAT {
            seat.remember(task, &values);
        }
        let attempt = running.spec.attempt;
        let duration_us = u32::try_from(now.since_us(running.since)).unwrap_or(u32::MAX);
        effects.push(Effect::Record(Record::Finished { at: now, task, attempt, values: values.clone() }));
        if let TaskKind::Create(options) = &running.spec.kind {
            seat.running_max = options.concurrency();
            let value = values.into_iter().next().unwrap_or_else(|| Value::inline(Vec::new()));
            effects.push(Effect::Node(ToNode::ActorConstructed { actor: ActorId(task), value }));
        } else if !self.departed.contains(running.from) {
            let refers = values.iter().any(|value| !value.nested.is_empty());
            let (to, message) = (running.from, Peer::Reply { task, attempt, values, duration_us });
            effects.push(if refers {
                Effect::Refs(RefsMoved::Left { to, message })
            } else {
                Effect::Send { to, message }
            });
        }
        dismiss(running.refs, effects);
        let orphaned = self.departed.contains(seat.owner);
        if lease != ACTOR_SEAT && (seat.closed || orphaned) {
            self.seats.remove(&lease);
            if orphaned {
                effects.push(Effect::Node(ToNode::ReturnLease { lease }));
            }
            return;
        }
        self.start_next(lease, now, effects);
        self.exit_if_retired(effects);
    }

    /// Hands back the end of a seat's queue.
    fn take_back(&mut self, peer: ProcessId, lease: LeaseId, keep: u32, effects: &mut Vec<Effect>) {
        let Some(seat) = self.seats.get_mut(&lease) else { return };
        let keep = (keep as usize).saturating_sub(seat.running.len()).min(seat.queue.len());
        let returned: Vec<Queued> = seat.queue.drain(keep..).collect();
        give_back(peer, lease, returned, seat.lends(), effects);
    }

    fn lend_cpu(&mut self, lease: LeaseId, why: Lends, effects: &mut Vec<Effect>) {
        let Some(seat) = self.seats.get_mut(&lease) else { return };
        // Where several may run, the one that waits does not speak for the others: the CPU stays.
        if seat.running_max > 1 {
            return;
        }
        let lent = seat.lends();
        seat.lending = why;
        if lent {
            return;
        }
        if lease != ACTOR_SEAT {
            let returned: Vec<Queued> = seat.queue.drain(..).collect();
            let owner = seat.owner;
            give_back(owner, lease, returned, true, effects);
        }
        effects.push(Effect::Node(ToNode::Blocked { lease }));
    }

    fn close(&mut self, lease: LeaseId, effects: &mut Vec<Effect>) {
        let Some(mut seat) = self.seats.remove(&lease) else { return };
        let returned: Vec<Queued> = seat.queue.drain(..).collect();
        if !returned.is_empty() {
            give_back(seat.owner, lease, returned, false, effects);
        }
        if !seat.running.is_empty() {
            seat.closed = true;
            self.seats.insert(lease, seat);
        }
    }

    fn cancel(&mut self, task: TaskId, recursive: bool, now: Tick, effects: &mut Vec<Effect>) {
        for lease in self.seats.sorted_keys() {
            let Some(seat) = self.seats.get_mut(&lease) else { continue };
            if seat.running.contains(&task) {
                effects.push(Effect::Flag(task));
                self.stop_yielding(|yielding, _| yielding == task, effects);
                if recursive {
                    effects.push(Effect::Refs(RefsMoved::ParentCancelled(task)));
                }
                return;
            }
            let Some(at) = seat.queue.iter().position(|queued| queued.spec.id == task) else { continue };
            let Some(queued) = seat.queue.remove(at) else { continue };
            let values = vec![Value::failed(Failure::Cancelled { task })];
            let attempt = queued.spec.attempt;
            effects.push(Effect::Record(Record::Finished { at: now, task, attempt, values: values.clone() }));
            let message = Peer::Reply { task, attempt, values, duration_us: 0 };
            effects.push(Effect::Send { to: queued.from, message });
            dismiss(references(&queued.spec, &queued.resolved), effects);
            return;
        }
    }

    /// Unstarted tasks of dead processes are dropped; running ones end for the ledger's sake.
    fn callers_died(&mut self, is_dead: impl Fn(ProcessId) -> bool, effects: &mut Vec<Effect>) {
        self.delivered.forget(&is_dead);
        self.last_number.retain(|caller, _| !is_dead(*caller));
        self.stop_yielding(|_, to| is_dead(to), effects);
        for lease in self.seats.sorted_keys() {
            let Some(seat) = self.seats.get_mut(&lease) else { continue };
            let (gone, kept): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(&mut seat.queue).into_iter().partition(|queued| is_dead(queued.from));
            seat.queue = kept;
            for queued in gone {
                dismiss(references(&queued.spec, &queued.resolved), effects);
            }
            if is_dead(seat.owner) && lease != ACTOR_SEAT && seat.running.is_empty() {
                self.seats.remove(&lease);
                // Only we know under which leases something still runs.
                effects.push(Effect::Node(ToNode::ReturnLease { lease }));
            }
        }
    }

    fn exit_if_retired(&mut self, effects: &mut Vec<Effect>) {
        // What waits in an actor that moves is sent again to its next life.
        let waits = |seat: &Seat| !seat.queue.is_empty() && !self.moving && !self.ending;
        let busy = !self.seats.sorted_keys_where(|_, s| !s.running.is_empty() || waits(s)).is_empty();
        // A call has the actor's state to itself, so that has to end first; a task has nothing that must be dropped.
        let given_up = self.ending && self.hosted.is_none();
        if (self.retiring || self.moving || self.ending) && (!busy || given_up) {
            // The process lives on for a moment, for what the user's code does at the end.
            self.ending = true;
            effects.push(Effect::Exit);
        }
    }
}

fn references(spec: &TaskSpec, resolved: &[Value]) -> Vec<RefSpec> {
    let inside = resolved.iter().flat_map(|value| value.nested.iter().copied());
    spec.nested.iter().copied().chain(inside).collect()
}

/// A call that was delivered before: the first delivery answers.
fn drop_seen(queued: &Queued, effects: &mut Vec<Effect>) {
    accept(queued.from, references(&queued.spec, &queued.resolved), effects);
    dismiss(references(&queued.spec, &queued.resolved), effects);
}

fn accept(from: ProcessId, refs: Vec<RefSpec>, effects: &mut Vec<Effect>) {
    if !refs.is_empty() {
        effects.push(Effect::Refs(RefsMoved::Arrived { from, refs }));
    }
}

fn dismiss(refs: Vec<RefSpec>, effects: &mut Vec<Effect>) {
    if !refs.is_empty() {
        effects.push(Effect::Refs(RefsMoved::Done(refs)));
    }
}

fn give_back(to: ProcessId, lease: LeaseId, returned: Vec<Queued>, blocked: bool, effects: &mut Vec<Effect>) {
    let tasks = returned.iter().map(|queued| queued.spec.id).collect();
    effects.push(Effect::Send { to, message: Peer::Returned { lease, tasks, blocked } });
    for queued in returned {
        dismiss(references(&queued.spec, &queued.resolved), effects);
    }
}
