//! A node that is being drained: refuses, asks back, sends away, and is empty when it says so.

use super::*;
use crate::id::{JobId, NodeId, ObjectId};
use crate::message::{Between, Peer};
use crate::schedule::{Load, Row};
use crate::value::{Body, Location, RefSpec, Value};

const ME: NodeId = NodeId(2);
const HEAD: NodeId = NodeId::HEAD;
const OTHER: NodeId = NodeId(3);
const OWNER: ProcessId = ProcessId { node: HEAD, slot: 1, incarnation: 1 };

/// A daemon's node of a cluster with a head and one more.
fn member() -> Fixture {
    let config = NodeConfig { id: ME, job: None, prestart: 0, processes_max: 8, ..NodeConfig::for_machine(cpus(2.0)) };
    let mut fixture = Fixture::with(config);
    for node in [HEAD, OTHER] {
        fixture.step(Event::NodeJoined { node, total: cpus(2.0) });
        fixture.step(Event::Loads(vec![Row { node, age_us: 0, load: Load::idle(cpus(2.0)) }]));
    }
    fixture
}

fn heard(fixture: &mut Fixture, from: NodeId, message: Between) -> Vec<Effect> {
    fixture.step(Event::Heard { from, message })
}

fn asked(fixture: &mut Fixture, request: ToNode) -> Vec<Effect> {
    let (process, job, request) = (OWNER, JobId::new(HEAD, 1), Box::new(request));
    heard(fixture, HEAD, Between::Asked { process, job, request })
}

fn wish(count: u32) -> ToNode {
    let shape = crate::spec::Shape { resources: cpus(1.0), ..Default::default() };
    ToNode::WantLeases { pool: 0, shape, count, depth: 0 }
}

fn told(effects: &[Effect]) -> Vec<(NodeId, &FromNode)> {
    let told = effects.iter().filter_map(|effect| match effect {
        Effect::Tell { node, message: Between::Told { message, .. } } => Some((*node, &**message)),
        _ => None,
    });
    told.collect()
}

/// A lease of an owner with the head, and its worker.
fn leased(fixture: &mut Fixture) -> (LeaseId, ProcessId) {
    let effects = asked(fixture, wish(1));
    let [process] = spawned(&effects)[..] else { panic!("{effects:?}") };
    let effects = fixture.hello(process);
    match told(&effects)[..] {
        [(HEAD, FromNode::Granted { lease, worker, .. })] => (*lease, *worker),
        _ => panic!("{effects:?}"),
    }
}

fn place(node: NodeId, entry: u32) -> Location {
    Location { node, entry, generation: 1, offset: 0, len: 1 << 20 }
}

/// Its worker runs a task of the head's and stores the result.
fn stores(fixture: &mut Fixture, (lease, worker): (LeaseId, ProcessId)) -> (RefSpec, Location) {
    let spec = plain(TaskId::root(1, OWNER), 1);
    let (mut bytes, task, at) = (Vec::new(), spec.id, place(ME, 5));
    Peer::Run { lease, spec, resolved: vec![] }.encode(&mut bytes);
    heard(fixture, HEAD, Between::Relay { from: OWNER, to: worker, bytes: bytes.into() });
    fixture.start(worker, task);
    let value = Value { body: Body::Stored(at), nested: vec![] };
    fixture.finish(worker, task, value.clone());
    let mut bytes = Vec::new();
    Peer::Reply { task, attempt: 0, values: vec![value], duration_us: 1 }.encode(&mut bytes);
    fixture.step(Event::Relay { process: worker, to: OWNER, bytes: bytes.into() });
    (RefSpec { object: ObjectId::result(task, 0), owner: OWNER }, at)
}

#[test]
fn wishes_of_others_are_refused_and_leases_asked_back() {
    let mut f = member();
    let (lease, _) = leased(&mut f);
    asked(&mut f, wish(5));
    let effects = f.step(Event::Drain);
    let words = told(&effects);
    assert!(words.contains(&(HEAD, &FromNode::Reclaim { lease })), "{words:?}");
    assert!(words.iter().any(|(_, word)| matches!(word, FromNode::Infeasible { .. })), "{words:?}");
    assert!(f.node.load().draining && !f.node.is_drained());
    let effects = asked(&mut f, wish(1));
    assert!(matches!(told(&effects)[..], [(HEAD, FromNode::Infeasible { .. })]), "{effects:?}");
    asked(&mut f, ToNode::ReturnLease { lease });
    assert!(f.node.is_drained());
}

