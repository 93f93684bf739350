//! Several nodes on one machine, each in a process of its own, over loopback.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/link.rs"]
mod link;
mod support;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bireme::{
    Bundle, Bytes, ClusterChoice, Config, Failure, GroupStage, GroupStrategy, NodeId, PlacementGroup, Strategy,
};
use link::Link;
use support::{Gate, PATIENCE, Scratch};

const HEAD: &str = "BIREME_TEST_HEAD";
const GROUP: &str = "BIREME_TEST_GROUP";
/// Bytes of the object store of a member.
const STORE: &str = "BIREME_TEST_STORE";
/// Milliseconds that a member lets what comes wait.
const DELAY: &str = "BIREME_TEST_DELAY";

#[bireme::remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[bireme::remote]
fn pid() -> u32 {
    std::process::id()
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

fn choice(head: Option<std::net::SocketAddr>) -> ClusterChoice {
    let link_delay = std::env::var(DELAY).map_or(Duration::ZERO, |text| Duration::from_millis(text.parse().unwrap()));
    ClusterChoice { head, bind: Some("127.0.0.1:0".parse().unwrap()), link_delay, ..Default::default() }
}

/// The part of a member: this program again, with two CPUs, until its standard input ends.
#[test]
fn a_member_when_it_is_asked_for_by_the_environment() {
    let Ok(head) = std::env::var(HEAD) else { return };
    let mut config = Config::default().cpus(2.0).namespace("nodes").cluster(choice(Some(head.parse().unwrap())));
    if let Ok(bytes) = std::env::var(STORE) {
        config = config.object_store_memory(bytes.parse().unwrap());
    }
    let _context = bireme::init_with(config).unwrap();
    if let Ok(name) = std::env::var(GROUP) {
        let found = bireme::get_placement_group(&name).unwrap();
        let at = node::options().strategy(found.any_bundle()).remote().get_timeout(PATIENCE).unwrap();
        println!("{name} is on {at}");
        found.remove().unwrap();
    }
    println!("joined");
    let _ = std::io::stdin().lines().count();
}

struct Member(Child);

impl Member {
    fn start(head: &str) -> Self {
        Self::begin(Command::new(std::env::current_exe().unwrap()).env(HEAD, head)).0
    }

    /// Starts a member; what it has said until it was one.
    fn begin(command: &mut Command) -> (Self, Vec<String>) {
        let child = command
            .args(["--exact", "--nocapture", "a_member_when_it_is_asked_for_by_the_environment"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It ends with this, also when it never joins.
        let mut member = Self(child);
        let mut said = Vec::new();
        for line in BufReader::new(member.0.stdout.take().unwrap()).lines() {
            said.push(line.unwrap());
            if said.last().is_some_and(|line| line.contains("joined")) {
                return (member, said);
            }
        }
        panic!("the member never joined, and said {said:?}");
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A head without CPUs in this process, so that everything runs on members.
fn head() -> (bireme::Context, String) {
    head_with(0.0)
}

fn head_with(cpus: f64) -> (bireme::Context, String) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut head = choice(None);
    head.bind = Some(port);
    (bireme::init_with(Config::default().cpus(cpus).namespace("nodes").cluster(head)).unwrap(), port.to_string())
}

#[bireme::remote]
fn fill(n: usize, with: u8) -> Bytes {
    Bytes::from(vec![with; n])
}

#[bireme::remote]
fn total(bytes: Bytes) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

#[bireme::remote]
fn wait_for_ever() -> u32 {
    loop {
        std::thread::park();
    }
}

#[bireme::remote]
fn reads_on(_first: Bytes, _second: Bytes) -> u32 {
    bireme::node_id().unwrap().0
}

#[bireme::remote]
fn runs_on() -> u32 {
    bireme::node_id().unwrap().0
}

#[test]
fn a_task_runs_where_its_large_inputs_are_and_on_the_node_that_it_names() {
    let (_context, head) = head_with(2.0);
    let _member = Member::start(&head);
    // The number of who joins first.
    let (here, there) = (bireme::node_id().unwrap(), NodeId(2));
    let on = |node, soft| Strategy::Node { node, soft };
    assert_eq!(runs_on::remote().get().unwrap(), here.0, "nothing wants it elsewhere");
    for (node, soft) in [(there, false), (there, true), (here, false)] {
        assert_eq!(runs_on::options().strategy(on(node, soft)).remote().get().unwrap(), node.0);
    }
    let made = |node, bytes| fill::options().strategy(on(node, false)).remote(bytes, 1);
    let (large, small) = (made(there, 32 << 20), made(here, 4 << 20));
    assert_eq!(reads_on::remote(&large, &small).get().unwrap(), there.0);
    let (large, small) = (made(here, 32 << 20), made(there, 4 << 20));
    assert_eq!(reads_on::remote(&large, &small).get().unwrap(), here.0);
}

#[test]
fn a_named_node_that_is_not_there_is_an_error_at_once_that_names_it() {
    let (_context, head) = head_with(1.0);
    let _member = Member::start(&head);
    let missing = NodeId(77);
    let hard = runs_on::options().strategy(Strategy::Node { node: missing, soft: false }).remote();
    let text = hard.get_timeout(PATIENCE).unwrap_err().to_string();
    assert!(text.contains("node-77") && text.contains("not in the cluster"), "{text}");
    let soft = runs_on::options().strategy(Strategy::Node { node: missing, soft: true }).remote();
    assert_eq!(soft.get_timeout(PATIENCE).unwrap(), bireme::node_id().unwrap().0);
}

#[test]
fn large_values_cross_between_nodes() {
    let (_context, head) = head();
    let _member = Member::start(&head);
    let made = fill::remote(3 << 20, 5);
    assert_eq!(made.get().unwrap().len(), 3 << 20);
    assert!(made.get().unwrap().iter().all(|byte| *byte == 5));
    let put = bireme::put(Bytes::from(vec![2; 1 << 20])).unwrap();
    assert_eq!(total::remote(&put).get().unwrap(), 2 << 20);
    let inside = total::remote(fill::remote(1 << 20, 3));
    assert_eq!(inside.get().unwrap(), 3 << 20);
}

#[bireme::remote]
fn merge(a: Bytes, b: Bytes, c: Bytes, d: Bytes) -> Bytes {
    Bytes::from([a, b, c, d].iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>())
}

#[test]
fn tasks_whose_inputs_come_from_another_node_share_a_small_store() {
    let (_context, head) = head();
    let (_member, _) = Member::begin(
        Command::new(std::env::current_exe().unwrap()).env(HEAD, head).env(STORE, (32 << 20).to_string()),
    );
    let parts: Vec<_> = (0..24_u8).map(|n| bireme::put(Bytes::from(vec![n; 4 << 20])).unwrap()).collect();
    let merged: Vec<_> = parts.chunks(4).map(|four| merge::remote(&four[0], &four[1], &four[2], &four[3])).collect();
    for (object, first) in merged.iter().zip((0..24).step_by(4)) {
        let bytes = object.get_timeout(PATIENCE).unwrap();
        assert_eq!(bytes.len(), 16 << 20);
        for (part, n) in bytes.chunks(4 << 20).zip(first..) {
            assert!(part.iter().all(|byte| *byte == n));
        }
    }
}

#[test]
fn the_death_of_a_node_is_an_error_that_names_it_and_what_is_left_takes_over() {
    let (_context, head) = head();
    let mut first = Member::start(&head);
    let lost = fill::remote(1 << 20, 1);
    bireme::wait(std::slice::from_ref(&lost), 1, None).unwrap();
    let kept = fill::remote(1 << 20, 4);
    assert_eq!(kept.get().unwrap()[7], 4, "a copy is here now");
    let stuck = wait_for_ever::remote();
    assert_eq!(add::remote(1, 1).get().unwrap(), 2);
    first.0.kill().unwrap();
    let text = lost.get_timeout(PATIENCE).unwrap_err().to_string();
    assert!(text.contains("node-2"), "{text}");
    assert_eq!(kept.get_timeout(PATIENCE).unwrap()[9], 4);
    drop(stuck);
    let _second = Member::start(&head);
    assert_eq!(add::remote(20, 3).get_timeout(PATIENCE).unwrap(), 23);
}

#[test]
fn tasks_run_on_the_node_that_has_the_cpus() {
    let (_context, head) = head();
    let _member = Member::start(&head);
    assert_eq!(add::remote(1, 2).get().unwrap(), 3);
    let sums: Vec<_> = (0..1000).map(|n| add::remote(n, n)).collect();
    for (n, sum) in sums.iter().enumerate() {
        assert_eq!(sum.get().unwrap(), 2 * n as i64);
    }
    let counter = Counter::remote(5);
    assert_eq!(counter.count().get().unwrap(), 6);
    assert_eq!(counter.count().get().unwrap(), 7);
    let twice = add::remote(add::remote(1, 2), 4);
    assert_eq!(twice.get().unwrap(), 7);
    assert_ne!(pid::remote().get().unwrap(), 0);
}

#[bireme::remote]
fn node() -> NodeId {
    bireme::node_id().unwrap()
}

fn group(strategy: GroupStrategy, bundles: usize) -> PlacementGroup {
    let bundles = (0..bundles).map(|_| Bundle::cpus(1.0));
    PlacementGroup::builder().bundles(bundles).strategy(strategy).create().unwrap()
}

/// The nodes on which tasks in the bundles of a group run.
fn places(group: &PlacementGroup) -> Vec<NodeId> {
    let indices = 0..group.bundles().len();
    let tasks = indices.map(|index| node::options().strategy(group.bundle(index).unwrap()).remote());
    tasks.collect::<Vec<_>>().iter().map(|task| task.get_timeout(PATIENCE).unwrap()).collect()
}

#[test]
fn the_bundles_of_a_placement_group_lie_on_nodes_as_its_strategy_says() {
    let (_context, head) = head();
    let _members = [Member::start(&head), Member::start(&head)];
    let spread = group(GroupStrategy::StrictSpread, 2);
    assert!(spread.wait(PATIENCE).unwrap());
    let mut at = places(&spread);
    at.sort();
    assert_eq!(at, [NodeId(2), NodeId(3)]);
    let row = bireme::placement_groups().unwrap().into_iter().find(|row| row.group == spread.id()).unwrap();
    assert_eq!((row.stage, row.bundles.iter().filter(|(_, node)| node.is_some()).count()), (GroupStage::Placed, 2));
    let counter = Counter::options().strategy(spread.bundle(1).unwrap()).remote(5);
    assert_eq!(counter.count().get_timeout(PATIENCE).unwrap(), 6);
    spread.remove().unwrap();
    let packed = group(GroupStrategy::StrictPack, 2);
    assert!(packed.wait(PATIENCE).unwrap(), "what the first one had is free again");
    let at = places(&packed);
    assert_eq!(at[0], at[1]);
    let text = counter.count().get_timeout(PATIENCE).unwrap_err().to_string();
    assert!(text.contains("placement group"), "{text}");
    let never = group(GroupStrategy::StrictSpread, 4);
    let error = never.ready().get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error.failure(), Some(Failure::GroupUnplaceable { .. })), "{error}");
}

#[test]
fn the_bundles_of_a_killed_node_are_placed_again_and_what_ran_in_them_goes_on() {
    let (_context, head) = head();
    let mut members = vec![Member::start(&head), Member::start(&head)];
    let spread = group(GroupStrategy::StrictSpread, 2);
    assert!(spread.wait(PATIENCE).unwrap());
    let before = places(&spread);
    let lost = before.iter().position(|at| *at == NodeId(3)).unwrap();
    members[1].0.kill().unwrap();
    let waiting = node::options().strategy(spread.bundle(lost).unwrap()).remote();
    members.push(Member::start(&head));
    assert_eq!(waiting.get_timeout(PATIENCE).unwrap(), NodeId(4));
    assert_eq!(places(&spread)[1 - lost], before[1 - lost], "the other one stayed");
}

#[test]
fn another_driver_finds_a_detached_group_by_its_name() {
    let (_context, head) = head();
    let _member = Member::start(&head);
    let made = PlacementGroup::builder().bundle(Bundle::cpus(1.0)).name("ring").detached().create().unwrap();
    assert!(made.wait(PATIENCE).unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    let (_second, said) = Member::begin(command.env(HEAD, &head).env(GROUP, "ring"));
    assert!(said.iter().any(|line| line.contains("ring is on node-2")), "{said:?}");
    let gone = node::options().strategy(made.any_bundle()).remote().get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(gone.failure(), Some(Failure::GroupRemoved { .. })), "{gone}");
}

#[test]
fn what_comes_to_a_node_with_a_link_delay_is_late_on_its_links_and_bulk_streams() {
    let (context, address) = head();
    let delay = Duration::from_millis(60);
    let mut command = Command::new(std::env::current_exe().unwrap());
    let member = Member::begin(command.env(HEAD, &address).env(DELAY, delay.as_millis().to_string())).0;
    let there = Bytes::from(vec![1; 1 << 20]);
    assert_eq!(add::remote(1, 1).get_timeout(PATIENCE).unwrap(), 2);
    let start = Instant::now();
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
    // The member is told of the task over its control link.
    assert!(start.elapsed() >= delay, "{:?}", start.elapsed());
    let input = bireme::put(there).unwrap();
    let start = Instant::now();
    assert_eq!(total::remote(&input).get_timeout(PATIENCE).unwrap(), 1 << 20);
    // And fetches the input over a bulk stream.
    assert!(start.elapsed() >= 2 * delay, "{:?}", start.elapsed());
    drop(member);
    context.shutdown();
}

#[test]
fn actors_on_two_nodes_that_wait_for_each_other_are_explained() {
    let (_context, head) = head_with(2.0);
    let _member = Member::start(&head);
    let on = |node| Link::options().strategy(Strategy::Node { node, soft: false }).remote();
    let (one, two) = (on(bireme::node_id().unwrap()), on(NodeId(2)));
    let call = one.pass_on(vec![two.clone(), one.clone()]);
    let mut text = String::new();
    support::eventually("the circle is seen", || {
        text = call.explain().unwrap();
        text.contains("calls in a circle")
    });
    for word in [&one.id().to_string(), &two.id().to_string(), "pass_on", "they wait for each other for ever"] {
        assert!(text.contains(word), "{word} is missing in: {text}");
    }
    // The same from the other end: the actor on the other node is called, and the circle begins there.
    let behind = two.pass_on(Vec::new());
    support::eventually("the circle is seen", || behind.explain().unwrap().contains("calls in a circle"));
}

#[bireme::remote]
fn keep(_a: Bytes, _b: Bytes, _c: Bytes, gate: PathBuf) -> u32 {
    support::pass(&gate);
    bireme::node_id().unwrap().0
}

#[test]
fn a_task_that_waits_for_memory_of_another_node_is_explained() {
    let (_context, head) = head();
    let (_member, _) = Member::begin(
        Command::new(std::env::current_exe().unwrap()).env(HEAD, head).env(STORE, (32 << 20).to_string()),
    );
    let scratch = Scratch::new("memory-wait");
    let gate = Gate::closed(&scratch, "gate");
    let parts: Vec<_> = (0..6_u8).map(|n| bireme::put(Bytes::from(vec![n; 4 << 20])).unwrap()).collect();
    // Each has 12 MB of inputs and is expected to make as much: there is room for one of them.
    let kept: Vec<_> = parts.chunks(3).map(|of| keep::remote(&of[0], &of[1], &of[2], gate.path.clone())).collect();
    let waits = || kept.iter().find_map(|task| Some(task.explain().unwrap()).filter(|text| text.contains("memory")));
    let mut found = None;
    support::eventually("one of them waits for memory", || {
        found = waits();
        found.is_some()
    });
    let text = found.unwrap_or_default();
    let words = "on node-2 runs";
    let need = "it waits for memory: its inputs and its output need 25.2 MB together";
    assert!(text.contains(words) && text.contains(need), "{text}");
    gate.open();
    for task in &kept {
        assert_eq!(task.get_timeout(PATIENCE).unwrap(), 2);
    }
}

#[bireme::remote]
fn reserve(bundles: usize) -> usize {
    let group = group(GroupStrategy::Pack, bundles);
    let placed = places(&group).len();
    group.remove().unwrap();
    placed
}

#[test]
fn a_blocked_task_that_waits_for_a_placement_group_of_all_cpus_goes_on() {
    let (_context, head) = head();
    let _member = Member::start(&head);
    assert_eq!(reserve::remote(2).get_timeout(PATIENCE).unwrap(), 2);
}
