//! Models of the doorbell: no interleaving loses a message or a wake-up.
//!
//! A lost wake-up shows as a deadlock, which loom reports. The futex is a mutex
//! and a condition variable (see `sync`), the eventfd the same, the ring one atomic counter.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::words::{Connection, Sleeper, Words};
use crate::sync::Knocker;

struct Process {
    words: Words,
    knocker: Knocker,
    /// Published messages of two connections, as their rings' tails.
    tails: [AtomicU64; 2],
}

impl Process {
    fn new() -> Arc<Self> {
        Arc::new(Self { words: Words::new(), knocker: Knocker::new(), tails: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    fn send(&self, connection: u16, messages: u64, force: bool) {
        self.tails[usize::from(connection)].store(messages, Ordering::Release);
        let connection = Connection::new(connection).expect("in range");
        self.words.ring(connection, force, &self.knocker);
    }

    /// Drains what is ready and returns the tails as last seen.
    fn drain(&self, seen: &mut [u64; 2]) {
        self.words.take_ready(|connection| {
            let index = usize::from(connection.index());
            seen[index] = self.tails[index].load(Ordering::Acquire);
        });
    }

    /// Drains as `who` until the tails are there.
    fn drain_until(&self, who: Sleeper, wanted: [u64; 2]) {
        let mut seen = [0; 2];
        loop {
            self.drain(&mut seen);
            if seen == wanted {
                return;
            }
            if self.words.prepare_sleep(who) {
                self.words.sleep(who, None);
            }
        }
    }

    /// Drains as a pump that sleeps in its poller.
    fn poll_until(&self, wanted: [u64; 2]) {
        let mut seen = [0; 2];
        for sleep in 0.. {
            self.drain(&mut seen);
            if seen == wanted {
                return;
            }
            if self.words.prepare_poll(sleep) {
                self.knocker.wait();
                self.words.set_awake(Sleeper::Pump);
            }
        }
    }
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

#[test]
fn loom_a_sleeping_pump_never_misses_a_message() {
    model(|| {
        let process = Process::new();
        let peer = process.clone();
        let producer = thread::spawn(move || {
            peer.send(0, 1, false);
            peer.send(0, 2, false);
        });
        process.drain_until(Sleeper::Pump, [2, 0]);
        producer.join().expect("the producer ends");
    });
}

#[test]
fn loom_two_producers_on_one_doorbell_are_both_heard() {
    model(|| {
        let process = Process::new();
        let producers = [0, 1].map(|connection| {
            let peer = process.clone();
            thread::spawn(move || peer.send(connection, 1, false))
        });
        process.drain_until(Sleeper::Pump, [1, 1]);
        for producer in producers {
            producer.join().expect("the producer ends");
        }
    });
}

#[test]
fn loom_a_sleeping_caller_never_misses_its_reply() {
    model(|| {
        let process = Process::new();
        let peer = process.clone();
        let producer = thread::spawn(move || peer.send(0, 1, false));
        process.words.enter_caller();
        process.drain_until(Sleeper::Caller, [1, 0]);
        process.words.leave_caller(&process.knocker);
        producer.join().expect("the producer ends");
    });
}

#[test]
fn loom_what_arrives_while_a_caller_leaves_reaches_the_pump() {
    model(|| {
        let process = Process::new();
        let peer = process.clone();
        let producer = thread::spawn(move || peer.send(0, 1, false));
        process.words.enter_caller();
        let caller = process.clone();
        let caller = thread::spawn(move || {
            // Its reply was there all along: it does not drain again.
            caller.words.leave_caller(&caller.knocker);
        });
        // The pump's side of the drain lock: it does not drain beside a caller.
        loop {
            if !process.words.caller_is_present() {
                let mut seen = [0; 2];
                process.drain(&mut seen);
                if seen == [1, 0] {
                    break;
                }
            }
            if process.words.prepare_sleep(Sleeper::Pump) {
                process.words.sleep(Sleeper::Pump, None);
            }
        }
        caller.join().expect("the caller ends");
        producer.join().expect("the producer ends");
    });
}

#[test]
fn loom_a_successor_repairs_what_a_producer_killed_midway_left() {
    model(|| {
        let process = Process::new();
        // Killed after the ready bit, before the summary.
        process.words.mark_ready_only(Connection::new(0).expect("in range"));
        let peer = process.clone();
        let successor = thread::spawn(move || peer.send(0, 1, true));
        process.drain_until(Sleeper::Pump, [1, 0]);
        successor.join().expect("the successor ends");
    });
}

#[test]
fn loom_a_pump_in_its_poller_never_misses_a_message() {
    model(|| {
        let process = Process::new();
        let peer = process.clone();
        let producer = thread::spawn(move || {
            peer.send(0, 1, false);
            peer.send(0, 2, false);
        });
        process.poll_until([2, 0]);
        producer.join().expect("the producer ends");
    });
}

#[test]
fn loom_two_producers_that_knock_are_both_heard() {
    model(|| {
        let process = Process::new();
        let producers = [0, 1].map(|connection| {
            let peer = process.clone();
            thread::spawn(move || peer.send(connection, 1, false))
        });
        process.poll_until([1, 1]);
        for producer in producers {
            producer.join().expect("the producer ends");
        }
    });
}

#[test]
fn loom_what_arrives_while_a_caller_leaves_reaches_the_poller() {
    model(|| {
        let process = Process::new();
        let peer = process.clone();
        let producer = thread::spawn(move || peer.send(0, 1, false));
        process.words.enter_caller();
        let caller = process.clone();
        let caller = thread::spawn(move || {
            caller.words.leave_caller(&caller.knocker);
        });
        for sleep in 0.. {
            if !process.words.caller_is_present() {
                let mut seen = [0; 2];
                process.drain(&mut seen);
                if seen == [1, 0] {
                    break;
                }
            }
            if process.words.prepare_poll(sleep) {
                process.knocker.wait();
                process.words.set_awake(Sleeper::Pump);
            }
        }
        caller.join().expect("the caller ends");
        producer.join().expect("the producer ends");
    });
}

#[test]
fn loom_a_producer_killed_after_its_knock_leaves_nobody_asleep() {
    model(|| {
        let process = Process::new();
        let producers = [0, 1].map(|connection| {
            let peer = process.clone();
            thread::spawn(move || {
                if connection == 0 {
                    peer.tails[0].store(1, Ordering::Release);
                    let connection = Connection::new(0).expect("in range");
                    peer.words.ring_and_only_knock(connection, &peer.knocker);
                } else {
                    peer.send(1, 1, false);
                }
            })
        });
        process.poll_until([1, 1]);
        for producer in producers {
            producer.join().expect("the producer ends");
        }
    });
}
