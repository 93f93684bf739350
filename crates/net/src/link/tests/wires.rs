//! Wires that misbehave as networks do.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::wire::{PlainWire, Wire};

/// A wire that ends after so many bytes were read.
pub(super) struct Cutting {
    inner: PlainWire,
    left: usize,
}

impl Cutting {
    pub(super) fn new(inner: PlainWire, left: usize) -> Self {
        Self { inner, left }
    }
}

impl Wire for Cutting {
    fn raw_fd(&self) -> BorrowedFd<'_> {
        self.inner.raw_fd()
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(self.left);
        if room == 0 {
            return Ok(0);
        }
        let count = self.inner.read(&mut buffer[..room])?;
        self.left -= count;
        Ok(count)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.inner.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    fn wants_write(&self) -> bool {
        self.inner.wants_write()
    }

    fn has_buffered(&self) -> bool {
        self.inner.has_buffered()
    }

    fn finish(&mut self) {
        self.inner.finish();
    }

    fn peer_addr(&self) -> SocketAddr {
        self.inner.peer_addr()
    }

    fn is_protected(&self) -> bool {
        self.inner.is_protected()
    }
}

type Bytes = Arc<Mutex<VecDeque<u8>>>;

/// A wire in memory that takes and gives what it likes at a time, and now and then nothing.
pub(super) struct MemoryWire {
    fd: OwnedFd,
    out: Bytes,
    into: Bytes,
    takes: Vec<usize>,
    gives: Vec<usize>,
    turn: usize,
}

/// Both ends of one.
pub(super) fn memory_pair(takes: &[usize], gives: &[usize]) -> (MemoryWire, MemoryWire) {
    let (there, back) = (Bytes::default(), Bytes::default());
    let end = |out: &Bytes, into: &Bytes| MemoryWire {
        fd: rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap(),
        out: Arc::clone(out),
        into: Arc::clone(into),
        takes: takes.to_vec(),
        gives: gives.to_vec(),
        turn: 0,
    };
    (end(&there, &back), end(&back, &there))
}

impl Wire for MemoryWire {
    fn raw_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.turn += 1;
        let mut bytes = self.into.lock().unwrap();
        let count = buffer.len().min(bytes.len()).min(self.gives[self.turn % self.gives.len()]);
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        for (place, byte) in buffer.iter_mut().zip(bytes.drain(..count)) {
            *place = byte;
        }
        Ok(count)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.turn += 1;
        if self.turn.is_multiple_of(5) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let room = self.takes[self.turn % self.takes.len()];
        let mut out = self.out.lock().unwrap();
        let before = out.len();
        out.extend(slices.iter().flat_map(|slice| slice.iter()).take(room));
        Ok(out.len() - before)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wants_write(&self) -> bool {
        false
    }

    fn has_buffered(&self) -> bool {
        !self.into.lock().unwrap().is_empty()
    }

    fn set_nonblocking(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn set_timeouts(&self, _: Option<Duration>, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self) {}

    fn peer_addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 1))
    }

    fn is_protected(&self) -> bool {
        false
    }
}
