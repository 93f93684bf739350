//! More calls than a link can carry at once: they wait for it, and none is lost.
//!
//! This binary plays the driver as well: see [`hosts`].
#![allow(clippy::unwrap_used, missing_docs)]

mod hosts;
mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bireme::{Bytes, ObjectRef};
use bireme_netlab::Rate;
use hosts::Hosts;
use support::PATIENCE;

const ACTORS: usize = 20;
const CALLS_PER_ACTOR: u64 = 1_000;
/// Calls of each actor between two answers of the driver.
const STEP: u64 = 50;
/// Bytes of an argument: inside of the message, and nearly as many as possible.
const ARGUMENT_BYTES: usize = 60_000;

pub struct Checker {
    next: u64,
}

#[bireme::actor]
impl Checker {
    pub fn new() -> Self {
        Checker { next: 0 }
    }

    /// Takes the calls of its one caller, in their order.
    pub fn take(&mut self, number: u64, bytes: Bytes) -> u64 {
        assert_eq!((number, bytes.len(), bytes[0]), (self.next, ARGUMENT_BYTES, number as u8));
        self.next += 1;
        number
    }
}

/// What the driver keeps between two lines.
#[derive(Default)]
struct Kept {
    actors: Vec<CheckerHandle>,
    results: Vec<Vec<ObjectRef<u64>>>,
}

/// The part of the driver, until its standard input ends.
#[test]
fn a_driver_when_the_environment_asks_for_it() {
    let mut kept = Kept::default();
    hosts::be_a_driver(|words| answer(words, &mut kept));
}

fn answer(words: &[&str], kept: &mut Kept) -> bireme::Result<String> {
    let argument = |number: u64| Bytes::from(vec![number as u8; ARGUMENT_BYTES]);
    match *words {
        // Actors on a host, each of which has answered once.
        ["create", host] => {
            kept.actors = (0..ACTORS).map(|_| Checker::options().cpus(0.0).resource(host, 1.0).remote()).collect();
            let first: Vec<_> = kept.actors.iter().map(|actor| actor.take(0, argument(0))).collect();
            first.iter().try_for_each(|call| call.get_timeout(PATIENCE).map(drop))?;
            Ok("created".to_owned())
        }
        // The next calls of every actor, without a wait of ours for any.
        ["call", count] => {
            kept.results.resize_with(ACTORS, Vec::new);
            let done = kept.results[0].len() as u64;
            for number in (done + 1..).take(count.parse().unwrap()) {
                for (actor, results) in kept.actors.iter().zip(&mut kept.results) {
                    results.push(actor.take(number, argument(number)));
                }
            }
            Ok("called".to_owned())
        }
        // How many results of one actor are right.
        ["results", actor] => {
            let mut right = 0;
            for (result, number) in kept.results[actor.parse::<usize>().unwrap()].iter().zip(1..) {
                right += u64::from(result.get_timeout(PATIENCE)? == number);
            }
            Ok(right.to_string())
        }
        _ => panic!("{words:?} is no question"),
    }
}

/// How long a plain connection takes for so many bytes from the first host to the second.
fn raw_time(hosts: &Hosts, bytes: usize) -> Duration {
    let listener = hosts.lab.run(2, || TcpListener::bind((hosts.lab.address(2), 7_100)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = listener.accept().unwrap().0;
            let mut buffer = vec![0; 1 << 20];
            while stream.read(&mut buffer).unwrap() > 0 {}
            stream.write_all(&[1]).unwrap();
        });
        let mut stream = hosts.lab.run(1, || TcpStream::connect(address).unwrap()).unwrap();
        let piece = vec![1; ARGUMENT_BYTES];
        (0..bytes / ARGUMENT_BYTES).for_each(|_| stream.write_all(&piece).unwrap());
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.read_exact(&mut [0]).unwrap();
    });
    begun.elapsed()
}

#[test]
#[ignore = "1.2 GB over a link of 1 Gbit/s, twice: `cargo xtask slow` runs it"]
fn every_call_of_many_to_actors_behind_a_slow_link_completes() {
    let Some(hosts) = Hosts::up("loaded-link", 2) else { return };
    for host in 1..=2 {
        hosts.lab.rate(host, Rate::megabits(1_000)).unwrap();
    }
    let (_head, _member) = (hosts.head(&[]), hosts.join(2, &[]));
    let mut driver = hosts.driver(1);
    assert_eq!(driver.ask("create h2"), "created");
    let begun = Instant::now();
    // All questions at once: the driver never waits for us, and each answer shows that it gets on.
    (0..CALLS_PER_ACTOR / STEP).for_each(|_| driver.tell(&format!("call {STEP}")));
    (0..ACTORS).for_each(|actor| driver.tell(&format!("results {actor}")));
    (0..CALLS_PER_ACTOR / STEP).for_each(|_| assert_eq!(driver.tells("said"), "called"));
    let right: Vec<String> = (0..ACTORS).map(|_| driver.tells("said")).collect();
    let took = begun.elapsed();
    assert_eq!(right, vec![CALLS_PER_ACTOR.to_string(); ACTORS]);
    let raw = raw_time(&hosts, ACTORS * CALLS_PER_ACTOR as usize * ARGUMENT_BYTES);
    let (seconds, times) = (took.as_secs_f64(), took.as_secs_f64() / raw.as_secs_f64());
    println!("{} calls in {seconds:.2} s, {times:.2} x a plain connection", ACTORS as u64 * CALLS_PER_ACTOR);
    driver.end();
}
