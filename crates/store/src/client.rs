//! What every process holds: the two mappings and its own row of pins.
//!
//! A client reads and writes objects whose locations the node has given out. It decides nothing and asks nobody: a
//! pin is a few instructions on shared words. Any location, however wrong, gives a typed error (`OBJ-4`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::io::Errno;

use crate::arena::Arena;
use crate::object::{Growing, Location, Pinned, Sealed, Unsealed, UnsealedLocation};
use crate::pin::{self, Refused};
use crate::sync::{AtomicU32, Ordering};
use crate::table::{Entry, EntryState, ProcessSlot, Table};

/// How often a pin is tried again while the node is looking at the same entry; its look takes under a microsecond.
const EVICTING_TRIES_MAX: u32 = 100;

/// Why an object cannot be read here and now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The object was freed, spilled or is being evicted.
    #[error("the object is no longer at this location: ask the node where it is now")]
    Moved,
    /// The location contradicts the table or lies outside the arena.
    #[error("the location does not describe an object of this store: the sender is broken")]
    Corrupt,
    /// This process holds 2^31 pins on the object.
    #[error("this process holds too many pins on one object: drop some of its views")]
    TooManyPins,
}

/// Why an object cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Another writer has it, or it is not waiting for one.
    #[error("the object cannot be claimed for writing: it was claimed before or given up by the node")]
    NotClaimable,
    /// The location contradicts the table or lies outside the arena.
    #[error("the location does not describe an object of this store: the sender is broken")]
    Corrupt,
    /// More bytes than the object has left.
    #[error("{asked} bytes do not fit into the {left} that are left of the object: create it longer")]
    Overrun {
        /// Bytes that were to be written.
        asked: u64,
        /// Bytes left above the watermark.
        left: u64,
    },
    /// Sealed too early.
    #[error("the object has {watermark} of {len} bytes: write the rest before sealing it")]
    Unfinished {
        /// Bytes written.
        watermark: u64,
        /// Bytes that the object was created with.
        len: u64,
    },
    /// The node gave the object up while it was written.
    #[error("the object was given up by the node while it was written: create it again")]
    Aborted,
    /// The machine has no memory left for the arena's pages.
    #[error("no memory for the pages of the object ({0}): free objects or give the store a smaller capacity")]
    NoMemory(Errno),
}

/// A process's access to the store. A clone is one reference count.
#[derive(Debug, Clone)]
pub struct StoreClient {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    arena: Arc<Arena>,
    table: Arc<Table>,
    slot: ProcessSlot,
    /// Its slot belongs to somebody else by now.
    closed: AtomicBool,
}

impl StoreClient {
    /// A client for the process that the node has admitted under `slot`.
    pub fn new(arena: Arc<Arena>, table: Arc<Table>, slot: ProcessSlot) -> Self {
        Self { shared: Arc::new(Shared { arena, table, slot, closed: AtomicBool::new(false) }) }
    }

    /// To be called before the node gives the slot to another process while this one lives on: from then on views that are
    /// left hold no pins. Their bytes stay readable but may become those of other objects.
    pub fn close(&self) {
        // Release: a view that is dropped after has seen it, one that was dropped before has given its pin back.
        self.shared.closed.store(true, std::sync::atomic::Ordering::Release);
    }

    /// Whether views of this client hold pins.
    pub(crate) fn holds_pins(&self) -> bool {
        crate::pin::are_own() && !self.shared.closed.load(std::sync::atomic::Ordering::Acquire)
    }

    /// This process's slot.
    pub fn slot(&self) -> ProcessSlot {
        self.shared.slot
    }

    /// The memory of the objects.
    pub fn arena(&self) -> &Arena {
        &self.shared.arena
    }

    pub(crate) fn table(&self) -> &Table {
        &self.shared.table
    }

    pub(crate) fn pin_word(&self, entry: u32) -> Option<&AtomicU32> {
        self.shared.table.pin_word(self.shared.slot, entry)
    }

    /// Says that memory of a new object was given back since this process may have used it.
    pub fn forget_pages(&self, at: UnsealedLocation) {
        self.arena().forget(at.0.offset, at.0.len);
    }

    /// Pins a sealed object and gives a view of all of it.
    pub fn pin(&self, sealed: Sealed) -> Result<Pinned, PinError> {
        self.pin_view(sealed.0, |state| state == EntryState::Sealed)
    }

    /// Pins an object that may still be written and gives a view of what is final by now.
    pub fn pin_partial(&self, location: UnsealedLocation) -> Result<Pinned, PinError> {
        let growing = self.pin_growing(location)?;
        let len = growing.watermark();
        Ok(growing.into_view(len))
    }

    /// Pins an object that may still be written and gives a view that grows with it; for a sealed one, of all of it.
    pub fn pin_growing(&self, location: UnsealedLocation) -> Result<Growing, PinError> {
        let accepts = |state| matches!(state, EntryState::Unsealed | EntryState::Writing | EntryState::Sealed);
        let whole = self.pin_view(location.0, accepts)?;
        Ok(Growing::over(self.clone(), whole))
    }

    fn pin_view(&self, location: Location, accepts: impl Fn(EntryState) -> bool) -> Result<Pinned, PinError> {
        let start = self.arena().read_at(location.offset, location.len).ok_or(PinError::Corrupt)?;
        let entry = self.table().entry(location.entry).ok_or(PinError::Corrupt)?;
        let word = self.pin_word(location.entry).ok_or(PinError::Corrupt)?;
        let mut tries = 0;
        loop {
            match pin::acquire(entry, word, location.generation, &accepts) {
                Ok(()) => break,
                Err(Refused::Evicting) if tries < EVICTING_TRIES_MAX => {
                    tries += 1;
                    std::hint::spin_loop();
                }
                Err(Refused::Evicting | Refused::Gone) => return Err(PinError::Moved),
                Err(Refused::TooMany) => return Err(PinError::TooManyPins),
            }
        }
        if !describes(entry, location) {
            pin::release(word);
            return Err(PinError::Corrupt);
        }
        Ok(Pinned::held(self.clone(), location, start))
    }

    /// Claims an object for writing. It succeeds for one caller in one process.
    pub fn writer(&self, location: UnsealedLocation) -> Result<Unsealed, WriteError> {
        let location = location.0;
        self.arena().write_at(location.offset, location.len).ok_or(WriteError::Corrupt)?;
        let entry = self.table().entry(location.entry).ok_or(WriteError::Corrupt)?;
        let word = self.pin_word(location.entry).ok_or(WriteError::Corrupt)?;
        // The pin first: from here on an abort by the node waits for us.
        pin::acquire(entry, word, location.generation, |state| state == EntryState::Unsealed)
            .map_err(|_| WriteError::NotClaimable)?;
        let claimed = if describes(entry, location) {
            let claimed = entry.advance(location.generation, EntryState::Unsealed, EntryState::Writing);
            claimed.then_some(()).ok_or(WriteError::NotClaimable)
        } else {
            Err(WriteError::Corrupt)
        };
        match claimed {
            Ok(()) => Ok(Unsealed::claimed(self.clone(), location)),
            Err(error) => {
                pin::release(word);
                Err(error)
            }
        }
    }
}

/// Whether a pinned entry holds what the location says.
fn describes(entry: &Entry, location: Location) -> bool {
    // Relaxed: the node wrote both before it published this generation, which the pin's Acquire has seen.
    entry.offset.load(Ordering::Relaxed) == location.offset && entry.len.load(Ordering::Relaxed) == location.len
}

#[cfg(test)]
mod tests;
