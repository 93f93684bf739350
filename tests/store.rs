//! The store under pressure: full memory, full disk, objects that never fit, views that outlive everything.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use bireme::{Bytes, Error, Failure, ObjectRef};
use support::{Scratch, start, two_cpus};

const MIB: usize = 1 << 20;

/// Bytes that tell which object they belong to and where they lie in it.
fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}

#[track_caller]
fn check(bytes: &[u8], seed: u8, len: usize) {
    assert_eq!(bytes.len(), len);
    assert!(bytes == pattern(seed, len), "object {seed} has other bytes than were put");
}

#[test]
fn a_full_arena_spills_and_brings_back_every_byte() {
    let scratch = Scratch::new("spill");
    let _turn = start(two_cpus().object_store_memory(32 * MIB as u64).spill_directory(scratch.0.clone()));
    let sizes: Vec<usize> = (0..40).map(|n| (1 + n % 4) * MIB + n * 13).collect();
    let objects: Vec<ObjectRef<Bytes>> = sizes
        .iter()
        .enumerate()
        .map(|(seed, len)| bireme::put(Bytes::from(pattern(seed as u8, *len))).unwrap())
        .collect();
    // Forwards, backwards, and all over.
    let order = (0..40).chain((0..40).rev()).chain((0..40).map(|n| n * 7 % 40));
    for n in order {
        check(&objects[n].get().unwrap(), n as u8, sizes[n]);
    }
    drop(objects);
    support::eventually("all objects are freed", || bireme::state().unwrap().objects.is_empty());
}

#[bireme::remote]
fn make(seed: u8, len: usize) -> Bytes {
    Bytes::from(pattern(seed, len))
}

#[bireme::remote]
fn weigh(bytes: Bytes, seed: u8, len: usize) -> usize {
    check(&bytes, seed, len);
    bytes.len()
}

#[test]
fn large_results_and_arguments_of_tasks_spill_and_come_back_too() {
    let scratch = Scratch::new("spill-tasks");
    let _turn = start(two_cpus().object_store_memory(32 * MIB as u64).spill_directory(scratch.0.clone()));
    let made: Vec<_> = (0..24_u8).map(|seed| make::remote(seed, 4 * MIB + usize::from(seed))).collect();
    let weights: Vec<_> =
        made.iter().zip(0..).map(|(object, seed)| weigh::remote(object, seed, 4 * MIB + usize::from(seed))).collect();
    let expected: Vec<usize> = (0..24).map(|seed| 4 * MIB + seed).collect();
    assert_eq!(bireme::get_all(&weights).unwrap(), expected);
    for (seed, object) in made.iter().enumerate() {
        check(&object.get().unwrap(), seed as u8, 4 * MIB + seed);
    }
}

