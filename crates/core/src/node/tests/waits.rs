//! Explanations that need other nodes, or the object store: cycles of calls over nodes, tasks that wait for memory.

use super::*;
use crate::id::{JobId, NodeId};
use crate::message::{Between, Peer};
use crate::node::census::EXPLANATION_WAIT_US;
use crate::node::leases::ACTOR_LEASE;
use crate::waits::{MemoryNeed, MemoryWait, OpenTask, Run, Submission, WAITS_TASKS_MAX, Waits, Work};

const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);
const OURS: ProcessId = ProcessId::first_driver(N2);
const THEIRS: ProcessId = ProcessId::first_driver(N3);
const THERE: ProcessId = ProcessId { node: N3, slot: 5, incarnation: 1 };

/// Node 2 of a cluster of three.
fn node() -> Fixture {
    let total = cpus(4.0);
    let job = Some(JobId::new(N2, 1));
    let mut f = Fixture::with(NodeConfig { id: N2, job, prestart: 0, ..NodeConfig::for_machine(total.clone()) });
    for node in [NodeId::HEAD, N3] {
        f.step(Event::NodeJoined { node, total: total.clone() });
    }
    f
}

fn call(parent: TaskId, n: u64, actor: ActorId, caller: ProcessId) -> Arc<TaskSpec> {
    spec(parent, 100 + n, TaskKind::Call { actor, caller, sequence: n }, cpus(0.0))
}

/// An actor of this node: its id and its process.
fn actor(f: &mut Fixture) -> (ActorId, ProcessId) {
    let create = spec(root(OURS), 1, TaskKind::Create(ActorOptions::default()), cpus(1.0));
    f.submit(OURS, &create);
    let effects = f.ask(OURS, ToNode::CreateActor { spec: create.clone(), resolved: Vec::new() });
    let [process] = spawned(&effects)[..] else { panic!("{effects:?}") };
    f.hello(process);
    f.ask(process, ToNode::ActorConstructed { actor: actor_of(&create), value: Value::inline(vec![]) });
    (actor_of(&create), process)
}

