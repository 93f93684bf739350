//! Rings: one queue of encoded frames per pair of processes and direction. What was written stays when the writer dies.

use std::collections::{BTreeMap, VecDeque};

use bireme_core::id::{NodeId, ProcessId};

/// All rings of the machine.
#[derive(Debug, Default)]
pub struct Network {
    rings: BTreeMap<(ProcessId, ProcessId), VecDeque<Vec<u8>>>,
}

impl Network {
    /// Appends a frame to the ring from one process to another.
    pub fn write(&mut self, from: ProcessId, to: ProcessId, frame: Vec<u8>) {
        self.rings.entry((to, from)).or_default().push_back(frame);
    }

    /// The oldest frame.
    pub fn peek(&self, to: ProcessId, from: ProcessId) -> Option<&[u8]> {
        self.rings.get(&(to, from))?.front().map(Vec::as_slice)
    }

    /// Frames that wait in the ring from one process to another.
    pub fn waiting(&self, to: ProcessId, from: ProcessId) -> usize {
        self.rings.get(&(to, from)).map_or(0, VecDeque::len)
    }

    /// Takes the oldest frame.
    pub fn read(&mut self, to: ProcessId, from: ProcessId) -> Option<Vec<u8>> {
        self.rings.get_mut(&(to, from))?.pop_front()
    }

    /// Whether somebody has written something to this process that it has not read.
    pub fn has_news(&self, to: ProcessId) -> bool {
        self.has_news_of(to, |_| true)
    }

    /// The same of those who are looked at.
    pub fn has_news_of(&self, to: ProcessId, looked_at: impl Fn(ProcessId) -> bool) -> bool {
        let first = ProcessId { node: NodeId(0), slot: 0, incarnation: 0 };
        let last = ProcessId { node: NodeId(u32::MAX), slot: u32::MAX, incarnation: u32::MAX };
        self.rings.range((to, first)..=(to, last)).any(|((_, from), ring)| !ring.is_empty() && looked_at(*from))
    }

    /// Whether any frame is on its way.
    pub fn is_quiet(&self) -> bool {
        self.rings.values().all(VecDeque::is_empty)
    }

    /// The process is gone: nobody reads what was sent to it.
    pub fn drop_reader(&mut self, process: ProcessId) {
        self.rings.retain(|(to, _), _| *to != process);
    }

    /// What this process wrote to another is gone.
    pub fn drop_ring(&mut self, from: ProcessId, to: ProcessId) {
        self.rings.remove(&(to, from));
    }
}
