//! Rows about deaths, and the place where a task and the driver meet outside the engine.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::process::{Pid, Signal, kill_process};

use super::Outcome;
use super::floor;
use super::measure::{Pair, seconds};
use super::probe::Probe;

/// A socket with a name and no file, where tasks tell the driver which process they run in.
pub(super) struct Meeting {
    name: String,
    listener: UnixListener,
}

impl Meeting {
    /// Opens one; `purpose` tells it apart from others of this process.
    pub(super) fn open(purpose: &str) -> io::Result<Self> {
        let name = format!("bireme-bench-{}-{purpose}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Ok(Self { name, listener })
    }

    /// For [`attend`](Meeting::attend).
    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    /// The next one to come, and its process.
    pub(super) fn next(&self) -> io::Result<(UnixStream, u32)> {
        let (mut task, _) = self.listener.accept()?;
        let mut process = [0; 4];
        task.read_exact(&mut process)?;
        Ok((task, u32::from_le_bytes(process)))
    }

    /// The task's side: comes and says its process. Fails when the meeting is over.
    pub(super) fn attend(name: &str) -> io::Result<UnixStream> {
        let mut driver = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        driver.write_all(&std::process::id().to_le_bytes())?;
        Ok(driver)
    }
}

/// Waits as long as there is a meeting, and returns at once when it is over.
#[bireme::remote(retries = 1)]
fn wait_for_the_end(meeting: String) -> u32 {
    if let Ok(mut driver) = Meeting::attend(&meeting) {
        // The driver never speaks: it kills.
        let _ = driver.read(&mut [0]);
    }
    std::process::id()
}

/// How long from `kill -9` of a worker to the result of the task that it was running, run again elsewhere?
pub(super) fn kill_retry(probe: &Probe) -> Outcome<()> {
    probe.measure(|_| {
        let context = bireme::init()?;
        let meeting = Meeting::open("kill")?;
        let result = wait_for_the_end::remote(meeting.name());
        let (_task, worker) = meeting.next()?;
        drop(meeting);
        let victim = i32::try_from(worker).ok().and_then(Pid::from_raw).ok_or("a task said that it has no process")?;
        let (took, (killed, second)) = seconds(|| (kill_process(victim, Signal::KILL), result.get()));
        killed?;
        if second? == worker {
            return Err("the killed worker gave a result".into());
        }
        context.shutdown();
        Ok(Pair { ours: took * 1e3, floor: floor::kill_and_start_ms()? })
    })
}
