#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use super::*;
use crate::wire::PlainWire;

const PATIENCE: Duration = Duration::from_secs(20);

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (dialled, listener.accept().unwrap().0)
}

struct Beating {
    heard: Receiver<Vec<u8>>,
    stop: HeartStop,
    thread: JoinHandle<HeartEnd>,
}

fn beat(stream: TcpStream, period: Duration, payload: &'static [u8]) -> Beating {
    let heart = Heart::new(Box::new(PlainWire::new(stream).unwrap()), period).unwrap();
    let stop = heart.stop_handle();
    let (tell, heard) = channel();
    let thread = std::thread::spawn(move || {
        heart.run(|bytes| bytes.extend_from_slice(payload), |bytes| drop(tell.send(bytes.to_vec())))
    });
    Beating { heard, stop, thread }
}

#[test]
fn both_ends_hear_each_other_period_after_period() {
    let (a, b) = pair();
    let (a, b) = (beat(a, Duration::from_millis(1), b"load of a"), beat(b, Duration::from_millis(2), b""));
    for _ in 0..20 {
        assert_eq!(b.heard.recv_timeout(PATIENCE).unwrap(), b"load of a");
        assert_eq!(a.heard.recv_timeout(PATIENCE).unwrap(), b"");
    }
    a.stop.stop();
    assert!(matches!(a.thread.join().unwrap(), HeartEnd::Stopped));
    assert!(matches!(b.thread.join().unwrap(), HeartEnd::Lost(_)), "the other one sees the end");
}

#[test]
fn the_end_of_the_connection_is_seen_at_once_and_not_at_the_next_beat() {
    let (a, b) = pair();
    let beating = beat(a, Duration::from_secs(3_600), b"x");
    drop(b);
    assert!(matches!(beating.thread.join().unwrap(), HeartEnd::Lost(_)));
}

#[test]
fn a_connection_that_ends_inside_of_a_beat_was_cut() {
    let (a, mut b) = pair();
    let beating = beat(a, Duration::from_secs(3_600), b"");
    b.write_all(&Header::of(BEAT, &[b"abc"]).encode()).unwrap();
    // Half-closed, so that nothing is reset: what was sent is read to its end.
    b.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(matches!(beating.thread.join().unwrap(), HeartEnd::Lost(LinkEnd::Cut)));
}

#[test]
fn something_else_than_a_heartbeat_ends_the_heart() {
    for header in [Header::of(FrameKind(999), &[]).encode(), [0xff; HEADER_BYTES]] {
        let (a, mut b) = pair();
        let beating = beat(a, Duration::from_secs(3_600), b"");
        b.write_all(&header).unwrap();
        let end = beating.thread.join().unwrap();
        assert!(matches!(end, HeartEnd::Lost(LinkEnd::Nonsense(_) | LinkEnd::Damaged(_))), "{end:?}");
    }
}

#[test]
fn a_peer_that_never_reads_costs_one_beat_of_memory() {
    let (a, b) = pair();
    let heart = Heart::new(Box::new(PlainWire::new(a).unwrap()), Duration::from_micros(1)).unwrap();
    let stop = heart.stop_handle();
    let (tell, told) = channel();
    let made = std::thread::spawn(move || {
        let mut made = 0u64;
        let payload = |bytes: &mut Vec<u8>| {
            bytes.resize(bytes.len() + BEAT_BYTES_MAX, 7);
            made += 1;
            let _ = tell.send(made);
        };
        let end = heart.run(payload, |_| ());
        (made, end)
    });
    // Beats are made as long as the kernel takes them; then none is, however many periods pass.
    let quiet = Duration::from_millis(300);
    while told.recv_timeout(quiet).is_ok() {}
    stop.stop();
    let (made, end) = made.join().unwrap();
    assert!(made >= 1 && matches!(end, HeartEnd::Stopped));
    drop(b);
}

#[test]
fn a_heart_that_is_stopped_says_farewell() {
    let (a, b) = pair();
    let period = Duration::from_secs(3_600);
    let heart = Heart::new(Box::new(PlainWire::new(a).unwrap()), period).unwrap().with_farewell(b"bye".to_vec());
    let stop = heart.stop_handle();
    let thread = std::thread::spawn(move || heart.run(|bytes| bytes.extend_from_slice(b"here"), |_| ()));
    let other = beat(b, period, b"");
    assert_eq!(other.heard.recv_timeout(PATIENCE).unwrap(), b"here");
    stop.stop();
    assert_eq!(other.heard.recv_timeout(PATIENCE).unwrap(), b"bye");
    assert!(matches!(thread.join().unwrap(), HeartEnd::Stopped));
    assert!(matches!(other.thread.join().unwrap(), HeartEnd::Lost(_)));
}