/// Asks why a task does not end; other nodes are asked, and tell this when they do.
fn explain(f: &mut Fixture, task: TaskId, told: &[(NodeId, Waits)]) -> String {
    let effects = f.ask(OURS, ToNode::Explain { request: 9, task });
    let mut asked = BTreeMap::new();
    for effect in effects {
        match effect {
            Effect::Tell { node, message: Between::WantWaits { request } } => asked.insert(node, request),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(asked.keys().copied().collect::<Vec<_>>(), [NodeId::HEAD, N3]);
    let mut effects = Vec::new();
    for (from, waits) in told {
        assert_eq!(effects, [], "not all have told");
        let message = Between::GiveWaits { request: asked[from], waits: Box::new(waits.clone()) };
        effects = f.step(Event::Heard { from: *from, message });
    }
    if told.len() < asked.len() {
        assert_eq!(effects, []);
        f.now = f.now.plus_us(EXPLANATION_WAIT_US);
        effects = f.step(Event::Passed);
    }
    explained(&effects)
}

fn explained(effects: &[Effect]) -> String {
    let [Effect::Send { to: OURS, message: FromNode::Explained { request: 9, text } }] = effects else {
        panic!("{effects:?}")
    };
    text.clone()
}

fn submitted(parent: TaskId, name: &str, work: Work) -> Option<Submission> {
    Some(Submission { parent, name: name.into(), work })
}

#[test]
fn calls_in_a_circle_over_two_nodes_are_named() {
    let mut f = node();
    let (ours, process) = actor(&mut f);
    let outer = call(root(OURS), 1, ours, OURS);
    f.submit(OURS, &outer);
    f.start(process, outer.id);
    f.ask(process, ToNode::Blocked { lease: ACTOR_LEASE });
    let theirs = ActorId(root(THEIRS).child(0, 7, 0));
    let there = call(outer.id, 2, theirs, process);
    f.submit(process, &there);
    let of_theirs = root(THEIRS).child(0, 8, 0);
    let run = Some(Run { process: THERE, is_blocked: true });
    let runs = OpenTask { task: of_theirs, submission: submitted(root(THEIRS), "far", Work::Call(theirs)), run };
    let back = of_theirs.child(0, 9, 0);
    let back = OpenTask { task: back, submission: submitted(of_theirs, "back", Work::Call(ours)), run: None };
    let mut told = Waits { tasks: vec![runs], actors: vec![(theirs, THERE)], memory: Vec::new() };
    let head = (NodeId::HEAD, Waits::default());
    let text = explain(&mut f, there.id, &[head.clone(), (N3, told.clone())]);
    assert!(!text.contains("circle"), "the other actor waits for something else: {text}");
    told.tasks.push(back);
    for asked in [there.id, outer.id] {
        let text = explain(&mut f, asked, &[head.clone(), (N3, told.clone())]);
        assert!(text.contains("calls in a circle") && text.contains("wait for each other for ever"), "{text}");
        assert!(text.contains(&format!("`far` of {theirs}")) && text.contains(&format!("`back` of {ours}")), "{text}");
    }
    let text = explain(&mut f, there.id, &[head]);
    assert!(!text.contains("circle"), "what a node does not tell in time is not known: {text}");
}

#[test]
fn a_node_tells_of_runs_of_other_owners_and_of_what_they_submitted() {
    let mut f = node();
    let (ours, process) = actor(&mut f);
    let guest = call(root(THEIRS), 3, ours, THEIRS);
    let mut bytes = Vec::new();
    Peer::Call { number: 1, spec: Arc::clone(&guest), resolved: Vec::new() }.encode(&mut bytes);
    f.step(Event::Heard { from: N3, message: Between::Relay { from: THEIRS, to: process, bytes: bytes.into() } });
    f.start(process, guest.id);
    f.ask(process, ToNode::Blocked { lease: ACTOR_LEASE });
    let child = plain(guest.id, 4);
    f.submit(process, &child);
    f.submit(OURS, &plain(root(OURS), 5));
    let effects = f.step(Event::Heard { from: N3, message: Between::WantWaits { request: 6 } });
    let [Effect::Tell { node: N3, message: Between::GiveWaits { request: 6, waits } }] = &effects[..] else {
        panic!("{effects:?}")
    };
    let run = Some(Run { process, is_blocked: true });
    let expected = [
        OpenTask { task: guest.id, submission: None, run },
        OpenTask { task: child.id, submission: submitted(guest.id, "work", Work::Plain), run: None },
    ];
    for task in &expected {
        assert!(waits.tasks.contains(task), "{waits:?}");
    }
    assert_eq!((waits.tasks.len(), &waits.actors[..]), (2, &[(ours, process)][..]));
}

fn memory(process: ProcessId, need: MemoryNeed) -> MemoryWait {
    MemoryWait { process, need, bytes: 40_000_000, ahead: 2, used: 150_000_000, capacity: 150_000_000 }
}

#[test]
fn a_task_that_waits_for_memory_says_how_much_it_needs() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 1, cpus(1.0));
    let task = plain(root(DRIVER), 1);
    f.submit(DRIVER, &task);
    f.start(W2, task.id);
    let other = FunctionKey(99);
    let cases = [
        (MemoryNeed::Start(task.function), Some("its inputs and its output need 40.0 MB together")),
        (MemoryNeed::Start(other), None),
        (MemoryNeed::Read, Some("the objects that it reads need 40.0 MB together")),
        (MemoryNeed::Create, Some("a new object needs 40.0 MB")),
    ];
    for (need, expected) in cases {
        f.step(Event::MemoryAwaited(vec![memory(W3, MemoryNeed::Read), memory(W2, need)]));
        let text = f.node.explain(task.id, f.now);
        let Some(expected) = expected else {
            assert!(!text.contains("memory"), "{text}");
            continue;
        };
        let in_use = "150.0 MB of the 150.0 MB of the object store are in use (2 requests are served before it)";
        assert!(text.ends_with(&format!("; it waits for memory: {expected}, and {in_use}")), "{text}");
    }
    f.step(Event::MemoryAwaited(Vec::new()));
    assert!(!f.node.explain(task.id, f.now).contains("memory"));
}

#[test]
fn a_task_that_waits_for_memory_on_another_node_says_so() {
    let mut f = node();
    let task = plain(root(OURS), 1);
    f.submit(OURS, &task);
    let run = Some(Run { process: THERE, is_blocked: false });
    let tasks = vec![OpenTask { task: task.id, submission: None, run }];
    let waits = Waits { tasks, actors: Vec::new(), memory: vec![memory(THERE, MemoryNeed::Start(task.function))] };
    let text = explain(&mut f, task.id, &[(NodeId::HEAD, Waits::default()), (N3, waits)]);
    assert!(text.starts_with(&format!("{THERE} on {N3} runs {}", task.id)), "{text}");
    assert!(text.contains("it waits for memory: its inputs and its output need 40.0 MB together"), "{text}");
}

#[test]
fn of_many_tasks_those_are_told_that_can_be_on_a_cycle() {
    let id = |n: u64| root(OURS).child(0, n, 0);
    let blocked = Some(Run { process: THERE, is_blocked: true });
    let mut tasks: Vec<OpenTask> = (0..WAITS_TASKS_MAX as u64 + 10)
        .map(|n| OpenTask { task: id(n), submission: submitted(root(OURS), "idle", Work::Plain), run: None })
        .collect();
    let parent = OpenTask { task: id(9_000), submission: None, run: blocked };
    let child = OpenTask { task: id(9_001), submission: submitted(id(9_000), "child", Work::Plain), run: None };
    tasks.extend([parent.clone(), child.clone()]);
    let mut waits = Waits { tasks, ..Waits::default() };
    waits.truncate();
    assert_eq!(waits.tasks.len(), WAITS_TASKS_MAX);
    assert_eq!(waits.tasks[..2], [parent, child]);
}
