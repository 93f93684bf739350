//! Leases: which worker gets the next task, and how many it gets ahead.
//!
//! Tasks of one shape (resources and environment) share a pool. The owner keeps about [`QUEUE_AHEAD_US`] of work in flight per worker, by the mean
//! run time that replies report, so a stream of tiny tasks never waits for a round trip and a stream of long ones is
//! not queued behind each other. When a worker falls idle while another still has unstarted tasks, half of those are
//! taken back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Effect, Lease, Owner, Pool};
use crate::failure::Failure;
use crate::id::{LeaseId, NodeId, ProcessId, TaskId};
use crate::message::{Peer, ToNode};
use crate::spec::{NEAR_MAX, Shape, TaskOptions, TaskSpec};
use crate::time::Tick;
use crate::value::{Body, Location, Value};

use super::tasks::TaskState;

/// Work kept in flight per worker.
pub const QUEUE_AHEAD_US: u64 = 1_000;
/// A worker with less work than this in flight is preferred to waking another: a wake-up costs about as much.
pub const PACK_US: u64 = 50;
/// A queue whose first task has not ended for this long is held back by a long one.
pub const STUCK_US: u64 = 2_000;
/// Tasks in flight per worker, at most.
pub const DEPTH_MAX: usize = 512;
/// Tasks in flight per worker before the first reply tells how long they take.
const DEPTH_UNKNOWN: usize = 2;
/// Inputs of fewer bytes than this are no reason to run a task where they are.
pub const NEAR_BYTES_MIN: u64 = 1 << 20;
/// An idle lease goes back to the node after this time.
pub const LEASE_IDLE_US: u64 = 1_000_000;
/// Leases that one owner asks for at a time, at most; more are asked for as these come.
pub const LEASES_WANTED_MAX: u32 = 1_024;

impl Lease {
    /// Tasks that another worker could run as well.
    fn movable(&self) -> usize {
        self.in_flight.len() - self.chained.len().min(self.in_flight.len())
    }
}

impl Pool {
    /// Whether a task with these options is of this shape.
    pub(super) fn is_for(&self, options: &TaskOptions) -> bool {
        self.shape.environment == options.environment
            && self.shape.strategy == options.strategy
            && self.shape.threads_per_worker == options.threads_per_worker
            && self.shape.resources == options.resources
    }

    pub(super) fn depth(&self) -> usize {
        match self.mean_us_16 {
            None => DEPTH_UNKNOWN,
            Some(mean) => ((QUEUE_AHEAD_US * 16 / mean.max(1)) as usize).clamp(1, DEPTH_MAX),
        }
    }

    /// Whether none of its tasks is ready or with a worker.
    fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.leases.iter().all(|lease| lease.in_flight.is_empty())
    }

    /// Whether nothing is left of it: the next task of its shape makes another.
    pub(super) fn is_unused(&self) -> bool {
        self.ready.is_empty() && self.leases.is_empty() && self.wanted == 0
    }

    fn observe(&mut self, duration_us: u32) {
        // At least a quarter of a microsecond: nothing is free.
        let sample = (u64::from(duration_us) * 16).max(4);
        self.mean_us_16 = Some(match self.mean_us_16 {
            None => sample,
            Some(mean) => (mean * 7 + sample) / 8,
        });
    }

    /// How many tasks are not worth waking another worker for.
    fn packed(&self) -> usize {
        self.mean_us_16.map_or(0, |mean| (PACK_US * 16 / mean.max(1)) as usize)
    }

    /// When a queue that does not move should be looked at again.
    pub(super) fn stuck_at(&self) -> Option<Tick> {
        let idle = self.leases.iter().any(|l| l.in_flight.is_empty() && !l.blocked && !l.reclaim);
        let queues = self.leases.iter().filter(|l| idle && l.movable() >= 2 && !l.taking_back);
        queues.map(|l| l.moved_at.plus_us(STUCK_US)).min()
    }

    /// The lease for the next task: the first that is busy but not much, else the one with the fewest tasks.
    fn choose(&mut self, depth: usize) -> Option<&mut Lease> {
        let packed = self.packed();
        let open = |lease: &Lease| !lease.blocked && !lease.reclaim;
        let busy = |lease: &Lease| !lease.in_flight.is_empty() && lease.in_flight.len() < packed.min(depth);
        let at = match self.leases.iter().position(|lease| open(lease) && busy(lease)) {
            Some(at) => at,
            None => {
                let open = self.leases.iter().enumerate().filter(|(_, lease)| open(lease));
                open.min_by_key(|(_, lease)| lease.in_flight.len())?.0
            }
        };
        Some(&mut self.leases[at]).filter(|lease| lease.in_flight.len() < depth)
    }

    pub(super) fn lease_mut(&mut self, lease: LeaseId) -> Option<&mut Lease> {
        self.leases.iter_mut().find(|l| l.id == lease)
    }
}

