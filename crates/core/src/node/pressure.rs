//! Memory pressure: new work pauses, then objects go to disk, then the worker that took most is ended.
//!
//! PRESS-1: while memory is short, a lease or an actor is granted only when nothing runs here, so that nothing is
//! started beside what runs, and no worker is started ahead of demand. One at a time has to go on: a task may wait for its
//! children with its memory in hand, and memory may be short for reasons that no task of ours can end. From the use on at
//! which workers are ended, nothing is granted at all.
//!
//! PRESS-2: a worker is ended only after objects were spilled and that has not helped for [`SPILL_GRACE_US`]; then nobody
//! else until it is gone and [`END_PAUSE_US`] have passed, since the kernel takes time to get the memory back.
//!
//! Who is ended: the worker with most memory, where that of one whose tasks cannot be run again counts half, and that of an
//! actor a quarter. So an actor is never ended before a task of comparable size, nor a task that would fail before one that
//! runs again. A worker that has less than a hundredth of the limit is not ended: somebody else has the memory.

use std::cmp::Reverse;

use super::pool::{Reserved, Worker, WorkerState};
use super::{ActorState, Effect, Node};
use crate::failure::DeathCause;
use crate::id::{ProcessId, TaskId};
use crate::ledger::tables::TaskState;
use crate::time::Tick;

/// So long a use at which workers are ended has to last, with objects on their way to disk.
pub const SPILL_GRACE_US: u64 = 500_000;
/// The next objects are spilled after this time.
pub const SPILL_AGAIN_US: u64 = 1_000_000;
/// After a worker that was ended is gone, so long nobody else is.
pub const END_PAUSE_US: u64 = 1_000_000;
/// So long the use has to be lower before that counts.
pub const CALM_AFTER_US: u64 = 1_000_000;
/// Without a sample for so long, nothing is known of the memory, and work goes on.
pub const SAMPLE_STALE_US: u64 = 5_000_000;
/// By so many thousandths of the limit the use has to be lower than what raised the level.
pub const MARGIN_PERMILLE: u64 = 20;
/// A worker with fewer thousandths of the limit is not ended.
pub const WORTH_PERMILLE: u64 = 10;

/// How short memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum MemoryLevel {
    /// There is enough.
    #[default]
    Calm,
    /// New work waits.
    Pressed,
    /// Objects are spilled, and workers ended if that does not help.
    Critical,
}

/// What is done at which use, in thousandths of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryThresholds {
    /// New work pauses.
    pub pause_permille: u64,
    /// Objects are spilled.
    pub spill_permille: u64,
    /// Workers are ended.
    pub end_permille: u64,
}

impl MemoryThresholds {
    /// Those that belong to the fraction at which workers are ended: at 0.95, pause at 0.85 and spill at 0.9.
    pub fn ending_at(fraction: f64) -> Self {
        let end = (fraction.clamp(0.0, 1.0) * 1_000.0).round() as u64;
        Self { pause_permille: end * 17 / 19, spill_permille: end * 18 / 19, end_permille: end }
    }

    /// The use below which there is no pressure and none that lasts.
    pub fn calm_permille(self) -> u64 {
        self.pause_permille.saturating_sub(MARGIN_PERMILLE)
    }

    fn level(self, permille: u64) -> MemoryLevel {
        match permille {
            _ if permille >= self.spill_permille => MemoryLevel::Critical,
            _ if permille >= self.pause_permille => MemoryLevel::Pressed,
            _ => MemoryLevel::Calm,
        }
    }
}

impl Default for MemoryThresholds {
    fn default() -> Self {
        Self::ending_at(0.95)
    }
}

/// What was measured.
pub(super) struct Sample {
    pub(super) used_bytes: u64,
    pub(super) limit_bytes: u64,
    pub(super) workers: Vec<(ProcessId, u64)>,
}

