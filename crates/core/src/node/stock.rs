//! Where resources are taken from and given back to: the machine's own stock, or a bundle of a placement group.
//!
//! Both keep the same book (RES-1): what is free and what is held by tasks and actors that are not blocked is the total
//! plus the debt. A bundle's total is taken from the machine as a whole (GROUP-1), so nothing is counted twice.

use super::gpus::Gpus;
use super::queue::{Ask, Waiting};
use super::{Node, groups};
use crate::id::GroupId;
use crate::resources::{Amount, Resources};
use crate::spec::Strategy;

/// From where a lease or an actor has what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Stock {
    /// The machine.
    #[default]
    Machine,
    /// A bundle, in one life of it; when that is over, the machine.
    Bundle { group: GroupId, life: u32, index: u32 },
}

impl Stock {
    pub(super) fn group(self) -> Option<GroupId> {
        match self {
            Stock::Machine => None,
            Stock::Bundle { group, .. } => Some(group),
        }
    }
}

/// What a placement group has reserved in one place.
#[derive(Clone, Debug)]
pub(super) struct Bundle {
    /// Counts the times that it was reserved here.
    pub(super) life: u32,
    /// Something may run in it; else it is reserved for a group that may not come to be.
    pub(super) usable: bool,
    pub(super) total: Resources,
    pub(super) free: Resources,
    pub(super) debt: Amount,
    pub(super) gpus: Gpus,
    /// The GPUs when nobody holds any.
    pub(super) whole: Gpus,
}

impl Bundle {
    pub(super) fn covers(&self, asked: &Resources) -> bool {
        self.free.covers(asked) && self.gpus.fits(asked.gpus)
    }
}

impl Node {
    /// Whether this could be granted now.
    pub(super) fn fits(&self, waiting: &Waiting) -> bool {
        self.stock_for(waiting).is_some()
    }

    /// From where this could be granted now.
    pub(super) fn stock_for(&self, waiting: &Waiting) -> Option<Stock> {
        let asked = &waiting.resources;
        if let Ask::Group { group, .. } = waiting.ask {
            let fits = self.has_room_for_group(group) && self.may_take(waiting, Stock::Machine);
            return fits.then_some(Stock::Machine);
        }
        if let Strategy::Group { group, bundle } = waiting.strategy {
            let stock = |(index, bundle): (u32, &Bundle)| Stock::Bundle { group, life: bundle.life, index };
            let covering = self.groups.bundles(group, bundle).filter(|(_, bundle)| bundle.covers(asked));
            return covering.map(stock).find(|stock| self.may_take(waiting, *stock));
        }
        let fits = self.free.covers(asked) && self.gpus.fits(asked.gpus);
        (fits && self.may_take(waiting, Stock::Machine)).then_some(Stock::Machine)
    }

    /// Whether what is free of a stock is for this one.
    fn may_take(&self, waiting: &Waiting, stock: Stock) -> bool {
        !waiting.ask.is_lasting() || self.may_keep(waiting.resources.cpus, stock)
    }

    /// Whether an actor or a placement group may have so many of the free CPUs of a stock: not those that blocked tasks
    /// lend, unless these may be waiting for it.
    pub(super) fn may_keep(&self, cpus: Amount, stock: Stock) -> bool {
        let free = self.groups.bundle(stock).map_or(&self.free, |bundle| &bundle.free).cpus.0;
        cpus.0 == 0 || free >= cpus.0 + self.lent_cpus(stock).0 || self.is_stalled()
    }

    /// How many of these could be granted at once, up to `most`.
    pub(super) fn grants_possible(&self, waiting: &Waiting, free: &mut Resources, most: u32) -> u32 {
        let mut count = 0;
        match waiting.strategy {
            Strategy::Group { group, bundle } => {
                for (_, bundle) in self.groups.bundles(group, bundle) {
                    let mut free = bundle.free.clone();
                    while count < most && free.try_take(&waiting.resources) {
                        count += 1;
                    }
                }
            }
            Strategy::Default | Strategy::Spread | Strategy::Node { .. } => {
                while count < most && free.try_take(&waiting.resources) {
                    count += 1;
                }
            }
        }
        count
    }

    /// Takes what fits; the GPUs, by index.
    pub(super) fn take_from(&mut self, stock: Stock, asked: &Resources) -> Vec<u32> {
        let (taken, gpus) = match self.groups.bundle_mut(stock) {
            Some(bundle) => (bundle.free.try_take(asked), bundle.gpus.take(asked.gpus)),
            None => (self.free.try_take(asked), self.gpus.take(asked.gpus)),
        };
        assert!(taken, "RES-1: a grant of {asked} is covered by what is free");
        gpus.expect("the next grant fits the GPUs")
    }

