#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::thread;

use super::*;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (dialled, listener.accept().unwrap().0)
}

#[test]
fn bytes_that_were_read_before_come_first() {
    let (near, mut far) = pair();
    let mut wire = PlainWire::over(Socket::new(near, None).unwrap(), b"early ".to_vec());
    far.write_all(b"late").unwrap();
    assert!(wire.has_buffered());
    let mut bytes = [0; 10];
    read_exact(&mut wire, &mut bytes).unwrap();
    assert_eq!(&bytes, b"early late");
    assert!(!wire.has_buffered());
}

#[test]
fn parts_are_written_in_order_empty_ones_too() {
    let (near, mut far) = pair();
    let mut wire = PlainWire::new(near).unwrap();
    write_all(&mut wire, &[b"", b"head", b"", b"body", b""]).unwrap();
    write_all(&mut wire, &[]).unwrap();
    wire.finish();
    let mut text = String::new();
    far.read_to_string(&mut text).unwrap();
    assert_eq!(text, "headbody");
    assert!(wire.socket.stream.nodelay().unwrap());
}

#[test]
fn a_nonblocking_wire_says_when_there_is_nothing() {
    let (near, _far) = pair();
    let mut wire = PlainWire::new(near).unwrap();
    wire.set_nonblocking(true).unwrap();
    assert_eq!(wire.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn patience_ends_at_the_deadline_however_many_bytes_come() {
    let (near, mut far) = pair();
    let deadline = Instant::now() + Duration::from_millis(200);
    let mut socket = Socket::new(near, Some(Patience { deadline, bytes: usize::MAX })).unwrap();
    // One byte at a time, for as long as the other side listens.
    let dribble = thread::spawn(move || while far.write_all(b"x").is_ok() {});
    let error = loop {
        match socket.read(&mut [0; 1]) {
            Ok(1) => {}
            Ok(other) => panic!("{other} bytes"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(socket);
    dribble.join().unwrap();
}

#[test]
fn patience_ends_when_nothing_comes() {
    let (near, _far) = pair();
    let deadline = Instant::now() + Duration::from_millis(20);
    let mut socket = Socket::new(near, Some(Patience { deadline, bytes: 100 })).unwrap();
    assert_eq!(socket.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(Instant::now() >= deadline);
}

#[test]
fn patience_ends_after_so_many_bytes_and_trust_ends_patience() {
    let (near, mut far) = pair();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut socket = Socket::new(near, Some(Patience { deadline, bytes: 3 })).unwrap();
    far.write_all(b"four").unwrap();
    assert_eq!(socket.read(&mut [0; 16]).unwrap(), 3);
    assert_eq!(socket.read(&mut [0; 16]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    socket.trust().unwrap();
    assert_eq!(socket.read(&mut [0; 16]).unwrap(), 1);
    assert_eq!(socket.stream.read_timeout().unwrap(), None);
}
