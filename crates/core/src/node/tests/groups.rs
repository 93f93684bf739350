//! GROUP-1: placement groups are whole or absent, and what runs in one takes from its bundle.

use super::*;
use crate::failure::Failure;
use crate::id::{GroupId, NodeId};
use crate::ledger::snapshot::GroupStage;
use crate::spec::{GroupStrategy, Shape, Strategy};

fn group(n: u64) -> GroupId {
    GroupId(root(DRIVER).child(1, n, 0))
}

fn create(f: &mut Fixture, n: u64, bundles: &[Resources]) -> Vec<Effect> {
    create_as(f, n, GroupStrategy::Pack, None, bundles)
}

fn create_as(
    f: &mut Fixture,
    n: u64,
    strategy: GroupStrategy,
    name: Option<&str>,
    bundles: &[Resources],
) -> Vec<Effect> {
    let (group, name, bundles) = (group(n), name.map(str::to_owned), bundles.to_vec());
    f.ask(DRIVER, ToNode::CreateGroup { group, name, strategy, bundles, detached: false })
}

fn watch(f: &mut Fixture, n: u64) -> Option<Result<Vec<NodeId>, String>> {
    placed(&f.ask(DRIVER, ToNode::WatchGroup { group: group(n) }))
}

fn placed(effects: &[Effect]) -> Option<Result<Vec<NodeId>, String>> {
    effects.iter().find_map(|effect| match effect {
        Effect::Send { to: DRIVER, message: FromNode::GroupPlaced { result, .. } } => {
            Some(result.clone().map_err(|failure| failure.to_string()))
        }
        _ => None,
    })
}

/// Wants leases in a group and greets every worker that is started for them.
fn enter(f: &mut Fixture, pool: u32, n: u64, bundle: Option<u32>, count: u32, resources: Resources) -> Vec<Effect> {
    let strategy = Strategy::Group { group: group(n), bundle };
    let shape = Shape { resources, strategy, ..Shape::default() };
    let mut effects = f.ask(DRIVER, ToNode::WantLeases { pool, shape, count, depth: 0 });
    for process in spawned(&effects) {
        effects.extend(f.hello(process));
    }
    effects
}

fn refusal(effects: &[Effect]) -> Option<String> {
    effects.iter().find_map(|effect| match effect {
        Effect::Send { message: FromNode::Refused { failure, .. }, .. } => Some(failure.to_string()),
        _ => None,
    })
}

fn free_cpus(f: &Fixture) -> f64 {
    f.node.free.cpus.as_f64()
}

#[test]
fn a_group_takes_all_its_bundles_at_once_or_waits_group_1() {
    let mut f = Fixture::new(4);
    assert_eq!(f.leased(DRIVER, 1, cpus(3.0)).len(), 1);
    assert_eq!(placed(&create(&mut f, 1, &[cpus(1.0), cpus(1.0)])), None);
    assert_eq!((watch(&mut f, 1), free_cpus(&f)), (None, 1.0));
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) });
    assert_eq!(placed(&effects), Some(Ok(vec![NodeId::ALONE; 2])));
    assert_eq!(free_cpus(&f), 2.0);
    assert_eq!(watch(&mut f, 1), Some(Ok(vec![NodeId::ALONE; 2])), "who asks later hears it too");
}

#[test]
fn tasks_of_a_group_take_from_their_bundle_and_others_from_the_rest_res_1() {
    let mut f = Fixture::new(4);
    create(&mut f, 1, &[cpus(1.0), cpus(2.0)]);
    assert_eq!(free_cpus(&f), 1.0);
    assert_eq!(granted(&enter(&mut f, 1, 1, Some(0), 2, cpus(1.0))).len(), 1, "bundle 0 has one CPU");
    assert_eq!(granted(&enter(&mut f, 2, 1, None, 9, cpus(1.0))).len(), 2, "bundle 1 has two");
    assert_eq!(free_cpus(&f), 1.0);
    assert_eq!(f.leased(DRIVER, 9, cpus(1.0)).len(), 1, "one CPU is in no group");
}

