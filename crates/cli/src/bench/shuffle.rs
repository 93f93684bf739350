//! `bireme bench --shuffle`: sort and group-by of ten times the object store, against the disk alone.
//!
//! The script `bench/shuffle.py` of the Python package measures and checks every answer. What is judged is how much is written and
//! read per second while it shuffles, as a share of what the disk does with as many bytes: written, synchronised, dropped from the
//! page cache and read again. Spilling itself goes through the page cache and synchronises nothing, so where memory is free it may
//! be faster than the disk; the same floor with the page cache stands beside it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Outcome;
use super::measure::{Pair, quantile};
use super::output::{self, Report};
use super::probe::next_line;
use super::python::Options;
use super::python::interpreter::Interpreter;
use super::rows::{Floor, Judged, Row};

/// Rounds of a row: each shuffles gigabytes.
const ROUNDS: u32 = 3;
/// How long a round may take, with a disk that does 50 MB/s.
const ROUND_WAIT: Duration = Duration::from_secs(900);

/// Options of `bireme bench` for shuffles.
#[derive(Args)]
pub(crate) struct ShuffleArguments {
    /// Measure shuffles of ten times the object store with the Python package.
    #[arg(long, conflicts_with_all = ["python", "peer", "cluster", "collectives"])]
    pub(crate) shuffle: bool,
}

const fn row(name: &'static str) -> Row<()> {
    let floor = Floor { what: "as many bytes written, synchronised and read again by one thread", unit: "MB/s" };
    Row { name, unit: "MB/s", floor, judged: Judged::RatioAtLeast, bar: 0.6, goal: 0.9, fresh: true, probe: () }
}

/// All rows, in the order of the output. Names are those of the script.
const ROWS: &[Row<()>] = &[row("sort"), row("group_by")];

/// A line of the script.
#[derive(Deserialize)]
struct Round {
    #[serde(flatten)]
    pair: Pair,
    more: Map<String, Value>,
}

/// The names of the rows.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// Measures what was asked for and prints it row by row.
pub(crate) fn run(python: Option<&Path>, options: &Options<'_>) -> Outcome<ExitCode> {
    let chosen = super::chosen(ROWS, options.names, |name| super::not_among("shuffle", ROWS, name))?;
    if options.list {
        return Ok(super::list_of(&chosen));
    }
    let python = Interpreter::find(python)?;
    let script = python.script("shuffle.py")?;
    super::warn_about_this_machine();
    if !options.json {
        println!("{}", output::table_head());
    }
    let mut tally = super::Tally::default();
    for row in chosen {
        let measured = measure(python.path(), &script, row.name, options.quick);
        let report = match measured {
            Ok(rounds) => Report::new(row, Ok(rounds.iter().map(|round| round.pair).collect())).with(medians(&rounds)),
            Err(error) => Report::new(row, Err(error)),
        };
        report.print(options.json);
        tally.add(row.name, report.verdict());
    }
    Ok(tally.verdict(options.check))
}

/// Runs the script; the end of its output is the end of its rounds.
fn measure(python: &Path, script: &Path, row: &str, quick: bool) -> Outcome<Vec<Round>> {
    let rounds = if quick { 1 } else { ROUNDS };
    let mut command = Command::new(python);
    command.arg(script).args([row, "--rounds", &rounds.to_string()]);
    if quick {
        command.arg("--quick");
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().ok_or("the script has no output")?;
    let (to_us, lines) = mpsc::channel();
    // A thread, since a pipe cannot be read with a timeout. It ends with the script, or with `lines`.
    thread::spawn(move || BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| to_us.send(line)));
    let mut measured = Vec::new();
    let read = loop {
        match next_line(&lines, ROUND_WAIT) {
            Ok(Some(line)) => match serde_json::from_str::<Round>(&line) {
                Ok(round) => measured.push(round),
                Err(error) => break Err(format!("the script said {line:?}: {error}").into()),
            },
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    if read.is_err() {
        // It may have ended already: then its status says more.
        let _ = child.kill();
    }
    let status = child.wait()?;
    read?;
    match status.success() && measured.len() == rounds as usize {
        true => Ok(measured),
        false => Err(format!("the script ended with {status} after {} of {rounds} rounds", measured.len()).into()),
    }
}

/// The medians of what else the rounds tell.
fn medians(rounds: &[Round]) -> Map<String, Value> {
    let names = rounds.first().into_iter().flat_map(|round| round.more.keys());
    let median = |name: &String| {
        let values: Vec<f64> = rounds.iter().filter_map(|round| round.more.get(name)?.as_f64()).collect();
        Some((name.clone(), quantile(&values, 0.5)?.into()))
    };
    names.filter_map(median).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_round_is_a_pair_and_what_else_was_seen() {
        let line =
            |ours: f64, seconds: f64| format!(r#"{{"ours": {ours}, "floor": 2.0, "more": {{"seconds": {seconds}}}}}"#);
        let rounds = [(1.0, 5.0), (2.0, 7.0), (3.0, 90.0)].map(|(ours, seconds)| line(ours, seconds));
        let rounds: Vec<Round> = rounds.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rounds[2].pair, Pair { ours: 3.0, floor: 2.0 });
        assert_eq!(medians(&rounds)["seconds"], 7.0);
    }

    #[test]
    fn a_script_that_fails_has_no_figures() {
        let error = measure(Path::new("/bin/false"), Path::new("no-script"), "sort", true).err().unwrap();
        assert!(error.to_string().contains("0 of 1 rounds"), "{error}");
    }
}
