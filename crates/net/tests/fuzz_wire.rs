//! A seeded fuzzer of every decoder that reads bytes of another machine: valid frames and greetings, mutated.
//!
//! No decoder may panic, and what one accepts must survive its own encoding and be within its bounds.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/draw.rs"]
mod draw;

use bireme_net::frame::{Decoder, FrameKind, Header};
use bireme_net::hello::{
    Enrolled, Greeting, HELLO_BYTES_MAX, Hello, OtherAuthority, Purpose, Ticket, Welcome, decode_reason,
};
use bireme_net::tls::Role;
use bireme_net::token::Token;
use draw::Draw;

const ITERATIONS: u64 = 200_000;
const BODY_BYTES_MAX: usize = 2048;

fn bytes(draw: &mut Draw, length_max: u64) -> Vec<u8> {
    (0..draw.below(length_max)).map(|_| draw.number() as u8).collect()
}

fn array(draw: &mut Draw) -> [u8; 32] {
    std::array::from_fn(|_| draw.number() as u8)
}

fn text(draw: &mut Draw) -> String {
    (0..draw.below(40)).map(|_| char::from(b'a' + draw.below(26) as u8)).collect()
}

/// The kind and body of a greeting.
fn greeting(draw: &mut Draw) -> (FrameKind, Vec<u8>) {
    let cluster = u128::from(draw.number()) << draw.below(64);
    let role = if draw.below(2) == 0 { Role::Node } else { Role::Client };
    let purpose = match draw.below(4) {
        0 => Purpose::Control,
        1 => Purpose::Heart,
        2 => Purpose::Bulk { ticket: Ticket(array(draw)), encrypted: draw.below(2) == 0 },
        _ => Purpose::Enrol { token: text(draw), role, public_key: array(draw) },
    };
    let node = draw.number() as u32;
    match draw.below(3) {
        0 => (Hello::KIND, Hello { build: text(draw), ..Hello::new(cluster, node, purpose) }.encode().unwrap()),
        1 => (Welcome::KIND, Welcome { build: text(draw), ..Welcome::new(cluster, node) }.encode().unwrap()),
        _ => {
            let (certificate, authority) = (bytes(draw, 80), bytes(draw, 80));
            let endorsements = [bytes(draw, 80), bytes(draw, 80)];
            let other = OtherAuthority { authority: bytes(draw, 80), endorsements };
            let other = (draw.below(2) == 0).then_some(other);
            let (expires, epoch) = (draw.number(), draw.number());
            let enrolled = Enrolled { cluster, certificate, authority, expires, epoch, other };
            (Enrolled::KIND, enrolled.encode().unwrap())
        }
    }
}

/// What was accepted survives its own encoding.
fn check<G: Greeting + PartialEq + std::fmt::Debug>(kind: FrameKind, body: &[u8]) -> bool {
    let Ok(greeting) = G::decode(kind, body) else { return false };
    let again = greeting.encode().unwrap();
    assert!(again.len() <= HELLO_BYTES_MAX);
    assert_eq!(G::decode(kind, &again).as_ref(), Ok(&greeting), "input {body:?}");
    true
}

#[test]
fn mutated_greetings_are_decoded_or_refused() {
    let mut draw = Draw(0x0d00_4e11);
    let mut accepted = [0u64; 3];
    let (_, mut other) = greeting(&mut draw);
    for _ in 0..ITERATIONS {
        let (kind, mut body) = greeting(&mut draw);
        let whole = body.clone();
        draw.mutate(&mut body, &other);
        other = whole;
        let results = [check::<Hello>(kind, &body), check::<Welcome>(kind, &body), check::<Enrolled>(kind, &body)];
        for (count, accepted_now) in accepted.iter_mut().zip(results) {
            *count += u64::from(accepted_now);
        }
        assert!(decode_reason(&body).chars().all(|c| !c.is_control()));
    }
    // A fuzzer whose inputs are all refused at the first byte tests nothing.
    assert!(accepted.iter().all(|count| *count > ITERATIONS / 200), "accepted: {accepted:?}");
}

#[test]
fn mutated_streams_of_frames_are_decoded_or_refused() {
    let mut draw = Draw(0x00f4_a3e5);
    let (mut frames, mut refused, mut whole) = (0u64, 0u64, 0u64);
    let mut other = Vec::new();
    for _ in 0..ITERATIONS / 4 {
        let mut stream = Vec::new();
        for _ in 0..=draw.below(3) {
            let body = bytes(&mut draw, 200);
            stream.extend_from_slice(&Header::of(FrameKind(draw.number() as u16), &[&body]).encode());
            stream.extend_from_slice(&body);
        }
        let original = stream.clone();
        draw.mutate(&mut stream, &other);
        whole += u64::from(stream == original);
        other = original;
        let mut decoder = Decoder::new(BODY_BYTES_MAX);
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(1 + draw.below(rest.len() as u64) as usize);
            rest = later;
            decoder.feed(piece);
            loop {
                match decoder.next() {
                    Ok(Some(frame)) => {
                        assert!(frame.body.len() <= BODY_BYTES_MAX);
                        frames += 1;
                    }
                    Ok(None) => break,
                    Err(_) => {
                        refused += 1;
                        break;
                    }
                }
            }
            assert!(decoder.pending_bytes() <= stream.len());
        }
    }
    assert!(frames > 10_000 && refused > 10_000 && whole < ITERATIONS / 8, "{frames} frames, {refused} refused");
}

#[test]
fn mutated_tokens_are_read_or_refused() {
    let mut draw = Draw(0x07e0_4e17);
    let valid = b"bireme-aeaiq53gkvcdgiqrackdk5yaaaaaaaabaibqibiga4eascqlbqgq4dyqcejbgfa\
        vcylrqgi2dmob2hq7mrswmz3infvgw3dnnzxxa4lson2hk5txpb4xu634pv7h7aebqkbwrwellm"
        .to_vec();
    assert!(Token::parse(str::from_utf8(&valid).unwrap()).is_ok());
    for _ in 0..ITERATIONS / 4 {
        let mut bytes = valid.clone();
        draw.mutate(&mut bytes, &valid);
        if let Ok(token) = Token::parse(&String::from_utf8_lossy(&bytes)) {
            assert_eq!(Token::parse(&token.to_text()).unwrap(), token);
        }
    }
}
