//! Stages of several nodes over real sockets: every byte of every result is compared.
#![allow(clippy::unwrap_used)]

mod faults;
mod lab;
mod plans;

use bireme_core::flow::{
    Action, AreaSpec, Combine, FlowKey, FlowSpec, IntakeSpec, Number, Op, Origin, Part, Piece, Slice, StageId,
    StageSpec,
};
use bireme_core::id::NodeId;

use super::StageEvent;
use lab::{Lab, array};
use plans::{HEADER, Ring, chain, id, intake, piece, whole};

/// The numbers of one member, small enough that every sum is exact.
fn numbers(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 7 + rank * 13) % 101) as f32).collect()
}

fn sums(ranks: usize, count: usize) -> Vec<f32> {
    let all: Vec<Vec<f32>> = (0..ranks).map(|rank| numbers(rank, count)).collect();
    (0..count).map(|at| all.iter().map(|numbers| numbers[at]).sum()).collect()
}

#[test]
fn a_chain_of_four_nodes_reduces_arrays_to_the_mean() {
    chain_of_four(Lab::new(4));
}

fn chain_of_four(mut lab: Lab) {
    let count = 300_001;
    for rank in 0..4 {
        let at = lab.nodes[rank].put(&array(numbers(rank, count).into_iter()));
        lab.start(rank, chain(rank as u32, 4, at, Op::Mean));
    }
    let at = lab.outcome(3, id(3)).unwrap()[0];
    let expected = array(sums(4, count).into_iter().map(|sum| sum / 4.0));
    assert!(*lab.nodes[3].pin(at) == *expected);
    for rank in 0..3 {
        assert_eq!(lab.outcome(rank, id(rank as u32)), Ok(Vec::new()));
    }
    lab.settle();
    // What is left is each member's input, and the result, when the threads have let go of the rest.
    let one = lab.nodes[0].used();
    lab.until("the room", |lab| (lab.nodes[1].used() == one && lab.nodes[3].used() == 2 * one).then_some(()));
}

#[test]
fn a_root_combines_two_children_and_its_own_inputs_in_order() {
    let (count, mut lab) = (100_003, Lab::new(3));
    let places: Vec<_> = (0..4).map(|rank| lab.nodes[rank % 3].put(&array(numbers(rank, count).into_iter()))).collect();
    let len = places[0].len;
    // Inputs 0 and 3 lie on the first node, which is the root and the only one that starts late.
    for rank in [1, 2] {
        let mut leaf = StageSpec { inputs: vec![places[rank]], ..StageSpec::new(id(rank as u32)) };
        leaf.flows = vec![FlowSpec { to: 0, slices: vec![whole(Part::Input(0), len)], lead: 0, follows: Vec::new() }];
        lab.start(rank, leaf);
    }
    let with = |with| Action::Array(Combine { with, start: 0, op: Op::Sum, divisor: 1 });
    let local = Origin::Local { part: Part::Input(1), start: 0 };
    let mut root = StageSpec { inputs: vec![places[0], places[3]], ..StageSpec::new(id(0)) };
    root.areas = vec![AreaSpec::Output { len, head: Vec::new() }];
    root.intakes = vec![
        intake(1, 0, NodeId(2), vec![piece(0, 0, len, with(Part::Input(0)))]),
        IntakeSpec { after: Some(0), ..intake(2, 0, NodeId(3), vec![piece(0, 0, len, with(Part::Area(0)))]) },
        IntakeSpec {
            origin: local,
            pieces: vec![piece(0, 0, len, with(Part::Area(0)))],
            after: Some(1),
            who: String::new(),
        },
    ];
    lab.start(0, root);
    let at = lab.outcome(0, id(0)).unwrap()[0];
    assert!(*lab.nodes[0].pin(at) == *array(sums(4, count).into_iter()));
}

fn all_reduce(ranks: usize, nodes: usize, count: usize) {
    all_reduce_in(Lab::new(nodes), ranks, count);
}

