//! The work of a soak: each kind calls, checks what comes back, and calls again until it is told to stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bireme::{Bytes, Error, ObjectRef};

use crate::support::PATIENCE;

/// Deaths that one task may meet.
const RETRIES: u32 = 1_000;
/// What only nodes have that come and go.
const GUEST: &str = "guest";
/// Tasks that are called together.
const BATCH: u64 = 40;
const LARGE_BYTES: usize = 1 << 20;

#[bireme::remote]
fn double(n: u64) -> u64 {
    2 * n
}

/// Takes a moment, so that many are under way when a node goes.
#[bireme::remote]
fn slow(n: u64) -> u64 {
    let until = std::time::Instant::now() + std::time::Duration::from_millis(20);
    while std::time::Instant::now() < until {
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
    n + 1
}

#[bireme::remote]
fn tree(depth: u64) -> bireme::Result<u64> {
    if depth == 0 {
        return Ok(1);
    }
    let below: Vec<_> = (0..2).map(|_| tree::options().retries(RETRIES).remote(depth - 1)).collect();
    Ok(bireme::get_all(&below)?.iter().sum::<u64>() + 1)
}

#[bireme::remote]
fn large(with: u8) -> Bytes {
    Bytes::from(vec![with; LARGE_BYTES])
}

#[bireme::remote]
fn total(bytes: Bytes) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

pub struct Tally(u64);

#[bireme::actor]
impl Tally {
    pub fn new() -> Self {
        Tally(0)
    }

    pub fn add(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// What was done so far.
#[derive(Default)]
pub struct Counts {
    plain: AtomicU64,
    slow: AtomicU64,
    trees: AtomicU64,
    large: AtomicU64,
    calls: AtomicU64,
    lost: AtomicU64,
    dead_actors: AtomicU64,
}

impl Counts {
    pub fn total(&self) -> u64 {
        [&self.plain, &self.slow, &self.trees, &self.large, &self.calls]
            .map(|count| count.load(Ordering::Relaxed))
            .iter()
            .sum()
    }

    pub fn json(&self) -> serde_json::Value {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        serde_json::json!({
            "plain": read(&self.plain), "slow": read(&self.slow), "trees": read(&self.trees),
            "large": read(&self.large), "actor_calls": read(&self.calls),
            "lost_values": read(&self.lost), "dead_actors": read(&self.dead_actors),
        })
    }
}

/// A kind of work.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    Plain,
    Slow,
    Trees,
    Large,
    Put,
    Actors,
}

impl Load {
    pub const ALL: [Self; 6] = [Self::Plain, Self::Slow, Self::Trees, Self::Large, Self::Put, Self::Actors];

    pub fn run(self, stop: &AtomicBool, counts: &Counts) {
        let mut round = 0;
        while !stop.load(Ordering::Relaxed) {
            match self {
                Self::Plain => plain(round, counts),
                Self::Slow => slows(round, counts),
                Self::Trees => trees(counts),
                Self::Large => larges(round, counts),
                Self::Put => puts(round, counts),
                Self::Actors => actors(counts),
            }
            round += 1;
        }
    }
}

/// The value, or what was wrong in words that say for what it was.
fn value<T: bireme::Value>(what: &str, reference: &ObjectRef<T>) -> T {
    reference.get_timeout(PATIENCE).unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn add(count: &AtomicU64, n: u64) {
    count.fetch_add(n, Ordering::Relaxed);
}

fn plain(round: u64, counts: &Counts) {
    let calls: Vec<_> = (0..BATCH).map(|n| double::options().retries(RETRIES).remote(round + n)).collect();
    for (n, call) in (0..).zip(&calls) {
        assert_eq!(value("a plain task", call), 2 * (round + n));
    }
    add(&counts.plain, BATCH);
}

fn slows(round: u64, counts: &Counts) {
    let calls: Vec<_> = (0..BATCH).map(|n| slow::options().retries(RETRIES).remote(round + n)).collect();
    for (n, call) in (0..).zip(&calls) {
        assert_eq!(value("a slow task", call), round + n + 1);
    }
    add(&counts.slow, BATCH);
}

fn trees(counts: &Counts) {
    let call = tree::options().retries(RETRIES).remote(4);
    assert_eq!(value("nested tasks", &call), 31);
    add(&counts.trees, 1);
}

/// A value that is made by a task and read by another, and by this program.
fn larges(round: u64, counts: &Counts) {
    let with = (round % 250) as u8 + 1;
    let made = large::options().retries(RETRIES).resource(GUEST, 1.0).remote(with);
    let summed = total::options().retries(RETRIES).remote(&made);
    let expected = u64::from(with) * LARGE_BYTES as u64;
    match summed.get_timeout(PATIENCE) {
        Ok(sum) => assert_eq!(sum, expected),
        Err(error) => return lost(&error, counts),
    }
    match made.get_timeout(PATIENCE) {
        Ok(bytes) => assert!(bytes.len() == LARGE_BYTES && bytes.iter().all(|byte| *byte == with)),
        Err(error) => return lost(&error, counts),
    }
    add(&counts.large, 1);
}

/// A value of this program, which no death elsewhere can take.
fn puts(round: u64, counts: &Counts) {
    let with = (round % 250) as u8 + 1;
    let put = bireme::put(Bytes::from(vec![with; LARGE_BYTES])).unwrap();
    let sums: Vec<_> = (0..3).map(|_| total::options().retries(RETRIES).remote(&put)).collect();
    for sum in &sums {
        assert_eq!(value("the sum of a value that was put", sum), u64::from(with) * LARGE_BYTES as u64);
    }
    add(&counts.large, 3);
}

/// The one error that may come: of a value whose only copy was on a node that went. It names the node.
fn lost(error: &Error, counts: &Counts) {
    let text = error.to_string();
    assert!(text.contains("lost") && text.contains("node-"), "a large value: {text}");
    add(&counts.lost, 1);
}

/// An actor that lives for some calls, and begins again from nothing when its node goes.
fn actors(counts: &Counts) {
    const CALLS: u64 = 200;
    let tally = Tally::options().restarts(RETRIES).call_retries(RETRIES).resource(GUEST, 1.0).remote();
    let mut last = 0;
    for _ in 0..CALLS {
        let found = value("a call of an actor", &tally.add());
        // One that was made twice counts twice; one that began again counts from 1.
        assert!(found >= 1 && found <= last + 2, "{found} after {last}");
        if found <= last {
            add(&counts.dead_actors, 1);
        }
        last = found;
    }
    add(&counts.calls, CALLS);
}
