//! A link: the two rings between a pair of processes, with messages of any size.
//!
//! A message that does not fit into one frame is sent in pieces; one that does not fit into the ring now waits in the
//! sender's backlog, in order, and goes out when the receiver has made room and rung back. Who sends bounds how much
//! can be waiting (tasks in flight per lease, calls in flight per actor).

use std::collections::VecDeque;

use bireme_net::{Bell, Connection, Consumer, Corrupt, Fabric, Producer, PushError, RingSpan, SlotId};

/// Bytes of each ring of a link between two processes.
pub const LINK_RING_BYTES: u32 = 256 << 10;
/// Bytes of the ring from a process to its node: records and requests.
pub const LEDGER_RING_BYTES: u32 = 1 << 20;
/// Bytes of the ring from the node to a process.
pub const NOTICE_RING_BYTES: u32 = 256 << 10;

const WHOLE: u8 = 0;
const MORE: u8 = 1;
const LAST: u8 = 2;

/// The sending half.
pub struct Outgoing {
    producer: Producer,
    bell: Bell,
    backlog: VecDeque<Vec<u8>>,
    staged: bool,
}

impl Outgoing {
    /// The sending half that writes `span` and rings `connection` of `slot`.
    pub fn open(fabric: &Fabric, span: RingSpan, slot: SlotId, connection: Connection) -> Result<Self, String> {
        let producer = fabric.producer(span).map_err(|error| error.to_string())?;
        Ok(Self { producer, bell: fabric.bell(slot, connection), backlog: VecDeque::new(), staged: false })
    }

    /// Sends a message, now or when there is room. [`Outgoing::flush`] makes it visible.
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<(), Corrupt> {
        self.send_parts(&[], message)
    }

    /// Sends a message that is in two parts.
    #[inline]
    pub fn send_parts(&mut self, head: &[u8], rest: &[u8]) -> Result<(), Corrupt> {
        let room = self.producer.frame_max() - 1;
        if head.len() + rest.len() <= room {
            return self.stage_piece(WHOLE, head, rest);
        }
        let whole;
        let message = if head.is_empty() {
            rest
        } else {
            whole = [head, rest].concat();
            &whole
        };
        let mut pieces = message.chunks(room).peekable();
        while let Some(piece) = pieces.next() {
            let kind = if pieces.peek().is_some() { MORE } else { LAST };
            self.stage_piece(kind, &[], piece)?;
        }
        Ok(())
    }

