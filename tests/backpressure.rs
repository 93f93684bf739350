//! Nodes that take messages more slowly than others have them: who sends waits, and nothing is lost.
//!
//! Links are made slow by a delay at their far end and a queue of 1 MiB at the near one, so that no more than that arrives per delay.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bireme::{Bytes, ClusterChoice, Config};
use support::PATIENCE;

const HEAD: &str = "BIREME_TEST_HEAD";
/// Milliseconds that a member lets what comes wait.
const DELAY: &str = "BIREME_TEST_DELAY";
/// Bytes that may be queued for another node.
const QUEUE_BYTES: usize = 1 << 20;
/// Bytes of an argument: inside of the message, and as many as possible.
const ARGUMENT_BYTES: usize = 60_000;
/// What else there is room for: the ring of a process to its node, and one message.
const RING_BYTES: usize = (1 << 20) + ARGUMENT_BYTES;

pub struct Checker {
    next: u64,
}

#[bireme::actor]
impl Checker {
    pub fn new() -> Self {
        Checker { next: 0 }
    }

    /// Takes the calls of one caller, which come in order.
    pub fn take(&mut self, number: u64, bytes: Bytes) -> u64 {
        assert_eq!((number, bytes.len(), bytes[0]), (self.next, ARGUMENT_BYTES, number as u8));
        self.next += 1;
        number
    }

    pub fn echo(&mut self, bytes: Bytes) -> Bytes {
        Bytes::from(bytes.to_vec())
    }
}

fn choice(head: Option<SocketAddr>, bind: SocketAddr, link_delay: Duration) -> ClusterChoice {
    let link_queue_bytes = QUEUE_BYTES;
    ClusterChoice { head, bind: Some(bind), link_delay, link_queue_bytes, ..Default::default() }
}

/// The part of a member: this program again, with two CPUs, until its standard input ends.
#[test]
fn a_member_when_it_is_asked_for_by_the_environment() {
    let Ok(head) = std::env::var(HEAD) else { return };
    let delay = Duration::from_millis(std::env::var(DELAY).unwrap().parse().unwrap());
    let choice = choice(Some(head.parse().unwrap()), "127.0.0.1:0".parse().unwrap(), delay);
    let _context = bireme::init_with(Config::default().cpus(2.0).cluster(choice)).unwrap();
    println!("joined");
    let _ = std::io::stdin().lines().count();
}

struct Member(Child);

impl Member {
    fn start(head: SocketAddr, delay: Duration) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .env(HEAD, head.to_string())
            .env(DELAY, delay.as_millis().to_string())
            .args(["--exact", "--nocapture", "a_member_when_it_is_asked_for_by_the_environment"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It ends with this, also when it never joins.
        let mut member = Self(child);
        let mut lines = BufReader::new(member.0.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("joined")), "the member never joined");
        member
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A head without CPUs in this process, so that everything runs on members.
fn head(link_delay: Duration) -> (bireme::Context, SocketAddr) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    (bireme::init_with(Config::default().cpus(0.0).cluster(choice(None, port, link_delay))).unwrap(), port)
}

fn argument(number: u64) -> Bytes {
    Bytes::from(vec![number as u8; ARGUMENT_BYTES])
}

#[test]
fn whoever_calls_actors_on_a_slow_node_waits_and_no_call_is_lost() {
    let delay = Duration::from_millis(150);
    let (_context, address) = head(Duration::ZERO);
    let _member = Member::start(address, delay);
    let actors: Vec<_> = (0..8).map(|_| Checker::options().cpus(0.1).remote()).collect();
    let first: Vec<_> = actors.iter().map(|actor| actor.take(0, argument(0))).collect();
    first.into_iter().for_each(|call| assert_eq!(call.get_timeout(PATIENCE).unwrap(), 0));

    let calls = 16 * actors.len();
    let begun = Instant::now();
    let submitted: Vec<_> = (1..=16)
        .flat_map(|number| actors.iter().map(move |actor| (number, actor.take(number, argument(number)))))
        .collect();
    // No more than the queue is on the way at a time, and all but what a ring holds had to go that way.
    let passed = calls * ARGUMENT_BYTES - RING_BYTES;
    let waits = (passed / (QUEUE_BYTES + 2 * ARGUMENT_BYTES)) as u32;
    assert!(waits > 3 && begun.elapsed() >= (waits - 1) * delay, "{:?} for {waits} waits", begun.elapsed());
    for (number, call) in submitted {
        assert_eq!(call.get_timeout(PATIENCE).unwrap(), number);
    }
}

#[test]
fn two_nodes_that_are_slow_to_take_each_other_s_messages_both_get_on() {
    let delay = Duration::from_millis(40);
    let (_context, address) = head(delay);
    let _member = Member::start(address, delay);
    let actors: Vec<_> = (0..4).map(|_| Checker::options().cpus(0.1).remote()).collect();
    // Calls there and results back are each many times what the queues and rings hold.
    let calls: Vec<_> = (0..300_usize).map(|n| (n, actors[n % actors.len()].echo(argument(n as u64)))).collect();
    for (n, call) in calls {
        assert_eq!(call.get_timeout(PATIENCE).unwrap(), argument(n as u64));
    }
}
