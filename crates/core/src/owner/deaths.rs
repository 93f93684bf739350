//! Deaths of other processes: of workers, of borrowers, of owners.

use std::sync::Arc;

use super::{Effect, Owner};
use crate::failure::Death;
use crate::id::{NodeId, ObjectId, TaskId};
use crate::message::ToNode;
use crate::spec::TaskKind;
use crate::time::Tick;
use crate::value::Value;

use super::tasks::TaskState;

impl Owner {
    /// A process died; the shell has drained what it had sent us.
    pub(super) fn process_died(&mut self, death: Arc<Death>, now: Tick, effects: &mut Vec<Effect>) {
        let dead = death.process;
        if self.is_departed(dead) {
            // Told twice: once by the node's own word, once because we asked for a link.
            effects.push(Effect::Node(ToNode::Settled { dead }));
            return;
        }
        self.departed.insert(dead);
        self.lose_worker(&death, effects);
        self.lose_borrower(&death, effects);
        self.lose_owner(&death, effects);
        effects.push(Effect::Node(ToNode::Settled { dead }));
        for pool in self.pools.ids() {
            self.dispatch(pool, now, effects);
        }
    }

    /// Tasks that the worker had are asked about. Only the one that ran can have caused the death.
    pub(super) fn lose_worker(&mut self, death: &Arc<Death>, effects: &mut Vec<Effect>) {
        for tasks in self.lose_leases(death.process) {
            for (place, task) in tasks.into_iter().enumerate() {
                let blamed = match death.culprit {
                    Some(culprit) => culprit == task,
                    None => place == 0,
                };
                self.ask_about(task, death, blamed, effects);
            }
        }
    }

    pub(super) fn lose_borrower(&mut self, death: &Death, effects: &mut Vec<Effect>) {
        for object in self.lent_to.remove(&death.process).unwrap_or_default() {
            if let Some(entry) = self.objects.get_mut(&object) {
                entry.others().lent.remove(&death.process);
                // It may be inside of what is still on its way to the dead one's node, which keeps that and claims this.
                let home = self.me.node;
                if death.process.node != home && entry.owner.is_none() {
                    let claim = |count| Effect::Node(ToNode::Claim { object, home, count });
                    effects.extend([claim(1), claim(-1)]);
                }
                self.free_if_unused(object, effects);
            }
        }
        let asked_by_dead = self.objects.sorted_keys_where(|_, entry| {
            entry.others.as_ref().is_some_and(|others| others.resolvers.contains(&death.process))
        });
        for object in asked_by_dead {
            if let Some(entry) = self.objects.get_mut(&object) {
                entry.others().resolvers.retain(|p| *p != death.process);
                self.free_if_unused(object, effects);
            }
        }
    }

    /// Objects of the dead owner live on with the node: claim what we hold, ask again for what we wait for.
    fn lose_owner(&mut self, death: &Death, effects: &mut Vec<Effect>) {
        let borrowed: Vec<ObjectId> = self.borrowed_from.get(&death.process).into_iter().flatten().copied().collect();
        for object in borrowed {
            let Some(entry) = self.objects.get_mut(&object) else { continue };
            let primary = entry.owner == Some(death.process);
            let others = entry.other_grants.iter().filter(|(from, _)| *from == death.process);
            let count =
                others.map(|(_, count)| i64::from(*count)).sum::<i64>() + i64::from(entry.grants * u32::from(primary));
            let asked = primary && entry.asked && entry.value.is_none();
            let home = death.process.node;
            effects.push(Effect::Node(ToNode::Claim { object, home, count }));
            if asked {
                effects.push(Effect::Node(ToNode::Resolve { object, home }));
            }
        }
    }

    /// The node tells the value of an object: of a dead owner's that we borrow, or of a task that we inherited.
    pub(super) fn resolved_by_node(
        &mut self,
        object: ObjectId,
        value: Value,
        home: NodeId,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let inherited = |state: &TaskState| matches!(state, TaskState::Inherited | TaskState::Asked);
        let task: TaskId = object.task();
        let ours = self.tasks.get(&task).is_some_and(|entry| inherited(&entry.state));
        if self.is_item(object) {
            // Asked for before the stream was ours: it may have come since, and what failed is tried again.
            if value.failure().is_none()
                && let Some(index) = object.item_index()
            {
                self.receive_from_node(&value.nested, home, effects);
                self.item_arrived(task, index, value, now, effects);
            }
            return;
        }
        self.receive_from_node(&value.nested, home, effects);
        self.set_value(object, value, now, effects);
        if !ours {
            return;
        }
        let Some(entry) = self.tasks.get(&task) else { return };
        let spec = Arc::clone(&entry.spec);
        let done = spec.results().all(|result| self.objects.get(&result).is_none_or(|e| e.value.is_some()));
        if done {
            let asked = self.tasks.get(&task).is_some_and(|entry| entry.state == TaskState::Asked);
            let call = matches!(spec.kind, TaskKind::Call { .. });
            if asked && call {
                self.call_answered(task);
            }
            self.questions.retain(|_, question| question.task != task);
            self.complete_inherited(task, effects);
            if asked && call {
                self.flush_calls_of(task, now, effects);
            }
        }
    }
}
