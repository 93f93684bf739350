//! Forks of a driver, signal masks and process groups: the runtime keeps to itself.
//!
//! A child made by `fork` does as little as it can here: calls of the runtime, then `_exit` with a code that says what
//! went wrong. It may allocate (the C library's allocator survives forks) but never prints or panics.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::time::Duration;

use bireme::{Bytes, Error};
use rustix::process::{Pid, getpgid};
use support::{PATIENCE, Watch, start, two_cpus};

#[bireme::remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// The numbers of this process's group and session: zero for what began outside of this PID namespace, which a typed
/// number refuses.
fn group_and_session() -> (i32, i32) {
    // SAFETY: plain system calls about the calling process.
    unsafe { (libc::getpgrp(), libc::getsid(0)) }
}

#[bireme::remote]
fn of_a_worker() -> (i32, i32) {
    group_and_session()
}

pub struct Counter(i64);

#[bireme::actor]
impl Counter {
    pub fn new() -> Self {
        Counter(0)
    }

    pub fn count(&mut self) -> i64 {
        self.0 += 1;
        self.0
    }
}

/// Runs `body` in a fork and gives its exit code; a child that hangs is killed and gives none.
fn in_fork(body: impl FnOnce() -> i32) -> Option<i32> {
    // SAFETY: the child calls the runtime, which takes no lock there, and `_exit`.
    let pid = match unsafe { libc::fork() } {
        // SAFETY: `_exit` has no preconditions.
        0 => unsafe { libc::_exit(body()) },
        pid => pid,
    };
    let watch = Watch::new(pid);
    let ended = watch.ended_within(PATIENCE);
    if !ended {
        watch.kill(rustix::process::Signal::KILL);
    }
    let status = rustix::process::waitpid(Pid::from_raw(pid), rustix::process::WaitOptions::empty());
    let (_, status) = status.unwrap().unwrap();
    if ended { status.exit_status() } else { None }
}

/// The number of the first thing that did not answer as a fork must.
fn first_wrong(answers: &[bool]) -> i32 {
    answers.iter().position(|right| !right).map_or(0, |index| i32::try_from(index).unwrap() + 1)
}

fn refused<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Forked))
}

#[test]
fn a_fork_of_a_driver_is_refused_with_a_clear_error_and_changes_nothing() {
    let turn = start(two_cpus());
    let context_of_the_fork = std::cell::Cell::new(Some(turn));
    let result = add::remote(1, 2);
    let put = bireme::put(Bytes::from(vec![7; 1 << 20])).unwrap();
    let view = put.get().unwrap();
    let actor = Counter::options().name("counter").remote();
    assert_eq!(actor.count().get().unwrap(), 1);
    let (result_copy, put_copy, view_copy, actor_copy) = (result.clone(), put.clone(), view.clone(), actor.clone());
    let code = in_fork(|| {
        let answers = [
            refused(result.get()),
            refused(put.get_timeout(Duration::from_millis(1))),
            refused(add::remote(1, 2).get()),
            refused(add::remote(&result, 2).get()),
            refused(actor.count().get()),
            refused(bireme::put(1)),
            refused(bireme::wait(std::slice::from_ref(&result), 1, None)),
            refused(bireme::cancel(&result, true)),
            refused(bireme::state()),
            refused(bireme::explain(&result)),
            refused(bireme::get_actor::<Counter>("counter")),
            refused(actor.kill()),
            refused(bireme::init()),
            !bireme::is_initialized(),
            view[5] == 7,
        ];
        bireme::shutdown();
        drop((result_copy, put_copy, view_copy.clone(), view_copy, actor_copy));
        drop(context_of_the_fork.take());
        first_wrong(&answers)
    });
    assert_eq!(code, Some(0), "the number of the call that was not refused");
    // Nothing of the driver has changed: its objects, pins, actor and processes are there.
    assert_eq!(result.get().unwrap(), 3);
    assert_eq!(actor.count().get().unwrap(), 2);
    assert_eq!(put.get().unwrap()[9], 7);
    drop((view, put));
    assert_eq!(add::remote(20, 3).get().unwrap(), 23);
    let text = Error::Forked.to_string();
    assert!(text.contains("forked") && text.contains("spawn"), "{text}");
    drop(context_of_the_fork);
}

#[test]
fn forks_at_any_moment_take_no_lock_that_another_thread_held() {
    let _turn = start(two_cpus());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let going = || !stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while going() {
                    add::remote(bireme::put(1_i64).unwrap(), 2).get().unwrap();
                }
            });
        }
        let held = bireme::put(5_i64).unwrap();
        for round in 0..100 {
            let copy = held.clone();
            let code = in_fork(|| {
                let answers = [refused(held.get()), refused(bireme::put(1)), refused(add::remote(1, 2).get())];
                drop(copy);
                bireme::shutdown();
                first_wrong(&answers)
            });
            if code != Some(0) {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
                panic!("fork {round} ended with {code:?}");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(held.get().unwrap(), 5);
    });
}

/// Names of this process's threads and the signals that they block.
fn masks() -> Vec<(String, u64)> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let masks = threads.filter_map(|thread| {
        let path = thread.unwrap().path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
        Some((name.trim().to_owned(), u64::from_str_radix(mask.trim(), 16).unwrap()))
    });
    masks.collect()
}

#[bireme::remote]
fn masks_of_a_worker() -> Vec<(String, u64)> {
    masks()
}

#[test]
fn the_threads_of_the_runtime_block_every_signal() {
    let _turn = start(two_cpus().object_store_memory(4 << 20));
    // Enough to be spilled, so that the threads for files are there as well.
    let objects: Vec<_> = (0..8).map(|n| bireme::put(Bytes::from(vec![n; 1 << 20])).unwrap()).collect();
    let blockable = |signal: i32| ![libc::SIGKILL, libc::SIGSTOP].contains(&signal);
    let all = (1..=31).filter(|signal| blockable(*signal)).fold(0, |mask, signal| mask | 1_u64 << (signal - 1));
    let of_worker = masks_of_a_worker::remote().get().unwrap();
    for (place, masks, least) in [("driver", masks(), 4), ("worker", of_worker, 1)] {
        let ours = |name: &str| name.starts_with("bireme-") && !["bireme-worker", "bireme-executor"].contains(&name);
        let threads: Vec<_> = masks.iter().filter(|(name, _)| ours(name)).collect();
        assert!(threads.len() >= least, "{place}: {masks:?}");
        for (name, mask) in threads {
            assert_eq!(mask & all, all, "{name} of the {place} can be interrupted");
        }
        let users = masks.iter().filter(|(name, _)| !ours(name));
        assert!(users.clone().all(|(_, mask)| mask & all == 0), "{place}: {masks:?}");
    }
    drop(objects);
}

#[test]
fn workers_are_in_no_process_group_or_session_of_the_driver() {
    let _turn = start(two_cpus());
    let (group, session) = of_a_worker::remote().get().unwrap();
    let ours = group_and_session();
    assert_ne!(group, ours.0);
    assert_ne!(session, ours.1);
    assert_eq!(getpgid(Pid::from_raw(group)).unwrap().as_raw_pid(), group, "each leads a group of its own");
}
