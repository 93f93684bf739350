//! Nodes of a row: `bireme start` of this program, one per host, each with folders of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bireme_netlab::Rate;
use bireme_runtime::admin::{ClusterStatus, NodeState};
use bireme_runtime::local::NodeFile;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::super::Outcome;
use super::place::Place;
use super::stage::Stage;
use crate::status;

/// How long a node may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(3);
/// How long nodes may take until all of them are known to be alive.
const ALIVE_WAIT: Duration = Duration::from_secs(30);
/// Between two questions whether they are.
const ALIVE_STEP: Duration = Duration::from_millis(1);

/// What `bireme start --json` prints.
#[derive(Deserialize)]
struct Started {
    #[serde(flatten)]
    node: NodeFile,
    token_file: Option<PathBuf>,
}

/// A cluster. It goes with this value: processes, files, hosts.
pub(in crate::bench) struct Nodes {
    nodes: Vec<NodeFile>,
    folder: PathBuf,
    place: Place,
    token_file: Option<PathBuf>,
    /// Flags of `bireme start` that all of them have.
    flags: Vec<String>,
}

impl Nodes {
    /// Hosts without nodes.
    pub(in crate::bench) fn hosts(stage: &Stage, hosts: usize, rate: Option<Rate>) -> Outcome<Self> {
        Self::at(stage, Place::up(hosts, rate)?, &[])
    }

    /// The same at a place that is there, for nodes with these flags.
    pub(in crate::bench) fn at(stage: &Stage, place: Place, flags: &[&str]) -> Outcome<Self> {
        let (folder, flags) = (stage.folder()?, flags.iter().map(|flag| (*flag).to_owned()).collect());
        Ok(Self { nodes: Vec::new(), folder, place, token_file: None, flags })
    }

    /// One node with so many CPUs per host; the first is the head.
    pub(in crate::bench) fn start(stage: &Stage, cpus: &[f64], rate: Option<Rate>) -> Outcome<Self> {
        let mut nodes = Self::hosts(stage, cpus.len(), rate)?;
        nodes.start_all(stage, cpus)?;
        Ok(nodes)
    }

    /// Starts the head, then all others at once, and returns when the head says that all are alive.
    pub(in crate::bench) fn start_all(&mut self, stage: &Stage, cpus: &[f64]) -> Outcome<()> {
        let [head, others @ ..] = cpus else { return Err("a cluster needs a node".into()) };
        let started = finish(self.begin(0, *head)?)?;
        self.token_file = started.token_file;
        self.nodes.push(started.node);
        let begun: Outcome<Vec<Child>> = (1..).zip(others).map(|(host, cpus)| self.begin(host, *cpus)).collect();
        // Each is waited for, also after one that failed: a node that nobody knows would stay.
        let finished: Vec<Outcome<Started>> = begun?.into_iter().map(finish).collect();
        let mut failed = Ok(());
        for started in finished {
            match started {
                Ok(started) => self.nodes.push(started.node),
                Err(error) => failed = Err(error),
            }
        }
        failed?;
        self.wait_until_alive(stage, cpus.len())
    }

    fn begin(&self, host: usize, cpus: f64) -> Outcome<Child> {
        let state = self.folder.join(host.to_string());
        let (host_address, cpus) = (self.place.address(host)?.to_string(), cpus.to_string());
        let mut command =
            self.place.command(host, &["start", "--json", "--host", &host_address, "--num-cpus", &cpus])?;
        if let Some(head) = self.nodes.first() {
            command.args(["--address", &head.address]);
        }
        if let Some(file) = &self.token_file {
            command.arg("--token-file").arg(file);
        }
        command.args(&self.flags);
        // Every file of a node is below its folder, and the folder goes.
        let temporary = self.temporary(host)?;
        command.arg("--state-directory").arg(state).env("TMPDIR", temporary);
        Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    fn temporary(&self, host: usize) -> Outcome<PathBuf> {
        let path = self.folder.join(format!("{host}-tmp"));
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    fn wait_until_alive(&self, stage: &Stage, count: usize) -> Outcome<()> {
        let deadline = Instant::now() + ALIVE_WAIT;
        loop {
            stage.check()?;
            let status = self.status()?;
            let alive = status.nodes.iter().filter(|node| node.state == NodeState::Alive).count();
            if alive == count {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{alive} of {count} nodes were alive after {ALIVE_WAIT:?}").into());
            }
            std::thread::sleep(ALIVE_STEP);
        }
    }

    /// The cluster as its head knows it.
    pub(in crate::bench) fn status(&self) -> Outcome<ClusterStatus> {
        status::of(self.node(0)?)
    }

    /// The node on a host; nodes that start at once come in the order of the hosts.
    pub(in crate::bench) fn node(&self, host: usize) -> Outcome<&NodeFile> {
        Ok(self.nodes.get(host).ok_or("there is no node on that host")?)
    }

    /// All of them.
    pub(in crate::bench) fn all(&self) -> &[NodeFile] {
        &self.nodes
    }

    /// The numbers of those behind the first so many.
    pub(in crate::bench) fn numbers(&self, behind: usize) -> Vec<u32> {
        self.nodes.iter().skip(behind).map(|node| node.node.0).collect()
    }

    /// Where they are.
    pub(in crate::bench) fn place(&self) -> &Place {
        &self.place
    }

    /// Where its files are.
    pub(in crate::bench) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The process of the node on a host.
    pub(in crate::bench) fn process(&self, host: usize) -> Outcome<u32> {
        Ok(self.node(host)?.process.id)
    }

    /// Ends the node with this number by `kill -9`.
    pub(in crate::bench) fn kill(&self, number: u32) -> Outcome<()> {
        let node = self.nodes.iter().find(|node| node.node.0 == number).ok_or("there is no node with that number")?;
        let process = i32::try_from(node.process.id).ok().and_then(Pid::from_raw).ok_or("a node has no process")?;
        Ok(kill_process(process, Signal::KILL)?)
    }
}

/// What a started node says of itself, or why it did not start.
fn finish(start: Child) -> Outcome<Started> {
    let output = start.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("a node did not start: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

impl Drop for Nodes {
    fn drop(&mut self) {
        std::thread::scope(|scope| {
            for node in &self.nodes {
                scope.spawn(|| {
                    if let Err(error) = node.process.end(GRACE) {
                        eprintln!("bireme: node process {} did not end: {error}", node.process.id);
                    }
                });
            }
        });
        // What cannot be removed now goes with the folder of the whole run, which says so when it cannot.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
