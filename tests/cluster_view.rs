//! What people see of a cluster of real processes: its status, its nodes, and what workers on other nodes print.
//!
//! This binary plays all parts: the nodes and the drivers are the binary started again.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bireme::Config;
use bireme_runtime::admin::{AdminReply, AdminRequest, ClusterStatus, NodeState, ask};
use bireme_runtime::local::NodeFile;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;
use support::{Driver, NODE_FOLDER, PATIENCE, Scratch, eventually, turn};

const WAIT: Duration = Duration::from_secs(20);

#[bireme::remote]
fn say(text: String) -> String {
    println!("out={text}");
    eprintln!("errors={text}");
    text
}

#[bireme::remote(cpus = 2)]
fn wait_for_ever() -> i64 {
    loop {
        std::thread::park();
    }
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
}

/// The number of the node that it runs on.
#[bireme::remote]
fn whereabouts() -> u32 {
    bireme::node_id().unwrap().0
}

/// The part of a node, until it is asked to end.
#[test]
fn a_node_when_the_environment_asks_for_it() {
    support::be_a_node(|| eventfd(0, EventfdFlags::CLOEXEC).unwrap());
}

/// The part of a driver: it has a worker print, and leaves.
#[test]
fn a_driver_when_the_environment_asks_for_it() {
    if support::scenario().as_deref() != Some("driver") {
        return;
    }
    let to = std::env::var(NODE_FOLDER).unwrap();
    let context = bireme::init_with(Config::default().address(&to)).unwrap();
    assert_eq!(say::remote("across".to_owned()).get().unwrap(), "across");
    let nothing = whereabouts::options().cpus(0.0).remote().get().unwrap();
    println!("nothing={nothing}");
    context.shutdown();
    println!("done=yes");
}

struct Node {
    part: Driver,
    folder: Scratch,
    address: String,
}

impl Node {
    fn start(name: &str, cpus: &str, head: Option<&str>) -> Self {
        Self::start_with(name, cpus, head, &[])
    }

    fn start_with(name: &str, cpus: &str, head: Option<&str>, more: &[(&'static str, &str)]) -> Self {
        let folder = Scratch::new(name);
        std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o700)).unwrap();
        let path = folder.0.to_str().unwrap().to_owned();
        let mut settings = vec![
            (NODE_FOLDER, path.as_str()),
            ("BIREME_STATE_DIRECTORY", &path),
            ("BIREME_NUM_CPUS", cpus),
            ("BIREME_OBJECT_STORE_MEMORY", "67108864"),
        ];
        settings.extend(head.map(|head| ("BIREME_ADDRESS", head)));
        settings.extend(more);
        let mut part = Driver::start("a_node_when_the_environment_asks_for_it", "node", &settings);
        let address = part.tells("ready").split(' ').nth(1).unwrap().to_owned();
        Self { part, folder, address }
    }

    fn ask(&self, request: &AdminRequest) -> AdminReply {
        ask(&self.folder.path(NodeFile::SOCKET), request, WAIT).unwrap()
    }

