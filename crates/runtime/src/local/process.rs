//! A process by id and start time: ids are used again, pairs are not.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// How long a killed process may take to be gone.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// One process of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMark {
    /// Its id.
    pub id: u32,
    /// When it started, in ticks of the kernel since the machine did.
    pub start: u64,
    /// Which start of the machine that was.
    pub boot: String,
}

/// How a process came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It had ended before.
    Before,
    /// It ended when it was asked to.
    Asked,
    /// It did not, and was killed.
    Killed,
    /// It is still there: the kernel does not let go of it.
    Stuck,
}

impl ProcessMark {
    /// This process.
    pub fn of_this_process() -> Result<Self, Error> {
        let id = std::process::id();
        let unknown = |reason: String| Error::System { what: "reading /proc", reason };
        let start = start_of(id).ok_or_else(|| unknown(format!("there is no process {id}")))?;
        let boot = boot().map_err(|error| unknown(error.to_string()))?;
        Ok(Self { id, start, boot })
    }

    /// Whether it is this process that runs under the id.
    pub fn is_running(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot) && start_of(self.id) == Some(self.start)
    }

    /// Asks it to end, waits, and kills it if it does not. Nothing happens to another process with the same id.
    pub fn end(&self, grace: Duration) -> Result<Ended, Error> {
        let Some(process) = self.open() else { return Ok(Ended::Before) };
        let failed = |error: rustix::io::Errno| Error::System { what: "signalling a node", reason: error.to_string() };
        for (signal, wait, ended) in [(Signal::TERM, grace, Ended::Asked), (Signal::KILL, KILL_WAIT, Ended::Killed)] {
            match pidfd_send_signal(&process, signal) {
                Ok(()) => {}
                Err(rustix::io::Errno::SRCH) => return Ok(ended),
                Err(error) => return Err(failed(error)),
            }
            if wait_for(&process, wait).map_err(failed)? {
                return Ok(ended);
            }
        }
        Ok(Ended::Stuck)
    }

    /// Opened first and compared after: what is compared cannot be replaced any more.
    fn open(&self) -> Option<OwnedFd> {
        let id = Pid::from_raw(i32::try_from(self.id).ok()?)?;
        let process = pidfd_open(id, PidfdFlags::empty()).ok()?;
        self.is_running().then_some(process)
    }
}

/// Whether the process ended within the time.
fn wait_for(process: &OwnedFd, wait: Duration) -> rustix::io::Result<bool> {
    let deadline = Instant::now() + wait;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = rustix::time::Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(process, PollFlags::IN)], timeout.as_ref()) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Names this start of the machine.
pub(super) fn boot() -> std::io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// When a process started. One that has ended and waits for its parent does not count.
fn start_of(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program, in parentheses, may contain anything; what follows is numbers.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}
