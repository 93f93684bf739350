//! A soak: work that is checked, on a cluster whose nodes come and go all the time, for as long as one likes.
//!
//! `cargo xtask soak --minutes 10`, or as a test for some seconds. The first node and one member stay; the others are
//! stopped, drained or killed and start again, every few seconds. What can be done again must come out right whatever
//! happens; a value whose only copy was on a node that went is an error which says so, and is made again here. At the end
//! processes, descriptors and memory of those who stayed are what they were, and nothing is left of anybody.
#![allow(clippy::unwrap_used, missing_docs)]

mod hosts;
#[path = "soak/load.rs"]
mod load;
#[path = "soak/measure.rs"]
mod measure;
mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bireme::Config;
use hosts::{Hosts, Node};
use load::{Counts, Load};
use measure::{Sample, Use};
use support::{PATIENCE, eventually};

/// How long, in seconds.
const SECONDS: &str = "BIREME_SOAK_SECONDS";
const SECONDS_DEFAULT: u64 = 20;
/// From which host on nodes come and go.
const FIRST_GUEST: u8 = 3;
const HOSTS: u8 = 5;
/// By this they can be asked for.
const GUEST_FLAGS: [&str; 2] = ["--resources", "guest=1000"];
/// Lines with figures come this often, or five times in a short run.
const LINE: Duration = Duration::from_secs(30);

/// Between a node that comes and one that goes.
const PAUSE: Duration = Duration::from_millis(1_500);

/// How a node leaves.
#[derive(Clone, Copy)]
enum Leave {
    Killed,
    Stopped,
    Drained,
}

/// Nodes that come and go.
struct Churn<'a> {
    hosts: &'a Hosts,
    guests: Vec<Node>,
    left: [u64; 3],
    word: u64,
}

impl Churn<'_> {
    fn random(&mut self, below: u64) -> u64 {
        self.word ^= self.word << 13;
        self.word ^= self.word >> 7;
        self.word ^= self.word << 17;
        self.word % below
    }

    /// One node leaves and another comes in its place.
    fn turn(&mut self) {
        let at = self.random(self.guests.len() as u64) as usize;
        let leave = [Leave::Killed, Leave::Stopped, Leave::Drained][self.random(3) as usize];
        let guest = self.guests.swap_remove(at);
        match leave {
            Leave::Killed => guest.kill(),
            Leave::Stopped => drop(self.hosts.bireme_ok(guest.host, &["stop", "--address", guest.address()])),
            Leave::Drained => {
                self.hosts.bireme_ok(1, &["drain", &guest.name, "--deadline", "5s"]);
                assert!(guest.watch.ended_within(PATIENCE), "{} was drained and is still there", guest.name);
            }
        }
        self.left[leave as usize] += 1;
        self.guests.push(self.hosts.join(guest.host, &GUEST_FLAGS));
    }
}

fn seconds() -> u64 {
    std::env::var(SECONDS).map_or(SECONDS_DEFAULT, |text| text.parse().expect("the variable has a number of seconds"))
}

/// Objects that nodes of the cluster have, as people are told: those that stay, and all.
fn objects(hosts: &Hosts) -> (u64, u64) {
    let status: serde_json::Value = serde_json::from_str(&hosts.bireme_ok(1, &["status", "--json"])).unwrap();
    let nodes = status["nodes"].as_array().unwrap();
    let objects = |node: &serde_json::Value| node["objects"].as_u64().unwrap();
    let stay = nodes.iter().filter(|node| node["node"].as_u64().unwrap() < u64::from(FIRST_GUEST));
    (stay.map(objects).sum(), nodes.iter().map(objects).sum())
}

/// Those who stay, by name and process.
type Staying = [(&'static str, i32); 3];

/// Works, while nodes come and go, for so long. What was used meanwhile.
fn work(length: Duration, staying: Staying, counts: &Counts, churn: &mut Churn<'_>) -> Vec<Sample> {
    let (stop, turns, start) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    let hosts = churn.hosts;
    std::thread::scope(|scope| {
        let loads: Vec<_> = Load::ALL.iter().map(|load| scope.spawn(|| load.run(&stop, counts))).collect();
        let (end_churn, churn_ends) = channel::<()>();
        let turns = &turns;
        let churning = scope.spawn(move || {
            while churn_ends.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                churn.turn();
                turns.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut samples = Vec::new();
        let (_tick, ticks) = channel::<()>();
        // One that ends by itself has failed.
        while start.elapsed() < length && !churning.is_finished() && !loads.iter().any(|load| load.is_finished()) {
            let _ = ticks.recv_timeout(LINE.min(length / 5));
            let sample =
                Sample::take(start.elapsed(), counts, turns.load(Ordering::Relaxed), objects(hosts).0, staying);
            println!("{}", sample.json());
            samples.push(sample);
        }
        drop(end_churn);
        stop.store(true, Ordering::Relaxed);
        churning.join().unwrap();
        for load in loads {
            load.join().unwrap();
        }
        samples
    })
}

#[test]
fn work_comes_out_right_while_nodes_come_and_go_and_nothing_grows() {
    let _turn = support::turn();
    let Some(hosts) = Hosts::up("soak", HOSTS) else { return };
    let (head, member) = (hosts.head(&[]), hosts.join(2, &[]));
    let guests = hosts.join_all(FIRST_GUEST..=HOSTS, &GUEST_FLAGS);
    let socket = Path::new(head.said["socket"].as_str().unwrap());
    let context = bireme::init_with(Config::default().address(socket.parent().unwrap().to_str().unwrap())).unwrap();
    let counts = Counts::default();
    let mut churn = Churn { hosts: &hosts, guests, left: [0; 3], word: 0x9e37_79b9_7f4a_7c15 };
    let staying = [("head", head.watch.pid), ("member", member.watch.pid), ("driver", support::my_pid())];
    let samples = work(Duration::from_secs(seconds()), staying, &counts, &mut churn);
    eventually("what was held is given back", || {
        let now = bireme::resources().unwrap();
        now.total.cpus == now.free.cpus
    });
    context.shutdown();
    eventually("only nodes are left on the hosts", || {
        hosts.processes().iter().all(|(_, _, words)| words.contains("bireme start"))
    });
    eventually("no node has an object of a program that is gone", || objects(&hosts).1 == 0);
    let at_rest: serde_json::Map<_, _> =
        staying.iter().map(|(name, pid)| ((*name).to_owned(), Use::of(*pid).json())).collect();
    for host in (1..=HOSTS).rev() {
        hosts.bireme_ok(host, &["stop", "--all"]);
    }
    assert_eq!(hosts.processes(), []);
    let growth = measure::growth(&samples);
    let [killed, stopped, drained] = churn.left;
    let verdict = if growth.is_empty() { "ok" } else { "it grows" };
    let left = serde_json::json!({ "killed": killed, "stopped": stopped, "drained": drained });
    let done = counts.json();
    println!(
        "{}",
        serde_json::json!({ "verdict": verdict, "left": left, "done": done, "at_rest": at_rest, "growth": growth })
    );
    assert!(growth.is_empty(), "{growth:?}");
    assert!(counts.total() > 0 && killed + stopped + drained > 0, "a soak in which nothing happened");
}
