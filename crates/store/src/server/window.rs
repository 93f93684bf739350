//! The choice of objects to take out of memory so that one long range becomes free.
//!
//! The least recently used objects lie all over the arena: taking them out leaves holes that a longer object does not
//! fit into. When enough is free in all, but not in one piece, the objects of the stretch go that has the fewest bytes in it.

use std::collections::{BTreeMap, VecDeque};

use super::Store;
use crate::object::Sealed;

/// More than the alignment of a range can take up at its beginning.
const ALIGN_BYTES: u64 = 4096;

impl Store {
    /// Sealed objects that nobody uses, of the stretch of memory with the fewest bytes of them that is long enough for `len`
    /// bytes when they are gone. Empty when there is none.
    pub fn window_candidates(&self, len: u64) -> Vec<Sealed> {
        let movable: BTreeMap<u64, Sealed> =
            self.unused(u64::MAX, false).into_iter().map(|sealed| (sealed.0.offset, sealed)).collect();
        let mut window: VecDeque<(u64, Option<Sealed>)> = VecDeque::new();
        // Memory that was never given out is free, above all ranges.
        let fresh = self.allocator.capacity() - self.allocator.warm();
        let (mut length, mut taken) = (fresh, 0u64);
        window.push_back((fresh, None));
        let mut best: Option<(u64, Vec<Sealed>)> = None;
        for (offset, size, is_taken) in self.allocator.ranges() {
            let object = movable.get(&offset).copied();
            if is_taken && object.is_none() {
                window.clear();
                (length, taken) = (0, 0);
                continue;
            }
            let object = object.filter(|_| is_taken);
            window.push_back((size, object));
            length += size;
            taken += if object.is_some() { size } else { 0 };
            // Objects at the top that are not needed go.
            while let Some((first, object)) = window.front().copied()
                && length - first >= len.saturating_add(ALIGN_BYTES)
            {
                window.pop_front();
                length -= first;
                taken -= if object.is_some() { first } else { 0 };
            }
            let long_enough = length >= len.saturating_add(ALIGN_BYTES) || length >= len && taken == length;
            if long_enough && best.as_ref().is_none_or(|(fewest, _)| taken < *fewest) {
                best = Some((taken, window.iter().filter_map(|(_, object)| *object).collect()));
            }
        }
        best.map(|(_, objects)| objects).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use crate::{Arena, ProcessSlot, Sealed, SpillOptions, Store, StoreClient, Table};

    const MIB: u64 = 1 << 20;

    fn machine(mib: u64) -> (Store, StoreClient) {
        let (arena, table) = (Arc::new(Arena::create(mib * MIB).unwrap()), Arc::new(Table::create().unwrap()));
        let slot = ProcessSlot::new(0).unwrap();
        let mut store = Store::new(Arc::clone(&arena), Arc::clone(&table), SpillOptions::default());
        store.admit_process(slot);
        (store, StoreClient::new(arena, table, slot))
    }

    fn put(store: &mut Store, client: &StoreClient, mib: u64) -> Sealed {
        let mut writer = client.writer(store.create(mib * MIB).unwrap()).unwrap();
        writer.copy_from(&vec![1; (mib * MIB) as usize]).unwrap();
        writer.seal().unwrap()
    }

    #[test]
    fn the_stretch_with_the_fewest_bytes_goes() {
        let (mut store, client) = machine(16);
        let objects: Vec<Sealed> = (0..16).map(|_| put(&mut store, &client, 1)).collect();
        // Holes at 1, 3, 8, 9, 11 and 14: six are free, two in one piece.
        for hole in [1, 3, 8, 9, 11, 14] {
            let _ = store.free(objects[hole].0.entry, objects[hole].0.generation).unwrap();
        }
        assert!(store.create(4 * MIB).is_err());
        // 8 to 11 with only 10 in it.
        assert_eq!(store.window_candidates(4 * MIB - 8192), [objects[10]]);
        // A reader of that one: 11 to 14 or 8 to 9 are not enough, and 0 to 3 has two objects.
        let view = client.pin(objects[10]).unwrap();
        let chosen = store.window_candidates(4 * MIB - 8192);
        assert_eq!(chosen.len(), 2);
        for object in chosen {
            let _ = store.free(object.0.entry, object.0.generation).unwrap();
        }
        assert!(store.create(4 * MIB - 8192).is_ok());
        drop(view);
    }

    #[test]
    fn free_memory_at_the_end_counts_and_objects_in_use_are_borders() {
        let (mut store, client) = machine(8);
        let low = put(&mut store, &client, 3);
        let high = put(&mut store, &client, 3);
        assert_eq!(store.window_candidates(4 * MIB), [high]);
        let _view = client.pin(high).unwrap();
        assert_eq!(store.window_candidates(4 * MIB), []);
        assert_eq!(store.window_candidates(2 * MIB), [low]);
    }
}
