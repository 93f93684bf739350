//! A wire against a plain connection of the library: what one writes the other reads, new keys, alerts and goodbyes included.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use proptest::prelude::*;
use rustls::{AlertDescription, ClientConnection, Error, ServerConnection, StreamOwned};

use super::*;

/// A wire of ours that was dialled by somebody who uses the library alone, and the other way round.
fn with_stranger() -> (TlsWire, StreamOwned<ClientConnection, TcpStream>, Folder) {
    let folder = Folder::new();
    let authority = Authority::create(&folder.0.join("authority"), now()).unwrap();
    let (server, client) = (credentials(&authority, Role::Node), credentials(&authority, Role::Client));
    let (near, far) = pair();
    let tls = ClientTls::new(&client).unwrap();
    let connection = ClientConnection::new(tls.config(), tls.server_name()).unwrap();
    let mut stranger = StreamOwned::new(connection, near);
    let wire = thread::scope(|scope| {
        let tls = ServerTls::new(&server).unwrap();
        let accepting = scope.spawn(move || TlsWire::accept(Socket::new(far, None).unwrap(), &[], &tls));
        stranger.conn.complete_io(&mut stranger.sock).unwrap();
        accepting.join().unwrap().unwrap()
    });
    (wire, stranger, folder)
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

#[test]
fn somebody_who_uses_the_library_alone_reads_and_writes_the_same_bytes() {
    let (mut wire, mut stranger, _folder) = with_stranger();
    let sent = bytes(300_000);
    thread::scope(|scope| {
        scope.spawn(|| write_all(&mut wire, &[&sent[..5], &sent[5..70], &sent[70..9_000], &sent[9_000..]]).unwrap());
        let mut heard = vec![0; sent.len()];
        stranger.read_exact(&mut heard).unwrap();
        assert!(heard == sent);
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            stranger.write_all(&sent).unwrap();
            stranger.flush().unwrap();
        });
        let mut heard = vec![0; sent.len()];
        read_exact(&mut wire, &mut heard).unwrap();
        assert!(heard == sent);
    });
}

#[test]
fn a_server_that_uses_the_library_alone_is_understood() {
    let folder = Folder::new();
    let authority = Authority::create(&folder.0.join("authority"), now()).unwrap();
    let (server, client) = (credentials(&authority, Role::Node), credentials(&authority, Role::Client));
    let (near, far) = pair();
    let tls = ServerTls::new(&server).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut stranger = StreamOwned::new(ServerConnection::new(tls.config()).unwrap(), far);
            let mut heard = vec![0; 100_000];
            stranger.read_exact(&mut heard).unwrap();
            stranger.write_all(&heard).unwrap();
            stranger.conn.send_close_notify();
            stranger.flush().unwrap();
        });
        let mut wire = TlsWire::dial(near, &ClientTls::new(&client).unwrap()).unwrap();
        let (sent, mut heard) = (bytes(100_000), vec![0; 100_000]);
        write_all(&mut wire, &[&sent]).unwrap();
        read_exact(&mut wire, &mut heard).unwrap();
        assert!(heard == sent);
        assert_eq!(wire.read(&mut [0; 8]).unwrap(), 0, "the goodbye is the end");
    });
}

#[test]
fn new_keys_are_understood_on_both_sides_and_asked_for_ones_are_made() {
    let (mut wire, mut stranger, _folder) = with_stranger();
    for round in 0..5u8 {
        // The library asks for one of ours with each of its own.
        stranger.conn.refresh_traffic_keys().unwrap();
        stranger.write_all(&[round; 20]).unwrap();
        stranger.flush().unwrap();
        let mut asked = [0; 20];
        read_exact(&mut wire, &mut asked).unwrap();
        write_all(&mut wire, &[&asked, &[round]]).unwrap();
        let mut answered = [0; 21];
        stranger.read_exact(&mut answered).unwrap();
        assert_eq!(answered, [round; 21]);
    }
}

