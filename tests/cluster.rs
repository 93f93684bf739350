//! Clusters as users meet them: the real command on hosts with addresses of their own, TLS and tokens, and what happens to
//! programs when nodes come, go, die and are cut off.
//!
//! This binary plays the drivers as well: see [`hosts`]. Which host a task ran on is told by its network.
#![allow(clippy::unwrap_used, missing_docs)]

// The README's program, to be run as it is.
#[path = "../examples/cluster.rs"]
#[allow(dead_code)]
mod example;
mod hosts;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bireme::{Bytes, ObjectRef};
use hosts::{Driver, Hosts, network_of_this_thread};
use rustix::process::Signal;
use support::{Gate, Journal, PATIENCE, Watch, eventually};

/// A value that no one byte or word of can be wrong without being seen.
fn pattern(len: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_u32;
    let next = |_| {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (word >> 24) as u8
    };
    (0..len).map(next).collect()
}

#[bireme::remote]
fn place() -> String {
    network_of_this_thread()
}

/// The number of the node: another one after it was declared dead and has come back.
#[bireme::remote]
fn node() -> bireme::Result<String> {
    Ok(bireme::node_id()?.to_string())
}

#[bireme::remote]
fn make(len: usize) -> Bytes {
    Bytes::from(pattern(len))
}

#[bireme::remote]
fn judge(bytes: Bytes) -> String {
    let word = if *bytes == pattern(bytes.len())[..] { "right" } else { "wrong" };
    format!("{word} {}", network_of_this_thread())
}

/// Tells where it is and waits until the gate opens.
#[bireme::remote]
fn meet(journal: PathBuf, gate: PathBuf) -> String {
    support::note(&journal, format!("{} {}", support::my_pid(), network_of_this_thread()));
    support::pass(&gate);
    network_of_this_thread()
}

#[bireme::remote]
fn nested(depth: i64) -> bireme::Result<i64> {
    if depth == 0 { Ok(0) } else { Ok(nested::remote(depth - 1).get()? + 1) }
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

    pub fn place(&self) -> String {
        network_of_this_thread()
    }
}

/// What a driver keeps between two lines.
#[derive(Default)]
struct Kept {
    values: BTreeMap<String, ObjectRef<Bytes>>,
    places: BTreeMap<String, ObjectRef<String>>,
    counters: BTreeMap<String, CounterHandle>,
}

/// The part of a driver, until its standard input ends.
#[test]
fn a_driver_when_the_environment_asks_for_it() {
    let mut kept = Kept::default();
    hosts::be_a_driver(|words| answer(words, &mut kept));
}

fn answer(words: &[&str], kept: &mut Kept) -> bireme::Result<String> {
    let number = |word: &str| word.parse::<usize>().unwrap();
    match *words {
        ["place"] => place::remote().get_timeout(PATIENCE),
        ["place", host] => place::options().resource(host, 1.0).remote().get_timeout(PATIENCE),
        ["nested", depth] => nested::remote(number(depth) as i64).get_timeout(PATIENCE).map(|depth| depth.to_string()),
        ["make", name, host, len] => {
            let made = make::options().resource(host, 1.0).remote(number(len));
            bireme::wait(std::slice::from_ref(&made), 1, Some(PATIENCE))?;
            kept.values.insert(name.to_owned(), made);
            Ok("made".to_owned())
        }
        ["put", name, len] => {
            kept.values.insert(name.to_owned(), bireme::put(Bytes::from(pattern(number(len))))?);
            Ok("put".to_owned())
        }
        ["check", name] => {
            let bytes = kept.values[name].get_timeout(PATIENCE)?;
            Ok(if *bytes == pattern(bytes.len())[..] { "right" } else { "wrong" }.to_owned())
        }
        // What this driver's node chooses by: every CPU is free, also those of leases that idle.
        ["rest"] => {
            let rests = |row: &bireme::NodeRow| !row.alive || row.free.cpus == row.total.cpus;
            eventually("every node rests", || bireme::nodes().is_ok_and(|rows| rows.iter().all(rests)));
            Ok("rested".to_owned())
        }
        ["judge", name] => judge::remote(&kept.values[name]).get_timeout(PATIENCE),
        ["judge", name, host] => judge::options().resource(host, 1.0).remote(&kept.values[name]).get_timeout(PATIENCE),
        ["meet", count, journal, gate] => {
            for n in 0..number(count) {
                let meeting = meet::remote(PathBuf::from(journal), PathBuf::from(gate));
                kept.places.insert(format!("meet{n}"), meeting);
            }
            Ok("called".to_owned())
        }
        ["start", name, host] => {
            kept.places.insert(name.to_owned(), place::options().resource(host, 1.0).remote());
            Ok("called".to_owned())
        }
        ["wait", name, milliseconds] => {
            kept.places[name].get_timeout(Duration::from_millis(number(milliseconds) as u64))
        }
        ["result", name] => kept.places[name].get_timeout(PATIENCE),
        ["actor", name, host] => {
            let counter = Counter::options().resource(host, 1.0).restarts(3).call_retries(3).remote(10);
            let place = counter.place().get_timeout(PATIENCE);
            kept.counters.insert(name.to_owned(), counter);
            place
        }
        ["free-actor", name] => {
            let counter = Counter::options().cpus(1.0).restarts(3).call_retries(3).remote(10);
            let place = counter.place().get_timeout(PATIENCE);
            kept.counters.insert(name.to_owned(), counter);
            place
        }
        ["detached", name, host] => {
            let counter = Counter::options().name(name).detached().resource(host, 1.0).remote(100);
            counter.place().get_timeout(PATIENCE)
        }
        ["count", name] => kept.counters[name].count().get_timeout(PATIENCE).map(|n| n.to_string()),
        ["actor-place", name] => kept.counters[name].place().get_timeout(PATIENCE),
        ["count-named", name] => {
            bireme::get_actor::<Counter>(name)?.count().get_timeout(PATIENCE).map(|n| n.to_string())
        }
        ["kill-named", name] => bireme::kill(&bireme::get_actor::<Counter>(name)?).map(|()| "killed".to_owned()),
        ["node", host] => node::options().resource(host, 1.0).remote().get_timeout(PATIENCE),
        ref other => panic!("no such part: {other:?}"),
    }
}

