//! Streams of blocks: a link sends one block at a time, in turns to those who take from it.

use std::collections::VecDeque;

use bireme_core::id::NodeId;

use super::stations::{Happening, Stations, content};
use crate::planted::Planted;

/// A stream to a receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) id: u64,
    pub(super) to: NodeId,
    /// The next block.
    pub(super) next: usize,
}

/// What a node sends.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) streams: VecDeque<Stream>,
    is_busy: bool,
}

impl Stations {
    /// A receiver asks its sender for the rest.
    pub(super) fn open_stream(&mut self, node: NodeId, from: NodeId, has: usize) {
        self.next_stream += 1;
        let id = self.next_stream;
        let next = if self.planted == Some(Planted::FromTheStart) { 0 } else { has };
        if let Some(station) = self.stations.get_mut(&node) {
            station.from = Some((from, id));
        }
        self.after(self.plan.latency_us, Happening::Dialled { to: from, stream: Stream { id, to: node, next } });
    }

    pub(super) fn close_stream(&mut self, from: NodeId, stream: u64) {
        if let Some(sender) = self.stations.get_mut(&from) {
            sender.line.streams.retain(|open| open.id != stream);
        }
    }

    /// A request reaches the sender.
    pub(super) fn dialled(&mut self, to: NodeId, stream: Stream) {
        let receiver = self.stations.get(&stream.to);
        if receiver.is_none_or(|station| station.from != Some((to, stream.id))) {
            // It is dead, or has lost this one already.
            return;
        }
        let lost = |is_useless| Happening::Lost { node: stream.to, stream: stream.id, is_useless };
        match self.stations.get_mut(&to) {
            Some(sender) if sender.is_complete || sender.wants => {
                sender.line.streams.push_back(stream);
                self.send_next(to);
            }
            Some(_) => self.after(self.plan.latency_us, lost(true)),
            None => self.after(self.plan.latency_us, lost(false)),
        }
    }

    pub(super) fn link_free(&mut self, node: NodeId) {
        if let Some(station) = self.stations.get_mut(&node) {
            station.line.is_busy = false;
            self.send_next(node);
        }
    }

    /// Sends a block to whom it is the turn of, when it is there.
    fn send_next(&mut self, node: NodeId) {
        let (block_us, latency_us, all) = (self.plan.block_us, self.plan.latency_us, self.plan.blocks);
        let Some(station) = self.stations.get_mut(&node).filter(|station| !station.line.is_busy) else { return };
        let there = station.blocks.len();
        let Some(turn) = station.line.streams.iter().position(|stream| stream.next < there) else { return };
        let Some(mut stream) = station.line.streams.remove(turn) else { return };
        let index = stream.next;
        let content = station.blocks[index];
        stream.next += 1;
        station.line.is_busy = true;
        if stream.next < all {
            station.line.streams.push_back(stream);
        }
        self.after(block_us, Happening::Free(node));
        let arrived = Happening::Arrived { to: stream.to, stream: stream.id, index, content };
        self.after(block_us + latency_us, arrived);
    }

    /// A block comes.
    pub(super) fn arrived(&mut self, to: NodeId, stream: u64, index: usize, came: u64) {
        let all = self.plan.blocks;
        let Some(station) = self.stations.get_mut(&to) else {
            self.wasted += 1;
            return;
        };
        if station.from.is_none_or(|(_, id)| id != stream) {
            // Of a connection that broke.
            self.wasted += 1;
            return;
        }
        let has = station.blocks.len();
        if index < has {
            let text = format!("{to} has {has} blocks and gets block {index}");
            return self.break_invariant("nothing is sent where it is not wanted", text);
        }
        if index != has || came != content(index) {
            let text = format!("{to} has {has} blocks and gets {came:x} as block {index}");
            return self.break_invariant("no byte is wrong or lost", text);
        }
        station.blocks.push(came);
        if has + 1 == all {
            self.complete(to);
        }
        self.send_next(to);
    }
}
