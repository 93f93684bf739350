//! The nodes' parts in reduces. A stage takes streams by name from stages that may not exist yet, and offers one itself until it
//! is ended. Instead of bytes it folds the numbers of what it combines, in order, so that what a result is made of can be told.
//! What it makes has its place from the start, and may be an input of another stage or copied to another node while it grows.

use std::collections::{BTreeMap, BTreeSet};

use bireme_core::flow::{Action, AreaSpec, FlowKey, Origin, Part, StageId, StageSpec};
use bireme_core::id::{NodeId, ProcessId};
use bireme_core::node;
use bireme_core::value::Location;

use super::stores::{Key, key};
use super::{Cluster, Happening};
use crate::invariants::reduces::Folded;
use crate::planted::Planted;

/// A stage takes about so long to begin, and a stream to come.
const STREAM_US: u64 = 300;
/// Whether a stream that is waited for comes is looked at so often.
const LOOK_US: u64 = 2_000;
/// With faults, one look in so many finds the connection broken.
const BREAKS_ONE_IN: u64 = 12;

/// The stages of one node.
#[derive(Debug, Default)]
pub struct Stages {
    running: BTreeMap<StageId, Stage>,
    /// Why those that are over are not there.
    over: BTreeMap<StageId, String>,
    /// Outputs that grew here and were completed: who read them then has them, whatever becomes of them.
    sealed: BTreeSet<Key>,
}

#[derive(Debug)]
struct Stage {
    spec: StageSpec,
    /// What lies in its inputs; nothing before it has begun.
    inputs: Option<Vec<u64>>,
    /// Those of them that still grew when it began.
    growing: Vec<usize>,
    /// What has come in.
    taken: Vec<Option<Folded>>,
    /// How often each stream broke.
    broken: Vec<usize>,
    /// What it offers.
    made: Option<Folded>,
    /// Where its output is made.
    output: Option<Location>,
}

/// How a look at a stream went.
enum Look {
    Whole(Folded),
    Wait,
    Lost { reason: String, peer: Option<NodeId> },
}

impl Stages {
    /// How many there are.
    pub fn left(&self) -> usize {
        self.running.len()
    }

    /// Whether something is being made there.
    pub(super) fn has_growing(&self, at: Location) -> bool {
        self.running.values().any(|stage| stage.output.is_some_and(|output| key(output) == key(at)))
    }
}

impl Stage {
    /// Streams and inputs in the order in which they are combined, when all are there.
    fn fold(&self) -> Option<Folded> {
        let inputs = self.inputs.as_ref()?;
        let mut all = Folded::default();
        if self.spec.intakes.is_empty() {
            all.parts.extend(inputs.first());
            return Some(all);
        }
        for (intake, taken) in self.spec.intakes.iter().zip(&self.taken) {
            all.append(taken.clone()?);
            if let Some(Action::Array(combine)) = intake.pieces.first().map(|piece| piece.action) {
                if let Part::Input(with) = combine.with {
                    all.parts.extend(inputs.get(with as usize));
                }
                if combine.divisor != 1 {
                    all.divided.push(combine.divisor);
                }
            }
        }
        Some(all)
    }
}

impl Cluster {
    fn stage(&mut self, node: NodeId, id: StageId) -> Option<&mut Stage> {
        self.hosts.get_mut(&node)?.stages.running.get_mut(&id)
    }

    /// A node has a part in a reduce.
    pub(super) fn run_stage(&mut self, node: NodeId, spec: StageSpec) {
        let id = spec.id;
        self.note(|| format!("{node} begins {id}"));
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let (taken, broken) = (vec![None; spec.intakes.len()], vec![0; spec.intakes.len()]);
        let stage = Stage { spec, inputs: None, growing: Vec::new(), taken, broken, made: None, output: None };
        host.stages.over.remove(&id);
        assert!(host.stages.running.insert(id, stage).is_none(), "{id} runs already on {node}");
        let after = self.random.within(1, STREAM_US);
        self.after(after, Happening::StageWentOn(node, id));
    }

