//! `bireme bench --python`: what a user of the Python package gets, and beside it what Ray gives for the same script.
//!
//! | file | what |
//! |---|---|
//! | `rows` | the table of rows: unit, bars, goal |
//! | `interpreter` | which Python, and the environment with Ray |
//! | `suite` | a run of the benchmark script, which is part of the package |
//! | `verdict` | figures against bars |
//! | `output` | the aligned table and the JSON lines |
//!
//! Every row runs in processes of its own. With a peer, ours is measured before and after it, so that a machine that
//! becomes slower or faster meanwhile does not decide. What is judged is the median of the rounds.

pub(super) mod interpreter;
mod output;
mod rows;
mod suite;
mod verdict;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::Outcome;
use interpreter::Interpreter;
use rows::{ROWS, Row};
use suite::Suite;
use verdict::Report;

/// Rounds of ours for each of the two halves, and of the peer.
const ROUNDS: Rounds = Rounds { first: 4, second: 3, peer: 3 };
/// The fewest that show that it works.
const QUICK_ROUNDS: Rounds = Rounds { first: 1, second: 1, peer: 1 };

/// What `bireme bench` is told about Python.
#[derive(Args)]
pub(crate) struct PythonArguments {
    /// Measure the Python package instead of the Rust one.
    #[arg(long)]
    pub(crate) python: bool,
    /// Measure this system too, with the same script in the same run; it is installed apart when it is used first.
    #[arg(long, value_enum, requires = "python")]
    peer: Option<Peer>,
    /// The Python that has the package; else the one beside this command, of `$VIRTUAL_ENV`, or on `PATH`.
    #[arg(long, value_name = "PATH")]
    pub(crate) python_exe: Option<std::path::PathBuf>,
}

/// A system to compare with.
#[derive(Clone, Copy, ValueEnum)]
enum Peer {
    /// Ray 2.60.
    Ray,
}

/// How to measure and print, as for the Rust rows.
pub(crate) struct Options<'a> {
    /// Rows; all when empty.
    pub(crate) names: &'a [String],
    /// Print the names only.
    pub(crate) list: bool,
    /// Lines of JSON.
    pub(crate) json: bool,
    /// Fail when a bar does not hold.
    pub(crate) check: bool,
    /// Measure less.
    pub(crate) quick: bool,
}

/// The names of the rows.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

impl super::Named for Row {
    fn name(&self) -> &'static str {
        self.name
    }
}

struct Rounds {
    first: u32,
    second: u32,
    peer: u32,
}

/// Measures what was asked for and prints it row by row.
pub(crate) fn run(arguments: &PythonArguments, options: &Options<'_>) -> Outcome<ExitCode> {
    let chosen = super::chosen(ROWS, options.names, |name| super::not_among("Python row", ROWS, name))?;
    if options.list {
        return Ok(super::list_of(&chosen));
    }
    if options.check && arguments.peer.is_none() && chosen.iter().any(|row| row.needs_peer()) {
        let names: Vec<&str> = chosen.iter().filter(|row| row.needs_peer()).map(|row| row.name).collect();
        let text = "bars that are multiples of Ray are judged by what it does in the same run: add --peer ray, for";
        return Err(format!("{text} {}", names.join(", ")).into());
    }
    let python = Interpreter::find(arguments.python_exe.as_deref())?;
    let script = python.script("suite.py")?;
    let ours = Suite { system: "bireme", python: python.path(), script: &script, quick: options.quick };
    let peer_python = arguments.peer.map(|Peer::Ray| interpreter::with_ray(python.path())).transpose()?;
    let peer =
        peer_python.as_ref().map(|path| Suite { system: "ray", python: path, script: &script, quick: options.quick });
    super::warn_about_this_machine();
    if !options.json {
        eprintln!("bireme: the package in {}", python.path().display());
        println!("{}", output::table_head());
    }
    let mut tally = super::Tally::default();
    for row in chosen {
        let report = measure(row, &ours, peer.as_ref());
        match options.json {
            true => println!("{}", output::json(&report)),
            false => output::table_lines(&report).iter().for_each(|line| println!("{line}")),
        }
        tally.add(row.name, report.verdict());
    }
    Ok(tally.verdict(options.check))
}

/// Ours, the peer, and ours again.
fn measure(row: &'static Row, ours: &Suite<'_>, peer: Option<&Suite<'_>>) -> Report {
    let rounds = if ours.quick { QUICK_ROUNDS } else { ROUNDS };
    let measured = || {
        let mut pairs = ours.measure(row.name, rounds.first)?;
        // Without the peer a row still has figures of ours, so the run goes on; what its bars need is missing then.
        let of_peer = peer.and_then(|peer| {
            let measured = peer.measure(row.name, rounds.peer);
            measured.inspect_err(|error| eprintln!("bireme: {} of {} failed: {error}", row.name, peer.system)).ok()
        });
        pairs.extend(ours.measure(row.name, rounds.second)?);
        Ok((pairs, of_peer, super::beside(row.name, ours.quick)?))
    };
    match measured() {
        Ok((pairs, of_peer, more)) => Report::new(row, Ok((pairs, of_peer))).with(more),
        Err(error) => Report::new(row, Err(error)),
    }
}
