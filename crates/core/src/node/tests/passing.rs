//! Wishes among several nodes: where they are wanted, what is taken back, and who hears that a node idles.

use proptest::prelude::{any, prop_assert, proptest};

use super::*;
use crate::failure::Failure;
use crate::id::JobId;
use crate::message::Between;
use crate::node::passing::OVERDUE_US;
use crate::schedule::{Load, Row};
use crate::spec::{Shape, Strategy};
use crate::value::Location;

const HERE: NodeId = NodeId(1);
const DRIVER_HERE: ProcessId = ProcessId::first_driver(HERE);
const MEGABYTES_100: u64 = 100 << 20;

/// A node with so many CPUs among two others that have two each.
fn among_others(whole_cpus: u64) -> Fixture {
    let total = Resources::cpus(Amount::whole(whole_cpus));
    let job = Some(JobId::new(HERE, 1));
    let config = NodeConfig { id: HERE, job, prestart: 0, processes_max: 8, ..NodeConfig::for_machine(total) };
    let mut fixture = Fixture::with(config);
    fixture.step(Event::Started);
    for node in [2, 3] {
        fixture.step(Event::NodeJoined { node: NodeId(node), total: cpus(2.0) });
    }
    fixture
}

fn shape(strategy: Strategy, near: Vec<Location>) -> Shape {
    Shape { resources: cpus(1.0), strategy, near, ..Shape::default() }
}

fn wish(count: u32, shape: Shape) -> Event {
    Event::Requested { process: DRIVER_HERE, request: ToNode::WantLeases { pool: 0, shape, count, depth: 0 } }
}

fn stored(node: u32, len: u64) -> Location {
    Location { node: NodeId(node), entry: 7, generation: 1, offset: 0, len }
}

/// How many leases each node was asked for, in order.
fn asked(effects: &[Effect]) -> Vec<(u32, u32)> {
    let asked = effects.iter().filter_map(|effect| match effect {
        Effect::Tell { node, message: Between::Asked { request, .. } } => match **request {
            ToNode::WantLeases { count, .. } => Some((node.0, count)),
            _ => None,
        },
        _ => None,
    });
    asked.collect()
}

fn started_here(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Spawn(_))).count()
}

/// A load of two CPUs, so many of them free, and so many waiting.
fn load(free: f64, waiting: u32) -> Load {
    let mut load = Load { free: cpus(free), task_us: 50_000, arena_free_bytes: 1 << 40, ..Load::idle(cpus(2.0)) };
    if waiting > 0 {
        load.enqueue(&cpus(1.0), waiting);
    }
    load
}

fn loads(rows: Vec<(u32, Load)>) -> Event {
    Event::Loads(rows.into_iter().map(|(node, load)| Row { node: NodeId(node), age_us: 0, load }).collect())
}

fn idle(from: u32, node: u32, load: Load) -> Event {
    let message = Between::Idle { node: NodeId(node), load: Box::new(load) };
    Event::Heard { from: NodeId(from), message }
}

#[test]
fn a_task_is_wanted_where_its_large_input_is_although_this_node_is_free() {
    let mut fixture = among_others(2);
    let effects = fixture.step(wish(1, shape(Strategy::Default, vec![stored(3, MEGABYTES_100)])));
    assert_eq!((asked(&effects), started_here(&effects)), (vec![(3, 1)], 0));
    // Without one it stays.
    let mut fixture = among_others(2);
    let effects = fixture.step(wish(1, shape(Strategy::Default, vec![])));
    assert_eq!((asked(&effects), started_here(&effects)), (vec![], 1));
}

#[test]
fn a_request_behind_a_long_task_goes_to_an_idle_node_although_tasks_are_short_as_a_rule() {
    let mut fixture = among_others(1);
    fixture.node.cluster.task_us.add(100);
    assert_eq!(started_here(&fixture.step(wish(1, shape(Strategy::Default, vec![])))), 1);
    let second = ToNode::WantLeases { pool: 1, shape: shape(Strategy::Default, vec![]), count: 1, depth: 0 };
    let effects = fixture.step(Event::Requested { process: DRIVER_HERE, request: second });
    assert_eq!(asked(&effects), [], "the first will soon end");
    fixture.now = fixture.now.plus_us(OVERDUE_US - 1);
    assert_eq!(asked(&fixture.step(loads(vec![(2, load(2.0, 0)), (3, load(0.0, 1))]))), []);
    fixture.now = fixture.now.plus_us(1);
    assert_eq!(asked(&fixture.step(loads(vec![(2, load(2.0, 0)), (3, load(0.0, 1))]))), [(2, 1)]);
}

#[test]
fn several_inputs_count_together_and_so_do_their_copies() {
    let small = |entry| Location { entry, ..stored(3, 40 << 20) };
    let mut fixture = among_others(2);
    let near = vec![stored(2, 60 << 20), small(8), small(9)];
    assert_eq!(asked(&fixture.step(wish(1, shape(Strategy::Default, near)))), [(3, 1)]);
    // Node 3 has no room for more, but node 2 has a copy.
    let mut fixture = among_others(2);
    let (of, at) = (stored(3, MEGABYTES_100), stored(2, MEGABYTES_100));
    fixture.step(Event::Heard { from: NodeId(2), message: Between::CopyMade { of, at } });
    fixture.step(loads(vec![(3, load(0.0, 5))]));
    assert_eq!(asked(&fixture.step(wish(1, shape(Strategy::Default, vec![of])))), [(2, 1)]);
}

