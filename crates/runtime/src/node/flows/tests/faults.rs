//! What goes wrong is told to everybody whom it concerns, in words, and leaves nothing behind.

use bireme_store::array::{ArrayHeader, Dtype};

use super::*;

/// A ring over as many nodes in which the stages of some ranks are started.
fn ring(lab: &mut Lab, ranks: usize, started: impl IntoIterator<Item = usize>, patience_us: u64) {
    let (ring, count) = (Ring { ranks, count: 50_000 }, 50_000);
    for rank in started {
        let bytes = array(numbers(rank, count).into_iter());
        let at = lab.nodes[rank].put(&bytes);
        let head = bytes[..HEADER as usize].to_vec();
        let stage = ring.stage(rank, at, head, |rank| NodeId(rank as u32 + 1));
        lab.start(rank, StageSpec { patience_us, ..stage });
    }
}

fn reason(lab: &mut Lab, rank: usize) -> String {
    lab.outcome(rank, id(rank as u32)).unwrap_err().0
}

#[test]
fn a_member_that_gives_up_ends_all_others_with_its_reason() {
    let mut lab = Lab::new(4);
    ring(&mut lab, 4, [0, 1, 3], 30_000_000);
    // The third never had a part to give up: who waits for it is told all the same.
    lab.end(2, id(2), "rank 2 was killed");
    for rank in [3, 0, 1] {
        let reason = reason(&mut lab, rank);
        assert!(reason.contains("rank 2 was killed"), "{rank}: {reason}");
    }
    lab.settle();
}

#[test]
fn a_member_that_does_not_come_is_named_when_patience_is_at_its_end() {
    let mut lab = Lab::new(3);
    ring(&mut lab, 3, [0, 1], 300_000);
    let missing = reason(&mut lab, 0);
    assert!(missing.contains("rank 2") && missing.contains("not begun"), "{missing}");
    assert!(reason(&mut lab, 1).contains("rank 2"));
    lab.settle();
}

#[test]
fn a_dead_node_is_named_with_its_number() {
    let mut lab = Lab::new(3);
    ring(&mut lab, 3, [0, 1], 30_000_000);
    lab.pass();
    lab.nodes[0].stages.node_died(NodeId(3));
    let (reason, peer) = lab.outcome(0, id(0)).unwrap_err();
    assert!(reason.contains("rank 2") && reason.contains("dead"), "{reason}");
    assert_eq!(peer, Some(NodeId(3)));
    assert!(self::reason(&mut lab, 1).contains("dead"));
}

#[test]
fn arrays_of_different_kinds_are_refused_with_both_in_words() {
    let mut lab = Lab::new(2);
    let header = ArrayHeader::new(Dtype::I32, &[10, 10]).unwrap();
    let other = [header.encode().unwrap(), vec![0; 400]].concat();
    let at = lab.nodes[0].put(&other);
    lab.start(0, chain(0, 2, at, Op::Sum));
    let at = lab.nodes[1].put(&array((0..100).map(|at| at as f32)));
    lab.start(1, chain(1, 2, at, Op::Sum));
    let reason = reason(&mut lab, 1);
    assert!(reason.contains("i32 of shape [10, 10]") && reason.contains("f32 of shape [100]"), "{reason}");
    // The leaf is told by whoever planned it.
    lab.end(0, id(0), "over");
    lab.settle();
}

#[test]
fn what_cannot_be_reduced_is_refused_in_words() {
    let mut lab = Lab::new(2);
    for (dtype, op, expected) in [(Dtype::I32, Op::Mean, "the mean of int32"), (Dtype::U16, Op::Sum, "uint16")] {
        let header = ArrayHeader::new(dtype, &[100]).unwrap();
        let bytes = [header.encode().unwrap(), vec![0; 100 * dtype.size_bytes()]].concat();
        for rank in 0..2 {
            let at = lab.nodes[rank].put(&bytes);
            lab.start(rank, chain(rank as u32, 2, at, op));
        }
        let reason = reason(&mut lab, 1);
        assert!(reason.contains(expected), "{reason}");
        lab.end(0, id(0), "over");
        lab.settle();
        lab.nodes.iter_mut().for_each(|node| node.events.clear());
    }
    let at = lab.nodes[0].put(&[1; 100]);
    lab.start(0, chain(0, 2, at, Op::Sum));
    let at = lab.nodes[1].put(&[1; 100]);
    lab.start(1, chain(1, 2, at, Op::Sum));
    assert!(reason(&mut lab, 1).contains("not an array"));
}

#[test]
fn members_that_call_different_things_fail_on_both_sides() {
    let mut lab = Lab::new(2);
    for (rank, words) in [(0, "all_reduce(sum, f32, [9])"), (1, "all_reduce(max, f32, [9])")] {
        let at = lab.nodes[rank].put(&array((0..9).map(|at| at as f32)));
        let mut stage = chain(rank as u32, 2, at, Op::Sum);
        stage.terms.digest = rank as u64;
        stage.terms.words = format!("{words} by rank {rank}");
        lab.start(rank, stage);
    }
    let receiver = reason(&mut lab, 1);
    assert!(receiver.contains("sum") && receiver.contains("max"), "{receiver}");
    let sender = reason(&mut lab, 0);
    assert!(sender.contains("sum") && sender.contains("slot 1"), "{sender}");
}

#[test]
fn a_stage_that_is_ended_gives_its_room_back_and_tells_nothing() {
    let mut lab = Lab::new(3);
    ring(&mut lab, 3, [0, 1], 30_000_000);
    lab.placed(0, id(0));
    lab.end(0, id(0), "nobody wants it");
    lab.end(1, id(1), "nobody wants it");
    lab.settle();
    let of_stage = |event: &StageEvent| !matches!(event, StageEvent::Placed { .. });
    assert!(!lab.nodes[0].events.iter().any(of_stage), "{:?}", lab.nodes[0].events);
    // Only the input is left, when the threads have let go of the areas.
    lab.until("the room", |lab| (lab.nodes[0].used() < 300_000 && lab.nodes[1].used() < 300_000).then_some(()));
}

#[test]
fn a_stage_that_makes_no_sense_or_is_there_already_is_refused() {
    let mut lab = Lab::new(2);
    let mut spec = StageSpec::new(id(0));
    spec.areas = vec![AreaSpec::Output { len: 10, head: Vec::new() }];
    lab.start(0, spec);
    assert!(reason(&mut lab, 0).contains("makes no sense"));
    lab.nodes[0].events.clear();
    ring(&mut lab, 2, [0], 30_000_000);
    lab.pass();
    lab.start(0, StageSpec::new(id(0)));
    assert!(reason(&mut lab, 0).contains("runs already"));
}

#[test]
fn more_than_the_store_holds_is_an_error() {
    let mut lab = Lab::new(1);
    let input = lab.nodes[0].put(&[0; 1000]);
    let mut spec = StageSpec { inputs: vec![input], ..StageSpec::new(id(0)) };
    let len = 1 << 40;
    spec.areas = vec![AreaSpec::Output { len: 1000, head: Vec::new() }, AreaSpec::Scratch { len }];
    let origin = Origin::Local { part: Part::Input(0), start: 0 };
    let pieces = vec![piece(0, 0, 1000, Action::Store)];
    spec.intakes = vec![IntakeSpec { origin, pieces, after: None, who: String::new() }];
    lab.start(0, spec);
    assert!(reason(&mut lab, 0).contains("no room"));
    lab.settle();
    lab.until("the room", |lab| (lab.nodes[0].used() <= 4096).then_some(()));
}
