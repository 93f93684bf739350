//! Placement groups of a cluster, as one of its nodes has part in them.

use super::*;
use crate::controller::groups::{Ends, Placement};
use crate::controller::{FromController, ToController};
use crate::failure::Failure;
use crate::id::{GroupId, JobId, NodeId};
use crate::message::Between;
use crate::spec::{GroupStrategy, Shape, Strategy};

const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);
const N4: NodeId = NodeId(4);
const OURS: ProcessId = ProcessId::first_driver(N2);
const THEIRS: ProcessId = ProcessId::first_driver(N3);
const JOB: JobId = JobId::new(N2, 1);

fn group() -> GroupId {
    GroupId(TaskId::from_raw(77))
}

/// Node 2 of a cluster of four.
fn node(whole_cpus: u64) -> Fixture {
    let total = Resources::cpus(Amount::whole(whole_cpus));
    let config = NodeConfig { id: N2, job: Some(JOB), prestart: 0, ..NodeConfig::for_machine(total.clone()) };
    let mut f = Fixture::with(config);
    for node in [NodeId::HEAD, N3, N4] {
        f.step(Event::NodeJoined { node, total: total.clone() });
    }
    f
}

fn asked(effects: &[Effect]) -> Vec<&ToController> {
    let mut asked = Vec::new();
    for effect in effects {
        if let Effect::AskController(request) = effect {
            asked.push(request);
        }
    }
    asked
}

fn hear(f: &mut Fixture, message: FromController) -> Vec<Effect> {
    f.step(Event::Controller(message))
}

fn at(f: &mut Fixture, bundles: &[f64], placement: Placement) -> Vec<Effect> {
    let bundles = bundles.iter().map(|n| cpus(*n)).collect();
    hear(f, FromController::GroupAt { group: group(), bundles, placement })
}

fn prepare(f: &mut Fixture, attempt: u32, bundles: &[(u32, f64)]) -> Option<String> {
    let bundles = bundles.iter().map(|(index, n)| (*index, cpus(*n))).collect();
    let effects = hear(f, FromController::Prepare { group: group(), attempt, bundles, waits: false });
    match asked(&effects)[..] {
        [ToController::Prepared { refused, .. }] => refused.clone(),
        _ => panic!("{effects:?}"),
    }
}

fn commit(f: &mut Fixture, attempt: u32) -> Vec<Effect> {
    hear(f, FromController::Commit { group: group(), attempt })
}

fn release(f: &mut Fixture, attempt: Option<u32>) -> Vec<Effect> {
    hear(f, FromController::Release { group: group(), attempt, reason: "it was removed".into() })
}

fn want(bundle: Option<u32>, count: u32, each: f64) -> ToNode {
    let shape =
        Shape { resources: cpus(each), strategy: Strategy::Group { group: group(), bundle }, ..Shape::default() };
    ToNode::WantLeases { pool: 0, shape, count, depth: 0 }
}

/// The wishes that are passed on: to whom, and how many leases.
fn passed(effects: &[Effect]) -> Vec<(NodeId, u32)> {
    let wish = |effect: &Effect| match effect {
        Effect::Tell { node, message: Between::Asked { request, .. } } => match &**request {
            ToNode::WantLeases { count, .. } => Some((*node, *count)),
            _ => None,
        },
        _ => None,
    };
    effects.iter().filter_map(wish).collect()
}

fn hosts(effects: &[Effect]) -> Vec<(NodeId, bool)> {
    let host = |effect: &Effect| match effect {
        Effect::Tell { node, message: Between::Host { waits, .. } } => Some((*node, *waits)),
        _ => None,
    };
    effects.iter().filter_map(host).collect()
}

fn greeted(f: &mut Fixture, mut effects: Vec<Effect>) -> Vec<(LeaseId, ProcessId)> {
    for process in spawned(&effects) {
        effects.extend(f.hello(process));
    }
    let told = |effect: &Effect| match effect {
        Effect::Tell { message: Between::Told { message, .. }, .. } => match &**message {
            FromNode::Granted { lease, worker, .. } => Some((*lease, *worker)),
            _ => None,
        },
        _ => None,
    };
    granted(&effects).into_iter().chain(effects.iter().filter_map(told)).collect()
}

fn member(id: u32) -> Option<NodeId> {
    Some(NodeId(id))
}

fn actor_in(bundle: Option<u32>) -> Arc<TaskSpec> {
    let mut spec = (*spec(root(OURS), 1, TaskKind::Create(ActorOptions::default()), cpus(1.0))).clone();
    let strategy = Strategy::Group { group: group(), bundle };
    spec.options = Arc::new(TaskOptions { strategy, ..(*spec.options).clone() });
    Arc::new(spec)
}

