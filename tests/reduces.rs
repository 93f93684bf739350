//! Reduces over nodes on hosts with addresses of their own: inputs that come late, stragglers, reduces of reduces, and nodes
//! that are killed while they take part.
//!
//! This binary plays the drivers as well: see [`hosts`].
#![allow(clippy::unwrap_used, missing_docs)]

mod hosts;
mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;

use bireme::{Array, ObjectRef, ReduceBy, ReduceOp, ReducePlan};
use hosts::{Driver, Hosts};
use support::{Gate, PATIENCE};

const ELEMENTS: usize = 1 << 20;

fn element(seed: usize, at: usize) -> f64 {
    ((seed * 31 + at) % 1_000) as f64
}

/// A sum that only this program knows.
#[bireme::op]
fn plus(into: &mut [f64], from: &[f64]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into += from);
}

#[bireme::remote]
fn make(seed: usize) -> Array {
    Array::from((0..ELEMENTS).map(|at| element(seed, at)).collect::<Vec<f64>>())
}

/// Made when the gate opens.
#[bireme::remote]
fn make_late(seed: usize, gate: PathBuf) -> Array {
    support::pass(&gate);
    make(seed)
}

/// Whether an array is the sum of those of these seeds.
fn is_sum(array: &Array, seeds: &[usize], by: f64) -> bool {
    let right = |(at, found): (usize, &f64)| *found == seeds.iter().map(|seed| element(*seed, at)).sum::<f64>() / by;
    array.view::<f64>().unwrap().iter().enumerate().all(right)
}

/// What a driver keeps between two lines: arrays, the seeds that they are made of, and what they are divided by.
#[derive(Default)]
struct Kept {
    arrays: BTreeMap<String, (ObjectRef<Array>, Vec<usize>)>,
    seeds: usize,
}

/// The part of a driver, until its standard input ends.
#[test]
fn a_driver_when_the_environment_asks_for_it() {
    let mut kept = Kept::default();
    hosts::be_a_driver(|words| answer(words, &mut kept));
}

fn answer(words: &[&str], kept: &mut Kept) -> bireme::Result<String> {
    kept.seeds += 1;
    let seed = kept.seeds;
    match *words {
        ["make", name, host] => {
            let made = make::options().resource(host, 1.0).retries(0).remote(seed);
            bireme::wait(std::slice::from_ref(&made), 1, Some(PATIENCE))?;
            kept.arrays.insert(name.to_owned(), (made, vec![seed]));
            Ok("made".to_owned())
        }
        ["later", name, host, gate] => {
            let made = make_late::options().resource(host, 1.0).retries(0).remote(seed, PathBuf::from(gate));
            kept.arrays.insert(name.to_owned(), (made, vec![seed]));
            Ok("called".to_owned())
        }
        ["put", name] => {
            kept.arrays.insert(name.to_owned(), (bireme::put(make(seed))?, vec![seed]));
            Ok("put".to_owned())
        }
        ["reduce", name, how, count, ref inputs @ ..] => {
            let all: Vec<_> = inputs.iter().map(|input| &kept.arrays[*input]).collect();
            let op: ReduceBy = if how.starts_with("user") { plus::OP.into() } else { ReduceOp::Sum.into() };
            let mut reduce = bireme::reduce(all.iter().map(|(array, _)| array), op);
            reduce = match how {
                "fixed" | "user_fixed" => reduce.fixed_order(),
                "star" => reduce.plan(ReducePlan::Star),
                "tree" => reduce.plan(ReducePlan::Tree(2)),
                "two_level" => reduce.plan(ReducePlan::TwoLevel),
                _ => reduce,
            };
            let count: usize = count.parse().unwrap();
            let reduced = if count > 0 { reduce.count(count).start() } else { reduce.start() };
            let seeds = all.iter().flat_map(|(_, seeds)| seeds.clone()).collect();
            kept.arrays.insert(name.to_owned(), (reduced, seeds));
            Ok("called".to_owned())
        }
        ["check", name] => {
            let (array, seeds) = &kept.arrays[name];
            Ok(if is_sum(&array.get_timeout(PATIENCE)?, seeds, 1.0) { "right" } else { "wrong" }.to_owned())
        }
        ["used", name] => {
            let (array, seeds) = &kept.arrays[name];
            let used = array.used_inputs_timeout(PATIENCE)?;
            let seeds: Vec<usize> = used.iter().map(|input| seeds[*input]).collect();
            let word = if is_sum(&array.get_timeout(PATIENCE)?, &seeds, 1.0) { "right" } else { "wrong" };
            Ok(format!("{word} {used:?}"))
        }
        ["drop", name] => {
            kept.arrays.remove(name);
            Ok("dropped".to_owned())
        }
        _ => panic!("no such line: {words:?}"),
    }
}

