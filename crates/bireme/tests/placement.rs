//! Placement groups, strategies, detached actors and nodes as users write them. One runtime per process.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::{Duration, Instant};

use bireme::{Bundle, Config, Context, Error, Failure, GroupStage, GroupStrategy, NodeId, PlacementGroup, Strategy};

const PATIENCE: Duration = Duration::from_secs(20);

fn start(cpus: f64) -> Context {
    bireme::init_with(Config::default().cpus(cpus)).unwrap()
}

fn free_cpus() -> f64 {
    bireme::resources().unwrap().free.cpus.as_f64()
}

/// Asks until it holds; a test that passes never gets to the end of its patience.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

fn pair() -> PlacementGroup {
    PlacementGroup::builder().bundles([Bundle::cpus(1.0), Bundle::cpus(2.0)]).create().unwrap()
}

#[bireme::remote]
fn place() -> Option<PlacementGroup> {
    bireme::current_placement_group().unwrap()
}

#[bireme::remote]
fn parent(choose: bool) -> bireme::Result<Option<PlacementGroup>> {
    if choose { place::options().strategy(Strategy::Default).remote().get() } else { place::remote().get() }
}

#[bireme::remote]
fn node() -> NodeId {
    bireme::node_id().unwrap()
}

pub struct Member(i64);

#[bireme::actor]
impl Member {
    pub fn new(start: i64) -> Self {
        Member(start)
    }

    pub fn add(&mut self, n: i64) -> i64 {
        self.0 += n;
        self.0
    }

    pub fn place(&self) -> Option<PlacementGroup> {
        bireme::current_placement_group().unwrap()
    }

    pub fn child_place(&self) -> bireme::Result<Option<PlacementGroup>> {
        place::remote().get()
    }

    pub fn make(&self, detached: bool) -> bireme::Result<PlacementGroup> {
        let group = PlacementGroup::builder().bundle(Bundle::cpus(1.0));
        if detached { group.detached().create() } else { group.create() }
    }
}

#[bireme::remote(retries = 0, cpus = 0)]
fn keep(name: String) -> i64 {
    Member::options().name(&name).detached().remote(10).add(1).get().unwrap()
}

