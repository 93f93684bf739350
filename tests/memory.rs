//! Memory that runs short: new work pauses, objects go to disk, the worker that took most is ended.
//!
//! The limit is made up and counts what the node's own workers and objects use, so that the machine stays as it is.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use bireme::{Bytes, DeathCause, Failure, ObjectRef};
use support::{Gate, Journal, PATIENCE, Scratch, Watch, first, my_pid, note, pass, start, two_cpus};

const MIB: u64 = 1 << 20;
/// New work pauses at 340 MiB, objects are spilled at 360, workers are ended at 380.
const LIMIT: u64 = 400 * MIB;

fn limited() -> bireme::Config {
    two_cpus().memory_limit(LIMIT).object_store_memory(300 * MIB)
}

/// Memory that is really there.
fn take(mib: u64) -> Vec<u8> {
    vec![1; (mib * MIB) as usize]
}

#[bireme::remote(retries = 0, name = "greedy")]
fn greedy(journal: PathBuf, gate: PathBuf, mib: u64) -> usize {
    let taken = take(mib);
    note(&journal, my_pid());
    pass(&gate);
    taken.len()
}

#[bireme::remote]
fn small(journal: PathBuf, gate: PathBuf) -> i32 {
    note(&journal, my_pid());
    pass(&gate);
    my_pid()
}

#[bireme::remote]
fn quick(n: u64) -> u64 {
    n + 1
}

#[test]
fn a_task_that_takes_too_much_fails_with_the_figures_while_others_finish() {
    let mut turn = start(limited());
    let scratch = Scratch::new("greedy");
    let (mut journal, mut others) = (Journal::new(&scratch, "journal"), Journal::new(&scratch, "others"));
    let (gate, never) = (Gate::closed(&scratch, "gate"), Gate::closed(&scratch, "never"));
    let other = small::remote(others.path.clone(), gate.path.clone());
    let modest: i32 = others.next().parse().unwrap();
    let task = greedy::remote(journal.path.clone(), never.path.clone(), 390);
    let ended = Watch::new(journal.next().parse().unwrap());
    let error = task.get_timeout(PATIENCE).unwrap_err();
    let Some(Failure::WorkerDied { name, death, .. }) = error.failure() else { panic!("{error:?}") };
    let DeathCause::MemoryPressure { used, limit, node_used } = death.cause else { panic!("{death:?}") };
    assert_eq!((name.as_str(), limit), ("greedy", LIMIT));
    assert!(used >= 390 * MIB && node_used >= used, "{death}");
    assert!(error.to_string().contains("of 400 MiB were in use"), "{error}");
    assert!(ended.ended_within(PATIENCE));
    gate.open();
    assert_eq!(other.get_timeout(PATIENCE).unwrap(), modest, "it was run once, to its end");
    assert_eq!(quick::options().cpus(0.5).remote(1).get_timeout(PATIENCE).unwrap(), 2);
    let worker = Watch::new(modest);
    turn.end();
    assert!(worker.ended_within(PATIENCE));
    assert_eq!(scratch.contents().len(), 4, "gates and journals: {:?}", scratch.contents());
}

#[bireme::remote]
fn greedy_once(marker: PathBuf, never: PathBuf) -> u64 {
    let once = first(&marker);
    let taken = take(if once { 390 } else { 1 });
    if once {
        pass(&never);
    }
    taken.len() as u64 / MIB
}

#[test]
fn a_task_that_was_ended_for_its_memory_runs_again() {
    let _turn = start(limited());
    let scratch = Scratch::new("greedy-once");
    let never = Gate::closed(&scratch, "never");
    let task = greedy_once::remote(scratch.path("marker"), never.path.clone());
    assert_eq!(task.get_timeout(PATIENCE).unwrap(), 1);
}

/// Submits tasks, each of a shape of its own, until one has to wait; in the meantime `other` does not end.
fn until_one_waits(other: &ObjectRef<usize>) -> ObjectRef<u64> {
    for n in 0..200u32 {
        let task = quick::options().cpus(0.1 + f64::from(n) / 1_000.0).remote(u64::from(n));
        assert!(other.get_timeout(Duration::from_millis(100)).is_err(), "it waits at its gate");
        if task.get_timeout(Duration::from_millis(400)).is_err() {
            return task;
        }
    }
    panic!("new work never paused");
}

