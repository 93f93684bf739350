//! The keeper: one process per node, parent and subreaper of all its workers.
//!
//! This file is the node's side, [`Keeper`]: it starts the process, sends it commands and reads its reports. The process
//! is the user's own executable started again (`crate::entry`); its loop is in `serve`. The keeper forks workers from
//! itself while it has a single thread, tells how they ended, and ends every descendant when it loses its node.
//!
//! | file | what |
//! |---|---|
//! | `message` | commands and reports |
//! | `role` | what a process started again is told |
//! | `serve` | the keeper's loop |
//! | `birth` | how a worker process comes to be |
//! | `pipes`, `lines` | worker output: read, and cut into lines |
//! | `stderr` | lines passed on to standard error, and the last ones remembered |
//! | `outbox` | lines on their way to the node |
//! | `memory` | was it the kernel's out-of-memory killer |
//! | `descent` | the processes below the keeper |
//! | `sys` | fork, posix_spawn, signals: all the unsafe code |
//!
//! Invariants: no worker outlives its keeper (parent-death signal), no descendant outlives its node (the keeper watches
//! the socket and the driver process itself), no worker outlives the lease of its node, also when the node is stopped
//! (`Command::LiveUntil`), and a slot has at most one worker.

mod birth;
mod descent;
mod lines;
mod memory;
mod message;
mod outbox;
mod pipes;
mod role;
mod serve;
mod stderr;
// Fork, posix_spawn and signal masks exist only as C functions.
#[allow(unsafe_code)]
mod sys;

pub use lines::OUTPUT_NAME_BYTES_MAX;
pub use message::{
    Command, ExitKind, MESSAGE_BYTES_MAX, MessageError, PROTOCOL_VERSION, Report, Words, WorkerExit, decode, encode,
};
pub use outbox::OUTPUT_QUEUED_BYTES_MAX;
pub use stderr::{
    STDERR_LINE_BYTES_MAX, STDERR_QUEUED_BYTES_MAX, STDERR_TAIL_BYTES_MAX, STDERR_TAIL_LINE_BYTES_MAX,
    STDERR_TAIL_LINES_MAX,
};
pub(crate) use sys::{
    environment_has, exit_now, on_fork, open_standard_descriptors, with_signals_blocked, with_signals_unblocked,
};

use crate::entry;
use crate::output::Output;
use bireme_core::time::Tick;
use role::Role;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long [`Keeper::shutdown`] waits for the keeper before it kills it.
pub const SHUTDOWN_WAIT: Duration = Duration::from_secs(5);
/// Descriptors that can be handed to the keeper.
pub const INHERITED_FDS_MAX: usize = 64;
/// Where workers find the path of their scratch folder.
pub const SCRATCH_VARIABLE: &str = "BIREME_SCRATCH";
/// Exit code of a keeper or worker that could not begin.
pub const EXIT_CODE_BROKEN: i32 = 70;

/// What the keeper, and through it every worker, gets from the node.
#[derive(Default)]
pub struct StartOptions<'a> {
    /// Open descriptors by name (letters, digits, `-`, `_`): shared memory, eventfds, sockets.
    pub inherit: Vec<(&'a str, BorrowedFd<'a>)>,
    /// Where the output of workers goes.
    pub output: Output,
    /// What to start instead of this executable: a path and arguments. It calls [`enter_from`] when it is ready.
    pub program: Option<&'a [OsString]>,
    /// A folder that workers may make and fill; the keeper removes it when it ends.
    pub scratch: Option<&'a Path>,
    /// Variables beside those of this process.
    pub environment: &'a [(String, String)],
}

/// What a worker process starts with.
#[derive(Debug)]
pub struct WorkerStart {
    /// Place of the worker in the node's pool.
    pub slot: u32,
    /// Which worker of that slot this is.
    pub incarnation: u32,
    /// What the node said in [`Keeper::spawn`].
    pub words: Words,
    /// Whether this process is a copy of the keeper, or was started anew.
    pub forked: bool,
    /// The descriptors of [`StartOptions::inherit`].
    pub fds: Vec<(String, OwnedFd)>,
}

