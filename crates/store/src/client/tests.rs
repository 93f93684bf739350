//! Writing, sealing, pinning, and locations that lie.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::server::{FreeOutcome, Store};
use crate::spill::SpillOptions;
use crate::{LocationError, OBJECTS_MAX, PrivateView};

const CAPACITY: u64 = 64 << 20;

fn machine() -> (Store, StoreClient) {
    let overflow = SpillOptions::default().make_overflow(CAPACITY).unwrap();
    let arena = Arc::new(Arena::create(CAPACITY).unwrap().with_overflow(overflow));
    let table = Arc::new(Table::create().unwrap());
    let slot = ProcessSlot::new(3).unwrap();
    let mut store = Store::new(Arc::clone(&arena), Arc::clone(&table), SpillOptions::default());
    store.admit_process(slot);
    (store, StoreClient::new(arena, table, slot))
}

#[test]
fn bytes_below_the_watermark_are_readable_before_the_seal() {
    let (mut store, client) = machine();
    let location = store.create(8).unwrap();
    let mut writer = client.writer(location).unwrap();
    assert_eq!(&*client.pin_partial(location).unwrap(), b"");
    writer.spare_mut()[..3].copy_from_slice(b"abc");
    writer.advance(3).unwrap();
    assert_eq!(&*client.pin_partial(location).unwrap(), b"abc");
    assert_eq!(writer.advance(6), Err(WriteError::Overrun { asked: 6, left: 5 }));
    assert_eq!(client.pin(Sealed(location.0)).unwrap_err(), PinError::Moved);
    writer.copy_from(b"defgh").unwrap();
    let sealed = writer.seal().unwrap();
    assert_eq!(&*client.pin(sealed).unwrap(), b"abcdefgh");
    assert_eq!(&*client.pin_partial(location).unwrap(), b"abcdefgh");
}

#[test]
fn a_growing_view_follows_the_watermark_and_keeps_what_it_has_when_the_object_is_given_up() {
    let (mut store, client) = machine();
    let location = store.create(6 << 20).unwrap();
    let mut writer = client.writer(location).unwrap();
    let growing = client.pin_growing(location).unwrap();
    assert_eq!((growing.len(), growing.watermark(), growing.bytes(0..10)), (6 << 20, 0, &[][..]));
    assert_eq!((writer.prepare(1), writer.prepare(u64::MAX)), (Ok(2 << 20), Ok(6 << 20)));
    writer.spare_mut()[..3].copy_from_slice(b"abc");
    writer.advance(3).unwrap();
    assert_eq!(growing.bytes(1..10), b"bc");
    assert_eq!(growing.bytes(7..10), b"");
    assert_eq!(store.abort(location), Ok(FreeOutcome::Deferred));
    drop(writer);
    assert_eq!((store.sweep(), growing.bytes(0..3)), (0, &b"abc"[..]));
    assert!(client.pin_growing(location).is_err());
    drop(growing);
    assert_eq!((store.sweep(), store.stats().used), (1, 0));
}

#[test]
fn what_is_written_to_a_private_view_is_seen_by_nobody_else() {
    let (mut store, client) = machine();
    for in_overflow in [false, true] {
        check_private_views(&mut store, &client, in_overflow);
    }
}

#[allow(unsafe_code)]
fn check_private_views(store: &mut Store, client: &StoreClient, in_overflow: bool) {
    // In memory, the objects share pages with each other.
    let pinned: Vec<Pinned> = (0..3u8)
        .map(|n| {
            let room = if in_overflow { store.create_overflow(10_000) } else { store.create(10_000) };
            let mut writer = client.writer(room.unwrap()).unwrap();
            writer.copy_from(&[n; 10_000]).unwrap();
            client.pin(writer.seal().unwrap()).unwrap()
        })
        .collect();
    let views: Vec<_> = (0..2).map(|_| pinned[1].map_private(100, 9_800).unwrap()).collect();
    // SAFETY: the view is alive, this thread alone uses it, and the slice is as long as it.
    let bytes = |view: &PrivateView| unsafe { std::slice::from_raw_parts_mut(view.as_ptr(), view.len()) };
    bytes(&views[0]).fill(9);
    assert!(bytes(&views[0]).iter().all(|byte| *byte == 9));
    assert!(bytes(&views[1]).iter().all(|byte| *byte == 1));
    for (n, object) in pinned.iter().enumerate() {
        assert!(object.iter().all(|byte| usize::from(*byte) == n), "object {n} has changed");
    }
    assert_eq!(pinned[1].map_private(1, 10_000).err(), Some(Errno::INVAL));
    let location = pinned[1].location();
    drop(pinned);
    assert_eq!(store.free(location.entry, location.generation), Ok(FreeOutcome::Deferred), "the views keep the object");
    assert!(bytes(&views[1]).iter().all(|byte| *byte == 1));
    drop(views);
    assert_eq!(store.sweep(), 1);
}

