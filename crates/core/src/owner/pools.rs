//! The pools of an owner, by number: one for each shape of which it has tasks or leases.
//!
//! The node knows a pool by its number, and a grant may be under way when nothing of the pool is left. So numbers are not
//! used again: a late grant finds no pool, and goes back.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use super::Pool;

/// All pools.
#[derive(Debug, Default)]
pub(super) struct Pools {
    all: BTreeMap<usize, Pool>,
    next: usize,
}

impl Pools {
    /// A new pool gets the next number.
    pub(super) fn add(&mut self, pool: Pool) -> usize {
        let id = self.next;
        // Numbers are 32 bits on their way to the node.
        self.next = (id + 1) & u32::MAX as usize;
        self.all.insert(id, pool);
        id
    }

    pub(super) fn find(&self, is_it: impl Fn(&Pool) -> bool) -> Option<usize> {
        self.all.iter().find(|(_, pool)| is_it(pool)).map(|(id, _)| *id)
    }

    /// Forgets pools of which nothing is left: a program that makes a shape for each trial would keep them all.
    pub(super) fn drop_unused(&mut self) {
        self.all.retain(|_, pool| !pool.is_unused());
    }

    pub(super) fn get_mut(&mut self, id: usize) -> Option<&mut Pool> {
        self.all.get_mut(&id)
    }

    pub(super) fn ids(&self) -> Vec<usize> {
        self.all.keys().copied().collect()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Pool> {
        self.all.values()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.all.values_mut()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

impl Index<usize> for Pools {
    type Output = Pool;

    fn index(&self, id: usize) -> &Pool {
        &self.all[&id]
    }
}

impl IndexMut<usize> for Pools {
    fn index_mut(&mut self, id: usize) -> &mut Pool {
        self.all.get_mut(&id).expect("a pool with tasks or leases is kept")
    }
}
