//! Deferred ends: a task that goes on after its function has returned, on no thread of ours.
//!
//! For interpreters with an event loop: [`Invocation::defer`] takes a [`Ticket`], the function returns and the executor
//! goes on with the next execution; [`Ticket::finish`] ends the task from any thread, as the executor would have. Every
//! task ends once: by its ticket, by an error or panic of the function that took it, or by the drop of the ticket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bireme_core::failure::Failure;
use bireme_core::id::TaskId;
use bireme_core::spec::TaskKind;
use bireme_core::value::Value;
use bireme_core::worker::{Event, Execution};

use crate::function::{Encoded, Invocation};
use crate::process::{Context, Process, swap_context};
use crate::worker::{as_failure, failed};

/// What a result of a deferred task is: its outputs, or why there are none.
pub type Outcome = Result<Vec<Encoded>, Failure>;

/// What an invocation needs to be deferred.
pub(crate) struct Deferral<'a> {
    pub(crate) process: &'a Arc<Process>,
    pub(crate) execution: &'a Execution,
    pub(crate) flag: &'a Arc<AtomicBool>,
    /// Set when a ticket was taken; true inside when the task has ended.
    pub(crate) taken: Option<Arc<AtomicBool>>,
}

impl Invocation<'_> {
    /// Takes over the end of this task: when the function returns `Ok`, the task goes on until the ticket is finished.
    ///
    /// What the current thread submits after this is not the task's: use [`Ticket::scope`].
    ///
    /// # Panics
    /// When it was called before: a task ends once.
    pub fn defer(&mut self) -> Ticket {
        let Deferral { process, execution, flag, taken } = &mut self.deferral;
        assert!(taken.is_none(), "a task is deferred once");
        let ended = Arc::new(AtomicBool::new(false));
        *taken = Some(Arc::clone(&ended));
        let (lease, spec) = (execution.lease, Arc::clone(&execution.spec));
        let execution = Execution { lease, spec, lane: 0, resolved: Vec::new(), gpus: Vec::new() };
        let process = Arc::clone(process);
        Ticket { process, execution, flag: Arc::clone(flag), ended, context: swap_context(None) }
    }

    /// Says, in a constructor, that all calls of this actor defer: one thread takes them, one after the other, so they
    /// begin in order and no others are started for them. Ignored elsewhere.
    pub fn calls_defer(&mut self) {
        if matches!(self.spec.kind, TaskKind::Create(_)) {
            self.deferral.process.lock().take_one_at_a_time();
        }
    }
}

/// The right and the duty to end a task. Dropped unfinished, it ends the task with a failure that says so.
#[must_use = "a dropped ticket fails its task"]
pub struct Ticket {
    process: Arc<Process>,
    execution: Execution,
    flag: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    context: Option<Context>,
}

impl Ticket {
    /// The task.
    pub fn task(&self) -> TaskId {
        self.execution.spec.id
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Whether the task was asked to stop. [`set_cancel_hook`](crate::set_cancel_hook) tells when; it may have been before
    /// the ticket was taken.
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Runs `body` as the task: what it submits is named by the task, and is cancelled with it.
    pub fn scope<R>(&mut self, body: impl FnOnce() -> R) -> R {
        struct Entered<'a>(&'a mut Option<Context>, Option<Context>);
        impl Drop for Entered<'_> {
            fn drop(&mut self) {
                *self.0 = swap_context(self.1.take());
            }
        }
        let before = swap_context(self.context.take());
        let _entered = Entered(&mut self.context, before);
        body()
    }

    /// Ends the task. Does nothing when its function has failed since.
    pub fn finish(self, outcome: Outcome) {
        Self::finish_all(vec![(self, outcome)]);
    }

    /// Ends several tasks of this process in one turn.
    pub fn finish_all(finished: Vec<(Ticket, Outcome)>) {
        let Some(process) = finished.first().map(|(ticket, _)| Arc::clone(&ticket.process)) else { return };
        let mut events = Vec::with_capacity(finished.len());
        // The outputs keep the references inside them until the worker has lent these to whom the results go to.
        let mut kept = Vec::with_capacity(finished.len());
        for (ticket, outcome) in finished {
            if ticket.ended.swap(true, Ordering::AcqRel) {
                continue;
            }
            let execution = &ticket.execution;
            let values = match outcome {
                Ok(outputs) => {
                    let values = store(&process, execution, &outputs);
                    kept.push(outputs);
                    values
                }
                Err(failure) => failed(execution, &failure),
            };
            events.push(Event::Finished { lease: execution.lease, task: execution.spec.id, values });
        }
        end(&process, events);
    }
}

/// One turn for all of them, as an executor ends its task.
fn end(process: &Process, events: Vec<Event>) {
    let mut inner = process.lock();
    for event in events {
        if let Event::Finished { task, .. } = &event {
            inner.end_task(task);
        }
        process.step_worker(&mut inner, event);
    }
    process.flush(&mut inner);
    process.wake_leader(&inner);
}

fn store(process: &Process, execution: &Execution, outputs: &[Encoded]) -> Vec<Value> {
    let stored = outputs.iter().map(|output| process.store_value(output)).collect::<Result<Vec<_>, _>>();
    stored.unwrap_or_else(|error| failed(execution, &as_failure(&error, execution)))
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let spec = &self.execution.spec;
        let failure = Failure::Returned {
            task: spec.id,
            name: spec.options.name.clone(),
            type_name: "Unfinished".into(),
            message: "the task went on after its function returned, and nobody finished it: its ticket was dropped"
                .into(),
        };
        let values = failed(&self.execution, &failure);
        end(&self.process, vec![Event::Finished { lease: self.execution.lease, task: spec.id, values }]);
    }
}
