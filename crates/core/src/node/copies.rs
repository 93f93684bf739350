//! The directory of copies: which other nodes have what our processes own.
//!
//! An object is known by the place that its owner knows. When the node of that place dies, one of the copies takes its place
//! and is kept like a first one from then on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Effect, Node, send};
use crate::id::{NodeId, ObjectId, ProcessId};
use crate::message::{Between, FromNode, RequestId, ToNode};
use crate::value::{Location, RefSpec};

/// Something in our store that a process of another node owns.
pub(super) struct Lodger {
    pub(super) at: Location,
    /// What it is, and whose.
    pub(super) object: RefSpec,
    /// It is the one that its owner knows, and no copy.
    pub(super) is_first: bool,
    /// While we are being drained: who keeps it when we have left.
    pub(super) kept_by: Option<NodeId>,
}

/// A place without what may change while it is the same.
type Key = (NodeId, u32, u32);

pub(super) fn key(at: Location) -> Key {
    (at.node, at.entry, at.generation)
}

/// So many places that were freed last are remembered, for copies that were under way. A copy that comes later than that is
/// an extra one that nobody asks for, and the first to be dropped when its node needs room.
const FREED_MAX: usize = 4_096;

/// Copies by the place that the owner knows.
#[derive(Default)]
pub(super) struct Copies {
    known: BTreeMap<Key, BTreeMap<NodeId, Location>>,
    /// Where a copy is a first one now, by the place that was lost with its node.
    moved: BTreeMap<Key, Location>,
    freed: BTreeSet<Key>,
    freed_in_order: VecDeque<Key>,
}

impl Copies {
    pub(super) fn dropped(&mut self, of: Location, node: NodeId) {
        if let Some(copies) = self.known.get_mut(&key(of)) {
            copies.remove(&node);
            if copies.is_empty() {
                self.known.remove(&key(of));
            }
        }
    }

    pub(super) fn forget_node(&mut self, node: NodeId) {
        self.known.retain(|_, copies| {
            copies.remove(&node);
            !copies.is_empty()
        });
    }

    fn note_freed(&mut self, of: Location) {
        if self.freed.insert(key(of)) {
            self.freed_in_order.push_back(key(of));
            if self.freed_in_order.len() > FREED_MAX
                && let Some(oldest) = self.freed_in_order.pop_front()
            {
                self.freed.remove(&oldest);
            }
        }
    }

    /// Who has what an owner knows at this place.
    pub(super) fn nodes_with(&self, of: Location) -> Vec<NodeId> {
        let copies = self.known.get(&key(of)).into_iter().flat_map(|copies| copies.keys().copied());
        std::iter::once(of.node).chain(copies.filter(|node| *node != of.node)).collect()
    }

    /// How many objects have any.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

impl Node {
    /// This node has made a copy, or dropped one, of what a process of any node owns.
    pub(super) fn copied(&mut self, object: RefSpec, of: Location, at: Option<Location>, effects: &mut Vec<Effect>) {
        let (me, owner) = (self.config.id, object.owner);
        if let Some(at) = at.filter(|_| self.cluster.taking.remove(&key(of))) {
            self.took(object, of, at, effects);
            return;
        }
        match at {
            Some(at) if owner.node == me => self.copy_made(me, of, at, effects),
            None if owner.node == me => self.cluster.copies.dropped(of, me),
            // Nobody asks for it any more: its owner's node died while the copy was made.
            Some(at) if !self.live.has_node(owner.node) => effects.push(Effect::FreeStored(at)),
            Some(at) => {
                // When the owner's node dies, nobody asks for it any more.
                let lodger = Lodger { at, object, is_first: false, kept_by: None };
                self.cluster.lodged.entry((at.entry, at.generation)).or_insert(lodger);
                effects.push(Effect::Tell { node: owner.node, message: Between::CopyMade { of, at } });
            }
            None => effects.push(Effect::Tell { node: owner.node, message: Between::CopyDropped { of } }),
        }
    }

    pub(super) fn copy_made(&mut self, from: NodeId, of: Location, at: Location, effects: &mut Vec<Effect>) {
        if at.node != from {
            return;
        }
        if self.cluster.copies.freed.contains(&key(of)) {
            // While the copy was made. What is another node's goes there (`route`).
            effects.push(Effect::FreeStored(at));
            return;
        }
        self.cluster.copies.known.entry(key(of)).or_default().insert(from, at);
    }

    /// Whatever was decided to be freed goes with its copies.
    pub(super) fn free_with_copies(&mut self, effects: &mut Vec<Effect>, from: usize) {
        let freed = |effect: &Effect| match effect {
            Effect::FreeStored(at) | Effect::Store { request: ToNode::FreeObject { at }, .. } => Some(*at),
            _ => None,
        };
        let freed: Vec<Location> = effects[from..].iter().filter_map(freed).collect();
        for at in freed {
            if at.node == self.config.id {
                self.cluster.lodged.remove(&(at.entry, at.generation));
            }
            self.free_copies(at, effects);
        }
    }

