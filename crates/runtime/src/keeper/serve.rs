//! The keeper's loop: one thread that waits for the node, for its children and for their output.
//!
//! Entered before `main` (`super::enter`) and left in one of two ways: as the keeper, when the node is gone or says so
//! and every descendant has ended; or as a worker, in the child of a fork, with everything of the keeper's dropped.
//! It stays small, since every worker begins as a copy of it, and it never blocks: not on the node (reports queue,
//! and at [`REPORTS_QUEUED_MAX`] no further command is read), not on standard error.

use super::birth::{self, Born};
use super::descent::{self, descendants, processes, worker_tag};
use super::memory::OutOfMemory;
use super::message::{Command, ExitKind, Report, Words, WorkerExit, decode, encode};
use super::outbox::{Outbox, Writer};
use super::pipes::Pipes;
use super::role::NamedFds;
use super::stderr::Forward;
use super::{WorkerStart, sys};
use crate::clock;
use crate::output::{Output, Stream};
use bireme_core::time::Tick;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, kill_process_group, pidfd_open,
    set_child_subreaper, wait,
};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Workers at one time; a further `Spawn` fails.
const WORKERS_MAX: usize = 4096;
/// Reports that wait for the node before its commands have to wait.
const REPORTS_QUEUED_MAX: usize = 1024;
/// Commands taken in one turn of the loop.
const COMMANDS_PER_TURN: usize = 64;
/// A dead worker's leftovers are looked for this long after, so that its replacement is forked first.
const SWEEP_DELAY: Duration = Duration::from_millis(20);
/// How long the end of all descendants may take; what survives this cannot be killed by us.
const END_WAIT: Duration = Duration::from_secs(3);

/// Serves until the end: `None` as the keeper, a start as a new worker.
pub(super) fn run(socket: RawFd, driver: i32, output: Output, fds: NamedFds) -> Result<Option<WorkerStart>, String> {
    sys::ignore_broken_pipes();
    // The tag of an outer worker is no tag of ours.
    sys::set_environment(descent::WORKER_TAG, None);
    let node = sys::adopt_fd(socket).ok_or_else(|| format!("descriptor {socket} (socket) is not open"))?;
    let inherited = birth::adopt(fds)?;
    let _ = rustix::thread::set_name(c"bireme-keeper");
    set_child_subreaper(Some(getpid())).map_err(|error| format!("becoming a subreaper: {error}"))?;
    let signals = sys::watch_signals(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT])
        .map_err(|error| format!("signalfd: {error}"))?;
    let driver_pid = Pid::from_raw(driver).ok_or("the driver has no process id")?;
    // A child that the driver forked may hold the socket open, so the process itself is watched as well.
    let driver = pidfd_open(driver_pid, PidfdFlags::empty());
    if getppid() != Some(driver_pid) {
        return Ok(None);
    }
    let driver = driver.map_err(|error| format!("pidfd_open: {error}"))?;
    Serve {
        node,
        driver,
        signals,
        inherited,
        workers: BTreeMap::new(),
        reports: VecDeque::new(),
        voice: Voice { output, forward: Forward::open(), outbox: Outbox::default() },
        memory: OutOfMemory::find(),
        sweep_at: None,
        live_until: None,
    }
    .turn_until_the_end()
}

struct Worker {
    incarnation: u32,
    pid: Pid,
    /// Tells of the worker's end: SIGCHLD alone is not enough, a second thread of the keeper may swallow it.
    process: Option<OwnedFd>,
    pipes: Pipes,
    killed_by_node: bool,
    memory_kills_at_spawn: u64,
}

struct Serve {
    node: OwnedFd,
    driver: OwnedFd,
    signals: OwnedFd,
    inherited: Vec<(String, OwnedFd)>,
    workers: BTreeMap<u32, Worker>,
    reports: VecDeque<Vec<u8>>,
    voice: Voice,
    memory: OutOfMemory,
    sweep_at: Option<Instant>,
    /// When the node may have no workers any more, as it said last.
    live_until: Option<Tick>,
}

