//! Jobs: a driver and all that it has started. A node serves one (embedded) or several that come and go.
//!
//! JOB-1: a process serves the job that it was started for, and no other, since its executable or interpreter is that
//! job's. [`Node::pick`] compares the job beside the environment.
//!
//! The end of a driver is the end of its job: who waits in its name waits no more, its actors end, its workers are ended,
//! and what they own follows by the rules for dead owners (`orphans`). Detached actors stay, with what they in turn have
//! started: those processes are the job's until the last one is gone. Values that other jobs hold stay as long as they do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::pool::{SPAWN_RETRY_US, WorkerState};
use super::queue::{Ask, Place, Waiting};
use super::{Effect, Node};
use crate::failure::{Death, DeathCause};
use crate::id::{ActorId, DRIVERS_MAX, FIRST_ATTACHED_SLOT, FunctionKey, JobId, NodeId, ProcessId};
use crate::message::{Between, ToNode};
use crate::spec::TaskSpec;
use crate::time::Tick;

/// So many jobs that have ended are remembered.
pub const JOBS_REMEMBERED_MAX: usize = 1_000;

/// Code and the jobs that published it.
#[derive(Clone, Debug)]
pub(super) struct Code {
    pub(super) bytes: Vec<u8>,
    jobs: BTreeSet<JobId>,
}

/// Where the driver of a job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// A process of this node.
    Here(ProcessId),
    /// Of another node, which tells when it is gone.
    Elsewhere,
    /// It is gone, and what those hear who end with it.
    Gone(String),
}

/// A job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) driver: Driver,
    pub(super) pid: u32,
    /// The node has ended the driver's connection, and why.
    dismissed: Option<DeathCause>,
    /// All that had to go with the driver is gone, and that was said.
    ended: bool,
    /// Starts of workers that failed in a row.
    pub(super) failures: u32,
    failed_at: Tick,
    pub(super) last_failure: String,
    /// It knows that there are as many processes as there may be, and all wait.
    pub(super) warned_of_limit: bool,
}

impl Job {
    fn new(driver: Driver, pid: u32) -> Self {
        let (failures, failed_at, last_failure) = (0, Tick::default(), String::new());
        let warned_of_limit = false;
        Self { driver, pid, dismissed: None, ended: false, failures, failed_at, last_failure, warned_of_limit }
    }

    /// When a start may be tried again.
    pub(super) fn retry_at(&self) -> Option<Tick> {
        (self.failures > 0).then(|| self.failed_at.plus_us(SPAWN_RETRY_US))
    }
}

/// All jobs.
pub(super) struct Jobs {
    node: NodeId,
    pub(super) all: BTreeMap<JobId, Job>,
    drivers: BTreeMap<ProcessId, JobId>,
    /// By place from [`FIRST_ATTACHED_SLOT`] on.
    incarnations: Vec<u32>,
    /// Slots of drivers that live, or whose death somebody has not settled.
    in_use: BTreeSet<u32>,
    /// Processes of other nodes that have asked for something, and their jobs.
    guests: BTreeMap<ProcessId, JobId>,
    /// The last jobs of other nodes that have ended: what is late of them begins nothing.
    over: VecDeque<JobId>,
    /// Something of a job without a driver has changed.
    changed: bool,
    /// Detached actors that are dead: what their constructors were given is not kept any longer.
    released: Vec<Arc<TaskSpec>>,
}

impl Jobs {
    pub(super) fn new(node: NodeId, embedded: Option<JobId>, pid: u32) -> Self {
        let driver = ProcessId::first_driver(node);
        let job = Job::new(Driver::Here(driver), pid);
        Self {
            node,
            all: embedded.into_iter().map(|id| (id, job.clone())).collect(),
            drivers: embedded.into_iter().map(|id| (driver, id)).collect(),
            incarnations: Vec::new(),
            in_use: BTreeSet::new(),
            guests: BTreeMap::new(),
            over: VecDeque::new(),
            changed: false,
            released: Vec::new(),
        }
    }

    /// The slot of a dead driver may be used again.
    pub(super) fn free_slot(&mut self, driver: ProcessId) {
        self.in_use.remove(&driver.slot);
    }

    /// Jobs whose driver is here.
    pub(super) fn driven(&self) -> impl Iterator<Item = JobId> {
        self.all.iter().filter(|(_, job)| matches!(job.driver, Driver::Here(_))).map(|(id, _)| *id)
    }

