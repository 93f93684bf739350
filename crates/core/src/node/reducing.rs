//! One reduce, as the node of its caller leads it: which inputs are taken, who combines them, and what a death changes.
//!
//! Inputs arrive as places of objects. Those that are known together and lie on one node are one *slot*; each slot is a
//! stage on that node which takes what its children have combined, adds its own inputs and passes it on. The tree over slots
//! is planned when the first inputs are there (`crate::reduce`), and slots are filled in its order, so a stage runs as soon
//! as its inputs are there. The last stage is here, takes what is left, and adds the inputs that lie here.
//!
//! When a slot is lost, those that it had passed on to begin again with what is left, under the next epoch; those that take
//! nothing from it, directly or not, are kept with all that they have, and are taken from anew. In a fixed order all begins again.
//!
//! RED-1: in the result that is released, each used input is combined once: a stage takes only from stages that were never told
//! to end, and each of these is taken by one stage that was not.

mod stages;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::copies::key;
use crate::flow::{Op, StageId, StageSpec};
use crate::id::NodeId;
use crate::message::ReduceInput;
use crate::reduce::{Network, Options, Order, Shape, choose, parents};
use crate::time::Tick;
use crate::value::Location;

/// Inputs of one node that one stage combines at a time; more are several slots.
pub const SLOT_INPUTS_MAX: usize = 32;
/// From how many others one stage takes, whatever a plan asks for.
pub const DEGREE_MAX: u32 = 32;
/// Streams that break while no node is known to be dead are tried again so often.
pub const TRIES_MAX: u32 = 8;
/// The pause before the first of these tries; it doubles with each.
pub const TRY_AFTER_US: u64 = 50_000;

/// A stage that takes from others may have failed because of what happened before it: so long the word of that is waited for.
pub const DOUBT_US: u64 = 1_000_000;

/// The number of the last stage, when no other is free.
const ROOT: u32 = u32::MAX;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Deed {
    /// This node is to do this part.
    Run { node: NodeId, spec: StageSpec },
    /// Nobody wants that part any more.
    End { node: NodeId, id: StageId },
    /// The result is there, made of these inputs.
    Done { at: Location, used: Vec<u32> },
    /// There will be none.
    Failed { reason: String },
}

/// What a caller wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Names the operation.
    pub(super) id: u128,
    pub(super) op: Op,
    /// How many inputs there are, and how many of them are taken.
    pub(super) total: u32,
    pub(super) count: u32,
    pub(super) options: Options,
}

/// What a stage takes from another.
#[derive(Clone, Debug)]
struct Stream {
    node: NodeId,
    from: StageId,
    who: String,
}

/// A slot that is filled.
#[derive(Debug)]
struct Slot {
    node: NodeId,
    /// Its own inputs.
    inputs: Vec<u32>,
    stage: StageId,
    /// The slot that takes from it.
    taker: Option<usize>,
}

/// The tree, as far as it is filled.
#[derive(Debug)]
struct Plan {
    bytes: u64,
    /// Where each slot passes on to; empty before the first is filled that was not kept.
    parents: Vec<Option<u32>>,
    /// Filled slots, first those that were kept.
    slots: Vec<Slot>,
    /// Filled slots that no filled one takes from.
    heads: Vec<u32>,
    /// Inputs that are in a slot, or kept for the end.
    taken: BTreeSet<u32>,
    /// Inputs that lie here.
    local: Vec<u32>,
    running: Vec<(NodeId, StageId)>,
    last: Option<StageId>,
    /// When a slot was filled last.
    filled_at: Option<Tick>,
    /// Links are idle while the result is made: see [`Reduce::is_sent_early`].
    leaves_room: bool,
}

/// The machine.
#[derive(Debug)]
pub(super) struct Reduce {
    wanted: Wanted,
    /// Where the result is made.
    root: NodeId,
    network: Network,
    epoch: u32,
    inputs: BTreeMap<u32, ReduceInput>,
    /// The order in which they came.
    arrivals: Vec<u32>,
    plan: Option<Plan>,
    tries: u32,
    /// Nothing begins before.
    again_at: Option<Tick>,
    /// A failure, and when it is certain that no stream broke before it.
    doubt: Option<(Tick, String)>,
    /// An input that was taken while it grew is somewhere else now.
    is_stale: bool,
}