    /// Sends a message that is written where it will be read. False when there is no place for it now: send it otherwise.
    pub fn send_in_place(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> Result<bool, Corrupt> {
        if !self.backlog.is_empty() || len >= self.producer.frame_max() {
            return Ok(false);
        }
        let staged = self.producer.stage_with(len + 1, |body| {
            if let Some((kind, message)) = body.split_first_mut() {
                *kind = WHOLE;
                write(message);
            }
            len + 1
        });
        match staged {
            Ok(()) => {
                self.staged = true;
                Ok(true)
            }
            Err(PushError::Full | PushError::TooLarge { .. }) => Ok(false),
            Err(PushError::Corrupt(corrupt)) => Err(corrupt),
        }
    }

    /// Sends a frame as it is, piece of a message or not: for the fail points.
    pub(crate) fn send_frame(&mut self, frame: &[u8]) -> Result<(), Corrupt> {
        let (kind, piece) = frame.split_first().map_or((WHOLE, frame), |(kind, piece)| (*kind, piece));
        self.stage_piece(kind, &[], piece)
    }

    #[inline]
    fn stage_piece(&mut self, kind: u8, head: &[u8], piece: &[u8]) -> Result<(), Corrupt> {
        if !self.backlog.is_empty() {
            // In order: behind what waits already, framed as it will go out.
            self.backlog.push_back([&[kind], head, piece].concat());
            return Ok(());
        }
        self.staged = true;
        match self.producer.try_stage(&[&[kind], head, piece]) {
            Ok(()) => Ok(()),
            Err(PushError::Full | PushError::TooLarge { .. }) => {
                self.backlog.push_back([&[kind], head, piece].concat());
                Ok(())
            }
            Err(PushError::Corrupt(corrupt)) => Err(corrupt),
        }
    }

    /// Makes what was sent visible and rings. Returns whether everything is out.
    #[inline]
    pub fn flush(&mut self) -> Result<bool, Corrupt> {
        if !self.backlog.is_empty() {
            self.drain_backlog()?;
        }
        if self.staged || !self.backlog.is_empty() {
            self.staged = false;
            if self.producer.publish() {
                self.bell.ring();
            }
        }
        Ok(self.backlog.is_empty())
    }

    /// Makes what was sent visible without ringing: the receiver looks by itself.
    #[inline]
    pub fn publish(&mut self) {
        if std::mem::take(&mut self.staged) {
            self.producer.publish();
        }
    }

    #[cold]
    fn drain_backlog(&mut self) -> Result<(), Corrupt> {
        while let Some(frame) = self.backlog.front() {
            match self.producer.try_stage(&[frame]) {
                Ok(()) => {
                    self.backlog.pop_front();
                    self.staged = true;
                }
                Err(PushError::Full | PushError::TooLarge { .. }) => {
                    if self.producer.publish() {
                        self.bell.ring();
                    }
                    // True when room came while we asked: then try again at once.
                    if !self.producer.want_space()? {
                        break;
                    }
                }
                Err(PushError::Corrupt(corrupt)) => return Err(corrupt),
            }
        }
        Ok(())
    }

    /// Rings the receiver whatever happened.
    pub fn ring(&mut self) {
        self.bell.ring();
    }

    /// Bytes of room in the ring.
    pub fn free_bytes(&mut self) -> usize {
        self.producer.free_bytes().unwrap_or(0)
    }

    /// Whether so many bytes fit into the ring. A ring that is broken says so when something is sent, and not here.
    pub fn has_room(&mut self, bytes: usize) -> bool {
        self.producer.free_bytes().map_or(true, |free| free >= bytes)
    }

    /// Frames that wait for room.
    pub fn backlog_frames(&self) -> usize {
        self.backlog.len()
    }

    /// Whether messages wait for room.
    pub fn is_backed_up(&self) -> bool {
        !self.backlog.is_empty()
    }
}

/// Why a message could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadMessage(pub String);

impl From<Corrupt> for BadMessage {
    fn from(corrupt: Corrupt) -> Self {
        Self(corrupt.to_string())
    }
}

/// The receiving half.
pub struct Incoming {
    consumer: Consumer,
    partial: Vec<u8>,
}

/// A message in pieces may not grow beyond this; larger values live in the store.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

impl Incoming {
    /// The receiving half that reads `span`.
    pub fn open(fabric: &Fabric, span: RingSpan) -> Result<Self, String> {
        let consumer = fabric.consumer(span).map_err(|error| error.to_string())?;
        Ok(Self { consumer, partial: Vec::new() })
    }

    /// Hands the next whole message to `read`. `None` when there is none.
    #[inline]
    pub fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, BadMessage> {
        let mut read = Some(read);
        loop {
            let partial = &mut self.partial;
            let step = self.consumer.pop(|frame| {
                let (kind, piece) = frame.split_first().map_or((u8::MAX, frame), |(kind, piece)| (*kind, piece));
                let fits = partial.len() + piece.len() <= MESSAGE_BYTES_MAX;
                match kind {
                    WHOLE if partial.is_empty() => read.take().map(|read| read(piece)).map_or(Piece::Bad, Piece::Done),
                    MORE if fits => {
                        partial.extend_from_slice(piece);
                        Piece::More
                    }
                    LAST if fits => {
                        partial.extend_from_slice(piece);
                        let message = std::mem::take(partial);
                        read.take().map(|read| read(&message)).map_or(Piece::Bad, Piece::Done)
                    }
                    _ => Piece::Bad,
                }
            })?;
            match step {
                None => return Ok(None),
                Some(Piece::Done(result)) => return Ok(Some(result)),
                Some(Piece::More) => {}
                Some(Piece::Bad) => return Err(BadMessage("a frame is not a piece of a message".into())),
            }
        }
    }

    /// Whether the sender waits for room that there is now.
    pub fn take_space_request(&mut self) -> bool {
        self.consumer.release();
        self.consumer.take_space_request()
    }
}

enum Piece<R> {
    Done(R),
    More,
    Bad,
}