    /// Whether the driver of this job is here.
    pub(super) fn is_driven(&self, job: JobId) -> bool {
        self.all.get(&job).is_some_and(|job| matches!(job.driver, Driver::Here(_)))
    }

    /// Jobs that have lost their driver and have something left, and why they end.
    fn ending(&self) -> Vec<(JobId, String)> {
        let ending = self.all.iter().filter_map(|(id, job)| match &job.driver {
            Driver::Gone(reason) => Some((*id, reason.clone())),
            Driver::Here(_) | Driver::Elsewhere => None,
        });
        ending.collect()
    }

    /// Whether a job is still known and has lost its driver.
    fn is_over(&self, job: JobId) -> bool {
        self.all.get(&job).is_some_and(|job| matches!(job.driver, Driver::Gone(_)))
    }

    /// A process of another node asks for something.
    pub(super) fn note_guest(&mut self, process: ProcessId, job: JobId) {
        self.guests.insert(process, job);
    }

    pub(super) fn forget_guests(&mut self, is_dead: impl Fn(ProcessId) -> bool) {
        self.guests.retain(|process, _| !is_dead(*process));
    }

    /// An actor is dead, or not hosted any more; `detached` is what made it when it was detached.
    pub(super) fn actor_over(&mut self, job: JobId, detached: Option<Arc<TaskSpec>>) {
        self.released.extend(detached);
        self.note_change(job);
    }

    /// Something has ended that may have been the last of its job.
    pub(super) fn note_change(&mut self, job: JobId) {
        self.changed |= self.is_over(job);
    }

    /// Whether a job may be over for good.
    pub(super) fn any_ending(&self) -> bool {
        self.changed || !self.released.is_empty()
    }
}

impl Node {
    /// Whose a process is: a driver's job, the one that a worker was started for, or what another node said.
    pub fn job_of(&self, process: ProcessId) -> Option<JobId> {
        let worker = self.pool.workers.get(&process).map(|worker| worker.job);
        worker.or_else(|| self.jobs.drivers.get(&process).copied()).or_else(|| self.jobs.guests.get(&process).copied())
    }

    /// The job for which a process gets workers here; none when it has ended.
    pub(super) fn served_job(&mut self, process: ProcessId) -> Option<JobId> {
        let job = self.job_of(process)?;
        self.know_job(job).then_some(job)
    }

    /// Makes sure that a job of another node is known. False when it has ended.
    pub(super) fn know_job(&mut self, job: JobId) -> bool {
        if !self.jobs.all.contains_key(&job) && !self.jobs.over.contains(&job) {
            self.jobs.all.insert(job, Job::new(Driver::Elsewhere, 0));
        }
        self.jobs.all.contains_key(&job)
    }

    /// All workers, and whose they are.
    pub fn workers(&self) -> impl Iterator<Item = (ProcessId, JobId)> {
        self.pool.workers.iter().map(|(process, worker)| (*process, worker.job))
    }

    /// The name that the next driver gets; none when there are [`DRIVERS_MAX`].
    pub fn next_driver(&self) -> Option<ProcessId> {
        let mut slots = FIRST_ATTACHED_SLOT..FIRST_ATTACHED_SLOT + DRIVERS_MAX;
        let slot = slots.find(|slot| !self.jobs.in_use.contains(slot))?;
        let before = self.jobs.incarnations.get((slot - FIRST_ATTACHED_SLOT) as usize);
        Some(ProcessId { node: self.jobs.node, slot, incarnation: before.map_or(1, |before| before + 1) })
    }

    pub(super) fn driver_attached(
        &mut self,
        process: ProcessId,
        pid: u32,
        job: JobId,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        assert_eq!(self.next_driver(), Some(process), "a driver attaches under the name that it was given");
        assert!(!self.jobs.all.contains_key(&job), "{job} is new");
        let place = (process.slot - FIRST_ATTACHED_SLOT) as usize;
        if self.jobs.incarnations.len() <= place {
            self.jobs.incarnations.resize(place + 1, 0);
        }
        self.jobs.incarnations[place] = process.incarnation;
        self.jobs.in_use.insert(process.slot);
        self.jobs.drivers.insert(process, job);
        self.jobs.all.insert(job, Job::new(Driver::Here(process), pid));
        self.live.insert(process);
        self.keep_minimum(effects);
        self.schedule(now, effects);
    }

