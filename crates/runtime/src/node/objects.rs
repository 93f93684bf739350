//! The store's service: room for new objects, spilling when there is none, restoring on demand.
//!
//! An object keeps the name of its first place for life: owners and borrowers go on using that [`Location`], and the node
//! knows where it is now. File work runs on a thread of its own; the node's thread only starts and finishes it. Copies of
//! objects of other nodes go first when room is needed, without a file (`copies`). Objects that a process wants come
//! into memory together (`gathering`). When everything in memory is in use, the overflow file takes what is needed
//! nevertheless.

mod copies;
mod gathering;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use bireme_core::gather::{BundleId, Gather, PATIENCE_US};
use bireme_core::id::{NodeId, ProcessId};
use bireme_core::idle::StoreUse;
use bireme_core::message::{FromNode, RequestId, ToNode};
use bireme_core::record::Record;
use bireme_core::time::Tick;
use bireme_core::value::Location;
use bireme_net::Doorbell;
use bireme_store::{
    Arena, ProcessSlot, RestoreDone, RestoreJob, Sealed, SpillDone, SpillError, SpillJob, SpillOptions, SpillTicket,
    Store, StoreError, Table, UnsealedLocation,
};

use crate::clock;
use crate::objects::{from_store, to_store};
use gathering::Gatherings;

/// A request for room waits at most this long for objects to be freed when nothing can be spilled and there is no
/// overflow file. With one it waits for [`PATIENCE_US`].
const ROOM_WAIT_US: u64 = 5_000_000;
/// Objects that were freed while somebody read them, looked at again in each pass.
const SWEPT_PER_PASS: usize = 8;

/// Numbers from here on are those of stages, all others those of transfers.
pub(super) const STAGE_NUMBERS: u64 = 1 << 63;

type Key = (u32, u32);
type Replies = Vec<(ProcessId, FromNode)>;

enum Place {
    /// In the arena, under another entry than its first.
    At(Location),
    /// On its way out of this place; readers ask again when it is done.
    Leaving(Location),
    /// On disk.
    Spilled(SpillTicket),
    /// On its way back.
    Returning(SpillTicket),
}

/// Who is answered.
#[derive(Clone, Copy)]
enum Asker {
    Process(ProcessId, RequestId),
    /// A transfer of the node itself, by its number.
    Node(u64),
}

/// What a transfer of the node asked for, by its number.
#[derive(Debug)]
pub(super) enum Answer {
    /// Room for an object, or why there is none.
    Room { number: u64, room: Result<Location, String> },
    /// Where an object is, or why it is nowhere.
    Place { number: u64, place: Result<Location, String> },
}

struct Wish {
    asker: Asker,
    len: u64,
    since: Tick,
}

enum Job {
    Spill(Key, SpillJob),
    Restore(Key, RestoreJob),
    /// Gives the space of an object in the file back: the file system may write for that, which the node's thread never waits for.
    Discard(SpillTicket),
}

enum Done {
    Spill(Key, SpillDone),
    Restore(Key, RestoreDone),
    Discard,
}

pub(super) struct Objects {
    node: NodeId,
    store: Store,
    /// Objects that are not where they were first.
    places: BTreeMap<Key, Place>,
    /// From a later place back to the first.
    first: BTreeMap<Key, Key>,
    wishes: VecDeque<Wish>,
    /// Transfers of the node that want to know where an object is, while it moves.
    seekers: BTreeMap<Key, Vec<u64>>,
    /// The admission of processes to memory.
    gather: Gather,
    gatherings: Gatherings,
    /// Since when there has been no room for an object that has to come back.
    sought_since: BTreeMap<Key, Tick>,
    /// Created and not yet in a record, by process.
    unrecorded: BTreeMap<ProcessId, BTreeSet<Key>>,
    /// Freed while a file job had it.
    doomed: BTreeSet<Key>,
    jobs: Option<Sender<Job>>,
    done: Arc<Mutex<VecDeque<Done>>>,
    moving: usize,
    /// Objects of the file whose space is about to be free.
    discarding: usize,
    last_spill_error: Option<String>,
    /// Memory is short: what leaves is given back to the machine.
    relieving: bool,
    /// Answers to the node's own transfers, and to its stages.
    answers: Vec<Answer>,
    stage_answers: Vec<Answer>,
    /// Copies that had to go for others.
    dropped: Vec<Location>,
    doorbell: Doorbell,
}

