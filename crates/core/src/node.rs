//! The node's decisions: who runs where, who lives, who owns what after a death.
//!
//! The shell (`runtime::node`) feeds [`Event`]s: requests and records of all processes in the order of their rings, exits
//! of workers (after their rings are drained), passes over all rings, time. It carries out [`Effect`]s in order. Store
//! requests and the paging of snapshots are the shell's own work; they pass through as [`Effect::Store`].
//!
//! Invariants: RES-1 (`leases`): the leases whose tasks run never hold more than the machine has, except for tasks that
//! resumed, and while there is such a debt no CPU is granted. GPU-1 (`gpus`): no GPU is given out more than once. GRANT-1 (`pool`): a lease or constructor goes only to a
//! process that has said hello and is not being ended, and never to the process that asked. ENV-1 (`pool`): a process that was given to one environment never
//! serves another. DEATH-1 (`deaths`): a slot
//! is used again only when every live process has settled the death of its last user.

mod actors;
mod adoption;
mod deaths;
mod early;
mod endings;
mod explain;
mod gpus;
mod leases;
mod loans;
mod orphans;
mod pool;
mod queue;
mod room;
mod state;
mod streams;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use self::actors::ActorState;
pub use self::pool::{Reserved, WorkerState};

use self::actors::Actors;
use self::adoption::{Adopter, Question};
use self::early::{About, Early};
pub use self::gpus::GPUS_MAX;
use self::gpus::Gpus;
use self::leases::{Lease, Wish};
use self::pool::Pool;
use self::queue::Queue;
use crate::failure::Death;
use crate::id::{FunctionKey, LeaseId, ObjectId, ProcessId, TaskId};
use crate::ledger::Ledger;
use crate::message::{FromNode, ToNode};
use crate::record::Record;
use crate::resources::{Amount, Resources};
use crate::time::Tick;
use crate::value::Location;

/// What the machine has and how the node uses it.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// All that can be granted.
    pub total: Resources,
    /// Worker processes at a time; demand beyond waits.
    pub processes_max: u32,
    /// Leases hosted by one process; demand beyond goes to other processes.
    pub threads_per_process_max: u32,
    /// A worker that is idle for longer is ended, down to `prestart`.
    pub idle_worker_us: u64,
    /// Workers started ahead of demand and kept.
    pub prestart: u32,
}