/// Where the lines of workers go.
struct Voice {
    output: Output,
    forward: Forward,
    outbox: Outbox,
}

impl Voice {
    /// Passes the lines of one worker on.
    fn of(&mut self, slot: u32, pid: Pid) -> impl FnMut(Stream, &str, &[u8]) {
        move |stream, name, line| match self.output {
            Output::Inherit => self.forward.push(line),
            Output::Lines => self.outbox.push(Writer { slot, pid: pid.as_raw_pid(), stream }, name, line),
            Output::Silent => {}
        }
    }
}

/// What a wait has found.
#[derive(Default)]
struct Ready {
    node: bool,
    signals: bool,
    worker_ended: bool,
    driver_gone: bool,
    workers: Vec<u32>,
}

/// What the node's commands lead to.
enum Taken {
    Served,
    NodeGone,
    Born(WorkerStart),
}

impl Serve {
    fn turn_until_the_end(mut self) -> Result<Option<WorkerStart>, String> {
        loop {
            let ready = self.wait();
            for slot in ready.workers {
                self.read_output(slot);
            }
            let mut end = ready.driver_gone;
            if ready.signals {
                end |= self.take_signals();
            }
            if ready.signals || ready.worker_ended {
                self.reap();
            }
            if ready.node {
                match self.take_commands() {
                    Taken::Served => {}
                    Taken::NodeGone => end = true,
                    Taken::Born(start) => return Ok(Some(start)),
                }
            }
            // After the commands: what the node has said in time counts, however late this process gets to run.
            if self.live_until.is_some_and(|until| until <= clock::now()) {
                self.voice.forward.push(b"bireme: the lease of this node was not renewed in time; its workers end\n");
                end = true;
            }
            self.voice.outbox.close();
            self.send_reports();
            self.voice.forward.flush();
            if end {
                self.end_everything();
                return Ok(None);
            }
            if self.sweep_at.is_some_and(|at| at <= Instant::now()) {
                self.sweep();
            }
        }
    }

    fn wait(&self) -> Ready {
        let mut node_flags = PollFlags::empty();
        node_flags.set(PollFlags::IN, self.reports.len() < REPORTS_QUEUED_MAX);
        node_flags.set(PollFlags::OUT, self.next_packet().is_some());
        let mut fds = vec![
            PollFd::new(&self.node, node_flags),
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.driver, PollFlags::IN),
        ];
        let with_output = self.workers.iter().flat_map(|(slot, worker)| worker.pipes.fds().map(|fd| (*slot, fd)));
        let (slots, outputs): (Vec<u32>, Vec<&OwnedFd>) = with_output.unzip();
        fds.extend(outputs.into_iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let ends_from = fds.len();
        let ends = self.workers.values().filter_map(|worker| worker.process.as_ref());
        fds.extend(ends.map(|fd| PollFd::new(fd, PollFlags::IN)));
        let ends = ends_from..fds.len();
        fds.extend(self.voice.forward.wants_write().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        let sweep = self.sweep_at.map(|at| at.saturating_duration_since(Instant::now()));
        let live = self.live_until.map(|until| Duration::from_micros(until.since_us(clock::now())));
        let timeout = sweep.into_iter().chain(live).min();
        let timeout = timeout.map(|left| Timespec::try_from(left).expect("the length of a lease fits"));
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return Ready::default();
        }
        let happened = |index: usize| !fds[index].revents().is_empty();
        let spoken = slots.iter().enumerate().filter(|(index, _)| happened(3 + index));
        let mut workers: Vec<u32> = spoken.map(|(_, slot)| *slot).collect();
        workers.dedup();
        Ready {
            node: happened(0),
            signals: happened(1),
            driver_gone: happened(2),
            worker_ended: ends.into_iter().any(happened),
            workers,
        }
    }

    /// Empties the signal descriptor; true when one of them asks this process to end.
    fn take_signals(&mut self) -> bool {
        let mut end = false;
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        while let Ok(length) = rustix::io::read(&self.signals, &mut record) {
            let number = record.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
            end |= length == record.len() && number != Some(libc::SIGCHLD as u32);
        }
        end
    }

