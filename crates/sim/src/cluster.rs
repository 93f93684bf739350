//! The cluster: one ordered queue of happenings, the nodes, their drivers and workers.
//!
//! [`Cluster::run`] takes the next happening and lets the process concerned act. How a process acts is in `shell`, what
//! its threads do in `threads`, how a node looks at its rings in `nodes`, how nodes talk to each other in `links`, who
//! is a member in `members`, and what goes wrong in `trouble`. Processes read their rings as in production: the node's
//! words first, then the peers', each to the end.

mod drains;
mod groups;
mod host;
mod links;
mod making;
mod members;
mod nodes;
mod reduces;
mod shell;
mod stages;
mod stores;
mod streams;
mod threads;
mod transfers;
mod trouble;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bireme_core::controller::{FromController, ToController};
use bireme_core::failure::DeathCause;
use bireme_core::flow::StageId;
use bireme_core::id::{GroupId, JobId, NodeId, ObjectId, ProcessId};
use bireme_core::message::Peer;
use bireme_core::owner::{self, Owner, OwnerConfig};
use bireme_core::resources::UNITS_PER_WHOLE;
use bireme_core::schedule::Load;
use bireme_core::time::Tick;
use bireme_core::worker::Worker;

use crate::faults::Faults;
use crate::invariants::{Violation, Watch};
use crate::network::Network;
use crate::planted::Planted;
use crate::program::Program;
use crate::random::Random;

use links::{Frame, Wires};
use members::{Members, Welcome};
use transfers::Wanted;

pub use host::Host;
pub use threads::Thread;

/// Everything that was submitted must end within this time after the faults have ended.
pub const LIVENESS_US: u64 = 120_000_000;
/// Idle leases and workers go back within this time.
pub const REST_US: u64 = 200_000_000;
/// A run with more happenings than this does not end.
pub const HAPPENINGS_MAX: u64 = 2_000_000;
/// Whether a phase is over is looked at every so many happenings.
const LOOK_EVERY: u64 = 16;
/// A cancelled task that does not stop within this time loses its worker.
const CANCEL_GRACE_US: u64 = 3_000;

/// What happens next.
#[derive(Clone, Debug)]
enum Happening {
    Looked(ProcessId),
    Ran(ProcessId, u64),
    OwnerTicked(ProcessId),
    NodeLooked(NodeId),
    NodeTicked(NodeId),
    Born(ProcessId),
    Killed(ProcessId),
    Exited(ProcessId, DeathCause),
    Struck,
    Slandered,
    /// A message of a process to another comes once more.
    Repeated(ProcessId, ProcessId, Box<Peer>),
    /// A frame comes out of the connection between two nodes.
    Arrived(Box<Frame>),
    LinkTicked(NodeId, NodeId),
    Redialled(NodeId, NodeId),
    /// The controller's answer to a join arrives.
    Welcomed(Box<Welcome>),
    /// A node tells the controller that it is there.
    Beaten(NodeId),
    Heartbeat(NodeId, u64, Box<Load>),
    Asked(Box<ToController>),
    Renewed(NodeId, Box<FromController>),
    /// The controller looks at whose lease is over.
    Judged,
    /// A node that the controller takes for dead hears that.
    Rejected(NodeId),
    /// A node has ended all its processes because it lost its tenure.
    Fenced(NodeId),
    /// A node that left is gone.
    NodeEnded(NodeId),
    GroupWanted,
    GroupRemoved(GroupId),
    NodeJoined,
    NodeCrashed,
    NodeLeft,
    NodeDrained,
    /// The controller finds that nobody listens where a node was.
    Refused(NodeId),
    Cut,
    Healed(NodeId, NodeId),
    Broken,
    /// A store begins to see to a copy.
    CopyWanted(Box<Wanted>),
    /// A transfer has heard who sends, or got further.
    TransferWentOn(NodeId, u64),
    /// A node goes on with its part of a reduce.
    StageWentOn(NodeId, StageId),
}

/// A driver or worker.
pub struct Process {
    pub(crate) owner: Owner,
    worker: Worker,
    links: BTreeSet<ProcessId>,
    /// Messages behind one whose link is not there yet: nothing overtakes the news of a loan.
    parked: VecDeque<(ProcessId, Vec<u8>)>,
    pub(crate) threads: BTreeMap<u64, Thread>,
    next_thread: u64,
    next_request: u64,
    /// References that the actor here keeps.
    kept: Vec<ObjectId>,
    /// Items of streams that a repeated thread asks about.
    found: BTreeMap<u64, Vec<(u32, bireme_core::value::Value)>>,
    slowness: u64,
    look_due: bool,
    tick_due: Option<Tick>,
    /// It has told an owner of a loan and not yet sent what it lends.
    lending: bool,
    /// Records that a planted bug holds back.
    withheld: Vec<Vec<u8>>,
}

