//! What the process tests share: gates, journals, process watches and a driver that can be killed.
//!
//! Nothing here sleeps. A gate is a file lock (held by the test, passed by tasks), a journal is a named pipe, the end of
//! a process is a pidfd.
#![allow(dead_code, clippy::unwrap_used)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bireme_runtime::daemon::{self, DaemonOptions, Ready};
use bireme_runtime::local::StateDirectory;
use bireme_runtime::settings::{Flags, Settings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

/// No wait of a test takes longer on a healthy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

static ONE_RUNTIME: Mutex<()> = Mutex::new(());

/// A runtime of this test's own; tests of one process take turns.
pub struct Turn {
    context: Option<bireme::Context>,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    /// Ends the runtime before the test is over.
    pub fn end(&mut self) {
        self.context = None;
    }
}

/// Waits for this test's turn and starts a runtime.
pub fn start(config: bireme::Config) -> Turn {
    let turn = turn();
    Turn { context: Some(bireme::init_with(config).unwrap()), _turn: turn }
}

/// Waits for this test's turn.
pub fn turn() -> MutexGuard<'static, ()> {
    ONE_RUNTIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two CPUs, whatever the machine has.
pub fn two_cpus() -> bireme::Config {
    bireme::Config::default().cpus(2.0).object_store_memory(64 << 20)
}

/// A folder that goes away with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bt-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Names of what is inside, without the gates and journals of the test.
    pub fn contents(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A closed gate: tasks that [`pass`] wait until it is opened, or until the test is gone.
pub struct Gate {
    file: File,
    pub path: PathBuf,
}

impl Gate {
    pub fn closed(scratch: &Scratch, name: &str) -> Self {
        let path = scratch.path(name);
        let file = File::create(&path).unwrap();
        file.lock().unwrap();
        Self { file, path }
    }

    pub fn open(&self) {
        self.file.unlock().unwrap();
    }
}

/// Waits for a gate, inside a task.
pub fn pass(gate: &Path) {
    File::open(gate).unwrap().lock_shared().unwrap();
}

/// True for exactly one caller, in whichever process.
pub fn first(marker: &Path) -> bool {
    File::options().write(true).create_new(true).open(marker).is_ok()
}

/// Lines written by any process, read by the test.
pub struct Journal {
    reader: BufReader<File>,
    pub path: PathBuf,
}

impl Journal {
    pub fn new(scratch: &Scratch, name: &str) -> Self {
        let path = scratch.path(name);
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        // Open for both: the end of one writer is not the end of the journal.
        let fd = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        Self { reader: BufReader::new(File::from(fd)), path }
    }

    /// The next line.
    pub fn next(&mut self) -> String {
        assert!(self.is_readable(PATIENCE), "nobody wrote into the journal");
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The lines that are there.
    pub fn rest(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while self.is_readable(Duration::ZERO) {
            lines.push(self.next());
        }
        lines
    }

    /// So many lines.
    pub fn take(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next()).collect()
    }

    /// Whether somebody writes a line in time.
    pub fn has_line_within(&self, patience: Duration) -> bool {
        self.is_readable(patience)
    }

    fn is_readable(&self, patience: Duration) -> bool {
        !self.reader.buffer().is_empty() || poll_in(self.reader.get_ref(), patience)
    }
}

/// Writes a line, in one piece, from any process.
pub fn note(journal: &Path, line: impl std::fmt::Display) {
    let mut file = File::options().write(true).open(journal).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn poll_in(fd: impl std::os::fd::AsFd, patience: Duration) -> bool {
    let timeout = Timespec::try_from(patience).unwrap();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("poll: {error}"),
        }
    }
}

/// A process whose end can be waited for, whoever its parent is.
pub struct Watch {
    pub pid: i32,
    fd: OwnedFd,
}

impl Watch {
    pub fn new(pid: i32) -> Self {
        let fd = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty());
        Self { pid, fd: fd.unwrap_or_else(|error| panic!("process {pid} is not there: {error}")) }
    }

    /// Whether a process with this number is there and no zombie.
    pub fn is_running(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    /// Waits for its end. A zombie has ended: whoever adopted it reaps it when it likes.
    pub fn ended_within(&self, patience: Duration) -> bool {
        poll_in(&self.fd, patience)
    }

    pub fn is_alive(&self) -> bool {
        !self.ended_within(Duration::ZERO)
    }

    pub fn kill(&self, signal: Signal) {
        rustix::process::pidfd_send_signal(&self.fd, signal).unwrap();
    }
}

/// Ends this process as the kernel would, from inside a task.
pub fn die(signal: Signal) -> ! {
    rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
    loop {
        std::thread::park();
    }
}

pub fn my_pid() -> i32 {
    std::process::id() as i32
}

/// The parent of this process: for a worker, its keeper.
pub fn parent_pid() -> i32 {
    rustix::process::getppid().unwrap().as_raw_nonzero().get()
}

/// This test binary started again, to be a driver that may be killed: see [`Driver::start`].
pub struct Driver {
    pub child: Child,
    pub watch: Watch,
    output: BufReader<ChildStdout>,
}

/// Says which scenario a started-again test binary is to play.
pub const SCENARIO: &str = "BIREME_TEST_SCENARIO";

impl Driver {
    /// Starts `test` of this binary alone, in a process group of its own, with a scenario in its environment.
    pub fn start(test: &str, scenario: &str, settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(SCENARIO, scenario);
        for (name, value) in settings {
            command.env(name, value);
        }
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let watch = Watch::new(child.id() as i32);
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, watch, output }
    }

    /// The words after `key=` in the next line that has them.
    pub fn tells(&mut self, key: &str) -> String {
        let wanted = format!("{key}=");
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the driver ended before it told {key}");
            if let Some(at) = line.find(&wanted) {
                return line[at + wanted.len()..].trim().to_owned();
            }
        }
    }

    /// Several numbers.
    pub fn tells_pids(&mut self, key: &str) -> Vec<i32> {
        self.tells(key).split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Everything that it still writes, until every process that has its standard output is gone.
    pub fn output_to_the_end(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }

    pub fn kill(&self, signal: Signal) {
        self.watch.kill(signal);
    }

    pub fn kill_group(&self, signal: Signal) {
        rustix::process::kill_process_group(Pid::from_raw(self.watch.pid).unwrap(), signal).unwrap();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The scenario that this process is to play, when it was started again.
pub fn scenario() -> Option<String> {
    std::env::var(SCENARIO).ok()
}

/// The folder of the node that a started-again test binary is to be, or that it is to attach to.
pub const NODE_FOLDER: &str = "BIREME_TEST_NODE_FOLDER";

/// The part of a node, when the environment asks for it, until `stop` is readable. Tells `ready=` with its number, its address
/// and the file of a token for others, if there is one; then `failed=` with the reason or `ended=`.
pub fn be_a_node(stop: impl FnOnce() -> OwnedFd) {
    if scenario().as_deref() != Some("node") {
        return;
    }
    let directory = PathBuf::from(std::env::var(NODE_FOLDER).unwrap());
    let settings = Settings::load(&Flags::new()).unwrap();
    let state = StateDirectory::open(&directory).unwrap();
    let ready = Box::new(|ready: Ready| {
        let token = ready.token_file.map_or(String::new(), |path| path.display().to_string());
        println!("ready={} {} {token}", ready.node, ready.address);
        Ok(())
    });
    if let Err(error) = daemon::run(DaemonOptions { settings, state, directory, ready, stop: stop() }) {
        println!("failed={error}");
        std::process::exit(3);
    }
    println!("ended=yes");
}

/// Standard input: who is started again ends with it.
pub fn standard_input() -> OwnedFd {
    rustix::io::dup(std::io::stdin()).unwrap()
}

/// Asks again and again, giving way in between, until the answer is yes.
///
/// For what the runtime does on its own time and tells nobody; everything else has an event.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came true that {what}");
        std::thread::yield_now();
    }
}

/// Worker processes that the runtime of this process has now.
pub fn worker_pids() -> Vec<i32> {
    let mut pids = Vec::new();
    // A worker can have run a task before its keeper's report of its birth is read.
    eventually("the node knows the pids of its workers", || {
        pids = bireme::state().unwrap().workers.iter().map(|worker| worker.pid as i32).collect();
        pids.iter().all(|pid| *pid > 0)
    });
    pids
}
