//! Leases: granting, returning, asking owners for idle ones. What a task lends while it waits is in `lending`.
//!
//! RES-1: the leases and actors that are not blocked hold, together with what is free, exactly the total plus the debt.
//! A task that resumes takes its CPUs even when there are none; the difference is the debt, it is paid by the next CPUs
//! that come free, and while there is one, no CPU is free.

use super::gpus;
use super::pool::{Pick, Reserved};
use super::queue::{Ask, OVERTAKES_MAX, Place, Waiting};
use super::stock::Stock;
use super::{Effect, Node, open_link, send};
use crate::id::{JobId, LeaseId, ProcessId};
use crate::message::FromNode;
use crate::resources::{Amount, Resources};
use crate::spec::{NEAR_MAX, Shape, Strategy};
use crate::time::Tick;

/// A lease is left with its owner for at least this long before others may ask for it.
pub const RECLAIM_AFTER_US: u64 = 2_000;

/// The lease number under which an actor's own calls run.
pub(super) const ACTOR_LEASE: LeaseId = LeaseId(0);

/// What an owner wishes for, as in `ToNode::WantLeases`.
pub(super) struct Wish {
    pub(super) pool: u32,
    pub(super) shape: Shape,
    pub(super) count: u32,
    pub(super) depth: u32,
}

/// A right to run tasks of one shape on one worker.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) owner: ProcessId,
    pub(super) pool: u32,
    pub(super) worker: ProcessId,
    pub(super) resources: Resources,
    pub(super) environment: u64,
    /// Tasks that may be in its process at a time; 0 for as many as the node allows.
    pub(super) threads: u32,
    /// Which GPUs, by index.
    pub(super) gpus: Vec<u32>,
    /// From where it has them.
    pub(super) stock: Stock,
    /// Its task waits and has given its CPUs back.
    pub(super) blocked: bool,
    /// The owner knows it; else its worker is still starting.
    pub(super) announced: bool,
    /// The owner was asked for it.
    pub(super) reclaimed: bool,
    /// Runs that had begun in its process when it was announced.
    pub(super) begun: u64,
    pub(super) since: Tick,
}

impl Lease {
    /// What it takes from others right now.
    pub(super) fn holds(&self) -> Resources {
        let mut holds = self.resources.clone();
        if self.blocked {
            holds.cpus = Amount(0);
        }
        holds
    }
}

impl Node {
    pub(super) fn want_leases(&mut self, owner: ProcessId, wish: Wish, now: Tick, effects: &mut Vec<Effect>) {
        let Wish { pool, shape, count, depth } = wish;
        let Shape { resources, environment, threads_per_worker: threads, strategy, mut near } = shape;
        near.truncate(NEAR_MAX);
        // In a cluster another node may have it; whoever is asked by another node refuses what it lacks.
        let guest = owner.node != self.config.id;
        if count > 0
            && !guest
            && let Some(failure) = self.misplaced(owner, strategy, &resources, effects)
        {
            send(owner, FromNode::Refused { pool, failure: Box::new(failure) }, effects);
            return;
        }
        let refuses = count > 0 && (!self.is_clustered() || guest);
        if let Some((asked, available)) = self.lacks(strategy, &resources).filter(|_| refuses) {
            send(owner, FromNode::Infeasible { pool, asked, available }, effects);
            return;
        }
        if count > 0 && self.is_draining() && owner.node != self.config.id && strategy.group().is_none() {
            self.refuse_wish(owner, pool, &resources, effects);
            return;
        }
        let Some(job) = self.served_job(owner) else { return };
        match self.queue.wish(owner, pool) {
            Some(place) => {
                let place = self.queue.set_depth(place, depth);
                if let Some(waiting) = self.queue.get_mut(place)
                    && let Ask::Leases { count: wanted, .. } = &mut waiting.ask
                {
                    (*wanted, waiting.near) = (count, near);
                }
                self.withdraw_excess(place, now);
            }
            None if count > 0 => {
                let ask = Ask::Leases { owner, pool, count, pending: 0 };
                self.queue.push(
                    depth,
                    Waiting { ask, job, resources, environment, threads, strategy, near, since: now, overtaken: 0 },
                );
            }
            None => {}
        }
        self.schedule(now, effects);
    }

