//! Objects in the overflow file, and objects that the node keeps in memory for somebody who is about to pin them.

use super::{Held, Room, Store, StoreError};
use crate::alloc::Allocation;
use crate::object::{Location, UnsealedLocation};
use crate::table::EntryState;

/// Ranges of the file are whole blocks, so that giving one back frees all of it.
const BLOCK_BYTES: u64 = 4096;

impl Store {
    /// Allocates an object in the overflow file: for when everything in memory is in use.
    pub fn create_overflow(&mut self, len: u64) -> Result<UnsealedLocation, StoreError> {
        self.create_in(len, EntryState::Unsealed, Room::Overflow).map(UnsealedLocation)
    }

    /// Whether there is an overflow file at all.
    pub fn has_overflow(&self) -> bool {
        self.overflow.capacity() > 0
    }

    pub(super) fn allocate_overflow(&mut self, len: u64) -> Result<Allocation, StoreError> {
        let used = self.spill_area.used().saturating_add(self.overflow.used());
        let left = self.spill_area.options().spill_bytes_max.saturating_sub(used);
        let blocks = len.max(1).checked_next_multiple_of(BLOCK_BYTES).filter(|blocks| *blocks <= left);
        let full = StoreError::OverflowFull { asked: len, used: self.overflow.used(), max: self.overflow.capacity() };
        let allocation = blocks.and_then(|blocks| self.overflow.allocate(blocks)).ok_or(full)?;
        let Some(file) = self.arena.overflow() else { return Err(full) };
        match file.reserve(allocation.offset(), allocation.len()) {
            Ok(()) => Ok(allocation),
            Err(errno) => {
                self.free_overflow(allocation);
                Err(StoreError::OverflowRefused { asked: len, errno })
            }
        }
    }

    pub(super) fn free_overflow(&mut self, allocation: Allocation) {
        if let Some(file) = self.arena.overflow() {
            file.give_back(allocation.offset(), allocation.len());
        }
        self.overflow.free(allocation);
    }

    /// Keeps an object where it is until it is let go as often as it was held. False when there is no such object.
    pub fn hold(&mut self, entry: u32, generation: u32) -> bool {
        let held = self.held_mut(entry, generation);
        held.map(|held| held.holds += 1).is_ok()
    }

    /// Lets go of an object; one that was freed meanwhile is forgotten already.
    pub fn let_go(&mut self, entry: u32, generation: u32) {
        if let Ok(held) = self.held_mut(entry, generation) {
            held.holds = held.holds.saturating_sub(1);
        }
    }

