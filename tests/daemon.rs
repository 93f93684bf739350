//! A node that is a process of its own, and the programs that attach to it.
//!
//! This binary plays all parts: the node and the other drivers are the binary started again. A driver that was started
//! does what is written to its standard input, a line at a time, and answers each with a line.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bireme::{Bytes, Config};
use bireme_runtime::net::frame::WIRE_VERSION;
use rustix::process::Signal;
use support::{NODE_FOLDER, PATIENCE, Scratch, Watch, eventually, turn};

#[bireme::remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[bireme::remote]
fn pids() -> (i32, i32) {
    (support::my_pid(), support::parent_pid())
}

#[bireme::remote]
fn nested(depth: i64) -> bireme::Result<i64> {
    if depth == 0 { Ok(0) } else { Ok(nested::remote(depth - 1).get()? + 1) }
}

#[bireme::remote]
fn wait_for_ever(journal: PathBuf) -> i64 {
    support::note(&journal, support::my_pid());
    loop {
        std::thread::park();
    }
}

#[bireme::remote]
fn count_named(name: String) -> bireme::Result<i64> {
    bireme::get_actor::<Counter>(&name)?.count().get()
}

#[bireme::remote]
fn say(text: String) {
    println!("out={text}");
}

pub struct Counter(i64);

#[bireme::actor]
impl Counter {
    pub fn new(from: i64) -> Self {
        Counter(from)
    }

    pub fn count(&mut self) -> i64 {
        self.0 += 1;
        self.0
    }

    pub fn add_remotely(&mut self, n: i64) -> bireme::Result<i64> {
        self.0 = add::remote(self.0, n).get()?;
        Ok(self.0)
    }

    pub fn pid(&self) -> i32 {
        support::my_pid()
    }
}

/// The part of a node, until standard input ends.
#[test]
fn a_node_when_the_environment_asks_for_it() {
    support::be_a_node(support::standard_input);
}

/// The part of a driver, until it is told to end.
#[test]
fn a_driver_when_the_environment_asks_for_it() {
    if support::scenario().as_deref() != Some("driver") {
        return;
    }
    let folder = std::env::var(NODE_FOLDER).unwrap();
    let _context = bireme::init_with(Config::default().address(&folder)).unwrap();
    let mut kept: Vec<bireme::ObjectRef<Bytes>> = Vec::new();
    let mut counters: Vec<CounterHandle> = Vec::new();
    println!("said=ready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let said = match word {
            "add" => add::remote(rest.parse::<i64>().unwrap(), 1).get().map(|sum| sum.to_string()),
            "nested" => nested::remote(rest.parse::<i64>().unwrap()).get().map(|depth| depth.to_string()),
            "pids" => pids::remote().get().map(|(worker, keeper)| format!("{worker} {keeper}")),
            "put" => bireme::put(Bytes::from(vec![7; rest.parse().unwrap()])).map(|put| {
                kept.push(put);
                "put".to_owned()
            }),
            "wait" => {
                std::mem::forget(wait_for_ever::remote(PathBuf::from(rest)));
                Ok("waits".to_owned())
            }
            "named" | "detached" => {
                let options = Counter::options().name(rest);
                let options = if word == "detached" { options.detached() } else { options };
                let counter = options.remote(10);
                let pid = counter.pid().get();
                counters.push(counter);
                pid.map(|pid| pid.to_string())
            }
            "say" => say::remote(rest.to_owned()).get().map(|()| "done".to_owned()),
            "count" => {
                bireme::get_actor::<Counter>(rest).and_then(|counter| counter.count().get()).map(|n| n.to_string())
            }
            "count-in-task" => count_named::remote(rest.to_owned()).get().map(|n| n.to_string()),
            "names" => bireme::named_actors().map(|names| names.join(" ")),
            "end" => break,
            other => panic!("no such part: {other}"),
        };
        match said {
            Ok(text) => println!("said={text}"),
            Err(error) => println!("said=error {error}"),
        }
    }
}

