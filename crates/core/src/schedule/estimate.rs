//! How good a node is for a shape, as one number: the smaller, the better.
//!
//! From the top bit down: memory is short; the queue is full; the estimated wait in microseconds; whether it has GPUs that
//! nobody asked for; how much of it is used, in thousandths; how many it hosts. So a comparison of two numbers is
//! the whole comparison of two nodes, and a transfer time is added to the wait by an addition.

use super::{BANDWIDTH_DEFAULT, Load, Queued, TASK_US_DEFAULT};
use crate::resources::{Amount, Resources};

/// No such node, or it can never take the shape.
pub(super) const NONE: u64 = u64::MAX;
/// It takes nothing while its memory is short.
pub(super) const PRESSED: u64 = 1 << 63;
/// More wait there already than run at once.
pub(super) const FULL: u64 = 1 << 62;
/// Where the wait begins.
const WAIT_SHIFT: u32 = 24;
/// Longer waits count as this one (38 hours), so that wait and transfer together stay below the flags.
const WAIT_US_LONGEST: u64 = (1 << 37) - 1;
const OTHERS_GPUS: u64 = 1 << 23;
const USED_SHIFT: u32 = 13;
/// Of the number for something light, from the top down: no CPUs; GPUs that nobody asked for; how many for each CPU.
const NO_CPUS: u64 = 1 << 23;
const GPUS_FOR_OTHERS: u64 = 1 << 22;
const LIGHT_MASK: u64 = GPUS_FOR_OTHERS - 1;
/// Parts of one in that count.
const LIGHT_PARTS: u64 = 16;
const HOSTED_MASK: u64 = (1 << USED_SHIFT) - 1;

/// A load with what this node has sent there since.
#[derive(Clone, Debug)]
pub(super) struct Effective {
    pub(super) free: Resources,
    pub(super) queued: Vec<Queued>,
    pub(super) running: u32,
}

impl Effective {
    pub(super) fn of(load: &Load) -> Self {
        Self { free: load.free.clone(), queued: load.queued.clone(), running: load.running }
    }

    /// Counts wishes that are on their way: those that fit run, the others wait.
    pub(super) fn add(&mut self, resources: &Resources, count: u32) {
        let fitting = if count == 1 { 1 } else { self.free.times(resources).min(count) };
        let taken = match fitting {
            1 => self.free.try_take(resources),
            _ => self.free.try_take(&resources.multiplied(fitting)),
        };
        let running = if taken { fitting } else { 0 };
        self.running = self.running.saturating_add(running);
        if count > running {
            super::enqueue(&mut self.queued, resources, count - running);
        }
    }

    /// Whether one of this shape would start at once. One that waits although it fits waits for a process, and so would
    /// this one.
    pub(super) fn starts(&self, shape: &Resources) -> bool {
        let held_up = |q: &Queued| q.count > 0 && self.free.covers(&q.resources) && shape.conflicts(&q.resources);
        self.free.covers(shape) && !self.queued.iter().any(held_up)
    }

    /// Those who wait for some of the same.
    fn ahead(&self, shape: &Resources) -> u64 {
        let conflicting = self.queued.iter().filter(|q| q.resources.conflicts(shape));
        conflicting.map(|q| u64::from(q.count)).sum()
    }
}

/// Number of tasks of this shape that run at once beside what may never end.
fn at_once(load: &Load, shape: &Resources) -> u32 {
    load.total.times_beside(&load.lasting, shape)
}

/// Microseconds until one of this shape starts.
pub(super) fn wait_us(load: &Load, effective: &Effective, shape: &Resources) -> u64 {
    if effective.starts(shape) {
        return 0;
    }
    let task_us = if load.task_us == 0 { TASK_US_DEFAULT } else { load.task_us };
    let at_once = u64::from(at_once(load, shape));
    if at_once == 0 {
        return WAIT_US_LONGEST;
    }
    (effective.ahead(shape) + 1).saturating_mul(task_us) / at_once
}

/// Whether the node could ever take the shape.
pub(super) fn feasible(load: &Load, shape: &Resources) -> bool {
    !load.draining && !load.driver_only && load.total.covers(shape)
}

