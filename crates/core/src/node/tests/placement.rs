//! Several nodes that talk to each other: where actors go, what an idle lease is worth, and what is shown as free.
//!
//! Workers here start at once, constructors succeed, and an owner returns a lease when it is asked to and nothing runs under it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::id::JobId;
use crate::message::Between;
use crate::record::Record;
use crate::schedule::Row;
use crate::spec::Shape;

const HEAD: NodeId = NodeId(1);
const DRIVER_HERE: ProcessId = ProcessId::first_driver(HEAD);

/// Nodes, and the processes of one job on them.
struct Machines {
    nodes: BTreeMap<NodeId, Node>,
    now: Tick,
    /// What nodes have told each other and was not heard yet.
    under_way: VecDeque<(NodeId, NodeId, Between)>,
    /// The leases that the driver has, and where.
    leases: BTreeMap<LeaseId, ProcessId>,
    /// Tasks that run, by lease.
    running: BTreeMap<LeaseId, TaskId>,
    /// The nodes of actors that were constructed, and in which processes they are.
    alive: BTreeMap<ActorId, BTreeSet<ProcessId>>,
    submitted: u64,
}

fn named(name: &str, amount: u64) -> Resources {
    Resources { custom: BTreeMap::from([(name.to_owned(), Amount::whole(amount))]), ..Resources::default() }
}

fn with(mut resources: Resources, name: &str, amount: u64) -> Resources {
    resources.custom.insert(name.to_owned(), Amount::whole(amount));
    resources
}

impl Machines {
    fn new(totals: &[Resources]) -> Self {
        let mut nodes = BTreeMap::new();
        for (id, total) in (1..).map(NodeId).zip(totals) {
            let job = (id == HEAD).then_some(JobId::new(HEAD, 1));
            let config =
                NodeConfig { id, job, prestart: 0, processes_max: 100, ..NodeConfig::for_machine(total.clone()) };
            nodes.insert(id, Node::new(config));
        }
        let (leases, running, alive) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut all = Self { nodes, now: Tick(0), under_way: VecDeque::new(), leases, running, alive, submitted: 0 };
        let ids: Vec<NodeId> = all.nodes.keys().copied().collect();
        for (at, node) in ids.iter().flat_map(|at| ids.iter().map(move |node| (*at, *node))) {
            if at != node {
                let total = totals[node.0 as usize - 1].clone();
                all.step(at, Event::NodeJoined { node, total });
            }
        }
        all.settle();
        all
    }

    fn step(&mut self, at: NodeId, event: Event) {
        let mut effects = Vec::new();
        self.nodes.get_mut(&at).unwrap().step(event, self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Tell { node, message } => self.under_way.push_back((at, node, message)),
                Effect::Spawn(process) => {
                    self.step(at, Event::WorkerSpawned { process, pid: process.slot });
                    self.step(at, Event::Requested { process, request: ToNode::Hello });
                }
                Effect::Send { to, message } if to.node == at => self.hear(to, message),
                _ => {}
            }
        }
    }

    fn hear(&mut self, process: ProcessId, message: FromNode) {
        match message {
            FromNode::Construct { spec, .. } => {
                let (task, actor) = (spec.id, ActorId(spec.id));
                assert!(self.alive.entry(actor).or_default().insert(process), "one constructor for {actor}");
                self.record(process, Record::Started { at: self.now, task, attempt: 0 });
                let value = Value::inline(Vec::new());
                let done = Record::Finished { at: self.now, task, attempt: 0, values: vec![value.clone()] };
                self.record(process, done);
                self.ask(process, ToNode::ActorConstructed { actor, value });
            }
            FromNode::Granted { lease, worker, .. } => {
                self.leases.insert(lease, worker);
            }
            FromNode::Reclaim { lease } if !self.running.contains_key(&lease) => self.give_back(lease),
            _ => {}
        }
    }

    fn ask(&mut self, process: ProcessId, request: ToNode) {
        self.step(process.node, Event::Requested { process, request });
    }

    fn record(&mut self, process: ProcessId, record: Record) {
        self.step(process.node, Event::Recorded { process, record });
    }

    fn give_back(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        self.ask(DRIVER_HERE, ToNode::ReturnLease { lease });
    }

    /// Everything that is under way arrives.
    fn settle(&mut self) {
        while let Some((from, to, message)) = self.under_way.pop_front() {
            self.step(to, Event::Heard { from, message });
        }
    }

    /// Time goes by, and everybody hears what the others have.
    fn beat(&mut self) {
        self.now = self.now.plus_us(1_000_000);
        let rows: Vec<Row> =
            self.nodes.iter().map(|(node, n)| Row { node: *node, age_us: 0, load: n.load() }).collect();
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.step(node, Event::Ticked);
            self.step(node, Event::Loads(rows.clone()));
        }
        self.settle();
    }

    /// A moment passes, in which no heartbeat comes.
    fn tick(&mut self) {
        self.now = self.now.plus_us(3_000);
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.step(node, Event::Ticked);
        }
        self.settle();
    }

    /// The driver gets so many leases.
    fn lease(&mut self, pool: u32, count: u32, resources: &Resources) {
        let shape = Shape { resources: resources.clone(), ..Shape::default() };
        self.ask(DRIVER_HERE, ToNode::WantLeases { pool, shape, count, depth: 0 });
        self.settle();
    }

    /// A task runs under each lease from now on.
    fn start_tasks(&mut self) {
        for (lease, worker) in self.leases.clone() {
            self.submitted += 1;
            let task = root(DRIVER_HERE).child(0, 1_000 + self.submitted, 0);
            self.running.insert(lease, task);
            self.record(worker, Record::Started { at: self.now, task, attempt: 0 });
        }
    }

    fn end_tasks(&mut self) {
        self.now = self.now.plus_us(50);
        for (lease, task) in std::mem::take(&mut self.running) {
            let values = vec![Value::inline(Vec::new())];
            self.record(self.leases[&lease], Record::Finished { at: self.now, task, attempt: 0, values });
        }
    }

    fn create(&mut self, count: usize, resources: &Resources) {
        for _ in 0..count {
            self.submitted += 1;
            let create = TaskKind::Create(ActorOptions::default());
            let spec = spec(root(DRIVER_HERE), self.submitted, create, resources.clone());
            self.ask(DRIVER_HERE, ToNode::CreateActor { spec, resolved: Vec::new() });
        }
        self.settle();
        self.tick();
    }

    /// How many actors live on each node.
    fn actors(&self) -> Vec<usize> {
        let all = self.alive.values().flatten().map(|process| process.node);
        let mut counts: BTreeMap<NodeId, usize> = self.nodes.keys().map(|node| (*node, 0)).collect();
        all.for_each(|node| *counts.entry(node).or_default() += 1);
        counts.into_values().collect()
    }
}

