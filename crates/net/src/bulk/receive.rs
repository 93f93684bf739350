//! The receiving end: one object, from its watermark on, straight into its place.

use super::frame::{Header, Request, checksum};
use super::host::{FILE_BYTES, HeldFile};
use super::line::{Break, Line};
use super::{BulkOptions, Sink, low_water};

/// The receiver says how far it is whenever it has so many bytes more. Each time costs a packet and wakes nobody.
pub(super) const CONFIRM_STEP: u64 = 4 << 20;
/// What is copied out of a file before it is told to those who wait for it.
const COPY_BYTES: u64 = 1 << 20;

/// Why an object did not come as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The sender does not have it. The connection can be used again.
    #[error("the sender does not have the object: {reason}")]
    Gone {
        /// What the sender says.
        reason: String,
    },
    /// The sender had a part and will get no more. The connection can be used again; the rest may be had elsewhere.
    #[error("the sender has no more than the first {watermark} bytes: {reason}")]
    Ended {
        /// How many bytes are here.
        watermark: u64,
        /// What the sender says.
        reason: String,
    },
    /// The connection is of no use any more; the rest may be had on another.
    #[error("broken after {watermark} bytes: {why}")]
    Broken {
        /// How many bytes are here.
        watermark: u64,
        /// What happened.
        why: Break,
    },
}

impl ReceiveError {
    /// Whether the next request can be made on the same connection.
    pub fn leaves_line_usable(&self) -> bool {
        !matches!(self, Self::Broken { .. })
    }
}

/// Asks for the rest of an object and takes it in. Returns when its last byte is here and confirmed.
///
/// `stop` is asked often; when it says yes, the transfer ends as broken.
pub fn receive(line: &mut Line, key: &[u8], sink: &mut dyn Sink, stop: &dyn Fn() -> bool) -> Result<(), ReceiveError> {
    let mut receiving = Receiving { confirmed: sink.watermark(), line, sink, stop };
    match receiving.run(key) {
        Ok(None) => Ok(()),
        Ok(Some(refused)) => Err(refused),
        Err(why) => Err(ReceiveError::Broken { watermark: receiving.sink.watermark(), why }),
    }
}

struct Receiving<'a> {
    line: &'a mut Line,
    sink: &'a mut dyn Sink,
    stop: &'a dyn Fn() -> bool,
    confirmed: u64,
}

