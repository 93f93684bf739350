//! What must hold, one file each. The shell tells [`Watch`] what it sees; the first broken invariant ends the run.

pub mod attempts;
pub mod bytes;
pub mod calls;
pub mod concurrency;
pub mod environments;
pub mod freed;
pub mod gpus;
pub mod groups;
pub mod jobs;
pub mod losses;
pub mod order;
pub mod reduces;
pub mod released;
pub mod resources;
pub mod rest;
pub mod streams;
pub mod tenure;
pub mod values;

use std::collections::BTreeSet;

use bireme_core::failure::Failure;
use bireme_core::flow::Op;
use bireme_core::id::{ActorId, JobId, LeaseId, NodeId, ObjectId, ProcessId, TaskId};
use bireme_core::ledger::Snapshot;
use bireme_core::message::ToNode;
use bireme_core::reduce::Order;
use bireme_core::resources::Amount;
use bireme_core::spec::{TaskKind, TaskSpec};
use bireme_core::stream::{READ_ONCE, Stream};
use bireme_core::value::{Body, Location, RefSpec, Value};

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
        for (node, host) in &cluster.hosts {
            let ids = host.node.ledger().task_ids();
            for id in &ids {
                let state = host.node.ledger().task(*id).map(|entry| &entry.state);
                text += &format!("  ledger of {node}, {id}: {state:?}\n");
            }
            text += &format!("  {node}: {:?}\n", host.node.snapshot(cluster.now));
            concerns.extend(ids.iter().take(4).map(ToString::to_string));
        }
        Self { invariant: "everything ends", text, concerns }
    }
}

