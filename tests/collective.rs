//! Collective groups whose members are on hosts of their own: every verb, members that die with their process or their host,
//! and members that disagree.
//!
//! This binary plays the drivers as well: see [`hosts`].
#![allow(clippy::unwrap_used, missing_docs)]

mod hosts;
mod support;

use std::time::Duration;

use bireme::collective::{Group, Op};
use bireme::{Array, ObjectRef};
use hosts::{Driver, Hosts};
use rustix::process::Signal;
use support::{PATIENCE, Watch, eventually};

/// In messages between members; streamed between nodes, with segments of different lengths.
const LENGTHS: [usize; 2] = [7, 250_001];

pub struct Member;

fn ramp(len: usize, rank: usize) -> Vec<f32> {
    (0..len).map(|at| (at % 97) as f32 + rank as f32).collect()
}

fn sum(len: usize, size: usize) -> Vec<f32> {
    (0..len).map(|at| (0..size).map(|rank| (at % 97) as f32 + rank as f32).sum()).collect()
}

fn check(what: &str, found: &Array, expected: &[f32]) -> Result<(), String> {
    let found = found.as_slice::<f32>().map_err(|error| error.to_string())?;
    if found == expected { Ok(()) } else { Err(format!("{what} is wrong")) }
}

fn all_verbs(group: &Group, len: usize) -> Result<(), String> {
    let words = |error: bireme::Error| error.to_string();
    let (rank, size) = (group.rank().map_err(words)?, group.size());
    let own = Array::from(ramp(len, rank));
    check("all_reduce", &group.all_reduce(&own, Op::Sum).map_err(words)?, &sum(len, size))?;
    for root in 0..size {
        check("broadcast", &group.broadcast(&own, root).map_err(words)?, &ramp(len, root))?;
        if let Some(made) = group.reduce(&own, Op::Sum, root).map_err(words)? {
            check("reduce", &made, &sum(len, size))?;
        }
        for (from, made) in group.gather(&own, root).map_err(words)?.into_iter().flatten().enumerate() {
            check("gather", &made, &ramp(len, from))?;
        }
        let given: Vec<Array> = (0..size).map(|to| Array::from(ramp(len, to + root))).collect();
        let made = group.scatter((rank == root).then_some(&given), root).map_err(words)?;
        check("scatter", &made, &ramp(len, rank + root))?;
    }
    for (from, made) in group.all_gather(&own).map_err(words)?.iter().enumerate() {
        check("all_gather", made, &ramp(len, from))?;
    }
    let given: Vec<Array> = (0..size).map(|to| Array::from(ramp(len, 10 * rank + to))).collect();
    for (from, made) in group.all_to_all(&given).map_err(words)?.iter().enumerate() {
        check("all_to_all", made, &ramp(len, 10 * from + rank))?;
    }
    let whole = Array::from(ramp(len * size, rank));
    let part = sum(len * size, size)[rank * len..(rank + 1) * len].to_vec();
    check("reduce_scatter", &group.reduce_scatter(&whole, Op::Sum).map_err(words)?, &part)?;
    if rank + 1 < size {
        group.send(&own, rank + 1, 5).map_err(words)?;
    }
    if rank > 0 {
        check("recv", &group.recv(rank - 1, 5).map_err(words)?, &ramp(len, rank - 1))?;
    }
    group.barrier().map_err(words)
}

#[bireme::actor]
impl Member {
    pub fn new() -> Self {
        Member
    }

    pub fn pid(&self) -> i32 {
        support::my_pid()
    }

    /// Does every verb, and says what is wrong.
    pub fn verbs(&self, group: Group) -> Result<String, String> {
        for len in LENGTHS {
            all_verbs(&group, len).map_err(|wrong| format!("{len} elements: {wrong}"))?;
        }
        Ok("right".to_owned())
    }

    /// One call; how it ended.
    pub fn reduce(&self, group: Group, len: usize) -> String {
        let ended = group.all_reduce(&Array::from(vec![1.0_f32; len]), Op::Sum);
        ended.map_or_else(|error| error.to_string(), |made| made.as_slice::<f32>().unwrap()[0].to_string())
    }
}

