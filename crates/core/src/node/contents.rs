//! References inside values that this node keeps for the dead, whose owners are processes of other nodes.
//!
//! The dead one had borrowed them, and their owner forgets its loans when it hears of the death. So this node claims them with the
//! node of their owner, on the link that tells of the death and before it does, and gives the claim back when the value
//! goes. Who is told such a value is told the references under the name of that node, and claims them there.

use std::collections::BTreeMap;

use super::{Effect, Node};
use crate::id::{JobId, NodeId, ObjectId, ProcessId};
use crate::message::{Adoption, Between, FromNode, ToNode};
use crate::value::{RefSpec, Value};

/// What is held with other nodes.
#[derive(Default)]
pub(super) struct Held {
    at: BTreeMap<ObjectId, NodeId>,
    /// What was held with nodes that are gone, as long as the values are here that contain it.
    lost: BTreeMap<ObjectId, NodeId>,
    /// Claims, and claims given back, that have not been told.
    untold: Vec<(ObjectId, NodeId, i64)>,
}

impl Held {
    /// A node is gone with all that it kept for us.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        let gone = self.at.extract_if(.., |_, at| *at == node);
        self.lost.extend(gone);
        self.untold.retain(|(_, at, _)| *at != node);
    }

    /// Why nothing is known of an object that nobody owns any more.
    pub(super) fn reason_of_loss(&self, object: ObjectId) -> String {
        match self.lost.get(&object) {
            Some(node) => format!("{node} is gone, which kept it"),
            None => "its owner is dead and the node has no record of it".to_owned(),
        }
    }

    /// The value that contained it is gone.
    pub(super) fn let_go(&mut self, object: ObjectId) {
        self.lost.remove(&object);
        if let Some(node) = self.at.remove(&object) {
            self.untold.push((object, node, -1));
        }
    }
}

impl Node {
    /// Holds what is inside a kept value with the node of its owner, when that is another one.
    pub(super) fn hold_abroad(&mut self, inner: RefSpec) {
        let node = inner.owner.node;
        if node == self.config.id || self.cluster.held.at.contains_key(&inner.object) {
            return;
        }
        if self.live.has_node(node) {
            self.cluster.held.at.insert(inner.object, node);
            self.cluster.held.untold.push((inner.object, node, 1));
        } else {
            self.cluster.held.lost.insert(inner.object, node);
        }
    }

    /// Tells what was held and let go.
    pub(super) fn tell_holds(&mut self, effects: &mut Vec<Effect>) {
        // No job's: the node itself.
        let (process, job) = (ProcessId::of_node(self.config.id), JobId::default());
        for (object, node, count) in std::mem::take(&mut self.cluster.held.untold) {
            let request = Box::new(ToNode::Claim { object, home: node, count });
            effects.push(Effect::Tell { node, message: Between::Asked { process, job, request } });
        }
    }

    /// Writes into values that are told who keeps the references inside.
    pub(super) fn name_keepers(&self, effects: &mut [Effect]) {
        if self.cluster.held.at.is_empty() {
            return;
        }
        for effect in effects {
            let Effect::Send { message, .. } = effect else { continue };
            match message {
                FromNode::Resolved { value, .. } | FromNode::ItemFound { value, .. } => self.name_keepers_of(value),
                FromNode::Adopted { adoption: Adoption::Finished(values), .. } => {
                    values.iter_mut().for_each(|value| self.name_keepers_of(value));
                }
                _ => {}
            }
        }
    }

    fn name_keepers_of(&self, value: &mut Value) {
        for inner in &mut value.nested {
            if let Some(node) = self.cluster.held.at.get(&inner.object) {
                inner.owner = ProcessId::of_node(*node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TaskId;

    #[test]
    fn a_node_that_is_gone_takes_what_was_held_there_and_nothing_else() {
        let object = |n| ObjectId::result(TaskId::from_raw(n), 0);
        let (gone, stays) = (NodeId(2), NodeId(3));
        let mut held = Held::default();
        held.at.extend([(object(1), gone), (object(2), stays)]);
        held.untold.extend([(object(1), gone, 1), (object(2), stays, 1)]);
        held.forget_node(gone);
        assert_eq!(held.at, BTreeMap::from([(object(2), stays)]));
        assert_eq!(held.lost, BTreeMap::from([(object(1), gone)]));
        assert_eq!(held.untold, [(object(2), stays, 1)]);
    }
}
