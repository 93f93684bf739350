//! The keepers of a node's jobs: each job has its own, since its workers are copies of the job's program.
//!
//! A job of another node's driver, whose program this node was not given, is served by the keeper of the program that the
//! node is embedded in, if it is: both are the same program then. A keeper that dies takes its workers with it; that of
//! an attached driver is started again when a worker is needed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bireme_core::id::{JobId, NodeId, ProcessId};
use bireme_core::time::Tick;
use bireme_net::Fabric;
use bireme_store::{Arena, Table};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::mail::{Mail, Word};
use super::programs::executable_of;
use super::voices::Voice;
use crate::attach::Program;
use crate::attach::program::Executable;
use crate::attach::socket::wait_for_any;
use crate::error::Error;
use crate::keeper::{Keeper, KeeperError, Report, StartOptions, Words};
use crate::output::Output;

/// Workers that lost their keeper die at once; what is still there after this time is not waited for.
const ORPHANS_WAIT: Duration = Duration::from_secs(2);
/// Tries to start a program that was just copied: while another process is being started, the kernel may think that
/// somebody still writes it.
const START_TRIES_MAX: u32 = 5;
/// The pause between them.
const START_PAUSE: Duration = Duration::from_millis(5);

/// The memory that all processes of a node share.
#[derive(Clone)]
pub(crate) struct SharedMemory {
    pub(crate) fabric: Fabric,
    pub(crate) arena: Arc<Arena>,
    pub(crate) table: Arc<Table>,
}

impl SharedMemory {
    /// What another process needs to map it, by name.
    pub(crate) fn descriptors(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        let mut fds = vec![("fabric", self.fabric.fd()), ("arena", self.arena.fd()), ("table", self.table.fd())];
        fds.extend(self.arena.overflow_fd().map(|overflow| ("overflow", overflow)));
        fds.extend(self.fabric.bell_fd().map(|bell| ("bell", bell)));
        fds
    }
}

/// What a job's keeper is started with.
pub(crate) struct KeeperStart {
    /// What workers are copies of, when not of this executable: a path and arguments.
    pub(crate) program: Option<Vec<OsString>>,
    /// Variables beside those of the node.
    pub(crate) environment: Vec<(String, String)>,
    /// A folder that goes with the keeper.
    pub(crate) scratch: Option<PathBuf>,
    /// Where the output of workers goes.
    pub(crate) output: Output,
}

impl KeeperStart {
    pub(crate) fn start(&self, memory: &SharedMemory) -> Result<Keeper, KeeperError> {
        for _ in 1..START_TRIES_MAX {
            match self.try_start(memory) {
                Err(KeeperError::System { source, .. }) if source.kind() == io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(START_PAUSE);
                }
                other => return other,
            }
        }
        self.try_start(memory)
    }

    fn try_start(&self, memory: &SharedMemory) -> Result<Keeper, KeeperError> {
        Keeper::start(StartOptions {
            inherit: memory.descriptors(),
            program: self.program.as_deref(),
            scratch: self.scratch.as_deref(),
            environment: &self.environment,
            output: self.output,
        })
    }
}

/// A job and its keeper.
pub(crate) struct Kept {
    pub(super) start: KeeperStart,
    /// For its workers, as in the driver's hello.
    pub(super) settings: u64,
    pub(super) voice: Voice,
    pub(super) executable: Option<Executable>,
    /// What other nodes are told that run workers of the job; none for a node alone.
    pub(super) program: Option<Program>,
}

struct Entry {
    kept: Kept,
    /// None after it was lost, or where no worker is started.
    running: Option<Running>,
}

struct Running {
    keeper: Arc<Keeper>,
    reader: JoinHandle<()>,
    /// It was told to end: nobody has to hear that it did.
    told: Arc<AtomicBool>,
}

/// All keepers.
pub(super) struct Keepers {
    memory: SharedMemory,
    mail: Mail,
    stop: Arc<AtomicBool>,
    /// The job of the program that the node is embedded in.
    own: Option<JobId>,
    /// When the lease of the node is over, unless it is renewed; none where it needs none.
    live_until: Option<Tick>,
    jobs: BTreeMap<JobId, Entry>,
    /// Ends of keepers that nobody waits for yet.
    ending: Vec<JoinHandle<()>>,
    /// Voices of jobs whose keepers end: their workers on other nodes may have lines yet.
    fading: Vec<(JobId, Voice, Output)>,
}

impl Keepers {
    pub(super) fn new(memory: SharedMemory, mail: Mail, stop: Arc<AtomicBool>) -> Self {
        Self {
            memory,
            mail,
            stop,
            own: None,
            live_until: None,
            jobs: BTreeMap::new(),
            ending: Vec::new(),
            fading: Vec::new(),
        }
    }

