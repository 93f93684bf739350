//! The rows: what is measured, against what, and what must hold. Names are stable: other tools ask for them.

use super::probe::Probe;
use super::{Outcome, actors, faults, objects, spin, startup, tasks};

/// One measure with its floor, bar and goal. `P` measures it.
pub(crate) struct Row<P = fn(&Probe) -> Outcome<()>> {
    /// Stable name.
    pub(crate) name: &'static str,
    /// Unit of the value, and of the floor unless it has its own.
    pub(crate) unit: &'static str,
    /// What the floor is.
    pub(crate) floor: Floor,
    /// What bar and goal are about.
    pub(crate) judged: Judged,
    /// What must hold.
    pub(crate) bar: f64,
    /// What we want.
    pub(crate) goal: f64,
    /// Whether each pair needs a process in which nothing has happened yet, or nodes.
    pub(crate) fresh: bool,
    /// Measures the pairs.
    pub(crate) probe: P,
}

/// What the machine does without us.
pub(crate) struct Floor {
    /// For people.
    pub(crate) what: &'static str,
    /// Its unit.
    pub(crate) unit: &'static str,
}

/// What is compared with the bar, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// Our value is at least the bar.
    ValueAtLeast,
    /// Our value is at most the bar.
    ValueAtMost,
    /// Our value over the floor is at least the bar.
    RatioAtLeast,
    /// Our value over the floor is at most the bar.
    RatioAtMost,
}

impl Judged {
    /// Whether it is the ratio.
    pub(crate) fn is_ratio(self) -> bool {
        matches!(self, Judged::RatioAtLeast | Judged::RatioAtMost)
    }

    /// Whether more is better.
    pub(crate) fn is_at_least(self) -> bool {
        matches!(self, Judged::ValueAtLeast | Judged::RatioAtLeast)
    }

    /// Whether the bar holds.
    pub(crate) fn holds(self, value: f64, ratio: f64, bar: f64) -> bool {
        let judged = if self.is_ratio() { ratio } else { value };
        if self.is_at_least() { judged >= bar } else { judged <= bar }
    }
}

const SOCKET_MESSAGES: Floor = Floor { what: "64 B messages through a Unix socket, one by one", unit: "messages/s" };
const PING_PONG: Floor = Floor { what: "32 B there and back over a Unix socket, blocking, two cores", unit: "us" };