#[test]
fn an_object_has_one_writer_and_is_sealed_only_when_full() {
    let (mut store, client) = machine();
    let location = store.create(8).unwrap();
    let writer = client.writer(location).unwrap();
    assert_eq!(client.writer(location).unwrap_err(), WriteError::NotClaimable);
    assert_eq!(writer.seal().unwrap_err(), WriteError::Unfinished { watermark: 0, len: 8 });
    assert!(!store.is_pinned(location.0.entry));
}

#[test]
fn an_empty_object_can_be_sealed_and_read() {
    let (mut store, client) = machine();
    let sealed = client.writer(store.create(0).unwrap()).unwrap().seal().unwrap();
    assert!(sealed.is_empty());
    assert_eq!(client.pin(sealed).unwrap().len(), 0);
}

#[test]
fn large_copies_arrive_whole_from_any_alignment_cold_and_warm() {
    let (mut store, client) = machine();
    let bytes: Vec<u8> = (0..40u32 << 20).map(|i| (i ^ (i >> 9)) as u8).collect();
    for round in 0..3usize {
        let part = &bytes[round * 13..];
        let location = store.create(part.len() as u64).unwrap();
        let mut writer = client.writer(location).unwrap();
        writer.copy_from(&part[..777]).unwrap();
        writer.copy_from_with(&part[777..], 3).unwrap();
        let sealed = writer.seal().unwrap();
        assert!(*client.pin(sealed).unwrap() == *part);
        let _ = store.free(sealed.0.entry, sealed.0.generation).unwrap();
    }
    store.populate_ahead().unwrap();
}

#[test]
fn copies_past_the_caches_arrive_whole() {
    let arena = Arena::create(96 << 20).unwrap();
    assert_eq!(arena.populate(0), Ok(64 << 20));
    assert_eq!(arena.populate(64 << 20), Ok(96 << 20));
    let bytes: Vec<u8> = (0..(80u32 << 20) + 1234).map(|i| (i ^ (i >> 7)) as u8).collect();
    // SAFETY: the arena is this test's alone and long enough.
    unsafe { crate::copy::copy_into(&arena, 33, &bytes, 2) }.unwrap();
    let start = arena.read_at(33, bytes.len() as u64).unwrap();
    // SAFETY: in bounds, and nobody writes any more.
    let copied = unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes.len()) };
    assert!(copied == bytes);
}

#[test]
fn an_old_location_is_refused_after_its_entry_was_used_again() {
    let (mut store, client) = machine();
    let old = client.writer(store.create(0).unwrap()).unwrap().seal().unwrap();
    let _ = store.free(old.0.entry, old.0.generation).unwrap();
    let new = client.writer(store.create(0).unwrap()).unwrap().seal().unwrap();
    assert_eq!((new.0.entry, new.0.offset), (old.0.entry, old.0.offset));
    assert_eq!(client.pin(old).unwrap_err(), PinError::Moved);
    assert!(client.pin(new).is_ok());
}

#[test]
fn a_clone_is_a_pin_of_its_own_and_may_go_to_another_thread() {
    let (mut store, client) = machine();
    let mut writer = client.writer(store.create(3).unwrap()).unwrap();
    writer.copy_from(b"abc").unwrap();
    let sealed = writer.seal().unwrap();
    let first = client.pin(sealed).unwrap();
    let second = first.clone();
    drop(first);
    assert!(store.is_pinned(sealed.0.entry));
    std::thread::spawn(move || assert_eq!(&*second, b"abc")).join().unwrap();
    assert!(!store.is_pinned(sealed.0.entry));
}

