//! TLS over one TCP stream, as a wire: a connection of the library, with a larger buffer between it and the socket.
//!
//! The library reads 4 KiB at a time, so what comes is read into a buffer of ours first, as much as one system call gives, and
//! handed over from there. Everything else is the library's: records, key updates, alerts, the bound on empty records.
//!
//! The end of the stream is the peer's `close_notify`. A stream that ends without it was cut, by the network or by somebody
//! on it, and that is an error ([`crate::wire::cut`]). This end sends its own when it is finished or dropped.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustls::{ClientConnection, Connection, Error, IoState, ServerConnection};

use super::authenticated::{AuthenticatedWire, KEY_BYTES, Keys, Side};
use super::buffer::Buffer;
use super::{ClientTls, Connections, PeerIdentity, ServerTls};
use crate::wire::{Socket, Wire, cut};

/// Bytes of one read of the socket: a message of 64 KiB with what is around it, or a good part of a large object.
pub(super) const RECEIVED_BYTES: usize = 128 << 10;
/// Encrypted bytes that may wait to be sent; what is over that is not accepted. Few enough to stay in the cache between their
/// encryption and the system's copy, and enough for a message of 64 KiB in one system call.
const SENDING_BYTES: usize = 128 << 10;

/// The label with which the keys of a stream without encryption are derived.
const KEY_LABEL: &[u8] = b"EXPORTER-bireme-bulk";

/// A wire that is encrypted and whose other end has been verified.
pub struct TlsWire {
    socket: Socket,
    connection: Connection,
    identity: Option<PeerIdentity>,
    /// Bytes that came and that the library has not seen.
    received: Buffer,
    /// Decrypted bytes that the library holds.
    readable: usize,
    /// The peer has said goodbye.
    has_ended: bool,
    /// The error after which nothing that comes can be trusted.
    failed: Option<Error>,
    /// The connection goes on in another way, so there is no goodbye.
    is_handed_over: bool,
}

impl fmt::Debug for TlsWire {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsWire").field("peer", &self.socket.peer()).field("identity", &self.identity).finish()
    }
}

impl TlsWire {
    /// Speaks TLS over a stream that has been connected to a door. [`crate::door::dial`] does this and says hello.
    pub fn dial(stream: TcpStream, tls: &ClientTls) -> io::Result<Self> {
        Self::connect(Socket::new(stream, None)?, tls)
    }

    /// Answers somebody who dialled, whose first bytes have been read already.
    pub(crate) fn accept(mut socket: Socket, early: &[u8], tls: &ServerTls) -> io::Result<Self> {
        let mut connection = ServerConnection::new(tls.config()).map_err(in_words)?.into();
        let mut received = Buffer::new(RECEIVED_BYTES);
        received.append(early);
        let shaken = shake(&mut connection, &mut socket, &mut received)
            .and_then(|readable| watch(tls.connections(), &socket, &connection).map(|()| readable));
        match shaken {
            Ok(readable) => Ok(Self::over(socket, connection, received, readable)),
            Err(error) => {
                // It has been told why, and may have more to say before it listens.
                if tls_error(&error).is_some() {
                    socket.linger();
                }
                Err(error)
            }
        }
    }

    /// Speaks first.
    pub(crate) fn connect(mut socket: Socket, tls: &ClientTls) -> io::Result<Self> {
        let mut connection = ClientConnection::new(tls.config(), tls.server_name()).map_err(in_words)?.into();
        let mut received = Buffer::new(RECEIVED_BYTES);
        let readable = shake(&mut connection, &mut socket, &mut received)?;
        if let Some(connections) = tls.connections() {
            watch(connections, &socket, &connection)?;
        }
        Ok(Self::over(socket, connection, received, readable))
    }

    fn over(socket: Socket, mut connection: Connection, received: Buffer, readable: usize) -> Self {
        connection.set_buffer_limit(Some(SENDING_BYTES));
        let identity = connection.peer_certificates().and_then(|chain| chain.first()).and_then(PeerIdentity::of);
        Self { socket, connection, identity, received, readable, has_ended: false, failed: None, is_handed_over: false }
    }

    /// Who the other side is by its certificate, which has been verified; none if it has shown none.
    pub fn identity(&self) -> Option<PeerIdentity> {
        self.identity
    }

    pub(crate) fn trust(&mut self) -> io::Result<()> {
        self.socket.trust()
    }