    /// Nobody wants a stage any more.
    pub(super) fn end_stage(&mut self, node: NodeId, id: StageId, reason: &str) {
        self.note(|| format!("{node} ends {id}: {reason}"));
        if let Some(host) = self.hosts.get_mut(&node) {
            host.stages.running.remove(&id);
            host.stages.over.insert(id, reason.to_owned());
        }
    }

    /// A stage begins, or looks at what it waits for.
    pub(super) fn stage_went_on(&mut self, node: NodeId, id: StageId) {
        if let Err(reason) = self.find_inputs(node, id) {
            return self.stage_failed(node, id, reason, None);
        }
        let mut waits = match self.inputs_are_whole(node, id) {
            Ok(whole) => !whole,
            Err(reason) => return self.stage_failed(node, id, reason, None),
        };
        for at in 0..self.stage(node, id).map_or(0, |stage| stage.taken.len()) {
            let Some(stage) = self.stage(node, id).filter(|stage| stage.taken[at].is_none()) else { continue };
            let origin = stage.spec.intakes[at].origin.clone();
            match self.look_at_stream(node, id, at, &origin) {
                Look::Whole(folded) => {
                    if let Some(stage) = self.stage(node, id) {
                        stage.taken[at] = Some(folded);
                    }
                }
                Look::Wait => waits = true,
                Look::Lost { reason, peer } => return self.stage_failed(node, id, reason, peer),
            }
        }
        if waits {
            let after = self.random.within(1, LOOK_US);
            return self.after(after, Happening::StageWentOn(node, id));
        }
        let Some(stage) = self.stage(node, id).filter(|stage| stage.made.is_none()) else { return };
        stage.made = stage.fold();
        self.seal(node, id);
    }

    /// Whether all inputs are complete. One that grew may have come to nothing.
    fn inputs_are_whole(&self, node: NodeId, id: StageId) -> Result<bool, String> {
        let Some(host) = self.hosts.get(&node) else { return Ok(false) };
        let Some(stage) = host.stages.running.get(&id) else { return Ok(false) };
        let mut whole = true;
        for (index, at) in stage.spec.inputs.iter().enumerate().filter(|(index, _)| stage.growing.contains(index)) {
            if !host.stages.sealed.contains(&key(*at)) {
                whole = false;
                if !host.stages.has_growing(*at) {
                    return Err(format!("input {index} came to nothing while it was read"));
                }
            }
        }
        Ok(whole)
    }

    /// Inputs lie in the store of the node, or grow there; then there is room for the output.
    fn find_inputs(&mut self, node: NodeId, id: StageId) -> Result<(), String> {
        let Some(host) = self.hosts.get(&node) else { return Ok(()) };
        let Some(stage) = host.stages.running.get(&id).filter(|stage| stage.inputs.is_none()) else { return Ok(()) };
        let is_there = |at: Location| host.store.has(at) || host.stages.has_growing(at);
        let missing = stage.spec.inputs.iter().position(|at| at.node != node || !is_there(*at));
        if let Some(index) = missing {
            return Err(format!("input {index} cannot be read: {:?} is not in the store", stage.spec.inputs[index]));
        }
        let growing = (0..stage.spec.inputs.len()).filter(|index| !host.store.has(stage.spec.inputs[*index])).collect();
        let inputs = stage.spec.inputs.iter().map(|at| self.watch.content_at(*at)).collect();
        let has_output = stage.spec.areas.iter().any(|area| matches!(area, AreaSpec::Output { .. }));
        let output = has_output.then(|| self.new_place(ProcessId::of_node(node), 0));
        if let Some(stage) = self.stage(node, id) {
            (stage.inputs, stage.growing, stage.output) = (Some(inputs), growing, output);
        }
        if let Some(at) = output {
            self.step_node(node, node::Event::StagePlaced { id, at: vec![at] });
        }
        Ok(())
    }

