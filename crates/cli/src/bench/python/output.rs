//! What people and programs read: an aligned table, or one line of JSON per row.

use serde_json::{Value, json};

use super::super::output::number;
use super::rows::{Limit, Row};
use super::verdict::{Figures, Report};

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
        "ray_in_table": row.ray,
    });
    match &report.result {
        Ok(figures) => {
            let summary = &figures.summary;
            line["value"] = json!(summary.value);
            line["spread"] = json!(summary.spread);
            line["floor"] = if row.floor.is_some() { json!(summary.floor) } else { Value::Null };
            line["ratio"] = if row.floor.is_some() { json!(summary.ratio) } else { Value::Null };
            line["ray"] = json!(figures.peer);
            line["times_ray"] = json!(figures.times_peer());
            line["rounds"] = json!(figures.rounds);
            line["holds"] = json!(figures.holds());
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
    line.to_string()
}

fn limit_json(limit: Limit) -> Value {
    match limit {
        Limit::Value(limit) => json!({ "of": "value", "is": limit }),
        Limit::Floor(limit) => json!({ "of": "ratio", "is": limit }),
        Limit::Peer(limit) => json!({ "of": "times_ray", "is": limit }),
    }
}

/// One line of the table.
pub(super) fn table_line(report: &Report) -> String {
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
        &peer_text(report, figures),
        &format!("{} x", number(figures.times_peer())),
        &bars,
        &goal,
        match (figures.holds(), figures.meets_goal()) {
            (true, true) => "yes, goal",
            (true, false) => "yes",
            (false, _) => "no",
        },
    ])
}

/// A peer's figure from the table and not from this run is marked.
fn peer_text(report: &Report, figures: &Figures) -> String {
    match figures.peer {
        Some(peer) => number(peer),
        None => format!("({})", number(report.row.ray)),
    }
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
pub(super) fn table_head(with_peer: bool) -> String {
    let peer = if with_peer { "ray" } else { "(ray)" };
    line(&["row", "value", "unit", "spread", "floor", "ratio", peer, "better", "bar", "goal", "holds"])
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
        let head = table_head(true);
        let column = head.chars().count() - "holds".chars().count();
        for row in ROWS {
            for result in [Ok((vec![Pair { ours: 2e6, floor: 1.0 }], None)), Err("lost".into())] {
                let line = table_line(&Report::new(row, result));
                let last: String = line.chars().skip(column).collect();
                assert!(last.starts_with("yes") || last == "no", "{line}");
            }
        }
    }

    #[test]
    fn a_figure_of_the_table_is_marked() {
        let pairs = vec![Pair { ours: 100e3, floor: 1.0 }];
        let row = ROWS.iter().find(|row| row.name == "tasks_async").unwrap();
        assert!(table_line(&Report::new(row, Ok((pairs.clone(), None)))).contains("(2050)"));
        let measured = Some(vec![Pair { ours: 2_000.0, floor: 1.0 }]);
        let line = table_line(&Report::new(row, Ok((pairs, measured))));
        assert!(line.contains(" 2000 ") && line.contains("50 x"), "{line}");
    }
}