/// What the node knows of the memory.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    level: MemoryLevel,
    used_bytes: u64,
    limit_bytes: u64,
    heard: Tick,
    /// Since when the use is lower than the level.
    lower_since: Option<Tick>,
    /// Since when the use is one at which workers are ended.
    over_since: Option<Tick>,
    spilled: Option<Tick>,
    /// Who was ended last, and when that was, or when it was gone.
    ended: Option<(ProcessId, Tick)>,
    /// No worker has enough to be ended.
    held_by_others: bool,
}

impl Pressure {
    fn permille(&self) -> u64 {
        permille(self.used_bytes, self.limit_bytes)
    }

    fn hear(&mut self, sample: &Sample, thresholds: MemoryThresholds, now: Tick) {
        (self.used_bytes, self.limit_bytes, self.heard) = (sample.used_bytes, sample.limit_bytes, now);
        let used = self.permille();
        let (reached, lasting) = (thresholds.level(used), thresholds.level(used + MARGIN_PERMILLE));
        if reached > self.level {
            self.level = reached;
        }
        if lasting < self.level {
            let since = *self.lower_since.get_or_insert(now);
            if now.since_us(since) >= CALM_AFTER_US {
                (self.level, self.lower_since) = (lasting, None);
            }
        } else {
            self.lower_since = None;
        }
        match used >= thresholds.end_permille {
            true => drop(self.over_since.get_or_insert(now)),
            false => (self.over_since, self.held_by_others) = (None, false),
        }
        if self.level < MemoryLevel::Critical {
            self.spilled = None;
        }
    }

    /// Nobody has measured for long: what was is no reason to wait.
    pub(super) fn forget_stale(&mut self, now: Tick) {
        if self.deadline().is_some_and(|due| due <= now) {
            *self = Self { ended: self.ended, ..Self::default() };
        }
    }

    /// When what was measured is too old.
    pub(super) fn deadline(&self) -> Option<Tick> {
        (self.level > MemoryLevel::Calm).then(|| self.heard.plus_us(SAMPLE_STALE_US))
    }

    /// A worker is gone: if it was ended for its memory, the pause begins now.
    pub(super) fn note_exit(&mut self, process: ProcessId, now: Tick) {
        if let Some((ended, at)) = &mut self.ended
            && *ended == process
        {
            *at = now;
        }
    }
}

impl Node {
    /// How short memory is.
    pub fn memory_level(&self) -> MemoryLevel {
        self.pressure.level
    }

    pub(super) fn is_pressed(&self) -> bool {
        self.pressure.level > MemoryLevel::Calm
    }

    /// Whether nothing is granted now (PRESS-1).
    pub(super) fn is_paused(&self) -> bool {
        self.is_pressed() && (self.pressure.permille() >= self.config.memory.end_permille || self.something_runs())
    }

    /// Whether a task runs or a constructor does, or a process starts for one. Calls of actors are not counted: an actor that
    /// only waits for calls would stop everything else for as long as it lives.
    fn something_runs(&self) -> bool {
        let for_somebody =
            |w: &Worker| matches!(w.state, WorkerState::Starting(Reserved::Lease(_) | Reserved::Actor(_)));
        self.leases.values().any(|lease| !lease.blocked)
            || self.pool.workers.values().any(for_somebody)
            || self.actors.all.values().any(|actor| matches!(actor.state, ActorState::Starting { .. }))
    }

    pub(super) fn memory_sampled(&mut self, sample: Sample, now: Tick, effects: &mut Vec<Effect>) {
        if sample.limit_bytes == 0 {
            return;
        }
        let paused = (self.pressure.level, self.is_paused());
        self.pressure.hear(&sample, self.config.memory, now);
        if self.pressure.level == MemoryLevel::Critical {
            self.spill_some(now, effects);
            self.end_one(&sample, now, effects);
        }
        if (self.pressure.level, self.is_paused()) != paused {
            self.keep_minimum(effects);
            self.schedule(now, effects);
        }
    }

