//! A connection between two machines as its users see it: bytes in, bytes out, and one descriptor to wait on.
//!
//! The door hands out a `Box<dyn Wire>`, plain TCP or TLS over it, and no user has to know which. The same wire works
//! blocking (heartbeats, object bytes: a thread of their own) and nonblocking (control links: one epoll loop).
//!
//! Three rules for a loop that waits on the descriptor, since TLS keeps bytes on both sides of it:
//!
//! * read until `WouldBlock`, or ask [`Wire::has_buffered`] before sleeping: bytes that were decrypted already do not
//!   make the descriptor readable again;
//! * what `write_vectored` accepted may still be inside: while [`Wire::wants_write`], wait for the descriptor to be
//!   writable and [`Wire::flush`];
//! * the end of the stream is a read of zero bytes. A protected wire gives it only when the peer has said goodbye; one that
//!   ends without was cut, which is an error (`UnexpectedEof`). A plain one cannot tell the two apart.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};

mod delay;
#[cfg(test)]
mod tests;

/// How long a peer that is refused may still be read from.
const LINGER: Duration = Duration::from_millis(250);
/// And how much.
const LINGER_BYTES_MAX: usize = 64 << 10;

/// One connection to a peer on another machine, or on this one over loopback.
pub trait Wire: Send {
    /// The descriptor to wait on.
    fn raw_fd(&self) -> BorrowedFd<'_>;

    /// Reads what is there, first of what is buffered. Zero is the end of the stream.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Takes some of the bytes. They may be buffered: see [`Wire::wants_write`].
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Pushes out what is buffered; `WouldBlock` when not all of it went.
    fn flush(&mut self) -> io::Result<()>;

    /// Whether bytes are buffered that the peer has not been sent.
    fn wants_write(&self) -> bool;

    /// Whether a read may give bytes although the descriptor is not readable.
    fn has_buffered(&self) -> bool;

    /// Whether reads and writes return `WouldBlock` instead of waiting.
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(self.raw_fd(), nonblocking)?)
    }

    /// How long one blocking system call may wait before it is `WouldBlock`; `None` is for ever.
    fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        set_socket_timeout(self.raw_fd(), Timeout::Recv, read)?;
        Ok(set_socket_timeout(self.raw_fd(), Timeout::Send, write)?)
    }

    /// Says goodbye, as far as the peer takes it at once: nothing is written after it, and nothing that comes after it counts. A wire
    /// that is dropped does this by itself.
    fn finish(&mut self);

    /// Who is at the other end.
    fn peer_addr(&self) -> SocketAddr;

    /// Whether the bytes are authenticated, and the wire alone can read them from its descriptor.
    fn is_protected(&self) -> bool;

    /// Lets what comes from now on arrive so much later: for tests and benchmarks of longer links. To be called before
    /// anything else is done with a wire, since it may have another descriptor afterwards.
    fn delay(&mut self, _delay: Duration) -> io::Result<()> {
        Err(io::Error::new(ErrorKind::Unsupported, "this wire cannot be delayed"))
    }
}

/// The wire, and what comes on it arrives so much later.
pub fn delayed(mut wire: Box<dyn Wire>, delay: Duration) -> io::Result<Box<dyn Wire>> {
    if !delay.is_zero() {
        wire.delay(delay)?;
    }
    Ok(wire)
}

/// A protected stream that ended without the peer's goodbye: its process died, or somebody on the way cut it.
pub(crate) fn cut() -> io::Error {
    let text = "the connection was cut: it ended without the peer's goodbye";
    io::Error::new(ErrorKind::UnexpectedEof, text)
}

/// Writes everything and pushes it out, on a wire that blocks.
pub fn write_all(wire: &mut dyn Wire, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut left = &mut slices[..];
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match wire.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    wire.flush()
}

/// Fills the buffer, on a wire that blocks.
pub fn read_exact(wire: &mut dyn Wire, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match wire.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => buffer = &mut buffer[read..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What a peer may still use of our patience, until it is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// When everything has to be done, however many bytes still come.
    pub(crate) deadline: Instant,
    /// How many bytes it may still send.
    pub(crate) bytes: usize,
}

/// A TCP stream that is patient only for so long, as long as it is told to be.
///
/// With patience, every system call waits at most until the deadline, so a peer that sends one byte at a time gains
/// nothing by it.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Arc<TcpStream>,
    /// The connection itself, also where what comes is delayed.
    connection: Arc<TcpStream>,
    peer: SocketAddr,
    patience: Option<Patience>,
    /// The process that has it: a fork of it has the same connection, and no right to end it.
    process: u32,
}

