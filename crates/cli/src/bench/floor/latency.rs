//! Round trips of two processes without the engine, by how they wait: latency is decided by that and not by what is sent.

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::getppid;
use serde_json::{Map, Value};

use super::shared::SharedWord;
use super::{pin_to, ping_pong, ping_pong_on_one_core, two_cores};
use crate::bench::Outcome;
use crate::bench::measure::median_us;

/// Round trips that are timed together: one takes less than it takes to read the clock twice.
const ROUND_TRIPS_TIMED: usize = 100;
/// The fewest that are made: they take milliseconds, and a few of them would be those of a core that was taken away.
const ROUND_TRIPS_MIN: usize = 20_000;
/// Looks at the word before the core is offered to others; on a single core the other side needs it.
const LOOKS: u32 = 1 << 12;
/// What ends the other side.
const END: u32 = u32::MAX;

/// Microseconds of a round trip, by how both sides wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::bench) struct Latencies {
    /// In a system call, both on one core: no core has to wake up.
    pub(in crate::bench) blocking_one_core: f64,
    /// In a system call, on two cores.
    pub(in crate::bench) blocking_two_cores: f64,
    /// In a loop that looks at shared memory, on two cores.
    pub(in crate::bench) spinning: f64,
}

impl Latencies {
    /// Over a Unix socket, and in shared memory.
    pub(in crate::bench) fn measure(count: usize) -> Outcome<Self> {
        Ok(Self {
            blocking_one_core: ping_pong_on_one_core(count)?,
            blocking_two_cores: ping_pong(count)?,
            spinning: spinning(count)?,
        })
    }

    /// By name, to stand beside a row.
    pub(in crate::bench) fn beside(self, more: &mut Map<String, Value>) {
        let Self { blocking_one_core, blocking_two_cores, spinning } = self;
        more.insert("blocking_one_core_us".to_owned(), blocking_one_core.into());
        more.insert("blocking_two_cores_us".to_owned(), blocking_two_cores.into());
        more.insert("spinning_us".to_owned(), spinning.into());
    }
}

/// Median of the microseconds of a round trip of two processes that spin on a word of shared memory.
pub(in crate::bench) fn spinning(count: usize) -> Outcome<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args(["bench-floor", "spinning", &count.to_string()]).stderr(Stdio::inherit()).output()?;
    Ok(std::str::from_utf8(&output.stdout)?.trim().parse()?)
}

/// The process that takes the time. It writes odd numbers, the other side the even ones that follow.
pub(super) fn spinning_here(count: usize) -> Outcome<f64> {
    let [here, there] = two_cores()?;
    let (shared, file) = SharedWord::new()?;
    let mut command = Command::new(std::env::current_exe()?);
    let mut other =
        command.args(["bench-floor", "spin", &there.to_string()]).stdin(Stdio::from(OwnedFd::from(file))).spawn()?;
    pin_to(here)?;
    let word = shared.word();
    let mut said = 0;
    let median = median_us(count.max(ROUND_TRIPS_MIN).div_ceil(ROUND_TRIPS_TIMED), || {
        for _ in 0..ROUND_TRIPS_TIMED {
            word.store(said + 1, Ordering::Release);
            said += 2;
            let is_there = || Ok(other.try_wait()?.is_none());
            await_number(word, |number| number == said, is_there)?;
        }
        Ok(())
    });
    word.store(END, Ordering::Release);
    other.wait()?;
    Ok(median? / ROUND_TRIPS_TIMED as f64)
}

/// The other side.
pub(super) fn spin(core: usize) -> Outcome<()> {
    pin_to(core)?;
    let shared = SharedWord::of(std::io::stdin())?;
    let (word, parent) = (shared.word(), getppid());
    loop {
        let number = await_number(word, |number| number % 2 == 1, || Ok(getppid() == parent))?;
        if number == END {
            return Ok(());
        }
        word.store(number + 1, Ordering::Release);
    }
}

/// Looks until the number is the right one; fails when nobody is there to write it.
fn await_number(
    word: &AtomicU32,
    is_right: impl Fn(u32) -> bool,
    mut is_somebody_there: impl FnMut() -> Outcome<bool>,
) -> Outcome<u32> {
    loop {
        for _ in 0..LOOKS {
            let number = word.load(Ordering::Acquire);
            if is_right(number) {
                return Ok(number);
            }
            std::hint::spin_loop();
        }
        if !is_somebody_there()? {
            return Err("the other side of a round trip has ended".into());
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_number_is_awaited_while_somebody_can_write_it() {
        let word = AtomicU32::new(7);
        assert_eq!(await_number(&word, |number| number == 7, || Ok(false)).unwrap(), 7);
        assert!(await_number(&word, |number| number == 8, || Ok(false)).is_err());
    }

    #[test]
    fn each_of_the_three_stands_beside_a_row_by_its_name() {
        let mut more = Map::new();
        Latencies { blocking_one_core: 8.6, blocking_two_cores: 43.0, spinning: 0.4 }.beside(&mut more);
        let figures = ["blocking_one_core_us", "blocking_two_cores_us", "spinning_us"].map(|name| more[name].as_f64());
        assert_eq!(figures, [Some(8.6), Some(43.0), Some(0.4)]);
    }
}
