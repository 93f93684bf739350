//! Copies of objects between nodes: what is fetched, what is sent, and what came of it.
//!
//! The node's thread decides nothing here and never waits: it asks who sends ([`TransferEvent::Wanted`]; the owner's node
//! decides), asks the store for room, hands a transfer to a thread of the pool (`net::bulk`), and is rung when one has ended.
//! Bytes go straight into an unsealed object of the arena, so a copy can be sent on while it arrives; others may ask for it by
//! name before it has a place. A transfer that breaks asks again and goes on from its watermark with whoever is named. (The same
//! object is the same bytes: the owner's node frees what lay elsewhere before it is made again, which ends its transfers.)
//!
//! A copy is secondary: it is dropped, not spilled, when room is needed and nobody reads it, and that is told. It becomes
//! primary with [`Transfers::promote`], when the other copies are lost.
//!
//! In each pass of the node: `objects.progress()`, then [`Transfers::progress`].

mod admission;
mod ends;
mod event;
mod key;
mod place;
mod serving;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use bireme_core::id::{NodeId, ObjectId, ProcessId};
use bireme_core::message::{CopySource, LostSender};
use bireme_core::time::Tick;
use bireme_core::value::{Location, RefSpec};
use bireme_net::Doorbell;
use bireme_net::bulk::{BulkOptions, Finished, HeldFile, Pool, TRANSFERS_PER_PEER, Turns};
use bireme_net::wire::Wire;
use bireme_store::{Arena, ProcessSlot, StoreClient, Table};

use super::flows::Offered;
use super::objects::{Answer, Objects};
use super::pace::Measured;
use crate::clock;
use admission::{Admission, SERVED_CONNECTIONS_MAX};
use place::{Arrival, Names};
use serving::Shared;

pub(crate) use event::{TransferError, TransferEvent, Waiter};
pub(super) use key::BulkKey;
pub(super) use place::{Arriving, ArrivingMap, Growth, Part};
pub(crate) use serving::BulkServer;

/// Transfers to this node at a time, each with a thread.
const TRANSFERS_MAX: usize = 64;
/// Transfers that wait for their turn.
const TRANSFERS_WAITING_MAX: usize = 100_000;
/// The same sender is asked again after this.
const AGAIN_US: u64 = 200_000;

/// How far a transfer is; with what came before, when it was broken.
enum Phase {
    /// Waits to hear who sends.
    Asking(Option<Arrival>),
    /// Was told to try the same sender again, at this time.
    Pausing(Option<Arrival>, Tick),
    /// Waits for its turn.
    Queued(Option<Arrival>),
    /// Has its turn and waits for room.
    Room,
    /// A thread has it.
    Running,
}

struct Transfer {
    object: RefSpec,
    /// The place that the owner knows.
    of: Location,
    /// Who sends, or was the last to.
    source: Option<CopySource>,
    waiters: Vec<Waiter>,
    phase: Phase,
    cancel: Arc<AtomicBool>,
    /// Nobody wants it any more, and why: what comes of it is thrown away.
    refused: Option<String>,
    /// How many bytes were there when its thread began.
    began: u64,
    /// Senders that were lost since bytes came last, and how the last one was.
    losses: (u32, Option<TransferError>),
}

/// A complete copy that may be dropped.
#[derive(Clone, Copy, Debug)]
struct Copy {
    number: u64,
    object: RefSpec,
    of: Location,
    at: Location,
}

type Ends = Arc<Mutex<VecDeque<Finished<NodeId, Arrival>>>>;

