//! The rows of collectives: what is measured, on what, against what, and what must hold. Names are stable.

use super::super::Outcome;
use super::super::cluster::stage::{Measured, Stage};
use super::super::rows::{Floor, Judged, Row};
use super::mpich::Mpi;
use super::ray::Faster;
use super::shape::Shape;
use super::{combining, cost, faults, moving, plans};

/// Measures on a shape.
type Measure = fn(&Stage, Shape) -> Outcome<Measured>;

/// How a row is measured.
pub(crate) struct Probe {
    /// On what.
    pub(super) shape: Shape,
    /// The operation of MPI that does the same.
    pub(super) mpi: Option<Mpi>,
    /// How much faster than Ray it has to be besides.
    pub(super) ray: Option<Faster>,
    /// Measures the pairs.
    pub(super) measure: Measure,
}

impl Probe {
    /// Without anybody to compare with.
    const fn alone(shape: Shape, measure: Measure) -> Self {
        Self { shape, mpi: None, ray: None, measure }
    }
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

/// Eight nodes that encrypt 8 Gbit/s in both directions can keep two cores busy: what is measured then is the cipher and not the plan.
/// These rows have bars of their own, 6 to 7 % over the 1.36, 1.30 and 2.35 that one machine took; the row with `_plain` behind its name
/// keeps the bar of the plan.
const GROUP_8_ENCRYPTED: f64 = 1.45;
const REDUCE_8_ENCRYPTED: f64 = 1.38;
const ALL_REDUCE_8_ENCRYPTED: f64 = 2.50;

/// A row that takes as long as some copies.
const fn copies(name: &'static str, (bar, goal): (f64, f64), floor: Floor, probe: Probe) -> CollectiveRow {
    Row { name, unit: "ms", floor, judged: Judged::RatioAtMost, bar, goal, fresh: false, probe }
}

const fn broadcast(name: &'static str, shape: Shape) -> CollectiveRow {
    copies(name, (1.20, 1.05), COPY, Probe::alone(shape, moving::broadcast))
}

const fn reduce(name: &'static str, shape: Shape) -> CollectiveRow {
    copies(name, (1.30, 1.08), COPY, Probe::alone(shape, combining::reduce))
}

const fn object_all_reduce(name: &'static str, shape: Shape) -> CollectiveRow {
    copies(name, (2.30, 2.05), COPY, Probe::alone(shape, combining::object_all_reduce))
}

const fn group_all_reduce(name: &'static str, shape: Shape) -> CollectiveRow {
    copies(name, (1.10, 1.03), BOUND, Probe::alone(shape, combining::group_all_reduce))
}

const fn gather(name: &'static str, shape: Shape) -> CollectiveRow {
    copies(name, (1.08, 1.01), COPIES, Probe::alone(shape, moving::gather))
}

const fn late(name: &'static str, shape: Shape, measure: Measure) -> CollectiveRow {
    copies(name, (1.15, 1.03), COPY, Probe::alone(shape, measure))
}

const fn rate(name: &'static str, shape: Shape) -> CollectiveRow {
    let probe = Probe::alone(shape, moving::point_to_point);
    Row { name, unit: "MB/s", floor: LINK, judged: Judged::RatioAtLeast, bar: 0.93, goal: 0.98, fresh: false, probe }
}

const fn round_trip(name: &'static str, bytes: usize, bar: f64) -> CollectiveRow {
    let probe = Probe::alone(Shape::NEAR.of(bytes), moving::round_trip);
    Row { name, unit: "us", floor: PING, judged: Judged::RatioAtMost, bar, goal: 1.3, fresh: false, probe }
}

const fn killed(name: &'static str, bar: f64, goal: f64, measure: Measure) -> CollectiveRow {
    let probe = Probe::alone(Shape::EIGHT, measure);
    Row { name, unit: "S/B", floor: COPY, judged: Judged::ValueAtMost, bar, goal, fresh: true, probe }
}

const fn processor(name: &'static str, bar: f64, shape: Shape) -> CollectiveRow {
    let probe = Probe::alone(shape, cost::seconds_per_gigabyte);
    Row { name, unit: "s/GB", floor: SOCKET, judged: Judged::RatioAtMost, bar, goal: 1.1, fresh: false, probe }
}

const fn plan(name: &'static str, bytes: usize, delay_ms: u32) -> CollectiveRow {
    let probe = Probe::alone(Shape::FAR.of(bytes).after(delay_ms), plans::chosen);
    Row { name, unit: "ms", floor: FORCED, judged: Judged::RatioAtMost, bar: 1.2, goal: 1.05, fresh: false, probe }
}

/// With the operation of MPI that does the same.
const fn as_mpi(mpi: Mpi, row: CollectiveRow) -> CollectiveRow {
    Row { probe: Probe { mpi: Some(mpi), ..row.probe }, ..row }
}

/// With Ray, than which it has to be so much faster.
const fn than_ray(ray: Faster, row: CollectiveRow) -> CollectiveRow {
    Row { probe: Probe { ray: Some(ray), ..row.probe }, ..row }
}

/// With a bar of its own.
const fn with_bar(bar: f64, row: CollectiveRow) -> CollectiveRow {
    Row { bar, ..row }
}

/// All rows, in the order of the output. Nodes have their defaults, which is encryption, but for the rows with `_plain` behind their
/// name and for `processor`.
pub(crate) const ROWS: &[CollectiveRow] = &[
    rate("point_to_point", Shape::PAIR),
    rate("point_to_point_plain", Shape::PAIR.plain()),
    // In Ray all receivers take an object from its first holder, so that 3.03 is the most that there can be.
    than_ray(Faster::broadcast(2.9), as_mpi(Mpi::BCAST, broadcast("broadcast_4", Shape::FOUR))),
    broadcast("broadcast_4_plain", Shape::FOUR.plain()),
    than_ray(Faster::broadcast(3.0), as_mpi(Mpi::BCAST, broadcast("broadcast_8", Shape::EIGHT))),
    broadcast("broadcast_8_plain", Shape::EIGHT.plain()),
    than_ray(Faster::broadcast(3.0), as_mpi(Mpi::BCAST, broadcast("broadcast_16", Shape::SIXTEEN))),
    broadcast("broadcast_16_plain", Shape::SIXTEEN.plain()),
    as_mpi(Mpi::REDUCE, reduce("reduce_4", Shape::FOUR)),
    reduce("reduce_4_plain", Shape::FOUR.plain()),
    with_bar(REDUCE_8_ENCRYPTED, as_mpi(Mpi::REDUCE, reduce("reduce_8", Shape::EIGHT))),
    reduce("reduce_8_plain", Shape::EIGHT.plain()),
    as_mpi(Mpi::REDUCE, reduce("reduce_16", Shape::SIXTEEN)),
    reduce("reduce_16_plain", Shape::SIXTEEN.plain()),
    as_mpi(Mpi::ALL_REDUCE, object_all_reduce("all_reduce_4", Shape::FOUR)),
    object_all_reduce("all_reduce_4_plain", Shape::FOUR.plain()),
    with_bar(ALL_REDUCE_8_ENCRYPTED, as_mpi(Mpi::ALL_REDUCE, object_all_reduce("all_reduce_8", Shape::EIGHT))),
    object_all_reduce("all_reduce_8_plain", Shape::EIGHT.plain()),
    as_mpi(Mpi::ALL_REDUCE, object_all_reduce("all_reduce_16", Shape::SIXTEEN)),
    object_all_reduce("all_reduce_16_plain", Shape::SIXTEEN.plain()),
    as_mpi(Mpi::GROUP, group_all_reduce("group_4", Shape::FOUR)),
    group_all_reduce("group_4_plain", Shape::FOUR.plain()),
    with_bar(GROUP_8_ENCRYPTED, as_mpi(Mpi::GROUP, group_all_reduce("group_8", Shape::EIGHT))),
    group_all_reduce("group_8_plain", Shape::EIGHT.plain()),
    as_mpi(Mpi::GROUP, group_all_reduce("group_16", Shape::SIXTEEN)),
    group_all_reduce("group_16_plain", Shape::SIXTEEN.plain()),
    as_mpi(Mpi::GATHER, gather("gather_4", Shape::FOUR)),
    gather("gather_4_plain", Shape::FOUR.plain()),
    late("late_broadcast", Shape::EIGHT, moving::late_broadcast),
    late("late_broadcast_plain", Shape::EIGHT.plain(), moving::late_broadcast),
    late("late_reduce", Shape::EIGHT, combining::late_reduce),
    late("late_reduce_plain", Shape::EIGHT.plain(), combining::late_reduce),
    killed("killed_broadcast", 0.3, 0.1, faults::killed_broadcast),
    killed("killed_reduce", 1.0, 0.5, faults::killed_reduce),
    plan("plan_256k_0ms", 256 << 10, 0),
    plan("plan_256k_1ms", 256 << 10, 1),
    plan("plan_256k_5ms", 256 << 10, 5),
    plan("plan_8m_0ms", 8_000_000, 0),
    plan("plan_8m_1ms", 8_000_000, 1),
    plan("plan_8m_5ms", 8_000_000, 5),
    than_ray(Faster::call(10.0), round_trip("round_trip_1kb", 1_000, 2.0)),
    than_ray(Faster::call(10.0), round_trip("round_trip_64kb", 64_000, 3.0)),
    Row {
        name: "local_broadcast",
        unit: "ms",
        floor: Floor { what: "four copies of the bytes in memory, on all cores", unit: "ms" },
        judged: Judged::ValueAtMost,
        // A fifth of what Ray took when the bar was made; four copies at 12 GB/s.
        bar: 518.0 / 5.0,
        goal: 35.0,
        fresh: false,
        probe: Probe {
            ray: Some(Faster::local_broadcast(5.0)),
            ..Probe::alone(moving::LOCAL, moving::local_broadcast)
        },
    },
    processor("processor", 1.5, Shape::PAIR.plain()),
    processor("processor_tls", 2.2, Shape::PAIR),
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

    fn row(name: &str) -> Option<&'static CollectiveRow> {
        ROWS.iter().find(|row| row.name == name)
    }

