//! Deaths of nodes: every process there is dead at once, and what lay only there is lost.
//!
//! The node's ledger and its claims are gone with it, so nobody is asked: tasks that ran there are tried again, what its
//! processes owned has a failure that names the node, and of our own objects that were stored there another copy is sought.
//! Of actors that lived there, the node that manages them tells.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::calls::ActorEnd;
use super::{Effect, Owner};
use crate::failure::{Death, DeathCause, Failure};
use crate::id::{ActorId, NodeId, ObjectId, ProcessId};
use crate::message::ToNode;
use crate::time::Tick;
use crate::value::{Body, Location, Value};

impl Owner {
    /// A node is dead. What its processes had sent us came before.
    pub(super) fn node_died(&mut self, node: NodeId, reason: &str, now: Tick, effects: &mut Vec<Effect>) {
        if !self.departed.insert_node(node) {
            return;
        }
        for process in self.acquainted_with(node) {
            let cause = DeathCause::NodeDied(format!("{node} {reason}"));
            let death =
                Death { process, pid: 0, cause, stderr_tail: String::new(), memory_peak_bytes: 0, culprit: None };
            let death = Arc::new(death);
            self.lose_worker(&death, effects);
            self.lose_borrower(&death, effects);
        }
        self.lose_owners(node, reason, now, effects);
        self.seek_copies(node, effects);
        for pool in self.pools.ids() {
            self.dispatch(pool, now, effects);
        }
    }

    /// The workers and borrowers of a node that this process has to do with.
    fn acquainted_with(&self, node: NodeId) -> BTreeSet<ProcessId> {
        let workers = self.pools.values().flat_map(|pool| pool.leases.iter().map(|lease| lease.worker));
        let all = workers.chain(self.lent_to.keys().copied());
        all.filter(|process| process.node == node).collect()
    }

    /// Objects whose owner was there have no value any more, unless we know it.
    fn lose_owners(&mut self, node: NodeId, reason: &str, now: Tick, effects: &mut Vec<Effect>) {
        let owners: Vec<ProcessId> = self.borrowed_from.keys().copied().filter(|owner| owner.node == node).collect();
        let borrowed: BTreeSet<ObjectId> =
            owners.iter().filter_map(|owner| self.borrowed_from.remove(owner)).flatten().collect();
        for object in borrowed {
            let Some(entry) = self.objects.get_mut(&object) else { continue };
            entry.other_grants.retain(|(from, _)| from.node != node);
            let Some(owner) = entry.owner.filter(|owner| owner.node == node) else { continue };
            entry.grants = 0;
            let lost = format!("its owner {owner} is gone: {node} {reason}");
            let actor = ActorId(object.task());
            if self.actors.get(&actor).is_some_and(|_| actor.object() == object) {
                self.actor_lost(actor, lost.clone(), ActorEnd::Dies, now, effects);
            }
            self.set_value(object, Value::failed(Failure::ObjectLost { object, reason: lost }), now, effects);
        }
    }

    /// Our own objects that were stored there may have another copy, which our node knows of.
    fn seek_copies(&mut self, node: NodeId, effects: &mut Vec<Effect>) {
        let there = |value: &Value| matches!(value.body, Body::Stored(at) if at.node == node);
        let stored = self.objects.sorted_keys_where(|_, entry| entry.value.as_ref().is_some_and(there));
        for object in stored {
            self.seek_copy(object, effects);
        }
    }

    fn seek_copy(&self, object: ObjectId, effects: &mut Vec<Effect>) {
        let home = self.objects.get(&object).and_then(|entry| entry.owner).map_or(self.me.node, |owner| owner.node);
        if let Some(Value { body: Body::Stored(at), .. }) = self.value(&object) {
            effects.push(Effect::Node(ToNode::FindCopy { object, at: *at, home }));
        }
    }

    /// A value that came after the death of the node where it lies may have another copy too.
    pub(super) fn seek_late_copy(&self, object: ObjectId, at: Location, effects: &mut Vec<Effect>) {
        if self.departed.has_node(at.node) {
            self.seek_copy(object, effects);
        }
    }

    /// A node that was drained had this brought elsewhere, and is dead. When it died before we heard of the value, the task
    /// runs again and makes another: nobody would ever ask for the one that was brought.
    pub(super) fn free_unless_known(&self, object: ObjectId, at: Location, effects: &mut Vec<Effect>) {
        let there = |value: &Value| matches!(&value.body, Body::Stored(there) if there.is_same_as(&at));
        if !self.value(&object).is_some_and(there) {
            effects.push(Effect::Node(ToNode::FreeObject { at }));
        }
    }

    /// The node's answer: another copy, or none.
    pub(super) fn copy_found(
        &mut self,
        object: ObjectId,
        found: Result<Location, String>,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let departed = &self.departed;
        let Some(value) = self.objects.get_mut(&object).and_then(|entry| entry.value.as_mut()) else { return };
        // A second copy may have been lost since; the answer about that is on its way.
        if let Body::Stored(at) = value.body
            && departed.has_node(at.node)
        {
            value.body = match found {
                Ok(at) => Body::Stored(at),
                Err(reason) => {
                    let reason = format!("it lay on {}: {reason}", at.node);
                    Body::Failed(Arc::new(Failure::ObjectLost { object, reason }))
                }
            };
            self.reduces_hear(object, now, effects);
        }
    }
}
