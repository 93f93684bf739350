//! A connection whose bytes arrive later than they came: for tests and benchmarks of links that are longer than a lab's.
//!
//! The kernels that labs run on can shape and cut links but not delay them, so this is done here: a thread stands between a
//! connection and its user, takes what comes at the rate at which it comes, and hands it on when its time is up. So the rate
//! stays, and only the time of arrival changes. Each end delays what it receives: with equal settings a message is delayed
//! once, and a round trip twice.
//!
//! Bounds: what waits of one connection is at most [`WAITING_BYTES_MAX`], then no more is taken from the network; when its
//! user has left, what it said last has [`FLUSH_WAIT`] to leave.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What may wait for its time: 10 Gbit/s for 25 ms.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// Taken at once.
const PIECE_BYTES: usize = 256 << 10;
/// How long the last words of a user who has left may take.
const FLUSH_WAIT: Duration = Duration::from_secs(5);
/// The stack of the thread: its buffer is not on it.
const STACK_BYTES: usize = 128 << 10;

/// The end for the user of a connection whose bytes are to arrive so much later.
pub(super) fn delayed(far: TcpStream, delay: Duration) -> io::Result<TcpStream> {
    let (user, near) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let relay = Relay {
        inward: Lane::new(delay, WAITING_BYTES_MAX),
        outward: Lane::new(Duration::ZERO, PIECE_BYTES),
        near,
        far,
        left_at: None,
    };
    thread::Builder::new().name("bireme-delay".into()).stack_size(STACK_BYTES).spawn(|| relay.run())?;
    // A socket is a socket: nothing is asked of it any more that only TCP has.
    Ok(TcpStream::from(OwnedFd::from(user)))
}

/// Both directions of a connection.
struct Relay {
    near: UnixStream,
    far: TcpStream,
    /// From the network to the user.
    inward: Lane,
    /// From the user to the network.
    outward: Lane,
    /// When the user was seen to have left.
    left_at: Option<Instant>,
}

impl Relay {
    fn run(mut self) {
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let now = Instant::now();
            if self.inward.write(&mut &self.near, now).is_err() {
                self.inward.give_up();
            }
            if self.outward.write(&mut &self.far, now).is_err() {
                self.outward.give_up();
                // Whoever only writes would not notice otherwise.
                let _ = self.near.shutdown(Shutdown::Read);
            }
            if self.inward.is_through() {
                let _ = self.near.shutdown(Shutdown::Write);
            }
            if self.outward.is_through() {
                let _ = self.far.shutdown(Shutdown::Write);
            }
            let late = self.left_at.is_some_and(|left| left.elapsed() > FLUSH_WAIT);
            let nobody_reads = self.inward.is_done || self.left_at.is_some();
            if late || (self.outward.is_done && nobody_reads) {
                return;
            }
            let Some([near, far]) = self.wait(now) else { return };
            if far.intersects(READABLE) {
                self.inward.read(&mut &self.far, &mut buffer);
            }
            if near.intersects(READABLE) {
                self.outward.read(&mut &self.near, &mut buffer);
                if self.outward.has_ended && near.contains(PollFlags::HUP) {
                    self.left_at.get_or_insert_with(Instant::now);
                }
            }
        }
    }

    /// Waits until one of the two ends can go on or something is due. What is not waited for is not asked about: an end that is
    /// gone would answer at once, for ever.
    fn wait(&self, now: Instant) -> Option<[PollFlags; 2]> {
        let interest = |takes: &Lane, gives: &Lane| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, takes.has_room());
            flags.set(PollFlags::OUT, gives.is_blocked);
            flags
        };
        let ends: [(BorrowedFd<'_>, PollFlags); 2] = [
            (self.near.as_fd(), interest(&self.outward, &self.inward)),
            (self.far.as_fd(), interest(&self.inward, &self.outward)),
        ];
        let asked = ends.iter().filter(|(_, flags)| !flags.is_empty());
        let mut polled: Vec<PollFd<'_>> = asked.map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let due = [&self.inward, &self.outward].into_iter().filter_map(Lane::due).min();
        let flush = self.left_at.map(|left| left + FLUSH_WAIT);
        let until = [due, flush].into_iter().flatten().min();
        if polled.is_empty() && until.is_none() {
            return None;
        }
        let left = until.and_then(|until| Timespec::try_from(until.saturating_duration_since(now)).ok());
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        let mut seen = polled.iter().map(PollFd::revents);
        Some(ends.map(|(_, flags)| if flags.is_empty() { flags } else { seen.next().unwrap_or(flags) }))
    }
}

/// An end or an error is something to read.
const READABLE: PollFlags = PollFlags::IN.union(PollFlags::HUP).union(PollFlags::ERR);

