//! `bireme bench`: every measure that has a bar, with the raw floor of the machine measured in the same run.
//!
//! | file | what |
//! |---|---|
//! | `rows` | the table of rows: name, unit, floor, bar, goal |
//! | `probe` | a process that measures one row, and the parent's side of it |
//! | `measure` | statistics, and timing of repeated calls |
//! | `output` | the aligned table and the JSON lines |
//! | `floor` | the floors: what the machine does without us |
//! | `tasks`, `actors`, `objects`, `startup`, `faults`, `spin` | one function per row |
//! | `python` | the rows of the Python package, with `--python` |
//! | `cluster` | the rows of several nodes, with `--cluster` |
//! | `collectives` | the rows of objects that move among nodes, with `--collectives` |
//! | `shuffle` | the rows of data larger than the store, with `--shuffle` |
//!
//! Each row is measured by seven interleaved pairs (ours, floor): ours, then the floor, and again. What is judged is
//! the median: of the ratios of the pairs where the bar is a ratio, of our values where the bar is absolute. A row runs in
//! a process of its own, so that no row sees the tables and pages that another one left, and a row that hangs or
//! crashes is reported and the others still run. Recording into the ledger is always on: there is no switch.

mod actors;
pub(crate) mod cluster;
pub(crate) mod collectives;
mod faults;
pub(crate) mod floor;
mod machine;
mod measure;
mod objects;
mod output;
pub(crate) mod probe;
mod python;
mod rows;
mod shuffle;
mod spin;
mod startup;
mod tasks;

use std::fs;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use output::Report;
use rows::{ROWS, Row};
use serde_json::{Map, Value};

pub(crate) use crate::Outcome;

/// Pairs of (ours, floor) per row: the fewest that the bars accept.
const PAIRS: u32 = 7;
/// A machine with more than this share of its cores in use is no place for measurements.
const BUSY_SHARE: f64 = 0.25;

/// The command line of `bireme bench`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Rows to measure; all unless named.
    #[arg(value_name = "NAME", value_parser = names(), hide_possible_values = true)]
    names: Vec<String>,
    /// Print the names of the rows and measure nothing.
    #[arg(long)]
    list: bool,
    /// Print one line of JSON per row instead of a table.
    #[arg(long)]
    json: bool,
    /// Fail when a bar does not hold, and name the rows.
    #[arg(long)]
    check: bool,
    /// Measure less of everything: seconds instead of minutes, and figures that say little.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    python: python::PythonArguments,
    #[command(flatten)]
    cluster: cluster::ClusterArguments,
    #[command(flatten)]
    collectives: collectives::CollectiveArguments,
    #[command(flatten)]
    shuffle: shuffle::ShuffleArguments,
}

/// Accepts the names of rows; for another word the error lists them and says which one is near.
fn names() -> PossibleValuesParser {
    let rust = ROWS.iter().map(|row| row.name);
    let of_python = python::names().filter(|name| rows::find(name).is_none());
    let of_nodes = cluster::names().chain(collectives::names());
    PossibleValuesParser::new(rust.chain(of_python).chain(of_nodes).chain(shuffle::names()))
}

/// Measures what was asked for and prints it row by row.
pub(crate) fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    let Arguments { names, list, json, check, quick, python, cluster, collectives, shuffle } = arguments;
    let options = python::Options { names, list: *list, json: *json, check: *check, quick: *quick };
    if python.python {
        return python::run(python, &options);
    }
    if cluster.cluster {
        return cluster::run(&options);
    }
    if collectives.collectives {
        return collectives::run(collectives, &options);
    }
    if shuffle.shuffle {
        return shuffle::run(python.python_exe.as_deref(), &options);
    }
    let chosen = chosen(ROWS, names, elsewhere)?;
    if arguments.list {
        return Ok(list_of(&chosen));
    }
    warn_about_this_machine();
    if !arguments.json {
        println!("{}", output::table_head());
    }
    let mut tally = Tally::default();
    for row in chosen {
        let measured = probe::measure(row, PAIRS, arguments.quick);
        let report = match measured.and_then(|pairs| Ok((pairs, beside(row.name, arguments.quick)?))) {
            Ok((pairs, more)) => Report::new(row, Ok(pairs)).with(more),
            Err(error) => Report::new(row, Err(error)),
        };
        report.print(arguments.json);
        tally.add(row.name, report.verdict());
    }
    Ok(tally.verdict(arguments.check))
}

/// The figures beside a row: the floors of a round trip on this machine where the row is one.
fn beside(row: &str, quick: bool) -> Outcome<Map<String, Value>> {
    let mut more = Map::new();
    if rows::ROUND_TRIPS.contains(&row) {
        floor::Latencies::measure(if quick { 500 } else { 5_000 })?.beside(&mut more);
    }
    Ok(more)
}

/// The verdict of a row's figures on its bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// All of them hold.
    Holds,
    /// One does not.
    Missed,
    /// Those that were judged hold, and another one is a multiple of something that was not measured in this run.
    Unmeasured(&'static str),
}

/// The rows that failed, those whose bar does not hold, and those that could not be judged.
#[derive(Default)]
struct Tally {
    failed: Vec<&'static str>,
    missed: Vec<&'static str>,
    unmeasured: Vec<String>,
}

