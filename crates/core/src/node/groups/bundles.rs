//! What is reserved here for the bundles of placement groups, and what undoes it.
//!
//! A node alone reserves a whole group at once. In a cluster the controller does it in two steps: every node reserves
//! its bundles of a group, all or none; when all nodes have, the bundles can be used. GROUP-1, seen from here: nothing
//! runs in a bundle that cannot be used yet, and what was reserved is given back once.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::ToController;
use crate::failure::DeathCause;
use crate::id::{ActorId, GroupId, LeaseId, ProcessId};
use crate::message::FromNode;
use crate::node::gpus::Gpus;
use crate::node::queue::Ask;
use crate::node::stock::{Bundle, Stock};
use crate::node::{Effect, Node, send};
use crate::resources::{Amount, Resources};
use crate::time::Tick;

/// All bundles that are reserved here, by group and place.
#[derive(Debug, Default)]
pub(in crate::node) struct Bundles(BTreeMap<(GroupId, u32), Bundle>);

impl Bundles {
    pub(super) fn all(&self) -> impl Iterator<Item = (GroupId, u32, &Bundle)> {
        self.0.iter().map(|((group, index), bundle)| (*group, *index, bundle))
    }

    /// Those in which something may run: one of them, or all.
    pub(super) fn usable(&self, group: GroupId, only: Option<u32>) -> impl Iterator<Item = (u32, &Bundle)> {
        let (first, last) = only.map_or((0, u32::MAX), |only| (only, only));
        let range = self.0.range((group, first)..=(group, last));
        range.filter(|(_, bundle)| bundle.usable).map(|((_, index), bundle)| (*index, bundle))
    }

    pub(super) fn get(&self, stock: Stock) -> Option<&Bundle> {
        let Stock::Bundle { group, life, index } = stock else { return None };
        self.0.get(&(group, index)).filter(|bundle| bundle.life == life)
    }

    pub(super) fn get_mut(&mut self, stock: Stock) -> Option<&mut Bundle> {
        let Stock::Bundle { group, life, index } = stock else { return None };
        self.0.get_mut(&(group, index)).filter(|bundle| bundle.life == life)
    }

    fn life(&self, group: GroupId, index: u32) -> Option<u32> {
        self.0.get(&(group, index)).map(|bundle| bundle.life)
    }

    /// Takes out what was reserved for a group, in one life or in all.
    fn take(&mut self, group: GroupId, life: Option<u32>) -> Vec<Bundle> {
        let range = self.0.range((group, 0)..=(group, u32::MAX));
        let of_life = range.filter(|(_, bundle)| life.is_none_or(|life| bundle.life == life));
        let keys: Vec<(GroupId, u32)> = of_life.map(|(key, _)| *key).collect();
        keys.iter().filter_map(|key| self.0.remove(key)).collect()
    }
}

/// Whether all bundles fit into this together.
pub(in crate::node) fn fit<'a>(
    bundles: impl Iterator<Item = &'a Resources>,
    mut free: Resources,
    mut gpus: Gpus,
) -> bool {
    let bundles = by_size((0..).zip(bundles));
    bundles.into_iter().all(|(_, bundle)| free.try_take(bundle) && gpus.take(bundle.gpus).is_some())
}

/// The bundles in the order in which they are taken: those with most GPUs first, since fractions find room beside them.
fn by_size<'a>(bundles: impl Iterator<Item = (u32, &'a Resources)>) -> Vec<(u32, &'a Resources)> {
    let mut order: Vec<(u32, &Resources)> = bundles.collect();
    order.sort_by_key(|(_, bundle)| std::cmp::Reverse(bundle.gpus));
    order
}

impl Node {
    /// What is reserved here for placement groups: which bundle, what it has, and whether it can be used.
    pub fn reserved_bundles(&self) -> impl Iterator<Item = (GroupId, u32, &Resources, bool)> {
        self.groups.reserved.all().map(|(group, index, bundle)| (group, index, &bundle.total, bundle.usable))
    }

    /// CPUs that resumed tasks use in bundles beyond what those have.
    pub fn debt_in_bundles(&self) -> Amount {
        Amount(self.groups.reserved.all().map(|(_, _, bundle)| bundle.debt.0).sum())
    }

    /// Takes bundles for which there is room from the machine.
    pub(super) fn reserve(&mut self, group: GroupId, life: u32, usable: bool, asked: &[(u32, Resources)]) {
        for (index, total) in by_size(asked.iter().map(|(index, bundle)| (*index, bundle))) {
            let indices = self.take_from(Stock::Machine, total);
            let gpus = self.gpus.only(&indices, total.gpus);
            let (total, free, debt) = (total.clone(), total.clone(), Amount(0));
            let bundle = Bundle { life, usable, total, free, debt, whole: gpus.clone(), gpus };
            let before = self.groups.reserved.0.insert((group, index), bundle);
            assert!(before.is_none(), "GROUP-1: bundle {index} of {group} is reserved once");
        }
    }

