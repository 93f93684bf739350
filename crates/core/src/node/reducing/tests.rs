//! Reduces against a world of nodes that fold lists of input numbers instead of bytes.

use proptest::prelude::*;

use super::*;
use crate::flow::{Action, Origin, Part};
use crate::id::{ObjectId, TaskId};
use crate::reduce::Choice;

const ROOT_NODE: NodeId = NodeId(1);
const BYTES: u64 = 1 << 20;

fn object(index: u32) -> ObjectId {
    ObjectId::result(TaskId::from_raw(7), index)
}

fn wanted(total: u32, count: u32, order: Order) -> Wanted {
    Wanted { id: 42, op: Op::Mean, total, count, options: Options { order, choice: Choice::Model } }
}

/// What a stage makes: inputs in the order of combination, and how often it was divided.
type Folded = (Vec<u32>, Vec<u32>);

/// Nodes that carry stages out.
struct World {
    reduce: Reduce,
    stages: BTreeMap<StageId, (NodeId, StageSpec)>,
    dead: BTreeSet<NodeId>,
    ended: Option<Deed>,
    /// Which input lies where.
    places: BTreeMap<(u32, u32), u32>,
    /// Where each input is that is still being made.
    growing: BTreeMap<u32, Location>,
    generation: u32,
    now: Tick,
}

impl World {
    fn new(wanted: Wanted, choice: Choice) -> Self {
        let wanted = Wanted { options: Options { choice, ..wanted.options }, ..wanted };
        Self {
            reduce: Reduce::new(wanted, ROOT_NODE, Network::default()),
            stages: BTreeMap::new(),
            dead: BTreeSet::new(),
            ended: None,
            places: BTreeMap::new(),
            growing: BTreeMap::new(),
            generation: 1,
            now: Tick(0),
        }
    }

    fn place(&mut self, index: u32, node: NodeId) -> ReduceInput {
        self.generation += 1;
        self.places.insert((index, self.generation), index);
        let at = Location { node, entry: index, generation: self.generation, offset: 0, len: BYTES };
        ReduceInput { index, object: object(index), at, is_growing: false }
    }

    fn arrive(&mut self, arrivals: &[(u32, NodeId)]) {
        for (index, node) in arrivals {
            if !self.dead.contains(node) {
                let input = match self.growing.remove(index) {
                    // It is complete where it grew.
                    Some(at) => ReduceInput { index: *index, object: object(*index), at, is_growing: false },
                    None => self.place(*index, *node),
                };
                self.reduce.arrived(input);
            }
        }
        self.advance();
    }

    /// Inputs that are still being made have a place.
    fn grow(&mut self, arrivals: &[(u32, NodeId)]) {
        for (index, node) in arrivals {
            let is_new = !self.reduce.inputs.contains_key(index) || self.growing.contains_key(index);
            if is_new && !self.dead.contains(node) {
                self.wilt(*index);
                let input = ReduceInput { is_growing: true, ..self.place(*index, *node) };
                self.growing.insert(*index, input.at);
                self.reduce.arrived(input);
            }
        }
        self.advance();
    }

    /// What grew comes to nothing, and who reads it fails.
    fn wilt(&mut self, index: u32) {
        let Some(at) = self.growing.remove(&index) else { return };
        self.places.remove(&(at.entry, at.generation));
        let readers = self.stages.iter().filter(|(_, (_, spec))| spec.inputs.contains(&at));
        let readers: Vec<StageId> = readers.map(|(id, _)| *id).collect();
        for id in readers {
            self.stages.remove(&id);
            let mut deeds = Vec::new();
            self.reduce.stage_failed(id, "what it read is no more".to_owned(), None, self.now, &mut deeds);
            self.carry_out(deeds);
        }
    }

    fn advance(&mut self) {
        let mut deeds = Vec::new();
        self.reduce.advance(self.now, &mut deeds);
        self.carry_out(deeds);
    }

