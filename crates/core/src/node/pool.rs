//! The worker processes: started ahead of demand and on demand, reused, shared by blocked tasks, ended when idle.
//!
//! GRANT-1: [`Node::pick`] offers only processes that have said hello or are starting for nobody, are not being ended,
//! and are not the asker itself, and whose environment is the asker's or not fixed yet (ENV-1). A process with blocked tasks is preferred to a new one, so that a thousand nested tasks
//! on one CPU do not need a process each; actors and tasks with a memory limit never share.

use std::collections::{BTreeMap, BTreeSet};

use super::leases::Lease;
use super::queue::{Ask, Waiting};
use super::{Effect, Node, send};
use crate::failure::{Death, DeathCause, Failure};
use crate::id::{ActorId, LeaseId, ProcessId, TaskId};
use crate::message::FromNode;
use crate::resources::{Amount, Resources};
use crate::time::Tick;

/// Starts that fail in a row before demand is told that there are no workers.
pub const SPAWN_FAILURES_MAX: u32 = 3;
/// After the last failed start, the next try waits so long.
pub const SPAWN_RETRY_US: u64 = 1_000_000;
/// An idle worker that was asked to end is killed after this time.
pub const RETIRE_GRACE_US: u64 = 10_000_000;
/// The first slot of a worker; node and driver are before it.
pub const FIRST_WORKER_SLOT: u32 = 2;

/// For whom a starting process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// Whoever comes first.
    Nobody,
    /// A lease that was granted.
    Lease(LeaseId),
    /// An actor.
    Actor(ActorId),
}

/// What a worker process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It has not said hello.
    Starting(Reserved),
    /// It waits for work.
    Idle {
        /// Since when.
        since: Tick,
    },
    /// It hosts leases.
    Leased,
    /// It is an actor's, for its whole life.
    Hosting(ActorId),
    /// It was asked to end, being idle.
    Retiring {
        /// When.
        since: Tick,
    },
}

/// A worker process.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) pid: u32,
    pub(super) state: WorkerState,
    pub(super) leases: BTreeSet<LeaseId>,
    /// What it looks like by now; none when it has not been given to anybody, so that it may still become anything.
    pub(super) environment: Option<u64>,
    /// A function has run here as often as it may: it gets nothing more, and ends when it has and owns nothing.
    pub(super) spent: bool,
    /// What its actor holds.
    pub(super) held: Resources,
    /// Which GPUs of that, by index.
    pub(super) gpus: Vec<u32>,
    pub(super) actor_blocked: bool,
    /// The node is ending it, and why.
    pub(super) ended: Option<DeathCause>,
    pub(super) culprit: Option<TaskId>,
}

/// All worker processes.
#[derive(Default)]
pub(super) struct Pool {
    pub(super) workers: BTreeMap<ProcessId, Worker>,
    /// Slots whose last user is dead and settled, or never used.
    incarnations: Vec<u32>,
    pub(super) in_use: BTreeSet<u32>,
    pub(super) failures: u32,
    failed_at: Tick,
    last_failure: String,
}

/// Where a grant goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// This process, which has said hello.
    Ready(ProcessId),
    /// This process, which is starting for nobody.
    Starting(ProcessId),
    /// A new one.
    New,
}

impl Pool {
    fn spawn(&mut self, reserved: Reserved, effects: &mut Vec<Effect>) -> ProcessId {
        let index = (0..).find(|index| !self.in_use.contains(index)).unwrap_or(0);
        self.in_use.insert(index);
        if self.incarnations.len() <= index as usize {
            self.incarnations.resize(index as usize + 1, 0);
        }
        self.incarnations[index as usize] += 1;
        let incarnation = self.incarnations[index as usize];
        let process = ProcessId { slot: FIRST_WORKER_SLOT + index, incarnation };
        let worker = Worker {
            pid: 0,
            state: WorkerState::Starting(reserved),
            leases: BTreeSet::new(),
            environment: None,
            spent: false,
            held: Resources::default(),
            gpus: Vec::new(),
            actor_blocked: false,
            ended: None,
            culprit: None,
        };
        self.workers.insert(process, worker);
        effects.push(Effect::Spawn(process));
        process
    }

    /// The slot may be used again.
    pub(super) fn free_slot(&mut self, process: ProcessId) {
        self.in_use.remove(&(process.slot - FIRST_WORKER_SLOT));
    }

