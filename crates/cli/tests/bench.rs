//! The command as a user starts it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use serde_json::Value;

fn bireme(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bireme")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_reader_that_has_left_ends_the_command_quietly() {
    for arguments in [&["config"][..], &["bench", "--list"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_bireme"));
        let output = command.args(arguments).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn the_list_has_the_stable_names() {
    let output = bireme(&["bench", "--list"]);
    assert!(output.status.success());
    let names: Vec<&str> = text(&output.stdout).lines().collect();
    let stable = [
        "tasks_async",
        "task_sync",
        "actor_sync",
        "actor_async",
        "chain",
        "put_warm",
        "put_cold",
        "get_zero_copy",
        "get_read",
        "put_small",
        "init_first_result",
        "memory_at_rest",
        "kill_retry",
        "spin_cost",
    ];
    assert_eq!(names, stable);
}

#[test]
fn a_row_is_one_line_of_json_with_every_key() {
    let output = bireme(&["bench", "task_sync", "--quick", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1);
    let line = &lines[0];
    assert_eq!((line["bench"].as_str(), line["unit"].as_str()), (Some("task_sync"), Some("us")));
    for key in ["value", "spread", "floor", "ratio", "bar", "goal"] {
        assert!(line[key].as_f64().is_some_and(|number| number >= 0.0), "{key} in {line}");
    }
    assert!(line["holds"].is_boolean() && line["pairs"].as_u64() >= Some(7), "{line}");
    for key in ["blocking_one_core_us", "blocking_two_cores_us", "spinning_us"] {
        assert!(line["more"][key].as_f64().is_some_and(|number| number > 0.0), "{key} in {line}");
    }
}

#[test]
fn a_row_of_fresh_processes_has_as_many_pairs_in_the_table() {
    let output = bireme(&["bench", "init_first_result", "--quick"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("row") && lines[1].starts_with("init_first_result"), "{lines:?}");
}

#[test]
fn an_unknown_row_is_an_error_that_names_the_nearest() {
    let output = bireme(&["bench", "task_snyc"]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("task_snyc") && error.contains("similar") && error.contains("'task_sync'"), "{error}");
    assert!(output.stdout.is_empty());
}

#[test]
fn version_and_help_say_what_this_is() {
    assert!(text(&bireme(&["--version"]).stdout).starts_with("bireme 0."));
    let help = bireme(&["help"]);
    assert!(help.status.success() && text(&help.stdout).contains("bench"));
    assert!(!text(&help.stdout).contains("bench-probe"), "hidden commands stay hidden");
}

#[test]
fn the_rows_of_python_have_stable_names() {
    let output = bireme(&["bench", "--python", "--list"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let names: Vec<&str> = text(&output.stdout).lines().collect();
    let stable = [
        "first_result",
        "memory_at_rest",
        "task_sync",
        "tasks_async",
        "actor_sync",
        "actor_async",
        "async_actor",
        "actors_created",
        "put_small",
        "put_warm",
        "get_zero_copy",
        "get_read",
        "wait_each",
        "ref_arguments",
        "states_4kb",
        "states_100kb",
    ];
    assert_eq!(names, stable);
}

#[test]
fn a_python_without_the_package_is_an_error_that_says_how_to_install_it() {
    // Stands for a Python that has nothing: where the package is, and what is missing, are empty lines.
    let python = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("bare-python");
    std::fs::write(&python, "#!/bin/sh\necho\necho\n").unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = bireme(&["bench", "--python", "task_sync", "--python-exe", python.to_str().unwrap()]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("bare-python") && error.contains("pip install ."), "{error}");
}

#[test]
fn a_check_of_python_without_the_peer_that_bars_need_is_refused_at_once() {
    let output = bireme(&["bench", "--python", "--check", "task_sync", "wait_each"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("--peer ray") && error.contains("task_sync") && !error.contains("wait_each"), "{error}");
}

#[test]
fn a_row_of_python_alone_and_a_peer_without_python_are_errors_with_the_remedy() {
    let error = bireme(&["bench", "wait_each"]).stderr;
    assert!(text(&error).contains("--python"), "{}", text(&error));
    let output = bireme(&["bench", "--peer", "ray"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--python"), "{}", text(&output.stderr));
}
