//! Figures against bars.
//!
//! A limit of the value or of the floor is at least or at most, as more or less is better. A limit of the peer is
//! always "so many times better": a rate over the peer's, or the peer's time over ours.

use super::super::Outcome;
use super::super::measure::{Pair, Summary};
use super::rows::{Limit, Row};

/// A row with what was measured.
pub(super) struct Report {
    /// What it is.
    pub(super) row: &'static Row,
    /// The figures, or why there are none.
    pub(super) result: Result<Figures, String>,
}

/// What was measured.
pub(super) struct Figures {
    row: &'static Row,
    /// Of ours; floor and ratio say something only where the row has a floor.
    pub(super) summary: Summary,
    /// How many rounds of ours.
    pub(super) rounds: usize,
    /// The peer's median in this run.
    pub(super) peer: Option<f64>,
}

impl Report {
    /// Judges the rounds of a row, and those of the peer.
    pub(super) fn new(row: &'static Row, measured: Outcome<(Vec<Pair>, Option<Vec<Pair>>)>) -> Self {
        let result = measured.map_err(|error| error.to_string()).and_then(|(pairs, of_peer)| {
            let summary = Summary::of(&pairs).ok_or("nothing was measured")?;
            let peer = of_peer.and_then(|pairs| Summary::of(&pairs)).map(|summary| summary.value);
            Ok(Figures { row, summary, rounds: pairs.len(), peer })
        });
        Self { row, result }
    }
}

impl Figures {
    /// Whether every bar holds.
    pub(super) fn holds(&self) -> bool {
        self.row.bars.iter().all(|bar| self.meets(*bar))
    }

    /// Whether the goal is met.
    pub(super) fn meets_goal(&self) -> bool {
        self.meets(self.row.goal)
    }

    /// How many times better than the peer, measured in this run or else as the table says.
    pub(super) fn times_peer(&self) -> f64 {
        let peer = self.peer.unwrap_or(self.row.ray);
        if self.row.more_is_better { self.summary.value / peer } else { peer / self.summary.value }
    }

    fn meets(&self, limit: Limit) -> bool {
        let on_the_right_side = |judged: f64, limit: f64| {
            if self.row.more_is_better { judged >= limit } else { judged <= limit }
        };
        match limit {
            Limit::Value(limit) => on_the_right_side(self.summary.value, limit),
            Limit::Floor(limit) => on_the_right_side(self.summary.ratio, limit),
            Limit::Peer(times) => self.times_peer() >= times,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::rows::ROWS;
    use super::*;

    fn figures(name: &str, ours: f64, floor: f64, peer: Option<f64>) -> Figures {
        let row = ROWS.iter().find(|row| row.name == name).unwrap();
        let of_peer = peer.map(|ours| vec![Pair { ours, floor: 1.0 }; 3]);
        Report::new(row, Ok((vec![Pair { ours, floor }; 7], of_peer))).result.unwrap()
    }

    #[test]
    fn without_the_peer_its_figures_of_the_table_count() {
        assert!(figures("tasks_async", 35.0 * 2_050.0, 1.0, None).holds());
        assert!(!figures("tasks_async", 34.0 * 2_050.0, 1.0, None).holds());
        assert!(figures("actor_sync", 650.0 / 12.0, 40.0, None).holds());
    }

    #[test]
    fn with_the_peer_what_it_did_in_this_run_counts() {
        assert!(figures("tasks_async", 35_000.0, 1.0, Some(1_000.0)).holds());
        assert!(!figures("tasks_async", 100_000.0, 1.0, Some(4_000.0)).holds());
    }

    #[test]
    fn all_bars_of_a_row_must_hold() {
        assert!(figures("task_sync", 50.0, 40.0, None).holds());
        assert!(!figures("task_sync", 50.0, 30.0, None).holds(), "1.7 times the floor");
        assert!(!figures("task_sync", 60.0, 60.0, None).holds(), "24 times faster than the peer");
        assert!(figures("task_sync", 15.0, 40.0, None).meets_goal());
    }

    #[test]
    fn what_is_not_a_number_never_holds() {
        assert!(!figures("first_result", f64::NAN, 1.0, None).holds());
        assert!(!figures("put_warm", 1.0, f64::NAN, None).holds());
    }
}
