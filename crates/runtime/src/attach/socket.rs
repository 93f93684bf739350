//! A Unix socket of packets: each is whole or not there. Descriptors travel beside a packet.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

/// Descriptors beside one packet.
pub(crate) const DESCRIPTORS_MAX: usize = 4;
/// Peers that wait to be accepted; more are refused by the kernel.
const BACKLOG: i32 = 128;

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// Who is at the other end, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerUser {
    pub(crate) pid: i32,
    pub(crate) uid: u32,
}

/// A socket that takes connections under a path.
pub(crate) fn listen(path: &Path) -> io::Result<OwnedFd> {
    let listener = packets()?;
    rustix::net::bind(&listener, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

fn packets() -> io::Result<OwnedFd> {
    let kind = SocketType::SEQPACKET;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

impl Socket {
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let socket = packets()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// The next peer of a listener.
    pub(crate) fn accept(listener: &OwnedFd) -> io::Result<Self> {
        Ok(Self(rustix::net::accept_with(listener, SocketFlags::CLOEXEC)?))
    }

    pub(crate) fn peer(&self) -> io::Result<PeerUser> {
        let peer = rustix::net::sockopt::socket_peercred(&self.0)?;
        Ok(PeerUser { pid: peer.pid.as_raw_pid(), uid: peer.uid.as_raw() })
    }

    /// Sends a packet with descriptors; waits for room.
    pub(crate) fn send(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other(format!("{} descriptors are too many", descriptors.len())));
        }
        loop {
            match rustix::net::sendmsg(&self.0, &[IoSlice::new(packet)], &mut beside, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a packet if there is room for it now.
    pub(crate) fn try_send(&self, packet: &[u8]) -> io::Result<()> {
        Ok(rustix::net::send(&self.0, packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)?)
    }

    /// Waits for a packet of at most `bytes_max`, with its descriptors. An empty one means that the peer is gone.
    pub(crate) fn receive(&self, bytes_max: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut packet = vec![0; bytes_max];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC;
        let received = loop {
            match rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut packet)], &mut beside, flags) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        let mut descriptors = Vec::new();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(given) = message {
                descriptors.extend(given);
            }
        }
        if received.bytes > bytes_max {
            let text = format!("a packet of {} bytes is longer than {bytes_max}", received.bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        packet.truncate(received.bytes);
        Ok((packet, descriptors))
    }

    /// Waits until there is something to read, or room to write. False when the time is up.
    pub(crate) fn wait(&self, flags: PollFlags, timeout: Duration) -> io::Result<bool> {
        wait_for_any(&mut [PollFd::new(&self.0, flags)], Some(timeout))
    }

    /// Nothing more will be sent; the peer reads what was, and then the end.
    pub(crate) fn finish(&self) {
        // A peer that is gone needs no end.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Write);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits for one of several. False when the time is up.
pub(crate) fn wait_for_any(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.map(|timeout| Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 60, tv_nsec: 0 }));
    loop {
        match poll(fds, timeout.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