impl Socket {
    /// Small messages leave at once: nothing waits for the acknowledgement of what went before.
    pub(crate) fn new(stream: TcpStream, patience: Option<Patience>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let peer = stream.peer_addr()?;
        let stream = Arc::new(stream);
        Ok(Self { connection: Arc::clone(&stream), stream, peer, patience, process: std::process::id() })
    }

    /// The same connection, with the same patience.
    pub(crate) fn share(&self) -> Self {
        let (stream, connection) = (Arc::clone(&self.stream), Arc::clone(&self.connection));
        Self { stream, connection, ..*self }
    }

    /// The connection, for whoever may have to cut it.
    pub(crate) fn connection(&self) -> &Arc<TcpStream> {
        &self.connection
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// From now on waits for ever and counts nothing.
    pub(crate) fn trust(&mut self) -> io::Result<()> {
        self.patience = None;
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)
    }

    /// Prepares for a goodbye that waits for nobody. False: nothing is to be said.
    pub(crate) fn may_say_goodbye(&self) -> bool {
        self.process == std::process::id() && self.stream.set_nonblocking(true).is_ok()
    }

    /// Lets what comes from now on arrive later.
    pub(crate) fn delay(&mut self, delay: Duration) -> io::Result<()> {
        self.stream = Arc::new(delay::delayed(self.stream.try_clone()?, delay)?);
        Ok(())
    }

    /// Sends no more and reads what still comes, for a moment: a connection that is closed with unread bytes is reset,
    /// and the peer may lose what it was told.
    pub(crate) fn linger(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        self.patience = Some(Patience { deadline: Instant::now() + LINGER, bytes: LINGER_BYTES_MAX });
        let mut bytes = [0; 4096];
        while self.read(&mut bytes).is_ok_and(|read| read > 0) {}
    }

    /// The time that is left, of which a system call gets no zero: that would mean for ever.
    fn left(patience: &Patience) -> io::Result<Duration> {
        let left = patience.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left.max(Duration::from_millis(1))) }
    }

    fn late(error: io::Error) -> io::Error {
        if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(patience) = &mut self.patience else { return (&*self.stream).read(buffer) };
        self.stream.set_read_timeout(Some(Self::left(patience)?))?;
        let room = buffer.len().min(patience.bytes);
        if room == 0 && !buffer.is_empty() {
            let text = "more bytes than a peer may send before it is known";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let read = (&*self.stream).read(&mut buffer[..room]).map_err(Self::late)?;
        patience.bytes -= read;
        Ok(read)
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(patience) = &self.patience else { return (&*self.stream).write_vectored(slices) };
        self.stream.set_write_timeout(Some(Self::left(patience)?))?;
        (&*self.stream).write_vectored(slices).map_err(Self::late)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A wire without any protection, for loopback.
#[derive(Debug)]
pub struct PlainWire {
    socket: Socket,
    /// Bytes that were read to find out what the peer speaks, handed out first.
    early: Vec<u8>,
}

impl PlainWire {
    /// Takes over a connected stream.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        Ok(Self::over(Socket::new(stream, None)?, Vec::new()))
    }

    pub(crate) fn over(socket: Socket, early: Vec<u8>) -> Self {
        Self { socket, early }
    }

    pub(crate) fn trust(&mut self) -> io::Result<()> {
        self.socket.trust()
    }

    pub(crate) fn linger(&mut self) {
        self.socket.linger();
    }
}

impl Wire for PlainWire {
    fn raw_fd(&self) -> BorrowedFd<'_> {
        self.socket.stream.as_fd()
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.early.is_empty() {
            return self.socket.read(buffer);
        }
        let taken = buffer.len().min(self.early.len());
        buffer[..taken].copy_from_slice(&self.early[..taken]);
        self.early.drain(..taken);
        Ok(taken)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wants_write(&self) -> bool {
        false
    }

    fn has_buffered(&self) -> bool {
        !self.early.is_empty()
    }

    fn finish(&mut self) {
        // The peer may have gone already, which is what was wanted.
        let _ = self.socket.stream.shutdown(Shutdown::Write);
    }

    fn peer_addr(&self) -> SocketAddr {
        self.socket.peer
    }

    fn is_protected(&self) -> bool {
        false
    }

    fn delay(&mut self, delay: Duration) -> io::Result<()> {
        self.socket.delay(delay)
    }
}
