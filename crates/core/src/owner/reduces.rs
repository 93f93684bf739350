//! Reduces that this process has asked for: each is an object of it, a put whose value comes when it is made.
//!
//! Small inputs are here as soon as they have values, and the shell combines them. Large ones lie in stores: the node is
//! told where, and leads the reduce (`node::reducing`). Inputs of one type and shape are of one length, so they are all small
//! or all large. What failed is not taken; when too few are left, the reduce fails and names them.

use std::collections::{BTreeMap, BTreeSet};

use super::previews::Growing;
use super::{Effect, Owner};
use crate::failure::Failure;
use crate::flow::Op;
use crate::id::{NodeId, ObjectId};
use crate::message::{INPUTS_PER_MESSAGE, ReduceInput, ToNode};
use crate::record::Record;
use crate::reduce::Options;
use crate::shared::Shared;
use crate::time::Tick;
use crate::value::{Body, Location, RefSpec, Value};

/// What a user wants.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) digest: u64,
    pub(super) inputs: Vec<RefSpec>,
    pub(super) op: Op,
    pub(super) count: u32,
    pub(super) options: Options,
}

/// Who combines the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// No input has a value yet.
    Unknown,
    /// The shell, when enough are there.
    Here,
    /// The shell has them.
    Combining,
    /// The node.
    Node,
}

#[derive(Debug)]
struct Reduction {
    wanted: Wanted,
    indices: BTreeMap<ObjectId, u32>,
    /// Inputs with a value, in the order in which they got it.
    ready: Vec<u32>,
    /// Those of them that were told while they grew, and are not complete.
    early: BTreeSet<u32>,
    /// Inputs that have none and never will.
    failed: Vec<u32>,
    way: Way,
    /// Where the result is being made.
    growing: Option<Growing>,
    /// Nodes to which it is to be sent as soon as it grows.
    readers: BTreeSet<NodeId>,
}

impl Reduction {
    fn new(wanted: Wanted) -> Self {
        Self {
            indices: wanted.inputs.iter().map(|spec| spec.object).zip(0..).collect(),
            wanted,
            ready: Vec::new(),
            early: BTreeSet::new(),
            failed: Vec::new(),
            way: Way::Unknown,
            growing: None,
            readers: BTreeSet::new(),
        }
    }
}

/// All reduces of this process.
#[derive(Debug, Default)]
pub(super) struct Reduces {
    running: BTreeMap<ObjectId, Reduction>,
    /// Which inputs a result is made of, until it is freed.
    used: BTreeMap<ObjectId, Vec<u32>>,
}

impl Reduces {
    /// A result has a place. Says whether it is awaited.
    pub(super) fn placed(&mut self, target: ObjectId, growing: Growing) -> bool {
        let known = self.running.get_mut(&target);
        known.map(|reduction| reduction.growing = Some(growing)).is_some()
    }

    /// Where a result is being made.
    pub(super) fn growing(&self, target: ObjectId) -> Option<Growing> {
        self.running.get(&target)?.growing
    }

    /// Somebody will read a result there. Says whether it is awaited.
    pub(super) fn note_readers(&mut self, target: ObjectId, nodes: &[NodeId]) -> bool {
        let known = self.running.get_mut(&target);
        known.map(|reduction| reduction.readers.extend(nodes)).is_some()
    }

    /// Where a result is to be sent.
    pub(super) fn readers(&self, target: ObjectId) -> impl Iterator<Item = NodeId> {
        self.running.get(&target).into_iter().flat_map(|reduction| reduction.readers.iter().copied())
    }

    pub(super) fn forget(&mut self, target: ObjectId) {
        if !self.used.is_empty() {
            self.used.remove(&target);
        }
    }
}

impl Owner {
    pub(super) fn reduce(&mut self, target: ObjectId, wanted: Wanted, now: Tick, effects: &mut Vec<Effect>) {
        self.own(target, effects).local += 1;
        self.hold_all(&wanted.inputs);
        let mut known = Vec::new();
        for (index, spec) in (0..).zip(&wanted.inputs) {
            match self.objects.get_mut(&spec.object) {
                Some(entry) if entry.value.is_none() => {
                    entry.others().reduces.push(target);
                    self.ask_owner(spec.object, effects);
                    if self.reduces.growing(spec.object).is_some() {
                        known.push(index);
                    }
                }
                _ => known.push(index),
            }
        }
        let reduction = Reduction::new(wanted);
        self.reduces.running.insert(target, reduction);
        self.reduce_hears(target, &known, now, effects);
    }

    /// An input that a reduce waits for has a value.
    pub(super) fn reduce_input_ready(
        &mut self,
        target: ObjectId,
        object: ObjectId,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let index = self.reduces.running.get(&target).and_then(|reduction| reduction.indices.get(&object));
        if let Some(index) = index.copied() {
            self.reduce_hears(target, &[index], now, effects);
        }
    }

