//! The worker processes: started ahead of demand and on demand, reused, shared by blocked tasks, ended when idle.
//!
//! GRANT-1: [`Node::pick`] offers only processes that have said hello or are starting for nobody, are not being ended,
//! are not the asker itself unless there is no other (`sharing`), are of the asker's job (JOB-1), and whose environment is
//! the asker's or not fixed yet (ENV-1). Which tasks share a process is in `sharing`.

use std::collections::{BTreeMap, BTreeSet};

use super::queue::{Ask, Waiting};
use super::sharing::is_exclusive;
use super::stock::Stock;
use super::{Effect, Node, send};
use crate::failure::{DeathCause, Failure};
use crate::id::{ActorId, FIRST_ATTACHED_SLOT, JobId, LeaseId, NodeId, ProcessId, TaskId};
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
/// Slots for workers; those of drivers are behind them.
const SLOTS_MAX: usize = (FIRST_ATTACHED_SLOT - FIRST_WORKER_SLOT) as usize;

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
    /// Whose executable or interpreter it is.
    pub(super) job: JobId,
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
    /// From where it has them.
    pub(super) stock: Stock,
    pub(super) actor_blocked: bool,
    /// The node is ending it, and why.
    pub(super) ended: Option<DeathCause>,
    /// It was asked to end, and is killed at this time.
    pub(super) end_by: Option<Tick>,
    pub(super) culprit: Option<TaskId>,
}

/// All worker processes.
pub(super) struct Pool {
    node: NodeId,
    pub(super) workers: BTreeMap<ProcessId, Worker>,
    /// Slots whose last user is dead and settled, or never used.
    incarnations: Vec<u32>,
    pub(super) in_use: BTreeSet<u32>,
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
    pub(super) fn new(node: NodeId) -> Self {
        Self { node, workers: BTreeMap::new(), incarnations: Vec::new(), in_use: BTreeSet::new() }
    }

