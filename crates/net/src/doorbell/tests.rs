#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::words::{Connection, Sleeper, Woken};
use crate::fabric::{Fabric, SlotId};
use crate::space::{RING_CAPACITY_MIN, RingSpace};
use crate::spin::{SpinMode, SpinPolicy};

const LONG: Option<Duration> = Some(Duration::from_secs(30));

fn fabric_and_slot() -> (Fabric, SlotId) {
    let fabric = Fabric::create().unwrap();
    let slot = SlotId::new(3).unwrap();
    fabric.claim_slot(slot, 1);
    (fabric, slot)
}

fn connection(index: u16) -> Connection {
    Connection::new(index).unwrap()
}

#[test]
fn every_rung_connection_is_taken_once() {
    let (fabric, slot) = fabric_and_slot();
    let doorbell = fabric.doorbell(slot);
    for index in [0, 63, 64, 700, 4094] {
        fabric.bell(slot, connection(index)).ring();
        fabric.bell(slot, connection(index)).ring();
    }
    doorbell.ring_self();
    assert!(doorbell.is_ready());
    let mut taken = Vec::new();
    assert_eq!(doorbell.take_ready(|c| taken.push(c.index())), 6);
    assert_eq!(taken, [0, 63, 64, 700, 4094, Connection::SELF.index()]);
    assert!(!doorbell.is_ready());
    assert_eq!(doorbell.take_ready(|_| ()), 0);
}

#[test]
fn nobody_sleeps_over_something_ready() {
    let (fabric, slot) = fabric_and_slot();
    let doorbell = fabric.doorbell(slot);
    doorbell.ring_self();
    assert!(!doorbell.prepare_sleep(Sleeper::Pump));
    doorbell.enter_caller();
    assert!(!doorbell.prepare_sleep(Sleeper::Caller));
    // While a caller drains, the pump has nothing to do.
    assert!(doorbell.prepare_sleep(Sleeper::Pump));
    assert!(doorbell.leave_caller(), "what is left is the pump's");
    assert_eq!(doorbell.sleep(Sleeper::Pump, LONG), Woken::Rung);
}

#[test]
fn a_sleep_ends_at_its_timeout_and_leaves_the_sleeper_awake() {
    let (fabric, slot) = fabric_and_slot();
    let doorbell = fabric.doorbell(slot);
    assert!(doorbell.prepare_sleep(Sleeper::Pump));
    let woken = doorbell.sleep(Sleeper::Pump, Some(Duration::from_millis(1)));
    assert_eq!(woken, Woken::TimedOut);
    doorbell.ring_self();
    assert_eq!(doorbell.take_ready(|_| ()), 1);
}

#[test]
fn a_waiting_pump_leaves_to_a_caller_what_is_the_callers() {
    let (fabric, slot) = fabric_and_slot();
    let doorbell = fabric.doorbell(slot);
    let mut policy = SpinPolicy::new(SpinMode::Adaptive);
    fabric.enter_running(slot);
    doorbell.ring_self();
    let mut wait = |who| doorbell.wait(who, &mut policy, Some(Duration::from_millis(1)));
    doorbell.enter_caller();
    assert_eq!(wait(Sleeper::Pump), Woken::TimedOut);
    assert_eq!(wait(Sleeper::Caller), Woken::Rung);
    doorbell.leave_caller();
    assert_eq!(wait(Sleeper::Pump), Woken::Rung);
    assert_eq!(doorbell.take_ready(|_| ()), 1);
    assert_eq!(wait(Sleeper::Pump), Woken::TimedOut);
    assert_eq!(fabric.running(), 1, "counted again after its sleeps");
}

#[test]
fn a_reply_wakes_the_caller_and_not_the_pump() {
    let (fabric, slot) = fabric_and_slot();
    let doorbell = fabric.doorbell(slot);
    let pump_woken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        assert!(doorbell.prepare_sleep(Sleeper::Pump));
        scope.spawn(|| {
            doorbell.sleep(Sleeper::Pump, LONG);
            pump_woken.store(true, Ordering::SeqCst);
        });
        doorbell.enter_caller();
        for _ in 0..200 {
            assert!(doorbell.prepare_sleep(Sleeper::Caller));
            scope.spawn(|| fabric.bell(slot, connection(5)).ring());
            assert_eq!(doorbell.sleep(Sleeper::Caller, LONG), Woken::Rung);
            while doorbell.take_ready(|_| ()) == 0 {
                std::thread::yield_now();
            }
        }
        assert!(!pump_woken.load(Ordering::SeqCst));
        assert!(!doorbell.leave_caller());
        fabric.bell(slot, connection(5)).ring();
    });
    assert!(pump_woken.load(Ordering::SeqCst));
}

#[test]
fn a_thousand_producers_share_one_doorbell() {
    const PRODUCERS: u16 = 1000;
    const EACH: u64 = 50;
    let (fabric, slot) = fabric_and_slot();
    let doorbell = fabric.doorbell(slot);
    let mut space = RingSpace::new();
    let mut consumers = Vec::new();
    let mut producers = Vec::new();
    for index in 0..PRODUCERS {
        let span = space.alloc(RING_CAPACITY_MIN).unwrap();
        fabric.init_ring(span).unwrap();
        consumers.push(fabric.consumer(span).unwrap());
        let bell = fabric.bell(slot, connection(index * 4));
        producers.push((fabric.producer(span).unwrap(), bell));
    }
    let sum = AtomicU64::new(0);
    std::thread::scope(|scope| {
        while let Some(at) = producers.len().checked_sub(125) {
            let mut some = producers.split_off(at);
            scope.spawn(move || {
                for n in 0..EACH {
                    for (producer, bell) in &mut some {
                        producer.try_push(&[&n.to_le_bytes()]).unwrap();
                        bell.ring();
                    }
                }
            });
        }
        let mut seen = 0;
        while seen < u64::from(PRODUCERS) * EACH {
            doorbell.take_ready(|c| {
                let consumer = &mut consumers[usize::from(c.index() / 4)];
                while let Some(n) = consumer.pop(|b| b[0]).unwrap() {
                    seen += 1;
                    sum.fetch_add(u64::from(n), Ordering::Relaxed);
                }
            });
            if seen < u64::from(PRODUCERS) * EACH && doorbell.prepare_sleep(Sleeper::Pump) {
                assert_eq!(doorbell.sleep(Sleeper::Pump, LONG), Woken::Rung, "lost a wake-up");
            }
        }
    });
    let each = EACH * (EACH - 1) / 2;
    assert_eq!(sum.into_inner(), each * u64::from(PRODUCERS));
}
