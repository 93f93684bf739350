//! Sweeps over sizes, nodes and arrivals, as the figures 5 to 7 of the Hoplite paper have them: CSV, and plots made of it.
//!
//! The plots are drawn by a script with matplotlib, in an environment of its own: text on bitmaps needs fonts, which
//! neither a machine need have nor this program should carry.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::super::Outcome;
use super::super::cluster::stage::Stage;
use super::super::cluster::wire::ping_pong;
use super::super::measure::quantile;
use super::combining::{reduce_by, reduce_of};
use super::field::{self, Field};
use super::moving::broadcast_of;
use super::peers::{self, Peers};
use super::seats::{Arrival, Plan, Task};
use super::shape::Shape;

const SCRIPT: &str = include_str!("../../../../../bench/plot.py");
/// Sizes of objects; the largest of each is that of the shape.
const SIZES: [usize; 4] = [1_000, 100_000, 1_000_000, 10_000_000];
/// Arrivals are spread over so many copies.
const SPREADS: [f64; 4] = [0.0, 0.25, 0.5, 1.0];
/// Passes for each point.
const PASSES: usize = 3;
/// What a plan on paper sends on at once, and what a hop takes.
const BLOCK_BYTES: f64 = 256.0 * 1024.0;

/// The lines of a file.
struct Table(String);

impl Table {
    fn new() -> Self {
        Self("operation,nodes,bytes,spread,system,ms\n".to_owned())
    }

    fn add(&mut self, operation: &str, (nodes, bytes): (usize, usize), spread: f64, system: &str, ms: f64) {
        // A string takes everything.
        let _ = writeln!(self.0, "{operation},{nodes},{bytes},{spread},{system},{ms:.4}");
    }
}

