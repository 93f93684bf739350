//! Every interleaving (up to three preemptions) of pin, evict, free, seal and watermark, under loom.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p bireme-store --release loom_`

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::sync::AtomicU64;

/// An object as the table and the arena hold it; loom reports a race on `bytes` as an error.
struct Object {
    entry: Entry,
    pins: [AtomicU32; 2],
    bytes: UnsafeCell<u32>,
}

// SAFETY: that access to `bytes` is exclusive or read-only is what the models are to show.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    fn new(state: EntryState, value: u32) -> Arc<Self> {
        let pins = [AtomicU32::new(0), AtomicU32::new(0)];
        Arc::new(Self { entry: Entry::new(1, state), pins, bytes: UnsafeCell::new(value) })
    }

    /// A reader of process `slot`: what it saw, if it got a pin.
    fn read(&self, slot: usize) -> Option<u32> {
        acquire(&self.entry, &self.pins[slot], 1, |state| state == EntryState::Sealed).ok()?;
        // SAFETY: pinned.
        let seen = self.bytes.with(|bytes| unsafe { *bytes });
        release(&self.pins[slot]);
        Some(seen)
    }

    /// What the node does once the range is its own again: the next object's writer overwrites it.
    fn reuse(&self) {
        self.entry.publish(2, EntryState::Free);
        // SAFETY: retired.
        self.bytes.with_mut(|bytes| unsafe { *bytes = 99 });
    }
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

#[test]
fn loom_an_evicted_object_is_read_by_nobody() {
    model(|| {
        let object = Object::new(EntryState::Sealed, 7);
        let readers = [0, 1].map(|slot| {
            let object = Arc::clone(&object);
            thread::spawn(move || assert!(matches!(object.read(slot), None | Some(7))))
        });
        match try_evict(&object.entry, 1, object.pins.iter()) {
            Ok(()) => object.reuse(),
            Err(refused) => {
                assert_eq!(refused, EvictRefused::Pinned);
                assert_eq!(object.entry.load(), Some((1, EntryState::Sealed)));
            }
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn loom_a_freed_object_is_reused_only_after_its_last_pin() {
    model(|| {
        let object = Object::new(EntryState::Sealed, 7);
        let reader = {
            let object = Arc::clone(&object);
            thread::spawn(move || {
                assert!(matches!(object.read(0), None | Some(7)));
                assert!(matches!(object.read(0), None | Some(7)));
            })
        };
        object.entry.condemn(1);
        let freed = unpinned(object.pins.iter());
        if freed {
            object.reuse();
        }
        reader.join().unwrap();
        if !freed {
            assert!(unpinned(object.pins.iter()), "a sweep after the reader has gone frees it");
            object.reuse();
        }
    });
}

#[test]
fn loom_an_abort_and_a_writer_never_both_have_the_bytes() {
    model(|| {
        let object = Object::new(EntryState::Unsealed, 0);
        let writer = {
            let object = Arc::clone(&object);
            thread::spawn(move || {
                if acquire(&object.entry, &object.pins[0], 1, |state| state == EntryState::Unsealed).is_err() {
                    return;
                }
                if object.entry.advance(1, EntryState::Unsealed, EntryState::Writing) {
                    // SAFETY: claimed and pinned.
                    object.bytes.with_mut(|bytes| unsafe { *bytes = 7 });
                    object.entry.advance(1, EntryState::Writing, EntryState::Sealed);
                }
                release(&object.pins[0]);
            })
        };
        object.entry.condemn(1);
        if unpinned(object.pins.iter()) {
            object.reuse();
        }
        writer.join().unwrap();
        assert!(!matches!(object.entry.load(), Some((_, EntryState::Sealed | EntryState::Writing))));
    });
}

#[test]
fn loom_bytes_below_the_watermark_and_of_a_sealed_object_are_whole() {
    model(|| {
        let object = Object::new(EntryState::Writing, 0);
        let second = std::sync::Arc::new(AtomicU64::new(0));
        let writer = {
            let (object, second) = (Arc::clone(&object), std::sync::Arc::clone(&second));
            thread::spawn(move || {
                // SAFETY: the only writer, above the watermark.
                object.bytes.with_mut(|bytes| unsafe { *bytes = 7 });
                object.entry.watermark.store(1, Ordering::Release);
                second.store(8, Ordering::Relaxed);
                object.entry.watermark.store(2, Ordering::Release);
                assert!(object.entry.advance(1, EntryState::Writing, EntryState::Sealed));
            })
        };
        let accepts = |state| matches!(state, EntryState::Writing | EntryState::Sealed);
        acquire(&object.entry, &object.pins[0], 1, accepts).expect("nobody frees it");
        let watermark = object.entry.watermark.load(Ordering::Acquire);
        if watermark >= 1 {
            // SAFETY: below the watermark.
            assert_eq!(object.bytes.with(|bytes| unsafe { *bytes }), 7);
        }
        if watermark == 2 || object.entry.load() == Some((1, EntryState::Sealed)) {
            assert_eq!(second.load(Ordering::Relaxed), 8);
        }
        release(&object.pins[0]);
        writer.join().unwrap();
    });
}