impl Receiving<'_> {
    /// The outer error costs the connection, the inner one does not.
    fn run(&mut self, key: &[u8]) -> Result<Option<ReceiveError>, Break> {
        self.ask(key)?;
        let silence = self.line.options().silence;
        let mut offered = false;
        loop {
            let waited_for = if offered { "the next block" } else { "an answer to a request" };
            match self.line.header(self.stop, silence, waited_for)? {
                Header::Waiting => {}
                Header::Gone { reason } if !offered => {
                    let reason = self.reason(reason)?;
                    return Ok(Some(ReceiveError::Gone { reason }));
                }
                Header::Offer { len } if !offered => {
                    if len != self.sink.len() {
                        let expected = self.sink.len();
                        return Err(Break::Nonsense(format!("an object of {len} bytes for one of {expected}")));
                    }
                    offered = true;
                }
                Header::Block { len, checksum } if offered => self.block(u64::from(len), checksum)?,
                Header::Lies if offered => self.open()?,
                Header::Part { len, offset } if offered => self.part(u64::from(len), offset)?,
                Header::Ended { reason } if offered => {
                    let reason = self.reason(reason)?;
                    self.confirm()?;
                    return Ok(Some(ReceiveError::Ended { watermark: self.sink.watermark(), reason }));
                }
                other => return Err(Break::Nonsense(format!("{other:?} out of turn"))),
            }
            if offered && self.sink.watermark() == self.sink.len() {
                self.confirm()?;
                return Ok(None);
            }
        }
    }

    fn ask(&mut self, key: &[u8]) -> Result<(), Break> {
        let BulkOptions { block, checksum, host, .. } = *self.line.options();
        let from = self.sink.watermark();
        let host = host.filter(|_| !checksum && !self.line.is_unreadable);
        let request = Request { key: key.to_vec(), from, block, checksum, host };
        let header = request.header().map_err(Break::Nonsense)?;
        self.line.say(self.stop, header, &request.behind())
    }

    /// Opens the file that the sender says, or says that it has to send the bytes.
    fn open(&mut self) -> Result<(), Break> {
        let text = self.line.text(self.stop, FILE_BYTES)?;
        let held = HeldFile::decode(&text).ok_or_else(|| Break::Nonsense("a file that is none".to_owned()))?;
        let is_open = self.line.file.as_ref().is_some_and(|(open, _)| *open == held);
        if !is_open {
            // Another user's rules or an older namespace: nobody is to blame, and the bytes come all the same.
            self.line.file = held.open().ok().map(|file| (held, file));
            self.line.is_unreadable = self.line.file.is_none();
        }
        self.line.say(self.stop, Header::Reads { yes: !self.line.is_unreadable }, &[])
    }

    /// Copies a part out of the sender's file.
    fn part(&mut self, len: u64, offset: u64) -> Result<(), Break> {
        self.check_left(len)?;
        let mut have = 0;
        while have < len {
            if (self.stop)() {
                return Err(Break::Stopped);
            }
            let Some((_, file)) = &self.line.file else {
                return Err(Break::Nonsense("a part of a file that is not open".to_owned()));
            };
            let most = (len - have).min(COPY_BYTES);
            let into = self.sink.spare(most as usize).map_err(no_place)?;
            file.read_at(into, offset + have).map_err(|error| Break::failed(&error))?;
            let copied = into.len() as u64;
            if copied == 0 {
                return Err(Break::NoPlace("there is no place for the next byte".to_owned()));
            }
            have += copied;
            self.advance(copied)?;
        }
        Ok(())
    }

    fn check_left(&self, len: u64) -> Result<(), Break> {
        if len > self.sink.len() - self.sink.watermark() {
            return Err(Break::Nonsense(format!("a block of {len} bytes, which is more than the object has left")));
        }
        Ok(())
    }

    fn reason(&mut self, len: u16) -> Result<String, Break> {
        let text = self.line.text(self.stop, usize::from(len))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Takes in a block. Without a checksum its bytes are final as they come, so they can be sent on at once.
    fn block(&mut self, len: u64, expected: u64) -> Result<(), Break> {
        let BulkOptions { checksum: checked, .. } = *self.line.options();
        self.check_left(len)?;
        let mut have = 0;
        while have < len {
            if (self.stop)() {
                return Err(Break::Stopped);
            }
            // Without checksums the watermark follows, so that the spare bytes begin where the block goes on.
            let done = if checked { have } else { 0 };
            let at_least = if self.sink.is_sent_on() { 1 } else { low_water::for_object(self.sink.len()) };
            let spare = self.sink.spare((len - have + done) as usize).map_err(no_place)?;
            let (into, left) = (&mut spare[done as usize..], len - have);
            let part = self.line.block_part(self.stop, into, left, at_least)? as u64;
            have += part;
            if !checked {
                self.advance(part)?;
            }
        }
        if checked {
            let spare = self.sink.spare(len as usize).map_err(no_place)?;
            if checksum(spare) != expected {
                return Err(Break::Nonsense("a block whose bytes do not match its checksum".to_owned()));
            }
            self.advance(len)?;
        }
        Ok(())
    }

    fn advance(&mut self, len: u64) -> Result<(), Break> {
        self.sink.advance(len).map_err(no_place)?;
        if self.sink.watermark() - self.confirmed >= CONFIRM_STEP { self.confirm() } else { Ok(()) }
    }

    fn confirm(&mut self) -> Result<(), Break> {
        let watermark = self.sink.watermark();
        if watermark > self.confirmed {
            self.line.say(self.stop, Header::Confirm { watermark }, &[])?;
            self.confirmed = watermark;
        }
        Ok(())
    }
}

fn no_place(error: std::io::Error) -> Break {
    Break::NoPlace(error.to_string())
}
