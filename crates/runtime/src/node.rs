//! The node's shell: one thread that turns rings and the keeper's reports into events, and effects into the world.
//!
//! In an embedded runtime it lives in the driver. It sleeps until it is rung: requests ring, records do not until a
//! quarter of a ring is full, so the ledger costs its readers one wake-up per thousands of records.
//!
//! Files: `links` (rings and connections), `objects` (the store's service: create, free, spill, restore).

mod links;
mod objects;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bireme_core::failure::{Death, DeathCause};
use bireme_core::id::ProcessId;
use bireme_core::message::{FromNode, NodeBound, ToNode};
use bireme_core::node::{Effect, Event, Node, NodeConfig};
use bireme_core::record::Record;
use bireme_core::time::Tick;
use bireme_core::value::{Body, Value};
use bireme_net::{Doorbell, Fabric, RingSpan, Sleeper, SlotId};
use bireme_store::{Arena, SpillOptions, Table};

use crate::clock;
use crate::error::Error;
use crate::keeper::{ExitKind, Keeper, Report, WorkerExit};
use crate::output::{Output, OutputLine, Outputs};

use links::Links;
use objects::Objects;

/// The node looks at least so often, for deadlines and deferred frees.
const NODE_SLEEP_MAX: Duration = Duration::from_millis(500);
/// Bytes of a snapshot per message.
const STATE_PIECE_BYTES: usize = 32 << 10;

/// What the node is given when it starts.
pub struct NodeStart {
    /// The machine's settings.
    pub config: NodeConfig,
    /// Number of the job.
    pub job: u64,
    /// Settings for workers: the cancel grace in microseconds shifted left by one; the lowest bit says whether to spin.
    pub settings: u64,
    /// The shared fabric.
    pub fabric: Fabric,
    /// The arena.
    pub arena: Arc<Arena>,
    /// The object table.
    pub table: Arc<Table>,
    /// Where to spill.
    pub spill: SpillOptions,
    /// Where the output of workers goes.
    pub output: Output,
    /// Takes it when the driver's program wants lines.
    pub outputs: Arc<Outputs>,
    /// What workers are copies of, when not of this executable.
    pub program: Option<Vec<std::ffi::OsString>>,
    /// A folder that goes with the keeper.
    pub scratch: Option<std::path::PathBuf>,
}

/// The node as its driver holds it.
pub struct NodeThread {
    doorbell: Doorbell,
    stop: Arc<AtomicBool>,
    keeper: Arc<Keeper>,
    threads: Vec<JoinHandle<()>>,
    /// The driver's rings: to the node and from it.
    pub rings: (RingSpan, RingSpan),
}

impl NodeThread {
    /// Starts keeper and node.
    pub fn start(start: NodeStart) -> Result<Self, Error> {
        let system =
            |what: &'static str| move |error: &dyn std::fmt::Display| Error::System { what, reason: error.to_string() };
        let inherit = vec![("fabric", start.fabric.fd()), ("arena", start.arena.fd()), ("table", start.table.fd())];
        let keeper = Keeper::start(crate::keeper::StartOptions {
            inherit,
            program: start.program.as_deref(),
            scratch: start.scratch.as_deref(),
            output: start.output,
        })
        .map_err(|e| system("starting the keeper")(&e))?;
        let keeper = Arc::new(keeper);
        let slot = SlotId::new(0).expect("slot 0 is in range");
        start.fabric.claim_slot(slot, std::process::id());
        let doorbell = start.fabric.doorbell(slot);
        let mut links = Links::new(start.fabric.clone());
        let rings = links.admit(ProcessId::DRIVER).map_err(|e| system("making the driver's rings")(&e))?;
        let stop = Arc::new(AtomicBool::new(false));
        let reports = Arc::new(Mutex::new(VecDeque::new()));
        let mut objects = Objects::new(start.arena, start.table, start.spill, doorbell.clone());
        objects.admit(ProcessId::DRIVER);
        let shell = Shell {
            node: Node::new(start.config),
            links,
            objects,
            doorbell: doorbell.clone(),
            fabric: start.fabric,
            keeper: Arc::clone(&keeper),
            reports: Arc::clone(&reports),
            stop: Arc::clone(&stop),
            job: start.job,
            settings: start.settings,
            effects: Vec::new(),
            late: Vec::new(),
        };
        let reader = report_reader(&keeper, reports, start.outputs, &stop, doorbell.clone())?;
        let node = crate::thread::spawn("bireme-node", move || shell.run())?;
        Ok(Self { doorbell, stop, keeper, threads: vec![node, reader], rings })
    }

    /// Ends all workers, the keeper and the node's threads, and waits for them.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.doorbell.ring_self();
        self.keeper.shutdown();
        for thread in self.threads {
            // A panicked node thread has said so on standard error.
            let _ = thread.join();
        }
    }
}

type Reports = Arc<Mutex<VecDeque<Report>>>;