fn all_reduce_in(mut lab: Lab, ranks: usize, count: usize) {
    let nodes = lab.nodes.len();
    let ring = Ring { ranks, count };
    for rank in 0..ranks {
        let at = lab.nodes[rank % nodes].put(&array(numbers(rank, count).into_iter()));
        let head = array(numbers(rank, count).into_iter())[..HEADER as usize].to_vec();
        lab.start(rank % nodes, ring.stage(rank, at, head, |rank| NodeId((rank % nodes) as u32 + 1)));
    }
    let expected = array(sums(ranks, count).into_iter());
    for rank in 0..ranks {
        let at = lab.outcome(rank % nodes, id(rank as u32)).unwrap()[0];
        assert!(*lab.nodes[rank % nodes].pin(at) == *expected, "rank {rank} of {ranks} with {count} numbers");
    }
    lab.settle();
}

#[test]
fn a_ring_reduces_for_all_members_whatever_does_not_divide_evenly() {
    all_reduce(4, 4, 200_003);
    all_reduce(5, 5, 70_001);
    all_reduce(2, 2, 50_001);
}

#[test]
fn nodes_of_one_host_read_each_others_memory_and_the_results_are_the_same() {
    chain_of_four(Lab::near(4));
    all_reduce_in(Lab::near(4), 4, 500_003);
    all_reduce_in(Lab::near(2), 2, 200_001);
}

#[test]
fn a_ring_of_more_members_than_numbers_works_and_of_none() {
    for count in [0, 1, 3] {
        all_reduce(4, 4, count);
    }
}

#[test]
fn members_of_one_node_meet_without_a_socket() {
    all_reduce(3, 1, 40_003);
    all_reduce(5, 2, 40_003);
}

#[test]
fn a_broadcast_goes_from_node_to_node_into_room_that_others_made() {
    let mut lab = Lab::new(4);
    let bytes: Vec<u8> = (0..3_000_001u32).map(|at| (at ^ at >> 8) as u8).collect();
    let (at, len) = (lab.nodes[0].put(&bytes), bytes.len() as u64);
    let mut ends = Vec::new();
    for rank in (1..4u32).rev() {
        let mut stage = StageSpec::new(id(rank));
        let room = lab.nodes[rank as usize].make_room(len);
        stage.areas = vec![AreaSpec::Given { at: room, head: Vec::new() }];
        stage.intakes = vec![intake(rank - 1, rank, NodeId(rank), vec![piece(0, 0, len, Action::Store)])];
        if rank < 3 {
            let slices = vec![whole(Part::Area(0), len)];
            stage.flows = vec![FlowSpec { to: rank + 1, slices, lead: 0, follows: vec![0] }];
        }
        lab.start(rank as usize, stage);
        ends.push((rank as usize, room));
    }
    let mut root = StageSpec { inputs: vec![at], ..StageSpec::new(id(0)) };
    root.flows = vec![FlowSpec { to: 1, slices: vec![whole(Part::Input(0), len)], lead: 0, follows: Vec::new() }];
    lab.start(0, root);
    for (rank, room) in ends {
        assert_eq!(lab.outcome(rank, id(rank as u32)), Ok(vec![room]));
        assert!(*lab.nodes[rank].pin(room) == *bytes);
    }
    assert_eq!(lab.outcome(0, id(0)), Ok(Vec::new()));
}

#[test]
fn a_gather_puts_each_members_bytes_in_its_place() {
    let (mut lab, part) = (Lab::new(3), 500_001u64);
    let bytes: Vec<Vec<u8>> = (0..3u8).map(|rank| (0..part).map(|at| at as u8 ^ rank).collect()).collect();
    let mut root = StageSpec::new(id(0));
    root.areas = vec![AreaSpec::Output { len: 5 + 3 * part, head: b"head:".to_vec() }];
    root.inputs = vec![lab.nodes[0].put(&bytes[0])];
    let local = Origin::Local { part: Part::Input(0), start: 0 };
    let pieces = vec![piece(0, 5, part, Action::Store)];
    root.intakes = vec![IntakeSpec { origin: local, pieces, after: None, who: String::new() }];
    for rank in 1..3u32 {
        let pieces = vec![piece(0, 5 + u64::from(rank) * part, part, Action::Store)];
        root.intakes.push(intake(rank, 0, NodeId(rank + 1), pieces));
        let at = lab.nodes[rank as usize].put(&bytes[rank as usize]);
        let mut leaf = StageSpec { inputs: vec![at], ..StageSpec::new(id(rank)) };
        leaf.flows = vec![FlowSpec { to: 0, slices: vec![whole(Part::Input(0), part)], lead: 0, follows: Vec::new() }];
        lab.start(rank as usize, leaf);
    }
    lab.start(0, root);
    let at = lab.outcome(0, id(0)).unwrap()[0];
    assert!(*lab.nodes[0].pin(at) == *[b"head:".to_vec(), bytes.concat()].concat());
}