#[test]
fn pressure_pauses_new_work_and_it_goes_on_afterwards() {
    let _turn = start(limited());
    let scratch = Scratch::new("pressed");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let running = greedy::remote(journal.path.clone(), gate.path.clone(), 345);
    journal.next();
    let waiting = until_one_waits(&running);
    let why = bireme::explain(&waiting).unwrap();
    assert!(why.contains("memory is short") && why.contains("of 400 MiB are in use"), "{why}");
    gate.open();
    assert_eq!(running.get_timeout(PATIENCE).unwrap() as u64, 345 * MIB, "what runs goes on");
    waiting.get_timeout(PATIENCE).unwrap();
}

/// The memory behind the object store, of which this process has the descriptor.
fn store_bytes() -> u64 {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let is_store =
        |path: &PathBuf| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("bireme-arena"));
    descriptors.filter(is_store).map(|path| std::fs::metadata(path).unwrap().blocks() * 512).max().unwrap()
}

#[test]
fn objects_go_to_disk_before_a_worker_is_ended_and_come_back() {
    let _turn = start(limited());
    let scratch = Scratch::new("spilled");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let objects: Vec<ObjectRef<Bytes>> =
        (0..10u8).map(|n| bireme::put(Bytes::from(vec![n; 20 << 20])).unwrap()).collect();
    let running = greedy::remote(journal.path.clone(), gate.path.clone(), 161);
    journal.next();
    let mut looks = 0;
    while store_bytes() > 180 * MIB {
        assert!(running.get_timeout(Duration::from_millis(100)).is_err(), "it waits at its gate");
        looks += 1;
        assert!(looks < 300, "nothing was spilled: {} bytes", store_bytes());
    }
    assert_eq!(quick::options().cpus(0.5).remote(1).get_timeout(PATIENCE).unwrap(), 2, "new work goes on beside it");
    gate.open();
    assert_eq!(running.get_timeout(PATIENCE).unwrap() as u64, 161 * MIB);
    for (n, object) in objects.iter().enumerate() {
        let bytes = object.get_timeout(PATIENCE).unwrap();
        assert!(bytes.len() == 20 << 20 && bytes.iter().all(|byte| usize::from(*byte) == n), "object {n}");
    }
}

#[test]
fn memory_of_freed_objects_goes_back_but_for_the_reserve_and_is_used_again() {
    let _turn = start(two_cpus().object_store_memory(320 * MIB));
    let reserve = 80 * MIB;
    let put = |n: u8| bireme::put(Bytes::from(vec![n; 20 << 20])).unwrap();
    for _ in 0..2 {
        let objects: Vec<ObjectRef<Bytes>> = (0..12u8).map(put).collect();
        assert!(store_bytes() >= 240 * MIB);
        drop(objects);
        support::eventually("the memory is given back", || store_bytes() <= reserve + MIB);
    }
    assert!(store_bytes() >= reserve / 2, "a reserve stays warm: {}", store_bytes());
    // What is in use stays, and pages that went back come again.
    let objects: Vec<ObjectRef<Bytes>> = (0..12u8).map(put).collect();
    drop(objects.iter().skip(1).cloned().collect::<Vec<_>>());
    for (n, object) in objects.iter().enumerate() {
        assert!(object.get().unwrap().iter().all(|byte| usize::from(*byte) == n));
    }
}

/// Private memory of this process.
fn heap_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    kib.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn the_heap_of_an_idle_program_is_given_back() {
    let _turn = start(two_cpus());
    let before = heap_bytes();
    // Blocks of a kind that the allocator keeps, with something that stays between them.
    let (kept, freed): (Vec<(usize, Vec<u8>)>, Vec<_>) =
        (0..40_000).map(|n| vec![1u8; 8_000 + n % 7]).enumerate().partition(|(n, _)| n % 100 == 0);
    assert!(heap_bytes() >= before + 300 * MIB);
    drop(freed);
    assert_eq!(quick::remote(1).get().unwrap(), 2);
    support::eventually("the heap is trimmed", || heap_bytes() <= before + 60 * MIB);
    assert_eq!(kept.len(), 400);
}
