//! What a process of ours says, line by line, and waits that a signal or a deadline ends.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::super::Outcome;

/// Longest line: an answer is a few numbers.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Waits until there is something to read; false after the time. Fails when this process has been asked to end.
pub(in crate::bench) fn wait(stop: BorrowedFd<'_>, readable: Option<BorrowedFd<'_>>, time: Duration) -> Outcome<bool> {
    let deadline = Instant::now() + time;
    let descriptors = [Some(stop), readable];
    loop {
        let mut polled: Vec<PollFd<'_>> =
            descriptors.iter().flatten().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let left = rustix::time::Timespec::try_from(deadline.saturating_duration_since(Instant::now()))?;
        match poll(&mut polled, Some(&left)) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) if !polled[0].revents().is_empty() => return Err("it was interrupted".into()),
            Ok(ready) => return Ok(ready > 0),
        }
    }
}

/// The lines of a pipe.
pub(in crate::bench) struct Lines<R> {
    pipe: R,
    read: Vec<u8>,
}

impl<R: Read + AsFd> Lines<R> {
    /// From now on.
    pub(in crate::bench) fn of(pipe: R) -> Self {
        Self { pipe, read: Vec::new() }
    }

    /// The next one; silence for so long and the end are errors.
    pub(in crate::bench) fn next(&mut self, stop: BorrowedFd<'_>, time: Duration) -> Outcome<String> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(String::from_utf8(line)?.trim_end().to_owned());
            }
            if self.read.len() > LINE_BYTES_MAX {
                return Err("a process of the measurement said a line without an end".into());
            }
            if !wait(stop, Some(self.pipe.as_fd()), time)? {
                return Err(format!("a process of the measurement said nothing for {time:?}").into());
            }
            if self.fill()? == 0 {
                return Err("a process of the measurement ended before it was asked to".into());
            }
        }
    }

    /// Waits until there will be no more; silence for so long without the end is an error.
    pub(in crate::bench) fn end(&mut self, stop: BorrowedFd<'_>, time: Duration) -> Outcome<()> {
        while wait(stop, Some(self.pipe.as_fd()), time)? {
            if self.fill()? == 0 {
                return Ok(());
            }
            self.read.clear();
        }
        Err(format!("a process of the measurement did not end in {time:?}").into())
    }

    /// Reads what is there; 0 is the end.
    fn fill(&mut self) -> Outcome<usize> {
        let mut piece = [0; 4096];
        let count = self.pipe.read(&mut piece)?;
        self.read.extend(&piece[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn lines_come_whole_and_silence_the_end_and_a_signal_are_errors() {
        let (stop, signal) = UnixStream::pair().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut lines = Lines::of(ours);
        theirs.write_all(b"one\ntw").unwrap();
        assert_eq!(lines.next(stop.as_fd(), Duration::ZERO).unwrap(), "one");
        assert!(lines.next(stop.as_fd(), Duration::ZERO).unwrap_err().to_string().contains("nothing"));
        theirs.write_all(b"o\n").unwrap();
        assert_eq!(lines.next(stop.as_fd(), Duration::ZERO).unwrap(), "two");
        assert!(lines.end(stop.as_fd(), Duration::ZERO).unwrap_err().to_string().contains("did not end"));
        drop(theirs);
        lines.end(stop.as_fd(), Duration::ZERO).unwrap();
        assert!(lines.next(stop.as_fd(), Duration::ZERO).unwrap_err().to_string().contains("ended"));
        drop(signal);
        assert!(lines.next(stop.as_fd(), Duration::ZERO).unwrap_err().to_string().contains("interrupted"));
    }
}
