//! The nodes that are gone, and what went with them: nothing else excuses the loss of an object, an actor or a run.
//!
//! The simulator knows which nodes it took away, and the shell tells which nodes had a part in a task and where an object
//! lay. A failure is excused by these, by id: what the machines say about its reason counts for nothing.

use std::collections::{BTreeMap, BTreeSet};

use bireme_core::failure::{DeathCause, Failure};
use bireme_core::id::{NodeId, ObjectId, TaskId};

/// The nodes that are gone, and who had a part in what.
#[derive(Debug, Default)]
pub struct Losses {
    gone: BTreeSet<NodeId>,
    /// Nodes of processes that made a task or an actor, or ran it.
    tasks: BTreeMap<TaskId, BTreeSet<NodeId>>,
    /// Nodes of processes that put an object, and those where it lay.
    objects: BTreeMap<ObjectId, BTreeSet<NodeId>>,
    /// The object that lies in the stores under this number.
    contents: BTreeMap<u64, ObjectId>,
}

impl Losses {
    /// A node is gone, or counts as dead.
    pub fn node_lost(&mut self, node: NodeId) {
        self.gone.insert(node);
    }

    /// A process of this node makes a task, or runs it.
    pub fn had_part(&mut self, task: TaskId, node: NodeId) {
        self.tasks.entry(task).or_default().insert(node);
    }

    /// A process of this node records an object, which lies in a store under this number if it lies in one.
    pub fn recorded(&mut self, object: ObjectId, node: NodeId, content: Option<u64>) {
        self.objects.entry(object).or_default().insert(node);
        self.contents.extend(content.map(|content| (content, object)));
    }

    /// There is a copy on this node.
    pub fn copied(&mut self, content: u64, node: NodeId) {
        if let Some(object) = self.contents.get(&content) {
            self.objects.entry(*object).or_default().insert(node);
        }
    }

    /// Whether this is the loss of something that a node which is gone had a part in.
    pub fn excuse(&self, failure: &Failure) -> bool {
        match failure {
            Failure::WorkerDied { death, .. } => {
                matches!(death.cause, DeathCause::NodeDied(_)) && self.gone.contains(&death.process.node)
            }
            Failure::ObjectLost { object, .. } => {
                self.is_hit(self.objects.get(object)) || self.is_hit(self.tasks.get(&object.task()))
            }
            Failure::ActorDied { actor, .. } => self.is_hit(self.tasks.get(&actor.0)),
            _ => false,
        }
    }

    fn is_hit(&self, nodes: Option<&BTreeSet<NodeId>>) -> bool {
        nodes.is_some_and(|nodes| !nodes.is_disjoint(&self.gone))
    }
}
