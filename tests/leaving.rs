//! How nodes leave a cluster and come back: drained, stopped, expelled, and after the end of their head.
//!
//! This binary plays all parts: a node is the binary started again, until its standard input ends.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use bireme::{Bytes, Config};
use bireme_netlab::Lab;
use bireme_runtime::admin::{AdminReply, AdminRequest, ask};
use bireme_runtime::core::id::NodeId;
use bireme_runtime::local::NodeFile;
use rustix::process::Signal;
use support::{Gate, Journal, NODE_FOLDER, PATIENCE, Scratch, Watch, turn};

/// Long enough for a busy machine, on which several nodes are given this program at once.
const LEASE: (&str, &str) = ("BIREME_NODE_LEASE", "6s");

#[bireme::remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[bireme::remote]
fn fill(n: usize, with: u8) -> Bytes {
    Bytes::from(vec![with; n])
}

/// The parent of a worker is its keeper, and that one's parent the node.
#[bireme::remote]
fn keeper() -> i32 {
    support::parent_pid()
}

/// Says where it runs, then waits for the gate.
#[bireme::remote]
fn wait_at(journal: PathBuf, gate: PathBuf) -> i64 {
    support::note(&journal, support::parent_pid());
    support::pass(&gate);
    7
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

    pub fn wait(&mut self, journal: PathBuf, gate: PathBuf) -> i32 {
        support::note(&journal, "waits");
        support::pass(&gate);
        support::parent_pid()
    }

    pub fn keeper(&self) -> i32 {
        support::parent_pid()
    }
}

/// The part of a node, until standard input ends.
#[test]
fn a_node_when_the_environment_asks_for_it() {
    support::be_a_node(support::standard_input);
}

/// A node in a process of its own.
struct Node {
    child: Child,
    watch: Watch,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: Scratch,
    address: String,
    id: String,
    /// A file with a token for others to join with, where one is needed.
    token: String,
}

impl Node {
    fn start(name: &str, settings: &[(&str, &str)]) -> Self {
        Self::start_as(Command::new(std::env::current_exe().unwrap()), name, settings)
    }