    /// A job begins, with a keeper that was started for it.
    pub(super) fn add(&mut self, job: JobId, keeper: Keeper, kept: Kept) -> Result<(), Error> {
        let running = self.watch(job, keeper, kept.voice.clone(), false)?;
        self.jobs.insert(job, Entry { kept, running: Some(running) });
        Ok(())
    }

    /// The job of the program that the node is embedded in; without a keeper where it runs no workers.
    pub(super) fn add_own(&mut self, job: JobId, keeper: Option<Keeper>, kept: Kept) -> Result<(), Error> {
        let running = keeper.map(|keeper| self.watch(job, keeper, kept.voice.clone(), true)).transpose()?;
        self.jobs.insert(job, Entry { kept, running });
        self.own = Some(job);
        Ok(())
    }

    /// The lease of this node holds until then: keepers end what a stopped node cannot end itself.
    pub(super) fn live_until(&mut self, until: Tick) {
        if self.live_until.replace(until) != Some(until) {
            for running in self.jobs.values().filter_map(|entry| entry.running.as_ref()) {
                running.keeper.live_until(until);
            }
        }
    }

    fn watch(&self, job: JobId, keeper: Keeper, voice: Voice, own: bool) -> Result<Running, Error> {
        if let Some(until) = self.live_until {
            keeper.live_until(until);
        }
        let keeper = Arc::new(keeper);
        let (theirs, mail, stop) = (Arc::clone(&keeper), self.mail.clone(), Arc::clone(&self.stop));
        let told = Arc::new(AtomicBool::new(false));
        let expected = Arc::clone(&told);
        let reader = crate::thread::spawn("bireme-keeper", move || {
            let reason = read_reports(&theirs, &mail, &voice);
            if own {
                voice.close();
                if !stop.load(Ordering::Acquire) && !expected.load(Ordering::Acquire) {
                    eprintln!("bireme: {reason}; every worker is gone, and no task can run");
                }
            }
            mail.put(Word::KeeperLost { job, reason });
        })?;
        Ok(Running { keeper, reader, told })
    }

    fn entry(&mut self, job: JobId) -> Option<(JobId, &mut Entry)> {
        let job = if self.jobs.contains_key(&job) { job } else { self.own? };
        self.jobs.get_mut(&job).map(|entry| (job, entry))
    }

