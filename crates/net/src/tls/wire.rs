//! TLS over one TCP stream, as a wire.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustls::{ClientConnection, Connection, ServerConnection};

use super::{ClientTls, PeerIdentity, ServerTls};
use crate::wire::{Socket, Wire};

/// Bytes of one read of the socket. The library would read 4 KiB at a time, which costs a system call for each.
const RAW_BYTES: usize = 64 << 10;
/// Bytes that may wait to be sent; what is over that is not accepted. So few that they stay in the cache between their encryption
/// and the system's copy, and in the allocator's hands between two times.
const SENDING_BYTES_MAX: usize = 64 << 10;

/// A wire that is encrypted and whose other end has been verified.
#[derive(Debug)]
pub struct TlsWire {
    socket: Socket,
    connection: Connection,
    /// Bytes as they came, of which `start..end` the connection has not seen.
    raw: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes that the connection has decrypted and nobody has read.
    plain: usize,
    ended: bool,
}

impl TlsWire {
    /// Speaks TLS over a stream that has been connected to a door. [`crate::door::dial`] does this and says hello.
    pub fn dial(stream: TcpStream, tls: &ClientTls) -> io::Result<Self> {
        Self::connect(Socket::new(stream, None)?, tls)
    }

    /// Answers somebody who dialled, whose first bytes have been read already.
    pub(crate) fn accept(socket: Socket, early: &[u8], tls: &ServerTls) -> io::Result<Self> {
        let connection = ServerConnection::new(tls.config()).map_err(in_words)?;
        let mut wire = Self::over(socket, connection.into());
        wire.raw[..early.len()].copy_from_slice(early);
        wire.end = early.len();
        wire.shake_hands().inspect_err(|error| {
            // It has been told why, and may have more to say before it listens.
            if tls_error(error).is_some() {
                wire.socket.linger();
            }
        })?;
        Ok(wire)
    }

    /// Speaks first.
    pub(crate) fn connect(socket: Socket, tls: &ClientTls) -> io::Result<Self> {
        let connection = ClientConnection::new(tls.config(), tls.server_name()).map_err(in_words)?;
        let mut wire = Self::over(socket, connection.into());
        wire.shake_hands()?;
        Ok(wire)
    }

    fn over(socket: Socket, mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(SENDING_BYTES_MAX));
        let raw = vec![0; RAW_BYTES].into_boxed_slice();
        Self { socket, connection, raw, start: 0, end: 0, plain: 0, ended: false }
    }

    fn shake_hands(&mut self) -> io::Result<()> {
        while self.connection.is_handshaking() {
            if let Err(error) = self.push() {
                return Err(self.last_words().unwrap_or(error));
            }
            if self.connection.is_handshaking() {
                self.pull()?;
            }
            if self.ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.push()
    }

    /// Why a peer that closed did so, if it has said it.
    fn last_words(&mut self) -> Option<io::Error> {
        while !self.ended && self.plain == 0 {
            if let Err(error) = self.pull() {
                return tls_error(&error).is_some().then_some(error);
            }
        }
        None
    }

    /// Who the other side is by its certificate, which has been verified; none if it has shown none.
    pub fn identity(&self) -> Option<PeerIdentity> {
        self.connection.peer_certificates()?.first().and_then(PeerIdentity::of)
    }

    pub(crate) fn trust(&mut self) -> io::Result<()> {
        self.socket.trust()
    }

    pub(crate) fn linger(&mut self) {
        self.socket.linger();
    }

    /// Hands the connection some bytes, from the socket when there are no others.
    fn pull(&mut self) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.end = self.socket.read(&mut self.raw)?;
            self.ended = self.end == 0;
            if self.ended {
                return Ok(());
            }
        }
        let taken = self.connection.read_tls(&mut &self.raw[self.start..self.end])?;
        self.start += taken;
        let state = self.connection.process_new_packets().map_err(|error| {
            // The peer is told why, if it still listens.
            let _ = self.push();
            in_words(error)
        })?;
        self.plain = state.plaintext_bytes_to_read();
        // After the goodbye nothing counts.
        self.ended = state.peer_has_closed() || taken == 0;
        Ok(())
    }

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
}

/// A failure of TLS as an error of the wire; the library's own error stays inside.
fn in_words(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The error of TLS inside of an error of the wire.
pub(crate) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

impl Wire for TlsWire {
    fn raw_fd(&self) -> BorrowedFd<'_> {
        self.socket.stream().as_fd()
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while self.plain == 0 {
            if self.ended {
                return Ok(0);
            }
            self.pull()?;
        }
        let read = self.connection.reader().read(buffer)?;
        self.plain -= read;
        Ok(read)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.push() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let taken = self.connection.writer().write_vectored(slices)?;
        if taken == 0 && slices.iter().any(|slice| !slice.is_empty()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match self.push() {
            // It is accepted, and goes when there is room.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }

    fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    fn has_buffered(&self) -> bool {
        self.plain > 0 || (!self.ended && self.start < self.end)
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.stream().set_nonblocking(nonblocking)
    }

    fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        self.socket.stream().set_read_timeout(read)?;
        self.socket.stream().set_write_timeout(write)
    }

    fn shutdown(&self) {
        // The peer may have gone already, which is what was wanted.
        let _ = self.socket.stream().shutdown(Shutdown::Both);
    }

    fn peer_addr(&self) -> SocketAddr {
        self.socket.peer()
    }

    fn is_encrypted(&self) -> bool {
        true
    }

    fn delay(&mut self, delay: Duration) -> io::Result<()> {
        self.socket.delay(delay)
    }
}
