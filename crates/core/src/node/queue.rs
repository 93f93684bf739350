//! Who waits for resources, in the order in which they are served.
//!
//! Deeper tasks go first, since others wait for them; then first come, first served. Whoever got a lease and wants more
//! goes to the end of the queue, so equals take turns. One that does not fit blocks nobody behind it until it has been
//! passed over [`OVERTAKES_MAX`] times; from then on what it needs is kept for it, as long as the tasks that run now are
//! enough to satisfy it when they end. (Keeping CPUs for one that waits for what a blocked task holds could be a
//! deadlock: the blocked task may wait for one behind.)

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::id::{ActorId, GroupId, JobId, ProcessId};
use crate::resources::Resources;
use crate::spec::{Shape, Strategy};
use crate::time::Tick;
use crate::value::Location;

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
    /// The resources of a placement group, and no process.
    Group { group: GroupId, creator: ProcessId },
}

impl Ask {
    pub(super) fn asker(&self) -> ProcessId {
        match self {
            Ask::Leases { owner, .. } | Ask::Actor { owner, .. } => *owner,
            Ask::Group { creator, .. } => *creator,
        }
    }

    /// Whether it keeps what it gets for longer than a task runs.
    pub(super) fn is_lasting(&self) -> bool {
        matches!(self, Ask::Actor { .. } | Ask::Group { .. })
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.wanted() > 0
    }

    /// How many grants would satisfy it.
    pub(super) fn wanted(&self) -> u32 {
        match self {
            Ask::Leases { count, pending, .. } => count.saturating_sub(*pending),
            Ask::Actor { .. } | Ask::Group { .. } => 1,
        }
    }
}

/// One who waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) ask: Ask,
    /// Whose processes serve it.
    pub(super) job: JobId,
    pub(super) resources: Resources,
    /// What the process must look like.
    pub(super) environment: u64,
    /// Tasks that may be in its process at a time; 0 for as many as the node allows.
    pub(super) threads: u32,
    /// Where it may run.
    pub(super) strategy: Strategy,
    /// Its large inputs: it is wanted where most of their bytes are.
    pub(super) near: Vec<Location>,
    pub(super) since: Tick,
    pub(super) overtaken: u32,
}

impl Waiting {
    /// The shape to ask another node for; where its inputs are is said apart.
    pub(super) fn shape(&self) -> Shape {
        Shape {
            resources: self.resources.clone(),
            environment: self.environment,
            threads_per_worker: self.threads,
            strategy: self.strategy,
            near: Vec::new(),
        }
    }

    /// Whether it wants some of what another one wants.
    pub(super) fn competes(&self, group: Option<GroupId>, resources: &Resources) -> bool {
        self.strategy.group() == group && conflict(&self.resources, resources)
    }
}

/// All who wait.
#[derive(Default)]
pub(super) struct Queue {
    waiting: BTreeMap<Place, Waiting>,
    wishes: BTreeMap<(ProcessId, u32), Place>,
    actors: BTreeMap<ActorId, Place>,
    groups: BTreeMap<GroupId, Place>,
    arrivals: u64,
}

impl Queue {
    pub(super) fn push(&mut self, depth: u32, waiting: Waiting) -> Place {
        self.arrivals += 1;
        let place = (Reverse(depth), self.arrivals);
        match waiting.ask {
            Ask::Leases { owner, pool, .. } => self.wishes.insert((owner, pool), place),
            Ask::Actor { actor, .. } => self.actors.insert(actor, place),
            Ask::Group { group, .. } => self.groups.insert(group, place),
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
            Ask::Group { group, .. } => self.groups.insert(group, to),
        };
        self.waiting.insert(to, waiting);
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<Waiting> {
        let waiting = self.waiting.remove(&place)?;
        match waiting.ask {
            Ask::Leases { owner, pool, .. } => self.wishes.remove(&(owner, pool)),
            Ask::Actor { actor, .. } => self.actors.remove(&actor),
            Ask::Group { group, .. } => self.groups.remove(&group),
        };
        Some(waiting)
    }

    pub(super) fn wish(&self, owner: ProcessId, pool: u32) -> Option<Place> {
        self.wishes.get(&(owner, pool)).copied()
    }

    pub(super) fn wishes_of(&self, owner: ProcessId) -> Vec<Place> {
        self.wishes.range((owner, 0)..=(owner, u32::MAX)).map(|(_, place)| *place).collect()
    }

    pub(super) fn wishes_where(&self, is_owner: impl Fn(ProcessId) -> bool) -> Vec<Place> {
        self.wishes.iter().filter(|((owner, _), _)| is_owner(*owner)).map(|(_, place)| *place).collect()
    }

    /// Whether somebody waits who keeps what it gets ([`Ask::is_lasting`]).
    pub(super) fn has_lasting(&self) -> bool {
        !self.actors.is_empty() || !self.groups.is_empty()
    }

    pub(super) fn actor(&self, actor: ActorId) -> Option<Place> {
        self.actors.get(&actor).copied()
    }

    pub(super) fn group(&self, group: GroupId) -> Option<Place> {
        self.groups.get(&group).copied()
    }

    /// All who want to run something in this group.
    pub(super) fn within(&self, group: GroupId) -> Vec<Place> {
        self.waiting.iter().filter(|(_, w)| w.strategy.group() == Some(group)).map(|(place, _)| *place).collect()
    }

    pub(super) fn get(&self, place: Place) -> Option<&Waiting> {
        self.waiting.get(&place)
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Waiting> {
        self.waiting.get_mut(&place)
    }

    /// All places, those included whose last grant only waits for its worker to start.
    pub(super) fn all(&self) -> impl Iterator<Item = (Place, &Waiting)> {
        self.waiting.iter().map(|(place, waiting)| (*place, waiting))
    }

    /// Everybody who still waits, those first for whom resources are kept.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (Place, &Waiting)> {
        let waiting = || self.waiting.iter().filter(|(_, w)| w.ask.is_waiting()).map(|(place, w)| (*place, w));
        let kept = waiting().filter(|(_, w)| w.overtaken >= OVERTAKES_MAX);
        kept.chain(waiting().filter(|(_, w)| w.overtaken < OVERTAKES_MAX))
    }

    /// Counts a grant against everybody else who waits for some of the same.
    pub(super) fn overtake(&mut self, granted: Place, group: Option<GroupId>, resources: &Resources) {
        for (place, waiting) in &mut self.waiting {
            if *place != granted && waiting.ask.is_waiting() && waiting.competes(group, resources) {
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
    a.conflicts(b)
}
