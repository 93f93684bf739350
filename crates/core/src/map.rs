//! A hash map whose order cannot be seen.
//!
//! Machines need constant-time lookup by id but must not depend on hash order. [`IdMap`] has a fixed hash function and
//! offers no iteration except in key order, so two runs from one seed stay equal.
//!
//! Task and object ids hash to their neighbourhood: siblings, which are made and ended in order, lie next to each other
//! in the table. With a million entries that is the difference between walking memory and jumping about in it.

#![allow(clippy::disallowed_types)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Hash for ids: small integers are spread, task and object ids keep their order within a family.
#[derive(Default)]
pub struct IdHasher(u64);

const TAG_BITS: u64 = 0x7f << 57;

impl Hasher for IdHasher {
    #[inline]
    fn finish(&self) -> u64 {
        // The table takes the place from the low bits and a tag from the top seven; neighbours need different tags.
        let tag = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) & TAG_BITS;
        tag | (self.0 & !TAG_BITS)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        self.0 = (wide as u64) ^ ((wide >> 64) as u64);
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_u128(&mut self, word: u128) {
        let family = (word >> 64) as u64 ^ (word as u64 >> 48);
        let counter = word as u64 & ((1 << 48) - 1);
        self.0 = self.0.wrapping_add(family.wrapping_mul(0xa076_1d64_78bd_642f)).wrapping_add(counter);
    }
}

/// Map from ids to values without visible order.
#[derive(Clone, Debug)]
pub struct IdMap<K, V>(HashMap<K, V, BuildHasherDefault<IdHasher>>);

impl<K, V> Default for IdMap<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Copy + Eq + Ord + Hash, V> IdMap<K, V> {
    /// The value under `key`.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    /// The value under `key`, to change.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// The value under `key`, made when it is missing.
    #[inline]
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.0.entry(key).or_insert_with(make)
    }

    /// Puts a value under `key` and gives back the one before.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// Takes the value under `key` out.
    #[inline]
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// Whether there is a value under `key`.
    #[inline]
    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All keys in order. Costs a sort: for rare paths.
    pub fn sorted_keys(&self) -> Vec<K> {
        let mut keys: Vec<K> = self.0.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// The keys whose entry satisfies `keep`, in order.
    pub fn sorted_keys_where(&self, mut keep: impl FnMut(&K, &V) -> bool) -> Vec<K> {
        let mut keys: Vec<K> = self.0.iter().filter(|(k, v)| keep(k, v)).map(|(k, _)| *k).collect();
        keys.sort_unstable();
        keys
    }
}
