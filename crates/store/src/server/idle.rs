//! Memory that goes back to the machine: all that is free when memory is short, what was not used for a while otherwise.
//!
//! Processes remember which pages of the arena they have mapped (`arena`). Whoever is given a range of which pages went
//! back is told so ([`Store::last_was_cold`]), and finds and maps them in bulk instead of one page fault after the other.

use super::Store;
use crate::arena::SPAN_BYTES;

/// A shorter free range is not given back to the machine: the next objects take it, and giving it back costs more.
pub const GIVE_BACK_BYTES_MIN: u64 = 64 << 10;

impl Store {
    /// Gives the memory of free ranges back to the machine, all that are worth a system call. Returns by how many bytes the
    /// arena has become smaller.
    pub fn give_back(&mut self) -> u64 {
        self.give_back_some(u64::MAX)
    }

    /// The same for about `bytes` of it, from the top of the arena down.
    pub fn give_back_some(&mut self, bytes: u64) -> u64 {
        let before = self.arena.resident();
        let mut left = bytes;
        let free: Vec<(u64, u64)> =
            self.allocator.free_ranges().filter(|(_, len)| *len >= GIVE_BACK_BYTES_MIN).collect();
        for (offset, len) in free {
            let mut end = offset + len;
            while end > offset && left >= GIVE_BACK_BYTES_MIN {
                let start = self.warm_run(offset, end).max(end.saturating_sub(left));
                if start < end {
                    left = left.saturating_sub(self.give_back_range(start, end));
                }
                // What is cold below it is passed over.
                end = if start < end { start } else { ((end - 1) / SPAN_BYTES * SPAN_BYTES).max(offset) };
            }
        }
        before.saturating_sub(self.arena.resident())
    }

    /// Where the bytes begin that end at `end` and were not given back since they were last used, not below `offset`.
    fn warm_run(&self, offset: u64, end: u64) -> u64 {
        let mut start = end;
        while start > offset && !self.cold.contains(&((start - 1) / SPAN_BYTES)) {
            start = ((start - 1) / SPAN_BYTES * SPAN_BYTES).max(offset);
        }
        start
    }

    fn give_back_range(&mut self, start: u64, end: u64) -> u64 {
        let resident = self.arena.resident();
        // A range that cannot be given back stays, and is used again later.
        if self.arena.give_back(start, end - start).is_ok() {
            self.cold.extend(start.div_ceil(SPAN_BYTES)..end / SPAN_BYTES);
        }
        resident.saturating_sub(self.arena.resident())
    }

    /// Notes that a range is used again. Whether memory of it had been given back.
    pub(super) fn warm_up(&mut self, offset: u64, len: u64) -> bool {
        let spans = offset / SPAN_BYTES..(offset + len).div_ceil(SPAN_BYTES);
        let cold: Vec<u64> = self.cold.range(spans).copied().collect();
        for span in &cold {
            self.cold.remove(span);
        }
        !cold.is_empty()
    }

    /// Whether memory of the object that was made last had been given back before: its writer should know.
    pub fn last_was_cold(&self) -> bool {
        self.last_was_cold
    }

    /// The most bytes that were allocated at a time since the last call.
    pub fn take_used_peak(&mut self) -> u64 {
        std::mem::replace(&mut self.used_peak, self.allocator.used())
    }

    /// Bytes of memory behind the arena now.
    pub fn resident(&self) -> u64 {
        self.arena.resident()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use crate::{Arena, ProcessSlot, Sealed, SpillOptions, Store, StoreClient, Table};

    const MIB: u64 = 1 << 20;

    fn put(store: &mut Store, client: &StoreClient, len: u64) -> Sealed {
        let at = store.create(len).unwrap();
        if store.last_was_cold() {
            client.forget_pages(at);
        }
        let mut writer = client.writer(at).unwrap();
        writer.copy_from(&vec![3; len as usize]).unwrap();
        writer.seal().unwrap()
    }

    #[test]
    fn a_part_of_what_is_free_goes_back_and_who_uses_it_again_is_told() {
        let arena = Arc::new(Arena::create(32 * MIB).unwrap());
        let (table, slot) = (Arc::new(Table::create().unwrap()), ProcessSlot::new(0).unwrap());
        let mut store = Store::new(Arc::clone(&arena), Arc::clone(&table), SpillOptions::default());
        store.admit_process(slot);
        let client = StoreClient::new(arena, table, slot);
        let kept = put(&mut store, &client, 4 * MIB);
        let freed = put(&mut store, &client, 20 * MIB);
        assert_eq!(store.take_used_peak(), 24 * MIB);
        let _ = store.free(freed.0.entry, freed.0.generation).unwrap();
        assert_eq!(store.take_used_peak(), 24 * MIB);
        assert_eq!(store.take_used_peak(), 4 * MIB);
        assert_eq!(store.give_back_some(12 * MIB), 12 * MIB);
        assert_eq!(store.resident(), 12 * MIB);
        assert_eq!(store.give_back_some(12 * MIB), 8 * MIB);
        assert!(client.pin(kept).unwrap().iter().all(|byte| *byte == 3));
        let again = store.create(20 * MIB).unwrap();
        assert!(store.last_was_cold());
        let _ = store.abort(again).unwrap();
        let again = store.create(20 * MIB).unwrap();
        assert!(!store.last_was_cold());
        let _ = store.abort(again).unwrap();
        let again = put(&mut store, &client, 20 * MIB);
        assert!(client.pin(again).unwrap().iter().all(|byte| *byte == 3));
        assert_eq!(store.resident(), 24 * MIB);
    }
}