    /// An object that lay with a dead node lies elsewhere, or nowhere.
    pub(super) fn reduces_hear(&mut self, object: ObjectId, now: Tick, effects: &mut Vec<Effect>) {
        let concerned = |reduction: &Reduction| {
            let index = reduction.indices.get(&object)?;
            (reduction.way == Way::Node && reduction.ready.contains(index)).then_some(*index)
        };
        let concerned: Vec<(ObjectId, u32)> =
            self.reduces.running.iter().filter_map(|(target, one)| Some((*target, concerned(one)?))).collect();
        for (target, index) in concerned {
            if let Some(reduction) = self.reduces.running.get_mut(&target) {
                reduction.ready.retain(|known| *known != index);
            }
            self.reduce_hears(target, &[index], now, effects);
        }
    }

    /// These inputs have values, or places where they grow.
    fn reduce_hears(&mut self, target: ObjectId, news: &[u32], now: Tick, effects: &mut Vec<Effect>) {
        let Some(reduction) = self.reduces.running.get(&target) else { return };
        let value = |index: &u32| {
            let object = reduction.wanted.inputs.get(*index as usize)?.object;
            Some(match &self.objects.get(&object)?.value {
                Some(value) => (*index, object, value.body.clone(), false),
                // It is taken while it grows.
                None => (*index, object, Body::Stored(self.reduces.growing(object)?.at), true),
            })
        };
        let news: Vec<(u32, ObjectId, Body, bool)> = news.iter().filter_map(value).collect();
        let mut stored = Vec::new();
        let mut reason = None;
        let Some(reduction) = self.reduces.running.get_mut(&target) else { return };
        let first = reduction.way;
        for (index, object, body, is_early) in news {
            let way = match &body {
                Body::Failed(failure) => {
                    if reduction.early.remove(&index) {
                        reduction.ready.retain(|known| *known != index);
                    }
                    reduction.failed.push(index);
                    reason = Some(format!("input {index} ({object}) failed: {failure}"));
                    continue;
                }
                Body::Inline(_) => Way::Here,
                Body::Stored(at) => {
                    stored.push(ReduceInput { index, object, at: *at, is_growing: is_early });
                    Way::Node
                }
            };
            let was_early = if is_early { !reduction.early.insert(index) } else { reduction.early.remove(&index) };
            if !was_early {
                reduction.ready.push(index);
            }
            match reduction.way {
                Way::Unknown => reduction.way = way,
                known if known != way && !(known == Way::Combining && way == Way::Here) => {
                    let other = reduction.ready[0];
                    let other_object = reduction.wanted.inputs[other as usize].object;
                    let text = format!(
                        "inputs are not of one type and shape: input {other} ({other_object}) and input {index} \
                         ({object}) have different lengths"
                    );
                    self.fail_reduce(target, text, now, effects);
                    return;
                }
                _ => {}
            }
        }
        let (total, count) = (reduction.wanted.inputs.len(), reduction.wanted.count as usize);
        if let Some(reason) = reason.filter(|_| reduction.failed.len() > total - count) {
            self.fail_reduce(target, reason, now, effects);
            return;
        }
        match reduction.way {
            Way::Here if reduction.ready.len() >= count => self.combine_here(target, effects),
            Way::Node if !stored.is_empty() => {
                let places: Vec<(ObjectId, Location)> = stored.iter().map(|input| (input.object, input.at)).collect();
                self.tell_inputs(target, first, stored, effects);
                for (object, at) in places {
                    self.seek_late_copy(object, at, effects);
                }
            }
            _ => {}
        }
    }

    /// Enough small inputs are here. They are taken in the order of the list, so that equal inputs give equal bits.
    fn combine_here(&mut self, target: ObjectId, effects: &mut Vec<Effect>) {
        let Some(reduction) = self.reduces.running.get_mut(&target) else { return };
        reduction.way = Way::Combining;
        reduction.ready.truncate(reduction.wanted.count as usize);
        reduction.ready.sort_unstable();
        let (op, wanted) = (reduction.wanted.op, &reduction.wanted.inputs);
        let bytes = |index: &u32| {
            let object = wanted.get(*index as usize)?.object;
            match &self.objects.get(&object)?.value.as_ref()?.body {
                Body::Inline(bytes) => Some((*index, object, bytes.clone())),
                Body::Stored(_) | Body::Failed(_) => None,
            }
        };
        let inputs = reduction.ready.iter().filter_map(bytes).collect();
        effects.push(Effect::Combine { target, op, inputs });
    }

    /// Tells the node of inputs that have a place.
    fn tell_inputs(&mut self, target: ObjectId, before: Way, inputs: Vec<ReduceInput>, effects: &mut Vec<Effect>) {
        let Some(Reduction { wanted, .. }) = self.reduces.running.get(&target) else { return };
        if before == Way::Unknown {
            let (total, op, count, options) = (wanted.inputs.len() as u32, wanted.op, wanted.count, wanted.options);
            effects.push(Effect::Node(ToNode::Reduce { target, op, total, count, options }));
        }
        let last = inputs.len().div_ceil(INPUTS_PER_MESSAGE).saturating_sub(1);
        for (at, part) in inputs.chunks(INPUTS_PER_MESSAGE).enumerate() {
            let inputs = part.to_vec();
            effects.push(Effect::Node(ToNode::ReduceInputs { target, inputs, more: at < last }));
        }
    }