impl Objects {
    pub(super) fn new(
        node: NodeId,
        arena: Arc<Arena>,
        table: Arc<Table>,
        spill: SpillOptions,
        doorbell: Doorbell,
    ) -> Self {
        Self {
            node,
            store: Store::new(arena, table, spill),
            places: BTreeMap::new(),
            first: BTreeMap::new(),
            wishes: VecDeque::new(),
            seekers: BTreeMap::new(),
            gather: Gather::default(),
            gatherings: Gatherings::default(),
            sought_since: BTreeMap::new(),
            unrecorded: BTreeMap::new(),
            doomed: BTreeSet::new(),
            jobs: None,
            done: Arc::default(),
            moving: 0,
            discarding: 0,
            last_spill_error: None,
            relieving: false,
            answers: Vec::new(),
            stage_answers: Vec::new(),
            dropped: Vec::new(),
            doorbell,
        }
    }

    /// How full the store is, without what was freed and nobody reads any more.
    pub(super) fn stats(&mut self) -> bireme_store::Stats {
        self.store.sweep();
        self.store.stats()
    }

    pub(super) fn admit(&mut self, process: ProcessId) {
        if let Some(slot) = ProcessSlot::new(process.slot) {
            self.store.admit_process(slot);
        }
    }

    /// A dead process lets go of its pins, and of objects that no record knows.
    pub(super) fn release(&mut self, process: ProcessId) {
        self.wishes.retain(|wish| !matches!(wish.asker, Asker::Process(asker, _) if asker == process));
        self.gathering_process_gone(process);
        for key in self.unrecorded.remove(&process).unwrap_or_default() {
            let _ = self.store.free(key.0, key.1);
        }
        if let Some(slot) = ProcessSlot::new(process.slot) {
            // A row that cannot be cleared keeps its objects pinned; nothing worse.
            let _ = self.store.release_process(slot);
        }
    }

    /// A record mentions stored values: they belong to the ledger now.
    pub(super) fn recorded(&mut self, process: ProcessId, record: &Record) {
        for at in super::values_of(record).iter().filter_map(super::stored) {
            if let Some(keys) = self.unrecorded.get_mut(&process) {
                keys.remove(&(at.entry, at.generation));
            }
        }
    }

