//! Admission of tasks to memory: all inputs of a task together, or none of them.
//!
//! The node's store asks this machine when somebody wants objects of which some are not in memory. Each request is a
//! *bundle*. A bundle is admitted when its inputs fit beside everything that is in use and beside what earlier bundles
//! were admitted for, with room for the task's output. Until then the task holds nothing, so tasks never wait for memory
//! that other waiting tasks hold (MEM-1).
//!
//! - Bundles are admitted strictly in order, so none starves. Reads of programs that run already go before tasks that
//!   have not started: the former may hold memory, the latter do not.
//! - When a bundle does not fit and nobody who was admitted is running (they all wait themselves, or there are none), more
//!   waiting changes nothing: it is admitted beyond the limit, and the store keeps the excess in its overflow file.
//!   The same happens when those who run do not end for [`PATIENCE_LONG_US`].
//! - Each thread of a process waits for one bundle at a time, which bounds the queue.
//! - The output of a task is estimated from earlier runs of its function, and is as long as the inputs the first time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::{FunctionKey, LeaseId, ProcessId};
use crate::message::RequestId;
use crate::time::Tick;

/// Time to wait for memory in use outside of bundles (by views of programs) before the limit is exceeded.
pub const PATIENCE_US: u64 = 100_000;
/// Time that a bundle waits for admitted tasks that are still running.
pub const PATIENCE_LONG_US: u64 = 10_000_000;
/// Functions whose output is remembered. Beyond, all are forgotten and learned again.
pub const FUNCTIONS_MAX: usize = 4_096;

/// An object by its first place in the store: entry and generation.
pub type ObjectKey = (u32, u32);

/// A bundle by who asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleId {
    /// The process that asked.
    pub process: ProcessId,
    /// Its question number.
    pub request: RequestId,
}

/// The purpose that objects are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A task of this function is about to start, and holds nothing yet.
    Start(FunctionKey),
    /// A program that runs reads them, and may hold others.
    Read,
}

/// Objects that have to be in memory together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Its name.
    pub id: BundleId,
    /// Under which lease the asking task runs; none in a driver.
    pub lease: Option<LeaseId>,
    /// The purpose.
    pub purpose: Purpose,
    /// The objects of this node and their lengths.
    pub inputs: Vec<(ObjectKey, u64)>,
    /// Bytes of objects that are copied here from other nodes once it is admitted.
    pub arriving_bytes: u64,
}

/// An event that the machine reacts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody wants a bundle.
    Asked(Bundle),
    /// Somebody does not need its bundle any more, and has made so many bytes meanwhile.
    Ended {
        /// The bundle.
        id: BundleId,
        /// The output of the task, if it was one.
        output_bytes: Option<u64>,
    },
    /// A task waits for others, or goes on.
    Paused {
        /// In which process.
        process: ProcessId,
        /// Under which lease.
        lease: LeaseId,
        /// Whether it waits.
        paused: bool,
    },
    /// A process is dead: what it asked for and has is void.
    ProcessGone(ProcessId),
    /// Memory as it is now. To be told again and again while [`Gather::has_waiting`].
    Looked {
        /// Bytes of the store.
        capacity: u64,
        /// Objects that cannot leave memory now, and their lengths: pinned, or being written.
        in_use: Vec<(ObjectKey, u64)>,
    },
}

/// An action that the machine asks its shell for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Bring the inputs of this bundle into memory and hold them there until it ends.
    Admit(BundleId),
}

#[derive(Debug)]
struct Admitted {
    bundle: Bundle,
    /// Bytes that it will take beside its inputs: copies from other nodes, and its output.
    beside: u64,
}

/// The machine.
#[derive(Debug, Default)]
pub struct Gather {
    reads: VecDeque<Bundle>,
    starts: VecDeque<Bundle>,
    admitted: BTreeMap<BundleId, Admitted>,
    /// Tasks that wait for others.
    paused: BTreeSet<(ProcessId, LeaseId)>,
    outputs: BTreeMap<FunctionKey, u64>,
    /// When the last bundle was admitted or ended, or one came to an empty queue.
    changed: Tick,
}

impl Gather {
    /// Whether a bundle waits to be admitted.
    pub fn has_waiting(&self) -> bool {
        !self.reads.is_empty() || !self.starts.is_empty()
    }

    /// The bundles that wait to be admitted, in order, and the bytes that each needs.
    pub fn waiting(&self) -> impl Iterator<Item = (&Bundle, u64)> {
        let bytes = |bundle: &Bundle| {
            let beside = self.output_of(bundle).saturating_add(bundle.arriving_bytes);
            bundle.inputs.iter().fold(beside, |sum, (_, len)| sum.saturating_add(*len))
        };
        self.reads.iter().chain(&self.starts).map(move |bundle| (bundle, bytes(bundle)))
    }