#[test]
fn a_blocked_task_lends_its_cpu_to_its_bundle_and_owes_it_there_res_1() {
    let mut f = Fixture::new(2);
    create(&mut f, 1, &[cpus(1.0)]);
    let [(first, at)] = granted(&enter(&mut f, 1, 1, None, 2, cpus(1.0)))[..] else { panic!("one fits") };
    let mut effects = f.ask(at, ToNode::Blocked { lease: first });
    for process in spawned(&effects) {
        effects.extend(f.hello(process));
    }
    assert_eq!(granted(&effects).len(), 1, "its bundle has a CPU again");
    assert_eq!(free_cpus(&f), 1.0, "the machine has not");
    f.ask(at, ToNode::Unblocked { lease: first });
    assert_eq!((f.node.debt, free_cpus(&f)), (Amount(0), 1.0), "the debt is the bundle's");
    f.ask(DRIVER, ToNode::ReturnLease { lease: granted(&effects)[0].0 });
    assert_eq!(granted(&enter(&mut f, 2, 1, None, 1, cpus(1.0))), [], "and is paid first");
    f.ask(DRIVER, ToNode::RemoveGroup { group: group(1) });
    for worker in [W2, W3] {
        f.exit(worker);
    }
    assert_eq!((f.node.debt, free_cpus(&f)), (Amount(0), 2.0));
}

#[test]
fn what_can_never_be_placed_is_refused_at_once_with_the_reason() {
    let mut f = Fixture::new(4);
    let gpus = |n: f64| Resources { gpus: Amount::from_f64("gpus", n).unwrap(), ..Resources::default() };
    let spread = GroupStrategy::StrictSpread;
    let cases: [(GroupStrategy, Vec<Resources>, &str); 7] = [
        (GroupStrategy::Pack, vec![], "0 bundles"),
        (GroupStrategy::Pack, vec![cpus(1.0), Resources::default()], "empty"),
        (GroupStrategy::Pack, vec![cpus(1.0), cpus(5.0)], "bundle 1 asks for 5 CPUs, but there is only 4 CPUs"),
        (GroupStrategy::StrictPack, vec![cpus(3.0), cpus(2.0)], "ask for 5 CPUs together"),
        (spread, vec![cpus(1.0); 2], "STRICT_SPREAD wants 2 nodes for its 2 bundles, and there is only one"),
        (GroupStrategy::Spread, vec![gpus(1.5)], "whole numbers"),
        (GroupStrategy::Pack, vec![gpus(0.6), gpus(0.6)], "together"),
    ];
    for (n, (strategy, bundles, expected)) in (1..).zip(cases) {
        create_as(&mut f, n, strategy, None, &bundles);
        let told = watch(&mut f, n).unwrap().unwrap_err();
        assert!(told.contains(expected), "{told}");
        let refused = refusal(&enter(&mut f, 0, n, None, 1, cpus(0.5))).unwrap();
        assert!(refused.contains(expected), "{refused}");
    }
    assert_eq!(free_cpus(&f), 4.0);
    create_as(&mut f, 9, spread, None, &[cpus(1.0)]);
    assert!(watch(&mut f, 9).unwrap().is_ok(), "one bundle is on one node");
}

#[test]
fn a_bundle_that_is_too_small_or_does_not_exist_is_a_refusal_too() {
    let mut f = Fixture::new(4);
    create(&mut f, 1, &[cpus(1.0), cpus(2.0)]);
    let told = refusal(&enter(&mut f, 0, 1, Some(0), 1, cpus(2.0))).unwrap();
    assert!(told.contains("2 CPUs in bundle 0 of group-") && told.contains("there is only 1 CPUs"), "{told}");
    let told = refusal(&enter(&mut f, 1, 1, Some(2), 1, cpus(1.0))).unwrap();
    assert!(told.contains("bundle 2") && told.contains("bundles 0 to 1"), "{told}");
    let told = refusal(&enter(&mut f, 2, 1, None, 1, cpus(3.0))).unwrap();
    assert!(told.contains("in one bundle") && told.contains("2 CPUs at most"), "{told}");
}

