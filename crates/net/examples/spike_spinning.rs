//! How do we know that a core is spare?
//!
//! Two loads beside 0, 1 and 2 busy processes that are not ours, for each way of
//! waiting (never spin, spin always, adaptive):
//!
//! * `ping_pong`: a driver calls one worker and waits for the answer, p50 in µs;
//! * `throughput`: two workers on 200 µs tasks, the driver waiting for them one
//!   by one, in tasks/s. The bar is 0.95 of the build that never spins.
//!
//! `foreign_share` is what the busy processes got done, against what they get
//! done beside the same load that never spins: the price that others pay.
//! `raw` is the cost of the parts: one frame through a ring in one thread, and
//! a round trip of two processes that do nothing but spin on their rings.
//!
//! One JSON line each. `cargo run --release -p bireme-net --example spike_spinning`

#[path = "spike/processes.rs"]
#[allow(dead_code)]
mod processes;

use std::hint::black_box;
use std::time::{Duration, Instant};

use bireme_net::{Fabric, RingSpan, SpinMode};
use processes::{Child, Machine, Sender, Waiter, await_quiet, median, receiver, slot};

const RING: u32 = 64 << 10;
const ROUNDS: usize = 5;
const MODES: [SpinMode; 3] = [SpinMode::Never, SpinMode::Always, SpinMode::Adaptive];
const LASTS: Duration = Duration::from_millis(300);

/// Answers each task with its number, after `work` of user code.
fn worker(fabric: &Fabric, index: u16, rings: (RingSpan, RingSpan), mode: SpinMode, work: Duration) {
    let me = slot(1 + index);
    let mut waiter = Waiter::new(fabric, me, mode);
    let mut tasks = receiver(fabric, rings.0);
    let mut replies = Sender::new(fabric, rings.1, slot(0), index);
    loop {
        let task = tasks.pop(|body| {
            burn(work);
            let bytes = body.first_chunk().expect("every task has a number");
            u64::from_le_bytes(*bytes)
        });
        match task.expect("the driver is sound") {
            Some(task) => {
                replies.stage(&[&task.to_le_bytes()]);
                replies.flush();
            }
            None => waiter.wait(),
        }
    }
}

fn burn(work: Duration) {
    if work > Duration::ZERO {
        // By CPU time: a preempted task takes longer, as a real one does.
        let end = cpu_ns() + work.as_nanos() as u64;
        while cpu_ns() < end {
            std::hint::spin_loop();
        }
    }
}

fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A process that is not ours and reports how far it got.
fn busy(fabric: &Fabric, number: u16, report: RingSpan) {
    let mut report = Sender::new(fabric, report, slot(20 + number), 0);
    let mut work = 0u64;
    loop {
        for _ in 0..10_000 {
            work = black_box(work + 1);
        }
        if report.ring.is_empty().expect("sound") {
            report.stage(&[&work.to_le_bytes()]);
            report.ring.publish();
        }
    }
}

struct Outcome {
    /// Seconds of each call, or none.
    calls: Vec<f64>,
    tasks_per_s: f64,
    foreign_per_s: f64,
}

fn run(mode: SpinMode, busy_count: u16, workers: usize, work: Duration) -> Outcome {
    let mut machine = Machine::new();
    let fabric = machine.fabric.clone();
    let mut waiter = Waiter::new(&fabric, slot(0), mode);
    let rings: Vec<_> = (0..workers).map(|_| (machine.ring(RING), machine.ring(RING))).collect();
    let mut links = Vec::new();
    for (index, pair) in rings.iter().enumerate() {
        let tasks = Sender::new(&fabric, pair.0, slot(1 + index as u16), 0);
        let replies = receiver(&fabric, pair.1);
        let child = Child::fork(|| worker(&fabric, index as u16, *pair, mode, work));
        links.push((tasks, replies, child));
    }
    let mut others = Vec::new();
    for number in 0..busy_count {
        let span = machine.ring(RING);
        let report = receiver(&fabric, span);
        others.push((report, Child::fork(|| busy(&fabric, number, span))));
    }
    let mut outcome = Outcome { calls: Vec::new(), tasks_per_s: 0.0, foreign_per_s: 0.0 };
    // Twice: the first time to warm up.
    for lasts in [LASTS / 6, LASTS] {
        let mut progress = |_: ()| -> f64 {
            let of = |report: &mut bireme_net::Consumer| {
                // The report before this one is stale: read it, then a new one.
                let mut work = 0.0;
                for _ in 0..2 {
                    while !report.is_ready() {
                        std::thread::yield_now();
                    }
                    let read = report.pop(|b| u64::from_le_bytes(*b.first_chunk().expect("8 bytes")));
                    work = read.expect("sound").unwrap_or(0) as f64;
                    report.release();
                }
                work
            };
            others.iter_mut().map(|(report, _)| of(report)).sum()
        };
        let before = progress(());
        let start = Instant::now();
        outcome.calls.clear();
        let mut done = 0u64;
        // Keeps two tasks with each worker, and waits for one after another.
        let depth = if workers == 1 { 1 } else { 2 * workers };
        for ahead in 0..depth {
            let (tasks, _, _) = &mut links[ahead % workers];
            tasks.stage(&[&(ahead as u64).to_le_bytes()]);
            tasks.flush();
        }
        let mut sent = Instant::now();
        while start.elapsed() < lasts || !done.is_multiple_of(workers as u64) {
            let (tasks, replies, _) = &mut links[done as usize % workers];
            while replies.pop(|_| ()).expect("sound").is_none() {
                waiter.wait();
            }
            outcome.calls.push(sent.elapsed().as_secs_f64());
            done += 1;
            sent = Instant::now();
            tasks.stage(&[&done.to_le_bytes()]);
            tasks.flush();
        }
        let seconds = start.elapsed().as_secs_f64();
        for ahead in 0..depth {
            let (_, replies, _) = &mut links[ahead % workers];
            while replies.pop(|_| ()).expect("sound").is_none() {
                waiter.wait();
            }
        }
        outcome.tasks_per_s = done as f64 / seconds;
        outcome.foreign_per_s = (progress(()) - before) / start.elapsed().as_secs_f64();
    }
    outcome
}