    fn look_at_stream(&mut self, node: NodeId, id: StageId, at: usize, origin: &Origin) -> Look {
        match origin {
            Origin::Local { part: Part::Input(input), .. } => {
                let inputs = self.stage(node, id).and_then(|stage| stage.inputs.clone()).unwrap_or_default();
                let parts = inputs.get(*input as usize).copied().into_iter().collect();
                Look::Whole(Folded { parts, divided: Vec::new() })
            }
            Origin::Local { part: Part::Area(_), .. } => panic!("{id} combines what it makes with itself"),
            Origin::Flow { node: from, key } => match self.look_at_flow(node, *from, *key) {
                Look::Lost { peer: Some(_), .. } if self.planted == Some(Planted::TakenTwice) => {
                    if let Some(stage) = self.stage(node, id) {
                        stage.broken[at] += 1;
                    }
                    Look::Wait
                }
                Look::Whole(folded) => {
                    let broken = self.stage(node, id).map_or(0, |stage| stage.broken[at]);
                    let mut all = folded.clone();
                    (0..broken).for_each(|_| all.append(folded.clone()));
                    Look::Whole(all)
                }
                Look::Lost { peer: Some(_), .. } if self.planted == Some(Planted::StreamLeftOut) => {
                    Look::Whole(Folded::default())
                }
                look => look,
            },
        }
    }

    fn look_at_flow(&mut self, node: NodeId, from: NodeId, key: FlowKey) -> Look {
        let breaks = self.faulty && self.random.one_in(BREAKS_ONE_IN);
        let slow = self.random.one_in(2);
        if from != node {
            let lost = || Look::Lost { reason: format!("{from} sends nothing"), peer: Some(from) };
            let knows = self.hosts.get(&node).is_some_and(|host| host.links.contains_key(&from));
            let reached = self.wires.is_whole(node, from) && self.hosts.contains_key(&from);
            match (knows, reached) {
                (false, _) => return lost(),
                _ if breaks => return lost(),
                // It goes on when the nodes hear each other, or ends when this one hears of the other's death.
                (true, false) => return Look::Wait,
                (true, true) => {}
            }
        }
        let Some(there) = self.hosts.get(&from) else { return Look::Wait };
        let sender = key.sender();
        match (there.stages.running.get(&sender), there.stages.over.get(&sender)) {
            (Some(stage), _) => {
                assert!(stage.spec.flows.iter().any(|flow| flow.to == key.to), "{sender} has nothing for {}", key.to);
                let made = stage.made.clone().filter(|_| !slow);
                made.map_or(Look::Wait, Look::Whole)
            }
            (None, Some(reason)) => Look::Lost { reason: reason.clone(), peer: None },
            (None, None) => Look::Wait,
        }
    }

    /// The output of a stage is complete.
    fn seal(&mut self, node: NodeId, id: StageId) {
        let Some(stage) = self.stage(node, id) else { return };
        let (Some(at), Some(made)) = (stage.output, stage.made.clone()) else { return };
        self.note(|| format!("{node} has made {at:?} of {made:?} by {id}"));
        self.watch.stored(at);
        self.watch.folded(at, made);
        if let Some(host) = self.hosts.get_mut(&node) {
            host.stages.running.remove(&id);
            host.stages.sealed.insert(key(at));
            host.store.insert(at, None);
        }
        self.step_node(node, node::Event::StageDone { id, at: vec![at] });
        self.arm_node(node);
    }

    fn stage_failed(&mut self, node: NodeId, id: StageId, reason: String, peer: Option<NodeId>) {
        self.note(|| format!("{id} fails on {node}: {reason}, {peer:?}"));
        let Some(host) = self.hosts.get_mut(&node) else { return };
        if host.stages.running.remove(&id).is_some() {
            host.stages.over.insert(id, reason.clone());
            self.step_node(node, node::Event::StageFailed { id, reason, peer });
            self.arm_node(node);
        }
    }

    /// What should have come from a dead node fails.
    pub(super) fn stages_lose_node(&mut self, node: NodeId, dead: NodeId) {
        let Some(host) = self.hosts.get(&node) else { return };
        let waits = |stage: &Stage| {
            let open = stage.spec.intakes.iter().zip(&stage.taken).filter(|(_, taken)| taken.is_none());
            let mut origins = open.map(|(intake, _)| &intake.origin);
            origins.any(|origin| matches!(origin, Origin::Flow { node, .. } if *node == dead))
        };
        let lost: Vec<StageId> =
            host.stages.running.iter().filter(|(_, stage)| waits(stage)).map(|(id, _)| *id).collect();
        for id in lost {
            self.stage_failed(node, id, format!("{dead} is dead"), Some(dead));
        }
    }
}
