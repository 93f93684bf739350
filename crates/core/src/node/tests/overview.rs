use std::collections::BTreeMap;

use super::*;
use crate::controller::{Departure, MemberRow};
use crate::schedule::{Load, Row};

fn member(node: u32, total: Resources) -> MemberRow {
    MemberRow {
        node: NodeId(node),
        identity: 0,
        role: crate::message::Role::Node,
        address: format!("10.0.0.{node}:7"),
        total,
        labels: BTreeMap::from([("rack".to_owned(), node.to_string())]),
        driver_only: false,
        draining: false,
    }
}

#[test]
fn those_who_wait_are_gathered_by_their_wish_with_who_is_before_them() {
    let mut f = Fixture::new(2);
    f.leased(DRIVER, 1, cpus(1.5));
    f.want_at(DRIVER, 1, 3, cpus(1.0), 0);
    f.want_at(DRIVER, 2, 1, cpus(2.0), 0);
    let task = plain(root(DRIVER), 1);
    f.submit(DRIVER, &task);
    let overview = f.node.overview(f.now);
    let rows: Vec<(&str, u64, &str)> =
        overview.waiting.iter().map(|row| (row.what.as_str(), row.count, row.why.as_str())).collect();
    let free = "node-0 comes nearest with 0.5 CPUs free";
    assert_eq!(
        rows,
        [
            ("tasks that want 1 CPUs", 3, format!("1 CPUs asked, {free}").as_str()),
            ("tasks that want 2 CPUs", 1, format!("2 CPUs asked, {free}; 3 before it").as_str()),
        ]
    );
    assert_eq!((overview.queued, overview.workers), (4, 1));
    assert_eq!((overview.jobs.len(), overview.jobs[0].tasks_open), (1, 1));
    f.start(W2, task.id);
    f.finish(W2, task.id, Value::inline(vec![]));
    assert_eq!(f.node.overview(f.now).jobs[0].tasks_open, 0);
}

#[test]
fn an_overview_that_is_too_long_is_halved_and_counts_what_it_lost() {
    let mut f = Fixture::new(1);
    for pool in 0..4 {
        f.want_at(DRIVER, pool, 1, cpus(f64::from(pool) / 10.0 + 0.5), 0);
    }
    let mut overview = f.node.overview(f.now);
    let rows = overview.waiting.len() + overview.jobs.len();
    assert!(overview.shorten());
    assert_eq!((overview.waiting.len() + overview.jobs.len()) as u64 + overview.rows_left_out, rows as u64);
    while overview.shorten() {}
    assert_eq!((overview.waiting.len(), overview.rows_left_out), (0, rows as u64));
}

#[test]
fn members_are_shown_with_their_last_load_and_the_departed_with_their_end() {
    let mut total = cpus(4.0);
    total.custom.insert("disk".to_owned(), Amount::whole(1));
    let config = NodeConfig { id: NodeId(2), job: None, ..NodeConfig::for_machine(cpus(1.0)) };
    let mut f = Fixture::with(config);
    f.step(Event::NodeJoined { node: NodeId::HEAD, total: total.clone() });
    let mut load = Load { free: cpus(3.0), draining: true, ..Load::idle(total.clone()) };
    load.enqueue(&cpus(2.0), 5);
    f.step(Event::Loads(vec![Row { node: NodeId::HEAD, age_us: 0, load }]));
    let gone = [(member(3, cpus(8.0)), Departure::Left)];
    let rows = f.node.node_rows(&[member(1, total), member(2, cpus(1.0))], &gone);
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (row.node.0, row.role.as_str(), row.alive, row.draining, row.free.cpus.as_f64()))
        .collect();
    assert_eq!(
        shown,
        [(1, "head", true, true, 3.0), (2, "worker", true, false, 1.0), (3, "worker", false, false, 0.0)]
    );
    assert_eq!((rows[0].address.as_str(), rows[0].labels["rack"].as_str()), ("10.0.0.1:7", "1"));
    assert_eq!(rows[2].reason.as_deref(), Some("it left the cluster"));
    assert_eq!((f.node.queued_at(NodeId::HEAD), f.node.queued_at(NodeId(9))), (5, 0));
}