    fn status(&self) -> ClusterStatus {
        match self.ask(&AdminRequest::Status) {
            AdminReply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    fn end(&self) {
        assert_eq!(self.ask(&AdminRequest::Stop), AdminReply::Accepted);
        assert!(self.part.watch.ended_within(PATIENCE));
    }
}

#[test]
fn status_shows_every_node_its_actors_and_what_waits_for_what() {
    let _turn = turn();
    let head = Node::start("view-head", "0", None);
    let member = Node::start("view-member", "3", Some(&head.address));
    let context = bireme::init_with(Config::default().address(head.folder.0.to_str().unwrap())).unwrap();
    let counter = Counter::options().name("mine").remote(0);
    assert_eq!(counter.count().get().unwrap(), 1);
    let _running = wait_for_ever::remote();
    let _waiting = [wait_for_ever::remote(), wait_for_ever::remote()];
    for asked in [&head, &member] {
        // A lease counts as used from the moment at which its first task begins.
        let why = "2 CPUs asked, node-2 comes nearest with 1 CPUs free";
        eventually("the second one waits for the first", || {
            let status = asked.status();
            status.nodes[1].cpus_used > 0.0 && status.waiting.first().is_some_and(|first| first.why.contains(why))
        });
        let status = asked.status();
        let nodes: Vec<_> = status.nodes.iter().map(|node| (node.node.0, node.state, node.cpus_total)).collect();
        assert_eq!(nodes, [(1, NodeState::Alive, 0.0), (2, NodeState::Alive, 3.0)]);
        assert_eq!((status.nodes[1].address.as_str(), status.nodes[1].note.as_str()), (member.address.as_str(), ""));
        assert_eq!(status.nodes[1].cpus_used, 2.0, "{status:?}");
        let actor = &status.actors[0];
        assert_eq!((actor.name.as_deref(), actor.state.as_str()), (Some("mine"), "alive"));
        assert_eq!(actor.node.map(|node| node.0), Some(2), "it needs no CPU, and the head has none");
        assert_eq!((status.jobs.len(), status.jobs[0].process, status.jobs[0].tasks_open), (1, std::process::id(), 3));
        let waiting = &status.waiting[0];
        assert!(waiting.what.contains("tasks that want 2 CPUs"), "{waiting:?}");
        assert!(waiting.why.contains(why), "{waiting:?}");
    }
    let nodes = bireme::nodes().unwrap();
    let rows: Vec<_> = nodes.iter().map(|row| (row.node.0, row.role.as_str(), row.total.cpus.as_f64())).collect();
    assert_eq!(rows, [(1, "head", 0.0), (2, "worker", 3.0)]);
    assert_eq!(nodes[1].address, member.address);
    member.part.kill(Signal::KILL);
    eventually("its death is known", || head.status().nodes[1].state == NodeState::Dead);
    assert!(bireme::nodes().unwrap().iter().any(|row| !row.alive && row.reason.is_some()));
    context.shutdown();
    head.end();
}

#[test]
fn a_node_that_does_not_answer_is_shown_as_its_last_load_tells() {
    let _turn = turn();
    let head = Node::start("view-silent-head", "1", None);
    let member = Node::start("view-silent", "2", Some(&head.address));
    member.part.kill(Signal::STOP);
    let status = head.status();
    member.part.kill(Signal::CONT);
    let row = &status.nodes[1];
    assert_eq!((row.state, row.cpus_total, row.note.as_str()), (NodeState::Alive, 2.0, "did not answer"));
    member.end();
    eventually("it has left", || head.status().nodes[1].state == NodeState::Left);
    head.end();
}

#[test]
fn what_a_worker_on_another_node_prints_comes_to_the_drivers_output() {
    let _turn = turn();
    let head = Node::start("view-lines-head", "0", None);
    let member = Node::start("view-lines-member", "1", Some(&head.address));
    let attached = [(NODE_FOLDER, head.folder.0.to_str().unwrap())];
    // One that joins by itself, since it finds no node of this state directory.
    let nowhere = Scratch::new("view-lines-nowhere");
    std::fs::set_permissions(&nowhere.0, PermissionsExt::from_mode(0o700)).unwrap();
    let joining = [(NODE_FOLDER, head.address.as_str()), ("BIREME_STATE_DIRECTORY", nowhere.0.to_str().unwrap())];
    for settings in [&attached[..], &joining] {
        let mut driver = Driver::start("a_driver_when_the_environment_asks_for_it", "driver", settings);
        assert_eq!(driver.tells("out"), "across");
        assert_eq!(driver.tells("done"), "yes");
        assert!(driver.watch.ended_within(PATIENCE));
    }
    member.end();
    head.end();
}

#[test]
fn a_head_that_runs_no_tasks_serves_drivers_that_attach_and_that_join() {
    let _turn = turn();
    // What `bireme start --no-tasks` says.
    let head = Node::start_with("view-no-tasks-head", "0", None, &[("BIREME_MEMORY", "0")]);
    let member = Node::start("view-no-tasks-member", "1", Some(&head.address));
    let attached = [(NODE_FOLDER, head.folder.0.to_str().unwrap())];
    let nowhere = Scratch::new("view-no-tasks-nowhere");
    std::fs::set_permissions(&nowhere.0, PermissionsExt::from_mode(0o700)).unwrap();
    let joining = [(NODE_FOLDER, head.address.as_str()), ("BIREME_STATE_DIRECTORY", nowhere.0.to_str().unwrap())];
    for settings in [&attached[..], &joining] {
        let mut driver = Driver::start("a_driver_when_the_environment_asks_for_it", "driver", settings);
        assert_eq!(driver.tells("nothing"), "2", "not even a task that needs nothing runs with the head");
        assert_eq!(driver.tells("done"), "yes");
        assert!(driver.watch.ended_within(PATIENCE));
    }
    member.end();
    head.end();
}
