//! One value to many nodes: they pass it on to each other, go on when one of them dies, and drop it when it is freed.
//!
//! Hosts have links of a given speed, and what each has sent and got is read from its network device. This binary plays the
//! drivers as well: see [`hosts`].
#![allow(clippy::unwrap_used, missing_docs)]

mod hosts;
mod support;

use std::collections::BTreeMap;

use bireme::{Bytes, ObjectRef};
use bireme_netlab::Rate;
use hosts::{Driver, Hosts};
use support::{PATIENCE, eventually};

/// A value of which no byte or word can be wrong without being seen.
fn pattern(len: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_u32;
    let next = |_| {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (word >> 24) as u8
    };
    (0..len).map(next).collect()
}

#[bireme::remote]
fn judge(bytes: Bytes) -> String {
    if *bytes == pattern(bytes.len())[..] { "right" } else { "wrong" }.to_owned()
}

#[bireme::remote]
fn make(len: usize) -> Bytes {
    Bytes::from(pattern(len))
}

/// What a driver keeps between two lines.
#[derive(Default)]
struct Kept {
    values: BTreeMap<String, ObjectRef<Bytes>>,
    judgements: BTreeMap<String, ObjectRef<String>>,
}

/// The part of a driver, until its standard input ends.
#[test]
fn a_driver_when_the_environment_asks_for_it() {
    let mut kept = Kept::default();
    hosts::be_a_driver(|words| answer(words, &mut kept));
}

fn answer(words: &[&str], kept: &mut Kept) -> bireme::Result<String> {
    match *words {
        ["put", name, len] => {
            kept.values.insert(name.to_owned(), bireme::put(Bytes::from(pattern(len.parse().unwrap())))?);
            Ok("put".to_owned())
        }
        ["make", name, host, len] => {
            kept.values
                .insert(name.to_owned(), make::options().resource(host, 1.0).remote(len.parse::<usize>().unwrap()));
            Ok("called".to_owned())
        }
        ["drop", name] => {
            kept.values.remove(name);
            kept.judgements.clear();
            Ok("dropped".to_owned())
        }
        // Begins on each of the hosts, without a wait.
        ["judge", name, ref hosts @ ..] => {
            for host in hosts {
                let judgement = judge::options().resource(host, 1.0).remote(&kept.values[name]);
                kept.judgements.insert((*host).to_owned(), judgement);
            }
            Ok("called".to_owned())
        }
        ["verdict", ref hosts @ ..] => {
            let verdicts = hosts.iter().map(|host| kept.judgements[*host].get_timeout(PATIENCE));
            Ok(verdicts.collect::<bireme::Result<Vec<_>>>()?.join(" "))
        }
        ["broadcast", name] => bireme::broadcast(&kept.values[name], None).map(|()| "begun".to_owned()),
        ["broadcast", name, node] => {
            let node = bireme::NodeId(node.parse().unwrap());
            bireme::broadcast(&kept.values[name], Some(&[node])).map(|()| "begun".to_owned())
        }
        ref other => panic!("no such part: {other:?}"),
    }
}

/// Bytes that a host has got and sent since it is there.
fn traffic(hosts: &Hosts, host: u8) -> (u64, u64) {
    let devices = hosts.lab.run(host, || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    let outside = devices.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() != "lo");
    outside.fold((0, 0), |(got, sent), (_, numbers)| {
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        (got + numbers[0], sent + numbers[8])
    })
}

/// A head on host 1 with a driver, and nodes on the others that have run a task, on links of this speed.
fn cluster(hosts: &Hosts, last: u8, rate: Rate) -> (Vec<hosts::Node>, Driver) {
    let mut nodes = vec![hosts.head(&["--num-cpus", "0"])];
    nodes.extend(hosts.join_all(2..=last, &[]));
    nodes.sort_by_key(|node| node.host);
    let mut driver = hosts.driver(1);
    let all: Vec<String> = (2..=last).map(|host| format!("h{host}")).collect();
    assert_eq!(driver.ask("put warm 100000"), "put");
    assert_eq!(driver.ask(&format!("judge warm {}", all.join(" "))), "called");
    assert_eq!(driver.ask(&format!("verdict {}", all.join(" "))), vec!["right"; all.len()].join(" "));
    driver.ask("drop warm");
    for host in 1..=last {
        hosts.lab.rate(host, rate).unwrap();
    }
    (nodes, driver)
}

