//! Models of the ring: every interleaving of a small producer and consumer.
//!
//! The bytes of the ring are ordinary memory; beside each word stands a loom
//! cell that is touched whenever the word is, so that loom sees a race between
//! the ends (RING-2).

use std::cell::UnsafeCell as Bytes;
use std::ptr::NonNull;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::consumer::Consumer;
use super::producer::{Producer, PushError};
use super::{RingHeader, RingMemory};

const CAPACITY: usize = 64;

pub(crate) struct ModelRing {
    header: RingHeader,
    body: Bytes<[u64; CAPACITY / 8]>,
    watched: Vec<UnsafeCell<()>>,
}

// SAFETY: loom runs one thread at a time, and checks the accesses itself.
unsafe impl Send for ModelRing {}
// SAFETY: as above.
unsafe impl Sync for ModelRing {}

impl ModelRing {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            header: RingHeader::new(),
            body: Bytes::new([0; CAPACITY / 8]),
            watched: (0..CAPACITY / 8).map(|_| UnsafeCell::new(())).collect(),
        })
    }

    pub(crate) fn check_read(&self, place: usize, len: usize) {
        self.cells(place, len).for_each(|cell| cell.with(|_| ()));
    }

    pub(crate) fn check_write(&self, place: usize, len: usize) {
        self.cells(place, len).for_each(|cell| cell.with_mut(|_| ()));
    }

    fn cells(&self, place: usize, len: usize) -> impl Iterator<Item = &UnsafeCell<()>> {
        self.watched[place / 8..(place + len).div_ceil(8)].iter()
    }
}

fn memory(ring: &Arc<ModelRing>) -> RingMemory {
    RingMemory {
        header: NonNull::from(&ring.header),
        body: NonNull::new(ring.body.get().cast()).expect("a cell has an address"),
        capacity: CAPACITY as u64,
        model: ring.clone(),
    }
}

fn ends(ring: &Arc<ModelRing>) -> (Producer, Consumer) {
    let producer = Producer::attach(memory(ring)).expect("a new ring is sound");
    let consumer = Consumer::attach(memory(ring)).expect("a new ring is sound");
    (producer, consumer)
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

#[test]
fn loom_frames_arrive_whole_and_in_order_also_across_the_wrap() {
    model(|| {
        let ring = ModelRing::new();
        let (mut producer, mut consumer) = ends(&ring);
        // 24 bytes each: the third one wraps, and there is room for it only
        // once the first was given back.
        let writer = thread::spawn(move || {
            for n in 0..3u8 {
                while producer.try_push(&[&[n; 12]]) == Err(PushError::Full) {
                    thread::yield_now();
                }
            }
        });
        for n in 0..3u8 {
            while consumer.pop(|body| assert_eq!(body, [n; 12])).expect("sound").is_none() {
                thread::yield_now();
            }
        }
        writer.join().expect("the writer ends");
        assert_eq!(consumer.pop(|_| ()), Ok(None));
    });
}

#[test]
fn loom_a_batch_becomes_visible_at_once() {
    model(|| {
        let ring = ModelRing::new();
        let (mut producer, mut consumer) = ends(&ring);
        let writer = thread::spawn(move || {
            producer.try_stage(&[b"a"]).expect("room");
            producer.try_stage(&[b"b"]).expect("room");
            producer.publish();
        });
        if consumer.pop(|body| assert_eq!(body, b"a")).expect("sound").is_some() {
            let second = consumer.pop(|body| assert_eq!(body, b"b"));
            assert_eq!(second, Ok(Some(())));
        }
        writer.join().expect("the writer ends");
    });
}

#[test]
fn loom_a_producer_that_wants_space_is_told_or_sees_it() {
    model(|| {
        let ring = ModelRing::new();
        let (mut producer, mut consumer) = ends(&ring);
        producer.try_push(&[&[1; 16]]).expect("room");
        producer.try_push(&[&[2; 16]]).expect("room");
        assert_eq!(producer.try_push(&[&[3; 16]]), Err(PushError::Full));
        let reader = thread::spawn(move || {
            while consumer.pop(|_| ()).expect("sound").is_some() {}
            consumer.take_space_request()
        });
        let seen = producer.want_space().expect("sound");
        let told = reader.join().expect("the reader ends");
        assert!(seen || told, "the producer would wait for ever");
    });
}
