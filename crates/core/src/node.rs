//! The node's decisions: who runs where, who lives, who owns what after a death.
//!
//! The shell (`runtime::node`) feeds [`Event`]s: requests and records of all processes in the order of their rings, exits
//! of workers (after their rings are drained), passes over all rings, time. It carries out [`Effect`]s in order. Store
//! requests, the paging of snapshots and the list of nodes are the shell's own work; they pass through as [`Effect::Store`].
//!
//! Invariants: RES-1 (`leases`): the leases whose tasks run never hold more than the machine has, except for tasks that
//! resumed, and while there is such a debt no CPU is granted. GROUP-1 (`groups`): a placement group has all its bundles
//! or none, and what runs in one takes from it alone. GPU-1 (`gpus`): no GPU is given out more than once. GRANT-1 (`pool`): a lease or constructor goes only to a
//! process that has said hello and is not being ended, and to the process that asked only when no other can take it. ENV-1 (`pool`): a process that was given to one environment never
//! serves another. JOB-1 (`jobs`): a process serves the job that it was started for, and no other. DEATH-1 (`deaths`): a slot
//! is used again only when every live process has settled the death of its last user. PRESS-1 (`pressure`): while memory is
//! short, nothing is started beside what runs.

mod actors;
mod adoption;
mod bound;
mod busy;
mod census;
mod cluster;
mod code;
mod collectives;
mod config;
mod contents;
mod copies;
mod copying;
mod cycles;
mod deaths;
mod delays;
mod directory;
mod draining;
mod early;
mod effect;
mod endings;
mod event;
mod explain;
mod gpus;
mod groups;
mod guests;
mod hosting;
mod jobs;
mod joins;
mod leases;
mod lending;
mod living;
mod loans;
mod moving;
mod orphans;
mod overview;
mod passing;
mod pool;
mod pressure;
mod queue;
mod recording;
mod reduces;
mod reducing;
mod rehosting;
mod room;
mod sharing;
mod state;
mod stock;
mod streams;
mod wind_down;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use self::actors::ActorState;
pub use self::cluster::{Abroad, GRACE_US};
pub use self::effect::Effect;
pub use self::event::Event;
pub use self::overview::{ActorOverview, JobOverview, Overview, WaitingRow};
pub use self::pool::{Reserved, WorkerState};
pub use self::pressure::{MemoryLevel, MemoryThresholds};

use self::actors::Actors;
use self::adoption::{Adopter, Question};
use self::busy::Busy;
use self::census::Subject;
use self::cluster::Cluster;
use self::collectives::Collectives;
pub use self::collectives::{COLLECTIVE_STAGES_MAX, COLLECTIVES_MAX};
pub use self::config::NodeConfig;
use self::early::{About, Early};
pub(crate) use self::gpus::is_possible as is_gpu_amount;
pub use self::gpus::{GPUS_MAX, Gpus};
use self::groups::Groups;
pub(crate) use self::groups::fit_together;
use self::jobs::{Code, Jobs};
use self::leases::{Lease, Wish};
use self::living::Living;
use self::pool::Pool;
use self::pressure::{Pressure, Sample};
use self::queue::Queue;
use self::reduces::{Asked, Reduces};
use crate::failure::{Death, DeathCause};
use crate::id::{FunctionKey, LeaseId, NodeId, ObjectId, ProcessId, TaskId};
use crate::ledger::Ledger;
use crate::message::{FromNode, RequestId, ToNode};
use crate::record::Record;
use crate::resources::{Amount, Resources};
use crate::time::Tick;
use crate::waits::MemoryWait;

