#![allow(clippy::unwrap_used)]

mod wires;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bireme_core::session::Stamp;
use proptest::prelude::*;

use super::inbox::Inbox;
use super::message::{Beginning, Kind, What};
use super::*;
use crate::frame::{HEADER_BYTES, Header};
use crate::wire::PlainWire;
use wires::{Cutting, memory_pair};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const NOW: Tick = Tick(1);
const PATIENCE: Duration = Duration::from_secs(30);
const T0: Track = Track::FIRST;

fn track(index: usize) -> Track {
    Track::new(index).unwrap()
}

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (dialled, listener.accept().unwrap().0)
}

fn plain(stream: TcpStream) -> Box<dyn Wire> {
    Box::new(PlainWire::new(stream).unwrap())
}

/// Two links and what the second has delivered.
struct Two {
    a: ControlLink,
    b: ControlLink,
    delivered: Vec<(Track, Vec<u8>)>,
}

impl Two {
    fn new(limits: SessionLimits) -> Self {
        Self { a: ControlLink::new(A, B, limits), b: ControlLink::new(B, A, limits), delivered: Vec::new() }
    }

    fn attach(&mut self) {
        let (a, b) = streams();
        self.a.attach(plain(a)).unwrap();
        self.b.attach(plain(b)).unwrap();
    }

    /// One turn of both sides.
    fn turn(&mut self) -> Result<(), LinkEnd> {
        self.a.writable(NOW)?;
        self.b.receive(NOW, |track, bytes| self.delivered.push((track, bytes.to_vec())))?;
        self.b.writable(NOW)?;
        self.a.receive(NOW, |_, _| panic!("the second link sends nothing"))?;
        Ok(())
    }

    fn turn_until(&mut self, done: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            self.turn().unwrap();
            assert!(begun.elapsed() < PATIENCE, "{} messages came", self.delivered.len());
        }
    }
}

fn number(n: u32) -> Vec<u8> {
    n.to_le_bytes().to_vec()
}

#[test]
fn messages_of_a_track_come_once_and_in_order_with_or_without_a_connection() {
    let mut two = Two::new(SessionLimits::default());
    assert_eq!(two.a.send(T0, number(0)), Sent::Stalled);
    two.attach();
    assert!(!two.a.is_open());
    for n in 1..500 {
        let _ = two.a.send(T0, number(n));
    }
    assert!(two.a.is_stalled() && two.a.queued_bytes() > 2_000);
    two.turn_until(|two| two.delivered.len() == 500);
    assert!(two.a.is_open() && !two.a.is_stalled() && !two.a.wants_write());
    let expected: Vec<_> = (0..500).map(|n| (T0, number(n))).collect();
    assert_eq!(two.delivered, expected);
    assert_eq!(two.a.queued_bytes(), 0);
}

#[test]
fn large_messages_are_joined_again_and_the_empty_one_too() {
    let mut two = Two::new(SessionLimits::default());
    two.attach();
    let sizes = [0, 1, 4_096, 4_097, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, (17 << 20) + 5];
    let messages: Vec<Vec<u8>> = sizes.iter().map(|size| (0..*size).map(|n| ((n * 31) >> 3) as u8).collect()).collect();
    for message in &messages {
        let _ = two.a.send(T0, message.clone());
    }
    two.turn_until(|two| two.delivered.len() == sizes.len());
    assert!(two.delivered.iter().map(|(_, bytes)| bytes).eq(&messages));
}