/// All that is watched during a run.
#[derive(Debug, Default)]
pub struct Watch {
    calm: bool,
    /// Processes of a job whose driver is killed: failures there are to be expected.
    doomed: BTreeSet<ProcessId>,
    jobs: jobs::Jobs,
    losses: losses::Losses,
    values: values::Values,
    running: resources::Running,
    attempts: attempts::Attempts,
    environments: environments::Environments,
    concurrency: concurrency::Concurrency,
    gpus: gpus::Gpus,
    calls: calls::Calls,
    order: order::Order,
    streams: streams::Streams,
    bytes: bytes::Bytes,
    reduces: reduces::Reduces,
    released: released::Released,
    tenures: tenure::Tenures,
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
        if self.reduces.went_with_its_owner(object, value) {
            return;
        }
        if !value.failure().is_some_and(|failure| self.losses.excuse(failure)) {
            let content = self.bytes.content(value);
            let seen = self.values.observed(object, &content, process);
            self.note(seen);
            let released = self.released.observed(object, &content, process);
            self.note(released);
            self.note(freed::check(object, value, process));
        }
        if self.calm && !self.doomed.contains(&process) && value.failure().is_some_and(|failure| !planned(failure)) {
            let text = format!("{process} sees {object} fail though nothing went wrong: {}", value.body);
            let concerns = vec![object.task().to_string()];
            self.note(Err(Violation { invariant: "a calm run succeeds", text, concerns }));
        }
    }

    /// A placement group is removed: workers are ended with it, and with them goes what they own and nobody has begun.
    pub fn group_removed(&mut self) {
        self.calm = false;
    }

    /// A process is of a job that will lose its driver.
    pub fn doom(&mut self, process: ProcessId) {
        self.doomed.insert(process);
    }

    /// A process of this job makes a task.
    pub fn made(&mut self, process: ProcessId, task: TaskId, job: Option<JobId>) {
        self.jobs.made(task, job);
        self.attempts.made(task);
        self.losses.had_part(task, process.node);
    }

    /// Whether a failure is the loss of something that went with a node.
    pub fn went_with_a_node(&self, failure: &Failure) -> bool {
        self.losses.excuse(failure)
    }

    /// A process of this job begins to run a task.
    pub fn served(&mut self, process: ProcessId, job: Option<JobId>, spec: &TaskSpec) {
        let served = self.jobs.started(process, job, spec);
        self.note(served);
    }

    /// Nobody can ask for the object any more.
    pub fn freed(&mut self, object: ObjectId) {
        self.values.freed(object);
        self.released.freed(object);
    }

    /// A machine has so many CPUs.
    pub fn machine(&mut self, node: NodeId, cpus: Amount) {
        self.running.machine(node, cpus);
    }

    /// What runs under this lease waits for something.
    pub fn waited(&mut self, process: ProcessId, lease: LeaseId) {
        self.running.waited(process, lease);
    }

    /// A process begins to run a task, which the program allows to be tried again so often.
    pub fn started(&mut self, process: ProcessId, lease: LeaseId, spec: &TaskSpec, gpus: &[u32], retries_max: u32) {
        self.losses.had_part(spec.id, process.node);
        let started = self.attempts.started(process, spec.id, retries_max);
        self.note(started);
        let fits = self.running.started(process, lease, spec);
        self.note(fits);
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
        self.running.ended(process, task);
        self.concurrency.ended(process, task);
        self.gpus.ended(process, task);
    }

    /// A task has ended well; the constructor of an actor runs in each of its lives.
    pub fn done(&mut self, process: ProcessId, spec: &TaskSpec) {
        if !matches!(spec.kind, TaskKind::Create(_)) {
            self.attempts.done(process, spec.id);
        }
    }

    /// A process is killed with what runs in it.
    pub fn killed(&mut self, process: ProcessId) {
        self.attempts.killed(process);
    }

    /// A process is gone.
    pub fn died(&mut self, process: ProcessId) {
        self.attempts.died(process);
        self.running.died(process);
        self.values.died(process);
        self.environments.died(process);
        self.concurrency.died(process);
        self.gpus.died(process);
        self.calls.died(process);
        self.tenures.died(process);
    }

    /// A run gives values.
    pub fn produced(&mut self, attempt: u32, values: &[Value]) {
        for value in values {
            self.released.made(attempt, &self.bytes.content(value));
        }
    }

    /// An actor applies a call.
    pub fn applied(
        &mut self,
        process: ProcessId,
        actor: ActorId,
        caller: (ProcessId, TaskId),
        sequence: u64,
        task: TaskId,
    ) {
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

    /// Something was stored and recorded. Says whether it is new.
    pub fn stored(&mut self, at: Location) -> bool {
        self.bytes.stored(at)
    }

    /// What lies in a place.
    pub fn content_at(&self, at: Location) -> u64 {
        self.bytes.content_at(at)
    }

    /// A process asks for a reduce.
    pub fn reduce_asked(&mut self, target: ObjectId, inputs: Vec<ObjectId>, count: u32, op: Op, order: Order) {
        self.reduces.asked(target, inputs, count, op, order);
    }

    /// A stage of a reduce has made what lies there.
    pub fn folded(&mut self, at: Location, folded: reduces::Folded) {
        self.reduces.folded(self.bytes.content_at(at), folded);
    }

    /// A process has combined small inputs.
    pub fn combined(&mut self, target: ObjectId, inputs: Vec<ObjectId>) {
        self.reduces.combined(target, inputs);
    }

    /// A process records the value of an object, and says which inputs it is made of when it is the result of a reduce.
    pub fn recorded(&mut self, process: ProcessId, object: ObjectId, value: &Value, used: Option<&[u32]>) {
        let content = if let Body::Stored(at) = value.body { Some(self.bytes.content_at(at)) } else { None };
        self.losses.recorded(object, process.node, content);
        if let Some(content) = content {
            self.reduces.recorded(object, content);
        }
        let released = self.reduces.released(object, value, content, used);
        self.note(released);
    }

    /// A copy was made.
    pub fn copied(&mut self, of: Location, at: Location) {
        self.bytes.copied(of, at);
        self.losses.copied(self.bytes.content_at(at), at.node);
    }

    /// The store frees bytes.
    pub fn freed_stored(&mut self, at: Location) {
        self.bytes.freed(at);
    }

    /// What is in the stores.
    pub fn lying(&self) -> impl Iterator<Item = String> + '_ {
        self.bytes.lying()
    }

    /// A process cannot read an object that it holds.
    pub fn unreadable(&mut self, reference: RefSpec, at: Location, reason: &str, process: ProcessId) {
        self.note(self.bytes.unreadable(self.calm, (reference, at), reason, process));
    }

    /// A process finds that a call never came to it.
    pub fn call_lost(&mut self, process: ProcessId, request: &ToNode) {
        let text = format!("{process} misses a call: {request:?}");
        self.note(Err(Violation { invariant: "no call is lost", text, concerns: vec![] }));
    }

    /// A node is gone with all that it had.
    pub fn node_lost(&mut self, node: NodeId) {
        self.losses.node_lost(node);
        self.bytes.node_lost(node);
        self.values.node_lost(node);
        self.released.node_lost(node);
    }

    /// What the bundles of all nodes say.
    pub fn groups(&mut self, result: Result<(), Violation>) {
        self.note(result);
    }

    /// The controller declares a node dead, of which so many processes run.
    pub fn declared_dead(&mut self, node: NodeId, running: usize) {
        self.note(self.tenures.declared_dead(node, running));
    }

    /// A process hears of the death of a node.
    pub fn buried(&mut self, process: ProcessId, node: NodeId) {
        self.tenures.buried(process, node);
    }

    /// A process hears a process of another node.
    pub fn relayed(&mut self, process: ProcessId, from: ProcessId) {
        self.note(self.tenures.relayed(process, from));
    }

    /// The node's own account.
    pub fn resources(&mut self, snapshot: &Snapshot, debt_in_bundles: Amount) {
        self.note(resources::check(snapshot, debt_in_bundles));
    }
}

fn planned(failure: &Failure) -> bool {
    match failure {
        Failure::Returned { .. } => true,
        // Of what is planned to fail.
        Failure::Reduce { reason, .. } => reason.contains("planned"),
        _ => false,
    }
}