/// The node that has most of these bytes.
fn heaviest(inputs: &[Location]) -> Option<NodeId> {
    let mut bytes: BTreeMap<NodeId, u64> = BTreeMap::new();
    for at in inputs {
        *bytes.entry(at.node).or_default() += at.len;
    }
    bytes.into_iter().max_by_key(|(node, bytes)| (*bytes, Reverse(*node))).map(|(node, _)| node)
}

/// A worker that ends after a few calls hands the rest back: it is not given more than it may run.
pub(super) fn depth_for(depth: usize, options: &TaskOptions) -> usize {
    if options.calls_max == 0 { depth } else { depth.min(options.calls_max as usize) }
}

impl Owner {
    /// A task that can run joins the queue of its shape.
    pub(super) fn enqueue(&mut self, task: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(entry) = self.tasks.get(&task) else { return };
        let options = &entry.spec.options;
        let inputs = self.large_inputs(&entry.spec);
        let near = heaviest(&inputs);
        let pool = match self.pools.find(|p| p.near == near && p.is_for(options)) {
            Some(pool) => {
                // Who reads most from one node reads much of the same: the last one speaks for all.
                self.pools[pool].shape.near = inputs;
                pool
            }
            None => {
                let shape = Shape {
                    resources: options.resources.clone(),
                    environment: options.environment,
                    threads_per_worker: options.threads_per_worker,
                    strategy: options.strategy,
                    near: inputs,
                };
                self.pools.drop_unused();
                self.pools.add(Pool {
                    shape,
                    near,
                    ready: Default::default(),
                    leases: Vec::new(),
                    wanted: 0,
                    mean_us_16: None,
                })
            }
        };
        self.pools[pool].ready.push_back(task);
        self.dispatch(pool, now, effects);
    }

    /// The largest inputs of a task, when they are a reason to run it where they are. Where copies of them are, the node
    /// knows.
    fn large_inputs(&self, spec: &TaskSpec) -> Vec<Location> {
        if self.me.node == NodeId::ALONE || spec.dependencies.is_empty() {
            return Vec::new();
        }
        let stored = spec.dependencies.iter().filter_map(|dependency| match self.value(&dependency.object)?.body {
            Body::Stored(at) => Some(at),
            Body::Inline(_) | Body::Failed(_) => None,
        });
        let mut inputs: Vec<Location> = stored.collect();
        if inputs.iter().map(|at| at.len).sum::<u64>() < NEAR_BYTES_MIN {
            return Vec::new();
        }
        inputs.sort_unstable_by_key(|at| (Reverse(at.len), *at));
        inputs.dedup();
        inputs.truncate(NEAR_MAX);
        inputs
    }

    /// Sends queued tasks to workers with room, then asks for more leases when tasks are left.
    pub(super) fn dispatch(&mut self, pool: usize, now: Tick, effects: &mut Vec<Effect>) {
        if self.pools.get_mut(pool).is_none() {
            return;
        }
        let depth = self.pools[pool].depth();
        while let Some(&task) = self.pools[pool].ready.front() {
            let entry = self.tasks.get(&task).filter(|entry| entry.state == TaskState::Queued);
            let Some(entry) = entry else {
                // Cancelled or settled while it waited.
                self.pools[pool].ready.pop_front();
                continue;
            };
            let depth = depth_for(depth, &entry.spec.options);
            let Some(lease) = self.pools[pool].choose(depth) else { break };
            if lease.in_flight.is_empty() {
                lease.moved_at = now;
            }
            lease.in_flight.push_back(task);
            let (id, worker) = (lease.id, lease.worker);
            self.pools[pool].ready.pop_front();
            if let Some(entry) = self.tasks.get_mut(&task) {
                entry.state = TaskState::Sent { lease: id, worker };
            }
            self.send_task(task, id, worker, effects);
            self.forward_dependents(task, effects);
        }
        self.ask_for_leases(pool, now, effects);
    }

    /// Tells the node how many more leases this shape could use, when that changed enough to matter.
    fn ask_for_leases(&mut self, pool: usize, _now: Tick, effects: &mut Vec<Effect>) {
        let p = &self.pools[pool];
        let ahead: usize = p.leases.iter().map(|l| l.movable().saturating_sub(1)).sum();
        let useful = (p.ready.len() + ahead).min(LEASES_WANTED_MAX as usize) as u32;
        // Asking costs a message: only for the first task, when the wish is spent, or when it has grown a lot. A wish that
        // has become void is withdrawn when the owner has time (`return_idle_leases`).
        if useful == 0 || (p.wanted > 0 && useful < p.wanted.saturating_mul(8)) {
            return;
        }
        let depth = p.ready.iter().take(16).filter_map(|t| self.tasks.get(t)).map(|e| e.spec.depth).max();
        let message =
            ToNode::WantLeases { pool: pool as u32, shape: p.shape.clone(), count: useful, depth: depth.unwrap_or(0) };
        self.pools[pool].wanted = useful;
        effects.push(Effect::Node(message));
    }