    fn spawn(&mut self, job: JobId, reserved: Reserved, effects: &mut Vec<Effect>) -> ProcessId {
        let index = (0..).find(|index| !self.in_use.contains(index)).unwrap_or(0);
        self.in_use.insert(index);
        if self.incarnations.len() <= index as usize {
            self.incarnations.resize(index as usize + 1, 0);
        }
        self.incarnations[index as usize] += 1;
        let incarnation = self.incarnations[index as usize];
        let process = ProcessId { node: self.node, slot: FIRST_WORKER_SLOT + index, incarnation };
        let worker = Worker {
            pid: 0,
            job,
            state: WorkerState::Starting(reserved),
            leases: BTreeSet::new(),
            environment: None,
            spent: false,
            held: Resources::default(),
            gpus: Vec::new(),
            stock: Stock::Machine,
            actor_blocked: false,
            ended: None,
            end_by: None,
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

    /// The CPUs to give back or take again when that changes something, and where.
    pub(super) fn set_actor_blocked(&mut self, process: ProcessId, blocked: bool) -> Option<(Stock, Amount)> {
        let worker = self.workers.get_mut(&process)?;
        if !matches!(worker.state, WorkerState::Hosting(_)) || worker.actor_blocked == blocked {
            return None;
        }
        worker.actor_blocked = blocked;
        Some((worker.stock, worker.held.cpus))
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
    /// Starts workers ahead of demand, for each job that has its driver.
    pub(super) fn keep_minimum(&mut self, effects: &mut Vec<Effect>) {
        if self.is_pressed() || self.is_draining() || self.stopping || self.takes_no_work() {
            return;
        }
        let bound = self.processes_max();
        let jobs: Vec<JobId> = self.jobs.driven().collect();
        for job in jobs {
            while self.failures(job) == 0
                && self.task_workers(job) < self.config.prestart as usize
                && self.pool.in_use.len() + self.wanted_by_others(job) < bound
            {
                self.pool.spawn(job, Reserved::Nobody, effects);
            }
        }
    }

    /// Processes at a time, of all jobs: those of drivers have slots of their own.
    pub(super) fn processes_max(&self) -> usize {
        (self.config.processes_max as usize).min(SLOTS_MAX)
    }

    /// Starts that failed in a row.
    fn failures(&self, job: JobId) -> u32 {
        self.jobs.all.get(&job).map_or(0, |job| job.failures)
    }

    /// The best process for this ask, if there is one.
    pub(super) fn pick(&self, waiting: &Waiting) -> Option<Pick> {
        let environment = waiting.environment;
        let for_actor = matches!(waiting.ask, Ask::Actor { .. });
        let used = self.idle(waiting, Some(environment), for_actor);
        let ready = if for_actor { None } else { used };
        if let Some(process) = ready.or_else(|| self.idle(waiting, None, for_actor)) {
            return Some(Pick::Ready(process));
        }
        let may_share = !for_actor && !is_exclusive(&waiting.resources);
        let shared = if may_share { self.least_loaded_host(waiting) } else { None };
        if let Some((0, _, process)) = shared {
            return Some(Pick::Ready(process));
        }
        let nobody_s = WorkerState::Starting(Reserved::Nobody);
        let starting = |w: &Worker| w.ended.is_none() && w.job == waiting.job && w.state == nobody_s;
        if let Some((process, _)) = self.pool.workers.iter().find(|(_, w)| starting(w)) {
            return Some(Pick::Starting(*process));
        }
        let may_start = self.failures(waiting.job) < SPAWN_FAILURES_MAX;
        if self.has_room() && may_start {
            return Some(Pick::New);
        }
        // An actor would rather have a process without a past, but any of its environment is better than none.
        let shared = shared.map(|(_, _, process)| process).or(used.filter(|process| self.may_end(*process)));
        if let Some(process) = shared.or_else(|| self.last_resort(waiting)) {
            return Some(Pick::Ready(process));
        }
        if may_start && self.may_exceed(used.is_some()) {
            return Some(Pick::New);
        }
        used.map(Pick::Ready)
    }

    /// Whether another process may be started. One that is spent and only waits lends its threads to nobody, so it does not
    /// count, or its own children could wait for ever; up to as many again as there may be.
    pub(super) fn has_room(&self) -> bool {
        self.pool.in_use.len() < self.processes_max() || self.has_room_beside(|worker| worker.spent)
    }

    /// Whether a process may be started beyond the limit for something that can share none: nothing comes free by itself,
    /// and those that wait may wait for this one. Also for an actor that would otherwise get a process with unfinished tasks
    /// of its own, which would die with the actor. Up to as many again as there may be.
    fn may_exceed(&self, instead_of_an_owner: bool) -> bool {
        (instead_of_an_owner || self.is_stuck()) && self.has_room_beside(|_| true)
    }

    /// Whether there is room if processes at a standstill, of those that `counts` chooses, are left out: all their tasks wait,
    /// their actor waits, or they are idle and kept for the tasks and actors that they own.
    fn has_room_beside(&self, counts: impl Fn(&Worker) -> bool) -> bool {
        let bound = self.processes_max();
        let waits = |lease: &LeaseId| self.leases.get(lease).is_some_and(|lease| lease.blocked);
        let stands_still = |(process, worker): &(&ProcessId, &Worker)| match worker.state {
            _ if worker.ended.is_some() || !counts(worker) => false,
            WorkerState::Leased => worker.leases.iter().all(waits),
            WorkerState::Hosting(_) => worker.actor_blocked,
            WorkerState::Idle { .. } => !self.may_end(**process),
            WorkerState::Starting(_) | WorkerState::Retiring { .. } => false,
        };
        let still = self.pool.workers.iter().filter(stands_still).count();
        self.pool.in_use.len() < (bound + still.min(bound)).min(SLOTS_MAX)
    }

    /// The idle process of the job and this environment that worked last: it is warmest. An actor's end is its process's end, so
    /// rather not one that owns something.
    fn idle(&self, waiting: &Waiting, environment: Option<u64>, for_actor: bool) -> Option<ProcessId> {
        let (asker, job) = (waiting.ask.asker(), waiting.job);
        let sound =
            |process: &ProcessId, w: &Worker| *process != asker && w.job == job && w.ended.is_none() && !w.spent;
        let candidates = self.pool.workers.iter().filter(|(p, w)| sound(p, w) && w.environment == environment);
        let idle = candidates.filter_map(|(process, worker)| match worker.state {
            WorkerState::Idle { since } => {
                Some((for_actor && self.ledger.owned_by(*process) > 0, std::cmp::Reverse(since), *process))
            }
            _ => None,
        });
        idle.min().map(|(_, _, process)| process)
    }

    /// Number of processes that host an actor, or will.
    pub(super) fn hosted_actors(&self) -> usize {
        let hosting = |worker: &&Worker| {
            matches!(worker.state, WorkerState::Hosting(_) | WorkerState::Starting(Reserved::Actor(_)))
        };
        self.pool.workers.values().filter(hosting).count()
    }

    /// Asks an idle process to end.
    pub(super) fn retire(&mut self, process: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        if let Some(worker) = self.pool.workers.get_mut(&process) {
            worker.state = WorkerState::Retiring { since: now };
            send(process, FromNode::Retire, effects);
        }
    }

    /// Makes the picked process belong to somebody; says whether it is ready.
    pub(super) fn take(
        &mut self,
        pick: Pick,
        reserved: Reserved,
        (job, environment): (JobId, u64),
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
            Pick::New => (self.pool.spawn(job, reserved, effects), false),
        };
        if let Some(worker) = self.pool.workers.get_mut(&process) {
            let fixed = *worker.environment.get_or_insert(environment);
            assert_eq!(fixed, environment, "ENV-1: {process} serves one environment");
            assert_eq!(worker.job, job, "JOB-1: {process} serves one job");
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
        if let Some(job) = self.jobs.all.get_mut(&worker.job) {
            job.failures = 0;
        }
        if worker.ended.is_some() {
            return;
        }
        worker.state = WorkerState::Idle { since: now };
        self.warn_of_excess(process, effects);
        match reserved {
            Reserved::Nobody => {}
            Reserved::Lease(lease) => self.announce(lease, now, effects),
            Reserved::Actor(actor) => self.construct(actor, process, effects),
        }
        self.keep_minimum(effects);
        self.schedule(now, effects);
    }

    /// When no worker of a job can be started and none is there, those who wait are told instead of waiting for ever.
    pub(super) fn fail_hopeless(&mut self, effects: &mut Vec<Effect>) {
        let hopeless = |job: &JobId| self.failures(*job) >= SPAWN_FAILURES_MAX && self.task_workers(*job) == 0;
        let jobs: Vec<JobId> = self.jobs.all.keys().copied().filter(hopeless).collect();
        for job in jobs {
            self.fail_all_of(job, effects);
        }
    }

    fn fail_all_of(&mut self, job: JobId, effects: &mut Vec<Effect>) {
        let Some(entry) = self.jobs.all.get_mut(&job) else { return };
        // The next demand tries again.
        entry.failures = 0;
        let failure = entry.last_failure.clone();
        let for_process = |waiting: &Waiting| waiting.job == job && !matches!(waiting.ask, Ask::Group { .. });
        let places: Vec<_> =
            self.queue.in_order().filter(|(_, waiting)| for_process(waiting)).map(|(place, _)| place).collect();
        for place in places {
            let Some(waiting) = self.queue.remove(place) else { continue };
            let available = format!("no worker: {SPAWN_FAILURES_MAX} starts failed in a row, the last one: {failure}");
            match waiting.ask {
                Ask::Leases { owner, pool, .. } => {
                    let asked = waiting.resources.to_string();
                    // Its node would ask another one, or this one again, if it heard of room.
                    let message = match owner.node == self.config.id {
                        true => FromNode::Infeasible { pool, asked, available },
                        false => {
                            let failure = Box::new(Failure::Infeasible { asked, available });
                            FromNode::Refused { pool, failure }
                        }
                    };
                    send(owner, message, effects);
                }
                Ask::Actor { actor, .. } => {
                    let value = Failure::ActorDied { actor, reason: available.clone() };
                    self.actor_failed(actor, value, available, effects);
                }
                Ask::Group { .. } => {}
            }
        }
    }

    /// Kills a process at once, also one that was only asked to end.
    pub(super) fn kill(&mut self, process: ProcessId, cause: DeathCause, effects: &mut Vec<Effect>) {
        if let Some(worker) = self.pool.workers.get_mut(&process)
            && (worker.ended.is_none() || worker.end_by.is_some())
        {
            worker.ended.get_or_insert(cause);
            worker.end_by = None;
            effects.push(Effect::Kill(process));
        } else if process.is_driver() {
            self.dismiss(process, cause, effects);
        }
    }

    /// Time went by: idle workers end, failed starts are tried again, leases are asked for.
    pub(super) fn ticked(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        for job in self.jobs.all.values_mut().filter(|job| job.retry_at().is_some_and(|at| at <= now)) {
            job.failures = 0;
        }
        self.pressure.forget_stale(now);
        self.kill_overdue(now, effects);
        let mut spare: BTreeMap<JobId, usize> = self.jobs.all.keys().map(|job| (*job, self.spare(*job))).collect();
        let processes: Vec<ProcessId> = self.pool.workers.keys().copied().collect();
        for process in processes {
            let owns = self.owns_something(process);
            let Some(worker) = self.pool.workers.get_mut(&process) else { continue };
            let spare = spare.entry(worker.job).or_default();
            match worker.state {
                WorkerState::Idle { since }
                    if *spare > 0
                        && !worker.spent
                        && !owns
                        && worker.ended.is_none()
                        && now.since_us(since) >= self.config.idle_worker_us =>
                {
                    *spare -= 1;
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

    /// Workers of a job beyond those that are kept; a job without a driver keeps none.
    fn spare(&self, job: JobId) -> usize {
        let driven = self.jobs.driven().any(|driven| driven == job);
        let kept = if driven { self.config.prestart as usize } else { 0 };
        self.task_workers(job).saturating_sub(kept)
    }

    /// An owner of objects or actors is not ended for being idle.
    pub(super) fn owns_something(&self, process: ProcessId) -> bool {
        self.ledger.owned_by(process) > 0 || self.actors.has_owner(process)
    }

    /// When [`super::Event::Ticked`] is due next.
    pub fn deadline(&self) -> Option<Tick> {
        let spare: BTreeSet<JobId> = self.jobs.all.keys().copied().filter(|job| self.spare(*job) > 0).collect();
        let workers = self.pool.workers.iter().filter_map(|(process, worker)| match worker.state {
            WorkerState::Idle { since }
                if (spare.contains(&worker.job) || worker.spent) && !self.owns_something(*process) =>
            {
                Some(if worker.spent { since } else { since.plus_us(self.config.idle_worker_us) })
            }
            WorkerState::Retiring { since } if worker.ended.is_none() => Some(since.plus_us(RETIRE_GRACE_US)),
            _ => None,
        });
        let overdue = self.pool.workers.values().filter_map(|worker| worker.end_by);
        let retry = self.jobs.all.values().filter_map(super::jobs::Job::retry_at);
        let reclaim = self.reclaimable(|_| true).into_iter().filter_map(|id| self.leases.get(&id));
        let reclaim = reclaim.map(|lease| lease.since.plus_us(super::leases::RECLAIM_AFTER_US));
        // A record may have let go of what kept a process from making room.
        let room = (!self.room_makers(false).is_empty()).then_some(Tick(0));
        let pressure = self.pressure.deadline();
        workers
            .chain(overdue)
            .chain(retry)
            .chain(reclaim)
            .chain(room)
            .chain(self.cluster_deadline())
            .chain(pressure)
            .chain(self.reduces_deadline())
            .min()
    }
}
