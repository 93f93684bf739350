//! Room for another process: which idle ones end when there are as many as there may be.
//!
//! Somebody whose resources are free may wait for a process all the same, because the idle ones are of another
//! environment (ENV-1) or spent. Then the idle one that owns nothing and has been idle longest is asked to end; as a last
//! resort one that owns only values, which the node keeps for those who hold them. One with tasks that have not ended,
//! or with actors, stays.

use super::pool::{Worker, WorkerState};
use super::queue::{Ask, OVERTAKES_MAX};
use super::{Effect, Node};
use crate::id::{ObjectId, ProcessId};
use crate::ledger::tables::TaskState;
use crate::time::Tick;

impl Node {
    /// Ends idle processes that stand in the way. Those who were passed over often come before the rest.
    pub(super) fn make_room(&mut self, passed_over: bool, now: Tick, effects: &mut Vec<Effect>) {
        for process in self.room_makers(passed_over) {
            self.retire(process, now, effects);
        }
    }

    /// The processes that would have to end.
    pub(super) fn room_makers(&self, passed_over: bool) -> Vec<ProcessId> {
        let lacking = self.lacking_process(passed_over);
        if lacking == 0 {
            return Vec::new();
        }
        let staying = |w: &&Worker| w.ended.is_none() && !matches!(w.state, WorkerState::Retiring { .. });
        let leaving = self.pool.in_use.len() - self.pool.workers.values().filter(staying).count();
        let mut idle: Vec<(bool, Tick, ProcessId)> = Vec::new();
        for (process, worker) in &self.pool.workers {
            if let WorkerState::Idle { since } = worker.state
                && worker.ended.is_none()
            {
                idle.push((self.owns_something(*process), since, *process));
            }
        }
        idle.sort_unstable();
        let able = idle.into_iter().filter(|(_, _, process)| self.may_end(*process));
        able.map(|(_, _, process)| process).take(lacking.saturating_sub(leaving)).collect()
    }

    /// Whether an idle process may be ended to make room.
    pub(super) fn may_end(&self, process: ProcessId) -> bool {
        !self.owns_something(process) || self.owns_only_values(process)
    }

    /// Whether all that the process owns is there and stays when it goes.
    fn owns_only_values(&self, process: ProcessId) -> bool {
        let finished = |object: &ObjectId| {
            let task = self.ledger.task(object.task());
            object.is_put() || task.is_some_and(|entry| matches!(entry.state, TaskState::Finished { .. }))
        };
        !self.actors.has_owner(process) && self.ledger.objects_of(process).iter().all(finished)
    }

    /// How many processes are missing for asks whose resources are free.
    fn lacking_process(&self, passed_over: bool) -> usize {
        if self.has_room() {
            return 0;
        }
        let (mut free, mut lacking) = (self.free.clone(), 0);
        for (_, waiting) in self.queue.in_order() {
            let often = waiting.overtaken >= OVERTAKES_MAX;
            let reserves = matches!(waiting.ask, Ask::Group { .. });
            let elsewhere = !self.may_start_here(waiting);
            if reserves || elsewhere || (passed_over && !often) || !self.fits(waiting) || self.pick(waiting).is_some() {
                continue;
            }
            let most = waiting.ask.wanted().min(self.pool.in_use.len() as u32);
            lacking += self.grants_possible(waiting, &mut free, most) as usize;
        }
        lacking
    }
}
