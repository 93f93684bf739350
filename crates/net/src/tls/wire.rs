//! TLS over one TCP stream, as a wire.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustls::Error;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;

use super::buffer::Buffer;
use super::handshake::{Established, Handshake};
use super::incoming::{Incoming, RAW_BYTES};
use super::outgoing::Outgoing;
use super::parts::Parts;
use super::record::Renewal;
use super::{ClientTls, PeerIdentity, ServerTls};
use crate::wire::{Socket, Wire};

/// A wire that is encrypted and whose other end has been verified.
pub struct TlsWire {
    socket: Socket,
    identity: Option<PeerIdentity>,
    renewal: Box<dyn Renewal>,
    incoming: Incoming,
    outgoing: Outgoing,
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
        let connection = UnbufferedServerConnection::new(tls.config()).map_err(in_words)?;
        let mut raw = Buffer::new(RAW_BYTES);
        raw.room()[..early.len()].copy_from_slice(early);
        raw.filled(early.len());
        match Handshake::new(connection, &mut socket, &mut raw).shake() {
            Ok(established) => Self::over(socket, raw, established),
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
        let connection = UnbufferedClientConnection::new(tls.config(), tls.server_name()).map_err(in_words)?;
        let mut raw = Buffer::new(RAW_BYTES);
        let established = Handshake::new(connection, &mut socket, &mut raw).shake()?;
        Self::over(socket, raw, established)
    }

    fn over(socket: Socket, raw: Buffer, established: Established) -> io::Result<Self> {
        let Established { identity, secrets, renewal } = established;
        let incoming = Incoming::new(raw, secrets.rx).map_err(in_words)?;
        let outgoing = Outgoing::new(secrets.tx).map_err(in_words)?;
        Ok(Self { socket, identity, renewal, incoming, outgoing })
    }

    /// Who the other side is by its certificate, which has been verified; none if it has shown none.
    pub fn identity(&self) -> Option<PeerIdentity> {
        self.identity
    }

    /// Makes a new key after so many records.
    #[cfg(test)]
    pub(super) fn renew_key_after(&mut self, records: u64) {
        self.outgoing.records_per_key = records;
    }

    pub(crate) fn trust(&mut self) -> io::Result<()> {
        self.socket.trust()
    }

    pub(crate) fn linger(&mut self) {
        self.socket.linger();
    }
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
        let read = self.incoming.read(buffer, &mut self.socket, &mut *self.renewal);
        self.outgoing.owes_key |= self.incoming.take_key_request();
        if let Some(why) = self.incoming.take_alert() {
            self.outgoing.alert(why, &mut self.socket);
        }
        read
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_with_values(slices, 0)
    }

    fn write_with_values(&mut self, slices: &[IoSlice<'_>], values: u64) -> io::Result<usize> {
        self.outgoing.write(Parts::new(slices, values), &mut self.socket, &mut *self.renewal)
    }

    fn leave_values_open(&mut self) {
        self.outgoing.leaves_values_open = true;
        self.incoming.takes_open = true;
    }

    fn flush(&mut self) -> io::Result<()> {
        self.outgoing.push(&mut self.socket)
    }

    fn wants_write(&self) -> bool {
        !self.outgoing.is_empty()
    }

    fn has_buffered(&self) -> bool {
        self.incoming.has_buffered()
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