impl WorkerStart {
    /// Takes the descriptor with this name out of the list.
    pub fn take(&mut self, name: &str) -> Option<OwnedFd> {
        let index = self.fds.iter().position(|(known, _)| known == name)?;
        Some(self.fds.swap_remove(index).1)
    }
}

/// The keeper could not be started.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// This process was started as a keeper but its constructor did not take over.
    #[error(
        "this process was started as a keeper but reached main: link the runtime into the executable, not into a \
         shared library"
    )]
    MissedEntry,
    /// A name that cannot be passed on.
    #[error("descriptor name {0:?} must be 1 to 64 letters, digits, '-' or '_'")]
    BadName(String),
    /// More descriptors than [`INHERITED_FDS_MAX`].
    #[error("{0} descriptors were to be handed to the keeper, the limit is {INHERITED_FDS_MAX}")]
    TooManyFds(usize),
    /// The system refused.
    #[error("the keeper could not be started: {step}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// The keeper is gone, or does not speak our language; no worker of it can be trusted to live.
#[derive(Debug, thiserror::Error)]
pub enum KeeperLost {
    /// The process ended.
    #[error("the keeper process (pid {pid}) {how}")]
    Ended {
        /// Its process id.
        pid: i32,
        /// How it ended.
        how: String,
    },
    /// A report could not be read.
    #[error("the keeper process (pid {pid}) sent a bad report: {source}")]
    BadReport {
        /// Its process id.
        pid: i32,
        /// What is wrong with it.
        source: MessageError,
    },
}

/// The node's hold on its keeper. Dropping it ends the keeper and everything below it.
#[derive(Debug)]
pub struct Keeper {
    socket: OwnedFd,
    process: OwnedFd,
    pid: i32,
    /// Who started it: a forked copy of that process holds the same socket and must not end what is not its own.
    driver: i32,
    /// How the process ended, once it was reaped.
    ended: Mutex<Option<String>>,
}

impl Keeper {
    /// Starts the keeper process. Returns as soon as it exists; commands may be sent at once.
    pub fn start(options: StartOptions<'_>) -> Result<Keeper, KeeperError> {
        entry::ensure_linked();
        if entry::was_missed() {
            return Err(KeeperError::MissedEntry);
        }
        if options.inherit.len() > INHERITED_FDS_MAX {
            return Err(KeeperError::TooManyFds(options.inherit.len()));
        }
        if let Some((name, _)) = options.inherit.iter().find(|(name, _)| !role::is_good_name(name)) {
            return Err(KeeperError::BadName((*name).to_owned()));
        }
        let failed = |step| move |error: Errno| KeeperError::System { step, source: error.into() };
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(failed("socketpair"))?;
        let fds = options.inherit.iter().map(|(name, fd)| ((*name).to_owned(), fd.as_raw_fd())).collect();
        let driver = rustix::process::getpid().as_raw_pid();
        let role = Role::Keeper { socket: theirs.as_raw_fd(), driver, output: options.output, fds };
        let mut inherit: Vec<BorrowedFd<'_>> = options.inherit.iter().map(|(_, fd)| *fd).collect();
        inherit.push(theirs.as_fd());
        let mut environment = environment_for(&role);
        let scratch = options.scratch.map(|path| format!("{SCRATCH_VARIABLE}={}", path.display()));
        environment.extend(scratch.and_then(|text| CString::new(text).ok()));
        let more = options.environment.iter().map(|(name, value)| format!("{name}={value}"));
        environment.extend(more.filter_map(|text| CString::new(text).ok()));
        let exec = sys::Exec {
            path: options.program.and_then(|program| program.first()).and_then(as_c_string),
            arguments: match options.program {
                Some(program) => program.iter().filter_map(as_c_string).collect(),
                None => vec![own_name()],
            },
            environment,
            inherit,
            stdout: None,
            stderr: None,
            new_session: true,
        };
        let pid =
            sys::exec_self(&exec).map_err(|source| KeeperError::System { step: "starting its program", source })?;
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(failed("pidfd_open"))?;
        Ok(Keeper { socket, process, pid: pid.as_raw_pid(), driver, ended: Mutex::new(None) })
    }