/// The part of a driver: members on hosts 2, 3, ..., until its standard input ends.
#[test]
fn a_driver_when_the_environment_asks_for_it() {
    let mut members: Vec<MemberHandle> = Vec::new();
    let mut group = None;
    let mut open: Vec<ObjectRef<String>> = Vec::new();
    hosts::be_a_driver(|words| {
        Ok(match *words {
            ["members", ref hosts @ ..] => {
                let made = hosts.iter().map(|host| Member::options().cpus(0.1).resource(host, 1.0).remote());
                members = made.collect();
                let pids: Vec<String> = members.iter().map(|m| m.pid().get().unwrap().to_string()).collect();
                pids.join(" ")
            }
            ["group", seconds] => {
                let timeout = Duration::from_secs_f64(seconds.parse().unwrap());
                group = Some(Group::of(members.iter().map(MemberHandle::id)).unwrap().timeout(timeout));
                "made".to_owned()
            }
            ["verbs"] => {
                let calls: Vec<_> = members.iter().map(|member| member.verbs(group.clone().unwrap())).collect();
                let ends = calls.iter().map(|call| call.get().unwrap_or_else(|error| error.to_string()));
                ends.collect::<Vec<_>>().join("; ").replace('\n', " ")
            }
            ["begin", len, ref ranks @ ..] => {
                let ranks = ranks.iter().map(|rank| rank.parse::<usize>().unwrap());
                let begin = |rank: usize| members[rank].reduce(group.clone().unwrap(), len.parse::<usize>().unwrap());
                open = ranks.map(begin).collect();
                "begun".to_owned()
            }
            ["end"] => {
                let ends = open.iter().map(|call| call.get().unwrap_or_else(|error| error.to_string()));
                ends.collect::<Vec<_>>().join("; ").replace('\n', " ")
            }
            _ => panic!("{words:?} is no command"),
        })
    });
}

/// A cluster with a driver on the head's host, and members on so many others; the processes of the members.
fn members(name: &str, count: u8) -> Option<(Hosts, Vec<hosts::Node>, Driver, Vec<i32>)> {
    let hosts = Hosts::up(name, count + 1)?;
    let mut nodes = vec![hosts.head(&[])];
    nodes.extend(hosts.join_all(2..=count + 1, &[]));
    let mut driver = hosts.driver(1);
    let places: Vec<String> = (2..=count + 1).map(|host| format!("h{host}")).collect();
    let pids = driver.ask(&format!("members {}", places.join(" ")));
    let pids = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    Some((hosts, nodes, driver, pids))
}

/// Bytes of objects in the stores of all nodes.
fn objects_of_all(hosts: &Hosts) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&hosts.bireme_ok(1, &["status", "--json"])).unwrap();
    let nodes = status["nodes"].as_array().unwrap();
    nodes.iter().map(|node| node["object_bytes"].as_u64().unwrap()).sum()
}

#[test]
fn members_on_hosts_of_their_own_do_every_verb() {
    let Some((hosts, _nodes, mut driver, _)) = members("groups", 3) else { return };
    driver.ask("group 30");
    assert_eq!(driver.ask("verbs"), "right; right; right");
    eventually("what calls used and made is freed", || objects_of_all(&hosts) == 0);
    driver.end();
}

#[test]
fn members_that_share_a_host_do_every_verb() {
    let Some((_hosts, _nodes, mut driver, _)) = members("shared", 2) else { return };
    driver.ask("members h2 h3 h2 h3");
    driver.ask("group 30");
    assert_eq!(driver.ask("verbs"), "right; right; right; right");
    driver.end();
}

#[test]
fn a_member_that_is_killed_is_named_to_those_on_other_hosts_and_leaves_nothing_there() {
    let Some((hosts, _nodes, mut driver, pids)) = members("killed", 3) else { return };
    driver.ask("group 30");
    driver.ask("begin 7 0 1 2");
    assert_eq!(driver.ask("end"), "3; 3; 3");
    driver.ask(&format!("begin {} 0 2", LENGTHS[1]));
    let dead = Watch::new(pids[1]);
    dead.kill(Signal::KILL);
    assert!(dead.ended_within(PATIENCE));
    let ends = driver.ask("end");
    assert_eq!(ends.matches("rank 1 (").count(), 2, "{ends}");
    driver.ask("begin 7 0 2");
    let ends = driver.ask("end");
    assert_eq!(ends.matches("is dead").count(), 2, "{ends}");
    driver.end();
    eventually("nothing of the group is left in any store", || objects_of_all(&hosts) == 0);
}

#[test]
fn a_member_whose_host_is_gone_is_named_to_the_others() {
    let Some((_hosts, nodes, mut driver, _)) = members("lost", 3) else { return };
    driver.ask("group 60");
    driver.ask("begin 7 0 1 2");
    assert_eq!(driver.ask("end"), "3; 3; 3");
    driver.ask(&format!("begin {} 0 1", LENGTHS[1]));
    nodes[3].kill();
    let ends = driver.ask("end");
    assert_eq!(ends.matches("rank 2").count(), 2, "{ends}");
    driver.end();
}

#[test]
fn a_member_that_does_not_come_is_named_by_those_on_other_hosts() {
    let Some((_hosts, _nodes, mut driver, _)) = members("missing", 3) else { return };
    for len in LENGTHS {
        driver.ask("group 1.5");
        driver.ask(&format!("begin {len} 0 1 2"));
        assert_eq!(driver.ask("end"), "3; 3; 3");
        driver.ask(&format!("begin {len} 0 2"));
        let ends = driver.ask("end");
        assert_eq!(ends.matches("for rank 1 (").count(), 2, "{ends}");
    }
    driver.end();
}