    pub(super) fn serve(&mut self, process: ProcessId, request: ToNode) -> Replies {
        match request {
            ToNode::CreateObject { request, len } => {
                self.forget_old_error();
                self.wish(Asker::Process(process, request), len);
                self.grant()
            }
            ToNode::AbortObject { at } => {
                let _ = self.store.abort(UnsealedLocation(to_store(at)));
                self.grant()
            }
            ToNode::FreeObject { at } => {
                self.free(at);
                self.grant()
            }
            ToNode::Gather { request, lease, function, inputs, arriving_bytes } => {
                self.forget_old_error();
                self.begin_gathering(BundleId { process, request }, (lease, function), &inputs, arriving_bytes);
                self.gather_some()
            }
            ToNode::EndGather { request, output_bytes } => {
                self.end_gathering(process, request, output_bytes);
                self.gather_some()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn free(&mut self, at: Location) {
        let key = self.first_key(at);
        match self.places.remove(&key) {
            None => {
                // An unknown entry was freed before: by the death of its process.
                let _ = self.store.free(key.0, key.1);
            }
            Some(Place::At(now)) => {
                self.first.remove(&(now.entry, now.generation));
                let _ = self.store.free(now.entry, now.generation);
            }
            Some(Place::Spilled(ticket)) => self.discard(ticket),
            Some(moving @ (Place::Leaving(_) | Place::Returning(_))) => {
                self.doomed.insert(key);
                self.places.insert(key, moving);
            }
        }
    }

    fn wish(&mut self, asker: Asker, len: u64) {
        self.wishes.push_back(Wish { asker, len, since: clock::now() });
    }

    fn first_key(&self, at: Location) -> Key {
        let key = (at.entry, at.generation);
        self.first.get(&key).copied().unwrap_or(key)
    }

    /// Gives room to whoever waits, in order, and makes room when there is none.
    fn grant(&mut self) -> Replies {
        let mut replies = Vec::new();
        while let Some(wish) = self.wishes.front() {
            let (asker, len, since) = (wish.asker, wish.len, wish.since);
            let created = match self.store.create(len) {
                Ok(location) => {
                    self.last_spill_error = None;
                    Ok(from_store(self.node, location.0))
                }
                Err(error @ (StoreError::Full { .. } | StoreError::TableFull { .. })) => {
                    self.store.sweep();
                    if self.drop_copies(len) {
                        continue;
                    }
                    // Objects on their way out make room. After a spill that failed another would fail as well.
                    if self.moving > 0 || self.last_spill_error.is_none() && self.make_room(len) {
                        return replies;
                    }
                    match self.overflow(since, error, |store| store.create_overflow(len)) {
                        Some(created) => created.map(|location| from_store(self.node, location.0)),
                        None => return replies,
                    }
                }
                Err(error) => Err(error.to_string()),
            };
            self.wishes.pop_front();
            match asker {
                Asker::Node(number) => self.answer(Answer::Room { number, room: created }),
                Asker::Process(process, request) => {
                    if let Ok(at) = &created {
                        self.unrecorded.entry(process).or_default().insert((at.entry, at.generation));
                    }
                    let created = created.map(|at| (at, !self.store.last_was_cold()));
                    replies.push((process, FromNode::ObjectCreated { request, created }));
                }
            }
        }
        replies
    }

    /// Everything in memory is in use: takes room in the overflow file. None while somebody may still let go of something.
    fn overflow<T>(
        &mut self,
        since: Tick,
        full: StoreError,
        make: impl FnOnce(&mut Store) -> Result<T, StoreError>,
    ) -> Option<Result<T, String>> {
        let waited = clock::now().since_us(since);
        let overflows = self.store.has_overflow() && matches!(full, StoreError::Full { .. });
        let patience = if overflows { PATIENCE_US } else { ROOM_WAIT_US };
        if waited < patience && self.last_spill_error.is_none() {
            return None;
        }
        let why = match overflows.then(|| make(&mut self.store)) {
            Some(Ok(made)) => return Some(Ok(made)),
            Some(Err(_)) if waited < ROOM_WAIT_US && self.last_spill_error.is_none() => return None,
            Some(Err(error)) => Some(error.to_string()),
            None => None,
        };
        let spill_error = self.last_spill_error.take();
        let why = spill_error.or(why).unwrap_or_else(|| "nothing can be spilled: every object is in use".into());
        Some(Err(format!("{full}; {why}")))
    }

    /// Starts spilling enough for `len` bytes. False when nothing can be.
    fn make_room(&mut self, len: u64) -> bool {
        // Where enough is free, but in pieces, those objects go that lie between them.
        let pieces = if self.room_bytes() >= len { self.store.window_candidates(len) } else { Vec::new() };
        let candidates = if pieces.is_empty() { self.store.spill_candidates(len) } else { pieces };
        self.start_spilling(candidates)
    }

    fn start_spilling(&mut self, candidates: Vec<Sealed>) -> bool {
        let mut started = false;
        for sealed in candidates {
            let at = sealed.0;
            let key = self.first_key(from_store(self.node, at));
            match self.store.begin_spill(at.entry, at.generation) {
                Ok(job) => {
                    self.places.insert(key, Place::Leaving(from_store(self.node, at)));
                    started |= self.work(Job::Spill(key, job));
                }
                Err(error) => self.note_spill_error(&error),
            }
        }
        started
    }

    /// Memory is short: gives back what nobody uses, and starts spilling what is missing of `bytes`.
    pub(super) fn relieve(&mut self, bytes: u64) {
        self.forget_old_error();
        self.store.sweep();
        self.relieving = true;
        let missing = bytes.saturating_sub(self.store.give_back());
        if missing > 0 && self.drop_copies(missing) {
            self.store.give_back();
        } else if missing > 0 {
            // This many bytes have to go, however much of the store is free.
            let candidates = self.store.spill_candidates(missing);
            self.start_spilling(candidates);
        }
        self.relieving = self.moving > 0;
    }

    /// The use of the store, for the decision how much to give back.
    pub(super) fn usage(&mut self) -> StoreUse {
        let used_peak = self.store.take_used_peak();
        StoreUse { capacity: self.store.stats().capacity, resident: self.store.resident(), used_peak }
    }

    /// Gives memory back that was not used for a while.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.store.sweep();
        self.store.give_back_some(bytes);
    }

    /// Nobody waits for room: what went wrong before says nothing about the next spill.
    fn forget_old_error(&mut self) {
        if self.wishes.is_empty() && self.seekers.is_empty() && self.gatherings.is_empty() {
            self.last_spill_error = None;
        }
    }

    /// Starts to restore an object, or to make room for it. An error when it cannot come back.
    fn bring_back(&mut self, key: Key, ticket: &SpillTicket) -> Result<(), String> {
        let begun = match self.store.begin_restore(ticket) {
            Err(error @ (StoreError::Full { .. } | StoreError::TableFull { .. })) => {
                if self.drop_copies(ticket.len()) {
                    return self.bring_back(key, ticket);
                }
                // Objects on their way out make room; this is tried again then.
                if self.moving > 0 || self.last_spill_error.is_none() && self.make_room(ticket.len()) {
                    return Ok(());
                }
                let now = clock::now();
                let since = *self.sought_since.entry(key).or_insert(now);
                match self.overflow(since, error, |store| store.begin_restore_overflow(ticket)) {
                    None => return Ok(()),
                    Some(begun) => begun,
                }
            }
            begun => begun.map_err(|error| error.to_string()),
        };
        self.sought_since.remove(&key);
        match begun {
            Ok(job) => {
                self.places.insert(key, Place::Returning(ticket.clone()));
                self.work(Job::Restore(key, job));
                Ok(())
            }
            Err(reason) => Err(format!("a spilled object cannot come back: {reason}")),
        }
    }

    fn answer_seekers(&mut self, key: Key, located: &Result<Location, String>) {
        for number in self.seekers.remove(&key).unwrap_or_default() {
            self.answer(Answer::Place { number, place: located.clone() });
        }
    }

    /// Takes in what the file thread has done and what waiting has changed.
    pub(super) fn progress(&mut self) -> Replies {
        // Who had pinned what was freed has let go of it: its memory is used again before fresh memory is.
        self.store.sweep_some(SWEPT_PER_PASS);
        let done = std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner));
        let mut replies = Vec::new();
        for done in done {
            match done {
                Done::Spill(key, done) => {
                    self.moving -= 1;
                    self.spilled(key, done);
                }
                Done::Restore(key, done) => {
                    self.moving -= 1;
                    replies.extend(self.restored(key, done));
                }
                Done::Discard => self.discarding -= 1,
            }
        }
        if self.relieving && self.moving == 0 {
            self.relieving = false;
            self.store.give_back();
        }
        if !self.gatherings.is_empty() {
            replies.extend(self.gather_some());
        }
        if !self.wishes.is_empty() {
            replies.extend(self.grant());
        }
        self.find_sought();
        if self.seekers.is_empty() && !self.gatherings.has_admitted() {
            self.sought_since.clear();
        }
        replies
    }