/// The transfers of a node.
pub(crate) struct Transfers {
    node: NodeId,
    client: StoreClient,
    shared: Arc<Shared>,
    arriving: Arriving,
    pool: Pool<NodeId, Arrival>,
    ends: Ends,
    turns: Turns<NodeId, u64>,
    transfers: BTreeMap<u64, Transfer>,
    /// The transfer of an object that is wanted.
    numbers: BTreeMap<ObjectId, u64>,
    next_number: u64,
    /// Complete copies that may be dropped, and the way back.
    copies: BTreeMap<ObjectId, Copy>,
    objects_at: BTreeMap<(u32, u32), ObjectId>,
    /// Serving threads that wait to know where an object is.
    seekers: BTreeMap<u64, Sender<Result<Location, String>>>,
    events: Vec<TransferEvent>,
    measured: Vec<Measured>,
    doorbell: Doorbell,
}

impl Transfers {
    /// No transfers yet. `dial` opens a bulk connection to a node, with a ticket and all; it runs on threads of the pool
    /// and may wait.
    pub(crate) fn new(
        node: NodeId,
        objects: &mut Objects,
        (arena, table): (Arc<Arena>, Arc<Table>),
        doorbell: Doorbell,
        options: BulkOptions,
        dial: impl Fn(NodeId) -> Result<Box<dyn Wire>, String> + Send + Sync + 'static,
    ) -> Self {
        objects.admit(ProcessId::of_node(node));
        let slot = ProcessSlot::new(ProcessId::of_node(node).slot).expect("the node has the first slot");
        let client = StoreClient::new(arena, table, slot);
        let (ends, arriving) = (Ends::default(), Arriving::default());
        let (told, bell) = (Arc::clone(&ends), doorbell.clone());
        let spawn = |name: &str, body| {
            crate::thread::spawn(name, body).map(|_| ()).map_err(|error: crate::error::Error| error.to_string())
        };
        let done = move |finished| {
            told.lock().unwrap_or_else(PoisonError::into_inner).push_back(finished);
            bell.ring_self();
        };
        let pool = Pool::new(options.clone(), TRANSFERS_MAX, spawn, move |peer| dial(*peer), done);
        let shared = Shared {
            node,
            client: client.clone(),
            file: HeldFile::of(client.arena().fd()).ok(),
            arriving: Arc::clone(&arriving),
            flows: Arc::default(),
            names: Names::default(),
            sought: Mutex::default(),
            doorbell: doorbell.clone(),
            options,
            stop: AtomicBool::new(false),
            admission: Admission::new(SERVED_CONNECTIONS_MAX),
        };
        Self {
            node,
            client,
            shared: Arc::new(shared),
            arriving,
            pool,
            ends,
            turns: Turns::new(TRANSFERS_PER_PEER, TRANSFERS_MAX, TRANSFERS_WAITING_MAX),
            transfers: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next_number: 1,
            copies: BTreeMap::new(),
            objects_at: BTreeMap::new(),
            seekers: BTreeMap::new(),
            events: Vec::new(),
            measured: Vec::new(),
            doorbell,
        }
    }

    /// The node's own access to the store.
    pub(crate) fn client(&self) -> &StoreClient {
        &self.client
    }

    /// What its serving threads find, for stages to add to.
    pub(crate) fn offered(&self) -> Offered {
        Offered { registry: Arc::clone(&self.shared.flows), arriving: Arc::clone(&self.arriving) }
    }

    /// What takes incoming connections.
    pub(crate) fn server(&self) -> BulkServer {
        BulkServer(Arc::clone(&self.shared))
    }

    /// Brings a copy here of what its owner knows at `of`, on another node. The end is told by [`Transfers::progress`], once
    /// for all who wait for the same object.
    pub(crate) fn fetch(&mut self, objects: &mut Objects, object: RefSpec, of: Location, waiter: Option<Waiter>) {
        let waiters = Vec::from_iter(waiter);
        if of.node == self.node {
            return self.end_now((object, of), waiters, Ok(of));
        }
        if let Some(here) = self.copies.get(&object.object).and_then(|copy| objects.use_copy(copy.at)) {
            return self.end_now((object, of), waiters, Ok(here));
        }
        if let Some(number) = self.numbers.get(&object.object)
            && let Some(transfer) = self.transfers.get_mut(number)
        {
            transfer.waiters.extend(waiters);
            return;
        }
        if self.transfers.len() >= TRANSFERS_WAITING_MAX {
            return self.end_now((object, of), waiters, Err(TransferError::TooMany(TRANSFERS_WAITING_MAX)));
        }
        let number = self.next_number;
        self.next_number += 1;
        let (phase, cancel, began, losses) = (Phase::Asking(None), Arc::default(), 0, (0, None));
        let transfer = Transfer { object, of, source: None, waiters, phase, cancel, refused: None, began, losses };
        self.transfers.insert(number, transfer);
        self.numbers.insert(object.object, number);
        self.shared.names.set(object.object, number, of, None);
        self.events.push(TransferEvent::Wanted { number, object, of, lost: None });
        self.doorbell.ring_self();
    }

