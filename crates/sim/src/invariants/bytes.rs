//! Bytes in the stores: freed when nobody can ask, and not before; and a copy is a copy of the same.

use std::collections::{BTreeMap, BTreeSet};

use bireme_core::id::{NodeId, ProcessId};
use bireme_core::value::{Body, Location, RefSpec, Value};

use super::Violation;

/// A place in the store of a node.
type Key = (NodeId, u32, u32);

fn key(at: Location) -> Key {
    (at.node, at.entry, at.generation)
}

/// What was stored.
#[derive(Debug, Default)]
pub struct Bytes {
    /// What lies there: copies have the number of what they were made from.
    contents: BTreeMap<Key, u64>,
    lying: BTreeSet<Key>,
    /// Nodes that are gone with their stores.
    lost: BTreeSet<NodeId>,
}

impl Bytes {
    /// Something new was stored. Says whether it is new.
    pub fn stored(&mut self, at: Location) -> bool {
        let new = self.contents.insert(key(at), u64::from(at.generation) << 32 | u64::from(at.entry)).is_none();
        if new {
            self.lying.insert(key(at));
        }
        new
    }

    /// A copy was made.
    pub fn copied(&mut self, of: Location, at: Location) {
        if let Some(content) = self.contents.get(&key(of)).copied() {
            self.contents.insert(key(at), content);
            self.lying.insert(key(at));
        }
    }

    /// The store frees bytes.
    pub fn freed(&mut self, at: Location) {
        self.lying.remove(&key(at));
    }

    /// A node is gone with its store.
    pub fn node_lost(&mut self, node: NodeId) {
        self.lost.insert(node);
        self.lying.retain(|(at, ..)| *at != node);
    }

    /// What lies in the stores of all nodes.
    pub fn lying(&self) -> impl Iterator<Item = String> + '_ {
        self.lying.iter().map(|(node, entry, _)| format!("the store of {node} has entry: {entry}"))
    }

    /// What lies in a place, or will when it is new.
    pub fn content_at(&self, at: Location) -> u64 {
        let fresh = u64::from(at.generation) << 32 | u64::from(at.entry);
        self.contents.get(&key(at)).copied().unwrap_or(fresh)
    }

    /// The value with its content in the place of where it lies.
    pub fn content(&self, value: &Value) -> Value {
        let Body::Stored(at) = value.body else { return value.clone() };
        let content = self.content_at(at);
        Value { body: Body::Inline(content.to_le_bytes().to_vec().into()), nested: value.nested.clone() }
    }

    /// A process cannot read an object that it holds.
    pub fn unreadable(
        &self,
        calm: bool,
        (reference, at): (RefSpec, Location),
        reason: &str,
        process: ProcessId,
    ) -> Result<(), Violation> {
        // With its owner's node went who counted who holds it.
        let object = reference.object;
        let lost = self.lost.contains(&at.node) || self.lost.contains(&reference.owner.node);
        // Nodes that leave in a calm run have moved what they had.
        if lost && !calm {
            return Ok(());
        }
        let text = format!("{process} holds {object} and cannot read it at {at:?}: {reason}");
        let concerns = vec![object.task().to_string()];
        Err(Violation { invariant: "no bytes are freed while they are referenced", text, concerns })
    }
}