/// The part of the example, with the address that it would be given on its command line.
#[test]
fn the_example_when_the_environment_asks_for_it() {
    if support::scenario().as_deref() == Some("example") {
        println!("said=started");
        example::run(std::env::var(hosts::ADDRESS).ok().as_deref()).unwrap();
        println!("said=done");
    }
}

/// Calls so many tasks that wait at the gate, and gives where the first ones are, with their processes.
fn gather(driver: &mut Driver, count: usize, first: usize, journal: &mut Journal, gate: &Gate) -> Vec<(i32, String)> {
    let (path, gate) = (journal.path.display(), gate.path.display());
    assert_eq!(driver.ask(&format!("meet {count} {path} {gate}")), "called");
    journal.take(first).iter().map(|line| met(line)).collect()
}

fn met(line: &str) -> (i32, String) {
    let (pid, network) = line.split_once(' ').unwrap();
    (pid.parse().unwrap(), network.to_owned())
}

/// Waits until nothing runs on the hosts but their nodes.
fn only_nodes_are_left(hosts: &Hosts) {
    eventually("only nodes are left on the hosts", || {
        hosts.processes().iter().all(|(_, _, words)| words.contains("bireme start"))
    });
}

/// Sockets that listen on a host.
fn listeners(hosts: &Hosts, host: u8) -> usize {
    let tables = || {
        let read = |name| std::fs::read_to_string(Path::new("/proc/thread-self/net").join(name)).unwrap_or_default();
        ["tcp", "tcp6"].map(read).concat()
    };
    let listens = |line: &&str| line.split_whitespace().nth(3) == Some("0A");
    hosts.lab.run(host, tables).unwrap().lines().filter(listens).count()
}

#[test]
fn eight_hosts_join_at_once_and_work_spills_over_all_of_them() {
    let Some(hosts) = Hosts::up("eight", 8) else { return };
    let _head = hosts.head(&[]);
    let nodes = hosts.join_all(2..=8, &[]);
    let names: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    let (mut first, mut second) = (hosts.driver(1), hosts.driver(8));
    let (mut journal, gate) = (Journal::new(&hosts.folder, "journal"), Gate::closed(&hosts.folder, "gate"));
    let places = gather(&mut first, 8, 8, &mut journal, &gate);
    let networks: BTreeSet<String> = places.into_iter().map(|(_, network)| network).collect();
    assert_eq!(networks.len(), 8, "every node has one CPU, so each has one of the tasks");
    gate.open();
    for n in 0..8 {
        assert!(networks.contains(&first.ask(&format!("result meet{n}"))));
    }
    assert_eq!((first.number("nested 12"), second.number("nested 12")), (12, 12));
    first.end();
    second.end();
    only_nodes_are_left(&hosts);
}

