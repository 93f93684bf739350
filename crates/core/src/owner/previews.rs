//! Results of reduces that have a place and are still being made: who is known to read one has it brought while it grows.
//!
//! A preview is a hint. What it starts may come to nothing when the reduce begins again; values come the way that all do.

use std::collections::BTreeSet;

use super::{ActorPlace, Effect, Owner};
use crate::id::{NodeId, ObjectId, ProcessId};
use crate::message::ToNode;
use crate::spec::TaskKind;
use crate::time::Tick;
use crate::value::{Location, RefSpec};

/// Where a result is being made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growing {
    pub(super) at: Location,
    /// Who reads it should get it while it grows.
    pub(super) to_readers: bool,
}

impl Owner {
    /// The result of a reduce of ours has a place and begins to grow there.
    pub(super) fn reduce_placed(&mut self, target: ObjectId, growing: Growing, now: Tick, effects: &mut Vec<Effect>) {
        if !self.reduces.placed(target, growing) {
            return;
        }
        let others = self.objects.get(&target).and_then(|entry| entry.others.as_ref());
        let (resolvers, dependents, outer) = others.map_or_else(Default::default, |others| {
            (others.resolvers.clone(), others.dependents.clone(), others.reduces.clone())
        });
        let mut nodes: BTreeSet<NodeId> = self.reduces.readers(target).collect();
        nodes.extend(resolvers.iter().map(|peer| peer.node));
        nodes.extend(dependents.iter().filter_map(|task| self.node_of(&self.tasks.get(task)?.spec.kind)));
        self.bring_early(target, nodes, effects);
        for reduce in outer {
            self.reduce_input_ready(reduce, target, now, effects);
        }
    }

    /// The value of an object will be read there.
    pub(super) fn read_early(&mut self, target: ObjectId, nodes: Vec<NodeId>, effects: &mut Vec<Effect>) {
        if self.reduces.note_readers(target, &nodes) {
            self.bring_early(target, nodes.into_iter().collect(), effects);
        }
    }

    /// A process waits for the value.
    pub(super) fn resolver_reads_early(&self, target: ObjectId, peer: ProcessId, effects: &mut Vec<Effect>) {
        self.bring_early(target, BTreeSet::from([peer.node]), effects);
    }

    /// A new task waits for the value.
    pub(super) fn dependent_reads_early(&self, target: ObjectId, kind: &TaskKind, effects: &mut Vec<Effect>) {
        if self.reduces.growing(target).is_some() {
            self.bring_early(target, self.node_of(kind).into_iter().collect(), effects);
        }
    }

    fn bring_early(&self, target: ObjectId, nodes: BTreeSet<NodeId>, effects: &mut Vec<Effect>) {
        let Some(Growing { at, to_readers: true }) = self.reduces.growing(target) else { return };
        let nodes: Vec<NodeId> = nodes.into_iter().filter(|node| *node != at.node).collect();
        if !nodes.is_empty() {
            let object = RefSpec { object: target, owner: self.me };
            effects.push(Effect::Node(ToNode::Broadcast { object, at, nodes }));
        }
    }

    /// Where a task will run, if it is a call and its actor has a place.
    fn node_of(&self, kind: &TaskKind) -> Option<NodeId> {
        let TaskKind::Call { actor, .. } = kind else { return None };
        match self.actors.get(actor)?.place {
            ActorPlace::At { process } => Some(process.node),
            _ => None,
        }
    }
}
