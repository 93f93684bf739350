//! The controller and nodes on paper, with messages that are late, deaths, silence and restarts.
//!
//! After every step: MEMBER-1, MEMBER-2, GROUP-1, and no resource is given twice. At the end, when all is calm: nothing
//! of a removed group is left, and no group waits that would fit.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::controller::members::Hold;
use crate::node::{self, Node, NodeConfig};

const BEAT_US: u64 = 100_000;

/// A node and the two directions of its link to the controller.
struct Machine {
    node: Node,
    total: Resources,
    tenure: Tenure,
    inbox: VecDeque<FromController>,
    outbox: VecDeque<ToController>,
    beats: u64,
    /// Nothing goes out or comes in.
    cut: bool,
}

impl Machine {
    fn heartbeat(&mut self, now: Tick) {
        self.beats += 1;
        self.tenure.heartbeat_sent(self.beats, now);
        let load = Box::new(self.node.load());
        self.outbox.push_back(ToController::Heartbeat { sequence: self.beats, load });
    }

    fn read(&mut self, message: FromController, now: Tick) {
        match message {
            FromController::Renewed { sequence, lease_us, .. } => {
                let _held = self.tenure.renewed(sequence, lease_us, now);
            }
            FromController::Drain { .. } => self.outbox.push_back(ToController::Drained),
            message => {
                let mut effects = Vec::new();
                self.node.step(node::Event::Controller(message), now, &mut effects);
                for effect in effects {
                    match effect {
                        node::Effect::AskController(request) => self.outbox.push_back(request),
                        other => panic!("nobody runs anything here: {other:?}"),
                    }
                }
            }
        }
    }

    fn free(&self) -> Resources {
        self.node.load().free
    }

    fn reserved(&self) -> Resources {
        let mut sum = Resources::default();
        self.node.reserved_bundles().for_each(|(_, _, total, _)| sum.give(total));
        sum
    }
}

struct World {
    controller: Controller,
    machines: BTreeMap<NodeId, Machine>,
    ghosts: Vec<NodeId>,
    joins: u128,
    groups: u128,
    now: Tick,
}

#[derive(Clone, Debug)]
enum Step {
    Join(u64),
    Crash(usize),
    Leave(usize),
    Drain(usize),
    Cut(usize),
    Speak(usize),
    Create(u8, Vec<u64>),
    Remove(usize),
    /// One message of one node's link, out or in.
    Deliver(usize, bool),
    /// All links, in order.
    Settle,
    Wait(u64),
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u64..5).prop_map(Step::Join),
        1 => (0usize..8).prop_map(Step::Crash),
        1 => (0usize..8).prop_map(Step::Leave),
        1 => (0usize..8).prop_map(Step::Drain),
        1 => (0usize..8).prop_map(Step::Cut),
        1 => (0usize..8).prop_map(Step::Speak),
        5 => (0u8..4, proptest::collection::vec(1u64..4, 1..4)).prop_map(|(p, b)| Step::Create(p, b)),
        3 => (0usize..8).prop_map(Step::Remove),
        20 => (0usize..8, any::<bool>()).prop_map(|(node, out)| Step::Deliver(node, out)),
        2 => Just(Step::Settle),
        4 => (1u64..1_500_000).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

impl World {
    fn pick(&self, number: usize) -> Option<NodeId> {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        (!nodes.is_empty()).then(|| nodes[number % nodes.len()])
    }