    /// Answers transfers that asked where an object is, and starts to restore those that are on disk.
    fn find_sought(&mut self) {
        for key in self.seekers.keys().copied().collect::<Vec<_>>() {
            let found = match self.places.get(&key) {
                Some(Place::Leaving(_) | Place::Returning(_)) => continue,
                Some(Place::At(now)) => Ok(*now),
                Some(Place::Spilled(ticket)) => {
                    let ticket = ticket.clone();
                    match self.bring_back(key, &ticket) {
                        Ok(()) => continue,
                        Err(reason) => Err(reason),
                    }
                }
                None => {
                    let here = self.store.sealed(key.0, key.1).map(|sealed| from_store(self.node, sealed.0));
                    here.ok_or_else(|| "the object was freed; keep a reference while you read it".to_owned())
                }
            };
            self.answer_seekers(key, &found);
        }
    }

    /// Whether somebody waits for memory that is given back without a word.
    pub(super) fn is_waiting(&self) -> bool {
        let waiting = !self.wishes.is_empty() || !self.sought_since.is_empty() || self.gather.has_waiting();
        waiting && self.moving == 0
    }

    fn spilled(&mut self, key: Key, done: SpillDone) {
        let left = match self.places.remove(&key) {
            Some(Place::Leaving(at)) => Some(at),
            _ => None,
        };
        let (entry, generation) = left.map_or(key, |at| (at.entry, at.generation));
        let doomed = self.doomed.remove(&key);
        match self.store.finish_spill(done) {
            Ok(ticket) => {
                self.first.remove(&(entry, generation));
                self.last_spill_error = None;
                if doomed {
                    self.discard(ticket);
                } else {
                    self.places.insert(key, Place::Spilled(ticket));
                }
            }
            Err(error) => {
                self.note_spill_error(&error);
                match left {
                    _ if doomed => {
                        self.first.remove(&(entry, generation));
                        let _ = self.store.free(entry, generation);
                    }
                    // It stays where it was: in its first place, or where it came back to.
                    Some(at) if (entry, generation) != key => drop(self.places.insert(key, Place::At(at))),
                    _ => {}
                }
            }
        }
    }

