//! Ray on this machine or on hosts of a lab, for the rows that have to be a multiple faster than it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bireme_netlab::Lab;
use rustix::process::{Pid, Signal, kill_process};

use super::super::Outcome;
use super::super::cluster::lines::Lines;
use super::super::cluster::stage::Stage;
use super::super::python::interpreter::with_ray;

const SCRIPT: &str = include_str!("../../../../../bench/ray/peer.py");
/// No row of it takes longer: broadcasts among sixteen nodes take some two and a half minutes with their start.
const WAIT: Duration = Duration::from_secs(420);
/// How long its nodes may take to end, and between two looks.
const ENDING_WAIT: Duration = Duration::from_secs(60);
const ENDING_STEP: Duration = Duration::from_millis(50);

/// An environment with Ray, and the script that measures it.
pub(super) struct Ray {
    python: PathBuf,
    script: PathBuf,
}

/// What Ray took, in the unit of the row.
#[derive(Debug, PartialEq)]
pub(super) struct Took {
    /// As it was recorded: after a pause, and calls without data.
    pub(super) as_recorded: f64,
    /// As we are measured: one after the other, with as many bytes.
    pub(super) back_to_back: f64,
}

impl Ray {
    /// Installed when it is not there.
    pub(super) fn installed() -> Outcome<Self> {
        let python = with_ray(Path::new("python3"))?;
        let script = python.with_file_name("bireme_peer.py");
        fs::write(&script, SCRIPT)?;
        Ok(Self { python, script })
    }

    /// What it takes for something that the script knows, with several nodes on this machine or one on each host of a lab.
    pub(super) fn took(&self, stage: &Stage, what: &str, bytes: usize, lab: Option<&Lab>) -> Outcome<Took> {
        stage.check()?;
        let mut command = lab.map_or_else(|| Command::new(&self.python), |lab| lab.command(1, &self.python));
        command.arg(&self.script).args([what, &bytes.to_string()]);
        let hosts = lab.into_iter().flat_map(|lab| (1..=lab.hosts()).map(move |host| (lab, host)));
        command.args(hosts.map(|(lab, host)| format!("{}={}", lab.namespace(host), lab.address(host))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
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
        took
    }
}

fn parse(line: &str) -> Outcome<Took> {
    let (as_recorded, back_to_back) = line.trim().split_once(' ').ok_or("Ray told no two numbers")?;
    Ok(Took { as_recorded: as_recorded.parse()?, back_to_back: back_to_back.parse()? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn two_numbers_are_read_and_anything_else_is_an_error() {
        assert_eq!(parse("2.5 1\n").unwrap(), Took { as_recorded: 2.5, back_to_back: 1.0 });
        assert!(["", "1", "a b", "1 2 3"].iter().all(|line| parse(line).is_err()));
    }
}