    pub(super) fn host(&mut self, process: ProcessId, lease: LeaseId) {
        if let Some(worker) = self.workers.get_mut(&process) {
            worker.leases.insert(lease);
            worker.state = WorkerState::Leased;
        }
    }

    pub(super) fn unhost(&mut self, process: ProcessId, lease: LeaseId, now: Tick) {
        let Some(worker) = self.workers.get_mut(&process) else { return };
        worker.leases.remove(&lease);
        match worker.state {
            WorkerState::Leased if worker.leases.is_empty() => worker.state = WorkerState::Idle { since: now },
            WorkerState::Starting(Reserved::Lease(of)) if of == lease => {
                worker.state = WorkerState::Starting(Reserved::Nobody);
                worker.environment = None;
            }
            _ => {}
        }
    }

    pub(super) fn held_by_actors(&self) -> impl Iterator<Item = (Resources, &Vec<u32>)> {
        self.workers.values().map(|worker| (worker.holds(), &worker.gpus))
    }

    /// The CPUs to give back or take again when that changes something.
    pub(super) fn set_actor_blocked(&mut self, process: ProcessId, blocked: bool) -> Option<Amount> {
        let worker = self.workers.get_mut(&process)?;
        if !matches!(worker.state, WorkerState::Hosting(_)) || worker.actor_blocked == blocked {
            return None;
        }
        worker.actor_blocked = blocked;
        Some(worker.held.cpus)
    }

    /// Workers for tasks.
    fn task_workers(&self) -> usize {
        let actors = |w: &&Worker| {
            matches!(w.state, WorkerState::Hosting(_) | WorkerState::Starting(Reserved::Actor(_)))
                || matches!(w.state, WorkerState::Retiring { .. })
                || w.ended.is_some()
                || w.spent
        };
        self.workers.len() - self.workers.values().filter(actors).count()
    }
}

impl Worker {
    /// What its actor takes from others right now.
    pub(super) fn holds(&self) -> Resources {
        let mut holds = self.held.clone();
        if self.actor_blocked {
            holds.cpus = Amount(0);
        }
        holds
    }
}

impl Node {
    /// Starts workers ahead of demand.
    pub(super) fn keep_minimum(&mut self, effects: &mut Vec<Effect>) {
        while self.pool.failures == 0
            && self.pool.task_workers() < self.config.prestart as usize
            && self.pool.in_use.len() < self.config.processes_max as usize
        {
            self.pool.spawn(Reserved::Nobody, effects);
        }
    }

    /// The best process for this ask, if there is one.
    pub(super) fn pick(&self, waiting: &Waiting) -> Option<Pick> {
        let (asker, environment) = (waiting.ask.asker(), waiting.environment);
        let for_actor = matches!(waiting.ask, Ask::Actor { .. });
        let used = self.idle(asker, Some(environment), for_actor);
        let ready = if for_actor { None } else { used };
        if let Some(process) = ready.or_else(|| self.idle(asker, None, for_actor)) {
            return Some(Pick::Ready(process));
        }
        let may_share = !for_actor && waiting.resources.memory_bytes == 0;
        let shared = if may_share { self.least_loaded_host(asker, environment) } else { None };
        if let Some((0, _, process)) = shared {
            return Some(Pick::Ready(process));
        }
        let starting = |w: &Worker| w.ended.is_none() && w.state == WorkerState::Starting(Reserved::Nobody);
        if let Some((process, _)) = self.pool.workers.iter().find(|(_, w)| starting(w)) {
            return Some(Pick::Starting(*process));
        }
        if self.has_room() && self.pool.failures < SPAWN_FAILURES_MAX {
            return Some(Pick::New);
        }
        // An actor would rather have a process without a past, but any of its environment is better than none.
        shared.map(|(_, _, process)| process).or(used).map(Pick::Ready)
    }

    /// Whether another process may be started. One that is spent and only waits lends its threads to nobody, so it does not
    /// count, or its own children could wait for ever; up to as many again as there may be.
    pub(super) fn has_room(&self) -> bool {
        let bound = self.config.processes_max as usize;
        if self.pool.in_use.len() < bound {
            return true;
        }
        let waits = |lease: &LeaseId| self.leases.get(lease).is_some_and(|lease| lease.blocked);
        let stuck = |w: &&Worker| w.spent && !w.leases.is_empty() && w.leases.iter().all(waits);
        let stuck = self.pool.workers.values().filter(stuck).count();
        self.pool.in_use.len() < bound + stuck.min(bound)
    }