/// How long an object that nobody claims any more is kept.
#[derive(Clone, Copy, Debug)]
struct Fading {
    passes_left: u32,
    /// Claims of other nodes' processes may be under way until then.
    until: Tick,
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
    busy: Busy,
    pool: Pool,
    jobs: Jobs,
    actors: Actors,
    live: Living,
    cluster: Cluster,
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
    fading: BTreeMap<ObjectId, Fading>,
    /// Objects inside values that the node keeps, and inside which.
    inside: BTreeMap<ObjectId, BTreeSet<ObjectId>>,
    /// What tasks that may run again have made and freed, by task: a repeated run adopts it.
    lingering: BTreeMap<TaskId, BTreeSet<ObjectId>>,
    resolving: BTreeMap<ObjectId, BTreeSet<ProcessId>>,
    /// Stored objects that their owner freed while others have claims, by node, entry and generation.
    freed_but_claimed: BTreeSet<(NodeId, u32, u32)>,
    /// Processes whose last word was that they free an object which others have claims on and whose value has not come by:
    /// where it lies is their next word.
    freed_unseen: BTreeSet<ProcessId>,
    /// Code that drivers and workers published, by its hash; kept as long as a job lives that did.
    code: BTreeMap<FunctionKey, Code>,
    /// Processes of other nodes that want code which is still under way.
    awaited: BTreeMap<FunctionKey, Vec<(ProcessId, RequestId, Tick)>>,
    groups: Groups,
    collectives: Collectives,
    pressure: Pressure,
    /// The processes that wait for memory of this node's store, as they were told last.
    memory_waits: Vec<MemoryWait>,
    reduces: Reduces,
    /// It ends: nothing is started any more.
    stopping: bool,
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
            busy: Busy::default(),
            pool: Pool::new(config.id),
            jobs: Jobs::new(config.id, config.job, config.driver_pid),
            actors: Actors::default(),
            live: Living::new(config.id, config.job.is_some()),
            cluster: Cluster::new(config.id),
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
            freed_unseen: BTreeSet::new(),
            code: BTreeMap::new(),
            awaited: BTreeMap::new(),
            groups: Groups::default(),
            collectives: Collectives::default(),
            pressure: Pressure::default(),
            memory_waits: Vec::new(),
            reduces: Reduces::default(),
            stopping: false,
            config,
        }
    }

    /// The one door: takes an event, appends effects.
    pub fn step(&mut self, event: Event, now: Tick, effects: &mut Vec<Effect>) {
        let from = effects.len();
        match event {
            Event::Started => self.keep_minimum(effects),
            Event::Requested { process, request } => self.requested(process, request, now, effects),
            Event::Recorded { process, record } => {
                let ended = matches!(record, Record::Finished { .. });
                self.busy.recorded(process, &record);
                self.recorded(process, record, now, effects);
                if ended {
                    self.call_over(process, now, effects);
                }
            }
            Event::WorkerSpawned { process, pid } => self.worker_spawned(process, pid),
            Event::WorkerExited(death) => self.worker_exited(death, now, effects),
            Event::DriverAttached { process, pid, job } => self.driver_attached(process, pid, job, now, effects),
            Event::DriverGone(death) => self.driver_gone(death, now, effects),
            Event::ProcessCorrupt { process, reason } => self.peer_corrupt(process, reason, effects),
            Event::Passed => {
                let unnamed = self.ledger.unnamed_count();
                let dropped = self.ledger.pass();
                effects.extend(dropped.into_iter().map(Effect::FreeStored));
                if self.ledger.unnamed_count() < unnamed && !self.orphans.is_empty() {
                    // A task of which only its runner has told is forgotten: what it made is final.
                    self.review_all(now, effects);
                }
                self.pass_questions(effects);
                self.pass_early(true, now, effects);
                self.pass_fading(now, effects);
                self.pass_time(now, effects);
                self.pass_reduces(now, effects);
                self.review_contents(now, effects);
            }
            Event::PassedInPart => {
                self.pass_early(false, now, effects);
                self.pass_time(now, effects);
                self.pass_reduces(now, effects);
            }
            Event::Ticked => {
                self.ticked(now, effects);
                self.pass_reduces(now, effects);
            }
            Event::Relay { process, to, bytes } => self.relay(process, to, bytes, effects),
            Event::Heard { from: node, message } => self.heard(node, message, now, effects),
            Event::NodeJoined { node, total } => self.node_joined(node, total, now, effects),
            Event::NodeDied { node, reason } => self.node_died(node, &reason, now, effects),
            Event::Loads(rows) => self.loads(rows, now, effects),
            Event::NodeDraining { node } => self.other_drains(node, now, effects),
            Event::Drain => self.drain(now, effects),
            Event::Stop => self.stop(now, effects),
            Event::NotBrought { of } => self.not_brought(of, effects),
            Event::Controller(message) => self.hear_controller(message, now, effects),
            Event::Copied { object, of, at } => self.copied(object, of, at, effects),
            Event::Fetched { bytes, took_us, arena_free_bytes } => self.fetched(bytes, took_us, arena_free_bytes),
            Event::CopyWanted(wish) => self.copy_wanted(wish, effects),
            Event::Memory { used_bytes, limit_bytes, workers } => {
                self.memory_sampled(Sample { used_bytes, limit_bytes, workers }, now, effects);
            }
            Event::MemoryAwaited(waits) => self.memory_waits = waits,
            Event::StagePlaced { id, at } => self.stage_placed(id, &at, effects),
            Event::StageDone { id, at } => {
                if !self.collective_stage_done(id, &at, effects) {
                    self.stage_done(id, &at, effects);
                }
            }
            Event::StageFailed { id, reason, peer } => {
                if !self.collective_stage_failed(id, &reason, peer, effects) {
                    self.stage_failed(id, reason, peer, now, effects);
                }
            }
        }
        if self.jobs.any_ending() {
            self.review_jobs(now, effects);
        }
        self.clear_after_dead(now, effects);
        if self.jobs.any_ending() {
            self.review_jobs(now, effects);
        }
        if self.ledger.has_lost() {
            effects.extend(self.ledger.take_lost().into_iter().map(Effect::FreeStored));
        }
        if self.is_clustered() {
            self.tell_holds(effects);
            self.name_keepers(&mut effects[from..]);
            self.free_with_copies(effects, from);
            self.route(effects, from);
            self.announce_newest(effects, from);
        }
    }

    /// Whether something waits for [`Event::Passed`], so that the shell passes even without traffic.
    pub fn wants_pass(&self) -> bool {
        // A value that was dropped in this pass lets go of what is inside in the next.
        let emptied = self.inside.values().flatten().any(|holder| !self.ledger.knows(*holder));
        let early = self.fading.values().any(|fading| fading.passes_left > 0) || !self.early.is_empty();
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
        if !self.live.contains(&process) || self.goes_with_its_job(process, &request) {
            return;
        }
        if let ToNode::FreeObject { at } = &request {
            self.unrecorded_freed(*at);
        }
        if self.keeps_freed(process, &request) || self.passed_to_server(process, &request, effects) {
            return;
        }
        match request {
            ToNode::Hello => {}
            ToNode::Goodbye => self.is_leaving(process, now),
            ToNode::Spent => self.worker_spent(process, now, effects),
            ToNode::CallLost { caller, expected, came } => {
                self.kill(process, DeathCause::CallLost { caller, expected, came }, effects);
            }
            ToNode::WantLeases { pool, shape, count, depth } => {
                self.want_leases(process, Wish { pool, shape, count, depth }, now, effects);
            }
            ToNode::ReturnLease { lease } => self.return_lease(process, lease, now, effects),
            ToNode::Blocked { lease } => self.blocked(process, lease, now, effects),
            ToNode::Unblocked { lease } => self.unblocked(process, lease, now, effects),
            ToNode::CreateActor { spec, resolved } => self.create_actor(process, spec, resolved, now, effects),
            ToNode::ActorConstructed { actor, value } => self.actor_constructed(process, actor, value, effects),
            ToNode::WatchActor { actor, .. } => self.ask_about(process, About::Watch(actor), now, effects),
            ToNode::ReleaseActor { actor } => self.release_actor(process, actor, now, effects),
            ToNode::KillActor { actor, restart, .. } => {
                self.ask_about(process, About::Kill { actor, restart }, now, effects);
            }
            ToNode::FindActor { request, name } => self.ask_about(process, About::Find { request, name }, now, effects),
            ToNode::Adopt { request, object, digest, items } => {
                self.adopt(Question::new(process, request, object, digest, items), effects);
            }
            ToNode::Connect { peer } => self.connect(process, peer, effects),
            ToNode::Resolve { object, .. } => self.resolve(process, object, now, effects),
            ToNode::Claim { object, count, .. } => self.claim(process, object, count, now),
            ToNode::ClaimFor { object, holder, .. } => self.claim_for(process, object, holder, now),
            ToNode::ClaimArrived { object, lender, .. } => self.claim_arrived(process, object, lender),
            ToNode::Settled { dead } => self.settled(process, dead, now, effects),
            ToNode::Flushed { dead } => self.flushed(process, dead, now, effects),
            ToNode::KillWorker { worker, task } => self.kill_worker(worker, task, effects),
            ToNode::PeerCorrupt { peer, reason } => self.peer_corrupt(peer, reason, effects),
            ToNode::Fetch { request, object, at } if self.is_lost_place(at) => {
                self.seek(process, request, object, at, effects);
            }
            request @ ToNode::QueryNodes { .. } if self.is_clustered() => {
                self.ask_all(Subject::Loads, process, request, now, effects);
            }
            request @ ToNode::Explain { .. } if self.is_clustered() => {
                self.ask_all(Subject::Waits, process, request, now, effects);
            }
            request @ (ToNode::CreateObject { .. }
            | ToNode::AbortObject { .. }
            | ToNode::FreeObject { .. }
            | ToNode::Gather { .. }
            | ToNode::EndGather { .. }
            | ToNode::Fetch { .. }
            | ToNode::QueryNodes { .. }
            | ToNode::QueryState { .. }) => effects.push(Effect::Store { process, request }),
            ToNode::Publish { request, function, code } => self.publish(process, request, function, code, effects),
            ToNode::Lookup { request, function } => self.lookup(process, request, function, now, effects),
            ToNode::FindCopy { object, at, .. } => self.find_copy(process, object, at, effects),
            ToNode::QueryResources { request } => {
                let row = self.resources_row();
                send(process, FromNode::Resources { request, row }, effects);
            }
            ToNode::QueryNames { request } => {
                let names: BTreeSet<&String> = self.actors.names.keys().chain(self.cluster.names.all()).collect();
                let names = names.into_iter().cloned().collect();
                send(process, FromNode::Names { request, names }, effects);
            }
            ToNode::Explain { request, task } => {
                let text = self.explain(task, now);
                send(process, FromNode::Explained { request, text }, effects);
            }
            ToNode::CreateGroup { group, name, strategy, bundles, detached } => {
                let wanted = groups::Wanted { name, strategy, bundles, detached };
                self.create_group(process, group, wanted, now, effects);
            }
            ToNode::RemoveGroup { group } => self.ask_about(process, About::RemoveGroup(group), now, effects),
            ToNode::FindGroup { request, name } => {
                self.ask_about(process, About::FindGroup { request, name }, now, effects);
            }
            ToNode::WatchGroup { group } => self.ask_about(process, About::WatchGroup(group), now, effects),
            ToNode::Broadcast { object, at, nodes } => self.broadcast(object, at, &nodes, effects),
            ToNode::QueryGroups { request } => self.list_groups(process, request, now, effects),
            ToNode::Reduce { target, op, total, count, options } => {
                self.begin_reduce(process, Asked { target, op, total, count, options }, effects);
            }
            ToNode::ReduceInputs { target, inputs, more } => {
                self.reduce_inputs(process, (target, &inputs), more, now, effects);
            }
            ToNode::EndReduce { target } => self.end_reduce(process, target, effects),
            ToNode::JoinCollective { group, rank, size, label, actors } => {
                let newcomer = collectives::Newcomer { process, rank, size, label, actors };
                self.join_collective(group, newcomer, effects);
            }
            ToNode::LeaveCollective { group, rank, calls } => {
                self.leave_collective(process, group, rank, calls, effects);
            }
            ToNode::QueryCollective { request, group } => self.list_collective(process, request, group, effects),
            ToNode::RunStage { spec } => self.run_collective_stage(process, *spec, effects),
            ToNode::GrowStage { id } => self.grow_collective_stage(process, id, effects),
            ToNode::EndStage { id, reason } => self.end_collective_stage(id, &reason, effects),
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
