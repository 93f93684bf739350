//! How a worker process comes to be: a fork of the keeper, or, if the keeper has a second thread, the executable again.
//!
//! Called by the keeper's loop for each `Spawn`. Before any user code runs, the new process has arranged its own death
//! with the keeper's, has a process group of its own, is the kernel's first choice when memory runs out, and is told
//! apart by name and tag.

use super::descent::{WORKER_TAG, own_threads};
use super::pipes::Pipes;
use super::role::{NamedFds, Role};
use super::sys::{self, Exec, Forked};
use super::{Words, WorkerStart, environment_for, own_arguments};
use crate::output::Output;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setpgid};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Added to the keeper's own out-of-memory score, up to the kernel's 1000: workers go before the driver.
const OOM_SCORE_ADDED: i32 = 500;
const OOM_SCORE_MAX: i32 = 1000;

/// Which side of a birth this is.
pub(super) enum Born {
    /// The keeper: the new process and its output.
    Worker { pid: Pid, pipes: Pipes },
    /// The new process; everything of the keeper's is to be dropped.
    Me,
}

/// Makes a worker process.
pub(super) fn give_birth(
    (slot, incarnation, words): (u32, u32, Words),
    output: Output,
    fds: &[(String, OwnedFd)],
) -> Result<Born, String> {
    let (stderr, their_stderr) = pipe()?;
    let (stdout, their_stdout) = match output {
        Output::Inherit => (None, None),
        Output::Lines | Output::Silent => pipe().map(|(ours, theirs)| (Some(ours), Some(theirs)))?,
    };
    let keeper = getpid();
    let pid = if own_threads() == Some(1) {
        match sys::fork().map_err(|error| format!("fork: {error}"))? {
            Forked::Parent(pid) => pid,
            Forked::Child => {
                if let Some(stdout) = &their_stdout {
                    sys::replace_stdout(stdout.as_fd());
                }
                sys::replace_stderr(their_stderr.as_fd());
                prepare(slot, incarnation, keeper.as_raw_pid());
                return Ok(Born::Me);
            }
        }
    } else {
        let named: NamedFds = fds.iter().map(|(name, fd)| (name.clone(), fd.as_raw_fd())).collect();
        let role = Role::Worker { slot, incarnation, words, keeper: keeper.as_raw_pid(), fds: named };
        let exec = Exec {
            path: None,
            arguments: own_arguments(),
            environment: environment_for(&role),
            inherit: fds.iter().map(|(_, fd)| fd.as_fd()).collect(),
            stdout: their_stdout.as_ref().map(AsFd::as_fd),
            stderr: Some(their_stderr.as_fd()),
            new_session: false,
        };
        sys::exec_self(&exec).map_err(|error| format!("starting /proc/self/exe: {error}"))?
    };
    // Both sides set the group, so that it exists for whoever comes first.
    let _ = setpgid(Some(pid), Some(pid));
    Ok(Born::Worker { pid, pipes: Pipes::new(stdout, stderr) })
}

/// A pipe whose reading end, the first, does not block.
fn pipe() -> Result<(OwnedFd, OwnedFd), String> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| format!("pipe: {error}"))?;
    rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK).map_err(|error| format!("fcntl: {error}"))?;
    Ok((ours, theirs))
}

/// The start of a worker that is the executable again.
pub(super) fn begin(keeper: i32, start: WorkerStart, fds: NamedFds) -> Result<WorkerStart, String> {
    sys::ignore_broken_pipes();
    prepare(start.slot, start.incarnation, keeper);
    Ok(WorkerStart { fds: adopt(fds)?, ..start })
}

/// Takes over the inherited descriptors.
pub(super) fn adopt(fds: NamedFds) -> Result<Vec<(String, OwnedFd)>, String> {
    fds.into_iter()
        .map(|(name, raw)| match sys::adopt_fd(raw) {
            Some(fd) => Ok((name, fd)),
            None => Err(format!("descriptor {raw} ({name}) is not open")),
        })
        .collect()
}

/// What every worker does first.
fn prepare(slot: u32, incarnation: u32, keeper: i32) {
    // The keeper forks from its main thread, which lives as long as it does, so the signal means what it says.
    let watched = set_parent_process_death_signal(Some(Signal::KILL));
    if watched.is_err() || getppid().map(Pid::as_raw_pid) != Some(keeper) {
        sys::exit_now(super::EXIT_CODE_BROKEN);
    }
    let _ = setpgid(None, None);
    sys::unblock_signals();
    // Name and score help people and the kernel; a worker without them works as well.
    let _ = rustix::thread::set_name(c"bireme-worker");
    let score = fs::read_to_string("/proc/self/oom_score_adj").ok().and_then(|text| text.trim().parse::<i32>().ok());
    let score = score.unwrap_or(0).saturating_add(OOM_SCORE_ADDED).min(OOM_SCORE_MAX);
    let _ = fs::write("/proc/self/oom_score_adj", score.to_string());
    sys::set_environment(WORKER_TAG, Some(&tag(keeper, slot, incarnation)));
}

/// What tells the subprocesses of one worker from those of another, also of another keeper.
pub(super) fn tag(keeper: i32, slot: u32, incarnation: u32) -> String {
    format!("{keeper}.{slot}.{incarnation}")
}
