//! The directory of copies: which other nodes have what our processes own.
//!
//! An object is known by the place that its owner knows. When the node of that place dies, one of the copies takes its place
//! and is kept like a first one from then on. Whoever asks later may know any of its places: they are names of one thing, and
//! its copies are found, and freed, by all of them.

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
pub(super) type Key = (NodeId, u32, u32);

pub(super) fn key(at: Location) -> Key {
    (at.node, at.entry, at.generation)
}

/// So many places that were freed last are remembered, for copies that were under way. A copy that comes later than that is
/// an extra one that nobody asks for, and the first to be dropped when its node needs room.
const FREED_MAX: usize = 4_096;

/// Where a copy is the first one now, instead of the place that was lost with its node.
struct Moved {
    at: Location,
    /// Where it was in between, and is: its other names.
    names: Vec<Key>,
}

/// Copies by the place that the owner knew first.
#[derive(Default)]
pub(super) struct Copies {
    known: BTreeMap<Key, BTreeMap<NodeId, Location>>,
    moved: BTreeMap<Key, Moved>,
    /// The first place of what was moved, by all the others.
    named: BTreeMap<Key, Key>,
    /// What was brought from a node while that was being drained: it may be dead before the owner hears of the value.
    brought: BTreeMap<Key, (RefSpec, Location)>,
    freed: BTreeSet<Key>,
    freed_in_order: VecDeque<Key>,
}

impl Copies {
    fn first_name(&self, of: Location) -> Key {
        self.named.get(&key(of)).copied().unwrap_or(key(of))
    }

    pub(super) fn dropped(&mut self, of: Location, node: NodeId) {
        let name = self.first_name(of);
        if let Some(copies) = self.known.get_mut(&name) {
            copies.remove(&node);
            if copies.is_empty() {
                self.known.remove(&name);
            }
        }
    }

    /// The copy of that node is the first one from now on.
    fn promote(&mut self, of: Location, at: Location) {
        self.dropped(of, at.node);
        let name = self.first_name(of);
        let moved = self.moved.entry(name).or_insert(Moved { at, names: Vec::new() });
        moved.at = at;
        moved.names.push(key(at));
        self.named.insert(key(at), name);
    }

    pub(super) fn forget_node(&mut self, node: NodeId) {
        self.known.retain(|_, copies| {
            copies.remove(&node);
            !copies.is_empty()
        });
    }

    /// All copies of what has this place for one of its names.
    fn take_all(&mut self, of: Location) -> Vec<Location> {
        let name = self.first_name(of);
        let mut all: Vec<Location> = self.known.remove(&name).unwrap_or_default().into_values().collect();
        if let Some(moved) = self.moved.remove(&name) {
            for other in moved.names {
                self.named.remove(&other);
                self.brought.remove(&other);
                self.note_freed(other);
            }
            all.push(moved.at);
        }
        self.brought.remove(&name);
        self.note_freed(name);
        all.retain(|at| key(*at) != key(of));
        all
    }

    fn note_freed(&mut self, of: Key) {
        if self.freed.insert(of) {
            self.freed_in_order.push_back(of);
            if self.freed_in_order.len() > FREED_MAX
                && let Some(oldest) = self.freed_in_order.pop_front()
            {
                self.freed.remove(&oldest);
            }
        }
    }

    /// Who has what an owner knows at this place.
    pub(super) fn nodes_with(&self, of: Location) -> Vec<NodeId> {
        std::iter::once(of.node).chain(self.of(of).map(|(node, _)| node).filter(|node| *node != of.node)).collect()
    }

    /// The copies of what an owner knows at this place.
    pub(super) fn of(&self, of: Location) -> impl Iterator<Item = (NodeId, Location)> + '_ {
        self.known.get(&self.first_name(of)).into_iter().flatten().map(|(node, at)| (*node, *at))
    }

    /// Whether it was freed lately.
    pub(super) fn was_freed(&self, of: Location) -> bool {
        self.freed.contains(&key(of))
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
            None if owner.node == me => self.copy_dropped(me, of, effects),
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
        // It may have begun before another copy became the first one.
        let of = self.moved_to(of).unwrap_or(of);
        if key(of) != key(at) {
            let name = self.cluster.copies.first_name(of);
            let earlier = self.cluster.copies.known.entry(name).or_default().insert(from, at);
            // One that was made by another of its names.
            effects.extend(earlier.filter(|earlier| key(*earlier) != key(at)).map(Effect::FreeStored));
        }
        self.with_directory(effects, |directory, answers| directory.made(of, from, at, answers));
    }

    /// A node has no copy any more, or could not make one.
    pub(super) fn copy_dropped(&mut self, from: NodeId, of: Location, effects: &mut Vec<Effect>) {
        let of = self.moved_to(of).unwrap_or(of);
        self.cluster.copies.dropped(of, from);
        self.with_directory(effects, |directory, answers| directory.dropped(of, from, answers));
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
        for at in self.cluster.copies.take_all(of) {
            effects.push(Effect::FreeStored(at));
            self.with_directory(effects, |directory, answers| directory.freed(at, answers));
        }
        self.with_directory(effects, |directory, answers| directory.freed(of, answers));
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
        let copy = self.cluster.copies.of(of).next();
        match copy {
            Some((node, at)) => {
                self.cluster.copies.promote(of, at);
                self.with_directory(effects, |directory, answers| directory.moved(of, at, answers));
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

    /// Where that was brought which lay there.
    pub(super) fn moved_to(&self, of: Location) -> Option<Location> {
        let copies = &self.cluster.copies;
        let at = copies.moved.get(&copies.first_name(of))?.at;
        (at.node == self.config.id || self.live.has_node(at.node)).then_some(at)
    }

    /// What is here as a copy is the one that its owner knows from now on.
    pub(super) fn promoted(&mut self, at: Location, effects: &mut Vec<Effect>) {
        if let Some(lodger) = self.cluster.lodged.get_mut(&(at.entry, at.generation)) {
            lodger.is_first = true;
        }
        effects.push(Effect::Promote(at));
    }

    /// Another node keeps what lay with one that is being drained, and one of our processes owns.
    pub(super) fn moved(
        &mut self,
        from: NodeId,
        object: RefSpec,
        of: Location,
        at: Location,
        effects: &mut Vec<Effect>,
    ) {
        if at.node != from {
            return;
        }
        let earlier = self.moved_to(of).filter(|earlier| key(*earlier) != key(of));
        let needed = earlier.is_none() && !self.cluster.copies.freed.contains(&key(of));
        if needed {
            self.cluster.copies.promote(of, at);
            self.cluster.copies.brought.insert(key(of), (object, of));
            self.with_directory(effects, |directory, answers| directory.moved(of, at, answers));
            if !self.live.has_node(of.node) {
                self.ask_for_what_was_kept(of.node, effects);
            }
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

    /// A node is dead whose objects were brought elsewhere before: owners that have not heard of theirs free them.
    pub(super) fn ask_for_what_was_kept(&mut self, node: NodeId, effects: &mut Vec<Effect>) {
        let copies = &mut self.cluster.copies;
        let there = copies.brought.extract_if((node, 0, 0)..=(node, u32::MAX, u32::MAX), |_, _| true);
        for (_, (object, at)) in there {
            // What was brought a second time is known by its first place.
            if !copies.named.contains_key(&key(at)) && self.live.contains(&object.owner) {
                send(object.owner, FromNode::Kept { object: object.object, at }, effects);
            }
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
