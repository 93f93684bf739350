//! Tasks that share a process.
//!
//! A task may say how many tasks may be in its process at a time (`threads_per_worker`): one for a process of its own, which a
//! blocked task keeps too. Others share: a process with blocked tasks takes another one before a new process is started, so
//! that a thousand nested tasks do not need a process each. Actors and tasks with a memory limit or GPUs never share.
//!
//! When there are as many processes as there may be, a task waits for one. Only when none of them will come free by itself,
//! because every task in them waits, does it share one all the same, perhaps that of the very process that asked: the tasks
//! may wait for this one. What can share none, as an actor, then gets a process beyond the limit. The job is warned once.

use super::leases::Lease;
use super::pool::{Worker, WorkerState};
use super::queue::{Ask, Waiting};
use super::{Effect, Node, send};
use crate::id::{LeaseId, ProcessId};
use crate::message::FromNode;
use crate::resources::Resources;

impl Node {
    /// Maximum number of tasks in a process at a time, by an option.
    fn threads_of(&self, option: u32) -> usize {
        let max = self.config.threads_per_process_max;
        if option == 0 { max as usize } else { option.min(max) as usize }
    }

    /// Among the processes with a blocked task that may take another one: running tasks, all tasks, which. Only tasks of
    /// one placement group share a process, since its removal ends them together.
    pub(super) fn least_loaded_host(&self, waiting: &Waiting) -> Option<(usize, usize, ProcessId)> {
        let asker = waiting.ask.asker();
        let hosts = self.pool.workers.iter().filter_map(|(process, worker)| {
            if *process == asker || worker.leases.is_empty() || !self.may_join(worker, waiting) {
                return None;
            }
            let leases = || worker.leases.iter().filter_map(|id| self.leases.get(id));
            let threads = leases().map(|lease| lease.threads).chain([waiting.threads]);
            let room = threads.map(|option| self.threads_of(option)).min().unwrap_or(0);
            let blocked = leases().filter(|lease| lease.blocked).count();
            let running = worker.leases.len() - blocked;
            (blocked > 0 && worker.leases.len() < room).then_some((running, worker.leases.len(), *process))
        });
        hosts.min()
    }

    /// A process for a task that has to share because no process will come free by itself.
    pub(super) fn last_resort(&self, waiting: &Waiting) -> Option<ProcessId> {
        if matches!(waiting.ask, Ask::Actor { .. }) || is_exclusive(&waiting.resources) || !self.is_stuck() {
            return None;
        }
        let bound = self.config.threads_per_process_max as usize;
        let hosts = self.pool.workers.iter();
        let hosts = hosts.filter(|(_, w)| w.leases.len() < bound && self.may_join(w, waiting));
        let asker = waiting.ask.asker();
        hosts.map(|(process, w)| (w.leases.len(), *process == asker, *process)).min().map(|(_, _, process)| process)
    }

    /// Whether a process is fit for this task and has nobody who keeps it for himself.
    fn may_join(&self, worker: &Worker, waiting: &Waiting) -> bool {
        let keeps = |lease: &Lease| is_exclusive(&lease.resources) || lease.stock.group() != waiting.strategy.group();
        matches!(worker.state, WorkerState::Leased | WorkerState::Idle { .. })
            && worker.ended.is_none()
            && !worker.spent
            && (worker.job, worker.environment) == (waiting.job, Some(waiting.environment))
            && !worker.leases.iter().filter_map(|id| self.leases.get(id)).any(keeps)
    }

