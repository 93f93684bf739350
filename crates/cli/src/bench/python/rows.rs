//! The rows of the Python package: what must hold. Names are stable and those of the benchmark script.

/// One measure with its bars and goal.
pub(super) struct Row {
    /// Stable name.
    pub(super) name: &'static str,
    /// Unit of the value, of the floor and of the peer's figure.
    pub(super) unit: &'static str,
    /// Whether more is better.
    pub(super) more_is_better: bool,
    /// What the floor is, where the script measures one.
    pub(super) floor: Option<&'static str>,
    /// What must hold, all of it.
    pub(super) bars: &'static [Limit],
    /// What we want.
    pub(super) goal: Limit,
}

/// A limit of what is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    /// At least or at most this, in the row's unit.
    Value(f64),
    /// At least or at most so many times the floor.
    Floor(f64),
    /// At least so many times better than the peer.
    Peer(f64),
}

impl Row {
    /// Whether a bar is a multiple of the peer.
    pub(super) fn needs_peer(&self) -> bool {
        self.bars.iter().any(|limit| matches!(limit, Limit::Peer(_)))
    }
}

const PING_PONG: Option<&str> = Some("32 B there and back over a Unix socket, two blocking interpreters on two cores");
const COPY: Option<&str> = Some("a numpy copy of as much, pages present");

/// All rows, in the order of the output.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "first_result",
        unit: "s",
        more_is_better: false,
        floor: Some("an interpreter that says that it is there"),
        bars: &[Limit::Value(0.30)],
        goal: Limit::Value(0.12),
    },
    Row {
        name: "memory_at_rest",
        unit: "MiB",
        more_is_better: false,
        floor: None,
        bars: &[Limit::Value(80.0)],
        goal: Limit::Value(40.0),
    },
    Row {
        name: "task_sync",
        unit: "us",
        more_is_better: false,
        floor: PING_PONG,
        bars: &[Limit::Peer(25.0), Limit::Floor(1.3)],
        goal: Limit::Floor(0.4),
    },
    Row {
        name: "tasks_async",
        unit: "tasks/s",
        more_is_better: true,
        floor: None,
        bars: &[Limit::Peer(35.0)],
        goal: Limit::Value(100e3),
    },
    Row {
        name: "actor_sync",
        unit: "us",
        more_is_better: false,
        floor: PING_PONG,
        bars: &[Limit::Peer(12.0)],
        goal: Limit::Floor(0.4),
    },
    Row {
        name: "actor_async",
        unit: "calls/s",
        more_is_better: true,
        floor: None,
        bars: &[Limit::Peer(20.0)],
        goal: Limit::Value(150e3),
    },
    Row {
        name: "async_actor",
        unit: "calls/s",
        more_is_better: true,
        floor: None,
        bars: &[Limit::Peer(15.0)],
        goal: Limit::Value(80e3),
    },
    Row {
        name: "actors_created",
        unit: "actors/s",
        more_is_better: true,
        floor: None,
        bars: &[Limit::Peer(30.0)],
        goal: Limit::Value(300.0),
    },
    Row {
        name: "put_small",
        unit: "puts/s",
        more_is_better: true,
        floor: None,
        bars: &[Limit::Peer(100.0)],
        goal: Limit::Value(500e3),
    },
    Row {
        name: "put_warm",
        unit: "GB/s",
        more_is_better: true,
        floor: COPY,
        bars: &[Limit::Floor(0.85)],
        goal: Limit::Floor(0.95),
    },
    Row {
        name: "get_zero_copy",
        unit: "us",
        more_is_better: false,
        floor: None,
        bars: &[Limit::Value(30.0)],
        goal: Limit::Value(10.0),
    },
    Row {
        name: "get_read",
        unit: "ms",
        more_is_better: false,
        floor: Some("private memory in pages of the same size"),
        bars: &[Limit::Floor(1.3)],
        goal: Limit::Floor(1.0),
    },
    Row {
        name: "wait_each",
        unit: "ms",
        more_is_better: false,
        floor: None,
        bars: &[Limit::Value(40.0)],
        goal: Limit::Value(15.0),
    },
    Row {
        name: "ref_arguments",
        unit: "ms",
        more_is_better: false,
        floor: None,
        bars: &[Limit::Value(60.0)],
        goal: Limit::Value(25.0),
    },
    Row {
        name: "states_4kb",
        unit: "states/s",
        more_is_better: true,
        floor: COPY,
        bars: &[Limit::Peer(10.0)],
        goal: Limit::Peer(20.0),
    },
    Row {
        name: "states_100kb",
        unit: "states/s",
        more_is_better: true,
        floor: COPY,
        bars: &[Limit::Peer(4.0)],
        goal: Limit::Floor(1.0),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_those_of_the_script() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        let script = include_str!("../../../../../python/bireme/bench/suite.py");
        let table = script.split("ROWS: dict").nth(1).and_then(|rest| rest.split("\n}").next()).unwrap_or_default();
        let in_script: BTreeSet<_> =
            table.lines().filter_map(|line| line.trim().strip_prefix('"')?.split('"').next()).collect();
        assert_eq!(in_script, names);
    }

    #[test]
    fn limits_of_a_floor_have_one_and_every_row_has_a_bar() {
        for row in ROWS {
            assert!(!row.bars.is_empty(), "{}", row.name);
            let about_floor = row.bars.iter().chain([&row.goal]).any(|limit| matches!(limit, Limit::Floor(_)));
            assert!(!about_floor || row.floor.is_some(), "{}", row.name);
        }
    }
}