    /// Gives what was reserved back to the machine and ends what runs in it.
    ///
    /// GRANT-1: whoever is ended is marked before anything is given to others.
    pub(super) fn clear_bundles(
        &mut self,
        group: GroupId,
        life: Option<u32>,
        reason: &str,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let cause = format!("its placement group {group} is gone: {reason}");
        let inside = |stock: Stock| match stock {
            Stock::Machine => false,
            Stock::Bundle { group: of, life: its, .. } => of == group && life.is_none_or(|life| life == its),
        };
        let leases: Vec<(LeaseId, ProcessId, bool)> = self
            .leases
            .iter()
            .filter(|(_, lease)| inside(lease.stock))
            .map(|(lease, l)| (*lease, l.worker, l.announced))
            .collect();
        let hosts: BTreeSet<ProcessId> =
            self.pool.workers.iter().filter(|(_, worker)| inside(worker.stock)).map(|(process, _)| *process).collect();
        let lives = |process: &ProcessId| self.live.contains(process);
        let ended: Vec<ProcessId> = hosts.iter().copied().filter(lives).collect();
        let ended = ended.into_iter().chain(leases.iter().filter(|(_, _, announced)| *announced).map(|(_, w, _)| *w));
        for process in ended.collect::<Vec<_>>() {
            self.kill(process, DeathCause::Ended(cause.clone()), effects);
        }
        for bundle in self.groups.reserved.take(group, life) {
            // What is held comes back to the machine from its holders; what they owe, they owe the machine.
            self.give_back(Stock::Machine, &bundle.free, &[]);
            self.gpus.give_all_of(&bundle.gpus);
            self.retake_cpus(Stock::Machine, bundle.debt);
        }
        for (lease, ..) in leases.into_iter().filter(|(_, _, announced)| !announced) {
            self.lose_hosted(lease, now);
        }
        let lost = self.actors.all.iter().filter(|(_, a)| a.state.process().is_some_and(|p| hosts.contains(&p)));
        for actor in lost.map(|(actor, _)| *actor).collect::<Vec<ActorId>>() {
            self.end_actor(actor, &cause, false, now, effects);
        }
    }

    /// The controller wants bundles to be reserved, all or none.
    pub(super) fn prepare(
        &mut self,
        group: GroupId,
        attempt: u32,
        asked: Vec<(u32, Resources)>,
        waits: bool,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let known = |(index, _): &(u32, Resources)| self.groups.reserved.life(group, *index);
        let refused = if asked.iter().all(|bundle| known(bundle) == Some(attempt)) {
            // The same again.
            None
        } else if let Some((index, _)) = asked.iter().find(|bundle| known(bundle).is_some()) {
            Some(format!("bundle {index} of {group} is here already"))
        } else if !waits && self.is_kept_for_group(&asked) {
            Some("what it has free is kept for a placement group that waits longer".to_owned())
        } else if self.has_room_for_bundles(&asked) {
            self.reserve(group, attempt, false, &asked);
            None
        } else if waits {
            self.insist(group, attempt, asked, now);
            self.schedule(now, effects);
            return;
        } else {
            // Idle leases are free for others: the controller tries again when it has come back.
            for (_, bundle) in &asked {
                self.reclaim_idle(bundle, effects);
            }
            let wanted: Vec<String> = asked.iter().take(4).map(|(_, bundle)| bundle.to_string()).collect();
            let lent = match self.lent_cpus(Stock::Machine) {
                Amount(0) => String::new(),
                lent => format!(" (blocked tasks want {lent} of its CPUs back)"),
            };
            Some(format!("it has only {} free{lent}, and is to give {}", self.free_to_keep(), wanted.join("; ")))
        };
        let free = Box::new(self.free_to_keep());
        effects.push(Effect::AskController(ToController::Prepared { group, attempt, refused, free }));
    }

    /// Whether these bundles could be reserved together now.
    fn has_room_for_bundles(&self, asked: &[(u32, Resources)]) -> bool {
        let bundles = || asked.iter().map(|(_, bundle)| bundle);
        let cpus = bundles().map(|bundle| bundle.cpus.0).fold(0, u64::saturating_add);
        fit(bundles(), self.free.clone(), self.gpus.clone()) && self.may_keep(Amount(cpus), Stock::Machine)
    }

    /// All nodes have reserved what they were asked for: it can be used.
    pub(super) fn commit(&mut self, group: GroupId, attempt: u32, now: Tick, effects: &mut Vec<Effect>) {
        for ((of, _), bundle) in self.groups.reserved.0.range_mut((group, 0)..=(group, u32::MAX)) {
            bundle.usable |= *of == group && bundle.life == attempt;
        }
        effects.push(Effect::AskController(ToController::Committed { group, attempt }));
        self.schedule(now, effects);
    }

    /// The group is over, or was never to be: what was reserved for it goes back. Who waits here for other nodes' sake
    /// waits there again.
    pub(super) fn release(
        &mut self,
        group: GroupId,
        attempt: Option<u32>,
        reason: &str,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        if attempt.is_none() {
            self.send_guests_home(group, effects);
        }
        self.insist_no_more(group, attempt);
        self.clear_bundles(group, attempt, reason, now, effects);
        self.schedule(now, effects);
    }

    fn send_guests_home(&mut self, group: GroupId, effects: &mut Vec<Effect>) {
        for place in self.queue.within(group) {
            let Some(waiting) = self.queue.get(place) else { continue };
            match waiting.ask {
                Ask::Leases { owner, pool, .. } if owner.node != self.config.id => {
                    let (asked, available) = (waiting.resources.to_string(), "no bundle any more".to_owned());
                    self.queue.remove(place);
                    send(owner, FromNode::Infeasible { pool, asked, available }, effects);
                }
                Ask::Actor { actor, .. } if self.actors.all.get(&actor).is_some_and(|a| a.manager.is_some()) => {
                    let failure = no_bundle(&waiting.resources, group);
                    self.hosting_over(actor, Some(failure), effects);
                }
                _ => {}
            }
        }
    }
}

/// What is told to a node that takes this one for the place of a bundle.
pub(in crate::node) fn no_bundle(asked: &Resources, group: GroupId) -> crate::failure::Failure {
    let (asked, available) = (asked.to_string(), format!("no bundle of {group} with so much room"));
    crate::failure::Failure::Infeasible { asked, available }
}