    pub(super) fn driver_gone(&mut self, mut death: Death, now: Tick, effects: &mut Vec<Effect>) {
        let dead = death.process;
        let Some(id) = self.jobs.drivers.remove(&dead) else { return };
        let Some(job) = self.jobs.all.get_mut(&id) else { return };
        death.cause = job.dismissed.take().unwrap_or(death.cause);
        death.pid = if death.pid == 0 { job.pid } else { death.pid };
        let reason = format!("its job has ended: {dead} (pid {}) {}", death.pid, death.cause);
        job.driver = Driver::Gone(reason.clone());
        for node in self.live.nodes() {
            let reason = reason.clone();
            effects.push(Effect::Tell { node, message: Between::JobEnded { job: id, reason } });
        }
        self.end_job(id, &reason, now, effects);
        self.forget_wishes(dead, now);
        self.live.remove(&dead);
        self.members_died(|process| process == dead, &death.in_words(), effects);
        self.tell_all(&death, effects);
        self.forget_asker(|process| process == dead, effects);
        self.settle_death(dead, now, effects);
        self.keep_minimum(effects);
        self.schedule(now, effects);
    }

    /// Another node's word that the driver of a job, a process of that node, is gone.
    pub(super) fn foreign_job_ended(&mut self, id: JobId, reason: String, now: Tick, effects: &mut Vec<Effect>) {
        if let Some(job) = self.jobs.all.get_mut(&id) {
            job.driver = Driver::Gone(reason.clone());
            self.end_job(id, &reason, now, effects);
        } else if !self.jobs.over.contains(&id) {
            self.remember_job(id);
        }
    }

    /// A node is dead, and with it the drivers that were its processes.
    pub(super) fn end_jobs_of(&mut self, node: NodeId, reason: &str, now: Tick, effects: &mut Vec<Effect>) {
        let jobs: Vec<JobId> = self.jobs.all.keys().copied().filter(|job| job.node() == node).collect();
        for job in jobs {
            self.foreign_job_ended(job, format!("its job has ended: {node} {reason}"), now, effects);
        }
    }

    /// A process is gone that may have kept something of an ended job.
    pub(super) fn end_jobs_again(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        for (job, reason) in self.jobs.ending() {
            self.end_job(job, &reason, now, effects);
        }
    }

    fn remember_job(&mut self, job: JobId) {
        self.jobs.over.push_back(job);
        while self.jobs.over.len() > JOBS_REMEMBERED_MAX {
            self.jobs.over.pop_front();
        }
    }

    /// Ends all that a job has here, but for its detached actors and what those have started. What processes of other
    /// nodes have here stays until those are gone: their nodes end them.
    fn end_job(&mut self, job: JobId, reason: &str, now: Tick, effects: &mut Vec<Effect>) {
        let kept = self.detached_processes(job);
        let ends = |waiting: &Waiting| match waiting.ask {
            Ask::Leases { owner, .. } => waiting.job == job && owner.node == self.config.id && !kept.contains(&owner),
            // Groups end with the one who made them.
            Ask::Actor { .. } | Ask::Group { .. } => false,
        };
        let wishes: Vec<Place> = self.queue.all().filter(|(_, w)| ends(w)).map(|(place, _)| place).collect();
        for place in wishes {
            self.queue.remove(place);
        }
        let actors = self.actors.all.iter().filter(|(_, actor)| {
            let ours = actor.job == job && actor.manager.is_none() && actor.owner.node == self.config.id;
            ours && !actor.is_dead() && !actor.is_detached() && !kept.contains(&actor.owner)
        });
        let actors: Vec<ActorId> = actors.map(|(id, _)| *id).collect();
        for id in actors {
            self.end_actor(id, reason, false, now, effects);
        }
        self.end_groups_of(job, &kept, reason, now, effects);
        let workers = self.pool.workers.iter().filter(|(process, w)| w.job == job && !kept.contains(process));
        let workers: Vec<ProcessId> = workers.map(|(process, _)| *process).collect();
        for process in workers {
            self.ask_to_end(process, DeathCause::Ended(reason.to_owned()), now, effects);
        }
        self.jobs.note_change(job);
    }

