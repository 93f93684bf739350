//! The trees of reduces on links with a bandwidth, block by block: how long they take beside what the cost model of
//! `bireme_core::reduce` says.
//!
//! A slot passes a block on when it has its own input and that block of all who send to it. Every slot sends to one, so only the
//! incoming link of a taker is shared: it takes one block at a time, of the sender that is furthest behind.

use std::collections::BTreeMap;

/// What links are like, and how much has to go over them.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    /// The bytes of one input in blocks.
    pub blocks: u64,
    /// One block takes so long on a link.
    pub block_us: u64,
    /// From the end of one node's sending to the other's use.
    pub latency_us: u64,
}

enum Happening {
    /// The input of a slot is there.
    Arrived(usize),
    /// The incoming link of a taker can take the next block.
    Free(usize),
    /// A taker has a block of a sender.
    Taken(usize, usize),
}

struct Trees<'a> {
    links: Links,
    /// The taker of each slot; the receiver comes after the last slot.
    takers: Vec<usize>,
    arrived: Vec<bool>,
    /// Blocks that each slot has sent, and those of it that have come.
    sent: Vec<u64>,
    came: Vec<u64>,
    is_busy: Vec<bool>,
    queue: BTreeMap<(u64, u64), Happening>,
    sequence: u64,
    parents: &'a [Option<u32>],
}

/// When the receiver has all, with inputs that arrive at these times. The receiver has an input of its own from the start.
pub fn finish_us(parents: &[Option<u32>], arrivals_us: &[u64], links: Links) -> u64 {
    let slots = parents.len();
    let mut trees = Trees {
        links,
        takers: parents.iter().map(|parent| parent.map_or(slots, |parent| parent as usize)).collect(),
        arrived: vec![false; slots],
        sent: vec![0; slots],
        came: vec![0; slots],
        is_busy: vec![false; slots + 1],
        queue: BTreeMap::new(),
        sequence: 0,
        parents,
    };
    for (slot, at_us) in arrivals_us.iter().enumerate() {
        trees.at(*at_us, Happening::Arrived(slot));
    }
    let mut now_us = 0;
    while let Some(((at_us, _), happening)) = trees.queue.pop_first() {
        now_us = at_us;
        trees.happen(at_us, happening);
    }
    assert!(trees.came.iter().all(|came| *came == links.blocks), "every block has come: {:?}", trees.came);
    now_us
}

impl Trees<'_> {
    fn at(&mut self, us: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((us, self.sequence), happening);
    }

    fn happen(&mut self, now_us: u64, happening: Happening) {
        match happening {
            Happening::Arrived(slot) => {
                self.arrived[slot] = true;
                self.take_next(self.takers[slot], now_us);
            }
            Happening::Free(taker) => {
                self.is_busy[taker] = false;
                self.take_next(taker, now_us);
            }
            Happening::Taken(taker, slot) => {
                self.came[slot] += 1;
                if taker < self.parents.len() {
                    self.take_next(self.takers[taker], now_us);
                }
            }
        }
    }

    /// The blocks that a slot can send.
    fn made(&self, slot: usize) -> u64 {
        let below = self.takers.iter().zip(&self.came).filter(|(taker, _)| **taker == slot).map(|(_, came)| *came);
        if self.arrived[slot] { below.min().unwrap_or(self.links.blocks) } else { 0 }
    }

    fn take_next(&mut self, taker: usize, now_us: u64) {
        if self.is_busy[taker] {
            return;
        }
        let senders = (0..self.takers.len()).filter(|slot| self.takers[*slot] == taker);
        let ready = senders.filter(|slot| self.sent[*slot] < self.made(*slot));
        let Some(slot) = ready.min_by_key(|slot| self.sent[*slot]) else { return };
        self.sent[slot] += 1;
        self.is_busy[taker] = true;
        let Links { block_us, latency_us, .. } = self.links;
        self.at(now_us + block_us, Happening::Free(taker));
        self.at(now_us + block_us + latency_us, Happening::Taken(taker, slot));
    }
}
