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

    /// Takes the oldest frame.
    pub fn read(&mut self, to: ProcessId, from: ProcessId) -> Option<Vec<u8>> {
        self.rings.get_mut(&(to, from))?.pop_front()
    }

    /// Whether somebody has written something to this process that it has not read.
    pub fn has_news(&self, to: ProcessId) -> bool {
        let first = ProcessId { node: NodeId(0), slot: 0, incarnation: 0 };
        let last = ProcessId { node: NodeId(u32::MAX), slot: u32::MAX, incarnation: u32::MAX };
        self.rings.range((to, first)..=(to, last)).any(|(_, ring)| !ring.is_empty())
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