#[test]
fn actors_get_what_idle_leases_hold_on_every_node() {
    let r = named("r", 1);
    let mut all = Machines::new(&[with(cpus(2.0), "r", 1), with(cpus(2.0), "r", 1)]);
    all.lease(0, 2, &r);
    assert_eq!(all.leases.len(), 2);
    all.start_tasks();
    all.end_tasks();
    all.create(2, &r);
    all.beat();
    assert_eq!(all.actors(), [1, 1]);
}

#[test]
fn an_actor_that_waits_behind_another_actor_goes_where_room_comes() {
    // The tasks run on until both actors wait, so the first node's queue has both.
    let r = named("r", 1);
    let mut all = Machines::new(&[with(cpus(2.0), "r", 1), with(cpus(2.0), "r", 1)]);
    all.lease(0, 2, &r);
    all.start_tasks();
    all.create(2, &r);
    all.beat();
    assert_eq!(all.actors(), [0, 0]);
    all.end_tasks();
    for lease in all.leases.clone().into_keys() {
        all.give_back(lease);
    }
    all.settle();
    all.beat();
    all.beat();
    assert_eq!(all.actors(), [1, 1]);
}

#[test]
fn an_actor_is_recalled_from_a_host_that_is_full_for_good() {
    // The third node has no room until the first two are full for good; the driver's node never has any.
    let gpu = Resources { gpus: Amount::whole(1), ..cpus(1.0) };
    let host = Resources { gpus: Amount::whole(2), ..cpus(2.0) };
    let mut all = Machines::new(&[cpus(1.0), host.clone(), host.clone(), host]);
    all.lease(0, 6, &gpu);
    assert_eq!(all.leases.len(), 6);
    all.start_tasks();
    all.create(6, &gpu);
    all.beat();
    assert_eq!(all.actors(), [0, 0, 0, 0]);
    all.end_tasks();
    for lease in all.leases.clone().into_keys() {
        all.give_back(lease);
        all.settle();
        all.beat();
    }
    all.beat();
    all.beat();
    assert_eq!(all.actors(), [0, 2, 2, 2]);
}

#[test]
fn a_task_goes_where_a_lease_is_idle_when_an_actor_has_the_rest() {
    let r = with(cpus(1.0), "r", 1);
    let mut all = Machines::new(&[with(cpus(2.0), "r", 1), with(cpus(2.0), "r", 1)]);
    all.lease(0, 2, &r);
    all.start_tasks();
    all.end_tasks();
    all.create(1, &r);
    all.beat();
    assert_eq!(all.actors(), [1, 0]);
    let before: BTreeSet<LeaseId> = all.leases.keys().copied().collect();
    // Tasks of 50 us end soon, but the actor does not.
    all.lease(1, 1, &r);
    all.beat();
    let new: Vec<NodeId> =
        all.leases.iter().filter(|(lease, _)| !before.contains(lease)).map(|(_, worker)| worker.node).collect();
    assert_eq!(new, [NodeId(2)]);
}