impl Tally {
    /// Counts a row: what it says about its bars, or why there are no figures.
    fn add(&mut self, name: &'static str, verdict: Result<Verdict, &String>) {
        match verdict {
            Err(error) => {
                eprintln!("bireme: {name} failed: {error}");
                self.failed.push(name);
            }
            Ok(Verdict::Missed) => self.missed.push(name),
            Ok(Verdict::Unmeasured(what)) => self.unmeasured.push(format!("{name} ({what})")),
            Ok(Verdict::Holds) => {}
        }
    }

    /// Names the rows that failed, and with `check` those whose bar does not hold or could not be judged.
    fn verdict(&self, check: bool) -> ExitCode {
        let Self { failed, missed, unmeasured } = self;
        if check && !missed.is_empty() {
            eprintln!("bireme: the bar does not hold for: {}", missed.join(", "));
        }
        if check && !unmeasured.is_empty() {
            eprintln!("bireme: not judged, since this was not measured in the same run: {}", unmeasured.join(", "));
        }
        if !failed.is_empty() {
            eprintln!("bireme: no figures for: {}", failed.join(", "));
        }
        let well = failed.is_empty() && (missed.is_empty() && unmeasured.is_empty() || !check);
        if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// A row of any table.
trait Named {
    /// Stable name.
    fn name(&self) -> &'static str;
}

impl<P> Named for Row<P> {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// The rows of a table with these names, in the order of the table; all when no name is given. `unknown` says what to tell of a
/// name that is not there.
fn chosen<R: Named>(
    rows: &'static [R],
    names: &[String],
    unknown: impl FnOnce(&str) -> String,
) -> Outcome<Vec<&'static R>> {
    if let Some(name) = names.iter().find(|name| rows.iter().all(|row| row.name() != **name)) {
        return Err(unknown(name).into());
    }
    Ok(rows.iter().filter(|row| names.is_empty() || names.iter().any(|name| name == row.name())).collect())
}

/// What to tell of a name that is not in a table with a flag of its own.
fn not_among<R: Named>(what: &str, rows: &[R], name: &str) -> String {
    let all: Vec<&str> = rows.iter().map(Named::name).collect();
    format!("there is no {what} named {name}; the rows are: {}", all.join(", "))
}

/// What to tell of a name that is not among the rows of one node: it needs another flag.
fn elsewhere(name: &str) -> String {
    let (of, flag) = if cluster::names().any(|row| row == name) {
        ("several nodes", "--cluster")
    } else if collectives::names().any(|row| row == name) {
        ("collectives", "--collectives")
    } else if shuffle::names().any(|row| row == name) {
        ("data larger than the store", "--shuffle")
    } else {
        ("the Python package", "--python")
    };
    format!("{name} is a row of {of}: add {flag}")
}

fn list_of<R: Named>(rows: &[&R]) -> ExitCode {
    rows.iter().for_each(|row| println!("{}", row.name()));
    ExitCode::SUCCESS
}

fn warn_about_this_machine() {
    if cfg!(debug_assertions) {
        eprintln!("bireme: this is a debug build, its figures mean nothing; build with --release");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        eprintln!("bireme: there is one core; the bars are for two or more");
    }
    let load = fs::read_to_string("/proc/loadavg").ok().and_then(|text| first_number(&text));
    if let Some(load) = load.filter(|load| *load > BUSY_SHARE * cores as f64) {
        eprintln!("bireme: this machine is busy (load {load:.1} on {cores} cores); figures will be noise");
    }
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_name_means_all_rows_and_names_keep_the_order_of_the_table() {
        assert_eq!(chosen(ROWS, &[], elsewhere).unwrap().len(), ROWS.len());
        let names = ["task_sync", "tasks_async"].map(str::to_owned);
        let found: Vec<_> = chosen(ROWS, &names, elsewhere).unwrap().iter().map(|row| row.name).collect();
        assert_eq!(found, ["tasks_async", "task_sync"]);
        let error = chosen(ROWS, &["wait_each".to_owned()], elsewhere).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("wait_each") && text.contains("--python")));
        let text = not_among("row of one node", ROWS, "chain");
        assert!(text.contains("chain") && text.contains("tasks_async"), "{text}");
    }

    #[test]
    fn a_bar_that_was_missed_or_not_judged_fails_only_with_check() {
        for verdict in [Verdict::Missed, Verdict::Unmeasured("Ray")] {
            let mut tally = Tally::default();
            tally.add("chain", Ok(Verdict::Holds));
            assert_eq!(tally.verdict(true), ExitCode::SUCCESS);
            tally.add("chain", Ok(verdict));
            assert_eq!(tally.verdict(true), ExitCode::FAILURE, "{verdict:?}");
            assert_eq!(tally.verdict(false), ExitCode::SUCCESS, "{verdict:?}");
        }
    }

    #[test]
    fn rows_that_are_round_trips_are_among_the_rows() {
        assert!(rows::ROUND_TRIPS.iter().all(|name| rows::find(name).is_some()));
        assert!(beside("chain", true).unwrap().is_empty());
    }

    #[test]
    fn the_load_is_the_first_number() {
        assert_eq!(first_number("0.52 0.58 0.59 1/189 12345\n"), Some(0.52));
        assert_eq!(first_number(""), None);
    }
}