    fn carry_out(&mut self, deeds: Vec<Deed>) {
        for deed in deeds {
            match deed {
                Deed::Run { node, spec } => {
                    assert!(!self.dead.contains(&node), "a stage for a dead node");
                    assert_eq!(spec.check(), Ok(()));
                    assert!(spec.inputs.iter().all(|at| at.node == node), "inputs lie where they are used");
                    assert!(self.stages.insert(spec.id, (node, spec)).is_none(), "a stage runs once");
                }
                Deed::End { node, id } => {
                    assert!(!self.dead.contains(&node));
                    self.stages.remove(&id);
                }
                end => {
                    assert!(self.ended.is_none(), "it ends once");
                    self.ended = Some(end);
                }
            }
        }
    }

    /// What a stage makes, when all that it takes from is there.
    fn fold(&self, id: StageId) -> Option<Folded> {
        let (_, spec) = self.stages.get(&id)?;
        let index = |at: u32| {
            let at = spec.inputs[at as usize];
            self.places[&(at.entry, at.generation)]
        };
        if spec.intakes.is_empty() {
            return Some((vec![index(0)], Vec::new()));
        }
        let (mut all, mut divisors) = (Vec::new(), Vec::new());
        for intake in &spec.intakes {
            let (mut folded, divided) = match &intake.origin {
                Origin::Local { part: Part::Input(at), .. } => (vec![index(*at)], Vec::new()),
                Origin::Local { part: Part::Area(_), .. } => panic!("nothing is folded with itself"),
                Origin::Flow { node, key } => {
                    let (at, sender) = self.stages.get(&key.sender())?;
                    assert_eq!(at, node, "a stream is taken from where it is");
                    assert!(sender.flows.iter().any(|flow| flow.to == key.to));
                    self.fold(key.sender())?
                }
            };
            all.append(&mut folded);
            divisors.extend(divided);
            if let Action::Array(combine) = intake.pieces[0].action {
                if let Part::Input(with) = combine.with {
                    all.push(index(with));
                }
                if combine.divisor != 1 {
                    divisors.push(combine.divisor);
                }
            }
        }
        Some((all, divisors))
    }

    /// The result, when there can be one.
    fn finish(&mut self) -> Option<Folded> {
        let last = self.reduce.plan.as_ref()?.last?;
        let folded = self.fold(last)?;
        let at = Location { node: ROOT_NODE, entry: 99, generation: 1, offset: 0, len: BYTES };
        let mut deeds = Vec::new();
        self.reduce.stage_done(last, &[at], &mut deeds);
        self.carry_out(deeds);
        Some(folded)
    }

    fn die(&mut self, node: NodeId) {
        if node == ROOT_NODE || !self.dead.insert(node) {
            return;
        }
        self.stages.retain(|_, (at, _)| *at != node);
        self.growing.retain(|_, at| at.node != node);
        let mut deeds = Vec::new();
        self.reduce.node_died(node, self.now, &mut deeds);
        self.carry_out(deeds);
    }

    fn break_one(&mut self, which: usize) {
        let Some(id) = self.stages.keys().copied().nth(which % self.stages.len().max(1)) else { return };
        self.stages.remove(&id);
        let mut deeds = Vec::new();
        self.reduce.stage_failed(id, "a stream broke".to_owned(), Some(NodeId(2)), self.now, &mut deeds);
        self.carry_out(deeds);
    }

    fn check_result(&self, (mut folded, divisors): Folded) {
        let Wanted { count, options, .. } = self.reduce.wanted;
        let Some(Deed::Done { used, .. }) = &self.ended else { panic!("it is done: {:?}", self.ended) };
        if options.order == Order::Fixed {
            assert!(folded.is_sorted(), "in the order of the list: {folded:?}");
        }
        folded.sort_unstable();
        assert_eq!(&folded, used, "each used input once (RED-1)");
        assert_eq!(used.len(), count as usize);
        assert_eq!(divisors, if count == 1 { vec![] } else { vec![count] }, "divided once");
        assert!(self.stages.is_empty(), "nothing is left: {:?}", self.stages.keys());
    }
}

