//! Who waits for resources, in the order in which they are served.
//!
//! Deeper tasks go first, since others wait for them; then first come, first served. Whoever got a lease and wants more
//! goes to the end of the queue, so equals take turns. One that does not fit blocks nobody behind it until it has been
//! passed over [`OVERTAKES_MAX`] times; from then on what it needs is kept for it, as long as the tasks that run now are
//! enough to satisfy it when they end. (Keeping CPUs for one that waits for what a blocked task holds could be a
//! deadlock: the blocked task may wait for one behind.)

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::id::{ActorId, ProcessId};
use crate::resources::Resources;
use crate::time::Tick;

/// Grants to others that a waiting request bears before resources are kept for it.
pub const OVERTAKES_MAX: u32 = 16;

/// A place in the queue: depth, then arrival.
pub(super) type Place = (Reverse<u32>, u64);

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Leases for an owner.
    Leases {
        owner: ProcessId,
        pool: u32,
        /// Leases that the owner has not been told of.
        count: u32,
        /// Of these, those that only wait for their worker to start.
        pending: u32,
    },
    /// A process for an actor.
    Actor { actor: ActorId, owner: ProcessId },
}

impl Ask {
    pub(super) fn asker(&self) -> ProcessId {
        match self {
            Ask::Leases { owner, .. } | Ask::Actor { owner, .. } => *owner,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.wanted() > 0
    }

    /// How many processes would satisfy it.
    pub(super) fn wanted(&self) -> u32 {
        match self {
            Ask::Leases { count, pending, .. } => count.saturating_sub(*pending),
            Ask::Actor { .. } => 1,
        }
    }
}

/// One who waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) ask: Ask,
    pub(super) resources: Resources,
    /// What the process must look like.
    pub(super) environment: u64,
    pub(super) since: Tick,
    pub(super) overtaken: u32,
}

/// All who wait.
#[derive(Default)]
pub(super) struct Queue {
    waiting: BTreeMap<Place, Waiting>,
    wishes: BTreeMap<(ProcessId, u32), Place>,
    actors: BTreeMap<ActorId, Place>,
    arrivals: u64,
}

impl Queue {
    pub(super) fn push(&mut self, depth: u32, waiting: Waiting) -> Place {
        self.arrivals += 1;
        let place = (Reverse(depth), self.arrivals);
        match waiting.ask {
            Ask::Leases { owner, pool, .. } => self.wishes.insert((owner, pool), place),
            Ask::Actor { actor, .. } => self.actors.insert(actor, place),
        };
        self.waiting.insert(place, waiting);
        place
    }

    /// Moves a wish to another depth; it keeps its arrival.
    pub(super) fn set_depth(&mut self, place: Place, depth: u32) -> Place {
        let to = (Reverse(depth), place.1);
        self.move_to(place, to);
        to
    }

    /// Sends a wish that got its turn to the end of its depth.
    pub(super) fn send_back(&mut self, place: Place) -> Place {
        self.arrivals += 1;
        let to = (place.0, self.arrivals);
        self.move_to(place, to);
        to
    }

    fn move_to(&mut self, from: Place, to: Place) {
        let Some(waiting) = self.waiting.remove(&from) else { return };
        match waiting.ask {
            Ask::Leases { owner, pool, .. } => self.wishes.insert((owner, pool), to),
            Ask::Actor { actor, .. } => self.actors.insert(actor, to),
        };
        self.waiting.insert(to, waiting);
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<Waiting> {
        let waiting = self.waiting.remove(&place)?;
        match waiting.ask {
            Ask::Leases { owner, pool, .. } => self.wishes.remove(&(owner, pool)),
            Ask::Actor { actor, .. } => self.actors.remove(&actor),
        };
        Some(waiting)
    }

    pub(super) fn wish(&self, owner: ProcessId, pool: u32) -> Option<Place> {
        self.wishes.get(&(owner, pool)).copied()
    }

    pub(super) fn wishes_of(&self, owner: ProcessId) -> Vec<Place> {
        self.wishes.range((owner, 0)..=(owner, u32::MAX)).map(|(_, place)| *place).collect()
    }

    pub(super) fn actor(&self, actor: ActorId) -> Option<Place> {
        self.actors.get(&actor).copied()
    }

    pub(super) fn get(&self, place: Place) -> Option<&Waiting> {
        self.waiting.get(&place)
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Waiting> {
        self.waiting.get_mut(&place)
    }

    /// Everybody who still waits, those first for whom resources are kept.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (Place, &Waiting)> {
        let waiting = || self.waiting.iter().filter(|(_, w)| w.ask.is_waiting()).map(|(place, w)| (*place, w));
        let kept = waiting().filter(|(_, w)| w.overtaken >= OVERTAKES_MAX);
        kept.chain(waiting().filter(|(_, w)| w.overtaken < OVERTAKES_MAX))
    }

    /// Counts a grant against everybody else who waits for some of the same.
    pub(super) fn overtake(&mut self, granted: Place, resources: &Resources) {
        for (place, waiting) in &mut self.waiting {
            if *place != granted && waiting.ask.is_waiting() && conflict(&waiting.resources, resources) {
                waiting.overtaken = waiting.overtaken.saturating_add(1);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.in_order().count()
    }
}

/// Whether two asks want some of the same resource.
pub(super) fn conflict(a: &Resources, b: &Resources) -> bool {
    (a.cpus.0 > 0 && b.cpus.0 > 0)
        || (a.gpus.0 > 0 && b.gpus.0 > 0)
        || (a.memory_bytes > 0 && b.memory_bytes > 0)
        || a.custom.iter().any(|(name, amount)| amount.0 > 0 && b.custom.get(name).is_some_and(|other| other.0 > 0))
}