    /// Explains why something whose resources are free has no process.
    pub(super) fn explain_no_process(&self, waiting: &Waiting) -> String {
        if self.has_room() {
            let processes = self.pool.workers.len();
            return format!("none of the {processes} worker processes can take it yet");
        }
        let actors = self.hosted_actors();
        let waits = |worker: &&Worker| worker.leases.iter().any(|id| self.leases.get(id).is_some_and(|l| l.blocked));
        let blocked = self.pool.workers.values().filter(waits).count();
        let all = self.pool.in_use.len();
        let mut text =
            format!("there are {all} worker processes, as many as there may be (workers_max, processes_max): ");
        text.push_str(&format!("{actors} are actors', and {blocked} have tasks that wait"));
        if self.threads_of(waiting.threads) == 1 && !waiting.ask.is_lasting() {
            text.push_str("; it has a process of its own (threads_per_worker=1)");
        }
        if self.is_stuck() {
            let threads = self.config.threads_per_process_max;
            text.push_str(&format!(
                "; none comes free by itself, and none can take more (threads_per_worker_max={threads})"
            ));
        }
        text
    }

    /// Whether there are as many processes as there may be, and none will come free by itself: each is an actor's, or
    /// all its tasks wait, or it is idle and cannot go because of what it owns.
    pub(super) fn is_stuck(&self) -> bool {
        let waits = |lease: &LeaseId| self.leases.get(lease).is_some_and(|lease| lease.blocked);
        let stuck = |(process, worker): (&ProcessId, &Worker)| {
            worker.ended.is_none()
                && match worker.state {
                    WorkerState::Hosting(_) => true,
                    WorkerState::Leased => worker.leases.iter().all(waits),
                    WorkerState::Idle { .. } => !self.may_end(*process),
                    WorkerState::Starting(_) | WorkerState::Retiring { .. } => false,
                }
        };
        // The slot of a dead process comes free too.
        let all_live = self.pool.in_use.len() == self.pool.workers.len();
        !self.has_room() && all_live && self.pool.workers.iter().all(stuck)
    }

    /// A lease was added to its process: warns when tasks share it that wanted one of their own.
    pub(super) fn warn_of_sharing(&mut self, id: LeaseId, effects: &mut Vec<Effect>) {
        let Some(process) = self.leases.get(&id).map(|lease| lease.worker) else { return };
        let Some(worker) = self.pool.workers.get(&process) else { return };
        let leases = worker.leases.iter().filter_map(|id| self.leases.get(id));
        let room = leases.map(|lease| self.threads_of(lease.threads)).min().unwrap_or(usize::MAX);
        if worker.leases.len() > room {
            let text = "tasks share a process from now on that should have one each: what one of them changes \
                        (environment, working directory, globals) the others see";
            self.warn_of_limit(process, text, effects);
        }
    }

    /// A process has started: warns when there are more than there should be.
    pub(super) fn warn_of_excess(&mut self, process: ProcessId, effects: &mut Vec<Effect>) {
        let bound = self.processes_max();
        if self.pool.in_use.len() > bound {
            let text = format!(
                "an actor or task that cannot share a process gets one beyond the limit of {bound}; otherwise all of them \
                 could wait for each other for ever"
            );
            self.warn_of_limit(process, &text, effects);
        }
    }

    /// Warns the job of a process, once, that there are as many processes as there may be.
    fn warn_of_limit(&mut self, process: ProcessId, consequence: &str, effects: &mut Vec<Effect>) {
        let Some(worker) = self.pool.workers.get(&process) else { return };
        let Some(job) = self.jobs.all.get_mut(&worker.job).filter(|job| !job.warned_of_limit) else { return };
        job.warned_of_limit = true;
        let all = self.pool.in_use.len().min(self.processes_max());
        let text = format!(
            "all {all} worker processes of this node are taken by actors and tasks that wait, so {consequence}. Allow more \
             processes (workers_max, processes_max), or wait for fewer tasks inside tasks"
        );
        send(process, FromNode::Warning { text }, effects);
    }
}

/// Whether a task has a process to itself: memory is limited by process, and a process sees the GPUs of one task.
pub(super) fn is_exclusive(resources: &Resources) -> bool {
    resources.memory_bytes > 0 || resources.gpus.0 > 0
}
