//! Where the lines of workers go: to the driver of their job, wherever that is.
//!
//! A worker's keeper reads what it writes. When the driver is on another node, lines wait in [`AwayLines`] for the node's
//! thread, which sends them to the driver's node on the lowest track of the link, and never more than the other side
//! takes: what does not fit is dropped and counted. The driver's node passes them on as those of its own workers, with the name
//! of their node. What a detached actor writes after its job has ended goes to the log of the actor's node.

use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bireme_core::id::{JobId, NodeId};
use bireme_core::message::Between;
use bireme_net::Doorbell;

use super::Shell;
use crate::attach::door::DriverLine;
use crate::keeper::Report;
use crate::output::{Output, OutputLine, Outputs, Stream};

/// Bytes of lines that wait for other nodes; further lines are dropped and counted.
const AWAY_BYTES_MAX: usize = 1 << 20;
/// What a message costs in the queue besides its text.
const MESSAGE_BYTES: usize = 64;
/// How long the end of a job waits for the last lines of its workers on other nodes.
const LAST_LINES_WAIT: Duration = Duration::from_secs(1);

/// Lines of workers whose drivers are on other nodes.
pub(crate) struct AwayLines {
    state: Mutex<Away>,
    doorbell: Doorbell,
}

#[derive(Default)]
struct Away {
    waiting: VecDeque<(JobId, Between)>,
    bytes: usize,
    /// Lines of the last job that did not fit, told with its next ones.
    dropped: Vec<(JobId, u64)>,
}

impl AwayLines {
    pub(super) fn new(doorbell: Doorbell) -> Self {
        Self { state: Mutex::default(), doorbell }
    }

    fn push(&self, job: JobId, line: OutputLine) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = line.text.len() + MESSAGE_BYTES;
        if state.bytes + bytes > AWAY_BYTES_MAX {
            state.note_dropped(job, line.text.split('\n').count() as u64);
            return;
        }
        state.bytes += bytes;
        let dropped = state.take_dropped(job);
        let OutputLine { pid, name, stream, text, .. } = line;
        let is_error = stream == Stream::Stderr;
        state.waiting.push_back((job, Between::Lines { job, pid, name, is_error, text, dropped }));
        drop(state);
        self.doorbell.ring_self();
    }

    fn note_dropped(&self, job: JobId, lines: u64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).note_dropped(job, lines);
    }

    /// The driver has to wait for nothing more of this job.
    fn finish(&self, job: JobId) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = state.take_dropped(job);
        if dropped > 0 {
            let (name, text) = (String::new(), String::new());
            state.waiting.push_back((job, Between::Lines { job, pid: 0, name, is_error: true, text, dropped }));
        }
        state.waiting.push_back((job, Between::LinesOver { job }));
        drop(state);
        self.doorbell.ring_self();
    }

    /// Hands over what waits; what is not taken goes on waiting, and all of its node behind it.
    fn deliver(&self, mut take: impl FnMut(NodeId, &Between) -> bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.waiting.is_empty() {
            return;
        }
        let mut full: BTreeSet<NodeId> = BTreeSet::new();
        let mut left = VecDeque::new();
        let mut bytes = 0;
        for (job, message) in std::mem::take(&mut state.waiting) {
            if full.contains(&job.node()) || !take(job.node(), &message) {
                full.insert(job.node());
                bytes += size(&message);
                left.push_back((job, message));
            }
        }
        (state.waiting, state.bytes) = (left, bytes);
    }
}

fn size(message: &Between) -> usize {
    match message {
        Between::Lines { text, .. } => text.len() + MESSAGE_BYTES,
        _ => 0,
    }
}

impl Away {
    fn note_dropped(&mut self, job: JobId, lines: u64) {
        match self.dropped.iter_mut().find(|(of, _)| *of == job) {
            Some((_, count)) => *count += lines,
            None => self.dropped.push((job, lines)),
        }
    }

    fn take_dropped(&mut self, job: JobId) -> u64 {
        let found = self.dropped.iter().position(|(of, _)| *of == job);
        found.map_or(0, |at| self.dropped.swap_remove(at).1)
    }
}

/// The way from a job's workers to its driver.
#[derive(Clone)]
enum Way {
    /// To the program that the node is embedded in.
    Queue(Arc<Outputs>),
    /// To an attached driver.
    Line(Arc<DriverLine>),
    /// To a driver on another node.
    Away(JobId, Arc<AwayLines>),
}

/// Where the lines of a job's workers go.
#[derive(Clone)]
pub(crate) struct Voice {
    way: Way,
    shared: Arc<Shared>,
}