    /// The owner's node has said who sends, or why nobody does; the latter also when it is freed meanwhile.
    pub(crate) fn assigned(&mut self, objects: &mut Objects, number: u64, from: Result<CopySource, String>) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        let source = match from {
            Ok(source) => source,
            Err(why) => return self.refuse(objects, number, why),
        };
        let Phase::Asking(arrival) = &mut transfer.phase else { return };
        let arrival = arrival.take();
        if source.node == self.node {
            // What was a copy here is the first one now.
            let (object, of, waiters) = (transfer.object, transfer.of, std::mem::take(&mut transfer.waiters));
            transfer.phase = Phase::Asking(arrival);
            self.give_up(objects, number, "it is there already");
            return self.end_now((object, of), waiters, Ok(source.at));
        }
        let last = transfer.source.replace(source);
        let again = transfer.losses.0 > 0 && last.is_some_and(|last| last.node == source.node);
        if again {
            transfer.phase = Phase::Pausing(arrival, clock::now().plus_us(AGAIN_US));
            return;
        }
        transfer.phase = Phase::Queued(arrival);
        self.enqueue(objects, number);
        self.start_waiting(objects);
    }

    fn end_now(
        &mut self,
        (object, of): (RefSpec, Location),
        waiters: Vec<Waiter>,
        result: Result<Location, TransferError>,
    ) {
        self.events.push(TransferEvent::Ended { object, of, waiters, result });
        self.doorbell.ring_self();
    }

    fn enqueue(&mut self, objects: &mut Objects, number: u64) {
        let Some(source) = self.transfers.get(&number).and_then(|transfer| transfer.source) else { return };
        if let Err(full) = self.turns.push(source.node, number) {
            self.fail(objects, number, TransferError::TooMany(full.waiting));
        }
    }

    /// Starts those whose turn it is.
    fn start_waiting(&mut self, objects: &mut Objects) {
        while let Some((_, number)) = self.turns.start_next() {
            let Some(transfer) = self.transfers.get_mut(&number) else { continue };
            match std::mem::replace(&mut transfer.phase, Phase::Room) {
                Phase::Queued(Some(arrival)) => self.run(objects, number, arrival),
                _ => objects.ask_room(number, transfer.of.len),
            }
        }
    }

    /// Nobody can ask for an object any more, or nobody can send it: its transfer ends, and what came of it is given up.
    fn refuse(&mut self, objects: &mut Objects, number: u64, why: String) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        match transfer.phase {
            // Answered later, and thrown away then. Whoever wants it before that begins anew.
            Phase::Room | Phase::Running => {
                transfer.refused = Some(why);
                transfer.cancel.store(true, Ordering::Relaxed);
                let object = transfer.object.object;
                if self.numbers.get(&object) == Some(&number) {
                    self.numbers.remove(&object);
                }
                self.shared.names.remove(object, number);
            }
            Phase::Queued(_) => {
                self.turns.retain(|_, waiting| *waiting != number);
                self.fail_nowhere(objects, number, why);
            }
            Phase::Asking(_) | Phase::Pausing(..) => self.fail_nowhere(objects, number, why),
        }
    }

    /// Frees an object of this node, whatever it is: a copy, one that arrives, or one of its own.
    pub(crate) fn free(&mut self, objects: &mut Objects, at: Location) {
        self.forget_copy(at);
        objects.free(at);
    }

    /// The other copies of an object are lost: the one here is not dropped any more. Its place, if there is one.
    pub(crate) fn promote(&mut self, objects: &mut Objects, object: ObjectId) -> Option<Location> {
        let at = self.copies.get(&object).and_then(|copy| objects.use_copy(copy.at))?;
        objects.set_secondary(at, false);
        self.forget_copy(at);
        Some(at)
    }

    /// The same, by its place.
    pub(crate) fn promote_at(&mut self, objects: &mut Objects, at: Location) {
        if let Some(object) = self.objects_at.get(&(at.entry, at.generation)).copied() {
            self.promote(objects, object);
        }
    }

    fn forget_copy(&mut self, at: Location) -> Option<Copy> {
        let object = self.objects_at.remove(&(at.entry, at.generation))?;
        let copy = self.copies.remove(&object)?;
        self.shared.names.remove(object, copy.number);
        Some(copy)
    }

    /// A node is dead: nothing is sent to it any more, and what came from it goes on with another sender.
    pub(crate) fn node_died(&mut self, node: NodeId) {
        self.pool.forget(&node);
        self.shared.admission.cut_off(node);
        self.turns.retain(|peer, _| *peer != node);
        let of_it = |transfer: &Transfer| transfer.source.is_some_and(|source| source.node == node);
        for (number, transfer) in self.transfers.iter_mut().filter(|(_, transfer)| of_it(transfer)) {
            match &mut transfer.phase {
                Phase::Running => transfer.cancel.store(true, Ordering::Relaxed),
                // Its thread will find nobody there.
                Phase::Room | Phase::Asking(_) => {}
                Phase::Queued(arrival) | Phase::Pausing(arrival, _) => {
                    transfer.phase = Phase::Asking(arrival.take());
                    let (object, of) = (transfer.object, transfer.of);
                    let lost = Some(LostSender { node, is_useless: false });
                    self.events.push(TransferEvent::Wanted { number: *number, object, of, lost });
                }
            }
        }
        self.doorbell.ring_self();
    }

    /// Ends every transfer and waits for the threads.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.admission.stop();
        self.pool.stop();
    }

    /// Takes in what has happened since the last pass, and says what the node has to know.
    pub(crate) fn progress(&mut self, objects: &mut Objects) -> Vec<TransferEvent> {
        for answer in objects.take_answers() {
            match answer {
                Answer::Room { number, room } => self.got_room(objects, number, room),
                Answer::Place { number, place } => {
                    if let Some(seeker) = self.seekers.remove(&number) {
                        // Its connection may be gone by now.
                        let _ = seeker.send(place);
                    }
                }
            }
        }
        let sought = std::mem::take(&mut *self.shared.sought.lock().unwrap_or_else(PoisonError::into_inner));
        for sought in sought {
            self.seekers.insert(self.next_number, sought.answer);
            objects.ask_place(self.next_number, sought.at);
            self.next_number += 1;
        }
        let ends = std::mem::take(&mut *self.ends.lock().unwrap_or_else(PoisonError::into_inner));
        for finished in ends {
            self.finished(objects, finished);
        }
        for at in objects.take_dropped() {
            if let Some(Copy { object, of, .. }) = self.forget_copy(at) {
                self.events.push(TransferEvent::Dropped { object, of });
            }
        }
        self.make_room(objects);
        self.try_again(objects);
        self.start_waiting(objects);
        std::mem::take(&mut self.events)
    }

    /// How fast the transfers were that have ended since the last time.
    pub(in crate::node) fn take_measured(&mut self) -> Vec<Measured> {
        std::mem::take(&mut self.measured)
    }

    fn lock_arriving(&self) -> std::sync::MutexGuard<'_, BTreeMap<(u32, u32), Arc<Growth>>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
