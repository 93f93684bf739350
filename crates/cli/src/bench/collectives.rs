//! `bireme bench --collectives`: how fast objects move among several nodes, against the rate of one link.
//!
//! | file | what |
//! |---|---|
//! | `rows` | the table of rows: name, shape, floor, bar, goal |
//! | `shape` | how many nodes, which links, how many bytes |
//! | `field` | the nodes of a row with a driver, and the floor beside them |
//! | `seat` | an actor on each node |
//! | `seats` | what the driver has them do |
//! | `kill` | a node that is killed meanwhile |
//! | `moving` | one function per row: objects that are moved as they are |
//! | `combining` | one function per row: objects that are combined on the way |
//! | `plans` | one function for its rows: who sends to whom in a reduce, over links with a delay |
//! | `faults` | one function per row: a participant is killed half-way |
//! | `cost` | one function per row: processor time |
//! | `peers`, `mpich`, `ray` | what others do in the same run |
//! | `figures` | sweeps for plots |
//!
//! Every duration is in units of S/B: the time that a plain copy of as many bytes takes through one socket between two
//! hosts of the same lab, measured straight after ours. All hosts of a lab share this machine's clock, so a start is a
//! time that all seats wait for, and an end the latest time that any of them tells. The first pass of everything does not
//! count: pages of a store that were never used cost their first user a moment for each.

mod combining;
mod cost;
mod faults;
mod field;
mod figures;
mod kill;
mod moving;
mod mpich;
mod peers;
mod plans;
mod ray;
mod rows;
mod seat;
pub(crate) mod seats;
mod shape;

use std::path::PathBuf;
use std::process::ExitCode;

use bireme_runtime::daemon::stop_signals;
use clap::Args;

use super::Outcome;
use super::cluster::place::Place;
use super::cluster::stage::Stage;
use super::output::{self, Report};
use super::python::Options;
use peers::Peers;
use rows::ROWS;

/// What `bireme bench` is told about collectives.
#[derive(Args)]
pub(crate) struct CollectiveArguments {
    /// Measure how objects move among several nodes on hosts of a network lab; needs root.
    #[arg(long, conflicts_with_all = ["python", "peer", "cluster"])]
    pub(crate) collectives: bool,
    /// Measure MPICH and Ray too; they are installed apart when they are used first.
    #[arg(long, requires = "collectives")]
    peers: bool,
    /// Measure sweeps instead of rows and put them into this folder as CSV and PNG.
    #[arg(long, value_name = "DIR", requires = "collectives", conflicts_with_all = ["list", "json", "check"])]
    plot: Option<PathBuf>,
}

/// The names of the rows.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// Measures what was asked for and prints it row by row.
pub(crate) fn run(arguments: &CollectiveArguments, options: &Options<'_>) -> Outcome<ExitCode> {
    let chosen = super::chosen(ROWS, options.names, |name| super::not_among("row of collectives", ROWS, name))?;
    if options.list {
        return Ok(super::list_of(&chosen));
    }
    // Before there is any thread.
    let stage = Stage::new(stop_signals()?, options.quick)?;
    refuse_half_a_check(options.check, arguments.peers, &chosen)?;
    let peers = arguments.peers.then(Peers::installed).transpose()?;
    super::warn_about_this_machine();
    eprintln!("bireme: {}", Place::words());
    if let Some(folder) = &arguments.plot {
        figures::draw(&stage, peers.as_ref(), folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !options.json {
        println!("{}", output::table_head());
    }
    let mut tally = super::Tally::default();
    for row in chosen {
        let measured = (row.probe.measure)(&stage, row.probe.shape);
        stage.check()?;
        let report = match measured {
            Ok(measured) => {
                let beside = peers::beside(peers.as_ref(), &stage, row, &measured);
                stage.check()?;
                let report = Report::new(row, Ok(measured.pairs)).with(beside.more);
                report.and_holds(beside.is_beaten).without(beside.unmeasured)
            }
            Err(error) => Report::new(row, Err(error)),
        };
        report.print(options.json);
        tally.add(row.name, report.verdict());
    }
    Ok(tally.verdict(options.check))
}

/// A check without what the bars of these rows need can only fail, and would do so after half an hour.
fn refuse_half_a_check(check: bool, peers: bool, rows: &[&rows::CollectiveRow]) -> Outcome<()> {
    let against_ray: Vec<&str> = rows.iter().filter(|row| row.probe.ray.is_some()).map(|row| row.name).collect();
    if check && !peers && !against_ray.is_empty() {
        let text = "bars that are multiples of Ray are judged by what it does in the same run: add --peers, for";
        return Err(format!("{text} {}", against_ray.join(", ")).into());
    }
    if check { Place::require_encryption() } else { Ok(()) }
}
