//! What must hold, one file each. The shell tells [`Watch`] what it sees; the first broken invariant ends the run.

pub mod attempts;
pub mod calls;
pub mod concurrency;
pub mod environments;
pub mod freed;
pub mod gpus;
pub mod order;
pub mod resources;
pub mod rest;
pub mod streams;
pub mod values;

use bireme_core::failure::Failure;
use bireme_core::id::{ActorId, ObjectId, ProcessId, TaskId};
use bireme_core::ledger::Snapshot;
use bireme_core::spec::TaskSpec;
use bireme_core::stream::{READ_ONCE, Stream};
use bireme_core::value::{Body, Location, Value};

use crate::cluster::Cluster;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: &'static str,
    /// What was seen.
    pub text: String,
    /// Parts of story lines that concern it.
    pub concerns: Vec<String>,
}

impl Violation {
    /// Something that was submitted does not end.
    pub fn stuck(cluster: &Cluster) -> Self {
        let mut text = String::from("not everything that was submitted has ended:\n");
        let mut concerns = Vec::new();
        for (process, entry) in &cluster.processes {
            for thread in entry.threads.values() {
                text += &format!("  {process} thread {thread:?}\n");
            }
            if entry.owner.pending() > 0 {
                text += &format!("  {process} owner {:?}\n", entry.owner);
            }
        }
        let ids = cluster.node.ledger().task_ids();
        for id in &ids {
            text += &format!("  ledger {id}: {:?}\n", cluster.node.ledger().task(*id).map(|entry| &entry.state));
        }
        text += &format!("  node: {:?}\n", cluster.node.snapshot(cluster.now));
        concerns.extend(ids.iter().take(4).map(ToString::to_string));
        Self { invariant: "everything ends", text, concerns }
    }
}

/// All that is watched during a run.
#[derive(Debug, Default)]
pub struct Watch {
    calm: bool,
    values: values::Values,
    attempts: attempts::Attempts,
    environments: environments::Environments,
    concurrency: concurrency::Concurrency,
    gpus: gpus::Gpus,
    calls: calls::Calls,
    order: order::Order,
    streams: streams::Streams,
    violation: Option<Violation>,
}

impl Watch {
    /// A watch over a run; in a calm one nothing may fail that is not planned to.
    pub fn new(calm: bool) -> Self {
        Self { calm, ..Self::default() }
    }

    /// The first broken invariant.
    pub fn take_violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    fn note(&mut self, result: Result<(), Violation>) {
        if let (Err(violation), None) = (result, &self.violation) {
            self.violation = Some(violation);
        }
    }

    /// User code in `process` sees a value.
    pub fn observed(&mut self, object: ObjectId, value: &Value, process: ProcessId) {
        let seen = self.values.observed(object, value, process);
        self.note(seen);
        self.note(freed::check(object, value, process));
        if self.calm && value.failure().is_some_and(|failure| !planned(failure)) {
            let text = format!("{process} sees {object} fail though nothing went wrong: {}", value.body);
            let concerns = vec![object.task().to_string()];
            self.note(Err(Violation { invariant: "a calm run succeeds", text, concerns }));
        }
    }

    /// Nobody can ask for the object any more.
    pub fn freed(&mut self, object: ObjectId) {
        self.values.freed(object);
    }

    /// A process begins to run a task.
    pub fn started(&mut self, process: ProcessId, spec: &TaskSpec, gpus: &[u32]) {
        let started = self.attempts.started(process, spec.id);
        self.note(started);
        let served = self.environments.started(process, spec);
        self.note(served);
        let assigned = self.gpus.started(process, spec, gpus);
        self.note(assigned);
        let counted = self.calls.started(process, spec);
        self.note(counted);
    }

    /// The same in full: `concurrency_max` is what the program says of a constructor's actor.
    pub fn began(&mut self, process: ProcessId, spec: &TaskSpec, concurrency_max: u32) {
        let began = self.concurrency.began(process, spec, concurrency_max as usize);
        self.note(began);
    }

    /// It has ended it.
    pub fn ended(&mut self, process: ProcessId, task: TaskId) {
        self.attempts.ended(process, task);
        self.concurrency.ended(process, task);
        self.gpus.ended(process, task);
    }

    /// A process is gone.
    pub fn died(&mut self, process: ProcessId) {
        self.attempts.died(process);
        self.values.died(process);
        self.environments.died(process);
        self.concurrency.died(process);
        self.gpus.died(process);
        self.calls.died(process);
    }

    /// An actor applies a call.
    pub fn applied(&mut self, process: ProcessId, actor: ActorId, caller: ProcessId, sequence: u64, task: TaskId) {
        let applied = self.order.applied(process, actor, caller, sequence, task);
        self.note(applied);
    }

    /// A task yields an item.
    pub fn yielded(&mut self, task: TaskId, index: u32, stream: Stream) {
        let yielded = self.streams.yielded(task, index, stream);
        self.note(yielded);
    }

    /// A run of a stream has ended well.
    pub fn whole(&mut self, task: TaskId, items: u32) {
        self.streams.whole(task, items);
    }

    /// A reader has taken items.
    pub fn taken(&mut self, task: TaskId, items: u32) {
        self.streams.taken(task, items);
    }

    /// A reader sees an item, or what is in its place.
    pub fn item(&mut self, object: ObjectId, value: &Value, process: ProcessId) {
        let item = self.streams.item(object, value, process);
        self.note(item);
        // A reader that runs again does not get what it took the first time.
        let gone = |failure: &Failure| match failure {
            Failure::ObjectLost { reason, .. } => reason == READ_ONCE && self.streams.was_taken(object),
            failure => matches!(failure, Failure::StreamEnded { .. }),
        };
        if !value.failure().is_some_and(gone) {
            self.observed(object, value, process);
        }
    }

    /// An item was recorded.
    pub fn stored(&mut self, value: &Value) {
        if let Body::Stored(at) = value.body {
            self.streams.stored(at);
        }
    }

    /// The store frees bytes.
    pub fn freed_stored(&mut self, at: Location) {
        self.streams.freed_stored(at);
    }

    /// How many items are in the store.
    pub fn stored_count(&self) -> usize {
        self.streams.stored_count()
    }

    /// The node's own account.
    pub fn resources(&mut self, snapshot: &Snapshot) {
        self.note(resources::check(snapshot));
    }
}

fn planned(failure: &Failure) -> bool {
    matches!(failure, Failure::Returned { .. })
}
