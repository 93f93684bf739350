//! Does recording everything leave 300 k tasks/s?
//!
//! A driver submits empty tasks to two worker processes over rings, with many in
//! flight. With recording on, the driver writes a submit record and a worker a
//! started and a result record, 300 bytes each, into rings that a thread of the
//! node drains; each record is published before what it records is. With kills
//! on, a worker is killed with SIGKILL at random moments, and its unfinished
//! tasks run again on its successor. Every task must be answered, and every
//! answered task have its three records at the node.
//!
//! One JSON line per variant. `cargo run --release -p bireme-net --example spike_recording`

#[path = "spike/processes.rs"]
#[allow(dead_code)]
mod processes;

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bireme_net::{Consumer, End, Fabric, RingSpan, Sleeper, SpinMode};
use processes::{Child, Machine, Sender, Waiter, await_quiet, median, receiver, slot};

const TASKS: u64 = 1_000_000;
const ROUNDS: usize = 5;
const WORKERS: usize = 2;
const IN_FLIGHT: usize = 1024;
const BATCH: usize = 64;
const RECORD: [u8; 284] = [7; 284];
const RING: u32 = 1 << 20;
/// The node is rung after so many bytes of records; else it looks by itself.
const RECORDS_PER_RING: u32 = RING / 4 / 300;
const NODE: u16 = 10;

/// A record ring that rings the node seldom.
struct Ledger {
    sender: Sender,
    unrung: u32,
}

impl Ledger {
    fn record(&mut self, kind: u64, task: u64) {
        let head = [kind.to_le_bytes(), task.to_le_bytes()];
        self.sender.stage(&[&head[0], &head[1], &RECORD]);
        self.unrung += 1;
    }

    /// Record before release: what follows may leave the process.
    fn commit(&mut self) {
        if self.unrung >= RECORDS_PER_RING {
            self.unrung = 0;
            self.sender.flush();
        } else {
            self.sender.ring.publish();
        }
    }
}

fn ledger(fabric: &Fabric, span: Option<RingSpan>, number: u16) -> Option<Ledger> {
    let sender = Sender::new(fabric, span?, slot(NODE), number);
    Some(Ledger { sender, unrung: 0 })
}

/// The rings of one worker.
#[derive(Clone, Copy)]
struct Spans {
    tasks: RingSpan,
    replies: RingSpan,
    ledger: Option<RingSpan>,
}

fn worker(fabric: &Fabric, index: usize, spans: Spans) {
    let me = slot(1 + index as u16);
    let mut waiter = Waiter::new(fabric, me, SpinMode::Adaptive);
    let mut tasks = receiver(fabric, spans.tasks);
    let mut replies = Sender::new(fabric, spans.replies, slot(0), index as u16);
    let mut ledger = ledger(fabric, spans.ledger, 1 + index as u16);
    loop {
        let mut done = 0;
        while done < BATCH {
            let task = tasks.pop(|body| black_box(number(body)));
            let Some(task) = task.expect("the driver is sound") else {
                break;
            };
            if let Some(ledger) = &mut ledger {
                ledger.record(1, task);
                ledger.record(2, task);
            }
            replies.ring.try_stage(&[&task.to_le_bytes(), &[0; 24]]).expect("fewer in flight than fit");
            done += 1;
        }
        if done == 0 {
            waiter.wait();
            continue;
        }
        if let Some(ledger) = &mut ledger {
            ledger.commit();
        }
        replies.flush();
    }
}

fn number(body: &[u8]) -> u64 {
    let bytes = body.first_chunk().expect("every frame starts with a number");
    u64::from_le_bytes(*bytes)
}

/// The node's thread: reads and counts records until told to end.
fn node(fabric: &Fabric, ledgers: Vec<RingSpan>, seen: &[AtomicU64; 3], stop: &AtomicBool) {
    let doorbell = fabric.doorbell(slot(NODE));
    let mut rings: Vec<Consumer> = ledgers.iter().map(|span| receiver(fabric, *span)).collect();
    loop {
        let last = stop.load(Ordering::Acquire);
        doorbell.take_ready(|_| ());
        let mut counts = [0; 3];
        for ring in &mut rings {
            let mut read = |body: &[u8]| counts[number(body) as usize % 3] += 1;
            while ring.pop(&mut read).expect("its writer is sound").is_some() {}
        }
        for (total, count) in seen.iter().zip(counts) {
            total.fetch_add(count, Ordering::Relaxed);
        }
        if last {
            return;
        }
        if doorbell.prepare_sleep(Sleeper::Pump) {
            doorbell.sleep(Sleeper::Pump, Some(Duration::from_millis(2)));
        }
    }
}

/// The driver's side of one worker.
struct Link {
    spans: Spans,
    child: Option<Child>,
    tasks: Sender,
    replies: Consumer,
    in_flight: VecDeque<u64>,
}

fn link(machine: &mut Machine, index: usize, ledger: Option<RingSpan>) -> Link {
    let spans = Spans { tasks: machine.ring(RING), replies: machine.ring(RING), ledger };
    let fabric = machine.fabric.clone();
    let tasks = Sender::new(&fabric, spans.tasks, slot(1 + index as u16), 0);
    let replies = receiver(&fabric, spans.replies);
    let child = Child::fork(|| worker(&fabric, index, spans));
    Link { spans, child: Some(child), tasks, replies, in_flight: VecDeque::new() }
}

