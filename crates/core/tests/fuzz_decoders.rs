//! A seeded fuzzer of every decoder that reads bytes of another process: valid encodings, mutated.
//!
//! No decoder may panic or make something larger than its input can explain, and what a decoder accepts must survive
//! its own encoding.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/arbitrary.rs"]
mod arbitrary;

use arbitrary::Draw;
use bireme_core::codec::Reader;
use bireme_core::message::{FromNode, NodeBound, Peer};
use bireme_core::record::Record;
use bireme_core::spec::TaskSpec;
use bireme_core::value::Value;

const ITERATIONS: u64 = 200_000;
/// A form may be written longer than it was read (options once by hand, once in postcard), never by more than this.
const GROWTH_MAX: usize = 8;

fn encoded(draw: &mut Draw) -> Vec<u8> {
    let mut bytes = Vec::new();
    match draw.below(6) {
        0 => draw.peer().encode(&mut bytes),
        1 => NodeBound::encode_request(&draw.request(), &mut bytes),
        2 => draw.record().encode(&mut bytes),
        3 => draw.word().encode(&mut bytes),
        4 => draw.spec().encode(&mut bytes),
        _ => draw.value().encode(&mut bytes),
    }
    bytes
}

fn mutate(draw: &mut Draw, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=draw.below(4) {
        let at = draw.below(bytes.len() as u64) as usize;
        match draw.below(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << draw.below(8),
            1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][draw.below(5) as usize],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, draw.number() as u8),
            4 if !bytes.is_empty() => {
                bytes.remove(at);
            }
            // A length that lies.
            5 if bytes.len() >= at + 4 => {
                let lie = [u32::MAX, 0, 0x8000_0000, draw.number() as u32][draw.below(4) as usize];
                bytes[at..at + 4].copy_from_slice(&lie.to_le_bytes());
            }
            _ => {
                let from = draw.below(other.len() as u64) as usize;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from.min(other.len())..]);
            }
        }
    }
}

/// What was accepted survives its own encoding and is not larger than its input can explain.
fn check<T: PartialEq + std::fmt::Debug>(
    input: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
    encode: impl Fn(&T, &mut Vec<u8>),
) -> bool {
    let Some(value) = decode(input) else { return false };
    let mut bytes = Vec::new();
    encode(&value, &mut bytes);
    assert!(bytes.len() <= GROWTH_MAX * input.len() + 64, "{} bytes became {}", input.len(), bytes.len());
    assert_eq!(decode(&bytes).as_ref(), Some(&value), "input {input:?}");
    true
}

#[test]
fn mutated_messages_are_decoded_or_refused() {
    let mut draw = Draw(0x00b1_2e3e);
    let mut accepted = [0u64; 6];
    let mut other = encoded(&mut draw);
    for _ in 0..ITERATIONS {
        let mut bytes = encoded(&mut draw);
        let whole = bytes.clone();
        mutate(&mut draw, &mut bytes, &other);
        other = whole;
        let input = &bytes[..];
        let results = [
            check(input, |b| Peer::decode(b).ok(), |m, out| m.encode(out)),
            check(
                input,
                |b| NodeBound::decode(b).ok(),
                |m, out| match m {
                    NodeBound::Record(record) => record.encode(out),
                    NodeBound::Request(request) => NodeBound::encode_request(request, out),
                    NodeBound::Relay { record, to, bytes } => {
                        let at = record.as_ref().and_then(Record::at);
                        NodeBound::begin_relay(*to, at, out);
                        out.extend_from_slice(bytes);
                    }
                },
            ),
            check(input, |b| FromNode::decode(b).ok(), |m, out| m.encode(out)),
            check(input, |b| Record::decode(b).ok(), |m, out| m.encode(out)),
            check(input, |b| TaskSpec::decode(&mut Reader::new(b)).ok(), |m, out| m.encode(out)),
            check(input, |b| Value::decode(&mut Reader::new(b)).ok(), |m, out| m.encode(out)),
        ];
        for (count, accepted_now) in accepted.iter_mut().zip(results) {
            *count += u64::from(accepted_now);
        }
    }
    // A fuzzer whose inputs are all refused at the first byte tests nothing.
    assert!(accepted.iter().all(|count| *count > ITERATIONS / 200), "accepted: {accepted:?}");
}
