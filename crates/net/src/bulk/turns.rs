//! Who goes next: transfers wait per peer, in order, and peers take turns.
//!
//! A peer is asked for few objects at a time so that it is not flooded, and for more than one so that a small object does
//! not wait behind a large one. Plain bookkeeping: who calls decides what a turn is.

use std::collections::{BTreeMap, VecDeque};

/// Transfers from one peer at a time.
pub const TRANSFERS_PER_PEER: usize = 4;

/// The queue is at its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{waiting} transfers wait already, which is the limit: ask again when some have ended")]
pub struct TurnsFull {
    /// How many wait.
    pub waiting: usize,
}

#[derive(Debug)]
struct Peer<J> {
    waiting: VecDeque<J>,
    busy: usize,
}

/// Transfers that wait for their turn.
#[derive(Debug)]
pub struct Turns<P, J> {
    peers: BTreeMap<P, Peer<J>>,
    /// Peers with something to start, in the order of their turns.
    turns: VecDeque<P>,
    waiting: usize,
    busy: usize,
    per_peer: usize,
    busy_max: usize,
    waiting_max: usize,
}

impl<P: Ord + Clone, J> Turns<P, J> {
    /// Nothing waits. At most `per_peer` transfers run per peer, `busy_max` in all, and `waiting_max` may wait.
    pub fn new(per_peer: usize, busy_max: usize, waiting_max: usize) -> Self {
        let (peers, turns) = (BTreeMap::new(), VecDeque::new());
        Self { peers, turns, waiting: 0, busy: 0, per_peer, busy_max, waiting_max }
    }

    /// Lets a transfer wait for its turn.
    pub fn push(&mut self, peer: P, job: J) -> Result<(), TurnsFull> {
        if self.waiting >= self.waiting_max {
            return Err(TurnsFull { waiting: self.waiting });
        }
        self.waiting += 1;
        let of_peer = self.peers.entry(peer.clone()).or_insert_with(|| Peer { waiting: VecDeque::new(), busy: 0 });
        of_peer.waiting.push_back(job);
        if of_peer.busy < self.per_peer && !self.turns.contains(&peer) {
            self.turns.push_back(peer);
        }
        Ok(())
    }

    /// The next transfer to start, which runs until [`Turns::ended`].
    pub fn start_next(&mut self) -> Option<(P, J)> {
        if self.busy >= self.busy_max {
            return None;
        }
        let peer = self.turns.pop_front()?;
        let of_peer = self.peers.get_mut(&peer)?;
        let job = of_peer.waiting.pop_front()?;
        of_peer.busy += 1;
        self.busy += 1;
        self.waiting -= 1;
        if of_peer.busy < self.per_peer && !of_peer.waiting.is_empty() {
            self.turns.push_back(peer.clone());
        }
        Some((peer, job))
    }

    /// A transfer of this peer has ended.
    pub fn ended(&mut self, peer: &P) {
        let Some(of_peer) = self.peers.get_mut(peer) else { return };
        of_peer.busy = of_peer.busy.saturating_sub(1);
        self.busy = self.busy.saturating_sub(1);
        if of_peer.waiting.is_empty() {
            if of_peer.busy == 0 {
                self.peers.remove(peer);
            }
        } else if !self.turns.contains(peer) {
            self.turns.push_back(peer.clone());
        }
    }

    /// Takes out what waits for a peer, or for any, and does not match `keep`.
    pub fn retain(&mut self, mut keep: impl FnMut(&P, &J) -> bool) {
        for (peer, of_peer) in &mut self.peers {
            of_peer.waiting.retain(|job| keep(peer, job));
        }
        self.peers.retain(|_, of_peer| of_peer.busy > 0 || !of_peer.waiting.is_empty());
        self.waiting = self.peers.values().map(|of_peer| of_peer.waiting.len()).sum();
        let peers = &self.peers;
        self.turns.retain(|peer| peers.get(peer).is_some_and(|of_peer| !of_peer.waiting.is_empty()));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn peers_take_turns_and_each_keeps_its_order() {
        let mut turns = Turns::new(2, 8, 10);
        for job in 0..4 {
            turns.push('a', job).unwrap();
        }
        turns.push('b', 10).unwrap();
        let started: Vec<_> = std::iter::from_fn(|| turns.start_next()).collect();
        assert_eq!(started, [('a', 0), ('b', 10), ('a', 1)]);
        turns.ended(&'a');
        assert_eq!((turns.start_next(), turns.start_next()), (Some(('a', 2)), None));
    }

    #[test]
    fn the_queue_is_bounded_and_what_is_taken_out_leaves_room() {
        let mut turns = Turns::new(1, 1, 2);
        turns.push(1, 'x').unwrap();
        turns.push(2, 'y').unwrap();
        assert_eq!(turns.push(3, 'z'), Err(TurnsFull { waiting: 2 }));
        turns.retain(|peer, _| *peer != 1);
        turns.push(3, 'z').unwrap();
        assert_eq!((turns.start_next(), turns.start_next()), (Some((2, 'y')), None));
        turns.ended(&2);
        assert_eq!(turns.start_next(), Some((3, 'z')));
    }

    proptest! {
        #[test]
        fn everything_starts_once_and_no_bound_is_passed(
            steps in prop::collection::vec((0u8..3, any::<bool>()), 1..200),
        ) {
            let mut turns = Turns::new(2, 4, 1000);
            let (mut pushed, mut started, mut running) = (0usize, Vec::new(), Vec::new());
            for (peer, end) in steps {
                if end && !running.is_empty() {
                    turns.ended(&running.remove(0));
                } else {
                    turns.push(peer, pushed).unwrap();
                    pushed += 1;
                }
                while let Some((peer, job)) = turns.start_next() {
                    running.push(peer);
                    started.push(job);
                }
                prop_assert!(running.len() <= 4);
                for peer in 0..3 {
                    prop_assert!(running.iter().filter(|p| **p == peer).count() <= 2);
                }
            }
            while let Some(peer) = running.pop() {
                turns.ended(&peer);
                while let Some((peer, job)) = turns.start_next() {
                    running.push(peer);
                    started.push(job);
                }
            }
            started.sort_unstable();
            prop_assert_eq!(started, (0..pushed).collect::<Vec<_>>());
        }
    }
}