    fn take_commands(&mut self) -> Taken {
        let mut packet = [0; 64];
        for _ in 0..COMMANDS_PER_TURN {
            let length = match recv(&self.node, &mut packet, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok((_, 0)) => return Taken::NodeGone,
                Ok((_, length)) => length,
                Err(Errno::AGAIN | Errno::INTR) => return Taken::Served,
                Err(_) => return Taken::NodeGone,
            };
            match decode::<Command>(&packet[..length.min(packet.len())]) {
                Ok(Command::Spawn { slot, incarnation, words }) => {
                    if let Some(start) = self.spawn(slot, incarnation, words) {
                        return Taken::Born(start);
                    }
                }
                Ok(Command::Signal { slot, signal }) => self.signal(slot, signal),
                Ok(Command::LiveUntil(until)) => self.live_until = Some(until),
                Ok(Command::Shutdown) => return Taken::NodeGone,
                Err(error) => {
                    self.voice.forward.push(format!("bireme: keeper: bad command: {error}\n").as_bytes());
                    return Taken::NodeGone;
                }
            }
        }
        Taken::Served
    }

    /// Makes a worker; a start is returned in the new process only.
    fn spawn(&mut self, slot: u32, incarnation: u32, words: Words) -> Option<WorkerStart> {
        let born = match self.workers.get(&slot) {
            Some(worker) => Err(format!("slot {slot} still has worker {slot}.{}", worker.incarnation)),
            None if self.workers.len() >= WORKERS_MAX => Err(format!("the keeper has {WORKERS_MAX} workers already")),
            None => birth::give_birth((slot, incarnation, words), self.voice.output, &self.inherited),
        };
        match born {
            Ok(Born::Me) => {
                return Some(WorkerStart {
                    slot,
                    incarnation,
                    words,
                    forked: true,
                    fds: std::mem::take(&mut self.inherited),
                });
            }
            Ok(Born::Worker { pid, pipes }) => {
                self.report(&Report::Spawned { slot, incarnation, pid: pid.as_raw_pid() });
                let worker = Worker {
                    incarnation,
                    pid,
                    process: pidfd_open(pid, PidfdFlags::empty()).ok(),
                    pipes,
                    killed_by_node: false,
                    memory_kills_at_spawn: self.memory.count(),
                };
                self.workers.insert(slot, worker);
            }
            Err(reason) => self.report(&Report::SpawnFailed { slot, incarnation, reason }),
        }
        None
    }

    fn signal(&mut self, slot: u32, signal: i32) {
        if let (Some(worker), Some(signal)) = (self.workers.get_mut(&slot), Signal::from_named_raw(signal)) {
            worker.killed_by_node |= signal == Signal::KILL;
            // Not reaped yet, so the number is still this worker's.
            let _ = kill_process(worker.pid, signal);
        }
    }

    fn read_output(&mut self, slot: u32) {
        if let Some(worker) = self.workers.get_mut(&slot) {
            worker.pipes.read(self.voice.of(slot, worker.pid));
        }
    }

    /// Reaps every child that has ended: workers, and orphans that became our children.
    fn reap(&mut self) {
        while let Some(pid) = sys::next_dead_child() {
            let slot = self.workers.iter().find(|(_, worker)| worker.pid == pid).map(|(slot, _)| *slot);
            if slot.is_some() {
                // While the zombie is there the group's number cannot belong to anybody else.
                let _ = kill_process_group(pid, Signal::KILL);
            }
            let Some(ending) = sys::reap(pid) else { return };
            if let Some(slot) = slot {
                self.bury(slot, &ending);
            }
        }
    }