#[test]
fn a_removed_group_ends_what_runs_in_it_and_gives_everything_back() {
    let mut f = Fixture::new(4);
    create(&mut f, 1, &[cpus(2.0)]);
    let [(_, worker)] = granted(&enter(&mut f, 1, 1, None, 1, cpus(1.0)))[..] else { panic!("it fits") };
    let mut actor = (*actor_spec(7, None, 5)).clone();
    let strategy = Strategy::Group { group: group(1), bundle: Some(0) };
    actor.options = Arc::new(TaskOptions { strategy, ..(*actor.options).clone() });
    let actor = Arc::new(actor);
    f.ask(DRIVER, ToNode::CreateActor { spec: actor.clone(), resolved: Vec::new() });
    f.hello(W3);
    f.ask(W3, ToNode::ActorConstructed { actor: actor_of(&actor), value: Value::inline(vec![]) });
    assert!(enter(&mut f, 2, 1, None, 1, cpus(1.0)).is_empty(), "the bundle is full");
    let effects = f.ask(DRIVER, ToNode::RemoveGroup { group: group(1) });
    assert!(effects.contains(&Effect::Kill(worker)) && effects.contains(&Effect::Kill(W3)), "{effects:?}");
    assert!(refusal(&effects).unwrap().contains("it was removed"), "{effects:?}");
    assert_eq!(free_cpus(&f), 2.0, "what is held comes back when its holder is gone");
    let effects = f.exit(worker);
    let told = effects.iter().any(|e| {
        matches!(e, Effect::Send { message: FromNode::ProcessDied(death), .. }
        if death.to_string().contains("placement group"))
    });
    assert!(told, "{effects:?}");
    let effects = f.exit(W3);
    assert_eq!(spawned(&effects), [], "it is not started again");
    assert_eq!((free_cpus(&f), f.node.debt), (4.0, Amount(0)));
    assert!(watch(&mut f, 1).unwrap().unwrap_err().contains("it was removed"));
    assert!(refusal(&enter(&mut f, 3, 1, None, 1, cpus(1.0))).unwrap().contains("it was removed"));
}

#[test]
fn what_a_bundle_owes_is_paid_by_what_the_machine_has_free_when_it_goes_res_1() {
    let mut f = Fixture::new(2);
    create(&mut f, 1, &[cpus(1.0)]);
    let [(first, at)] = granted(&enter(&mut f, 1, 1, None, 2, cpus(1.0)))[..] else { panic!("one fits") };
    let effects = f.ask(at, ToNode::Blocked { lease: first });
    for process in spawned(&effects) {
        f.hello(process);
    }
    f.ask(at, ToNode::Unblocked { lease: first });
    f.ask(DRIVER, ToNode::RemoveGroup { group: group(1) });
    assert_eq!((f.node.debt, free_cpus(&f)), (Amount(0), 0.0), "two tasks of one CPU each are still there");
    for worker in [W2, W3] {
        f.exit(worker);
    }
    assert_eq!((f.node.debt, free_cpus(&f)), (Amount(0), 2.0));
}

#[test]
fn nothing_is_granted_in_a_group_that_is_being_removed_grant_1() {
    let mut f = Fixture::new(3);
    let [(lease, idle)] = f.leased(DRIVER, 1, cpus(1.0))[..] else { panic!("it fits") };
    f.ask(DRIVER, ToNode::ReturnLease { lease });
    create(&mut f, 1, &[cpus(1.0)]);
    let mut actor = (*actor_spec(7, None, 5)).clone();
    let strategy = Strategy::Group { group: group(1), bundle: None };
    actor.options = Arc::new(TaskOptions { strategy, ..(*actor.options).clone() });
    let effects = f.ask(DRIVER, ToNode::CreateActor { spec: Arc::new(actor), resolved: Vec::new() });
    assert_eq!(spawned(&effects).len(), 1, "a process starts for it, while {idle} is idle");
    assert_eq!(granted(&enter(&mut f, 1, 1, None, 1, cpus(1.0))), [], "the bundle is full");
    let effects = f.ask(DRIVER, ToNode::RemoveGroup { group: group(1) });
    assert_eq!(granted(&effects), [], "what the actor gives back is not for the group");
    assert!(refusal(&effects).unwrap().contains("it was removed"));
    assert_eq!((free_cpus(&f), f.node.leases.len()), (3.0, 0));
}

