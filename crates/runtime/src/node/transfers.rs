//! Copies of objects between nodes: what is fetched, what is sent, and what came of it.
//!
//! The node's thread decides nothing here and never waits: it asks the store for room, hands a transfer to a thread of
//! the pool (`net::bulk`), and is rung when one has ended. Bytes go straight into an unsealed object of the arena, so a
//! copy can be sent on while it arrives. A transfer that breaks keeps what it has for a while, unless the room is needed: the
//! next [`Transfers::fetch`] of the same object, from whichever node, goes on from there. (The same object is the same
//! bytes. Who makes a lost object again has to cancel its transfers first.)
//!
//! A copy is secondary: it is dropped, not spilled, when room is needed and nobody reads it, and that is told. It becomes
//! primary with [`Transfers::promote`], when the other copies are lost.
//!
//! In each pass of the node: `objects.progress()`, then [`Transfers::progress`].

mod ends;
mod event;
mod place;
mod serving;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use bireme_core::id::{NodeId, ObjectId, ProcessId};
use bireme_core::time::Tick;
use bireme_core::value::Location;
use bireme_net::Doorbell;
use bireme_net::bulk::{BulkOptions, Finished, Pool, Sink, TRANSFERS_PER_PEER, Turns};
use bireme_net::wire::Wire;
use bireme_store::{Arena, ProcessSlot, StoreClient, Table};

use super::objects::{Answer, Objects};
use place::{Arrival, Arriving, Growth};
use serving::Shared;

pub(crate) use event::{TransferError, TransferEvent, Waiter};
pub(crate) use serving::BulkServer;

/// Transfers to this node at a time, each with a thread.
const TRANSFERS_MAX: usize = 64;
/// Transfers that wait for their turn.
const TRANSFERS_WAITING_MAX: usize = 100_000;

/// How far a transfer is.
enum Phase {
    /// Waits for its turn; with what came before, when it was broken.
    Queued(Option<Arrival>),
    /// Has its turn and waits for room.
    Room,
    /// A thread has it.
    Running,
    /// Broken, with what came, until somebody fetches the rest or this time has passed.
    Paused(Arrival, Tick),
}

struct Transfer {
    object: ObjectId,
    /// Where it lies on the other node.
    source: Location,
    waiters: Vec<Waiter>,
    phase: Phase,
    cancel: Arc<AtomicBool>,
    /// Nobody wants it: what comes of it is thrown away.
    cancelled: bool,
    /// When its thread began, and how many bytes were there.
    began: (Tick, u64),
}

