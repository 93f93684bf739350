use proptest::prelude::*;

use super::*;

const NEAR: NodeId = NodeId(2);
const FAR: NodeId = NodeId(3);
const LIMIT: usize = 100;

fn process(slot: u32) -> ProcessId {
    ProcessId { node: NodeId(1), slot, incarnation: 0 }
}

fn all(slots: std::ops::Range<u32>) -> Vec<ProcessId> {
    slots.map(process).collect()
}

#[test]
fn a_process_is_held_at_the_limit_and_goes_on_at_half_of_it() {
    let mut throttle = Throttle::new(LIMIT);
    assert_eq!(throttle.relay(process(1), FAR, 99), Verdict::Pass);
    assert_eq!(throttle.relay(process(1), FAR, 100), Verdict::Hold);
    for queued in [99, 51] {
        assert_eq!(throttle.turns(all(1..3), |_| queued), [process(2)], "{queued}");
        assert!(!throttle.has_turn(|_| queued));
        assert_eq!(throttle.relay(process(2), FAR, queued), Verdict::Hold, "{queued}");
        throttle.release(process(2));
    }
    assert!(throttle.has_turn(|_| 50));
    assert_eq!(throttle.turns(all(1..3), |_| 50), all(1..3));
    assert_eq!(throttle.relay(process(1), FAR, 50), Verdict::Pass);
    assert!(!throttle.has_turn(|_| 50));
    assert_eq!((throttle.held().count(), throttle.stalled().len()), (0, 0));
}

#[test]
fn other_destinations_and_other_processes_go_on() {
    let mut throttle = Throttle::new(LIMIT);
    let queued = |node| if node == FAR { 1_000 } else { 10 };
    assert_eq!(throttle.relay(process(1), FAR, queued(FAR)), Verdict::Hold);
    assert_eq!(throttle.relay(process(2), NEAR, queued(NEAR)), Verdict::Pass);
    assert_eq!(throttle.turns(all(1..4), queued), all(2..4));
    assert_eq!(throttle.relay(process(2), NEAR, queued(NEAR)), Verdict::Pass);
    assert_eq!(throttle.stalled(), BTreeSet::from([FAR]));
}

#[test]
fn those_that_wait_have_their_turns_in_the_order_in_which_they_were_paused() {
    let mut throttle = Throttle::new(LIMIT);
    for slot in [3, 1, 2] {
        assert_eq!(throttle.relay(process(slot), FAR, 100), Verdict::Hold);
    }
    assert_eq!(throttle.turns(all(1..5), |_| 10), [process(3), process(1), process(2), process(4)]);
    // The first one fills the queue again: the others keep their places in front of it.
    assert_eq!(throttle.relay(process(3), FAR, 10), Verdict::Pass);
    assert_eq!(throttle.relay(process(3), FAR, 100), Verdict::Hold);
    assert_eq!(throttle.relay(process(1), FAR, 100), Verdict::Hold);
    assert_eq!(throttle.turns(all(1..5), |_| 10), [process(1), process(2), process(3), process(4)]);
}

#[test]
fn a_message_that_is_longer_than_the_limit_passes_when_the_queue_is_short() {
    let mut throttle = Throttle::new(LIMIT);
    assert_eq!(throttle.relay(process(1), FAR, 0), Verdict::Pass);
    assert_eq!(throttle.relay(process(1), FAR, 5_000), Verdict::Hold);
    assert!(throttle.has_turn(|_| 0));
}

#[test]
fn nobody_waits_for_a_node_that_is_gone() {
    let mut throttle = Throttle::new(LIMIT);
    assert_eq!(throttle.relay(process(1), FAR, 100), Verdict::Hold);
    // For a node that is gone nothing is queued.
    assert!(throttle.has_turn(|_| 0));
    assert_eq!(throttle.turns(all(1..2), |_| 0), all(1..2));
    assert_eq!(throttle.relay(process(1), FAR, 0), Verdict::Pass);
}

#[test]
fn a_process_that_is_gone_has_no_turn() {
    let mut throttle = Throttle::new(LIMIT);
    assert_eq!(throttle.relay(process(1), FAR, 100), Verdict::Hold);
    throttle.release(process(1));
    assert!(!throttle.has_turn(|_| 0));
    assert_eq!(throttle.turns(all(2..3), |_| 0), all(2..3));
}

/// Processes that have as much to say as there is room for, a node that takes some in each pass.
fn passes(limit: usize, messages: &[Vec<usize>], taken: usize) -> (usize, Vec<usize>) {
    let mut throttle = Throttle::new(limit);
    let mut left: Vec<VecDeque<usize>> = messages.iter().map(|sizes| sizes.iter().copied().collect()).collect();
    let (mut queued, mut most, mut ended) = (0_usize, 0, vec![0; left.len()]);
    for pass in 1..100_000 {
        for turn in throttle.turns(all(0..left.len() as u32), |_| queued) {
            let ring = &mut left[turn.slot as usize];
            while let Some(size) = ring.front() {
                if throttle.relay(turn, FAR, queued) == Verdict::Hold {
                    break;
                }
                queued += size;
                most = most.max(queued - size);
                ring.pop_front();
                ended[turn.slot as usize] = pass;
            }
        }
        if left.iter().all(VecDeque::is_empty) {
            return (most, ended);
        }
        queued = queued.saturating_sub(taken);
    }
    panic!("{left:?} never went out, {queued} are queued");
}

proptest! {
    /// PUSH-1, and that the queue is bounded by the limit and one message.
    #[test]
    fn everything_goes_out_and_the_queue_is_bounded(
        limit in 1_usize..500,
        messages in prop::collection::vec(prop::collection::vec(1_usize..200, 0..30), 1..6),
        taken in 1_usize..300,
    ) {
        let (most, _) = passes(limit, &messages, taken);
        prop_assert!(most < limit, "{most} were queued before a message was taken in");
    }
}

#[test]
fn no_process_is_starved_by_one_that_always_has_something_to_say() {
    let greedy = vec![10; 1_000];
    let (_, ended) = passes(100, &[greedy, vec![10; 5], vec![10; 5]], 60);
    assert!(ended[1] < 10 && ended[2] < 10, "{ended:?}");
    assert!(ended[0] > 50, "{ended:?}");
}
