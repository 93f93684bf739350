//! Nodes as a user starts and ends them, and settings as a user gives them.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use bireme_runtime::local::StateDirectory;
use bireme_runtime::tokens::Tokens;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A state directory with its nodes, which go with the test.
struct State(PathBuf);

impl State {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bireme-cli-{}-{name}", std::process::id()));
        // What an earlier test with this process id left.
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bireme"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BIREME_") || name.starts_with("XDG_")) {
            command.env_remove(name);
        }
        command.args(arguments).env("BIREME_STATE_DIRECTORY", &self.0).env("HOME", "/nowhere");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts a node, which must work, and gives what is known of it.
    fn start(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[&["start", "--json"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Folders of nodes.
    fn nodes(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.0.join("nodes")) else { return Vec::new() };
        entries.flatten().map(|entry| entry.path()).collect()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let output = self.run(&["stop", "--all", "--grace", "1s"]);
        let left = self.nodes();
        fs::remove_dir_all(&self.0).unwrap();
        if !std::thread::panicking() {
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert_eq!(left, Vec::<PathBuf>::new());
        }
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn process(node: &Value) -> i32 {
    node["process"]["id"].as_i64().unwrap() as i32
}

fn is_running(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn signal(process: i32, signal: Signal) {
    kill_process(Pid::from_raw(process).unwrap(), signal).unwrap();
}

#[test]
fn a_node_is_started_asked_and_stopped_and_leaves_nothing() {
    let state = State::new("life");
    let started = state.run(&["start"]);
    assert!(started.status.success(), "{}", text(&started.stderr));
    let said = text(&started.stdout);
    for words in ["node-1 of cluster ", "bireme start --address 127.0.0.1:", "bireme.init(address=\"127.0.0.1:"] {
        assert!(said.contains(words), "{words}\n{said}");
    }
    let folder = state.nodes().pop().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state.0), mode(&folder), mode(&folder.join("node.toml"))), (0o700, 0o700, 0o600));
    assert_eq!(mode(&folder.join("node.log")), 0o600);

    let status = state.run(&["status", "--json"]);
    assert!(status.status.success(), "{}", text(&status.stderr));
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["nodes"][0]["state"], "Alive");
    let shown = state.run(&["status"]);
    assert!(text(&shown.stdout).contains("node-1") && text(&shown.stdout).contains("alive"));

    let stopped = state.run(&["stop"]);
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
    assert!(text(&stopped.stdout).contains("has ended"));
    assert_eq!(state.nodes(), Vec::<PathBuf>::new());
    assert!(!state.0.join("crashed.log").exists(), "it ended by itself");
    let again = state.run(&["stop"]);
    assert!(again.status.success() && text(&again.stdout).contains("no node"));
    let status = state.run(&["status"]);
    assert_eq!(status.status.code(), Some(1));
    assert!(text(&status.stderr).contains("bireme start"));
}

#[test]
fn a_node_in_the_background_has_a_session_and_a_log_of_its_own() {
    let state = State::new("session");
    let logs = state.0.with_extension("logs");
    let node = state.start(&["--log-directory", logs.to_str().unwrap()]);
    let stat = fs::read_to_string(format!("/proc/{}/stat", process(&node))).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // Group, session and terminal.
    assert_eq!(fields[2..5], [process(&node).to_string(), process(&node).to_string(), "0".to_owned()]);
    assert_eq!(fs::read_link(format!("/proc/{}/cwd", process(&node))).unwrap(), Path::new("/"));
    assert!(state.run(&["stop"]).status.success());
    assert!(Path::new(node["log"].as_str().unwrap()).starts_with(&logs));
    assert_eq!(fs::read_dir(&logs).unwrap().count(), 1, "a log that was asked for stays");
    fs::remove_dir_all(logs).unwrap();
}

