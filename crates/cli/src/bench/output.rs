//! What people and programs read: an aligned table, or one line of JSON per row.

use serde_json::{Map, Value, json};

use super::measure::{Pair, Summary};
use super::probe::Probe;
use super::rows::Row;
use super::{Outcome, Verdict};

/// A row with what was measured.
pub(crate) struct Report<P: 'static = fn(&Probe) -> Outcome<()>> {
    row: &'static Row<P>,
    /// What else was seen, by name: not judged.
    more: Map<String, Value>,
    /// Figures that a bar needs and that were not measured in this run.
    unmeasured: Option<&'static str>,
    /// The figures, or why there are none.
    pub(crate) result: Result<Figures, String>,
}

/// What was measured, and the verdict.
pub(crate) struct Figures {
    summary: Summary,
    pairs: usize,
    /// Whether the bar holds.
    pub(crate) holds: bool,
    /// Whether the goal does.
    meets_goal: bool,
}

impl<P> Report<P> {
    /// Judges the pairs of a row.
    pub(crate) fn new(row: &'static Row<P>, pairs: Outcome<Vec<Pair>>) -> Self {
        let result = pairs.map_err(|error| error.to_string()).and_then(|pairs| {
            let summary = Summary::of(&pairs).ok_or("nothing was measured")?;
            let holds = |limit| row.judged.holds(summary.value, summary.ratio, limit);
            Ok(Figures { summary, pairs: pairs.len(), holds: holds(row.bar), meets_goal: holds(row.goal) })
        });
        Self { row, more: Map::new(), unmeasured: None, result }
    }

    /// With what else was seen.
    pub(crate) fn with(self, more: Map<String, Value>) -> Self {
        Self { more, ..self }
    }

    /// With a bar that is judged elsewhere: whether it holds.
    pub(crate) fn and_holds(mut self, holds: bool) -> Self {
        if let Ok(figures) = &mut self.result {
            figures.holds &= holds;
        }
        self
    }

    /// Without this, which a bar needs.
    pub(crate) fn without(self, unmeasured: Option<&'static str>) -> Self {
        Self { unmeasured, ..self }
    }

    /// The verdict on the bars, or why there is none.
    pub(super) fn verdict(&self) -> Result<Verdict, &String> {
        let figures = self.result.as_ref()?;
        Ok(match (figures.holds, self.unmeasured) {
            (false, _) => Verdict::Missed,
            (true, Some(what)) => Verdict::Unmeasured(what),
            (true, None) => Verdict::Holds,
        })
    }

    /// Prints the row: a line of JSON, or lines of the table.
    pub(super) fn print(&self, json: bool) {
        match json {
            true => println!("{}", self.json()),
            false => self.table_lines().iter().for_each(|line| println!("{line}")),
        }
    }

    /// One line of JSON. `bar` and `goal` are limits of what `judged` names.
    pub(crate) fn json(&self) -> String {
        let Row { name, unit, floor, judged, bar, goal, .. } = self.row;
        let mut line = json!({
            "bench": name,
            "unit": unit,
            "floor_unit": floor.unit,
            "floor_is": floor.what,
            "judged": if judged.is_ratio() { "ratio" } else { "value" },
            "limit": if judged.is_at_least() { "at_least" } else { "at_most" },
            "bar": bar,
            "goal": goal,
        });
        match &self.result {
            Ok(figures) => {
                let Summary { value, floor, ratio, spread } = figures.summary;
                line["value"] = json!(value);
                line["spread"] = json!(spread);
                line["floor"] = json!(floor);
                line["ratio"] = json!(ratio);
                line["pairs"] = json!(figures.pairs);
                line["holds"] = match self.unmeasured {
                    Some(_) if figures.holds => Value::Null,
                    _ => json!(figures.holds),
                };
            }
            Err(error) => {
                for key in ["value", "spread", "floor", "ratio"] {
                    line[key] = Value::Null;
                }
                line["error"] = json!(error);
                line["holds"] = json!(false);
            }
        }
        if let Some(what) = self.unmeasured {
            line["unmeasured"] = json!(what);
        }
        if !self.more.is_empty() {
            line["more"] = Value::Object(self.more.clone());
        }
        line.to_string()
    }

    /// The line of the table, and one below with what else was seen.
    pub(crate) fn table_lines(&self) -> Vec<String> {
        std::iter::once(self.table_line()).chain(line_below(&self.more)).collect()
    }

