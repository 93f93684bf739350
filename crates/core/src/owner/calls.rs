//! Actors as their callers see them: the calls of each task in order, sent when the actor is there, asked about when it is
//! lost.

use std::sync::Arc;

use super::call_queue::First;
use super::{ActorEntry, ActorPlace, Effect, Owner};
use crate::failure::{Death, DeathCause, Failure};
use crate::id::{ActorId, NodeId, ObjectId, ProcessId, TaskId};
use crate::message::ToNode;
use crate::record::Record;
use crate::spec::{TaskKind, TaskSpec};
use crate::time::Tick;
use crate::value::Value;

use super::tasks::TaskState;

/// Calls that one caller has with one actor at a time; later ones wait with the caller, in order. An actor that runs
/// more than these at once gets as many as it runs.
pub const CALLS_IN_FLIGHT_MAX: usize = 1_024;

/// What a caller knows of an actor, for explanations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActorView {
    /// The node has not said where it is.
    Unknown,
    /// It lives in this process.
    At(ProcessId),
    /// It is being started again.
    Restarting,
    /// It is gone, and why.
    Dead(String),
}

/// The way in which a call leaves the queue.
enum Next {
    /// It ended while it waited.
    Forget,
    /// With this result.
    Settle(Value),
    /// To its actor.
    Send(ProcessId),
}

/// What follows when an actor's process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActorEnd {
    /// Nothing: it is dead.
    Dies,
    /// Another life.
    Restarts,
    /// Another life on another node; its process ended with nothing running in it.
    Moves,
}

impl Owner {
    /// The node that manages an actor: that of its owner.
    pub(super) fn manager(&self, actor: ActorId) -> NodeId {
        let owner = self.objects.get(&actor.object()).and_then(|entry| entry.owner);
        owner.map_or(self.me.node, |owner| owner.node)
    }

    fn actor(&mut self, actor: ActorId, effects: &mut Vec<Effect>) -> &mut ActorEntry {
        if !self.actors.contains(&actor) {
            let manager = self.manager(actor);
            effects.push(Effect::Node(ToNode::WatchActor { actor, manager }));
        }
        self.actors.get_or_insert_with(actor, || ActorEntry {
            place: ActorPlace::Unknown,
            queue: Default::default(),
            sent: Default::default(),
            sent_max: CALLS_IN_FLIGHT_MAX,
            asking: 0,
            next_sequence: 0,
            numbered: (None, 0),
            creation: None,
            references: Vec::new(),
            lent_to: None,
            killed: false,
        })
    }

    pub(super) fn next_sequence(&mut self, actor: ActorId, effects: &mut Vec<Effect>) -> u64 {
        let entry = self.actor(actor, effects);
        entry.next_sequence += 1;
        entry.next_sequence - 1
    }

    /// Calls of this actor that have not ended.
    pub fn pending_calls(&self, actor: &ActorId) -> usize {
        self.actors.get(actor).map_or(0, |entry| entry.queue.len() + entry.sent.len() + entry.asking as usize)
    }

    /// What is known of an actor.
    pub fn actor_view(&self, actor: &ActorId) -> ActorView {
        match self.actors.get(actor).map(|entry| &entry.place) {
            None | Some(ActorPlace::Unknown) => ActorView::Unknown,
            Some(ActorPlace::At { process }) => ActorView::At(*process),
            Some(ActorPlace::Restarting) => ActorView::Restarting,
            Some(ActorPlace::Dead { reason }) => ActorView::Dead(reason.clone()),
        }
    }