#[test]
fn groups_whose_end_came_first_go_together_and_nothing_is_granted_in_them_grant_1() {
    let mut f = Fixture::new(2);
    assert_eq!(enter(&mut f, 1, 2, None, 1, cpus(1.0)), []);
    f.ask(DRIVER, ToNode::RemoveGroup { group: group(1) });
    create(&mut f, 1, &[cpus(1.0)]);
    f.ask(DRIVER, ToNode::RemoveGroup { group: group(2) });
    create(&mut f, 2, &[cpus(2.0)]);
    let [(lease, _)] = f.leased(DRIVER, 1, cpus(1.0))[..] else { panic!("there is a worker") };
    f.ask(DRIVER, ToNode::ReturnLease { lease });
    let mut effects = Vec::new();
    while f.node.wants_pass() {
        effects.extend(f.step(Event::Passed));
    }
    assert_eq!(granted(&effects), [], "the second had room when the first was gone: {effects:?}");
    assert!(refusal(&effects).unwrap().contains("it was removed"), "{effects:?}");
    assert_eq!(free_cpus(&f), 2.0);
}

#[test]
fn a_run_that_is_repeated_creates_its_group_again() {
    let mut f = Fixture::new(2);
    create(&mut f, 1, &[cpus(1.0)]);
    let [(_, worker)] = granted(&enter(&mut f, 1, 1, None, 1, cpus(1.0)))[..] else { panic!("it fits") };
    create(&mut f, 1, &[cpus(2.0)]);
    assert_eq!(free_cpus(&f), 1.0, "one that is there stays as it is");
    f.ask(DRIVER, ToNode::RemoveGroup { group: group(1) });
    create(&mut f, 1, &[cpus(1.0)]);
    assert_eq!(free_cpus(&f), 0.0);
    assert_eq!(granted(&enter(&mut f, 1, 1, None, 1, cpus(1.0))).len(), 1, "the new bundle is free");
    f.exit(worker);
    assert_eq!(free_cpus(&f), 1.0, "what the old life held is the machine's");
}

#[test]
fn gpus_of_a_bundle_are_its_own_gpu_1() {
    let mut total = Resources::cpus(Amount::whole(8));
    total.gpus = Amount::whole(3);
    let mut f = Fixture::with(NodeConfig { prestart: 0, processes_max: 8, ..NodeConfig::for_machine(total) });
    let gpus = |n: f64| Resources { gpus: Amount::from_f64("gpus", n).unwrap(), ..cpus(1.0) };
    create(&mut f, 1, &[gpus(0.5), gpus(2.0)]);
    let of = |effects: &[Effect]| -> Vec<Vec<u32>> {
        let opened = |effect: &Effect| match effect {
            Effect::Send { message: FromNode::LeaseOpened { gpus, .. }, .. } => Some(gpus.clone()),
            _ => None,
        };
        effects.iter().filter_map(opened).collect()
    };
    let small = Resources { gpus: Amount(5_000), ..Resources::default() };
    assert_eq!(of(&enter(&mut f, 1, 1, Some(0), 2, small.clone())), [[2]], "half of one");
    let whole = Resources { gpus: Amount::whole(1), ..Resources::default() };
    assert_eq!(of(&enter(&mut f, 2, 1, Some(1), 3, whole)), [[0], [1]]);
    let mut effects = f.want_at(DRIVER, 3, 1, small, 0);
    for process in spawned(&effects) {
        effects.extend(f.hello(process));
    }
    assert_eq!(of(&effects), [[2]], "the other half is in no group");
    f.ask(DRIVER, ToNode::RemoveGroup { group: group(1) });
    for worker in f.node.pool.workers.keys().copied().collect::<Vec<_>>() {
        f.exit(worker);
    }
    assert_eq!(f.node.gpus, Gpus::new(Amount::whole(3)));
}

