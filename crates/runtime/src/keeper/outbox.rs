//! Lines of workers on their way from the keeper to the node.
//!
//! Called by the keeper for each line when the driver wants lines. Lines of one worker are gathered into one report until
//! it is full or another speaks. The queue never makes anyone wait: beyond [`OUTPUT_QUEUED_BYTES_MAX`] lines are dropped
//! and counted, and the node is told the number when there is room again.

use super::message::{Report, encode};
use crate::output::Stream;
use std::collections::VecDeque;

/// Bytes of reports that wait for the node; further lines are dropped.
pub const OUTPUT_QUEUED_BYTES_MAX: usize = 1 << 20;
/// Bytes of text in one report: the longest line, with every byte replaced, fits.
const REPORT_TEXT_BYTES_MAX: usize = 12 * 1024;

/// Who wrote a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    pub(super) slot: u32,
    pub(super) pid: i32,
    pub(super) stream: Stream,
}

/// The queue.
#[derive(Default)]
pub(super) struct Outbox {
    queued: VecDeque<Vec<u8>>,
    bytes: usize,
    open: Option<Batch>,
    lines_dropped: u64,
}

struct Batch {
    writer: Writer,
    name: String,
    text: String,
}

impl Outbox {
    /// Adds a line, with or without its newline.
    pub(super) fn push(&mut self, writer: Writer, name: &str, line: &[u8]) {
        let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
        if self.bytes + text.len() > OUTPUT_QUEUED_BYTES_MAX {
            self.lines_dropped += 1;
            return;
        }
        self.tell_dropped();
        match &mut self.open {
            Some(batch)
                if batch.writer == writer
                    && batch.name == name
                    && batch.text.len() + text.len() < REPORT_TEXT_BYTES_MAX =>
            {
                batch.text.push('\n');
                batch.text.push_str(&text);
            }
            _ => {
                self.close();
                self.open = Some(Batch { writer, name: name.to_owned(), text: text.into_owned() });
            }
        }
    }

    /// Makes what was gathered ready to go; at the end of each turn.
    pub(super) fn close(&mut self) {
        if let Some(Batch { writer, name, text }) = self.open.take() {
            let Writer { slot, pid, stream } = writer;
            self.queue(&Report::Output { slot, pid, stream, name, text });
        }
        if self.bytes < OUTPUT_QUEUED_BYTES_MAX / 2 {
            self.tell_dropped();
        }
    }

    fn tell_dropped(&mut self) {
        if self.lines_dropped > 0 {
            let lines = std::mem::take(&mut self.lines_dropped);
            self.close();
            self.queue(&Report::OutputDropped { lines });
        }
    }

    fn queue(&mut self, report: &Report) {
        let packet = encode(report).expect("the text and the name are bounded so that every report fits");
        self.bytes += packet.len();
        self.queued.push_back(packet);
    }

    /// The next report to send.
    pub(super) fn front(&self) -> Option<&[u8]> {
        self.queued.front().map(Vec::as_slice)
    }

    /// The next report was sent.
    pub(super) fn pop(&mut self) {
        if let Some(packet) = self.queued.pop_front() {
            self.bytes -= packet.len();
        }
    }

    /// Forgets everything: nobody will read it.
    pub(super) fn clear(&mut self) {
        *self = Outbox::default();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::message::decode;
    use super::super::{OUTPUT_NAME_BYTES_MAX, STDERR_LINE_BYTES_MAX};
    use super::*;

    const FIRST: Writer = Writer { slot: 1, pid: 11, stream: Stream::Stdout };
    const SECOND: Writer = Writer { slot: 1, pid: 11, stream: Stream::Stderr };

    /// What goes out: stream, name and text of each report, and how many lines were dropped.
    fn sent(outbox: &mut Outbox) -> (Vec<(Stream, String, String)>, u64) {
        outbox.close();
        let (mut reports, mut dropped) = (Vec::new(), 0);
        while let Some(packet) = outbox.front() {
            match decode(packet).unwrap() {
                Report::Output { stream, name, text, .. } => reports.push((stream, name, text)),
                Report::OutputDropped { lines } => dropped += lines,
                other => panic!("{other:?}"),
            }
            outbox.pop();
            outbox.close();
        }
        assert_eq!(outbox.bytes, 0);
        (reports, dropped)
    }

    #[test]
    fn lines_of_one_writer_travel_together() {
        let mut outbox = Outbox::default();
        outbox.push(FIRST, "f", b"one\n");
        outbox.push(FIRST, "f", b"\n");
        outbox.push(FIRST, "g", b"two\n");
        outbox.push(SECOND, "g", b"\xff three");
        let text = |text: &str| text.to_owned();
        let expected = [
            (Stream::Stdout, text("f"), text("one\n")),
            (Stream::Stdout, text("g"), text("two")),
            (Stream::Stderr, text("g"), text("\u{fffd} three")),
        ];
        assert_eq!(sent(&mut outbox), (expected.to_vec(), 0));
    }

    #[test]
    fn the_longest_line_under_the_longest_name_fits_into_a_report() {
        let mut outbox = Outbox::default();
        let name = "\u{fffd}".repeat(OUTPUT_NAME_BYTES_MAX);
        for _ in 0..3 {
            outbox.push(FIRST, &name, &[0xff; STDERR_LINE_BYTES_MAX]);
        }
        assert_eq!(sent(&mut outbox).0.len(), 3);
    }

    #[test]
    fn lines_that_do_not_fit_are_counted_and_told() {
        let mut outbox = Outbox::default();
        let line = [b'x'; STDERR_LINE_BYTES_MAX];
        let count = 2 * OUTPUT_QUEUED_BYTES_MAX / line.len();
        for _ in 0..count {
            outbox.push(FIRST, "f", &line);
        }
        assert!(outbox.bytes <= OUTPUT_QUEUED_BYTES_MAX + 2 * REPORT_TEXT_BYTES_MAX);
        let (reports, dropped) = sent(&mut outbox);
        let kept: usize = reports.iter().map(|(.., text)| text.lines().count()).sum();
        assert!(dropped > 0);
        assert_eq!(kept as u64 + dropped, count as u64);
    }
}