    #[test]
    fn rows_are_encrypted_unless_their_name_says_otherwise_and_only_rows_that_are_compare_with_others() {
        for row in ROWS {
            let is_plain = row.name.ends_with("_plain") || row.name == "processor";
            assert_eq!(row.probe.shape.encrypted, !is_plain, "{}", row.name);
            assert!(!is_plain || row.probe.mpi.is_none() && row.probe.ray.is_none(), "{}", row.name);
        }
    }

    #[test]
    fn only_rows_that_eight_encrypting_nodes_limit_have_bars_beyond_those_without_encryption() {
        let wider: Vec<&str> = ROWS
            .iter()
            .filter(|row| self::row(&format!("{}_plain", row.name)).is_some_and(|plain| plain.bar != row.bar))
            .map(|row| row.name)
            .collect();
        assert_eq!(wider, ["reduce_8", "all_reduce_8", "group_8"]);
    }

    #[test]
    fn the_bars_with_default_settings_are_those_that_were_agreed() {
        let bars = [("point_to_point", 0.93), ("round_trip_64kb", 3.0), ("processor_tls", 2.2)];
        for name in ["round_trip_1kb", "round_trip_64kb"] {
            assert!(row(name).and_then(|row| row.probe.ray).is_some_and(|ray| ray.times == 10.0), "{name}");
        }
        for (name, bar) in bars {
            assert!(row(name).is_some_and(|row| row.bar == bar && row.probe.shape.encrypted), "{name}");
        }
    }
}