impl Reduce {
    pub(super) fn new(wanted: Wanted, root: NodeId, network: Network) -> Self {
        Self {
            wanted,
            root,
            network,
            epoch: 0,
            inputs: BTreeMap::new(),
            arrivals: Vec::new(),
            plan: None,
            tries: 0,
            again_at: None,
            doubt: None,
            is_stale: false,
        }
    }

    /// An input has arrived, or one that was lost is somewhere else.
    pub(super) fn arrived(&mut self, input: ReduceInput) {
        let index = input.index;
        if index >= self.wanted.total {
            return;
        }
        let taken = self.plan.as_ref().is_some_and(|plan| plan.taken.contains(&index));
        match self.inputs.get_mut(&index) {
            // What grew there is complete.
            Some(known) if key(known.at) == key(input.at) => *known = input,
            Some(known) if taken && !known.is_growing => {}
            Some(known) => {
                *known = input;
                // What was taken came to nothing.
                self.is_stale |= taken;
            }
            None => {
                self.inputs.insert(index, input);
                self.arrivals.push(index);
            }
        }
    }

    /// Whether who reads the result should get it while it is made. When all inputs came together, every node on the way has its
    /// link full with them, and a copy beside them slows down what it waits for. When the last one came late, the others have
    /// been passed on before, and most links are idle.
    pub(super) fn is_sent_early(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.leaves_room)
    }

    /// Whether this stage makes the result.
    pub(super) fn is_last(&self, id: StageId) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.last == Some(id))
    }

    /// When it goes on by itself.
    pub(super) fn deadline(&self) -> Option<Tick> {
        self.again_at.into_iter().chain(self.doubt.as_ref().map(|(at, _)| *at)).min()
    }

    /// Does what can be done with what is there.
    pub(super) fn advance(&mut self, now: Tick, deeds: &mut Vec<Deed>) {
        if self.is_stale {
            self.end_all(deeds);
        }
        if let Some((_, reason)) = self.doubt.take_if(|(at, _)| *at <= now) {
            self.end_all(deeds);
            deeds.push(Deed::Failed { reason });
            return;
        }
        if self.doubt.is_some() {
            return;
        }
        if self.again_at.is_some_and(|at| at > now) || self.plan.as_ref().is_some_and(|plan| plan.last.is_some()) {
            return;
        }
        self.again_at = None;
        let (chosen, complete) = self.chosen();
        if let Some(reason) = self.mismatch(&chosen) {
            self.end_all(deeds);
            deeds.push(Deed::Failed { reason });
            return;
        }
        let Some(first) = chosen.first().and_then(|index| self.inputs.get(index)) else { return };
        let mut plan = self.plan.take().unwrap_or_else(|| Plan::new(first.at.len));
        let fresh: Vec<u32> = chosen.iter().copied().filter(|index| !plan.taken.contains(index)).collect();
        let batches = self.batches(&mut plan, &fresh, complete);
        if plan.parents.is_empty() && !batches.is_empty() {
            let outstanding = self.wanted.count as usize - chosen.len();
            let here = plan.local.len().div_ceil(SLOT_INPUTS_MAX);
            let slots = batches.len() + if complete { 0 } else { outstanding + here };
            plan.grow(&parents(self.shape(slots, plan.bytes), slots));
        }
        let count = batches.len();
        for (at, (node, inputs)) in batches.into_iter().enumerate() {
            let is_last = complete && at + 1 == count && plan.local.is_empty();
            self.fill(&mut plan, node, &inputs, is_last, deeds);
        }
        if count > 0 {
            plan.filled(count, now, self.network.transfer_us(plan.bytes));
        }
        if complete {
            self.finish(&mut plan, deeds);
        }
        self.plan = Some(plan);
    }

    /// The inputs that are taken as far as they are known, in the order of combination, and whether these are all.
    fn chosen(&self) -> (Vec<u32>, bool) {
        let count = self.wanted.count as usize;
        let complete = self.arrivals.len() >= count;
        let mut chosen: Vec<u32> = self.arrivals.iter().copied().take(count).collect();
        if self.wanted.options.order == Order::Fixed {
            chosen.sort_unstable();
            if !complete {
                // Which ones are taken, or which is next, is not known beyond the first that is missing.
                let next = if self.wanted.count == self.wanted.total { chosen.len() } else { 0 };
                let known = (0..next).take_while(|at| chosen[*at] as usize == *at).count();
                chosen.truncate(known);
            }
        }
        (chosen, complete)
    }

    /// Inputs of different lengths cannot be of one type and shape.
    fn mismatch(&self, chosen: &[u32]) -> Option<String> {
        let (first, rest) = chosen.split_first()?;
        let one = self.inputs.get(first)?;
        let (other, input) = rest
            .iter()
            .filter_map(|index| Some((index, self.inputs.get(index)?)))
            .find(|(_, input)| input.at.len != one.at.len)?;
        Some(format!(
            "inputs are not of one type and shape: input {first} ({}) has {} bytes and input {other} ({}) has {}",
            one.object, one.at.len, input.object, input.at.len
        ))
    }

    /// Which inputs become slots now. Those that lie here are kept for the end.
    fn batches(&self, plan: &mut Plan, fresh: &[u32], complete: bool) -> Vec<(NodeId, Vec<u32>)> {
        let place = |index: &u32| self.inputs.get(index).map_or(self.root, |input| input.at.node);
        let mut batches: Vec<(NodeId, Vec<u32>)> = Vec::new();
        let in_order = self.wanted.options.order == Order::Fixed;
        for index in fresh {
            let node = place(index);
            if node == self.root && !in_order {
                plan.local.push(*index);
                continue;
            }
            let open = batches.iter().rposition(|(at, inputs)| *at == node && inputs.len() < SLOT_INPUTS_MAX);
            match open.filter(|at| !in_order || at + 1 == batches.len()) {
                Some(at) => batches[at].1.push(*index),
                None => batches.push((node, vec![*index])),
            }
        }
        if in_order && batches.last().is_some_and(|(node, _)| *node == self.root) {
            // More may follow on other nodes; else the last stage adds them.
            let (_, inputs) = batches.pop().unwrap_or((self.root, Vec::new()));
            if complete {
                plan.local = inputs;
            }
        } else if complete && !in_order {
            while plan.local.len() > SLOT_INPUTS_MAX {
                let rest = plan.local.split_off(SLOT_INPUTS_MAX);
                batches.push((self.root, std::mem::replace(&mut plan.local, rest)));
            }
        }
        plan.taken.extend(batches.iter().flat_map(|(_, inputs)| inputs));
        plan.taken.extend(plan.local.iter());
        batches
    }

    fn shape(&self, slots: usize, bytes: u64) -> Shape {
        if self.wanted.options.order == Order::Fixed {
            return Shape::Chain;
        }
        match choose(self.wanted.options.choice, slots, bytes, self.network) {
            Shape::Star if slots > DEGREE_MAX as usize => Shape::Tree(DEGREE_MAX),
            Shape::Tree(degree) => Shape::Tree(degree.min(DEGREE_MAX)),
            shape => shape,
        }
    }

    fn fill(&self, plan: &mut Plan, node: NodeId, inputs: &[u32], is_last: bool, deeds: &mut Vec<Deed>) {
        let slot = plan.slots.len() as u32;
        let parent = |slot: u32| plan.parents.get(slot as usize).copied().flatten();
        let (children, mut heads): (Vec<u32>, Vec<u32>) =
            plan.heads.iter().copied().partition(|head| parent(*head) == Some(slot));
        heads.push(slot);
        // Nothing is left to divide after it.
        let divides = is_last && heads.len() == 1;
        let streams: Vec<Stream> = children.iter().map(|child| self.stream(plan, *child)).collect();
        let spec = self.slot_stage(plan.bytes, slot, inputs, &streams, divides);
        plan.heads = heads;
        for child in children {
            plan.slots[child as usize].taker = Some(slot as usize);
        }
        plan.slots.push(Slot { node, inputs: inputs.to_vec(), stage: spec.id, taker: None });
        Self::run(plan, node, spec, deeds);
    }

    /// What a filled slot sends.
    fn stream(&self, plan: &Plan, slot: u32) -> Stream {
        let Slot { node, inputs, stage, .. } = &plan.slots[slot as usize];
        Stream { node: *node, from: *stage, who: self.named(inputs) }
    }

    /// Inputs in words for errors.
    fn named(&self, inputs: &[u32]) -> String {
        let name = |index: &u32| match self.inputs.get(index) {
            Some(input) => format!("input {index} ({})", input.object),
            None => format!("input {index}"),
        };
        match inputs {
            [] => String::new(),
            [one] => name(one),
            [first, rest @ ..] => format!("{} and {} more", name(first), rest.len()),
        }
    }

    fn run(plan: &mut Plan, node: NodeId, spec: StageSpec, deeds: &mut Vec<Deed>) {
        plan.running.push((node, spec.id));
        deeds.push(Deed::Run { node, spec });
    }

    /// Every input has its place: what is left is taken here. Slots of the plan that nobody filled are on the way from the
    /// last one upwards; those that somebody sends to are stages without inputs, and the uppermost of them is the last one.
    fn finish(&self, plan: &mut Plan, deeds: &mut Vec<Deed>) {
        let mut groups: BTreeMap<u32, Vec<Stream>> = BTreeMap::new();
        for head in std::mem::take(&mut plan.heads) {
            let to = plan.parents.get(head as usize).copied().flatten().unwrap_or(ROOT);
            groups.entry(to).or_default().push(self.stream(plan, head));
        }
        let (last, mut streams) = groups.pop_last().unwrap_or((ROOT, Vec::new()));
        for (slot, children) in groups {
            let spec = self.slot_stage(plan.bytes, slot, &[], &children, false);
            streams.push(Stream { node: self.root, from: spec.id, who: String::new() });
            Self::run(plan, self.root, spec, deeds);
        }
        let spec = self.last_stage(plan.bytes, last, &plan.local, &streams);
        plan.last = Some(spec.id);
        Self::run(plan, self.root, spec, deeds);
    }

    /// A stage has ended well. Of all but the last, nothing follows.
    pub(super) fn stage_done(&mut self, id: StageId, at: &[Location], deeds: &mut Vec<Deed>) {
        let Some(plan) = self.plan.as_ref().filter(|plan| plan.last == Some(id)) else { return };
        let mut used: Vec<u32> = plan.taken.iter().copied().collect();
        used.sort_unstable();
        let result = match at.first() {
            Some(at) => Deed::Done { at: *at, used },
            None => Deed::Failed { reason: "its last stage made nothing".to_owned() },
        };
        self.end_all(deeds);
        deeds.push(result);
    }

    /// A stage has failed. When a stream broke, here or before it, it begins again a little later, with those that take from it
    /// and without those that have died until then.
    pub(super) fn stage_failed(
        &mut self,
        id: StageId,
        reason: String,
        peer: Option<NodeId>,
        now: Tick,
        deeds: &mut Vec<Deed>,
    ) {
        if !self.plan.as_ref().is_some_and(|plan| plan.running.iter().any(|(_, stage)| *stage == id)) {
            return;
        }
        if peer.is_none() && self.forget_growing() {
            self.end_all(deeds);
            self.advance(now, deeds);
            return;
        }
        let Some(plan) = &self.plan else { return };
        if peer.is_none() || self.tries == TRIES_MAX {
            let own = plan.slots.iter().find(|slot| slot.stage == id).map_or(&plan.local, |slot| &slot.inputs);
            let reason = if own.is_empty() { reason } else { format!("{reason} (with {})", self.named(own)) };
            let until = if self.tries < TRIES_MAX && !plan.slots.is_empty() { DOUBT_US } else { 0 };
            self.doubt.get_or_insert((now.plus_us(until), reason));
            self.advance(now, deeds);
            return;
        }
        self.lose(|slot| slot.stage == id, deeds);
        self.again_at = Some(now.plus_us(TRY_AFTER_US << self.tries));
        self.tries += 1;
    }

    /// Inputs that were taken while they grew may be why a stage failed: they count again when their owner tells of them again.
    /// Says whether there are any.
    fn forget_growing(&mut self) -> bool {
        let Some(plan) = &self.plan else { return false };
        let before = self.inputs.len();
        self.inputs.retain(|index, input| !(input.is_growing && plan.taken.contains(index)));
        self.arrivals.retain(|index| self.inputs.contains_key(index));
        self.inputs.len() < before
    }

    /// A node is dead, and what lay there is lost unless its owner knows of another copy.
    pub(super) fn node_died(&mut self, node: NodeId, now: Tick, deeds: &mut Vec<Deed>) {
        self.inputs.retain(|_, input| input.at.node != node);
        self.arrivals.retain(|index| self.inputs.contains_key(index));
        if self.plan.as_ref().is_some_and(|plan| plan.running.iter().any(|(at, _)| *at == node)) {
            if let Some(plan) = &mut self.plan {
                plan.running.retain(|(at, _)| *at != node);
            }
            self.lose(|slot| slot.node == node, deeds);
        }
        // A try that waited may have waited for this.
        self.again_at = None;
        self.advance(now, deeds);
    }

    /// Slots are lost. Ends all that takes from them, and keeps the rest. What follows has the next epoch (RED-1).
    fn lose(&mut self, is_lost: impl Fn(&Slot) -> bool, deeds: &mut Vec<Deed>) {
        let kept = match self.plan.as_mut() {
            // What follows must come after what is kept, in the order of the list.
            Some(plan) if self.wanted.options.order == Order::Arrival => plan.without(is_lost),
            _ => None,
        };
        let Some(kept) = kept else { return self.end_all(deeds) };
        let is_kept = |id: StageId| kept.running.iter().any(|(_, stage)| *stage == id);
        let ended = self.plan.take().map_or_else(Vec::new, |plan| plan.running);
        deeds.extend(ended.into_iter().filter(|(_, id)| !is_kept(*id)).map(|(node, id)| Deed::End { node, id }));
        self.plan = Some(kept);
        self.doubt = None;
        self.epoch += 1;
    }

    /// Ends what runs; what follows has the next epoch (RED-1).
    pub(super) fn end_all(&mut self, deeds: &mut Vec<Deed>) {
        self.doubt = None;
        self.is_stale = false;
        if let Some(plan) = self.plan.take() {
            deeds.extend(plan.running.into_iter().map(|(node, id)| Deed::End { node, id }));
            self.epoch += 1;
        }
    }

    /// How a stage can be told in errors and to other nodes.
    pub(super) fn words(&self) -> String {
        let Wanted { op, count, total, .. } = self.wanted;
        format!("reduce({op:?}) of {count} of {total} objects")
    }
}