/// This binary started again in a part.
struct Part {
    child: Child,
    watch: Watch,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Part {
    fn start(test: &str, scenario: &str, folder: &Path, namespace: Option<&str>) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .envs(namespace.map(|namespace| ("BIREME_NAMESPACE", namespace)))
            .env(support::SCENARIO, scenario)
            .env(NODE_FOLDER, folder)
            .env("BIREME_NUM_CPUS", "2")
            .env("BIREME_OBJECT_STORE_MEMORY", "67108864")
            .env("BIREME_STATE_DIRECTORY", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { watch: Watch::new(child.id() as i32), child, input, output }
    }

    /// The words after `key=` in the next line that has them.
    fn tells(&mut self, key: &str) -> String {
        let wanted = format!("{key}=");
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended before it told {key}");
            if let Some(at) = line.find(&wanted) {
                return line[at + wanted.len()..].trim().to_owned();
            }
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.tells("said")
    }

    fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    fn number(&mut self, line: &str) -> i32 {
        let said = self.ask(line);
        said.parse().unwrap_or_else(|_| panic!("{line}: {said}"))
    }

    fn end(mut self) {
        self.tell("end");
        assert!(self.watch.ended_within(PATIENCE));
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node and its folder.
struct Node {
    part: Part,
    folder: Scratch,
}

impl Node {
    fn start(name: &str) -> Self {
        let folder = Scratch::new(name);
        std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o700)).unwrap();
        let mut part = Part::start("a_node_when_the_environment_asks_for_it", "node", &folder.0, None);
        part.tells("ready");
        Self { part, folder }
    }

    fn driver(&self) -> Part {
        self.driver_in(None)
    }

    /// A driver whose environment says in which namespace it is.
    fn driver_in(&self, namespace: Option<&str>) -> Part {
        let test = "a_driver_when_the_environment_asks_for_it";
        let mut part = Part::start(test, "driver", &self.folder.0, namespace);
        assert_eq!(part.tells("said"), "ready");
        part
    }

    /// This process becomes a driver.
    fn attach(&self) -> bireme::Context {
        bireme::init_with(self.config()).unwrap()
    }

    fn config(&self) -> Config {
        Config::default().address(self.folder.0.to_str().unwrap())
    }

    /// Descriptors and resident bytes of the node's process.
    fn use_of_memory(&self) -> (usize, u64) {
        let process = format!("/proc/{}", self.part.watch.pid);
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib: u64 = resident.split_whitespace().next().unwrap().parse().unwrap();
        (std::fs::read_dir(format!("{process}/fd")).unwrap().count(), kib << 10)
    }
}

#[test]
fn programs_attach_side_by_side_each_with_tasks_actors_and_objects_of_its_own() {
    let _turn = turn();
    let node = Node::start("daemon-two");
    let mut other = node.driver();
    let _context = node.attach();
    assert_eq!((add::remote(1, 2).get().unwrap(), other.number("add 4")), (3, 5));
    assert_eq!((nested::remote(8).get().unwrap(), other.number("nested 6")), (8, 6));
    let counter = Counter::options().name("mine").remote(0);
    assert_eq!(counter.count().get().unwrap(), 1);
    let big = bireme::put(Bytes::from(vec![3; 1 << 20])).unwrap();
    assert_eq!(other.ask("put 2000000"), "put");
    assert!(big.get().unwrap().iter().all(|byte| *byte == 3));
    let (mine, keeper) = pids::remote().get().unwrap();
    let theirs = other.ask("pids");
    assert!(!theirs.split(' ').any(|pid| pid == mine.to_string() || pid == keeper.to_string()), "JOB-1: {theirs}");
    let state = bireme::state().unwrap();
    assert_eq!(state.jobs.len(), 2);
    assert!(state.objects.iter().filter(|object| object.stored).count() >= 2);
    other.end();
    eventually("its job is gone", || bireme::state().unwrap().jobs.len() == 1);
    assert_eq!(counter.count().get().unwrap(), 2);
}

#[test]
fn each_program_has_names_of_its_own_unless_it_chose_a_namespace() {
    let _turn = turn();
    let node = Node::start("daemon-names");
    let (mut first, mut second) = (node.driver(), node.driver());
    first.number("named scores");
    assert_eq!((first.ask("names").as_str(), second.ask("names").as_str()), ("scores", ""));
    let error = second.ask("count scores");
    assert!(error.starts_with("error there is no actor named \"scores\""), "{error}");
    second.number("named scores");
    assert_eq!((first.number("count scores"), second.number("count scores")), (11, 11));
    assert_eq!(first.number("count-in-task scores"), 12, "tasks look where their program does");
    let (mut member, mut other) = (node.driver_in(Some("team")), node.driver_in(Some("team")));
    member.number("named scores");
    assert_eq!((other.number("count scores"), other.number("count-in-task scores")), (11, 12));
    assert_eq!(other.ask("names"), "scores");
    let taken = other.ask("named scores");
    assert!(taken.contains("the name \"scores\" in the namespace \"team\" belongs to"), "{taken}");
}

#[test]
fn a_killed_driver_leaves_no_process_lease_object_or_file_and_the_other_notices_nothing() {
    let _turn = turn();
    let node = Node::start("daemon-killed");
    let _context = node.attach();
    assert_eq!(add::remote(1, 1).get().unwrap(), 2);
    let mut journal = support::Journal::new(&node.folder, "journal");
    let before = bireme::state().unwrap();
    let mut other = node.driver();
    assert_eq!(other.ask("put 3000000"), "put");
    let actor = Watch::new(other.number("named theirs"));
    let waits = format!("wait {}", journal.path.display());
    assert_eq!(other.ask(&waits), "waits");
    let worker = Watch::new(journal.next().parse().unwrap());
    let keeper = Watch::new(parent_of(worker.pid));
    assert!(bireme::state().unwrap().objects.iter().any(|object| object.stored));
    other.watch.kill(Signal::KILL);
    for process in [&actor, &worker, &keeper] {
        assert!(process.ended_within(PATIENCE), "{} is left", process.pid);
    }
    eventually("nothing of it is left", || {
        let state = bireme::state().unwrap();
        let alive = state.actors.iter().filter(|actor| !actor.state.starts_with("dead")).count();
        state.jobs.len() == 1
            && state.objects.is_empty()
            && alive == 0
            && state.leases.iter().all(|lease| lease.owner == before.jobs[0].driver.unwrap())
            && state.workers.iter().all(|worker| worker.job == before.jobs[0].job)
    });
    assert_eq!(bireme::resources().unwrap().total.cpus, before.resources.total.cpus);
    let mut files = node.folder.contents();
    files.sort();
    assert!(files.len() == 4 && files[3].starts_with("program-"), "the journal, two sockets, one program: {files:?}");
    let error = bireme::get_actor::<Counter>("theirs").err().unwrap().to_string();
    assert!(error.contains("theirs"), "{error}");
    assert_eq!(nested::remote(5).get().unwrap(), 5);
}

fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.to_owned();
    fields.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_detached_actor_outlives_its_driver_and_is_found_by_the_next() {
    let _turn = turn();
    let node = Node::start("daemon-detached");
    let mut first = node.driver_in(Some("kept"));
    let actor = Watch::new(first.number("detached immortal"));
    assert_eq!(first.number("count immortal"), 11);
    first.end();
    assert!(actor.is_alive());
    let context = bireme::init_with(node.config().namespace("kept")).unwrap();
    let found = bireme::get_actor::<Counter>("immortal").unwrap();
    assert_eq!(found.count().get().unwrap(), 12);
    assert_eq!(found.add_remotely(5).get().unwrap(), 17, "it starts tasks of its own");
    found.ready().get().unwrap();
    drop(found);
    context.shutdown();
    assert!(actor.is_alive(), "its last handle does not end it");
    let _context = bireme::init_with(node.config().namespace("kept")).unwrap();
    let found = bireme::get_actor::<Counter>("immortal").unwrap();
    assert_eq!(found.count().get().unwrap(), 18);
    bireme::kill(&found).unwrap();
    assert!(actor.ended_within(PATIENCE));
    eventually("its job is gone too", || bireme::state().unwrap().jobs.len() == 1);
}

#[test]
fn what_workers_print_comes_out_at_their_driver() {
    let _turn = turn();
    let node = Node::start("daemon-output");
    let mut other = node.driver();
    other.tell("say hello");
    assert_eq!(other.tells("out"), "hello");
}

#[test]
fn the_end_of_the_node_is_a_typed_error_at_once_and_no_process_remains() {
    let _turn = turn();
    let node = Node::start("daemon-dies");
    let mut other = node.driver();
    let _context = node.attach();
    let mut journal = support::Journal::new(&node.folder, "journal");
    let stuck = wait_for_ever::remote(journal.path.clone());
    let worker = Watch::new(journal.next().parse().unwrap());
    let keeper = Watch::new(parent_of(worker.pid));
    let theirs: Vec<Watch> = other.ask("pids").split(' ').map(|pid| Watch::new(pid.parse().unwrap())).collect();
    let waiting = std::thread::spawn(move || stuck.get().unwrap_err());
    node.part.watch.kill(Signal::KILL);
    let error = waiting.join().unwrap();
    assert!(matches!(error, bireme::Error::NodeGone(_)), "{error}");
    for process in theirs.iter().chain([&worker, &keeper]) {
        assert!(process.ended_within(PATIENCE), "{} is left", process.pid);
    }
    let later = add::try_remote(1, 1).map(drop).unwrap_err();
    assert!(matches!(later, bireme::Error::NodeGone(_)), "{later}");
    assert!(other.ask("add 1").contains("the node of this program is gone"));
}

#[test]
fn a_node_that_is_stopped_ends_everything_in_good_order() {
    let _turn = turn();
    let mut node = Node::start("daemon-stopped");
    let mut other = node.driver();
    let theirs: Vec<Watch> = other.ask("pids").split(' ').map(|pid| Watch::new(pid.parse().unwrap())).collect();
    drop(node.part.input.take());
    assert!(node.part.watch.ended_within(PATIENCE));
    assert!(node.part.child.wait().unwrap().success());
    for process in &theirs {
        assert!(process.ended_within(PATIENCE), "{} is left", process.pid);
    }
    assert!(other.ask("add 1").contains("the node was stopped"));
}

#[test]
fn a_program_of_another_version_or_without_a_hello_is_refused_in_words() {
    let _turn = turn();
    let node = Node::start("daemon-version");
    let refused = |packet: &[u8]| {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let path = node.folder.path("attach.sock");
        rustix::net::connect(&socket, &rustix::net::SocketAddrUnix::new(path).unwrap()).unwrap();
        rustix::net::send(&socket, packet, rustix::net::SendFlags::NOSIGNAL).unwrap();
        let mut answer = [0; 1024];
        let (_, length) = rustix::net::recv(&socket, &mut answer, rustix::net::RecvFlags::empty()).unwrap();
        assert_eq!(answer[0], 0, "refused");
        String::from_utf8(answer[1..length].to_vec()).unwrap()
    };
    let version = refused(b"bireme\xff\x7f and what no one can read");
    assert!(version.contains("wire version 32767") && version.contains("install the same version"), "{version}");
    assert!(refused(b"GET / HTTP/1.1\r\n").contains("no driver of bireme"));
    let nonsense = [b"bireme", &WIRE_VERSION.to_le_bytes()[..], b"nonsense"].concat();
    assert!(refused(&nonsense).contains("cannot be read"));
    let _context = node.attach();
    assert_eq!(add::remote(2, 2).get().unwrap(), 4, "the node goes on");
}

#[test]
fn a_driver_of_another_user_is_refused_in_words() {
    if !rustix::process::geteuid().is_root() {
        bireme_netlab::not_tested("another user needs root");
        return;
    }
    let _turn = turn();
    let node = Node::start("daemon-user");
    for path in [node.folder.0.clone(), node.folder.path("attach.sock")] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    let script = "import socket, sys\n\
                  s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); print(s.recv(999)[1:])";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(node.folder.path("attach.sock"));
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let said = command.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains("user 65534's, and this node is user 0's"), "{text} {said:?}");
}

