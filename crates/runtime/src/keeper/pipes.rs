//! The output of one worker: the pipes that the keeper reads, and the end of what came through standard error.

use super::lines::Lines;
use super::stderr::Tail;
use crate::output::Stream;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Reads of one pipe in one turn, and after its worker's death: a pipe holds eight of them.
const READS_PER_TURN: usize = 32;

/// The pipes of one worker.
pub(super) struct Pipes {
    pipes: Vec<Pipe>,
    tail: Tail,
}

struct Pipe {
    stream: Stream,
    /// `None` once the worker has closed it.
    fd: Option<OwnedFd>,
    lines: Lines,
}

impl Pipes {
    /// The reading ends, which do not block.
    pub(super) fn new(stdout: Option<OwnedFd>, stderr: OwnedFd) -> Pipes {
        let pipe = |stream, fd| Pipe { stream, fd: Some(fd), lines: Lines::default() };
        let stdout = stdout.map(|fd| pipe(Stream::Stdout, fd));
        Pipes { pipes: stdout.into_iter().chain([pipe(Stream::Stderr, stderr)]).collect(), tail: Tail::default() }
    }

    /// What to wait for.
    pub(super) fn fds(&self) -> impl Iterator<Item = &OwnedFd> {
        self.pipes.iter().filter_map(|pipe| pipe.fd.as_ref())
    }

    /// Reads what is there and passes on the lines that are complete.
    pub(super) fn read(&mut self, mut pass_on: impl FnMut(Stream, &str, &[u8])) {
        let mut bytes = [0; 8192];
        for Pipe { stream, fd, lines } in &mut self.pipes {
            for _ in 0..READS_PER_TURN {
                let Some(open) = fd else { break };
                match rustix::io::read(open, &mut bytes) {
                    Ok(0) => *fd = None,
                    Ok(length) => {
                        let tail = &mut self.tail;
                        lines.push(&bytes[..length], &mut |name, line| {
                            tail.remember(*stream, line);
                            pass_on(*stream, name, line);
                        });
                    }
                    Err(Errno::INTR) => {}
                    Err(_) => break,
                }
            }
        }
    }

    /// The worker has ended: reads the rest and ends unfinished lines. Gives the last lines of standard error.
    pub(super) fn finish(mut self, mut pass_on: impl FnMut(Stream, &str, &[u8])) -> String {
        self.read(&mut pass_on);
        for Pipe { stream, lines, .. } in &mut self.pipes {
            let tail = &mut self.tail;
            lines.finish(&mut |name, line| {
                tail.remember(*stream, line);
                pass_on(*stream, name, line);
            });
        }
        self.tail.text()
    }
}