/// How fast a transfer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) bytes: u64,
    pub(crate) took_us: u64,
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
    copies: BTreeMap<ObjectId, Location>,
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
            arriving: Arc::clone(&arriving),
            sought: Mutex::default(),
            doorbell: doorbell.clone(),
            options,
            stop: AtomicBool::new(false),
            served: Mutex::default(),
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

    /// What takes incoming connections.
    pub(crate) fn server(&self) -> BulkServer {
        BulkServer(Arc::clone(&self.shared))
    }

    /// Brings a copy here of what lies `at` another node. The end is told by [`Transfers::progress`], once for all who
    /// wait for the same object.
    pub(crate) fn fetch(&mut self, objects: &mut Objects, object: ObjectId, at: Location, waiter: Option<Waiter>) {
        let waiters = Vec::from_iter(waiter);
        if at.node == self.node {
            return self.end_now(object, waiters, Ok(at));
        }
        if let Some(here) = self.copies.get(&object).copied().and_then(|here| objects.use_copy(here)) {
            return self.end_now(object, waiters, Ok(here));
        }
        match self.numbers.get(&object).copied() {
            Some(number) => self.join(objects, number, at, waiters),
            None => {
                let number = self.next_number;
                self.next_number += 1;
                let (phase, cancel) = (Phase::Queued(None), Arc::default());
                let began = (Tick::default(), 0);
                let transfer = Transfer { object, source: at, waiters, phase, cancel, cancelled: false, began };
                self.transfers.insert(number, transfer);
                self.numbers.insert(object, number);
                self.enqueue(objects, number);
            }
        }
        self.start_waiting(objects);
    }

    /// One more wants an object that is coming, or the rest of one that was.
    fn join(&mut self, objects: &mut Objects, number: u64, source: Location, waiters: Vec<Waiter>) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        transfer.waiters.extend(waiters);
        transfer.phase = match std::mem::replace(&mut transfer.phase, Phase::Running) {
            Phase::Paused(arrival, _) => {
                (transfer.source, transfer.cancel) = (source, Arc::default());
                Phase::Queued(Some(arrival))
            }
            other => {
                transfer.phase = other;
                return;
            }
        };
        self.enqueue(objects, number);
    }

    fn end_now(&mut self, object: ObjectId, waiters: Vec<Waiter>, result: Result<Location, TransferError>) {
        self.events.push(TransferEvent::Ended { object, waiters, result });
        self.doorbell.ring_self();
    }

    fn enqueue(&mut self, objects: &mut Objects, number: u64) {
        let Some(peer) = self.transfers.get(&number).map(|transfer| transfer.source.node) else { return };
        if let Err(full) = self.turns.push(peer, number) {
            self.fail(objects, number, full.into());
        }
    }

    /// Starts those whose turn it is.
    fn start_waiting(&mut self, objects: &mut Objects) {
        while let Some((_, number)) = self.turns.start_next() {
            let Some(transfer) = self.transfers.get_mut(&number) else { continue };
            match std::mem::replace(&mut transfer.phase, Phase::Room) {
                Phase::Queued(Some(arrival)) => self.run(objects, number, arrival),
                _ => objects.ask_room(number, transfer.source.len),
            }
        }
    }

    /// Nobody wants an object any more: its transfer ends, and what came of it is given up.
    #[cfg_attr(not(test), expect(dead_code, reason = "needed when lost objects are made again"))]
    pub(crate) fn cancel(&mut self, objects: &mut Objects, object: ObjectId) {
        let Some(number) = self.numbers.remove(&object) else { return };
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        transfer.cancelled = true;
        transfer.cancel.store(true, Ordering::Relaxed);
        match transfer.phase {
            // Answered later, and thrown away then.
            Phase::Room | Phase::Running => {}
            Phase::Queued(_) => {
                self.turns.retain(|_, waiting| *waiting != number);
                self.fail(objects, number, TransferError::Cancelled);
            }
            Phase::Paused(..) => self.fail(objects, number, TransferError::Cancelled),
        }
    }

    /// Frees an object of this node, whatever it is: a copy, one that arrives, or one of its own.
    pub(crate) fn free(&mut self, objects: &mut Objects, at: Location) {
        if let Some(object) = self.forget_copy(at) {
            self.copies.remove(&object);
        }
        objects.free(at);
    }

    /// The other copies of an object are lost: the one here is not dropped any more. Its place, if there is one.
    pub(crate) fn promote(&mut self, objects: &mut Objects, object: ObjectId) -> Option<Location> {
        let at = self.copies.get(&object).copied().and_then(|at| objects.use_copy(at))?;
        objects.set_secondary(at, false);
        self.copies.remove(&object);
        self.forget_copy(at);
        Some(at)
    }

    /// The same, by its place.
    pub(crate) fn promote_at(&mut self, objects: &mut Objects, at: Location) {
        if let Some(object) = self.objects_at.get(&(at.entry, at.generation)).copied() {
            self.promote(objects, object);
        }
    }

    fn forget_copy(&mut self, at: Location) -> Option<ObjectId> {
        self.objects_at.remove(&(at.entry, at.generation))
    }

    /// A node is dead: nothing is sent to it any more, and what came from it ends as interrupted.
    pub(crate) fn node_died(&mut self, objects: &mut Objects, node: NodeId) {
        self.pool.forget(&node);
        self.shared.cut_off(node);
        self.turns.retain(|peer, _| *peer != node);
        let of_it = self.transfers.iter().filter(|(_, transfer)| transfer.source.node == node);
        let numbers: Vec<u64> = of_it.map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(transfer) = self.transfers.get(&number) else { continue };
            match &transfer.phase {
                Phase::Room | Phase::Running => transfer.cancel.store(true, Ordering::Relaxed),
                Phase::Queued(arrival) => {
                    let watermark = arrival.as_ref().map_or(0, Sink::watermark);
                    let error = TransferError::Interrupted { from: node, watermark, why: "the node is dead".into() };
                    self.fail(objects, number, error);
                }
                Phase::Paused(..) => {}
            }
        }
    }

    /// Ends every transfer and waits for the threads.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
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
            if let Some(object) = self.forget_copy(at) {
                self.copies.remove(&object);
                self.events.push(TransferEvent::Dropped { object, at });
            }
        }
        self.expire(objects);
        self.start_waiting(objects);
        std::mem::take(&mut self.events)
    }

    /// How fast the transfers were that have ended since the last time.
    pub(crate) fn take_measured(&mut self) -> Vec<Measured> {
        std::mem::take(&mut self.measured)
    }

    fn lock_arriving(&self) -> std::sync::MutexGuard<'_, BTreeMap<(u32, u32), Arc<Growth>>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