#[test]
fn actors_without_cpus_are_spread_by_the_cpus_that_nodes_have() {
    let mut all = Machines::new(&[cpus(2.0), cpus(2.0), cpus(2.0)]);
    all.create(60, &Resources::default());
    assert_eq!(all.actors(), [20, 20, 20]);
    let mut all = Machines::new(&[named("r", 1), cpus(1.0), cpus(3.0)]);
    all.create(40, &Resources::default());
    assert_eq!(all.actors(), [0, 10, 30], "a node without CPUs is meant for other things");
    let mut all = Machines::new(&[named("r", 1), named("r", 1)]);
    all.create(4, &Resources::default());
    assert_eq!(all.actors(), [2, 2], "unless there is no other");
}

#[test]
fn an_idle_lease_is_free_to_people_and_to_other_nodes() {
    let mut all = Machines::new(&[cpus(2.0), cpus(2.0)]);
    all.lease(0, 4, &cpus(1.0));
    let free = |all: &Machines| -> Vec<f64> {
        all.nodes.values().map(|node| node.overview(all.now).free.cpus.as_f64()).collect()
    };
    all.start_tasks();
    assert_eq!(free(&all), [0.0, 0.0]);
    all.end_tasks();
    assert_eq!(free(&all), [2.0, 2.0]);
    let told: Vec<Resources> = all.nodes.values().map(|node| node.load().free).collect();
    assert_eq!(told, [cpus(2.0), cpus(2.0)]);
    let idle = all.nodes[&HEAD].snapshot(all.now).leases.iter().filter(|lease| lease.idle).count();
    assert_eq!(idle, 2);
}

#[test]
fn who_asks_for_all_nodes_hears_what_is_free_on_them_now() {
    let mut all = Machines::new(&[cpus(1.0), cpus(1.0), cpus(1.0)]);
    all.lease(0, 3, &cpus(1.0));
    all.start_tasks();
    all.beat();
    let asked = |all: &mut Machines, request| {
        let mut effects = Vec::new();
        let event = Event::Requested { process: DRIVER_HERE, request: ToNode::QueryNodes { request } };
        all.nodes.get_mut(&HEAD).unwrap().step(event, all.now, &mut effects);
        effects
    };
    all.end_tasks();
    // No heartbeat since: only an answer of each node can tell.
    let effects = asked(&mut all, 1);
    let wanted: Vec<NodeId> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Tell { node, message: Between::WantLoad { .. } } => *node,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(wanted, [NodeId(2), NodeId(3)]);
    assert_eq!(asked(&mut all, 2), [], "the second question waits for the next round");
    let answer = |all: &mut Machines, node: u32, request| {
        let mut load = all.nodes[&NodeId(node)].load();
        load.running = node;
        let message = Between::GiveLoad { request, load: Box::new(load) };
        let mut effects = Vec::new();
        let event = Event::Heard { from: NodeId(node), message };
        all.nodes.get_mut(&HEAD).unwrap().step(event, all.now, &mut effects);
        effects
    };
    assert_eq!(answer(&mut all, 2, 1), []);
    let effects = answer(&mut all, 3, 1);
    let store = |request| Effect::Store { process: DRIVER_HERE, request: ToNode::QueryNodes { request } };
    assert_eq!(effects[0], store(1));
    assert_eq!(effects.len(), 3, "and the next round begins: {effects:?}");
    let digest = &all.nodes[&HEAD].cluster.passing.digest;
    let free: Vec<Resources> = digest.loads().filter(|(node, _)| *node != HEAD).map(|(_, l)| l.free.clone()).collect();
    assert_eq!(free, [cpus(1.0), cpus(1.0)]);
    // One answers, the other dies.
    assert_eq!(answer(&mut all, 2, 2), []);
    let mut effects = Vec::new();
    let died = Event::NodeDied { node: NodeId(3), reason: "was killed".into() };
    all.nodes.get_mut(&HEAD).unwrap().step(died, all.now, &mut effects);
    assert!(effects.contains(&store(2)), "{effects:?}");
    // Nobody answers: the time is over.
    assert_eq!(asked(&mut all, 3).len(), 1);
    all.now = all.nodes[&HEAD].deadline().unwrap();
    let mut effects = Vec::new();
    all.nodes.get_mut(&HEAD).unwrap().step(Event::Passed, all.now, &mut effects);
    assert!(effects.contains(&store(3)), "{effects:?}");
}