/// The node's number for the lowest wait.
pub(super) fn nearest(load: &Load, effective: &Effective, shape: &Resources) -> u64 {
    if !feasible(load, shape) {
        return NONE;
    }
    let wait = wait_us(load, effective, shape);
    let mut key = wait.min(WAIT_US_LONGEST) << WAIT_SHIFT | crowd(load, effective);
    if shape.gpus.0 == 0 && load.total.gpus.0 > 0 {
        key |= OTHERS_GPUS;
    }
    key | flags(load, effective, shape, wait)
}

/// The node's number for an even spread: the least used of those that start it at once, then the lowest wait.
pub(super) fn emptiest(load: &Load, effective: &Effective, shape: &Resources) -> u64 {
    if !feasible(load, shape) {
        return NONE;
    }
    let wait = wait_us(load, effective, shape);
    wait.min(WAIT_US_LONGEST) << WAIT_SHIFT | crowd(load, effective) | flags(load, effective, shape, wait)
}

/// The node's number for something that stays and takes no CPU: how many are there already for each CPU. A node without CPUs
/// is meant for other things, and so is one with GPUs when none is wanted.
pub(super) fn lightest(load: &Load, effective: &Effective, shape: &Resources) -> u64 {
    if !feasible(load, shape) {
        return NONE;
    }
    let wait = wait_us(load, effective, shape);
    let alike = effective.queued.iter().filter(|queued| queued.resources == *shape);
    let there = u64::from(effective.running) + alike.map(|queued| u64::from(queued.count)).sum::<u64>();
    let cpus = load.total.cpus.0.max(1);
    let each = (there.saturating_mul(Amount::whole(LIGHT_PARTS).0) / cpus).min(LIGHT_MASK);
    let mut key = wait.min(WAIT_US_LONGEST) << WAIT_SHIFT | each;
    if load.total.cpus.0 == 0 {
        key |= NO_CPUS;
    }
    if shape.gpus.0 == 0 && load.total.gpus.0 > 0 {
        key |= GPUS_FOR_OTHERS;
    }
    key | flags(load, effective, shape, wait)
}

fn flags(load: &Load, effective: &Effective, shape: &Resources, wait: u64) -> u64 {
    let mut flags = 0;
    if load.pressed {
        flags |= PRESSED;
    }
    if wait > 0 && effective.ahead(shape) >= u64::from(at_once(load, shape)) {
        flags |= FULL;
    }
    flags
}

fn crowd(load: &Load, effective: &Effective) -> u64 {
    let used = |total: Amount, free: Amount| (total.0.saturating_sub(free.0) * 1_000).checked_div(total.0).unwrap_or(0);
    let (total, free) = (&load.total, &effective.free);
    let memory = u128::from(total.memory_bytes.saturating_sub(free.memory_bytes)) * 1_000;
    let memory = memory.checked_div(u128::from(total.memory_bytes)).unwrap_or(0) as u64;
    let most = used(total.cpus, free.cpus).max(used(total.gpus, free.gpus)).max(memory);
    most << USED_SHIFT | u64::from(effective.running).min(HOSTED_MASK)
}

/// The wait in a number without flags.
pub(super) fn wait_of(key: u64) -> u64 {
    (key & !(PRESSED | FULL)) >> WAIT_SHIFT
}

/// A number with a transfer added to its wait.
#[inline]
pub(super) fn delayed(key: u64, transfer_us: u64) -> u64 {
    key.saturating_add(transfer_us.min(WAIT_US_LONGEST) << WAIT_SHIFT)
}

/// Bytes per microsecond that come in, at least one.
pub(super) fn bytes_per_us(load: &Load) -> u64 {
    let bandwidth = if load.bandwidth == 0 { BANDWIDTH_DEFAULT } else { load.bandwidth };
    (bandwidth / 1_000_000).max(1)
}

/// Microseconds until so many bytes are there. What does not fit into the arena has to be made room for first.
pub(super) fn transfer_us(load: &Load, missing_bytes: u64) -> u64 {
    let us = missing_bytes / bytes_per_us(load);
    if missing_bytes > load.arena_free_bytes { us.saturating_mul(2) } else { us }
}
