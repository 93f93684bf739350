//! Two and three nodes in one process, over loopback sockets.
#![allow(clippy::unwrap_used)]

mod lab;
mod near;

use bireme_store::{PinError, SpillOptions};

use super::*;
use lab::{Lab, object, pattern, spec};

const LARGE: usize = 100 << 20;

#[test]
fn a_hundred_megabytes_arrive_whole_for_all_who_wait_in_one_transfer() {
    let mut lab = Lab::new(&[128, 128]);
    let bytes = pattern(LARGE, 0);
    let at = lab.nodes[0].put(&bytes);
    let waiters = [(ProcessId::DRIVER, 7), (ProcessId::DRIVER, 8)];
    let node = &mut lab.nodes[1];
    for waiter in waiters {
        node.transfers.fetch(&mut node.objects, spec(object(1)), at, Some(waiter));
    }
    node.resume(object(1), at);
    lab.until("the copy", |lab| !lab.nodes[1].events.is_empty());
    let events = std::mem::take(&mut lab.nodes[1].events);
    let [TransferEvent::Ended { waiters: told, result: Ok(started), .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(&told[..], &waiters[..]);
    assert!(*lab.nodes[1].pin(*started).unwrap() == *bytes);
    // Whoever comes later is answered with the copy, and what belongs to this node is not fetched at all.
    lab.fetch(1, object(1), at);
    assert_eq!(lab.end(1, object(1)), Ok(*started));
    lab.fetch(0, object(1), at);
    assert_eq!(lab.end(0, object(1)), Ok(at));
    assert_eq!(lab.net.lock().unwrap().dials, 1);
}

#[test]
fn broken_connections_cost_only_what_had_not_come() {
    let mut lab = Lab::new(&[32, 32, 32]);
    let bytes = pattern(20 << 20, 3);
    let (first, second) = (lab.nodes[0].put(&bytes), lab.nodes[1].put(&bytes));
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut before = 0;
    lab.fetch(2, object(1), first);
    for round in 0..8 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        drop(lab.gate((seed >> 43) as usize));
        if round > 0 {
            lab.nodes[2].resume(object(1), if round % 2 == 0 { first } else { second });
        }
        let lost = lab.asks(2, object(1));
        assert_eq!(lost, LostSender { node: NodeId(round % 2 + 1), is_useless: false });
        let transfer = lab.nodes[2].transfers.transfers.values().next().unwrap();
        let Phase::Asking(Some(arrival)) = &transfer.phase else { panic!("it asks") };
        let watermark = bireme_net::bulk::Sink::watermark(arrival);
        assert!(watermark >= before, "{watermark} after {before}");
        before = watermark;
    }
    assert!(before > 0);
    lab.nodes[2].resume(object(1), first);
    let copy = lab.end(2, object(1)).unwrap();
    assert!(*lab.nodes[2].pin(copy).unwrap() == *bytes);
    let measured = lab.nodes[2].transfers.take_measured();
    let rest = bytes.len() as u64 - before;
    assert!((1..rest).contains(&measured[0].bytes), "only the rest came at last: {measured:?} of {rest}");
}

#[test]
fn an_object_that_its_node_frees_while_it_is_sent_still_arrives_and_then_goes() {
    let mut lab = Lab::new(&[16, 16]);
    let bytes = pattern(10 << 20, 5);
    let at = lab.nodes[0].put(&bytes);
    let gate = lab.gate(4 << 20);
    lab.fetch(1, object(1), at);
    lab.arrived(1, object(1), 3 << 20);
    lab.nodes[0].free(at);
    assert_eq!(lab.nodes[0].pin(at).unwrap_err(), PinError::Moved);
    gate.send(()).unwrap();
    let copy = lab.end(1, object(1)).unwrap();
    assert!(*lab.nodes[1].pin(copy).unwrap() == *bytes);
    // The memory is free when the sender has heard that all has come: then the same room is given again.
    let again = lab.nodes[0].put(&pattern(12 << 20, 6));
    assert_eq!(again.offset, at.offset);
    lab.nodes[1].free(copy);
    lab.fetch(1, object(1), at);
    assert_eq!(lab.asks(1, object(1)), LostSender { node: NodeId(1), is_useless: true });
    lab.nodes[1].refuse(object(1), "nobody has it");
    let error = lab.end(1, object(1)).unwrap_err().to_string();
    assert!(error.contains("nobody has it (node-1") && error.contains("freed"), "{error}");
}

#[test]
fn copies_go_for_what_comes_next_and_that_is_told() {
    let mut lab = Lab::new(&[128, 16]);
    let places: Vec<Location> = (0..50).map(|number| lab.nodes[0].put(&pattern(2 << 20, number))).collect();
    for (number, at) in places.iter().enumerate() {
        lab.fetch(1, object(number as u64), *at);
    }
    for number in 0..50 {
        // It may have been dropped for a later one by now.
        assert!(lab.end(1, object(number)).is_ok());
    }
    let told = |lab: &Lab| {
        let dropped = |event: &TransferEvent| match event {
            TransferEvent::Dropped { object, .. } => Some(object.object),
            _ => None,
        };
        lab.nodes[1].events.iter().filter_map(dropped).collect::<Vec<_>>()
    };
    assert_eq!(told(&lab).len() + lab.nodes[1].transfers.copies.len(), 50);
    assert!(lab.nodes[1].transfers.copies.len() <= 8 && lab.net.lock().unwrap().dials <= TRANSFERS_PER_PEER);
    let dropped = told(&lab)[0];
    let number = (0..50).find(|number| object(*number) == dropped).unwrap();
    lab.fetch(1, dropped, places[number as usize]);
    let copy = lab.end(1, dropped).unwrap();
    let view = lab.nodes[1].pin(copy).unwrap();
    assert!(*view == *pattern(2 << 20, number as usize));
    // One that is read is not dropped, whatever comes.
    for number in (0..50).filter(|number| object(*number) != dropped) {
        lab.fetch(1, object(number), places[number as usize]);
        assert!(lab.end(1, object(number)).is_ok());
    }
    assert_eq!(lab.nodes[1].transfers.copies.get(&dropped).map(|kept| kept.at), Some(copy));
}

#[test]
fn a_copy_that_has_become_the_last_one_is_spilled_and_not_dropped() {
    let mut lab = Lab::new(&[16, 16]);
    let bytes = pattern(10 << 20, 1);
    let at = lab.nodes[0].put(&bytes);
    lab.fetch(1, object(1), at);
    let copy = lab.end(1, object(1)).unwrap();
    let node = &mut lab.nodes[1];
    assert_eq!(node.transfers.promote(&mut node.objects, object(1)), Some(copy));
    assert_eq!(node.transfers.promote(&mut node.objects, object(2)), None);
    node.put(&pattern(12 << 20, 2));
    assert!(node.pin(copy).is_err());
    // It comes back for a receiver that knows its first place.
    lab.nodes[0].free(at);
    lab.fetch(0, object(1), copy);
    let back = lab.end(0, object(1)).unwrap();
    assert!(*lab.nodes[0].pin(back).unwrap() == *bytes);
}

#[test]
fn a_full_store_says_why_there_is_no_copy_and_leaves_nothing_behind() {
    let spill = SpillOptions { spill_bytes_max: 0, ..SpillOptions::default() };
    let mut lab = Lab::with(&[32, 8], &spill);
    let [large, small] = [20 << 20, 6 << 20].map(|len| lab.nodes[0].put(&pattern(len, 1)));
    lab.fetch(1, object(1), large);
    let Err(TransferError::NoRoom(why)) = lab.end(1, object(1)) else { panic!("it cannot fit") };
    assert!(why.contains("can never fit"), "{why}");
    let own = lab.nodes[1].put(&pattern(4 << 20, 2));
    lab.fetch(1, object(2), small);
    let Err(TransferError::NoRoom(why)) = lab.end(1, object(2)) else { panic!("there is no room") };
    assert!(why.contains("no room for") && why.contains("spill"), "{why}");
    lab.nodes[1].free(own);
    lab.fetch(1, object(2), small);
    let copy = lab.end(1, object(2)).unwrap();
    assert!(*lab.nodes[1].pin(copy).unwrap() == *pattern(6 << 20, 1));
}

#[test]
fn the_part_of_a_broken_transfer_makes_room_for_what_is_wanted() {
    let mut lab = Lab::new(&[32, 16]);
    let [part, whole] = [10 << 20, 12 << 20].map(|len| lab.nodes[0].put(&pattern(len, 1)));
    drop(lab.gate(4 << 20));
    lab.fetch(1, object(1), part);
    assert_eq!(lab.asks(1, object(1)), LostSender { node: NodeId(1), is_useless: false });
    lab.fetch(1, object(2), whole);
    let copy = lab.end(1, object(2)).unwrap();
    assert!(*lab.nodes[1].pin(copy).unwrap() == *pattern(12 << 20, 1));
    // It begins anew when it is told who sends.
    lab.nodes[1].resume(object(1), part);
    let copy = lab.end(1, object(1)).unwrap();
    assert!(*lab.nodes[1].pin(copy).unwrap() == *pattern(10 << 20, 1));
}

#[test]
fn a_part_is_sent_on_to_a_third_node_while_the_rest_is_missing() {
    let mut lab = Lab::new(&[16, 16, 16]);
    let bytes = pattern(10 << 20, 9);
    let at = lab.nodes[0].put(&bytes);
    let gate = lab.gate(4 << 20);
    lab.fetch(1, object(1), at);
    let middle = lab.arrived(1, object(1), 3 << 20);
    lab.fetch(2, object(1), middle);
    lab.arrived(2, object(1), 3 << 20);
    gate.send(()).unwrap();
    let copy = lab.end(2, object(1)).unwrap();
    assert!(*lab.nodes[2].pin(copy).unwrap() == *bytes);
    assert_eq!(lab.end(1, object(1)), Ok(middle));
}

#[test]
fn an_object_is_asked_for_by_name_before_its_sender_has_a_byte_or_a_place() {
    let mut lab = Lab::new(&[16, 16, 16, 16]);
    let bytes = pattern(10 << 20, 9);
    let at = lab.nodes[0].put(&bytes);
    // The last of the chain asks first.
    lab.fetch_named(3, object(1), at, 2);
    lab.fetch_named(2, object(1), at, 1);
    let node = &mut lab.nodes[1];
    node.transfers.fetch(&mut node.objects, spec(object(1)), at, None);
    lab.until("the dials", |lab| lab.net.lock().unwrap().dials == 2);
    lab.nodes[1].resume(object(1), at);
    for node in 1..4 {
        let copy = lab.end(node, object(1)).unwrap();
        assert!(*lab.nodes[node].pin(copy).unwrap() == *bytes);
    }
    // What is not fetched there, or under another name, is refused.
    lab.fetch_named(0, object(2), Location { node: NodeId(2), ..at }, 1);
    assert_eq!(lab.asks(0, object(2)), LostSender { node: NodeId(2), is_useless: true });
}

/// Three nodes: the second has a part from the first and feeds the third, when its own connection breaks.
fn broken_chain(bytes: &[u8]) -> (Lab, Location, Location) {
    let mut lab = Lab::new(&[16, 16, 16]);
    let at = lab.nodes[0].put(bytes);
    let gate = lab.gate(4 << 20);
    lab.fetch(1, object(1), at);
    let middle = lab.arrived(1, object(1), 3 << 20);
    lab.fetch_named(2, object(1), at, 1);
    lab.arrived(2, object(1), 3 << 20);
    drop(gate);
    assert_eq!(lab.asks(1, object(1)), LostSender { node: NodeId(1), is_useless: false });
    (lab, at, middle)
}

#[test]
fn who_is_fed_by_a_part_does_not_notice_that_it_was_resumed() {
    let bytes = pattern(10 << 20, 9);
    let (mut lab, at, middle) = broken_chain(&bytes);
    lab.nodes[1].resume(object(1), at);
    assert_eq!(lab.end(1, object(1)), Ok(middle));
    let copy = lab.end(2, object(1)).unwrap();
    assert!(*lab.nodes[2].pin(copy).unwrap() == *bytes);
    assert!(lab.nodes[2].lost.is_empty());
}

#[test]
fn who_is_fed_by_a_part_that_is_given_up_fetches_the_rest_elsewhere() {
    let bytes = pattern(10 << 20, 9);
    let (mut lab, at, _) = broken_chain(&bytes);
    lab.nodes[1].refuse(object(1), "it was freed");
    let error = lab.end(1, object(1)).unwrap_err().to_string();
    assert!(error.contains("it was freed (the transfer from node-1 broke"), "{error}");
    assert_eq!(lab.asks(2, object(1)), LostSender { node: NodeId(2), is_useless: true });
    lab.nodes[2].resume(object(1), at);
    let copy = lab.end(2, object(1)).unwrap();
    assert!(*lab.nodes[2].pin(copy).unwrap() == *bytes);
    let measured = lab.nodes[2].transfers.take_measured();
    assert!(measured[0].bytes <= 7 << 20, "what had come was kept");
}

#[test]
fn what_its_node_has_spilled_is_restored_and_sent() {
    let mut lab = Lab::new(&[16, 16]);
    let bytes = pattern(10 << 20, 4);
    let at = lab.nodes[0].put(&bytes);
    lab.nodes[0].put(&pattern(10 << 20, 5));
    assert_eq!(lab.nodes[0].pin(at).unwrap_err(), PinError::Moved);
    lab.fetch(1, object(1), at);
    let copy = lab.end(1, object(1)).unwrap();
    assert!(*lab.nodes[1].pin(copy).unwrap() == *bytes);
}

#[test]
fn places_that_do_not_fit_are_refused_in_words() {
    let mut lab = Lab::new(&[8, 8]);
    let at = lab.nodes[0].put(&pattern(1 << 20, 4));
    let wrong = [
        (Location { generation: at.generation + 1, ..at }, "freed"),
        (Location { offset: at.offset + 64, ..at }, "does not describe an object"),
        (Location { node: NodeId(9), ..at }, "node-9 is not there"),
    ];
    for (number, (at, text)) in wrong.into_iter().enumerate() {
        lab.fetch(1, object(number as u64), at);
        lab.asks(1, object(number as u64));
        lab.nodes[1].refuse(object(number as u64), "nobody has it");
        let error = lab.end(1, object(number as u64)).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn a_dead_sender_ends_what_came_from_it_and_the_rest_comes_from_another() {
    let mut lab = Lab::new(&[32, 32, 32]);
    let bytes = pattern(10 << 20, 4);
    let (first, second) = (lab.nodes[0].put(&bytes), lab.nodes[1].put(&bytes));
    let _gate = lab.gate(4 << 20);
    lab.fetch(2, object(1), first);
    lab.arrived(2, object(1), 3 << 20);
    lab.nodes[2].transfers.node_died(NodeId(1));
    assert_eq!(lab.asks(2, object(1)), LostSender { node: NodeId(1), is_useless: false });
    lab.nodes[2].resume(object(1), second);
    let copy = lab.end(2, object(1)).unwrap();
    assert!(lab.nodes[2].transfers.take_measured()[0].bytes <= 7 << 20);
    assert!(*lab.nodes[2].pin(copy).unwrap() == *bytes);
    assert!(lab.nodes[2].transfers.transfers.is_empty() && lab.nodes[2].transfers.numbers.is_empty());
}

#[test]
fn a_fetch_that_is_refused_gives_its_room_back_and_the_next_one_starts_anew() {
    let mut lab = Lab::new(&[16, 16]);
    let bytes = pattern(10 << 20, 4);
    let at = lab.nodes[0].put(&bytes);
    let _gate = lab.gate(4 << 20);
    lab.fetch(1, object(1), at);
    lab.arrived(1, object(1), 3 << 20);
    lab.nodes[1].refuse(object(1), "it was freed");
    // Wanted again before the other one has ended: it has nothing to do with it.
    lab.fetch(1, object(1), at);
    let refused = lab.end(1, object(1));
    assert!(matches!(&refused, Err(TransferError::Nowhere { why, .. }) if why == "it was freed"), "{refused:?}");
    let copy = lab.end(1, object(1)).unwrap();
    assert!(*lab.nodes[1].pin(copy).unwrap() == *bytes);
}

#[test]
fn a_connection_too_many_waits_until_another_one_ends() {
    let mut lab = Lab::new(&[16, 16]);
    let bytes = pattern(1 << 20, 3);
    let at = lab.nodes[0].put(&bytes);
    let mut idle: Vec<_> = (0..SERVED_CONNECTIONS_MAX).map(|_| lab.connect(0)).collect();
    lab.fetch(1, object(1), at);
    // It dials, and hears that it has to wait.
    lab.until("the dial", |lab| lab.net.lock().unwrap().dials == 1);
    assert!(lab.nodes[1].events.is_empty());
    idle.pop();
    let copy = lab.end(1, object(1)).unwrap();
    assert!(*lab.nodes[1].pin(copy).unwrap() == *bytes);
    assert!(lab.nodes[1].lost.is_empty());
}

#[test]
fn a_connection_that_idles_makes_way_for_one_that_waits() {
    let mut lab = Lab::new(&[16, 16, 16]);
    let bytes = pattern(1 << 20, 3);
    let at = lab.nodes[0].put(&bytes);
    let _idle: Vec<_> = (1..SERVED_CONNECTIONS_MAX).map(|_| lab.connect(0)).collect();
    // The first keeps its connection for the next object.
    for node in [1, 2] {
        lab.fetch(node, object(1), at);
        let copy = lab.end(node, object(1)).unwrap();
        assert!(*lab.nodes[node].pin(copy).unwrap() == *bytes);
    }
    // It dials again when it needs one, and its own makes way for that.
    let again = lab.nodes[0].put(&bytes);
    lab.fetch(1, object(2), again);
    assert!(lab.end(1, object(2)).is_ok());
    assert!(lab.nodes.iter().all(|node| node.lost.is_empty()));
}
