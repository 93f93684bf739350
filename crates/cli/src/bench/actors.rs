//! Rows about actors.

use bireme::ObjectRef;

use super::Outcome;
use super::floor;
use super::measure::{Pair, median_us, seconds};
use super::probe::Probe;

struct Counter {
    calls: u64,
}

#[bireme::actor]
impl Counter {
    pub fn new() -> Self {
        Self { calls: 0 }
    }

    pub fn count(&mut self) {
        self.calls += 1;
    }

    pub fn calls(&self) -> u64 {
        self.calls
    }
}

/// How long from the call of a method to its result, with nothing else to do?
pub(super) fn actor_sync(probe: &Probe) -> Outcome<()> {
    let _context = bireme::init()?;
    let counter = Counter::remote();
    counter.ready().get()?;
    let count = probe.size(5_000, 500);
    let call = || Ok(counter.count().get()?);
    probe.measure(|_| Ok(Pair { ours: median_us(count, call)?, floor: floor::ping_pong(count)? }))
}

/// How many calls per second from one caller to one actor: submit all, then get all?
pub(super) fn actor_async(probe: &Probe) -> Outcome<()> {
    let _context = bireme::init()?;
    let counter = Counter::remote();
    let count = probe.size(300_000, 30_000);
    let mut sent = 0;
    let mut run = |count: usize| -> Outcome<f64> {
        let (took, results) = seconds(|| {
            let results: Vec<ObjectRef<()>> = (0..count).map(|_| counter.count()).collect();
            bireme::get_all(&results).map(|_| results)
        });
        drop(results?);
        sent += count as u64;
        match counter.calls().get()? {
            calls if calls == sent => Ok(count as f64 / took),
            calls => Err(format!("the actor counted {calls} of {sent} calls").into()),
        }
    };
    run(count / 10)?;
    probe.measure(|_| Ok(Pair { ours: run(count)?, floor: floor::messages_per_second(count)? }))
}
