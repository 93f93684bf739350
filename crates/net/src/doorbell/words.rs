//! The words of one doorbell and the protocol on them.
//!
//! A process has many connections and one doorbell. A producer publishes a
//! frame, marks its connection ready and wakes the process if nobody there is
//! awake. Two kinds of thread drain: the *caller* (a user thread that waits for
//! its own reply) and the *pump* (which drives the process when no caller
//! waits). Each sleeps on a word of its own, so that a peer wakes the right one
//! and a reply makes no second hop between threads.
//!
//! | caller word | pump word | a producer wakes |
//! |---|---|---|
//! | present, asleep | any | the caller |
//! | present | any | nobody: the caller looks before it sleeps or leaves |
//! | absent | asleep | the pump |
//! | absent | awake | nobody: the pump looks before it sleeps |
//!
//! BELL-1, *no lost message*: a producer that finds its ready bit set does
//! nothing. Its order is `tail store, fence, bit load`; the drainer's is
//! `bit swap, fence, tail load`. If the load came before the swap, the fences
//! are in that order too, and the drainer's tail load sees the store. If it came
//! after, the bit was clear and the producer sets it.
//!
//! BELL-2, *no lost wake-up*: `summary or, fence, word loads` here and
//! `word store, fence, summary load` in [`Words::prepare_sleep`]. At least one
//! of the two sees the other: the producer wakes, or the sleeper stays up. In
//! between, `FUTEX_WAIT` compares the word under the kernel's lock.
//!
//! BELL-3, *no gap at leaving*: a caller clears its word, fences and looks at
//! the summary once more; what it finds it hands to the pump by waking it. A
//! producer that still saw the caller present has set the summary before that
//! look; one that came later sees the pump's word.
//!
//! BELL-4, *no lost wake-up by death*: the waker changes the word and wakes in
//! one system call, so there is no instruction at which a killed producer
//! leaves a sleeper behind that looks awake. A producer killed between bit and
//! summary harms its own connection only, and the next [`Words::ring`] with
//! `force`, which every new producer starts with, repairs it.
//!
//! A pump that has sockets too sleeps in its poller and is woken by an eventfd. Its word then says so, and carries the
//! number of the sleep. A producer first writes to the eventfd, whose edge wakes this sleep or the next, and only then
//! clears the word, if it still is the word of the same sleep: killed in between, it has woken the pump (BELL-4); too
//! late, it changes nothing (BELL-2), where a plain clear would make a later sleep look awake. A slot sleeps in one
//! of the two ways for all its life: the futex's wake compares no number.

use std::time::Duration;

use crate::sync::{AtomicU64, Futex, Knocker, Ordering, fence, fence_after_rmw};

/// How many connections one process can have.
pub const CONNECTIONS_MAX: u16 = if cfg!(loom) { 64 } else { 4096 };
const WORDS: usize = CONNECTIONS_MAX as usize / 64;

/// Set in a sleeper's word while it sleeps or is about to.
const ASLEEP: u32 = 1;
/// Set in the caller's word while a caller drains in place of the pump.
const PRESENT: u32 = 2;
/// Set in the pump's word while its sleep is one in the poller.
const IN_POLLER: u32 = 4;
/// Where the number of that sleep begins.
const SLEEP_SHIFT: u32 = 3;

/// The number of a connection in its receiver's doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Connection(u16);

impl Connection {
    /// The connection of a process to itself, which [`ring_self`] marks. Never
    /// handed to a peer.
    ///
    /// [`ring_self`]: crate::Doorbell::ring_self
    pub const SELF: Connection = Connection(CONNECTIONS_MAX - 1);

    /// The connection with this number, unless it is out of range.
    pub const fn new(index: u16) -> Option<Self> {
        if index < CONNECTIONS_MAX { Some(Self(index)) } else { None }
    }

    /// Its number.
    pub const fn index(self) -> u16 {
        self.0
    }
}

