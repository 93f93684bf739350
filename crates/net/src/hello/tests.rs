#![allow(clippy::unwrap_used)]

use super::*;

fn purposes() -> [Purpose; 4] {
    [
        Purpose::Control,
        Purpose::Heart,
        Purpose::Bulk { ticket: Ticket([9; TICKET_BYTES]), encrypted: true },
        Purpose::Enrol { token: "bireme-secret".into(), role: Role::Client, public_key: [3; PUBLIC_KEY_BYTES] },
    ]
}

#[test]
fn every_word_comes_back_as_it_was() {
    for purpose in purposes() {
        let hello = Hello::new(u128::MAX - 5, 7, purpose);
        assert_eq!(Hello::decode(FrameKind::HELLO, &hello.encode().unwrap()), Ok(hello));
    }
    let welcome = Welcome::new(3, 1);
    assert_eq!(Welcome::decode(FrameKind::WELCOME, &welcome.encode().unwrap()), Ok(welcome));
    let other = Some(OtherAuthority { authority: vec![3; 600], endorsements: [vec![4; 600], vec![5; 600]] });
    let enrolled =
        Enrolled { cluster: 1, certificate: vec![1; 600], authority: vec![2; 600], expires: u64::MAX, epoch: 3, other };
    assert_eq!(Enrolled::decode(FrameKind::ENROLLED, &enrolled.encode().unwrap()), Ok(enrolled));
}

#[test]
fn a_word_of_another_kind_cut_short_or_too_long_is_refused() {
    let body = Hello::new(1, 2, Purpose::Heart).encode().unwrap();
    assert_eq!(Hello::decode(FrameKind::WELCOME, &body), Err(HelloError::Kind { found: FrameKind::WELCOME }));
    for cut in 0..body.len() {
        assert_eq!(Hello::decode(FrameKind::HELLO, &body[..cut]), Err(HelloError::Malformed));
    }
    let longer = [&body[..], &[0]].concat();
    assert_eq!(Hello::decode(FrameKind::HELLO, &longer), Err(HelloError::Malformed));
}

#[test]
fn texts_have_bounds_on_both_sides() {
    let long = Hello { build: "x".repeat(TEXT_BYTES_MAX + 1), ..Hello::new(1, 2, Purpose::Heart) };
    let error = Err(HelloError::TextTooLong { found: TEXT_BYTES_MAX + 1 });
    assert_eq!(long.encode().map(|_| ()), error);
    assert_eq!(Hello::decode(FrameKind::HELLO, &postcard::to_allocvec(&long).unwrap()).map(|_| ()), error);
    let token = "x".repeat(TEXT_BYTES_MAX + 1);
    let enrol = Purpose::Enrol { token, role: Role::Node, public_key: [0; PUBLIC_KEY_BYTES] };
    assert_eq!(Hello::new(1, 2, enrol).encode().map(|_| ()), error);
    let huge = Enrolled {
        cluster: 1,
        certificate: vec![0; HELLO_BYTES_MAX],
        authority: Vec::new(),
        expires: 0,
        epoch: 0,
        other: None,
    };
    assert_eq!(huge.encode(), Err(HelloError::Malformed));
}

#[test]
fn a_hello_of_another_version_than_its_frame_is_refused_with_both_numbers() {
    let other = Hello { wire_version: 9, ..Hello::new(1, 2, Purpose::Control) };
    let error = Hello::decode(FrameKind::HELLO, &postcard::to_allocvec(&other).unwrap()).unwrap_err();
    assert_eq!(error, HelloError::Version { theirs: 9 });
    assert!(error.to_string().contains(&format!("version 9, this side {WIRE_VERSION}: install the same version")));
}

#[test]
fn secrets_are_never_printed() {
    let printed = format!("{:?}", purposes());
    assert!(printed.contains("Bulk") && printed.contains("Enrol"), "{printed}");
    assert!(!printed.contains("secret") && !printed.contains("9, 9"), "{printed}");
}

#[test]
fn a_reason_is_cut_at_a_character_and_cannot_play_tricks() {
    let long = "é".repeat(REASON_BYTES_MAX);
    assert_eq!(encode_reason(&long).len(), REASON_BYTES_MAX);
    assert_eq!(encode_reason(&format!("x{long}")).len(), REASON_BYTES_MAX - 1);
    assert_eq!(decode_reason(b"no\x1b[2J\nway\xff"), "no [2J way\u{fffd}");
    assert_eq!(decode_reason(&[b'x'; 5000]).len(), REASON_BYTES_MAX);
}
