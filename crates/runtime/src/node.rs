//! The node's shell: one thread that turns rings and the keeper's reports into events, and effects into the world.
//!
//! In an embedded runtime it lives in the driver. It sleeps until it is rung: requests ring, records do not until a
//! quarter of a ring is full, so the ledger costs its readers one wake-up per thousands of records.
//!
//! Files: `links` (rings and connections), `rings` (whose are read, and what is in them), `objects` (the store's service: create, free, spill, restore),
//! `transfers` (copies of objects between nodes), `flows` (reduces and groups' calls), `leaving` (how it leaves its cluster), `keepers` (one for each job),
//! `drivers` (those that attach), `mail` (what other threads bring), `memory` (how much of it is in use), `status` (what
//! people ask), `voices` (what workers print), `pace` (how fast bytes come in), `watched` (values that threads wait for).

mod abroad;
mod bulk;
mod drivers;
mod flows;
mod keepers;
mod leaving;
mod links;
mod mail;
mod memory;
mod objects;
mod pace;
mod peers;
mod programs;
mod rings;
pub(crate) mod status;
mod transfers;
mod voices;
mod watched;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bireme_core::failure::{Death, DeathCause};
use bireme_core::id::{JobId, NodeId, ProcessId};
use bireme_core::idle::{self, Idle};
use bireme_core::message::{Between, FromNode, ToNode};
use bireme_core::node::{Effect, Event, Node, NodeConfig};
use bireme_core::record::Record;
use bireme_core::throttle::QUEUED_BYTES_MAX;
use bireme_core::time::Tick;
use bireme_core::value::{Body, Value};
use bireme_net::{Doorbell, Fabric, RingSpan, Sleeper, SlotId, SpinMode, SpinPolicy};
use bireme_store::{Arena, SpillOptions, Table};

use crate::attach::Program;
use crate::attach::program::Programs;
use crate::clock;
use crate::cluster::ClusterStart;
use crate::error::Error;
use crate::keeper::{ExitKind, Report, WorkerExit};
use crate::output::Outputs;

use abroad::Abroad;
use drivers::Drivers;
use flows::{StageEvent, Stages};
pub(crate) use flows::{differ as array_differs, header_of as array_of};
pub(crate) use keepers::{KeeperStart, SharedMemory};
use keepers::{Keepers, Kept};
use leaving::Leaving;
pub(crate) use leaving::{Ending, OnEnding};
use links::Links;
pub(crate) use mail::{Mail, Word};
use memory::MemoryWatch;
use objects::Objects;
use programs::Awaited;
use rings::Rings;
use status::Questions;
use voices::{AwayLines, Voice};

/// The node looks at least so often, for deadlines and deferred frees.
const NODE_SLEEP_MAX: Duration = Duration::from_millis(500);
/// It looks so often while somebody waits for memory: pins are given back without a word.
const MEMORY_LOOK: Duration = Duration::from_millis(5);
/// It looks so often at how much memory it uses.
const IDLE_LOOK_US: u64 = 500_000;
/// After so long without a relay the next one is not waited for awake.
const RELAYS_PAUSE_US: u64 = 1_000;
/// Bytes of a snapshot per message.
const STATE_PIECE_BYTES: usize = 32 << 10;

/// What the node is given when it starts.
pub struct NodeStart {
    /// The machine's settings.
    pub config: NodeConfig,
    /// Whether the node may wait for the next relay without sleep.
    pub spin: bool,
    /// The shared fabric.
    pub fabric: Fabric,
    /// The arena.
    pub arena: Arc<Arena>,
    /// The object table.
    pub table: Arc<Table>,
    /// Where to spill.
    pub spill: SpillOptions,
    /// The program that the node is embedded in; none for a process of its own.
    pub(crate) embedded: Option<Embedded>,
    /// Its place among other nodes, if there are any.
    pub cluster: Option<ClusterStart>,
    /// Where programs of drivers on other nodes are made ready, if it runs those.
    pub(crate) programs: Option<Arc<Programs>>,
    /// Told when its part in a cluster is over.
    pub(crate) on_ending: OnEnding,
    /// What its workers and objects may use together; none: what the machine has.
    pub memory_limit_bytes: Option<u64>,
}

/// The driver that a node is embedded in, and its job.
pub(crate) struct Embedded {
    pub(crate) job: JobId,
    /// Settings for workers: the cancel grace in microseconds shifted left by one; the lowest bit says whether to spin.
    pub(crate) settings: u64,
    /// What its workers are.
    pub(crate) keeper: KeeperStart,
    /// Takes what they print when the driver's program wants lines.
    pub(crate) outputs: Arc<Outputs>,
    /// What other nodes are told that run workers of it; none for a node alone.
    pub(crate) program: Option<Program>,
}