#[test]
fn what_is_wanted_elsewhere_starts_here_when_there_is_no_room_there() {
    let mut fixture = among_others(2);
    fixture.step(loads(vec![(2, load(0.0, 9)), (3, load(0.0, 9))]));
    let effects = fixture.step(wish(1, shape(Strategy::Default, vec![stored(3, MEGABYTES_100)])));
    assert_eq!((asked(&effects), started_here(&effects)), (vec![], 1));
}

#[test]
fn a_named_node_is_asked_although_this_one_is_free() {
    for soft in [false, true] {
        let mut fixture = among_others(2);
        let effects = fixture.step(wish(2, shape(Strategy::Node { node: NodeId(2), soft }, vec![])));
        assert_eq!((asked(&effects), started_here(&effects)), (vec![(2, 2)], 0));
    }
}

#[test]
fn a_named_node_that_is_unknown_dead_or_leaving_is_an_error_at_once_that_names_it() {
    let refused = |fixture: &mut Fixture, node: u32| {
        let effects = fixture.step(wish(1, shape(Strategy::Node { node: NodeId(node), soft: false }, vec![])));
        let [Effect::Send { to: DRIVER_HERE, message: FromNode::Infeasible { asked, available, .. } }] = &effects[..]
        else {
            panic!("{effects:?}")
        };
        assert!(asked.contains(&format!("node-{node}")), "{asked}");
        available.clone()
    };
    let mut fixture = among_others(2);
    assert!(refused(&mut fixture, 9).contains("not in the cluster"));
    fixture.step(Event::NodeDied { node: NodeId(2), reason: "was killed".into() });
    assert!(refused(&mut fixture, 2).contains("not in the cluster"));
    fixture.step(loads(vec![(3, Load { draining: true, ..load(2.0, 0) })]));
    assert!(refused(&mut fixture, 3).contains("drained"));
    // One that would be nice to have is no reason to fail.
    let effects = fixture.step(wish(1, shape(Strategy::Node { node: NodeId(9), soft: true }, vec![])));
    assert_eq!(started_here(&effects), 1);
}

#[test]
fn a_spread_wish_is_not_all_granted_here() {
    let mut fixture = among_others(2);
    let effects = fixture.step(wish(6, shape(Strategy::Spread, vec![])));
    assert_eq!((asked(&effects), started_here(&effects)), (vec![(2, 2), (3, 2)], 2));
}

#[test]
fn a_wish_is_taken_back_from_a_node_that_does_not_get_on_with_it_and_goes_to_one_that_idles() {
    let mut fixture = among_others(0);
    fixture.step(loads(vec![(3, load(0.0, 9))]));
    assert_eq!(asked(&fixture.step(wish(1, shape(Strategy::Default, vec![])))), [(2, 1)]);
    fixture.now = Tick(100_000);
    let effects = fixture.step(loads(vec![(2, load(0.0, 1)), (3, load(0.0, 9))]));
    assert_eq!(asked(&effects), [], "nobody is better");
    fixture.now = Tick(200_000);
    let effects = fixture.step(loads(vec![(2, load(0.0, 1)), (3, load(2.0, 0))]));
    assert_eq!(asked(&effects), [(2, 0), (3, 1)]);
}

#[test]
fn a_node_that_idles_gets_what_waits_elsewhere_without_waiting_for_the_next_loads() {
    let mut fixture = among_others(0);
    fixture.step(loads(vec![(3, load(0.0, 9))]));
    assert_eq!(asked(&fixture.step(wish(1, shape(Strategy::Default, vec![])))), [(2, 1)]);
    fixture.step(loads(vec![(2, load(0.0, 1))]));
    fixture.now = Tick(30_000);
    assert_eq!(asked(&fixture.step(idle(3, 3, load(2.0, 0)))), [(2, 0), (3, 1)]);
    // What waits here too.
    let mut fixture = among_others(0);
    fixture.step(loads(vec![(2, load(0.0, 9)), (3, load(0.0, 9))]));
    assert_eq!(asked(&fixture.step(wish(1, shape(Strategy::Default, vec![])))), []);
    assert_eq!(asked(&fixture.step(idle(3, 3, load(2.0, 0)))), [(3, 1)]);
}

#[test]
fn a_node_that_leaves_gives_back_what_waits_there() {
    let mut fixture = among_others(0);
    let effects = fixture.step(wish(4, shape(Strategy::Default, vec![])));
    assert_eq!(asked(&effects), [(2, 2), (3, 2)]);
    fixture.now = Tick(1_000);
    let effects = fixture.step(loads(vec![(2, Load { draining: true, ..load(0.0, 2) })]));
    assert_eq!(asked(&effects)[0], (2, 0));
}

