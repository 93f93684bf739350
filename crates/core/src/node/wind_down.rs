//! The end of worker processes in good order: each is asked first, and killed when it takes too long.
//!
//! Destructors of Rust actors, shutdown hooks and exit handlers of Python programs run only in a process that ends itself.
//! So a killed actor, an ended job and a stopped node send [`FromNode::End`]. A process that has nothing more to run answers with
//! `Goodbye` and gets a longer time for the user's last code; one that is busy for [`END_GRACE_US`] is killed. Processes that
//! cannot be trusted to answer (corrupt, out of memory, deaf to cancellation) are killed at once.

use super::{Effect, Node, send};
use crate::failure::DeathCause;
use crate::id::ProcessId;
use crate::message::FromNode;
use crate::time::Tick;

/// Time that a process which was asked to end may go on with what it runs.
pub const END_GRACE_US: u64 = 1_000_000;
/// Time that the user's last code may take: destructors, exit handlers.
pub const LAST_CODE_GRACE_US: u64 = 5_000_000;

impl Node {
    /// Ends a worker process: asks it when it can hear, kills it when it cannot. Asking again changes nothing.
    pub(super) fn ask_to_end(&mut self, process: ProcessId, cause: DeathCause, now: Tick, effects: &mut Vec<Effect>) {
        let hears = self.live.contains(&process);
        match self.pool.workers.get_mut(&process) {
            Some(worker) if hears && worker.ended.is_none() => {
                worker.ended = Some(cause);
                worker.end_by = Some(now.plus_us(END_GRACE_US));
                send(process, FromNode::End, effects);
            }
            Some(worker) if worker.ended.is_some() => {}
            _ => self.kill(process, cause, effects),
        }
    }

    /// A process that was asked to end runs nothing more but the user's last code.
    pub(super) fn is_leaving(&mut self, process: ProcessId, now: Tick) {
        if let Some(worker) = self.pool.workers.get_mut(&process)
            && worker.end_by.is_some()
        {
            worker.end_by = Some(now.plus_us(LAST_CODE_GRACE_US));
        }
    }

    /// Kills those that had their time.
    pub(super) fn kill_overdue(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let overdue = self.pool.workers.iter().filter(|(_, worker)| worker.end_by.is_some_and(|by| by <= now));
        let overdue: Vec<ProcessId> = overdue.map(|(process, _)| *process).collect();
        for process in overdue {
            self.kill(process, DeathCause::Ended("it did not end when asked".into()), effects);
        }
    }

    /// This node ends: every worker is asked to, and no other is started.
    pub(super) fn stop(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        self.stopping = true;
        let workers: Vec<ProcessId> = self.pool.workers.keys().copied().collect();
        for process in workers {
            self.ask_to_end(process, DeathCause::Ended("its node was stopped".into()), now, effects);
        }
    }
}
