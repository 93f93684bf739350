//! The machine: one ordered queue of happenings, the node, the driver, the workers.
//!
//! [`Cluster::run`] takes the next happening and lets the process concerned act. How a process acts is in `shell`, what
//! its threads do in `threads`, how the node looks at its rings in `nodes`. Processes read their rings as in
//! production: the node's words first, then the peers', each to the end.

mod making;
mod nodes;
mod shell;
mod streams;
mod threads;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bireme_core::failure::DeathCause;
use bireme_core::id::{ObjectId, ProcessId};
use bireme_core::node::{self, Node, NodeConfig};
use bireme_core::owner::{self, Owner, OwnerConfig};
use bireme_core::resources::{Amount, Resources};
use bireme_core::time::Tick;
use bireme_core::worker::Worker;

use crate::faults::Faults;
use crate::invariants::{Violation, Watch};
use crate::network::Network;
use crate::planted::Planted;
use crate::program::Program;
use crate::random::Random;

pub use threads::Thread;

/// Everything that was submitted must end within this time after the faults have ended.
pub const LIVENESS_US: u64 = 120_000_000;
/// Idle leases and workers go back within this time.
pub const REST_US: u64 = 200_000_000;
/// A run with more happenings than this does not end.
pub const HAPPENINGS_MAX: u64 = 2_000_000;
/// A cancelled task that does not stop within this time loses its worker.
const CANCEL_GRACE_US: u64 = 3_000;

/// What happens next.
#[derive(Clone, Debug)]
enum Happening {
    Looked(ProcessId),
    Ran(ProcessId, u64),
    OwnerTicked(ProcessId),
    NodeLooked,
    NodeTicked,
    Born(ProcessId),
    Killed(ProcessId),
    Exited(ProcessId, DeathCause),
    Struck,
    Slandered,
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

/// The whole machine.
pub struct Cluster {
    pub(crate) now: Tick,
    sequence: u64,
    happened: u64,
    queue: BTreeMap<(Tick, u64), Happening>,
    random: Random,
    pub(crate) node: Node,
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    pub(crate) network: Network,
    faults: Faults,
    faulty: bool,
    pub(crate) program: Program,
    planted: Option<Planted>,
    pub(crate) watch: Watch,
    story: Option<Vec<String>>,
    hash: u64,
    pass: Option<VecDeque<ProcessId>>,
    node_tick: Option<Tick>,
    unborn: BTreeSet<ProcessId>,
    /// Dead, and the node has not heard of it.
    unreported: BTreeSet<ProcessId>,
    effects_until_kill: u64,
    /// Somebody died between the news of a loan and the loan itself: the owner counts it until the borrower ends.
    torn_loan: bool,
    open_links: BTreeSet<(ProcessId, ProcessId)>,
}

impl Cluster {
    /// A machine with a node and a driver that is about to run the program's roots.
    pub fn new(seed: u64, program: Program, faults: Faults, planted: Option<Planted>, story: bool) -> Self {
        let mut random = Random::new(seed);
        // Actors hold what they hold: beside them there is room for any task.
        let cpus = Amount(Amount::whole(random.within(1, 4)).0 + program.actors_cpu_tenths() * 1_000);
        let gpus = Amount::whole(2 + program.gpu_actors());
        let mut config = NodeConfig::for_machine(Resources { gpus, ..Resources::cpus(cpus) });
        // Fewer seats than blocked tasks would be a real deadlock.
        (config.processes_max, config.threads_per_process_max) = [(8, 64), (16, 64), (64, 4)][random.below(3) as usize];
        if program.has_environments() {
            // A blocked task lends its process only to tasks of its own environment.
            config.processes_max = config.processes_max.max(16);
        }
        config.idle_worker_us = 2_000_000;
        let mut cluster = Self {
            now: Tick(0),
            sequence: 0,
            happened: 0,
            queue: BTreeMap::new(),
            node: Node::new(config),
            processes: BTreeMap::new(),
            network: Network::default(),
            effects_until_kill: 0,
            torn_loan: false,
            faulty: true,
            watch: Watch::new(faults.is_calm()),
            faults,
            program,
            planted,
            story: story.then(Vec::new),
            hash: 0xcbf2_9ce4_8422_2325,
            pass: None,
            node_tick: None,
            unborn: BTreeSet::new(),
            unreported: BTreeSet::new(),
            open_links: BTreeSet::new(),
            random,
        };
        cluster.rearm_kill();
        cluster.make_process(ProcessId::DRIVER);
        cluster.step_node(node::Event::Started);
        for lane in 0..cluster.program.roots.len() {
            cluster.start_root(lane);
        }
        cluster.schedule_faults();
        cluster
    }