#[test]
fn a_node_that_idles_says_so_where_something_waits_and_no_more_often_than_needed() {
    let mut fixture = among_others(2);
    fixture.now = Tick(10_000);
    let told = |effects: &[Effect]| {
        let idle = |effect: &&Effect| {
            matches!(effect, Effect::Tell { node: NodeId(2), message: Between::Idle { node: HERE, .. } })
        };
        effects.iter().filter(idle).count()
    };
    let effects = fixture.step(loads(vec![(2, load(0.0, 9)), (3, load(0.0, 0))]));
    assert_eq!(told(&effects), 1);
    fixture.now = Tick(10_500);
    assert_eq!(told(&fixture.step(idle(3, 3, load(0.0, 0)))), 0, "it has just said so");
}

#[test]
fn who_waits_here_for_a_third_node_hears_of_one_that_idles() {
    let mut fixture = among_others(2);
    let guest = ProcessId { node: NodeId(3), slot: 1, incarnation: 1 };
    let request = Box::new(ToNode::WantLeases { pool: 0, shape: shape(Strategy::Default, vec![]), count: 5, depth: 0 });
    let job = JobId::new(NodeId(3), 1);
    let message = Between::Asked { process: guest, job, request };
    let effects = fixture.step(Event::Heard { from: NodeId(3), message });
    assert_eq!((asked(&effects), started_here(&effects)), (vec![], 2), "it waits here for the rest");
    let effects = fixture.step(idle(2, 2, load(2.0, 0)));
    let forwarded =
        Effect::Tell { node: NodeId(3), message: Between::Idle { node: NodeId(2), load: Box::new(load(2.0, 0)) } };
    assert!(effects.contains(&forwarded), "{effects:?}");
    // What one has only heard of is not passed on again.
    let effects = fixture.step(idle(3, 2, load(2.0, 0)));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Tell { message: Between::Idle { .. }, .. })));
}

proptest! {
    /// Loads lie: nodes that seem idle never grant. The wish moves ever more seldom, and each move is two messages.
    #[test]
    fn a_wish_does_not_bounce_between_nodes_whose_loads_are_old(lies in proptest::collection::vec(any::<(bool, bool)>(), 100)) {
        let mut fixture = among_others(0);
        fixture.step(wish(1, shape(Strategy::Default, vec![])));
        let mut messages = 0;
        for (two, three) in lies {
            fixture.now = fixture.now.plus_us(100_000);
            let row = |seems_idle: bool| if seems_idle { load(2.0, 0) } else { load(0.0, 1) };
            messages += asked(&fixture.step(loads(vec![(2, row(two)), (3, row(three))]))).len();
            messages += asked(&fixture.step(idle(2, 2, row(two)))).len();
        }
        // Ten seconds: 5 ms doubled eleven times.
        prop_assert!(messages <= 2 * 12, "{} messages", messages);
    }
}

#[test]
fn a_node_that_cannot_start_workers_of_a_job_is_not_asked_again_and_the_owner_hears_why() {
    let mut fixture = among_others(0);
    let effects = fixture.step(wish(1, shape(Strategy::Default, Vec::new())));
    let [(node, 1)] = asked(&effects)[..] else { panic!("{effects:?}") };
    let failure = Failure::Infeasible { asked: "1 CPU".into(), available: "no worker: another Python".into() };
    let message = FromNode::Refused { pool: 0, failure: Box::new(failure) };
    let told = Between::Told { to: DRIVER_HERE, message: Box::new(message) };
    let effects = fixture.step(Event::Heard { from: NodeId(node), message: told });
    assert!(asked(&effects).iter().all(|(_, count)| *count == 0), "{effects:?}");
    let heard = |effect: &Effect| matches!(effect, Effect::Send { to, message: FromNode::Refused { .. } } if *to == DRIVER_HERE);
    assert!(effects.iter().any(heard), "{effects:?}");
    let effects = fixture.step(loads(vec![(2, load(2.0, 0)), (3, load(2.0, 0))]));
    assert_eq!(asked(&effects), vec![], "nothing waits any more");
}

#[test]
fn a_drivers_node_that_has_nothing_to_give_starts_nothing_not_even_what_asks_for_nothing() {
    let mut fixture = among_others(0);
    let shape = Shape { resources: Resources::default(), ..Shape::default() };
    let effects = fixture.step(wish(3, shape));
    assert_eq!(started_here(&effects), 0);
    assert_eq!(asked(&effects).iter().map(|(_, count)| count).sum::<u32>(), 3, "{effects:?}");
}

#[test]
fn a_corrupt_peer_is_ended_by_its_own_node() {
    let mut f = among_others(2);
    let there = ProcessId { node: NodeId(2), slot: 5, incarnation: 1 };
    let passed_on = |effects: Vec<Effect>| {
        let to = |effect: Effect| match effect {
            Effect::Tell { node, message: Between::Asked { request, .. } } => Some((node, *request)),
            _ => None,
        };
        effects.into_iter().find_map(to)
    };
    let corrupt = ToNode::PeerCorrupt { peer: there, reason: "bad length".into() };
    assert_eq!(passed_on(f.ask(DRIVER_HERE, corrupt.clone())), Some((NodeId(2), corrupt)));
}