impl NodeConfig {
    /// The usual configuration for a machine that has this.
    pub fn for_machine(total: Resources) -> Self {
        let cpus = u32::try_from(total.cpus.0 / crate::resources::UNITS_PER_WHOLE).unwrap_or(u32::MAX);
        Self {
            total,
            processes_max: cpus.saturating_mul(4).clamp(64, 1_024),
            threads_per_process_max: 64,
            idle_worker_us: 60_000_000,
            prestart: cpus.clamp(1, 2),
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The node runs.
    Started,
    /// A process asked for something.
    Requested {
        /// Who.
        process: ProcessId,
        /// What.
        request: ToNode,
    },
    /// A process recorded something.
    Recorded {
        /// Who.
        process: ProcessId,
        /// What.
        record: Record,
    },
    /// The keeper started a worker.
    WorkerSpawned {
        /// Which.
        process: ProcessId,
        /// Its system process id.
        pid: u32,
    },
    /// A worker is gone and its rings are drained, or it could not be started.
    WorkerExited(Death),
    /// The shell has drained all rings once, completely.
    Passed,
    /// Time went by; due at [`Node::deadline`].
    Ticked,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start a worker process in this slot.
    Spawn(ProcessId),
    /// End this process at once.
    Kill(ProcessId),
    /// Tell a process something.
    Send {
        /// Whom.
        to: ProcessId,
        /// What.
        message: FromNode,
    },
    /// Make sure that two different processes have rings to each other, and tell both before anything that follows.
    OpenLink {
        /// One.
        a: ProcessId,
        /// The other.
        b: ProcessId,
    },
    /// Everybody has let go of this dead process: free its links, slot, pins and unsealed objects.
    CloseProcess(ProcessId),
    /// Nobody can ask for this object any more.
    FreeStored(Location),
    /// The store's business.
    Store {
        /// Who asked.
        process: ProcessId,
        /// What.
        request: ToNode,
    },
}

/// The node's decision machine.
pub struct Node {
    config: NodeConfig,
    ledger: Ledger,
    free: Resources,
    debt: Amount,
    gpus: Gpus,
    queue: Queue,
    leases: BTreeMap<LeaseId, Lease>,
    next_lease: u64,
    pool: Pool,
    actors: Actors,
    /// Processes that have said hello and not died; the driver from the start.
    live: BTreeSet<ProcessId>,
    /// Deaths that somebody has not settled yet, and who.
    settling: BTreeMap<ProcessId, BTreeSet<ProcessId>>,
    /// Dead owners whose references may still be on their way, and who has not read all that was sent.
    flushing: BTreeMap<ProcessId, BTreeSet<ProcessId>>,
    /// The last deaths, for processes that meet a reference to the dead later.
    deaths: BTreeMap<ProcessId, Death>,
    questions: Vec<Question>,
    /// Questions about actors that are not known yet.
    early: Vec<Early>,
    adopters: BTreeMap<TaskId, Adopter>,
    /// Objects of dead owners by the task that made them; a task by its first result.
    orphans: BTreeMap<TaskId, BTreeSet<ObjectId>>,
    claims: BTreeMap<ObjectId, BTreeMap<ProcessId, i64>>,
    /// Claims by lender, for objects and holders, whose references have not arrived. Signed: an arrival can come first.
    loans: BTreeMap<ProcessId, BTreeMap<(ObjectId, ProcessId), i64>>,
    /// Objects whose last claim was given back, and passes until that is certain: a claim of a process that got the
    /// reference from the last holder may be in a ring that was read before.
    fading: BTreeMap<ObjectId, u32>,
    /// Objects inside values that the node keeps, and inside which.
    inside: BTreeMap<ObjectId, BTreeSet<ObjectId>>,
    /// What tasks that may run again have made and freed, by task: a repeated run adopts it.
    lingering: BTreeMap<TaskId, BTreeSet<ObjectId>>,
    resolving: BTreeMap<ObjectId, BTreeSet<ProcessId>>,
    /// Entry and generation of stored objects that their owner freed while others have claims.
    freed_but_claimed: BTreeSet<(u32, u32)>,
    /// Code that drivers and workers published, by its hash; kept as long as the node lives.
    code: BTreeMap<FunctionKey, Vec<u8>>,
}

impl Node {
    /// A node that has granted nothing.
    pub fn new(config: NodeConfig) -> Self {
        Self {
            ledger: Ledger::default(),
            free: config.total.clone(),
            debt: Amount(0),
            gpus: Gpus::new(config.total.gpus),
            queue: Queue::default(),
            leases: BTreeMap::new(),
            next_lease: 1,
            pool: Pool::default(),
            actors: Actors::default(),
            live: BTreeSet::from([ProcessId::DRIVER]),
            settling: BTreeMap::new(),
            flushing: BTreeMap::new(),
            deaths: BTreeMap::new(),
            questions: Vec::new(),
            early: Vec::new(),
            adopters: BTreeMap::new(),
            orphans: BTreeMap::new(),
            claims: BTreeMap::new(),
            loans: BTreeMap::new(),
            fading: BTreeMap::new(),
            inside: BTreeMap::new(),
            lingering: BTreeMap::new(),
            resolving: BTreeMap::new(),
            freed_but_claimed: BTreeSet::new(),
            code: BTreeMap::new(),
            config,
        }
    }

    /// The one door: takes an event, appends effects.
    pub fn step(&mut self, event: Event, now: Tick, effects: &mut Vec<Effect>) {
        match event {
            Event::Started => self.keep_minimum(effects),
            Event::Requested { process, request } => self.requested(process, request, now, effects),
            Event::Recorded { process, record } => self.recorded(process, record, now, effects),
            Event::WorkerSpawned { process, pid } => self.worker_spawned(process, pid),
            Event::WorkerExited(death) => self.worker_exited(death, now, effects),
            Event::Passed => {
                let dropped = self.ledger.pass();
                effects.extend(dropped.into_iter().map(Effect::FreeStored));
                self.pass_questions(effects);
                self.pass_early(now, effects);
                self.pass_fading(now, effects);
                self.review_contents(now, effects);
            }
            Event::Ticked => self.ticked(now, effects),
        }
    }

    /// Whether something waits for [`Event::Passed`], so that the shell passes even without traffic.
    pub fn wants_pass(&self) -> bool {
        // A value that was dropped in this pass lets go of what is inside in the next.
        let emptied = self.inside.values().flatten().any(|holder| !self.ledger.knows(*holder));
        let early = !self.fading.is_empty() || !self.early.is_empty();
        emptied || early || self.questions.iter().any(|question| question.passes_left > 0)
    }

    /// The ledger's tables.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn requested(&mut self, process: ProcessId, request: ToNode, now: Tick, effects: &mut Vec<Effect>) {
        if matches!(request, ToNode::Hello) {
            self.hello(process, now, effects);
            return;
        }
        // Anything late from the dead is void; their records are not, those go to the ledger.
        if !self.live.contains(&process) {
            return;
        }
        match request {
            ToNode::Hello | ToNode::Goodbye => {}
            ToNode::Spent => self.worker_spent(process, now, effects),
            ToNode::WantLeases { pool, resources, environment, count, depth } => {
                self.want_leases(process, Wish { pool, resources, environment, count, depth }, now, effects);
            }
            ToNode::ReturnLease { lease } => self.return_lease(process, lease, now, effects),
            ToNode::Blocked { lease } => self.blocked(process, lease, now, effects),
            ToNode::Unblocked { lease } => self.unblocked(process, lease),
            ToNode::CreateActor { spec, resolved } => self.create_actor(process, spec, resolved, now, effects),
            ToNode::ActorConstructed { actor, value } => self.actor_constructed(process, actor, value, effects),
            ToNode::WatchActor { actor } => self.ask_about(process, About::Watch(actor), now, effects),
            ToNode::ReleaseActor { actor } => self.release_actor(process, actor, now, effects),
            ToNode::KillActor { actor, restart } => {
                self.ask_about(process, About::Kill { actor, restart }, now, effects);
            }
            ToNode::FindActor { request, name } => self.ask_about(process, About::Find { request, name }, now, effects),
            ToNode::Adopt { request, object, digest, items } => {
                self.adopt(Question::new(process, request, object, digest, items), effects);
            }
            ToNode::Connect { peer } => self.connect(process, peer, effects),
            ToNode::Resolve { object } => self.resolve(process, object, now, effects),
            ToNode::Claim { object, count } => self.claim(process, object, count),
            ToNode::ClaimFor { object, holder } => self.claim_for(process, object, holder),
            ToNode::ClaimArrived { object, lender } => self.claim_arrived(process, object, lender),
            ToNode::Settled { dead } => self.settled(process, dead, now, effects),
            ToNode::Flushed { dead } => self.flushed(process, dead, now, effects),
            ToNode::KillWorker { worker, task } => self.kill_worker(worker, task, effects),
            ToNode::PeerCorrupt { peer, reason } => self.peer_corrupt(peer, reason, effects),
            ToNode::FreeObject { at } if self.freed_but_claimed.contains(&(at.entry, at.generation)) => {}
            request @ (ToNode::CreateObject { .. }
            | ToNode::AbortObject { .. }
            | ToNode::FreeObject { .. }
            | ToNode::Locate { .. }
            | ToNode::QueryState { .. }) => effects.push(Effect::Store { process, request }),
            ToNode::Publish { request, function, code } => {
                self.code.entry(function).or_insert(code);
                send(process, FromNode::Published { request }, effects);
            }
            ToNode::Lookup { request, function } => {
                let code = self.code.get(&function).cloned();
                send(process, FromNode::Code { request, code }, effects);
            }
            ToNode::QueryResources { request } => {
                let row = self.resources_row();
                send(process, FromNode::Resources { request, row }, effects);
            }
            ToNode::QueryNames { request } => {
                let names = self.actors.names.keys().cloned().collect();
                send(process, FromNode::Names { request, names }, effects);
            }
            ToNode::Explain { request, task } => {
                let text = self.explain(task, now);
                send(process, FromNode::Explained { request, text }, effects);
            }
        }
    }

    fn recorded(&mut self, process: ProcessId, record: Record, now: Tick, effects: &mut Vec<Effect>) {
        if let Record::Freed { object } = &record
            && process != ProcessId::DRIVER
        {
            self.linger(*object);
        }
        // The hot path: while nobody has died, nobody is told about records.
        let quiet = self.adopters.is_empty()
            && self.resolving.is_empty()
            && self.orphans.is_empty()
            && self.claims.is_empty()
            && self.inside.is_empty()
            && self.lingering.is_empty();
        match record {
            Record::Yielded { task, attempt, index, value } => {
                self.yielded(task, attempt, index, value, effects);
                return;
            }
            Record::Freed { object } if self.ledger.is_item(object) => {
                self.item_freed(object, effects);
                return;
            }
            _ => {}
        }
        if quiet {
            self.ledger.apply(process, record);
            return;
        }
        match &record {
            Record::Finished { task, values, .. }
                if values.first().is_some_and(crate::ledger::stopped) && self.ledger.is_stream(*task) =>
            {
                let task = *task;
                self.ledger.apply(process, record);
                self.stream_stopped(task, now, effects);
            }
            Record::Finished { task, .. } | Record::Settled { task, .. } => {
                let task = *task;
                self.ledger.apply(process, record);
                self.task_ended(task, now, effects);
            }
            Record::Put { object, .. } => {
                let object = *object;
                self.ledger.apply(process, record);
                self.hold_again(object);
                self.answer_resolvers(object, effects);
            }
            Record::Freed { object } => {
                self.note_freed(*object);
                self.ledger.apply(process, record);
            }
            Record::Submitted { .. } | Record::Started { .. } | Record::Yielded { .. } => {
                self.ledger.apply(process, record);
            }
        }
    }
}

fn send(to: ProcessId, message: FromNode, effects: &mut Vec<Effect>) {
    effects.push(Effect::Send { to, message });
}

/// A process does not need rings to itself.
fn open_link(a: ProcessId, b: ProcessId, effects: &mut Vec<Effect>) {
    if a != b {
        effects.push(Effect::OpenLink { a, b });
    }
}