#[test]
fn a_driver_without_a_node_dials_out_alone_and_its_large_values_cross_both_ways() {
    let Some(hosts) = Hosts::up("outside", 3) else { return };
    let _head = hosts.head(&[]);
    let _member = hosts.join(2, &[]);
    let mut driver = hosts.driver(3);
    assert_eq!(listeners(&hosts, 3), 0, "a driver listens nowhere");
    assert_eq!(listeners(&hosts, 2), 1, "a node has one port");
    assert_eq!(driver.ask("make far h2 100000000"), "made");
    assert_eq!(driver.ask("check far"), "right");
    assert_eq!(driver.ask("put near 100000000"), "put");
    let judged = driver.ask("judge near h2");
    assert!(judged.starts_with("right "), "{judged}");
    let on = |said: String| hosts.host_of(said.split(' ').next_back().unwrap());
    assert_eq!(on(judged), 2);
    // Where a large input is, there its task goes, unless it would wait there for longer than its bytes take.
    assert_eq!(driver.ask("make there h2 20000000"), "made");
    assert_eq!(driver.ask("make here h1 20000000"), "made");
    for _ in 0..2 {
        for (input, host) in [("there", 2), ("here", 1)] {
            assert_eq!(driver.ask("rest"), "rested");
            assert_eq!(on(driver.ask(&format!("judge {input}"))), host, "its input is there");
        }
    }
    assert_eq!(hosts.host_of(&driver.ask("actor counter h2")), 2);
    assert_eq!(driver.number("count counter"), 11);
    driver.watch.kill(Signal::KILL);
    only_nodes_are_left(&hosts);
    // The executable is kept once, under the hash of its bytes, for the next driver.
    let mut second = hosts.driver(3);
    assert_eq!(hosts.host_of(&second.ask("place h2")), 2);
    let programs = std::fs::read_dir(hosts.state(2).join("nodes")).unwrap().flatten().flat_map(|node| {
        std::fs::read_dir(node.path()).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap())
    });
    let programs: Vec<String> = programs.filter(|name| name.starts_with("program-")).collect();
    assert_eq!(programs.len(), 1, "{programs:?}");
}

#[test]
fn a_node_that_is_killed_costs_nothing_that_can_be_done_again() {
    let Some(hosts) = Hosts::up("killed", 3) else { return };
    let _head = hosts.head(&["--num-cpus", "0"]);
    let first = hosts.join(2, &["--num-cpus", "2"]);
    let mut driver = hosts.driver(1);
    assert_eq!(driver.ask("make lost h2 5000000"), "made");
    assert_eq!(driver.ask("make copied h2 5000000"), "made");
    assert_eq!(driver.ask("check copied"), "right");
    assert_eq!(hosts.host_of(&driver.ask("free-actor counter")), 2);
    assert_eq!(driver.number("count counter"), 11);
    let (mut journal, gate) = (Journal::new(&hosts.folder, "journal"), Gate::closed(&hosts.folder, "gate"));
    let running = gather(&mut driver, 1, 1, &mut journal, &gate);
    assert_eq!(hosts.host_of(&running[0].1), 2);
    let _second = hosts.join(3, &["--num-cpus", "2"]);
    first.kill();
    let again = met(&journal.next());
    assert_eq!(hosts.host_of(&again.1), 3, "the task runs again where there is a node");
    assert!(!Watch::is_running(running[0].0), "no worker outlives its node");
    gate.open();
    assert_eq!(hosts.host_of(&driver.ask("result meet0")), 3);
    assert_eq!(driver.number("count counter"), 11, "the actor began again");
    assert_eq!(hosts.host_of(&driver.ask("actor-place counter")), 3);
    assert_eq!(driver.ask("check copied"), "right", "there is a copy here");
    let error = driver.ask("check lost");
    assert!(error.starts_with("error") && error.contains(&first.name), "{error}");
}

#[test]
fn a_cut_that_is_shorter_than_the_lease_costs_nothing_but_time() {
    let Some(hosts) = Hosts::up("short-cut", 3) else { return };
    let _head = hosts.head(&["--num-cpus", "0"]);
    let _member = hosts.join(2, &[]);
    let mut driver = hosts.driver(1);
    let place = driver.ask("actor counter h2");
    assert_eq!((hosts.host_of(&place), driver.number("count counter")), (2, 11));
    let name = driver.ask("node h2");
    hosts.lab.cut(2).unwrap();
    assert_eq!(driver.ask("start cut h2"), "called");
    let waited = driver.ask("wait cut 700");
    assert!(waited.starts_with("error"), "nothing gets through: {waited}");
    hosts.lab.heal(2).unwrap();
    assert_eq!(hosts.host_of(&driver.ask("result cut")), 2);
    assert_eq!(driver.number("count counter"), 12, "it is the same actor");
    assert_eq!(driver.ask("node h2"), name, "nobody was declared dead");
}