    /// Whether there is a keeper for the workers of a job.
    pub(super) fn knows(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job) || self.own.is_some()
    }

    /// What the workers of a job are, for another node, and where its executable is.
    pub(super) fn program(&self, job: JobId) -> Option<(Program, u64, PathBuf)> {
        let kept = &self.jobs.get(&job)?.kept;
        let path = executable_of(kept.start.program.as_deref());
        Some((kept.program.clone()?, kept.settings, path))
    }

    /// Where lines of a job's workers go, and which.
    pub(super) fn voice(&self, job: JobId) -> Option<(Voice, Output)> {
        let fading = || self.fading.iter().find(|(of, voice, _)| *of == job && !voice.is_closed());
        let known = self.jobs.get(&job).map(|entry| (entry.kept.voice.clone(), entry.kept.start.output));
        known.or_else(|| fading().map(|(_, voice, output)| (voice.clone(), *output)))
    }

    /// The job of the program that the node is embedded in, and its voice.
    pub(super) fn own_voice(&self) -> Option<(JobId, Voice)> {
        let job = self.own?;
        Some((job, self.voice(job)?.0))
    }

    /// A node runs no workers any more, of any job.
    pub(super) fn node_died(&self, node: NodeId) {
        let kept = self.jobs.values().map(|entry| &entry.kept.voice);
        for voice in kept.chain(self.fading.iter().map(|(_, voice, _)| voice)) {
            voice.guest_finished(node);
        }
    }

    pub(super) fn memory(&self) -> SharedMemory {
        self.memory.clone()
    }

    /// Asks for a worker of a job.
    pub(super) fn spawn(&mut self, job: JobId, process: ProcessId, rings: (u64, u64)) -> Result<(), String> {
        let unknown = || format!("this node was not given the program of {job}");
        let own = self.own;
        let (kept_as, entry) = self.entry(job).ok_or_else(unknown)?;
        let settings = entry.kept.settings;
        if entry.running.is_none() && Some(kept_as) != own {
            self.start_again(kept_as).map_err(|error| error.to_string())?;
        }
        let running = self.entry(job).and_then(|(_, entry)| entry.running.as_ref()).ok_or("its keeper is gone")?;
        let words: Words = [job.0, rings.0, rings.1, settings, u64::from(process.node.0)];
        running.keeper.spawn(process.slot, process.incarnation, words).map_err(|error| error.to_string())
    }

    fn start_again(&mut self, job: JobId) -> Result<(), Error> {
        let Some(entry) = self.jobs.get(&job) else { return Ok(()) };
        let failed = |error: KeeperError| Error::System { what: "starting the keeper", reason: error.to_string() };
        let keeper = entry.kept.start.start(&self.memory).map_err(failed)?;
        let running = self.watch(job, keeper, entry.kept.voice.clone(), false)?;
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.running = Some(running);
        }
        Ok(())
    }

    /// Sends a signal to the worker of a job in this slot.
    pub(super) fn signal(&mut self, job: JobId, slot: u32, signal: i32) {
        if let Some(running) = self.entry(job).and_then(|(_, entry)| entry.running.as_ref()) {
            // A lost keeper has taken the worker with it.
            let _ = running.keeper.signal(slot, signal);
        }
    }

    /// Whether the workers of a job are the children of the keeper of `keeper_of`.
    pub(super) fn serves(&self, keeper_of: JobId, job: JobId) -> bool {
        job == keeper_of || (self.own == Some(keeper_of) && !self.jobs.contains_key(&job))
    }

    /// The keeper of a job is gone.
    pub(super) fn lost(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.running = None;
        }
    }

    /// Nothing of this job is left: its keeper ends, and then its driver hears the last word. Nobody waits for it here.
    pub(super) fn close(&mut self, job: JobId) {
        self.ending.retain(|end| !end.is_finished());
        self.fading.retain(|(_, voice, _)| !voice.is_closed());
        let Some(Entry { kept, running }) = self.jobs.remove(&job) else { return };
        self.fading.push((job, kept.voice.clone(), kept.start.output));
        let slot = Arc::new(Mutex::new(Some((kept, running))));
        let theirs = Arc::clone(&slot);
        match crate::thread::spawn("bireme-ending", move || end(&theirs)) {
            Ok(thread) => self.ending.push(thread),
            // Without a thread the node itself waits.
            Err(_) => end(&slot),
        }
    }

    /// Ends every keeper and waits for them.
    pub(super) fn end_all(&mut self) {
        let kept = self.jobs.values().map(|entry| &entry.kept.voice);
        // This thread would have to bring their lines.
        kept.chain(self.fading.iter().map(|(_, voice, _)| voice)).for_each(Voice::forget_guests);
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in jobs {
            self.close(job);
        }
        for thread in self.ending.drain(..) {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// Ends a job's keeper, reads what it still has to say, and lets go of the job's program.
fn end(slot: &Mutex<Option<(Kept, Option<Running>)>>) {
    let Some((kept, running)) = slot.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    if let Some(Running { keeper, reader, told }) = running {
        told.store(true, Ordering::Release);
        keeper.shutdown();
        // A panic there has been printed.
        let _ = reader.join();
    }
    // Before the last word: who hears it finds nothing of the job.
    drop(kept.executable);
    kept.voice.await_guests();
    kept.voice.close();
}

/// Reads what a keeper says until it is gone and its workers are; gives how it ended.
fn read_reports(keeper: &Keeper, mail: &Mail, voice: &Voice) -> String {
    let mut workers: BTreeMap<u32, i32> = BTreeMap::new();
    loop {
        match keeper.read_report() {
            Ok(report) => {
                match &report {
                    Report::Spawned { slot, pid, .. } => drop(workers.insert(*slot, *pid)),
                    Report::Exited(exit) => drop(workers.remove(&exit.slot)),
                    Report::SpawnFailed { .. } | Report::Output { .. } | Report::OutputDropped { .. } => {}
                }
                if let Some(report) = voice.say(report) {
                    mail.put(Word::Report(report));
                }
            }
            Err(lost) => {
                wait_for_orphans(workers.into_values());
                return lost.to_string();
            }
        }
    }
}

/// The kernel ends workers with their keeper, but a moment later: until then they may write to their rings.
fn wait_for_orphans(pids: impl Iterator<Item = i32>) {
    let deadline = Instant::now() + ORPHANS_WAIT;
    for pid in pids {
        let Some(pid) = Pid::from_raw(pid) else { continue };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let left = deadline.saturating_duration_since(Instant::now());
        // Who cannot be waited for is not there.
        let _ = wait_for_any(&mut [PollFd::new(&process, PollFlags::IN)], Some(left));
    }
}