/// The node as who started it holds it.
pub struct NodeThread {
    doorbell: Doorbell,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    sampler: Option<JoinHandle<()>>,
    mail: Mail,
    memory: SharedMemory,
    /// The rings of the driver that it is embedded in: to the node and from it.
    pub rings: Option<(RingSpan, RingSpan)>,
}

impl NodeThread {
    /// Starts the node's thread, and the keeper of the program that it is embedded in.
    pub fn start(start: NodeStart) -> Result<Self, Error> {
        let system =
            |what: &'static str| move |error: &dyn std::fmt::Display| Error::System { what, reason: error.to_string() };
        let memory = SharedMemory { fabric: start.fabric, arena: start.arena, table: start.table };
        let slot = SlotId::new(0).expect("slot 0 is in range");
        memory.fabric.claim_slot(slot, std::process::id());
        let doorbell = memory.fabric.doorbell(slot);
        let (mail, stop) = (Mail::new(doorbell.clone()), Arc::new(AtomicBool::new(false)));
        let mut keepers = Keepers::new(memory.clone(), mail.clone(), Arc::clone(&stop));
        let mut links = Links::new(memory.fabric.clone());
        let (id, driver) = (start.config.id, ProcessId::first_driver(start.config.id));
        let store = (Arc::clone(&memory.arena), Arc::clone(&memory.table));
        let mut objects = Objects::new(id, store.0.clone(), store.1.clone(), start.spill, doorbell.clone());
        let mut rings = None;
        let is_idle = start.cluster.is_some() && start.config.total.is_zero();
        if let Some(Embedded { job, settings, keeper: start, outputs, program }) = start.embedded {
            // A driver's node in a cluster that has nothing to give starts no workers, so nothing has to keep them.
            let keeper = match is_idle {
                true => None,
                false => Some(start.start(&memory).map_err(|e| system("starting the keeper")(&e))?),
            };
            let kept = Kept { start, settings, voice: Voice::queue(outputs), executable: None, program };
            keepers.add_own(job, keeper, kept)?;
            rings = Some(links.admit(driver).map_err(|e| system("making the driver's rings")(&e))?);
            objects.admit(driver);
        }
        let link_queue_bytes = start.cluster.as_ref().map_or(QUEUED_BYTES_MAX, |cluster| cluster.link_queue_bytes);
        let (abroad, stages) = match start.cluster {
            Some(cluster) => {
                let (abroad, stages) = Abroad::start(cluster, &doorbell, &mut objects, store)?;
                (Some(abroad), stages)
            }
            None => (None, Stages::alone(id, &mut objects, store, &doorbell)),
        };
        let watch = Arc::new(MemoryWatch::default());
        let (limit_bytes, arena) = (start.memory_limit_bytes, Arc::clone(&memory.arena));
        let sampler = memory::start(&watch, start.config.memory, limit_bytes, arena, (&doorbell, &stop))?;
        let shell = Shell {
            id,
            watch,
            abroad,
            stages,
            relays: SpinPolicy::between_two(if start.spin { SpinMode::Adaptive } else { SpinMode::Never }),
            relayed_at: Tick::default(),
            idle: Idle::new(rings.is_none(), clock::now()),
            looked_at: clock::now(),
            heard: false,
            node: Node::new(start.config),
            links,
            rings: Rings::new(link_queue_bytes),
            objects,
            doorbell: doorbell.clone(),
            fabric: memory.fabric.clone(),
            keepers,
            drivers: Drivers::default(),
            mail: mail.clone(),
            stop: Arc::clone(&stop),
            effects: Vec::new(),
            late: Vec::new(),
            awaited: Awaited::new(start.programs),
            questions: Questions::default(),
            away: Arc::new(AwayLines::new(doorbell.clone())),
            leaving: Leaving::new(start.on_ending),
        };
        let thread = crate::thread::spawn("bireme-node", move || shell.run())?;
        Ok(Self { doorbell, stop, thread, sampler, mail, memory, rings })
    }

    /// The way to the node's thread, for threads that bring something.
    pub(crate) fn mail(&self) -> Mail {
        self.mail.clone()
    }

    /// The memory that its processes share.
    pub(crate) fn memory(&self) -> SharedMemory {
        self.memory.clone()
    }

    /// Ends all workers, the keepers and the node's threads, and waits for them.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.doorbell.ring_self();
        // A panicked node thread has said so on standard error.
        let _ = self.thread.join();
        if let Some(sampler) = self.sampler {
            // It sleeps until its next look.
            sampler.thread().unpark();
            let _ = sampler.join();
        }
    }
}