#[test]
fn names_are_found_and_free_again_after_a_removal() {
    let mut f = Fixture::new(4);
    create_as(&mut f, 1, GroupStrategy::Pack, Some("ring"), &[cpus(1.0)]);
    let find = |f: &mut Fixture| {
        let mut effects = f.ask(DRIVER, ToNode::FindGroup { request: 5, name: "ring".into() });
        while f.node.wants_pass() {
            effects.extend(f.step(Event::Passed));
        }
        match &effects[..] {
            [Effect::Send { to: DRIVER, message: FromNode::GroupFound { request: 5, found } }] => {
                found.as_ref().map(|row| row.group)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(find(&mut f), Some(group(1)));
    create_as(&mut f, 2, GroupStrategy::Pack, Some("ring"), &[cpus(1.0)]);
    assert!(watch(&mut f, 2).unwrap().unwrap_err().contains("the name \"ring\" belongs to group-"));
    assert_eq!(find(&mut f), Some(group(1)));
    f.ask(DRIVER, ToNode::RemoveGroup { group: group(1) });
    assert_eq!(find(&mut f), None);
    create_as(&mut f, 3, GroupStrategy::Pack, Some("ring"), &[cpus(1.0)]);
    assert_eq!(find(&mut f), Some(group(3)));
}

#[test]
fn a_group_that_is_on_its_way_is_waited_for_and_one_that_never_was_is_told() {
    let mut f = Fixture::new(4);
    assert_eq!(enter(&mut f, 1, 1, None, 1, cpus(1.0)), []);
    f.step(Event::Passed);
    let mut effects = create(&mut f, 1, &[cpus(1.0)]);
    for process in spawned(&effects) {
        effects.extend(f.hello(process));
    }
    assert_eq!(granted(&effects).len(), 1, "it came in another ring");
    assert_eq!(enter(&mut f, 2, 2, None, 1, cpus(1.0)), []);
    let mut effects = Vec::new();
    while f.node.wants_pass() {
        effects.extend(f.step(Event::Passed));
    }
    assert!(refusal(&effects).unwrap().contains("never created"), "{effects:?}");
    enter(&mut f, 3, 3, None, 1, cpus(2.0));
    let effects = create(&mut f, 3, &[cpus(1.0)]);
    assert!(refusal(&effects).unwrap().contains("2 CPUs in one bundle"), "{effects:?}");
}

#[test]
fn the_groups_of_an_actor_go_with_it_and_detached_ones_stay() {
    let mut f = Fixture::new(4);
    let spec = actor_spec(1, None, 0);
    f.ask(DRIVER, ToNode::CreateActor { spec: spec.clone(), resolved: Vec::new() });
    f.hello(W2);
    for (n, detached) in [(1, false), (2, true)] {
        let (strategy, bundles) = (GroupStrategy::Pack, vec![cpus(1.0)]);
        f.ask(W2, ToNode::CreateGroup { group: group(n), name: None, strategy, bundles, detached });
    }
    assert_eq!(free_cpus(&f), 1.0);
    f.exit(W2);
    assert!(watch(&mut f, 1).unwrap().unwrap_err().contains("the actor that created it is dead"));
    assert!(watch(&mut f, 2).unwrap().is_ok());
    assert_eq!(free_cpus(&f), 3.0);
}

#[test]
fn idle_leases_are_asked_for_when_a_group_waits_and_it_is_not_passed_over_for_ever() {
    let mut f = Fixture::new(2);
    assert_eq!(f.leased(DRIVER, 2, cpus(1.0)).len(), 2);
    create(&mut f, 1, &[cpus(2.0)]);
    f.now = Tick(10_000);
    let asked = f
        .step(Event::Ticked)
        .into_iter()
        .filter(|e| matches!(e, Effect::Send { message: FromNode::Reclaim { .. }, .. }));
    assert_eq!(asked.count(), 2);
    let text = f.node.explain(group(1).0, f.now);
    assert!(text.contains("is queued for 2 CPUs") && text.contains("0 of 2 CPUs are free"), "{text}");
    let mut lease = LeaseId(1);
    for _ in 0..20 {
        f.want(DRIVER, 1, cpus(1.0));
        let effects = f.ask(DRIVER, ToNode::ReturnLease { lease });
        match granted(&effects)[..] {
            [(next, _)] => lease = next,
            _ => break,
        }
    }
    assert_eq!(free_cpus(&f), 1.0, "from now on what comes back is kept for the group");
    f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(2) });
    assert!(watch(&mut f, 1).unwrap().is_ok());
}

#[test]
fn the_tables_say_where_a_group_is_and_what_it_waits_for() {
    let mut f = Fixture::new(2);
    create_as(&mut f, 1, GroupStrategy::Spread, Some("first"), &[cpus(1.0)]);
    create(&mut f, 2, &[cpus(2.0)]);
    create(&mut f, 3, &[cpus(3.0)]);
    let effects = f.ask(DRIVER, ToNode::QueryGroups { request: 1 });
    let [Effect::Send { to: DRIVER, message: FromNode::Groups { request: 1, rows } }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((rows[0].name.as_deref(), rows[0].strategy), (Some("first"), GroupStrategy::Spread));
    assert_eq!((&rows[0].stage, &rows[0].bundles), (&GroupStage::Placed, &vec![(cpus(1.0), Some(NodeId::ALONE))]));
    assert!(matches!(&rows[1].stage, GroupStage::Waiting(text) if text.contains("1 of 2 CPUs are free")), "{rows:?}");
    assert!(matches!(&rows[2].stage, GroupStage::Failed(text) if text.contains("3 CPUs")), "{rows:?}");
    let effects = f.ask(DRIVER, ToNode::QueryNodes { request: 2 });
    assert!(matches!(effects[..], [Effect::Store { request: ToNode::QueryNodes { .. }, .. }]), "{effects:?}");
    let rows = f.node.node_rows(&[], &[]);
    assert_eq!((rows.len(), rows[0].alive, rows[0].free.cpus), (1, true, Amount::whole(1)));
}

#[test]
fn a_task_for_a_node_that_is_not_there_is_refused_unless_it_may_run_elsewhere() {
    let mut f = Fixture::new(1);
    let mut want = |node: u32, soft: bool| {
        let strategy = Strategy::Node { node: NodeId(node), soft };
        let shape = Shape { resources: cpus(1.0), strategy, ..Shape::default() };
        f.ask(DRIVER, ToNode::WantLeases { pool: node, shape, count: 1, depth: 0 })
    };
    let told = refusal(&want(7, false)).unwrap();
    assert!(told.contains("1 CPUs on node 00000007") && told.contains("only node 00000000"), "{told}");
    assert_eq!(refusal(&want(7, true)), None);
    assert_eq!(refusal(&want(0, false)), None);
}

#[test]
fn a_detached_actor_outlives_its_owner_and_its_handles() {
    let mut f = Fixture::new(4);
    assert_eq!(f.leased(DRIVER, 1, cpus(1.0)).len(), 1);
    let options = ActorOptions { name: Some("clock".into()), detached: true, ..ActorOptions::default() };
    let spec = spec(root(W2), 1, TaskKind::Create(options), cpus(1.0));
    f.submit(W2, &spec);
    f.ask(W2, ToNode::CreateActor { spec: spec.clone(), resolved: Vec::new() });
    f.hello(W3);
    f.finish(W3, spec.id, Value::inline(vec![]));
    f.ask(W3, ToNode::ActorConstructed { actor: actor_of(&spec), value: Value::inline(vec![]) });
    assert_eq!(f.ask(W2, ToNode::ReleaseActor { actor: actor_of(&spec) }), []);
    f.exit(W2);
    for process in [DRIVER, W3] {
        f.settle(process, W2);
    }
    let effects = f.ask(DRIVER, ToNode::FindActor { request: 1, name: "clock".into() });
    let found = |found| to(DRIVER, FromNode::ActorFound { request: 1, found });
    assert_eq!(effects, [found(Some((actor_of(&spec), ProcessId::NODE, spec.function)))]);
    let object = actor_of(&spec).object();
    let resolved = FromNode::Resolved { object, value: Value::inline(vec![]), home: NodeId::ALONE };
    let asked = f.ask(DRIVER, ToNode::Resolve { object, home: NodeId::ALONE });
    assert_eq!(asked, [to(DRIVER, resolved)], "its object is there for who finds it");
    let effects = f.ask(DRIVER, ToNode::KillActor { actor: actor_of(&spec), manager: NodeId::ALONE, restart: false });
    assert_eq!(effects, [to(W3, FromNode::End)]);
    f.exit(W3);
    f.settle(DRIVER, W3);
    assert!(!f.node.ledger().knows(object), "and goes with it");
    assert_eq!(free_cpus(&f), 4.0);
}

#[test]
fn a_failure_of_a_group_says_what_to_do() {
    let reason = "it was removed".to_owned();
    let text = Failure::GroupRemoved { group: group(1), reason }.to_string();
    assert!(text.contains("is gone: it was removed") && text.contains("create a placement group anew"), "{text}");
}
