//! The door against everybody who should not come in, on loopback addresses: refused, told, bounded, and still open.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/draw.rs"]
mod draw;
#[path = "door/floods.rs"]
mod floods;
#[path = "door/loopback.rs"]
mod loopback;
#[path = "door/support.rs"]
mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bireme_net::door::{DialError, DialSecurity, Limits, Tickets, Timeouts, dial, enrol, renew};
use bireme_net::frame::{FrameKind, Header, WIRE_VERSION};
use bireme_net::hello::{Greeting, Hello, Purpose, Ticket};
use bireme_net::tls::{CERTIFICATE_LIFE, ClientTls, Credentials, PeerIdentity, Role};
use bireme_net::token::{Stay, Token, TokenTerms};
use bireme_net::wire::{read_exact, write_all};
use draw::Draw;
use support::{CLUSTER, Home, LOOPBACK, now};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn hello(purpose: Purpose) -> Hello {
    Hello::new(CLUSTER, 7, purpose)
}

fn dial_as(address: SocketAddr, credentials: &Credentials) -> Result<(), DialError> {
    let security = DialSecurity::Tls(ClientTls::new(credentials).unwrap());
    dial(address, &security, &hello(Purpose::Control), Timeouts::default()).map(|_| ())
}

fn reason(result: Result<impl Sized, DialError>) -> String {
    match result.err() {
        Some(
            DialError::RefusedInWords { reason, .. }
            | DialError::Tls { reason, .. }
            | DialError::OtherAuthority { reason, .. },
        ) => reason,
        other => panic!("not refused in words: {other:?}"),
    }
}

/// What a peer gets who sends these bytes: everything until the connection ends.
fn answer_to(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // It may have been sent away in the middle.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => answer,
    }
}

#[test]
fn a_newcomer_with_a_token_enrols_and_then_comes_in() {
    let home = Home::new();
    let (door, lobby) = home.door(Limits::default());
    let token = home.token(Role::Node, DAY, Some(1));
    let credentials = enrol(door.address(), &Token::parse(&token.to_text()).unwrap(), Role::Node, Timeouts::default());
    let credentials = credentials.unwrap();
    assert_eq!((credentials.cluster(), credentials.identity().role), (CLUSTER, Role::Node));
    let path = home.folder().join("state/credentials.pem");
    credentials.save(&path).unwrap();
    let credentials = Credentials::load(&path).unwrap();
    let security = DialSecurity::Tls(ClientTls::new(&credentials).unwrap());
    let (welcome, mut wire) = dial(door.address(), &security, &hello(Purpose::Heart), Timeouts::default()).unwrap();
    assert_eq!((welcome.cluster, welcome.node), (CLUSTER, 1));
    assert!(wire.is_protected());
    let mut inside = lobby.next();
    assert_eq!(inside.hello, hello(Purpose::Heart));
    assert_eq!(inside.peer, Some(credentials.identity()));
    write_all(&mut *wire, &[b"ping"]).unwrap();
    let mut bytes = [0; 4];
    read_exact(&mut *inside.wire, &mut bytes).unwrap();
    assert_eq!(&bytes, b"ping");
    let counts = door.counts();
    assert_eq!((counts.came, counts.arrived, counts.enrolled, counts.refused), (2, 1, 1, 0));
}

#[test]
fn a_certificate_is_renewed_for_itself_and_for_no_other_role() {
    let home = Home::new();
    let (door, _lobby) = home.door(Limits::default());
    let old = enrol(door.address(), &home.token(Role::Client, DAY, None), Role::Client, Timeouts::default()).unwrap();
    let new = renew(door.address(), &old, Timeouts::default()).unwrap();
    assert_eq!(new.identity(), old.identity());
    assert!(new.expires() >= old.expires());
    dial_as(door.address(), &new).unwrap();
    let purpose = Purpose::Enrol { token: String::new(), role: Role::Node, public_key: [1; 32] };
    let security = DialSecurity::Tls(ClientTls::new(&old).unwrap());
    let text = reason(dial(door.address(), &security, &hello(purpose), Timeouts::default()));
    assert!(text.contains("a client asks for the certificate of a node"), "{text}");
}