/// Medians of interleaved rounds, per mode: value and foreign progress.
fn compare(load: &str, unit: &str, busy_count: u16, workers: usize, work: Duration) {
    let mut values = vec![Vec::new(); MODES.len()];
    let mut quiet = true;
    let mut foreign = vec![Vec::new(); MODES.len()];
    for _ in 0..ROUNDS {
        for (at, mode) in MODES.into_iter().enumerate() {
            quiet &= await_quiet();
            let outcome = run(mode, busy_count, workers, work);
            values[at].push(match workers {
                1 => median(outcome.calls) * 1e6,
                _ => outcome.tasks_per_s,
            });
            foreign[at].push(outcome.foreign_per_s);
        }
    }
    let values: Vec<f64> = values.into_iter().map(median).collect();
    let foreign: Vec<f64> = foreign.into_iter().map(median).collect();
    for (at, mode) in MODES.into_iter().enumerate() {
        let share = if busy_count == 0 { 1.0 } else { foreign[at] / foreign[0] };
        println!(
            "{{\"bench\":\"spike_spinning\",\"load\":\"{load}\",\"busy\":{busy_count},\"spin\":\"{mode:?}\",\"value\":{:.2},\"unit\":\"{unit}\",\"against_never\":{:.3},\"foreign_share\":{share:.3},\"quiet\":{quiet}}}",
            values[at],
            values[at] / values[0],
        );
    }
}

fn raw() {
    let mut machine = Machine::new();
    let fabric = machine.fabric.clone();
    for len in [16usize, 300] {
        let span = machine.ring(1 << 20);
        let (mut producer, mut consumer) = (fabric.producer(span).expect("free"), receiver(&fabric, span));
        let body = vec![1u8; len];
        let mut figures = Vec::new();
        for _ in 0..9 {
            let start = Instant::now();
            for _ in 0..200_000 {
                producer.try_push(&[&body]).expect("room");
                black_box(consumer.pop(|b| b[0]).expect("sound"));
            }
            figures.push(start.elapsed().as_nanos() as f64 / 200_000.0);
        }
        println!(
            "{{\"bench\":\"spike_spinning\",\"load\":\"raw_push_pop_{len}\",\"value\":{:.1},\"unit\":\"ns\"}}",
            median(figures)
        );
    }
    for rung in [false, true] {
        let (there, back) = (machine.ring(RING), machine.ring(RING));
        let mut producer = Sender::new(&fabric, there, slot(31), 0);
        let mut consumer = receiver(&fabric, back);
        let _child = Child::fork(|| {
            let mut consumer = receiver(&fabric, there);
            let mut producer = Sender::new(&fabric, back, slot(30), 0);
            loop {
                trip(&mut consumer, &fabric, 31, rung);
                send(&mut producer, rung);
            }
        });
        let mut figures = Vec::new();
        for _ in 0..200 {
            let start = Instant::now();
            for _ in 0..100 {
                send(&mut producer, rung);
                trip(&mut consumer, &fabric, 30, rung);
            }
            figures.push(start.elapsed().as_nanos() as f64 / 100.0);
        }
        let name = if rung { "raw_round_trip_doorbell" } else { "raw_round_trip_ring" };
        println!(
            "{{\"bench\":\"spike_spinning\",\"load\":\"{name}\",\"value\":{:.1},\"unit\":\"ns\"}}",
            median(figures)
        );
    }
}

fn send(producer: &mut Sender, rung: bool) {
    producer.stage(&[&[1; 16]]);
    if rung {
        producer.flush();
    } else {
        producer.ring.publish();
    }
}

/// Spins until there is a frame, by the doorbell or by the ring itself.
fn trip(consumer: &mut bireme_net::Consumer, fabric: &Fabric, me: u16, rung: bool) {
    let doorbell = fabric.doorbell(slot(me));
    loop {
        while !if rung { doorbell.is_ready() } else { consumer.is_ready() } {
            std::hint::spin_loop();
        }
        if rung {
            doorbell.take_ready(|_| ());
        }
        if consumer.pop(|_| ()).expect("sound").is_some() {
            return;
        }
    }
}

fn main() {
    raw();
    for busy_count in 0..=2 {
        compare("ping_pong", "us", busy_count, 1, Duration::ZERO);
        compare("throughput", "tasks/s", busy_count, 2, Duration::from_micros(200));
    }
}
