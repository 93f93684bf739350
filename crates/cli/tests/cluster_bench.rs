//! `bireme bench --cluster` as a user starts it: every row comes out, and nothing is left of it however it ends.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const NAMES: [&str; 12] = [
    "remote_task",
    "messages",
    "five_nodes",
    "node_memory",
    "node_kill",
    "locality",
    "nodes_1",
    "nodes_2",
    "nodes_4",
    "nodes_8",
    "decisions",
    "uneven",
];
/// How long something may take that takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// The folder in which a run makes everything, which must be empty when it has ended.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        // Short, since paths of sockets have to be.
        let path = std::env::temp_dir().join(format!("bt-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn bench(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bireme"));
        command.args(["bench", "--cluster"]).args(arguments).env("TMPDIR", &self.0);
        command
    }

    /// Processes that were started with a path below it.
    fn processes(&self) -> Vec<String> {
        let folder = self.0.to_str().unwrap();
        let lines = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("cmdline"));
        lines.filter_map(|path| fs::read_to_string(path).ok()).filter(|line| line.contains(folder)).collect()
    }

    /// Nothing may be left of the run of this process: no process, host or file.
    fn is_empty_after(&self, run: u32) {
        // A killed process may be listed for a moment after its node has ended.
        let deadline = Instant::now() + PATIENCE;
        while !self.processes().is_empty() {
            assert!(Instant::now() < deadline, "{:?}", self.processes());
            std::thread::yield_now();
        }
        let hosts = fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.file_name());
        let part = format!("-{run}-");
        let left: Vec<_> = hosts.filter(|name| name.to_str().unwrap().contains(&part)).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(entries(&self.0), Vec::<PathBuf>::new());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_rows_of_clusters_have_stable_names() {
    let output = Command::new(env!("CARGO_BIN_EXE_bireme")).args(["bench", "--cluster", "--list"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().collect::<Vec<_>>(), NAMES);
}

#[test]
fn every_row_is_a_line_of_json_and_nothing_is_left() {
    let folder = Folder::new("rows");
    let child = folder.bench(&["--quick", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let run = child.id();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    // It says over what it measured; without root there is no lab, and the same rows come over loopback.
    assert!(said.contains("network lab") || said.contains("loopback"), "{said}");
    if said.contains("loopback") {
        eprintln!("measured over loopback, no network lab here: {said}");
    }
    let lines: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = lines.iter().map(|line| line["bench"].as_str().unwrap()).collect();
    assert_eq!(names, NAMES);
    for line in &lines {
        for key in ["value", "floor", "ratio", "bar", "goal"] {
            assert!(line[key].as_f64().is_some_and(|number| number > 0.0), "{key} in {line}");
        }
        assert!(line["holds"].is_boolean(), "{line}");
    }
    assert_eq!(lines[0]["more"]["mutual_tls"], said.contains("TLS between"));
    for key in ["blocking_one_core_us", "blocking_two_cores_us", "spinning_us"] {
        assert!(lines[0]["more"][key].as_f64().is_some_and(|number| number > 0.0), "{key} in {}", lines[0]);
    }
    folder.is_empty_after(run);
}

#[test]
fn a_run_that_is_interrupted_leaves_nothing() {
    let folder = Folder::new("stop");
    let mut command = folder.bench(&["nodes_4", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let run = child.id();
    let deadline = Instant::now() + PATIENCE;
    // Nodes are there, and perhaps drivers.
    while folder.processes().len() < 4 {
        assert!(Instant::now() < deadline, "it started no nodes");
        std::thread::yield_now();
    }
    kill_process(Pid::from_raw(run as i32).unwrap(), Signal::INT).unwrap();
    let output: Output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("interrupted"), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty(), "a row that was interrupted has no figures");
    folder.is_empty_after(run);
}

#[test]
fn rows_of_clusters_need_their_flag_and_other_numbers_of_replicas_are_refused() {
    let run = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_bireme")).args(arguments).output().unwrap();
    let output = run(&["bench", "five_nodes"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--cluster"), "{}", text(&output.stderr));
    assert!(run(&["bench", "--cluster", "--replicas", "0", "--list"]).status.success());
    assert_eq!(run(&["bench", "--cluster", "--replicas", "1", "--list"]).status.code(), Some(2));
    assert_eq!(run(&["bench", "--cluster", "--python", "--list"]).status.code(), Some(2));
}