/// Which of the two threads that can drain a process is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeper {
    /// The thread that drives the process when no caller waits.
    Pump,
    /// A user thread that waits for its own reply.
    Caller,
}

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A peer rang, or the sleep ended for no reason: look and sleep again.
    Rung,
    /// The timeout passed.
    TimedOut,
}

/// One doorbell in shared memory. All zeroes is a valid one: nothing ready,
/// both threads awake, no caller.
#[repr(C, align(128))]
pub(crate) struct Words {
    caller: Futex,
    pump: Futex,
    summary: AtomicU64,
    /// The first words share the line of the summary, so that a process with
    /// few connections is rung by touching one line.
    ready: [AtomicU64; WORDS],
}

impl Words {
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            caller: Futex::new(),
            pump: Futex::new(),
            summary: AtomicU64::new(0),
            ready: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// What a producer has done that was killed in the middle of `ring`.
    #[cfg(all(test, loom))]
    pub(crate) fn mark_ready_only(&self, connection: Connection) {
        let index = usize::from(connection.0);
        self.ready[index / 64].fetch_or(1 << (index % 64), Ordering::AcqRel);
    }

    /// What a producer has done that was killed between the eventfd and the pump's word.
    #[cfg(all(test, loom))]
    pub(crate) fn ring_and_only_knock(&self, connection: Connection, knocker: &Knocker) {
        self.mark_ready_only(connection);
        let word = usize::from(connection.0) / 64;
        self.summary.fetch_or(1 << word, Ordering::AcqRel);
        fence_after_rmw();
        if self.pump.word.load(Ordering::Relaxed) & ASLEEP != 0 {
            knocker.knock();
        }
    }

    /// Marks a connection ready and wakes the process if it sleeps. `force`
    /// does so even if the bit is set already.
    #[inline]
    pub(crate) fn ring(&self, connection: Connection, force: bool, knocker: &Knocker) {
        let index = usize::from(connection.0);
        let (word, bit) = (index / 64, 1u64 << (index % 64));
        // BELL-1: the tail store before the bit load.
        fence(Ordering::SeqCst);
        if self.ready[word].load(Ordering::Relaxed) & bit != 0 && !force {
            return;
        }
        self.ready[word].fetch_or(bit, Ordering::AcqRel);
        // After the bit, and released with it: who takes the summary finds it.
        self.summary.fetch_or(1 << word, Ordering::AcqRel);
        // BELL-2: the summary before the sleepers' words.
        fence_after_rmw();
        self.wake(knocker);
    }

    /// Wakes whoever should drain, if it sleeps.
    #[inline]
    fn wake(&self, knocker: &Knocker) {
        let caller = self.caller.word.load(Ordering::Relaxed);
        if caller & PRESENT != 0 {
            if caller & ASLEEP != 0 {
                self.caller.clear_and_wake(ASLEEP as u16);
            }
            return;
        }
        let pump = self.pump.word.load(Ordering::Relaxed);
        if pump & ASLEEP != 0 {
            self.wake_pump(pump, knocker);
        }
    }

