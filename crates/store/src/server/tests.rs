//! Limits, deferred frees, spill and restore.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use super::*;
use crate::client::{PinError, StoreClient, WriteError};
use crate::spill::{RestoreError, SpillError};

const CAPACITY: u64 = 4 << 20;

struct Machine {
    store: Store,
    client: StoreClient,
}

impl Machine {
    fn new(spill: SpillOptions) -> Self {
        let arena = Arc::new(Arena::create(CAPACITY).unwrap());
        let table = Arc::new(Table::create().unwrap());
        let slot = ProcessSlot::new(0).unwrap();
        let mut store = Store::new(Arc::clone(&arena), Arc::clone(&table), spill);
        store.admit_process(slot);
        Self { store, client: StoreClient::new(arena, table, slot) }
    }

    fn put(&mut self, byte: u8, len: usize) -> Sealed {
        let mut writer = self.client.writer(self.store.create(len as u64).unwrap()).unwrap();
        writer.copy_from(&vec![byte; len]).unwrap();
        writer.seal().unwrap()
    }

    fn spill(&mut self, sealed: Sealed) -> Result<crate::SpillTicket, SpillError> {
        self.store.spill(sealed.0.entry, sealed.0.generation)
    }

    fn free(&mut self, sealed: Sealed) -> Result<FreeOutcome, StoreError> {
        self.store.free(sealed.0.entry, sealed.0.generation)
    }
}

fn machine() -> Machine {
    Machine::new(SpillOptions::default())
}

#[test]
fn an_object_longer_than_the_arena_never_fits_and_a_full_arena_says_what_is_free() {
    let mut machine = machine();
    assert_eq!(
        machine.store.create(CAPACITY + 1),
        Err(StoreError::NeverFits { asked: CAPACITY + 1, capacity: CAPACITY })
    );
    let all = machine.put(1, CAPACITY as usize);
    assert_eq!(machine.store.create(1), Err(StoreError::Full { asked: 1, free: 0, largest: 0 }));
    assert_eq!(machine.free(all), Ok(FreeOutcome::Freed));
    assert!(machine.store.create(CAPACITY).is_ok());
}

#[test]
fn a_full_table_is_a_typed_error_and_recovers() {
    let arena = Arc::new(Arena::create(u64::from(OBJECTS_MAX) * 128).unwrap());
    let mut store = Store::new(arena, Arc::new(Table::create().unwrap()), SpillOptions::default());
    let first = store.create(1).unwrap();
    for _ in 1..OBJECTS_MAX {
        store.create(1).unwrap();
    }
    assert_eq!(store.create(1), Err(StoreError::TableFull { max: OBJECTS_MAX }));
    assert_eq!(store.stats().objects, u64::from(OBJECTS_MAX));
    assert_eq!(store.abort(first), Ok(FreeOutcome::Freed));
    assert!(store.create(1).is_ok());
}

#[test]
fn a_pinned_object_is_freed_when_its_last_pin_goes() {
    let mut machine = machine();
    let sealed = machine.put(5, 100);
    let pinned = machine.client.pin(sealed).unwrap();
    assert_eq!(machine.free(sealed), Ok(FreeOutcome::Deferred));
    assert_eq!(machine.free(sealed), Ok(FreeOutcome::Deferred));
    assert_eq!(machine.store.sweep(), 0);
    assert_eq!(machine.client.pin(sealed).unwrap_err(), PinError::Moved);
    assert_eq!(machine.store.sealed(sealed.0.entry, sealed.0.generation), None);
    assert_eq!(*pinned, [5; 100]);
    drop(pinned);
    assert_eq!(machine.store.sweep(), 1);
    assert_eq!(machine.store.stats().used, 0);
    let (entry, generation) = (sealed.0.entry, sealed.0.generation);
    assert_eq!(machine.free(sealed), Err(StoreError::Unknown { entry, generation }));
}

#[test]
fn an_aborted_object_stays_with_its_writer_until_it_lets_go() {
    let mut machine = machine();
    let location = machine.store.create(10).unwrap();
    let mut writer = machine.client.writer(location).unwrap();
    assert_eq!(machine.store.abort(location), Ok(FreeOutcome::Deferred));
    writer.copy_from(&[1; 10]).unwrap();
    assert_eq!(writer.seal(), Err(WriteError::Aborted));
    assert_eq!(machine.store.sweep(), 1);
    assert_eq!(machine.store.stats().objects, 0);
}

#[test]
fn candidates_are_the_least_recently_used_that_nobody_pins() {
    let mut machine = machine();
    let [first, second, third] = [1, 2, 3].map(|byte| machine.put(byte, 64));
    machine.store.create(64).unwrap();
    machine.store.touch(first.0.entry, first.0.generation);
    assert_eq!(machine.store.spill_candidates(65), [second, third]);
    let _pinned = machine.client.pin(second).unwrap();
    assert_eq!(machine.store.spill_candidates(64), [third]);
    assert_eq!(machine.store.spill_candidates(u64::MAX), [third, first]);
}

