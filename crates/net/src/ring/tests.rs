#![allow(clippy::unwrap_used)]

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::consumer::Consumer;
use super::producer::{Producer, PushError};
use super::*;

/// A ring on the heap, so that small capacities can be tried.
pub(crate) struct HeapRing {
    header: RingHeader,
    body: UnsafeCell<Vec<u64>>,
}

// SAFETY: as for a ring in shared memory, RING-2 says who touches what.
unsafe impl Send for HeapRing {}
// SAFETY: as above.
unsafe impl Sync for HeapRing {}

impl HeapRing {
    fn new(capacity: u64) -> Arc<Self> {
        Arc::new(Self { header: RingHeader::new(), body: UnsafeCell::new(vec![0; (capacity / 8) as usize]) })
    }

    fn memory(self: &Arc<Self>) -> RingMemory {
        // SAFETY: nobody has a reference into the vector, whose length is fixed.
        let body = unsafe { &mut *self.body.get() };
        RingMemory {
            header: NonNull::from(&self.header),
            body: NonNull::new(body.as_mut_ptr().cast()).unwrap(),
            capacity: body.len() as u64 * 8,
            _mapping: Mapped::Heap { _ring: self.clone() },
        }
    }

    fn ends(self: &Arc<Self>) -> (Producer, Consumer) {
        (Producer::attach(self.memory()).unwrap(), Consumer::attach(self.memory()).unwrap())
    }

    fn write_word(&self, index: usize, value: u64) {
        // SAFETY: the tests that call this have no frame open.
        unsafe { (&mut *self.body.get())[index] = value };
    }
}

fn body_of(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ salt).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Stage(usize),
    Publish,
    Pop,
    Release,
    NewEnds,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0usize..300).prop_map(Step::Push),
        3 => (0usize..300).prop_map(Step::Stage),
        1 => Just(Step::Publish),
        6 => Just(Step::Pop),
        1 => Just(Step::Release),
        1 => Just(Step::NewEnds),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn a_ring_does_what_a_queue_does(steps in steps(), start in 0u64..64) {
        let ring = HeapRing::new(1024);
        // Any position is as good as the first.
        ring.header.tail.0.position.store(start * 8, Ordering::Relaxed);
        ring.header.head.0.store(start * 8, Ordering::Relaxed);
        let (mut producer, mut consumer) = ring.ends();
        let (mut visible, mut staged) = (VecDeque::new(), VecDeque::new());
        let mut salt = 0u8;
        for step in steps {
            match step {
                Step::Push(len) | Step::Stage(len) => {
                    salt = salt.wrapping_add(1);
                    let body = body_of(len, salt);
                    let (a, b) = body.split_at(len / 3);
                    let publish = matches!(step, Step::Push(_));
                    let pushed = if publish { producer.try_push(&[a, b]) } else { producer.try_stage(&[a, b]) };
                    match pushed {
                        Ok(()) => staged.push_back(body),
                        Err(PushError::TooLarge { len, max }) => prop_assert!(len > max && max == 256),
                        Err(PushError::Full) => {
                            let free = producer.free_bytes().unwrap() as u64;
                            prop_assert!(free < 2 * span(len), "full with {free} free for {len}");
                        }
                        Err(PushError::Corrupt(corrupt)) => prop_assert!(false, "{corrupt}"),
                    }
                    if publish && pushed.is_ok() {
                        visible.append(&mut staged);
                    }
                }
                Step::Publish => {
                    prop_assert_eq!(producer.publish(), !staged.is_empty());
                    visible.append(&mut staged);
                }
                Step::Pop => {
                    prop_assert_eq!(consumer.is_ready(), !visible.is_empty());
                    let mut aligned = true;
                    let found = consumer.pop(|body| {
                        aligned = body.as_ptr().addr().is_multiple_of(8);
                        body.to_vec()
                    }).unwrap();
                    prop_assert!(aligned);
                    prop_assert_eq!(found, visible.pop_front());
                }
                Step::Release => consumer.release(),
                Step::NewEnds => {
                    consumer.release();
                    // Staged frames of a dropped producer were never sent.
                    staged.clear();
                    drop((producer, consumer));
                    (producer, consumer) = ring.ends();
                }
            }
        }
    }

    #[test]
    fn random_words_in_the_ring_never_harm_its_reader(
        lens in prop::collection::vec(0usize..200, 1..8),
        damage in prop::collection::vec((0usize..128, any::<u64>(), 0u32..4), 1..6),
        tail in prop::option::of(any::<u64>()),
        head in prop::option::of(any::<u64>()),
        near in 0u64..4096,
    ) {
        let ring = HeapRing::new(1024);
        let (mut producer, mut consumer) = ring.ends();
        for len in lens {
            let _ = producer.try_push(&[&body_of(len, 1)]);
        }
        let _ = consumer.pop(|_| ());
        for (index, value, kind) in damage {
            // Plausible lengths and tags get further than random ones.
            let value = match kind {
                0 => value,
                1 => header_word(index as u64 * 8, value as u32),
                2 => header_word(index as u64 * 8, value as u32 % 512),
                _ => header_word(index as u64 * 8, WRAP),
            };
            ring.write_word(index, value);
        }
        if let Some(tail) = tail {
            let tail = if tail % 2 == 0 { tail } else { near };
            ring.header.tail.0.position.store(tail, Ordering::Relaxed);
        }
        if let Some(head) = head {
            let head = if head % 2 == 0 { head } else { near };
            ring.header.head.0.store(head, Ordering::Relaxed);
        }
        let mut read = 0;
        let mut last = Ok(Some(()));
        while let Ok(Some(())) = last {
            last = consumer.pop(|body| assert!(body.len() <= 256));
            read += 1;
            prop_assert!(read <= 1024, "a damaged ring is read for ever");
        }
        if last.is_err() {
            prop_assert_eq!(consumer.pop(|_| ()), last, "once corrupt, always corrupt");
        }
        for len in [0, 8, 100, 256] {
            let _ = producer.try_push(&[&body_of(len, 2)]);
        }
        let _ = (producer.free_bytes(), producer.want_space());
        drop((producer, consumer));
        let _ = Producer::attach(ring.memory()).map(|mut p| p.try_push(&[b"abc"]));
        let _ = Consumer::attach(ring.memory()).map(|mut c| c.pop(|_| ()));
    }
}