#[test]
fn bundles_are_reserved_all_or_none_and_used_only_when_all_nodes_have_theirs_group_1() {
    let mut f = node(4);
    assert!(prepare(&mut f, 1, &[(0, 3.0), (1, 2.0)]).unwrap().contains("only 4 CPUs free"));
    assert_eq!(f.node.load().free, cpus(4.0));
    assert_eq!(prepare(&mut f, 2, &[(0, 1.0), (2, 2.0)]), None);
    assert_eq!(prepare(&mut f, 2, &[(0, 1.0), (2, 2.0)]), None, "the same again");
    assert!(prepare(&mut f, 3, &[(2, 2.0)]).unwrap().contains("here already"));
    assert_eq!(f.node.load().free, cpus(1.0));
    at(&mut f, &[1.0, 1.0, 2.0], Placement::Waiting { why: "not yet".into() });
    let effects = f.ask(OURS, want(Some(2), 1, 1.0));
    assert_eq!(greeted(&mut f, effects), [], "nothing runs before all have committed");
    let effects = commit(&mut f, 2);
    assert!(matches!(asked(&effects)[..], [ToController::Committed { attempt: 2, .. }]), "{effects:?}");
    let [(_, worker)] = greeted(&mut f, effects)[..] else { panic!("it runs in its bundle") };
    release(&mut f, Some(1));
    assert_eq!(f.node.load().free, cpus(1.0), "that try is over");
    let effects = release(&mut f, None);
    assert!(effects.contains(&Effect::Kill(worker)), "{effects:?}");
    assert_eq!(f.node.load().free, cpus(3.0));
    f.exit(worker);
    assert_eq!((f.node.load().free, f.node.reserved_bundles().count()), (cpus(4.0), 0));
}

#[test]
fn a_wish_in_a_group_goes_to_the_nodes_that_have_bundles_for_it() {
    let mut f = node(4);
    let effects = f.ask(OURS, want(None, 3, 1.0));
    assert_eq!(asked(&effects), [&ToController::WatchGroup { group: group() }]);
    assert_eq!(passed(&effects), []);
    let effects = at(&mut f, &[1.0, 1.0, 2.0], Placement::Waiting { why: "no room".into() });
    assert_eq!(passed(&effects), []);
    assert!(f.node.explain(group().0, f.now).contains("waits for its bundles: no room"));
    let effects = at(&mut f, &[1.0, 1.0, 2.0], Placement::Placed { nodes: vec![N3, N4, N4] });
    assert_eq!(passed(&effects), [(N3, 1), (N4, 3)], "nobody knows who has room first");
    let message = FromNode::Granted {
        pool: 0,
        lease: LeaseId::new(N4, 1),
        worker: ProcessId { node: N4, slot: 2, incarnation: 1 },
    };
    let effects = f.step(Event::Heard { from: N4, message: Between::Told { to: OURS, message: Box::new(message) } });
    assert!(matches!(&effects[..], [Effect::Send { to: OURS, .. }]), "{effects:?}");
    let effects = f.ask(OURS, want(None, 1, 1.0));
    assert_eq!(passed(&effects), [(N4, 1)], "what is not needed is taken back");
    let effects = f.ask(OURS, want(None, 0, 1.0));
    assert_eq!(passed(&effects), [(N3, 0), (N4, 0)]);
    assert_eq!(f.node.abroad().wishes, 0);
    assert_eq!(passed(&f.ask(OURS, want(Some(0), 9, 0.5))), [(N3, 2)], "a bundle has a place");
}

#[test]
fn what_a_bundle_can_never_hold_is_refused_and_so_is_what_was_for_a_group_that_is_over() {
    let mut f = node(4);
    f.ask(OURS, want(Some(0), 1, 2.0));
    let refused = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::Send { to: OURS, message: FromNode::Refused { failure, .. } } => Some(failure.to_string()),
            _ => None,
        })
    };
    let effects = at(&mut f, &[1.0, 2.0], Placement::Placed { nodes: vec![N3, N4] });
    assert!(refused(&effects).unwrap().contains("2 CPUs in bundle 0"), "{effects:?}");
    f.ask(OURS, want(Some(1), 1, 2.0));
    assert_eq!(f.ask(OURS, ToNode::WatchGroup { group: group() }).len(), 1, "it is placed");
    let effects = at(&mut f, &[1.0, 2.0], Placement::Removed { reason: "it was removed".into() });
    assert!(refused(&effects).unwrap().contains("is gone: it was removed"), "{effects:?}");
    assert_eq!(passed(&effects), [(N4, 0)], "nothing is left with others");
    let effects = f.ask(OURS, ToNode::WatchGroup { group: group() });
    assert_eq!(asked(&effects), [&ToController::WatchGroup { group: group() }], "the controller remembers");
    let effects = at(&mut f, &[], Placement::Failed { reason: "too large".into() });
    let [Effect::Send { to: OURS, message: FromNode::GroupPlaced { result: Err(failure), .. } }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(matches!(**failure, Failure::GroupUnplaceable { .. }));
}