impl Link {
    fn drain(&mut self) -> u64 {
        let mut done = 0;
        while let Some(task) = self.replies.pop(number).expect("the worker is sound") {
            assert_eq!(Some(task), self.in_flight.pop_front(), "answers come in order");
            done += 1;
        }
        done
    }
}

/// Kills a worker, reads what it had answered, and starts its successor.
fn replace(machine: &mut Machine, links: &mut [Link], index: usize) -> (u64, VecDeque<u64>) {
    let link_ = &mut links[index];
    link_.child = None;
    let done = link_.drain();
    let unfinished = std::mem::take(&mut link_.in_flight);
    let spans = link_.spans;
    machine.fabric.release_slot(slot(1 + index as u16));
    machine.fabric.claim_slot(slot(1 + index as u16), 1);
    if let Some(ledger) = spans.ledger {
        machine.fabric.break_claim(ledger, End::Producer);
    }
    links[index] = link(machine, index, spans.ledger);
    machine.free(spans.tasks);
    machine.free(spans.replies);
    (done, unfinished)
}

struct Outcome {
    tasks_per_s: f64,
    kills: u64,
    records: [u64; 3],
}

fn run(recording: bool, kills: bool, seed: u64) -> Outcome {
    let mut machine = Machine::new();
    let fabric = machine.fabric.clone();
    let ledgers: Vec<RingSpan> = (0..=WORKERS).map(|_| machine.ring(RING)).collect();
    let ledger_of = |index: usize| recording.then(|| ledgers[index]);
    let mut links: Vec<Link> = (0..WORKERS).map(|i| link(&mut machine, i, ledger_of(1 + i))).collect();
    let mut submits = ledger(&fabric, ledger_of(0), 0);
    let mut waiter = Waiter::new(&fabric, slot(0), SpinMode::Adaptive);
    let (seen, stop) = ([const { AtomicU64::new(0) }; 3], AtomicBool::new(false));
    let mut random = seed | 1;
    let mut killed = 0;
    let elapsed = std::thread::scope(|scope| {
        if recording {
            scope.spawn(|| node(&fabric, ledgers.clone(), &seen, &stop));
        }
        let start = Instant::now();
        let mut next_kill = start + Duration::from_millis(20);
        let (mut next, mut done) = (0, 0);
        let mut again = VecDeque::new();
        while done < TASKS {
            if kills && Instant::now() > next_kill {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let index = (random >> 40) as usize % WORKERS;
                let (late, mut unfinished) = replace(&mut machine, &mut links, index);
                done += late;
                again.append(&mut unfinished);
                killed += 1;
                next_kill = Instant::now() + Duration::from_micros(10_000 + (random >> 33) % 20_000);
            }
            let before = (done, next, again.len());
            for link in &mut links {
                done += link.drain();
                let room = (IN_FLIGHT - link.in_flight.len()).min(BATCH);
                let mut sent = 0;
                while sent < room {
                    let Some(task) = again.pop_front().or_else(|| {
                        let fresh = next;
                        (fresh < TASKS).then(|| {
                            next += 1;
                            fresh
                        })
                    }) else {
                        break;
                    };
                    if let Some(ledger) = &mut submits {
                        ledger.record(0, task);
                    }
                    link.tasks
                        .ring
                        .try_stage(&[&task.to_le_bytes(), &RECORD[..100]])
                        .expect("fewer in flight than fit");
                    link.in_flight.push_back(task);
                    sent += 1;
                }
                if sent > 0 {
                    if let Some(ledger) = &mut submits {
                        ledger.commit();
                    }
                    link.tasks.flush();
                }
            }
            if before == (done, next, again.len()) {
                waiter.wait();
            }
        }
        let elapsed = start.elapsed();
        links.clear();
        stop.store(true, Ordering::Release);
        fabric.doorbell(slot(NODE)).ring_self();
        elapsed
    });
    Outcome {
        tasks_per_s: TASKS as f64 / elapsed.as_secs_f64(),
        kills: killed,
        records: seen.map(AtomicU64::into_inner),
    }
}

fn main() {
    let variants = [(false, false), (true, false), (false, true), (true, true)];
    let mut figures = vec![Vec::new(); variants.len()];
    let mut quiet = true;
    let mut kills_of = vec![0; variants.len()];
    for round in 0..ROUNDS {
        for (at, (recording, kills)) in variants.into_iter().enumerate() {
            quiet &= await_quiet();
            let outcome = run(recording, kills, round as u64 * 7919 + 17);
            if recording {
                let complete = outcome.records.iter().all(|count| *count >= TASKS);
                assert!(complete, "an answered task lacks a record: {:?}", outcome.records);
            }
            figures[at].push(outcome.tasks_per_s);
            kills_of[at] += outcome.kills;
        }
    }
    let medians: Vec<f64> = figures.into_iter().map(median).collect();
    for (at, (recording, kills)) in variants.into_iter().enumerate() {
        let plain = medians[at & !1];
        println!(
            "{{\"bench\":\"spike_recording\",\"recording\":{recording},\"kills\":{},\"value\":{:.0},\"unit\":\"tasks/s\",\"against_no_recording\":{:.2},\"with_kills\":{kills},\"quiet\":{quiet}}}",
            kills_of[at],
            medians[at],
            medians[at] / plain,
        );
    }
}
