#![allow(clippy::unwrap_used)]

use super::*;
use crate::space::{RING_CAPACITY_MIN, RingSpace};

#[test]
fn a_second_mapping_sees_the_same_rings() {
    let fabric = Fabric::create().unwrap();
    let other = Fabric::from_fd(fabric.fd().try_clone_to_owned().unwrap()).unwrap();
    let span = RingSpace::new().alloc(RING_CAPACITY_MIN).unwrap();
    fabric.init_ring(span).unwrap();
    let mut producer = fabric.producer(span).unwrap();
    let mut consumer = other.consumer(span).unwrap();
    producer.try_push(&[b"hello"]).unwrap();
    assert_eq!(consumer.pop(<[u8]>::to_vec).unwrap().unwrap(), b"hello");
    assert_eq!(fabric.ncpus(), other.ncpus());
}

#[test]
fn a_descriptor_of_something_else_is_refused() {
    let memory = |len| {
        let fd = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, len).unwrap();
        fd
    };
    for len in [0, 4096, FABRIC_BYTES] {
        let refused = Fabric::from_fd(memory(len));
        assert!(matches!(refused, Err(FabricError::NotAFabric)));
    }
}

#[test]
fn nobody_can_shrink_the_fabric() {
    let fabric = Fabric::create().unwrap();
    assert!(rustix::fs::ftruncate(fabric.fd(), 4096).is_err());
}

#[test]
fn an_end_has_one_holder_until_it_is_dropped_or_its_claim_broken() {
    let fabric = Fabric::create().unwrap();
    let span = RingSpace::new().alloc(RING_CAPACITY_MIN).unwrap();
    fabric.init_ring(span).unwrap();
    let first = fabric.producer(span).unwrap();
    let second = fabric.producer(span).err();
    assert_eq!(second, Some(AttachError::Claimed(End::Producer)));
    drop(first);
    // As a killed process does: no drop.
    std::mem::forget(fabric.producer(span).unwrap());
    assert!(fabric.producer(span).is_err());
    fabric.break_claim(span, End::Producer);
    assert!(fabric.producer(span).is_ok());
}

#[test]
fn a_dropped_ring_gives_its_pages_back_and_starts_empty() {
    let fabric = Fabric::create().unwrap();
    let blocks = || rustix::fs::fstat(fabric.fd()).unwrap().st_blocks;
    let span = RingSpace::new().alloc(RING_CAPACITY_MIN).unwrap();
    fabric.init_ring(span).unwrap();
    let before = blocks();
    let mut producer = fabric.producer(span).unwrap();
    while producer.try_push(&[&[7; 1000]]).is_ok() {}
    assert!(blocks() > before);
    drop(producer);
    fabric.drop_ring(span).unwrap();
    assert_eq!(blocks(), before);
    fabric.init_ring(span).unwrap();
    assert_eq!(fabric.consumer(span).unwrap().pop(|_| ()), Ok(None));
}

#[test]
fn each_holder_of_a_slot_is_a_new_incarnation_with_a_quiet_doorbell() {
    let fabric = Fabric::create().unwrap();
    let slot = SlotId::new(9).unwrap();
    let first = fabric.claim_slot(slot, 41);
    fabric.doorbell(slot).ring_self();
    fabric.release_slot(slot);
    assert_eq!(fabric.slot_pid(slot), 0);
    let second = fabric.claim_slot(slot, 42);
    assert_ne!(first, second);
    assert_eq!(fabric.slot_incarnation(slot), second);
    assert!(!fabric.doorbell(slot).is_ready());
    assert!(SlotId::new(PROCESSES_MAX).is_none());
}
