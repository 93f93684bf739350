//! Bytes of values that go in the clear where both ends have said so.

use std::io::{IoSlice, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::wire::Wire;

const SECRET: &[u8] = b"what says what to do with it";
const LONG: usize = 40_000;

fn open_wires() -> (TlsWire, TlsWire, Folder) {
    let (mut near, mut far, folder) = wires();
    near.leave_values_open();
    far.leave_values_open();
    (near, far, folder)
}

fn socket(wire: &TlsWire) -> TcpStream {
    wire.raw_fd().as_fd().try_clone_to_owned().unwrap().into()
}

/// What is on the network when a message with a value is sent.
fn on_the_wire(near: &mut TlsWire, far: &TlsWire, value: &[u8]) -> Vec<u8> {
    let taken = near.write_with_values(&[SECRET, value, SECRET].map(IoSlice::new), 0b010).unwrap();
    assert_eq!(taken, value.len() + 2 * SECRET.len());
    assert!(!near.wants_write());
    near.shutdown();
    let mut seen = Vec::new();
    socket(far).read_to_end(&mut seen).unwrap();
    seen
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_long_value_is_in_the_clear_and_nothing_else_is() {
    let (mut near, far, _folder) = open_wires();
    let seen = on_the_wire(&mut near, &far, &[7; LONG]);
    assert!(has(&seen, &[7; LONG]) && !has(&seen, SECRET));
}

#[test]
fn without_both_saying_so_or_when_it_is_short_it_is_encrypted() {
    let (mut near, far, _folder) = wires();
    assert!(!has(&on_the_wire(&mut near, &far, &[7; LONG]), &[7; 32]));
    let (mut near, far, _folder) = open_wires();
    assert!(!has(&on_the_wire(&mut near, &far, &[7; 1_000]), &[7; 32]));
}

#[test]
fn who_has_not_agreed_takes_nothing_in_the_clear() {
    let (mut near, mut far, _folder) = wires();
    near.leave_values_open();
    near.write_with_values(&[SECRET, &[7; LONG]].map(IoSlice::new), 0b10).unwrap();
    let mut heard = vec![0; SECRET.len()];
    read_exact(&mut far, &mut heard).unwrap();
    assert_eq!(heard, SECRET);
    assert!(tls_error(&far.read(&mut [0; 100]).unwrap_err()).is_some());
}

#[test]
fn what_does_not_go_at_once_waits_and_arrives() {
    let (mut near, mut far, _folder) = open_wires();
    near.set_nonblocking(true).unwrap();
    let (value, mut sent) = (bytes(60_000), Vec::new());
    loop {
        match near.write_with_values(&[SECRET, &value, SECRET].map(IoSlice::new), 0b010) {
            Ok(taken) => sent.extend_from_slice(&[SECRET, &value, SECRET].concat()[..taken]),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert!(near.wants_write());
    near.set_nonblocking(false).unwrap();
    let mut heard = vec![0; sent.len()];
    thread::scope(|scope| {
        scope.spawn(|| near.flush().unwrap());
        read_exact(&mut far, &mut heard).unwrap();
    });
    assert!(heard == sent);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn parts_in_the_clear_and_others_arrive_in_order(
        parts in prop::collection::vec((prop_oneof![0..300usize, 10_000..100_000usize], any::<bool>()), 1..20),
        reads in prop::collection::vec(prop_oneof![1..40usize, 10_000..100_000usize], 1..20),
    ) {
        let (mut near, mut far, _folder) = open_wires();
        let all = bytes(parts.iter().map(|(len, _)| len).sum());
        let heard = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut at, mut rest) = (0, parts.clone());
                // As a link does: what was not taken is offered again.
                while !rest.is_empty() {
                    let mut place = at;
                    let slices: Vec<IoSlice<'_>> = rest.iter().map(|(len, _)| {
                        place += len;
                        IoSlice::new(&all[place - len..place])
                    }).collect();
                    let values = rest.iter().enumerate().fold(0, |bits, (index, (_, value))| bits | u64::from(*value) << index);
                    let mut taken = near.write_with_values(&slices, values).unwrap();
                    at += taken;
                    while let Some((len, _)) = rest.first_mut() {
                        let of_this = taken.min(*len);
                        (*len, taken) = (*len - of_this, taken - of_this);
                        if *len > 0 {
                            break;
                        }
                        rest.remove(0);
                    }
                }
                near.flush().unwrap();
                near.shutdown();
            });
            read_all(&mut far, &reads)
        });
        prop_assert!(heard == all);
    }
}