#[test]
fn a_token_of_an_hour_gives_a_certificate_of_an_hour_that_cannot_be_prolonged() {
    let home = Home::new();
    let (door, _lobby) = home.door(Limits::default());
    let token = home.token(Role::Client, Duration::from_secs(3600), Some(1));
    let old = enrol(door.address(), &token, Role::Client, Timeouts::default()).unwrap();
    assert!(old.expires() <= token.expires, "{} s longer", old.expires() - token.expires);
    let new = renew(door.address(), &old, Timeouts::default()).unwrap();
    assert!(new.expires() <= token.expires, "{} s longer", new.expires() - token.expires);
    home.book().revoke(token.id).unwrap();
    let text = reason(renew(door.address(), &new, Timeouts::default()));
    assert!(text.contains("was revoked"), "{text}");
}

#[test]
fn the_door_shows_a_renewed_certificate_without_being_closed() {
    let home = Home::new();
    let (door, _lobby) = home.door(Limits::default());
    let node = home.credentials(Role::Node);
    dial_as(door.address(), &node).unwrap();
    let other = home.credentials(Role::Node);
    door.tls().unwrap().renew(&other).unwrap();
    let only = ClientTls::new(&node).unwrap().only(other.identity().uid);
    dial(door.address(), &DialSecurity::Tls(only), &hello(Purpose::Control), Timeouts::default()).unwrap();
}

#[test]
fn tokens_that_are_not_good_are_refused_by_name() {
    let home = Home::new();
    let (door, lobby) = home.door(Limits::default());
    let ask = |token: &Token, role| reason(enrol(door.address(), token, role, Timeouts::default()));
    // Expired.
    let expired = home.book().create(
        TokenTerms { role: Role::Node, life: Duration::from_secs(60), uses: None, stay: Stay::WithToken },
        home.fingerprint(),
        now() - 3600,
    );
    assert!(ask(&expired.unwrap(), Role::Node).contains("has expired"));
    // Revoked by another process, which only has the file.
    let revoked = home.token(Role::Node, DAY, None);
    home.book().revoke(revoked.id).unwrap();
    assert!(ask(&revoked, Role::Node).contains("was revoked"));
    // Shown again.
    let once = home.token(Role::Node, DAY, Some(1));
    enrol(door.address(), &once, Role::Node, Timeouts::default()).unwrap();
    assert!(ask(&once, Role::Node).contains("has been used up"));
    // For something else.
    assert!(ask(&home.token(Role::Client, DAY, None), Role::Node).contains("is for a client, not for a node"));
    // Of nobody, and with a secret that is wrong: of another book with the same authority.
    let stranger = Home::new();
    let unknown = stranger.book().create(
        TokenTerms { role: Role::Node, life: DAY, uses: None, stay: Stay::WithToken },
        home.fingerprint(),
        now(),
    );
    assert!(ask(&unknown.unwrap(), Role::Node).contains("is unknown here"));
    assert_eq!(door.counts().refused, 5);
    assert_eq!(lobby.refusals().len(), 5);
    assert!(lobby.refusals().iter().all(|refusal| refusal.address.ip().is_loopback()));
}

#[test]
fn a_token_with_a_wrong_secret_is_refused() {
    let home = Home::new();
    let (door, _lobby) = home.door(Limits::default());
    let token = home.token(Role::Node, DAY, None);
    let forged = support::with_another_secret(&token);
    let text = reason(enrol(door.address(), &forged, Role::Node, Timeouts::default()));
    assert!(text.contains("secret of token-") && text.contains("is wrong"), "{text}");
    enrol(door.address(), &token, Role::Node, Timeouts::default()).unwrap();
}

#[test]
fn a_token_is_told_to_nobody_but_its_own_authority() {
    let (home, stranger) = (Home::new(), Home::new());
    let (door, lobby) = stranger.door(Limits::default());
    let token = home.token(Role::Node, DAY, Some(1));
    let text = reason(enrol(door.address(), &token, Role::Node, Timeouts::default()));
    assert!(text.contains("belongs to another cluster"), "{text}");
    lobby.wait_for_refusals(1);
    // It has not been shown, so it is still good.
    let (right, _lobby) = home.door(Limits::default());
    enrol(right.address(), &token, Role::Node, Timeouts::default()).unwrap();
}

