//! Objects of dead owners: the node keeps them for those who hold them, until nobody can ask.
//!
//! An orphan is kept while somebody has claims on it, or while the task that made it may run again and adopt it. What
//! can never get a value any more (not running, and its maker is final) gets the failure `OwnerDied`. What is inside a
//! value that the node keeps is kept as long.

use std::collections::BTreeSet;

use super::{Effect, Node, send};
use crate::failure::Failure;
use crate::id::{ActorId, ObjectId, ProcessId, TaskId};
use crate::ledger::tables::TaskState;
use crate::message::{FromNode, ToNode};
use crate::time::Tick;
use crate::value::{Body, Location, RefSpec, Value};

/// So many freed results and puts of one running task are kept for a repeated run. Those beyond are forgotten, and such
/// a run makes them again.
pub const LINGERING_MAX: usize = 65_536;

impl Node {
    /// The node answers for what this process owned.
    pub(super) fn adopt_orphans(&mut self, dead: ProcessId) {
        for object in self.ledger.objects_of(dead) {
            if let Some(parent) = self.ledger.parent(object) {
                self.ledger.hold(object, true);
                self.orphans.entry(parent).or_default().insert(object);
                self.note_contents(object);
            }
        }
        // A result that the worker recorded and could not send any more: its owner claims what is inside when it has it.
        for task in self.ledger.referring_results_of(dead) {
            self.note_contents(ObjectId::result(task, 0));
        }
    }

    /// The references inside the value of a put, or inside all values of a task.
    pub(super) fn contents(&self, object: ObjectId) -> Vec<RefSpec> {
        let nested = |value: &Value| value.nested.clone();
        if object.is_put() {
            return self.ledger.put(object).map(|entry| nested(&entry.value)).unwrap_or_default();
        }
        self.ledger.values_of(object.task()).flat_map(nested).collect()
    }

    /// What is inside the value of an orphan is kept with it.
    pub(super) fn note_contents(&mut self, object: ObjectId) {
        let holder = if object.is_put() { object } else { ObjectId::result(object.task(), 0) };
        let mut work = vec![(holder, self.contents(object))];
        while let Some((holder, contents)) = work.pop() {
            for spec in contents {
                let inner = spec.object;
                if self.inside.entry(inner).or_default().insert(holder) {
                    self.hold_abroad(spec);
                    // Also when its owner lives: who had borrowed it from there may be the one that died.
                    self.ledger.hold(inner, true);
                    let holder = if inner.is_put() { inner } else { ObjectId::result(inner.task(), 0) };
                    work.push((holder, self.contents(inner)));
                }
            }
        }
    }

    /// A process frees what one of its tasks made. While that task may run again, a small value stays: the repeated run
    /// adopts it, and nobody sees a second value under its name.
    pub(super) fn linger(&mut self, object: ObjectId) {
        let Some(parent) = self.ledger.parent(object).filter(|parent| !self.ledger.is_final(*parent)) else { return };
        // A stream may have any number of items: a repeated run makes what was freed again.
        if self.ledger.is_stream(object.task()) && !object.is_put() {
            return;
        }
        let object = if object.is_put() { object } else { ObjectId::result(object.task(), 0) };
        let full = self.lingering.get(&parent).is_some_and(|made| made.len() >= LINGERING_MAX);
        if full || self.ledger.is_stored(object) {
            return;
        }
        self.lingering.entry(parent).or_default().insert(object);
        self.ledger.hold(object, true);
        self.note_contents(object);
    }

    fn end_lingering(&mut self, parent: TaskId, effects: &mut Vec<Effect>) {
        for object in self.lingering.remove(&parent).unwrap_or_default() {
            self.let_go(object, effects);
        }
    }

    fn is_lingering(&self, object: ObjectId) -> bool {
        if self.lingering.is_empty() {
            return false;
        }
        let object = if object.is_put() { object } else { ObjectId::result(object.task(), 0) };
        let parent = self.ledger.parent(object).and_then(|parent| self.lingering.get(&parent));
        parent.is_some_and(|made| made.contains(&object))
    }