    pub(super) fn queue_call(&mut self, task: TaskId, missing: u32, now: Tick, effects: &mut Vec<Effect>) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let TaskKind::Call { actor, .. } = entry.spec.kind else { return };
        if missing == 0 {
            entry.state = TaskState::CallQueued;
        }
        let (parent, sequence) = place_of(&entry.spec);
        self.hold_actor(actor);
        self.actor(actor, effects).queue.insert(parent, sequence, task);
        self.flush_calls(actor, now, effects);
    }

    /// A call keeps its actor alive until it has ended.
    pub(super) fn hold_actor(&mut self, actor: ActorId) {
        if let Some(object) = self.objects.get_mut(&actor.object()) {
            object.holds += 1;
        }
    }

    /// A call of a dead caller is called again: now in our name and at the end of our calls.
    pub(super) fn adopt_call(&mut self, task: TaskId, actor: ActorId, effects: &mut Vec<Effect>) {
        let (caller, sequence) = (self.me, self.next_sequence(actor, effects));
        if let Some(entry) = self.tasks.get_mut(&task) {
            Arc::make_mut(&mut entry.spec).kind = TaskKind::Call { actor, caller, sequence };
        }
    }

    /// A repeated parent creates an actor that exists already: from now on it is ours to release.
    pub(super) fn adopt_actor(&mut self, spec: &Arc<TaskSpec>, effects: &mut Vec<Effect>) {
        let mut references = spec.nested.clone();
        self.name_counters(&mut references);
        for mut value in self.resolved_arguments(spec) {
            self.name_counters(&mut value.nested);
            references.extend(value.nested);
        }
        if is_detached(spec) {
            self.hold_actor(ActorId(spec.id));
        }
        let entry = self.actor(ActorId(spec.id), effects);
        entry.creation = Some(Arc::clone(spec));
        entry.references = references;
    }

    /// The constructor will not run: calls that wait for it fail, and its arguments are not needed.
    pub(super) fn actor_unmade(&mut self, spec: &TaskSpec, failure: &Value, now: Tick, effects: &mut Vec<Effect>) {
        let actor = ActorId(spec.id);
        if self.actors.get(&actor).is_some_and(|entry| entry.creation.is_some()) {
            return;
        }
        self.release_arguments(spec, effects);
        if let Some(entry) = self.actors.get_mut(&actor) {
            let why = failure.failure().map_or_else(String::new, |failure| format!(": {failure}"));
            entry.place = ActorPlace::Dead { reason: format!("its constructor did not run{why}") };
            self.flush_calls(actor, now, effects);
        }
    }

    pub(super) fn call_ready(&mut self, task: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        self.flush_calls_of(task, now, effects);
    }

    pub(super) fn flush_calls_of(&mut self, task: TaskId, now: Tick, effects: &mut Vec<Effect>) {
        // The task may have ended by now: then flush every actor that has something to send.
        match self.tasks.get(&task).map(|entry| &entry.spec.kind) {
            Some(TaskKind::Call { actor, .. }) => {
                let actor = *actor;
                self.flush_calls(actor, now, effects);
            }
            _ => {
                for actor in self.actors.sorted_keys_where(|_, a| !a.queue.is_empty() && a.asking == 0) {
                    self.flush_calls(actor, now, effects);
                }
            }
        }
    }

    /// Sends what can be sent: the calls of each calling task in order, where the first that still waits for a dependency
    /// holds the rest.
    pub(super) fn flush_calls(&mut self, actor: ActorId, now: Tick, effects: &mut Vec<Effect>) {
        while let Some((First { task, parent, .. }, next)) = self.next_call(actor) {
            let Some(entry) = self.actors.get_mut(&actor) else { return };
            entry.queue.remove(parent, task);
            match next {
                Next::Forget => {}
                Next::Settle(value) => self.settle(task, value, now, effects),
                Next::Send(process) => {
                    entry.sent.push_back(task);
                    let number = entry.next_number(process);
                    if let Some(entry) = self.tasks.get_mut(&task) {
                        entry.state = TaskState::CallSent { process };
                    }
                    self.send_call(task, number, process, effects);
                }
            }
        }
    }

    /// The call that leaves the queue next, and how: the oldest of those that can.
    fn next_call(&self, actor: ActorId) -> Option<(First, Next)> {
        let entry = self.actors.get(&actor)?;
        let place = match entry.place {
            // The node that manages the actor may hear of its death later than we do.
            ActorPlace::At { process } if !self.is_departed(process) => Some(process),
            _ => None,
        };
        let place = place.filter(|_| entry.asking == 0 && entry.sent.len() < entry.sent_max);
        let next = |task: TaskId| {
            if let ActorPlace::Dead { reason } = &entry.place {
                return Some(Next::Settle(Value::failed(Failure::ActorDied { actor, reason: reason.clone() })));
            }
            match self.tasks.get(&task).map(|task| &task.state) {
                None => Some(Next::Forget),
                Some(TaskState::CallQueued) => {
                    self.failed_dependency(task).map(Next::Settle).or_else(|| place.map(Next::Send))
                }
                Some(_) => None,
            }
        };
        let firsts = entry.queue.firsts().filter_map(|first| Some((first, next(first.task)?)));
        firsts.min_by_key(|(first, _)| first.sequence)
    }

    /// A call has been answered: it is off the books of its actor, which is returned.
    pub(super) fn call_replied(&mut self, task: TaskId) -> Option<ActorId> {
        let TaskKind::Call { actor, .. } = self.tasks.get(&task)?.spec.kind else { return None };
        if let Some(entry) = self.actors.get_mut(&actor) {
            if entry.sent.front() == Some(&task) {
                entry.sent.pop_front();
            } else if let Some(at) = entry.sent.iter().position(|sent| *sent == task) {
                entry.sent.remove(at);
            }
        }
        Some(actor)
    }

    pub(super) fn call_ended(&mut self, actor: ActorId, call: &super::TaskEntry, effects: &mut Vec<Effect>) {
        // Only a call that ends before it was sent is still in the queue, which can be long.
        let unsent = matches!(call.state, TaskState::Waiting { .. } | TaskState::CallQueued);
        if unsent && let Some(entry) = self.actors.get_mut(&actor) {
            entry.queue.remove(call.spec.parent, call.spec.id);
        }
        self.release(actor.object(), effects);
    }

    pub(super) fn call_answered(&mut self, task: TaskId) {
        let Some(entry) = self.tasks.get(&task) else { return };
        let TaskKind::Call { actor, .. } = entry.spec.kind else { return };
        if let Some(entry) = self.actors.get_mut(&actor) {
            entry.asking = entry.asking.saturating_sub(1);
        }
    }

    /// A lost call goes back to its place among those of its calling task.
    pub(super) fn requeue_call(&mut self, actor: ActorId, task: TaskId) {
        let Some((parent, sequence)) = self.tasks.get(&task).map(|entry| place_of(&entry.spec)) else { return };
        if let Some(entry) = self.actors.get_mut(&actor) {
            entry.queue.insert(parent, sequence, task);
        }
    }

    /// Ends an actor. What it has keeps its place until the node tells how it ended; what comes later waits for that.
    pub(super) fn kill_actor(&mut self, actor: ActorId, restart: bool, now: Tick, effects: &mut Vec<Effect>) {
        let manager = self.manager(actor);
        effects.push(Effect::Node(ToNode::KillActor { actor, manager, restart }));
        // An actor that this process never called is asked about after the kill, so the answer is of its end.
        let entry = self.actor(actor, effects);
        // The news of its place may be on the way; it is no place for calls any more.
        entry.killed |= !restart;
        if matches!(entry.place, ActorPlace::At { .. }) {
            entry.place = ActorPlace::Restarting;
        }
        let unsent = self.tasks.get(&actor.0).is_some_and(|entry| matches!(entry.state, TaskState::Waiting { .. }));
        if unsent && !restart {
            let reason = "it was killed before it was made".into();
            self.settle(actor.0, Value::failed(Failure::ActorDied { actor, reason }), now, effects);
        }
    }

    /// The constructor's dependencies are there: the node places the actor.
    pub(super) fn create_actor(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        let Some(entry) = self.tasks.get(&task) else { return };
        let spec = Arc::clone(&entry.spec);
        let mut named = Arc::clone(&spec);
        let mut resolved = self.resolved_arguments(&spec);
        if !spec.nested.is_empty() {
            self.name_counters(&mut Arc::make_mut(&mut named).nested);
        }
        resolved.iter_mut().for_each(|value| self.name_counters(&mut value.nested));
        let inside = resolved.iter().flat_map(|value| value.nested.iter().copied());
        let references = named.nested.iter().copied().chain(inside).collect();
        let actor = ActorId(task);
        effects.push(Effect::Node(ToNode::CreateActor { spec: named, resolved }));
        if is_detached(&spec) {
            // Until it is dead: it lives, and its constructor may run again, also when nobody has a handle.
            self.hold_actor(actor);
        }
        let entry = self.actor(actor, effects);
        entry.creation = Some(spec);
        entry.references = references;
        if entry.next_sequence > 0 || !entry.queue.is_empty() {
            // Calls came before the constructor's arguments: the node did not know the actor when we first asked.
            entry.place = ActorPlace::Unknown;
            effects.push(Effect::Node(ToNode::WatchActor { actor, manager: self.me.node }));
        }
    }

    pub(super) fn actor_created(&mut self, actor: ActorId, value: Value, now: Tick, effects: &mut Vec<Effect>) {
        if value.failure().is_some() && self.tasks.contains(&actor.0) {
            // Its process may have died before it could record anything.
            effects.push(Effect::Record(Record::Settled { task: actor.0, value: value.clone() }));
        }
        self.complete(actor.0, vec![value], now, effects);
    }

    pub(super) fn actor_at(
        &mut self,
        actor: ActorId,
        process: ProcessId,
        concurrency_max: u32,
        effects: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.actors.get_mut(&actor) else { return };
        if entry.killed || matches!(entry.place, ActorPlace::Dead { .. }) {
            return;
        }
        entry.place = ActorPlace::At { process };
        entry.sent_max = CALLS_IN_FLIGHT_MAX.max(concurrency_max as usize);
        let first = entry.lent_to.replace(process) != Some(process);
        if first && !entry.references.is_empty() {
            // The node handed the constructor over; the references in it are lent by their holder, which is us.
            let references = entry.references.clone();
            self.lend_named(&references, process, effects);
        }
        self.flush_calls(actor, Tick::default(), effects);
    }

    /// The actor's process is gone. Calls that it had are asked about; they may have ended before it did.
    pub(super) fn actor_lost(
        &mut self,
        actor: ActorId,
        reason: String,
        end: ActorEnd,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let restarting = end != ActorEnd::Dies;
        let Some(entry) = self.actors.get_mut(&actor) else { return };
        let unconstructed = entry.creation.is_none() && self.tasks.contains(&actor.0);
        if unconstructed {
            // We asked before we created it.
            entry.place = ActorPlace::Unknown;
            return;
        }
        let process = match entry.place {
            ActorPlace::At { process } => process,
            _ => ProcessId::of_node(self.me.node),
        };
        let ends = !restarting && !matches!(entry.place, ActorPlace::Dead { .. });
        let detached = entry.creation.as_deref().is_some_and(is_detached);
        entry.place = if restarting { ActorPlace::Restarting } else { ActorPlace::Dead { reason: reason.clone() } };
        let sent = std::mem::take(&mut entry.sent);
        entry.asking += sent.len() as u32;
        // The node's words mostly begin with the process, and here they stand behind it.
        let how = match reason.strip_prefix(&format!("{process} ")) {
            Some(how) => how.to_owned(),
            None => format!("ended: {reason}"),
        };
        let cause = DeathCause::Left(how);
        let death =
            Arc::new(Death { process, pid: 0, cause, stderr_tail: String::new(), memory_peak_bytes: 0, culprit: None });
        for task in sent {
            // What it moved away from had not begun: this was no failure.
            self.ask_about(task, &death, end != ActorEnd::Moves, effects);
        }
        self.flush_calls(actor, now, effects);
        if ends && detached {
            self.release(actor.object(), effects);
        }
    }

    /// The last handle of an actor of ours is gone: it may end, and its constructor's arguments with it.
    pub(super) fn actor_object_freed(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let actor = ActorId(object.task());
        if object.is_put() || !self.actors.contains(&actor) {
            return;
        }
        let Some(entry) = self.actors.remove(&actor) else { return };
        if let Some(spec) = entry.creation {
            self.release_arguments(&spec, effects);
            effects.push(Effect::Node(ToNode::ReleaseActor { actor }));
        }
    }
}

impl ActorEntry {
    /// The number of the next message with a call to this process: it tells if one before is missing.
    fn next_number(&mut self, process: ProcessId) -> u64 {
        let (to, sent) = self.numbered;
        let number = if to == Some(process) { sent + 1 } else { 1 };
        self.numbered = (Some(process), number);
        number
    }
}

/// The caller, and the number of the call among those of this process.
fn place_of(spec: &TaskSpec) -> (TaskId, u64) {
    match spec.kind {
        TaskKind::Call { sequence, .. } => (spec.parent, sequence),
        TaskKind::Plain | TaskKind::Create(_) => (spec.parent, 0),
    }
}

fn is_detached(spec: &TaskSpec) -> bool {
    matches!(&spec.kind, TaskKind::Create(options) if options.detached)
}