    /// One line of the table.
    pub(crate) fn table_line(&self) -> String {
        let Row { name, unit, floor, judged, .. } = self.row;
        let sign = if judged.is_at_least() { '≥' } else { '≤' };
        let of = if judged.is_ratio() { " x" } else { "" };
        let limit = |limit: f64| format!("{sign} {}{of}", number(limit));
        let (bar, goal) = (limit(self.row.bar), limit(self.row.goal));
        match &self.result {
            Ok(Figures { summary, holds, meets_goal, .. }) => line(&[
                name,
                &number(summary.value),
                unit,
                &format!("{:.0} %", summary.spread * 100.0),
                &format!("{} {}", number(summary.floor), floor.unit),
                &number(summary.ratio),
                &bar,
                &goal,
                match (holds, self.unmeasured, meets_goal) {
                    (true, None, true) => "yes, goal",
                    (true, None, false) => "yes",
                    (true, Some(_), _) => "not judged",
                    (false, ..) => "no",
                },
            ]),
            Err(_) => line(&[name, "failed", unit, "-", "-", "-", &bar, &goal, "no"]),
        }
    }
}

/// The line below a row, with what else was seen; none when there is nothing.
pub(super) fn line_below(more: &Map<String, Value>) -> Option<String> {
    let shown = |value: &Value| value.as_f64().map_or_else(|| value.to_string(), number);
    let more: Vec<String> = more.iter().map(|(name, value)| format!("{name} {}", shown(value))).collect();
    (!more.is_empty()).then(|| format!("  {}", more.join(", ")))
}

/// The names of the columns.
pub(crate) fn table_head() -> String {
    line(&["row", "value", "unit", "spread", "floor", "ratio", "bar", "goal", "holds"])
}

/// Widths are fixed, so that each row can be printed as soon as it is measured.
fn line(cells: &[&str; 9]) -> String {
    let [row, value, unit, spread, floor, ratio, bar, goal, holds] = cells;
    format!("{row:<18}{value:>9} {unit:<8}{spread:>7}  {floor:<18}{ratio:>7}  {bar:<10}{goal:<10}{holds}")
}

/// Three digits that matter, with k and M.
pub(super) fn number(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 999.5e3 => (value / 1e6, " M"),
        size if size >= 9_995.0 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 => 2,
        _ => 3,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bench::rows::{ROWS, find};

    fn report(name: &str, ours: f64, floor: f64) -> Report {
        Report::new(find(name).unwrap(), Ok(vec![Pair { ours, floor }; 7]))
    }

    #[test]
    fn numbers_have_three_digits_that_matter() {
        let texts = [0.0123, 0.95, 1.0, 4.31, 43.21, 312.4, 9_876.0, 312_400.0, 1.05e6].map(number);
        assert_eq!(texts, ["0.012", "0.95", "1", "4.31", "43.2", "312", "9876", "312 k", "1.05 M"]);
    }

    #[test]
    fn a_line_of_json_has_every_key_also_when_the_row_failed() {
        for row in ROWS {
            for result in [Ok(vec![Pair { ours: 2.0, floor: 1.0 }]), Err("lost".into())] {
                let line: Value = serde_json::from_str(&Report::new(row, result).json()).unwrap();
                for key in ["bench", "value", "unit", "spread", "floor", "bar", "goal", "holds"] {
                    assert!(line.get(key).is_some(), "{key} of {}", row.name);
                }
            }
        }
    }

    #[test]
    fn ratio_rows_are_judged_by_the_ratio_and_others_by_the_value() {
        assert!(report("task_sync", 40.0, 43.0).result.is_ok_and(|figures| figures.holds && !figures.meets_goal));
        assert!(report("task_sync", 44.0, 43.0).result.is_ok_and(|figures| !figures.holds));
        assert!(report("kill_retry", 4.0, 1.0).result.is_ok_and(|figures| figures.holds && figures.meets_goal));
        assert!(report("kill_retry", 40.0, 99.0).result.is_ok_and(|figures| !figures.holds));
    }

    #[test]
    fn a_row_without_what_its_bar_needs_is_not_judged_unless_another_bar_is_missed() {
        let verdict = |ours, unmeasured| {
            let report = report("kill_retry", ours, 1.0).without(unmeasured);
            report.verdict().map_err(String::clone)
        };
        assert_eq!(verdict(4.0, None), Ok(Verdict::Holds));
        assert_eq!(verdict(4.0, Some("Ray")), Ok(Verdict::Unmeasured("Ray")));
        assert_eq!(verdict(40.0, Some("Ray")), Ok(Verdict::Missed));
        let line = report("kill_retry", 4.0, 1.0).without(Some("Ray"));
        assert!(line.table_line().ends_with("not judged"));
        let line: Value = serde_json::from_str(&line.json()).unwrap();
        assert!(line["holds"].is_null() && line["unmeasured"] == "Ray", "{line}");
    }

    #[test]
    fn all_lines_of_the_table_have_their_last_column_at_the_same_place() {
        let at = |line: String, word: &str| line.chars().count() - word.chars().count();
        let head = at(table_head(), "holds");
        assert_eq!(at(report("put_cold", 2.0, 1.0).table_line(), "yes"), head);
        assert_eq!(at(report("tasks_async", 2e5, 1e6).table_line(), "no"), head);
        assert_eq!(at(Report::new(&ROWS[0], Err("lost".into())).table_line(), "no"), head);
    }
}