    /// The idle process of this environment that worked last: it is warmest. An actor's end is its process's end, so
    /// rather not one that owns something.
    fn idle(&self, asker: ProcessId, environment: Option<u64>, for_actor: bool) -> Option<ProcessId> {
        let sound = |process: &ProcessId, w: &Worker| *process != asker && w.ended.is_none() && !w.spent;
        let candidates = self.pool.workers.iter().filter(|(p, w)| sound(p, w) && w.environment == environment);
        let idle = candidates.filter_map(|(process, worker)| match worker.state {
            WorkerState::Idle { since } => {
                Some((for_actor && self.ledger.owned_by(*process) > 0, std::cmp::Reverse(since), *process))
            }
            _ => None,
        });
        idle.min().map(|(_, _, process)| process)
    }

    /// Asks an idle process to end.
    pub(super) fn retire(&mut self, process: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        if let Some(worker) = self.pool.workers.get_mut(&process) {
            worker.state = WorkerState::Retiring { since: now };
            send(process, FromNode::Retire, effects);
        }
    }

    /// Among the processes with a blocked task that may take another one: running tasks, all tasks, which.
    fn least_loaded_host(&self, asker: ProcessId, environment: u64) -> Option<(usize, usize, ProcessId)> {
        let hosts = self.pool.workers.iter().filter_map(|(process, worker)| {
            let room = worker.leases.len() < self.config.threads_per_process_max as usize;
            let sound = *process != asker && worker.state == WorkerState::Leased && worker.ended.is_none();
            if !sound || !room || worker.spent || worker.environment != Some(environment) {
                return None;
            }
            let leases = || worker.leases.iter().filter_map(|id| self.leases.get(id));
            let blocked = leases().filter(|lease: &&Lease| lease.blocked).count();
            let limited = leases().any(|lease| lease.resources.memory_bytes > 0);
            (blocked > 0 && !limited).then_some((worker.leases.len() - blocked, worker.leases.len(), *process))
        });
        hosts.min()
    }

    /// Makes the picked process belong to somebody; says whether it is ready.
    pub(super) fn take(
        &mut self,
        pick: Pick,
        reserved: Reserved,
        environment: u64,
        effects: &mut Vec<Effect>,
    ) -> (ProcessId, bool) {
        let (process, ready) = match pick {
            Pick::Ready(process) => (process, true),
            Pick::Starting(process) => {
                if let Some(worker) = self.pool.workers.get_mut(&process) {
                    worker.state = WorkerState::Starting(reserved);
                }
                (process, false)
            }
            Pick::New => (self.pool.spawn(reserved, effects), false),
        };
        if let Some(worker) = self.pool.workers.get_mut(&process) {
            let fixed = *worker.environment.get_or_insert(environment);
            assert_eq!(fixed, environment, "ENV-1: {process} serves one environment");
        }
        (process, ready)
    }

    pub(super) fn worker_spent(&mut self, process: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        if let Some(worker) = self.pool.workers.get_mut(&process) {
            worker.spent = true;
            self.keep_minimum(effects);
            self.schedule(now, effects);
        }
    }

    pub(super) fn worker_spawned(&mut self, process: ProcessId, pid: u32) {
        if let Some(worker) = self.pool.workers.get_mut(&process) {
            worker.pid = pid;
        }
    }

    pub(super) fn hello(&mut self, process: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(worker) = self.pool.workers.get_mut(&process) else { return };
        let WorkerState::Starting(reserved) = worker.state else { return };
        self.live.insert(process);
        self.pool.failures = 0;
        if worker.ended.is_some() {
            return;
        }
        worker.state = WorkerState::Idle { since: now };
        match reserved {
            Reserved::Nobody => {}
            Reserved::Lease(lease) => self.announce(lease, now, effects),
            Reserved::Actor(actor) => self.construct(actor, process, effects),
        }
        self.keep_minimum(effects);
        self.schedule(now, effects);
    }

