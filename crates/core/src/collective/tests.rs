//! Plans against the definitions of the verbs, and members against each other, with bytes and words in any order.

#![allow(clippy::unwrap_used)]

mod members;
mod stages;

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::flow::Op;

/// Elements are bytes here, and combining is a wrapping sum: order does not matter, and what is missing shows.
const U8: u8 = 1;

fn call(kind: Kind, root: u32, shape: &[u64]) -> Call {
    Call {
        kind,
        op: kind.has_op().then_some(Op::Sum),
        root: kind.has_root().then_some(root),
        array: Some(ArrayKind { dtype: U8, shape: shape.to_vec() }),
    }
}

fn add(into: &mut [u8], from: &[u8]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into = into.wrapping_add(*from));
}

/// What a rank brings: its arrays one behind the other.
fn brings(call: &Call, rank: u32, size: u32) -> Vec<u8> {
    let layout = Layout::of(call, rank, size).unwrap();
    let bytes: u64 = layout.inputs.iter().map(|range| range.end - range.start).sum();
    (0..bytes).map(|at| (u64::from(rank) * 89 + at * 7 + at / 13 + 1) as u8).collect()
}

/// What a rank gets, by definition.
fn gets(call: &Call, rank: u32, size: u32) -> Vec<u8> {
    let block = call.block_bytes() as usize;
    let all: Vec<Vec<u8>> = (0..size).map(|rank| brings(call, rank, size)).collect();
    let part =
        |of: u32, index: u32, len: usize| all[of as usize][index as usize * len..(index as usize + 1) * len].to_vec();
    let is_root = call.root == Some(rank);
    let root = call.root.unwrap_or(0);
    let sum = || {
        let mut sum = vec![0; block];
        all.iter().for_each(|one| add(&mut sum, one));
        sum
    };
    match call.kind {
        Kind::Broadcast => all[root as usize].clone(),
        Kind::AllReduce => sum(),
        Kind::Reduce if is_root => sum(),
        Kind::AllGather => all.concat(),
        Kind::Gather if is_root => all.concat(),
        Kind::Scatter => part(root, rank, block),
        Kind::ReduceScatter => {
            let part = block / size as usize;
            sum()[rank as usize * part..(rank as usize + 1) * part].to_vec()
        }
        Kind::AllToAll => (0..size).flat_map(|from| part(from, rank, block)).collect(),
        Kind::Reduce | Kind::Gather | Kind::Barrier | Kind::Send => Vec::new(),
    }
}

fn indices(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// Every verb but the one between two.
const COLLECTIVE: [Kind; 9] = [
    Kind::Broadcast,
    Kind::Reduce,
    Kind::AllReduce,
    Kind::Gather,
    Kind::AllGather,
    Kind::Scatter,
    Kind::ReduceScatter,
    Kind::AllToAll,
    Kind::Barrier,
];

/// Shapes whose first axis can be split among so many.
fn shapes(kind: Kind, size: u32) -> Vec<Vec<u64>> {
    match kind {
        Kind::ReduceScatter => {
            vec![vec![0], vec![u64::from(size)], vec![u64::from(size), 3], vec![u64::from(size) * 5]]
        }
        _ => vec![vec![0], vec![1], vec![3], vec![u64::from(size) * 4 + 1], vec![2, 5]],
    }
}

#[test]
fn calls_belong_together_when_verb_op_root_and_arrays_are_equal() {
    let sum = call(Kind::AllReduce, 0, &[4, 3]);
    assert!(sum.matches(&sum.clone()));
    assert!(!sum.matches(&Call { op: Some(Op::Max), ..sum.clone() }));
    assert!(!sum.matches(&call(Kind::AllReduce, 0, &[3, 4])));
    assert!(!sum.matches(&call(Kind::AllGather, 0, &[4, 3])));
    assert!(!call(Kind::Reduce, 0, &[4]).matches(&call(Kind::Reduce, 1, &[4])));
    assert!(call(Kind::Scatter, 0, &[4]).matches(&Call { array: None, ..call(Kind::Scatter, 0, &[]) }));
    assert_eq!(sum.to_string(), "all_reduce(op=sum) of uint8[4, 3]");
    assert_eq!(call(Kind::Reduce, 2, &[7]).to_string(), "reduce(op=sum, root=2) of uint8[7]");
    assert_eq!(call(Kind::Barrier, 0, &[]).to_string(), "barrier()");
}

#[test]
fn an_array_that_cannot_be_split_is_refused_in_words() {
    let refused = Layout::of(&call(Kind::ReduceScatter, 0, &[7, 2]), 0, 3).unwrap_err().to_string();
    assert!(refused.contains("3 members") && refused.contains("[7, 2]"), "{refused}");
    assert!(Layout::of(&call(Kind::ReduceScatter, 0, &[]), 0, 3).is_err());
}

#[test]
fn ids_of_groups_come_back_from_their_text() {
    let group = CollectiveId::named(NodeId(7), "trainers");
    assert_eq!(CollectiveId::from_hex(&group.hex()), Some(group));
    assert_eq!(CollectiveId::from_hex("trainers"), None);
    assert_ne!(group, CollectiveId::named(NodeId(7), "trainer"));
}

#[test]
fn what_no_machine_can_keep_is_refused_before_anything_is_planned() {
    let bytes = i64::MAX as u64 / 4;
    assert!(Layout::of(&call(Kind::AllGather, 0, &[bytes]), 0, 2).is_ok());
    let refused = Layout::of(&call(Kind::AllGather, 0, &[bytes + 1]), 0, 2).unwrap_err().to_string();
    assert!(refused.contains("more memory than there can be"), "{refused}");
    assert!(Layout::of(&call(Kind::AllGather, 0, &[u64::MAX]), 0, 2).is_err());
}

#[test]
fn every_type_that_can_be_combined_has_its_number_and_no_other_has() {
    let named: Vec<&str> = (0..=u8::MAX).filter(|dtype| number(*dtype).is_some()).map(dtype_name).collect();
    assert_eq!(named.len(), 7, "{named:?}");
    for name in ["uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"] {
        assert!(named.contains(&name), "{name} can be combined");
    }
}