    pub(super) fn granted(
        &mut self,
        pool: u32,
        lease: LeaseId,
        worker: ProcessId,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let pool = pool as usize;
        if self.pools.get_mut(pool).is_none() || self.is_departed(worker) {
            effects.push(Effect::Node(ToNode::ReturnLease { lease }));
            return;
        }
        self.lease_pool.insert(lease, pool as u32);
        let p = &mut self.pools[pool];
        p.wanted = p.wanted.saturating_sub(1);
        p.leases.push(Lease {
            id: lease,
            worker,
            in_flight: Default::default(),
            chained: BTreeSet::new(),
            blocked: false,
            reclaim: false,
            taking_back: false,
            idle_since: now,
            moved_at: now,
        });
        self.dispatch(pool, now, effects);
        self.rebalance(pool, now, effects);
        if self.pools[pool].is_idle() {
            // It came too late: nobody is to wait for what nobody uses.
            self.withdraw_wish(pool, effects);
            self.drop_lease(pool, lease, effects);
        }
    }

    /// Wishes that nothing needs any more are taken back at once.
    pub(super) fn withdraw_unneeded(&mut self, effects: &mut Vec<Effect>) {
        for pool in self.pools.ids() {
            self.withdraw_wish(pool, effects);
        }
    }

    pub(super) fn infeasible(
        &mut self,
        pool: u32,
        asked: String,
        available: String,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        self.refused(pool, &Failure::Infeasible { asked, available }, now, effects);
    }

    /// Tasks of this shape will never get a worker.
    pub(super) fn refused(&mut self, pool: u32, failure: &Failure, now: Tick, effects: &mut Vec<Effect>) {
        let Some(p) = self.pools.get_mut(pool as usize) else { return };
        p.wanted = 0;
        for task in std::mem::take(&mut p.ready) {
            self.settle(task, Value::failed(failure.clone()), now, effects);
        }
    }

    /// A reply came: the task is off the lease's books.
    pub(super) fn lease_replied(&mut self, lease: LeaseId, task: TaskId, duration_us: u32, now: Tick) {
        let Some(&pool) = self.lease_pool.get(&lease) else { return };
        let p = &mut self.pools[pool as usize];
        p.observe(duration_us);
        let Some(lease) = p.lease_mut(lease) else { return };
        // Replies come in the order of the runs, so this is the front but for takings-back in flight.
        if lease.in_flight.front() == Some(&task) {
            lease.in_flight.pop_front();
        } else {
            lease.in_flight.retain(|t| *t != task);
        }
        if !lease.chained.is_empty() {
            lease.chained.remove(&task);
        }
        lease.blocked = false;
        lease.moved_at = now;
        if lease.in_flight.is_empty() {
            lease.idle_since = now;
        }
    }

    /// After a reply: the next tasks for this lease, or its way back to the node.
    pub(super) fn lease_free(&mut self, lease: LeaseId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(&pool) = self.lease_pool.get(&lease) else { return };
        let pool = pool as usize;
        let p = &mut self.pools[pool];
        // One away from the inputs was the best for what waited then: the next task, with another input, is asked about anew.
        let near = p.near.filter(|_| p.ready.is_empty());
        if let Some(l) = p.lease_mut(lease)
            && l.in_flight.is_empty()
            && (l.reclaim || near.is_some_and(|near| near != l.worker.node))
        {
            self.drop_lease(pool, lease, effects);
            self.dispatch(pool, now, effects);
            return;
        }
        if !p.ready.is_empty() || p.wanted > 0 {
            self.dispatch(pool, now, effects);
        }
        self.rebalance(pool, now, effects);
    }

    /// When a worker idles and another has unstarted tasks, asks for half of those back.
    fn rebalance(&mut self, pool: usize, now: Tick, effects: &mut Vec<Effect>) {
        let p = &mut self.pools[pool];
        let idle = p.leases.len() > 1
            && p.ready.is_empty()
            && p.leases.iter().any(|l| l.in_flight.is_empty() && !l.blocked && !l.reclaim);
        if !idle {
            return;
        }
        // The first of two is running or about to: only what is behind it can move. A short queue that moves stays:
        // it would be done before another worker is awake.
        let packed = p.packed();
        let movable = |lease: &Lease| {
            let stuck = now.since_us(lease.moved_at) >= STUCK_US;
            !lease.taking_back && lease.movable() >= 2 && (lease.movable() > 2 * packed || stuck)
        };
        let Some(fullest) = p.leases.iter_mut().filter(|l| movable(l)).max_by_key(|l| l.in_flight.len()) else {
            return;
        };
        let queued = fullest.in_flight.len();
        fullest.taking_back = true;
        let message = Peer::TakeBack { lease: fullest.id, keep: (queued / 2) as u32 };
        effects.push(Effect::Send { to: fullest.worker, message });
    }