    /// The processes of a job's detached actors, and of the tasks and actors that those have started.
    fn detached_processes(&self, job: JobId) -> BTreeSet<ProcessId> {
        let elsewhere = |owner: ProcessId| owner.node != self.config.id && self.live.contains(&owner);
        let guests = self.jobs.guests.iter().filter(|(_, of)| **of == job).map(|(process, _)| *process);
        let mut kept: BTreeSet<ProcessId> = guests.filter(|guest| elsewhere(*guest) && !guest.is_driver()).collect();
        loop {
            let before = kept.len();
            for actor in self.actors.all.values().filter(|actor| actor.job == job) {
                if actor.is_detached() || kept.contains(&actor.owner) {
                    kept.extend(actor.state.process());
                }
            }
            let hosts = self.leases.values().filter(|lease| kept.contains(&lease.owner)).map(|lease| lease.worker);
            let hosts: Vec<ProcessId> = hosts.collect();
            kept.extend(hosts);
            if kept.len() == before {
                return kept;
            }
        }
    }

    /// Whether this is a late wish of a process that is being ended with its job.
    pub(super) fn goes_with_its_job(&self, process: ProcessId, request: &ToNode) -> bool {
        let wish = matches!(request, ToNode::WantLeases { .. } | ToNode::CreateActor { .. });
        let leaving = |worker: &super::pool::Worker| worker.ended.is_some() && self.jobs.is_over(worker.job);
        wish && self.pool.workers.get(&process).is_some_and(leaving)
    }

    /// Says which jobs have ended, and forgets those of which nothing is left.
    pub(super) fn review_jobs(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        self.jobs.changed = false;
        for spec in std::mem::take(&mut self.jobs.released) {
            self.keep_arguments(&spec, -1, now);
        }
        for (job, _) in self.jobs.ending() {
            let mut workers = self.pool.workers.values().filter(|worker| worker.job == job).peekable();
            let empty = workers.peek().is_none();
            let leaving = workers.any(|worker| worker.ended.is_some());
            let Some(entry) = self.jobs.all.get_mut(&job) else { continue };
            if !leaving && !std::mem::replace(&mut entry.ended, true) {
                effects.push(Effect::EndJob(job));
            }
            if empty && self.actors.all.values().all(|actor| actor.job != job || actor.is_dead()) {
                self.close_job(job);
                effects.push(Effect::CloseJob(job));
            }
        }
    }

    fn close_job(&mut self, job: JobId) {
        self.jobs.all.remove(&job);
        self.remember_job(job);
        self.actors.forget_job(job);
        self.code.retain(|_, code| {
            let published = code.jobs.remove(&job);
            !published || !code.jobs.is_empty()
        });
    }

    /// Code for whoever runs tasks of a function, as long as a job lives that published or fetched it.
    pub(super) fn keep_code(&mut self, process: ProcessId, function: FunctionKey, bytes: Vec<u8>) {
        let job = self.job_of(process);
        let code = self.code.entry(function).or_insert_with(|| Code { bytes, jobs: BTreeSet::new() });
        code.jobs.extend(job);
    }

    /// A process of this job died before it said hello.
    pub(super) fn spawn_failed(&mut self, job: JobId, death: &Death, now: Tick) {
        if let Some(job) = self.jobs.all.get_mut(&job) {
            job.failures += 1;
            job.failed_at = now;
            job.last_failure = death.to_string();
        }
    }

    /// Ends the connection of a driver that attached; one that the node is embedded in is not the node's to end.
    pub(super) fn dismiss(&mut self, driver: ProcessId, cause: DeathCause, effects: &mut Vec<Effect>) {
        let attached = driver.slot >= FIRST_ATTACHED_SLOT;
        let Some(id) = self.jobs.drivers.get(&driver).filter(|_| attached) else { return };
        if let Some(job) = self.jobs.all.get_mut(id)
            && job.dismissed.is_none()
        {
            job.dismissed = Some(cause);
            effects.push(Effect::Kill(driver));
        }
    }

    /// Processes that others than this job wait for: what is started ahead of demand must not take their place.
    pub(super) fn wanted_by_others(&self, job: JobId) -> usize {
        if self.jobs.all.len() < 2 {
            return 0;
        }
        let others = self.queue.in_order().filter(|(_, waiting)| waiting.job != job && self.fits(waiting));
        others.map(|(_, waiting)| waiting.ask.wanted() as usize).sum()
    }

    /// Workers for tasks of this job.
    pub(super) fn task_workers(&self, job: JobId) -> usize {
        let for_tasks = |worker: &&super::pool::Worker| {
            let actor = matches!(
                worker.state,
                WorkerState::Hosting(_)
                    | WorkerState::Starting(super::Reserved::Actor(_))
                    | WorkerState::Retiring { .. }
            );
            worker.job == job && !actor && worker.ended.is_none() && !worker.spent
        };
        self.pool.workers.values().filter(for_tasks).count()
    }
}