    fn schedule_faults(&mut self) {
        if let Some(every) = self.faults.kill_every_us {
            let after = self.random.within(1, 2 * every);
            self.after(after, Happening::Struck);
        }
        if let Some(every) = self.faults.corrupt_every_us {
            let after = self.random.within(1, 2 * every);
            self.after(after, Happening::Slandered);
        }
    }

    /// Runs both phases. The first broken invariant ends the run.
    pub fn run(&mut self) -> Result<(), Violation> {
        let faults_end = Tick(self.faults.end_us);
        self.run_until(faults_end, |_| false)?;
        self.faulty = false;
        self.note(|| "the faults end".into());
        let bound = self.now.max(faults_end).plus_us(LIVENESS_US);
        self.run_until(bound, Self::driver_is_done)?;
        if !self.driver_is_done() {
            return Err(Violation::stuck(self));
        }
        if self.torn_loan {
            let workers: Vec<ProcessId> = self.processes.keys().copied().filter(|p| *p != ProcessId::DRIVER).collect();
            workers.into_iter().for_each(|worker| self.kill(worker, DeathCause::Exited(0)));
        }
        let bound = self.now.plus_us(REST_US);
        self.run_until(bound, Self::is_at_rest)?;
        crate::invariants::rest::check(self)
    }

    /// Takes happenings until `end` or until `done`.
    fn run_until(&mut self, end: Tick, done: impl Fn(&Self) -> bool) -> Result<(), Violation> {
        while let Some(((at, _), _)) = self.queue.first_key_value() {
            if *at > end || done(self) {
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
            Happening::NodeLooked => self.node_look(),
            Happening::NodeTicked => {
                self.node_tick = None;
                self.step_node(node::Event::Ticked);
                // A node that wakes reads its rings, whatever woke it.
                self.wake_node();
            }
            Happening::Born(process) => self.born(process),
            Happening::Killed(process) => self.kill(process, DeathCause::Signalled(9)),
            Happening::Exited(process, cause) => self.exited(process, cause),
            Happening::Struck => self.strike(),
            Happening::Slandered => self.slander(),
        }
    }

    fn driver_is_done(&self) -> bool {
        self.processes.get(&ProcessId::DRIVER).is_none_or(|driver| driver.threads.is_empty())
    }

    /// Nothing is on its way and nobody holds anything.
    fn is_at_rest(&self) -> bool {
        self.driver_is_done() && self.network.is_quiet() && crate::invariants::rest::check(self).is_ok()
    }

    /// A worker is killed between two events.
    fn strike(&mut self) {
        let Some(every) = self.faults.kill_every_us.filter(|_| self.faulty) else { return };
        let victims: Vec<ProcessId> = self.processes.keys().copied().filter(|p| self.may_die(*p)).collect();
        if !victims.is_empty() {
            let victim = victims[self.random.below(victims.len() as u64) as usize];
            self.kill(victim, DeathCause::Signalled(9));
        }
        let after = self.random.within(1, 2 * every);
        self.after(after, Happening::Struck);
    }

    /// Somebody reports a worker as corrupt.
    fn slander(&mut self) {
        let Some(every) = self.faults.corrupt_every_us.filter(|_| self.faulty) else { return };
        let victims: Vec<ProcessId> = self.processes.keys().copied().filter(|p| self.may_die(*p)).collect();
        if !victims.is_empty() {
            let peer = victims[self.random.below(victims.len() as u64) as usize];
            let request = bireme_core::message::ToNode::PeerCorrupt { peer, reason: "nonsense".into() };
            self.tell_node(ProcessId::DRIVER, &request);
        }
        let after = self.random.within(1, 2 * every);
        self.after(after, Happening::Slandered);
    }

    fn may_die(&self, process: ProcessId) -> bool {
        let Some(entry) = self.processes.get(&process) else { return false };
        let actor = entry.worker.hosted().is_some();
        process != ProcessId::DRIVER && (actor || !self.faults.actors_only)
    }

    fn rearm_kill(&mut self) {
        self.effects_until_kill = match self.faults.kill_every_effects {
            Some(every) => self.random.within(1, 2 * every),
            None => u64::MAX,
        };
    }

    /// Whether the process dies just before its next effect.
    fn dies_now(&mut self, process: ProcessId) -> bool {
        if !self.processes.contains_key(&process) {
            return true;
        }
        if !self.faulty || self.faults.kill_every_effects.is_none() || !self.may_die(process) {
            return false;
        }
        self.effects_until_kill -= 1;
        if self.effects_until_kill > 0 {
            return false;
        }
        self.rearm_kill();
        self.kill(process, DeathCause::Signalled(9));
        true
    }

    fn make_process(&mut self, process: ProcessId) {
        let slow = self.faults.slow_worker.filter(|_| process != ProcessId::DRIVER);
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