    fn event(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.controller.step(event, self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Welcome { node, lease_us, members, .. } => {
                    assert!(!self.machines.contains_key(&node) && !self.ghosts.contains(&node), "MEMBER-2: {node}");
                    let total = members.iter().find(|row| row.node == node).unwrap().total.clone();
                    let (inbox, outbox) = (VecDeque::new(), VecDeque::new());
                    let config = NodeConfig { id: node, job: None, ..NodeConfig::for_machine(total.clone()) };
                    let (machine_node, tenure) = (Node::new(config), Tenure::new(self.now, lease_us));
                    let machine = Machine { node: machine_node, total, tenure, inbox, outbox, beats: 0, cut: false };
                    self.machines.insert(node, machine);
                }
                Effect::TurnAway { reason, .. } => panic!("{reason}"),
                Effect::Send { to, message } => {
                    if let Some(machine) = self.machines.get_mut(&to) {
                        machine.inbox.push_back(message);
                    }
                }
                Effect::SendAll(FromController::NodeDied { node, departure }) => {
                    if let Some(mut machine) = self.machines.remove(&node)
                        && departure == Departure::Silent
                    {
                        assert_eq!(machine.tenure.hold(self.now), Hold::Over, "MEMBER-1: {node}");
                    }
                    self.ghosts.push(node);
                }
                Effect::SendAll(_) => {}
                Effect::Reject { node, .. } => assert!(self.ghosts.contains(&node), "MEMBER-2: {node} lives"),
            }
        }
    }

    fn asked(&mut self, node: NodeId, request: ToController) {
        self.event(Event::Asked { node, request: Box::new(request) });
    }

    fn deliver(&mut self, node: NodeId, out: bool) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&node).filter(|machine| !machine.cut) else { return };
        if out {
            if let Some(request) = machine.outbox.pop_front() {
                self.asked(node, request);
            }
        } else if let Some(message) = machine.inbox.pop_front() {
            machine.read(message, now);
        }
    }

    fn settle(&mut self) {
        for _ in 0..1_000 {
            let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
            let busy = |machine: &Machine| !(machine.cut || machine.inbox.is_empty() && machine.outbox.is_empty());
            if !self.machines.values().any(busy) {
                return;
            }
            for node in nodes {
                self.deliver(node, true);
                self.deliver(node, false);
            }
        }
        panic!("the messages do not end");
    }

    fn wait(&mut self, us: u64) {
        let end = self.now.plus_us(us);
        while self.now < end {
            let beat = Tick((self.now.0 / BEAT_US + 1) * BEAT_US);
            let due = self.controller.deadline().unwrap_or(end);
            self.now = beat.min(due).min(end).max(self.now.plus_us(1));
            if self.now.0.is_multiple_of(BEAT_US) {
                let now = self.now;
                for machine in self.machines.values_mut().filter(|machine| !machine.cut) {
                    machine.heartbeat(now);
                }
                self.settle();
            }
            self.event(Event::Ticked);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Join(whole) => {
                self.joins += 1;
                let (uid, labels, driver_only) = (self.joins, BTreeMap::new(), whole == 0);
                let join = Join {
                    uid,
                    identity: 0,
                    role: Role::Node,
                    address: String::new(),
                    total: cpus(whole),
                    labels,
                    driver_only,
                };
                self.event(Event::JoinAsked { link: uid as u64, join: Box::new(join) });
            }
            Step::Crash(number) => {
                if let Some(node) = self.pick(number) {
                    self.event(Event::ConnectionLost { node, refused: true });
                }
            }
            Step::Leave(number) => {
                if let Some(node) = self.pick(number) {
                    self.asked(node, ToController::Leave);
                }
            }
            Step::Drain(number) => {
                if let Some(node) = self.pick(number) {
                    self.asked(node, ToController::Drain { request: 1, node, grace_us: 700_000 });
                }
            }
            Step::Cut(number) => {
                let node = self.pick(number);
                if let Some(machine) = node.and_then(|node| self.machines.get_mut(&node)) {
                    machine.cut = !machine.cut;
                    self.event(Event::ConnectionLost { node: node.unwrap(), refused: false });
                }
            }
            Step::Speak(number) => {
                if let Some(ghost) = self.ghosts.get(number).copied() {
                    let before = self.controller.snapshot();
                    self.asked(ghost, ToController::Heartbeat { sequence: 1, load: Box::default() });
                    self.asked(ghost, ToController::RemoveGroup { group: group(1), reason: "late".into() });
                    assert_eq!(self.controller.snapshot(), before, "MEMBER-2: the dead have no say");
                }
            }
            Step::Create(packing, bundles) => {
                let Some(node) = self.pick(0) else { return };
                self.groups += 1;
                let packings = [Packing::Pack, Packing::Spread, Packing::StrictPack, Packing::StrictSpread];
                let packing = packings[packing as usize];
                let ends = match self.groups % 2 {
                    0 => Ends::Never,
                    _ => Ends::WithActor { actor: ActorId(TaskId::from_raw(self.groups)), manager: node },
                };
                let spec = Box::new(GroupSpec { ends, ..detached(packing, &bundles) });
                self.asked(node, ToController::CreateGroup { group: group(self.groups), spec });
            }
            Step::Remove(number) => {
                let groups: Vec<GroupId> = self.controller.groups().rows().map(|(id, _)| id).collect();
                if let (Some(node), false) = (self.pick(0), groups.is_empty()) {
                    let (group, reason) = (groups[number % groups.len()], "it was removed".into());
                    self.asked(node, ToController::RemoveGroup { group, reason });
                }
            }
            Step::Deliver(number, out) => {
                if let Some(node) = self.pick(number) {
                    self.deliver(node, out);
                }
            }
            Step::Settle => self.settle(),
            Step::Wait(us) => self.wait(us),
            Step::Restart => {
                let bytes = self.controller.snapshot();
                self.controller = Controller::restore(&bytes, self.now).unwrap();
                assert_eq!(self.controller.snapshot(), bytes);
                self.event(Event::Started);
            }
        }
    }

    fn check(&self) {
        let live: Vec<NodeId> = self.controller.members().rows().iter().map(|row| row.node).collect();
        assert_eq!(live, self.machines.keys().copied().collect::<Vec<_>>());
        for (node, machine) in &self.machines {
            let mut sum = machine.free();
            sum.give(&machine.reserved());
            assert_eq!(sum, machine.total, "given twice or lost on {node}");
        }
        for (id, known) in self.controller.groups().rows() {
            for (bundle, at) in (0..).zip(&known.nodes) {
                let usable = |machine: &Machine| {
                    machine.node.reserved_bundles().any(|(g, b, _, usable)| (g, b, usable) == (id, bundle, true))
                };
                let holders: Vec<NodeId> = self.machines.iter().filter(|(_, m)| usable(m)).map(|(n, _)| *n).collect();
                assert!(holders.iter().all(|holder| Some(*holder) == *at), "GROUP-1: {id}.{bundle} is on {holders:?}");
                if let (Some(at), Placement::Placed { .. }) = (at, known.placement()) {
                    assert_eq!(holders, [*at], "GROUP-1: {id}.{bundle} is not where it should be");
                }
            }
            if let Placement::Placed { nodes } = known.placement() {
                assert_eq!(nodes.len(), known.spec.bundles.len(), "GROUP-1: {id} is not whole");
                let distinct = nodes.iter().collect::<std::collections::BTreeSet<_>>().len();
                match known.spec.packing {
                    Packing::StrictPack => assert_eq!(distinct, 1),
                    Packing::StrictSpread => assert_eq!(distinct, nodes.len()),
                    Packing::Pack | Packing::Spread => {}
                }
            }
        }
    }

    fn check_calm(&self) {
        for (node, machine) in &self.machines {
            let mut expected = Resources::default();
            for (_, known) in self.controller.groups().rows() {
                for (bundle, _) in known.spec.bundles.iter().zip(&known.nodes).filter(|(_, at)| **at == Some(*node)) {
                    expected.give(bundle);
                }
            }
            assert_eq!(machine.reserved(), expected, "left over on {node}");
        }
        for (id, known) in self.controller.groups().rows() {
            if matches!(known.placement(), Placement::Placed { .. }) {
                continue;
            }
            let fits = |bundle: &Resources| {
                let rows = self.controller.members().rows();
                let takers = rows.iter().filter(|row| !row.draining && !row.driver_only);
                takers.filter(|row| self.machines[&row.node].free().covers(bundle)).count()
            };
            if known.spec.bundles.len() == 1 {
                assert_eq!(fits(&known.spec.bundles[0]), 0, "{id} waits and would fit: {:?}", known.placement());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn members_and_groups_are_sound_whatever_happens(steps in proptest::collection::vec(any_step(), 1..150)) {
        let (machines, ghosts) = (BTreeMap::new(), Vec::new());
        let controller = Controller::new(ControllerConfig::default());
        let mut world = World { controller, machines, ghosts, joins: 0, groups: 0, now: Tick(0) };
        for step in steps {
            world.step(step);
            world.check();
        }
        for machine in world.machines.values_mut() {
            machine.cut = false;
        }
        world.wait(15_000_000);
        world.settle();
        world.check();
        world.check_calm();
    }
}