#[test]
fn a_spilled_object_comes_back_with_its_bytes_and_gives_its_file_space_back() {
    let mut machine = machine();
    for len in [0, 1, 4096, 3 << 20] {
        let sealed = machine.put(9, len);
        let ticket = machine.spill(sealed).unwrap();
        assert_eq!(machine.store.stats().used, 0);
        assert!(machine.store.stats().spilled >= len as u64);
        assert_eq!(machine.client.pin(sealed).unwrap_err(), PinError::Moved);
        let restored = machine.store.restore(&ticket).unwrap();
        drop(ticket);
        assert_eq!(*machine.client.pin(restored).unwrap(), vec![9; len]);
        assert_eq!(machine.store.stats().spilled, 0);
        assert_eq!(machine.free(restored), Ok(FreeOutcome::Freed));
    }
}

#[test]
fn jobs_run_on_another_thread_while_the_object_is_read_or_freed() {
    let mut machine = machine();
    let sealed = machine.put(4, 1 << 20);
    let (entry, generation) = (sealed.0.entry, sealed.0.generation);
    let job = machine.store.begin_spill(entry, generation).unwrap();
    assert!(matches!(machine.store.begin_spill(entry, generation), Err(SpillError::Busy)));
    let pinned = machine.client.pin(sealed).unwrap();
    let done = std::thread::spawn(|| job.run()).join().unwrap();
    assert!(matches!(machine.store.finish_spill(done), Err(SpillError::Pinned)));
    assert_eq!(machine.store.stats().spilled, 0);
    drop(pinned);
    let job = machine.store.begin_spill(entry, generation).unwrap();
    assert_eq!(machine.free(sealed), Ok(FreeOutcome::Deferred));
    assert!(matches!(machine.store.finish_spill(job.run()), Err(SpillError::Freed)));
    assert_eq!((machine.store.stats().used, machine.store.stats().spilled), (0, 0));
}

#[test]
fn the_spill_limit_is_kept_and_the_object_stays() {
    let mut machine = Machine::new(SpillOptions { spill_bytes_max: 8192, ..SpillOptions::default() });
    let [small, large] = [(1, 4000), (2, 5000)].map(|(byte, len)| machine.put(byte, len));
    let ticket = machine.spill(small).unwrap();
    let refused = machine.spill(large).unwrap_err();
    assert!(matches!(refused, SpillError::LimitReached { asked: 5000, spilled: 4096, max: 8192 }));
    assert_eq!(*machine.client.pin(large).unwrap(), [2; 5000]);
    drop(ticket);
    assert!(machine.spill(large).is_ok());
}

#[test]
fn a_restore_into_a_full_arena_fails_and_can_be_tried_again() {
    let mut machine = machine();
    let sealed = machine.put(8, 3 << 20);
    let ticket = machine.spill(sealed).unwrap();
    let filler = machine.put(1, 3 << 20);
    assert!(matches!(machine.store.restore(&ticket), Err(RestoreError::Store(StoreError::Full { .. }))));
    assert_eq!(machine.free(filler), Ok(FreeOutcome::Freed));
    assert!(machine.store.restore(&ticket).is_ok());
}

#[test]
fn damage_in_the_spill_file_is_found() {
    let mut machine = machine();
    let sealed = machine.put(8, 10_000);
    let ticket = machine.spill(sealed).unwrap();
    ticket.damage().unwrap();
    assert!(matches!(machine.store.restore(&ticket), Err(RestoreError::Corrupt { len: 10_000 })));
    assert_eq!(machine.store.stats().used, 0);
}

#[test]
fn a_directory_that_does_not_exist_is_named() {
    let directory = Path::new("/nowhere/at/all").to_path_buf();
    let mut machine = Machine::new(SpillOptions { directory, spill_bytes_max: 1 << 20 });
    let sealed = machine.put(8, 10);
    let message = machine.spill(sealed).unwrap_err().to_string();
    assert!(message.contains("/nowhere/at/all"), "{message}");
    assert_eq!(*machine.client.pin(sealed).unwrap(), [8; 10]);
}

