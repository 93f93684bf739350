//! A connection with patience: every wait ends, and says what it was for.

use std::io::{self, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use super::BulkOptions;
use super::frame::{HEADER_BYTES, Header, cut};
use super::host::HeldFile;
use super::low_water::LowWater;
use super::neighbour::Neighbour;
use crate::wire::Wire;
use rustix::io::Errno;

/// How often a wait looks whether it should end.
const SLICE: Duration = Duration::from_millis(100);

/// Why a connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// The peer ended it.
    #[error("the peer closed the connection while this end waited for {waited_for}")]
    Closed {
        /// What should have come.
        waited_for: &'static str,
    },
    /// The system says that it is broken.
    #[error("the connection broke: {0}")]
    Failed(String),
    /// The peer did nothing for too long.
    #[error("nothing came or went for {seconds} s while this end waited for {waited_for}")]
    Silent {
        /// What should have happened.
        waited_for: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The peer said what it must not say.
    #[error("the peer speaks nonsense ({0}): it is broken or has another version")]
    Nonsense(String),
    /// This end was told to stop.
    #[error("this end was told to stop")]
    Stopped,
    /// This end has no memory for what comes, or its object was given up.
    #[error("this end cannot take the bytes: {0}")]
    NoPlace(String),
}

impl Break {
    pub(super) fn failed(error: &io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A connection on which objects are sent or received one after another.
pub struct Line {
    wire: Box<dyn Wire>,
    options: BulkOptions,
    /// Bytes of the next header that came with the block before it.
    ahead: [u8; HEADER_BYTES],
    ahead_len: usize,
    /// What the last read waited for.
    pub(super) low_water: LowWater,
    /// The file of the sender that was read last.
    pub(super) file: Option<(HeldFile, Neighbour)>,
    /// Its files cannot be read from here.
    pub(super) is_unreadable: bool,
}

impl Line {
    /// A line over a connection on which nothing but bulk requests is said from now on.
    pub fn new(wire: Box<dyn Wire>, options: BulkOptions) -> io::Result<Self> {
        wire.set_nonblocking(false)?;
        wire.set_timeouts(Some(SLICE), Some(SLICE))?;
        let (ahead, low_water) = ([0; HEADER_BYTES], LowWater::new());
        Ok(Self { wire, options, ahead, ahead_len: 0, low_water, file: None, is_unreadable: false })
    }

    /// How this end behaves.
    pub fn options(&self) -> &BulkOptions {
        &self.options
    }

    /// Repeats one call of the system until it has done something, or patience is at its end.
    fn attempt(
        &mut self,
        stop: &dyn Fn() -> bool,
        patience: Duration,
        waited_for: &'static str,
        mut call: impl FnMut(&mut dyn Wire) -> io::Result<usize>,
    ) -> Result<usize, Break> {
        let mut since = None;
        loop {
            match call(&mut *self.wire) {
                Ok(0) => return Err(Break::Closed { waited_for }),
                Ok(done) => return Ok(done),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if stop() {
                        return Err(Break::Stopped);
                    }
                    // The clock is looked at only when there is nothing to do, and one slice has passed by then.
                    let since = since.get_or_insert_with(Instant::now);
                    if since.elapsed() + SLICE >= patience {
                        return Err(Break::Silent { waited_for, seconds: patience.as_secs() });
                    }
                }
                Err(error) => return Err(Break::failed(&error)),
            }
        }
    }

    /// Reads the next header, which may take until `patience` is at its end to begin.
    pub(super) fn header(
        &mut self,
        stop: &dyn Fn() -> bool,
        patience: Duration,
        waited_for: &'static str,
    ) -> Result<Header, Break> {
        let mut bytes = self.ahead;
        let mut have = std::mem::take(&mut self.ahead_len);
        if have < HEADER_BYTES {
            self.wait_for_bytes(1)?;
        }
        while have < HEADER_BYTES {
            let patience = if have == 0 { patience } else { self.options.silence };
            have += self.attempt(stop, patience, waited_for, |wire| wire.read(&mut bytes[have..]))?;
        }
        Header::decode(bytes)
    }

    /// Has the next reads wait for so many bytes, where a wire does not keep some of them itself.
    fn wait_for_bytes(&mut self, bytes: u64) -> Result<(), Break> {
        if self.wire.is_protected() || self.wire.has_buffered() {
            return Ok(());
        }
        self.low_water.set(self.wire.raw_fd(), bytes).map_err(|error| Break::failed(&error))
    }

    /// Reads some bytes of a block of which `left` are missing, `at_least` so many if they come without a pause, and, when `into`
    /// takes all of them and they come with it, those of the next header.
    pub(super) fn block_part(
        &mut self,
        stop: &dyn Fn() -> bool,
        into: &mut [u8],
        left: u64,
        at_least: u64,
    ) -> Result<usize, Break> {
        debug_assert_eq!(self.ahead_len, 0, "a header is read before its block");
        // Not for what comes after the block: the sender may not have it yet.
        self.wait_for_bytes(at_least.min(left).min(into.len() as u64))?;
        let mut ahead = [0; HEADER_BYTES];
        let silence = self.options.silence;
        let got = self.attempt(stop, silence, "the rest of a block", |wire| {
            if wire.is_protected() || wire.has_buffered() || (into.len() as u64) < left {
                return wire.read(into);
            }
            Ok(rustix::io::readv(wire.raw_fd(), &mut [IoSliceMut::new(into), IoSliceMut::new(&mut ahead)])?)
        })?;
        let part = got.min(into.len());
        (self.ahead, self.ahead_len) = (ahead, got - part);
        Ok(part)
    }

    /// Reads the short text behind a header.
    pub(super) fn text(&mut self, stop: &dyn Fn() -> bool, len: usize) -> Result<Vec<u8>, Break> {
        let mut text = vec![0; len];
        let mut have = 0;
        while have < len {
            let silence = self.options.silence;
            have += self.attempt(stop, silence, "the rest of a text", |wire| wire.read(&mut text[have..]))?;
        }
        Ok(text)
    }

    /// Says something, with what belongs behind it.
    pub(super) fn say(&mut self, stop: &dyn Fn() -> bool, header: Header, behind: &[u8]) -> Result<(), Break> {
        let header = header.encode();
        let mut sent = 0;
        while sent < HEADER_BYTES + behind.len() {
            let (head, rest) = match sent.checked_sub(HEADER_BYTES) {
                None => (&header[sent..], behind),
                Some(of_rest) => (&[][..], &behind[of_rest..]),
            };
            sent += self.attempt(stop, self.options.silence, "the peer to read", |wire| {
                wire.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)])
            })?;
        }
        // What a wire keeps back (TLS, half a record) has to leave before an answer is waited for.
        self.attempt(stop, self.options.silence, "the peer to read", |wire| wire.flush().map(|()| 1))?;
        Ok(())
    }

    /// Says no more, and waits until the peer has closed the connection, however long that takes.
    pub(super) fn await_close(&mut self) {
        self.wire.finish();
        let mut bytes = [0; 256];
        loop {
            // What still comes does not count, so it is not decrypted either.
            match rustix::io::read(self.wire.raw_fd(), &mut bytes) {
                Ok(0) => return,
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return,
            }
        }
    }

    /// Tells a receiver on a line that is not served yet that it has to wait.
    pub fn say_waiting(&mut self, stop: &dyn Fn() -> bool) -> Result<(), Break> {
        self.say(stop, Header::Waiting, &[])
    }

    /// Says why there is nothing.
    pub(super) fn say_why(
        &mut self,
        stop: &dyn Fn() -> bool,
        header: impl Fn(u16) -> Header,
        reason: &str,
    ) -> Result<(), Break> {
        let reason = cut(reason);
        self.say(stop, header(reason.len() as u16), reason.as_bytes())
    }
}
