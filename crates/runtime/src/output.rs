//! What workers print, on its way to the driver's program.
//!
//! The keeper reads the pipes of all workers and reports finished lines; the thread that reads its reports puts them into
//! `Outputs`; one thread of the driver's program takes them from there, through the [`Throttle`], and prints them as it
//! likes. Nothing on the way waits for the next: what does not fit is dropped, counted and said.

mod throttle;

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bireme_core::id::NodeId;
use bireme_core::time::Tick;
use serde::{Deserialize, Serialize};

use crate::clock;

pub use throttle::{REPEATED_LINES_MAX, Throttle};

/// Bytes of lines that wait for the driver's program; further lines are dropped and counted.
pub const OUTPUT_WAITING_BYTES_MAX: usize = 4 << 20;
/// What a line costs in the queue besides its text.
const LINE_BYTES: usize = 64;

/// Where the output of workers goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// To where the driver's own goes: standard output is inherited, standard error is passed on line by line.
    #[default]
    Inherit,
    /// To the driver's program, which takes lines with [`Runtime::next_output`](crate::Runtime::next_output).
    Lines,
    /// Nowhere. The report of a worker's death has its last lines all the same.
    Silent,
}

impl Output {
    /// Its name on the way to the keeper.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Output::Inherit => "inherit",
            Output::Lines => "lines",
            Output::Silent => "silent",
        }
    }

    /// The output with this name.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        [Output::Inherit, Output::Lines, Output::Silent].into_iter().find(|output| output.word() == word)
    }
}

/// One of the two streams of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A line that a worker wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputLine {
    /// The worker's process id.
    pub pid: u32,
    /// What the worker said that it runs; empty when it said nothing.
    pub name: String,
    /// Where it was written.
    pub stream: Stream,
    /// The worker's node, when that is not the driver's.
    pub node: Option<NodeId>,
    /// The line, without its end.
    pub text: String,
}

/// So many lines, in words.
pub(crate) fn count_of_lines(count: u64) -> String {
    if count == 1 { "1 line".to_owned() } else { format!("{count} lines") }
}

/// Lines between the thread that reads the keeper's reports and the one thread of the program that takes them.
pub(crate) struct Outputs {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    lines: VecDeque<OutputLine>,
    bytes: usize,
    lines_dropped: u64,
    throttle: Throttle,
    closed: bool,
}

impl Outputs {
    pub(crate) fn new(throttle: Throttle) -> Self {
        let state = State { lines: VecDeque::new(), bytes: 0, lines_dropped: 0, throttle, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds lines of one worker, as far as there is room.
    pub(crate) fn push(&self, lines: impl Iterator<Item = OutputLine>) {
        let mut state = self.lock();
        for line in lines {
            let bytes = line.text.len() + LINE_BYTES;
            if state.bytes + bytes > OUTPUT_WAITING_BYTES_MAX {
                state.lines_dropped += 1;
            } else {
                state.bytes += bytes;
                state.lines.push_back(line);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// So many lines did not come this far.
    pub(crate) fn note_dropped(&self, lines: u64) {
        self.lock().lines_dropped += lines;
        self.changed.notify_one();
    }

    /// No line will follow.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for lines: none when the time is up, `None` when the last one was taken.
    pub(crate) fn next(&self, timeout: Option<Duration>) -> Option<Vec<OutputLine>> {
        let until = timeout.and_then(clock::deadline);
        let mut state = self.lock();
        loop {
            let now = clock::now();
            let mut out = state.take(now);
            if out.is_empty() && state.closed {
                state.throttle.finish(&mut out);
                return if out.is_empty() { None } else { Some(out) };
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if !out.is_empty() || left == Some(Duration::ZERO) {
                return Some(out);
            }
            let due = state.throttle.deadline().map(|due| Duration::from_micros(due.since_us(now)));
            state = match left.into_iter().chain(due).min() {
                Some(wait) => self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Lines are moved whole, so a poisoned lock protects nothing worse than before.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// All that waits, as far as the throttle lets it through.
    fn take(&mut self, now: Tick) -> Vec<OutputLine> {
        let mut out = Vec::new();
        self.bytes = 0;
        for line in std::mem::take(&mut self.lines) {
            self.throttle.push(now, line, &mut out);
        }
        self.throttle.expire(now, &mut out);
        if self.lines_dropped > 0 {
            let count = count_of_lines(std::mem::take(&mut self.lines_dropped));
            out.push(OutputLine {
                pid: std::process::id(),
                name: "bireme".to_owned(),
                stream: Stream::Stderr,
                node: None,
                text: format!("{count} of worker output dropped: they came faster than they were read"),
            });
        }
        out
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn line(text: &str) -> OutputLine {
        OutputLine { pid: 7, name: "work".into(), stream: Stream::Stdout, node: None, text: text.into() }
    }

    #[test]
    fn lines_wait_for_their_reader_and_the_rest_comes_after_the_end() {
        let outputs = Outputs::new(Throttle::new(false, None));
        assert_eq!(outputs.next(Some(Duration::ZERO)), Some(vec![]));
        outputs.push([line("one"), line("two")].into_iter());
        assert_eq!(outputs.next(None), Some(vec![line("one"), line("two")]));
        outputs.push([line("three")].into_iter());
        outputs.close();
        assert_eq!(outputs.next(None), Some(vec![line("three")]));
        assert_eq!(outputs.next(None), None);
    }

    #[test]
    fn lines_that_do_not_fit_are_counted_and_said() {
        let outputs = Outputs::new(Throttle::new(false, None));
        let long = "x".repeat(OUTPUT_WAITING_BYTES_MAX / 2);
        outputs.push([line(&long), line(&long), line("lost"), line("lost")].into_iter());
        let taken = outputs.next(None).unwrap();
        // The short ones fit behind the first.
        assert_eq!(taken.len(), 4);
        assert!(taken[3].text.starts_with("1 line of"), "{}", taken[3].text);
    }

    #[test]
    fn a_held_line_is_said_at_the_end() {
        let outputs = Outputs::new(Throttle::new(true, None));
        outputs.push([1, 2, 3].into_iter().map(|pid| OutputLine { pid, ..line("same") }));
        outputs.close();
        assert_eq!(outputs.next(None).unwrap().len(), 1);
        assert_eq!(outputs.next(None).unwrap()[0].text, "same [repeated 2x across workers]");
        assert_eq!(outputs.next(None), None);
    }
}
