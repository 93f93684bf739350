//! Joins, heartbeats, leases and deaths.

use super::*;
use crate::controller::members::MemberState;

#[test]
fn a_join_is_given_a_number_and_everybody_is_told() {
    let mut cluster = Fixture::new(&[]);
    let effects = cluster.join(11, 4);
    let [Effect::Welcome { link: 11, node: N1, lease_us: 2_000_000, members, rows }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((members.len(), rows.len()), (1, 0));
    let effects = cluster.join(12, 8);
    let [Effect::Send { to: N1, message: FromController::NodeJoined(row) }, welcome] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((row.node, row.address.as_str(), &row.total), (N2, "host-12:1", &cpus(8)));
    let Effect::Welcome { node: N2, members, rows, .. } = welcome else { panic!("{welcome:?}") };
    assert_eq!((members.len(), rows.len(), rows[0].node), (2, 1, N1));
    // Its answer was lost, and it asks again.
    assert!(matches!(&cluster.join(12, 8)[..], [Effect::Welcome { node: N2, .. }]));
}

#[test]
fn a_heartbeat_renews_the_lease_and_brings_what_changed() {
    let mut cluster = Fixture::new(&[4, 4]);
    cluster.now = Tick(1_000_000);
    cluster.beat(N2, 4, 1);
    cluster.now = Tick(1_010_000);
    let effects = cluster.beat(N1, 4, 4);
    let [Effect::Send { to: N1, message: FromController::Renewed { sequence: 1, rows, .. } }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((rows.len(), rows[0].node, rows[0].age_us, &rows[0].load.free), (1, N2, 10_000, &cpus(1)));
    let effects = cluster.beat(N1, 4, 4);
    let [Effect::Send { message: FromController::Renewed { rows, .. }, .. }] = &effects[..] else { panic!() };
    assert_eq!(rows.len(), 0, "nothing changed");
}

#[test]
fn a_silent_node_is_dead_when_its_lease_is_over_and_not_before() {
    let mut cluster = Fixture::new(&[4, 4]);
    cluster.now = Tick(500_000);
    cluster.beat(N1, 4, 4);
    let until = cluster.controller.members().get(N2).unwrap().until();
    assert_eq!(until, Tick(2_000_000));
    assert_eq!(cluster.controller.deadline(), Some(until));
    assert_eq!(cluster.step(Event::ConnectionLost { node: N2, refused: false }), [], "it may be the network");
    assert_eq!(cluster.at(1_999_999), []);
    let died = FromController::NodeDied { node: N2, departure: Departure::Silent };
    assert_eq!(cluster.at(2_000_000), [Effect::SendAll(died)]);
    assert!(cluster.controller.members().get(N1).is_some());
}

#[test]
fn a_refused_connection_is_death_at_once() {
    let mut cluster = Fixture::new(&[4, 4]);
    let died = FromController::NodeDied { node: N2, departure: Departure::Gone };
    assert_eq!(cluster.step(Event::ConnectionLost { node: N2, refused: true }), [Effect::SendAll(died)]);
    assert_eq!(cluster.step(Event::ConnectionLost { node: N2, refused: true }), [], "once");
}

#[test]
fn what_comes_late_from_the_dead_is_refused_and_their_return_is_another_node_member_2() {
    let mut cluster = Fixture::new(&[4, 4]);
    cluster.step(Event::ConnectionLost { node: N2, refused: true });
    let effects = cluster.beat(N2, 4, 4);
    let [Effect::Reject { node: N2, reason }] = &effects[..] else { panic!("{effects:?}") };
    assert!(reason.contains("node-2 is dead: its process is gone; end your workers and join again"), "{reason}");
    let effects = cluster.beat(NodeId(9), 4, 4);
    assert!(matches!(&effects[..], [Effect::Reject { reason, .. }] if reason.contains("join first")));
    // The same machine again, even with the same join.
    let effects = cluster.join(2, 4);
    assert!(matches!(effects.last(), Some(Effect::Welcome { node: N3, .. })), "{effects:?}");
}

#[test]
fn irregular_heartbeats_make_the_lease_longer_and_never_shorter_member_1() {
    let mut cluster = Fixture::new(&[4]);
    let lease = |cluster: &mut Fixture, at| {
        cluster.now = Tick(at);
        match &cluster.beat(N1, 4, 4)[..] {
            [Effect::Send { message: FromController::Renewed { lease_us, .. }, .. }] => *lease_us,
            other => panic!("{other:?}"),
        }
    };
    for beat in 1..20 {
        assert_eq!(lease(&mut cluster, beat * 100_000), 2_000_000);
    }
    let irregular = lease(&mut cluster, 3_400_000);
    assert!(irregular > 2_000_000 && irregular <= 10_000_000, "{irregular}");
    let until = cluster.controller.members().get(N1).unwrap().until();
    for beat in 1..30 {
        lease(&mut cluster, 3_400_000 + beat * 1_000);
        assert!(cluster.controller.members().get(N1).unwrap().until() >= until, "MEMBER-1");
    }
}

#[test]
fn a_drained_node_takes_nothing_new_and_leaves_when_it_is_empty_or_its_time_is_over() {
    let mut cluster = Fixture::new(&[4, 4, 4]);
    let drain = |node, grace_us| ToController::Drain { request: 5, node, grace_us };
    let effects = cluster.ask(N1, drain(N2, 300_000));
    assert_eq!(
        effects,
        [
            Effect::SendAll(FromController::NodeDraining { node: N2 }),
            sent(N2, FromController::Drain { grace_us: 300_000 }),
            sent(N1, FromController::Draining { request: 5, refused: None }),
        ]
    );
    assert!(matches!(cluster.controller.members().get(N2).unwrap().state(), MemberState::Draining { .. }));
    cluster.ask(N1, drain(N3, 1_000_000));
    let effects = cluster.ask(N3, ToController::Drained);
    let died = |node| Effect::SendAll(FromController::NodeDied { node, departure: Departure::Drained });
    assert_eq!(effects, [sent(N3, FromController::Leave), died(N3)]);
    assert_eq!(cluster.at(299_999), []);
    assert_eq!(cluster.at(300_000), [sent(N2, FromController::Leave)], "it ends what runs there first");
    assert_eq!(cluster.at(400_000), []);
    assert_eq!(cluster.ask(N2, ToController::Drained), [sent(N2, FromController::Leave), died(N2)]);
    for (node, why) in [(N2, "dead"), (N1, "is the head"), (NodeId(9), "not a node of this cluster")] {
        let effects = cluster.ask(N1, drain(node, 1));
        let [Effect::Send { message: FromController::Draining { refused: Some(reason), .. }, .. }] = &effects[..]
        else {
            panic!("{node} is drained: {effects:?}")
        };
        assert!(reason.contains(why), "{reason}");
    }
    assert_eq!(cluster.ask(N1, ToController::Drained), [], "nobody asked it to");
    let died = FromController::NodeDied { node: N1, departure: Departure::Left };
    assert_eq!(cluster.ask(N1, ToController::Leave), [Effect::SendAll(died)]);
}

/// A member that joined as a client does: it takes no work and listens nowhere.
fn client(fixture: &mut Fixture, uid: u128) {
    let (address, labels, total) = (String::new(), BTreeMap::new(), Resources::default());
    let join = Join { uid, identity: uid, role: Role::Client, address, total, labels, driver_only: true };
    fixture.step(Event::JoinAsked { link: uid as u64, join: Box::new(join) });
}

#[test]
fn a_client_that_drains_a_node_is_expelled_and_the_node_stays() {
    let mut fixture = Fixture::new(&[4, 4]);
    client(&mut fixture, 3);
    let effects = fixture.ask(N3, ToController::Drain { request: 7, node: N2, grace_us: 1_000_000 });
    let drained = |effect: &Effect| {
        matches!(
            effect,
            Effect::SendAll(FromController::NodeDraining { .. })
                | Effect::Send { message: FromController::Drain { .. }, .. }
        )
    };
    assert!(!effects.iter().any(drained), "{effects:?}");
    let rows = fixture.controller.members().rows();
    assert_eq!(rows.iter().map(|row| (row.node, row.draining)).collect::<Vec<_>>(), [(N1, false), (N2, false)]);
    let gone = effects.iter().find_map(|effect| match effect {
        Effect::SendAll(FromController::NodeDied { node: N3, departure }) => Some(departure.to_string()),
        _ => None,
    });
    assert_eq!(gone.unwrap(), "it was expelled: node-3, a client, sent Drain, which only nodes may");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Reject { node: N3, .. })));
    // A node may, and so may a client do what clients do.
    client(&mut fixture, 4);
    fixture.ask(NodeId(4), ToController::ListGroups { process: ProcessId::of_node(NodeId(4)), request: 1 });
    let effects = fixture.ask(N1, ToController::Drain { request: 8, node: N2, grace_us: 1_000_000 });
    assert!(effects.iter().any(drained), "{effects:?}");
    assert_eq!(fixture.controller.members().rows().len(), 3);
}

