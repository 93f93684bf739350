//! Objects: values, handles, holds, loans.
//!
//! The rule of the loan: a reference in a message names who counts it for the receiver, and the sender has told that
//! one before the message leaves: its own table when it owns the object, the owner by [`Peer::Lent`] when it has a grant
//! of a live owner, else the node by [`ToNode::ClaimFor`], under the node's name. The receiver gives back to the name as
//! many grants as it got when its last use ends. Rings are first in, first out, and the sender's own grant is with the
//! same counter and goes back later, so a count is above zero until the receiver's is in: an object is never freed under
//! a reference that is on its way, and each loan is counted once.
//!
//! When the named owner dies while the message is on its way, the receiver claims the grant from the node itself, as it
//! claims all that it holds of the dead owner; the node waits for that (DEATH-2 in `node/deaths.rs`).
//!
//! A sender may be killed between the news of a loan and the message. The node finds out, since the receiver tells it of
//! every reference under its name ([`ToNode::ClaimArrived`]). An owner does not: as a stated bound, it counts such a loan
//! until the borrower ends; a message more per loan would cost more than what is kept.

use std::sync::Arc;

use super::{Effect, ObjectEntry, Others, Owner};
use crate::failure::Failure;
use crate::id::{NodeId, ObjectId, ProcessId};
use crate::message::{Peer, ToNode};
use crate::record::Record;
use crate::spec::TaskSpec;
use crate::time::Tick;
use crate::value::{Body, RefSpec, Value};

impl Owner {
    pub(super) fn put(
        &mut self,
        object: ObjectId,
        digest: u64,
        value: Value,
        recorded: bool,
        effects: &mut Vec<Effect>,
    ) {
        self.hold_all(&value.nested);
        let entry = self.own(object, effects);
        entry.local += 1;
        if entry.value.is_none() {
            entry.value = Some(value.clone());
        }
        if !recorded {
            effects.push(Effect::Record(Record::Put { object, digest, value }));
        }
    }

    pub(super) fn add_handle(&mut self, spec: RefSpec) {
        self.entry_of(spec).local += 1;
    }