    pub(super) fn returned(
        &mut self,
        lease: LeaseId,
        tasks: Vec<TaskId>,
        blocked: bool,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let Some(&pool) = self.lease_pool.get(&lease) else { return };
        let pool = pool as usize;
        if let Some(l) = self.pools[pool].lease_mut(lease) {
            l.taking_back = false;
            l.blocked |= blocked;
            let gone: BTreeSet<TaskId> = tasks.iter().copied().collect();
            l.in_flight.retain(|t| !gone.contains(t));
            l.chained.retain(|t| !gone.contains(t));
            if l.in_flight.is_empty() {
                // A block can cross the reply that ended it.
                l.blocked = false;
                l.idle_since = now;
            }
        }
        for task in tasks.into_iter().rev() {
            let here = |state: &TaskState| matches!(state, TaskState::Sent { lease: at, .. } if *at == lease);
            if self.tasks.get(&task).is_some_and(|entry| here(&entry.state)) {
                self.take_returned(task, pool, now, effects);
            }
        }
        self.dispatch(pool, now, effects);
        let reclaimed = self.pools[pool].lease_mut(lease).is_some_and(|l| l.reclaim && l.in_flight.is_empty());
        if reclaimed {
            self.drop_lease(pool, lease, effects);
        }
    }

    fn take_returned(&mut self, task: TaskId, pool: usize, now: Tick, effects: &mut Vec<Effect>) {
        let deserted = self.is_deserted(task);
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        if entry.cancel_deadline.is_some() || deserted {
            self.settle(task, Value::failed(Failure::Cancelled { task }), now, effects);
        } else if entry.spec.dependencies.is_empty() {
            entry.state = TaskState::Queued;
            self.pools[pool].ready.push_front(task);
        } else {
            // It may have been sent ahead of its dependencies.
            self.place(task, now, effects);
        }
    }

    pub(super) fn reclaim(&mut self, lease: LeaseId, effects: &mut Vec<Effect>) {
        let Some(&pool) = self.lease_pool.get(&lease) else { return };
        let pool = pool as usize;
        let Some(l) = self.pools[pool].lease_mut(lease) else { return };
        l.reclaim = true;
        if l.in_flight.is_empty() {
            self.drop_lease(pool, lease, effects);
        } else if l.in_flight.len() > 1 && !l.taking_back {
            l.taking_back = true;
            effects.push(Effect::Send { to: l.worker, message: Peer::TakeBack { lease, keep: 1 } });
        }
    }

    fn drop_lease(&mut self, pool: usize, lease: LeaseId, effects: &mut Vec<Effect>) {
        self.pools[pool].leases.retain(|l| l.id != lease);
        self.lease_pool.remove(&lease);
        effects.push(Effect::Node(ToNode::ReturnLease { lease }));
    }

    pub(super) fn return_idle_leases(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        for pool in self.pools.ids() {
            self.rebalance(pool, now, effects);
            self.withdraw_wish(pool, effects);
            let idle: Vec<LeaseId> = self.pools[pool]
                .leases
                .iter()
                .filter(|l| l.in_flight.is_empty() && now.since_us(l.idle_since) >= LEASE_IDLE_US)
                .map(|l| l.id)
                .collect();
            for lease in idle {
                self.drop_lease(pool, lease, effects);
            }
        }
        self.pools.drop_unused();
    }

    /// A wish for leases that nothing needs any more is taken back.
    fn withdraw_wish(&mut self, pool: usize, effects: &mut Vec<Effect>) {
        let p = &mut self.pools[pool];
        if p.wanted > 0 && p.ready.is_empty() && p.leases.iter().all(|lease| lease.in_flight.len() < 2) {
            p.wanted = 0;
            let (pool, shape) = (pool as u32, p.shape.clone());
            effects.push(Effect::Node(ToNode::WantLeases { pool, shape, count: 0, depth: 0 }));
        }
    }

    /// The leases that a dead worker hosted, each with its tasks in order.
    pub(super) fn lose_leases(&mut self, worker: ProcessId) -> Vec<Vec<TaskId>> {
        let mut lost = Vec::new();
        for pool in self.pools.values_mut() {
            for lease in std::mem::take(&mut pool.leases) {
                if lease.worker == worker {
                    self.lease_pool.remove(&lease.id);
                    lost.push(lease.in_flight.into());
                } else {
                    pool.leases.push(lease);
                }
            }
        }
        lost
    }
}