struct Shell {
    id: NodeId,
    watch: Arc<MemoryWatch>,
    /// The other nodes, when there are any.
    abroad: Option<Abroad>,
    stages: Stages,
    /// When to wait for the next relay without sleep.
    relays: SpinPolicy,
    /// When the last one went through.
    relayed_at: Tick,
    /// The decisions about memory that is not used.
    idle: Idle,
    looked_at: Tick,
    /// Processes said something since that look.
    heard: bool,
    node: Node,
    links: Links,
    rings: Rings,
    objects: Objects,
    doorbell: Doorbell,
    fabric: Fabric,
    keepers: Keepers,
    drivers: Drivers,
    mail: Mail,
    stop: Arc<AtomicBool>,
    effects: Vec<Effect>,
    late: Vec<(ProcessId, ToNode)>,
    awaited: Awaited,
    questions: Questions,
    /// Lines for drivers on other nodes.
    away: Arc<AwayLines>,
    leaving: Leaving,
}

impl Shell {
    fn run(mut self) {
        crate::heap::keep_some();
        self.step(Event::Started);
        // Who was there when this node joined is known before anybody asks what can be placed.
        self.hear_nodes();
        loop {
            self.pass();
            if self.stop.load(Ordering::Acquire) {
                self.end_own_job_elsewhere();
                self.drivers.finish_all("the node was stopped");
                // Before others hear that it leaves, and run again what ran here.
                self.wind_down();
                self.keepers.end_all();
                self.stages.stop();
                if let Some(abroad) = &mut self.abroad {
                    abroad.stop();
                }
                return;
            }
            self.links.flush();
            if let Some(abroad) = &mut self.abroad {
                abroad.peers.flush();
            }
            let heard = self.abroad.as_ref().is_some_and(|abroad| abroad.peers.has_news());
            if heard || self.has_turn() || self.node.wants_pass() && !self.is_holding() {
                continue;
            }
            self.sleep();
        }
    }

    fn sleep(&mut self) {
        self.sleep_at_most(NODE_SLEEP_MAX);
    }

    fn sleep_at_most(&mut self, longest: Duration) {
        let patience = self.patience().min(longest);
        match &mut self.abroad {
            None => {
                if self.doorbell.prepare_sleep(Sleeper::Pump) {
                    self.doorbell.sleep(Sleeper::Pump, Some(patience));
                }
            }
            Some(abroad) => {
                // Where objects move and nobody calls, a thread that stays awake takes time from those who move them.
                let relays = clock::now().since_us(self.relayed_at) < RELAYS_PAUSE_US;
                abroad.peers.poller.wait(relays.then_some(&mut self.relays), Some(patience), || false);
            }
        }
    }

    fn patience(&self) -> Duration {
        let peers = self.abroad.as_ref().and_then(|abroad| abroad.peers.deadline());
        let due = self.node.deadline().into_iter().chain(peers).min();
        let left = due.map(|due| Duration::from_micros(due.since_us(clock::now())));
        let longest = if self.objects.is_waiting() { MEMORY_LOOK } else { NODE_SLEEP_MAX };
        left.map_or(longest, |left| left.min(longest)).max(Duration::from_micros(50))
    }

    /// Reads every ring to its end once, then what the keeper said, then what the disk has done.
    fn pass(&mut self) {
        self.doorbell.take_ready(|_| {});
        self.read_rings();
        for (process, request) in std::mem::take(&mut self.late) {
            if matches!(request, ToNode::Explain { .. }) {
                let waits = self.objects.memory_waits();
                self.step(Event::MemoryAwaited(waits));
            }
            self.step(Event::Requested { process, request });
        }
        for word in self.mail.take() {
            self.hear(word);
        }
        for (to, message) in self.objects.progress() {
            self.links.send(to, &message);
        }
        self.hear_nodes();
        self.follow_stages();
        self.send_lines();
        if let Some(sample) = self.watch.take() {
            self.step(sample);
            self.watch.set_pressed(self.node.memory_level());
        }
        self.step(if self.is_holding() { Event::PassedInPart } else { Event::Passed });
        if self.node.deadline().is_some_and(|due| due <= clock::now()) {
            self.step(Event::Ticked);
        }
        self.leave_if_drained();
        self.give_idle_back();
    }

    /// Memory that was not used for a while goes back to the machine.
    fn give_idle_back(&mut self) {
        let now = clock::now();
        if now.since_us(self.looked_at) < IDLE_LOOK_US {
            return;
        }
        self.looked_at = now;
        let mut effects = Vec::new();
        self.idle.step(self.objects.usage(), std::mem::take(&mut self.heard), now, &mut effects);
        for effect in effects {
            match effect {
                idle::Effect::GiveBack(bytes) => self.objects.give_back(bytes),
                idle::Effect::TrimHeap => crate::daemon::allocator::trim(),
            }
        }
    }

