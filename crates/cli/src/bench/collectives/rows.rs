//! The rows of collectives: what is measured, on what, against what, and what must hold. Names are stable.

use super::super::Outcome;
use super::super::cluster::stage::{Measured, Stage};
use super::super::rows::{Floor, Judged, Row};
use super::shape::{Shape, gather_copies, one_copy, ring_copies};
use super::{combining, cost, faults, moving, plans};

/// Measures on a shape.
type Measure = fn(&Stage, Shape) -> Outcome<Measured>;

/// How many copies of an object the floor is, by the number of nodes.
type Copies = fn(usize) -> f64;

/// How a row is measured.
pub(crate) struct Probe {
    /// On what.
    pub(super) shape: Shape,
    /// What others did is found under this name: an operation of MPI; and how many copies of an object the floor of so many
    /// nodes is, so that their ratio is that of ours.
    pub(super) peer: Option<(&'static str, Copies)>,
    /// Measures the pairs.
    pub(super) measure: Measure,
}

/// A row of collectives.
pub(crate) type CollectiveRow = Row<Probe>;

const COPY: Floor =
    Floor { what: "one plain copy of the bytes of an object over TCP in the same lab (S/B)", unit: "ms" };
const BOUND: Floor = Floor { what: "2(n-1)/n plain copies over TCP in the same lab", unit: "ms" };
const COPIES: Floor = Floor { what: "n-1 plain copies over TCP in the same lab", unit: "ms" };
const LINK: Floor = Floor { what: "payload of a plain copy over TCP in the same lab (B)", unit: "MB/s" };
const PING: Floor = Floor { what: "as many bytes there and back over TCP, two processes, two cores", unit: "us" };
const FORCED: Floor = Floor { what: "the best of the plans that a reduce can be told to follow", unit: "ms" };
const SOCKET: Floor = Floor { what: "both processes of a plain copy over TCP in the same lab", unit: "s/GB" };

/// A row that takes as long as some copies, on a shape, where an operation of MPI may do the same.
const fn copies(
    name: &'static str,
    (bar, goal): (f64, f64),
    floor: Floor,
    (shape, peer): (Shape, Option<(&'static str, Copies)>),
    measure: Measure,
) -> CollectiveRow {
    let (judged, probe) = (Judged::RatioAtMost, Probe { shape, peer, measure });
    Row { name, unit: "ms", floor, judged, bar, goal, fresh: false, probe }
}

const fn broadcast(name: &'static str, shape: Shape) -> CollectiveRow {
    copies(name, (1.20, 1.05), COPY, (shape, Some(("bcast", one_copy))), moving::broadcast)
}

const fn reduce(name: &'static str, shape: Shape) -> CollectiveRow {
    copies(name, (1.30, 1.08), COPY, (shape, Some(("reduce", one_copy))), combining::reduce)
}

const fn object_all_reduce(name: &'static str, shape: Shape) -> CollectiveRow {
    copies(name, (2.30, 2.05), COPY, (shape, Some(("allreduce", one_copy))), combining::object_all_reduce)
}

const fn group_all_reduce(name: &'static str, shape: Shape) -> CollectiveRow {
    copies(name, (1.10, 1.03), BOUND, (shape, Some(("allreduce", ring_copies))), combining::group_all_reduce)
}

const fn late(name: &'static str, measure: Measure) -> CollectiveRow {
    copies(name, (1.15, 1.03), COPY, (Shape::EIGHT, None), measure)
}

const fn rate(name: &'static str, measure: Measure) -> CollectiveRow {
    let probe = Probe { shape: Shape::PAIR, peer: None, measure };
    Row { name, unit: "MB/s", floor: LINK, judged: Judged::RatioAtLeast, bar: 0.93, goal: 0.98, fresh: false, probe }
}

const fn round_trip(name: &'static str, bytes: usize, bar: f64) -> CollectiveRow {
    let shape = Shape::NEAR.of(bytes);
    let probe = Probe { shape, peer: None, measure: moving::round_trip };
    Row { name, unit: "us", floor: PING, judged: Judged::RatioAtMost, bar, goal: 1.3, fresh: false, probe }
}

const fn killed(name: &'static str, bar: f64, goal: f64, measure: Measure) -> CollectiveRow {
    let probe = Probe { shape: Shape::EIGHT, peer: None, measure };
    Row { name, unit: "S/B", floor: COPY, judged: Judged::ValueAtMost, bar, goal, fresh: true, probe }
}

const fn processor(name: &'static str, bar: f64, measure: Measure) -> CollectiveRow {
    let probe = Probe { shape: Shape::PAIR, peer: None, measure };
    Row { name, unit: "s/GB", floor: SOCKET, judged: Judged::RatioAtMost, bar, goal: 1.1, fresh: false, probe }
}

const fn plan(name: &'static str, bytes: usize, delay_ms: u32) -> CollectiveRow {
    let shape = Shape::FAR.of(bytes).after(delay_ms);
    let probe = Probe { shape, peer: None, measure: plans::chosen };
    Row { name, unit: "ms", floor: FORCED, judged: Judged::RatioAtMost, bar: 1.2, goal: 1.05, fresh: false, probe }
}

/// All rows, in the order of the output.
pub(crate) const ROWS: &[CollectiveRow] = &[
    rate("point_to_point", moving::point_to_point),
    rate("point_encrypted", moving::point_to_point_encrypted),
    broadcast("broadcast_4", Shape::FOUR),
    broadcast("broadcast_8", Shape::EIGHT),
    broadcast("broadcast_16", Shape::SIXTEEN),
    reduce("reduce_4", Shape::FOUR),
    reduce("reduce_8", Shape::EIGHT),
    reduce("reduce_16", Shape::SIXTEEN),
    object_all_reduce("all_reduce_4", Shape::FOUR),
    object_all_reduce("all_reduce_8", Shape::EIGHT),
    object_all_reduce("all_reduce_16", Shape::SIXTEEN),
    group_all_reduce("group_4", Shape::FOUR),
    group_all_reduce("group_8", Shape::EIGHT),
    group_all_reduce("group_16", Shape::SIXTEEN),
    copies("gather_4", (1.08, 1.01), COPIES, (Shape::FOUR, Some(("gather", gather_copies))), moving::gather),
    late("late_broadcast", moving::late_broadcast),
    late("late_reduce", combining::late_reduce),
    killed("killed_broadcast", 0.3, 0.1, faults::killed_broadcast),
    killed("killed_reduce", 1.0, 0.5, faults::killed_reduce),
    plan("plan_256k_0ms", 256 << 10, 0),
    plan("plan_256k_1ms", 256 << 10, 1),
    plan("plan_256k_5ms", 256 << 10, 5),
    plan("plan_8m_0ms", 8_000_000, 0),
    plan("plan_8m_1ms", 8_000_000, 1),
    plan("plan_8m_5ms", 8_000_000, 5),
    round_trip("round_trip_1kb", 1_000, 2.0),
    round_trip("round_trip_64kb", 64_000, 3.0),
    Row {
        name: "local_broadcast",
        unit: "ms",
        floor: Floor { what: "four copies of the bytes in memory, on all cores", unit: "ms" },
        judged: Judged::ValueAtMost,
        // A fifth of what Ray takes; four copies at 12 GB/s.
        bar: 518.0 / 5.0,
        goal: 35.0,
        fresh: false,
        probe: Probe { shape: Shape::NEAR, peer: None, measure: moving::local_broadcast },
    },
    processor("processor", 1.5, cost::plain),
    processor("processor_tls", 2.2, cost::encrypted),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_floor_and_a_goal_beyond_its_bar() {
        for row in ROWS {
            assert_eq!(row.judged.is_at_least(), row.goal > row.bar, "{}", row.name);
            assert!(!row.judged.is_ratio() || row.floor.unit == row.unit, "a ratio needs equal units: {}", row.name);
            assert_eq!(ROWS.iter().filter(|other| other.name == row.name).count(), 1, "{}", row.name);
            assert!(row.probe.shape.nodes >= 2, "{}", row.name);
        }
    }
}