    fn start_as(mut command: Command, name: &str, settings: &[(&str, &str)]) -> Self {
        let folder = Scratch::new(&format!("leaving-{name}"));
        std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o700)).unwrap();
        let mut child = command
            .args(["--exact", "a_node_when_the_environment_asks_for_it", "--nocapture", "--test-threads=1"])
            .env(support::SCENARIO, "node")
            .env(NODE_FOLDER, &folder.0)
            .env("BIREME_OBJECT_STORE_MEMORY", "67108864")
            .env("BIREME_STATE_DIRECTORY", &folder.0)
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let watch = Watch::new(child.id() as i32);
        let mut node = Self {
            child,
            watch,
            input,
            output,
            folder,
            address: String::new(),
            id: String::new(),
            token: String::new(),
        };
        node.learn();
        node
    }

    /// A head without CPUs, so that everything runs on members.
    fn head(name: &str, more: &[(&str, &str)]) -> Self {
        Self::start(name, &[&[("BIREME_NUM_CPUS", "0"), LEASE], more].concat())
    }

    fn member(name: &str, head: &Node, more: &[(&str, &str)]) -> Self {
        Self::start(name, &[&[("BIREME_NUM_CPUS", "2"), ("BIREME_ADDRESS", &head.address)], more].concat())
    }

    /// Waits until it is ready, at first or again, and takes in who it is.
    fn learn(&mut self) {
        let ready = self.tells("ready");
        let mut words = ready.split(' ').map(str::to_owned);
        (self.id, self.address) = (words.next().unwrap(), words.next().unwrap());
        self.token = words.next().unwrap_or_default();
    }

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

    /// This process becomes a driver.
    fn attach(&self) -> bireme::Context {
        bireme::init_with(Config::default().address(self.folder.0.to_str().unwrap())).unwrap()
    }

    fn drain(&self, node: u32, deadline: Duration) -> Result<(), String> {
        let request = AdminRequest::Drain { node: NodeId(node), deadline_ms: deadline.as_millis() as u64 };
        match ask(&self.folder.0.join(NodeFile::SOCKET), &request, PATIENCE).unwrap() {
            AdminReply::Accepted => Ok(()),
            AdminReply::Refused(reason) => Err(reason),
            other => panic!("{other:?}"),
        }
    }

    fn ended(&mut self) -> ExitStatus {
        assert!(self.watch.ended_within(PATIENCE), "it has not ended");
        self.child.wait().unwrap()
    }

    /// Whether this process is a child of the node's.
    fn is_parent_of(&self, process: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parent == Some(self.watch.pid)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_drained_node_finishes_what_runs_and_leaves_nothing_behind_that_is_lost() {
    let _turn = turn();
    let head = Node::head("drain-head", &[]);
    let mut first = Node::member("drain-first", &head, &[]);
    let context = head.attach();
    let scratch = Scratch::new("leaving-drain");
    let (mut journal, gate) = (Journal::new(&scratch, "journal"), Gate::closed(&scratch, "gate"));
    let counter = Counter::options().cpus(1.0).restarts(0).remote(10);
    assert_eq!(counter.count().get().unwrap(), 11);
    assert!(first.is_parent_of(counter.keeper().get().unwrap()), "it lives on the only node with CPUs");
    let only_there = fill::remote(5 << 20, 9);
    bireme::wait(std::slice::from_ref(&only_there), 1, None).unwrap();
    let running = counter.wait(journal.path.clone(), gate.path.clone());
    assert_eq!(journal.next(), "waits");
    let behind = counter.count();
    let second = Node::member("drain-second", &head, &[]);
    let load: Vec<_> = (0..300).map(|n| add::remote(n, 1)).collect();
    // Longer than anything here is waited for: it leaves because nothing is left.
    head.drain(2, 10 * PATIENCE).unwrap();
    head.drain(2, 10 * PATIENCE).expect("once more is the same");
    let more: Vec<_> = (0..300).map(|n| add::remote(n, 2)).collect();
    for (n, sum) in (0..300).zip(load.iter().zip(&more)) {
        assert_eq!(sum.0.get_timeout(PATIENCE).unwrap(), n + 1);
        assert_eq!(sum.1.get_timeout(PATIENCE).unwrap(), n + 2);
    }
    assert!(first.watch.is_alive(), "a call still runs there");
    gate.open();
    assert!(running.get_timeout(PATIENCE).is_ok(), "what ran was let run");
    assert!(first.ended().success());
    assert_eq!(behind.get_timeout(PATIENCE).unwrap(), 11, "what waited was sent to the next life, which began anew");
    assert!(second.is_parent_of(counter.keeper().get_timeout(PATIENCE).unwrap()));
    let bytes = only_there.get_timeout(PATIENCE).unwrap();
    assert!(bytes.len() == 5 << 20 && bytes.iter().all(|byte| *byte == 9));
    drop(context);
}

#[test]
fn what_cannot_be_drained_is_refused_with_the_reason() {
    let _turn = turn();
    let head = Node::head("refused-head", &[]);
    let mut member = Node::member("refused-member", &head, &[]);
    let refused = member.drain(1, PATIENCE).unwrap_err();
    assert!(refused.contains("node-1 is the head"), "{refused}");
    let refused = member.drain(9, PATIENCE).unwrap_err();
    assert!(refused.contains("not a node of this cluster"), "{refused}");
    member.drain(2, PATIENCE).unwrap();
    assert!(member.ended().success(), "nothing was there");
    let refused = head.drain(2, PATIENCE).unwrap_err();
    assert!(refused.contains("node-2 is dead: it was drained"), "{refused}");
}

#[test]
fn a_drain_whose_time_is_over_ends_what_is_left_with_errors_that_name_the_node() {
    let _turn = turn();
    let head = Node::head("late-head", &[]);
    let mut member = Node::member("late-member", &head, &[]);
    let context = head.attach();
    let scratch = Scratch::new("leaving-late");
    let (mut journal, gate) = (Journal::new(&scratch, "journal"), Gate::closed(&scratch, "gate"));
    let stuck = wait_at::options().retries(0).remote(journal.path.clone(), gate.path.clone());
    journal.next();
    head.drain(2, Duration::from_millis(200)).unwrap();
    assert!(member.ended().success());
    let text = stuck.get_timeout(PATIENCE).unwrap_err().to_string();
    assert!(text.contains("node-2"), "{text}");
    drop(context);
}

#[test]
fn a_member_that_is_stopped_leaves_at_once_and_its_tasks_run_elsewhere() {
    let _turn = turn();
    let head = Node::head("stop-head", &[]);
    let mut first = Node::member("stop-first", &head, &[]);
    let context = head.attach();
    let scratch = Scratch::new("leaving-stop");
    let (mut journal, gate) = (Journal::new(&scratch, "journal"), Gate::closed(&scratch, "gate"));
    let task = wait_at::remote(journal.path.clone(), gate.path.clone());
    let keeper: i32 = journal.next().parse().unwrap();
    assert!(first.is_parent_of(keeper));
    let workers = Watch::new(keeper);
    let second = Node::member("stop-second", &head, &[]);
    drop(first.input.take());
    assert!(first.ended().success());
    assert!(workers.ended_within(PATIENCE), "nothing of it is left");
    let keeper: i32 = journal.next().parse().unwrap();
    assert!(second.is_parent_of(keeper), "it was retried at once");
    gate.open();
    assert_eq!(task.get_timeout(PATIENCE).unwrap(), 7);
    assert!(head.watch.is_alive() && second.watch.is_alive());
    drop(context);
}

#[test]
fn a_node_that_was_silent_for_too_long_ends_its_workers_and_comes_back_as_another() {
    let _turn = turn();
    let head = Node::head("silent-head", &[]);
    let mut member = Node::member("silent-member", &head, &[]);
    assert_eq!(member.id, "node-2");
    let context = head.attach();
    let scratch = Scratch::new("leaving-silent");
    let (mut journal, gate) = (Journal::new(&scratch, "journal"), Gate::closed(&scratch, "gate"));
    let stuck = wait_at::options().retries(0).remote(journal.path.clone(), gate.path.clone());
    let workers = Watch::new(journal.next().parse().unwrap());
    let lost = fill::remote(1 << 20, 1);
    bireme::wait(std::slice::from_ref(&lost), 1, None).unwrap();
    member.watch.kill(Signal::STOP);
    let text = lost.get_timeout(PATIENCE).unwrap_err().to_string();
    assert!(text.contains("node-2"), "{text}");
    assert!(workers.ended_within(PATIENCE), "its tasks run elsewhere by now: they must not run on here");
    member.watch.kill(Signal::CONT);
    member.learn();
    assert_eq!(member.id, "node-3", "the old number is never used again");
    let text = stuck.get_timeout(PATIENCE).unwrap_err().to_string();
    assert!(text.contains("node-2"), "{text}");
    assert!(member.is_parent_of(keeper::remote().get_timeout(PATIENCE).unwrap()));
    drop(context);
}

#[test]
fn members_join_a_new_head_in_the_place_of_the_old_one_or_end_when_there_is_none() {
    let _turn = turn();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut head = Node::head("old-head", &[("BIREME_PORT", &port)]);
    let mut patient = Node::member("patient", &head, &[]);
    let mut hasty = Node::member("hasty", &head, &[("BIREME_REJOIN_TIME", "300ms")]);
    let driver = patient.attach();
    assert_eq!(add::remote(1, 1).get().unwrap(), 2);
    head.watch.kill(Signal::KILL);
    head.ended();
    let text = hasty.tells("failed");
    assert!(text.contains("has not let this node in for 300ms"), "{text}");
    assert_eq!(hasty.ended().code(), Some(3));
    let error = loop {
        // What its node can still do alone it does, until its lease is over.
        if let Err(error) = add::remote(1, 1).get_timeout(PATIENCE) {
            break error;
        }
    };
    let text = error.to_string();
    assert!(text.contains("node-2 is no member of its cluster any more"), "{text}");
    drop(driver);
    let again = Node::head("new-head", &[("BIREME_PORT", &port)]);
    patient.learn();
    assert_eq!(patient.id, "node-2", "of another cluster");
    let context = again.attach();
    assert_eq!(add::remote(2, 3).get_timeout(PATIENCE).unwrap(), 5);
    assert!(patient.is_parent_of(keeper::remote().get_timeout(PATIENCE).unwrap()));
    drop(context);
}

#[test]
fn a_node_that_is_cut_off_ends_its_workers_by_itself_and_comes_back_as_another_when_it_is_heard_again() {
    let _turn = turn();
    let Some(lab) = Lab::up_or_explain(2, None) else { return };
    let program = std::env::current_exe().unwrap();
    let (here, there) = (lab.address(1).to_string(), lab.address(2).to_string());
    let head = [("BIREME_NUM_CPUS", "0"), ("BIREME_HOST", &here), LEASE];
    let head = Node::start_as(lab.command(1, &program), "cut-head", &head);
    let member = [
        ("BIREME_NUM_CPUS", "2"),
        ("BIREME_HOST", &there),
        ("BIREME_ADDRESS", &head.address),
        ("BIREME_TOKEN_FILE", &head.token),
    ];
    let mut member = Node::start_as(lab.command(2, &program), "cut-member", &member);
    assert_eq!(member.id, "node-2");
    let context = head.attach();
    let scratch = Scratch::new("leaving-cut");
    let (mut journal, gate) = (Journal::new(&scratch, "journal"), Gate::closed(&scratch, "gate"));
    let lost = wait_at::options().retries(0).remote(journal.path.clone(), gate.path.clone());
    let workers = Watch::new(journal.next().parse().unwrap());
    lab.cut(2).unwrap();
    assert!(workers.ended_within(PATIENCE), "nobody told it, and it ended them");
    lab.heal(2).unwrap();
    member.learn();
    assert_eq!(member.id, "node-3", "the old number is never used again");
    let text = lost.get_timeout(PATIENCE).unwrap_err().to_string();
    assert!(text.contains("node-2"), "{text}");
    assert_eq!(add::remote(4, 5).get_timeout(PATIENCE).unwrap(), 9);
    drop(context);
}

/// A driver whose own node joined from within the program.
#[test]
fn a_program_whose_embedded_node_loses_its_cluster_hears_so() {
    let _turn = turn();
    let mut head = Node::start("embedded-head", &[("BIREME_NUM_CPUS", "2"), LEASE]);
    let context = bireme::init_with(Config::default().address(&head.address)).unwrap();
    let scratch = Scratch::new("leaving-embedded");
    let (mut journal, gate) = (Journal::new(&scratch, "journal"), Gate::closed(&scratch, "gate"));
    let pending = wait_at::remote(journal.path.clone(), gate.path.clone());
    journal.next();
    head.watch.kill(Signal::KILL);
    head.ended();
    let error = pending.get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error, bireme::Error::NodeGone(_)), "{error}");
    assert!(error.to_string().contains("it has lost its cluster"), "{error}");
    drop(context);
}