    /// What came of reduces and groups' calls.
    fn follow_stages(&mut self) {
        for event in self.stages.progress(&mut self.objects) {
            self.step(match event {
                StageEvent::Placed { id, at } => Event::StagePlaced { id, at },
                StageEvent::Done { id, at } => Event::StageDone { id, at },
                StageEvent::Failed { id, reason, peer } => Event::StageFailed { id, reason, peer },
            });
        }
    }

    fn hear(&mut self, word: Word) {
        match word {
            // Of workers that ended because this node leaves: others hear of the node.
            Word::Report(_) | Word::KeeperLost { .. } if self.leaving.has_ended_workers() => {}
            Word::Report(_) | Word::KeeperLost { .. } if self.leaving.is_winding_down() => self.winds_down(&word),
            Word::Report(report) => self.reported(report),
            Word::KeeperLost { job, reason } => self.keeper_lost(job, &reason),
            Word::StatusAsked(reply) => self.status_asked(reply),
            Word::Knocked(knock) => self.knocked(*knock),
            Word::Drain { node, grace_us, reply } => self.drain_asked(node, grace_us, reply),
            Word::Expel { node, reply } => {
                let alone = || Err("this node is alone".to_owned());
                let expelled = self.abroad.as_mut().map_or_else(alone, |abroad| abroad.peers.expel(node));
                // Whoever does not wait any more needs no answer.
                let _ = reply.send(expelled);
            }
            Word::ProgramRead { to, job, parcel } => self.tell_slowly(to, Between::GiveProgram { job, parcel }),
            Word::PieceRead { to, job, from, bytes } => self.tell_slowly(to, Between::GivePiece { job, from, bytes }),
            Word::PieceWanted { job, from } => self.tell_slowly(job.node(), Between::WantPiece { job, from }),
            Word::ProgramReady { job, made } => self.program_ready(job, *made),
            Word::DriverLeft { process, how } => self.driver_left(process, how),
        }
    }

    /// A keeper is gone, and its workers with it: the node goes on.
    fn keeper_lost(&mut self, keeper_of: JobId, reason: &str) {
        let lost = self.node.workers().filter(|(_, job)| self.keepers.serves(keeper_of, *job));
        let lost: Vec<ProcessId> = lost.map(|(process, _)| process).collect();
        self.keepers.lost(keeper_of);
        for process in lost {
            self.watch.ended(process);
            self.read_last_words(process);
            self.step(Event::WorkerExited(Death {
                process,
                pid: 0,
                cause: DeathCause::Ended(reason.to_owned()),
                stderr_tail: String::new(),
                memory_peak_bytes: 0,
                culprit: None,
            }));
        }
    }

    fn reported(&mut self, report: Report) {
        match report {
            Report::Spawned { slot, incarnation, pid } => {
                let (process, pid) = (ProcessId { node: self.id, slot, incarnation }, pid.unsigned_abs());
                self.watch.began(process, pid);
                self.step(Event::WorkerSpawned { process, pid });
            }
            Report::SpawnFailed { slot, incarnation, reason } => {
                let process = ProcessId { node: self.id, slot, incarnation };
                let cause = DeathCause::NotStarted(reason);
                self.step(Event::WorkerExited(Death {
                    process,
                    pid: 0,
                    cause,
                    stderr_tail: String::new(),
                    memory_peak_bytes: 0,
                    culprit: None,
                }));
            }
            // Never among these: the reader has passed them on.
            Report::Output { .. } | Report::OutputDropped { .. } => {}
            Report::Exited(exit) => {
                let process = ProcessId { node: self.id, slot: exit.slot, incarnation: exit.incarnation };
                self.watch.ended(process);
                self.read_last_words(process);
                self.step(Event::WorkerExited(death_of(process, exit)));
            }
        }
    }

    fn step(&mut self, event: Event) {
        self.step_at(event, clock::now());
    }

    fn step_at(&mut self, event: Event, now: Tick) {
        let mut effects = std::mem::take(&mut self.effects);
        self.node.step(event, now, &mut effects);
        for effect in effects.drain(..) {
            self.act(effect);
        }
        self.effects = effects;
        self.drivers.finish_ended();
    }