    /// One step.
    pub fn step(&mut self, event: Event, now: Tick, effects: &mut Vec<Effect>) {
        match event {
            Event::Asked(bundle) => self.ask(bundle, now),
            Event::Ended { id, output_bytes } => self.end(id, output_bytes, now),
            Event::Paused { process, lease, paused: true } => {
                // Only tasks with a bundle matter, which bounds the set.
                let seat = (process, lease);
                if self.admitted.values().any(|admitted| seat_of(&admitted.bundle) == Some(seat)) {
                    self.paused.insert(seat);
                }
            }
            Event::Paused { process, lease, paused: false } => {
                self.paused.remove(&(process, lease));
            }
            Event::ProcessGone(process) => {
                self.reads.retain(|bundle| bundle.id.process != process);
                self.starts.retain(|bundle| bundle.id.process != process);
                self.admitted.retain(|id, _| id.process != process);
                self.paused.retain(|(paused, _)| *paused != process);
                self.changed = now;
            }
            Event::Looked { capacity, in_use } => self.look(capacity, &in_use, now, effects),
        }
    }

    fn ask(&mut self, bundle: Bundle, now: Tick) {
        if !self.has_waiting() {
            self.changed = now;
        }
        match bundle.purpose {
            Purpose::Read => self.reads.push_back(bundle),
            Purpose::Start(_) => self.starts.push_back(bundle),
        }
    }

    fn end(&mut self, id: BundleId, output_bytes: Option<u64>, now: Tick) {
        self.reads.retain(|bundle| bundle.id != id);
        self.starts.retain(|bundle| bundle.id != id);
        let Some(Admitted { bundle, .. }) = self.admitted.remove(&id) else { return };
        self.changed = now;
        if let Some(seat) = seat_of(&bundle) {
            self.paused.remove(&seat);
        }
        if let (Purpose::Start(function), Some(bytes)) = (bundle.purpose, output_bytes) {
            if self.outputs.len() >= FUNCTIONS_MAX && !self.outputs.contains_key(&function) {
                self.outputs.clear();
            }
            // A longer output counts at once, shorter ones by and by.
            let known = self.outputs.entry(function).or_insert(bytes);
            *known = bytes.max(*known - *known / 8);
        }
    }

    fn look(&mut self, capacity: u64, in_use: &[(ObjectKey, u64)], now: Tick, effects: &mut Vec<Effect>) {
        let mut objects: BTreeMap<ObjectKey, u64> = in_use.iter().copied().collect();
        let mut beside = 0u64;
        for admitted in self.admitted.values() {
            objects.extend(admitted.bundle.inputs.iter().copied());
            beside = beside.saturating_add(admitted.beside);
        }
        let mut used = objects.values().fold(beside, |sum, len| sum.saturating_add(*len));
        while let Some(front) = self.reads.front().or(self.starts.front()) {
            let beside = self.output_of(front).saturating_add(front.arriving_bytes);
            let mut inputs: BTreeMap<ObjectKey, u64> = front.inputs.iter().copied().collect();
            inputs.retain(|key, _| !objects.contains_key(key));
            let more = inputs.values().fold(beside, |sum, len| sum.saturating_add(*len));
            let fits = used.saturating_add(more) <= capacity;
            if !fits && !self.may_exceed(now) {
                return;
            }
            used = used.saturating_add(more);
            objects.append(&mut inputs);
            let front = self.reads.pop_front().or_else(|| self.starts.pop_front());
            let Some(bundle) = front else { return };
            effects.push(Effect::Admit(bundle.id));
            self.changed = now;
            self.admitted.insert(bundle.id, Admitted { bundle, beside });
        }
    }

    /// Whether waiting for memory is in vain, or has been for too long.
    fn may_exceed(&self, now: Tick) -> bool {
        let waited = now.since_us(self.changed);
        let anybody_runs = self.admitted.values().any(|admitted| self.runs(&admitted.bundle));
        waited >= PATIENCE_LONG_US || (waited >= PATIENCE_US && !anybody_runs)
    }

    /// Whether the task of an admitted bundle will end by itself: it waits neither for others nor for memory.
    fn runs(&self, bundle: &Bundle) -> bool {
        let asks_again = |other: &Bundle| (other.id.process, other.lease) == (bundle.id.process, bundle.lease);
        let waits = self.reads.iter().chain(&self.starts).any(asks_again);
        !waits && seat_of(bundle).is_none_or(|seat| !self.paused.contains(&seat))
    }

    /// The bytes that the task behind a bundle is expected to make.
    fn output_of(&self, bundle: &Bundle) -> u64 {
        match bundle.purpose {
            Purpose::Read => 0,
            Purpose::Start(function) => {
                let arriving = bundle.arriving_bytes;
                let inputs = || bundle.inputs.iter().fold(arriving, |sum, (_, len)| sum.saturating_add(*len));
                self.outputs.get(&function).copied().unwrap_or_else(inputs)
            }
        }
    }
}

fn seat_of(bundle: &Bundle) -> Option<(ProcessId, LeaseId)> {
    bundle.lease.map(|lease| (bundle.id.process, lease))
}

#[cfg(test)]
mod tests;
