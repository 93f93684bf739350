//! What workers print, taken by the driver's program line by line.
//!
//! The runtime is started below the front end, which always lets workers print where the driver prints.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::io::Write;
use std::sync::MutexGuard;

use bireme::{DeathCause, Failure};
use bireme_runtime::{Config, Output, OutputLine, Runtime, Stream};
use support::{PATIENCE, Watch};

/// A runtime of this test's own, with a program that takes lines.
struct Session {
    runtime: Runtime,
    _turn: MutexGuard<'static, ()>,
}

fn begin(output: Output, change: impl FnOnce(&mut Config)) -> Session {
    let turn = support::turn();
    let mut config = Config { cpus: Some(2.0), object_store_bytes: Some(16 << 20), output, ..Config::default() };
    change(&mut config);
    Session { runtime: Runtime::start(config).unwrap(), _turn: turn }
}

impl Session {
    /// Takes lines until one has this text.
    fn lines_until(&self, last: &str) -> Vec<OutputLine> {
        let mut lines: Vec<OutputLine> = Vec::new();
        while !lines.iter().any(|line| line.text == last) {
            let more = self.runtime.next_output(Some(PATIENCE)).expect("the runtime runs");
            assert!(!more.is_empty(), "{last:?} never came: {lines:?}");
            lines.extend(more);
        }
        lines
    }

    /// Shuts down and takes what is left.
    fn rest(self) -> Vec<OutputLine> {
        self.runtime.shutdown();
        let mut lines = Vec::new();
        while let Some(more) = self.runtime.next_output(None) {
            assert!(!more.is_empty(), "without a timeout there is something, or the end");
            lines.extend(more);
        }
        assert_eq!(self.runtime.next_output(None), None, "the end stays the end");
        lines
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.runtime.shutdown();
    }
}

fn texts(lines: &[OutputLine], stream: Stream) -> Vec<&str> {
    lines.iter().filter(|line| line.stream == stream).map(|line| line.text.as_str()).collect()
}

/// Writes these bytes to a stream of the worker, past all buffers of Rust's.
fn write(stream: Stream, bytes: &[u8]) {
    let number = match stream {
        Stream::Stdout => 1,
        Stream::Stderr => 2,
    };
    let mut file = std::fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{number}")).unwrap();
    file.write_all(bytes).unwrap();
}

#[bireme::remote]
fn speak(name: String) -> u32 {
    write(Stream::Stdout, format!("\x1e{name}\x1e\non output\nand ").as_bytes());
    write(Stream::Stdout, b"more \xff\n");
    write(Stream::Stderr, b"on error\n");
    write(Stream::Stderr, format!("\x1e{name}\x1e\nnamed error\n").as_bytes());
    std::process::id()
}

#[test]
fn lines_of_both_streams_arrive_with_process_and_name() {
    let session = begin(Output::Lines, |_| {});
    let pid = speak::remote("speaker".to_owned()).get().unwrap();
    let mut lines = session.lines_until("named error");
    lines.extend(session.rest());
    assert!(lines.iter().all(|line| line.pid == pid));
    assert_eq!(texts(&lines, Stream::Stdout), ["on output", "and more \u{fffd}"]);
    assert_eq!(texts(&lines, Stream::Stderr), ["on error", "named error"]);
    let names: Vec<(&str, &str)> = lines.iter().map(|line| (line.name.as_str(), line.text.as_str())).collect();
    assert!(names.contains(&("", "on error")) && names.contains(&("speaker", "named error")), "{names:?}");
    assert!(names.contains(&("speaker", "on output")), "{names:?}");
}

#[bireme::remote]
fn write_and_return(text: String) {
    write(Stream::Stdout, text.as_bytes());
}

