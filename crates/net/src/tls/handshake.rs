//! How a connection begins: the library shakes hands and then hands over the keys, which `record` uses from there on.
//!
//! The library is given one record at a time, so that it never sees one that is for the time after the handshake.

use std::io::{self, Read, Write};

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, InsufficientSizeError, UnbufferedStatus};
use rustls::{CommonState, Error, ExtractedSecrets};

use super::PeerIdentity;
use super::buffer::Buffer;
use super::record::{Renewal, record_bytes};
use super::wire::in_words;

/// The two sides of a handshake, of which the library makes two types.
pub(super) trait Shaking: Sized {
    /// Which side.
    type Side;

    /// Looks at what came.
    fn process<'c, 'i>(&'c mut self, came: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Side>;

    /// What is known of the connection.
    fn state(&self) -> &CommonState;

    /// The keys of both directions, and where the next ones come from.
    fn finish(self) -> Result<(ExtractedSecrets, Box<dyn Renewal>), Error>;
}

impl Shaking for UnbufferedClientConnection {
    type Side = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, came: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, ClientConnectionData> {
        self.process_tls_records(came)
    }

    fn state(&self) -> &CommonState {
        self
    }

    fn finish(self) -> Result<(ExtractedSecrets, Box<dyn Renewal>), Error> {
        let (secrets, connection) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Box::new(connection)))
    }
}

impl Shaking for UnbufferedServerConnection {
    type Side = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, came: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, ServerConnectionData> {
        self.process_tls_records(came)
    }

    fn state(&self) -> &CommonState {
        self
    }

    fn finish(self) -> Result<(ExtractedSecrets, Box<dyn Renewal>), Error> {
        let (secrets, connection) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Box::new(connection)))
    }
}

/// What a handshake leaves behind.
pub(super) struct Established {
    /// Who the other side is, if it has shown a certificate, which has been verified.
    pub(super) identity: Option<PeerIdentity>,
    /// The keys of both directions.
    pub(super) secrets: ExtractedSecrets,
    /// Where the next ones come from.
    pub(super) renewal: Box<dyn Renewal>,
}

/// What the library wants next.
#[derive(Clone, Copy)]
enum Next {
    /// To be called again.
    Again,
    /// What was encoded sent.
    Send,
    /// Another record.
    Record,
    /// Nothing.
    Done,
}

/// A handshake over a stream that blocks.
pub(super) struct Handshake<'a, C, S> {
    connection: C,
    socket: &'a mut S,
    raw: &'a mut Buffer,
    /// Of what waits in `raw`, so much has been shown to the library and is kept: a message may be in several records.
    shown: usize,
    out: Vec<u8>,
}

impl<'a, C: Shaking, S: Read + Write> Handshake<'a, C, S> {
    pub(super) fn new(connection: C, socket: &'a mut S, raw: &'a mut Buffer) -> Self {
        Self { connection, socket, raw, shown: 0, out: Vec::new() }
    }

    /// Shakes hands. What comes behind it stays in the buffer.
    pub(super) fn shake(mut self) -> io::Result<Established> {
        loop {
            match self.advance() {
                Ok(Next::Again) => {}
                Ok(Next::Send) => {
                    if let Err(error) = self.socket.write_all(&std::mem::take(&mut self.out)) {
                        return Err(self.last_words().unwrap_or(error));
                    }
                }
                Ok(Next::Record) => self.next_record()?,
                Ok(Next::Done) => break,
                Err(error) => {
                    self.tell_why();
                    return Err(in_words(error));
                }
            }
        }
        let chain = self.connection.state().peer_certificates();
        let identity = chain.and_then(|chain| chain.first()).and_then(PeerIdentity::of);
        let (secrets, renewal) = self.connection.finish().map_err(in_words)?;
        Ok(Established { identity, secrets, renewal })
    }

    fn advance(&mut self) -> Result<Next, Error> {
        let UnbufferedStatus { discard, state } = self.connection.process(&mut self.raw.waiting_mut()[..self.shown]);
        let next = match state {
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, &mut self.out).map(|()| Next::Again),
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Ok(Next::Send)
            }
            Ok(ConnectionState::BlockedHandshake) => Ok(Next::Record),
            Ok(ConnectionState::WriteTraffic(_)) => Ok(Next::Done),
            Ok(_) => Err(Error::HandshakeNotComplete),
            Err(error) => Err(error),
        };
        self.raw.consume(discard);
        self.shown -= discard;
        next
    }

    /// Takes in one more record.
    fn next_record(&mut self) -> io::Result<()> {
        loop {
            let rest = &self.raw.waiting()[self.shown..];
            match record_bytes(rest) {
                Ok(Some(bytes)) if bytes <= rest.len() => {
                    self.shown += bytes;
                    return Ok(());
                }
                Ok(_) => {}
                // The library finds out what is wrong with it, and tells the peer.
                Err(_) => {
                    self.shown += rest.len();
                    return Ok(());
                }
            }
            if self.raw.read_from(self.socket)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Tells the peer why there is no handshake, if it still listens.
    fn tell_why(&mut self) {
        // It counts on seeing again what it has not discarded.
        let status = self.connection.process(&mut self.raw.waiting_mut()[..self.shown]);
        if let Ok(ConnectionState::EncodeTlsData(data)) = status.state
            && encode(data, &mut self.out).is_ok()
        {
            let _ = self.socket.write_all(&self.out);
        }
    }

    /// Why a peer that closed did so, if it has said it.
    fn last_words(&mut self) -> Option<io::Error> {
        loop {
            match self.advance() {
                Ok(Next::Done) => return None,
                Ok(Next::Record) => self.next_record().ok()?,
                Ok(_) => {}
                Err(error) => return Some(in_words(error)),
            }
        }
    }
}

fn encode<Side>(mut data: EncodeTlsData<'_, Side>, out: &mut Vec<u8>) -> Result<(), Error> {
    let from = out.len();
    let wanted = match data.encode(&mut []) {
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => required_size,
        Ok(_) | Err(EncodeError::AlreadyEncoded) => return Ok(()),
    };
    out.resize(from + wanted, 0);
    data.encode(&mut out[from..]).map(|_| ()).map_err(|error| Error::General(error.to_string()))
}