    /// Remembers what a further spill would meet too; readers and owners that were faster are none of that.
    fn note_spill_error(&mut self, error: &SpillError) {
        match error {
            SpillError::Pinned | SpillError::Busy | SpillError::NotSealed | SpillError::Freed => {}
            // Soon there is more room in the file, and then it is tried again.
            SpillError::LimitReached { .. } if self.discarding > 0 => {}
            lasting => self.last_spill_error = Some(lasting.to_string()),
        }
    }

    fn restored(&mut self, key: Key, done: RestoreDone) -> Replies {
        let ticket = match self.places.remove(&key) {
            Some(Place::Returning(ticket)) => Some(ticket),
            _ => None,
        };
        match self.store.finish_restore(done) {
            Ok(sealed) => {
                if let Some(ticket) = ticket {
                    self.discard(ticket);
                }
                let now = from_store(self.node, sealed.0);
                if self.doomed.remove(&key) {
                    let _ = self.store.free(now.entry, now.generation);
                    self.answer_seekers(key, &Err("the object was freed".into()));
                    return Vec::new();
                }
                self.places.insert(key, Place::At(now));
                self.first.insert((now.entry, now.generation), key);
                self.answer_seekers(key, &Ok(now));
                Vec::new()
            }
            Err(error) => {
                if let Some(ticket) = ticket {
                    self.places.insert(key, Place::Spilled(ticket));
                }
                let reason = format!("a spilled object cannot come back: {error}");
                self.answer_seekers(key, &Err(reason.clone()));
                self.fail_gatherings(key, &reason)
            }
        }
    }

    /// Lets go of an object in the file.
    fn discard(&mut self, ticket: SpillTicket) {
        self.discarding += usize::from(self.send(Job::Discard(ticket)));
    }

    /// Hands a job that moves an object to the file thread.
    fn work(&mut self, job: Job) -> bool {
        let sent = self.send(job);
        self.moving += usize::from(sent);
        sent
    }

    /// Hands a job to the file thread, which is started with the first.
    fn send(&mut self, job: Job) -> bool {
        if self.jobs.is_none() {
            let (sender, receiver) = channel();
            let (done, doorbell) = (Arc::clone(&self.done), self.doorbell.clone());
            if crate::thread::spawn("bireme-spill", move || file_thread(&receiver, &done, &doorbell)).is_ok() {
                self.jobs = Some(sender);
            }
        }
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }
}

fn file_thread(jobs: &Receiver<Job>, done: &Mutex<VecDeque<Done>>, doorbell: &Doorbell) {
    while let Ok(job) = jobs.recv() {
        let result = match job {
            Job::Spill(key, job) => Done::Spill(key, job.run()),
            Job::Restore(key, job) => Done::Restore(key, job.run()),
            Job::Discard(ticket) => {
                drop(ticket);
                Done::Discard
            }
        };
        done.lock().unwrap_or_else(PoisonError::into_inner).push_back(result);
        doorbell.ring_self();
    }
}