#[derive(Clone, Debug)]
enum Act {
    Arrive(Vec<(u32, u32)>),
    Grow(Vec<(u32, u32)>),
    Wilt(u32),
    Die(u32),
    Break(usize),
    Tick,
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => proptest::collection::vec((0u32..24, 1u32..7), 1..6).prop_map(Act::Arrive),
        2 => proptest::collection::vec((0u32..24, 1u32..7), 1..6).prop_map(Act::Grow),
        1 => (0u32..24).prop_map(Act::Wilt),
        1 => (2u32..7).prop_map(Act::Die),
        1 => (0usize..40).prop_map(Act::Break),
        2 => Just(Act::Tick),
    ]
}

fn any_choice() -> impl Strategy<Value = Choice> {
    let shapes =
        prop_oneof![Just(Shape::Chain), Just(Shape::TwoLevel), Just(Shape::Star), (1u32..5).prop_map(Shape::Tree)];
    prop_oneof![Just(Choice::Model), Just(Choice::Paper), shapes.prop_map(Choice::Forced)]
}

proptest! {
    #[test]
    fn each_used_input_is_combined_once_in_the_result_whatever_breaks_and_dies(
        total in 1u32..24,
        share in 1u32..=100,
        fixed in any::<bool>(),
        choice in any_choice(),
        acts in proptest::collection::vec(any_act(), 0..40),
    ) {
        let order = if fixed { Order::Fixed } else { Order::Arrival };
        let count = (total * share).div_ceil(100).clamp(1, total);
        let mut world = World::new(wanted(total, count, order), choice);
        for act in acts {
            let placed = |inputs: Vec<(u32, u32)>| -> Vec<(u32, NodeId)> {
                inputs.into_iter().map(|(index, node)| (index, NodeId(node))).collect()
            };
            match act {
                Act::Arrive(inputs) => world.arrive(&placed(inputs)),
                Act::Grow(inputs) => world.grow(&placed(inputs)),
                Act::Wilt(index) => world.wilt(index),
                Act::Die(node) => world.die(NodeId(node)),
                Act::Break(which) => world.break_one(which),
                Act::Tick => {
                    world.now = world.now.plus_us(TRY_AFTER_US << TRIES_MAX);
                    world.advance();
                }
            }
        }
        // All that is missing comes at last, on a node that lives.
        world.now = world.now.plus_us(TRY_AFTER_US << TRIES_MAX);
        let all: Vec<_> = (0..total).map(|index| (index, ROOT_NODE)).collect();
        world.arrive(&all);
        if matches!(world.ended, Some(Deed::Failed { .. })) {
            // Broken too often.
            prop_assert!(world.reduce.tries == TRIES_MAX);
            prop_assert!(world.stages.is_empty());
            return Ok(());
        }
        let folded = world.finish();
        prop_assert!(folded.is_some(), "every reduce ends when its inputs are there");
        world.check_result(folded.unwrap_or_default());
    }

    #[test]
    fn inputs_that_are_all_there_need_one_slot_per_node(total in 1u32..=32, nodes in 1u32..6) {
        let mut world = World::new(wanted(total, total, Order::Arrival), Choice::Model);
        let all: Vec<_> = (0..total).map(|index| (index, NodeId(1 + index % nodes))).collect();
        world.arrive(&all);
        prop_assert_eq!(world.stages.len() as u32, nodes.min(total));
        let folded = world.finish();
        world.check_result(folded.unwrap_or_default());
    }
}

#[test]
fn a_chain_runs_before_its_last_input_is_there() {
    let mut world = World::new(wanted(3, 3, Order::Arrival), Choice::Model);
    world.arrive(&[(2, NodeId(2))]);
    world.arrive(&[(0, NodeId(3))]);
    assert_eq!(world.stages.len(), 2, "the second takes from the first");
    world.arrive(&[(1, NodeId(4))]);
    assert_eq!(world.stages.len(), 4, "three slots and the result");
    let folded = world.finish();
    world.check_result(folded.unwrap_or_default());
}

