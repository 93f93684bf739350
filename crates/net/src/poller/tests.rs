#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::doorbell::words::Connection;
use crate::fabric::{Fabric, SlotId};
use crate::spin::SpinMode;

const LONG: Option<Duration> = Some(Duration::from_secs(30));
const SHORT: Option<Duration> = Some(Duration::from_millis(1));

fn fabric_and_slot() -> (Fabric, SlotId) {
    let fabric = Fabric::create().unwrap().with_new_bell().unwrap();
    let slot = SlotId::new(0).unwrap();
    fabric.claim_slot(slot, 1);
    (fabric, slot)
}

fn tokens(poller: &Poller) -> Vec<(u64, bool, bool)> {
    poller.ready().map(|ready| (ready.token, ready.readable, ready.writable)).collect()
}

#[test]
fn a_poller_without_a_bell_is_refused() {
    let fabric = Fabric::create().unwrap();
    let doorbell = fabric.doorbell(SlotId::new(0).unwrap());
    assert!(matches!(Poller::new(doorbell), Err(PollerError::NoBell)));
}

#[test]
fn sockets_are_reported_under_their_tokens_until_they_are_read() {
    let (fabric, slot) = fabric_and_slot();
    let mut poller = Poller::new(fabric.doorbell(slot)).unwrap();
    let (mut near, mut far) = UnixStream::pair().unwrap();
    poller.add(near.as_fd(), 7, Interest::READ).unwrap();
    assert_eq!(poller.wait(None, SHORT, || false), Woken::TimedOut);
    far.write_all(b"ab").unwrap();
    for _ in 0..2 {
        assert_eq!(poller.wait(None, LONG, || false), Woken::Rung);
        assert_eq!(tokens(&poller), [(7, true, false)]);
        near.read_exact(&mut [0; 1]).unwrap();
    }
    assert_eq!(poller.wait(None, SHORT, || false), Woken::TimedOut);
    poller.change(near.as_fd(), 8, Interest::BOTH).unwrap();
    poller.wait(None, LONG, || false);
    assert_eq!(tokens(&poller), [(8, false, true)]);
    poller.change(near.as_fd(), 8, Interest::READ).unwrap();
    drop(far);
    poller.wait(None, LONG, || false);
    assert!(poller.ready().next().unwrap().readable, "the end is something to read");
    poller.remove(near.as_fd()).unwrap();
    assert_eq!(poller.wait(None, SHORT, || false), Woken::TimedOut);
    assert_eq!(tokens(&poller), []);
}

#[test]
fn nobody_sleeps_in_the_poller_over_something_ready() {
    let (fabric, slot) = fabric_and_slot();
    let (near, mut far) = UnixStream::pair().unwrap();
    let mut poller = Poller::new(fabric.doorbell(slot)).unwrap();
    poller.add(near.as_fd(), 1, Interest::READ).unwrap();
    far.write_all(b"a").unwrap();
    fabric.doorbell(slot).ring_self();
    assert_eq!(poller.wait(None, LONG, || false), Woken::Rung);
    assert_eq!(tokens(&poller), [(1, true, false)], "a ring does not hide the sockets");
    assert_eq!(fabric.doorbell(slot).take_ready(|_| ()), 1);
}

#[test]
fn a_spin_finds_rings_sockets_and_what_its_closure_knows() {
    let (fabric, slot) = fabric_and_slot();
    let doorbell = fabric.doorbell(slot);
    let mut poller = Poller::new(doorbell.clone()).unwrap();
    let (mut near, mut far) = UnixStream::pair().unwrap();
    poller.add(near.as_fd(), 1, Interest::READ).unwrap();
    let mut policy = SpinPolicy::new(SpinMode::Always);
    let mut looks = 0;
    let knows = || {
        looks += 1;
        looks == 5
    };
    assert_eq!(poller.wait(Some(&mut policy), LONG, knows), Woken::Rung);
    assert_eq!(looks, 5);
    // Written during the spin.
    let mut written = false;
    let writes = || {
        if !std::mem::replace(&mut written, true) {
            far.write_all(b"a").unwrap();
        }
        false
    };
    assert_eq!(poller.wait(Some(&mut policy), LONG, writes), Woken::Rung);
    assert_eq!(tokens(&poller), [(1, true, false)]);
    near.read_exact(&mut [0; 1]).unwrap();
    doorbell.ring_self();
    assert_eq!(poller.wait(Some(&mut policy), LONG, || false), Woken::Rung);
    assert_eq!((doorbell.take_ready(|_| ()), tokens(&poller)), (1, vec![]));
    assert_eq!(fabric.running(), 0, "counted only while it spins");
}

#[test]
fn no_ring_is_lost_between_a_thousand_sleeps_and_a_socket() {
    const ROUNDS: u64 = 4_000;
    let (fabric, slot) = fabric_and_slot();
    let mut poller = Poller::new(fabric.doorbell(slot)).unwrap();
    let doorbell = fabric.doorbell(slot);
    let (mut near, mut far) = UnixStream::pair().unwrap();
    poller.add(near.as_fd(), 1, Interest::READ).unwrap();
    // Each producer goes on when its last message was seen, so that every sleep can be the one that misses a ring.
    let (published, seen) = ([const { AtomicU64::new(0) }; 3], [const { AtomicU64::new(0) }; 3]);
    std::thread::scope(|scope| {
        for producer in 0..3u16 {
            let (published, seen, fabric) = (&published[usize::from(producer)], &seen[usize::from(producer)], &fabric);
            scope.spawn(move || {
                let mut bell = fabric.bell(slot, Connection::new(producer).unwrap());
                for number in 1..=ROUNDS {
                    published.store(number, Ordering::Release);
                    bell.ring();
                    while seen.load(Ordering::Acquire) < number {
                        std::thread::yield_now();
                    }
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                far.write_all(b"a").unwrap();
            }
        });
        let mut bytes = 0;
        while bytes < ROUNDS || seen.iter().any(|seen| seen.load(Ordering::Relaxed) < ROUNDS) {
            assert_eq!(poller.wait(None, LONG, || false), Woken::Rung, "a wake-up was lost");
            doorbell.take_ready(|connection| {
                let index = usize::from(connection.index());
                seen[index].store(published[index].load(Ordering::Acquire), Ordering::Release);
            });
            if poller.ready().any(|ready| ready.readable) && bytes < ROUNDS {
                bytes += near.read(&mut [0; 16]).unwrap() as u64;
            }
            if bytes == ROUNDS {
                // The end of the other thread is readable for ever.
                let _ = poller.remove(near.as_fd());
            }
        }
    });
}