    /// What is asked for and what there is, when this node can never give it. Of a group on this node more is known.
    fn lacks(&self, strategy: Strategy, asked: &Resources) -> Option<(String, String)> {
        match strategy {
            Strategy::Group { .. } if !self.is_clustered() => None,
            Strategy::Group { group, bundle } if self.groups.can_hold(group, bundle, asked) => None,
            Strategy::Group { group, .. } => Some((asked.to_string(), format!("no bundle of {group}"))),
            Strategy::Default | Strategy::Spread | Strategy::Node { .. } => gpus::impossible(asked, &self.config.total),
        }
    }

    /// Takes back grants that still wait for their worker when the owner wants fewer by now.
    fn withdraw_excess(&mut self, place: Place, now: Tick) {
        while let Some(Waiting { ask: Ask::Leases { owner, pool, count, pending }, .. }) = self.queue.get_mut(place) {
            if *count == 0 && *pending == 0 {
                self.queue.remove(place);
                return;
            }
            if pending <= count {
                return;
            }
            *pending -= 1;
            let (owner, pool) = (*owner, *pool);
            let unannounced = |lease: &Lease| !lease.announced && lease.owner == owner && lease.pool == pool;
            let found = self.leases.iter().rev().find(|(_, lease)| unannounced(lease)).map(|(id, _)| *id);
            let Some(id) = found else { return };
            self.remove_lease(id, now);
        }
    }

    /// Gives out what can be given out, then asks owners for leases when somebody still waits.
    pub(super) fn schedule(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        if self.stopping {
            return;
        }
        self.place_bound(now, effects);
        self.make_room(true, now, effects);
        while let Some((place, stock, pick)) = self.next_grant() {
            let Some(waiting) = self.queue.get(place) else { break };
            let (job, resources) = (waiting.job, waiting.resources.clone());
            let (environment, threads) = (waiting.environment, waiting.threads);
            let ask = waiting.ask.clone();
            self.queue.overtake(place, stock.group(), &resources);
            if let Ask::Group { group, .. } = ask {
                self.queue.remove(place);
                self.place_group(group, effects);
                continue;
            }
            let gpus = self.take_from(stock, &resources);
            match ask {
                Ask::Group { .. } => {}
                Ask::Leases { owner, pool, .. } => {
                    let (worker, blocked, announced, reclaimed) =
                        (ProcessId::of_node(self.config.id), false, false, false);
                    let since = now;
                    let lease = Lease {
                        owner,
                        pool,
                        worker,
                        resources,
                        environment,
                        threads,
                        gpus,
                        stock,
                        blocked,
                        announced,
                        reclaimed,
                        begun: 0,
                        since,
                    };
                    self.grant(place, job, lease, pick, now, effects);
                }
                Ask::Actor { actor, .. } => {
                    self.queue.remove(place);
                    self.place_actor(actor, (resources, gpus, stock), pick, effects);
                }
            }
        }
        self.make_room(false, now, effects);
        self.fail_hopeless(effects);
        self.pass_on(now, effects);
        self.reclaim(now, effects);
    }

    /// The first in the queue that fits, where it takes from, and the process for it. A placement group needs none.
    fn next_grant(&self) -> Option<(Place, Stock, Pick)> {
        // Something that asks for nothing fits everywhere.
        if self.takes_no_work() {
            return None;
        }
        let mut kept: Vec<&Waiting> = Vec::new();
        let paused = self.is_paused();
        for (place, waiting) in self.queue.in_order() {
            let group = waiting.strategy.group();
            if !self.may_start_here(waiting) {
                continue;
            }
            if kept.iter().any(|other| other.competes(group, &waiting.resources)) {
                continue;
            }
            if !self.may_begin(waiting) {
                continue;
            }
            // A placement group takes no memory.
            if paused && !matches!(waiting.ask, Ask::Group { .. }) {
                continue;
            }
            if let Some(stock) = self.stock_for(waiting) {
                let process = match waiting.ask {
                    Ask::Group { .. } => Some(Pick::New),
                    Ask::Leases { .. } | Ask::Actor { .. } => self.pick(waiting),
                };
                if let Some(pick) = process {
                    return Some((place, stock, pick));
                }
            } else if waiting.overtaken >= OVERTAKES_MAX && self.within_reach(waiting) {
                kept.push(waiting);
            }
        }
        None
    }