#[test]
fn a_guest_waits_for_room_in_a_bundle_and_goes_home_when_that_goes() {
    let mut f = node(2);
    let from = |request: ToNode| Between::Asked { process: THEIRS, job: JobId::new(N3, 1), request: Box::new(request) };
    let effects = f.step(Event::Heard { from: N3, message: from(want(None, 1, 1.0)) });
    let infeasible = |effects: &[Effect]| {
        effects.iter().any(|effect| {
            matches!(effect, Effect::Tell { node: N3, message: Between::Told { message, .. } }
            if matches!(**message, FromNode::Infeasible { .. }))
        })
    };
    assert!(infeasible(&effects), "there is no bundle: {effects:?}");
    assert_eq!(prepare(&mut f, 1, &[(0, 1.0)]), None);
    commit(&mut f, 1);
    let effects = f.step(Event::Heard { from: N3, message: from(want(None, 2, 1.0)) });
    assert_eq!(greeted(&mut f, effects).len(), 1, "there is room for one");
    let effects = release(&mut f, None);
    assert!(infeasible(&effects), "the other one waits no more: {effects:?}");
}

#[test]
fn an_owner_whose_wish_is_sent_home_asks_the_controller_again() {
    let mut f = node(2);
    f.ask(OURS, want(None, 1, 1.0));
    let effects = at(&mut f, &[1.0], Placement::Placed { nodes: vec![N3] });
    assert_eq!(passed(&effects), [(N3, 1)]);
    let message = FromNode::Infeasible { pool: 0, asked: String::new(), available: String::new() };
    let effects = f.step(Event::Heard { from: N3, message: Between::Told { to: OURS, message: Box::new(message) } });
    assert_eq!(asked(&effects), [&ToController::WatchGroup { group: group() }]);
    assert_eq!((passed(&effects), f.node.abroad().wishes), (vec![], 0));
    assert_eq!(passed(&at(&mut f, &[1.0], Placement::Placed { nodes: vec![N3] })), [(N3, 1)]);
}

#[test]
fn an_actor_in_a_group_tries_the_nodes_of_its_bundles_one_after_the_other() {
    let mut f = node(2);
    let spec = actor_in(None);
    f.submit(OURS, &spec);
    let effects = f.ask(OURS, ToNode::CreateActor { spec: spec.clone(), resolved: Vec::new() });
    assert_eq!(hosts(&effects), [], "it waits for its group");
    let effects = at(&mut f, &[1.0, 1.0], Placement::Placed { nodes: vec![N3, N4] });
    let [(first, false)] = hosts(&effects)[..] else { panic!("{effects:?}") };
    let full = |f: &mut Fixture, from: NodeId| {
        let failure = Failure::Infeasible { asked: String::new(), available: String::new() };
        let message = Between::Unhosted { actor: actor_of(&spec), incarnation: 0, failure };
        f.step(Event::Heard { from, message })
    };
    let effects = full(&mut f, first);
    let [(second, false)] = hosts(&effects)[..] else { panic!("{effects:?}") };
    assert_ne!(first, second);
    assert_eq!(hosts(&full(&mut f, second)), [], "all are full");
    assert_eq!(hosts(&f.step(Event::Loads(Vec::new()))).len(), 1, "until something changes");
}

