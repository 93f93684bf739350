//! The rows of clusters: what is measured, against what, and what must hold. Names are stable: other tools ask for them.

use super::super::Outcome;
use super::super::rows::{Floor, Judged, Row};
use super::stage::{Measured, Stage};
use super::{decisions, latency, life, load, locality};

/// A row that several nodes take part in.
pub(crate) type ClusterRow = Row<fn(&Stage) -> Outcome<Measured>>;

const ONE_NODE: Floor = Floor { what: "the same total through one node", unit: "tasks/s" };

/// A row of nodes with a submitter each.
const fn nodes(name: &'static str, floor: Floor, probe: fn(&Stage) -> Outcome<Measured>) -> ClusterRow {
    Row { name, unit: "tasks/s", floor, judged: Judged::RatioAtLeast, bar: 0.8, goal: 1.0, fresh: false, probe }
}

/// All rows, in the order of the output.
pub(crate) const ROWS: &[ClusterRow] = &[
    Row {
        name: "remote_task",
        unit: "us",
        floor: Floor {
            what: "bytes of a call there and of its result back over TCP, two processes, two cores",
            unit: "us",
        },
        judged: Judged::RatioAtMost,
        bar: 2.0,
        goal: 1.3,
        fresh: false,
        probe: latency::remote_task,
    },
    Row {
        name: "messages",
        unit: "segments",
        floor: Floor { what: "TCP segments per task among two nodes", unit: "segments" },
        judged: Judged::RatioAtMost,
        bar: 1.5,
        goal: 1.1,
        fresh: false,
        probe: latency::messages,
    },
    Row {
        name: "five_nodes",
        unit: "ms",
        floor: Floor { what: "starting five processes and their end", unit: "ms" },
        judged: Judged::ValueAtMost,
        bar: 1_500.0,
        goal: 500.0,
        fresh: true,
        probe: life::five_nodes,
    },
    Row {
        name: "node_memory",
        unit: "MiB",
        floor: Floor { what: "PSS of one process of this program that does nothing", unit: "MiB" },
        judged: Judged::ValueAtMost,
        bar: 25.0,
        goal: 12.0,
        fresh: true,
        probe: life::node_memory,
    },
    Row {
        name: "node_kill",
        unit: "ms",
        floor: Floor { what: "kill -9 of a process to the first byte of the next", unit: "ms" },
        judged: Judged::ValueAtMost,
        bar: 300.0,
        goal: 50.0,
        fresh: true,
        probe: life::node_kill,
    },
    Row {
        name: "locality",
        unit: "ms",
        floor: Floor { what: "a task bound to the node of such an input", unit: "ms" },
        judged: Judged::RatioAtMost,
        bar: 1.5,
        goal: 1.1,
        fresh: false,
        probe: locality::locality,
    },
    nodes("nodes_1", Floor { what: "one program with a node of its own", unit: "tasks/s" }, load::nodes_1),
    nodes("nodes_2", ONE_NODE, load::nodes_2),
    nodes("nodes_4", ONE_NODE, load::nodes_4),
    nodes("nodes_8", ONE_NODE, load::nodes_8),
    Row {
        name: "decisions",
        unit: "choices/s",
        floor: Floor { what: "looks at 1,000 numbers for the least", unit: "looks/s" },
        judged: Judged::ValueAtLeast,
        bar: 500e3,
        goal: 2e6,
        fresh: false,
        probe: decisions::decisions,
    },
    Row {
        name: "uneven",
        unit: "ms",
        floor: Floor { what: "the sum of all work over the sum of all CPUs", unit: "ms" },
        judged: Judged::RatioAtMost,
        bar: 1.15,
        goal: 1.05,
        fresh: false,
        probe: load::uneven,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_floor_and_a_goal_beyond_its_bar() {
        for row in ROWS {
            assert!(!row.floor.what.is_empty() && !row.floor.unit.is_empty() && !row.unit.is_empty(), "{}", row.name);
            assert_eq!(row.judged.is_at_least(), row.goal > row.bar, "{}", row.name);
            assert!(!row.judged.is_ratio() || row.floor.unit == row.unit, "a ratio needs equal units: {}", row.name);
            assert_eq!(ROWS.iter().filter(|other| other.name == row.name).count(), 1, "{}", row.name);
        }
    }
}
