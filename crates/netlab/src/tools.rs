//! Calls of `ip` and `tc`, and the end of processes inside a namespace.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::Error;

/// How long a killed process may take to be gone.
const END_WAIT: Duration = Duration::from_secs(5);

/// Runs a tool to its end and gives what it printed.
pub(crate) fn run(program: &str, arguments: &[&str], input: &str) -> Result<String, Error> {
    let shown = || format!("{program} {}", arguments.join(" "));
    let failed = |said: String| Error::Command { command: shown(), said };
    let mut child = command(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that does not read it says why in its own words.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("{} {input}", String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command that is found also where only root's path leads.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Runs `ip` with one command per line, in a namespace unless none is named.
pub(crate) fn ip_batch(namespace: Option<&str>, lines: &[String]) -> Result<(), Error> {
    let mut arguments = Vec::new();
    arguments.extend(namespace.iter().flat_map(|name| ["-n", name]));
    arguments.extend(["-batch", "-"]);
    run("ip", &arguments, &lines.join("\n")).map(drop)
}

/// Kills what runs in a namespace and waits until it is gone. Only commands of the lab can be there.
pub(crate) fn end_processes(namespace: &str) {
    // A namespace that is gone has no processes.
    let listed = run("ip", &["netns", "pids", namespace], "").unwrap_or_default();
    let ids = listed.split_whitespace().filter_map(|word| word.parse::<i32>().ok());
    let others = ids.filter(|id| u32::try_from(*id) != Ok(std::process::id())).filter_map(Pid::from_raw);
    // A process that cannot be opened has ended already.
    let open: Vec<_> = others.filter_map(|id| pidfd_open(id, PidfdFlags::empty()).ok()).collect();
    for process in &open {
        // The same.
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    let deadline = Instant::now() + END_WAIT;
    for process in &open {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = rustix::time::Timespec::try_from(left).ok();
        // One that cannot be killed stays; the namespace goes with it.
        let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], timeout.as_ref());
    }
}