#[test]
fn a_cut_that_is_longer_than_the_lease_moves_the_work_and_leaves_none_behind() {
    let Some(hosts) = Hosts::up("long-cut", 3) else { return };
    let _head = hosts.head(&["--num-cpus", "0"]);
    let member = hosts.join(2, &[]);
    let mut driver = hosts.driver(1);
    let (mut journal, gate) = (Journal::new(&hosts.folder, "journal"), Gate::closed(&hosts.folder, "gate"));
    let running = gather(&mut driver, 1, 1, &mut journal, &gate);
    assert_eq!(hosts.host_of(&running[0].1), 2);
    let worker = Watch::new(running[0].0);
    let _other = hosts.join(3, &[]);
    hosts.lab.cut(2).unwrap();
    let again = met(&journal.next());
    assert!(!worker.is_alive(), "the node ends its workers before others run their tasks again");
    assert_eq!(hosts.host_of(&again.1), 3);
    gate.open();
    assert_eq!(hosts.host_of(&driver.ask("result meet0")), 3);
    hosts.lab.heal(2).unwrap();
    eventually("it is back, as another node", || {
        let name = driver.ask("node h2");
        !name.starts_with("error") && name != member.name
    });
}

#[test]
fn a_node_that_can_hear_but_not_be_heard_is_dead_too() {
    let Some(hosts) = Hosts::up("one-way", 3) else { return };
    let _head = hosts.head(&["--num-cpus", "0"]);
    let _member = hosts.join(2, &[]);
    let mut driver = hosts.driver(1);
    let (mut journal, gate) = (Journal::new(&hosts.folder, "journal"), Gate::closed(&hosts.folder, "gate"));
    let running = gather(&mut driver, 1, 1, &mut journal, &gate);
    let worker = Watch::new(running[0].0);
    let _other = hosts.join(3, &[]);
    hosts.lab.cut_one_way(2, 1).unwrap();
    let again = met(&journal.next());
    assert!(!worker.is_alive());
    assert_eq!(hosts.host_of(&again.1), 3);
    gate.open();
    assert_eq!(hosts.host_of(&driver.ask("result meet0")), 3);
}

#[test]
fn two_members_that_lose_sight_of_each_other_go_on_when_it_is_over() {
    let Some(hosts) = Hosts::up("between", 3) else { return };
    let _head = hosts.head(&["--num-cpus", "0"]);
    let _members = hosts.join_all(2..=3, &[]);
    let mut driver = hosts.driver(2);
    assert_eq!(driver.ask("make far h3 3000000"), "made");
    assert_eq!(hosts.host_of(&driver.ask("actor counter h3")), 3);
    let name = driver.ask("node h3");
    hosts.lab.cut_one_way(3, 2).unwrap();
    assert_eq!(driver.ask("start cut h3"), "called");
    // Longer than the lease: both can still renew theirs with the head.
    let waited = driver.ask("wait cut 2500");
    assert!(waited.starts_with("error"), "no answer comes: {waited}");
    hosts.lab.heal_one_way(3, 2).unwrap();
    assert_eq!(hosts.host_of(&driver.ask("result cut")), 3);
    assert_eq!(driver.ask("check far"), "right");
    assert_eq!(driver.number("count counter"), 11);
    assert_eq!(driver.ask("node h3"), name, "nobody was declared dead");
}

#[test]
fn a_detached_actor_on_another_host_outlives_its_driver_and_is_found_from_a_third() {
    let Some(hosts) = Hosts::up("detached", 3) else { return };
    let _head = hosts.head(&[]);
    let _member = hosts.join(2, &[]);
    let mut first = hosts.driver(1);
    assert_eq!(hosts.host_of(&first.ask("detached immortal h2")), 2);
    assert_eq!(first.number("count-named immortal"), 101);
    first.end();
    let mut second = hosts.driver(3);
    assert_eq!(second.number("count-named immortal"), 102);
    second.watch.kill(Signal::KILL);
    let mut third = hosts.driver(2);
    assert_eq!(third.number("count-named immortal"), 103);
    assert_eq!(third.ask("kill-named immortal"), "killed");
    third.end();
    only_nodes_are_left(&hosts);
}