#[test]
fn without_a_certificate_one_can_only_enrol_and_only_with_a_token() {
    let home = Home::new();
    let (door, lobby) = home.door(Limits::default());
    let pinned = DialSecurity::Tls(ClientTls::pinned(home.fingerprint()).unwrap());
    let ask = |purpose| reason(dial(door.address(), &pinned, &hello(purpose), Timeouts::default()));
    for purpose in [Purpose::Control, Purpose::Heart, Purpose::Bulk { ticket: Ticket([0; 32]), encrypted: true }] {
        assert!(ask(purpose).contains("without a certificate one can only enrol"));
    }
    let purpose = |token: &str| Purpose::Enrol { token: token.into(), role: Role::Node, public_key: [1; 32] };
    assert!(ask(purpose("")).contains("show a token"));
    assert!(ask(purpose("bireme-nonsense")).contains("no token"));
    assert_eq!(door.counts().arrived, 0);
    assert_eq!(lobby.refusals().len(), 5);
}

#[test]
fn a_node_without_the_authority_enrols_nobody() {
    let home = Home::new();
    let (door, _lobby) = home.door_without_enrolment();
    let text = reason(enrol(door.address(), &home.token(Role::Node, DAY, None), Role::Node, Timeouts::default()));
    assert!(text.contains("enrol with the node that started the cluster"), "{text}");
    dial_as(door.address(), &home.credentials(Role::Node)).unwrap();
}

#[test]
fn certificates_of_another_authority_or_time_are_refused() {
    let (home, stranger) = (Home::new(), Home::new());
    let (door, lobby) = home.door(Limits::default());
    let text = reason(dial_as(door.address(), &stranger.credentials(Role::Node)));
    assert!(text.contains("belongs to another cluster"), "{text}");
    // One that believes this door, but was made by another authority.
    let mixed = home.credentials_signed_by(&stranger);
    let text = reason(dial_as(door.address(), &mixed));
    assert!(text.contains("does not accept our certificate"), "{text}");
    let identity = PeerIdentity::random(Role::Node);
    let expired = home.authority().credentials(CLUSTER, identity, now() - 7200, Duration::from_secs(3600)).unwrap();
    let text = reason(dial_as(door.address(), &expired));
    assert!(text.contains("our certificate has expired"), "{text}");
    let later = home.authority().credentials(CLUSTER, identity, now() + 7200, CERTIFICATE_LIFE).unwrap();
    reason(dial_as(door.address(), &later));
    assert_eq!(door.counts().arrived, 0);
    lobby.wait_for_refusals(4);
    dial_as(door.address(), &home.credentials(Role::Node)).unwrap();
}

#[test]
fn plain_tcp_and_garbage_get_no_word_from_a_door_with_a_lock() {
    let home = Home::new();
    let (door, lobby) = home.door(Limits::default());
    let body = hello(Purpose::Control).encode().unwrap();
    let frame = [&Header::of(Hello::KIND, &[&body]).encode()[..], &body].concat();
    for bytes in [&frame[..], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-scan\r\n", &[0; 3000], &[0xff; 3000]] {
        assert_eq!(answer_to(door.address(), bytes), b"", "{bytes:?}");
    }
    // What begins as TLS and is none, and TLS of an older version, get an alert of TLS at most.
    let broken = [&[22, 3, 1, 0, 200][..], &[0xaa; 200]].concat();
    let older = b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03\
        01234567890123456789012345678901\x00\x00\x04\x00\x9c\x00\x9d\x01\x00";
    for bytes in [&broken[..], older] {
        let answer = answer_to(door.address(), bytes);
        assert!(answer.is_empty() || (answer.len() == 7 && answer[0] == 21), "{answer:?}");
    }
    let plain = dial(door.address(), &support::same_user(), &hello(Purpose::Control), Timeouts::default());
    assert!(matches!(plain, Err(DialError::Closed { .. })));
    lobby.wait_for_refusals(8);
    assert_eq!(door.counts().arrived, 0);
    dial_as(door.address(), &home.credentials(Role::Node)).unwrap();
}

#[test]
fn an_oversized_frame_is_refused_before_it_is_read() {
    let (door, lobby) = support::plain_door(Limits::default());
    let mut header = Header::of(Hello::KIND, &[]);
    for length in [4097, 1 << 30, u32::MAX] {
        header.length = length;
        let answer = answer_to(door.address(), &header.encode());
        assert!(String::from_utf8_lossy(&answer).contains("at most 4096 are taken"), "{answer:?}");
    }
    // The same behind TLS, from a newcomer.
    let home = Home::new();
    let (locked, _lobby) = home.door(Limits::default());
    let text = support::say_over_tls(locked.address(), home.fingerprint(), &header.encode());
    assert!(text.contains("at most 4096 are taken"), "{text}");
    assert_eq!(lobby.refusals().len(), 3);
}

