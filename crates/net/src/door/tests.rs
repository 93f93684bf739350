#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use super::*;

fn limits() -> Limits {
    Limits { newcomers: 3, newcomers_per_address: 2, ..Limits::default() }
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

#[test]
fn young_newcomers_are_left_alone_and_the_next_one_finds_no_room() {
    let (slots, (stream, _other)) = (Slots::new(limits()), connection());
    let now = Instant::now();
    let first = slots.admit_at(&stream, address(1), now).unwrap();
    let _second = slots.admit_at(&stream, address(1), now).unwrap();
    assert!(slots.admit_at(&stream, address(1), now).is_none(), "one address has more than its part");
    let _third = slots.admit_at(&stream, address(2), now).unwrap();
    assert!(slots.admit_at(&stream, address(3), now).is_none(), "there are more than the bound");
    drop(first);
    assert!(slots.admit_at(&stream, address(3), now).is_some());
}

#[test]
fn who_has_been_unknown_for_longest_makes_way() {
    let (slots, (stream, mut other)) = (Slots::new(limits()), connection());
    let now = Instant::now();
    let first = slots.admit_at(&stream, address(1), now).unwrap();
    let second = slots.admit_at(&stream, address(2), now).unwrap();
    let third = slots.admit_at(&stream, address(3), now).unwrap();
    assert!(first.known());
    let fourth = slots.admit_at(&stream, address(4), now + Duration::from_secs(1)).unwrap();
    assert_eq!([&first, &second, &third, &fourth].map(slots::Slot::made_way), [false, true, false, false]);
    assert!(!second.known());
    // Its connection has ended, so its thread wakes.
    assert_eq!(io::Read::read(&mut other, &mut [0; 8]).unwrap(), 0);
}

#[test]
fn when_all_are_known_nobody_makes_way() {
    let (slots, (stream, _other)) = (Slots::new(limits()), connection());
    let now = Instant::now();
    let known: Vec<_> = (0..3).map(|last| slots.admit_at(&stream, address(last), now).unwrap()).collect();
    assert!(known.iter().all(slots::Slot::known));
    assert!(slots.admit_at(&stream, address(9), now + Duration::from_secs(60)).is_none());
}

#[test]
fn half_of_an_ipv6_address_is_one_crowd() {
    let (slots, (stream, _other)) = (Slots::new(limits()), connection());
    let now = Instant::now();
    let _places =
        ["2001:db8::1", "2001:db8::2"].map(|text| slots.admit_at(&stream, text.parse().unwrap(), now).unwrap());
    assert!(slots.admit_at(&stream, "2001:db8::3".parse().unwrap(), now).is_none());
    assert!(slots.admit_at(&stream, "2001:db8:0:1::3".parse().unwrap(), now).is_some());
}
