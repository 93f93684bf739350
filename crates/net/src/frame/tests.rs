#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn encoded(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Header::of(FrameKind(kind), &[body]).encode().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn the_header_is_as_it_is_written_down() {
    let header = Header::of(FrameKind(0x0304), &[b"ab", b"c"]);
    assert_eq!(header.encode(), [3, 0, 0, 0, 4, 0, 4, 3, 0xc2, 0x41, 0x24, 0x35]);
    assert_eq!(Header::decode(&header.encode()), header);
}

#[test]
fn a_length_over_the_bound_is_refused_before_the_body_comes() {
    let mut header = Header::of(FrameKind(16), &[]);
    header.length = 101;
    let mut decoder = Decoder::new(100);
    decoder.feed(&header.encode());
    let error = FrameError::TooLong { length: 101, length_max: 100 };
    assert_eq!(decoder.next(), Err(error.clone()));
    // What comes after cannot be trusted.
    decoder.feed(&encoded(16, b"fine"));
    assert_eq!(decoder.next(), Err(error));
}

#[test]
fn no_bound_is_above_that_of_all() {
    let mut header = Header::of(FrameKind(16), &[]);
    header.length = u32::MAX;
    assert!(matches!(header.check(usize::MAX), Err(FrameError::TooLong { .. })));
}

#[test]
fn a_header_that_promises_much_costs_nothing_until_it_comes() {
    let mut header = Header::of(FrameKind(16), &[]);
    header.length = FRAME_BODY_BYTES_MAX as u32;
    let mut decoder = Decoder::new(FRAME_BODY_BYTES_MAX);
    decoder.feed(&header.encode());
    assert_eq!(decoder.next(), Ok(None));
    assert!(decoder.bytes.len() < 1024);
}

#[test]
fn another_version_is_refused_by_number_and_its_refusal_is_read() {
    let mut header = Header::of(FrameKind(16), &[b"x"]);
    header.version = 7;
    assert_eq!(header.check(100), Err(FrameError::Version { theirs: 7 }));
    assert!(header.check(100).unwrap_err().to_string().contains(&format!("version 7, this side {WIRE_VERSION}")));
    header.kind = FrameKind::REFUSED;
    assert_eq!(header.check(100), Ok(()));
}

#[test]
fn room_of_a_large_frame_is_given_back() {
    let body = vec![7; 1 << 20];
    let mut decoder = Decoder::new(2 << 20);
    decoder.feed(&encoded(16, &body));
    assert_eq!(decoder.next().unwrap().unwrap().body, body);
    decoder.feed(&[]);
    assert!(decoder.bytes.capacity() < 1 << 20);
}

proptest! {
    #[test]
    fn frames_come_back_as_they_were_however_they_are_cut(
        bodies in prop::collection::vec((any::<u16>(), prop::collection::vec(any::<u8>(), 0..300)), 0..8),
        cuts in prop::collection::vec(1usize..64, 1..64),
    ) {
        let stream: Vec<u8> = bodies.iter().flat_map(|(kind, body)| encoded(*kind, body)).collect();
        let mut decoder = Decoder::new(300);
        let mut rest = &stream[..];
        let mut found = Vec::new();
        for cut in cuts.iter().cycle() {
            let (piece, others) = rest.split_at((*cut).min(rest.len()));
            rest = others;
            decoder.feed(piece);
            while let Some(frame) = decoder.next().unwrap() {
                found.push((frame.kind.0, frame.body.to_vec()));
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(found, bodies);
        prop_assert_eq!(decoder.pending_bytes(), 0);
    }

    #[test]
    fn a_changed_bit_of_the_body_is_seen(body in prop::collection::vec(any::<u8>(), 1..100), at in any::<prop::sample::Index>()) {
        let mut bytes = encoded(16, &body);
        let bit = at.index(body.len() * 8);
        bytes[HEADER_BYTES + bit / 8] ^= 1 << (bit % 8);
        let mut decoder = Decoder::new(100);
        decoder.feed(&bytes);
        let damaged = matches!(decoder.next(), Err(FrameError::Damaged { .. }));
        prop_assert!(damaged);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10)) {
        let mut decoder = Decoder::new(64);
        for piece in pieces {
            decoder.feed(&piece);
            while let Ok(Some(frame)) = decoder.next() {
                prop_assert!(frame.body.len() <= 64);
            }
        }
    }
}
