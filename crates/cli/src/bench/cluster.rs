//! `bireme bench --cluster`: what several nodes give, and what they cost.
//!
//! | file | what |
//! |---|---|
//! | `rows` | the table of rows: name, unit, floor, bar, goal |
//! | `stage` | what a row is given: a folder, the end by a signal, how much to measure |
//! | `place` | hosts: those of a network lab, or this machine over loopback |
//! | `nodes` | nodes of this program, and their end |
//! | `driver` | a program that attaches to a node and does what it is told: both sides |
//! | `lines` | what a process says, with a deadline |
//! | `wire` | the floor of what crosses a network |
//! | `latency`, `life`, `locality`, `load`, `decisions` | one function per row |
//!
//! This process makes the hosts, starts and kills nodes and takes the time; drivers are processes of their own on a host.
//! Each row has nodes of its own. Whatever a row ends by, its nodes, hosts and files go with it: a signal that asks this
//! process to end is a descriptor that every wait looks at, so that the row ends with an error and its values are dropped.

mod decisions;
pub(crate) mod driver;
mod latency;
mod life;
pub(super) mod lines;
mod load;
mod locality;
pub(super) mod nodes;
pub(super) mod place;
mod rows;
pub(super) mod stage;
pub(crate) mod wire;

use std::process::ExitCode;

use bireme_runtime::daemon::stop_signals;
use clap::Args;

use super::Outcome;
use super::output::{self, Report};
use super::python::Options;
use place::Place;
use rows::ROWS;
use stage::Stage;

/// What `bireme bench` is told about clusters.
#[derive(Args)]
pub(crate) struct ClusterArguments {
    /// Measure several nodes instead of one: on hosts of a network lab when you are root, else over loopback.
    #[arg(long, conflicts_with_all = ["python", "peer"])]
    pub(crate) cluster: bool,
    /// Copies of the ledger on other nodes; only 0 for now.
    #[arg(long, value_name = "COUNT", requires = "cluster", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=0))]
    replicas: u32,
}

/// The names of the rows.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// Measures what was asked for and prints it row by row.
pub(crate) fn run(options: &Options<'_>) -> Outcome<ExitCode> {
    let chosen = super::chosen(ROWS, options.names, |name| super::not_among("row of clusters", ROWS, name))?;
    if options.list {
        return Ok(super::list_of(&chosen));
    }
    if options.check {
        Place::require_encryption()?;
    }
    // Before there is any thread.
    let stage = Stage::new(stop_signals()?, options.quick)?;
    super::warn_about_this_machine();
    eprintln!("bireme: {}", Place::words());
    if !options.json {
        println!("{}", output::table_head());
    }
    let mut tally = super::Tally::default();
    for row in chosen {
        let report = match (row.probe)(&stage) {
            Ok(measured) => Report::new(row, Ok(measured.pairs)).with(measured.more),
            Err(error) => Report::new(row, Err(error)),
        };
        stage.check()?;
        report.print(options.json);
        tally.add(row.name, report.verdict());
    }
    Ok(tally.verdict(options.check))
}
