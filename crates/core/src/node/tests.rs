//! Step tests: state + event → exact effects.

#![allow(clippy::unwrap_used)]

mod actors;
mod bundles;
mod collectives;
mod copying;
mod deaths;
mod draining;
mod environments;
mod explain;
mod gpus;
mod groups;
mod jobs;
mod joins;
mod leases;
mod lending;
mod oversubscription;
mod overview;
mod passing;
mod placement;
mod pool;
mod pressure;
mod reduces;
mod sharing;
mod waits;
mod wind_down;

use std::sync::Arc;

use super::*;
use crate::failure::DeathCause;
use crate::id::{ActorId, FunctionKey};
use crate::shared::Shared;
use crate::spec::{ActorOptions, TaskKind, TaskOptions, TaskSpec};
use crate::value::Value;

pub(super) const DRIVER: ProcessId = ProcessId::DRIVER;
pub(super) const W2: ProcessId = worker(2, 1);
pub(super) const W3: ProcessId = worker(3, 1);
pub(super) const W4: ProcessId = worker(4, 1);

pub(super) const fn worker(slot: u32, incarnation: u32) -> ProcessId {
    ProcessId { node: crate::id::NodeId::ALONE, slot, incarnation }
}

pub(super) fn cpus(n: f64) -> Resources {
    Resources::cpus(Amount::from_f64("cpus", n).unwrap())
}

pub(super) struct Fixture {
    pub(super) node: Node,
    pub(super) now: Tick,
}

impl Fixture {
    /// A machine with this many CPUs, one gpu, 1,000 bytes; no worker is started ahead.
    pub(super) fn new(whole_cpus: u64) -> Self {
        let mut total = Resources::cpus(Amount::whole(whole_cpus));
        total.gpus = Amount::whole(1);
        total.memory_bytes = 1_000;
        Self::with(NodeConfig { prestart: 0, processes_max: 8, ..NodeConfig::for_machine(total) })
    }

    pub(super) fn with(config: NodeConfig) -> Self {
        Self { node: Node::new(config), now: Tick(0) }
    }

    /// The effects without the word that precedes the first message to another node (JOIN-1).
    pub(super) fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.node.step(event, self.now, &mut effects);
        let is_word =
            |effect: &Effect| matches!(effect, Effect::Tell { message: crate::message::Between::Knows { .. }, .. });
        effects.retain(|effect| !is_word(effect));
        effects
    }

    pub(super) fn ask(&mut self, process: ProcessId, request: ToNode) -> Vec<Effect> {
        self.step(Event::Requested { process, request })
    }

    pub(super) fn record(&mut self, process: ProcessId, record: Record) -> Vec<Effect> {
        self.step(Event::Recorded { process, record })
    }

    pub(super) fn want(&mut self, owner: ProcessId, count: u32, resources: Resources) -> Vec<Effect> {
        self.want_at(owner, 0, count, resources, 0)
    }

    pub(super) fn want_at(
        &mut self,
        owner: ProcessId,
        pool: u32,
        count: u32,
        resources: Resources,
        depth: u32,
    ) -> Vec<Effect> {
        self.ask(
            owner,
            ToNode::WantLeases { pool, shape: crate::spec::Shape { resources, ..Default::default() }, count, depth },
        )
    }

    pub(super) fn hello(&mut self, process: ProcessId) -> Vec<Effect> {
        self.step(Event::WorkerSpawned { process, pid: 100 + process.slot });
        self.ask(process, ToNode::Hello)
    }

    /// Wants leases and greets every worker that is spawned for them.
    pub(super) fn leased(&mut self, owner: ProcessId, count: u32, resources: Resources) -> Vec<(LeaseId, ProcessId)> {
        let mut effects = self.want(owner, count, resources);
        let spawned: Vec<ProcessId> = spawned(&effects);
        for process in spawned {
            effects.extend(self.hello(process));
        }
        granted(&effects)
    }

    pub(super) fn exit(&mut self, process: ProcessId) -> Vec<Effect> {
        self.step(Event::WorkerExited(death(process)))
    }

    /// Settles; when it was the last to, everybody reads what is on its way.
    pub(super) fn settle(&mut self, process: ProcessId, dead: ProcessId) -> Vec<Effect> {
        let (mut asked, mut others) = (Vec::new(), Vec::new());
        for effect in self.ask(process, ToNode::Settled { dead }) {
            match effect {
                Effect::Send { to, message: FromNode::Flush { .. } } => asked.push(to),
                Effect::Send { message: FromNode::ProcessDied(_), .. } => {}
                other => others.push(other),
            }
        }
        for process in asked {
            others.extend(self.ask(process, ToNode::Flushed { dead }));
        }
        others
    }

    pub(super) fn submit(&mut self, owner: ProcessId, spec: &Arc<TaskSpec>) {
        self.record(owner, Record::Submitted { at: self.now, spec: spec.clone() });
    }

    pub(super) fn start(&mut self, process: ProcessId, task: TaskId) {
        self.record(process, Record::Started { at: self.now, task, attempt: 0 });
    }

    pub(super) fn finish(&mut self, process: ProcessId, task: TaskId, value: Value) -> Vec<Effect> {
        self.record(process, Record::Finished { at: self.now, task, attempt: 0, values: vec![value] })
    }
}

