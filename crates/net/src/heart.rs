//! Heartbeats: tiny frames on a connection and a thread of their own, so that nothing delays them but the network.
//!
//! The thread that calls [`Heart::run`] sends what a callback gives it at every period (the node's load, or the digest of
//! all loads) and hands what comes to another one. The end of the connection is seen at once. Silence is not judged
//! here: the caller notes the arrivals in a `core::heartbeat::Pulse` and looks at its own clock.
//!
//! A peer that does not read gets no queue: the next beat is sent when the last one has gone, with what is true then.

use std::io::{ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::frame::{FrameKind, HEADER_BYTES, Header};
use crate::link::LinkEnd;
use crate::link::inbox::Inbox;
use crate::wire::Wire;

#[cfg(test)]
mod tests;

/// What one beat can carry: the loads of some ten thousand nodes.
pub const BEAT_BYTES_MAX: usize = 1 << 20;
const BEAT: FrameKind = FrameKind(FrameKind::FIRST_FREE + 1);

/// How the heart stopped.
#[derive(Debug)]
pub enum HeartEnd {
    /// It was told to.
    Stopped,
    /// The connection ended.
    Lost(LinkEnd),
}

/// Stops a heart from another thread.
#[derive(Clone, Debug)]
pub struct HeartStop(Arc<OwnedFd>);

impl HeartStop {
    /// Makes [`Heart::run`] return.
    pub fn stop(&self) {
        // Refused only when it is full, and then it was told before.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// One end of a connection for heartbeats.
pub struct Heart {
    wire: Box<dyn Wire>,
    period: Duration,
    stop: Arc<OwnedFd>,
    inbox: Inbox,
    /// The beat that is being written, as a frame, and how much of it has gone.
    beat: Vec<u8>,
    written: usize,
    /// The last beat, when it is stopped.
    farewell: Option<Vec<u8>>,
}

impl Heart {
    /// Takes over a wire, to send a beat every period, or whenever [`Heart::run`]'s payload says.
    pub fn new(wire: Box<dyn Wire>, period: Duration) -> Result<Self, LinkEnd> {
        wire.set_nonblocking(true).map_err(LinkEnd::failed)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LinkEnd::failed(error.into()))?;
        let inbox = Inbox::new(BEAT_BYTES_MAX);
        Ok(Self { wire, period, stop: Arc::new(stop), inbox, beat: Vec::new(), written: 0, farewell: None })
    }

    /// When it is stopped, this is its last beat, as far as the connection takes it at once.
    #[must_use]
    pub fn with_farewell(mut self, bytes: Vec<u8>) -> Self {
        self.farewell = Some(bytes);
        self
    }

    /// What stops it from another thread.
    pub fn stop_handle(&self) -> HeartStop {
        HeartStop(Arc::clone(&self.stop))
    }

    /// Beats until the connection ends or it is stopped, at the heart's period. `payload` appends the bytes of the next beat, at
    /// most [`BEAT_BYTES_MAX`]; `heard` gets those of the peer's.
    pub fn run(self, mut payload: impl FnMut(&mut Vec<u8>), heard: impl FnMut(&[u8])) -> HeartEnd {
        let period = self.period;
        let paced = move |beat: &mut Vec<u8>| {
            payload(beat);
            period
        };
        self.run_paced(paced, heard)
    }

    /// The same, with a payload that says after which time the next beat is due.
    pub fn run_paced(
        mut self,
        mut payload: impl FnMut(&mut Vec<u8>) -> Duration,
        mut heard: impl FnMut(&[u8]),
    ) -> HeartEnd {
        let mut due = Instant::now();
        loop {
            let now = Instant::now();
            if now >= due {
                let pause = self.make_beat(&mut payload);
                // Beats that were missed, because the machine slept, are not made up for.
                due = (due + pause).max(now);
            }
            if let Err(end) = self.write() {
                return HeartEnd::Lost(end);
            }
            match self.sleep(due.saturating_duration_since(now)) {
                Slept::Told => {
                    self.say_farewell();
                    return HeartEnd::Stopped;
                }
                Slept::Quiet => {}
                Slept::Readable => {
                    if let Err(end) = self.read(&mut heard) {
                        return HeartEnd::Lost(end);
                    }
                }
            }
        }
    }

    /// Makes the next beat, unless the last one has not gone. Says when to try again.
    fn make_beat(&mut self, payload: &mut impl FnMut(&mut Vec<u8>) -> Duration) -> Duration {
        if self.has_unwritten() {
            return self.period;
        }
        self.beat.clear();
        self.beat.resize(HEADER_BYTES, 0);
        let pause = payload(&mut self.beat);
        debug_assert!(self.beat.len() <= HEADER_BYTES + BEAT_BYTES_MAX, "a beat over the bound");
        self.beat.truncate(HEADER_BYTES + BEAT_BYTES_MAX);
        let header = Header::of(BEAT, &[&self.beat[HEADER_BYTES..]]).encode();
        self.beat[..HEADER_BYTES].copy_from_slice(&header);
        self.written = 0;
        pause
    }

    fn say_farewell(&mut self) {
        let Some(bytes) = self.farewell.take() else { return };
        let _ = self.make_beat(&mut |beat: &mut Vec<u8>| {
            beat.extend_from_slice(&bytes);
            Duration::ZERO
        });
        // Whoever does not read, or is gone, notices the end without it.
        let _ = self.write();
    }

    fn has_unwritten(&self) -> bool {
        self.written < self.beat.len()
    }

    fn write(&mut self) -> Result<(), LinkEnd> {
        while self.has_unwritten() {
            match self.wire.write_vectored(&[IoSlice::new(&self.beat[self.written..])]) {
                Ok(0) => return Err(LinkEnd::Failed(ErrorKind::WriteZero.into())),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkEnd::Failed(error)),
            }
        }
        if !self.wire.wants_write() {
            return Ok(());
        }
        match self.wire.flush() {
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Err(LinkEnd::Failed(error))
            }
            _ => Ok(()),
        }
    }

    fn read(&mut self, heard: &mut impl FnMut(&[u8])) -> Result<(), LinkEnd> {
        loop {
            match self.wire.read(self.inbox.room()) {
                Ok(0) if self.inbox.is_inside_a_frame() => return Err(LinkEnd::Cut),
                Ok(0) => return Err(LinkEnd::Closed),
                Ok(count) => self.inbox.filled(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkEnd::failed(error)),
            }
            while let Some(frame) = self.inbox.next_frame()? {
                if frame.kind != BEAT {
                    return Err(LinkEnd::Nonsense("something else than a heartbeat"));
                }
                heard(frame.body);
            }
            if !self.wire.has_buffered() {
                return Ok(());
            }
        }
    }

    fn sleep(&self, patience: Duration) -> Slept {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.has_unwritten() || self.wire.wants_write());
        let mut fds = [PollFd::from_borrowed_fd(self.wire.raw_fd(), flags), PollFd::new(&*self.stop, PollFlags::IN)];
        let limit = Timespec::try_from(patience).ok();
        // A signal ends it early, and the loop goes on.
        let _ = poll(&mut fds, limit.as_ref());
        let [wire, stop] = fds.map(|fd| fd.revents());
        if !stop.is_empty() {
            return Slept::Told;
        }
        // An end or an error is something to read.
        let readable = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        if wire.intersects(readable) { Slept::Readable } else { Slept::Quiet }
    }
}

enum Slept {
    /// The time is up, or there is room to write.
    Quiet,
    Readable,
    Told,
}