    /// A process died before it said hello.
    pub(super) fn spawn_failed(&mut self, death: &Death, now: Tick) {
        self.pool.failures += 1;
        self.pool.failed_at = now;
        self.pool.last_failure = death.to_string();
    }

    /// When no worker can be started and none is there, those who wait are told instead of waiting for ever.
    pub(super) fn fail_hopeless(&mut self, effects: &mut Vec<Effect>) {
        if self.pool.failures < SPAWN_FAILURES_MAX || self.pool.task_workers() > 0 {
            return;
        }
        let failure = self.pool.last_failure.clone();
        let places: Vec<_> = self.queue.in_order().map(|(place, _)| place).collect();
        for place in places {
            let Some(waiting) = self.queue.remove(place) else { continue };
            let available = format!("no worker: {SPAWN_FAILURES_MAX} starts failed in a row, the last one: {failure}");
            match waiting.ask {
                Ask::Leases { owner, pool, .. } => {
                    let asked = waiting.resources.to_string();
                    send(owner, FromNode::Infeasible { pool, asked, available }, effects);
                }
                Ask::Actor { actor, .. } => {
                    let value = Failure::ActorDied { actor, reason: available.clone() };
                    self.actor_failed(actor, value, available, effects);
                }
            }
        }
        // The next demand tries again.
        self.pool.failures = 0;
    }

    pub(super) fn kill(&mut self, process: ProcessId, cause: DeathCause, effects: &mut Vec<Effect>) {
        if let Some(worker) = self.pool.workers.get_mut(&process)
            && worker.ended.is_none()
        {
            worker.ended = Some(cause);
            effects.push(Effect::Kill(process));
        }
    }

    /// Time went by: idle workers end, failed starts are tried again, leases are asked for.
    pub(super) fn ticked(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        if self.pool.failures > 0 && now.since_us(self.pool.failed_at) >= SPAWN_RETRY_US {
            self.pool.failures = 0;
        }
        let mut spare = self.pool.task_workers().saturating_sub(self.config.prestart as usize);
        let processes: Vec<ProcessId> = self.pool.workers.keys().copied().collect();
        for process in processes {
            let owns = self.owns_something(process);
            let Some(worker) = self.pool.workers.get_mut(&process) else { continue };
            match worker.state {
                WorkerState::Idle { since }
                    if spare > 0
                        && !worker.spent
                        && !owns
                        && worker.ended.is_none()
                        && now.since_us(since) >= self.config.idle_worker_us =>
                {
                    spare -= 1;
                    self.retire(process, now, effects);
                }
                WorkerState::Idle { .. } if worker.spent && !owns && worker.ended.is_none() => {
                    self.retire(process, now, effects);
                }
                WorkerState::Retiring { since } if now.since_us(since) >= RETIRE_GRACE_US => {
                    self.kill(process, DeathCause::Ended("it was idle and did not end when asked".into()), effects);
                }
                _ => {}
            }
        }
        self.keep_minimum(effects);
        self.schedule(now, effects);
    }

    /// An owner of objects or actors is not ended for being idle.
    pub(super) fn owns_something(&self, process: ProcessId) -> bool {
        self.ledger.owned_by(process) > 0 || self.actors.has_owner(process)
    }

    /// When [`super::Event::Ticked`] is due next.
    pub fn deadline(&self) -> Option<Tick> {
        let spare = self.pool.task_workers() > self.config.prestart as usize;
        let workers = self.pool.workers.iter().filter_map(|(process, worker)| match worker.state {
            WorkerState::Idle { since } if (spare || worker.spent) && !self.owns_something(*process) => {
                Some(if worker.spent { since } else { since.plus_us(self.config.idle_worker_us) })
            }
            WorkerState::Retiring { since } if worker.ended.is_none() => Some(since.plus_us(RETIRE_GRACE_US)),
            _ => None,
        });
        let retry = (self.pool.failures > 0).then(|| self.pool.failed_at.plus_us(SPAWN_RETRY_US));
        let reclaim = self.reclaimable(|_| true).into_iter().filter_map(|id| self.leases.get(&id));
        let reclaim = reclaim.map(|lease| lease.since.plus_us(super::leases::RECLAIM_AFTER_US));
        // A record may have let go of what kept a process from making room.
        let room = (!self.room_makers(false).is_empty()).then_some(Tick(0));
        workers.chain(retry).chain(reclaim).chain(room).min()
    }
}
