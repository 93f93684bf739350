#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr, TcpStream};

use super::slots::{Slot, crowd_of};
use super::*;

fn limits() -> Limits {
    Limits { newcomers: 3, newcomers_per_address: 2, members: 2, ..Limits::default() }
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(198, 18, 0, last).into()
}

/// A connection to ourselves: what the table of places holds on to.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (dialled, listener.accept().unwrap().0)
}

fn admit(slots: &Arc<Slots>, stream: &TcpStream, last: u8) -> Option<Slot> {
    slots.admit(stream, crowd_of(address(last)))
}

#[test]
fn who_has_been_unknown_for_longest_makes_way_at_once() {
    let (slots, (stream, mut other)) = (Slots::new(limits()), connection());
    let [first, second, third] = [1, 2, 3].map(|last| admit(&slots, &stream, last).unwrap());
    assert!(first.known());
    let fourth = admit(&slots, &stream, 4).unwrap();
    assert_eq!([&first, &second, &third, &fourth].map(Slot::made_way), [false, true, false, false]);
    assert!(!second.known());
    // Its connection has ended, so its thread wakes.
    assert_eq!(io::Read::read(&mut other, &mut [0; 8]).unwrap(), 0);
}

#[test]
fn an_address_that_has_its_part_makes_way_for_itself() {
    let (slots, (stream, _other)) = (Slots::new(limits()), connection());
    let [first, second, third] = [1, 2, 2].map(|last| admit(&slots, &stream, last).unwrap());
    let fourth = admit(&slots, &stream, 2).unwrap();
    assert_eq!([&first, &second, &third, &fourth].map(Slot::made_way), [false, true, false, false]);
}

#[test]
fn when_all_are_known_nobody_makes_way() {
    let (slots, (stream, _other)) = (Slots::new(limits()), connection());
    let known = [0, 1, 2].map(|last| admit(&slots, &stream, last).unwrap());
    assert!(known.iter().all(Slot::known));
    assert!(admit(&slots, &stream, 9).is_none());
}

#[test]
fn those_with_a_certificate_have_places_of_their_own() {
    let (slots, (stream, _other)) = (Slots::new(limits()), connection());
    let [first, second, third] = [1, 1, 1].map(|last| {
        let slot = admit(&slots, &stream, last).unwrap();
        let place = slot.take_member_place();
        (slot, place)
    });
    assert_eq!([first.1, second.1, third.1], [true, true, false]);
    // However many come now, only the one without such a place makes way.
    let _flood = [2, 3, 4, 5].map(|last| admit(&slots, &stream, last).unwrap());
    assert_eq!([first.0.made_way(), second.0.made_way(), third.0.made_way()], [false, false, true]);
    assert!(!third.0.take_member_place());
    assert!(slots.is_member(crowd_of(address(1))) && !slots.is_member(crowd_of(address(2))));
    drop(first);
    let next = admit(&slots, &stream, 9).unwrap();
    assert!(next.take_member_place());
}

#[test]
fn threads_that_have_not_ended_yet_are_bounded() {
    let (slots, (stream, _other)) = (Slots::new(limits()), connection());
    let alive: Vec<Slot> = (0..2 * 3 + 2).map(|last| admit(&slots, &stream, last).unwrap()).collect();
    assert!(admit(&slots, &stream, 99).is_none());
    drop(alive);
    assert!(admit(&slots, &stream, 99).is_some());
}

#[test]
fn half_of_an_ipv6_address_is_one_crowd() {
    let crowd = |text: &str| crowd_of(text.parse().unwrap());
    assert_eq!(crowd("2001:db8::1"), crowd("2001:db8::2"));
    assert_ne!(crowd("2001:db8::1"), crowd("2001:db8:0:1::1"));
    assert_eq!(crowd("::ffff:198.18.0.1"), crowd("198.18.0.1"));
}
