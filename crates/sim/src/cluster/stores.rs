//! The stores of the nodes: what lies where, and copies. How bytes get from one to another is in `transfers`.

use std::collections::BTreeMap;

use bireme_core::id::{NodeId, ProcessId};
use bireme_core::message::{RequestId, ToNode};
use bireme_core::node;
use bireme_core::value::{Body, Location, RefSpec, Value};
use bireme_core::worker;

use super::Cluster;
use super::threads::Wait;
use super::transfers::Transfers;

/// Entry and use of it.
pub(super) type Key = (u32, u32);

/// What lies in the store of one node.
#[derive(Debug, Default)]
pub struct Store {
    pub(super) places: BTreeMap<Key, Stored>,
    /// Copies of what lies elsewhere, by the place that they were made from.
    pub(super) copies: BTreeMap<(NodeId, Key), Location>,
    /// Copies that are wanted or on their way.
    pub(super) transfers: Transfers,
}

#[derive(Debug)]
pub(super) struct Stored {
    /// Whose, and what it was made from, when it is a copy.
    pub(super) copy_of: Option<(RefSpec, Location)>,
}

pub(super) fn key(at: Location) -> Key {
    (at.entry, at.generation)
}

impl Store {
    /// Whether something lies there.
    pub fn has(&self, at: Location) -> bool {
        self.places.contains_key(&key(at))
    }

    pub(super) fn insert(&mut self, at: Location, copy_of: Option<(RefSpec, Location)>) {
        if let Some((_, of)) = copy_of {
            self.copies.insert((of.node, key(of)), at);
        }
        self.places.insert(key(at), Stored { copy_of });
    }

    pub(super) fn remove(&mut self, at: Location) -> Option<(RefSpec, Location)> {
        let (object, of) = self.places.remove(&key(at))?.copy_of?;
        self.copies.remove(&(of.node, key(of)));
        Some((object, of))
    }
}

impl Cluster {
    /// A place for something new in the store of a process.
    pub(super) fn new_place(&mut self, process: ProcessId, offset: u64) -> Location {
        let fresh = self.random.number();
        Location { node: process.node, entry: fresh as u32, generation: (fresh >> 32) as u32, offset, len: 1 << 20 }
    }

    /// A value that a process has recorded is there from now on.
    pub(super) fn store_value(&mut self, process: ProcessId, value: &Value) {
        if let Body::Stored(at) = value.body
            && at.node == process.node
            && self.watch.stored(at)
            && let Some(host) = self.hosts.get_mut(&at.node)
        {
            host.store.insert(at, None);
        }
    }

    /// The node frees what lies in its store.
    pub(super) fn free_stored(&mut self, node: NodeId, at: Location) {
        assert_eq!(at.node, node, "a node frees what is its own");
        if let Some(host) = self.hosts.get_mut(&node) {
            host.store.remove(at);
        }
        self.watch.freed_stored(at);
    }

    /// A copy is a first one from now on.
    pub(super) fn promote(&mut self, node: NodeId, at: Location) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let Some(stored) = host.store.places.get_mut(&key(at)) else { return };
        if let Some((_, of)) = stored.copy_of.take() {
            host.store.copies.remove(&(of.node, key(of)));
        }
    }

    /// The store's business.
    pub(super) fn store_request(&mut self, node: NodeId, process: ProcessId, request: ToNode) {
        match request {
            ToNode::FreeObject { at } => self.free_stored(node, at),
            ToNode::Fetch { request, object, at } => self.want_copy(node, Some((process, request)), object, at),
            _ => {}
        }
    }

    /// A node may drop copies to make room.
    pub(super) fn evict(&mut self, node: NodeId) {
        let full = self.faulty && self.faults.nodes.evict_one_in.is_some_and(|n| self.random.one_in(n));
        let Some(host) = self.hosts.get_mut(&node).filter(|_| full) else { return };
        let copies = host.store.places.iter().filter(|(_, stored)| stored.copy_of.is_some());
        let copies: Vec<Location> = copies.filter_map(|(_, stored)| stored.copy_of.map(|(_, of)| of)).collect();
        let Some(of) = copies.get(self.random.below(copies.len() as u64) as usize).copied() else { return };
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let Some(at) = host.store.copies.get(&(of.node, key(of))).copied() else { return };
        if let Some((object, of)) = host.store.remove(at) {
            self.watch.freed_stored(at);
            self.step_node(node, node::Event::Copied { object, of, at: None });
        }
    }

    /// Whether a thread can read a value here and now; else it waits until a copy is here.
    pub(super) fn can_read(&mut self, process: ProcessId, id: u64, reference: RefSpec, value: &Value) -> bool {
        let Body::Stored(at) = value.body else { return true };
        let Some(entry) = self.processes.get_mut(&process) else { return false };
        let Some(thread) = entry.threads.get_mut(&id) else { return false };
        // A copy elsewhere may have taken its place meanwhile.
        let current = thread.fetched.get(&reference.object).is_some_and(|(asked, _)| *asked == at);
        if at.node == process.node || current {
            return true;
        }
        entry.next_request += 1;
        let request = entry.next_request;
        thread.wait = Wait::Fetch(request, reference.object, at);
        let lease = thread.seat.as_ref().map(|(lease, _)| *lease);
        if let Some(lease) = lease {
            self.step_worker(process, worker::Event::Blocked { lease });
        }
        self.tell_node(process, &ToNode::Fetch { request, object: reference, at });
        false
    }

    /// What a thread reads: the copy here, when the value lies elsewhere. Nothing when it is lost with its node.
    pub(super) fn read(&mut self, process: ProcessId, id: u64, reference: RefSpec, value: &Value) -> Option<Value> {
        let object = reference.object;
        let Body::Stored(at) = value.body else { return Some(value.clone()) };
        let mut body = at;
        if at.node != process.node {
            match self.thread(process, id)?.fetched.remove(&object)? {
                (_, Ok(copy)) => body = copy,
                (_, Err(reason)) => {
                    self.watch.unreadable(reference, at, &reason, process);
                    return None;
                }
            }
        }
        let here = self.hosts.get(&process.node).is_some_and(|host| host.store.has(body));
        // A copy may have been dropped since it came; the runtime pins it before it answers.
        if !here && at.node == process.node {
            self.watch.unreadable(reference, at, "it is not in the store", process);
            return None;
        }
        Some(Value { body: Body::Stored(body), nested: value.nested.clone() })
    }

    /// The node's answer about a copy.
    pub(super) fn located(&mut self, process: ProcessId, request: RequestId, located: Result<Location, String>) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let asked = |wait: &Wait| matches!(wait, Wait::Fetch(asked, ..) if *asked == request);
        let Some((&id, thread)) = entry.threads.iter_mut().find(|(_, thread)| asked(&thread.wait)) else { return };
        if let Wait::Fetch(_, object, at) = thread.wait {
            thread.fetched.insert(object, (at, located));
        }
        self.resume_thread(process, id);
    }
}
