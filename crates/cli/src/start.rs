//! `bireme start`: a node on this machine, the first of a cluster or one more of it.
//!
//! The command starts itself again, detached (`node`), waits on a pipe until that process says that it is ready or why it
//! cannot be, prints how to join and to connect, and ends. With `--foreground` it is the node itself.
//!
//! | file | what |
//! |---|---|
//! | `node` | the process that is the node |
//! | `report` | what it says through the pipe, and to people |

mod node;
mod report;

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use bireme_runtime::local::{NodeFile, StateDirectory};
use bireme_runtime::settings::{Flags, Settings};
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};

use crate::Outcome;
use crate::flags::SettingFlags;
use report::Report;

/// How long a node may take until it is ready.
const START_WAIT: Duration = Duration::from_secs(60);
/// Lines of the log that are shown when a node dies without a word.
const LOG_LINES_SHOWN: usize = 20;
/// The flag that makes this command the node. Hidden.
const NODE_FLAG: &str = "--node-process";

/// The command line of `bireme start`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Be the node, instead of starting one in the background: it ends with Ctrl-C.
    #[arg(long)]
    foreground: bool,
    /// Print what is known of the node as JSON.
    #[arg(long)]
    json: bool,
    #[arg(long = "node-process", hide = true, conflicts_with = "foreground")]
    node_process: bool,
    /// Run no tasks and no actors here: for a head whose user has the cluster's authority.
    #[arg(long, conflicts_with_all = ["num_cpus", "num_gpus", "memory", "resources"])]
    no_tasks: bool,
    #[command(flatten)]
    flags: SettingFlags,
}

impl Arguments {
    /// The settings that were given. A node that runs nothing has nothing.
    fn settings(&self) -> Flags {
        let mut flags = self.flags.0.clone();
        if self.no_tasks {
            let nothing = [("num_cpus", "0"), ("num_gpus", "0"), ("memory", "0"), ("resources", "")];
            flags.extend(nothing.map(|(name, text)| (name, text.to_owned())));
        }
        flags
    }
}

/// Starts a node and says how to use it.
pub(crate) fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    if arguments.node_process {
        return Ok(node::detached(&arguments.settings()));
    }
    let settings = Settings::load(&arguments.settings())?;
    let state = StateDirectory::open(&settings.state_directory)?;
    state.sweep();
    if arguments.foreground {
        let json = arguments.json;
        node::run(settings, state, None, move |report| report.print(json))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg(NODE_FLAG)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    match wait(&mut child, &state)? {
        Ok(report) => report.print(arguments.json)?,
        Err(reason) => return Err(reason.into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// What the node says, or why it says nothing.
fn wait(child: &mut Child, state: &StateDirectory) -> Outcome<Result<Report, String>> {
    let mut pipe = child.stdout.take().ok_or("the node has no pipe")?;
    let deadline = Instant::now() + START_WAIT;
    let mut said = Vec::new();
    loop {
        let left = rustix::time::Timespec::try_from(deadline.saturating_duration_since(Instant::now()))?;
        match poll(&mut [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)], Some(&left)) {
            Ok(0) => {
                child.kill()?;
                child.wait()?;
                return Ok(Err(format!(
                    "the node was not ready after {START_WAIT:?} and was ended{}",
                    log(child, state)
                )));
            }
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let mut piece = [0; 4096];
        match pipe.read(&mut piece)? {
            0 => break,
            count => said.extend(&piece[..count]),
        }
    }
    match serde_json::from_slice(&said) {
        Ok(said) => Ok(said),
        // It ended before it could say anything.
        Err(_) => {
            let status = child.wait()?;
            Ok(Err(format!("the node ended before it was ready ({status}){}", log(child, state))))
        }
    }
}

/// The end of what a node printed that did not come to its own word.
fn log(child: &Child, state: &StateDirectory) -> String {
    let Some(folder) = state.node_of(child.id()) else { return String::new() };
    let text = fs::read_to_string(folder.join(NodeFile::LOG)).unwrap_or_default();
    state.sweep();
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
    if shown.is_empty() { String::new() } else { format!("; it said:\n{}", shown.join("\n")) }
}