/// The whole cluster.
pub struct Cluster {
    pub(crate) now: Tick,
    sequence: u64,
    happened: u64,
    queue: BTreeMap<(Tick, u64), Happening>,
    random: Random,
    pub(crate) hosts: BTreeMap<NodeId, Host>,
    wires: Wires,
    members: Members,
    /// Where the driver of each root is.
    root_nodes: Vec<NodeId>,
    groups_made: u64,
    /// What the user's code took so far, on a node of pace 1.
    worked_us: u64,
    done_at: Tick,
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    pub(crate) network: Network,
    faults: Faults,
    faulty: bool,
    pub(crate) program: Program,
    planted: Option<Planted>,
    pub(crate) watch: Watch,
    story: Option<Vec<String>>,
    hash: u64,
    unborn: BTreeSet<ProcessId>,
    /// Dead, and the node has not heard of it.
    unreported: BTreeSet<ProcessId>,
    effects_until_kill: u64,
    /// Somebody died between the news of a loan and the loan itself: the owner counts it until the borrower ends.
    torn_loan: bool,
    /// A node was lost.
    node_lost: bool,
    open_links: BTreeSet<(ProcessId, ProcessId)>,
}

/// Whether this is a driver.
pub(crate) fn is_driver(process: ProcessId) -> bool {
    process.is_driver()
}

impl Cluster {
    /// A cluster whose drivers are about to run the program's roots.
    pub fn new(seed: u64, program: Program, faults: Faults, planted: Option<Planted>, story: bool) -> Self {
        let mut cluster = Self {
            now: Tick(0),
            sequence: 0,
            happened: 0,
            queue: BTreeMap::new(),
            hosts: BTreeMap::new(),
            wires: Wires::default(),
            members: Members::default(),
            root_nodes: Vec::new(),
            groups_made: 0,
            worked_us: 0,
            done_at: Tick(0),
            processes: BTreeMap::new(),
            network: Network::default(),
            effects_until_kill: 0,
            torn_loan: false,
            node_lost: false,
            faulty: true,
            watch: Watch::new(faults.is_calm()),
            faults,
            program,
            planted,
            story: story.then(Vec::new),
            hash: 0xcbf2_9ce4_8422_2325,
            unborn: BTreeSet::new(),
            unreported: BTreeSet::new(),
            open_links: BTreeSet::new(),
            random: Random::new(seed),
        };
        cluster.rearm_kill();
        cluster.found();
        cluster.start_roots();
        cluster.schedule_faults();
        cluster
    }

    /// Runs both phases. The first broken invariant ends the run.
    pub fn run(&mut self) -> Result<(), Violation> {
        let faults_end = Tick(self.faults.end_us);
        self.run_until(faults_end, |_| false)?;
        self.faulty = false;
        self.note(|| "the faults end".into());
        let bound = self.now.max(faults_end).plus_us(LIVENESS_US);
        self.run_until(bound, Self::drivers_are_done)?;
        if !self.drivers_are_done() {
            return Err(Violation::stuck(self));
        }
        self.done_at = self.now;
        if self.torn_loan {
            let workers: Vec<ProcessId> = self.processes.keys().copied().filter(|p| !is_driver(*p)).collect();
            workers.into_iter().for_each(|worker| self.kill(worker, DeathCause::Exited(0)));
        }
        let bound = self.now.plus_us(REST_US);
        self.run_until(bound, Self::is_at_rest)?;
        crate::invariants::rest::check(self)
    }

    /// When the drivers had all they waited for.
    pub fn done_us(&self) -> u64 {
        self.done_at.0
    }

    /// How long all work takes when no CPU of any node ever idles.
    pub fn ideal_us(&self) -> u64 {
        let speed = |node: &NodeId| 1_000_000 / self.faults.nodes.pace(*node);
        let capacity =
            self.hosts.iter().map(|(node, host)| host.node.load().total.cpus.0 / UNITS_PER_WHOLE * speed(node));
        self.worked_us.saturating_mul(1_000_000) / capacity.sum::<u64>().max(1)
    }

    /// Takes happenings until `end` or until `done`.
    fn run_until(&mut self, end: Tick, done: impl Fn(&Self) -> bool) -> Result<(), Violation> {
        while let Some(((at, _), _)) = self.queue.first_key_value() {
            // Looking at everything is dear, and nobody is in a hurry.
            if *at > end || self.happened.is_multiple_of(LOOK_EVERY) && done(self) {
                return Ok(());
            }
            let Some(((at, _), happening)) = self.queue.pop_first() else { return Ok(()) };
            self.now = at;
            self.happened += 1;
            if self.happened > HAPPENINGS_MAX {
                return Err(Violation::stuck(self));
            }
            self.happen(happening);
            if let Some(violation) = self.watch.take_violation() {
                return Err(violation);
            }
        }
        Ok(())
    }

