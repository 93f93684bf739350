//! The shared object table: one 64-byte entry per object, and one row of pin counts per process.
//!
//! It is a second sparse memfd: entries first, then `PROCESSES_MAX` rows of `OBJECTS_MAX` counts. Only pages that are
//! used exist. The node is the only one that moves an entry out of `Free` or retires it; a writer claims and seals;
//! readers only change words in their own process's row, so a reader that dies leaves nothing behind once its row is
//! cleared. The node never decides by what it reads here except "sealed or not" and "pinned or not": offsets and
//! lengths that it allocates by are in its own memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::FallocateFlags;

use crate::arena::ArenaError;
use crate::mapping::{self, Mapping};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How many objects a machine's store can hold at a time. At the bound `Store::create` answers `TableFull`.
pub const OBJECTS_MAX: u32 = 262_144;
/// How many processes can use one store at a time. At the bound [`ProcessSlot::new`] answers `None`.
pub const PROCESSES_MAX: u32 = 4096;

const ENTRY_BYTES: u64 = 64;
const ENTRIES_BYTES: u64 = OBJECTS_MAX as u64 * ENTRY_BYTES;
const ROW_BYTES: u64 = OBJECTS_MAX as u64 * 4;
const TABLE_BYTES: u64 = ENTRIES_BYTES + ROW_BYTES * PROCESSES_MAX as u64;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Entry>() as u64 == ENTRY_BYTES && size_of::<AtomicU32>() == 4);

/// Where an object is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum EntryState {
    /// No object.
    Free = 0,
    /// Memory is allocated; nobody writes yet.
    Unsealed = 1,
    /// One writer has claimed it.
    Writing = 2,
    /// Complete and immutable; may be pinned.
    Sealed = 3,
    /// The node is looking for pins; goes back to `Sealed` if there are any.
    Evicting = 4,
    /// To be freed as soon as nobody has a pin; no new pins.
    Condemned = 5,
}

impl EntryState {
    fn from_bits(bits: u32) -> Option<Self> {
        [Self::Free, Self::Unsealed, Self::Writing, Self::Sealed, Self::Evicting, Self::Condemned]
            .into_iter()
            .find(|state| *state as u32 == bits)
    }
}

/// One object's shared words. The state word packs the generation (high half) and the state (low half), so that one
/// compare-and-swap checks both.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Entry {
    state: AtomicU64,
    pub(crate) offset: AtomicU64,
    pub(crate) len: AtomicU64,
    pub(crate) watermark: AtomicU64,
}

fn pack(generation: u32, state: EntryState) -> u64 {
    u64::from(generation) << 32 | u64::from(state as u32)
}

impl Entry {
    #[cfg(all(test, loom))]
    pub(crate) fn new(generation: u32, state: EntryState) -> Self {
        let word = || AtomicU64::new(0);
        Self { state: AtomicU64::new(pack(generation, state)), offset: word(), len: word(), watermark: word() }
    }

    /// Generation and state; `None` for a state that no one of us writes. Acquire: pairs with the Release of
    /// `advance` and `publish`, so offset, length and the bytes below a seal are seen.
    pub(crate) fn load(&self) -> Option<(u32, EntryState)> {
        let word = self.state.load(Ordering::Acquire);
        EntryState::from_bits(word as u32).map(|state| ((word >> 32) as u32, state))
    }

    /// Moves one generation from one state to another; false when the entry was not there.
    pub(crate) fn advance(&self, generation: u32, from: EntryState, to: EntryState) -> bool {
        // AcqRel: Release publishes what the mover wrote before, Acquire lets it see what the last mover wrote.
        self.state
            .compare_exchange(pack(generation, from), pack(generation, to), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Ends new pins, and the right to seal, for good. A swap, so that it stands in one order with the compare-and-swap
    /// of a writer that seals at the same time: either that comes first and is overwritten, or it fails.
    pub(crate) fn condemn(&self, generation: u32) {
        self.state.swap(pack(generation, EntryState::Condemned), Ordering::AcqRel);
    }

    /// Sets generation and state whatever was there: for the node, which owns entries that are free or retired.
    pub(crate) fn publish(&self, generation: u32, state: EntryState) {
        self.state.store(pack(generation, state), Ordering::Release);
    }
}

/// The place of one process in the pin rows, given out by the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessSlot(u32);

impl ProcessSlot {
    /// The slot with this number, if there is one.
    pub fn new(index: u32) -> Option<Self> {
        (index < PROCESSES_MAX).then_some(Self(index))
    }

    /// The slot's number.
    pub fn index(self) -> u32 {
        self.0
    }
}

/// The shared table, mapped.
#[derive(Debug)]
pub struct Table {
    fd: OwnedFd,
    mapping: Mapping,
}

impl Table {
    /// Makes an empty table.
    pub fn create() -> Result<Self, ArenaError> {
        let fd = mapping::create_sealed(c"bireme-table", TABLE_BYTES)?;
        let mapping = Mapping::new(&fd, TABLE_BYTES, true)?;
        Ok(Self { fd, mapping })
    }

    /// Opens a table that another process created and handed over by descriptor.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, ArenaError> {
        if mapping::sealed_len(&fd)? != Some(TABLE_BYTES) {
            return Err(ArenaError::NotOurs);
        }
        let mapping = Mapping::new(&fd, TABLE_BYTES, true)?;
        Ok(Self { fd, mapping })
    }

    /// The descriptor to hand to other processes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Says whether an `exec` in this process keeps the descriptor open (it does not by default).
    pub fn set_inheritable(&self, inheritable: bool) -> Result<(), ArenaError> {
        Ok(mapping::set_inheritable(&self.fd, inheritable)?)
    }

    pub(crate) fn entry(&self, index: u32) -> Option<&Entry> {
        if index >= OBJECTS_MAX {
            return None;
        }
        let address = self.mapping.at(u64::from(index) * ENTRY_BYTES, ENTRY_BYTES)?;
        // SAFETY: inside the mapping, 64-byte aligned (page-aligned base, 64-byte stride), only ever accessed as
        // atomics by every process, and every bit pattern is a valid atomic. It lives as long as `self`.
        Some(unsafe { address.cast::<Entry>().as_ref() })
    }

    pub(crate) fn pin_word(&self, slot: ProcessSlot, index: u32) -> Option<&AtomicU32> {
        if index >= OBJECTS_MAX {
            return None;
        }
        let offset = ENTRIES_BYTES + u64::from(slot.0) * ROW_BYTES + u64::from(index) * 4;
        let address = self.mapping.at(offset, 4)?;
        // SAFETY: inside the mapping, 4-byte aligned, only ever accessed as an atomic; lives as long as `self`.
        Some(unsafe { address.cast::<AtomicU32>().as_ref() })
    }

    /// Zeroes a dead process's row by giving its pages back.
    pub(crate) fn clear_row(&self, slot: ProcessSlot) -> Result<(), ArenaError> {
        let offset = ENTRIES_BYTES + u64::from(slot.0) * ROW_BYTES;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.fd, flags, offset, ROW_BYTES)?)
    }
}
