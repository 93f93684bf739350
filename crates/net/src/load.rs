//! How busy the machine is, as far as spinning is concerned.
//!
//! One counter in the fabric counts our own threads that occupy a core: in user
//! code, working for it, or spinning. A thread is counted from the moment it
//! wakes until it goes to sleep, so that the counter changes only where a system
//! call is due anyway; short waits do not touch it. Each process also keeps its
//! own share in its slot, so that the node can subtract the share of one that
//! was killed.
//!
//! Threads that are not ours show up in no counter of ours. The kernel's number
//! of runnable threads (`/proc/loadavg`) has all of them: what exceeds our own
//! is *foreign*. It is read at most every [`CENSUS_EVERY_NS`] by whichever
//! process is about to spin, and shared through the fabric; foreign load has to
//! be seen in [`CENSUS_DEPTH`] readings in a row, since a thread that just passes
//! by is no reason to stop.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::fabric::{Fabric, SlotId};

/// A reading of the kernel's count is good for this long.
const CENSUS_EVERY_NS: u64 = 2_000_000;
/// Readings this old tell nothing.
const CENSUS_STALE_NS: u64 = 100_000_000;
/// How many readings in a row must show a foreign thread (one byte each).
const CENSUS_DEPTH: u32 = 3;

/// Counts a thread as running until dropped.
#[must_use]
pub struct RunningGuard {
    fabric: Fabric,
    slot: SlotId,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.fabric.leave_running(self.slot);
    }
}

impl Fabric {
    /// A thread of this process starts to occupy a core: it begins, or wakes.
    #[inline]
    pub fn enter_running(&self, slot: SlotId) {
        let life = &self.slot(slot).life.0;
        enter(&self.header().running.0, &life.running);
    }

    /// A thread of this process frees its core: it ends, or goes to sleep.
    #[inline]
    pub fn leave_running(&self, slot: SlotId) {
        let life = &self.slot(slot).life.0;
        leave(&self.header().running.0, &life.running);
    }

    /// `enter_running` now and `leave_running` when the guard is dropped.
    pub fn running_guard(&self, slot: SlotId) -> RunningGuard {
        self.enter_running(slot);
        RunningGuard { fabric: self.clone(), slot }
    }

    /// Threads of ours that occupy a core, spinning ones included.
    #[inline]
    pub fn running(&self) -> i32 {
        self.header().running.0.load(Ordering::Relaxed)
    }

    /// Whether our own running threads fit on the cores, and leave so many of them.
    #[inline]
    pub(crate) fn own_threads_fit(&self, leaving: i32) -> bool {
        self.running() + leaving <= self.ncpus() as i32
    }

    /// Whether ours and the foreign ones do.
    #[inline]
    pub(crate) fn all_threads_fit(&self, leaving: i32, now_ns: u64) -> bool {
        self.own_threads_fit(leaving) && self.own_threads_fit(leaving + self.foreign_threads(now_ns))
    }

    /// Runnable threads that are not ours, as far as is known.
    pub(crate) fn foreign_threads(&self, now_ns: u64) -> i32 {
        let census = &self.header().census.0;
        let taken = census.taken_at_ns.load(Ordering::Relaxed);
        let age = now_ns.saturating_sub(taken);
        if age >= CENSUS_EVERY_NS {
            // One of those who find it old takes it; the others use the old one.
            let mine = census.taken_at_ns.compare_exchange(taken, now_ns, Ordering::Relaxed, Ordering::Relaxed);
            if let (Ok(_), Some(runnable)) = (mine, runnable_threads()) {
                let foreign = (runnable - self.running()).clamp(0, 255) as u32;
                let before = census.history.load(Ordering::Relaxed);
                let kept = if age < CENSUS_STALE_NS { before << 8 } else { 0 };
                census.history.store(kept | foreign, Ordering::Relaxed);
            }
        }
        let history = census.history.load(Ordering::Relaxed).to_le_bytes();
        let recent = &history[..CENSUS_DEPTH as usize];
        recent.iter().copied().min().map_or(0, i32::from)
    }

    /// Subtracts the share of a process that is gone.
    pub(crate) fn forget_load(&self, slot: SlotId) {
        let life = &self.slot(slot).life.0;
        let share = life.running.swap(0, Ordering::Relaxed);
        self.header().running.0.fetch_sub(share, Ordering::Relaxed);
    }
}

/// Adds to a share, then to the total; takes from the total, then from the
/// share. A process killed in between leaves the total one too low, never too
/// high: then the census sees one more foreign thread, and nothing is lost.
/// Counters only, so relaxed: nothing is published through them.
#[inline]
fn enter(total: &AtomicI32, share: &AtomicI32) {
    share.fetch_add(1, Ordering::Relaxed);
    total.fetch_add(1, Ordering::Relaxed);
}

#[inline]
fn leave(total: &AtomicI32, share: &AtomicI32) {
    total.fetch_sub(1, Ordering::Relaxed);
    share.fetch_sub(1, Ordering::Relaxed);
}

/// The kernel's count of runnable threads, this one included; none where the
/// file is not to be had.
fn runnable_threads() -> Option<i32> {
    static LOADAVG: OnceLock<Option<File>> = OnceLock::new();
    let file = LOADAVG.get_or_init(|| File::open("/proc/loadavg").ok()).as_ref()?;
    let mut text = [0u8; 64];
    let len = file.read_at(&mut text, 0).ok()?;
    parse_runnable(text.get(..len)?)
}

/// The number before the slash in `0.00 0.01 0.05 2/345 6789`.
fn parse_runnable(text: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(text).ok()?;
    let (runnable, _) = text.split_whitespace().nth(3)?.split_once('/')?;
    runnable.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_count_is_found_in_loadavg() {
        assert_eq!(parse_runnable(b"0.00 0.01 0.05 12/345 6789\n"), Some(12));
        assert_eq!(parse_runnable(b""), None);
        assert_eq!(parse_runnable(b"0.00 0.01 0.05 x/345"), None);
        assert!(runnable_threads().is_none_or(|n| n >= 1));
    }

    #[test]
    fn a_dead_process_takes_its_share_of_the_counter_with_it() {
        let fabric = Fabric::create().unwrap();
        let (dead, alive) = (SlotId::new(1).unwrap(), SlotId::new(2).unwrap());
        fabric.claim_slot(dead, 1);
        fabric.claim_slot(alive, 2);
        fabric.enter_running(dead);
        fabric.enter_running(dead);
        let _guard = fabric.running_guard(alive);
        assert_eq!(fabric.running(), 3);
        fabric.release_slot(dead);
        assert_eq!(fabric.running(), 1);
    }
}
