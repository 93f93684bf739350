//! CPUs that blocked tasks lend, and the debt when they want them back.
//!
//! A task that waits for another one lends its CPUs, and other tasks may run on them. When it resumes it takes its CPUs at
//! once, even when there are none: the difference is the debt (RES-1). A debt is collected: leases are asked for until
//! they cover it, so that it lasts no longer than a task that runs now.
//!
//! An actor or a placement group holds its CPUs for life, so it gets none that are only lent: the debt would last as long.
//! One exception keeps programs from hanging: where nothing runs and no task could, the blocked tasks may be waiting for
//! that very actor or group, which then gets its CPUs.

use std::cmp::Reverse;

use super::leases::{ACTOR_LEASE, Lease};
use super::pool::{Reserved, Worker, WorkerState};
use super::queue::{Ask, Waiting};
use super::stock::Stock;
use super::{Effect, Node, send};
use crate::id::{LeaseId, ProcessId};
use crate::message::FromNode;
use crate::resources::{Amount, Resources};
use crate::time::Tick;

impl Node {
    pub(super) fn blocked(&mut self, process: ProcessId, id: LeaseId, now: Tick, effects: &mut Vec<Effect>) {
        if let Some((stock, cpus)) = self.set_blocked(process, id, true) {
            self.give_cpus(stock, cpus);
            self.schedule(now, effects);
        }
    }

    pub(super) fn unblocked(&mut self, process: ProcessId, id: LeaseId, now: Tick, effects: &mut Vec<Effect>) {
        if let Some((stock, cpus)) = self.set_blocked(process, id, false) {
            self.retake_cpus(stock, cpus);
            self.collect_debt(stock, (process, id), now, effects);
        }
    }

    /// The CPUs that change hands, and where they belong; none when this is no news.
    fn set_blocked(&mut self, process: ProcessId, id: LeaseId, blocked: bool) -> Option<(Stock, Amount)> {
        if id == ACTOR_LEASE {
            return self.pool.set_actor_blocked(process, blocked);
        }
        let lease = self.leases.get_mut(&id).filter(|lease| lease.worker == process && lease.blocked != blocked)?;
        lease.blocked = blocked;
        Some((lease.stock, lease.resources.cpus))
    }

    /// Asks for leases until those that come back pay the debt of a stock. The children of the task that resumed go first:
    /// it waited for them, so they are probably idle. Then its own lease, which ends with it, then the youngest.
    fn collect_debt(
        &mut self,
        stock: Stock,
        (process, resumed): (ProcessId, LeaseId),
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let book = self.book_of(stock);
        let mut owed = self.debt_of(book).0;
        if owed == 0 {
            return;
        }
        let pays = |lease: &Lease| !lease.blocked && lease.resources.cpus.0 > 0 && self.book_of(lease.stock) == book;
        let asked = self.leases.values().filter(|lease| lease.reclaimed && pays(lease));
        owed = owed.saturating_sub(asked.map(|lease| lease.resources.cpus.0).sum());
        let rank = |id: LeaseId, lease: &Lease| (lease.owner != process, id != resumed, Reverse(lease.since), id);
        let candidates = self.leases.iter().filter(|(_, lease)| !lease.reclaimed && pays(lease));
        let candidates = candidates.filter(|(_, lease)| self.live.contains(&lease.owner));
        let mut candidates: Vec<_> = candidates.map(|(id, lease)| (lease.announced, rank(*id, lease), *id)).collect();
        // A lease whose worker still starts has been announced to nobody: it is simply not given.
        candidates.sort_unstable();
        let mut ungranted = false;
        for (announced, _, id) in candidates {
            if owed == 0 {
                break;
            }
            let Some(lease) = self.leases.get_mut(&id) else { continue };
            owed = owed.saturating_sub(lease.resources.cpus.0);
            if announced {
                lease.reclaimed = true;
                send(lease.owner, FromNode::Reclaim { lease: id }, effects);
            } else {
                self.ungrant(id, now);
                ungranted = true;
            }
        }
        if ungranted {
            // It may have held more than the debt was.
            self.schedule(now, effects);
        }
    }

    /// Takes back a grant that its owner has not heard of; the wish waits again.
    fn ungrant(&mut self, id: LeaseId, now: Tick) {
        let Some(lease) = self.remove_lease(id, now) else { return };
        if let Some(place) = self.queue.wish(lease.owner, lease.pool)
            && let Some(Waiting { ask: Ask::Leases { pending, .. }, .. }) = self.queue.get_mut(place)
        {
            *pending = pending.saturating_sub(1);
        }
    }

    /// The CPUs of a stock that blocked tasks and actors lend, in use or not.
    pub(super) fn lent_cpus(&self, stock: Stock) -> Amount {
        let book = self.book_of(stock);
        let tasks = self.leases.values().filter(|lease| lease.blocked && self.book_of(lease.stock) == book);
        let actors = self.pool.workers.values();
        let actors = actors.filter(|worker| worker.actor_blocked && self.book_of(worker.stock) == book);
        let tasks: u64 = tasks.map(|lease| lease.resources.cpus.0).sum();
        Amount(tasks + actors.map(|worker| worker.held.cpus.0).sum::<u64>())
    }

    /// The machine's free resources without the CPUs that are only lent.
    pub(super) fn free_to_keep(&self) -> Resources {
        let mut free = self.free.clone();
        free.cpus.0 = free.cpus.0.saturating_sub(self.lent_cpus(Stock::Machine).0);
        free
    }

    /// Whether nothing runs here and no task could: those that are blocked may wait for an actor or a placement group that
    /// has no CPU.
    pub(super) fn is_stalled(&self) -> bool {
        let starts = |w: &Worker| matches!(w.state, WorkerState::Starting(Reserved::Lease(_) | Reserved::Actor(_)));
        let could = |waiting: &Waiting| !waiting.ask.is_lasting() && self.may_start_here(waiting) && self.fits(waiting);
        self.leases.values().all(|lease| lease.blocked)
            && !self.pool.workers.values().any(starts)
            && !self.queue.in_order().any(|(_, waiting)| could(waiting))
            && !self.calls_run()
    }

    /// Whether an actor runs something and does not wait in it.
    fn calls_run(&self) -> bool {
        let hosts = |w: &Worker| matches!(w.state, WorkerState::Hosting(_)) && !w.actor_blocked;
        self.pool.workers.iter().any(|(process, worker)| hosts(worker) && self.busy.runs_something(*process))
    }

    /// An actor has ended a call: another one, or a placement group, may have waited for that (see [`Node::is_stalled`]).
    pub(super) fn call_over(&mut self, process: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        let hosts = |worker: &Worker| matches!(worker.state, WorkerState::Hosting(_));
        let lends = || !self.leases.is_empty() || self.pool.workers.values().any(|worker| worker.actor_blocked);
        if self.queue.has_lasting()
            && self.pool.workers.get(&process).is_some_and(hosts)
            && self.leases.values().all(|lease| lease.blocked)
            && lends()
        {
            self.schedule(now, effects);
        }
    }

    /// The stock that keeps the account: the machine's, when its bundle is gone.
    fn book_of(&self, stock: Stock) -> Stock {
        if self.groups.bundle(stock).is_some() { stock } else { Stock::Machine }
    }

    fn debt_of(&self, book: Stock) -> Amount {
        self.groups.bundle(book).map_or(self.debt, |bundle| bundle.debt)
    }
}
