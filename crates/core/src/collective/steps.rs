//! Small calls: messages between members, as an order of sends and receives for each rank.
//!
//! Trees where all end up with the same (broadcast, reduce, both for all_reduce), so that nobody sends more than log n
//! messages; straight from one to another where everybody gets something else. A barrier is dissemination: in round k each
//! tells the one 2^k ahead. What is combined in a tree is combined in one place, so all members get the same bits.

use std::ops::Range;

use super::{Call, Kind};

/// What is done with elements that come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They replace what is there.
    Store,
    /// They are combined with what is there.
    Combine,
}

/// One step of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send a range of the buffer.
    Send {
        /// To whom.
        to: u32,
        /// What.
        range: Range<u64>,
    },
    /// Wait for as many bytes.
    Receive {
        /// From whom.
        from: u32,
        /// Where they go.
        range: Range<u64>,
        /// How.
        action: Action,
    },
}

/// The steps of one member in a call, in order; ranges as in its [`Layout`](super::Layout).
pub fn steps(call: &Call, rank: u32, size: u32) -> Vec<Step> {
    let block = call.block_bytes();
    let root = call.root.unwrap_or(0);
    let at = |index: u32| u64::from(index) * block..(u64::from(index) + 1) * block;
    let others = || (1..size).map(|ahead| (rank + ahead) % size);
    let mut steps = Vec::new();
    match call.kind {
        Kind::Broadcast => down(rank, size, root, &at(0), &mut steps),
        Kind::Reduce => up(rank, size, root, &at(0), &mut steps),
        Kind::AllReduce => {
            up(rank, size, 0, &at(0), &mut steps);
            down(rank, size, 0, &at(0), &mut steps);
        }
        Kind::Gather if rank == root => {
            let receive = |from| Step::Receive { from, range: at(from), action: Action::Store };
            steps.extend((0..size).filter(|from| *from != rank).map(receive));
        }
        Kind::Gather => steps.push(Step::Send { to: root, range: at(0) }),
        Kind::Scatter if rank == root => steps.extend(others().map(|to| Step::Send { to, range: at(to) })),
        Kind::Scatter => steps.push(Step::Receive { from: root, range: at(0), action: Action::Store }),
        Kind::AllGather => {
            steps.extend(others().map(|to| Step::Send { to, range: at(rank) }));
            steps.extend(others().map(|from| Step::Receive { from, range: at(from), action: Action::Store }));
        }
        Kind::AllToAll => {
            steps.extend(others().map(|to| Step::Send { to, range: at(to) }));
            steps.extend(others().map(|from| Step::Receive { from, range: at(size + from), action: Action::Store }));
        }
        Kind::ReduceScatter => {
            let part = block / u64::from(size);
            let at = |index: u32| u64::from(index) * part..(u64::from(index) + 1) * part;
            steps.extend(others().map(|to| Step::Send { to, range: at(to) }));
            steps.extend(others().map(|from| Step::Receive { from, range: at(rank), action: Action::Combine }));
        }
        Kind::Barrier => {
            let mut ahead = 1;
            while ahead < size {
                steps.push(Step::Send { to: (rank + ahead) % size, range: 0..0 });
                let from = (rank + size - ahead) % size;
                steps.push(Step::Receive { from, range: 0..0, action: Action::Store });
                ahead *= 2;
            }
        }
        // Between two: it has its own numbers.
        Kind::Send => {}
    }
    steps
}

/// From the root of a binomial tree to all.
fn down(rank: u32, size: u32, root: u32, range: &Range<u64>, steps: &mut Vec<Step>) {
    let place = (rank + size - root) % size;
    let rank_at = |place: u32| (place + root) % size;
    let mut mask = 1;
    while mask < size && place & mask == 0 {
        mask *= 2;
    }
    if place > 0 {
        let from = rank_at(place - mask);
        steps.push(Step::Receive { from, range: range.clone(), action: Action::Store });
    }
    while mask > 1 {
        mask /= 2;
        if place + mask < size {
            steps.push(Step::Send { to: rank_at(place + mask), range: range.clone() });
        }
    }
}

/// From all to the root of a binomial tree.
fn up(rank: u32, size: u32, root: u32, range: &Range<u64>, steps: &mut Vec<Step>) {
    let place = (rank + size - root) % size;
    let rank_at = |place: u32| (place + root) % size;
    let mut mask = 1;
    while mask < size {
        if place & mask != 0 {
            steps.push(Step::Send { to: rank_at(place - mask), range: range.clone() });
            return;
        }
        if place + mask < size {
            let from = rank_at(place + mask);
            steps.push(Step::Receive { from, range: range.clone(), action: Action::Combine });
        }
        mask *= 2;
    }
}