    /// Puts back what a lease or an actor held, and its GPUs.
    pub(super) fn give_back(&mut self, stock: Stock, held: &Resources, gpus: &[u32]) {
        match self.groups.bundle_mut(stock) {
            Some(bundle) => {
                give(&mut bundle.free, &mut bundle.debt, held);
                bundle.gpus.give(gpus, held.gpus);
            }
            None => {
                give(&mut self.free, &mut self.debt, held);
                self.gpus.give(gpus, held.gpus);
            }
        }
    }

    /// Puts back the CPUs of a task that waits.
    pub(super) fn give_cpus(&mut self, stock: Stock, cpus: Amount) {
        self.give_back(stock, &Resources::cpus(cpus), &[]);
    }

    /// Takes CPUs for a task that resumes; what is not there becomes debt.
    pub(super) fn retake_cpus(&mut self, stock: Stock, cpus: Amount) {
        let (free, debt) = match self.groups.bundle_mut(stock) {
            Some(bundle) => (&mut bundle.free, &mut bundle.debt),
            None => (&mut self.free, &mut self.debt),
        };
        let taken = cpus.0.min(free.cpus.0);
        free.cpus.0 -= taken;
        debt.0 += cpus.0 - taken;
    }

    /// Whether what runs now is enough to satisfy this when it ends: blocked tasks, actors and groups may not end before.
    pub(super) fn within_reach(&self, waiting: &Waiting) -> bool {
        let asked = &waiting.resources;
        let Strategy::Group { group, bundle } = waiting.strategy else {
            let reserved = self.groups.reserved();
            let lasting = waiting.ask.is_lasting();
            let whole = Gpus::new(self.config.total.gpus);
            let left = self.left_of(&self.config.total, whole, (None, lasting), reserved);
            return left.is_some_and(|(free, gpus)| match waiting.ask {
                Ask::Group { group, .. } => {
                    self.groups.wanted(group).is_some_and(|b| groups::fit(b.iter(), free, gpus))
                }
                Ask::Leases { .. } | Ask::Actor { .. } => free.covers(asked) && gpus.fits(asked.gpus),
            });
        };
        self.groups.bundles(group, bundle).any(|(index, bundle)| {
            let within = (Some((group, index)), waiting.ask.is_lasting());
            let left = self.left_of(&bundle.total, bundle.whole.clone(), within, std::iter::empty());
            left.is_some_and(|(free, gpus)| free.covers(asked) && gpus.fits(asked.gpus))
        })
    }

    /// What blocked tasks, actors and groups leave of a stock; nothing when they hold more. What is lent is left to a task
    /// alone, not to what lasts.
    fn left_of<'a>(
        &self,
        total: &Resources,
        mut gpus: Gpus,
        (within, lasting): (Option<(GroupId, u32)>, bool),
        reserved: impl Iterator<Item = &'a Bundle>,
    ) -> Option<(Resources, Gpus)> {
        let mut left = total.clone();
        for bundle in reserved {
            gpus.take_all_of(&bundle.whole);
            if !left.try_take(&bundle.total) {
                return None;
            }
        }
        let here = |stock: Stock| match stock {
            Stock::Machine => within.is_none(),
            Stock::Bundle { group, index, .. } => within == Some((group, index)),
        };
        let blocked = self.leases.values().filter(|lease| lease.blocked && here(lease.stock));
        let held = |holds: Resources, whole: &Resources| if lasting { whole.clone() } else { holds };
        let blocked = blocked.map(|lease| (held(lease.holds(), &lease.resources), &lease.gpus));
        let hosts = self.pool.workers.values().filter(|worker| here(worker.stock));
        for (held, indices) in blocked.chain(hosts.map(|worker| (held(worker.holds(), &worker.held), &worker.gpus))) {
            gpus.take_these(indices, held.gpus);
            if !left.try_take(&held) {
                return None;
            }
        }
        Some((left, gpus))
    }
}

/// Puts resources back; CPUs pay the debt first.
pub(super) fn give(free: &mut Resources, debt: &mut Amount, back: &Resources) {
    let mut back = back.clone();
    let paid = back.cpus.0.min(debt.0);
    debt.0 -= paid;
    back.cpus.0 -= paid;
    free.give(&back);
}
