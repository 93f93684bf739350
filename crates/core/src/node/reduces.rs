//! The reduces that this node leads for its processes, and the stages that it carries out for other nodes.
//!
//! A process says which inputs have a place; `reducing` decides; stages of this node go to the store's engine, those of others
//! over their links. A result belongs to its process once that has recorded it: until then it goes with the process.

use std::collections::{BTreeMap, BTreeSet};

use super::reducing::{Deed, Reduce, Wanted};
use super::{Effect, Node, send};
use crate::flow::{Op, StageId, StageSpec};
use crate::id::{NodeId, ObjectId, ProcessId};
use crate::message::{Between, FromNode, ReduceInput};
use crate::reduce::{LATENCY_US_DEFAULT, Network, Options};
use crate::time::Tick;
use crate::value::Location;

/// Reduces that one node leads at a time; one more fails with an error.
pub const REDUCES_MAX: usize = 100_000;
/// Stages that one node carries out for others at a time; one more fails with an error.
pub const STAGES_FOR_OTHERS_MAX: usize = 100_000;

/// A reduce and whose it is.
struct Led {
    process: ProcessId,
    target: ObjectId,
    reduce: Reduce,
    /// The stage that makes its result, and where that grows and may be copied from.
    growing: Option<(StageId, Location)>,
}

/// All that has to do with reduces here.
#[derive(Default)]
pub(super) struct Reduces {
    /// By the name of the operation.
    led: BTreeMap<u128, Led>,
    /// The operations that make what a process has asked for.
    names: BTreeMap<(ProcessId, ObjectId), u128>,
    begun: u64,
    /// Stages that other nodes lead.
    for_others: BTreeMap<StageId, NodeId>,
    /// Results that their process was told of and has not recorded.
    unrecorded: BTreeMap<ObjectId, (ProcessId, Location)>,
}

impl Reduces {
    /// A name for the operation that makes this object. A repeated task asks for the same object again, and what is left of the first
    /// operation on any node must not be taken for a part of the second: every one has a name of its own.
    fn name(&mut self, node: NodeId, process: ProcessId, target: ObjectId) -> u128 {
        self.begun += 1;
        let object = target.task().raw() ^ (u128::from(target.index()) << 64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let begun = u128::from(node.0) << 64 | u128::from(self.begun);
        let id = object ^ begun.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.names.insert((process, target), id);
        id
    }

    fn remove(&mut self, id: u128) -> Option<Led> {
        let led = self.led.remove(&id)?;
        self.names.remove(&(led.process, led.target));
        Some(led)
    }
}

/// What a process wants to be reduced.
pub(super) struct Asked {
    pub(super) target: ObjectId,
    pub(super) op: Op,
    pub(super) total: u32,
    pub(super) count: u32,
    pub(super) options: Options,
}

impl Node {
    /// How many reduces are led here, stages carried out for others, and results that nobody has recorded: none when all is
    /// at rest.
    pub fn reduces(&self) -> (usize, usize, usize) {
        let Reduces { led, for_others, unrecorded, .. } = &self.reduces;
        (led.len(), for_others.len(), unrecorded.len())
    }

    pub(super) fn begin_reduce(&mut self, process: ProcessId, asked: Asked, effects: &mut Vec<Effect>) {
        let Asked { target, op, total, count, options } = asked;
        if self.reduces.names.contains_key(&(process, target)) {
            return;
        }
        if self.reduces.led.len() >= REDUCES_MAX {
            let result = Err(format!("{REDUCES_MAX} reduces are under way on this node; wait for some of them"));
            send(process, FromNode::Reduced { target, result, used: Vec::new() }, effects);
            return;
        }
        let bandwidth = match self.cluster.bandwidth.get() {
            0 => Network::default().bandwidth,
            measured => measured,
        };
        let latency_us = self.message_us().unwrap_or(LATENCY_US_DEFAULT);
        let network = Network { bandwidth, latency_us };
        let id = self.reduces.name(self.config.id, process, target);
        let reduce = Reduce::new(Wanted { id, op, total, count, options }, self.config.id, network);
        self.reduces.led.insert(id, Led { process, target, reduce, growing: None });
    }

    pub(super) fn reduce_inputs(
        &mut self,
        process: ProcessId,
        (target, inputs): (ObjectId, &[ReduceInput]),
        more: bool,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let me = self.config.id;
        let Some(id) = self.reduces.names.get(&(process, target)).copied() else { return };
        let Some(led) = self.reduces.led.get_mut(&id) else { return };
        let mut gone = BTreeSet::new();
        for input in inputs {
            if input.at.node == me || self.live.has_node(input.at.node) {
                led.reduce.arrived(*input);
            } else {
                gone.insert(input.at.node);
            }
        }
        // A process that came after the death of a node does not know of it: it looks for copies, and tells more.
        for node in gone {
            self.tell_dead(process, ProcessId::of_node(node), effects);
        }
        // Before the stages, which keep nodes busy.
        for node in inputs.iter().map(|input| input.at.node).collect::<BTreeSet<_>>() {
            self.measure_delay(node, now, effects);
        }
        if !more {
            self.advance_reduce(id, now, effects);
        }
    }