/// One direction.
struct Lane {
    delay: Duration,
    bytes_max: usize,
    /// What came, and when it is to go on.
    waiting: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// Bytes of the first piece that have gone on.
    written: usize,
    /// There was no room at the end that takes.
    is_blocked: bool,
    /// Nothing more comes.
    has_ended: bool,
    /// Nothing more goes on, and the other end knows.
    is_done: bool,
}

impl Lane {
    fn new(delay: Duration, bytes_max: usize) -> Self {
        let waiting = VecDeque::new();
        Self { delay, bytes_max, waiting, bytes: 0, written: 0, is_blocked: false, has_ended: false, is_done: false }
    }

    fn has_room(&self) -> bool {
        !self.has_ended && self.bytes < self.bytes_max
    }

    /// When the next piece is due that is not held up by anything else.
    fn due(&self) -> Option<Instant> {
        self.waiting.front().filter(|_| !self.is_blocked).map(|(due, _)| *due)
    }

    fn read(&mut self, from: &mut impl Read, buffer: &mut [u8]) {
        if !self.has_room() {
            return;
        }
        match from.read(buffer) {
            Ok(0) => self.has_ended = true,
            Ok(read) => {
                self.waiting.push_back((Instant::now() + self.delay, buffer[..read].to_vec()));
                self.bytes += read;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.has_ended = true,
        }
    }

    /// Hands on what is due, as far as there is room.
    fn write(&mut self, to: &mut impl Write, now: Instant) -> io::Result<()> {
        self.is_blocked = false;
        while let Some((_, piece)) = self.waiting.front().filter(|(due, _)| *due <= now) {
            match to.write(&piece[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.written == piece.len() {
                self.bytes -= self.written;
                self.written = 0;
                self.waiting.pop_front();
            }
        }
        Ok(())
    }

    /// The end that takes is gone.
    fn give_up(&mut self) {
        self.waiting.clear();
        (self.bytes, self.is_blocked, self.has_ended, self.is_done) = (0, false, true, true);
    }

    /// True once: all has come and gone on, and the end that takes is to be told.
    fn is_through(&mut self) -> bool {
        let through = self.has_ended && self.waiting.is_empty() && !self.is_done;
        self.is_done |= through;
        through
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const DELAY: Duration = Duration::from_millis(20);

    /// A connection: an end as it is, and one with a delay.
    fn ends() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let plain = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (plain, delayed(listener.accept().unwrap().0, DELAY).unwrap())
    }

    #[test]
    fn what_comes_is_late_and_what_goes_is_not_delayed_again() {
        let (mut plain, mut slow) = ends();
        let start = Instant::now();
        plain.write_all(b"there").unwrap();
        let mut read = [0; 5];
        slow.read_exact(&mut read).unwrap();
        assert!(start.elapsed() >= DELAY && &read == b"there");
        slow.write_all(b"back!").unwrap();
        plain.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"back!");
    }

    #[test]
    fn pieces_that_follow_each_other_are_delayed_together() {
        let (mut plain, mut slow) = ends();
        let start = Instant::now();
        let bytes: Vec<u8> = (0..(8 << 20) + 7_u32).map(|n| (n % 251) as u8).collect();
        let sent = bytes.clone();
        let sending = thread::spawn(move || sent.chunks(32 << 10).for_each(|piece| plain.write_all(piece).unwrap()));
        let mut read = vec![0; bytes.len()];
        slow.read_exact(&mut read).unwrap();
        let (took, one_by_one) = (start.elapsed(), DELAY * (bytes.len() / (32 << 10)) as u32);
        assert!(
            read == bytes && took >= DELAY && took < one_by_one / 2,
            "{took:?} for what one by one is {one_by_one:?}"
        );
        sending.join().unwrap();
    }

    #[test]
    fn the_end_comes_behind_the_bytes_in_both_directions() {
        let (mut plain, mut slow) = ends();
        plain.write_all(b"last").unwrap();
        plain.shutdown(Shutdown::Write).unwrap();
        let mut read = Vec::new();
        slow.read_to_end(&mut read).unwrap();
        assert_eq!(read, b"last");
        slow.write_all(&vec![7; 4 << 20]).unwrap();
        drop(slow);
        read.clear();
        plain.read_to_end(&mut read).unwrap();
        assert_eq!(read.len(), 4 << 20);
    }

    #[test]
    fn a_writer_notices_that_the_other_end_is_gone() {
        let (plain, mut slow) = ends();
        drop(plain);
        slow.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        let error = loop {
            if let Err(error) = slow.write_all(&[1; 4096]) {
                break error;
            }
        };
        assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
    }
}