/// What all holders of a voice have in common.
#[derive(Default)]
struct Shared {
    /// The job has ended: what is left of it speaks to the node's log.
    over: AtomicBool,
    closed: AtomicBool,
    /// Nodes that run workers of the job and may still have lines.
    guests: Mutex<BTreeSet<NodeId>>,
    fewer: Condvar,
    /// Prints lines of other nodes where workers of this one print for themselves.
    printer: Mutex<Option<JoinHandle<()>>>,
}

impl Voice {
    fn new(way: Way) -> Self {
        Self { way, shared: Arc::default() }
    }

    pub(super) fn queue(outputs: Arc<Outputs>) -> Self {
        Self::new(Way::Queue(outputs))
    }

    pub(super) fn line(line: Arc<DriverLine>) -> Self {
        Self::new(Way::Line(line))
    }

    pub(super) fn away(job: JobId, lines: Arc<AwayLines>) -> Self {
        Self::new(Way::Away(job, lines))
    }

    /// Passes on what workers of this node print; gives back what is no output.
    pub(super) fn say(&self, report: Report) -> Option<Report> {
        match report {
            Report::Output { pid, stream, name, text, .. } => {
                let line = OutputLine { pid: pid.unsigned_abs(), name, stream, node: None, text };
                if self.shared.over.load(Ordering::Acquire) {
                    log(&line);
                    return None;
                }
                match &self.way {
                    Way::Queue(outputs) => push(outputs, &line),
                    Way::Line(driver) => driver.lines(line, true),
                    Way::Away(job, lines) => lines.push(*job, line),
                }
                None
            }
            Report::OutputDropped { lines } => {
                self.note_dropped(lines);
                None
            }
            other => Some(other),
        }
    }

    /// Passes on what a worker on another node printed. Never waits.
    fn say_from(&self, line: OutputLine, output: Output) {
        match (&self.way, output) {
            (_, Output::Silent) => {}
            (Way::Queue(outputs), Output::Lines) => push(outputs, &line),
            (Way::Queue(outputs), Output::Inherit) => {
                self.start_printer(outputs);
                push(outputs, &line);
            }
            (Way::Line(driver), _) => driver.lines(line, false),
            // No node passes on for another.
            (Way::Away(..), _) => {}
        }
    }

    fn note_dropped(&self, lines: u64) {
        match &self.way {
            Way::Queue(outputs) => outputs.note_dropped(lines),
            Way::Line(line) => line.note_dropped(lines),
            Way::Away(job, away) => away.note_dropped(*job, lines),
        }
    }

    fn start_printer(&self, outputs: &Arc<Outputs>) {
        let mut printer = self.shared.printer.lock().unwrap_or_else(PoisonError::into_inner);
        if printer.is_none() {
            let outputs = Arc::clone(outputs);
            // Without a thread the lines wait until they are dropped.
            *printer = crate::thread::spawn("bireme-output", move || print_all(&outputs)).ok();
        }
    }

    /// Another node runs workers of this job.
    pub(super) fn add_guest(&self, node: NodeId) {
        self.shared.guests.lock().unwrap_or_else(PoisonError::into_inner).insert(node);
    }

    /// A node has no lines of this job any more.
    pub(super) fn guest_finished(&self, node: NodeId) {
        self.shared.guests.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
        self.shared.fewer.notify_all();
    }

