//! Every named bound that a test can reach, and what happens there.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::path::PathBuf;

use bireme::{Bytes, Error, Failure, ObjectRef};
use bireme_runtime::OBJECT_STORE_BYTES_MIN;
use bireme_runtime::core::ledger::snapshot::SNAPSHOT_ROWS_MAX;
use bireme_runtime::core::resources::CUSTOM_RESOURCES_MAX;
use bireme_runtime::core::value::INLINE_BYTES_MAX;
use bireme_runtime::keeper::{STDERR_TAIL_BYTES_MAX, STDERR_TAIL_LINES_MAX};
use bireme_runtime::link::{LEDGER_RING_BYTES, LINK_RING_BYTES};
use support::{Gate, Journal, Scratch, note, pass, start, two_cpus};

#[bireme::remote]
fn echo(bytes: Vec<u8>) -> Vec<u8> {
    bytes
}

#[bireme::remote]
fn echo_bytes(bytes: Bytes) -> Bytes {
    bytes
}

#[test]
fn values_of_every_size_around_the_inline_limit_travel_whole() {
    let _turn = start(two_cpus());
    for len in [0, 1, 63, 64, 65].into_iter().chain(INLINE_BYTES_MAX - 40..INLINE_BYTES_MAX + 8) {
        let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let there_and_back = (echo::remote(bytes.clone()), echo_bytes::remote(Bytes::from(bytes.clone())));
        assert_eq!(there_and_back.0.get().unwrap(), bytes, "{len} bytes");
        assert_eq!(&there_and_back.1.get().unwrap()[..], &bytes[..], "{len} bytes");
    }
}

#[test]
fn messages_larger_than_a_ring_and_more_of_them_than_fit_arrive_in_order() {
    let _turn = start(two_cpus());
    let sizes = [INLINE_BYTES_MAX - 100, 40_000, 3];
    let tasks: Vec<_> = (0..600).map(|n| echo::remote(vec![n as u8; sizes[n % 3]])).collect();
    // Together several times what the ledger ring and the links hold.
    assert!(200 * (INLINE_BYTES_MAX + 40_000) > 8 * (LEDGER_RING_BYTES + LINK_RING_BYTES) as usize);
    for (n, bytes) in bireme::get_all(&tasks).unwrap().into_iter().enumerate() {
        assert_eq!(bytes, vec![n as u8; sizes[n % 3]]);
    }
    let name = "n".repeat(2 * LINK_RING_BYTES as usize);
    assert_eq!(echo::options().name(&name).remote(vec![1]).get().unwrap(), [1]);
}

#[test]
fn more_named_resources_than_allowed_are_refused() {
    let _turn = support::turn();
    let named = |config: bireme::Config, n: usize| (0..n).fold(config, |c, n| c.resource(&format!("r{n}"), 1.0));
    let error = bireme::init_with(named(two_cpus(), CUSTOM_RESOURCES_MAX + 1)).unwrap_err();
    assert!(matches!(error, Error::BadArgument(_)), "{error:?}");
    let _context = bireme::init_with(named(two_cpus(), CUSTOM_RESOURCES_MAX)).unwrap();
    let options = (0..CUSTOM_RESOURCES_MAX).fold(echo::options(), |o, n| o.resource(&format!("r{n}"), 0.5));
    assert_eq!(options.remote(vec![5]).get().unwrap(), [5]);
    let options = (0..=CUSTOM_RESOURCES_MAX).fold(echo::options(), |o, n| o.resource(&format!("r{n}"), 0.5));
    let error = options.try_remote(vec![5]).unwrap_err();
    assert!(error.to_string().contains(&CUSTOM_RESOURCES_MAX.to_string()), "{error}");
}

#[test]
fn a_store_that_is_too_small_and_amounts_that_make_no_sense_are_refused_by_init() {
    let _turn = support::turn();
    let error = bireme::init_with(two_cpus().object_store_memory(OBJECT_STORE_BYTES_MIN - 1)).unwrap_err();
    assert!(matches!(error, Error::BadArgument(_)), "{error:?}");
    for cpus in [-1.0, f64::NAN, f64::INFINITY] {
        let error = bireme::init_with(two_cpus().cpus(cpus)).unwrap_err();
        assert!(matches!(error, Error::BadAmount(_)), "{error:?}");
    }
    let _context = bireme::init_with(two_cpus().object_store_memory(OBJECT_STORE_BYTES_MIN)).unwrap();
    assert_eq!(echo::remote(vec![1]).get().unwrap(), [1]);
}

#[bireme::remote(retries = 0)]
fn chatty(lines: usize, len: usize) {
    for n in 0..lines {
        eprintln!("{n:05}{}", "x".repeat(len));
    }
    std::process::exit(4);
}

#[test]
fn only_the_last_lines_of_standard_error_are_kept() {
    let _turn = start(two_cpus());
    for (lines, len) in [(1_000, 10), (50, 1_000), (3, 100_000)] {
        let error = chatty::remote(lines, len).get().unwrap_err();
        let Some(Failure::WorkerDied { death, .. }) = error.failure() else { panic!("{error:?}") };
        let tail = &death.stderr_tail;
        assert!(tail.lines().count() <= STDERR_TAIL_LINES_MAX, "{} lines", tail.lines().count());
        assert!(tail.len() <= STDERR_TAIL_BYTES_MAX + 64, "{} bytes", tail.len());
        if len < STDERR_TAIL_BYTES_MAX {
            assert!(tail.contains(&format!("{:05}", lines - 1)), "the last line is there: {tail:?}");
        }
    }
}