/// Measures the three figures into a folder and draws them.
pub(super) fn draw(stage: &Stage, peers: Option<&Peers>, folder: &Path) -> Outcome<()> {
    fs::create_dir_all(folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
    let keep = |name: &str, table: Table| -> Outcome<()> {
        fs::write(folder.join(name), table.0)?;
        eprintln!("bireme: {} is there", folder.join(name).display());
        Ok(())
    };
    // Each as soon as it is measured: all of them take a while.
    keep("figure5.csv", round_trips(stage, peers)?)?;
    keep("figure7.csv", arrivals(stage)?)?;
    keep("figure6.csv", collectives(stage, peers)?)?;
    let script = folder.join("plot.py");
    fs::write(&script, SCRIPT)?;
    peers::plot(&script, folder)
}

/// The median of some passes behind one that does not count.
fn median(stage: &Stage, mut pass: impl FnMut() -> Outcome<f64>) -> Outcome<f64> {
    pass()?;
    let mut took = Vec::new();
    for _ in 0..stage.size(PASSES, 1) {
        stage.check()?;
        took.push(pass()?);
    }
    Ok(quantile(&took, 0.5).ok_or("nothing was measured")?)
}

/// Figure 5: a value to another node and back.
fn round_trips(stage: &Stage, peers: Option<&Peers>) -> Outcome<Table> {
    let (mut table, shape) = (Table::new(), Shape::PAIR.sized(stage));
    let nodes = field::nodes(stage, shape)?;
    let mut field = Field::new(stage, &nodes, shape)?;
    let bytes_per_ms = shape.bytes as f64 / field.floor()?;
    for bytes in sizes(shape) {
        let at = (2, bytes);
        let count = if bytes > 100_000 { 1 } else { 100 };
        let ours = median(stage, || field.number(Task::RoundTrip { bytes, count, pause_ms: 0 }))?;
        table.add("round_trip", at, 0.0, "bireme", ours / 1e3);
        let tcp = median(stage, || ping_pong(stage, nodes.place(), [0, 1], bytes, count))?;
        table.add("round_trip", at, 0.0, "TCP", tcp / 1e3);
        table.add("round_trip", at, 0.0, "2 S/B", 2.0 * bytes as f64 / bytes_per_ms);
        if let Some(peers) = peers {
            let ms = peers.milliseconds(stage, nodes.place(), "p2p", bytes)?;
            table.add("round_trip", at, 0.0, "MPICH", ms);
        }
    }
    field.end()?;
    Ok(table)
}

fn sizes(shape: Shape) -> impl Iterator<Item = usize> {
    SIZES.into_iter().filter(move |bytes| *bytes < shape.bytes).chain([shape.bytes])
}

/// An operation: its name, that of MPI, and what the driver does.
type Operation = (&'static str, &'static str, fn(usize) -> Task);

const OPERATIONS: [Operation; 5] = [
    ("broadcast", "bcast", |bytes| broadcast_of(bytes, Arrival::Together)),
    ("gather", "gather", |bytes| Task::Gather { bytes }),
    ("reduce", "reduce", |bytes| reduce_of(bytes, Arrival::Together)),
    ("all_reduce", "allreduce", |bytes| Task::ObjectAllReduce { bytes }),
    ("group_all_reduce", "allreduce", |bytes| Task::GroupAllReduce { bytes }),
];

/// The same with a part left out, and which.
const ABLATIONS: [Operation; 3] = [
    ("broadcast", "no pipelining (one by one)", |bytes| broadcast_of(bytes, Arrival::OneByOne)),
    ("broadcast", "no partial senders (rounds)", |bytes| broadcast_of(bytes, Arrival::Rounds)),
    ("reduce", "always a chain", |bytes| reduce_by(bytes, Plan::Chain)),
];

/// Figure 6: operations by size and nodes, with lines on paper and with parts left out.
fn collectives(stage: &Stage, peers: Option<&Peers>) -> Outcome<Table> {
    let mut table = Table::new();
    for shape in stage.size(&[Shape::FOUR, Shape::EIGHT, Shape::SIXTEEN][..], &[Shape::FOUR][..]) {
        let shape = shape.sized(stage);
        let nodes = field::nodes(stage, shape)?;
        let mut field = Field::new(stage, &nodes, shape)?;
        let bytes_per_ms = shape.bytes as f64 / field.floor()?;
        for (name, mpi, task) in OPERATIONS {
            for bytes in sizes(shape) {
                let at = (shape.nodes, bytes);
                table.add(name, at, 0.0, "bireme", median(stage, || field.number(task(bytes)))?);
                for (line, ms) in on_paper(name, shape.nodes as f64, bytes as f64, bytes_per_ms) {
                    table.add(name, at, 0.0, line, ms);
                }
                if let Some(peers) = peers {
                    let ms = peers.milliseconds(stage, nodes.place(), mpi, bytes)?;
                    table.add(name, at, 0.0, "MPICH", ms);
                }
            }
        }
        for (name, what, task) in ABLATIONS {
            for bytes in sizes(shape) {
                let ms = median(stage, || field.number(task(bytes)))?;
                table.add(name, (shape.nodes, bytes), 0.0, what, ms);
            }
        }
        field.end()?;
    }
    Ok(table)
}

/// How long operations take on paper, without latency.
fn on_paper(operation: &str, nodes: f64, bytes: f64, bytes_per_ms: f64) -> Vec<(&'static str, f64)> {
    let copy = bytes / bytes_per_ms;
    let hops = (nodes - 1.0) * BLOCK_BYTES.min(bytes) / bytes_per_ms;
    match operation {
        "broadcast" => vec![
            ("S/B and a block per hop", copy + hops),
            ("binomial tree", nodes.log2().ceil() * copy),
            ("scatter and all_gather", 2.0 * (nodes - 1.0) / nodes * copy),
        ],
        "gather" => vec![("(n-1) S/B", (nodes - 1.0) * copy)],
        "reduce" => vec![("chain", copy + hops), ("two levels", 2.0 * copy)],
        "all_reduce" => vec![("reduce and broadcast", 2.0 * copy)],
        "group_all_reduce" => vec![("ring: 2(n-1)/n S/B", 2.0 * (nodes - 1.0) / nodes * copy)],
        _ => Vec::new(),
    }
}

/// What the driver does with participants that come in a manner.
type Arriving = fn(usize, Arrival) -> Task;

/// Figure 7: participants come one by one; the time after the last has come.
fn arrivals(stage: &Stage) -> Outcome<Table> {
    let (mut table, shape) = (Table::new(), stage.size(Shape::EIGHT, Shape::FOUR).sized(stage));
    let nodes = field::nodes(stage, shape)?;
    let mut field = Field::new(stage, &nodes, shape)?;
    let copy = field.floor()?;
    let operations: [(&str, Arriving); 2] = [("broadcast", broadcast_of), ("reduce", reduce_of)];
    for (name, task) in operations {
        for spread in SPREADS {
            let arrival = Arrival::Spread(spread * copy);
            let ms = median(stage, || field.number(task(shape.bytes, arrival)))?;
            let at = (shape.nodes, shape.bytes);
            table.add(name, at, spread, "bireme", ms);
            table.add(name, at, spread, "S/B", copy);
        }
    }
    field.end()?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_paper_is_at_least_one_copy_and_every_operation_has_a_line() {
        for (operation, ..) in OPERATIONS {
            let lines = on_paper(operation, 8.0, 1e6, 1e5);
            assert!(!lines.is_empty() && lines.iter().all(|(_, ms)| *ms >= 10.0), "{operation}");
        }
        assert_eq!(on_paper("gather", 4.0, 1e6, 1e5)[0].1, 30.0);
    }

    #[test]
    fn sizes_end_with_that_of_the_shape_and_a_line_has_every_column() {
        assert_eq!(sizes(Shape::PAIR.of(500_000)).collect::<Vec<_>>(), [1_000, 100_000, 500_000]);
        let mut table = Table::new();
        table.add("gather", (4, 1_000), 0.5, "bireme", 1.25);
        let columns = |line: &str| line.split(',').count();
        assert!(
            table.0.lines().all(|line| columns(line) == 6) && table.0.ends_with("gather,4,1000,0.5,bireme,1.2500\n")
        );
    }
}