    /// Asks the store for what is above the use at which new work goes on.
    fn spill_some(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let pressure = &mut self.pressure;
        let again = pressure.spilled.is_none_or(|at| now.since_us(at) >= SPILL_AGAIN_US);
        if again && pressure.permille() >= self.config.memory.spill_permille {
            pressure.spilled = Some(now);
            let wanted = u128::from(pressure.limit_bytes) * u128::from(self.config.memory.calm_permille()) / 1_000;
            let bytes = pressure.used_bytes.saturating_sub(u64::try_from(wanted).unwrap_or(u64::MAX));
            effects.push(Effect::SpillSome { bytes });
        }
    }

    /// Ends the worker that took most, when its time has come (PRESS-2).
    fn end_one(&mut self, sample: &Sample, now: Tick, effects: &mut Vec<Effect>) {
        let lasts = |since: Tick| now.since_us(since) >= SPILL_GRACE_US;
        let pauses = self
            .pressure
            .ended
            .is_some_and(|(process, at)| self.pool.workers.contains_key(&process) || now.since_us(at) < END_PAUSE_US);
        if pauses || !self.pressure.over_since.is_some_and(lasts) {
            return;
        }
        let chosen = self.costliest(sample);
        self.pressure.held_by_others = chosen.is_none();
        if let Some((process, used)) = chosen {
            self.pressure.ended = Some((process, now));
            let (limit, node_used) = (sample.limit_bytes, sample.used_bytes);
            self.kill(process, DeathCause::MemoryPressure { used, limit, node_used }, effects);
        }
    }

    /// The worker to be ended, and what it has.
    fn costliest(&self, sample: &Sample) -> Option<(ProcessId, u64)> {
        // One look at the ledger for all.
        let mut lasting: Vec<ProcessId> = Vec::new();
        for task in self.ledger.running(None) {
            if let Some(worker) = self.lost_with(task) {
                lasting.push(worker);
            }
        }
        let weigh = |&(process, bytes): &(ProcessId, u64)| {
            let worker = self.pool.workers.get(&process).filter(|worker| worker.ended.is_none())?;
            let weight = match worker.state {
                WorkerState::Starting(_) => return None,
                WorkerState::Hosting(_) => 1,
                _ if lasting.contains(&process) => 2,
                WorkerState::Idle { .. } | WorkerState::Retiring { .. } if self.owns_something(process) => 2,
                WorkerState::Leased | WorkerState::Idle { .. } | WorkerState::Retiring { .. } => 4,
            };
            let worth = permille(bytes, sample.limit_bytes) >= WORTH_PERMILLE;
            worth.then_some((u128::from(bytes) * weight, Reverse(process), bytes))
        };
        sample.workers.iter().filter_map(weigh).max().map(|(_, Reverse(process), bytes)| (process, bytes))
    }

    /// The worker of a running task that would not be run again after its end. Tasks of other nodes' owners are not in
    /// this ledger, and count as tasks that are.
    fn lost_with(&self, task: TaskId) -> Option<ProcessId> {
        let entry = self.ledger.task(task)?;
        let TaskState::Running { worker, .. } = entry.state else { return None };
        let spec = entry.spec.as_ref()?;
        (entry.attempt >= spec.options.retries_max).then_some(worker)
    }

    /// Why new work waits.
    pub(super) fn explain_pressure(&self) -> String {
        let pressure = &self.pressure;
        let (used, limit) = (pressure.used_bytes >> 20, pressure.limit_bytes >> 20);
        let percent = |permille: u64| permille as f64 / 10.0;
        let mut text = format!("memory is short ({used} of {limit} MiB are in use): new work waits until ");
        text.push_str(&format!("less than {} % are; what runs goes on", percent(self.config.memory.calm_permille())));
        if pressure.held_by_others {
            text.push_str("; no worker has enough of it to be ended: it is used by other programs");
        }
        text
    }
}

fn permille(part: u64, whole: u64) -> u64 {
    let permille = u128::from(part) * 1_000 / u128::from(whole.max(1));
    u64::try_from(permille).unwrap_or(u64::MAX)
}