#[test]
fn an_expelled_member_is_dead_for_all_and_its_later_words_are_refused() {
    let mut fixture = Fixture::new(&[4, 4]);
    let effects = fixture.step(Event::Expelled { node: N2, reason: "its token was revoked".to_owned() });
    let [Effect::SendAll(FromController::NodeDied { node: N2, departure })] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(departure.to_string(), "it was expelled: its token was revoked");
    let effects = fixture.beat(N2, 4, 4);
    let [Effect::Reject { node: N2, reason }] = &effects[..] else { panic!("{effects:?}") };
    assert!(reason.contains("its token was revoked"), "{reason}");
    assert!(fixture.step(Event::Expelled { node: N2, reason: String::new() }).is_empty(), "once");
}

#[test]
fn others_hear_with_their_heartbeats_that_a_node_is_drained() {
    let mut cluster = Fixture::new(&[4, 4]);
    cluster.beat(N1, 4, 4);
    cluster.ask(N1, ToController::Drain { request: 5, node: N2, grace_us: 1_000 });
    let effects = cluster.beat(N1, 4, 4);
    let drained = |effect: &Effect| match effect {
        Effect::Send { to: N1, message: FromController::Renewed { rows, .. } } => {
            rows.iter().any(|row| row.node == N2 && row.load.draining)
        }
        _ => false,
    };
    assert!(effects.iter().any(drained), "{effects:?}");
}