#[test]
fn a_damaged_record_ends_the_wire_and_the_peer_is_told() {
    let (mut wire, mut stranger, _folder) = with_stranger();
    stranger.write_all(&[1; 500]).unwrap();
    // Whoever is between the two changes what comes next.
    stranger.sock.write_all(&[23, 3, 3, 0, 40]).unwrap();
    stranger.sock.write_all(&[9; 40]).unwrap();
    let mut heard = [0; 500];
    read_exact(&mut wire, &mut heard).unwrap();
    assert_eq!(heard, [1; 500]);
    for _ in 0..2 {
        let error = wire.read(&mut [0; 8]).unwrap_err();
        assert_eq!(tls_error(&error), Some(&Error::DecryptError));
    }
    let told = stranger.read(&mut [0; 8]).unwrap_err();
    assert_eq!(tls_error(&told), Some(&Error::AlertReceived(AlertDescription::BadRecordMac)));
}

#[test]
fn what_is_no_record_is_refused_without_waiting_for_it() {
    for nonsense in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[23, 3, 3, 0xff, 0xff], &[20, 3, 3, 0, 1, 1], &[21, 3, 3, 0, 2, 1, 0]]
    {
        let (mut wire, mut stranger, _folder) = with_stranger();
        stranger.sock.write_all(nonsense).unwrap();
        let error = wire.read(&mut [0; 100]).unwrap_err();
        assert!(tls_error(&error).is_some(), "{nonsense:?}: {error}");
    }
}

#[test]
fn an_alert_is_told_in_its_own_words() {
    let (mut wire, mut stranger, _folder) = with_stranger();
    // A record that it cannot open makes the library complain.
    std::io::Write::write_all(
        &mut wire_socket(&wire),
        &[23, 3, 3, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    )
    .unwrap();
    assert!(stranger.read(&mut [0; 8]).is_err());
    while stranger.conn.wants_write() {
        stranger.conn.write_tls(&mut stranger.sock).unwrap();
    }
    let error = wire.read(&mut [0; 8]).unwrap_err();
    assert_eq!(tls_error(&error), Some(&Error::AlertReceived(AlertDescription::BadRecordMac)));
}

fn wire_socket(wire: &TlsWire) -> TcpStream {
    wire.raw_fd().try_clone_to_owned().unwrap().into()
}

#[test]
fn a_key_is_asked_for_while_bytes_wait_and_nothing_is_lost() {
    let (mut wire, mut stranger, _folder) = with_stranger();
    wire.set_nonblocking(true).unwrap();
    let piece = [7; 50_000];
    let mut accepted = 0;
    loop {
        match wire.write_vectored(&[IoSlice::new(&piece)]) {
            Ok(taken) => accepted += taken,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
    }
    stranger.conn.refresh_traffic_keys().unwrap();
    stranger.write_all(b"x").unwrap();
    stranger.flush().unwrap();
    wire.set_nonblocking(false).unwrap();
    read_exact(&mut wire, &mut [0]).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| write_all(&mut wire, &[b"y"]).unwrap());
        let mut heard = vec![0; accepted + 1];
        stranger.read_exact(&mut heard).unwrap();
        assert_eq!((heard[accepted - 1], heard[accepted]), (7, b'y'));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn parts_of_any_size_arrive_as_they_were_whatever_the_reads(
        parts in prop::collection::vec(prop_oneof![0..300usize, 3_000..20_000usize], 1..30),
        reads in prop::collection::vec(prop_oneof![1..40usize, 10_000..40_000usize], 1..20),
    ) {
        let (mut near, mut far, _folder) = wires();
        let all = bytes(parts.iter().sum());
        let mut rest = &all[..];
        let slices: Vec<&[u8]> = parts.iter().map(|len| rest.split_off(..*len).unwrap()).collect();
        let heard = thread::scope(|scope| {
            scope.spawn(|| {
                write_all(&mut near, &slices).unwrap();
                near.finish();
            });
            read_all(&mut far, &reads)
        });
        prop_assert!(heard == all);
    }
}