#[test]
fn a_shutdown_delivers_what_was_written_before_and_then_the_end() {
    let session = begin(Output::Lines, |_| {});
    let text: String = (0..2_000).map(|n| format!("line {n}\n")).collect();
    write_and_return::remote(format!("{text}no newline")).get().unwrap();
    let lines = session.rest();
    assert_eq!(lines.len(), 2_001);
    assert!(lines.iter().enumerate().all(|(n, line)| line.text == format!("line {n}") || n == 2_000));
    assert_eq!(lines[2_000].text, "no newline");
}

#[bireme::remote(retries = 0)]
fn speak_and_die() {
    write(Stream::Stdout, b"last output");
    write(Stream::Stderr, b"\x1edying\x1e\nlast error\nunfinished");
    std::process::abort();
}

fn tail_of_death() -> String {
    match speak_and_die::remote().get().unwrap_err().failure() {
        Some(Failure::WorkerDied { death, .. }) => {
            assert!(matches!(death.cause, DeathCause::Signalled(_)));
            death.stderr_tail.clone()
        }
        other => panic!("another failure: {other:?}"),
    }
}

#[test]
fn a_dying_worker_is_heard_to_the_end_in_every_mode() {
    for output in [Output::Lines, Output::Silent, Output::Inherit] {
        let session = begin(output, |_| {});
        assert_eq!(tail_of_death(), "last error\nunfinished", "{output:?}");
        let lines = session.rest();
        match output {
            Output::Lines => {
                assert_eq!(texts(&lines, Stream::Stdout), ["last output"]);
                assert_eq!(texts(&lines, Stream::Stderr), ["last error", "unfinished"]);
            }
            Output::Silent | Output::Inherit => assert_eq!(lines, []),
        }
    }
}

#[bireme::remote]
fn flood(megabytes: usize) -> u32 {
    let chunk = format!("{}\n", "x".repeat(99)).repeat(1 << 10);
    for _ in 0..megabytes * 10 {
        write(Stream::Stdout, chunk.as_bytes());
    }
    std::process::id()
}

#[test]
fn a_flood_that_nobody_reads_blocks_no_worker_and_is_counted() {
    let session = begin(Output::Lines, |config| (config.output_dedup, config.output_rate_max) = (false, None));
    flood::remote(16).get().unwrap();
    let lines = session.rest();
    let said: usize = lines
        .iter()
        .filter_map(|line| line.text.split_once(" lines of worker output dropped"))
        .map(|(count, _)| count.parse::<usize>().unwrap())
        .sum();
    let kept = lines.iter().filter(|line| line.text.len() == 99).count();
    assert!(said > 0);
    assert_eq!(said + kept, 16 * 10 * 1024);
}

#[test]
fn a_worker_that_writes_too_fast_is_cut_short_for_the_reader() {
    let session = begin(Output::Lines, |config| config.output_rate_max = Some(10));
    let pid = flood::remote(1).get().unwrap();
    let lines = session.rest();
    assert!(lines.iter().any(|line| line.pid == pid && line.text.contains("left out")), "{} lines", lines.len());
    assert!(lines.len() < 1_000);
}

#[bireme::remote]
fn meet(gate: std::path::PathBuf, journal: std::path::PathBuf) -> i32 {
    support::note(&journal, "here");
    support::pass(&gate);
    println!("the same from all");
    support::my_pid()
}

#[test]
fn equal_lines_of_several_workers_are_shown_once_with_a_count() {
    let session = begin(Output::Lines, |config| config.cpus = Some(4.0));
    let scratch = support::Scratch::new("dedup");
    let mut journal = support::Journal::new(&scratch, "journal");
    let gate = support::Gate::closed(&scratch, "gate");
    let tasks: Vec<_> = (0..4).map(|_| meet::remote(gate.path.clone(), journal.path.clone())).collect();
    journal.take(4);
    gate.open();
    let workers: Vec<Watch> = bireme::get_all(&tasks).unwrap().into_iter().map(Watch::new).collect();
    let lines = session.rest();
    let texts = texts(&lines, Stream::Stdout);
    assert_eq!(texts, ["the same from all", "the same from all [repeated 3x across workers]"]);
    assert!(workers.iter().all(|worker| !worker.is_alive()));
}
