//! Streams as the node sees them: items in the ledger, for those who ask when their owner cannot.

use super::{Effect, Node, send};
use crate::id::{ObjectId, ProcessId, TaskId};
use crate::message::{FromNode, RequestId};
use crate::time::Tick;
use crate::value::Value;

impl Node {
    /// A worker recorded an item. The bytes of one that is known already are nobody's (STR-1).
    pub(super) fn yielded(&mut self, task: TaskId, attempt: u32, index: u32, value: Value, effects: &mut Vec<Effect>) {
        if let Some(at) = self.ledger.yielded(task, attempt, index, value) {
            effects.push(Effect::FreeStored(at));
            return;
        }
        // As for results: what nobody was lent is kept with the value that it is inside of.
        let orphaned = self.ledger.owner(ObjectId::result(task, 0)).is_some_and(|owner| !self.live.contains(&owner));
        if orphaned || self.adopters.contains_key(&task) {
            self.note_contents(ObjectId::result(task, 0));
        }
        if !self.resolving.is_empty() {
            self.answer_resolvers(ObjectId::item(task, index), effects);
        }
    }

    /// The owner of an item frees it. It may die before it says so to the store, so its bytes are freed here as well.
    pub(super) fn item_freed(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let keep = self.is_asked_for(object);
        self.note_freed(object);
        effects.extend(self.ledger.free_item(object, keep).map(Effect::FreeStored));
        if !self.resolving.is_empty() {
            self.answer_resolvers(object, effects);
        }
    }

    /// The value of an object, or what is in the place of an item that will never come.
    pub(super) fn told_value(&self, object: ObjectId) -> Option<Value> {
        let recorded = self.ledger.value(object).cloned().or_else(|| self.ledger.beyond(object));
        recorded.or_else(|| self.detached_value(object))
    }

    /// Whether a stream that has ended is of no use to who asks: the owner before has freed some of its items.
    pub(super) fn is_torn(&self, task: TaskId, for_owner: bool) -> bool {
        self.ledger.is_stream(task) && !self.ledger.is_whole(task, for_owner)
    }

    /// A stream had to stop because its owner died: who adopted it runs it again.
    pub(super) fn stream_stopped(&mut self, task: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        self.lose_run(task, effects);
        if let Some(parent) = self.ledger.parent(ObjectId::result(task, 0)) {
            self.review(parent, now, effects);
        }
    }

    /// Tells the items of a stream that who asks about it does not have.
    pub(super) fn tell_items(
        &self,
        to: ProcessId,
        request: RequestId,
        task: TaskId,
        from: u32,
        effects: &mut Vec<Effect>,
    ) {
        for (index, value) in self.ledger.items_from(task, from) {
            send(to, FromNode::ItemFound { request, index, value }, effects);
        }
    }
}