fn objects_are_gone(hosts: &Hosts, nodes: usize) {
    eventually("no node has an object", || {
        let told: serde_json::Value = serde_json::from_str(&hosts.bireme_ok(1, &["status", "--json"])).unwrap();
        let rows = told["nodes"].as_array().unwrap();
        let alive: Vec<_> = rows.iter().filter(|row| row["object_bytes"].is_u64()).collect();
        alive.len() >= nodes && alive.iter().all(|row| row["object_bytes"] == 0)
    });
}

const SIZE: u64 = 16 << 20;

#[test]
fn nodes_that_read_a_value_together_pass_it_on_and_its_source_sends_it_once() {
    let Some(hosts) = Hosts::up("together", 5) else { return };
    let (_nodes, mut driver) = cluster(&hosts, 5, Rate::megabits(100));
    assert_eq!(driver.ask(&format!("put value {SIZE}")), "put");
    let before: Vec<_> = (1..=5).map(|host| traffic(&hosts, host)).collect();
    assert_eq!(driver.ask("judge value h2 h3 h4 h5"), "called");
    assert_eq!(driver.ask("verdict h2 h3 h4 h5"), "right right right right");
    let after: Vec<_> = (1..=5).map(|host| traffic(&hosts, host)).collect();
    let sent: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after.1 - before.1).collect();
    assert!(sent[0] < SIZE * 3 / 2, "the source sent {sent:?}, the value has {SIZE}");
    for got in after.iter().zip(&before).skip(1).map(|(after, before)| after.0 - before.0) {
        assert!((SIZE..SIZE * 5 / 4).contains(&got), "each got it once: {got}");
    }
    driver.ask("drop value");
    objects_are_gone(&hosts, 5);
}

#[test]
fn who_loses_its_sender_in_the_middle_goes_on_from_there_and_so_do_those_behind_it() {
    let Some(hosts) = Hosts::up("middle", 4) else { return };
    let (nodes, mut driver) = cluster(&hosts, 4, Rate::megabits(50));
    assert_eq!(driver.ask(&format!("put value {SIZE}")), "put");
    let before: Vec<_> = (1..=4).map(|host| traffic(&hosts, host)).collect();
    let got = |host: u8| traffic(&hosts, host).0 - before[usize::from(host) - 1].0;
    // One after another, so that it is known who sends to whom.
    for host in 2..=4u8 {
        assert_eq!(driver.ask(&format!("judge value h{host}")), "called");
        eventually("the value begins to arrive", || got(host) > SIZE / 32);
    }
    eventually("more than half is there", || got(3) > SIZE * 6 / 10);
    nodes[1].kill();
    assert_eq!(driver.ask("verdict h3 h4"), "right right");
    for host in [3, 4] {
        assert!(got(host) < SIZE * 5 / 4, "host {host} got {} of {SIZE}: it began anew", got(host));
    }
}

#[test]
fn a_value_is_sent_ahead_also_before_it_is_made_and_stops_when_it_is_freed() {
    let Some(hosts) = Hosts::up("ahead", 3) else { return };
    let (_nodes, mut driver) = cluster(&hosts, 3, Rate::megabits(50));
    let before: Vec<_> = (1..=3).map(|host| traffic(&hosts, host)).collect();
    let got = |host: u8| traffic(&hosts, host).0 - before[usize::from(host) - 1].0;
    let unknown = driver.ask(&format!("make value h2 {SIZE}"));
    assert_eq!(unknown, "called");
    assert_eq!(driver.ask("broadcast value"), "begun");
    eventually("it is on all nodes", || got(1) > SIZE && got(3) > SIZE);
    let sent = traffic(&hosts, 2).1 - before[1].1;
    assert!(sent < SIZE * 3 / 2, "the source sent {sent}, the value has {SIZE}");
    let error = driver.ask("broadcast value 77");
    assert!(error.starts_with("error") && error.contains("node-77"), "{error}");
    driver.ask("drop value");
    objects_are_gone(&hosts, 3);
    // Freed while it is under way: it stops.
    assert_eq!(driver.ask(&format!("put other {SIZE}")), "put");
    let already = got(3);
    assert_eq!(driver.ask("broadcast other"), "begun");
    eventually("it begins to arrive", || got(3) - already > SIZE / 32);
    driver.ask("drop other");
    objects_are_gone(&hosts, 3);
    assert!(got(3) - already < SIZE * 3 / 4, "it came although nobody could want it");
}
