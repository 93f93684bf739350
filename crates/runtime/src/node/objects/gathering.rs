//! Objects that come into memory together for one process: who may have theirs is decided by `core::gather`.

use std::collections::BTreeMap;

use bireme_core::gather::{Bundle, BundleId, Effect, Event, Purpose};
use bireme_core::id::{FunctionKey, LeaseId, ProcessId};
use bireme_core::message::{FromNode, RequestId};
use bireme_core::value::Location;
use bireme_core::waits::{MemoryNeed, MemoryWait};
use bireme_store::SpillTicket;

use super::{Asker, Key, Objects, Place, Replies};
use crate::clock;
use crate::objects::from_store;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// For its turn, and for memory.
    Waiting,
    /// Its objects come into memory.
    Admitted,
    /// They are there, and held until the process says that it does not need that any more.
    Answered,
}

struct Gathering {
    phase: Phase,
    /// The objects by their first places, in the order of the question.
    inputs: Vec<Key>,
    /// The places of those that are held; the others are missing or gone.
    held: Vec<Option<Location>>,
}

/// All of them, by who asked. In the order of admission those that are not answered.
#[derive(Default)]
pub(super) struct Gatherings {
    all: BTreeMap<BundleId, Gathering>,
    admitted: Vec<BundleId>,
}

impl Gatherings {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether objects of some are on their way into memory.
    pub(super) fn has_admitted(&self) -> bool {
        !self.admitted.is_empty()
    }
}

/// The objects that an admitted gathering still lacks.
enum Missing {
    Nothing,
    /// On their way in or out.
    Moving,
    Spilled(Vec<(Key, SpillTicket)>),
}

impl Objects {
    pub(super) fn begin_gathering(
        &mut self,
        id: BundleId,
        (lease, function): (Option<LeaseId>, Option<FunctionKey>),
        inputs: &[Location],
        arriving_bytes: u64,
    ) {
        let keys: Vec<Key> = inputs.iter().map(|at| self.first_key(*at)).collect();
        let lens = keys.iter().copied().zip(inputs.iter().map(|at| at.len)).collect();
        let purpose = function.map_or(Purpose::Read, Purpose::Start);
        let held = vec![None; keys.len()];
        self.gatherings.all.insert(id, Gathering { phase: Phase::Waiting, inputs: keys, held });
        self.step_gather(Event::Asked(Bundle { id, lease, purpose, inputs: lens, arriving_bytes }));
    }

    pub(super) fn end_gathering(&mut self, process: ProcessId, request: RequestId, output_bytes: Option<u64>) {
        let id = BundleId { process, request };
        self.let_go(id);
        self.step_gather(Event::Ended { id, output_bytes });
    }

    pub(super) fn gathering_process_gone(&mut self, process: ProcessId) {
        let of_process = |id: &&BundleId| id.process == process;
        for id in self.gatherings.all.keys().filter(of_process).copied().collect::<Vec<_>>() {
            self.let_go(id);
        }
        self.step_gather(Event::ProcessGone(process));
    }

    /// A task waits for others, or goes on.
    pub(in crate::node) fn task_paused(&mut self, process: ProcessId, lease: LeaseId, paused: bool) {
        if !self.gatherings.is_empty() {
            self.step_gather(Event::Paused { process, lease, paused });
        }
    }

    /// The processes that wait for memory, in the order in which they are served.
    pub(in crate::node) fn memory_waits(&mut self) -> Vec<MemoryWait> {
        let stats = self.stats();
        let (used, capacity) = (stats.used, stats.capacity);
        let gathered = self.gather.waiting().map(|(bundle, bytes)| {
            let need = match bundle.purpose {
                Purpose::Start(function) => MemoryNeed::Start(function),
                Purpose::Read => MemoryNeed::Read,
            };
            (bundle.id.process, need, bytes)
        });
        let created = self.wishes.iter().filter_map(|wish| match wish.asker {
            Asker::Process(process, _) => Some((process, MemoryNeed::Create, wish.len)),
            Asker::Node(_) => None,
        });
        let wait = |(ahead, (process, need, bytes))| MemoryWait { process, need, bytes, ahead, used, capacity };
        (0..).zip(gathered).chain((0..).zip(created)).map(wait).collect()
    }

    fn step_gather(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.gather.step(event, clock::now(), &mut effects);
        for Effect::Admit(id) in effects {
            if let Some(gathering) = self.gatherings.all.get_mut(&id) {
                gathering.phase = Phase::Admitted;
                self.gatherings.admitted.push(id);
            }
        }
    }

