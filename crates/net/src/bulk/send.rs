//! The sending end: answers requests on one connection, one after another.

use std::cell::RefCell;
use std::time::Duration;

use super::Source;
use super::frame::{Header, Request, checksum};
use super::host::{HeldFile, HostMark, MARK_BYTES};
use super::line::{Break, Line};

/// Bytes that may be unconfirmed. More than the buffers of both sockets hold, so that waiting for a confirmation does not
/// hold the stream up; and few enough confirmations fit in that they never fill a buffer themselves.
const WINDOW: u64 = 32 << 20;
/// A sender with nothing to send says so this often.
const WAITING_EVERY: Duration = Duration::from_secs(1);
/// What has come of a growing source is sent on when it is this much, or the end.
const FORWARD_BYTES_MIN: u64 = 16 << 10;
/// The same where the receiver copies it itself: each part wakes it, and this much stays in the cache for the next of a chain.
const FORWARD_LOCAL_BYTES_MIN: u64 = 1 << 20;
/// What is said to be there at once, so that confirmations come.
const PART_BYTES_MAX: u64 = 1 << 30;
/// Less than this is sent before it is agreed on that it need not be.
const LOCAL_BYTES_MIN: u64 = 256 << 10;

/// What a sender has.
pub trait Catalogue {
    /// Finds an object by its key and holds it until the source is dropped, or says why it cannot. While it takes long
    /// it calls `waiting` about once a second, so that the receiver knows; an error of that ends the search.
    fn find(&mut self, key: &[u8], waiting: &mut dyn FnMut() -> Result<(), Break>) -> Result<Box<dyn Source>, String>;

    /// Whether a connection on which nothing is asked any more should end for another one. Looked at ten times a second.
    fn makes_way(&mut self) -> bool {
        false
    }

    /// The file in which its sources lie, if they lie in one.
    fn file(&self) -> Option<HeldFile> {
        None
    }
}

/// What a connection has served when it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Requests that were served to their last byte.
    pub objects: u64,
    /// Bytes that left.
    pub bytes: u64,
}

/// Serves a connection until it ends. A receiver that goes away between two requests, or asks nothing for too long,
/// is no error.
pub fn serve(mut line: Line, catalogue: &mut dyn Catalogue, stop: &dyn Fn() -> bool) -> (Sent, Result<(), Break>) {
    let mut sent = Sent::default();
    let idle = line.options().idle;
    let mut is_new = true;
    loop {
        let asked = RefCell::new(&mut *catalogue);
        // Who has just come is about to ask.
        let makes_way = || !is_new && asked.borrow_mut().makes_way();
        let request = match line.header(&|| stop() || makes_way(), idle, "a request") {
            Ok(Header::Request { key, block, checksum, marked, from }) => {
                let behind = usize::from(key) + if marked { MARK_BYTES } else { 0 };
                line.text(stop, behind).map(|mut text| {
                    let host = HostMark::decode(&text.split_off(usize::from(key)));
                    Request { key: text, from, block, checksum, host }
                })
            }
            Ok(other) => Err(Break::Nonsense(format!("{other:?} in the place of a request"))),
            Err(Break::Closed { .. } | Break::Silent { .. } | Break::Stopped) => return (sent, Ok(())),
            Err(why) => Err(why),
        };
        let served = request.and_then(|request| answer(&mut line, &request, catalogue, stop, &mut sent));
        if let Err(why) = served {
            return (sent, Err(why));
        }
        is_new = false;
    }
}

fn answer(
    line: &mut Line,
    request: &Request,
    catalogue: &mut dyn Catalogue,
    stop: &dyn Fn() -> bool,
    sent: &mut Sent,
) -> Result<(), Break> {
    let mut lost = None;
    let found = catalogue.find(&request.key, &mut || {
        let told = line.say(stop, Header::Waiting, &[]);
        lost = told.clone().err();
        told
    });
    if let Some(why) = lost {
        return Err(why);
    }
    let source = match found {
        Ok(source) if request.from <= source.len() => source,
        Ok(source) => {
            let reason = format!("it has {} bytes, and byte {} was asked for", source.len(), request.from);
            return line.say_why(stop, |reason| Header::Gone { reason }, &reason);
        }
        Err(reason) => return line.say_why(stop, |reason| Header::Gone { reason }, &reason),
    };
    line.say(stop, Header::Offer { len: source.len() }, &[])?;
    let (at, confirmed) = (request.from, request.from);
    let mut sending = Sending { line, source: &*source, request, stop, at, confirmed, is_read: false };
    let whole = sending.agree(catalogue).and_then(|()| sending.run());
    sent.bytes += sending.at - request.from;
    if whole.is_err() && sending.is_read && sending.confirmed < sending.at {
        // It may be reading just now, and must not find the bytes of something else.
        sending.line.await_close();
    }
    if whole? {
        sent.objects += 1;
        source.taken();
    }
    Ok(())
}

