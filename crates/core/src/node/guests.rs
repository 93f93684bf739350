//! Tasks of owners on other nodes that run here.
//!
//! Their ledger is with their owner's node. What their worker records here is kept until the reply has gone out; when
//! the worker dies before it could send it, this node sends it in its name, before it tells of the death. So the owner's node
//! knows everything about a lost attempt when its owner asks (OWN-4), as if it had been its own worker.

use std::collections::BTreeMap;

use super::copies::Lodger;
use super::{Effect, Node, send};
use crate::codec::Reader;
use crate::id::{JobId, NodeId, ObjectId, ProcessId, TaskId};
use crate::message::{Between, FromNode, Peer, ToNode};
use crate::record::Record;
use crate::shared::Shared;
use crate::spec::Interned;
use crate::time::Tick;
use crate::value::{Body, Location, RefSpec, Value};

/// A task of another node's owner.
#[derive(Debug)]
struct Guest {
    owner: ProcessId,
    worker: ProcessId,
    /// When, and which run.
    started: Option<(Tick, u32)>,
    /// What was recorded and has not been sent.
    items: BTreeMap<u32, (u32, Value)>,
    ended: Option<(u32, Vec<Value>)>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Guests(BTreeMap<TaskId, Guest>);

impl Guests {
    fn of_worker(&self, worker: ProcessId) -> Vec<TaskId> {
        self.0.iter().filter(|(_, guest)| guest.worker == worker).map(|(task, _)| *task).collect()
    }

    fn of_owner(&self, owner: ProcessId) -> Vec<TaskId> {
        self.0.iter().filter(|(_, guest)| guest.owner == owner).map(|(task, _)| *task).collect()
    }

    /// Nobody waits for what was submitted there.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        self.0.retain(|_, guest| guest.owner.node != node);
    }