#[test]
fn an_object_larger_than_the_arena_is_refused_at_once_with_both_sizes() {
    let _turn = start(two_cpus().object_store_memory(16 * MIB as u64));
    let begun = std::time::Instant::now();
    let error = bireme::put(Bytes::from(vec![0; 17 * MIB])).unwrap_err();
    assert!(matches!(error, Error::StoreFull(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&(16 * MIB).to_string()) && text.contains("1782"), "{text}");
    let error = make::remote(0, 17 * MIB).get().unwrap_err();
    assert!(matches!(error.failure(), Some(Failure::StoreFull { .. })), "{error:?}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "it can never fit: there is nothing to wait for");
    check(&make::remote(3, MIB).get().unwrap(), 3, MIB);
}

/// A file system that is full soon, unmounted whatever happens.
struct TinyDisk(PathBuf);

impl TinyDisk {
    /// None when this user may not mount.
    fn mount(scratch: &Scratch, bytes: usize) -> Option<Self> {
        let path = scratch.path("disk");
        std::fs::create_dir(&path).unwrap();
        let options = format!("size={bytes}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "bireme-test"]).arg(&path).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(path))
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// Fills memory and disk until a put is refused, then reads everything that was accepted.
fn fill_up(arena: usize) {
    let mut objects: Vec<ObjectRef<Bytes>> = Vec::new();
    let error = loop {
        let seed = objects.len() as u8;
        match bireme::put(Bytes::from(pattern(seed, 2 * MIB))) {
            Ok(object) => objects.push(object),
            Err(error) => break error,
        }
        assert!(objects.len() < 100, "memory and disk hold far less than that");
    };
    assert!(matches!(error, Error::StoreFull(_)), "{error:?}");
    assert!(objects.len() >= arena / (2 * MIB) - 1, "only {} objects fit", objects.len());
    for (seed, object) in objects.iter().enumerate() {
        match object.get() {
            Ok(bytes) => check(&bytes, seed as u8, 2 * MIB),
            // It is on a disk that is full, and so is memory: nothing can be exchanged for it now.
            Err(error) => assert!(matches!(error, Error::StoreFull(_)), "{error:?}"),
        }
    }
    let error = make::remote(9, 2 * MIB).get().unwrap_err();
    assert!(matches!(error.failure(), Some(Failure::StoreFull { .. })), "{error:?}");
    // Room again, and all is well.
    let kept: Vec<_> = objects.drain(..).enumerate().filter(|(seed, _)| seed % 3 == 0).collect();
    check(&make::remote(9, 2 * MIB).get().unwrap(), 9, 2 * MIB);
    for (seed, object) in &kept {
        check(&object.get().unwrap(), *seed as u8, 2 * MIB);
    }
}

#[test]
fn a_full_disk_is_a_typed_error_and_what_is_there_stays_readable() {
    let scratch = Scratch::new("disk");
    let Some(disk) = TinyDisk::mount(&scratch, MIB) else {
        eprintln!("this user may not mount a file system: the spill limit has a test of its own");
        return;
    };
    let turn = start(two_cpus().object_store_memory(16 * MIB as u64).spill_directory(disk.0.clone()));
    fill_up(16 * MIB);
    drop(turn);
}

#[test]
fn the_spill_limit_is_a_typed_error_and_what_is_there_stays_readable() {
    let scratch = Scratch::new("limit");
    let config = two_cpus().object_store_memory(16 * MIB as u64).spill_directory(scratch.0.clone());
    let _turn = start(config.spill_limit(5 * MIB as u64));
    fill_up(16 * MIB);
}

#[test]
fn a_spill_directory_is_made_and_one_that_is_of_no_use_is_refused_at_once() {
    let scratch = Scratch::new("made");
    let config = || two_cpus().object_store_memory(16 * MIB as u64);
    let turn = support::turn();
    std::fs::write(scratch.path("file"), "").unwrap();
    for useless in [scratch.path("no").join("parent"), scratch.path("file"), PathBuf::from("/proc")] {
        let error = bireme::init_with(config().spill_directory(useless.clone())).unwrap_err();
        let text = format!("objects cannot be spilled to {}: ", useless.display());
        assert!(matches!(&error, Error::BadArgument(why) if why.starts_with(&text)), "{error}");
        assert!(!bireme::is_initialized());
    }
    drop(turn);
    let made = scratch.path("made");
    let _turn = start(config().spill_directory(made.clone()));
    assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let objects: Vec<_> = (0..10).map(|seed| make::remote(seed, 2 * MIB)).collect();
    for (seed, object) in objects.iter().enumerate() {
        check(&object.get().unwrap(), seed as u8, 2 * MIB);
    }
}

#[test]
fn views_stay_where_they_are_while_everything_around_them_is_spilled() {
    let scratch = Scratch::new("pinned");
    let _turn = start(two_cpus().object_store_memory(32 * MIB as u64).spill_directory(scratch.0.clone()));
    let pinned = bireme::put(Bytes::from(pattern(200, 4 * MIB))).unwrap();
    let view = pinned.get().unwrap();
    let address = view.as_ptr();
    for round in 0..20 {
        let other = bireme::put(Bytes::from(pattern(round, 6 * MIB))).unwrap();
        check(&other.get().unwrap(), round, 6 * MIB);
    }
    check(&view, 200, 4 * MIB);
    assert_eq!(pinned.get().unwrap().as_ptr(), address, "a pinned object does not move");
    drop(pinned);
    let many: Vec<_> = (0..6).map(|n| bireme::put(Bytes::from(pattern(n, 5 * MIB))).unwrap()).collect();
    check(&view, 200, 4 * MIB);
    drop(many);
}

#[bireme::remote]
fn merge_four(a: Bytes, b: Bytes, c: Bytes, d: Bytes, first: u8) -> Bytes {
    let parts = [a, b, c, d];
    for (part, seed) in parts.iter().zip(first..) {
        check(part, seed, 4 * MIB);
    }
    Bytes::from(parts.iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>())
}

#[test]
fn tasks_with_more_inputs_than_the_store_holds_all_finish() {
    let scratch = Scratch::new("merges");
    let _turn = start(two_cpus().object_store_memory(40 * MIB as u64).spill_directory(scratch.0.clone()));
    let parts: Vec<_> = (0..32_u8).map(|seed| make::remote(seed, 4 * MIB)).collect();
    let merged: Vec<_> = (parts.chunks(4).zip((0..32).step_by(4)))
        .map(|(four, first)| merge_four::remote(&four[0], &four[1], &four[2], &four[3], first))
        .collect();
    for (object, first) in merged.iter().zip((0..32).step_by(4)) {
        let bytes = object.get().unwrap();
        for (part, seed) in bytes.chunks(4 * MIB).zip(first..) {
            check(part, seed, 4 * MIB);
        }
    }
}

#[test]
fn more_views_than_the_store_holds_are_read_from_the_overflow_file_which_has_no_name() {
    let scratch = Scratch::new("overflow");
    let _turn = start(two_cpus().object_store_memory(16 * MIB as u64).spill_directory(scratch.0.clone()));
    let objects: Vec<_> = (0..12_u8).map(|seed| bireme::put(Bytes::from(pattern(seed, 4 * MIB))).unwrap()).collect();
    let views = bireme::get_all(&objects).unwrap();
    for (view, seed) in views.iter().zip(0..) {
        check(view, seed, 4 * MIB);
    }
    // With every byte of the store in use there is room for a result, and for its reader.
    check(&make::remote(77, 5 * MIB).get().unwrap(), 77, 5 * MIB);
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0, "the files have no name");
    drop((views, objects));
    support::eventually("all objects are freed", || bireme::state().unwrap().objects.is_empty());
}

#[test]
fn reading_is_free_of_copies_and_the_view_cannot_be_written() {
    let _turn = start(two_cpus());
    let object = bireme::put(Bytes::from(pattern(1, 3 * MIB))).unwrap();
    let (first, second) = (object.get().unwrap(), object.clone().get().unwrap());
    assert_eq!(first.as_ptr(), second.as_ptr(), "two reads, one place");
    let address = first.as_ptr() as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| {
        let range = line.split_whitespace().next().unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let at = |text| usize::from_str_radix(text, 16).unwrap();
        (at(from)..at(to)).contains(&address)
    });
    let line = line.unwrap();
    assert!(line.contains("memfd:bireme"), "{line}");
    assert!(line.split_whitespace().nth(1).unwrap().starts_with("r--s"), "{line}");
}

#[bireme::remote]
fn keep_view(bytes: Bytes) -> usize {
    // Leaked on purpose: pinned until the process ends.
    let len = bytes.len();
    std::mem::forget(bytes);
    len
}

#[test]
fn pins_of_a_dead_process_are_let_go() {
    let scratch = Scratch::new("pins");
    let _turn = start(two_cpus().cpus(1.0).object_store_memory(16 * MIB as u64).spill_directory(scratch.0.clone()));
    for round in 0..6 {
        let object = bireme::put(Bytes::from(pattern(round, 8 * MIB))).unwrap();
        assert_eq!(keep_view::remote(&object).get().unwrap(), 8 * MIB);
        for pid in support::worker_pids() {
            let worker = support::Watch::new(pid);
            worker.kill(rustix::process::Signal::KILL);
            assert!(worker.ended_within(support::PATIENCE));
        }
    }
}

#[test]
fn dropping_references_frees_objects_wherever_they_are() {
    let scratch = Scratch::new("free");
    let _turn = start(two_cpus().object_store_memory(16 * MIB as u64).spill_directory(scratch.0.clone()));
    for _ in 0..5 {
        let objects: Vec<_> =
            (0..12_u8).map(|seed| bireme::put(Bytes::from(pattern(seed, 2 * MIB))).unwrap()).collect();
        assert_eq!(bireme::state().unwrap().objects.len(), 12);
        drop(objects);
        support::eventually("all objects are freed", || bireme::state().unwrap().objects.is_empty());
    }
}
