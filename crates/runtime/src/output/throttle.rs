//! Keeps a flood of lines readable: equal lines of many workers become one with a count, and a worker that writes without
//! end is cut short.
//!
//! Pure: times are passed in and never go back, so equal calls give equal lines. Called by the queue of lines for each
//! line, for each deadline and at the end.
//!
//! The first of several equal lines passes at once. Later ones of *other* workers are held for [`REPEAT_WINDOW_US`] and
//! then said once, with how many there were; a worker that repeats itself is not held back. A worker's lines beyond the
//! rate are dropped, and their number is said when the second is over.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bireme_core::id::NodeId;
use bireme_core::time::Tick;

use super::{OutputLine, Stream, count_of_lines};

/// How long equal lines are gathered.
pub const REPEAT_WINDOW_US: u64 = 5_000_000;
/// Lines that may have equals at a time; at one more the oldest is forgotten.
pub const REPEATED_LINES_MAX: usize = 1_000;
/// What rates are counted in.
const SECOND_US: u64 = 1_000_000;

/// Decides which lines are shown, and when.
#[derive(Debug)]
pub struct Throttle {
    dedup: bool,
    rate_max: Option<u32>,
    repeats: HashMap<(Stream, String), Repeat>,
    /// When which of them is due, in order; as many as there are repeats.
    repeats_due: VecDeque<(Tick, (Stream, String))>,
    rates: BTreeMap<Writer, Rate>,
    rates_due: VecDeque<(Tick, Writer)>,
}

/// A worker: its node, when that is not the driver's, and its process there.
type Writer = (Option<NodeId>, u32);

/// A line that was shown, and those like it since.
#[derive(Debug)]
struct Repeat {
    /// Who wrote it last.
    writer: Writer,
    name: String,
    /// Whether more than one worker wrote it.
    several: bool,
    held: u64,
}

/// The lines of one worker in the current second.
#[derive(Debug)]
struct Rate {
    lines: u32,
    dropped: u64,
    name: String,
}

impl Throttle {
    /// Gathers equal lines if `dedup`, and lets a worker write `rate_max` lines a second if there is such a bound.
    pub fn new(dedup: bool, rate_max: Option<u32>) -> Self {
        Self {
            dedup,
            rate_max,
            repeats: HashMap::new(),
            repeats_due: VecDeque::new(),
            rates: BTreeMap::new(),
            rates_due: VecDeque::new(),
        }
    }

    /// Takes a line; what is to be shown now is added to `out`.
    pub fn push(&mut self, now: Tick, line: OutputLine, out: &mut Vec<OutputLine>) {
        self.expire(now, out);
        if !self.is_within_rate(now, &line) {
            return;
        }
        if !self.dedup || line.text.trim().is_empty() {
            out.push(line);
            return;
        }
        let (key, writer) = ((line.stream, line.text.clone()), (line.node, line.pid));
        match self.repeats.get_mut(&key) {
            Some(repeat) if repeat.writer == writer && !repeat.several => out.push(line),
            Some(repeat) => {
                repeat.several = true;
                repeat.held += 1;
                (repeat.writer, repeat.name) = (writer, line.name);
            }
            None => {
                if self.repeats.len() >= REPEATED_LINES_MAX {
                    self.end_repeat(None, out);
                }
                self.begin_repeat(now, key, Repeat { writer, name: line.name.clone(), several: false, held: 0 });
                out.push(line);
            }
        }
    }

    /// Says what is due.
    pub fn expire(&mut self, now: Tick, out: &mut Vec<OutputLine>) {
        while self.rates_due.front().is_some_and(|(due, _)| *due <= now) {
            self.end_rate(out);
        }
        while self.repeats_due.front().is_some_and(|(due, _)| *due <= now) {
            self.end_repeat(Some(now), out);
        }
    }

    /// When [`Throttle::expire`] may have something to say.
    pub fn deadline(&self) -> Option<Tick> {
        let rate = self.rates_due.front().map(|(due, _)| *due);
        let repeat = self.repeats_due.front().map(|(due, _)| *due);
        rate.into_iter().chain(repeat).min()
    }

    /// Says everything that is held: no line will follow.
    pub fn finish(&mut self, out: &mut Vec<OutputLine>) {
        while !self.rates_due.is_empty() {
            self.end_rate(out);
        }
        while !self.repeats_due.is_empty() {
            self.end_repeat(None, out);
        }
    }

    fn begin_repeat(&mut self, now: Tick, key: (Stream, String), repeat: Repeat) {
        self.repeats_due.push_back((now.plus_us(REPEAT_WINDOW_US), key.clone()));
        self.repeats.insert(key, repeat);
    }

    /// Ends the oldest window. A line that many workers wrote is gathered on from `now`.
    fn end_repeat(&mut self, now: Option<Tick>, out: &mut Vec<OutputLine>) {
        let Some((_, key)) = self.repeats_due.pop_front() else { return };
        let Some(repeat) = self.repeats.remove(&key) else { return };
        if repeat.held == 0 {
            return;
        }
        let text = match repeat.held {
            1 => key.1.clone(),
            count => format!("{} [repeated {count}x across workers]", key.1),
        };
        let (node, pid) = repeat.writer;
        out.push(OutputLine { pid, name: repeat.name.clone(), stream: key.0, node, text });
        if let Some(now) = now
            && repeat.held > 1
        {
            self.begin_repeat(now, key, Repeat { held: 0, ..repeat });
        }
    }