#[test]
fn a_greeting_with_too_many_bytes_before_it_is_cut_off() {
    let home = Home::new();
    let (door, lobby) = home.door(Limits { bytes: 2000, ..Limits::default() });
    // A first word of TLS that is longer than anybody's.
    let mut flood = vec![22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb];
    flood.resize(4000, 0);
    answer_to(door.address(), &flood);
    lobby.wait_for_refusals(1);
    let text = &lobby.refusals()[0].reason;
    assert!(text.contains("more bytes than a peer may send"), "{text}");
}

#[test]
fn another_version_is_refused_with_both_versions_and_what_to_do() {
    let (door, lobby) = support::plain_door(Limits::default());
    let body = hello(Purpose::Control).encode().unwrap();
    let mut header = Header::of(Hello::KIND, &[&body]);
    header.version = WIRE_VERSION + 41;
    let answer = answer_to(door.address(), &[&header.encode()[..], &body].concat());
    let (head, text) = answer.split_first_chunk().unwrap();
    assert_eq!(Header::decode(head).kind, FrameKind::REFUSED);
    let text = String::from_utf8_lossy(text);
    let versions = format!("wire version {}, this side {WIRE_VERSION}: install the same version", WIRE_VERSION + 41);
    assert!(text.contains(&versions), "{text}");
    assert!(text.contains("bireme 0."), "{text}");
    assert_eq!(lobby.refusals().len(), 1);
}

#[test]
fn a_peer_of_another_cluster_is_refused_with_both_names() {
    let (door, _lobby) = support::plain_door(Limits::default());
    let other = Hello::new(CLUSTER + 1, 7, Purpose::Control);
    let text = reason(dial(door.address(), &support::same_user(), &other, Timeouts::default()));
    assert!(text.contains(&format!("{CLUSTER:032x}")) && text.contains(&format!("{:032x}", CLUSTER + 1)), "{text}");
    // One that has not been told yet learns it.
    let unknown = Hello::new(0, 0, Purpose::Control);
    let (welcome, _wire) = dial(door.address(), &support::same_user(), &unknown, Timeouts::default()).unwrap();
    assert_eq!(welcome.cluster, CLUSTER);
}

#[test]
fn the_greeter_refuses_in_words_and_a_dropped_arrival_is_refused_too() {
    let (door, lobby) = support::plain_door(Limits::default());
    lobby.refuse_next("node-7 was declared dead: join again");
    let text = reason(dial(door.address(), &support::same_user(), &hello(Purpose::Control), Timeouts::default()));
    assert_eq!(text, "node-7 was declared dead: join again");
    lobby.drop_next();
    let text = reason(dial(door.address(), &support::same_user(), &hello(Purpose::Control), Timeouts::default()));
    assert!(text.contains("too busy to answer"), "{text}");
    assert_eq!(door.counts().refused, 2);
    lobby.wait_until(|| door.newcomers() == 0);
}

#[test]
fn bulk_streams_without_encryption_still_show_a_certificate_and_cannot_be_changed() {
    let home = Home::new();
    let (door, lobby) = home.door_without_bulk_encryption();
    let node = home.credentials(Role::Node);
    let security = DialSecurity::Tls(ClientTls::new(&node).unwrap());
    let mut tickets = Tickets::default();
    let ticket = tickets.issue("object", Instant::now(), DAY).unwrap();
    let bulk = |encrypted| hello(Purpose::Bulk { ticket, encrypted });
    let (_, mut wire) = dial(door.address(), &security, &bulk(false), Timeouts::default()).unwrap();
    let mut inside = lobby.next();
    assert_eq!((inside.hello, inside.peer), (bulk(false), Some(node.identity())));
    assert!(wire.is_protected() && inside.wire.is_protected());
    // Whichever end speaks first.
    for _ in 0..2 {
        std::mem::swap(&mut wire, &mut inside.wire);
        write_all(&mut *wire, &[b"bytes of ", b"an object"]).unwrap();
        let mut heard = [0; 18];
        read_exact(&mut *inside.wire, &mut heard).unwrap();
        assert_eq!(&heard, b"bytes of an object");
    }
    // Somebody on the way who adds bytes of its own is found out, and none of them is handed out.
    rustix::io::write(wire.raw_fd(), &[&4u32.to_le_bytes()[..], b"evil", &[0; 16]].concat()).unwrap();
    let error = inside.wire.read(&mut [0; 8]).unwrap_err();
    assert!(error.to_string().contains("did not send"), "{error}");
    // Both ends have to agree, nothing comes without TLS, and the rest is encrypted as ever.
    let text = reason(dial(door.address(), &security, &bulk(true), Timeouts::default()));
    assert!(text.contains("bulk encryption is off here"), "{text}");
    let plain = dial(door.address(), &support::same_user(), &bulk(false), Timeouts::default());
    assert!(matches!(plain, Err(DialError::Closed { .. })));
    dial_as(door.address(), &node).unwrap();
    let (locked, _lobby) = home.door(Limits::default());
    let text = reason(dial(locked.address(), &security, &bulk(false), Timeouts::default()));
    assert!(text.contains("bulk encryption is on here"), "{text}");
}