    fn happen(&mut self, happening: Happening) {
        self.mix(self.now.0);
        match happening {
            Happening::Looked(process) => self.look(process),
            Happening::Ran(process, thread) => self.run_thread(process, thread),
            Happening::OwnerTicked(process) => {
                if let Some(entry) = self.processes.get_mut(&process) {
                    entry.tick_due = None;
                    self.step_owner(process, owner::Event::Ticked);
                    self.arm_owner(process);
                }
            }
            Happening::NodeLooked(node) => self.node_look(node),
            Happening::NodeTicked(node) => self.node_tick(node),
            Happening::Born(process) => self.born(process),
            Happening::Killed(process) => self.kill(process, DeathCause::Signalled(9)),
            Happening::Exited(process, cause) => self.exited(process, cause),
            Happening::Struck => self.strike(),
            Happening::Slandered => self.slander(),
            Happening::Repeated(process, peer, message) => self.repeated(process, peer, *message),
            Happening::Arrived(frame) => self.arrived(*frame),
            Happening::LinkTicked(node, peer) => self.link_ticked(node, peer),
            Happening::Redialled(a, b) => self.redialled(a, b),
            Happening::Beaten(node) => self.beaten(node),
            Happening::Judged => self.judge(),
            Happening::Welcomed(welcome) => self.welcomed(*welcome),
            Happening::Asked(request) => self.asked(request),
            Happening::Heartbeat(node, sequence, load) => self.heartbeat(node, sequence, load),
            Happening::Renewed(node, message) => self.hear_controller(node, *message),
            Happening::Rejected(node) | Happening::Fenced(node) => self.fenced(node),
            Happening::NodeEnded(node) => self.crash(node),
            Happening::GroupWanted => self.strike_group(),
            Happening::GroupRemoved(group) => self.remove_group(group),
            Happening::NodeJoined => self.strike_join(),
            Happening::NodeCrashed => self.strike_node(),
            Happening::NodeLeft => self.strike_leave(),
            Happening::NodeDrained => self.strike_drain(),
            Happening::Refused(node) => self.refused(node),
            Happening::Cut => self.strike_cut(),
            Happening::Healed(from, to) => self.heal(from, to),
            Happening::Broken => self.strike_connection(),
            Happening::CopyWanted(wanted) => self.copy_wanted(*wanted),
            Happening::TransferWentOn(node, number) => self.transfer_went_on(node, number),
            Happening::StageWentOn(node, id) => self.stage_went_on(node, id),
        }
    }

    fn drivers_are_done(&self) -> bool {
        let mut drivers = self.processes.iter().filter(|(process, _)| is_driver(**process));
        drivers.all(|(_, driver)| driver.threads.is_empty())
    }

    /// Nothing is on its way and nobody holds anything.
    fn is_at_rest(&self) -> bool {
        self.drivers_are_done()
            && self.network.is_quiet()
            && self.links_are_quiet()
            && crate::invariants::rest::check(self).is_ok()
    }

    fn make_process(&mut self, process: ProcessId) {
        let slow = self.faults.slow_worker.filter(|_| !is_driver(process));
        let slowness = match slow {
            Some((one_in, factor)) if self.random.one_in(one_in) => factor,
            _ => 1,
        };
        let owner = Owner::new(process, OwnerConfig { cancel_grace_us: CANCEL_GRACE_US });
        let entry = Process {
            owner,
            worker: Worker::default(),
            // An actor may call itself.
            links: BTreeSet::from([process]),
            parked: VecDeque::new(),
            threads: BTreeMap::new(),
            next_thread: 0,
            next_request: 0,
            kept: Vec::new(),
            found: BTreeMap::new(),
            slowness,
            look_due: false,
            tick_due: None,
            lending: false,
            withheld: Vec::new(),
        };
        self.processes.insert(process, entry);
        if self.job_of(process) == Some(host::DOOMED_JOB) {
            self.watch.doom(process);
        }
    }

    /// Whose process this is.
    fn job_of(&self, process: ProcessId) -> Option<JobId> {
        self.hosts.get(&process.node)?.node.job_of(process)
    }

    fn after(&mut self, us: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((self.now.plus_us(us), self.sequence), happening);
    }

    fn mix(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    fn mix_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    /// The hash of everything that happened.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How much happened.
    pub fn happened(&self) -> u64 {
        self.happened
    }

    /// The story so far, when it is kept.
    pub fn story(&self) -> &[String] {
        self.story.as_deref().unwrap_or_default()
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{:>9} {}", self.now.0, line()));
        }
    }
}