#[test]
fn a_full_disk_leaves_the_object_in_the_arena_and_the_disk_as_it_was() {
    let directory = std::env::temp_dir().join(format!("bireme-store-full-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&directory).output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        std::fs::remove_dir(&directory).unwrap();
        assert_ne!(
            std::env::var("BIREME_SKIPS").as_deref(),
            Ok("fail"),
            "not tested: this user may not mount a small file system"
        );
        return;
    }
    let mut machine = Machine::new(SpillOptions { directory: directory.clone(), spill_bytes_max: 1 << 30 });
    let [large, small] = [(1, 2 << 20), (2, 900 << 10)].map(|(byte, len)| machine.put(byte, len));
    let refused = machine.spill(large);
    let view_whole = machine.client.pin(large).is_ok_and(|view| *view == vec![1; 2 << 20]);
    // The failed attempt gave its blocks back, so an object that fits still fits.
    let fits = machine.spill(small).is_ok();
    let names = std::fs::read_dir(&directory).unwrap().count();
    drop(machine);
    assert!(Command::new("umount").arg(&directory).status().unwrap().success());
    std::fs::remove_dir(&directory).unwrap();
    assert!(matches!(refused, Err(SpillError::DiskFull { .. })), "{refused:?}");
    assert!(view_whole && fits);
    assert_eq!(names, 0);
}

#[test]
fn secondary_copies_are_dropped_and_never_spilled() {
    let mut machine = machine();
    let [primary, old, new] = [1, 2, 3].map(|byte| machine.put(byte, 64));
    for copy in [old, new] {
        machine.store.set_secondary(copy.0.entry, copy.0.generation, true).unwrap();
    }
    assert_eq!(machine.store.spill_candidates(u64::MAX), [primary]);
    assert_eq!(machine.store.drop_candidates(64), [old]);
    machine.store.touch(old.0.entry, old.0.generation);
    assert_eq!(machine.store.drop_candidates(65), [new, old]);
    assert_eq!(machine.store.drop_copy(primary.0.entry, primary.0.generation), Err(DropError::NotSecondary));
    assert_eq!(machine.store.drop_copy(old.0.entry, old.0.generation), Ok(()));
    assert_eq!(machine.client.pin(old).unwrap_err(), PinError::Moved);
    assert_eq!(machine.store.drop_copy(old.0.entry, old.0.generation), Err(DropError::NotSecondary));
    assert_eq!(machine.store.stats().used, 128);
}

#[test]
fn a_copy_that_is_read_or_has_become_the_last_one_stays() {
    let mut machine = machine();
    let copy = machine.put(7, 64);
    let (entry, generation) = (copy.0.entry, copy.0.generation);
    machine.store.set_secondary(entry, generation, true).unwrap();
    let pinned = machine.client.pin(copy).unwrap();
    assert_eq!(machine.store.drop_candidates(u64::MAX), []);
    assert_eq!(machine.store.drop_copy(entry, generation), Err(DropError::InUse));
    assert_eq!(*pinned, [7; 64]);
    drop(pinned);
    machine.store.set_secondary(entry, generation, false).unwrap();
    assert_eq!(machine.store.drop_copy(entry, generation), Err(DropError::NotSecondary));
    assert_eq!(machine.store.spill_candidates(u64::MAX), [copy]);
    assert_eq!(machine.free(copy), Ok(FreeOutcome::Freed));
    assert!(machine.store.set_secondary(entry, generation, true).is_err());
}

#[test]
fn the_memory_of_free_ranges_goes_back_to_the_machine_and_nothing_else_does() {
    let mut machine = machine();
    let [first, second, third] = [1, 2, 3].map(|byte| machine.put(byte, 1 << 20));
    assert_eq!(machine.store.give_back(), 0, "all of it is used");
    let _ = machine.free(second).unwrap();
    assert_eq!(machine.store.give_back(), 1 << 20);
    assert_eq!(machine.store.give_back(), 0);
    assert_eq!(*machine.client.pin(first).unwrap(), vec![1; 1 << 20]);
    assert_eq!(*machine.client.pin(third).unwrap(), vec![3; 1 << 20]);
    let fourth = machine.put(4, 1 << 20);
    assert_eq!(fourth.0.offset, second.0.offset);
    assert_eq!(*machine.client.pin(fourth).unwrap(), vec![4; 1 << 20]);
}

#[test]
fn what_was_freed_while_it_was_read_goes_in_turn_once_nobody_reads_it() {
    let mut machine = machine();
    let objects = [machine.put(1, 100), machine.put(2, 100), machine.put(3, 100)];
    let pins: Vec<_> = objects.iter().map(|sealed| machine.client.pin(*sealed).unwrap()).collect();
    for sealed in objects {
        assert_eq!(machine.free(sealed), Ok(FreeOutcome::Deferred));
    }
    let [first, second, third] = pins.try_into().unwrap();
    drop((second, third));
    // One look for each in turn: the first, which is still read, does not hide the others.
    assert_eq!(machine.store.sweep_some(1), 0);
    assert_eq!(machine.store.sweep_some(1), 1);
    assert_eq!(machine.store.sweep_some(1), 1);
    assert_eq!(&first[..], [1; 100]);
    drop(first);
    assert_eq!(machine.store.sweep_some(8), 1);
    assert_eq!((machine.store.stats().objects, machine.store.stats().deferred), (0, 0));
}