    pub(super) fn drop_handle(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.local = entry.local.saturating_sub(1);
            self.free_if_unused(object, effects);
        }
    }

    /// The entry of a reference, made (as borrowed) when this process sees it for the first time.
    pub(super) fn entry_of(&mut self, spec: RefSpec) -> &mut ObjectEntry {
        let owner = (spec.owner != self.me).then_some(spec.owner);
        if let Some(owner) = owner
            && !self.objects.contains(&spec.object)
        {
            self.borrowed_from.entry(owner).or_default().insert(spec.object);
        }
        self.objects.get_or_insert_with(spec.object, || ObjectEntry { owner, ..ObjectEntry::default() })
    }

    /// References that this process itself goes on to use (arguments of a task, contents of a value).
    pub(super) fn hold_all(&mut self, refs: &[RefSpec]) {
        for spec in refs {
            self.entry_of(*spec).holds += 1;
        }
    }

    /// References that arrived in a message: granted to this process, and held until [`Owner::release_all`].
    pub(super) fn receive(&mut self, refs: &[RefSpec], from: ProcessId, effects: &mut Vec<Effect>) {
        let me = self.me;
        for spec in refs {
            if spec.owner == me && self.is_not_ours(&spec.object) {
                self.borrow_from_node(spec.object, me.node, effects);
                continue;
            }
            let home = spec.owner.node;
            if spec.owner.is_node() {
                effects.push(Effect::Node(ToNode::ClaimArrived { object: spec.object, home, lender: from }));
            }
            let entry = self.entry_of(*spec);
            entry.holds += 1;
            // An object that we adopted may still travel under the name of its dead owner: it is ours all the same.
            let Some(owner) = entry.owner else {
                if spec.owner.is_node() {
                    effects.push(Effect::Node(ToNode::Claim { object: spec.object, home, count: -1 }));
                } else if spec.owner == me && from == me {
                    // An actor's call to itself: it was lent for the way only.
                    self.change_loan(spec.object, me, -1, effects);
                }
                continue;
            };
            if spec.owner == owner {
                entry.grants += 1;
            } else if spec.owner == me {
                continue;
            } else {
                match entry.other_grants.iter_mut().find(|(from, _)| *from == spec.owner) {
                    Some((_, count)) => *count += 1,
                    None => entry.other_grants.push((spec.owner, 1)),
                }
                self.borrowed_from.entry(spec.owner).or_default().insert(spec.object);
            }
            // What comes under the node's name was claimed by its sender.
            if !spec.owner.is_node() && self.is_departed(spec.owner) {
                effects.push(Effect::Node(ToNode::Claim { object: spec.object, home, count: 1 }));
            }
        }
    }

    pub(super) fn receive_values(&mut self, values: &[Value], from: ProcessId, effects: &mut Vec<Effect>) {
        for value in values {
            self.receive(&value.nested, from, effects);
        }
    }

    /// References inside a value that the node told. No owner has granted them to us, and a live one may have freed what
    /// it had lent to a process that died; but the node keeps what is inside the values that it keeps, so it is asked.
    pub(super) fn receive_from_node(&mut self, refs: &[RefSpec], home: NodeId, effects: &mut Vec<Effect>) {
        for spec in refs {
            // Nobody has claimed for us what bears the node's name here.
            let named = !spec.owner.is_node();
            if named && (self.is_departed(spec.owner) || spec.owner == self.me) {
                self.receive(std::slice::from_ref(spec), ProcessId::of_node(home), effects);
            } else {
                // The node that tells may know that another one keeps it.
                let home = if named { home } else { spec.owner.node };
                self.borrow_from_node(spec.object, home, effects);
            }
        }
    }

    fn borrow_from_node(&mut self, object: ObjectId, home: NodeId, effects: &mut Vec<Effect>) {
        let node = ProcessId::of_node(home);
        let entry =
            self.objects.get_or_insert_with(object, || ObjectEntry { owner: Some(node), ..ObjectEntry::default() });
        entry.holds += 1;
        match entry.owner {
            None => return,
            Some(owner) if owner == node => entry.grants += 1,
            Some(_) => match entry.other_grants.iter_mut().find(|(from, _)| *from == node) {
                Some((_, count)) => *count += 1,
                None => entry.other_grants.push((node, 1)),
            },
        }
        // The death of that node is the end of the object for us.
        self.borrowed_from.entry(node).or_default().insert(object);
        effects.push(Effect::Node(ToNode::Claim { object, home, count: 1 }));
    }

    /// Whether an object under our name is none of ours any more: freed, and perhaps borrowed back from the node.
    fn is_not_ours(&self, object: &ObjectId) -> bool {
        self.objects.get(object).is_none_or(|entry| entry.owner.is_some_and(ProcessId::is_node))
    }

    /// This process becomes the owner of an object that it may have borrowed so far: grants of it go back.
    pub(super) fn own(&mut self, object: ObjectId, effects: &mut Vec<Effect>) -> &mut ObjectEntry {
        let borrowed = self.objects.get_mut(&object).and_then(|entry| {
            let owner = entry.owner.take()?;
            let mut grants = std::mem::take(&mut entry.other_grants);
            grants.insert(0, (owner, std::mem::take(&mut entry.grants)));
            Some(grants)
        });
        if let Some(grants) = borrowed {
            self.return_grants(object, &grants, effects);
        }
        self.objects.get_or_insert_with(object, ObjectEntry::default)
    }

    fn return_grants(&mut self, object: ObjectId, grants: &[(ProcessId, u32)], effects: &mut Vec<Effect>) {
        for &(owner, count) in grants {
            if let Some(set) = self.borrowed_from.get_mut(&owner) {
                set.remove(&object);
                if set.is_empty() {
                    self.borrowed_from.remove(&owner);
                }
            }
            if count == 0 {
                continue;
            }
            if self.is_departed(owner) {
                let home = owner.node;
                effects.push(Effect::Node(ToNode::Claim { object, home, count: -i64::from(count) }));
            } else {
                effects.push(Effect::Send { to: owner, message: Peer::GiveBack { object, count } });
            }
        }
    }

    pub(super) fn release_all(&mut self, refs: &[RefSpec], effects: &mut Vec<Effect>) {
        for spec in refs {
            self.release(spec.object, effects);
        }
    }

    pub(super) fn release(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.holds = entry.holds.saturating_sub(1);
            self.free_if_unused(object, effects);
        }
    }

    /// Who counts this reference for the next holder: the one with whom this process has a grant itself.
    fn counter(&self, spec: RefSpec) -> ProcessId {
        let Some(entry) = self.objects.get(&spec.object) else { return spec.owner };
        let Some(owner) = entry.owner else { return self.me };
        let granted = |from: ProcessId| {
            (owner == from && entry.grants > 0) || entry.other_grants.iter().any(|(other, _)| *other == from)
        };
        if granted(spec.owner) && !self.is_departed(spec.owner) {
            return spec.owner;
        }
        let grantors = std::iter::once(owner).chain(entry.other_grants.iter().map(|(from, _)| *from));
        let mut grantors = grantors.filter(|from| granted(*from));
        match grantors.clone().find(|from| !self.is_departed(*from)) {
            Some(live) => live,
            // A handle that nobody granted, such as a named actor's, keeps its name while its owner lives.
            None => match grantors.next() {
                Some(departed) => ProcessId::of_node(departed.node),
                None if self.is_departed(spec.owner) => ProcessId::of_node(spec.owner.node),
                None => spec.owner,
            },
        }
    }

    /// Writes into each reference who is to count it.
    pub(super) fn name_counters(&self, refs: &mut [RefSpec]) {
        for spec in refs {
            spec.owner = self.counter(*spec);
        }
    }

    /// Makes `to` a borrower of each reference, in the name that it bears, before the message that carries them leaves.
    pub(super) fn lend_named(&mut self, refs: &[RefSpec], to: ProcessId, effects: &mut Vec<Effect>) {
        for spec in refs {
            if spec.owner == self.me {
                if let Some(entry) = self.objects.get_mut(&spec.object) {
                    *entry.others().lent.entry(to).or_insert(0) += 1;
                    self.lent_to.entry(to).or_default().insert(spec.object);
                }
            } else if spec.owner.is_node() {
                let home = spec.owner.node;
                effects.push(Effect::Node(ToNode::ClaimFor { object: spec.object, home, holder: to }));
            } else if spec.owner != to && !self.is_departed(spec.owner) {
                let message = Peer::Lent { object: spec.object, borrower: to, count: 1 };
                effects.push(Effect::Send { to: spec.owner, message });
            }
        }
    }

    /// Lends what is inside a value that is about to leave.
    pub(super) fn lend_inside(&mut self, value: &mut Value, to: ProcessId, effects: &mut Vec<Effect>) {
        if !value.nested.is_empty() {
            self.name_counters(&mut value.nested);
            self.lend_named(&value.nested, to, effects);
        }
    }

    /// Lends what is inside the arguments of a task that is about to leave.
    pub(super) fn lend_arguments(
        &mut self,
        spec: &mut Arc<TaskSpec>,
        resolved: &mut [Value],
        to: ProcessId,
        effects: &mut Vec<Effect>,
    ) {
        if !spec.nested.is_empty() {
            if spec.nested.iter().any(|r| self.counter(*r) != r.owner) {
                self.name_counters(&mut Arc::make_mut(spec).nested);
            }
            self.lend_named(&spec.nested, to, effects);
        }
        for value in resolved {
            self.lend_inside(value, to, effects);
        }
    }

    /// Results of a task that ran here leave for its owner.
    pub(super) fn send_results(&mut self, to: ProcessId, mut message: Peer, effects: &mut Vec<Effect>) {
        match &mut message {
            Peer::Reply { values, .. } => values.iter_mut().for_each(|value| self.lend_inside(value, to, effects)),
            Peer::Item { value, .. } => self.lend_inside(value, to, effects),
            _ => {}
        }
        effects.push(Effect::Send { to, message });
    }

    pub(super) fn lent_by_other(
        &mut self,
        object: ObjectId,
        borrower: ProcessId,
        count: u32,
        effects: &mut Vec<Effect>,
    ) {
        if !self.is_departed(borrower) {
            self.expect_item(object, effects);
        }
        self.change_loan(object, borrower, i64::from(count), effects);
    }

    pub(super) fn given_back(&mut self, object: ObjectId, peer: ProcessId, count: u32, effects: &mut Vec<Effect>) {
        self.change_loan(object, peer, -i64::from(count), effects);
    }

    fn change_loan(&mut self, object: ObjectId, borrower: ProcessId, by: i64, effects: &mut Vec<Effect>) {
        if self.is_departed(borrower) {
            return;
        }
        let Some(entry) = self.objects.get_mut(&object) else { return };
        let lent = &mut entry.others().lent;
        let count = lent.entry(borrower).or_insert(0);
        *count += by;
        if *count == 0 {
            lent.remove(&borrower);
            if let Some(set) = self.lent_to.get_mut(&borrower) {
                set.remove(&object);
            }
        } else {
            self.lent_to.entry(borrower).or_default().insert(object);
        }
        self.free_if_unused(object, effects);
    }

    /// Frees an object that nobody here or elsewhere can ask for (OWN-2). An object without a value stays until its
    /// task has ended: the task runs for its side effects too.
    pub(super) fn free_if_unused(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        // Freeing a value can free what it contains, to any depth: a work list instead of recursion.
        let mut work = vec![object];
        while let Some(object) = work.pop() {
            let Some(entry) = self.objects.get(&object) else { continue };
            let pending = entry.owner.is_none() && entry.value.is_none();
            if entry.is_used() {
                continue;
            }
            if pending && !self.abandon_reduce(object, effects, &mut work) {
                self.unused_in_stream(object, &mut work);
                continue;
            }
            let Some(entry) = self.objects.remove(&object) else { continue };
            self.forget(object, &entry, effects);
            self.close_stream(object, &mut work);
            for nested in entry.value.iter().flat_map(|value| &value.nested) {
                if let Some(inner) = self.objects.get_mut(&nested.object) {
                    inner.holds = inner.holds.saturating_sub(1);
                    work.push(nested.object);
                }
            }
        }
    }

    fn forget(&mut self, object: ObjectId, entry: &ObjectEntry, effects: &mut Vec<Effect>) {
        let Some(owner) = entry.owner else {
            if entry.unmade || entry.value.is_none() {
                return;
            }
            self.reduces.forget(object);
            effects.push(Effect::Record(Record::Freed { object }));
            if let Some(Value { body: Body::Stored(at), .. }) = &entry.value {
                Self::free_stored(*at, effects);
            }
            self.actor_object_freed(object, effects);
            return;
        };
        self.return_grants(object, &[(owner, entry.grants)], effects);
        if !entry.other_grants.is_empty() {
            self.return_grants(object, &entry.other_grants, effects);
        }
    }

    pub(super) fn want(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(entry) = self.objects.get_mut(&object) else { return };
        if entry.value.is_some() {
            effects.push(Effect::Ready(object));
            return;
        }
        entry.watched = true;
        self.ask_owner(object, effects);
    }

    /// Asks the owner of a borrowed object for its value, once.
    pub(super) fn ask_owner(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(entry) = self.objects.get_mut(&object) else { return };
        let Some(owner) = entry.owner else { return };
        if entry.asked || entry.value.is_some() {
            return;
        }
        entry.asked = true;
        if self.is_departed(owner) {
            effects.push(Effect::Node(ToNode::Resolve { object, home: owner.node }));
        } else {
            effects.push(Effect::Send { to: owner, message: Peer::Resolve { object } });
        }
    }

    /// A peer asks for the value of an object of ours.
    pub(super) fn resolve_for(&mut self, peer: ProcessId, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(entry) = self.objects.get_mut(&object) else {
            let reason = "its owner has freed it".to_owned();
            let value = Value::failed(Failure::ObjectLost { object, reason });
            effects.push(Effect::Send { to: peer, message: Peer::Resolved { object, value } });
            return;
        };
        match entry.value.clone() {
            Some(value) => self.send_value(peer, object, value, effects),
            None => {
                entry.others().resolvers.push(peer);
                self.resolver_reads_early(object, peer, effects);
            }
        }
    }

    pub(super) fn send_value(
        &mut self,
        peer: ProcessId,
        object: ObjectId,
        mut value: Value,
        effects: &mut Vec<Effect>,
    ) {
        self.lend_inside(&mut value, peer, effects);
        effects.push(Effect::Send { to: peer, message: Peer::Resolved { object, value } });
    }

    /// The owner of a borrowed object told its value.
    pub(super) fn resolved(
        &mut self,
        peer: ProcessId,
        object: ObjectId,
        value: Value,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        if matches!(value.failure(), Some(Failure::ObjectLost { .. })) {
            // Freed by its owner; the node may keep it for the sake of a value that contains it.
            effects.push(Effect::Node(ToNode::Resolve { object, home: peer.node }));
            return;
        }
        self.receive(&value.nested, peer, effects);
        self.set_value(object, value, now, effects);
    }

    /// Gives an object its value and wakes all that wait for it. A second value is dropped (OWN-1).
    pub(super) fn set_value(&mut self, object: ObjectId, value: Value, now: Tick, effects: &mut Vec<Effect>) {
        let usable = self.objects.get(&object).is_some_and(|entry| entry.value.is_none());
        if !usable {
            self.release_all(&value.nested, effects);
            return;
        }
        let Some(entry) = self.objects.get_mut(&object) else { return };
        let (dependents, resolvers, reduces) = match &mut entry.others {
            Some(others) => {
                let Others { dependents, resolvers, reduces, .. } = &mut **others;
                (std::mem::take(dependents), std::mem::take(resolvers), std::mem::take(reduces))
            }
            None => (Vec::new(), Vec::new(), Vec::new()),
        };
        if std::mem::take(&mut entry.watched) {
            effects.push(Effect::Ready(object));
        }
        if resolvers.is_empty() {
            entry.value = Some(value);
        } else {
            entry.value = Some(value.clone());
            for peer in resolvers {
                self.send_value(peer, object, value.clone(), effects);
            }
        }
        for task in dependents {
            self.dependency_ready(task, now, effects);
        }
        for target in reduces {
            self.reduce_input_ready(target, object, now, effects);
        }
        if !self.streams.is_empty() {
            self.end_stream(object, now, effects);
        }
        self.free_if_unused(object, effects);
    }
}