struct Sending<'a> {
    line: &'a mut Line,
    source: &'a dyn Source,
    request: &'a Request,
    stop: &'a dyn Fn() -> bool,
    at: u64,
    confirmed: u64,
    /// The receiver reads the bytes where they lie.
    is_read: bool,
}

impl Sending<'_> {
    /// Asks a receiver on the same host whether it can read the file.
    fn agree(&mut self, catalogue: &dyn Catalogue) -> Result<(), Break> {
        let near = self.request.host.is_some() && self.request.host == self.line.options().host;
        let worth_it = self.source.len() - self.at >= LOCAL_BYTES_MIN && !self.request.checksum;
        if !near || !worth_it || self.source.offset(self.at).is_none() {
            return Ok(());
        }
        let Some(file) = catalogue.file() else { return Ok(()) };
        self.line.say(self.stop, Header::Lies, &file.encode())?;
        let silence = self.line.options().silence;
        match self.line.header(self.stop, silence, "whether the receiver can read a file")? {
            Header::Reads { yes } => self.is_read = yes,
            other => return Err(Break::Nonsense(format!("{other:?} in the place of a yes or no"))),
        }
        Ok(())
    }

    /// Whether the whole object went. The last byte that left is confirmed when this returns.
    fn run(&mut self) -> Result<bool, Break> {
        let len = self.source.len();
        let mut whole = true;
        while self.at < len {
            let most = if self.is_read { FORWARD_LOCAL_BYTES_MIN } else { FORWARD_BYTES_MIN };
            let enough = (self.at + self.source.forward_bytes_min(most).max(1)).min(len) - 1;
            let ready = match self.source.wait_beyond(enough, WAITING_EVERY) {
                Ok(ready) => ready.min(len),
                Err(reason) => {
                    self.line.say_why(self.stop, |reason| Header::Ended { reason }, &reason)?;
                    whole = false;
                    break;
                }
            };
            if (self.stop)() {
                return Err(Break::Stopped);
            }
            if ready <= self.at {
                self.line.say(self.stop, Header::Waiting, &[])?;
                continue;
            }
            let ready = ready.min(self.source.contiguous_until(self.at));
            match self.source.offset(self.at).filter(|_| self.is_read) {
                Some(offset) => self.part((ready - self.at).min(PART_BYTES_MAX), offset)?,
                None => self.block((ready - self.at).min(u64::from(self.request.block)))?,
            }
            while self.at - self.confirmed > WINDOW {
                self.await_confirmation()?;
            }
        }
        while self.confirmed < self.at {
            self.await_confirmation()?;
        }
        Ok(whole)
    }

    fn part(&mut self, len: u64, offset: u64) -> Result<(), Break> {
        self.line.say(self.stop, Header::Part { len: len as u32, offset }, &[])?;
        self.at += len;
        Ok(())
    }

    fn block(&mut self, len: u64) -> Result<(), Break> {
        let bytes = self.source.bytes(self.at..self.at + len);
        if bytes.len() as u64 != len {
            return Err(Break::NoPlace("its own source has fewer bytes than it said".to_owned()));
        }
        let sum = if self.request.checksum { checksum(bytes) } else { 0 };
        self.line.say(self.stop, Header::Block { len: len as u32, checksum: sum }, bytes)?;
        self.at += len;
        Ok(())
    }

    fn await_confirmation(&mut self) -> Result<(), Break> {
        let silence = self.line.options().silence;
        match self.line.header(self.stop, silence, "a confirmation")? {
            Header::Confirm { watermark } if watermark > self.confirmed && watermark <= self.at => {
                self.confirmed = watermark;
                Ok(())
            }
            other => Err(Break::Nonsense(format!("{other:?} in the place of a confirmation"))),
        }
    }
}