#[test]
fn a_node_that_is_not_drained_never_says_so() {
    assert!(!member().node.is_drained());
}

#[test]
fn an_actor_goes_with_the_call_that_runs_and_its_death_says_that_it_moved() {
    let mut f = member();
    let spec = actor_spec(1, None, 0);
    let (actor, owner, job) = (actor_of(&spec), OWNER, JobId::new(HEAD, 1));
    let host = Between::Host { spec, resolved: vec![], incarnation: 0, lane: 0, owner, job, waits: false };
    let effects = heard(&mut f, HEAD, host.clone());
    let [process] = spawned(&effects)[..] else { panic!("{effects:?}") };
    f.hello(process);
    f.ask(process, ToNode::ActorConstructed { actor, value: Value::inline(vec![]) });
    let effects = f.step(Event::Drain);
    assert!(effects.contains(&to(process, FromNode::Move)), "{effects:?}");
    let effects = heard(&mut f, HEAD, host);
    assert!(
        matches!(&effects[..], [Effect::Tell { message: Between::Unhosted { failure, .. }, .. }]
            if failure.to_string().contains("node-2 is being drained")),
        "{effects:?}"
    );
    let ended = Death { cause: DeathCause::Exited(0), ..death(process) };
    let effects = f.step(Event::WorkerExited(ended));
    let moved = |effect: &Effect| match effect {
        Effect::Tell { node: HEAD, message: Between::ProcessDied(death) } => death.cause == DeathCause::Moved(ME),
        _ => false,
    };
    assert!(effects.iter().any(moved), "{effects:?}");
}

#[test]
fn the_manager_gives_an_actor_that_moved_another_life_without_a_restart() {
    let mut f = Fixture::with(NodeConfig { id: HEAD, prestart: 0, ..NodeConfig::for_machine(cpus(0.0)) });
    for node in [ME, OTHER] {
        f.step(Event::NodeJoined { node, total: cpus(2.0) });
    }
    let (driver, spec) = (ProcessId::first_driver(HEAD), actor_spec(1, None, 0));
    let actor = actor_of(&spec);
    let host_of = |effects: &[Effect]| {
        let hosts = effects.iter().filter_map(|effect| match effect {
            Effect::Tell { node, message: Between::Host { incarnation, .. } } => Some((*node, *incarnation)),
            _ => None,
        });
        hosts.collect::<Vec<_>>()
    };
    let effects = f.ask(driver, ToNode::CreateActor { spec, resolved: vec![] });
    let [(host, 0)] = host_of(&effects)[..] else { panic!("{effects:?}") };
    let process = ProcessId { node: host, slot: 2, incarnation: 1 };
    for value in [None, Some(Value::inline(vec![]))] {
        heard(&mut f, host, Between::Hosted { actor, incarnation: 0, process, value });
    }
    f.ask(driver, ToNode::WatchActor { actor, manager: HEAD });
    f.step(Event::NodeDraining { node: host });
    let moved = Death { cause: DeathCause::Moved(host), ..death(process) };
    heard(&mut f, host, Between::ProcessDied(Box::new(moved)));
    let effects = heard(&mut f, host, Between::Buried { dead: process });
    let [(next, 1)] = host_of(&effects)[..] else { panic!("{effects:?}") };
    assert_ne!(next, host);
    let restarting =
        |effect: &Effect| matches!(effect, Effect::Send { message: FromNode::ActorRestarting { moved: true, .. }, .. });
    assert!(effects.iter().any(restarting), "{effects:?}");
}