    /// The resources are taken and the process is chosen.
    fn grant(&mut self, place: Place, job: JobId, mut lease: Lease, pick: Pick, now: Tick, effects: &mut Vec<Effect>) {
        self.cluster.passing.started_here((lease.owner, lease.pool));
        let id = LeaseId::new(self.config.id, self.next_lease);
        self.next_lease += 1;
        let (worker, ready) = self.take(pick, Reserved::Lease(id), (job, lease.environment), effects);
        lease.worker = worker;
        self.leases.insert(id, lease);
        let place = self.queue.send_back(place);
        if let Some(waiting) = self.queue.get_mut(place) {
            (waiting.since, waiting.overtaken) = (now, 0);
            if let Ask::Leases { pending, .. } = &mut waiting.ask {
                *pending += 1;
            }
        }
        if ready {
            self.announce(id, now, effects);
        }
    }

    /// Tells worker and owner of a lease.
    pub(super) fn announce(&mut self, id: LeaseId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        (lease.announced, lease.since, lease.begun) = (true, now, self.busy.begun(lease.worker));
        let (owner, worker, pool, gpus) = (lease.owner, lease.worker, lease.pool, lease.gpus.clone());
        self.pool.host(worker, id);
        self.warn_of_sharing(id, effects);
        open_link(owner, worker, effects);
        send(worker, FromNode::LeaseOpened { lease: id, owner, gpus }, effects);
        send(owner, FromNode::Granted { pool, lease: id, worker }, effects);
        let Some(place) = self.queue.wish(owner, pool) else { return };
        let Some(Waiting { ask: Ask::Leases { count, pending, .. }, .. }) = self.queue.get_mut(place) else { return };
        *count = count.saturating_sub(1);
        *pending = pending.saturating_sub(1);
        if *count == 0 {
            self.queue.remove(place);
        }
    }

    pub(super) fn return_lease(&mut self, process: ProcessId, id: LeaseId, now: Tick, effects: &mut Vec<Effect>) {
        // The leases of a dead owner are returned by their workers, which know when the last task under each has ended.
        let may =
            |lease: &Lease| lease.owner == process || (lease.worker == process && !self.live.contains(&lease.owner));
        if self.leases.get(&id).is_some_and(|lease| lease.announced && may(lease)) {
            self.close_lease(id, now, effects);
            self.schedule(now, effects);
        }
    }

    /// Ends a lease on a live worker.
    pub(super) fn close_lease(&mut self, id: LeaseId, now: Tick, effects: &mut Vec<Effect>) {
        if let Some(lease) = self.remove_lease(id, now) {
            send(lease.worker, FromNode::LeaseClosed { lease: id }, effects);
        }
    }

    /// Forgets a lease, gives back what it holds and frees its worker.
    pub(super) fn remove_lease(&mut self, id: LeaseId, now: Tick) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        self.give_back(lease.stock, &lease.holds(), &lease.gpus);
        self.pool.unhost(lease.worker, id, now);
        Some(lease)
    }

    /// Asks owners for leases that stand in the way of somebody. Each lease is asked for once; its owner returns it when
    /// it is idle.
    pub(super) fn reclaim(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let due = self.reclaimable(|lease| now.since_us(lease.since) >= RECLAIM_AFTER_US);
        for id in due {
            if let Some(lease) = self.leases.get_mut(&id) {
                lease.reclaimed = true;
                send(lease.owner, FromNode::Reclaim { lease: id }, effects);
            }
        }
    }

    /// The leases that stand in somebody's way.
    pub(super) fn reclaimable(&self, wanted: impl Fn(&Lease) -> bool) -> Vec<LeaseId> {
        let here = |waiting: &&Waiting| self.may_start_here(waiting);
        let waiting: Vec<&Waiting> = self.queue.in_order().map(|(_, waiting)| waiting).filter(here).collect();
        if waiting.is_empty() {
            return Vec::new();
        }
        let in_the_way = |lease: &Lease| {
            waiting.iter().any(|w| {
                let own =
                    matches!(w.ask, Ask::Leases { owner, pool, .. } if owner == lease.owner && pool == lease.pool);
                // One that fits waits for a process: any lease may free one.
                !own && (w.competes(lease.stock.group(), &lease.resources) || self.fits(w))
            })
        };
        let candidate = |lease: &Lease| lease.announced && !lease.reclaimed && !lease.blocked;
        let found = self.leases.iter().filter(|(_, l)| candidate(l) && self.live.contains(&l.owner) && wanted(l));
        found.filter(|(_, lease)| in_the_way(lease)).map(|(id, _)| *id).collect()
    }
}