#[test]
fn a_single_input_is_sent_without_a_copy() {
    let mut world = World::new(wanted(2, 2, Order::Arrival), Choice::Model);
    world.arrive(&[(0, NodeId(2)), (1, ROOT_NODE)]);
    let leaf = world.stages.values().find(|(node, _)| *node == NodeId(2)).map(|(_, spec)| spec);
    assert!(leaf.is_some_and(|spec| spec.areas.is_empty() && spec.intakes.is_empty()));
}

#[test]
fn a_spare_takes_the_place_of_a_lost_input() {
    let mut world = World::new(wanted(3, 2, Order::Arrival), Choice::Model);
    world.arrive(&[(0, NodeId(2)), (1, NodeId(3)), (2, NodeId(4))]);
    world.die(NodeId(3));
    let folded = world.finish();
    world.check_result(folded.unwrap_or_default());
    assert!(matches!(&world.ended, Some(Deed::Done { used, .. }) if used == &[0, 2]));
}

#[test]
fn what_takes_nothing_from_a_lost_slot_is_kept() {
    let mut world = World::new(wanted(5, 4, Order::Arrival), Choice::Forced(Shape::Chain));
    world.arrive(&[(0, NodeId(2)), (1, NodeId(3)), (2, NodeId(4)), (3, NodeId(5))]);
    let before: BTreeSet<StageId> = world.stages.keys().copied().collect();
    world.die(NodeId(4));
    let kept: Vec<u32> = world.stages.keys().filter(|id| before.contains(id)).map(|id| id.slot).collect();
    assert_eq!(kept, [0, 1], "those before the lost one in the chain");
    assert_eq!(world.stages.len(), 3, "and who takes from them now, while an input is missing");
    world.arrive(&[(4, NodeId(6))]);
    assert_eq!(world.stages.len(), 5);
    let folded = world.finish();
    world.check_result(folded.unwrap_or_default());
    assert!(matches!(&world.ended, Some(Deed::Done { used, .. }) if used == &[0, 1, 3, 4]));
}

#[test]
fn word_of_an_earlier_epoch_changes_nothing() {
    let mut world = World::new(wanted(2, 2, Order::Arrival), Choice::Model);
    world.arrive(&[(0, NodeId(2)), (1, NodeId(3))]);
    let last = world.reduce.plan.as_ref().and_then(|plan| plan.last).unwrap_or_else(|| panic!("it runs"));
    world.die(NodeId(3));
    let mut deeds = Vec::new();
    let at = Location { node: ROOT_NODE, entry: 99, generation: 1, offset: 0, len: BYTES };
    world.reduce.stage_done(last, &[at], &mut deeds);
    world.reduce.stage_failed(last, "late".to_owned(), None, world.now, &mut deeds);
    assert_eq!(deeds, []);
}

#[test]
fn an_input_is_taken_while_it_grows_and_again_where_it_grows_anew() {
    let mut world = World::new(wanted(2, 2, Order::Arrival), Choice::Model);
    world.arrive(&[(0, NodeId(2))]);
    world.grow(&[(1, NodeId(3))]);
    assert_eq!(world.stages.len(), 3, "all runs");
    world.wilt(1);
    assert_eq!(
        world.reduce.plan.as_ref().and_then(|plan| plan.last),
        None,
        "it waits for that input, and has not failed"
    );
    world.grow(&[(1, NodeId(4))]);
    world.grow(&[(1, NodeId(3))]);
    assert_eq!(world.reduce.epoch, 2, "twice it came to nothing");
    world.arrive(&[(1, NodeId(3))]);
    assert_eq!(world.reduce.epoch, 2, "it is complete where it grew");
    let folded = world.finish();
    world.check_result(folded.unwrap_or_default());
}

