//! The pin protocol: readers against the node's evict and free, in the manner of hazard pointers.
//!
//! A reader raises the count in its own process's row, fences, and then looks at the entry: only if it is still the
//! expected generation in an accepted state does the pin count. The node moves the entry out of that state, fences,
//! and then looks at the counts of all live processes. The two sequentially consistent fences make it impossible that
//! both miss each other (store buffering): either the reader sees the new state and undoes its pin, or the node sees
//! the count and leaves the memory alone (`OBJ-2`). A reader that dies leaves a count in its own row and nowhere
//! else; the node clears the row.
//!
//! A failed attempt raises a count for a moment. The node may take that for a pin and try again later: harmless.

use std::sync::atomic::AtomicBool;

use crate::sync::{AtomicU32, Ordering, fence};
use crate::table::{Entry, EntryState};

/// More pins of one object by one process than any program holds: a count this high is a leak in a loop.
const PINS_MAX: u32 = u32::MAX / 2;

/// Why a pin was not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The entry is another generation, or not in an accepted state.
    Gone,
    /// The node is just looking whether it is pinned; worth another try.
    Evicting,
    /// `PINS_MAX` reached.
    TooMany,
}

/// Takes a pin, if the entry is this generation in a state that `accepts` allows.
pub(crate) fn acquire(
    entry: &Entry,
    word: &AtomicU32,
    generation: u32,
    accepts: impl Fn(EntryState) -> bool,
) -> Result<(), Refused> {
    // Relaxed: the fence below orders it before the look at the entry.
    if word.fetch_add(1, Ordering::Relaxed) >= PINS_MAX {
        release(word);
        return Err(Refused::TooMany);
    }
    fence(Ordering::SeqCst);
    let refused = match entry.load() {
        Some((found, state)) if found == generation && accepts(state) => return Ok(()),
        Some((found, EntryState::Evicting)) if found == generation => Refused::Evicting,
        _ => Refused::Gone,
    };
    release(word);
    Err(refused)
}

/// Takes one more pin where the process holds one already, so nothing needs to be checked.
pub(crate) fn acquire_again(word: &AtomicU32) {
    // Relaxed: the pin that is held keeps the object; as with `Arc`, an overflow is stopped before it can wrap.
    assert!(word.fetch_add(1, Ordering::Relaxed) < PINS_MAX, "one process pinned one object 2^31 times");
}

/// Whether the pins of this process are those of the process that it was forked from.
static DISOWNED: AtomicBool = AtomicBool::new(false);

/// To be called in a fork: its views are copies, and dropping or cloning them must not change the original's counts.
/// They stay readable for as long as the original keeps its own.
pub fn disown_pins() {
    // Relaxed, here and below: a fork has one thread.
    DISOWNED.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// To be called in a fork that is given a slot of its own, before its first pin.
pub fn own_pins() {
    DISOWNED.store(false, std::sync::atomic::Ordering::Relaxed);
}

/// Whether views of this process hold pins of its own.
pub(crate) fn are_own() -> bool {
    !DISOWNED.load(std::sync::atomic::Ordering::Relaxed)
}

/// Gives a pin back.
pub(crate) fn release(word: &AtomicU32) {
    // Release: our reads of the object come before the node's Acquire look that finds zero.
    word.fetch_sub(1, Ordering::Release);
}

/// Whether no live process holds a pin. Meaningful only after the entry has left the states that can be pinned.
pub(crate) fn unpinned<'a>(mut words: impl Iterator<Item = &'a AtomicU32>) -> bool {
    fence(Ordering::SeqCst);
    words.all(|word| word.load(Ordering::Acquire) == 0)
}

/// Why an eviction did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EvictRefused {
    /// Not sealed in this generation.
    NotSealed,
    /// Somebody reads it; it is `Sealed` again.
    Pinned,
}

/// Moves a sealed object to `Evicting` for good if nobody has a pin, and back to `Sealed` otherwise.
pub(crate) fn try_evict<'a>(
    entry: &Entry,
    generation: u32,
    words: impl Iterator<Item = &'a AtomicU32>,
) -> Result<(), EvictRefused> {
    if !entry.advance(generation, EntryState::Sealed, EntryState::Evicting) {
        return Err(EvictRefused::NotSealed);
    }
    if unpinned(words) {
        return Ok(());
    }
    // Only the node leaves `Evicting`, so this cannot fail unless the shared word was overwritten; publish repairs.
    entry.publish(generation, EntryState::Sealed);
    Err(EvictRefused::Pinned)
}

#[cfg(all(test, loom))]
mod tests;
