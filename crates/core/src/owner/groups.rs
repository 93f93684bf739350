//! Placement groups that somebody waits for: each is an object of this process that has a value when the group is placed.
//!
//! Such an object is a put whose value is known from the start and given late, so it can be waited for, passed on and
//! freed like any other. It is recorded when it has its value, or the failure of a group that will never be.

use super::{Effect, Owner};
use crate::failure::Failure;
use crate::id::{GroupId, NodeId, ObjectId};
use crate::message::ToNode;
use crate::record::Record;
use crate::time::Tick;
use crate::value::Value;

/// An object that waits for a group.
#[derive(Debug)]
pub(super) struct Awaiting {
    object: ObjectId,
    digest: u64,
    value: Value,
}

impl Owner {
    pub(super) fn await_group(
        &mut self,
        group: GroupId,
        object: ObjectId,
        digest: u64,
        value: Value,
        effects: &mut Vec<Effect>,
    ) {
        self.own(object, effects).local += 1;
        let awaiting = self.groups.entry(group).or_default();
        if awaiting.is_empty() {
            effects.push(Effect::Node(ToNode::WatchGroup { group }));
        }
        awaiting.push(Awaiting { object, digest, value });
    }

    /// The node says how a group that was asked about has ended up.
    pub(super) fn group_placed(
        &mut self,
        group: GroupId,
        result: Result<Vec<NodeId>, Box<Failure>>,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        for Awaiting { object, digest, value } in self.groups.remove(&group).unwrap_or_default() {
            let value = match &result {
                Ok(_) => value,
                Err(failure) => Value::failed((**failure).clone()),
            };
            effects.push(Effect::Record(Record::Put { object, digest, value: value.clone() }));
            self.set_value(object, value, now, effects);
        }
    }

    /// The group that this object waits for.
    pub fn awaited_group(&self, object: &ObjectId) -> Option<GroupId> {
        let waits = |awaiting: &Vec<Awaiting>| awaiting.iter().any(|one| one.object == *object);
        self.groups.iter().find(|(_, awaiting)| waits(awaiting)).map(|(group, _)| *group)
    }
}