#[test]
fn a_node_that_cannot_start_says_why_and_leaves_nothing() {
    let state = State::new("fails");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (arguments, word) in [
        // An address for documentation, which no machine has.
        (&["--host", "203.0.113.1"][..], "cannot listen on"),
        (&["--port", &port], "cannot listen on"),
        (&["--port", "x"], "--port: \"x\" is no port"),
        (&["--replicas", "2"], "--replicas: "),
        (&["--spill-directory", "/proc"], "objects cannot be spilled to /proc: "),
        (&["--rejoin-time", "0s"], "is too short: give a time longer than 0"),
    ] {
        for foreground in [&[][..], &["--foreground"]] {
            let output = state.run(&[&["start"], arguments, foreground].concat());
            assert_eq!(output.status.code(), Some(1), "{arguments:?}");
            assert!(text(&output.stderr).contains(word), "{arguments:?}: {}", text(&output.stderr));
            assert!(output.stdout.is_empty());
            assert_eq!(state.nodes(), Vec::<PathBuf>::new());
        }
    }
}

#[test]
fn a_state_directory_that_others_may_read_is_refused() {
    let state = State::new("open");
    fs::create_dir(&state.0).unwrap();
    fs::set_permissions(&state.0, fs::Permissions::from_mode(0o755)).unwrap();
    for command in ["start", "status", "stop"] {
        let output = state.run(&[command]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("chmod 700"), "{}", text(&output.stderr));
    }
    fs::set_permissions(&state.0, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_node_in_the_foreground_ends_when_asked_and_leaves_nothing() {
    let state = State::new("foreground");
    for ask in [Signal::TERM, Signal::INT] {
        let mut child = state.command(&["start", "--foreground"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("is running at"), "{line}");
        signal(child.id() as i32, ask);
        assert!(child.wait().unwrap().success());
        assert_eq!(state.nodes(), Vec::<PathBuf>::new());
    }
}

#[test]
fn several_nodes_are_stopped_by_choice() {
    let state = State::new("several");
    let nodes: Vec<Value> = (0..3).map(|_| state.start(&[])).collect();
    let address = |node: usize| nodes[node]["address"].as_str().unwrap();
    let undecided = state.run(&["stop"]);
    assert_eq!(undecided.status.code(), Some(1));
    let said = text(&undecided.stderr);
    assert!((0..3).all(|node| said.contains(address(node))) && said.contains("--all"), "{said}");
    let undecided = state.run(&["status"]);
    assert!(text(&undecided.stderr).contains("--cluster"));
    assert!(state.run(&["status", "--address", address(1)]).status.success());

    assert_eq!(state.run(&["stop", "--address", "127.0.0.1:1"]).status.code(), Some(1));
    assert!(state.run(&["stop", "--address", address(0)]).status.success());
    let cluster = nodes[1]["cluster"].as_str().unwrap();
    assert!(state.run(&["stop", "--cluster", cluster]).status.success());
    let running: Vec<bool> = nodes.iter().map(|node| is_running(process(node))).collect();
    assert_eq!(running, [false, false, true]);
    assert!(state.run(&["stop", "--all"]).status.success());
    assert!(!is_running(process(&nodes[2])));
}

#[test]
fn a_node_that_does_not_end_is_killed() {
    let state = State::new("stuck");
    let node = state.start(&[]);
    signal(process(&node), Signal::STOP);
    let stopped = state.run(&["stop", "--grace", "50ms"]);
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
    assert!(text(&stopped.stdout).contains("was killed"));
    assert!(!is_running(process(&node)));
    assert_eq!(state.nodes(), Vec::<PathBuf>::new());
}

#[test]
fn a_killed_node_is_no_node_and_the_next_command_clears_it_away() {
    let state = State::new("killed");
    let node = state.start(&[]);
    signal(process(&node), Signal::KILL);
    // Its parent is gone, so that only its absence can be waited for.
    while is_running(process(&node)) {
        std::thread::yield_now();
    }
    assert_eq!(state.nodes().len(), 1);
    assert_eq!(state.run(&["status"]).status.code(), Some(1));
    let next = state.start(&[]);
    assert_eq!(state.nodes(), [Path::new(next["socket"].as_str().unwrap()).parent().unwrap()]);
    assert!(state.0.join("crashed.log").exists(), "its last words are kept");
}

#[test]
fn a_process_that_got_a_dead_nodes_id_is_left_alone() {
    let state = State::new("reused");
    let node = state.start(&[]);
    let folder = state.nodes().pop().unwrap();
    let file = fs::read_to_string(folder.join("node.toml")).unwrap();
    assert!(state.run(&["stop"]).status.success());
    // The id of a stranger, in the file and in the folder's name.
    let mut stranger = Command::new("sleep").arg("1000").spawn().unwrap();
    let id = format!("id = {}", stranger.id());
    // Both may have begun in one tick of the clock that processes are dated with: the node, a tick before.
    let start = node["process"]["start"].as_u64().unwrap();
    let (was, earlier) = (format!("start = {start}"), start - 1);
    let file = file.replace(&format!("id = {}", process(&node)), &id).replace(&was, &format!("start = {earlier}"));
    assert!(file.contains(&id) && !file.contains(&was));
    let folder = state.0.join("nodes").join(format!("{}-{earlier}", stranger.id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("node.toml"), file).unwrap();
    assert_eq!(state.run(&["status"]).status.code(), Some(1));
    let stopped = state.run(&["stop", "--all", "--grace", "50ms"]);
    assert!(text(&stopped.stdout).contains("no node"));
    assert_eq!(stranger.try_wait().unwrap(), None, "it was ended");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn a_drain_that_cannot_be_is_refused_in_words() {
    let state = State::new("drain");
    let output = state.run(&["drain", "1"]);
    assert!(text(&output.stderr).contains("bireme start"));
    state.start(&[]);
    let output = state.run(&["drain", "node-1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("node-1 cannot be drained"), "{}", text(&output.stderr));
    assert_eq!(state.run(&["drain", "first"]).status.code(), Some(2));
}

#[test]
fn a_head_that_runs_no_tasks_has_nothing_for_them() {
    let state = State::new("no-tasks");
    let mut command = state.command(&["start", "--json", "--no-tasks"]);
    // The machine's resources in the environment do not count.
    let started = command.env("BIREME_NUM_CPUS", "3").env("BIREME_RESOURCES", "camera=1").output().unwrap();
    assert!(started.status.success(), "{}", text(&started.stderr));
    let status: Value = serde_json::from_slice(&state.run(&["status", "--json"]).stdout).unwrap();
    let row = &status["nodes"][0];
    assert_eq!((row["cpus_total"].as_f64(), row["memory_total"].as_u64().unwrap_or(0)), (Some(0.0), 0), "{row}");
    let both = state.run(&["start", "--no-tasks", "--num-cpus", "2"]);
    assert_eq!(both.status.code(), Some(2), "{}", text(&both.stderr));
}

#[test]
fn an_expelled_node_is_out_and_its_certificate_is_worth_nothing() {
    let state = State::new("expel");
    let head = state.start(&["--host", "0.0.0.0"]);
    let port = head["address"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    let address = format!("127.0.0.1:{port}");
    let join = ["--address", &address, "--token-file", head["token_file"].as_str().unwrap(), "--rejoin-time", "1s"];
    let member = state.start(&join);
    assert_eq!(member["node"], 2, "{member}");
    let refused = state.run(&["expel", "node-1"]);
    assert!(text(&refused.stderr).contains("is the head"), "{}", text(&refused.stderr));
    let expelled = state.run(&["expel", "node-2"]);
    assert!(expelled.status.success(), "{}", text(&expelled.stderr));
    let status = text(&state.run(&["status", "--json"]).stdout).to_owned();
    assert!(status.contains("it was expelled"), "{status}");
    // The token is good, and the certificate that it gave has not expired: neither lets it in again.
    let output = state.run(&[&["start", "--json"], &join[..]].concat());
    assert!(!output.status.success() && text(&output.stderr).contains("was expelled"), "{}", text(&output.stderr));
}

/// How many nodes are alive.
fn alive(state: &State) -> usize {
    let status: Value = serde_json::from_slice(&state.run(&["status", "--json"]).stdout).unwrap_or_default();
    let nodes = status["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    nodes.iter().filter(|node| node["state"] == "Alive").count()
}

fn wait_for_nodes(state: &State, count: usize) {
    let since = Instant::now();
    while alive(state) != count {
        assert!(since.elapsed() < Duration::from_secs(60), "{}", text(&state.run(&["status"]).stdout));
    }
}

#[test]
fn an_authority_is_replaced_although_the_head_is_killed_in_between() {
    let (state, elsewhere) = (State::new("rotate"), State::new("rotate-elsewhere"));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let start = ["--host", "0.0.0.0", "--port", &port];
    let head = state.start(&start);
    let address = format!("127.0.0.1:{port}");
    let token_file = head["token_file"].as_str().unwrap();
    let join = ["--address", &address, "--token-file", token_file, "--rejoin-time", "60s"];
    elsewhere.start(&join);
    let nothing = state.run(&["token", "rotate", "--finish"]);
    assert_eq!(nothing.status.code(), Some(1), "{}", text(&nothing.stdout));
    assert!(text(&nothing.stderr).contains("`bireme token rotate` begins it"), "{}", text(&nothing.stderr));
    let old_token = fs::read_to_string(token_file).unwrap();
    let begun = state.run(&["token", "rotate"]);
    assert!(begun.status.success(), "{}", text(&begun.stderr));
    assert!(text(&begun.stdout).contains("the old one goes in"), "{}", text(&begun.stdout));
    let again = state.run(&["token", "rotate", "--overlap", "2h"]);
    assert!(!again.status.success() && text(&again.stderr).contains("already"), "{}", text(&again.stderr));
    for command in ["status", "token list"] {
        let shown = state.run(&command.split(' ').collect::<Vec<_>>());
        assert!(text(&shown.stdout).contains("the authority is being replaced"), "{}", text(&shown.stdout));
    }
    assert_ne!(fs::read_to_string(token_file).unwrap(), old_token);
    let keys = Path::new(token_file).parent().unwrap();
    for file in fs::read_dir(keys).unwrap().map(Result::unwrap) {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
    }

    signal(process(&head), Signal::KILL);
    while is_running(process(&head)) {}
    state.start(&start);
    wait_for_nodes(&state, 2);
    let finished = state.run(&["token", "rotate", "--finish", "--force"]);
    assert!(text(&finished.stdout).contains("not trusted any more"), "{}", text(&finished.stdout));
    assert_eq!(alive(&state), 2);
    assert!(!keys.join("authority.next.pem").exists());
    let shown = state.run(&["token", "list"]);
    assert!(text(&shown.stdout).contains("outdated"), "{}", text(&shown.stdout));

    // A node that joined before comes back with the command of before; a new one needs a new token.
    assert!(elsewhere.run(&["stop", "--all"]).status.success());
    wait_for_nodes(&state, 1);
    let old_file = elsewhere.0.join("old.token");
    fs::write(&old_file, &old_token).unwrap();
    fs::set_permissions(&old_file, fs::Permissions::from_mode(0o600)).unwrap();
    let before = ["--address", &address, "--token-file", old_file.to_str().unwrap()];
    elsewhere.start(&before);
    let third = State::new("rotate-third");
    let refused = third.run(&[&["start"], &before[..]].concat());
    assert!(!refused.status.success() && text(&refused.stderr).contains("was replaced"), "{}", text(&refused.stderr));
    third.start(&join);
    wait_for_nodes(&state, 3);
}

#[test]
fn tokens_are_made_listed_and_revoked_where_the_authority_is() {
    let state = State::new("token");
    let node = state.start(&[]);
    let refused = state.run(&["token", "create"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("loopback"), "{}", text(&refused.stderr));

    // What a head that listens elsewhere does at its first start.
    let directory = StateDirectory::open(&state.0).unwrap();
    Tokens::found(&directory.cluster(node["cluster"].as_str().unwrap()).unwrap()).unwrap();
    assert!(text(&state.run(&["token", "list"]).stdout).contains("no token"));
    let printed = state.run(&["token", "create", "--for", "client", "--uses", "2", "--life", "1d"]);
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    let secret = text(&printed.stdout).trim();
    assert!(secret.starts_with("bireme-") && secret.lines().count() == 1);
    let file = state.0.join("token-file");
    let create = ["token", "create", "--output", file.to_str().unwrap()];
    assert!(state.run(&create).status.success());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(state.run(&create).status.code(), Some(1), "a file that is there is left alone");

    let listed = state.run(&["token", "list", "--json"]);
    let rows: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let [first, second] = rows.as_array().unwrap().as_slice() else { panic!("{rows}") };
    assert_eq!((&first["for"], &first["uses_max"], &first["state"]), (&"client".into(), &2.into(), &"good".into()));
    assert_eq!((&second["for"], &second["uses_max"]), (&"node".into(), &Value::Null));
    assert!(!text(&listed.stdout).contains(secret) && !text(&listed.stdout).contains("hash"));
    assert!(state.run(&["token", "revoke", first["token"].as_str().unwrap()]).status.success());
    let shown = state.run(&["token", "list"]);
    assert!(text(&shown.stdout).contains("revoked"), "{}", text(&shown.stdout));
    assert_eq!(state.run(&["token", "revoke", "token-0000000000000000"]).status.code(), Some(1));
    assert_eq!(state.run(&["token", "revoke", "x"]).status.code(), Some(2));
}

#[test]
fn config_shows_each_value_and_where_it_comes_from() {
    let state = State::new("config");
    fs::create_dir(&state.0).unwrap();
    fs::set_permissions(&state.0, fs::Permissions::from_mode(0o700)).unwrap();
    let file = state.0.join("c.toml");
    fs::write(&file, "num_cpus = 3\nport = 3\nhost = \"127.0.0.3\"\n").unwrap();
    let mut command = state.command(&["config", "--json", "--num-cpus", "1"]);
    command.envs([("BIREME_CONFIG", file.to_str().unwrap()), ("BIREME_NUM_CPUS", "2"), ("BIREME_PORT", "2")]);
    command.env("BIREME_TOKEN", "hidden");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!text(&output.stdout).contains("hidden"));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let shown = |name: &str| {
        let row = rows.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap();
        (row["value"].as_str().map(str::to_owned), row["origin"].as_str().unwrap().to_owned())
    };
    let some = |value: &str, origin: &str| (Some(value.to_owned()), origin.to_owned());
    assert_eq!(shown("num_cpus"), some("1", "--num-cpus"));
    assert_eq!(shown("port"), some("2", "BIREME_PORT"));
    assert_eq!(shown("host"), some("127.0.0.3", &format!("{}:3", file.display())));
    assert_eq!(shown("bulk_encryption"), some("on", "default"));
    assert_eq!(shown("memory"), (None, "default".to_owned()));

    let table = state.run(&["config"]);
    assert_eq!(text(&table.stdout).lines().count(), rows.as_array().unwrap().len());
    fs::write(&file, "num_cpu = 3\n").unwrap();
    let bad = state.command(&["config"]).env("BIREME_CONFIG", &file).output().unwrap();
    assert_eq!(bad.status.code(), Some(1));
    let said = text(&bad.stderr);
    assert!(said.contains("c.toml:1: there is no setting \"num_cpu\"") && said.contains("num_cpus"), "{said}");
}

#[test]
fn help_names_every_command_and_every_setting() {
    let state = State::new("help");
    fs::create_dir(&state.0).unwrap();
    fs::set_permissions(&state.0, fs::Permissions::from_mode(0o700)).unwrap();
    let help = state.run(&["--help"]);
    for command in ["start", "stop", "status", "drain", "token", "config", "bench"] {
        assert!(text(&help.stdout).contains(&format!("\n  {command} ")), "{command}");
        assert!(state.run(&[command, "--help"]).status.success());
    }
    assert!(!text(&help.stdout).contains("bench-probe"));
    let start = state.run(&["start", "--help"]);
    let said = text(&start.stdout);
    for flag in ["--address", "--host", "--num-cpus", "--object-store-memory", "--token-file", "--foreground"] {
        assert!(said.contains(flag), "{flag}\n{said}");
    }
    assert!(said.contains("BIREME_NUM_CPUS") && !said.contains("--token ") && !said.contains("node-process"));
    let wrong = state.run(&["start", "--num-cpu", "1"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("--num-cpus"), "{}", text(&wrong.stderr));
}
