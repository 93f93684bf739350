//! Silent, slow and too many connections: ended in time, bounded, and nobody honest is kept out.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bireme_net::door::{DialSecurity, Limits, Timeouts, dial, enrol};
use bireme_net::hello::Purpose;
use bireme_net::tls::{ClientTls, Role};

use super::support::{self, Home, LOOPBACK, resident_bytes};
use super::{DAY, dial_as, hello};

#[test]
fn half_open_connections_are_ended_in_time() {
    let home = Home::new();
    let limits = Limits { greeting: Duration::from_millis(300), ..Limits::default() };
    let (door, lobby) = home.door(limits);
    let start = Instant::now();
    // Nothing, half of a TLS record, and a handshake without a hello.
    let silent: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(door.address()).unwrap()).collect();
    (&silent[1]).write_all(&[22, 3, 1, 2]).unwrap();
    (&silent[2]).write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    for mut stream in &silent {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.read(&mut [0; 64]);
    }
    assert!(start.elapsed() >= limits.greeting && start.elapsed() < Duration::from_secs(10));
    lobby.wait_for_refusals(3);
    assert!(lobby.refusals().iter().all(|refusal| refusal.reason.contains("did not say who it is within 0.3 s")));
    dial_as(door.address(), &home.credentials(Role::Node)).unwrap();
}

#[test]
fn many_slow_peers_keep_nobody_out_and_cost_little() {
    let home = Home::new();
    let limits = Limits { newcomers: 24, newcomers_per_address: 16, ..Limits::default() };
    let (door, lobby) = home.door(limits);
    let node = home.credentials(Role::Node);
    dial_as(door.address(), &node).unwrap();
    let before = resident_bytes();
    let start = Instant::now();
    let mut slow: Vec<TcpStream> = Vec::new();
    let mut let_in = 0;
    // Three rounds of more peers than there are places, from several addresses, each with a byte now and then.
    for round in 0u8..3 {
        for number in 0..200u16 {
            let from: SocketAddr = format!("127.0.0.{}:0", 2 + number % 5).parse().unwrap();
            slow.push(support::connect_from(from, door.address()));
        }
        for stream in &mut slow {
            // Those that had to go say so.
            let _ = stream.write_all(&[[22, 3, 1][usize::from(round)]]);
        }
        // Honest peers, from an address of their own and from the same ones, get in between.
        let deadline = Instant::now() + Duration::from_secs(10);
        while dial_as(door.address(), &node).is_err() {
            assert!(Instant::now() < deadline, "an honest peer was kept out");
        }
        let_in += 1;
        assert!(door.newcomers() <= 2 * limits.newcomers, "{} newcomers", door.newcomers());
    }
    assert_eq!(let_in, 3);
    let counts = door.counts();
    assert!(counts.crowded > 400, "{counts:?}");
    assert_eq!(counts.arrived, 4);
    // A flood is not a flood of the log.
    let told = lobby.refusals().len() as u64;
    assert!(told <= 10 * (start.elapsed().as_secs() + 2), "{told} refusals told");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for peers that nobody knows");
}

/// A dialler that does not try again.
const ONCE: Timeouts = Timeouts { connect: DAY, greeting: DAY, attempts: 1 };

#[test]
fn silent_connections_keep_nobody_out_at_the_first_attempt() {
    let home = Home::new();
    let limits = Limits { waiting: 60, waiting_per_address: 40, ..Limits::default() };
    let (door, lobby) = home.door(limits);
    let security = DialSecurity::Tls(ClientTls::new(&home.credentials(Role::Node)).unwrap());
    // Of the address of the honest one, which is its own too, and of others: more than may wait.
    let mut silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(door.address()).unwrap()).collect();
    for number in 0..50u8 {
        let from: SocketAddr = format!("127.0.0.{}:0", 2 + number % 5).parse().unwrap();
        silent.push(support::connect_from(from, door.address()));
    }
    for _ in 0..5 {
        dial(door.address(), &security, &hello(Purpose::Control), ONCE).unwrap();
        silent.extend((0..50).map(|_| TcpStream::connect(door.address()).unwrap()));
    }
    lobby.wait_until(|| door.counts().crowded >= 250);
    assert_eq!(door.newcomers(), 0, "who says nothing has no thread");
}

#[test]
fn connections_that_begin_a_greeting_and_stop_make_way_at_once() {
    let home = Home::new();
    let (door, _lobby) = home.door(Limits { newcomers: 20, newcomers_per_address: 16, ..Limits::default() });
    let security = DialSecurity::Tls(ClientTls::new(&home.credentials(Role::Node)).unwrap());
    for (round, from) in ["127.0.0.9:0", "127.0.0.1:0"].into_iter().enumerate() {
        let from: SocketAddr = from.parse().unwrap();
        let _stopped: Vec<TcpStream> = (0..60)
            .map(|_| {
                let mut stream = support::connect_from(from, door.address());
                // It may have been sent away already.
                let _ = stream.write_all(&[22, 3, 1]);
                stream
            })
            .collect();
        dial(door.address(), &security, &hello(Purpose::Control), ONCE).unwrap();
        assert_eq!(door.counts().arrived, round as u64 + 1);
    }
}

#[test]
fn a_dialler_that_is_turned_away_without_a_word_tries_again() {
    let home = Home::new();
    let (door, _lobby) = home.door(Limits::default());
    let crowded = TcpListener::bind(LOOPBACK).unwrap();
    let address = crowded.local_addr().unwrap();
    let inside = door.address();
    let turning_away = std::thread::spawn(move || {
        for _ in 0..2 {
            drop(crowded.accept().unwrap());
        }
        let (from, to) = (crowded.accept().unwrap().0, TcpStream::connect(inside).unwrap());
        let back = (to.try_clone().unwrap(), from.try_clone().unwrap());
        let copying = std::thread::spawn(move || std::io::copy(&mut &back.0, &mut &back.1));
        let _ = std::io::copy(&mut &from, &mut &to);
        let _ = to.shutdown(std::net::Shutdown::Both);
        let _ = copying.join().unwrap();
    });
    let credentials = enrol(address, &home.token(Role::Node, DAY, Some(1)), Role::Node, Timeouts::default()).unwrap();
    turning_away.join().unwrap();
    dial_as(door.address(), &credentials).unwrap();
}