    fn act(&mut self, effect: Effect) {
        match effect {
            Effect::Spawn(process) => self.spawn(process),
            Effect::Kill(process) if process.is_driver() => self.drivers.dismiss(process),
            Effect::Kill(process) if self.stops_waiting(process) => {}
            Effect::Kill(process) => {
                if let Some(job) = self.node.job_of(process) {
                    self.keepers.signal(job, process.slot, libc::SIGKILL);
                }
            }
            Effect::Send { to, message } => self.links.send(to, &message),
            Effect::OpenLink { a, b } => {
                if let Err(reason) = self.links.open(a, b) {
                    eprintln!("bireme: no link between {a} and {b}: {reason}");
                }
            }
            Effect::EndJob(job) => {
                self.drivers.job_ended(job);
                if let Some((voice, _)) = self.keepers.voice(job) {
                    voice.job_over();
                }
            }
            Effect::CloseJob(job) => {
                self.drivers.job_closed(job);
                self.keepers.close(job);
            }
            Effect::CloseProcess(process) => {
                self.rings.closed(process);
                self.links.close(process);
                self.objects.release(process);
            }
            Effect::FreeStored(at) => self.free_stored(at),
            Effect::Tell { node, message } => {
                if let Some(abroad) = &mut self.abroad {
                    abroad.peers.tell(node, message);
                }
            }
            Effect::AskController(request) => {
                if let Some(abroad) = &mut self.abroad {
                    abroad.peers.ask_controller(request);
                }
            }
            Effect::Promote(at) => self.promote(at),
            Effect::Bring { object, at } => self.bring(object, at),
            Effect::FetchFrom { number, from } => self.fetch_from(number, from),
            Effect::SpillSome { bytes } => self.objects.relieve(bytes),
            Effect::RunStage(spec) => self.stages.start(&mut self.objects, spec),
            Effect::GrowStage(id) => self.stages.grow(id),
            Effect::EndStage { id, reason } => self.stages.end(&mut self.objects, id, &reason),
            Effect::Store { process, request: ToNode::Fetch { request, object, at } } => {
                self.fetch(process, request, object, at);
            }
            Effect::Store { process, request: ToNode::QueryState { request } } => self.send_state(process, request),
            Effect::Store { process, request: ToNode::QueryNodes { request } } => self.send_nodes(process, request),
            Effect::Store { process, request } => {
                for (to, message) in self.objects.serve(process, request) {
                    self.links.send(to, &message);
                }
            }
        }
    }

    fn spawn(&mut self, process: ProcessId) {
        if let Some(slot) = u16::try_from(process.slot).ok().and_then(SlotId::new) {
            self.fabric.claim_slot(slot, 0);
        }
        self.objects.admit(process);
        let job = self.node.job_of(process).unwrap_or_default();
        let asked = self.links.admit(process).and_then(|(to_node, from_node)| {
            let rings = (to_node.offset(), from_node.offset());
            if self.awaits_program(job, process, rings) {
                return Ok(());
            }
            self.keepers.spawn(job, process, rings)
        });
        if let Err(reason) = asked {
            self.spawn_failed(process, reason);
        }
    }

    fn send_state(&mut self, process: ProcessId, request: u64) {
        let snapshot = self.node.snapshot(clock::now());
        let bytes = postcard::to_allocvec(&snapshot).unwrap_or_default();
        let mut pieces = bytes.chunks(STATE_PIECE_BYTES).peekable();
        while let Some(piece) = pieces.next() {
            let last = pieces.peek().is_none();
            self.links.send(process, &FromNode::State { request, bytes: piece.to_vec(), last });
        }
    }
}

fn death_of(process: ProcessId, exit: WorkerExit) -> Death {
    let cause = match exit.status {
        ExitKind::Signal(_) if exit.out_of_memory => DeathCause::OutOfMemory,
        ExitKind::Signal(signal) => DeathCause::Signalled(signal),
        ExitKind::Exit(code) => DeathCause::Exited(code),
    };
    Death {
        process,
        pid: exit.pid.unsigned_abs(),
        cause,
        stderr_tail: exit.stderr_tail,
        memory_peak_bytes: exit.memory_peak_bytes,
        culprit: None,
    }
}

/// The values that a record brings into the ledger.
fn values_of(record: &Record) -> &[Value] {
    match record {
        Record::Finished { values, .. } => values,
        Record::Put { value, .. } | Record::Yielded { value, .. } => std::slice::from_ref(value),
        Record::Submitted { .. } | Record::Started { .. } | Record::Freed { .. } | Record::Settled { .. } => &[],
    }
}

/// The place of a stored value.
fn stored(value: &Value) -> Option<bireme_core::value::Location> {
    match &value.body {
        Body::Stored(at) => Some(*at),
        Body::Inline(_) | Body::Failed(_) => None,
    }
}