#[test]
fn mutated_greetings_end_no_door() {
    let home = Home::new();
    let node = home.credentials(Role::Node);
    let (locked, _locked_lobby) = home.door(Limits::default());
    let (plain, _plain_lobby) = support::plain_door(Limits::default());
    let body = hello(Purpose::Control).encode().unwrap();
    let frame = [&Header::of(Hello::KIND, &[&body]).encode()[..], &body].concat();
    let challenge = [&Header::of(FrameKind::CHALLENGE, &[&[7; 32]]).encode()[..], &[7; 32], &frame].concat();
    let opening = support::first_words_of(&node);
    let mut draw = Draw(0x00d0_0a11);
    for _ in 0..400 {
        for (door, valid, other) in
            [(&locked, &opening, &frame), (&plain, &frame, &opening), (&plain, &challenge, &frame)]
        {
            let mut bytes = valid.clone();
            draw.mutate(&mut bytes, other);
            support::say_and_leave(door.address(), &bytes);
        }
    }
    dial_as(locked.address(), &node).unwrap();
    dial(plain.address(), &support::same_user(), &hello(Purpose::Control), Timeouts::default()).unwrap();
    assert_eq!(locked.counts().arrived, 1);
    assert!(locked.counts().refused > 300 && plain.counts().refused > 200, "{:?}", plain.counts());
}

#[test]
fn nobody_there_is_told_from_nobody_answering() {
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap();
    let timeouts = Timeouts { greeting: Duration::from_millis(100), ..Timeouts::default() };
    let silent = dial(address, &support::same_user(), &hello(Purpose::Heart), timeouts);
    assert!(matches!(silent, Err(DialError::TimedOut { .. })));
    drop(listener);
    let gone = dial(address, &support::same_user(), &hello(Purpose::Heart), timeouts);
    assert!(matches!(gone, Err(DialError::RefusedByKernel { .. })));
}

#[test]
fn what_answers_and_is_no_node_is_told_as_that() {
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[b'x'; 100]).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let error = dial(address, &support::same_user(), &hello(Purpose::Heart), Timeouts::default()).err().unwrap();
    assert!(matches!(error, DialError::RefusedInWords { .. } | DialError::NoNode { .. }), "{error}");
    server.join().unwrap();
}

#[test]
fn a_closed_door_ends_newcomers_and_leaves_those_who_are_in() {
    let (door, lobby) = support::plain_door(Limits::default());
    let address = door.address();
    let (_, mut wire) = dial(address, &support::same_user(), &hello(Purpose::Control), Timeouts::default()).unwrap();
    let mut inside = lobby.next();
    let mut newcomer = TcpStream::connect(address).unwrap();
    newcomer.write_all(&[1]).unwrap();
    lobby.wait_until(|| door.newcomers() == 1);
    let start = Instant::now();
    drop(door);
    assert!(start.elapsed() < Duration::from_secs(3), "closing took {:?}", start.elapsed());
    assert!(!matches!(newcomer.read(&mut [0; 8]), Ok(1..)));
    write_all(&mut *wire, &[b"still"]).unwrap();
    let mut bytes = [0; 5];
    read_exact(&mut *inside.wire, &mut bytes).unwrap();
    assert_eq!(&bytes, b"still");
    let gone = dial(address, &support::same_user(), &hello(Purpose::Control), Timeouts::default());
    assert!(matches!(gone, Err(DialError::RefusedByKernel { .. })));
}
