//! The node's side of the store: who gets which memory, and when it is given back.
//!
//! Single-threaded: the node calls it from one thread. Everything that a decision depends on (ranges, generations,
//! who is live) is in private memory; of the shared table only "is it sealed" and "is it pinned" are believed.
//!
//! Life of an object: `create` allocates; a client writes and seals; `free` (or `abort`, for one that is not sealed)
//! condemns the entry and gives the memory back at once, or later in `sweep` when a pin or a file job still needs
//! it. Spilling (in `server::spilling`) copies the bytes to the spill file while readers go on, and then evicts. Secondary
//! copies (in `server::copies`) are never spilled: they are dropped.

mod copies;
mod idle;
mod overflow;
mod spilling;
mod window;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::alloc::{Allocation, Allocator};
use crate::arena::{Arena, ArenaError};
use crate::object::{Location, Sealed, UnsealedLocation};
use crate::pin;
use crate::spill::{SpillArea, SpillOptions};
use crate::sync::{AtomicU32, Ordering};
use crate::table::{EntryState, OBJECTS_MAX, ProcessSlot, Table};

pub use copies::DropError;

/// Why the store cannot do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Longer than the whole arena.
    #[error(
        "an object of {asked} bytes can never fit into a store of {capacity}: split it or give the store more memory"
    )]
    NeverFits {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that the arena has.
        capacity: u64,
    },
    /// No free range is long enough now.
    #[error("no room for {asked} bytes: {free} are free, {largest} in one piece; free or spill objects first")]
    Full {
        /// Bytes asked for.
        asked: u64,
        /// Bytes free in all.
        free: u64,
        /// The longest free range.
        largest: u64,
    },
    /// `OBJECTS_MAX` objects exist.
    #[error("the store holds {max} objects, which is its limit: free some first")]
    TableFull {
        /// The limit.
        max: u32,
    },
    /// Everything in memory is in use, and the overflow file takes no more.
    #[error(
        "no room for {asked} bytes: everything in the store is in use, and its overflow file in the spill directory has \
         {used} of at most {max} bytes; hold fewer values at a time, give the store more memory, or raise spill_bytes_max"
    )]
    OverflowFull {
        /// Bytes asked for.
        asked: u64,
        /// Bytes in the overflow file.
        used: u64,
        /// The most that it may hold.
        max: u64,
    },
    /// The disk of the overflow file refused.
    #[error(
        "no room for {asked} bytes: everything in the store is in use, and the overflow file in the spill directory cannot \
         grow ({errno}); free disk space there or choose another spill directory"
    )]
    OverflowRefused {
        /// Bytes asked for.
        asked: u64,
        /// The error of the system.
        errno: rustix::io::Errno,
    },
    /// No object with this entry and generation.
    #[error("no object with entry {entry} and generation {generation}: it was freed before")]
    Unknown {
        /// The entry that was named.
        entry: u32,
        /// The generation that was named.
        generation: u32,
    },
}

/// What became of a `free` or an `abort`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum FreeOutcome {
    /// The memory is free.
    Freed,
    /// Somebody still has a pin or a file job runs; no new pins are given, and `sweep` will free it.
    Deferred,
}

/// Figures about the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Bytes allocated in the arena.
    pub used: u64,
    /// Bytes of the arena.
    pub capacity: u64,
    /// Bytes on disk, in the spill file and in the overflow file.
    pub spilled: u64,
    /// Objects in the arena.
    pub objects: u64,
    /// Bytes of the arena that were allocated or populated at least once.
    pub warm: u64,
    /// Objects that wait for a pin to go.
    pub deferred: u64,
}

/// One table entry as the node knows it.
#[derive(Debug)]
struct Record {
    generation: u32,
    held: Option<Held>,
}

/// The object in an entry.
#[derive(Debug)]
struct Held {
    allocation: Allocation,
    len: u64,
    /// Key in `by_use`.
    used_at: u64,
    /// A spill or restore job uses the bytes.
    busy: bool,
    condemned: bool,
    /// The same bytes are elsewhere too, so this copy is dropped where another would be spilled.
    secondary: bool,
    /// It lies in the overflow file and takes no memory.
    overflow: bool,
    /// Number of times that the node itself wants it to stay.
    holds: u32,
}

/// The place of a new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Memory,
    Overflow,
}

/// The node's store.
#[derive(Debug)]
pub struct Store {
    arena: Arc<Arena>,
    table: Arc<Table>,
    allocator: Allocator,
    /// Grows with the largest number of objects there ever was, up to `OBJECTS_MAX`.
    records: Vec<Record>,
    entries_free: Vec<u32>,
    /// Entries by time of last use, oldest first. The clock is a counter.
    by_use: BTreeMap<u64, u32>,
    uses: u64,
    /// Condemned objects that somebody had pinned, those first that were looked at longest ago.
    deferred: VecDeque<u32>,
    live: Vec<ProcessSlot>,
    populated: u64,
    spill_area: Arc<SpillArea>,
    /// Ranges of the overflow file.
    overflow: Allocator,
    /// The most bytes that were allocated at a time since this was last asked.
    used_peak: u64,
    /// Spans of the arena whose memory was given back, and that nobody has been given since.
    cold: BTreeSet<u64>,
    last_was_cold: bool,
}

