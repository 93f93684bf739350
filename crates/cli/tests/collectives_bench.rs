//! `bireme bench --collectives` as a user starts it: a row comes out with its floors beside it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bireme")).args(["bench"]).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn rows_are_listed_and_need_their_flag() {
    let output = bench(&["--collectives", "--list"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let names: Vec<&str> = text(&output.stdout).lines().collect();
    for name in
        ["point_to_point", "broadcast_16", "reduce_4", "group_8", "group_8_plain", "killed_reduce", "plan_8m_5ms"]
    {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let output = bench(&["broadcast_4"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--collectives"), "{}", text(&output.stderr));
    assert_eq!(bench(&["--collectives", "--cluster", "--list"]).status.code(), Some(2));
    assert_eq!(bench(&["--peers"]).status.code(), Some(2));
}

#[test]
fn a_row_is_a_line_of_json_with_its_floors_and_is_not_judged_without_a_peer_that_its_bar_needs() {
    let output = bench(&["--collectives", "--quick", "--json", "round_trip_1kb", "broadcast_4"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [broadcast, round_trip] = &lines[..] else { panic!("{lines:?}") };
    for line in [broadcast, round_trip] {
        for key in ["value", "floor", "ratio"] {
            assert!(line[key].as_f64().is_some_and(|number| number > 0.0), "{key} in {line}");
        }
        // A bar that the figures of a quick run miss is missed whatever Ray does.
        assert!(line["holds"].is_null() || line["holds"] == false, "{line}");
        assert_eq!(line["unmeasured"], "Ray");
    }
    assert_eq!((&broadcast["bench"], &broadcast["more"]["encrypted"]), (&"broadcast_4".into(), &true.into()));
    for key in ["processor_ns_per_byte", "floor_processor_ns_per_byte"] {
        assert!(broadcast["more"][key].is_number(), "{key} in {broadcast}");
    }
    for key in ["blocking_one_core_us", "blocking_two_cores_us", "spinning_us"] {
        assert!(round_trip["more"][key].as_f64().is_some_and(|number| number > 0.0), "{key} in {round_trip}");
    }
}

#[test]
fn a_check_without_the_peer_that_bars_need_is_refused_at_once() {
    let output = bench(&["--collectives", "--check"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("--peers") && error.contains("broadcast_8") && !error.contains("reduce_4"), "{error}");
    assert!(output.stdout.is_empty());
}

/// The only line of a row. A wrong result would be an error in the place of figures.
fn row(name: &str) -> Value {
    let output = bench(&["--collectives", "--quick", "--json", name]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let line: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert!(line["bench"] == name && line["value"].is_number() && line["spread"].is_number(), "{line}");
    line
}

#[test]
fn a_row_that_says_so_is_not_encrypted() {
    assert_eq!(row("reduce_4_plain")["more"]["encrypted"], false);
}

#[test]
fn a_reduce_survives_a_node_that_is_killed() {
    assert_eq!(row("killed_reduce")["more"]["nodes"], 8);
}

#[test]
fn the_plan_of_a_reduce_is_compared_with_every_forced_one() {
    let plan = row("plan_256k_1ms");
    assert_eq!(plan["more"]["delay_ms"], 1);
    assert!(plan["more"]["best"].as_str().is_some_and(|best| plan["more"][format!("{best}_ms")].is_number()), "{plan}");
}