    /// Those that have started and not ended, and their workers.
    pub(super) fn running(&self) -> impl Iterator<Item = (TaskId, ProcessId)> {
        let running = self.0.iter().filter(|(_, guest)| guest.started.is_some() && guest.ended.is_none());
        running.map(|(task, guest)| (*task, guest.worker))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// What a relayed message is about, as far as nodes look into them.
enum Subject {
    Run(TaskId),
    Reply(TaskId),
    Item(TaskId, u32),
    Returned(Vec<TaskId>),
    Other,
}

fn subject(bytes: &[u8]) -> Subject {
    let mut from = Reader::new(bytes);
    let task = |from: &mut Reader<'_>| from.u128().map(TaskId::from_raw);
    let read = match Peer::kind(bytes) {
        Some(crate::message::PeerKind::Run) => {
            from.u8().and_then(|_| from.u64()).and_then(|_| task(&mut from)).map(Subject::Run)
        }
        Some(crate::message::PeerKind::Reply) => from.u8().and_then(|_| task(&mut from)).map(Subject::Reply),
        Some(crate::message::PeerKind::Item) => from
            .u8()
            .and_then(|_| task(&mut from))
            .and_then(|task| from.u32().map(|_| task))
            .and_then(|task| from.u32().map(|index| Subject::Item(task, index))),
        Some(crate::message::PeerKind::Control) => match Peer::decode(bytes) {
            Ok(Peer::Returned { tasks, .. }) => Ok(Subject::Returned(tasks)),
            _ => Ok(Subject::Other),
        },
        Some(crate::message::PeerKind::Collective) | None => Ok(Subject::Other),
    };
    read.unwrap_or(Subject::Other)
}

impl Node {
    /// One of our processes has a message for a process of another node.
    pub(super) fn relay(&mut self, process: ProcessId, to: ProcessId, bytes: Shared, effects: &mut Vec<Effect>) {
        if !self.live.contains(&to) {
            // A process that came after the death has not heard of it.
            self.tell_dead(process, to, effects);
            return;
        }
        match subject(&bytes) {
            Subject::Reply(task) => {
                self.cluster.guests.0.remove(&task);
            }
            Subject::Item(task, index) => {
                if let Some(guest) = self.cluster.guests.0.get_mut(&task) {
                    guest.items.remove(&index);
                }
            }
            Subject::Returned(tasks) => {
                for task in tasks {
                    self.cluster.guests.0.remove(&task);
                }
            }
            Subject::Run(_) | Subject::Other => {}
        }
        effects.push(Effect::Tell { node: to.node, message: Between::Relay { from: process, to, bytes } });
    }

    /// A process of another node has a message for one of ours.
    pub(super) fn relay_arrived(
        &mut self,
        sender: ProcessId,
        to: ProcessId,
        bytes: Shared,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        if !self.live.contains(&sender) || to.node != self.config.id {
            return;
        }
        let living = self.live.contains(&to);
        // What goes into the ledger shares the bytes with what is passed on.
        let decode = |bytes| Peer::decode_shared(bytes, &mut Interned::default());
        match subject(&bytes) {
            Subject::Run(task) if living => {
                let guest = Guest { owner: sender, worker: to, started: None, items: BTreeMap::new(), ended: None };
                self.cluster.guests.0.insert(task, guest);
            }
            // The record of the other side: it is with us before its owner hears of it, and also when that is dead.
            Subject::Reply(_) => {
                if let Ok(Peer::Reply { task, attempt, values, .. }) = decode(&bytes) {
                    if self.ledger.task(task).is_some() {
                        self.recorded(sender, Record::Finished { at: now, task, attempt, values }, now, effects);
                    } else {
                        effects.extend(values.iter().filter_map(stored).map(Effect::FreeStored));
                    }
                }
            }
            Subject::Item(..) => {
                if let Ok(Peer::Item { task, attempt, index, value }) = decode(&bytes) {
                    if self.ledger.task(task).is_some() {
                        self.recorded(sender, Record::Yielded { task, attempt, index, value }, now, effects);
                    } else {
                        effects.extend(stored(&value).map(Effect::FreeStored));
                    }
                }
            }
            Subject::Run(_) | Subject::Returned(_) | Subject::Other => {}
        }
        if living {
            send(to, FromNode::Relayed { from: sender, bytes }, effects);
        } else {
            // Its node may have joined after the death.
            self.tell_dead(sender, to, effects);
        }
    }

    /// Keeps what a worker records about a guest. Says whether it was about one.
    pub(super) fn guest_recorded(&mut self, record: &Record, now: Tick, effects: &mut Vec<Effect>) -> bool {
        let task = match record {
            Record::Started { task, .. } | Record::Finished { task, .. } | Record::Yielded { task, .. } => *task,
            _ => return false,
        };
        let Some(guest) = self.cluster.guests.0.get_mut(&task) else { return false };
        match record {
            Record::Started { at, attempt, .. } => guest.started = Some((*at, *attempt)),
            Record::Finished { at, attempt, values, .. } => {
                let owner = guest.owner;
                let made = (0..).zip(values).filter_map(|(index, value)| Some((index, stored(value)?)));
                let made = made.map(|(index, at)| lodged(at, ObjectId::result(task, index), owner));
                self.cluster.lodged.extend(made);
                if let Some((started, _)) = guest.started {
                    self.cluster.task_us.add(at.since_us(started));
                }
                guest.ended = Some((*attempt, values.clone()));
            }
            Record::Yielded { attempt, index, value, .. } => {
                let (object, owner) = (ObjectId::item(task, *index), guest.owner);
                self.cluster.lodged.extend(stored(value).map(|at| lodged(at, object, owner)));
                guest.items.insert(*index, (*attempt, value.clone()));
            }
            _ => {}
        }
        let owner = guest.owner;
        if !self.live.contains(&owner) {
            // The worker sends nothing to the dead; their node is to know all the same.
            self.keep_for_node(task, now);
            self.send_recorded(task, effects);
        }
        true
    }

    /// What is inside of what a dead owner's node will keep stays here until that node can have claimed it.
    fn keep_for_node(&mut self, task: TaskId, now: Tick) {
        let Some(guest) = self.cluster.guests.0.get(&task) else { return };
        let holder = ProcessId::of_node(guest.owner.node);
        let items = guest.items.values().map(|(_, value)| value);
        let values = items.chain(guest.ended.iter().flat_map(|(_, values)| values));
        let inside = values.flat_map(|value| &value.nested).filter(|spec| spec.owner.node == self.config.id);
        let inside: Vec<ObjectId> = inside.map(|spec| spec.object).collect();
        for object in inside {
            self.claim(holder, object, 1, now);
            self.claim(holder, object, -1, now);
        }
    }

    /// Sends what was recorded about a guest in its worker's name, to its owner's node.
    fn send_recorded(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        let Some(guest) = self.cluster.guests.0.get_mut(&task) else { return };
        let (owner, worker) = (guest.owner, guest.worker);
        let items = std::mem::take(&mut guest.items).into_iter();
        let items = items.map(|(index, (attempt, value))| Peer::Item { task, attempt, index, value });
        let ended = guest.ended.take();
        let reply = ended.map(|(attempt, values)| Peer::Reply { task, attempt, values, duration_us: 0 });
        let over = reply.is_some();
        for message in items.chain(reply) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let message = Between::Relay { from: worker, to: owner, bytes: bytes.into() };
            effects.push(Effect::Tell { node: owner.node, message });
        }
        if over {
            self.cluster.guests.0.remove(&task);
        }
    }

    /// All our processes have settled the death of an owner elsewhere: its node hears what runs on and what has ended.
    /// What had not started never will.
    pub(super) fn tell_runs(&mut self, owner: ProcessId, effects: &mut Vec<Effect>) {
        for task in self.cluster.guests.of_owner(owner) {
            self.send_recorded(task, effects);
            let Some(guest) = self.cluster.guests.0.get(&task) else { continue };
            match guest.started {
                Some((_, attempt)) => {
                    let message = Between::Runs { task, attempt, worker: guest.worker };
                    effects.push(Effect::Tell { node: owner.node, message });
                }
                None => {
                    self.cluster.guests.0.remove(&task);
                }
            }
        }
    }

    /// A task of a dead process of ours runs on elsewhere.
    pub(super) fn runs_on(
        &mut self,
        task: TaskId,
        attempt: u32,
        worker: ProcessId,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        if self.ledger.task(task).is_some() && self.live.contains(&worker) {
            self.recorded(worker, Record::Started { at: now, task, attempt }, now, effects);
        }
    }

    /// The node whose processes owned these is dead: nobody will free them.
    pub(super) fn free_lodged(&mut self, node: NodeId, effects: &mut Vec<Effect>) {
        let over = self.cluster.lodged.values().filter(|lodger| lodger.object.owner.node == node);
        effects.extend(over.map(|lodger| Effect::FreeStored(lodger.at)));
    }

    /// A worker of ours is dead: what it had recorded for owners elsewhere and not sent goes out now.
    pub(super) fn speak_for(&mut self, worker: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        for task in self.cluster.guests.of_worker(worker) {
            self.lend_for(worker, task, now, effects);
            self.send_recorded(task, effects);
            self.cluster.guests.0.remove(&task);
        }
    }

    /// The references inside what a dead worker could not send any more go under the names of the nodes that keep them.
    fn lend_for(&mut self, worker: ProcessId, task: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(guest) = self.cluster.guests.0.get_mut(&task) else { return };
        let holder = guest.owner;
        if !self.live.contains(&holder) {
            return;
        }
        let items = guest.items.values_mut().map(|(_, value)| value);
        let values = items.chain(guest.ended.iter_mut().flat_map(|(_, values)| values));
        let mut lent = Vec::new();
        for spec in values.flat_map(|value| &mut value.nested) {
            let home = spec.owner.node;
            // What it owns itself comes home.
            if spec.owner != holder && (home == self.config.id || self.live.has_node(home)) {
                spec.owner = ProcessId::of_node(home);
                lent.push((spec.object, home));
            }
        }
        for (object, home) in lent {
            if home == self.config.id {
                self.claim_for(worker, object, holder, now);
            } else {
                let request = Box::new(ToNode::ClaimFor { object, home, holder });
                let message = Between::Asked { process: worker, job: JobId::default(), request };
                effects.push(Effect::Tell { node: home, message });
            }
        }
    }
}

fn lodged(at: Location, object: ObjectId, owner: ProcessId) -> ((u32, u32), Lodger) {
    let object = RefSpec { object, owner };
    ((at.entry, at.generation), Lodger { at, object, is_first: true, kept_by: None })
}

fn stored(value: &Value) -> Option<Location> {
    match value.body {
        Body::Stored(at) => Some(at),
        Body::Inline(_) | Body::Failed(_) => None,
    }
}