#[bireme::remote]
fn wait_at(gate: PathBuf, journal: PathBuf) {
    note(&journal, std::process::id());
    pass(&gate);
}

#[test]
fn more_rows_than_the_state_lists_are_counted() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("rows");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let locks: Vec<_> = (0..2).map(|_| wait_at::remote(gate.path.clone(), journal.path.clone())).collect();
    journal.take(2);
    let more = 500;
    let open: Vec<_> = (0..SNAPSHOT_ROWS_MAX + more).map(|_| echo::remote(Vec::new())).collect();
    let state = bireme::state().unwrap();
    assert!(state.tasks.len() <= 2 * SNAPSHOT_ROWS_MAX);
    assert!(state.tasks_left_off >= more as u64, "{} left off", state.tasks_left_off);
    assert!(state.objects_left_off >= more as u64, "{} left off", state.objects_left_off);
    gate.open();
    bireme::get_all(&open).unwrap();
    bireme::get_all(&locks).unwrap();
}

#[bireme::remote]
fn nest(depth: u32) -> bireme::Result<u32> {
    if depth == 0 { Ok(0) } else { Ok(nest::remote(depth - 1).get()? + 1) }
}

pub struct Idler;

#[bireme::actor]
impl Idler {
    pub fn new() -> Self {
        Idler
    }

    pub fn pid(&self) -> u32 {
        std::process::id()
    }
}

#[test]
fn no_more_processes_than_allowed_are_started_and_actors_wait_for_their_turn() {
    let _turn = start(two_cpus().workers_max(3));
    let first: Vec<_> = (0..3).map(|_| Idler::remote()).collect();
    let pids: Vec<u32> = first.iter().map(|idler| idler.pid().get().unwrap()).collect();
    assert_eq!(bireme::state().unwrap().workers.len(), 3);
    let second = Idler::remote();
    let waiting = second.pid();
    assert!(!waiting.is_ready().unwrap());
    assert!(bireme::state().unwrap().workers.len() <= 3);
    drop(first);
    assert!(!pids.contains(&waiting.get().unwrap()));
}

/// The part of a program whose environment allows two processes.
#[test]
fn a_program_with_two_processes_when_the_environment_asks_for_it() {
    if support::scenario().as_deref() != Some("two-processes") {
        return;
    }
    let _turn = start(two_cpus());
    let actors: Vec<_> = (0..3).map(|_| Idler::remote()).collect();
    for actor in &actors[..2] {
        actor.pid().get_timeout(support::PATIENCE).unwrap();
    }
    let waiting = actors[2].pid();
    println!("workers={}", bireme::state().unwrap().workers.len());
    println!("why={}", waiting.explain().unwrap());
}

#[test]
fn the_environment_bounds_the_processes_of_a_program_with_its_node_inside_and_explain_says_so() {
    let settings = [("BIREME_PROCESSES_MAX", "2")];
    let mut program = support::Driver::start(
        "a_program_with_two_processes_when_the_environment_asks_for_it",
        "two-processes",
        &settings,
    );
    assert_eq!(program.tells("workers"), "2");
    let why = program.tells("why");
    assert!(
        why.contains("there are 2 worker processes, as many as there may be") && why.contains("processes_max"),
        "{why}"
    );
}

#[test]
fn nesting_deeper_than_processes_and_threads_allow_still_ends_or_says_why_not() {
    // 4 processes with 8 tasks each: deeper nesting cannot run, and the wait says so.
    let config = two_cpus().cpus(1.0).workers_max(4).threads_per_worker_max(8);
    let _turn = start(config.cancel_grace(std::time::Duration::from_millis(50)));
    assert_eq!(nest::remote(20).get().unwrap(), 20);
    let too_deep = nest::remote(100);
    let error = too_deep.get_timeout(std::time::Duration::from_millis(500)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    too_deep.cancel().unwrap();
    assert!(too_deep.get().is_err());
    assert_eq!(nest::remote(10).get_timeout(support::PATIENCE).unwrap(), 10);
}

#[test]
fn an_actors_pending_calls_are_bounded_and_the_bound_frees_itself() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("pending");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let idler = Idler::options().max_pending_calls(10).remote();
    idler.ready().get().unwrap();
    let closed = wait_at::remote(gate.path.clone(), journal.path.clone());
    journal.next();
    let slow = Slow::options().max_pending_calls(10).remote();
    slow.ready().get().unwrap();
    let calls: Vec<ObjectRef<()>> = (0..10).map(|_| slow.after(&closed)).collect();
    for _ in 0..3 {
        let error = slow.after(&closed).submitted().unwrap_err();
        assert!(matches!(error, Error::PendingCallsLimit { pending: 10, .. }), "{error:?}");
    }
    gate.open();
    bireme::get_all(&calls).unwrap();
    slow.after(&closed).get().unwrap();
    assert!(idler.pid().get().is_ok());
}

pub struct Slow;

#[bireme::actor]
impl Slow {
    pub fn new() -> Self {
        Slow
    }

    pub fn after(&self, _gate: ()) {}
}
