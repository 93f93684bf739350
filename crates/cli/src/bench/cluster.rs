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
mod lines;
mod load;
mod locality;
mod nodes;
mod place;
mod rows;
mod stage;
pub(crate) mod wire;

use std::process::ExitCode;

use bireme_runtime::daemon::stop_signals;
use clap::Args;

use super::Outcome;
use super::output::{self, Report};
use super::python::Options;
use place::Place;
use rows::{ClusterRow, ROWS};
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
    let chosen = chosen(options.names)?;
    if options.list {
        chosen.iter().for_each(|row| println!("{}", row.name));
        return Ok(ExitCode::SUCCESS);
    }
    // Before there is any thread.
    let stage = Stage::new(stop_signals()?, options.quick)?;
    super::warn_about_this_machine();
    eprintln!("bireme: {}", Place::words());
    if !options.json {
        println!("{}", output::table_head());
    }
    let (mut failed, mut missed) = (Vec::new(), Vec::new());
    for row in chosen {
        let report = match (row.probe)(&stage) {
            Ok(measured) => Report::new(row, Ok(measured.pairs)).with(measured.more),
            Err(error) => Report::new(row, Err(error)),
        };
        stage.check()?;
        match options.json {
            true => println!("{}", report.json()),
            false => report.table_lines().iter().for_each(|line| println!("{line}")),
        }
        match &report.result {
            Err(error) => {
                eprintln!("bireme: {} failed: {error}", row.name);
                failed.push(row.name);
            }
            Ok(figures) if !figures.holds => missed.push(row.name),
            Ok(_) => {}
        }
    }
    Ok(super::verdict(options.check, &failed, &missed))
}

/// The rows with these names, in the order of the table; all when no name is given.
fn chosen(names: &[String]) -> Outcome<Vec<&'static ClusterRow>> {
    if let Some(name) = names.iter().find(|name| ROWS.iter().all(|row| row.name != **name)) {
        let all: Vec<&str> = self::names().collect();
        return Err(format!("there is no row of clusters named {name}; the rows are: {}", all.join(", ")).into());
    }
    Ok(ROWS.iter().filter(|row| names.is_empty() || names.iter().any(|name| name == row.name)).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_keep_the_order_of_the_table_and_an_unknown_one_is_an_error_with_all_names() {
        assert_eq!(chosen(&[]).unwrap().len(), ROWS.len());
        let names = ["uneven", "five_nodes"].map(str::to_owned);
        let found: Vec<_> = chosen(&names).unwrap().iter().map(|row| row.name).collect();
        assert_eq!(found, ["five_nodes", "uneven"]);
        let error = chosen(&["chain".to_owned()]).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("chain") && text.contains("node_kill")));
    }
}