#[test]
fn a_connection_that_is_cut_anywhere_loses_and_doubles_nothing() {
    // The frames of the session take some 200,000 bytes: every place where a cut is special, and many where it is not.
    for cut in (0..80).chain((80..210_000).step_by(9_973)) {
        let mut two = Two::new(SessionLimits::default());
        for n in 0..20 {
            let _ = two.a.send(track((n % 2) as usize), number(n));
        }
        let _ = two.a.send(T0, vec![9; 3 * PIECE_BYTES]);
        let (a, b) = streams();
        two.a.attach(plain(a)).unwrap();
        two.b.attach(Box::new(Cutting::new(PlainWire::new(b).unwrap(), cut))).unwrap();
        let begun = Instant::now();
        let end = loop {
            match two.turn() {
                Err(end) => break Some(end),
                Ok(()) if two.delivered.len() == 21 => break None,
                Ok(()) => assert!(begun.elapsed() < PATIENCE),
            }
        };
        assert!(matches!(end, None | Some(LinkEnd::Cut | LinkEnd::Closed)), "{end:?}");
        two.a.detach();
        two.attach();
        let _ = two.a.send(T0, b"last".to_vec());
        two.turn_until(|two| two.delivered.len() == 22);
        for index in 0..2 {
            let got = two.delivered.iter().filter(|(at, bytes)| at.index() == index && bytes.len() == 4);
            let expected = (0..20).filter(|n| n % 2 == index as u32).map(number);
            let last = (index == 0).then(|| b"last".to_vec());
            assert!(got.map(|(_, bytes)| bytes.clone()).eq(expected.chain(last)), "cut at {cut}");
        }
        assert!(two.delivered.contains(&(T0, vec![9; 3 * PIECE_BYTES])));
    }
}

#[test]
fn a_flood_of_small_messages_needs_bounded_memory_on_both_sides() {
    const VOLUME: usize = 64 << 20;
    const QUEUED_MAX: usize = 2 << 20;
    let limits = SessionLimits { window_bytes: 1 << 20, ..SessionLimits::default() };
    let mut two = Two::new(limits);
    two.attach();
    let (mut sent, mut came) = (0u64, 0u64);
    let begun = Instant::now();
    while came < (VOLUME / 64) as u64 {
        // As a node does: what it reads next waits while much is queued.
        if two.a.kept_bytes_on(T0) < QUEUED_MAX {
            let mut message = vec![0; 64];
            message[..8].copy_from_slice(&sent.to_le_bytes());
            sent += 1;
            if two.a.send(T0, message) == Sent::Queued {
                continue;
            }
        }
        two.a.writable(NOW).unwrap();
        let count = |_, bytes: &[u8]| {
            assert_eq!(bytes[..8], came.to_le_bytes());
            came += 1;
        };
        two.b.receive(NOW, count).unwrap();
        two.b.writable(NOW).unwrap();
        two.a.receive(NOW, |_, _| ()).unwrap();
        assert!(begun.elapsed() < 2 * PATIENCE, "{came} of {sent} came");
    }
    assert!(sent >= came);
}

#[test]
fn a_peer_that_does_not_read_stalls_the_track_and_loses_nothing() {
    let limits = SessionLimits { window_bytes: 1 << 20, ..SessionLimits::default() };
    let mut two = Two::new(limits);
    two.attach();
    two.turn().unwrap();
    let outcomes: Vec<Sent> = (0..40).map(|_| two.a.send(T0, vec![0; 64 << 10])).collect();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Sent::Queued | Sent::Stalled)));
    assert!(two.a.flush(NOW).is_ok() && two.a.is_stalled());
    assert_eq!(two.a.send(track(1), number(1)), Sent::Queued, "the others go on");
    two.turn_until(|two| two.delivered.len() == 41);
}

