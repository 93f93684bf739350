//! Where actors and tasks go in a cluster of real processes, and what is shown as free while they do.
//!
//! This binary plays all parts: the nodes are the binary started again.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use bireme::Config;
use rustix::event::{EventfdFlags, eventfd};
use support::{Driver, NODE_FOLDER, PATIENCE, Scratch, turn};

#[bireme::remote(cpus = 0)]
fn double(x: i64) -> i64 {
    2 * x
}

pub struct Place;

#[bireme::actor]
impl Place {
    pub fn new() -> Self {
        Place
    }

    pub fn node(&mut self) -> u32 {
        bireme::node_id().unwrap().0
    }
}

/// The part of a node, until its folder is gone with the test.
#[test]
fn a_node_when_the_environment_asks_for_it() {
    support::be_a_node(|| eventfd(0, EventfdFlags::CLOEXEC).unwrap());
}

struct Node {
    /// Ends the node when it is dropped.
    _part: Driver,
    folder: Scratch,
    address: String,
}

impl Node {
    fn start(name: &str, cpus: &str, resources: &str, head: Option<&str>) -> Self {
        let folder = Scratch::new(name);
        std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o700)).unwrap();
        let path = folder.0.to_str().unwrap().to_owned();
        let mut settings = vec![
            (NODE_FOLDER, path.as_str()),
            ("BIREME_STATE_DIRECTORY", &path),
            ("BIREME_NUM_CPUS", cpus),
            ("BIREME_RESOURCES", resources),
            ("BIREME_OBJECT_STORE_MEMORY", "67108864"),
        ];
        settings.extend(head.map(|head| ("BIREME_ADDRESS", head)));
        let mut part = Driver::start("a_node_when_the_environment_asks_for_it", "node", &settings);
        let address = part.tells("ready").split(' ').nth(1).unwrap().to_owned();
        Self { _part: part, folder, address }
    }

    fn attach(&self) -> bireme::Context {
        bireme::init_with(Config::default().address(self.folder.0.to_str().unwrap())).unwrap()
    }
}

/// How much of a resource is free on all nodes together.
fn free(name: &str) -> f64 {
    let rows = bireme::nodes().unwrap();
    let amounts = rows.iter().filter(|row| row.alive).filter_map(|row| match name {
        "CPU" => Some(row.free.cpus),
        _ => row.free.custom.get(name).copied(),
    });
    amounts.map(|amount| amount.as_f64()).sum()
}

/// How many of these actors are on each node, once all have started.
fn places(actors: &[PlaceHandle]) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    let asked: Vec<_> = actors.iter().map(PlaceHandle::node).collect();
    for place in asked {
        *counts.entry(place.get_timeout(PATIENCE).unwrap()).or_insert(0) += 1;
    }
    counts
}

#[test]
fn actors_start_on_every_node_that_has_what_they_ask_for_after_tasks_have_used_it() {
    let _turn = turn();
    let head = Node::start("placement-head", "1", "r=1", None);
    let _member = Node::start("placement-member", "1", "r=1", Some(&head.address));
    let context = head.attach();
    for round in 0..3 {
        let tasks: Vec<_> = (0..20).map(|x| double::options().resource("r", 1.0).remote(x)).collect();
        let sum: i64 = bireme::get_all(&tasks).unwrap().into_iter().sum();
        assert_eq!(sum, 380);
        assert_eq!(free("r"), 2.0, "round {round}: nothing runs");
        let actors: Vec<_> = (0..2).map(|_| Place::options().cpus(0.0).resource("r", 1.0).remote()).collect();
        assert_eq!(places(&actors).into_values().collect::<Vec<_>>(), [1, 1], "round {round}");
        assert_eq!(free("r"), 0.0, "round {round}: both are in use");
        for actor in &actors {
            actor.kill().unwrap();
        }
        support::eventually("the actors are gone", || free("r") == 2.0);
    }
    context.shutdown();
}

#[test]
fn actors_without_cpus_are_on_all_nodes_and_not_on_a_head_without_cpus() {
    let _turn = turn();
    let head = Node::start("spread-head", "0", "x=1", None);
    let _members = [2, 3].map(|node| Node::start(&format!("spread-{node}"), "2", "", Some(&head.address)));
    let context = head.attach();
    let actors: Vec<_> = (0..10).map(|_| Place::options().cpus(0.0).remote()).collect();
    assert_eq!(places(&actors), BTreeMap::from([(2, 5), (3, 5)]));
    assert_eq!(free("CPU"), 4.0);
    context.shutdown();
}

#[test]
fn what_is_free_is_exact_as_soon_as_the_results_are_there() {
    let mut turn = support::start(support::two_cpus());
    for round in 0..20 {
        let tasks: Vec<_> = (0..8).map(|x| double::options().cpus(1.0).remote(x)).collect();
        bireme::get_all(&tasks).unwrap();
        let row = bireme::resources().unwrap();
        assert_eq!(row.free, row.total, "round {round}");
    }
    turn.end();
}
