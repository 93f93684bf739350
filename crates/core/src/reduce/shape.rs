//! The trees that a reduce may use.
//!
//! Slots are numbered in post-order: every slot comes after all slots below it, so that the k-th arrival fills slot k and
//! can begin with what is there. The receiver is no slot: it is above all slots that have no parent.

use serde::{Deserialize, Serialize};

/// The form of a tree over slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Shape {
    /// Each slot passes on to the next.
    Chain,
    /// About √n chains, whose ends are a chain.
    TwoLevel,
    /// A tree of the smallest depth in which nobody takes from more than so many, at least one.
    Tree(u32),
    /// Every slot sends to the receiver.
    Star,
}

/// The parent of each of `n` slots; none is the receiver.
pub fn parents(shape: Shape, n: usize) -> Vec<Option<u32>> {
    let mut parents = vec![None; n];
    match shape {
        Shape::Star => {}
        Shape::Chain => chain(0, n, &mut parents),
        Shape::TwoLevel => two_level(n, &mut parents),
        Shape::Tree(degree) => {
            let degree = (degree.max(1) as usize).min(n.max(1));
            let mut next = 0;
            subtrees(n, degree, &mut next, &mut parents);
        }
    }
    parents
}

fn slot(at: usize) -> Option<u32> {
    u32::try_from(at).ok()
}

fn chain(from: usize, until: usize, parents: &mut [Option<u32>]) {
    for at in from + 1..until {
        parents[at - 1] = slot(at);
    }
}

/// Rows one after the other; the end of a row takes the end of the row before it.
fn two_level(n: usize, parents: &mut [Option<u32>]) {
    let rows = n.isqrt().max(1);
    let mut from = 0;
    for row in 0..rows {
        // Lengths differ by one at most.
        let until = n * (row + 1) / rows;
        chain(from, until, parents);
        if from > 0 {
            parents[from - 1] = slot(until - 1);
        }
        from = until;
    }
}

/// Puts `n` slots below one taker, in up to `degree` subtrees of sizes that differ by one at most. Returns their heads.
fn subtrees(n: usize, degree: usize, next: &mut usize, parents: &mut [Option<u32>]) -> Vec<usize> {
    if degree == 1 {
        // A chain, without a call per slot.
        chain(*next, *next + n, parents);
        *next += n;
        return if n == 0 { Vec::new() } else { vec![*next - 1] };
    }
    let count = degree.min(n);
    let mut heads = Vec::with_capacity(count);
    for k in 0..count {
        let size = n * (k + 1) / count - n * k / count;
        let below = subtrees(size - 1, degree, next, parents);
        let head = *next;
        *next += 1;
        below.into_iter().for_each(|child| parents[child] = slot(head));
        heads.push(head);
    }
    heads
}

/// From how many the busiest taker takes, the receiver among them.
pub fn degree(parents: &[Option<u32>]) -> u32 {
    let mut taken = vec![0u32; parents.len() + 1];
    for parent in parents {
        taken[parent.map_or(parents.len(), |parent| parent as usize)] += 1;
    }
    taken.into_iter().max().unwrap_or(0)
}

/// How many hops the farthest slot is from the receiver.
pub fn depth(parents: &[Option<u32>]) -> u32 {
    let mut hops = vec![0u32; parents.len()];
    // Parents come after their children, so from the end each parent is known.
    for at in (0..parents.len()).rev() {
        hops[at] = 1 + parents[at].map_or(0, |parent| hops[parent as usize]);
    }
    hops.into_iter().max().unwrap_or(0)
}