impl Plan {
    fn new(bytes: u64) -> Self {
        Self {
            bytes,
            parents: Vec::new(),
            slots: Vec::new(),
            heads: Vec::new(),
            taken: BTreeSet::new(),
            local: Vec::new(),
            running: Vec::new(),
            last: None,
            filled_at: None,
            leaves_room: false,
        }
    }

    /// Slots were filled.
    fn filled(&mut self, count: usize, now: Tick, copy_us: u64) {
        let waited_us = self.filled_at.map_or(0, |at| now.since_us(at));
        self.leaves_room = self.slots.len() <= 2 || (count == 1 && waited_us >= copy_us / 2);
        self.filled_at = Some(now);
    }

    /// Plans where slots pass on to from now on. Those that were kept go to the new ones in turn.
    fn grow(&mut self, tree: &[Option<u32>]) {
        let kept = self.slots.len() as u32;
        self.parents = vec![None; self.slots.len()];
        for (head, to) in self.heads.iter().zip((0..tree.len() as u32).cycle()) {
            self.parents[*head as usize] = Some(kept + to);
        }
        self.parents.extend(tree.iter().map(|parent| parent.map(|parent| kept + parent)));
    }

    /// What is left without these slots and all that take from them; nothing when that is none, or more than one can take from.
    fn without(&mut self, is_lost: impl Fn(&Slot) -> bool) -> Option<Plan> {
        let mut lost: Vec<bool> = self.slots.iter().map(is_lost).collect();
        // Who takes from a slot was filled after it.
        for at in 0..self.slots.len() {
            if let Some(taker) = self.slots[at].taker.filter(|_| lost[at]) {
                lost[taker] = true;
            }
        }
        let numbers: Vec<Option<usize>> = lost
            .iter()
            .scan(0, |next, lost| {
                let number = (!lost).then_some(*next);
                *next += usize::from(!lost);
                Some(number)
            })
            .collect();
        let mut plan = Plan::new(self.bytes);
        for (mut slot, _) in std::mem::take(&mut self.slots).into_iter().zip(&lost).filter(|(_, lost)| !**lost) {
            slot.taker = slot.taker.and_then(|taker| numbers[taker]);
            if slot.taker.is_none() {
                plan.heads.push(plan.slots.len() as u32);
            }
            plan.taken.extend(&slot.inputs);
            plan.running.push((slot.node, slot.stage));
            plan.slots.push(slot);
        }
        (1..=DEGREE_MAX as usize).contains(&plan.heads.len()).then_some(plan)
    }
}