    pub(super) fn guests(&self) -> BTreeSet<NodeId> {
        self.shared.guests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nobody waits for lines of other nodes any more.
    pub(super) fn forget_guests(&self) {
        self.shared.guests.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.fewer.notify_all();
    }

    /// Only detached actors are left of the job: the driver hears nothing more of this node.
    pub(super) fn job_over(&self) {
        if let (false, Way::Away(job, lines)) = (self.shared.over.swap(true, Ordering::AcqRel), &self.way) {
            lines.finish(*job);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// Waits for the last lines of other nodes, for a while. Not for the node's thread, which brings them.
    pub(super) fn await_guests(&self) {
        let until = Instant::now() + LAST_LINES_WAIT;
        let mut guests = self.shared.guests.lock().unwrap_or_else(PoisonError::into_inner);
        while !guests.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            guests = self.shared.fewer.wait_timeout(guests, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// No line will follow.
    pub(super) fn close(&self) {
        match &self.way {
            Way::Queue(outputs) => outputs.close(),
            Way::Line(line) => line.finish("its job is over"),
            Way::Away(..) => {}
        }
        if let Some(printer) = self.shared.printer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A panic there has been printed.
            let _ = printer.join();
        }
        self.shared.closed.store(true, Ordering::Release);
    }
}

fn push(outputs: &Outputs, lines: &OutputLine) {
    outputs.push(lines.text.split('\n').map(|text| OutputLine { text: text.to_owned(), ..lines.clone() }));
}

/// To the log of the node, which is its standard error.
fn log(line: &OutputLine) {
    let OutputLine { pid, name, text, node, .. } = line;
    let place = node.map_or(String::new(), |node| format!(", {node}"));
    for text in text.split('\n') {
        eprintln!("({} pid={pid}{place}) {text}", if name.is_empty() { "worker" } else { name });
    }
}

/// Prints lines where the program prints, until the last.
fn print_all(outputs: &Outputs) {
    while let Some(lines) = outputs.next(None) {
        for line in lines {
            // Whoever closed these streams wants no lines.
            let _ = match line.stream {
                Stream::Stdout => writeln!(std::io::stdout(), "{}", line.text),
                Stream::Stderr => writeln!(std::io::stderr(), "{}", line.text),
            };
        }
    }
}

impl Shell {
    /// Sends the lines of workers whose drivers are elsewhere, as far as the links take them.
    pub(super) fn send_lines(&mut self) {
        let Some(abroad) = &mut self.abroad else { return };
        self.away.deliver(|node, message| abroad.peers.tell_lines(node, message));
    }

    /// Lines of a worker on another node.
    pub(super) fn lines_came(&mut self, job: JobId, line: OutputLine, dropped: u64) {
        let Some((voice, output)) = self.keepers.voice(job) else {
            log(&line);
            return;
        };
        if dropped > 0 {
            voice.note_dropped(dropped);
        }
        if !line.text.is_empty() || dropped == 0 {
            voice.say_from(line, output);
        }
    }

    /// The driver that this node is embedded in ends: its workers on other nodes too, and their last lines are printed.
    pub(super) fn end_own_job_elsewhere(&mut self) {
        let Some((job, voice)) = self.keepers.own_voice() else { return };
        let until = Instant::now() + LAST_LINES_WAIT;
        let guests = voice.guests();
        let Some(abroad) = &mut self.abroad else { return };
        for node in guests {
            let reason = "its job has ended: its driver shut its runtime down".to_owned();
            abroad.peers.tell(node, Between::JobEnded { job, reason });
        }
        while !voice.guests().is_empty() && Instant::now() < until {
            if let Some(abroad) = &mut self.abroad {
                abroad.peers.flush();
            }
            self.sleep_at_most(Duration::from_millis(20));
            self.pass();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bireme_net::{Fabric, SlotId};

    use super::*;

    fn away() -> AwayLines {
        let fabric = Fabric::create().unwrap();
        AwayLines::new(fabric.doorbell(SlotId::new(0).unwrap()))
    }

    fn line(text: &str) -> OutputLine {
        OutputLine { pid: 7, name: "f".to_owned(), stream: Stream::Stdout, node: None, text: text.to_owned() }
    }

    fn texts(away: &AwayLines, takes: impl Fn(NodeId) -> bool) -> Vec<(NodeId, String, u64)> {
        let mut out = Vec::new();
        away.deliver(|node, message| {
            let taken = takes(node);
            match message {
                Between::Lines { text, dropped, .. } if taken => out.push((node, text.clone(), *dropped)),
                Between::LinesOver { .. } if taken => out.push((node, "over".to_owned(), 0)),
                _ => {}
            }
            taken
        });
        out
    }

    #[test]
    fn lines_for_a_slow_node_wait_in_order_and_hold_up_no_other() {
        let away = away();
        let (slow, fast) = (JobId::new(NodeId(2), 1), JobId::new(NodeId(3), 1));
        away.push(slow, line("one"));
        away.push(fast, line("other"));
        away.push(slow, line("two"));
        away.finish(slow);
        assert_eq!(texts(&away, |node| node != NodeId(2)), [(NodeId(3), "other".to_owned(), 0)]);
        let rest: Vec<String> = texts(&away, |_| true).into_iter().map(|(_, text, _)| text).collect();
        assert_eq!(rest, ["one", "two", "over"]);
        assert_eq!(texts(&away, |_| true), []);
    }

    #[test]
    fn what_does_not_fit_is_counted_and_told_with_the_next_lines() {
        let away = away();
        let job = JobId::new(NodeId(2), 1);
        let long = "x".repeat(AWAY_BYTES_MAX - MESSAGE_BYTES);
        away.push(job, line(&long));
        away.push(job, line("lost\nlost"));
        away.push(job, line("lost"));
        assert_eq!(texts(&away, |_| true).len(), 1);
        away.push(job, line("found"));
        assert_eq!(texts(&away, |_| true), [(NodeId(2), "found".to_owned(), 3)]);
        away.note_dropped(job, 2);
        away.finish(job);
        assert_eq!(texts(&away, |_| true), [(NodeId(2), String::new(), 2), (NodeId(2), "over".to_owned(), 0)]);
    }
}
