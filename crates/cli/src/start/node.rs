//! The process that is the node: its folder, its log, its session, and what it leaves behind (nothing).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use bireme_runtime::Error;
use bireme_runtime::daemon::{self, DaemonOptions, Ready};
use bireme_runtime::local::{NodeFile, ProcessMark, StateDirectory};
use bireme_runtime::settings::{Flags, Settings};

use super::report::Report;
use crate::Outcome;

/// The pipe to who started us: one word, ready or why not.
type Pipe = Arc<Mutex<Option<File>>>;

/// Is a node in the background. Standard output is a pipe to the command that started it.
pub(super) fn detached(flags: &Flags) -> ExitCode {
    let pipe = match take_pipe() {
        Ok(pipe) => Arc::new(Mutex::new(Some(File::from(pipe)))),
        Err(error) => {
            eprintln!("bireme: {error}");
            return ExitCode::FAILURE;
        }
    };
    let Err(error) = detach(flags, &pipe) else { return ExitCode::SUCCESS };
    eprintln!("bireme: {error}");
    // When it was ready, nobody listens any more.
    let _ = tell(&pipe, &Err(error.to_string()));
    ExitCode::FAILURE
}

fn detach(flags: &Flags, pipe: &Pipe) -> Outcome<()> {
    // From now on no terminal's end or Ctrl-C is ours.
    rustix::process::setsid()?;
    let settings = Settings::load(flags)?;
    let state = StateDirectory::open(&settings.state_directory)?;
    let pipe = Arc::clone(pipe);
    // A node that has joined again has nobody to tell it to.
    let ready = move |report: &Report| tell(&pipe, &Ok(report.clone()));
    run(settings, state, Some(redirect), ready)
}

/// Runs a node until it is asked to end, and removes its folder. `redirect` is given the log before the node runs; a node
/// without one prints where its command does.
pub(super) fn run(
    settings: Settings,
    state: StateDirectory,
    redirect: Option<fn(&Path) -> Outcome<()>>,
    ready: impl FnMut(&Report) -> Outcome<()> + Send + 'static,
) -> Outcome<()> {
    // Before there is any thread.
    let stop = daemon::stop_signals()?;
    let folder = state.make_node()?;
    let done = run_in(&folder, settings, state, redirect, ready, stop);
    // Also when it fails: nothing is left of a node that ends by itself.
    let removed = fs::remove_dir_all(&folder);
    done?;
    Ok(removed?)
}

fn run_in(
    folder: &Path,
    settings: Settings,
    state: StateDirectory,
    redirect: Option<fn(&Path) -> Outcome<()>>,
    mut ready: impl FnMut(&Report) -> Outcome<()> + Send + 'static,
    stop: OwnedFd,
) -> Outcome<()> {
    let process = ProcessMark::of_this_process()?;
    let log = match &settings.log_directory {
        Some(logs) => {
            fs::create_dir_all(logs)?;
            logs.join(format!("bireme-node-{}-{}.log", process.id, process.start))
        }
        None => folder.join(NodeFile::LOG),
    };
    let log = match redirect {
        Some(redirect) => redirect(&log).map(|()| log)?,
        None => PathBuf::from("/dev/stderr"),
    };
    let (directory, socket) = (folder.to_owned(), folder.join(NodeFile::SOCKET));
    let ready = move |known: Ready| {
        let Ready { node, cluster, address, head, token_file } = known;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (socket, log) = (socket.clone(), log.clone());
        let node = NodeFile { node, cluster, address, head, socket, log, version, process: process.clone() };
        node.write(&directory)?;
        let said = |error: Box<dyn std::error::Error + Send + Sync>| error.to_string();
        ready(&Report { node, token_file })
            .map_err(|error| Error::System { what: "saying that the node is ready", reason: said(error) })
    };
    let directory = folder.to_owned();
    Ok(daemon::run(DaemonOptions { settings, state, directory, ready: Box::new(ready), stop })?)
}

/// Takes the pipe out of standard output, where workers would inherit it.
fn take_pipe() -> Outcome<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3)?)
}

/// Output goes to the log from here on, and no folder is held in use.
fn redirect(log: &Path) -> Outcome<()> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(log)?;
    rustix::stdio::dup2_stdout(&file)?;
    rustix::stdio::dup2_stderr(&file)?;
    std::env::set_current_dir("/")?;
    Ok(())
}

/// Says the one word and closes the pipe; a second word has nobody to hear it.
fn tell(pipe: &Pipe, word: &Result<Report, String>) -> Outcome<()> {
    let open = pipe.lock().map_or(None, |mut pipe| pipe.take());
    let text = serde_json::to_string(word)?;
    Ok(open.map_or(Ok(()), |mut pipe| pipe.write_all(text.as_bytes()))?)
}