    fn fail_reduce(&mut self, target: ObjectId, reason: String, now: Tick, effects: &mut Vec<Effect>) {
        self.finish_reduce(target, Value::failed(Failure::Reduce { object: target, reason }), None, now, effects);
    }

    /// The shell has combined what it was given.
    pub(super) fn combined(
        &mut self,
        target: ObjectId,
        result: Result<Shared, String>,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let Some(reduction) = self.reduces.running.get(&target) else { return };
        let used = reduction.ready[..reduction.ready.len().min(reduction.wanted.count as usize)].to_vec();
        match result {
            Ok(bytes) => self.finish_reduce(target, Value::inline(bytes), Some(used), now, effects),
            Err(reason) => self.fail_reduce(target, reason, now, effects),
        }
    }

    /// The node has reduced what it was told of.
    pub(super) fn reduced(
        &mut self,
        target: ObjectId,
        result: Result<Location, String>,
        used: Vec<u32>,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        // The node has done with it, whatever it says.
        let known = self.reduces.running.get_mut(&target).map(|reduction| reduction.way = Way::Combining);
        match (known, result) {
            (Some(()), Ok(at)) => {
                let value = Value { body: Body::Stored(at), nested: Vec::new() };
                self.finish_reduce(target, value, Some(used), now, effects);
            }
            (Some(()), Err(reason)) => self.fail_reduce(target, reason, now, effects),
            (None, Ok(at)) => Self::free_stored(at, effects),
            (None, Err(_)) => {}
        }
    }

    fn finish_reduce(
        &mut self,
        target: ObjectId,
        value: Value,
        used: Option<Vec<u32>>,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let Some(reduction) = self.reduces.running.remove(&target) else { return };
        if reduction.way == Way::Node {
            effects.push(Effect::Node(ToNode::EndReduce { target }));
        }
        if let Some(used) = used {
            self.reduces.used.insert(target, used);
        }
        let digest = reduction.wanted.digest;
        effects.push(Effect::Record(Record::Put { object: target, digest, value: value.clone() }));
        self.set_value(target, value, now, effects);
        self.stop_waiting(target, &reduction);
        self.release_all(&reduction.wanted.inputs, effects);
    }

    fn stop_waiting(&mut self, target: ObjectId, reduction: &Reduction) {
        for spec in &reduction.wanted.inputs {
            if let Some(others) = self.objects.get_mut(&spec.object).and_then(|entry| entry.others.as_mut()) {
                others.reduces.retain(|waiting| *waiting != target);
            }
        }
    }

    /// Nobody can ask for this result any more. Says whether it is one; its inputs go to the work list.
    pub(super) fn abandon_reduce(
        &mut self,
        target: ObjectId,
        effects: &mut Vec<Effect>,
        work: &mut Vec<ObjectId>,
    ) -> bool {
        let Some(reduction) = self.reduces.running.remove(&target) else { return false };
        if reduction.way == Way::Node {
            effects.push(Effect::Node(ToNode::EndReduce { target }));
        }
        self.stop_waiting(target, &reduction);
        for spec in &reduction.wanted.inputs {
            if let Some(entry) = self.objects.get_mut(&spec.object) {
                entry.holds = entry.holds.saturating_sub(1);
                work.push(spec.object);
            }
        }
        true
    }

    /// Says whether this is the result of a reduce that was under way.
    pub(super) fn cancel_reduce(&mut self, target: ObjectId, now: Tick, effects: &mut Vec<Effect>) -> bool {
        let known = self.reduces.running.contains_key(&target);
        if known {
            let value = Value::failed(Failure::Cancelled { task: target.task() });
            self.finish_reduce(target, value, None, now, effects);
        }
        known
    }

    /// Which inputs the result of a reduce is made of, in the order of the list; none for any other object.
    pub fn used_inputs(&self, target: &ObjectId) -> Option<&[u32]> {
        self.reduces.used.get(target).map(Vec::as_slice)
    }

    /// What a reduce waits for, in words.
    pub fn explain_reduce(&self, target: &ObjectId) -> Option<String> {
        let Reduction { wanted, ready, way, .. } = self.reduces.running.get(target)?;
        let (count, total) = (wanted.count as usize, wanted.inputs.len());
        if ready.len() >= count {
            let who = if *way == Way::Node { "nodes combine" } else { "this process combines" };
            return Some(format!("{target} is the reduce of {count} objects, which {who} now"));
        }
        let missing = wanted.inputs.iter().find(|spec| self.value(&spec.object).is_none());
        let missing = missing.map_or_else(String::new, |spec| format!(", the first of them {}", spec.object));
        Some(format!(
            "{target} is the reduce of {count} of {total} objects and waits for {} more{missing}",
            count - ready.len()
        ))
    }

    /// Reduces that have no result yet.
    pub fn reduces_pending(&self) -> usize {
        self.reduces.running.len()
    }
}