#[test]
fn a_small_message_waits_for_one_piece_of_a_large_one_at_most() {
    let mut a = ControlLink::new(A, B, SessionLimits::default());
    let (near, mut far) = streams();
    a.attach(plain(near)).unwrap();
    let beginning = Beginning { from: B, to: A, expected: [1; TRACKS] }.to_bytes();
    far.write_all(&Header::of(Kind::Beginning.number(), &[&beginning]).encode()).unwrap();
    far.write_all(&beginning).unwrap();
    while !a.is_open() {
        a.receive(NOW, |_, _| ()).unwrap();
    }
    let large = 64 << 20;
    let _ = a.send(track(1), vec![7; large]);
    while !a.wants_write() {
        a.flush(NOW).unwrap();
    }
    // What is queued has the header of one piece at most, which is none of the message's bytes.
    let pieces_before = (large + HEADER_BYTES + Stamp::BYTES - a.queued_bytes()) / PIECE_BYTES;
    let _ = a.send(T0, number(1));
    let mut inbox = Inbox::new(PIECE_BYTES + Stamp::BYTES);
    far.set_nonblocking(true).unwrap();
    let (mut pieces, mut small_after) = (0, None);
    while pieces < large / PIECE_BYTES {
        a.writable(NOW).unwrap();
        if let Ok(count) = far.read(inbox.room()) {
            inbox.filled(count);
        }
        while let Some(frame) = inbox.next_frame().unwrap() {
            match Kind::from_number(frame.kind).unwrap() {
                Kind::Of(_, What::Piece | What::LastPiece) => pieces += 1,
                Kind::Of(_, What::Whole) => small_after = Some(pieces),
                other => assert_eq!((other, pieces), (Kind::Beginning, 0)),
            }
        }
    }
    let small_after = small_after.expect("the small one came");
    // The piece that the kernel took a part of is the one that it waited for.
    assert!(small_after <= pieces_before + 1, "after {small_after} pieces, sent after {pieces_before}");
}

#[test]
fn a_damaged_header_ends_its_own_connection_and_nothing_else() {
    let (mut good, mut bad) = (Two::new(SessionLimits::default()), Two::new(SessionLimits::default()));
    good.attach();
    bad.attach();
    for two in [&mut good, &mut bad] {
        let _ = two.a.send(T0, number(1));
        two.turn_until(|two| two.delivered.len() == 1);
    }
    let (a, mut garbage) = streams();
    bad.a.attach(plain(a)).unwrap();
    garbage.write_all(&[0xa5; 64]).unwrap();
    let end = loop {
        match bad.a.receive(NOW, |_, _| ()) {
            Ok(_) => {}
            Err(end) => break end,
        }
    };
    assert!(matches!(end, LinkEnd::Damaged(_)), "{end:?}");
    assert!(bad.a.socket().is_none());
    for two in [&mut good, &mut bad] {
        let _ = two.a.send(T0, number(2));
    }
    good.turn_until(|two| two.delivered.len() == 2);
    bad.attach();
    bad.turn_until(|two| two.delivered.len() == 2);
}

/// What a link says to a peer that writes these frames.
fn end_after(frames: &[(Kind, &[u8])]) -> LinkEnd {
    let mut link = ControlLink::new(A, B, SessionLimits::default());
    let (near, mut far) = streams();
    link.attach(plain(near)).unwrap();
    for (kind, body) in frames {
        far.write_all(&Header::of(kind.number(), &[body]).encode()).unwrap();
        far.write_all(body).unwrap();
    }
    far.shutdown(std::net::Shutdown::Write).unwrap();
    loop {
        if let Err(end) = link.receive(NOW, |_, _| ()) {
            return end;
        }
    }
}