#[test]
fn an_actor_for_one_bundle_waits_where_that_is_and_follows_it_when_the_node_dies() {
    let mut f = node(2);
    let spec = actor_in(Some(1));
    f.submit(OURS, &spec);
    at(&mut f, &[1.0, 1.0], Placement::Placed { nodes: vec![N3, N4] });
    f.ask(OURS, ToNode::WatchGroup { group: group() });
    at(&mut f, &[1.0, 1.0], Placement::Placed { nodes: vec![N3, N4] });
    let effects = f.ask(OURS, ToNode::CreateActor { spec: spec.clone(), resolved: Vec::new() });
    assert_eq!(hosts(&effects), [(N4, true)]);
    let effects = f.step(Event::NodeDied { node: N4, reason: "is gone".into() });
    assert_eq!(hosts(&effects), [], "its bundle is nowhere");
    at(&mut f, &[1.0, 1.0], Placement::Rescheduling { nodes: vec![member(3), None], why: "node-4 died".into() });
    let effects = at(&mut f, &[1.0, 1.0], Placement::Placed { nodes: vec![N3, N3] });
    assert_eq!(hosts(&effects), [(N3, true)]);
    let effects = at(&mut f, &[1.0, 1.0], Placement::Removed { reason: "it was removed".into() });
    let failed = effects.iter().any(|effect| {
        matches!(effect, Effect::Send { to: OURS, message: FromNode::ActorCreated { value, .. } }
        if matches!(value.failure(), Some(Failure::GroupRemoved { .. })))
    });
    assert!(failed, "{effects:?}");
}

#[test]
fn a_host_takes_an_actor_into_its_bundle_or_says_that_there_is_no_room() {
    let mut f = node(2);
    let host = |f: &mut Fixture, waits: bool| {
        let (spec, resolved, owner, job) = (actor_in(Some(0)), Vec::new(), THEIRS, JobId::new(N3, 1));
        let message = Between::Host { spec, resolved, incarnation: 0, lane: 0, owner, job, waits };
        f.step(Event::Heard { from: N3, message })
    };
    let unhosted = |effects: &[Effect]| {
        effects.iter().any(|e| matches!(e, Effect::Tell { message: Between::Unhosted { .. }, .. }))
    };
    assert!(unhosted(&host(&mut f, true)), "it has no such bundle");
    prepare(&mut f, 1, &[(0, 1.0)]);
    commit(&mut f, 1);
    f.ask(OURS, ToNode::WatchGroup { group: group() });
    at(&mut f, &[1.0], Placement::Placed { nodes: vec![N2] });
    let effects = f.ask(OURS, want(Some(0), 1, 1.0));
    assert_eq!(greeted(&mut f, effects).len(), 1);
    assert!(unhosted(&host(&mut f, false)), "it is full");
    let effects = host(&mut f, true);
    assert!(!unhosted(&effects) && spawned(&effects).is_empty(), "it waits: {effects:?}");
}

#[test]
fn groups_end_with_the_job_or_the_actor_that_made_them() {
    let mut f = node(2);
    let create = |f: &mut Fixture, detached: bool| {
        let (strategy, bundles) = (GroupStrategy::Spread, vec![cpus(1.0)]);
        let effects = f.ask(OURS, ToNode::CreateGroup { group: group(), name: None, strategy, bundles, detached });
        match asked(&effects)[..] {
            [ToController::CreateGroup { spec, .. }] => spec.ends,
            _ => panic!("{effects:?}"),
        }
    };
    assert_eq!(create(&mut f, true), Ends::Never);
    assert_eq!(create(&mut f, false), Ends::WithJob(JOB));
    let spec = spec(root(OURS), 1, TaskKind::Create(ActorOptions::default()), cpus(1.0));
    f.submit(OURS, &spec);
    f.ask(OURS, ToNode::CreateActor { spec: spec.clone(), resolved: Vec::new() });
    let actor = Ends::WithActor { actor: actor_of(&spec), manager: N2 };
    let removed = |effects: &[Effect]| asked(effects).iter().any(|r| matches!(r, ToController::RemoveGroup { .. }));
    assert!(!removed(&hear(&mut f, FromController::KeepGroup { group: group(), ends: actor })));
    let effects = f.ask(OURS, ToNode::KillActor { actor: actor_of(&spec), manager: N2, restart: false });
    assert!(removed(&effects), "{effects:?}");
    assert!(removed(&hear(&mut f, FromController::KeepGroup { group: group(), ends: actor })), "it is dead already");
    let job = FromController::KeepGroup { group: group(), ends: Ends::WithJob(JOB) };
    assert!(!removed(&hear(&mut f, job.clone())));
    let effects = f.step(Event::DriverGone(death(OURS)));
    assert!(removed(&effects), "{effects:?}");
    assert!(removed(&hear(&mut f, job)), "it has ended already");
}

fn insist(f: &mut Fixture, attempt: u32, bundles: &[(u32, f64)]) -> Vec<Effect> {
    let bundles = bundles.iter().map(|(index, n)| (*index, cpus(*n))).collect();
    hear(f, FromController::Prepare { group: group(), attempt, bundles, waits: true })
}