pub(super) fn death(process: ProcessId) -> Death {
    Death {
        process,
        pid: 0,
        cause: DeathCause::Signalled(9),
        stderr_tail: String::new(),
        memory_peak_bytes: 0,
        culprit: None,
    }
}

/// The death as the node passes it on.
pub(super) fn died(process: ProcessId, cause: DeathCause) -> FromNode {
    FromNode::ProcessDied(Box::new(Death { pid: 100 + process.slot, cause, ..death(process) }))
}

pub(super) fn to(to: ProcessId, message: FromNode) -> Effect {
    Effect::Send { to, message }
}

pub(super) fn link(a: ProcessId, b: ProcessId) -> Effect {
    Effect::OpenLink { a, b }
}

pub(super) fn grant_effects(owner: ProcessId, pool: u32, lease: u64, worker: ProcessId) -> Vec<Effect> {
    let lease = LeaseId(lease);
    vec![
        link(owner, worker),
        to(worker, FromNode::LeaseOpened { lease, owner, gpus: vec![] }),
        to(owner, FromNode::Granted { pool, lease, worker }),
    ]
}

pub(super) fn granted(effects: &[Effect]) -> Vec<(LeaseId, ProcessId)> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Send { message: FromNode::Granted { lease, worker, .. }, .. } => Some((*lease, *worker)),
            _ => None,
        })
        .collect()
}

pub(super) fn spawned(effects: &[Effect]) -> Vec<ProcessId> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Spawn(process) = effect { Some(*process) } else { None })
        .collect()
}

pub(super) fn root(process: ProcessId) -> TaskId {
    TaskId::root(1, process)
}

pub(super) fn spec(parent: TaskId, n: u64, kind: TaskKind, resources: Resources) -> Arc<TaskSpec> {
    let options = TaskOptions { name: "work".into(), resources, retries_max: 3, ..TaskOptions::default() };
    Arc::new(TaskSpec {
        id: parent.child(0, n, 0),
        parent,
        function: FunctionKey(1),
        digest: 7,
        attempt: 0,
        lane: 0,
        depth: 1,
        returns: 1,
        kind,
        stream: None,
        options: Arc::new(options),
        dependencies: Vec::new(),
        nested: Vec::new(),
        payload: Shared::default(),
    })
}

pub(super) fn plain(parent: TaskId, n: u64) -> Arc<TaskSpec> {
    spec(parent, n, TaskKind::Plain, cpus(1.0))
}

pub(super) fn actor_spec(n: u64, name: Option<&str>, restarts_max: u32) -> Arc<TaskSpec> {
    let options = ActorOptions { name: name.map(str::to_owned), restarts_max, ..ActorOptions::default() };
    spec(root(DRIVER), n, TaskKind::Create(options), cpus(1.0))
}

pub(super) fn actor_of(spec: &TaskSpec) -> ActorId {
    ActorId(spec.id)
}
