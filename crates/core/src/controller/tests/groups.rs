//! Placement groups: plans, the two steps, deaths, removal.

use super::*;
use crate::controller::groups::NAME_BYTES_MAX;
use crate::ledger::snapshot::GroupStage;

fn prepares(effects: &[Effect]) -> Vec<(NodeId, Vec<u32>)> {
    let prepare = |effect: &Effect| match effect {
        Effect::Send { to, message: FromController::Prepare { bundles, .. } } => {
            Some((*to, bundles.iter().map(|(bundle, _)| *bundle).collect()))
        }
        _ => None,
    };
    effects.iter().filter_map(prepare).collect()
}

fn at(id: u128, bundles: &[u64], placement: Placement) -> FromController {
    FromController::GroupAt { group: group(id), bundles: bundles.iter().map(|n| cpus(*n)).collect(), placement }
}

fn release(node: NodeId, id: u128, attempt: Option<u32>, reason: &str) -> Effect {
    sent(node, FromController::Release { group: group(id), attempt, reason: reason.to_owned() })
}

fn refusal(effects: &[Effect]) -> String {
    match effects {
        [Effect::Send { message: FromController::GroupAt { placement: Placement::Failed { reason }, .. }, .. }] => {
            reason.clone()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_packing_picks_its_nodes() {
    let plan = |sizes: &[u64], packing, bundles: &[u64]| {
        prepares(&Fixture::new(sizes).create(1, packing, bundles))
            .into_iter()
            .map(|(n, b)| (n.0, b))
            .collect::<Vec<_>>()
    };
    assert_eq!(plan(&[2, 4, 8], Packing::StrictPack, &[2, 2]), [(2, vec![0, 1])], "the tightest");
    assert_eq!(plan(&[1, 4, 3], Packing::Pack, &[2, 1, 2, 1]), [(2, vec![0, 2]), (3, vec![1, 3])]);
    assert_eq!(plan(&[4, 4, 4], Packing::Spread, &[1, 1, 1]), [(1, vec![0]), (2, vec![1]), (3, vec![2])]);
    assert_eq!(plan(&[4, 4], Packing::Spread, &[1, 1, 1]), [(1, vec![0, 2]), (2, vec![1])], "as far as it goes");
    // Only the third node is large enough for the second bundle: the others make way.
    assert_eq!(plan(&[2, 2, 4], Packing::StrictSpread, &[2, 4, 2]), [(1, vec![0]), (2, vec![2]), (3, vec![1])]);
}

#[test]
fn what_can_never_fit_is_refused_at_once_with_the_reason() {
    let mut cluster = Fixture::new(&[2, 4, 0]);
    let mut reason = |packing, bundles: &[u64]| refusal(&cluster.create(1, packing, bundles));
    assert!(reason(Packing::Pack, &[5]).contains("a bundle of 5 CPUs: the largest, node-2, has 4 CPUs"));
    assert!(reason(Packing::StrictPack, &[3, 3]).contains("all bundles together (6 CPUs), which a strict pack needs"));
    assert!(reason(Packing::StrictSpread, &[1, 1, 1]).contains("each of 3 bundles, and the 2 nodes"));
    assert!(reason(Packing::StrictSpread, &[3, 3]).contains("a node of its own"));
    assert!(reason(Packing::Spread, &[4, 3]).contains("all nodes together cannot give 7 CPUs"));
    assert!(reason(Packing::Pack, &[]).contains("1 to 1000 bundles"));
    assert!(reason(Packing::Pack, &[0]).contains("each asks for something"));
    assert_eq!(cluster.controller.groups().rows().count(), 0);
}

#[test]
fn a_group_is_committed_when_all_have_prepared_and_ready_when_all_have_committed_group_1() {
    let mut cluster = Fixture::new(&[2, 2]);
    let effects = cluster.create(1, Packing::StrictSpread, &[2, 2]);
    assert_eq!(prepares(&effects), [(N1, vec![0]), (N2, vec![1])]);
    assert_eq!(cluster.prepared(N1, 1, 1, None), []);
    let commit = |node| sent(node, FromController::Commit { group: group(1), attempt: 1 });
    assert_eq!(cluster.prepared(N2, 1, 1, None), [commit(N1), commit(N2)]);
    assert_eq!(cluster.committed(N2, 1, 1), []);
    let placement = Placement::Placed { nodes: vec![N1, N2] };
    let ready = at(1, &[2, 2], placement.clone());
    assert_eq!(cluster.committed(N1, 1, 1), [sent(N1, ready)]);
    let effects = cluster.ask(N2, ToController::WatchGroup { group: group(1) });
    assert_eq!(effects, [sent(N2, at(1, &[2, 2], placement.clone()))]);
    let again = cluster.create(1, Packing::Pack, &[1]);
    assert_eq!(again, [sent(N1, at(1, &[2, 2], placement))], "the same again is no other");
    assert_eq!(cluster.controller.groups().rows().count(), 1);
}

#[test]
fn one_refusal_gives_everything_back_and_the_group_is_tried_again_when_something_comes_free() {
    let mut cluster = Fixture::new(&[2, 2]);
    cluster.create(1, Packing::StrictSpread, &[2, 2]);
    cluster.prepared(N1, 1, 1, None);
    let effects = cluster.prepared(N2, 1, 1, Some("only 1 is free"));
    assert_eq!(effects, [release(N1, 1, Some(1), "node-2 refused: only 1 is free")]);
    let Placement::Waiting { why } = cluster.placement(1) else { panic!() };
    assert!(why.contains("node-2 refused: only 1 is free"), "{why}");
    assert_eq!(cluster.prepared(N1, 1, 1, None), [], "an answer of the try before");
    cluster.beat(N1, 2, 2);
    assert_eq!(prepares(&cluster.at(10_000)), [], "not enough yet");
    let Placement::Waiting { why } = cluster.placement(1) else { panic!() };
    assert!(why.contains("no nodes have these bundles free now: 2 CPUs; 2 CPUs"), "{why}");
    cluster.beat(N2, 2, 2);
    assert_eq!(cluster.controller.deadline(), Some(Tick(20_000)));
    let effects = cluster.at(20_000);
    assert_eq!(prepares(&effects), [(N1, vec![0]), (N2, vec![1])]);
}

#[test]
fn a_node_that_joins_lets_a_waiting_group_be() {
    let mut cluster = Fixture::new(&[4]);
    cluster.beat(N1, 4, 1);
    assert_eq!(prepares(&cluster.create(1, Packing::Pack, &[2])), []);
    assert_eq!(prepares(&cluster.join(2, 4)), [(N2, vec![0])]);
}

fn placed(sizes: &[u64], packing: Packing, bundles: &[u64]) -> Fixture {
    let mut cluster = Fixture::new(sizes);
    let nodes = prepares(&cluster.create(1, packing, bundles));
    for (node, _) in &nodes {
        cluster.prepared(*node, 1, 1, None);
    }
    for (node, _) in &nodes {
        cluster.committed(*node, 1, 1);
    }
    assert!(matches!(cluster.placement(1), Placement::Placed { .. }));
    cluster
}

#[test]
fn the_bundles_of_a_dead_node_are_placed_again_and_the_others_stay() {
    let mut cluster = placed(&[2, 2], Packing::StrictSpread, &[1, 1]);
    let effects = cluster.step(Event::ConnectionLost { node: N2, refused: true });
    assert_eq!(prepares(&effects), [], "nobody else may have it");
    let Placement::Rescheduling { nodes, .. } = cluster.placement(1) else { panic!() };
    assert_eq!(nodes, [Some(N1), None]);
    assert_eq!(prepares(&cluster.join(3, 2)), [(N3, vec![1])], "only what was lost");
    cluster.prepared(N3, 1, 2, None);
    cluster.committed(N3, 1, 2);
    assert_eq!(cluster.placement(1), Placement::Placed { nodes: vec![N1, N3] });
}

#[test]
fn a_death_between_the_steps_leaves_no_half_of_a_group() {
    let mut cluster = Fixture::new(&[2, 2, 2]);
    cluster.create(1, Packing::StrictSpread, &[2, 2]);
    cluster.prepared(N1, 1, 1, None);
    let effects = cluster.step(Event::ConnectionLost { node: N2, refused: true });
    assert!(effects.contains(&release(N1, 1, Some(1), "node-2 died")));
    assert!(matches!(cluster.placement(1), Placement::Waiting { .. }));
    cluster.beat(N1, 2, 2);
    assert_eq!(prepares(&cluster.at(10_000)), [(N1, vec![0]), (N3, vec![1])]);
    cluster.prepared(N1, 1, 2, None);
    cluster.prepared(N3, 1, 2, None);
    cluster.committed(N1, 1, 2);
    cluster.step(Event::ConnectionLost { node: N3, refused: true });
    let Placement::Rescheduling { nodes, .. } = cluster.placement(1) else { panic!() };
    assert_eq!(nodes, [Some(N1), None]);
}

#[test]
fn a_removed_group_is_given_back_everywhere_and_its_name_is_free() {
    let mut cluster = Fixture::new(&[2, 2]);
    let named = || GroupSpec { name: Some("n/ring".into()), ..detached(Packing::Spread, &[1, 1]) };
    cluster.create_as(N2, 1, named());
    assert!(refusal(&cluster.create_as(N2, 2, named())).contains("\"n/ring\" belongs to group-"));
    let process = ProcessId::first_driver(N1);
    let find = |cluster: &mut Fixture| {
        let effects = cluster.ask(N1, ToController::FindGroup { process, request: 2, name: "n/ring".into() });
        match &effects[..] {
            [Effect::Send { to: N1, message: FromController::GroupFound { request: 2, found, .. } }] => {
                found.as_ref().map(|row| (row.group, row.detached))
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(find(&mut cluster), Some((group(1), true)));
    let effects = cluster.remove(N1, 1, "it was removed");
    let removed = Placement::Removed { reason: "it was removed".into() };
    let told = sent(N2, at(1, &[1, 1], removed.clone()));
    let expected = [release(N1, 1, None, "it was removed"), release(N2, 1, None, "it was removed"), told];
    assert_eq!(effects, expected, "also what is only being prepared");
    assert_eq!(find(&mut cluster), None);
    assert_eq!(cluster.prepared(N1, 1, 1, None), [], "an answer that comes late");
    assert_eq!(cluster.remove(N1, 1, "again"), []);
    let effects = cluster.ask(N1, ToController::WatchGroup { group: group(1) });
    assert_eq!(effects, [sent(N1, at(1, &[1, 1], removed))], "who asks later hears it too");
    cluster.beat(N1, 2, 2);
    assert!(matches!(prepares(&cluster.create_as(N2, 1, named()))[..], [_, _]), "it may be created again");
}

#[test]
fn a_group_goes_with_what_it_was_made_for_and_its_keeper_says_when() {
    let mut cluster = Fixture::new(&[2, 2, 2]);
    let job = Ends::WithJob(JobId::new(N2, 1));
    let actor = Ends::WithActor { actor: ActorId(TaskId::from_raw(9)), manager: N3 };
    for (id, ends) in [(1, job), (2, actor)] {
        let effects = cluster.create_as(N1, id, GroupSpec { ends, ..detached(Packing::Pack, &[1]) });
        let keep = FromController::KeepGroup { group: group(id), ends };
        assert_eq!(effects[0], sent(ends.keeper().unwrap(), keep));
    }
    let effects = cluster.remove(N3, 2, "the actor that created it is dead");
    let reason = "the actor that created it is dead".to_owned();
    assert!(effects.contains(&sent(N1, at(2, &[1], Placement::Removed { reason }))), "{effects:?}");
    let effects = cluster.step(Event::ConnectionLost { node: N2, refused: true });
    let reason = "its job has ended: node-2 is gone, and with it the driver".to_owned();
    assert!(effects.contains(&sent(N1, at(1, &[1], Placement::Removed { reason }))), "{effects:?}");
    assert_eq!(cluster.controller.groups().rows().count(), 0);
    let effects = cluster.create_as(N1, 3, GroupSpec { ends: job, ..detached(Packing::Pack, &[1]) });
    assert!(
        matches!(&effects[..], [Effect::Send { to: N1, message: FromController::GroupAt {
        placement: Placement::Removed { reason }, .. } }] if reason.contains("its job has ended")),
        "{effects:?}"
    );
}

#[test]
fn a_group_that_is_asked_about_before_it_is_there_is_waited_for() {
    let mut cluster = Fixture::new(&[2, 2]);
    assert_eq!(cluster.ask(N2, ToController::WatchGroup { group: group(1) }), []);
    let effects = cluster.create(1, Packing::Pack, &[1]);
    assert!(effects.iter().any(|e| matches!(e, Effect::Send { to: N2, message: FromController::GroupAt { .. } })));
    assert_eq!(cluster.remove(N2, 2, "it was removed"), []);
    let removed = Placement::Removed { reason: "it was removed".into() };
    assert_eq!(cluster.create(2, Packing::Pack, &[1]), [sent(N1, at(2, &[1], removed))], "its end came first");
    assert_eq!(cluster.ask(N2, ToController::WatchGroup { group: group(3) }), []);
    let due = cluster.controller.deadline().unwrap();
    for node in [N1, N2] {
        cluster.beat(node, 2, 2);
    }
    let mut effects = Vec::new();
    while cluster.now < Tick(5_000_000) {
        effects.extend(cluster.at(cluster.now.0 + 500_000));
        for node in [N1, N2] {
            cluster.beat(node, 2, 2);
        }
    }
    assert!(due <= Tick(4_000_000));
    let told = effects.iter().find_map(|effect| match effect {
        Effect::Send { to: N2, message: FromController::GroupAt { group: id, placement, .. } } if *id == group(3) => {
            Some(placement.clone())
        }
        _ => None,
    });
    assert!(matches!(&told, Some(Placement::Removed { reason }) if reason.contains("never created")), "{told:?}");
}

#[test]
fn the_table_shows_where_bundles_are_and_what_they_wait_for() {
    let mut cluster = placed(&[2, 2], Packing::StrictSpread, &[1, 1]);
    cluster.create(2, Packing::Pack, &[9]);
    cluster.step(Event::ConnectionLost { node: N2, refused: true });
    let process = ProcessId::first_driver(N1);
    let effects = cluster.ask(N1, ToController::ListGroups { process, request: 5 });
    let [Effect::Send { to: N1, message: FromController::GroupsListed { request: 5, rows, .. } }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(rows[0].bundles, [(cpus(1), Some(N1)), (cpus(1), None)]);
    assert!(matches!(&rows[0].stage, GroupStage::Rescheduling(_)), "{rows:?}");
    assert!(matches!(&rows[1].stage, GroupStage::Failed(why) if why.contains("9 CPUs")), "{rows:?}");
}

/// The nodes that are to keep what comes free, and in which try.
fn insisted(effects: &[Effect]) -> Vec<(NodeId, u32)> {
    let prepare = |effect: &Effect| match effect {
        Effect::Send { to, message: FromController::Prepare { attempt, waits: true, .. } } => Some((*to, *attempt)),
        _ => None,
    };
    effects.iter().filter_map(prepare).collect()
}

/// Time goes by while nodes of 2 CPUs renew their leases and never have one free.
fn busy_until(cluster: &mut Fixture, us: u64) -> Vec<Effect> {
    let mut effects = Vec::new();
    while cluster.now < Tick(us) {
        effects.extend(cluster.at((cluster.now.0 + 100_000).min(us)));
        for node in [N1, N2, N3] {
            effects.extend(cluster.beat(node, 2, 0));
        }
    }
    effects
}

#[test]
fn what_comes_free_is_kept_for_the_group_that_has_waited_longest() {
    let mut cluster = Fixture::new(&[2, 2, 2]);
    busy_until(&mut cluster, 100_000);
    assert_eq!(prepares(&cluster.create(1, Packing::StrictSpread, &[2, 2])), [], "nothing is free");
    assert_eq!(prepares(&cluster.create(2, Packing::Pack, &[1])), []);
    assert_eq!(insisted(&busy_until(&mut cluster, 200_000)), [], "it may come free by itself");
    let effects = busy_until(&mut cluster, 400_000);
    assert_eq!(insisted(&effects), [(N1, 1), (N2, 1)], "and only for one group at a time");
    let Placement::Waiting { why } = cluster.placement(1) else { panic!() };
    assert_eq!(why, "what comes free on node-1, node-2 is kept for it");
    cluster.prepared(N1, 1, 1, None);
    let effects = cluster.prepared(N2, 1, 1, None);
    assert_eq!(effects.len(), 2, "both commit: {effects:?}");
    cluster.committed(N1, 1, 1);
    let effects = cluster.committed(N2, 1, 1);
    assert_eq!(insisted(&effects), [(N3, 1)], "the next one, where the first has nothing");
}

#[test]
fn nodes_that_get_nothing_free_keep_nothing_for_ever_and_others_are_tried() {
    let mut cluster = Fixture::new(&[2, 2, 2]);
    busy_until(&mut cluster, 100_000);
    cluster.create(1, Packing::Pack, &[2]);
    assert_eq!(insisted(&busy_until(&mut cluster, 500_000)), [(N1, 1)]);
    let effects = busy_until(&mut cluster, 2_700_000);
    let reason = "node-1 did not get enough free within 2 s";
    assert!(effects.contains(&release(N1, 1, Some(1), reason)), "{effects:?}");
    assert_eq!(insisted(&effects), [(N2, 2)]);
    assert_eq!(insisted(&busy_until(&mut cluster, 5_000_000)), [(N3, 3)]);
    assert_eq!(insisted(&busy_until(&mut cluster, 7_200_000)), [(N1, 4)], "all were in vain: from the beginning");
    let effects = cluster.step(Event::ConnectionLost { node: N1, refused: true });
    assert_eq!(insisted(&effects), [(N2, 5)], "it has waited long enough");
}

#[test]
fn a_name_has_bounds() {
    let mut cluster = Fixture::new(&[4]);
    let mut named =
        |name: String| cluster.create_as(N1, 1, GroupSpec { name: Some(name), ..detached(Packing::Pack, &[1]) });
    assert!(refusal(&named(String::new())).contains("a name has 1 to"));
    assert!(refusal(&named("n".repeat(NAME_BYTES_MAX + 2))).contains("a name has 1 to"));
    assert_eq!(prepares(&named("n".repeat(NAME_BYTES_MAX))), [(N1, vec![0])]);
}

#[test]
fn whatever_must_outlive_the_controller_makes_a_new_snapshot_due() {
    let mut cluster = Fixture::new(&[4, 4]);
    let mut before = cluster.controller.generation();
    let mut changes = |cluster: &Fixture, what: &str| {
        let now = cluster.controller.generation();
        assert!(now > before, "{what}");
        before = now;
    };
    cluster.create(1, Packing::StrictSpread, &[2, 2]);
    changes(&cluster, "a group is asked for");
    cluster.prepared(N1, 1, 1, None);
    cluster.prepared(N2, 1, 1, None);
    changes(&cluster, "it is committed");
    cluster.committed(N1, 1, 1);
    cluster.committed(N2, 1, 1);
    changes(&cluster, "it is ready");
    cluster.remove(N1, 1, "it is not needed");
    changes(&cluster, "it is removed");
    cluster.ask(N1, ToController::Drain { request: 1, node: N2, grace_us: 1_000 });
    changes(&cluster, "a node is drained");
}
