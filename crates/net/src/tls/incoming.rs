//! The half of a wire that reads: records taken apart as they come, and bytes that come in the clear between them.

use std::io::{self, Read};

use rustls::{AlertDescription, ConnectionTrafficSecrets, Error, InvalidMessage};

use super::buffer::Buffer;
use super::record::{Content, Opener, Renewal, record_bytes};
use super::wire::in_words;

/// Bytes of one read of the socket: a message that is as long as they get, with what is around it.
pub(super) const RAW_BYTES: usize = 80 << 10;
/// So many bytes of values are announced in the clear at once, at most.
pub(super) const OPEN_BYTES_MAX: usize = 64 << 10;

/// The whole message that tells of a new key: its kind, its length, and whether the other side is to make one too.
pub(super) const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];
pub(super) const NOT_REQUESTED: u8 = 0;
const REQUESTED: u8 = 1;

pub(super) struct Incoming {
    opener: Opener,
    /// Bytes as they came. The first `plain` of them are decrypted, and after those `skip` are of no use.
    raw: Buffer,
    plain: usize,
    skip: usize,
    /// Whether bytes may come in the clear.
    pub(super) takes_open: bool,
    /// The next so many that come are.
    open: usize,
    ended: bool,
    /// Why nothing that comes can be trusted any more.
    failed: Option<Error>,
    /// What the peer has to be told about that.
    alert: Option<AlertDescription>,
    /// The peer wants to see a new key before the next bytes.
    wants_key: bool,
}

impl Incoming {
    /// Goes on with what came behind the handshake.
    pub(super) fn new(raw: Buffer, secrets: (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        Ok(Self {
            opener: Opener::new(secrets)?,
            raw,
            plain: 0,
            skip: 0,
            takes_open: false,
            open: 0,
            ended: false,
            failed: None,
            alert: None,
            wants_key: false,
        })
    }

    /// Reads what is there, and of the socket only when nothing is.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        socket: &mut impl Read,
        renewal: &mut dyn Renewal,
    ) -> io::Result<usize> {
        let mut filled = self.take_plain(buffer);
        while filled < buffer.len() && !self.ended && self.failed.is_none() {
            let rest = &mut buffer[filled..];
            if self.open > 0 {
                if filled > 0 && self.raw.is_empty() {
                    break;
                }
                filled += self.take_open(rest, socket)?;
                continue;
            }
            match self.whole_record() {
                // What does not fit behind what is there already is for the next read, which may have room for it.
                Ok(Some(bytes)) if filled > 0 && Opener::room_for(bytes) > rest.len() => break,
                Ok(Some(bytes)) => match self.open_record(bytes, rest, renewal) {
                    Ok(opened) => filled += opened,
                    Err(error) => self.give_up(error),
                },
                Ok(None) if filled > 0 => break,
                Ok(None) => self.ended = self.raw.read_from(socket)? == 0,
                Err(error) => self.give_up(error),
            }
        }
        match &self.failed {
            // What came before the failure is good.
            Some(error) if filled == 0 && !buffer.is_empty() => Err(in_words(error.clone())),
            _ => Ok(filled),
        }
    }

    /// Whether a read gives bytes, or tells of a failure, without the socket.
    pub(super) fn has_buffered(&self) -> bool {
        let has_more = || if self.open > 0 { !self.raw.is_empty() } else { !matches!(self.whole_record(), Ok(None)) };
        self.plain > 0 || (!self.ended && has_more())
    }

    /// Whether the peer has asked for a new key since the last time.
    pub(super) fn take_key_request(&mut self) -> bool {
        std::mem::take(&mut self.wants_key)
    }

    /// What the peer has to be told before the end, once.
    pub(super) fn take_alert(&mut self) -> Option<AlertDescription> {
        self.alert.take()
    }

    /// Hands out bytes that are decrypted already.
    fn take_plain(&mut self, into: &mut [u8]) -> usize {
        let taken = self.plain.min(into.len());
        into[..taken].copy_from_slice(&self.raw.waiting()[..taken]);
        self.raw.consume(taken);
        self.plain -= taken;
        if self.plain == 0 {
            self.raw.consume(std::mem::take(&mut self.skip));
        }
        taken
    }

    /// Hands out bytes that came in the clear, or reads some.
    fn take_open(&mut self, into: &mut [u8], socket: &mut impl Read) -> io::Result<usize> {
        let most = self.open.min(into.len());
        let taken = if self.raw.is_empty() {
            let read = socket.read(&mut into[..most])?;
            self.ended = read == 0;
            read
        } else {
            let taken = most.min(self.raw.waiting().len());
            into[..taken].copy_from_slice(&self.raw.waiting()[..taken]);
            self.raw.consume(taken);
            taken
        };
        self.open -= taken;
        Ok(taken)
    }

    /// The length of the next record, when all of it is there.
    fn whole_record(&self) -> Result<Option<usize>, Error> {
        let waiting = self.raw.waiting();
        Ok(record_bytes(waiting)?.filter(|bytes| *bytes <= waiting.len()))
    }

    /// Opens the next record, of so many bytes, into the place, or first where it lies when it does not fit there: how many bytes
    /// are in the place now.
    fn open_record(&mut self, bytes: usize, into: &mut [u8], renewal: &mut dyn Renewal) -> Result<usize, Error> {
        let record = &mut self.raw.waiting_mut()[..bytes];
        if Opener::room_for(bytes) <= into.len() {
            let (content, len) = self.opener.open_into(record, into)?;
            self.raw.consume(bytes);
            if content == Content::Data {
                return Ok(len);
            }
            return self.heed(content, &into[..len], renewal).map(|()| 0);
        }
        let (content, place) = self.opener.open_in_place(record)?;
        if content == Content::Data {
            self.raw.consume(place.start);
            (self.plain, self.skip) = (place.len(), bytes - place.end);
            return Ok(self.take_plain(into));
        }
        // Only a few bytes long, or nonsense.
        let message = record[place].to_vec();
        self.raw.consume(bytes);
        self.heed(content, &message, renewal).map(|()| 0)
    }

    /// What the peer says about the connection itself.
    fn heed(&mut self, content: Content, message: &[u8], renewal: &mut dyn Renewal) -> Result<(), Error> {
        let unexpected = Err(Error::InvalidMessage(InvalidMessage::UnexpectedMessage("after the handshake")));
        match (content, message) {
            (Content::Alert, [_, description]) => match AlertDescription::from(*description) {
                // After the goodbye nothing counts.
                AlertDescription::CloseNotify => self.ended = true,
                other => return Err(Error::AlertReceived(other)),
            },
            (Content::Handshake, [update @ .., requested @ (NOT_REQUESTED | REQUESTED)]) if *update == KEY_UPDATE => {
                self.wants_key |= *requested == REQUESTED;
                self.opener = Opener::new(renewal.next_receiving()?)?;
            }
            (Content::Open, &[a, b, c, d]) if self.takes_open => {
                self.open = u32::from_be_bytes([a, b, c, d]) as usize;
                if self.open > OPEN_BYTES_MAX {
                    return unexpected;
                }
            }
            _ => return unexpected,
        }
        Ok(())
    }

    fn give_up(&mut self, error: Error) {
        self.alert = match &error {
            Error::AlertReceived(_) => None,
            Error::DecryptError => Some(AlertDescription::BadRecordMac),
            Error::PeerSentOversizedRecord => Some(AlertDescription::RecordOverflow),
            _ => Some(AlertDescription::UnexpectedMessage),
        };
        self.failed = Some(error);
    }
}