    fn advance_reduce(&mut self, id: u128, now: Tick, effects: &mut Vec<Effect>) {
        let mut deeds = Vec::new();
        if let Some(led) = self.reduces.led.get_mut(&id) {
            led.reduce.advance(now, &mut deeds);
        }
        self.carry_out(id, deeds, "it begins again", effects);
    }

    /// A process no longer wants what it asked for.
    pub(super) fn end_reduce(&mut self, process: ProcessId, target: ObjectId, effects: &mut Vec<Effect>) {
        if let Some(id) = self.reduces.names.get(&(process, target)).copied() {
            self.drop_reduce(id, "nobody wants its result", effects);
        }
    }

    fn drop_reduce(&mut self, id: u128, reason: &str, effects: &mut Vec<Effect>) {
        let mut deeds = Vec::new();
        if let Some(led) = self.reduces.led.get_mut(&id) {
            led.reduce.end_all(&mut deeds);
        }
        self.carry_out(id, deeds, reason, effects);
        self.reduces.remove(id);
    }

    fn carry_out(&mut self, id: u128, deeds: Vec<Deed>, reason: &str, effects: &mut Vec<Effect>) {
        let me = self.config.id;
        self.drop_growing(id, &deeds, effects);
        for deed in deeds {
            let (result, used) = match deed {
                Deed::Run { node, spec } if node == me => {
                    effects.push(Effect::RunStage(spec));
                    continue;
                }
                Deed::Run { node, spec } => {
                    let message = Between::RunStage(Box::new(spec));
                    effects.push(Effect::Tell { node, message });
                    continue;
                }
                Deed::End { node, id } => {
                    let reason = reason.to_owned();
                    effects.push(if node == me {
                        Effect::EndStage { id, reason }
                    } else {
                        Effect::Tell { node, message: Between::EndStage { id, reason } }
                    });
                    continue;
                }
                Deed::Done { at, used } => (Ok(at), used),
                Deed::Failed { reason } => (Err(reason), Vec::new()),
            };
            let Some(Led { process, target, .. }) = self.reduces.remove(id) else { continue };
            if let Ok(at) = result {
                self.reduces.unrecorded.insert(target, (process, at));
            }
            send(process, FromNode::Reduced { target, result, used }, effects);
        }
    }

    /// When what grows comes to nothing, so do its copies.
    fn drop_growing(&mut self, id: u128, deeds: &[Deed], effects: &mut Vec<Effect>) {
        let Some(led) = self.reduces.led.get_mut(&id) else { return };
        let is_ended = |(stage, _): &mut (StageId, Location)| {
            deeds.iter().any(|deed| matches!(deed, Deed::End { id, .. } if id == stage))
                && !deeds.iter().any(|deed| matches!(deed, Deed::Done { .. }))
        };
        if let Some((_, at)) = led.growing.take_if(is_ended) {
            self.free_copies(at, effects);
        }
    }

    /// Another node wants this stage carried out here.
    pub(super) fn run_stage(&mut self, from: NodeId, spec: StageSpec, effects: &mut Vec<Effect>) {
        let refusal = if self.reduces.for_others.len() >= STAGES_FOR_OTHERS_MAX {
            Some(format!("{} carries out {STAGES_FOR_OTHERS_MAX} stages for other nodes already", self.config.id))
        } else {
            spec.check().err()
        };
        if let Some(reason) = refusal {
            let message = Between::StageFailed { id: spec.id, reason, peer: None };
            effects.push(Effect::Tell { node: from, message });
            return;
        }
        self.reduces.for_others.insert(spec.id, from);
        effects.push(Effect::RunStage(spec));
    }

    /// The node that leads a stage does not want it any more.
    pub(super) fn end_stage(&mut self, from: NodeId, id: StageId, reason: String, effects: &mut Vec<Effect>) {
        if self.reduces.for_others.get(&id) == Some(&from) {
            self.reduces.for_others.remove(&id);
            effects.push(Effect::EndStage { id, reason });
        }
    }