fn failure_of(error: &Error) -> &Failure {
    error.failure().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn a_group_is_whole_and_what_runs_in_it_takes_from_its_bundle() {
    let _context = start(4.0);
    let group = pair();
    group.ready().get().unwrap();
    assert!(group.wait(PATIENCE).unwrap());
    assert_eq!((free_cpus(), group.bundles().len()), (1.0, 2));
    assert_eq!(place::remote().get().unwrap(), None);
    assert_eq!(place::options().strategy(group.any_bundle()).remote().get().unwrap(), Some(group.clone()));
    assert_eq!(
        place::options().cpus(2.0).strategy(group.bundle(1).unwrap()).remote().get().unwrap(),
        Some(group.clone())
    );
    let member = Member::options().cpus(1.0).strategy(group.bundle(0).unwrap()).remote(0);
    assert_eq!(member.place().get().unwrap(), Some(group.clone()));
    assert_eq!(member.child_place().get().unwrap(), None, "only captured children follow");
    eventually("idle leases to end: what runs in the group takes nothing else", || free_cpus() == 1.0);
    group.remove().unwrap();
    // A call that was with the actor before the signal may still be answered.
    eventually("the actor to be ended", || match member.add(1).get() {
        Ok(_) => false,
        Err(error) => {
            assert!(matches!(failure_of(&error), Failure::ActorDied { .. }), "{error}");
            assert!(error.to_string().contains("placement group"), "{error}");
            true
        }
    });
    let error = place::options().strategy(group.any_bundle()).remote().get().unwrap_err();
    assert!(matches!(failure_of(&error), Failure::GroupRemoved { .. }), "{error}");
    assert!(group.ready().get().is_err());
    eventually("everything to come back", || free_cpus() == 4.0);
}

#[test]
fn captured_children_run_in_the_group_unless_they_choose() {
    let _context = start(4.0);
    let group = pair();
    let inside = || parent::options().strategy(group.any_bundle()).capture_child_tasks(true);
    assert_eq!(inside().remote(false).get().unwrap(), Some(group.clone()));
    assert_eq!(inside().remote(true).get().unwrap(), None);
    let member = Member::options().strategy(group.any_bundle()).capture_child_tasks(true).remote(0);
    assert_eq!(member.child_place().get().unwrap(), Some(group.clone()));
    let error = parent::options().capture_child_tasks(true).try_remote(false).unwrap_err();
    assert!(error.to_string().contains("capture_child_tasks needs"), "{error}");
}

#[test]
fn what_can_never_be_placed_is_an_error_at_once_with_the_reason() {
    let _context = start(4.0);
    let large = PlacementGroup::builder().bundle(Bundle::cpus(5.0)).create().unwrap();
    let apart = PlacementGroup::builder().bundles([Bundle::cpus(1.0), Bundle::cpus(1.0)]);
    let apart = apart.strategy(GroupStrategy::StrictSpread).create().unwrap();
    for (group, reason) in [(large, "there is only 4 CPUs"), (apart, "STRICT_SPREAD wants 2 nodes")] {
        let error = group.ready().get_timeout(PATIENCE).unwrap_err();
        assert!(matches!(failure_of(&error), Failure::GroupUnplaceable { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(group.wait(PATIENCE).is_err());
        let task = place::options().cpus(0.0).strategy(group.any_bundle()).remote();
        assert!(task.get().unwrap_err().to_string().contains(reason));
    }
    let group = pair();
    let error = place::options().cpus(3.0).strategy(group.any_bundle()).remote().get().unwrap_err();
    assert!(matches!(failure_of(&error), Failure::Infeasible { .. }), "{error}");
}

#[test]
fn mistakes_are_told_at_the_call() {
    let _context = start(2.0);
    let none = PlacementGroup::builder().create().unwrap_err();
    assert!(none.to_string().contains("1 to 1000 bundles, not 0"), "{none}");
    let empty = PlacementGroup::builder().bundle(Bundle::new()).create().unwrap_err();
    assert!(empty.to_string().contains("bundle 0"), "{empty}");
    let bad = PlacementGroup::builder().bundle(Bundle::cpus(-1.0)).create().unwrap_err();
    assert!(matches!(bad, Error::BadAmount(_)), "{bad}");
    let nameless = PlacementGroup::builder().bundle(Bundle::cpus(1.0)).name("").create().unwrap_err();
    assert!(nameless.to_string().contains("cannot be empty"), "{nameless}");
    let group = PlacementGroup::builder().bundle(Bundle::cpus(1.0)).name("ring").create().unwrap();
    let outside = group.bundle(1).unwrap_err();
    assert!(outside.to_string().contains("has no bundle 1; give 0 to 0"), "{outside}");
    let taken = PlacementGroup::builder().bundle(Bundle::cpus(1.0)).name("ring").create().unwrap_err();
    assert!(taken.to_string().contains("\"ring\" belongs to group-"), "{taken}");
    assert_eq!(bireme::get_placement_group("ring").unwrap(), group);
    assert!(matches!(bireme::get_placement_group("rong"), Err(Error::NoSuchGroup(name)) if name == "rong"));
}

#[test]
fn a_group_that_waits_says_for_what() {
    let _context = start(2.0);
    let first = PlacementGroup::builder().bundle(Bundle::cpus(2.0)).create().unwrap();
    let second = PlacementGroup::builder().bundle(Bundle::cpus(1.0)).create().unwrap();
    assert!(first.wait(PATIENCE).unwrap());
    assert!(!second.wait(Duration::from_millis(50)).unwrap());
    let text = second.ready().get_timeout(Duration::from_millis(50)).unwrap_err().to_string();
    assert!(text.contains("queued for 1 CPUs") && text.contains("0 of 2 CPUs are free"), "{text}");
    let rows = bireme::placement_groups().unwrap();
    let stage = |group: &PlacementGroup| rows.iter().find(|row| row.group == group.id()).unwrap().stage.clone();
    assert_eq!(stage(&first), GroupStage::Placed);
    assert!(matches!(stage(&second), GroupStage::Waiting(text) if text.contains("0 of 2 CPUs")));
    let ready = second.ready();
    first.remove().unwrap();
    ready.get_timeout(PATIENCE).unwrap();
}

#[test]
fn groups_of_an_actor_go_with_it() {
    let _context = start(4.0);
    let member = Member::remote(0);
    let (bound, free) = (member.make(false).get().unwrap(), member.make(true).get().unwrap());
    assert!(bound.wait(PATIENCE).unwrap() && free.wait(PATIENCE).unwrap());
    member.kill().unwrap();
    eventually("the group to go with its actor", || free_cpus() == 3.0);
    let error = bound.wait(PATIENCE).unwrap_err();
    assert!(error.to_string().contains("the actor that created it is dead"), "{error}");
    assert!(free.wait(PATIENCE).unwrap());
}

#[test]
fn strategies_choose_the_node_and_a_missing_one_is_told() {
    let _context = start(2.0);
    let here = bireme::node_id().unwrap();
    let nodes = bireme::nodes().unwrap();
    assert_eq!((nodes.len(), nodes[0].node, nodes[0].alive), (1, here, true));
    for strategy in [
        Strategy::Default,
        Strategy::Spread,
        Strategy::Node { node: here, soft: false },
        Strategy::Node { node: NodeId(255), soft: true },
    ] {
        assert_eq!(node::options().strategy(strategy).remote().get().unwrap(), here);
    }
    let elsewhere = Strategy::Node { node: NodeId(255), soft: false };
    let error = node::options().strategy(elsewhere).remote().get().unwrap_err();
    assert!(error.to_string().contains("on node 000000ff"), "{error}");
    assert!(Member::options().strategy(elsewhere).remote(0).add(1).get().is_err());
}

#[test]
fn a_detached_actor_outlives_its_handles() {
    let _context = start(2.0);
    assert_eq!(keep::remote("kept").get().unwrap(), 11);
    let found = bireme::get_actor::<Member>("kept").unwrap();
    assert_eq!(found.add(1).get().unwrap(), 12);
    found.ready().get().unwrap();
    drop(found);
    let found = bireme::get_actor::<Member>("kept").unwrap();
    assert_eq!(found.add(1).get().unwrap(), 13);
    found.kill().unwrap();
    eventually("the name to be free", || bireme::get_actor::<Member>("kept").is_err());
}

#[bireme::remote(strategy = Strategy::Default)]
fn place_anywhere() -> Option<PlacementGroup> {
    bireme::current_placement_group().unwrap()
}

#[bireme::remote]
fn places_of_children() -> bireme::Result<[Option<PlacementGroup>; 2]> {
    Ok([place::remote().get()?, place_anywhere::remote().get()?])
}

#[test]
fn an_attribute_chooses_the_strategy_of_all_calls() {
    let _context = start(4.0);
    let group = pair();
    let parent = places_of_children::options().strategy(group.any_bundle()).capture_child_tasks(true);
    let [follows, chosen] = parent.remote().get().unwrap();
    assert_eq!((follows, chosen), (Some(group), None));
}
