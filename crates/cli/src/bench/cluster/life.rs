//! Rows about the life of nodes: their start, what they hold at rest, and their death.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::super::Outcome;
use super::super::floor;
use super::super::measure::{Pair, seconds};
use super::super::startup::pss_mib;
use super::driver::{Driver, Order};
use super::lines::wait;
use super::nodes::Nodes;
use super::stage::{Measured, Stage};

/// Nodes that are started and weighed.
const NODES: usize = 5;
/// How long a task may take to come to a meeting.
const MEETING_WAIT: Duration = Duration::from_secs(60);

/// How long until five nodes are ready: from the first `bireme start` until the head says that five are alive?
pub(super) fn five_nodes(stage: &Stage) -> Outcome<Measured> {
    let pairs = stage.measure(|_| {
        let mut nodes = Nodes::hosts(stage, NODES, None)?;
        let (took, started) = seconds(|| nodes.start_all(stage, &[1.0; NODES]));
        started?;
        drop(nodes);
        let (floor, ended) = seconds(start_and_end_processes);
        ended?;
        Ok(Pair { ours: took * 1e3, floor: floor * 1e3 })
    })?;
    Ok(pairs.into())
}

/// The floor: as many processes of this program, all at once.
fn start_and_end_processes() -> Outcome<()> {
    let start = |_| Ok(Command::new(std::env::current_exe()?).args(["bench-floor", "exit"]).spawn()?);
    let started: Outcome<Vec<Child>> = (0..NODES).map(start).collect();
    for mut process in started? {
        process.wait()?;
    }
    Ok(())
}

/// How much memory does a node hold that has started and does nothing? The largest of five.
pub(super) fn node_memory(stage: &Stage) -> Outcome<Measured> {
    let nodes = Nodes::start(stage, &[1.0; NODES], None)?;
    let pairs = stage.measure(|_| {
        let held: Outcome<Vec<f64>> = nodes.all().iter().map(|node| pss_mib(node.process.id)).collect();
        let ours = held?.into_iter().fold(0.0, f64::max);
        Ok(Pair { ours, floor: floor::of_idle_process(pss_mib)? })
    })?;
    Ok(pairs.into())
}

/// How long from `kill -9` of a node to the result of the task that ran there, run again on another node?
pub(super) fn node_kill(stage: &Stage) -> Outcome<Measured> {
    let pairs = stage.measure(|_| {
        // The head and the driver's node stay.
        let nodes = Nodes::start(stage, &[0.0, 1.0, 1.0], None)?;
        let mut driver = Driver::attach(stage, &nodes, 0)?;
        driver.ask(&Order::Visit { nodes: nodes.numbers(1) })?;
        let meeting = nodes.folder().join("meeting");
        let listener = UnixListener::bind(&meeting)?;
        driver.tell(&Order::Doomed { meeting })?;
        if !wait(stage.stop(), Some(listener.as_fd()), MEETING_WAIT)? {
            return Err(format!("no task came to the meeting in {MEETING_WAIT:?}").into());
        }
        let (mut task, _) = listener.accept()?;
        drop(listener);
        let mut number = [0; 4];
        task.read_exact(&mut number)?;
        let first = u32::from_le_bytes(number);
        let start = Instant::now();
        nodes.kill(first)?;
        let second = *driver.hear()?.first().ok_or("the task had no result")?;
        let took = start.elapsed().as_secs_f64();
        if second == f64::from(first) {
            return Err("the task had its result from the node that was killed".into());
        }
        driver.end()?;
        Ok(Pair { ours: took * 1e3, floor: floor::kill_and_start_ms()? })
    })?;
    Ok(pairs.into())
}

/// Tells its node to who listens and waits; ends with the number of its node when nobody does.
#[bireme::remote(retries = 1)]
fn wait_for_the_end(meeting: PathBuf) -> Result<u32, String> {
    let number = bireme::node_id().map_err(|error| error.to_string())?.0;
    if let Ok(mut listener) = UnixStream::connect(meeting) {
        listener.write_all(&number.to_le_bytes()).map_err(|error| error.to_string())?;
        // Nobody speaks: the node is killed, and this process with it.
        let _ = listener.read(&mut [0]);
    }
    Ok(number)
}

/// The driver's side.
pub(super) fn doomed(meeting: &Path) -> Outcome<Vec<f64>> {
    Ok(vec![f64::from(wait_for_the_end::remote(meeting.to_owned()).get()?)])
}
