//! A door without TLS: loopback addresses only, and only peers that know the user's secret.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use bireme_net::door::{DialError, DialSecurity, Door, DoorError, Limits, LoopbackKey, Security, Timeouts, dial};
use bireme_net::frame::{FrameKind, HEADER_BYTES, Header};
use bireme_net::hello::{Greeting, Hello, Purpose};
use bireme_net::tls::Role;

use super::support::{self, CLUSTER, Home, LOOPBACK, Lobby};
use super::{dial_as, hello, reason};

#[test]
fn a_door_without_a_lock_is_for_loopback_alone() {
    let (greeter, _lobby) = Lobby::new();
    for address in ["0.0.0.0:0", "[::]:0", "198.18.0.1:0"] {
        let opened = Door::open(
            address.parse().unwrap(),
            CLUSTER,
            Security::Loopback(support::user_key()),
            Limits::default(),
            greeter.clone(),
        );
        let error = opened.err().unwrap();
        assert!(matches!(error, DoorError::NotLoopback { .. }));
        assert!(error.to_string().contains("bind to 127.0.0.1, or open it with TLS"), "{error}");
    }
    let far = "198.18.0.1:1".parse().unwrap();
    let error = dial(far, &support::same_user(), &hello(Purpose::Control), Timeouts::default()).err().unwrap();
    assert!(matches!(error, DialError::NotLoopback { .. }), "{error}");
}

#[test]
fn a_door_without_a_lock_says_that_to_who_speaks_tls() {
    let (door, lobby) = support::plain_door(Limits::default());
    let home = Home::new();
    assert!(dial_as(door.address(), &home.credentials(Role::Node)).is_err());
    lobby.wait_for_refusals(1);
    assert!(lobby.refusals()[0].reason.contains("speaks TLS and this door does not"));
    let purpose = Purpose::Enrol { token: "x".into(), role: Role::Node, public_key: [1; 32] };
    let text = reason(dial(door.address(), &support::same_user(), &hello(purpose), Timeouts::default()));
    assert!(text.contains("gives no certificates"), "{text}");
}

/// Only root can be somebody else.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn another_user_of_this_machine_does_not_come_in_even_when_it_closes_at_once() {
    if !is_root() {
        assert_ne!(std::env::var("BIREME_SKIPS").as_deref(), Ok("fail"), "not tested: only root can be somebody else");
        return;
    }
    let (door, lobby) = support::plain_door(Limits::default());
    let body = hello(Purpose::Heart).encode().unwrap();
    let frame = [&Header::of(Hello::KIND, &[&body]).encode()[..], &body].concat();
    let challenge = [&Header::of(FrameKind::CHALLENGE, &[&[7; 32]]).encode()[..], &[7; 32]].concat();
    let guess = [&Header::of(FrameKind::PROOF, &[&[9; 32]]).encode()[..], &[9; 32]].concat();
    // A hello without a proof, and one with a proof that it cannot know.
    for words in [frame.clone(), [challenge, guess, frame].concat()] {
        support::say_as_another_user_and_leave(door.address(), &words, 20);
    }
    lobby.wait_until(|| door.counts().refused == 40);
    assert_eq!(door.counts().arrived, 0);
    // The user itself still comes in.
    dial(door.address(), &support::same_user(), &hello(Purpose::Heart), Timeouts::default()).unwrap();
    assert_eq!(door.counts().arrived, 1);
}

#[test]
fn a_peer_with_the_key_of_another_user_is_refused_by_both_sides() {
    let (door, lobby) = support::plain_door(Limits::default());
    let home = Home::new();
    let other = DialSecurity::Loopback(LoopbackKey::open(home.folder()).unwrap());
    let error = dial(door.address(), &other, &hello(Purpose::Heart), Timeouts::default()).err().unwrap();
    assert!(matches!(error, DialError::OtherUser { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("does not know the secret of user") && text.contains("give others a token"), "{text}");
    lobby.wait_until(|| door.counts().refused == 1);
    assert_eq!(door.counts().arrived, 0);
}

#[test]
fn a_program_that_squats_the_port_learns_nothing_and_is_told_nothing() {
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap();
    let squatter = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut challenge = [0; HEADER_BYTES + 32];
        stream.read_exact(&mut challenge).unwrap();
        stream.write_all(&[&Header::of(FrameKind::PROOF, &[&[5; 64]]).encode()[..], &[5; 64]].concat()).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        rest
    });
    let error = dial(address, &support::same_user(), &hello(Purpose::Heart), Timeouts::default()).err().unwrap();
    assert!(matches!(error, DialError::OtherUser { .. }), "{error:?}");
    assert_eq!(squatter.join().unwrap(), b"", "it was told more than a challenge");
}

#[test]
fn a_program_between_two_sides_that_know_the_key_is_refused_by_both() {
    let (door, lobby) = support::plain_door(Limits::default());
    let relay = TcpListener::bind(LOOPBACK).unwrap();
    let (address, to) = (relay.local_addr().unwrap(), door.address());
    let relaying = std::thread::spawn(move || {
        let (near, _) = relay.accept().unwrap();
        let far = TcpStream::connect(to).unwrap();
        let (mut from, mut into) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let there = std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut into);
            let _ = into.shutdown(std::net::Shutdown::Write);
        });
        let (mut from, mut into) = (far, near);
        let _ = std::io::copy(&mut from, &mut into);
        let _ = into.shutdown(std::net::Shutdown::Both);
        there.join().unwrap();
    });
    let error = dial(address, &support::same_user(), &hello(Purpose::Heart), Timeouts::default()).err().unwrap();
    assert!(matches!(error, DialError::OtherUser { .. }), "{error:?}");
    relaying.join().unwrap();
    lobby.wait_until(|| door.counts().refused == 1);
    assert_eq!(door.counts().arrived, 0);
}