    /// Objects that take memory and cannot leave it now: pinned, held, or not complete.
    pub fn in_use(&self) -> Vec<Location> {
        let mut found = Vec::new();
        for (entry, record) in self.records.iter().enumerate() {
            let Some(held @ Held { overflow: false, .. }) = &record.held else { continue };
            let (entry, generation) = (entry as u32, record.generation);
            if held.holds > 0 || self.sealed(entry, generation).is_none() || self.is_pinned(entry) {
                found.push(Location { entry, generation, offset: held.allocation.offset(), len: held.len });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use crate::{Arena, ProcessSlot, Sealed, SpillError, SpillOptions, Store, StoreClient, StoreError, Table};

    const CAPACITY: u64 = 4 << 20;

    fn machine(spill_bytes_max: u64) -> (Store, StoreClient) {
        let spill = SpillOptions { spill_bytes_max, ..SpillOptions::default() };
        let arena = Arena::create(CAPACITY).unwrap().with_overflow(spill.make_overflow(CAPACITY).unwrap());
        let (arena, table, slot) = (Arc::new(arena), Arc::new(Table::create().unwrap()), ProcessSlot::new(0).unwrap());
        let mut store = Store::new(Arc::clone(&arena), Arc::clone(&table), spill);
        store.admit_process(slot);
        (store, StoreClient::new(arena, table, slot))
    }

    fn write(client: &StoreClient, at: crate::UnsealedLocation, byte: u8) -> Sealed {
        let mut writer = client.writer(at).unwrap();
        let len = writer.len() as usize;
        writer.prepare(len as u64).unwrap();
        writer.copy_from(&vec![byte; len]).unwrap();
        writer.seal().unwrap()
    }

    #[test]
    fn objects_beyond_the_memory_are_written_read_and_freed_like_others() {
        let (mut store, client) = machine(1 << 30);
        let all = write(&client, store.create(CAPACITY).unwrap(), 1);
        let at = store.create_overflow(CAPACITY / 2).unwrap();
        assert!(client.arena().is_overflow(at.0.offset));
        let beyond = write(&client, at, 2);
        let view = client.pin(beyond).unwrap();
        assert!(view.iter().all(|byte| *byte == 2) && view.file_offset().is_none());
        let private = view.map_private(5000, 3).unwrap();
        // SAFETY: the view is alive, this thread alone uses it, and the slice is as long as it.
        assert_eq!(unsafe { std::slice::from_raw_parts(private.as_ptr(), private.len()) }, [2; 3]);
        drop(private);
        // It takes no memory, so spilling it would bring nothing.
        assert_eq!(store.spill_candidates(u64::MAX), [all]);
        assert_eq!(store.stats().used, CAPACITY);
        assert_eq!(store.stats().spilled, CAPACITY / 2);
        drop(view);
        let _ = store.free(beyond.0.entry, beyond.0.generation).unwrap();
        assert_eq!(store.stats().spilled, 0);
    }

    #[test]
    fn values_with_empty_parts_are_written_beyond_the_memory() {
        let (mut store, client) = machine(1 << 30);
        let first = store.create_overflow(8192).unwrap();
        let second = store.create_overflow(8192).unwrap();
        for at in [first, second] {
            let mut writer = client.writer(at).unwrap();
            for part in [&[1; 4096][..], &[], &[2; 4096], &[]] {
                writer.copy_from(part).unwrap();
            }
            let view = client.pin(writer.seal().unwrap()).unwrap();
            assert_eq!((view[4095], view[4096]), (1, 2));
        }
    }

    #[test]
    fn a_spilled_object_comes_back_beside_a_full_memory() {
        let (mut store, client) = machine(1 << 30);
        let first = write(&client, store.create(1 << 20).unwrap(), 7);
        let ticket = store.spill(first.0.entry, first.0.generation).unwrap();
        let _all = write(&client, store.create(CAPACITY).unwrap(), 1);
        assert!(matches!(store.begin_restore(&ticket), Err(StoreError::Full { .. })));
        let job = store.begin_restore_overflow(&ticket).unwrap();
        let back = store.finish_restore(job.run()).unwrap();
        assert!(client.pin(back).unwrap().iter().all(|byte| *byte == 7));
    }

    #[test]
    fn the_spill_limit_is_for_both_files_together() {
        let (mut store, client) = machine(3 << 20);
        let first = write(&client, store.create(2 << 20).unwrap(), 1);
        let _beyond = store.create_overflow(2 << 20).unwrap();
        assert!(matches!(store.create_overflow(2 << 20), Err(StoreError::OverflowFull { .. })));
        let spilled = store.spill(first.0.entry, first.0.generation);
        assert!(matches!(spilled, Err(SpillError::LimitReached { .. })));
        let (mut none, _client) = machine(0);
        assert!(!none.has_overflow());
        assert!(matches!(none.create_overflow(1 << 20), Err(StoreError::OverflowFull { .. })));
    }

    #[test]
    fn what_is_held_stays_and_is_in_use() {
        let (mut store, client) = machine(1 << 30);
        let held = write(&client, store.create(1 << 20).unwrap(), 1);
        let other = write(&client, store.create(1 << 20).unwrap(), 2);
        let job = store.begin_spill(held.0.entry, held.0.generation).unwrap();
        assert!(store.hold(held.0.entry, held.0.generation));
        // A spill that was under way when it was held leaves it where it is.
        assert!(matches!(store.finish_spill(job.run()), Err(SpillError::Pinned)));
        assert_eq!(store.spill_candidates(u64::MAX), [other]);
        assert_eq!(store.in_use(), [held.0]);
        store.let_go(held.0.entry, held.0.generation);
        assert_eq!(store.in_use(), []);
        assert_eq!(store.spill_candidates(u64::MAX).len(), 2);
    }
}