#[test]
fn objects_of_others_go_before_the_node_does() {
    let mut f = member();
    let lease = leased(&mut f);
    let (object, at) = stores(&mut f, lease);
    let effects = f.step(Event::Drain);
    let taken = |effects: &[Effect]| {
        let takers = effects.iter().filter_map(|effect| match effect {
            Effect::Tell { node, message: Between::Take { .. } } => Some(*node),
            _ => None,
        });
        takers.collect::<Vec<_>>()
    };
    let [taker] = taken(&effects)[..] else { panic!("{effects:?}") };
    asked(&mut f, ToNode::ReturnLease { lease: lease.0 });
    assert!(!f.node.is_drained());
    heard(&mut f, taker, Between::NotTaken { at });
    let [second] = taken(&f.step(Event::Passed))[..] else { panic!("nobody else is asked") };
    assert_ne!(second, taker);
    heard(&mut f, HEAD, Between::Kept { of: at, by: Some(second) });
    assert!(f.node.is_drained());
    f.step(Event::NodeDied { node: OTHER, reason: "is gone".into() });
    if second == OTHER {
        assert!(!f.node.is_drained(), "who kept it is gone");
        heard(&mut f, HEAD, Between::Free { at });
    }
    assert!(f.node.is_drained());
    let _ = object;
}

#[test]
fn what_moved_is_found_by_its_first_place_and_freed_with_it() {
    let mut f = Fixture::with(NodeConfig { id: HEAD, prestart: 0, ..NodeConfig::for_machine(cpus(1.0)) });
    let driver = ProcessId::first_driver(HEAD);
    for node in [ME, OTHER] {
        f.step(Event::NodeJoined { node, total: cpus(2.0) });
    }
    let (of, at) = (place(ME, 5), place(OTHER, 8));
    let object = RefSpec { object: ObjectId::result(plain(root(driver), 1).id, 0), owner: driver };
    let kept = Effect::Tell { node: ME, message: Between::Kept { of, by: Some(OTHER) } };
    assert_eq!(heard(&mut f, OTHER, Between::Moved { object, of, at }), [kept]);
    let effects = f.step(Event::NodeDied { node: ME, reason: "it was drained".into() });
    let kept = FromNode::Kept { object: object.object, at: of };
    assert!(effects.contains(&to(driver, kept)), "its owner may not have heard of it: {effects:?}");
    let effects = f.ask(driver, ToNode::Fetch { request: 3, object, at: of });
    let fetch = ToNode::Fetch { request: 3, object, at };
    assert_eq!(effects, [Effect::Store { process: driver, request: fetch }]);
    let effects = f.ask(driver, ToNode::FreeObject { at: of });
    assert!(effects.contains(&Effect::Tell { node: OTHER, message: Between::Free { at } }), "{effects:?}");
}

#[test]
fn copies_of_what_moved_are_found_when_its_new_place_is_lost_and_freed_with_it() {
    let mut f = Fixture::with(NodeConfig { id: HEAD, prestart: 0, ..NodeConfig::for_machine(cpus(1.0)) });
    let (driver, reader) = (ProcessId::first_driver(HEAD), NodeId(9));
    for node in [ME, OTHER, reader] {
        f.step(Event::NodeJoined { node, total: cpus(2.0) });
    }
    let object = RefSpec { object: ObjectId::result(plain(root(driver), 1).id, 0), owner: driver };
    let (of, at, copy, second) = (place(ME, 5), place(OTHER, 8), place(reader, 1), place(reader, 2));
    heard(&mut f, reader, Between::CopyMade { of, at: copy });
    heard(&mut f, OTHER, Between::Moved { object, of, at });
    let freed = |at: Location| Effect::Tell { node: at.node, message: Between::Free { at } };
    assert_eq!(heard(&mut f, reader, Between::CopyMade { of: at, at: second }), [freed(copy)], "one is enough");
    for node in [OTHER, ME] {
        f.step(Event::NodeDied { node, reason: "was silent".into() });
    }
    let found = FromNode::CopyFound { object: object.object, found: Ok(second) };
    let effects = f.ask(driver, ToNode::FindCopy { object: object.object, at: of, home: HEAD });
    assert!(effects.contains(&to(driver, found)), "{effects:?}");
    let effects = f.ask(driver, ToNode::FreeObject { at: of });
    assert!(effects.contains(&freed(second)), "{effects:?}");
}

