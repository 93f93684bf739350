//! The sending end: answers requests on one connection, one after another.

use std::time::Duration;

use super::Source;
use super::frame::{Header, Request, checksum};
use super::line::{Break, Line};

/// Bytes that may be unconfirmed. More than the buffers of both sockets hold, so that waiting for a confirmation does not
/// hold the stream up; and few enough confirmations fit in that they never fill a buffer themselves.
const WINDOW: u64 = 32 << 20;
/// A sender with nothing to send says so this often.
const WAITING_EVERY: Duration = Duration::from_secs(1);
/// What has come of a growing source is sent on when it is this much, or the end.
const FORWARD_BYTES_MIN: u64 = 16 << 10;

/// What a sender has.
pub trait Catalogue {
    /// Finds an object by its key and holds it until the source is dropped, or says why it cannot. While it takes long
    /// it calls `waiting` about once a second, so that the receiver knows; an error of that ends the search.
    fn find(&mut self, key: &[u8], waiting: &mut dyn FnMut() -> Result<(), Break>) -> Result<Box<dyn Source>, String>;
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
    loop {
        let request = match line.header(stop, idle, "a request") {
            Ok(Header::Request { key, block, checksum, from }) => {
                line.text(stop, usize::from(key)).map(|key| Request { key, from, block, checksum })
            }
            Ok(other) => Err(Break::Nonsense(format!("{other:?} in the place of a request"))),
            Err(Break::Closed { .. } | Break::Silent { .. } | Break::Stopped) => return (sent, Ok(())),
            Err(why) => Err(why),
        };
        let served = request.and_then(|request| answer(&mut line, &request, catalogue, stop, &mut sent));
        if let Err(why) = served {
            return (sent, Err(why));
        }
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
    let mut sending = Sending { line, source: &*source, request, stop, at: request.from, confirmed: request.from };
    let whole = sending.run();
    sent.bytes += sending.at - request.from;
    sent.objects += u64::from(whole?);
    Ok(())
}

struct Sending<'a> {
    line: &'a mut Line,
    source: &'a dyn Source,
    request: &'a Request,
    stop: &'a dyn Fn() -> bool,
    at: u64,
    confirmed: u64,
}

impl Sending<'_> {
    /// Whether the whole object went. The last byte that left is confirmed when this returns.
    fn run(&mut self) -> Result<bool, Break> {
        let len = self.source.len();
        let mut whole = true;
        while self.at < len {
            let enough = (self.at + FORWARD_BYTES_MIN).min(len) - 1;
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
            self.block((ready - self.at).min(u64::from(self.request.block)))?;
            while self.at - self.confirmed > WINDOW {
                self.await_confirmation()?;
            }
        }
        while self.confirmed < self.at {
            self.await_confirmation()?;
        }
        Ok(whole)
    }

    fn block(&mut self, len: u64) -> Result<(), Break> {
        let range = self.at..self.at + len;
        let sum = if self.request.checksum { checksum(self.source.bytes(range.clone())) } else { 0 };
        let header = Header::Block { len: len as u32, checksum: sum };
        self.line.say(self.stop, header, self.source.bytes(range))?;
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
