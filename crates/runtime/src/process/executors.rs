//! The books of the threads that run tasks: what waits for one, how many there are, and who can be asked to stop.
//!
//! An executor takes an execution, runs it and ends it, or defers it: then a [`crate::Ticket`] ends it later, from any
//! thread, and the executor is free at once. Executions are taken in the order in which the worker machine started them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use bireme_core::id::TaskId;
use bireme_core::map::IdMap;
use bireme_core::worker::Execution;

use super::{Inner, Lead, Process};

/// An execution and the flag by which it can be asked to stop.
pub(crate) type Taken = (Execution, Arc<AtomicBool>);

#[derive(Default)]
pub(super) struct Executors {
    waiting: VecDeque<Taken>,
    count: u32,
    /// Those that wait for something to run, leading or parked.
    idle: u32,
    pub(super) parked: Vec<Thread>,
    /// One executor at a time takes executions: they defer, so that they begin in order and need no thread each.
    one_at_a_time: bool,
    /// Everything that was started and has not ended.
    flags: IdMap<TaskId, Arc<AtomicBool>>,
}

impl Executors {
    /// Something is to be run.
    pub(super) fn push(&mut self, execution: Execution) {
        let flag = Arc::new(AtomicBool::new(false));
        self.flags.insert(execution.spec.id, Arc::clone(&flag));
        self.waiting.push_back((execution, flag));
    }

    /// A task is asked to stop. False when there is no such task.
    pub(super) fn flag(&self, task: &TaskId) -> bool {
        let flag = self.flags.get(task);
        flag.inspect(|flag| flag.store(true, Ordering::Release)).is_some()
    }

    /// Whether an idle executor would get something.
    fn has_work(&self) -> bool {
        let held_back = self.one_at_a_time && self.count > self.idle;
        !self.waiting.is_empty() && !held_back
    }
}

impl Process {
    /// The next execution for an executor that has just finished one. While the pump ticks, the executor stays present
    /// on the doorbell, so that peers feed it without a system call.
    pub(crate) fn next_execution(&self, inner: &mut Inner) -> Option<Taken> {
        self.look(inner);
        let next = inner.take_execution();
        match (&next, inner.lead) {
            (Some(_), Lead::Pump) if inner.pump_ticks => {
                inner.lead = Lead::Executor;
                self.doorbell.enter_caller();
            }
            (None, Lead::Executor) => {
                inner.lead = Lead::Pump;
                self.doorbell.leave_caller();
            }
            _ => {}
        }
        next
    }

    /// Rings the thread that leads when it may be an executor that has to take what was just queued: it sleeps on the bell,
    /// where only messages would wake it.
    pub(crate) fn wake_leader(&self, inner: &Inner) {
        if inner.lead == Lead::Caller && inner.executors.has_work() {
            self.doorbell.ring_self();
        }
    }
}

impl Inner {
    /// One more executor, which is about to wait for work.
    pub(crate) fn begin_executor(&mut self) {
        self.executors.count += 1;
        self.executors.idle += 1;
    }

    /// An executor could not be started.
    pub(crate) fn end_executor(&mut self) {
        self.executors.count -= 1;
        self.executors.idle -= 1;
    }

    /// Wakes a parked executor for a queued execution. True when a new one has to be started.
    pub(crate) fn executor_needed(&mut self, executors_max: u32) -> bool {
        let executors = &mut self.executors;
        if let Some(parked) = executors.parked.pop() {
            parked.unpark();
        }
        let enough = executors.one_at_a_time && executors.count > 0;
        !enough && executors.waiting.len() > executors.idle as usize && executors.count < executors_max
    }

    /// From here on executions are taken one after the other: see [`Executors`].
    pub(crate) fn take_one_at_a_time(&mut self) {
        self.executors.one_at_a_time = true;
    }

    /// Takes the next execution for an idle executor.
    pub(crate) fn take_execution(&mut self) -> Option<Taken> {
        if !self.executors.has_work() {
            return None;
        }
        let taken = self.executors.waiting.pop_front()?;
        self.executors.idle -= 1;
        Some(taken)
    }

    /// An executor is about to look for another execution.
    pub(crate) fn free_executor(&mut self) {
        self.progress += 1;
        self.executors.idle += 1;
    }

    /// Whether something was started and has not ended.
    pub(crate) fn is_busy(&self) -> bool {
        !self.executors.flags.is_empty()
    }

    /// A task has ended: it cannot be asked to stop any more.
    pub(crate) fn end_task(&mut self, task: &TaskId) {
        self.executors.flags.remove(task);
    }
}