#[test]
fn strangers_and_nonsense_are_told_apart() {
    let beginning = |from, to, first| Beginning { from, to, expected: [first, 1, 1, 1] }.to_bytes();
    let ok = beginning(B, A, 1);
    let stamp = |sequence, acknowledged| Stamp { from: B, to: A, sequence, acknowledged }.to_bytes();
    let of = |what| Kind::Of(T0, what);
    assert!(matches!(end_after(&[]), LinkEnd::Closed));
    assert!(matches!(end_after(&[(Kind::Beginning, &ok)]), LinkEnd::Closed));
    assert!(matches!(end_after(&[(Kind::Beginning, &beginning(NodeId(9), A, 1))]), LinkEnd::Stranger(_)));
    assert!(matches!(end_after(&[(Kind::Beginning, &beginning(B, NodeId(9), 1))]), LinkEnd::Stranger(_)));
    assert!(matches!(end_after(&[(Kind::Beginning, &beginning(B, A, 7))]), LinkEnd::Stranger(_)));
    assert!(matches!(end_after(&[(Kind::Beginning, &ok[1..])]), LinkEnd::Nonsense(_)));
    let begun = |what, body: &[u8]| end_after(&[(Kind::Beginning, &ok), (of(what), body)]);
    assert!(matches!(end_after(&[(of(What::Whole), &stamp(1, 0))]), LinkEnd::Nonsense(_)), "no beginning");
    assert!(matches!(begun(What::Whole, &stamp(1, 0)), LinkEnd::Closed));
    assert!(matches!(begun(What::Whole, &stamp(2, 0)), LinkEnd::Nonsense(_)), "a gap");
    assert!(matches!(begun(What::Whole, &stamp(1, 5)), LinkEnd::Stranger(_)), "acknowledges what was not sent");
    assert!(matches!(begun(What::Whole, &stamp(1, 0)[1..]), LinkEnd::Nonsense(_)), "half a stamp");
    assert!(matches!(begun(What::Piece, &[&stamp(1, 0)[..], b"x"].concat()), LinkEnd::Cut), "half a message");
    let two = [(Kind::Beginning, &ok[..]), (Kind::Beginning, &ok[..])];
    assert!(matches!(end_after(&two), LinkEnd::Nonsense(_)));
}

#[test]
fn an_acknowledgement_goes_alone_when_nothing_flows_back() {
    let mut two = Two::new(SessionLimits::default());
    two.attach();
    let _ = two.a.send(T0, number(1));
    two.turn_until(|two| two.delivered.len() == 1);
    let due = two.b.deadline().unwrap();
    assert!(two.a.kept_bytes() > 0);
    two.b.flush(due).unwrap();
    let begun = Instant::now();
    while two.a.kept_bytes() > 0 {
        two.a.receive(NOW, |_, _| ()).unwrap();
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(two.b.deadline(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_wire_takes_and_gives_at_a_time_messages_come_whole(
        sizes in prop::collection::vec((0..TRACKS, prop_oneof![4 => 0..300usize, 2 => 0..20_000usize, 1 => 0..300_000usize]), 1..60),
        takes in prop::collection::vec(1..200_000usize, 1..20),
        gives in prop::collection::vec(1..200_000usize, 1..20),
        cuts in prop::collection::vec(0..60usize, 0..4),
    ) {
        let limits = SessionLimits { window_bytes: 100_000, ack_after_bytes: 30_000, ..SessionLimits::default() };
        let mut two = Two::new(limits);
        let body = |index: usize, size: usize| -> Vec<u8> { (0..size).map(|n| ((index * 7 + n * 13) >> 2) as u8).collect() };
        for (index, (at, size)) in sizes.iter().enumerate() {
            // Some say something themselves, some pass something on, most do both.
            let body = body(index, *size);
            let (passed_on, own) = body.split_at(size * (index % 4) / 3);
            let value = passed_on.len() / 3..passed_on.len() / 3 * 2;
            let _ = two.a.send(track(*at), Message { passed_on: passed_on.into(), own: own.to_vec(), value });
        }
        let attach = |two: &mut Two| {
            let (a, b) = memory_pair(&takes, &gives);
            two.a.attach(Box::new(a)).unwrap();
            two.b.attach(Box::new(b)).unwrap();
        };
        for turns in cuts {
            attach(&mut two);
            for _ in 0..turns {
                two.turn().unwrap();
            }
        }
        attach(&mut two);
        let begun = Instant::now();
        while two.delivered.len() < sizes.len() {
            two.turn().unwrap();
            prop_assert!(begun.elapsed() < PATIENCE);
        }
        for at in 0..TRACKS {
            let sent = sizes.iter().enumerate().filter(|(_, (on, _))| *on == at);
            let got = two.delivered.iter().filter(|(on, _)| on.index() == at).map(|(_, bytes)| bytes.clone());
            prop_assert!(got.eq(sent.map(|(index, (_, size))| body(index, *size))));
        }
    }
}
