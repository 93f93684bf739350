//! Standard error of the workers: passed on in whole lines, and the last lines remembered.
//!
//! Each worker writes into a pipe of its own that the keeper always reads, so a worker never waits for whoever reads
//! the driver's standard error. [`Tail`] remembers the end of one worker's output for the report of its death.
//! [`Forward`] writes to the keeper's own standard error without ever blocking; what does not fit into its buffer
//! is dropped, counted and said.

use super::sys::stderr;
use crate::output::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Lines of one worker that a report of its death contains.
pub const STDERR_TAIL_LINES_MAX: usize = 40;
/// Bytes of one worker that a report of its death contains.
pub const STDERR_TAIL_BYTES_MAX: usize = 8192;
/// Bytes of one line there; the rest of a longer one is left out, so that it does not drive the others out.
pub const STDERR_TAIL_LINE_BYTES_MAX: usize = 512;
/// A longer line is passed on in pieces.
pub const STDERR_LINE_BYTES_MAX: usize = 4096;
/// Bytes that wait for the reader of standard error; further lines are dropped and counted.
pub const STDERR_QUEUED_BYTES_MAX: usize = 256 * 1024;

/// The end of what one worker wrote to standard error.
#[derive(Default)]
pub(super) struct Tail {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Tail {
    /// Remembers a line of standard error, with its newline, and forgets what is too old.
    pub(super) fn remember(&mut self, stream: Stream, line: &[u8]) {
        if stream != Stream::Stderr {
            return;
        }
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut kept = line[..line.len().min(STDERR_TAIL_LINE_BYTES_MAX)].to_vec();
        if kept.len() < line.len() {
            kept.extend_from_slice(b"...");
        }
        self.bytes += kept.len();
        self.lines.push_back(kept);
        while self.lines.len() > STDERR_TAIL_LINES_MAX || self.bytes > STDERR_TAIL_BYTES_MAX {
            let dropped = self.lines.pop_front().expect("the bound is exceeded, so there is a line");
            self.bytes -= dropped.len();
        }
    }

    /// The last lines as text.
    pub(super) fn text(&self) -> String {
        let lines: Vec<_> = self.lines.iter().map(|line| String::from_utf8_lossy(line)).collect();
        lines.join("\n")
    }
}

/// The keeper's own standard error, written without blocking.
pub(super) struct Forward {
    way: Way,
    queued: VecDeque<u8>,
    lines_dropped: u64,
}

/// The inherited description is shared with the driver, so its flags must not change: a pipe or terminal is opened
/// again for us alone, a socket is asked each time, and a file never blocks. What cannot be opened again (a terminal of
/// another user) is written in pieces that fit once it says that it is ready.
enum Way {
    Reopened(OwnedFd),
    Socket,
    Inherited,
    Closed,
}

impl Forward {
    pub(super) fn open() -> Forward {
        let kind = fstat(stderr()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let way = match kind {
            Ok(FileType::Socket) => Way::Socket,
            Ok(FileType::Fifo | FileType::CharacterDevice) => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
                match open("/proc/self/fd/2", flags, Mode::empty()) {
                    Ok(fd) => Way::Reopened(fd),
                    // A pipe without a reader.
                    Err(Errno::NXIO) => Way::Closed,
                    Err(_) => Way::Inherited,
                }
            }
            Ok(_) => Way::Inherited,
            Err(_) => Way::Closed,
        };
        Forward { way, queued: VecDeque::new(), lines_dropped: 0 }
    }

    /// Queues a line, or counts it as dropped.
    pub(super) fn push(&mut self, line: &[u8]) {
        if matches!(self.way, Way::Closed) {
            return;
        }
        if self.queued.len() + line.len() > STDERR_QUEUED_BYTES_MAX {
            self.lines_dropped += 1;
            return;
        }
        if self.lines_dropped > 0 {
            let count = std::mem::take(&mut self.lines_dropped);
            let note = format!("bireme: {count} lines of worker output were dropped, standard error is not read\n");
            self.queued.extend(note.as_bytes());
        }
        self.queued.extend(line);
    }

    /// The descriptor to wait for, while something is queued.
    pub(super) fn wants_write(&self) -> Option<BorrowedFd<'_>> {
        match &self.way {
            _ if self.queued.is_empty() => None,
            Way::Reopened(fd) => Some(fd.as_fd()),
            Way::Socket | Way::Inherited => Some(stderr()),
            Way::Closed => None,
        }
    }

    /// Writes as much as goes without blocking.
    pub(super) fn flush(&mut self) {
        while !self.queued.is_empty() {
            let bytes = self.queued.as_slices().0;
            let written = match &self.way {
                Way::Reopened(fd) => rustix::io::write(fd, bytes),
                Way::Socket => send(stderr(), bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
                Way::Inherited => write_inherited(bytes),
                Way::Closed => Ok(bytes.len()),
            };
            match written {
                Ok(count) if count > 0 => drop(self.queued.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Ok(_) | Err(_) => {
                    self.way = Way::Closed;
                    self.queued.clear();
                }
            }
        }
    }
}

/// Writes a piece that a pipe which is ready for writing takes without blocking.
fn write_inherited(bytes: &[u8]) -> Result<usize, Errno> {
    const PIECE_BYTES_MAX: usize = 4096;
    let mut ready = [PollFd::from_borrowed_fd(stderr(), PollFlags::OUT)];
    match poll(&mut ready, Some(&Timespec::default()))? {
        0 => Err(Errno::AGAIN),
        _ => rustix::io::write(stderr(), &bytes[..bytes.len().min(PIECE_BYTES_MAX)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail_of(lines: impl Iterator<Item = Vec<u8>>) -> Tail {
        let mut tail = Tail::default();
        lines.for_each(|line| tail.remember(Stream::Stderr, &line));
        tail
    }

    #[test]
    fn only_the_last_lines_and_bytes_are_remembered() {
        let mut tail = tail_of((0..100).map(|n| format!("line {n}\n").into_bytes()));
        tail.remember(Stream::Stdout, b"another stream\n");
        assert_eq!(tail.text().lines().count(), STDERR_TAIL_LINES_MAX);
        assert!(tail.text().starts_with("line 60\n") && tail.text().ends_with("line 99"));
        let tail = tail_of((0..4).map(|_| vec![0xff; STDERR_LINE_BYTES_MAX - 1]));
        assert!(tail.bytes <= STDERR_TAIL_BYTES_MAX);
    }

    #[test]
    fn a_long_line_is_cut_and_leaves_those_before_it() {
        let tail = tail_of([b"Fatal Python error\n".to_vec(), vec![b'x'; STDERR_LINE_BYTES_MAX - 1]].into_iter());
        let text = tail.text();
        assert!(text.starts_with("Fatal Python error\nxxx") && text.ends_with("x..."), "{text}");
    }

    #[test]
    fn a_full_queue_drops_lines_and_says_how_many() {
        let mut forward = Forward { way: Way::Inherited, queued: VecDeque::new(), lines_dropped: 0 };
        let line = vec![b'x'; STDERR_QUEUED_BYTES_MAX];
        forward.push(&line);
        forward.push(b"lost\n");
        forward.push(b"lost too\n");
        assert_eq!(forward.lines_dropped, 2);
        forward.queued.clear();
        forward.push(b"kept\n");
        let text = String::from_utf8_lossy(forward.queued.make_contiguous()).into_owned();
        assert!(text.starts_with("bireme: 2 lines") && text.ends_with("\nkept\n"), "{text}");
        forward.queued.clear();
    }
}
