//! Ray on this machine or on hosts of a lab, for the rows that have to be a multiple faster than it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::super::Outcome;
use super::super::cluster::lines::Lines;
use super::super::cluster::place::Place;
use super::super::cluster::stage::Stage;
use super::super::python::interpreter::{RAY_SETTINGS, with_ray};
use super::shape::Shape;

const SCRIPT: &str = include_str!("../../../../../bench/ray/peer.py");
/// No row of it takes longer: broadcasts among sixteen nodes take some two and a half minutes with their start.
const WAIT: Duration = Duration::from_secs(420);
/// What its nodes on hosts of a lab are told besides. By default they use no tokens, and yet a head was seen to want one from the others; the
/// hosts have no link but that of the lab, and end with the row.
const ON_HOSTS: [(&str, &str); 1] = [("RAY_AUTH_MODE", "disabled")];
/// Lines of what it said that are shown when it fails.
const SAID_LINES: usize = 20;
/// How long its nodes may take to end, and between two looks.
const ENDING_WAIT: Duration = Duration::from_secs(60);
const ENDING_STEP: Duration = Duration::from_millis(50);

/// An environment with Ray, and the script that measures it.
pub(super) struct Ray {
    python: PathBuf,
    script: PathBuf,
}

/// How much faster than Ray a row has to be. Ray is warm, has as many nodes, and does the same with as many bytes.
#[derive(Clone, Copy)]
pub(super) struct Faster {
    /// The job of the script.
    action: &'static str,
    /// With a node on each host of a lab like ours, or with all of them on this machine.
    on_hosts: bool,
    /// So many times.
    pub(super) times: f64,
}

/// What Ray took, in the unit of the row.
#[derive(Debug, PartialEq)]
pub(super) struct Took {
    /// One after the other, or what is better of that and after a pause.
    pub(super) hot: f64,
    /// After a pause, where that is told; not judged.
    pub(super) after_a_pause: Option<f64>,
}

impl Faster {
    /// Broadcasts on the links of the row.
    pub(super) const fn broadcast(times: f64) -> Self {
        Self { action: "broadcast", on_hosts: true, times }
    }

    /// Calls on the links of the row.
    pub(super) const fn call(times: f64) -> Self {
        Self { action: "call", on_hosts: true, times }
    }

    /// Broadcasts where our nodes are on this machine too.
    pub(super) const fn local_broadcast(times: f64) -> Self {
        Self { on_hosts: false, ..Self::broadcast(times) }
    }
}

impl Ray {
    /// Installed when it is not there.
    pub(super) fn installed() -> Outcome<Self> {
        let python = with_ray(Path::new("python3"))?;
        let script = python.with_file_name("bireme_peer.py");
        fs::write(&script, SCRIPT)?;
        Ok(Self { python, script })
    }

    /// What it takes for the same as a row, in the unit of the row.
    pub(super) fn took(&self, stage: &Stage, what: Faster, shape: Shape) -> Outcome<Took> {
        stage.check()?;
        let shape = shape.sized(stage);
        let place = if what.on_hosts { Place::up(shape.nodes, shape.rate())? } else { Place::Loopback };
        let (mut command, hosts) = match &place {
            Place::Lab(lab) => {
                let hosts = (1..=lab.hosts()).map(|host| format!("{}={}", lab.namespace(host), lab.address(host)));
                let mut command = lab.command(1, &self.python);
                command.envs(ON_HOSTS);
                (command, hosts.collect())
            }
            Place::Loopback if what.on_hosts => return Err("there is no lab".into()),
            Place::Loopback => (Command::new(&self.python), Vec::new()),
        };
        command.arg(&self.script).args([what.action, &shape.bytes.to_string(), &shape.nodes.to_string()]).args(hosts);
        // In a file, since it says much while nothing is wrong.
        let said = stage.folder()?.join("ray.log");
        command.envs(RAY_SETTINGS).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(&said)?);
        let mut child = command.spawn()?;
        let mut lines = Lines::of(child.stdout.take().ok_or("Ray has no output")?);
        let took = lines.next(stage.stop(), WAIT).and_then(|line| parse(&line));
        if let (true, Some(pid)) = (took.is_err(), Pid::from_raw(child.id().cast_signed())) {
            // It ends its nodes before itself, as with Ctrl-C.
            let _ = kill_process(pid, Signal::INT);
        }
        let deadline = Instant::now() + ENDING_WAIT;
        while child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                child.kill()?;
            }
            std::thread::sleep(ENDING_STEP);
        }
        took.map_err(|error| format!("{error}\n{}", last_lines(&fs::read_to_string(&said).unwrap_or_default())).into())
    }
}

/// The end of what it said to people.
fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(SAID_LINES)..].join("\n")
}

fn parse(line: &str) -> Outcome<Took> {
    let mut numbers = line.split_whitespace().map(str::parse);
    let hot = numbers.next().ok_or("Ray told nothing")??;
    Ok(Took { hot, after_a_pause: numbers.next().transpose()? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_end_of_what_was_said_is_kept() {
        let said: String = (0..30).map(|line| format!("{line}\n")).collect();
        assert!(last_lines(&said).starts_with("10\n") && last_lines(&said).ends_with("29"));
        assert_eq!(last_lines(""), "");
    }

    #[test]
    fn one_number_or_two_are_read_and_anything_else_is_an_error() {
        assert_eq!(parse("2.5 1\n").unwrap(), Took { hot: 2.5, after_a_pause: Some(1.0) });
        assert_eq!(parse("2.5\n").unwrap(), Took { hot: 2.5, after_a_pause: None });
        assert!(["", "a", "1 b"].iter().all(|line| parse(line).is_err()));
    }
}