    fn bury(&mut self, slot: u32, ending: &sys::Ending) {
        let status = ending.status;
        let Some(worker) = self.workers.remove(&slot) else { return };
        let stderr_tail = worker.pipes.finish(self.voice.of(slot, worker.pid));
        self.voice.forward.flush();
        let kind = match libc::WIFSIGNALED(status) {
            true => ExitKind::Signal(libc::WTERMSIG(status)),
            false => ExitKind::Exit(libc::WEXITSTATUS(status)),
        };
        let suspect = kind == ExitKind::Signal(libc::SIGKILL) && !worker.killed_by_node;
        let out_of_memory = suspect && self.memory.claim(worker.memory_kills_at_spawn);
        self.report(&Report::Exited(WorkerExit {
            slot,
            incarnation: worker.incarnation,
            pid: worker.pid.as_raw_pid(),
            status: kind,
            core_dumped: libc::WIFSIGNALED(status) && libc::WCOREDUMP(status),
            out_of_memory,
            stderr_tail,
            memory_peak_bytes: ending.memory_peak_bytes,
        }));
        self.sweep_at = Some(Instant::now() + SWEEP_DELAY);
    }

    fn report(&mut self, report: &Report) {
        let packet = encode(report).expect("the tail is bounded so that every report fits");
        self.reports.push_back(packet);
        self.send_reports();
    }

    /// What goes to the node next: reports of births and deaths come before lines.
    fn next_packet(&self) -> Option<&[u8]> {
        self.reports.front().map(Vec::as_slice).or_else(|| self.voice.outbox.front())
    }

    fn send_reports(&mut self) {
        while let Some(packet) = self.next_packet() {
            match send(&self.node, packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) if self.reports.is_empty() => self.voice.outbox.pop(),
                Ok(_) => drop(self.reports.pop_front()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The node is gone; the next wait says so.
                Err(_) => {
                    self.reports.clear();
                    self.voice.outbox.clear();
                }
            }
        }
    }

    /// Kills what dead workers left behind outside their process groups: children of ours that carry the tag of a
    /// worker that is no more. An orphan without a tag (forked, own session, never executed anything) lives on until
    /// the end, since nothing says whose it is.
    fn sweep(&mut self) {
        self.sweep_at = None;
        let own = getpid().as_raw_pid();
        let table = processes();
        let live_tag =
            |tag: &String| self.workers.iter().any(|(slot, worker)| *tag == birth::tag(own, *slot, worker.incarnation));
        let live_group = |group: i32| self.workers.values().any(|worker| worker.pid.as_raw_pid() == group);
        let leftovers = table.iter().filter(|process| process.parent == own && !live_group(process.group));
        for leftover in leftovers.filter(|process| worker_tag(process.pid).is_some_and(|tag| !live_tag(&tag))) {
            descent::kill(leftover.pid);
            for process in descendants(leftover.pid, &table) {
                descent::kill(process.pid);
            }
            // Their children, if any were forked meanwhile, become ours: look again.
            self.sweep_at = Some(Instant::now() + SWEEP_DELAY);
        }
    }

    /// Ends every descendant, then passes on what workers wrote before.
    fn end_everything(&mut self) {
        let deadline = Instant::now() + END_WAIT;
        let workers = std::mem::take(&mut self.workers);
        for worker in workers.values() {
            descent::kill(worker.pid.as_raw_pid());
        }
        self.kill_everything(deadline);
        for (slot, worker) in workers {
            worker.pipes.finish(self.voice.of(slot, worker.pid));
        }
        self.voice.forward.flush();
        loop {
            self.voice.outbox.close();
            self.send_reports();
            let left = deadline.saturating_duration_since(Instant::now());
            if self.next_packet().is_none() || left.is_zero() {
                return;
            }
            let mut fds = [PollFd::new(&self.node, PollFlags::OUT)];
            let left = Timespec::try_from(left).expect("a few seconds fit");
            let _ = poll(&mut fds, Some(&left));
        }
    }

    /// Kills and reaps until no child is left; orphans come to us, so none are missed.
    fn kill_everything(&mut self, deadline: Instant) {
        let own = getpid().as_raw_pid();
        while Instant::now() < deadline {
            for process in descendants(own, &processes()) {
                descent::kill(process.pid);
            }
            loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some(_)) | Err(Errno::INTR) => {}
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
            let mut fds = [PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
            let pause = Timespec::try_from(SWEEP_DELAY).expect("a few milliseconds fit");
            let _ = poll(&mut fds, Some(&pause));
            self.take_signals();
        }
    }
}