    /// The keeper's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Asks for a worker in a free slot; `Spawned` or `SpawnFailed` follows.
    pub fn spawn(&self, slot: u32, incarnation: u32, words: Words) -> Result<(), KeeperLost> {
        self.send(Command::Spawn { slot, incarnation, words })
    }

    /// The keeper ends with its workers at this time, unless it is told a later one before. Does not wait: a keeper that has
    /// not read what was said before is told another time.
    pub fn live_until(&self, until: Tick) {
        let packet = encode(&Command::LiveUntil(until)).expect("a command has a few numbers, far below the limit");
        let _ = send(&self.socket, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Sends a signal to the worker in a slot, if there is one.
    pub fn signal(&self, slot: u32, signal: i32) -> Result<(), KeeperLost> {
        self.send(Command::Signal { slot, signal })
    }

    /// Waits for the next report. To be called by one thread; it returns `Ended` after a shutdown.
    pub fn read_report(&self) -> Result<Report, KeeperLost> {
        let mut packet = [0; MESSAGE_BYTES_MAX];
        loop {
            match recv(&self.socket, &mut packet, RecvFlags::TRUNC) {
                Err(Errno::INTR) => {}
                Ok((_, 0)) | Err(_) => return Err(self.lost()),
                Ok((_, length)) if length > MESSAGE_BYTES_MAX => {
                    let source = MessageError::TooLong(length);
                    return Err(KeeperLost::BadReport { pid: self.pid, source });
                }
                Ok((_, length)) => {
                    return decode(&packet[..length]).map_err(|source| KeeperLost::BadReport { pid: self.pid, source });
                }
            }
        }
    }

    /// Ends the keeper and all its descendants, and waits until it is gone: at most [`SHUTDOWN_WAIT`], then it is
    /// killed. A second call does nothing.
    pub fn shutdown(&self) {
        // A keeper that is already gone is what was asked for.
        let _ = self.send(Command::Shutdown);
        if self.reap(SHUTDOWN_WAIT).is_none() {
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
            self.reap(SHUTDOWN_WAIT);
        }
    }

    fn send(&self, command: Command) -> Result<(), KeeperLost> {
        let packet = encode(&command).expect("a command has a few numbers, far below the limit");
        loop {
            match send(&self.socket, &packet, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(_) => return Err(self.lost()),
            }
        }
    }

    /// The socket is closed, so the process has ended or is about to.
    fn lost(&self) -> KeeperLost {
        let how = self.reap(SHUTDOWN_WAIT).unwrap_or_else(|| "closed its socket but runs on".to_owned());
        KeeperLost::Ended { pid: self.pid, how }
    }

    /// Waits for the end of the process and says how it ended; `None` when it did not end in time.
    fn reap(&self, wait: Duration) -> Option<String> {
        // The text is written whole, so a poisoned lock protects nothing worse than before.
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_none() {
            let timeout = Timespec::try_from(wait).expect("a few seconds fit");
            let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
            while poll(&mut fds, Some(&timeout)) == Err(Errno::INTR) {}
            if fds[0].revents().is_empty() {
                return None;
            }
            let status = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
            *ended = Some(match status {
                Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => ExitKind::Exit(code).to_string(),
                    (_, Some(signal)) => ExitKind::Signal(signal).to_string(),
                    (None, None) => "ended".to_owned(),
                },
                // Somebody else in this program waits for every child.
                Ok(None) | Err(_) => "ended, and its status was taken by another wait".to_owned(),
            });
        }
        ended.clone()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if rustix::process::getpid().as_raw_pid() == self.driver {
            self.shutdown();
        }
    }
}

static WORKER_MAIN: OnceLock<fn(WorkerStart) -> !> = OnceLock::new();

/// Replaces what a worker process runs, [`crate::worker::run`]. Only a constructor of the executable is early enough to
/// call this; the first call counts. Meant for tests of the keeper.
#[doc(hidden)]
pub fn set_worker_main(main: fn(WorkerStart) -> !) {
    // The first one counts.
    let _ = WORKER_MAIN.set(main);
}

/// Becomes what the environment says, in a program of another language: called by its zygote while it has one thread.
/// Workers run `main`, which is told whether it is a copy of this process.
pub fn enter_from(main: fn(WorkerStart) -> !) -> ! {
    set_worker_main(main);
    // The zygote's own arguments start it again when it cannot be copied.
    let _ = ARGUMENTS.set(std::env::args_os().filter_map(|argument| as_c_string(&argument)).collect());
    enter(entry::VARIABLE)
}

/// Becomes what the variable says, before `main`.
pub(crate) fn enter(variable: &str) -> ! {
    let text = std::env::var(variable).unwrap_or_default();
    sys::set_environment(variable, None);
    let start = Role::from_text(&text).and_then(|role| match role {
        Role::Keeper { socket, driver, output, fds } => serve::run(socket, driver, output, fds),
        Role::Worker { slot, incarnation, words, keeper, fds } => {
            birth::begin(keeper, WorkerStart { slot, incarnation, words, forked: false, fds: Vec::new() }, fds)
                .map(Some)
        }
    });
    match start {
        Ok(Some(start)) => match WORKER_MAIN.get() {
            Some(main) => main(start),
            None => crate::worker::run(start),
        },
        Ok(None) => {
            if let Some(scratch) = std::env::var_os(SCRATCH_VARIABLE) {
                // Often nobody made it.
                let _ = std::fs::remove_dir_all(scratch);
            }
            std::process::exit(0)
        }
        Err(reason) => {
            eprintln!("bireme: keeper: {reason}");
            std::process::exit(EXIT_CODE_BROKEN)
        }
    }
}

static ARGUMENTS: OnceLock<Vec<CString>> = OnceLock::new();

/// What starts this process again.
fn own_arguments() -> Vec<CString> {
    ARGUMENTS.get().cloned().unwrap_or_else(|| vec![own_name()])
}

fn own_name() -> CString {
    std::env::args_os().next().as_ref().and_then(as_c_string).unwrap_or_else(|| c"bireme".to_owned())
}

fn as_c_string(text: &OsString) -> Option<CString> {
    CString::new(text.clone().into_vec()).ok()
}

/// This process's environment with the role added.
fn environment_for(role: &Role) -> Vec<CString> {
    environment_of(std::env::vars_os(), role)
}

/// Whether processes that run users' code may see a variable. A token is a right of whoever started the node or the program, and
/// not of everybody whose task runs there. The namespace of a job is that of its own workers, and not of a program that a task starts.
pub(crate) fn is_for_workers(name: &OsStr) -> bool {
    !name.as_bytes().starts_with(b"BIREME_TOKEN") && name != crate::names::VARIABLE
}

fn environment_of(variables: impl Iterator<Item = (OsString, OsString)>, role: &Role) -> Vec<CString> {
    let others = variables.filter(|(key, _)| key != entry::VARIABLE && is_for_workers(key));
    let role = (OsString::from(entry::VARIABLE), OsString::from(role.to_text()));
    others
        .chain([role])
        .filter_map(|(key, value)| {
            let mut entry = key.into_vec();
            entry.push(b'=');
            entry.extend(value.into_vec());
            CString::new(entry).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_the_node_are_not_in_the_environment_of_workers() {
        let names = ["PATH", "BIREME_TOKEN", "BIREME_NUM_CPUS", "BIREME_TOKEN_FILE"];
        let variables = names.into_iter().map(|name| (OsString::from(name), OsString::from("x")));
        let role = Role::Keeper { socket: 3, driver: 1, output: Output::Lines, fds: Vec::new() };
        let made = environment_of(variables, &role);
        let names = made.iter().filter_map(|entry| entry.to_str().ok()?.split('=').next());
        assert_eq!(names.collect::<Vec<_>>(), ["PATH", "BIREME_NUM_CPUS", entry::VARIABLE]);
    }
}