#[test]
fn each_kind_of_damage_is_named() {
    let damaged = |damage: &dyn Fn(&HeapRing)| {
        let ring = HeapRing::new(1024);
        let (mut producer, mut consumer) = ring.ends();
        producer.try_push(&[b"first"]).unwrap();
        damage(&ring);
        consumer.pop(|_| ()).unwrap_err().reason
    };
    let tail = |ring: &HeapRing, to| ring.header.tail.0.position.store(to, Ordering::Relaxed);
    assert_eq!(damaged(&|r| tail(r, 3)), Corruption::Tail);
    assert_eq!(damaged(&|r| tail(r, 2048)), Corruption::Tail);
    assert_eq!(damaged(&|r| r.write_word(0, 0)), Corruption::Tag);
    assert_eq!(damaged(&|r| r.write_word(0, header_word(8, 5))), Corruption::Tag);
    assert_eq!(damaged(&|r| r.write_word(0, header_word(0, WRAP))), Corruption::Wrap);
    assert_eq!(damaged(&|r| r.write_word(0, header_word(0, 9))), Corruption::Length);
    assert_eq!(damaged(&|r| r.write_word(0, header_word(0, 257))), Corruption::Length);

    let ring = HeapRing::new(1024);
    let (mut producer, _consumer) = ring.ends();
    ring.header.head.0.store(8, Ordering::Relaxed);
    assert_eq!(producer.free_bytes().unwrap_err().reason, Corruption::Head);
}

#[test]
fn frames_read_but_not_released_are_read_again_by_a_successor() {
    let ring = HeapRing::new(1024);
    let (mut producer, mut consumer) = ring.ends();
    producer.try_push(&[b"one"]).unwrap();
    producer.try_push(&[b"two"]).unwrap();
    assert_eq!(consumer.pop(<[u8]>::len).unwrap(), Some(3));
    // As a killed process does: no drop.
    std::mem::forget(consumer);
    let mut successor = Consumer::attach(ring.memory()).unwrap();
    let mut body = Vec::new();
    assert!(successor.pop_into(&mut body).unwrap());
    assert_eq!(body, b"one");
}

#[test]
fn a_producer_that_wants_space_is_told_when_there_is_some() {
    let ring = HeapRing::new(1024);
    let (mut producer, mut consumer) = ring.ends();
    while producer.try_push(&[&[0; 100]]).is_ok() {}
    assert!(!producer.want_space().unwrap());
    assert!(!consumer.take_space_request());
    while consumer.pop(|_| ()).unwrap().is_some() {}
    assert!(consumer.take_space_request());
    assert!(!consumer.take_space_request());
    producer.try_push(&[&[0; 100]]).unwrap();
}

#[test]
fn a_frame_written_in_place_may_be_shorter_than_reserved() {
    let ring = HeapRing::new(1024);
    let (mut producer, mut consumer) = ring.ends();
    producer
        .stage_with(256, |body| {
            body[..4].copy_from_slice(b"tiny");
            4
        })
        .unwrap();
    assert!(!consumer.is_ready());
    assert!(producer.publish());
    assert_eq!(consumer.pop(<[u8]>::to_vec).unwrap().unwrap(), b"tiny");
    assert!(producer.is_empty().is_ok());
}

#[test]
fn a_fast_producer_and_a_fast_consumer_agree_on_every_byte() {
    const FRAMES: u64 = 200_000;
    let ring = HeapRing::new(1 << 12);
    let (mut producer, mut consumer) = ring.ends();
    let writer = std::thread::spawn(move || {
        for n in 0..FRAMES {
            let body = [n.to_le_bytes().as_slice(), &body_of((n % 90) as usize, n as u8)].concat();
            while producer.try_push(&[&body]) == Err(PushError::Full) {
                std::thread::yield_now();
            }
        }
    });
    for n in 0..FRAMES {
        loop {
            let found = consumer.pop(|body| {
                let (number, rest) = body.split_at(8);
                assert_eq!(number, n.to_le_bytes());
                assert_eq!(rest, body_of((n % 90) as usize, n as u8));
            });
            match found.unwrap() {
                Some(()) => break,
                None => std::thread::yield_now(),
            }
        }
    }
    writer.join().unwrap();
    assert_eq!(consumer.pop(|_| ()), Ok(None));
}