#[test]
fn locations_of_the_wrong_length_or_beyond_the_table_are_refused() {
    assert_eq!(Location::from_bytes(&[0; 23]), Err(LocationError));
    let beyond = Location { entry: OBJECTS_MAX, generation: 0, offset: 0, len: 0 };
    assert_eq!(Location::from_bytes(&beyond.to_bytes()), Err(LocationError));
    let endless = Location { entry: 0, generation: 0, offset: 2, len: u64::MAX };
    assert_eq!(Location::from_bytes(&endless.to_bytes()), Err(LocationError));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_location_comes_back_as_it_was(
        entry in 0..OBJECTS_MAX,
        generation: u32,
        offset in 0..u64::MAX / 2,
        len in 0..u64::MAX / 2,
    ) {
        let location = Location { entry, generation, offset, len };
        prop_assert_eq!(Location::from_bytes(&location.to_bytes()), Ok(location));
    }

    #[test]
    fn no_location_but_the_true_one_gives_a_view(
        bytes in prop::array::uniform24(any::<u8>()),
        entry in 0u32..3,
        generation in 0u32..3,
        offset in 0u64..200,
        len in 0u64..200,
    ) {
        let (mut store, client) = machine();
        let mut writer = client.writer(store.create(100).unwrap()).unwrap();
        writer.copy_from(&[7; 100]).unwrap();
        let sealed = writer.seal().unwrap();
        let near = Location { entry, generation, offset, len };
        for claimed in Location::from_bytes(&bytes).into_iter().chain([near]) {
            let pinned = client.pin(Sealed(claimed));
            prop_assert_eq!(pinned.is_ok(), claimed == sealed.0);
            let partial = client.pin_partial(UnsealedLocation(claimed));
            prop_assert_eq!(partial.is_ok(), claimed == sealed.0);
            prop_assert!(client.writer(UnsealedLocation(claimed)).is_err());
        }
        prop_assert!(!store.is_pinned(sealed.0.entry));
    }
}

#[test]
fn an_area_is_written_in_several_places_and_never_twice_at_once() {
    use crate::AreaError;
    let (mut store, client) = machine();
    let location = store.create(10).unwrap();
    let area = Arc::new(client.writer(location).unwrap().into_area());
    let mut back = area.write(6..10).unwrap();
    assert_eq!(area.write(4..7).unwrap_err(), AreaError::Busy { start: 4, end: 7 });
    assert_eq!(area.read(9..10).unwrap_err(), AreaError::Busy { start: 9, end: 10 });
    assert_eq!(area.write(9..11).unwrap_err(), AreaError::OutOfBounds { start: 9, end: 11, len: 10 });
    let mut front = area.write(0..6).unwrap();
    back.bytes_mut().copy_from_slice(b"6789");
    front.bytes_mut().copy_from_slice(b"012345");
    drop(back);
    assert_eq!(area.read(6..10).unwrap(), b"6789");
    area.publish(10);
    assert_eq!(area.seal(), Err(WriteError::Unfinished { watermark: 10, len: 10 }));
    drop(front);
    assert_eq!(&*client.pin_partial(location).unwrap(), b"0123456789");
    let sealed = area.seal().unwrap();
    assert_eq!(area.write(0..1).unwrap_err(), AreaError::Sealed);
    drop(area);
    assert_eq!(&*client.pin(sealed).unwrap(), b"0123456789");
}

#[test]
fn an_area_that_is_given_up_frees_its_range_when_the_last_right_is_gone() {
    let (mut store, client) = machine();
    let location = store.create(1 << 20).unwrap();
    let area = Arc::new(client.writer(location).unwrap().into_area());
    assert_eq!(area.prepare(0..1), Ok(1 << 20));
    let mut right = area.write(0..100).unwrap();
    assert_eq!(store.abort(location), Ok(FreeOutcome::Deferred));
    drop(area);
    right.bytes_mut().fill(1);
    assert_eq!(store.sweep(), 0);
    drop(right);
    assert_eq!((store.sweep(), store.stats().used), (1, 0));
}

#[test]
fn an_area_is_sealed_only_when_all_of_it_was_published() {
    let (mut store, client) = machine();
    let area = Arc::new(client.writer(store.create(8).unwrap()).unwrap().into_area());
    area.publish(5);
    area.publish(3);
    assert_eq!(area.seal(), Err(WriteError::Unfinished { watermark: 5, len: 8 }));
    area.publish(9);
    assert_eq!(area.seal(), Err(WriteError::Unfinished { watermark: 5, len: 8 }));
}
