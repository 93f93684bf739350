//! Figures against bars.
//!
//! A limit of the value or of the floor is at least or at most, as more or less is better. A limit of the peer is
//! always "so many times better": a rate over the peer's, or the peer's time over ours.

use serde_json::{Map, Value};

use super::super::measure::{Pair, Summary};
use super::super::{Outcome, Verdict};
use super::rows::{Limit, Row};

/// A row with what was measured.
pub(super) struct Report {
    /// What it is.
    pub(super) row: &'static Row,
    /// What else was seen, by name: not judged.
    pub(super) more: Map<String, Value>,
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
        Self { row, more: Map::new(), result }
    }

    /// With what else was seen.
    pub(super) fn with(self, more: Map<String, Value>) -> Self {
        Self { more, ..self }
    }

    /// The verdict on the bars, or why there is none.
    pub(super) fn verdict(&self) -> Result<Verdict, &String> {
        self.result.as_ref().map(Figures::verdict)
    }
}

impl Figures {
    /// The verdict on the bars. A bar that is missed counts for more than one that cannot be judged.
    pub(super) fn verdict(&self) -> Verdict {
        let judged: Vec<Judged> = self.row.bars.iter().map(|bar| self.judge(*bar)).collect();
        let missed = judged.iter().any(|judged| matches!(judged, Ok(false)));
        match judged.iter().find_map(|judged| judged.err()) {
            _ if missed => Verdict::Missed,
            Some(what) => Verdict::Unmeasured(what),
            None => Verdict::Holds,
        }
    }

    /// Whether the goal is met.
    pub(super) fn meets_goal(&self) -> bool {
        self.judge(self.row.goal) == Ok(true)
    }

    /// How many times better than the peer, where it was measured in this run.
    pub(super) fn times_peer(&self) -> Option<f64> {
        let (ours, peer) = (self.summary.value, self.peer?);
        Some(if self.row.more_is_better { ours / peer } else { peer / ours })
    }

    fn judge(&self, limit: Limit) -> Judged {
        let on_the_right_side = |judged: f64, limit: f64| {
            if self.row.more_is_better { judged >= limit } else { judged <= limit }
        };
        match limit {
            Limit::Value(limit) => Ok(on_the_right_side(self.summary.value, limit)),
            Limit::Floor(_) if self.summary.floor.is_nan() => Err("its floor"),
            Limit::Floor(limit) => Ok(on_the_right_side(self.summary.ratio, limit)),
            Limit::Peer(times) => Ok(self.times_peer().ok_or("Ray")? >= times),
        }
    }
}

/// Whether a limit is kept, or what it needs that was not measured.
type Judged = Result<bool, &'static str>;

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

    fn verdict(name: &str, ours: f64, floor: f64, peer: Option<f64>) -> Verdict {
        figures(name, ours, floor, peer).verdict()
    }

    #[test]
    fn without_the_peer_or_the_floor_a_bar_is_not_judged() {
        assert_eq!(verdict("tasks_async", 1e9, 1.0, None), Verdict::Unmeasured("Ray"));
        assert_eq!(verdict("put_warm", 10.0, f64::NAN, Some(5.0)), Verdict::Unmeasured("its floor"));
        assert_eq!(
            verdict("task_sync", 50.0, 30.0, None),
            Verdict::Missed,
            "1.7 times the floor, whatever the peer does"
        );
        assert!(figures("tasks_async", 1e9, 1.0, None).times_peer().is_none());
        assert!(!figures("states_4kb", 1e9, 1.0, None).meets_goal());
        assert_eq!(verdict("wait_each", 39.0, f64::NAN, None), Verdict::Holds, "a bar of the value needs neither");
    }

    #[test]
    fn what_the_peer_did_in_this_run_counts() {
        assert_eq!(verdict("tasks_async", 35_000.0, 1.0, Some(1_000.0)), Verdict::Holds);
        assert_eq!(verdict("tasks_async", 100_000.0, 1.0, Some(4_000.0)), Verdict::Missed);
        assert_eq!(verdict("actor_sync", 650.0 / 12.0, 40.0, Some(650.0)), Verdict::Holds);
    }

    #[test]
    fn all_bars_of_a_row_must_hold() {
        assert_eq!(verdict("task_sync", 50.0, 40.0, Some(1_440.0)), Verdict::Holds);
        assert_eq!(verdict("task_sync", 50.0, 30.0, Some(1_440.0)), Verdict::Missed, "1.7 times the floor");
        assert_eq!(verdict("task_sync", 60.0, 60.0, Some(1_440.0)), Verdict::Missed, "24 times faster than the peer");
        assert!(figures("task_sync", 15.0, 40.0, None).meets_goal());
    }

    #[test]
    fn what_is_not_a_number_never_holds() {
        assert_eq!(verdict("first_result", f64::NAN, 1.0, None), Verdict::Missed);
        assert_ne!(verdict("put_warm", 1.0, f64::NAN, None), Verdict::Holds);
    }
}