impl Store {
    /// A store over a new arena and table, with nobody admitted yet.
    pub fn new(arena: Arc<Arena>, table: Arc<Table>, spill: SpillOptions) -> Self {
        Self {
            allocator: Allocator::new(arena.capacity()),
            used_peak: 0,
            cold: BTreeSet::new(),
            last_was_cold: false,
            overflow: Allocator::new(arena.overflow().map_or(0, |overflow| overflow.len())),
            arena,
            table,
            records: Vec::new(),
            entries_free: Vec::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            deferred: VecDeque::new(),
            live: Vec::new(),
            populated: 0,
            spill_area: Arc::new(SpillArea::new(spill)),
        }
    }

    /// Counts a process's pins from now on. Must come before the process gets its slot.
    pub fn admit_process(&mut self, slot: ProcessSlot) {
        if !self.live.contains(&slot) {
            self.live.push(slot);
        }
    }

    /// Forgets the pins of a process that is dead, and frees what only they kept. On an error the process stays
    /// admitted, and the call can be repeated.
    pub fn release_process(&mut self, slot: ProcessSlot) -> Result<(), ArenaError> {
        self.table.clear_row(slot)?;
        self.live.retain(|live| *live != slot);
        self.sweep();
        Ok(())
    }

    /// Allocates an object of `len` bytes for one process to write.
    pub fn create(&mut self, len: u64) -> Result<UnsealedLocation, StoreError> {
        self.create_in(len, EntryState::Unsealed, Room::Memory).map(UnsealedLocation)
    }

    fn create_in(&mut self, len: u64, state: EntryState, room: Room) -> Result<Location, StoreError> {
        if !self.allocator.could_ever_fit(len) {
            return Err(StoreError::NeverFits { asked: len, capacity: self.allocator.capacity() });
        }
        if self.entries_free.is_empty() && self.records.len() as u64 >= u64::from(OBJECTS_MAX) {
            return Err(StoreError::TableFull { max: OBJECTS_MAX });
        }
        let (allocation, base) = match room {
            Room::Memory => (self.allocator.allocate(len), 0),
            Room::Overflow => (Some(self.allocate_overflow(len)?), self.arena.capacity()),
        };
        let Some(allocation) = allocation else {
            let free = self.allocator.capacity() - self.allocator.used();
            return Err(StoreError::Full { asked: len, free, largest: self.allocator.largest_free() });
        };
        let index = self.entries_free.pop().unwrap_or_else(|| {
            self.records.push(Record { generation: 1, held: None });
            self.records.len() as u32 - 1
        });
        self.used_peak = self.used_peak.max(self.allocator.used());
        self.last_was_cold = room == Room::Memory && self.warm_up(allocation.offset(), allocation.len());
        self.uses += 1;
        self.by_use.insert(self.uses, index);
        let offset = base + allocation.offset();
        let record = &mut self.records[index as usize];
        record.held = Some(Held {
            allocation,
            len,
            used_at: self.uses,
            busy: false,
            condemned: false,
            secondary: false,
            overflow: room == Room::Overflow,
            holds: 0,
        });
        let location = Location { entry: index, generation: record.generation, offset, len };
        let entry = self.table.entry(index).expect("records never outgrow OBJECTS_MAX, checked above");
        // Relaxed: `publish` releases them together with the state.
        entry.offset.store(offset, Ordering::Relaxed);
        entry.len.store(len, Ordering::Relaxed);
        entry.watermark.store(0, Ordering::Relaxed);
        entry.publish(location.generation, state);
        Ok(location)
    }

    /// Gives up an object that is not sealed, for example because its writer died. If the writer lives, the memory
    /// stays its own until it lets go.
    pub fn abort(&mut self, location: UnsealedLocation) -> Result<FreeOutcome, StoreError> {
        self.free(location.0.entry, location.0.generation)
    }

    /// Gives up an object; nobody can pin it any more.
    pub fn free(&mut self, entry: u32, generation: u32) -> Result<FreeOutcome, StoreError> {
        let held = self.held_mut(entry, generation)?;
        if held.condemned {
            return Ok(FreeOutcome::Deferred);
        }
        held.condemned = true;
        let used_at = held.used_at;
        self.by_use.remove(&used_at);
        if let Some(shared) = self.table.entry(entry) {
            shared.condemn(generation);
        }
        if self.reclaim(entry) {
            return Ok(FreeOutcome::Freed);
        }
        self.deferred.push_back(entry);
        Ok(FreeOutcome::Deferred)
    }

    /// Tries again to free what was deferred; returns how many objects went.
    pub fn sweep(&mut self) -> usize {
        self.sweep_some(usize::MAX)
    }