#[test]
fn an_output_that_still_grows_feeds_the_next_stage_and_other_nodes() {
    let (count, mut lab) = (100_003, Lab::new(3));
    let inputs: Vec<_> = (0..2).map(|rank| lab.nodes[rank].put(&array(numbers(rank, count).into_iter()))).collect();
    let len = inputs[0].len;
    lab.start(1, chain(1, 2, inputs[1], Op::Sum));
    let growing = lab.placed(1, id(1));
    // A copy of what is still being made, on the same node and on to another.
    let copy = |slot| StageId { id: 99, epoch: 0, slot };
    let mut first = StageSpec { inputs: vec![growing], ..StageSpec::new(copy(0)) };
    first.flows = vec![FlowSpec { to: 1, slices: vec![whole(Part::Input(0), len)], lead: 0, follows: Vec::new() }];
    lab.start(1, first);
    let key = FlowKey { id: 99, epoch: 0, from: 0, to: 1 };
    let origin = Origin::Flow { node: NodeId(2), key };
    let mut second = StageSpec::new(copy(1));
    second.areas = vec![AreaSpec::Output { len, head: Vec::new() }];
    let pieces = vec![piece(0, 0, len, Action::Store)];
    second.intakes = vec![IntakeSpec { origin, pieces, after: None, who: String::new() }];
    lab.start(2, second);
    lab.pass();
    // Only now is there a byte to be made.
    lab.start(0, chain(0, 2, inputs[0], Op::Sum));
    let at = lab.outcome(2, copy(1)).unwrap()[0];
    assert!(*lab.nodes[2].pin(at) == *array(sums(2, count).into_iter()));
}

#[test]
fn inputs_are_combined_and_sent_while_their_processes_write_them() {
    let (count, mut lab) = (300_001, Lab::new(3));
    let arrays: Vec<Vec<u8>> = (0..3).map(|rank| array(numbers(rank, count).into_iter())).collect();
    let mut writers = Vec::new();
    for (rank, bytes) in arrays.iter().enumerate() {
        let (at, mut writer) = lab.nodes[rank].begin_put(bytes.len() as u64);
        // One has a part of it before the stage begins, of which nothing is said later.
        if rank == 1 {
            writer.copy_from(&bytes[..100_001]).unwrap();
        }
        lab.start(rank, chain(rank as u32, 3, at, Op::Sum));
        writers.push(writer);
    }
    let growing = lab.placed(2, id(2));
    for (rank, end) in [(0, 50_003), (2, 70_000), (0, 100_001), (2, 100_001)] {
        let start = writers[rank].watermark() as usize;
        writers[rank].copy_from(&arrays[rank][start..end]).unwrap();
        lab.nodes[rank].stages.grow(id(rank as u32));
    }
    let expected = array(sums(3, count).into_iter());
    lab.until("the first bytes of the result", |lab| {
        let there = lab.nodes[2].pin_growing(growing);
        (there.watermark() > 90_000).then(|| assert!(there.bytes(0..90_000) == &expected[..90_000]))
    });
    assert!(!lab.nodes[2].events.iter().any(|event| matches!(event, StageEvent::Done { .. })));
    for (rank, mut writer) in writers.into_iter().enumerate() {
        let start = writer.watermark() as usize;
        writer.copy_from(&arrays[rank][start..]).unwrap();
        lab.nodes[rank].stages.grow(id(rank as u32));
        writer.seal().unwrap();
    }
    let at = lab.outcome(2, id(2)).unwrap()[0];
    assert!(*lab.nodes[2].pin(at) == *expected);
}

#[test]
fn streams_that_break_go_on_from_where_they_were() {
    let (count, mut lab) = (300_001, Lab::new(3));
    lab.break_after(&[100_000, 333, 700_001, 500_000]);
    for rank in 0..3 {
        let at = lab.nodes[rank].put(&array(numbers(rank, count).into_iter()));
        lab.start(rank, chain(rank as u32, 3, at, Op::Sum));
    }
    let at = lab.outcome(2, id(2)).unwrap()[0];
    assert!(*lab.nodes[2].pin(at) == *array(sums(3, count).into_iter()));
}
