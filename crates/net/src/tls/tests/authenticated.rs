//! Streams without encryption, and somebody on the way who changes them.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::thread;

use proptest::prelude::*;

use super::super::authenticated::{AuthenticatedWire, KEY_BYTES, Keys, Side};
use super::*;

const KEYS: Keys = Keys { dialler: [1; KEY_BYTES], door: [2; KEY_BYTES] };

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn begin(stream: TcpStream, side: Side) -> std::io::Result<AuthenticatedWire> {
    AuthenticatedWire::begin(Socket::new(stream, None).unwrap(), &KEYS, side)
}

/// What is on the network when a dialler sends these parts and says goodbye, and where the blocks are in it.
fn on_the_network(parts: &[&[u8]]) -> (Vec<u8>, Vec<Range<usize>>) {
    let (near, mut tap) = pair();
    let mut seen = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut wire = begin(near, Side::Dialler).unwrap();
            parts.iter().for_each(|part| write_all(&mut wire, &[part]).unwrap());
            wire.finish();
        });
        tap.read_to_end(&mut seen).unwrap();
    });
    let (mut blocks, mut at) = (Vec::new(), 0);
    while at < seen.len() {
        let len = u32::from_le_bytes(*seen[at..].first_chunk().unwrap()) as usize;
        blocks.push(at..at + 4 + len + 16);
        at += 4 + len + 16;
    }
    (seen, blocks)
}

/// What a door makes of these bytes, and how it ends.
fn heard(network: &[u8]) -> (Vec<u8>, std::io::Result<()>) {
    let (mut tap, far) = pair();
    thread::scope(|scope| {
        scope.spawn(move || {
            // The door may have seen enough.
            let _ = tap.write_all(network);
            let _ = tap.shutdown(std::net::Shutdown::Write);
            let _ = tap.read_to_end(&mut Vec::new());
        });
        let mut wire = match begin(far, Side::Door) {
            Ok(wire) => wire,
            Err(error) => return (Vec::new(), Err(error)),
        };
        let (mut heard, mut buffer) = (Vec::new(), vec![0; 30_000]);
        loop {
            match wire.read(&mut buffer) {
                Ok(0) => return (heard, Ok(())),
                Ok(count) => heard.extend_from_slice(&buffer[..count]),
                Err(error) => return (heard, Err(error)),
            }
        }
    })
}

#[test]
fn bytes_are_seen_on_the_network_and_arrive_as_they_were() {
    let sent = bytes(200_000);
    let (network, blocks) = on_the_network(&[&sent[..10], &sent[10..]]);
    assert!(network.windows(10).any(|window| window == &sent[..10]), "they are not encrypted");
    assert!(blocks.len() > 5, "{blocks:?}");
    let (heard, end) = heard(&network);
    assert!(heard == sent && end.is_ok());
}

#[test]
fn a_peer_that_does_not_read_is_felt_and_nothing_is_lost() {
    let (near, far) = pair();
    let (mut near, mut far) = thread::scope(|scope| {
        let door = scope.spawn(|| begin(far, Side::Door).unwrap());
        (begin(near, Side::Dialler).unwrap(), door.join().unwrap())
    });
    near.set_nonblocking(true).unwrap();
    let (piece, mut accepted) = (bytes(100_000), 0);
    let error = loop {
        match near.write_vectored(&[std::io::IoSlice::new(&piece)]) {
            Ok(taken) => accepted += taken,
            Err(error) => break error,
        }
    };
    assert!(error.kind() == ErrorKind::WouldBlock && near.wants_write());
    near.set_nonblocking(false).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| read_exact(&mut far, &mut vec![0; accepted]).unwrap());
        near.flush().unwrap();
    });
    assert!(!near.wants_write());
}

#[test]
fn what_the_peer_said_in_the_other_direction_is_not_taken_for_its_own() {
    let (near, mut tap) = pair();
    let wire = begin(near, Side::Dialler).unwrap();
    let mut said = [0; 100];
    let count = tap.read(&mut said).unwrap();
    tap.write_all(&said[..count]).unwrap();
    let mut wire = wire;
    assert_eq!(wire.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[derive(Clone, Debug)]
enum Change {
    Flip { at: prop::sample::Index, bit: u8 },
    Cut { at: prop::sample::Index },
    LeaveOut { block: prop::sample::Index },
    Repeat { block: prop::sample::Index },
    Exchange { block: prop::sample::Index },
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        (index(), 0..8u8).prop_map(|(at, bit)| Change::Flip { at, bit }),
        index().prop_map(|at| Change::Cut { at }),
        index().prop_map(|block| Change::LeaveOut { block }),
        index().prop_map(|block| Change::Repeat { block }),
        index().prop_map(|block| Change::Exchange { block }),
    ]
}

/// The bytes of a stream after somebody was at them.
fn changed(network: &[u8], blocks: &[Range<usize>], change: &Change) -> Vec<u8> {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    match change {
        Change::Flip { at, bit } => {
            let mut bytes = network.to_vec();
            bytes[at.index(network.len())] ^= 1 << bit;
            return bytes;
        }
        Change::Cut { at } => return network[..at.index(network.len())].to_vec(),
        Change::LeaveOut { block } => drop(order.remove(block.index(blocks.len()))),
        // After the goodbye nothing counts, so it is one before that.
        Change::Repeat { block } => {
            let block = block.index(blocks.len() - 1);
            order.insert(block, block);
        }
        Change::Exchange { block } => {
            let block = block.index(blocks.len() - 1);
            order.swap(block, block + 1);
        }
    }
    order.iter().flat_map(|block| &network[blocks[*block].clone()]).copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_change_on_the_way_is_missed(
        lens in prop::collection::vec(prop_oneof![1..200usize, 60_000..70_000usize], 1..6),
        change in change(),
    ) {
        let sent = bytes(lens.iter().sum());
        let mut rest = &sent[..];
        let parts: Vec<&[u8]> = lens.iter().map(|len| rest.split_off(..*len).unwrap()).collect();
        let (network, blocks) = on_the_network(&parts);
        let (heard, end) = heard(&changed(&network, &blocks, &change));
        prop_assert!(sent.starts_with(&heard), "bytes that nobody sent were handed out");
        let error = end.expect_err("the change was not noticed");
        prop_assert!(matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof), "{}", error);
    }
}
