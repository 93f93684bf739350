//! Nodes of one host, which read each other's memory: their connections carry a few headers, and no bytes of objects.

use super::*;

/// Enough for what is said of one object, and for nothing of its bytes.
const HEADERS: usize = 4 << 10;

#[test]
fn a_copy_within_a_host_does_not_go_over_its_connection() {
    let mut lab = Lab::near(&[128, 128], &[]);
    let bytes = pattern(LARGE, 7);
    let at = lab.nodes[0].put(&bytes);
    // It would break if more came.
    drop(lab.gate(HEADERS));
    lab.fetch(1, object(1), at);
    let copy = lab.end(1, object(1)).unwrap();
    assert!(*lab.nodes[1].pin(copy).unwrap() == *bytes);
    assert!(lab.nodes[1].lost.is_empty());
}

#[test]
fn a_chain_within_a_host_forms_by_name_and_its_bytes_stay_off_the_wire() {
    let mut lab = Lab::near(&[32, 32, 32, 32], &[]);
    let bytes = pattern(20 << 20, 8);
    let at = lab.nodes[0].put(&bytes);
    for _ in 0..3 {
        drop(lab.gate(HEADERS));
    }
    lab.fetch_named(3, object(1), at, 2);
    lab.fetch_named(2, object(1), at, 1);
    lab.fetch(1, object(1), at);
    for node in 1..4 {
        let copy = lab.end(node, object(1)).unwrap();
        assert!(*lab.nodes[node].pin(copy).unwrap() == *bytes);
        assert!(lab.nodes[node].lost.is_empty());
    }
}

/// The first node is elsewhere and sends the second a part. The third reads that part where it lies.
fn half_read(bytes: &[u8]) -> (Lab, std::sync::mpsc::Sender<()>, Location) {
    let mut lab = Lab::near(&[32, 32, 32, 32], &[0]);
    let at = lab.nodes[0].put(bytes);
    let gate = lab.gate(4 << 20);
    lab.fetch(1, object(1), at);
    lab.arrived(1, object(1), 3 << 20);
    drop(lab.gate(HEADERS));
    lab.fetch_named(2, object(1), at, 1);
    lab.arrived(2, object(1), 2 << 20);
    (lab, gate, at)
}

#[test]
fn a_part_is_read_while_the_rest_is_missing() {
    let bytes = pattern(10 << 20, 9);
    let (mut lab, gate, _) = half_read(&bytes);
    gate.send(()).unwrap();
    for node in [1, 2] {
        let copy = lab.end(node, object(1)).unwrap();
        assert!(*lab.nodes[node].pin(copy).unwrap() == *bytes);
    }
    assert!(lab.nodes[2].lost.is_empty());
}

#[test]
fn the_rest_of_a_part_whose_node_dies_is_read_from_another() {
    let bytes = pattern(10 << 20, 9);
    let (mut lab, _gate, _) = half_read(&bytes);
    let other = lab.nodes[3].put(&bytes);
    lab.nodes[2].transfers.node_died(NodeId(2));
    assert_eq!(lab.asks(2, object(1)), LostSender { node: NodeId(2), is_useless: false });
    lab.nodes[2].resume(object(1), other);
    let copy = lab.end(2, object(1)).unwrap();
    assert!(*lab.nodes[2].pin(copy).unwrap() == *bytes);
    assert!(lab.nodes[2].transfers.take_measured()[0].bytes <= 8 << 20, "what had come was kept");
}

#[test]
fn a_part_that_is_given_up_while_it_is_read_leaves_what_was_read() {
    let bytes = pattern(10 << 20, 9);
    let (mut lab, gate, at) = half_read(&bytes);
    drop(gate);
    lab.asks(1, object(1));
    lab.nodes[1].refuse(object(1), "it was freed");
    assert!(lab.end(1, object(1)).is_err());
    assert_eq!(lab.asks(2, object(1)), LostSender { node: NodeId(2), is_useless: true });
    // Its room is used for something else at once.
    lab.nodes[1].put(&pattern(20 << 20, 77));
    lab.nodes[2].resume(object(1), at);
    let copy = lab.end(2, object(1)).unwrap();
    assert!(*lab.nodes[2].pin(copy).unwrap() == *bytes);
}