    /// A value that is gone holds nothing.
    pub(super) fn review_contents(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let over: Vec<TaskId> = self.lingering.keys().copied().filter(|parent| self.ledger.is_final(*parent)).collect();
        for parent in over {
            self.end_lingering(parent, effects);
            // Those whose owner died meanwhile were kept for this alone.
            self.review(parent, now, effects);
        }
        let mut free = Vec::new();
        for (inner, holders) in &mut self.inside {
            holders.retain(|holder| self.ledger.knows(*holder));
            if holders.is_empty() {
                free.push(*inner);
            }
        }
        for inner in free {
            self.inside.remove(&inner);
            self.cluster.held.let_go(inner);
            if !self.claims.contains_key(&inner) {
                self.unclaimed(inner, now, effects);
            }
        }
    }

    /// A pass is over: what was given back before and not claimed since is nobody's.
    pub(super) fn pass_fading(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let mut over = Vec::new();
        for (object, fading) in &mut self.fading {
            fading.passes_left = fading.passes_left.saturating_sub(1);
            if fading.passes_left == 0 && fading.until <= now {
                over.push(*object);
            }
        }
        for object in over {
            self.fading.remove(&object);
            self.unclaimed(object, now, effects);
        }
    }

    pub(super) fn resolve(&mut self, process: ProcessId, object: ObjectId, now: Tick, effects: &mut Vec<Effect>) {
        if let Some(value) = self.told_value(object) {
            send(process, FromNode::Resolved { object, value, home: self.config.id }, effects);
            return;
        }
        if !self.ledger.knows(object) && !self.is_detached_actor(object) {
            let reason = self.cluster.held.reason_of_loss(object);
            let value = Value::failed(Failure::ObjectLost { object, reason });
            send(process, FromNode::Resolved { object, value, home: self.config.id }, effects);
            return;
        }
        self.ledger.hold(object, true);
        self.resolving.entry(object).or_default().insert(process);
        if let Some(parent) = self.ledger.parent(object) {
            self.review(parent, now, effects);
        }
    }

    pub(super) fn claim(&mut self, process: ProcessId, object: ObjectId, count: i64, now: Tick) {
        if !self.ledger.knows(object) {
            return;
        }
        let holders = self.claims.entry(object).or_default();
        *holders.entry(process).or_insert(0) += count;
        if holders.values().any(|count| *count > 0) {
            self.fading.remove(&object);
            self.ledger.hold(object, true);
            // Its owner may free it before the holder asks for it, and what is inside with it.
            self.note_contents(object);
        } else {
            let until = if self.is_clustered() { now.plus_us(super::cluster::GRACE_US) } else { now };
            self.fading.insert(object, super::Fading { passes_left: super::adoption::ADOPTION_PASSES, until });
        }
    }

    /// A dead process's claims are void.
    fn clear_claims(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let mut unclaimed = Vec::new();
        for (object, holders) in &mut self.claims {
            // Nodes claim what is inside of values that they keep, as long as they live.
            let own = ProcessId::of_node(self.config.id);
            holders.retain(|process, _| self.live.contains(process) || *process == own);
            if holders.values().all(|count| *count <= 0) && !self.fading.contains_key(object) {
                unclaimed.push(*object);
            }
        }
        for object in unclaimed {
            self.unclaimed(object, now, effects);
        }
    }

    fn unclaimed(&mut self, object: ObjectId, now: Tick, effects: &mut Vec<Effect>) {
        self.claims.remove(&object);
        self.let_go(object, effects);
        if let Some(parent) = self.ledger.parent(object) {
            self.review(parent, now, effects);
        }
    }

    /// An object that a live process owns and nobody else asks for is that owner's business alone.
    pub(super) fn let_go(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let owned = self.ledger.owner(object).is_some_and(|owner| self.live.contains(&owner));
        if !owned || self.is_asked_for(object) {
            return;
        }
        for at in self.ledger.hold(object, false) {
            // Else its owner's own request has freed it, or will.
            if self.freed_but_claimed.remove(&(at.node, at.entry, at.generation)) {
                effects.push(Effect::FreeStored(at));
            }
        }
    }