    /// A stage of this node has a place for what it makes.
    pub(super) fn stage_placed(&mut self, id: StageId, at: &[Location], effects: &mut Vec<Effect>) {
        let Some(led) = self.reduces.led.get_mut(&id.id).filter(|led| led.reduce.is_last(id)) else { return };
        if let [at] = at {
            led.growing = Some((id, *at));
            let to_readers = led.reduce.is_sent_early();
            send(led.process, FromNode::ReducePlaced { target: led.target, at: *at, to_readers }, effects);
        }
    }

    /// A stage of this node has ended well.
    pub(super) fn stage_done(&mut self, id: StageId, at: &[Location], effects: &mut Vec<Effect>) {
        if self.reduces.for_others.remove(&id).is_some() {
            return;
        }
        let mut deeds = Vec::new();
        if let Some(led) = self.reduces.led.get_mut(&id.id) {
            led.reduce.stage_done(id, at, &mut deeds);
        }
        let released = deeds.iter().any(|deed| matches!(deed, Deed::Done { .. }));
        self.carry_out(id.id, deeds, "the result is there", effects);
        if !released {
            // Of an epoch that is over, or of a reduce that nobody wants.
            effects.extend(at.iter().copied().map(Effect::FreeStored));
        }
    }

    /// A stage of this node has failed.
    pub(super) fn stage_failed(
        &mut self,
        id: StageId,
        reason: String,
        peer: Option<NodeId>,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        match self.reduces.for_others.remove(&id) {
            Some(node) => effects.push(Effect::Tell { node, message: Between::StageFailed { id, reason, peer } }),
            None => self.stage_of_reduce_failed(id, reason, peer, now, effects),
        }
    }

    /// A stage that this node leads has failed, here or elsewhere.
    pub(super) fn stage_of_reduce_failed(
        &mut self,
        id: StageId,
        reason: String,
        peer: Option<NodeId>,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let mut deeds = Vec::new();
        if let Some(led) = self.reduces.led.get_mut(&id.id) {
            led.reduce.stage_failed(id, reason, peer, now, &mut deeds);
        }
        self.carry_out(id.id, deeds, "another part of it failed", effects);
    }

    /// What reduces have to do with a node that is dead.
    pub(super) fn reduces_lose_node(&mut self, node: NodeId, now: Tick, effects: &mut Vec<Effect>) {
        self.cluster.delays.forget(node);
        let of_dead = |(_, leader): &(&StageId, &NodeId)| **leader == node;
        let orphaned: Vec<StageId> = self.reduces.for_others.iter().filter(of_dead).map(|(id, _)| *id).collect();
        for id in orphaned {
            self.reduces.for_others.remove(&id);
            effects.push(Effect::EndStage { id, reason: format!("{node} is gone, which wanted it") });
        }
        let led: Vec<u128> = self.reduces.led.keys().copied().collect();
        for id in led {
            let mut deeds = Vec::new();
            if let Some(led) = self.reduces.led.get_mut(&id) {
                led.reduce.node_died(node, now, &mut deeds);
            }
            self.carry_out(id, deeds, "a node with a part of it is gone", effects);
        }
    }

    /// A dead process wants no results.
    pub(super) fn forget_reduces(&mut self, is_dead: impl Fn(ProcessId) -> bool, effects: &mut Vec<Effect>) {
        let ended: Vec<u128> =
            self.reduces.led.iter().filter(|(_, led)| is_dead(led.process)).map(|(id, _)| *id).collect();
        for id in ended {
            self.drop_reduce(id, "the process that wanted its result is dead", effects);
        }
        self.reduces.unrecorded.retain(|_, (process, at)| {
            let gone = is_dead(*process);
            if gone {
                effects.push(Effect::FreeStored(*at));
            }
            !gone
        });
    }

    /// A process has recorded a result: it is kept like anything else that was put.
    pub(super) fn reduce_recorded(&mut self, object: ObjectId) {
        if !self.reduces.unrecorded.is_empty() {
            self.reduces.unrecorded.remove(&object);
        }
    }

    /// A process frees a result that it did not want any more.
    pub(super) fn unrecorded_freed(&mut self, at: Location) {
        if !self.reduces.unrecorded.is_empty() {
            self.reduces.unrecorded.retain(|_, (_, place)| *place != at);
        }
    }

    /// When a reduce goes on by itself.
    pub(super) fn reduces_deadline(&self) -> Option<Tick> {
        self.reduces.led.values().filter_map(|led| led.reduce.deadline()).min()
    }

    /// Reduces whose pause is over go on.
    pub(super) fn pass_reduces(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let due = |led: &Led| led.reduce.deadline().is_some_and(|at| at <= now);
        let due: Vec<u128> = self.reduces.led.iter().filter(|(_, led)| due(led)).map(|(id, _)| *id).collect();
        for id in due {
            self.advance_reduce(id, now, effects);
        }
    }
}
