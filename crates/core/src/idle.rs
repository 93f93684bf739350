//! The memory that a node gives back to the machine when it is not used.
//!
//! Free memory of the object store is kept for a while, because the next objects find it warm: a page that the machine
//! has to find and clear costs more than a copy into it. What was not used for [`IDLE_US`] goes back, but for a reserve.
//! The heap of a process that has done much keeps free pieces between those in use: it is trimmed when the node has
//! been quiet for as long, and in a node of its own from time to time however busy it is.

use crate::time::Tick;

/// Memory unused for this long goes back.
pub const IDLE_US: u64 = 3_000_000;
/// Interval at which a busy node in a process of its own trims its heap.
pub const TRIM_EVERY_US: u64 = 60_000_000;
/// Maximum free memory of the object store to keep warm; a quarter of a small store.
pub const RESERVE_BYTES_MAX: u64 = 256 << 20;

/// The object store as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreUse {
    /// The most bytes that it may hold.
    pub capacity: u64,
    /// Bytes of memory behind it.
    pub resident: u64,
    /// The most bytes that were allocated at a time since the last look.
    pub used_peak: u64,
}

/// An action that the machine asks its shell for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Give so many free bytes of the object store back.
    GiveBack(u64),
    /// Give free memory of the heap back.
    TrimHeap,
}

/// The machine.
#[derive(Debug)]
pub struct Idle {
    /// Whether the process is the node's alone.
    own_process: bool,
    window_began: Tick,
    /// The most that was allocated in this window.
    used_peak: u64,
    busy_at: Tick,
    trimmed_at: Tick,
    /// Something was done since the heap was trimmed.
    stirred: bool,
}

impl Idle {
    /// A node that starts now, in a process of its own or in a user's program.
    pub fn new(own_process: bool, now: Tick) -> Self {
        let (window_began, busy_at, trimmed_at) = (now, now, now);
        Self { own_process, window_began, used_peak: 0, busy_at, trimmed_at, stirred: false }
    }

    /// A look at the store, and whether the node had anything to do since the last one. Several a window are needed.
    pub fn step(&mut self, store: StoreUse, busy: bool, now: Tick, effects: &mut Vec<Effect>) {
        self.used_peak = self.used_peak.max(store.used_peak);
        if now.since_us(self.window_began) >= IDLE_US {
            let reserve = RESERVE_BYTES_MAX.min(store.capacity / 4);
            let spare = store.resident.saturating_sub(self.used_peak).saturating_sub(reserve);
            if spare > 0 {
                effects.push(Effect::GiveBack(spare));
            }
            self.window_began = now;
            self.used_peak = 0;
        }
        if busy {
            self.busy_at = now;
            self.stirred = true;
        }
        let quiet = now.since_us(self.busy_at) >= IDLE_US;
        let due = self.own_process && now.since_us(self.trimmed_at) >= TRIM_EVERY_US;
        if self.stirred && (quiet || due) {
            self.stirred = false;
            self.trimmed_at = now;
            effects.push(Effect::TrimHeap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    struct Bench {
        machine: Idle,
        now: Tick,
    }

    impl Bench {
        fn new(own_process: bool) -> Self {
            Self { machine: Idle::new(own_process, Tick(7)), now: Tick(7) }
        }

        fn look(&mut self, after_us: u64, resident: u64, used_peak: u64, busy: bool) -> Vec<Effect> {
            self.now = self.now.plus_us(after_us);
            let mut effects = Vec::new();
            let store = StoreUse { capacity: 4096 * MIB, resident: resident * MIB, used_peak: used_peak * MIB };
            self.machine.step(store, busy, self.now, &mut effects);
            effects
        }
    }

    #[test]
    fn free_memory_goes_back_after_a_while_but_for_the_reserve() {
        let mut bench = Bench::new(false);
        assert_eq!(bench.look(1, 1600, 1600, false), []);
        // It was in use in the first window, and free in the second.
        assert_eq!(bench.look(IDLE_US, 1600, 0, false), []);
        assert_eq!(bench.look(IDLE_US - 1, 1600, 0, false), []);
        assert_eq!(bench.look(1, 1600, 0, false), [Effect::GiveBack((1600 - 256) * MIB)]);
        assert_eq!(bench.look(IDLE_US, 256, 0, false), []);
    }

    #[test]
    fn memory_that_is_used_again_and_again_stays() {
        let mut bench = Bench::new(false);
        for _ in 0..20 {
            assert_eq!(bench.look(IDLE_US / 2, 1600, 1600, false), []);
            assert_eq!(bench.look(IDLE_US / 4, 1600, 0, false), []);
        }
        // A part of it is not, from some window on.
        bench.look(IDLE_US, 1600, 1000, false);
        assert_eq!(bench.look(IDLE_US, 1600, 1000, false), [Effect::GiveBack(344 * MIB)]);
    }

    #[test]
    fn the_reserve_of_a_small_store_is_a_quarter_of_it() {
        let mut machine = Idle::new(false, Tick(0));
        let mut effects = Vec::new();
        let store = StoreUse { capacity: 100, resident: 90, used_peak: 10 };
        machine.step(store, false, Tick(IDLE_US), &mut effects);
        assert_eq!(effects, [Effect::GiveBack(55)]);
    }

    #[test]
    fn the_heap_is_trimmed_once_after_work() {
        let mut bench = Bench::new(false);
        assert_eq!(bench.look(10 * IDLE_US, 0, 0, false), [], "nothing was done yet");
        assert_eq!(bench.look(1, 0, 0, true), []);
        assert_eq!(bench.look(IDLE_US - 1, 0, 0, false), []);
        assert_eq!(bench.look(1, 0, 0, false), [Effect::TrimHeap]);
        assert_eq!(bench.look(IDLE_US, 0, 0, false), []);
    }

    #[test]
    fn a_node_of_its_own_trims_while_it_is_busy_and_a_program_does_not() {
        let trims = |own_process: bool| {
            let mut bench = Bench::new(own_process);
            let looks = (0..2 * TRIM_EVERY_US / IDLE_US * 2).map(|_| bench.look(IDLE_US / 2, 0, 0, true));
            looks.flatten().filter(|effect| *effect == Effect::TrimHeap).count()
        };
        assert_eq!(trims(true), 2);
        assert_eq!(trims(false), 0);
    }
}