    /// Somebody has adopted this object.
    pub(super) fn unorphan(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if let Some(made) = self.ledger.parent(object).and_then(|parent| self.lingering.get_mut(&parent)) {
            made.remove(&object);
        }
        if let Some(parent) = self.ledger.parent(object)
            && let Some(children) = self.orphans.get_mut(&parent)
        {
            children.remove(&object);
            if children.is_empty() {
                self.orphans.remove(&parent);
            }
        }
        self.let_go(object, effects);
    }

    /// Whether somebody holds or waits for this object or, for a task, another of its results.
    pub(super) fn is_asked_for(&self, object: ObjectId) -> bool {
        if self.is_lingering(object) {
            return true;
        }
        if object.is_put() {
            return self.claims.contains_key(&object)
                || self.resolving.contains_key(&object)
                || self.inside.contains_key(&object);
        }
        let results = ObjectId::result(object.task(), 0)..=ObjectId::result(object.task(), u32::MAX);
        self.claims.range(results.clone()).next().is_some()
            || self.resolving.range(results.clone()).next().is_some()
            || self.inside.range(results).next().is_some()
    }

    /// A record replaced an entry that others hold.
    pub(super) fn hold_again(&mut self, object: ObjectId) {
        if self.is_asked_for(object) {
            self.ledger.hold(object, true);
        }
    }

    /// The new owner of an adopted object frees it while others have claims: its bytes stay.
    pub(super) fn note_freed(&mut self, object: ObjectId) {
        if self.is_asked_for(object)
            && let Some(Value { body: Body::Stored(at), .. }) = self.ledger.value(object)
        {
            self.freed_but_claimed.insert((at.node, at.entry, at.generation));
        }
    }

    /// Whether the bytes that a process frees stay, because others have claims.
    pub(super) fn keeps_freed(&mut self, process: ProcessId, request: &ToNode) -> bool {
        let unseen = !self.freed_unseen.is_empty() && self.freed_unseen.remove(&process);
        let ToNode::FreeObject { at } = request else { return false };
        let key = (at.node, at.entry, at.generation);
        if unseen {
            self.freed_but_claimed.insert(key);
        }
        self.freed_but_claimed.contains(&key)
    }

    fn free_stored(&mut self, dropped: Vec<Location>, effects: &mut Vec<Effect>) {
        for at in dropped {
            self.freed_but_claimed.remove(&(at.node, at.entry, at.generation));
            effects.push(Effect::FreeStored(at));
        }
    }

    pub(super) fn answer_resolvers(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(value) = self.told_value(object) else { return };
        for process in self.resolving.remove(&object).unwrap_or_default() {
            send(process, FromNode::Resolved { object, value: value.clone(), home: self.config.id }, effects);
        }
        self.let_go(object, effects);
    }

    /// A task has its results: who waits for them, for its lease or for its being final?
    pub(super) fn task_ended(&mut self, task: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        // No reply goes to who adopted the task, so the worker lends it nothing: what is inside is kept until it claims.
        let adopted = self.adopters.contains_key(&task);
        if adopted || self.ledger.owner(ObjectId::result(task, 0)).is_some_and(|owner| !self.live.contains(&owner)) {
            self.note_contents(ObjectId::result(task, 0));
        }
        self.end_lingering(task, effects);
        self.answer_adopter(task, effects);
        self.answer_task_resolvers(task, effects);
        if let Some(parent) = self.ledger.parent(ObjectId::result(task, 0)) {
            self.review(parent, now, effects);
        }
        self.review(task, now, effects);
        self.end_actors_of_dead(now, effects);
    }

    fn answer_task_resolvers(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        let results = ObjectId::result(task, 0)..=ObjectId::result(task, u32::MAX);
        let asked: Vec<ObjectId> = self.resolving.range(results).map(|(object, _)| *object).collect();
        for object in asked {
            self.answer_resolvers(object, effects);
        }
    }