fn cluster(name: &str, hosts: u8) -> Option<(Hosts, Vec<hosts::Node>, Driver)> {
    let lab = Hosts::up(name, hosts)?;
    let mut nodes = vec![lab.head(&[])];
    nodes.extend(lab.join_all(2..=hosts, &[]));
    let driver = lab.driver(1);
    Some((lab, nodes, driver))
}

#[test]
fn arrays_of_several_nodes_are_reduced_by_every_plan() {
    let Some((_lab, _nodes, mut driver)) = cluster("reduce_plans", 4) else { return };
    for (name, host) in [("a", "h1"), ("b", "h2"), ("c", "h3"), ("d", "h4"), ("e", "h2")] {
        assert_eq!(driver.ask(&format!("make {name} {host}")), "made");
    }
    for plan in ["model", "fixed", "star", "tree", "two_level", "user", "user_fixed"] {
        assert_eq!(driver.ask(&format!("reduce {plan} {plan} 0 a b c d e")), "called");
        assert_eq!(driver.ask(&format!("check {plan}")), "right", "{plan}");
    }
    driver.end();
}

#[test]
fn inputs_may_come_later_and_results_feed_other_reduces() {
    let Some((lab, _nodes, mut driver)) = cluster("reduce_late", 3) else { return };
    let gate = Gate::closed(&lab.folder, "gate");
    assert_eq!(driver.ask("make a h2"), "made");
    assert_eq!(driver.ask(&format!("later b h3 {}", gate.path.display())), "called");
    assert_eq!(driver.ask("put c"), "put");
    assert_eq!(driver.ask("reduce first model 0 a b c"), "called");
    assert_eq!(driver.ask("make d h2"), "made");
    assert_eq!(driver.ask("reduce second model 0 first d"), "called");
    gate.open();
    assert_eq!(driver.ask("check second"), "right");
    assert_eq!(driver.ask("check first"), "right");
    driver.end();
}

#[test]
fn a_count_does_not_wait_for_a_straggler() {
    let Some((lab, _nodes, mut driver)) = cluster("reduce_count", 3) else { return };
    let gate = Gate::closed(&lab.folder, "gate");
    assert_eq!(driver.ask(&format!("later slow h3 {}", gate.path.display())), "called");
    assert_eq!(driver.ask("make a h1"), "made");
    assert_eq!(driver.ask("make b h2"), "made");
    assert_eq!(driver.ask("reduce two model 2 slow a b"), "called");
    assert_eq!(driver.ask("used two"), "right [1, 2]");
    assert_eq!(driver.ask("reduce by_tasks user 2 slow a b"), "called");
    assert_eq!(driver.ask("used by_tasks"), "right [1, 2]");
    gate.open();
    driver.end();
}

#[test]
fn what_was_lost_with_a_node_is_named_or_replaced() {
    let Some((lab, nodes, mut driver)) = cluster("reduce_killed", 4) else { return };
    let gate = Gate::closed(&lab.folder, "gate");
    for (name, host) in [("a", "h2"), ("b", "h3"), ("c", "h1")] {
        assert_eq!(driver.ask(&format!("make {name} {host}")), "made");
    }
    assert_eq!(driver.ask(&format!("later late h4 {}", gate.path.display())), "called");
    assert_eq!(driver.ask("reduce all model 0 a b c late"), "called");
    assert_eq!(driver.ask("reduce three model 3 a b c late"), "called");
    assert_eq!(driver.ask("used three"), "right [0, 1, 2]");
    assert_eq!(driver.ask("reduce spare model 3 a b c late"), "called");
    nodes[2].kill();
    gate.open();
    assert_eq!(driver.ask("reduce by_tasks user 0 a b c"), "called");
    let lost = driver.ask("check by_tasks");
    assert!(lost.contains("input 1") && lost.contains(&nodes[2].name), "{lost}");
    let lost = driver.ask("check all");
    assert!(lost.contains("input 1") && lost.contains(&nodes[2].name), "{lost}");
    let spare = driver.ask("used spare");
    assert!(spare == "right [0, 2, 3]" || spare == "right [0, 1, 2]", "{spare}");
    driver.end();
}