    /// The same for `most` of them, in turn: for a node that does so all the time, however much is deferred.
    pub fn sweep_some(&mut self, most: usize) -> usize {
        let before = self.deferred.len();
        for _ in 0..before.min(most) {
            if let Some(entry) = self.deferred.pop_front()
                && !self.reclaim(entry)
            {
                self.deferred.push_back(entry);
            }
        }
        before - self.deferred.len()
    }

    /// Says that an object was used just now.
    pub fn touch(&mut self, entry: u32, generation: u32) {
        self.uses += 1;
        let now = self.uses;
        let Ok(held) = self.held_mut(entry, generation) else { return };
        if held.condemned {
            return;
        }
        let before = std::mem::replace(&mut held.used_at, now);
        self.by_use.remove(&before);
        self.by_use.insert(now, entry);
    }

    /// The location of an object, from the node's own records, if it is sealed. This is how a node checks what a
    /// process says it has sealed.
    pub fn sealed(&self, entry: u32, generation: u32) -> Option<Sealed> {
        let held = self.held(entry, generation)?;
        let state = self.table.entry(entry)?.load();
        let base = if held.overflow { self.arena.capacity() } else { 0 };
        let location = Location { entry, generation, offset: base + held.allocation.offset(), len: held.len };
        (!held.condemned && state == Some((generation, EntryState::Sealed))).then_some(Sealed(location))
    }

    /// Whether some live process holds a pin on the object now; by the time that the caller looks, it may differ.
    pub fn is_pinned(&self, entry: u32) -> bool {
        !pin::unpinned(self.pin_words(entry))
    }

    /// Sealed objects that nobody has pinned and that are no secondary copies, least recently used first, of at least
    /// `bytes_needed` bytes together (or all there are).
    pub fn spill_candidates(&self, bytes_needed: u64) -> Vec<Sealed> {
        self.unused(bytes_needed, false)
    }

    /// Sealed objects that nobody uses, least recently used first, of at least `bytes_needed` bytes together.
    fn unused(&self, bytes_needed: u64, secondary: bool) -> Vec<Sealed> {
        let mut found = Vec::new();
        let mut bytes = 0u64;
        for &entry in self.by_use.values() {
            if bytes >= bytes_needed {
                break;
            }
            let Record { generation, held: Some(held) } = &self.records[entry as usize] else { continue };
            let Some(sealed) = self.sealed(entry, *generation) else { continue };
            if held.secondary != secondary || held.busy || held.overflow || held.holds > 0 || self.is_pinned(entry) {
                continue;
            }
            bytes = bytes.saturating_add(held.allocation.len());
            found.push(sealed);
        }
        found
    }

    /// Touches the next step of memory that `create` will give out, for a node that has nothing else to do. False
    /// when the whole arena is warm.
    pub fn populate_ahead(&mut self) -> Result<bool, ArenaError> {
        let from = self.populated.max(self.allocator.warm());
        if from >= self.arena.capacity() {
            return Ok(false);
        }
        self.populated = self.arena.populate(from)?;
        Ok(true)
    }

    /// Figures for the state API.
    pub fn stats(&self) -> Stats {
        Stats {
            used: self.allocator.used(),
            capacity: self.allocator.capacity(),
            spilled: self.spill_area.used() + self.overflow.used(),
            objects: (self.records.len() - self.entries_free.len()) as u64,
            warm: self.allocator.warm().max(self.populated),
            deferred: self.deferred.len() as u64,
        }
    }

    fn pin_words(&self, entry: u32) -> impl Iterator<Item = &AtomicU32> {
        self.live.iter().filter_map(move |slot| self.table.pin_word(*slot, entry))
    }

    fn held(&self, entry: u32, generation: u32) -> Option<&Held> {
        let record = self.records.get(entry as usize).filter(|record| record.generation == generation)?;
        record.held.as_ref()
    }

    fn held_mut(&mut self, entry: u32, generation: u32) -> Result<&mut Held, StoreError> {
        self.records
            .get_mut(entry as usize)
            .filter(|record| record.generation == generation)
            .and_then(|record| record.held.as_mut())
            .ok_or(StoreError::Unknown { entry, generation })
    }

    /// Gives back the memory of a condemned object if nothing needs it any more.
    fn reclaim(&mut self, entry: u32) -> bool {
        let busy = self.records[entry as usize].held.as_ref().is_some_and(|held| held.busy);
        if busy || self.is_pinned(entry) {
            return false;
        }
        self.retire(entry);
        true
    }

    /// Gives back memory and entry. The entry is condemned or evicted, and unpinned.
    fn retire(&mut self, entry: u32) {
        let record = &mut self.records[entry as usize];
        let Some(held) = record.held.take() else { return };
        // Wraps after 2^32 uses of one entry: no location lives that long.
        record.generation = record.generation.wrapping_add(1);
        if let Some(shared) = self.table.entry(entry) {
            shared.publish(record.generation, EntryState::Free);
        }
        self.by_use.remove(&held.used_at);
        if held.overflow {
            self.free_overflow(held.allocation);
        } else {
            self.allocator.free(held.allocation);
        }
        self.entries_free.push(entry);
    }
}

#[cfg(test)]
mod tests;