    pub(super) fn review_all(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        self.clear_claims(now, effects);
        let parents: Vec<TaskId> = self.orphans.keys().copied().collect();
        for parent in parents {
            self.review(parent, now, effects);
        }
    }

    /// Looks at the orphans that `parent` made: drops those that nobody can ask for, fails those that cannot be made.
    pub(super) fn review(&mut self, parent: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        let mut work = vec![parent];
        while let Some(parent) = work.pop() {
            let Some(children) = self.orphans.remove(&parent) else { continue };
            let mut kept = BTreeSet::new();
            for object in children {
                if self.keep_orphan(parent, object, &mut work, now, effects) {
                    kept.insert(object);
                }
            }
            if !kept.is_empty() {
                self.orphans.insert(parent, kept);
            }
        }
    }

    fn keep_orphan(
        &mut self,
        parent: TaskId,
        object: ObjectId,
        work: &mut Vec<TaskId>,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(owner) = self.ledger.owner(object) else { return false };
        if self.live.contains(&owner) {
            // Adopted: its new owner counts again, and claims hold it beside that.
            self.let_go(object, effects);
            return false;
        }
        if self.settling.contains_key(&owner) || self.flushing.contains_key(&owner) || !self.ledger.is_final(parent) {
            return true;
        }
        if object.is_put() {
            if self.is_asked_for(object) {
                return true;
            }
            let dropped = self.ledger.drop_put(object);
            self.free_stored(dropped, effects);
            return false;
        }
        let task = object.task();
        if self.is_detached_actor(object) {
            return true;
        }
        match self.ledger.task(task).map(|entry| &entry.state) {
            None => return false,
            Some(TaskState::Running { worker, .. }) if self.live.contains(worker) => {
                if self.was_cancelled(parent) {
                    // Who would have ended it after its grace period was ended itself.
                    self.kill_worker(*worker, task, effects);
                }
                return true;
            }
            Some(TaskState::Running { .. } | TaskState::Submitted) => {
                let failure = match self.was_cancelled(parent) {
                    true => Failure::Cancelled { task },
                    false => Failure::OwnerDied { object, owner },
                };
                self.ledger.settle(task, Value::failed(failure));
                self.answer_task_resolvers(task, effects);
                // It will never run again: what it made itself is final too.
                work.push(task);
            }
            Some(TaskState::Finished { .. }) => {}
        }
        if self.is_asked_for(object) {
            return true;
        }
        let dropped = self.ledger.drop_task(task);
        self.free_stored(dropped, effects);
        self.end_orphaned_actor(task, now, effects);
        false
    }

    fn was_cancelled(&self, task: TaskId) -> bool {
        let value = self.ledger.value(ObjectId::result(task, 0));
        matches!(value.and_then(Value::failure), Some(Failure::Cancelled { .. }))
    }

    fn end_orphaned_actor(&mut self, task: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        let id = ActorId(task);
        if let Some(owner) = self.actors.all.get(&id).filter(|actor| !actor.is_detached()).map(|actor| actor.owner)
            && !self.live.contains(&owner)
        {
            self.end_actor(id, &format!("its owner {owner} died"), false, now, effects);
        }
    }

    /// Actors end with their owner, unless the task that created them may run again and adopt them.
    pub(super) fn end_actors_of_dead(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let orphaned = |owner: &ProcessId| !self.live.contains(owner) && !self.settling.contains_key(owner);
        let owners: BTreeSet<ProcessId> =
            self.actors.all.values().map(|actor| actor.owner).filter(|owner| orphaned(owner)).collect();
        let orphans: Vec<ActorId> = owners.into_iter().flat_map(|owner| self.actors.of_owner(owner)).collect();
        for id in orphans {
            let hopeless = self.actors.all.get(&id).is_some_and(|actor| self.ledger.is_final(actor.spec.parent));
            if hopeless {
                self.end_orphaned_actor(id.0, now, effects);
            }
        }
    }
}