    fn let_go(&mut self, id: BundleId) {
        let Some(gathering) = self.gatherings.all.remove(&id) else { return };
        self.gatherings.admitted.retain(|admitted| *admitted != id);
        for at in gathering.held.into_iter().flatten() {
            self.store.let_go(at.entry, at.generation);
        }
    }

    /// Admits whoever fits now, and goes on with those who were admitted.
    pub(super) fn gather_some(&mut self) -> Replies {
        if self.gather.has_waiting() {
            self.store.sweep();
            let in_use = self.store.in_use().into_iter();
            let in_use = in_use.map(|at| (self.first_key(from_store(self.node, at)), at.len)).collect();
            self.step_gather(Event::Looked { capacity: self.store.stats().capacity, in_use });
        }
        let mut replies = Vec::new();
        for id in self.gatherings.admitted.clone() {
            match self.missing(id) {
                Missing::Nothing => replies.extend(self.answer_gathering(id)),
                Missing::Moving => {}
                Missing::Spilled(spilled) => {
                    if let Err(reason) = self.bring_all_back(&spilled) {
                        replies.extend(self.fail_gathering(id, &reason));
                    }
                }
            }
        }
        replies
    }

    /// Holds what is in memory of an admitted gathering, and says what is not.
    fn missing(&mut self, id: BundleId) -> Missing {
        let Some(gathering) = self.gatherings.all.get_mut(&id) else { return Missing::Nothing };
        let (mut moving, mut spilled) = (false, Vec::new());
        for (key, held) in gathering.inputs.iter().zip(&mut gathering.held).filter(|(_, held)| held.is_none()) {
            let at = match self.places.get(key) {
                None => self.store.sealed(key.0, key.1).map(|sealed| from_store(self.node, sealed.0)),
                // One that is held does not leave, however far it is.
                Some(Place::At(at) | Place::Leaving(at)) => Some(*at),
                Some(Place::Returning(_)) => {
                    moving = true;
                    continue;
                }
                Some(Place::Spilled(ticket)) => {
                    spilled.push((*key, ticket.clone()));
                    continue;
                }
            };
            *held = at.filter(|at| self.store.hold(at.entry, at.generation));
        }
        match (spilled.is_empty(), moving) {
            (false, _) => Missing::Spilled(spilled),
            (true, true) => Missing::Moving,
            (true, false) => Missing::Nothing,
        }
    }

    fn bring_all_back(&mut self, spilled: &[(Key, SpillTicket)]) -> Result<(), String> {
        let needed: u64 = spilled.iter().map(|(_, ticket)| ticket.len()).sum();
        let short = needed.saturating_sub(self.room_bytes());
        if short > 0 && self.moving == 0 && self.last_spill_error.is_none() {
            // Room for all of them at once, instead of for one after the other.
            self.drop_copies(short);
            self.make_room(needed.saturating_sub(self.room_bytes()));
        }
        spilled.iter().try_for_each(|(key, ticket)| self.bring_back(*key, ticket))
    }

    fn answer_gathering(&mut self, id: BundleId) -> Replies {
        self.gatherings.admitted.retain(|admitted| *admitted != id);
        let Some(gathering) = self.gatherings.all.get_mut(&id) else { return Vec::new() };
        gathering.phase = Phase::Answered;
        let located = Ok(gathering.held.clone());
        for at in gathering.held.iter().flatten() {
            self.store.touch(at.entry, at.generation);
        }
        vec![(id.process, FromNode::Gathered { request: id.request, located })]
    }

    fn fail_gathering(&mut self, id: BundleId, reason: &str) -> Replies {
        self.let_go(id);
        self.step_gather(Event::Ended { id, output_bytes: None });
        vec![(id.process, FromNode::Gathered { request: id.request, located: Err(reason.to_owned()) })]
    }

    /// An object could not be restored: whoever waits for it is told.
    pub(super) fn fail_gatherings(&mut self, key: Key, reason: &str) -> Replies {
        let waits = |gathering: &Gathering| {
            let mut inputs = gathering.inputs.iter().zip(&gathering.held);
            gathering.phase == Phase::Admitted && inputs.any(|(input, held)| *input == key && held.is_none())
        };
        let failed: Vec<BundleId> =
            self.gatherings.all.iter().filter(|(_, gathering)| waits(gathering)).map(|(id, _)| *id).collect();
        failed.into_iter().flat_map(|id| self.fail_gathering(id, reason)).collect()
    }
}