    /// Wakes the pump from the sleep that its word was seen to tell of.
    #[cold]
    fn wake_pump(&self, seen: u32, knocker: &Knocker) {
        if seen & IN_POLLER == 0 {
            self.pump.clear_and_wake(ASLEEP as u16);
            return;
        }
        knocker.knock();
        // Spares the others the system call until the pump is up. That it fails means that the pump has been.
        let _ = self.pump.word.compare_exchange(seen, seen & !ASLEEP, Ordering::AcqRel, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.summary.load(Ordering::Relaxed) != 0
    }

    /// Takes every ready bit and passes it on. The bits are taken word by word:
    /// a bit that was passed on must be drained to the end, or kept in mind.
    #[inline]
    pub(crate) fn take_ready(&self, mut found: impl FnMut(Connection)) -> usize {
        if !self.is_ready() {
            return 0;
        }
        let mut count = 0;
        let mut summary = self.summary.swap(0, Ordering::AcqRel);
        while summary != 0 {
            let word = summary.trailing_zeros() as usize;
            summary &= summary - 1;
            // In range: only bits below WORDS are ever set, and a corrupt
            // summary must not take the process down.
            let Some(ready) = self.ready.get(word) else {
                continue;
            };
            let mut bits = ready.swap(0, Ordering::AcqRel);
            // BELL-1: the bit swap before the tail loads of the drain.
            fence_after_rmw();
            while bits != 0 {
                let index = word as u16 * 64 + bits.trailing_zeros() as u16;
                bits &= bits - 1;
                count += 1;
                found(Connection(index));
            }
        }
        count
    }

    pub(crate) fn enter_caller(&self) {
        // Nothing depends on when peers notice: until they do, they wake the
        // pump, which finds a caller present and sleeps again.
        self.caller.word.store(PRESENT, Ordering::Release);
    }

    pub(crate) fn leave_caller(&self, knocker: &Knocker) -> bool {
        self.caller.word.store(0, Ordering::Release);
        // BELL-3: absence before the last look.
        fence(Ordering::SeqCst);
        let left_over = self.is_ready();
        if left_over {
            self.wake(knocker);
        }
        left_over
    }

    pub(crate) fn prepare_sleep(&self, who: Sleeper) -> bool {
        let (_, asleep) = self.word_of(who);
        self.announce(who, asleep)
    }

    /// Announces that the pump will sleep in its poller, for the `sleep`-th time: no two sleeps have the same number
    /// while a producer could still be about to clear the word of the first.
    pub(crate) fn prepare_poll(&self, sleep: u32) -> bool {
        self.announce(Sleeper::Pump, ASLEEP | IN_POLLER | sleep << SLEEP_SHIFT)
    }

    #[inline]
    fn announce(&self, who: Sleeper, asleep: u32) -> bool {
        let (futex, _) = self.word_of(who);
        futex.word.store(asleep, Ordering::Release);
        // BELL-2: the word before the summary.
        fence(Ordering::SeqCst);
        // What is ready while a caller drains is the caller's to see to, and
        // BELL-3 gives back what it leaves.
        let theirs = who == Sleeper::Pump && self.caller_is_present();
        if self.is_ready() && !theirs {
            self.set_awake(who);
            return false;
        }
        true
    }

    pub(crate) fn sleep(&self, who: Sleeper, timeout: Option<Duration>) -> Woken {
        let (futex, asleep) = self.word_of(who);
        let rung = futex.wait(asleep, timeout);
        self.set_awake(who);
        if rung { Woken::Rung } else { Woken::TimedOut }
    }

    pub(crate) fn set_awake(&self, who: Sleeper) {
        let (futex, _) = self.word_of(who);
        // A read-modify-write, so that a waker's clear is never undone.
        futex.word.fetch_and(!ASLEEP, Ordering::AcqRel);
    }

    #[inline]
    pub(crate) fn caller_is_present(&self) -> bool {
        self.caller.word.load(Ordering::Acquire) & PRESENT != 0
    }

    /// Forgets everything: for a slot whose process is gone.
    #[cfg(not(loom))]
    pub(crate) fn reset(&self) {
        self.caller.word.store(0, Ordering::Relaxed);
        self.pump.word.store(0, Ordering::Relaxed);
        for word in &self.ready {
            word.store(0, Ordering::Relaxed);
        }
        self.summary.store(0, Ordering::Release);
    }

    /// The futex of a sleeper and the value it has while that one sleeps.
    fn word_of(&self, who: Sleeper) -> (&Futex, u32) {
        match who {
            Sleeper::Pump => (&self.pump, ASLEEP),
            Sleeper::Caller => (&self.caller, PRESENT | ASLEEP),
        }
    }
}