/// The one thread that blocks on the keeper's socket.
fn report_reader(
    keeper: &Arc<Keeper>,
    reports: Reports,
    outputs: Arc<Outputs>,
    stop: &Arc<AtomicBool>,
    doorbell: Doorbell,
) -> Result<JoinHandle<()>, Error> {
    let (keeper, stop) = (Arc::clone(keeper), Arc::clone(stop));
    crate::thread::spawn("bireme-keeper", move || {
        loop {
            match keeper.read_report() {
                Ok(Report::Output { pid, stream, name, text, .. }) => {
                    let pid = pid.unsigned_abs();
                    let line = |text: &str| OutputLine { pid, name: name.clone(), stream, text: text.to_owned() };
                    outputs.push(text.split('\n').map(line));
                }
                Ok(Report::OutputDropped { lines }) => outputs.note_dropped(lines),
                Ok(report) => {
                    reports.lock().unwrap_or_else(PoisonError::into_inner).push_back(report);
                    doorbell.ring_self();
                }
                Err(lost) => {
                    outputs.close();
                    if !stop.load(Ordering::Acquire) {
                        eprintln!("bireme: {lost}; every worker is gone, and no task can run");
                    }
                    return;
                }
            }
        }
    })
}

struct Shell {
    node: Node,
    links: Links,
    objects: Objects,
    doorbell: Doorbell,
    fabric: Fabric,
    keeper: Arc<Keeper>,
    reports: Reports,
    stop: Arc<AtomicBool>,
    job: u64,
    settings: u64,
    effects: Vec<Effect>,
    late: Vec<(ProcessId, ToNode)>,
}

impl Shell {
    fn run(mut self) {
        self.step(Event::Started);
        loop {
            self.pass();
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            self.links.flush();
            if self.node.wants_pass() {
                continue;
            }
            if self.doorbell.prepare_sleep(Sleeper::Pump) {
                self.doorbell.sleep(Sleeper::Pump, Some(self.patience()));
            }
        }
    }

    fn patience(&self) -> Duration {
        let left = self.node.deadline().map(|due| Duration::from_micros(due.since_us(clock::now())));
        left.map_or(NODE_SLEEP_MAX, |left| left.min(NODE_SLEEP_MAX)).max(Duration::from_micros(50))
    }

    /// Reads every ring to its end once, then what the keeper said, then what the disk has done.
    fn pass(&mut self) {
        self.doorbell.take_ready(|_| {});
        for process in self.links.processes() {
            self.drain(process);
        }
        for (process, request) in std::mem::take(&mut self.late) {
            self.step(Event::Requested { process, request });
        }
        let reports = std::mem::take(&mut *self.reports.lock().unwrap_or_else(PoisonError::into_inner));
        for report in reports {
            self.reported(report);
        }
        for (to, message) in self.objects.progress() {
            self.links.send(to, &message);
        }
        self.step(Event::Passed);
        if self.node.deadline().is_some_and(|due| due <= clock::now()) {
            self.step(Event::Ticked);
        }
    }

    fn drain(&mut self, process: ProcessId) {
        // One look at the clock for all that waits in a ring.
        let now = clock::now();
        loop {
            match self.links.receive(process) {
                Ok(Some(NodeBound::Record(record))) => {
                    self.objects.recorded(process, &record);
                    self.step_at(Event::Recorded { process, record }, now);
                }
                // What is said about the tables is said of all rings, so it waits until they are read.
                Ok(Some(NodeBound::Request(
                    request @ (ToNode::Explain { .. }
                    | ToNode::QueryState { .. }
                    | ToNode::QueryResources { .. }
                    | ToNode::QueryNames { .. }),
                ))) => self.late.push((process, request)),
                Ok(Some(NodeBound::Request(request))) => self.step_at(Event::Requested { process, request }, now),
                Ok(None) => return,
                Err(reason) => {
                    // Never the node: the process is ended, and its death says why.
                    self.links.mute(process);
                    let request = ToNode::PeerCorrupt { peer: process, reason };
                    self.step(Event::Requested { process: ProcessId::DRIVER, request });
                    return;
                }
            }
        }
    }

    fn reported(&mut self, report: Report) {
        match report {
            Report::Spawned { slot, incarnation, pid } => {
                let (process, pid) = (ProcessId { slot, incarnation }, pid.unsigned_abs());
                self.step(Event::WorkerSpawned { process, pid });
            }
            Report::SpawnFailed { slot, incarnation, reason } => {
                let process = ProcessId { slot, incarnation };
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
                let process = ProcessId { slot: exit.slot, incarnation: exit.incarnation };
                self.drain(process);
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
    }

    fn act(&mut self, effect: Effect) {
        match effect {
            Effect::Spawn(process) => self.spawn(process),
            // A lost keeper has taken the worker with it.
            Effect::Kill(process) => drop(self.keeper.signal(process.slot, libc::SIGKILL)),
            Effect::Send { to, message } => self.links.send(to, &message),
            Effect::OpenLink { a, b } => {
                if let Err(reason) = self.links.open(a, b) {
                    eprintln!("bireme: no link between {a} and {b}: {reason}");
                }
            }
            Effect::CloseProcess(process) => {
                self.links.close(process);
                self.objects.release(process);
            }
            Effect::FreeStored(at) => self.objects.free(at),
            Effect::Store { process, request: ToNode::QueryState { request } } => self.send_state(process, request),
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
        let asked = self.links.admit(process).and_then(|(to_node, from_node)| {
            let words = [self.job, to_node.offset(), from_node.offset(), self.settings];
            self.keeper.spawn(process.slot, process.incarnation, words).map_err(|error| error.to_string())
        });
        if let Err(reason) = asked {
            let slot = process.slot;
            let incarnation = process.incarnation;
            self.reports.lock().unwrap_or_else(PoisonError::into_inner).push_back(Report::SpawnFailed {
                slot,
                incarnation,
                reason,
            });
            self.doorbell.ring_self();
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
