//! A tree of minima over the slots, for one shape and one order.
//!
//! The leaves are the nodes' numbers (`estimate`), each inner place is the smaller of its two children. The best node is
//! found from the root in as many steps as the tree is deep; a changed leaf costs as many.

use super::estimate::{NONE, delayed};
use crate::resources::Resources;

/// Places of the tree that are looked at for one task with inputs; then the best so far is taken.
pub(super) const VISITS_MAX: u32 = 128;
/// Depth of a tree of 2^31 slots, twice.
const STACK: usize = 64;

/// Which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The lowest wait first.
    Nearest,
    /// The least used first.
    Emptiest,
    /// The one with the fewest for each CPU first.
    Lightest,
}

/// The tree.
#[derive(Clone, Debug)]
pub(super) struct Index {
    pub(super) shape: Resources,
    pub(super) order: Order,
    /// Root at 1, children of `i` at `2 i` and `2 i + 1`, leaves in the second half.
    keys: Vec<u64>,
    /// Up to where the log of changes was followed.
    pub(super) seen: u64,
}

impl Index {
    /// A tree with no node in it.
    pub(super) fn new(shape: Resources, order: Order, leaves: usize) -> Self {
        Self { shape, order, keys: vec![NONE; 2 * leaves], seen: 0 }
    }

    pub(super) fn leaves(&self) -> usize {
        self.keys.len() / 2
    }

    /// Sets all leaves; cheaper than one by one.
    pub(super) fn fill(&mut self, leaves: impl Iterator<Item = u64>) {
        let half = self.leaves();
        for (place, key) in self.keys[half..].iter_mut().zip(leaves.chain(std::iter::repeat(NONE))) {
            *place = key;
        }
        for place in (1..half).rev() {
            self.keys[place] = self.keys[2 * place].min(self.keys[2 * place + 1]);
        }
    }

    /// Sets one leaf.
    #[inline]
    pub(super) fn set(&mut self, slot: usize, key: u64) {
        let mut place = self.leaves() + slot;
        self.keys[place] = key;
        while place > 1 {
            place /= 2;
            let least = self.keys[2 * place].min(self.keys[2 * place + 1]);
            if self.keys[place] == least {
                return;
            }
            self.keys[place] = least;
        }
    }

    /// The smallest number and whose it is.
    #[inline]
    pub(super) fn best(&self) -> (usize, u64) {
        let least = self.keys[1];
        let mut place = 1;
        while place < self.leaves() {
            place = 2 * place + usize::from(self.keys[2 * place] != least);
        }
        (place - self.leaves(), least)
    }

    /// The first slot from `from` on, around the end, that has the smallest number.
    pub(super) fn best_from(&self, from: usize) -> (usize, u64) {
        let least = self.keys[1];
        if from < self.leaves()
            && let Some(slot) = self.next_equal(from, least)
        {
            return (slot, least);
        }
        self.best()
    }

    /// The first slot from `from` on with exactly this number, which is the smallest of all.
    fn next_equal(&self, from: usize, least: u64) -> Option<usize> {
        let mut place = self.leaves() + from;
        // Up until a subtree to the right, or this leaf itself, has it; then down, left first.
        while self.keys[place] != least {
            while place & 1 == 1 {
                place /= 2;
                if place <= 1 {
                    return None;
                }
            }
            place += 1;
        }
        while place < self.leaves() {
            place = 2 * place + usize::from(self.keys[2 * place] != least);
        }
        Some(place - self.leaves())
    }

    /// The best node when each has to fetch so many bytes first, or `known` when none is better. `bandwidths` is a tree of
    /// maxima over the same slots.
    ///
    /// A subtree whose smallest wait and largest bandwidth together are no better than what was found is not looked
    /// into. After [`VISITS_MAX`] places the best so far is taken.
    pub(super) fn best_fetching(&self, bytes: u64, bandwidths: &[u64], known: (usize, u64)) -> (usize, u64) {
        let bound = |place: usize| match self.keys[place] {
            NONE => NONE,
            key => delayed(key, bytes / bandwidths[place].max(1)),
        };
        let (mut slot, mut least) = known;
        let mut stack = [(0usize, 0u64); STACK];
        let mut depth = 1;
        stack[0] = (1, bound(1));
        for _ in 0..VISITS_MAX {
            if depth == 0 {
                break;
            }
            depth -= 1;
            let (place, low) = stack[depth];
            if low >= least {
                continue;
            }
            if place >= self.leaves() {
                (slot, least) = (place - self.leaves(), low);
                continue;
            }
            let (left, right) = ((2 * place, bound(2 * place)), (2 * place + 1, bound(2 * place + 1)));
            let (near, far) = if right.1 < left.1 { (right, left) } else { (left, right) };
            stack[depth] = far;
            stack[depth + 1] = near;
            depth += 2;
        }
        (slot, least)
    }
}

/// Sets one leaf of a tree of maxima.
pub(super) fn set_maximum(tree: &mut [u64], slot: usize, value: u64) {
    let mut place = tree.len() / 2 + slot;
    tree[place] = value;
    while place > 1 {
        place /= 2;
        tree[place] = tree[2 * place].max(tree[2 * place + 1]);
    }
}