    /// Goes on without encryption, with keys of this session. The peer does the same, and neither has said anything since the
    /// dialler was welcomed.
    pub(crate) fn without_encryption(mut self, side: Side) -> io::Result<AuthenticatedWire> {
        let key = |of: &[u8]| self.connection.export_keying_material([0; KEY_BYTES], KEY_LABEL, Some(of));
        let keys = Keys { dialler: key(b"dialler").map_err(in_words)?, door: key(b"door").map_err(in_words)? };
        if self.has_buffered() || self.wants_write() {
            let text = "the peer spoke before it was its turn";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.is_handed_over = true;
        AuthenticatedWire::begin(self.socket.share(), &keys, side)
    }

    pub(crate) fn linger(&mut self) {
        self.say_goodbye();
        self.socket.linger();
    }

    /// Writes what waits.
    fn push(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tells the peer that nothing more comes, as far as there is room for it.
    fn say_goodbye(&mut self) {
        if self.failed.is_none() {
            self.connection.send_close_notify();
        }
        // A peer that is gone, or does not read, sees a stream that was cut.
        let _ = self.push();
    }

    /// Has the library decrypt some more of what came, and reads the socket when nothing did.
    fn decrypt_more(&mut self) -> io::Result<()> {
        let state = match take_in(&mut self.connection, &mut self.socket, &mut self.received) {
            Ok(state) => state,
            Err(error) => {
                (self.readable, self.failed) = (0, tls_error(&error).cloned());
                return Err(error);
            }
        };
        (self.readable, self.has_ended) = (state.plaintext_bytes_to_read(), state.peer_has_closed());
        Ok(())
    }
}

/// Has a connection cut when the peer's certificate is not trusted any more.
fn watch(connections: &Connections, socket: &Socket, connection: &Connection) -> io::Result<()> {
    match connection.peer_certificates().and_then(|chain| chain.first()) {
        Some(certificate) => connections.watch(socket.connection(), certificate).map_err(in_words),
        // A newcomer, which gets a certificate and goes.
        None => Ok(()),
    }
}

/// Shakes hands over a stream that blocks: how many decrypted bytes came behind the handshake.
pub(super) fn shake(
    connection: &mut Connection,
    stream: &mut (impl Read + Write),
    received: &mut Buffer,
) -> io::Result<usize> {
    let mut readable = 0;
    loop {
        if connection.wants_write() {
            if let Err(error) = connection.write_tls(stream) {
                // A peer that closed may have said why.
                return Err(last_words(connection, stream, received).unwrap_or(error));
            }
        } else if connection.is_handshaking() {
            readable = take_in(connection, stream, received)?.plaintext_bytes_to_read();
        } else {
            return Ok(readable);
        }
    }
}

/// The reason of a peer that closed in the middle of the handshake, if it has told it.
fn last_words(
    connection: &mut Connection,
    stream: &mut (impl Read + Write),
    received: &mut Buffer,
) -> Option<io::Error> {
    while connection.is_handshaking() {
        if let Err(error) = take_in(connection, stream, received) {
            return Some(error).filter(|error| tls_error(error).is_some());
        }
    }
    None
}

/// Hands the library bytes that came, or are read now, and tells the peer what is wrong with them.
fn take_in(
    connection: &mut Connection,
    stream: &mut (impl Read + Write),
    received: &mut Buffer,
) -> io::Result<IoState> {
    if received.is_empty() && received.read_from(stream)? == 0 {
        return Err(cut());
    }
    let mut bytes = received.waiting();
    let taken = connection.read_tls(&mut bytes)?;
    received.consume(taken);
    connection.process_new_packets().map_err(|error| {
        // It may not listen either.
        let _ = connection.write_tls(stream);
        in_words(error)
    })
}

/// A failure of TLS as an error of the wire; the library's own error stays inside.
pub(super) fn in_words(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The error of TLS inside of an error of the wire.
pub(crate) fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

impl Wire for TlsWire {
    fn raw_fd(&self) -> BorrowedFd<'_> {
        self.socket.stream().as_fd()
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            if self.readable > 0 {
                let read = self.connection.reader().read(&mut buffer[filled..])?;
                self.readable -= read;
                filled += read;
            }
            // Only the first byte is waited for.
            if filled == buffer.len() || self.has_ended || (filled > 0 && self.received.is_empty()) {
                return Ok(filled);
            }
            if let Some(error) = &self.failed {
                // Bytes before the failure are good.
                filled += self.connection.reader().read(&mut buffer[filled..]).unwrap_or(0);
                return if filled > 0 { Ok(filled) } else { Err(in_words(error.clone())) };
            }
            if let Err(error) = self.decrypt_more()
                && self.failed.is_none()
            {
                return if filled > 0 { Ok(filled) } else { Err(error) };
            }
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(error) = &self.failed {
            return Err(in_words(error.clone()));
        }
        self.push()?;
        let mut taken = self.connection.writer().write_vectored(slices)?;
        let mut slices = slices.to_vec();
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, taken);
        loop {
            match self.push() {
                Ok(()) if rest.is_empty() => return Ok(taken),
                Ok(()) => {}
                // The bytes that were taken go when there is room.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(taken),
                Err(error) => return Err(error),
            }
            let more = self.connection.writer().write_vectored(rest)?;
            IoSlice::advance_slices(&mut rest, more);
            taken += more;
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }

    fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    fn has_buffered(&self) -> bool {
        self.readable > 0 || !self.received.is_empty() || self.failed.is_some()
    }

    fn finish(&mut self) {
        self.say_goodbye();
        // The peer may have gone already, which is what was wanted.
        let _ = self.socket.stream().shutdown(Shutdown::Write);
    }

    fn peer_addr(&self) -> SocketAddr {
        self.socket.peer()
    }

    fn is_protected(&self) -> bool {
        true
    }

    fn delay(&mut self, delay: Duration) -> io::Result<()> {
        self.socket.delay(delay)
    }
}

impl Drop for TlsWire {
    fn drop(&mut self) {
        if !self.is_handed_over && self.socket.may_say_goodbye() {
            self.say_goodbye();
        }
    }
}