#[test]
fn nodes_that_are_stopped_leave_no_process_and_no_file() {
    let Some(hosts) = Hosts::up("stopped", 3) else { return };
    let head = hosts.head(&[]);
    let member = hosts.join(2, &[]);
    let mut driver = hosts.driver(2);
    assert_eq!(driver.number("nested 3"), 3);
    hosts.bireme_ok(2, &["stop", "--address", member.address()]);
    assert!(driver.ask("place").contains("the node was stopped"));
    driver.end();
    hosts.bireme_ok(1, &["stop"]);
    assert!(!head.watch.is_alive() && !member.watch.is_alive());
    assert_eq!(hosts.processes(), []);
    for host in 1..=2 {
        let left: Vec<_> = std::fs::read_dir(hosts.state(host).join("nodes")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The commands of a section of the README, with the address of this lab's first host in the place of theirs.
fn readme_commands(hosts: &Hosts) -> Vec<String> {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let section = readme.split("\n## A cluster in three commands\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let lines: Vec<String> = blocks.flat_map(str::lines).map(str::to_owned).collect();
    lines.iter().map(|line| line.replace("10.0.0.1", &hosts.lab.address(1).to_string())).collect()
}

/// The words of the one line that has these.
fn line_with<'a>(text: &'a str, words: &str) -> &'a str {
    text.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("no {words:?} in\n{text}"))
}

#[test]
fn the_three_commands_of_the_readme_make_a_cluster_and_say_all_that_comes_next() {
    let Some(hosts) = Hosts::up("readme", 2) else { return };
    let commands = readme_commands(&hosts);
    let [first, second, python, rust] = &commands[..] else { panic!("{commands:?}") };
    assert!(python.starts_with("python examples/cluster.py ") && rust.starts_with("cargo run --example cluster -- "));
    let said = hosts.shell(1, first);
    // The file that it names is copied to the other machine.
    let join = line_with(&said, "one more node joins with:");
    let token = join.split("--token-file ").nth(1).unwrap();
    std::fs::copy(token, hosts.state(2).join("node.token")).unwrap();
    let command = join.split(":   ").nth(1).unwrap();
    assert_eq!(command.replace(token, "node.token"), *second, "what is printed is what the README says");
    let told = hosts.shell(2, second);
    assert!(line_with(&told, "is running at").contains("node-2"), "{told}");
    let mut program = hosts.scenario(2, "example", "the_example_when_the_environment_asks_for_it");
    assert_eq!((program.tells("said"), program.tells("said")), ("started".to_owned(), "done".to_owned()));
    drop(program);
    for (host, said) in [(1, &said), (2, &told)] {
        let show = line_with(said, "bireme status").split(":      ").nth(1).unwrap();
        let shown = hosts.shell(host, show);
        assert!(shown.contains("node-1") && shown.contains("node-2"), "{shown}");
    }
    for (host, said) in [(2, &told), (1, &said)] {
        let stop = line_with(said, "it ends with:").split(":               ").nth(1).unwrap();
        assert!(hosts.shell(host, stop).contains("has ended"));
    }
    assert_eq!(hosts.processes(), []);
}

#[test]
fn a_scan_from_another_host_finds_one_port_of_each_node_and_nothing_but_tls_answers_there() {
    let Some(hosts) = Hosts::up("scan", 3) else { return };
    let head = hosts.head(&[]);
    let member = hosts.join(2, &[]);
    let mut driver = hosts.driver(1);
    assert_eq!(hosts.host_of(&driver.ask("place h2")), 2);
    for node in [&head, &member] {
        let address: std::net::SocketAddr = node.address().parse().unwrap();
        let open = |port: &u16| std::net::TcpStream::connect((address.ip(), *port)).is_ok();
        let found: Vec<u16> = hosts.lab.run(3, || (1..=u16::MAX).filter(open).collect()).unwrap();
        assert_eq!(found, [address.port()], "{}", node.name);
        let plain: [&[u8]; 3] = [b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n", &[0xff; 64]];
        for words in plain {
            assert_eq!(hosts.lab.run(3, || answer_to(address, words)).unwrap(), None, "{words:?}");
        }
        // The first byte of an alert or of a handshake: TLS, and of no certificate or older version anything more.
        let hello = hosts.lab.run(3, || answer_to(address, b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03")).unwrap();
        assert!(hello.is_none_or(|byte| byte == 0x15), "{hello:?}");
    }
    assert_eq!(hosts.host_of(&driver.ask("place h2")), 2, "the cluster goes on");
}

/// The first byte of what comes back, if anything does before the connection is closed.
fn answer_to(address: std::net::SocketAddr, words: &[u8]) -> Option<u8> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(words);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut heard = [0];
    matches!(stream.read(&mut heard), Ok(1)).then_some(heard[0])
}