#[test]
fn a_result_is_sent_early_when_its_last_input_was_late_and_links_are_idle() {
    let all = [(0, NodeId(2)), (1, NodeId(3)), (2, NodeId(4))];
    let mut together = World::new(wanted(3, 3, Order::Arrival), Choice::Model);
    together.arrive(&all);
    assert!(!together.reduce.is_sent_early(), "every link is full");
    for (waits, is_early) in [(0, false), (1, true)] {
        let mut world = World::new(wanted(3, 3, Order::Arrival), Choice::Model);
        world.arrive(&all[..2]);
        world.now = world.now.plus_us(waits * Network::default().transfer_us(BYTES));
        world.arrive(&all[2..]);
        assert_eq!(world.reduce.is_sent_early(), is_early);
    }
    let mut two = World::new(wanted(2, 2, Order::Arrival), Choice::Model);
    two.arrive(&all[..2]);
    assert!(two.reduce.is_sent_early(), "others have nothing to do with it");
}

#[test]
fn inputs_of_different_lengths_are_named() {
    let mut world = World::new(wanted(2, 2, Order::Arrival), Choice::Model);
    let mut other = world.place(1, NodeId(2));
    other.at.len = 5;
    world.reduce.arrived(other);
    world.arrive(&[(0, NodeId(2))]);
    let Some(Deed::Failed { reason }) = &world.ended else { panic!("it fails") };
    assert!(reason.contains(&object(0).to_string()) && reason.contains(&object(1).to_string()), "{reason}");
}

#[test]
fn what_breaks_is_tried_again_and_what_cannot_be_combined_fails() {
    let mut world = World::new(wanted(2, 2, Order::Arrival), Choice::Model);
    world.arrive(&[(0, NodeId(2)), (1, NodeId(3))]);
    world.break_one(0);
    assert!(world.ended.is_none() && world.stages.is_empty());
    assert!(world.reduce.deadline().is_some());
    world.now = world.now.plus_us(TRY_AFTER_US);
    world.advance();
    let id = *world.stages.keys().next().unwrap_or_else(|| panic!("it runs again"));
    assert_eq!(id.epoch, 1);
    let mut deeds = Vec::new();
    world.reduce.stage_failed(id, "f32 and f64".to_owned(), None, world.now, &mut deeds);
    world.carry_out(deeds);
    assert!(world.ended.is_none(), "a stream may have broken before it");
    world.now = world.now.plus_us(DOUBT_US);
    world.advance();
    assert!(matches!(&world.ended, Some(Deed::Failed { reason }) if reason.contains("f32 and f64")));
    assert!(world.stages.is_empty());
}

#[test]
fn a_failure_that_a_broken_stream_explains_is_tried_again() {
    let mut world = World::new(wanted(2, 2, Order::Arrival), Choice::Model);
    world.arrive(&[(0, NodeId(2)), (1, NodeId(3))]);
    let last = world.reduce.plan.as_ref().and_then(|plan| plan.last).unwrap_or_else(|| panic!("it runs"));
    let mut deeds = Vec::new();
    world.reduce.stage_failed(last, "what came before it failed".to_owned(), None, world.now, &mut deeds);
    assert_eq!(deeds, [], "not before it is certain");
    world.break_one(0);
    assert!(world.stages.is_empty() && world.ended.is_none());
    world.now = world.now.plus_us(DOUBT_US);
    world.advance();
    assert_eq!(world.stages.len(), 3, "all runs again");
}

#[test]
fn inputs_that_all_lie_here_fail_at_once() {
    let mut world = World::new(wanted(2, 2, Order::Arrival), Choice::Model);
    world.arrive(&[(0, ROOT_NODE), (1, ROOT_NODE)]);
    let last = world.reduce.plan.as_ref().and_then(|plan| plan.last).unwrap_or_else(|| panic!("it runs"));
    let mut deeds = Vec::new();
    world.reduce.stage_failed(last, "f32 and f64".to_owned(), None, world.now, &mut deeds);
    world.carry_out(deeds);
    assert!(matches!(&world.ended, Some(Deed::Failed { reason }) if reason.contains("f32 and f64")));
}
