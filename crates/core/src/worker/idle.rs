//! CPUs of tasks whose waits nobody sees.
//!
//! A task may wait through others: its thread joins a pool of threads, or turns an event loop, and those wait for objects.
//! They belong to no task, and the thread of the task waits for something that the runtime does not know. Unless such a
//! task lends its CPU as well, what it waits for may find none, and both wait for ever.
//!
//! Whether it computes meanwhile is seen from outside: while code of no task waits, the process is looked at, and
//! when it has used little of a core since the last look, the tasks that were running then lend their CPUs. They want
//! them back once the process computes again, or once nothing of no task waits any more.

use super::seat::{Lends, Seat};
use super::{Effect, Worker};
use crate::time::Tick;

/// How far apart the looks are.
pub const LOOK_EVERY_US: u64 = 20_000;
/// A process is idle when it uses less than one part in so many of a core.
const IDLE_PART: u64 = 4;

/// The last look that found something waiting.
#[derive(Debug, Default)]
pub(super) struct Looks {
    last: Option<(Tick, u64)>,
}

impl Worker {
    /// A look at the process: nothing when no code of no task waits, else whether a thread runs, and the processor time.
    pub(super) fn looked(&mut self, waiting: Option<(bool, u64)>, now: Tick, effects: &mut Vec<Effect>) {
        let last = self.looks.last;
        if waiting.is_some() && last.is_some_and(|(at, _)| now.since_us(at) < LOOK_EVERY_US) {
            // Too short a time to judge by.
            return;
        }
        self.looks.last = waiting.map(|(_, processor_us)| (now, processor_us));
        match waiting.zip(last) {
            // On a busy machine a thread that computes may have got little of a core, but it wants one.
            Some(((false, used), (at, before))) if used.saturating_sub(before) * IDLE_PART < now.since_us(at) => {
                self.lend_of_idle(at, effects);
            }
            _ => self.take_back_of_idle(effects),
        }
    }

    /// The tasks that were running at the last look lend their CPUs.
    fn lend_of_idle(&mut self, last: Tick, effects: &mut Vec<Effect>) {
        let ran = |seat: &Seat| !seat.lends() && seat.running.since().is_some_and(|since| since <= last);
        for lease in self.seats.sorted_keys_where(|_, seat| ran(seat)) {
            self.lend_cpu(lease, Lends::Idle, effects);
        }
    }

    fn take_back_of_idle(&mut self, effects: &mut Vec<Effect>) {
        for lease in self.seats.sorted_keys_where(|_, seat| seat.lending == Lends::Idle) {
            if let Some(seat) = self.seats.get_mut(&lease) {
                seat.take_cpu_back(lease, effects);
            }
        }
    }
}