#[test]
fn bundles_that_are_insisted_on_wait_for_room_and_leases_in_their_way_are_asked_for() {
    let mut f = node(2);
    let leases = f.leased(OURS, 2, cpus(1.0));
    f.now = f.now.plus_us(super::super::leases::RECLAIM_AFTER_US);
    let effects = insist(&mut f, 1, &[(0, 1.0), (1, 1.0)]);
    assert_eq!(asked(&effects), [] as [&ToController; 0], "there is no room yet");
    let reclaimed = effects.iter().filter(|e| matches!(e, Effect::Send { message: FromNode::Reclaim { .. }, .. }));
    assert_eq!(reclaimed.count(), 2, "{effects:?}");
    let effects = f.ask(OURS, ToNode::ReturnLease { lease: leases[0].0 });
    assert_eq!(asked(&effects), [] as [&ToController; 0], "all or none");
    let effects = f.ask(OURS, ToNode::ReturnLease { lease: leases[1].0 });
    assert!(matches!(asked(&effects)[..], [ToController::Prepared { attempt: 1, refused: None, .. }]), "{effects:?}");
    assert_eq!((f.node.load().free, f.node.reserved_bundles().count()), (cpus(0.0), 2));
    release(&mut f, None);
    assert_eq!((f.node.load().free, f.node.reserved_bundles().count()), (cpus(2.0), 0));
}

#[test]
fn steady_work_cannot_overtake_bundles_for_ever_and_a_try_that_is_given_up_is_forgotten() {
    let mut f = node(2);
    let mut leases = f.leased(OURS, 2, cpus(1.0));
    insist(&mut f, 7, &[(0, 2.0)]);
    let want = |pool| {
        let shape = Shape { resources: cpus(1.0), ..Shape::default() };
        ToNode::WantLeases { pool, shape, count: 1, depth: 0 }
    };
    let mut overtaken = 0;
    for pool in 10..60 {
        // Whatever comes free is wanted by others at once, one half at a time.
        f.ask(OURS, want(pool));
        let Some((lease, _)) = leases.pop() else { break };
        let effects = f.ask(OURS, ToNode::ReturnLease { lease });
        let next = greeted(&mut f, effects);
        overtaken += next.len();
        leases.extend(next);
    }
    assert!(overtaken <= 20, "{overtaken} others went first");
    assert_eq!(f.node.reserved_bundles().count(), 1, "the last lease made room for it");
    assert_eq!(f.node.load().free, cpus(0.0));
    release(&mut f, Some(7));
    let mut g = node(2);
    let leases = g.leased(OURS, 2, cpus(1.0));
    insist(&mut g, 7, &[(0, 2.0)]);
    release(&mut g, Some(6));
    release(&mut g, Some(7));
    for (lease, _) in leases {
        let effects = g.ask(OURS, ToNode::ReturnLease { lease });
        assert_eq!(asked(&effects), [] as [&ToController; 0]);
    }
    assert_eq!(g.node.load().free, cpus(2.0));
}

#[test]
fn bundles_of_lent_cpus_are_refused_unless_the_node_has_nothing_else_to_do() {
    let mut f = node(2);
    let leases = f.leased(OURS, 2, cpus(1.0));
    let (lease, worker) = leases[0];
    f.ask(worker, ToNode::Blocked { lease });
    assert!(prepare(&mut f, 1, &[(0, 1.0)]).unwrap().contains("blocked tasks want 1 of its CPUs back"));
    assert_eq!(asked(&insist(&mut f, 2, &[(0, 1.0)])), [] as [&ToController; 0], "another task runs");
    let effects = f.ask(OURS, ToNode::ReturnLease { lease: leases[1].0 });
    assert!(matches!(asked(&effects)[..], [ToController::Prepared { attempt: 2, refused: None, .. }]), "{effects:?}");
    release(&mut f, None);
    assert_eq!(prepare(&mut f, 3, &[(0, 2.0)]), None, "the task that waits may wait for this group");
}

#[test]
fn the_controller_is_told_what_is_free_without_what_is_lent() {
    let mut f = node(2);
    let leases = f.leased(OURS, 2, cpus(1.0));
    let (lease, worker) = leases[0];
    f.ask(worker, ToNode::Blocked { lease });
    let bundles = vec![(0, cpus(1.0))];
    let effects = hear(&mut f, FromController::Prepare { group: group(), attempt: 1, bundles, waits: false });
    let [ToController::Prepared { free, refused: Some(_), .. }] = asked(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(**free, cpus(0.0));
}