    /// Nobody can ask for what lies there: copies go with it.
    pub(super) fn free_copies(&mut self, of: Location, effects: &mut Vec<Effect>) {
        let copies = self.cluster.copies.known.remove(&key(of)).unwrap_or_default();
        effects.extend(copies.into_values().map(Effect::FreeStored));
        self.cluster.copies.note_freed(of);
        self.cluster.copies.moved.retain(|_, at| key(*at) != key(of));
        if let Some(at) = self.cluster.copies.moved.remove(&key(of)) {
            effects.push(Effect::FreeStored(at));
            self.free_copies(at, effects);
        }
    }

    /// What lay there is gone with its node: another copy, if there is one, takes its place.
    pub(super) fn find_copy(&mut self, process: ProcessId, object: ObjectId, of: Location, effects: &mut Vec<Effect>) {
        let found = self.copy_of(of, effects);
        send(process, FromNode::CopyFound { object, found }, effects);
    }

    /// Where that is now which lay on a node that is gone. A copy that is found is a first one from then on.
    pub(super) fn copy_of(&mut self, of: Location, effects: &mut Vec<Effect>) -> Result<Location, String> {
        if let Some(at) = self.moved_to(of) {
            return Ok(at);
        }
        let mut copies = self.cluster.copies.known.remove(&key(of)).unwrap_or_default();
        match copies.pop_first() {
            Some((node, at)) => {
                if !copies.is_empty() {
                    self.cluster.copies.known.insert(key(at), copies);
                }
                self.cluster.copies.moved.insert(key(of), at);
                if node == self.config.id {
                    self.promoted(at, effects);
                } else {
                    effects.push(Effect::Tell { node, message: Between::Promote { at } });
                }
                Ok(at)
            }
            None => Err(format!("it lay on {} only, which is gone", of.node)),
        }
    }

    /// Where that was brought which lay there, from node to node if need be.
    fn moved_to(&self, of: Location) -> Option<Location> {
        let mut at = *self.cluster.copies.moved.get(&key(of))?;
        // No longer than the table, should nodes of another kind of mind send circles.
        for _ in 0..self.cluster.copies.moved.len() {
            if at.node == self.config.id || self.live.has_node(at.node) {
                return Some(at);
            }
            at = *self.cluster.copies.moved.get(&key(at))?;
        }
        None
    }

    /// What is here as a copy is the one that its owner knows from now on.
    pub(super) fn promoted(&mut self, at: Location, effects: &mut Vec<Effect>) {
        if let Some(lodger) = self.cluster.lodged.get_mut(&(at.entry, at.generation)) {
            lodger.is_first = true;
        }
        effects.push(Effect::Promote(at));
    }

    /// Another node keeps what lay with one that is being drained, and one of our processes owns.
    pub(super) fn moved(&mut self, from: NodeId, of: Location, at: Location, effects: &mut Vec<Effect>) {
        if at.node != from {
            return;
        }
        let earlier = self.moved_to(of);
        let needed = earlier.is_none() && !self.cluster.copies.freed.contains(&key(of));
        if needed {
            // It goes with the first one now, and not as one of its copies.
            self.cluster.copies.dropped(of, from);
            self.cluster.copies.moved.insert(key(of), at);
        } else if earlier.is_none_or(|earlier| key(earlier) != key(at)) {
            effects.push(Effect::FreeStored(at));
        }
        let by = if needed { Some(from) } else { earlier.map(|earlier| earlier.node) };
        if of.node == self.config.id {
            self.kept(of, by);
        } else {
            effects.push(Effect::Tell { node: of.node, message: Between::Kept { of, by } });
        }
    }

    /// A process wants what lay on a node that is gone: who knows where it is now is asked.
    pub(super) fn seek(
        &mut self,
        process: ProcessId,
        request: RequestId,
        object: RefSpec,
        at: Location,
        effects: &mut Vec<Effect>,
    ) {
        let home = object.owner.node;
        if home == self.config.id {
            let found = self.copy_of(at, effects);
            self.sought(process, request, object, found, effects);
        } else if self.live.has_node(home) {
            effects.push(Effect::Tell { node: home, message: Between::Seek { process, request, object, at } });
        } else {
            let located = Err(format!("{} is gone, and so is {home}, which knew of copies", at.node));
            send(process, FromNode::Located { request, located }, effects);
        }
    }

    /// Where it is now: it is fetched from there.
    pub(super) fn sought(
        &mut self,
        process: ProcessId,
        request: RequestId,
        object: RefSpec,
        found: Result<Location, String>,
        effects: &mut Vec<Effect>,
    ) {
        match found {
            Ok(at) if at.node != self.config.id && self.live.has_node(at.node) => {
                let request = ToNode::Fetch { request, object, at };
                effects.push(Effect::Store { process, request });
            }
            Ok(at) if at.node != self.config.id => {
                let located = Err(format!("it lay on {}, which is gone", at.node));
                send(process, FromNode::Located { request, located }, effects);
            }
            located => send(process, FromNode::Located { request, located }, effects),
        }
    }
}