    fn is_within_rate(&mut self, now: Tick, line: &OutputLine) -> bool {
        let Some(rate_max) = self.rate_max else { return true };
        let writer = (line.node, line.pid);
        let rate = self.rates.entry(writer).or_insert_with(|| {
            self.rates_due.push_back((now.plus_us(SECOND_US), writer));
            Rate { lines: 0, dropped: 0, name: String::new() }
        });
        if rate.lines < rate_max {
            rate.lines += 1;
            return true;
        }
        rate.dropped += 1;
        if rate.name != line.name {
            rate.name.clone_from(&line.name);
        }
        false
    }

    /// Ends the second of the worker that began first.
    fn end_rate(&mut self, out: &mut Vec<OutputLine>) {
        let Some((_, writer)) = self.rates_due.pop_front() else { return };
        let Some(rate) = self.rates.remove(&writer) else { return };
        if rate.dropped > 0 {
            let bound = self.rate_max.unwrap_or_default();
            let text = format!("[{} left out: more than {bound} in one second]", count_of_lines(rate.dropped));
            let (node, pid) = writer;
            out.push(OutputLine { pid, name: rate.name, stream: Stream::Stderr, node, text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: u32, text: &str) -> OutputLine {
        OutputLine { pid, name: format!("task {pid}"), stream: Stream::Stdout, node: None, text: text.into() }
    }

    fn texts(out: &mut Vec<OutputLine>) -> Vec<String> {
        out.drain(..).map(|line| format!("{} {}", line.pid, line.text)).collect()
    }

    #[test]
    fn equal_lines_of_many_workers_become_one_with_a_count() {
        let (mut throttle, mut out) = (Throttle::new(true, None), Vec::new());
        for pid in 1..=4 {
            throttle.push(Tick(u64::from(pid)), line(pid, "ready"), &mut out);
        }
        throttle.push(Tick(9), line(2, "other"), &mut out);
        assert_eq!(texts(&mut out), ["1 ready", "2 other"]);
        assert_eq!(throttle.deadline(), Some(Tick(1 + REPEAT_WINDOW_US)));
        throttle.expire(Tick(1 + REPEAT_WINDOW_US), &mut out);
        assert_eq!(texts(&mut out), ["4 ready [repeated 3x across workers]"]);
        // Gathered on, since many write it; a single one is shown as it is, and then it is new again.
        throttle.push(Tick(2 + REPEAT_WINDOW_US), line(1, "ready"), &mut out);
        assert_eq!(texts(&mut out), [""; 0]);
        throttle.expire(Tick(1 + 2 * REPEAT_WINDOW_US), &mut out);
        assert_eq!(texts(&mut out), ["1 ready"]);
        throttle.push(Tick(2 + 2 * REPEAT_WINDOW_US), line(3, "ready"), &mut out);
        assert_eq!(texts(&mut out), ["3 ready"]);
    }

    #[test]
    fn a_worker_that_repeats_itself_and_empty_lines_are_shown_at_once() {
        let (mut throttle, mut out) = (Throttle::new(true, None), Vec::new());
        for _ in 0..3 {
            throttle.push(Tick(1), line(1, "step"), &mut out);
            throttle.push(Tick(1), line(2, ""), &mut out);
            throttle.push(Tick(1), line(3, ""), &mut out);
        }
        assert_eq!(out.len(), 9);
        out.clear();
        let error = OutputLine { stream: Stream::Stderr, ..line(2, "step") };
        throttle.push(Tick(1), error, &mut out);
        assert_eq!(out.len(), 1, "another stream is another line");
    }

    #[test]
    fn without_deduplication_every_line_is_shown() {
        let (mut throttle, mut out) = (Throttle::new(false, None), Vec::new());
        for pid in 0..5 {
            throttle.push(Tick(0), line(pid, "same"), &mut out);
        }
        assert_eq!((out.len(), throttle.deadline()), (5, None));
    }

    #[test]
    fn a_worker_beyond_its_rate_is_cut_short_and_told_of() {
        let (mut throttle, mut out) = (Throttle::new(true, Some(2)), Vec::new());
        for n in 0..5 {
            throttle.push(Tick(10), line(1, &format!("one {n}")), &mut out);
        }
        throttle.push(Tick(20), line(2, "two"), &mut out);
        assert_eq!(texts(&mut out), ["1 one 0", "1 one 1", "2 two"]);
        throttle.push(Tick(10 + SECOND_US), line(1, "next second"), &mut out);
        assert_eq!(texts(&mut out), ["1 [3 lines left out: more than 2 in one second]", "1 next second"]);
        throttle.expire(Tick(u64::MAX), &mut out);
        assert_eq!(texts(&mut out), [""; 0]);
    }

    #[test]
    fn memory_is_bounded_and_the_end_says_everything() {
        let (mut throttle, mut out) = (Throttle::new(true, Some(1)), Vec::new());
        throttle.push(Tick(0), line(1, "first"), &mut out);
        throttle.push(Tick(0), line(2, "first"), &mut out);
        for n in 0..2 * REPEATED_LINES_MAX as u32 {
            throttle.push(Tick(1), line(10 + n, &format!("line {n}")), &mut out);
        }
        assert_eq!(throttle.repeats.len(), REPEATED_LINES_MAX);
        assert_eq!(throttle.repeats_due.len(), REPEATED_LINES_MAX);
        assert!(out.iter().any(|line| line.pid == 2), "what was held for the oldest was said");
        out.clear();
        throttle.push(Tick(2), line(10, "too much"), &mut out);
        throttle.push(Tick(2), line(9, "line 1999"), &mut out);
        assert!(out.is_empty());
        throttle.finish(&mut out);
        assert_eq!(texts(&mut out), ["10 [1 line left out: more than 1 in one second]", "9 line 1999"]);
        assert_eq!(throttle.deadline(), None);
    }
}
