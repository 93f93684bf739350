//! Step tests: a state, an event, the exact effects.

#![allow(clippy::unwrap_used)]

mod adoption;
mod calls;
mod cancel;
mod deaths;
mod forward;
mod groups;
mod leases;
mod objects;
mod reduces;
mod streams;
mod tasks;

use std::sync::Arc;

use super::*;
use crate::failure::{DeathCause, Failure};
use crate::id::FunctionKey;
use crate::message::Adoption;
use crate::record::Record;
use crate::resources::{Amount, Resources};
use crate::spec::{ActorOptions, TaskKind, TaskOptions};

const ME: ProcessId = ProcessId::DRIVER;
const W1: ProcessId = ProcessId { node: crate::id::NodeId::ALONE, slot: 2, incarnation: 1 };
const W2: ProcessId = ProcessId { node: crate::id::NodeId::ALONE, slot: 3, incarnation: 1 };
const L1: LeaseId = LeaseId(1);
const L2: LeaseId = LeaseId(2);
/// The first question that an owner asks.
const FIRST_REQUEST: RequestId = 1 << 63;

/// An owner with a clock and a user who names tasks.
struct Bench {
    owner: Owner,
    root: TaskId,
    submitted: u64,
    now: Tick,
}

impl Bench {
    fn new() -> Self {
        let owner = Owner::new(ME, OwnerConfig::default());
        Self { owner, root: TaskId::root(1, ME), submitted: 0, now: Tick(10) }
    }

    fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.owner.step(event, self.now, &mut effects);
        effects
    }

    fn node(&mut self, message: FromNode) -> Vec<Effect> {
        self.step(Event::FromNode(message))
    }

    fn peer(&mut self, peer: ProcessId, message: Peer) -> Vec<Effect> {
        self.step(Event::FromPeer { peer, message })
    }

    fn spec(&mut self, kind: TaskKind, dependencies: &[RefSpec]) -> TaskSpec {
        self.submitted += 1;
        let options = TaskOptions {
            name: "work".into(),
            resources: Resources::cpus(Amount::whole(1)),
            retries_max: 1,
            retry_on: vec!["Flaky".into()],
            ..TaskOptions::default()
        };
        TaskSpec {
            id: self.root.child(0, self.submitted, 0),
            parent: self.root,
            function: FunctionKey::of("work"),
            digest: 7,
            attempt: 0,
            lane: 0,
            depth: 1,
            returns: 1,
            kind,
            stream: None,
            options: Arc::new(options),
            dependencies: dependencies.to_vec(),
            nested: Vec::new(),
            payload: vec![1, 2, 3].into(),
        }
    }

    fn task(&mut self) -> TaskSpec {
        self.spec(TaskKind::Plain, &[])
    }

    fn submit(&mut self, spec: &TaskSpec) -> Vec<Effect> {
        self.step(Event::Submitted(spec.clone()))
    }

    /// A task that is with W1 under L1.
    fn sent_task(&mut self) -> TaskSpec {
        let spec = self.task();
        self.submit(&spec);
        self.grant(L1, W1);
        spec
    }

    fn grant(&mut self, lease: LeaseId, worker: ProcessId) -> Vec<Effect> {
        self.node(FromNode::Granted { pool: 0, lease, worker })
    }

    fn reply(&mut self, spec: &TaskSpec, value: Value) -> Vec<Effect> {
        let message = Peer::Reply { task: spec.id, attempt: spec.attempt, values: vec![value], duration_us: 100 };
        self.peer(W1, message)
    }

    fn drop_result(&mut self, spec: &TaskSpec) -> Vec<Effect> {
        self.step(Event::RefDropped(result(spec)))
    }

    fn die(&mut self, process: ProcessId) -> Vec<Effect> {
        self.node(FromNode::ProcessDied(Box::new(death(process, None))))
    }

    fn answer(&mut self, request: RequestId, adoption: Adoption) -> Vec<Effect> {
        self.node(FromNode::Adopted { request, adoption, attempt: 0, started: false })
    }

    fn state(&self, spec: &TaskSpec) -> Option<TaskState> {
        self.owner.tasks.get(&spec.id).map(|entry| entry.state.clone())
    }

    fn submitted(&self, spec: &TaskSpec) -> Effect {
        Effect::Record(Record::Submitted { at: self.now, spec: Arc::new(spec.clone()) })
    }

    /// Nothing of anything is left.
    fn assert_at_rest(&self) {
        assert_eq!((self.owner.pending(), self.owner.object_count()), (0, 0), "{:?}", self.owner);
        assert!(self.owner.questions.is_empty() && self.owner.cancels.is_empty(), "{:?}", self.owner);
    }
}

/// References came with a task of W1.
fn arrived(refs: Vec<RefSpec>) -> Event {
    Event::ArgumentsArrived { from: W1, refs }
}

fn result(spec: &TaskSpec) -> ObjectId {
    ObjectId::result(spec.id, 0)
}

fn mine(spec: &TaskSpec) -> RefSpec {
    RefSpec { object: result(spec), owner: ME }
}

fn value(byte: u8) -> Value {
    Value::inline(vec![byte])
}

fn holding(byte: u8, nested: RefSpec) -> Value {
    Value { nested: vec![nested], ..value(byte) }
}

fn again(spec: &TaskSpec) -> TaskSpec {
    TaskSpec { attempt: spec.attempt + 1, ..spec.clone() }
}

fn death(process: ProcessId, culprit: Option<TaskId>) -> Death {
    Death {
        process,
        pid: 9,
        cause: DeathCause::Signalled(9),
        stderr_tail: String::new(),
        memory_peak_bytes: 0,
        culprit,
    }
}

fn run(lease: LeaseId, to: ProcessId, spec: &TaskSpec, resolved: Vec<Value>) -> Effect {
    Effect::Send { to, message: Peer::Run { lease, spec: Arc::new(spec.clone()), resolved } }
}

fn called(number: u64, to: ProcessId, spec: &TaskSpec, resolved: Vec<Value>) -> Effect {
    Effect::Send { to, message: Peer::Call { number, spec: Arc::new(spec.clone()), resolved } }
}

fn say(to: ProcessId, message: Peer) -> Effect {
    Effect::Send { to, message }
}

fn want(count: u32, depth: u32) -> Effect {
    want_in(0, count, depth)
}

fn want_in(pool: u32, count: u32, depth: u32) -> Effect {
    let resources = Resources::cpus(Amount::whole(1));
    Effect::Node(ToNode::WantLeases {
        pool,
        shape: crate::spec::Shape { resources, ..Default::default() },
        count,
        depth,
    })
}

fn freed(object: ObjectId) -> Effect {
    Effect::Record(Record::Freed { object })
}

fn settled(spec: &TaskSpec, failure: Failure) -> Effect {
    Effect::Record(Record::Settled { task: spec.id, value: Value::failed(failure) })
}

fn cancelled(spec: &TaskSpec) -> Effect {
    settled(spec, Failure::Cancelled { task: spec.id })
}

fn ask(request: RequestId, spec: &TaskSpec) -> Effect {
    Effect::Node(ToNode::Adopt { request, object: result(spec), digest: spec.digest, items: 0 })
}

fn all_settled(dead: ProcessId) -> Effect {
    Effect::Node(ToNode::Settled { dead })
}
