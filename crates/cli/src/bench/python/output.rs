//! What people and programs read: an aligned table, or one line of JSON per row.

use serde_json::{Value, json};

use super::super::Verdict;
use super::super::output::{line_below, number};
use super::rows::{Limit, Row};
use super::verdict::Report;

/// One line of JSON.
pub(super) fn json(report: &Report) -> String {
    let row = report.row;
    let mut line = json!({
        "bench": row.name,
        "front_end": "python",
        "unit": row.unit,
        "limit": if row.more_is_better { "at_least" } else { "at_most" },
        "bars": row.bars.iter().map(|bar| limit_json(*bar)).collect::<Vec<_>>(),
        "goal": limit_json(row.goal),
        "floor_is": row.floor,
    });
    match &report.result {
        Ok(figures) => {
            let summary = &figures.summary;
            line["value"] = json!(summary.value);
            line["spread"] = json!(summary.spread);
            // What is no number, where the row has no floor, is null.
            line["floor"] = json!(summary.floor);
            line["ratio"] = json!(summary.ratio);
            line["ray"] = json!(figures.peer);
            line["times_ray"] = json!(figures.times_peer());
            line["rounds"] = json!(figures.rounds);
            line["holds"] = match figures.verdict() {
                Verdict::Holds => json!(true),
                Verdict::Missed => json!(false),
                Verdict::Unmeasured(what) => {
                    line["unmeasured"] = json!(what);
                    Value::Null
                }
            };
            line["meets_goal"] = json!(figures.meets_goal());
        }
        Err(error) => {
            for key in ["value", "spread", "floor", "ratio", "ray", "times_ray"] {
                line[key] = Value::Null;
            }
            line["error"] = json!(error);
            line["holds"] = json!(false);
        }
    }
    if !report.more.is_empty() {
        line["more"] = Value::Object(report.more.clone());
    }
    line.to_string()
}

fn limit_json(limit: Limit) -> Value {
    match limit {
        Limit::Value(limit) => json!({ "of": "value", "is": limit }),
        Limit::Floor(limit) => json!({ "of": "ratio", "is": limit }),
        Limit::Peer(limit) => json!({ "of": "times_ray", "is": limit }),
    }
}

/// The line of the table, and one below with what else was seen.
pub(super) fn table_lines(report: &Report) -> Vec<String> {
    std::iter::once(table_line(report)).chain(line_below(&report.more)).collect()
}

fn table_line(report: &Report) -> String {
    let row = report.row;
    let bars: Vec<String> = row.bars.iter().map(|bar| limit_text(row, *bar)).collect();
    let (bars, goal) = (bars.join(", "), limit_text(row, row.goal));
    let Ok(figures) = &report.result else {
        return line(&[row.name, "failed", row.unit, "-", "-", "-", "-", "-", &bars, &goal, "no"]);
    };
    let (floor, ratio) = match row.floor {
        Some(_) => (number(figures.summary.floor), number(figures.summary.ratio)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    line(&[
        row.name,
        &number(figures.summary.value),
        row.unit,
        &format!("{:.0} %", figures.summary.spread * 100.0),
        &floor,
        &ratio,
        &figures.peer.map_or_else(|| "-".to_owned(), number),
        &figures.times_peer().map_or_else(|| "-".to_owned(), |times| format!("{} x", number(times))),
        &bars,
        &goal,
        match (figures.verdict(), figures.meets_goal()) {
            (Verdict::Holds, true) => "yes, goal",
            (Verdict::Holds, false) => "yes",
            (Verdict::Missed, _) => "no",
            (Verdict::Unmeasured(_), _) => "not judged",
        },
    ])
}

fn limit_text(row: &Row, limit: Limit) -> String {
    let sign = if row.more_is_better { '≥' } else { '≤' };
    match limit {
        Limit::Value(limit) => format!("{sign} {}", number(limit)),
        Limit::Floor(limit) => format!("{sign} {} floor", number(limit)),
        Limit::Peer(limit) => format!("{} x ray", number(limit)),
    }
}

/// The names of the columns.
pub(super) fn table_head() -> String {
    line(&["row", "value", "unit", "spread", "floor", "ratio", "ray", "better", "bar", "goal", "holds"])
}

/// Widths are fixed, so that each row can be printed as soon as it is measured.
fn line(cells: &[&str; 11]) -> String {
    let [row, value, unit, spread, floor, ratio, peer, better, bar, goal, holds] = cells;
    format!(
        "{row:<15}{value:>9} {unit:<9}{spread:>6}  {floor:>8}{ratio:>7}  {peer:>8}{better:>9}  {bar:<22}{goal:<13}{holds}"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::super::measure::Pair;
    use super::super::rows::ROWS;
    use super::*;

    #[test]
    fn a_line_of_json_has_every_key_also_when_the_row_failed() {
        for row in ROWS {
            for result in [Ok((vec![Pair { ours: 2.0, floor: 1.0 }], None)), Err("lost".into())] {
                let line: Value = serde_json::from_str(&json(&Report::new(row, result))).unwrap();
                for key in ["bench", "value", "unit", "spread", "floor", "ratio", "ray", "bars", "goal", "holds"] {
                    assert!(line.get(key).is_some(), "{key} of {}", row.name);
                }
            }
        }
    }

    #[test]
    fn all_lines_of_the_table_have_their_last_column_at_the_same_place() {
        let head = table_head();
        let column = head.chars().count() - "holds".chars().count();
        for row in ROWS {
            for result in [Ok((vec![Pair { ours: 2e6, floor: 1.0 }], None)), Err("lost".into())] {
                let line = table_line(&Report::new(row, result));
                let last: String = line.chars().skip(column).collect();
                assert!(last.starts_with("yes") || last == "no" || last == "not judged", "{line}");
            }
        }
    }

    #[test]
    fn a_peer_that_was_not_measured_has_no_figure() {
        let pairs = vec![Pair { ours: 100e3, floor: f64::NAN }];
        let row = ROWS.iter().find(|row| row.name == "tasks_async").unwrap();
        let report = Report::new(row, Ok((pairs.clone(), None)));
        assert!(table_line(&report).ends_with("not judged"));
        let line: Value = serde_json::from_str(&json(&report)).unwrap();
        assert!(line["holds"].is_null() && line["ray"].is_null() && line["floor"].is_null(), "{line}");
        assert_eq!(line["unmeasured"], "Ray");
        let measured = Some(vec![Pair { ours: 2_000.0, floor: 1.0 }]);
        let line = table_line(&Report::new(row, Ok((pairs, measured))));
        assert!(line.contains(" 2000 ") && line.contains("50 x"), "{line}");
    }
}