/// All rows, in the order of the output.
pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "tasks_async",
        unit: "tasks/s",
        floor: SOCKET_MESSAGES,
        judged: Judged::ValueAtLeast,
        bar: 300e3,
        goal: 1e6,
        fresh: false,
        probe: tasks::tasks_async,
    },
    Row {
        name: "task_sync",
        unit: "us",
        floor: PING_PONG,
        judged: Judged::RatioAtMost,
        bar: 1.0,
        goal: 0.1,
        fresh: false,
        probe: tasks::task_sync,
    },
    Row {
        name: "actor_sync",
        unit: "us",
        floor: PING_PONG,
        judged: Judged::RatioAtMost,
        bar: 0.9,
        goal: 0.08,
        fresh: false,
        probe: actors::actor_sync,
    },
    Row {
        name: "actor_async",
        unit: "calls/s",
        floor: SOCKET_MESSAGES,
        judged: Judged::ValueAtLeast,
        bar: 300e3,
        goal: 1e6,
        fresh: false,
        probe: actors::actor_async,
    },
    Row {
        name: "chain",
        unit: "ms",
        floor: Floor { what: "as many tasks, submit and get one by one", unit: "ms" },
        judged: Judged::RatioAtMost,
        bar: 1.0,
        goal: 0.5,
        fresh: false,
        probe: tasks::chain,
    },
    Row {
        name: "put_warm",
        unit: "GB/s",
        floor: Floor { what: "memcpy on as many threads, pages present", unit: "GB/s" },
        judged: Judged::RatioAtLeast,
        bar: 0.85,
        goal: 0.95,
        fresh: false,
        probe: objects::put_warm,
    },
    Row {
        name: "put_cold",
        unit: "GB/s",
        floor: Floor { what: "copy on one thread into fresh shared pages", unit: "GB/s" },
        judged: Judged::RatioAtLeast,
        bar: 1.5,
        goal: 4.0,
        fresh: true,
        probe: objects::put_cold,
    },
    Row {
        name: "get_zero_copy",
        unit: "us",
        floor: Floor { what: "one system call", unit: "us" },
        judged: Judged::ValueAtMost,
        bar: 20.0,
        goal: 5.0,
        fresh: false,
        probe: objects::get_zero_copy,
    },
    Row {
        name: "get_read",
        unit: "ms",
        floor: Floor { what: "reading as much private memory", unit: "ms" },
        judged: Judged::RatioAtMost,
        bar: 1.3,
        goal: 1.0,
        fresh: false,
        probe: objects::get_read,
    },
    Row {
        name: "put_small",
        unit: "puts/s",
        floor: Floor { what: "100 B copies into new heap blocks", unit: "copies/s" },
        judged: Judged::ValueAtLeast,
        bar: 500e3,
        goal: 2e6,
        fresh: false,
        probe: objects::put_small,
    },
    Row {
        name: "init_first_result",
        unit: "ms",
        floor: Floor { what: "starting a process and its end", unit: "ms" },
        judged: Judged::ValueAtMost,
        bar: 60.0,
        goal: 20.0,
        fresh: true,
        probe: startup::init_first_result,
    },
    Row {
        name: "memory_at_rest",
        unit: "MiB",
        floor: Floor { what: "PSS of one process of this program that does nothing", unit: "MiB" },
        judged: Judged::ValueAtMost,
        bar: 40.0,
        goal: 15.0,
        fresh: true,
        probe: startup::memory_at_rest,
    },
    Row {
        name: "kill_retry",
        unit: "ms",
        floor: Floor { what: "kill -9 of a process to the first byte of the next", unit: "ms" },
        judged: Judged::ValueAtMost,
        bar: 20.0,
        goal: 5.0,
        fresh: true,
        probe: faults::kill_retry,
    },
    Row {
        name: "spin_cost",
        unit: "tasks/s",
        floor: Floor { what: "the same without spinning", unit: "tasks/s" },
        judged: Judged::RatioAtLeast,
        bar: 0.95,
        goal: 1.0,
        fresh: true,
        probe: spin::spin_cost,
    },
];

/// Rows that are a round trip: what stands beside them is what a round trip takes on this machine, by how one waits.
pub(super) const ROUND_TRIPS: [&str; 2] = ["task_sync", "actor_sync"];

/// The row with this name.
pub(crate) fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_found() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        assert!(ROWS.iter().all(|row| find(row.name).is_some_and(|found| found.name == row.name)));
        assert!(find("tasks").is_none());
    }

    #[test]
    fn every_row_has_a_floor_and_a_goal_beyond_its_bar() {
        for row in ROWS {
            assert!(!row.floor.what.is_empty() && !row.floor.unit.is_empty() && !row.unit.is_empty(), "{}", row.name);
            assert!(row.bar > 0.0 && row.goal > 0.0, "{}", row.name);
            assert_eq!(row.judged.is_at_least(), row.goal > row.bar, "{}", row.name);
            assert!(!row.judged.is_ratio() || row.floor.unit == row.unit, "a ratio needs equal units: {}", row.name);
        }
    }

    #[test]
    fn a_bar_is_judged_on_its_side_and_holds_when_it_is_met_exactly() {
        assert!(Judged::ValueAtLeast.holds(5.0, 0.0, 5.0) && !Judged::ValueAtLeast.holds(4.0, 9.0, 5.0));
        assert!(Judged::ValueAtMost.holds(5.0, 9.0, 5.0) && !Judged::ValueAtMost.holds(6.0, 0.0, 5.0));
        assert!(Judged::RatioAtLeast.holds(0.0, 5.0, 5.0) && !Judged::RatioAtLeast.holds(9.0, 4.0, 5.0));
        assert!(Judged::RatioAtMost.holds(9.0, 5.0, 5.0) && !Judged::RatioAtMost.holds(0.0, 6.0, 5.0));
    }

    #[test]
    fn what_is_not_a_number_never_holds() {
        assert!(!Judged::ValueAtMost.holds(f64::NAN, 0.0, 5.0) && !Judged::RatioAtLeast.holds(9.0, f64::NAN, 5.0));
    }
}
