//! How many bytes a read of a socket waits for, so that its thread does not wake for every packet.
//!
//! Between two nodes with 1 Gbit/s a receiver woke every 64 KB, and all cores worked 1.23 to 1.33 times as long as for a plain copy;
//! with this 1.04 to 1.18 times. Only for the last in a chain: one that sends on what comes leaves its own link idle while it waits
//! (a broadcast to seven nodes took 1.26 instead of 1.02 times as long as one copy).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Of an object, this part is waited for at most: who joins late gets the first bytes so much later.
const PART_OF_OBJECT: u64 = 512;
/// And no more than this, of objects of any length.
const ENOUGH_BYTES: u64 = 192 << 10;
/// Less than this comes at once anyway.
const WORTHWHILE_BYTES: u64 = 64 << 10;

/// What a read of an object of this length may wait for.
pub(super) fn for_object(len: u64) -> u64 {
    let bytes = (len / PART_OF_OBJECT).min(ENOUGH_BYTES);
    if bytes < WORTHWHILE_BYTES { 1 } else { bytes }
}

/// The mark of one socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LowWater(u64);

impl LowWater {
    /// That of a new socket.
    pub(super) const fn new() -> Self {
        Self(1)
    }

    #[cfg(test)]
    pub(super) const fn at(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Has reads wait for so many bytes. They return with fewer when the timeout of the socket is over, its
    /// buffer is full or the peer has closed it.
    pub(super) fn set(&mut self, socket: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
        if self.0 == bytes {
            return Ok(());
        }
        let value = libc::c_int::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the descriptor is open as long as it is borrowed, and the kernel reads `len` bytes of `value`, which outlives the call.
        let done = unsafe {
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const value).cast(), len)
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        self.0 = bytes;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn wakes(socket: &TcpStream, within_seconds: i64) -> bool {
        let patience = Timespec { tv_sec: within_seconds, tv_nsec: 0 };
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&patience)).unwrap() == 1
    }

    #[test]
    fn who_waits_wakes_when_as_many_bytes_are_there_as_it_waits_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let mut low_water = LowWater::new();
        // Far less than the system's buffer holds: when that fills, it wakes in any case.
        low_water.set(socket.as_fd(), 9_000).unwrap();
        out.write_all(&[1; 10_000]).unwrap();
        assert!(wakes(&socket, 60));
        low_water.set(socket.as_fd(), 11_000).unwrap();
        assert!(!wakes(&socket, 0));
        out.write_all(&[1; 1_000]).unwrap();
        assert!(wakes(&socket, 60));
        low_water.set(socket.as_fd(), 12_000).unwrap();
        assert!(!wakes(&socket, 0));
        low_water.set(socket.as_fd(), 1).unwrap();
        assert!(wakes(&socket, 60));
    }

    #[test]
    fn large_objects_are_waited_for_in_larger_parts_and_small_ones_not_at_all() {
        assert_eq!([1, 16 << 20, (32 << 20) - 1].map(for_object), [1, 1, 1]);
        assert_eq!([32 << 20, 50_000_000, 1 << 30, 1 << 40].map(for_object), [64 << 10, 97_656, 192 << 10, 192 << 10]);
    }
}