#[test]
fn a_node_takes_what_another_that_is_drained_has_and_tells_the_owners_node() {
    let mut f = member();
    let object = RefSpec { object: ObjectId::result(plain(TaskId::root(1, OWNER), 1).id, 0), owner: OWNER };
    let (of, at) = (place(OTHER, 4), place(ME, 9));
    assert_eq!(heard(&mut f, OTHER, Between::Take { object, at: of }), [Effect::Bring { object, at: of }]);
    let effects = f.step(Event::Copied { object, of, at: Some(at) });
    let moved = Effect::Tell { node: HEAD, message: Between::Moved { object, of, at } };
    assert_eq!(effects, [Effect::Promote(at), moved]);
    heard(&mut f, OTHER, Between::Take { object, at: place(OTHER, 6) });
    let refused = Effect::Tell { node: OTHER, message: Between::NotTaken { at: place(OTHER, 6) } };
    assert_eq!(f.step(Event::NotBrought { of: place(OTHER, 6) }), [refused]);
}

#[test]
fn a_copy_that_is_made_when_its_owners_node_is_dead_goes_at_once() {
    let mut f = member();
    let object = RefSpec { object: ObjectId::result(plain(TaskId::root(1, OWNER), 1).id, 0), owner: OWNER };
    f.step(Event::NodeDied { node: HEAD, reason: "its process is gone".into() });
    let at = place(ME, 9);
    let effects = f.step(Event::Copied { object, of: place(OTHER, 4), at: Some(at) });
    assert_eq!(effects, [Effect::FreeStored(at)]);
}

#[test]
fn nodes_that_take_no_work_are_not_asked_to_take_objects() {
    let idle = || Load::idle(cpus(2.0));
    let unfit =
        [Load { draining: true, ..idle() }, Load { driver_only: true, ..idle() }, Load { pressed: true, ..idle() }];
    for load in unfit {
        let mut f = member();
        f.step(Event::Loads(vec![Row { node: OTHER, age_us: 0, load: load.clone() }]));
        let lease = leased(&mut f);
        stores(&mut f, lease);
        let effects = f.step(Event::Drain);
        let takers = effects.iter().filter_map(|effect| match effect {
            Effect::Tell { node, message: Between::Take { .. } } => Some(*node),
            _ => None,
        });
        assert_eq!(takers.collect::<Vec<_>>(), [HEAD], "{load:?}");
    }
}

#[test]
fn what_lies_on_a_dead_node_is_not_fetched_from_there() {
    let mut f = member();
    let object = RefSpec { object: ObjectId::result(TaskId::root(1, OWNER), 0), owner: OWNER };
    let mut sought = |node| {
        let mut effects = Vec::new();
        f.node.sought(DRIVER, 1, object, Ok(place(node, 3)), &mut effects);
        effects
    };
    let fetched = |effects: &[Effect]| matches!(effects, [Effect::Store { request: ToNode::Fetch { .. }, .. }]);
    assert!(fetched(&sought(OTHER)));
    let effects = sought(NodeId(9));
    let [Effect::Send { message: FromNode::Located { located: Err(reason), .. }, .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(reason.contains("which is gone"), "{reason}");
    assert!(!fetched(&sought(ME)), "it is here");
}

#[test]
fn names_and_unknown_code_are_asked_of_the_head() {
    let mut f = member();
    let (_, worker) = leased(&mut f);
    let options = ActorOptions { name: Some("keeper".into()), ..ActorOptions::default() };
    let create = spec(TaskId::root(1, worker), 1, TaskKind::Create(options), cpus(1.0));
    f.submit(worker, &create);
    let effects = f.ask(worker, ToNode::CreateActor { spec: create, resolved: Vec::new() });
    let asks = |e: &Effect| matches!(e, Effect::Tell { node: HEAD, message: Between::TakeName { .. } });
    assert!(effects.iter().any(asks), "{effects:?}");
    let effects = f.ask(worker, ToNode::Lookup { request: 4, function: FunctionKey(77) });
    let passed = |e: &Effect| matches!(e, Effect::Tell { node: HEAD, message: Between::Asked { .. } });
    assert!(effects.iter().any(passed), "{effects:?}");
}