#[test]
fn what_belongs_to_the_node_cannot_be_chosen_by_a_program_and_a_missing_node_is_an_error() {
    let _turn = turn();
    let node = Node::start("daemon-choices");
    let error = bireme::init_with(node.config().cpus(4.0)).err().unwrap().to_string();
    assert!(error.contains("cpus belongs to the node"), "{error}");
    let error = bireme::init_with(Config::default().address("/no/such/node")).err().unwrap().to_string();
    assert!(error.contains("/no/such/node") && error.contains("does it still run"), "{error}");
    assert!(!bireme::is_initialized());
}

#[test]
fn a_keeper_that_dies_costs_its_job_a_retry_and_others_nothing() {
    let _turn = turn();
    let node = Node::start("daemon-keeper");
    let mut other = node.driver();
    let _context = node.attach();
    let (worker, keeper) = pids::remote().get().unwrap();
    let (worker, keeper) = (Watch::new(worker), Watch::new(keeper));
    assert_eq!(other.number("add 1"), 2);
    keeper.kill(Signal::KILL);
    assert!(keeper.ended_within(PATIENCE) && worker.ended_within(PATIENCE));
    assert_eq!(other.number("add 2"), 3);
    assert_eq!(add::remote(20, 3).get_timeout(PATIENCE).unwrap(), 23, "another keeper takes its place");
}

#[test]
fn fifty_drivers_one_after_the_other_leave_memory_and_descriptors_flat() {
    let _turn = turn();
    let node = Node::start("daemon-fifty");
    let round = || {
        let context = node.attach();
        let put = bireme::put(Bytes::from(vec![1; 200_000])).unwrap();
        assert_eq!(add::remote(1, 1).get().unwrap(), 2);
        assert_eq!(put.get().unwrap().len(), 200_000);
        context.shutdown();
    };
    (0..5).for_each(|_| round());
    let (descriptors, bytes) = node.use_of_memory();
    (0..50).for_each(|_| round());
    let mut after = (0, 0);
    eventually("threads of the last driver are gone", || {
        after = node.use_of_memory();
        after.0 <= descriptors
    });
    assert!(after.1 < bytes + (4 << 20), "{bytes} bytes became {}", after.1);
    let programs = node.folder.contents().iter().filter(|name| name.starts_with("program")).count();
    assert_eq!(programs, 1, "kept for the next");
}
