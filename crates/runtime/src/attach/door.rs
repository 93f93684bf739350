//! The node's side: a thread that accepts connections, and one for each driver, which greets it and then waits for its end.
//!
//! A driver is known to be gone by the end of its socket or of its process, whichever comes first: a process that the driver
//! forked may hold the socket open. Whoever does not say a hello within [`HELLO_WAIT`] is dropped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bireme_core::id::{DRIVERS_MAX, ProcessId};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::message::encode_answer;
use super::message::{
    FromDriver, HELLO_BYTES_MAX, Hello, PACKET_BYTES_MAX, Program, ToDriver, Welcome, decode, encode,
};
use super::program::{Executable, Programs};
use super::socket::{self, Socket, wait_for_any};
use crate::error::Error;
use crate::keeper::Keeper;
use crate::node::{KeeperStart, Mail, SharedMemory, Word};
use crate::output::OutputLine;
use crate::thread;

/// How long a peer may take for its hello.
pub const HELLO_WAIT: Duration = Duration::from_secs(5);
/// How long the node may take for its answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// How long lines wait for a driver that does not read, before they are dropped.
const LINES_WAIT: Duration = Duration::from_millis(100);
/// Connections at a time, greeted or not; more are refused.
pub const CONNECTIONS_MAX: usize = DRIVERS_MAX as usize + 64;

/// The way from the node to an attached driver.
pub(crate) struct DriverLine {
    socket: Socket,
    /// Lines that were dropped and not told.
    dropped: AtomicUsize,
}

impl DriverLine {
    /// Passes lines on. They wait for a moment when the driver does not read, if they may, and are dropped and counted then.
    pub(crate) fn lines(&self, line: OutputLine, may_wait: bool) {
        let OutputLine { pid, name, stream, node, text } = line;
        let lines = text.split('\n').count();
        let stuck = self.dropped.load(Ordering::Relaxed) > 0;
        if stuck && !self.tell_dropped() {
            self.note_dropped(lines as u64);
            return;
        }
        let packet = encode(&ToDriver::Lines { pid, name, stream, node, text });
        let sent = self.offer(&packet) || may_wait && self.waits() && self.offer(&packet);
        if !sent {
            self.note_dropped(lines as u64);
        }
    }

    /// So many lines did not come this far.
    pub(crate) fn note_dropped(&self, lines: u64) {
        self.dropped.fetch_add(usize::try_from(lines).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Says the last word.
    pub(crate) fn finish(&self, reason: &str) {
        self.tell_dropped();
        self.offer(&encode(&ToDriver::Over(reason.to_owned())));
        self.socket.finish();
    }

    fn tell_dropped(&self) -> bool {
        let lines = self.dropped.swap(0, Ordering::Relaxed);
        let told = lines == 0 || self.offer(&encode(&ToDriver::LinesDropped(lines as u64)));
        if !told {
            self.dropped.fetch_add(lines, Ordering::Relaxed);
        }
        told
    }

    /// True when it went out, or nobody is there to read it.
    fn offer(&self, packet: &[u8]) -> bool {
        !matches!(self.socket.try_send(packet), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    fn waits(&self) -> bool {
        self.socket.wait(PollFlags::OUT, LINES_WAIT).unwrap_or(false)
    }
}

/// A driver that the node has to answer.
pub(crate) struct Knock {
    pub(crate) pid: u32,
    pub(crate) settings: u64,
    pub(crate) line: Arc<DriverLine>,
    pub(crate) start: KeeperStart,
    pub(crate) keeper: Keeper,
    pub(crate) executable: Option<Executable>,
    pub(crate) program: Program,
    pub(crate) answer: Sender<Result<Welcome, String>>,
}

/// What the threads of the door share.
struct Porter {
    mail: Mail,
    memory: SharedMemory,
    programs: Arc<Programs>,
    connections: AtomicUsize,
}

/// The open door of a node. Closed when dropped; drivers that are attached stay.
pub(crate) struct Door {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    pub(crate) fn open(path: &Path, mail: Mail, memory: SharedMemory, programs: Arc<Programs>) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::System { what: "listening for programs", reason: error.to_string() };
        let listener = socket::listen(path).map_err(failed)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let stopped = stop.try_clone().map_err(failed)?;
        let porter = Arc::new(Porter { mail, memory, programs, connections: AtomicUsize::new(0) });
        let thread = thread::spawn("bireme-attach", move || accept_all(&listener, &stopped, &porter))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // The counter is far from full, so that this cannot fail.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

fn accept_all(listener: &OwnedFd, stop: &OwnedFd, porter: &Arc<Porter>) {
    loop {
        let mut either = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if wait_for_any(&mut either, None).is_err() || !either[1].revents().is_empty() {
            return;
        }
        let Ok(socket) = Socket::accept(listener) else { continue };
        if porter.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            refuse(&socket, &format!("the node has {CONNECTIONS_MAX} connections already; try again later"));
            porter.connections.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let theirs = Arc::clone(porter);
        let greeted = thread::spawn("bireme-driver", move || {
            theirs.serve(socket);
            theirs.connections.fetch_sub(1, Ordering::AcqRel);
        });
        if greeted.is_err() {
            porter.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn refuse(socket: &Socket, reason: &str) {
    // Who has gone meanwhile needs no answer.
    let _ = socket.try_send(&encode_answer(&Err(reason.to_owned())));
}

impl Porter {
    /// One connection, from its first word to its end.
    fn serve(&self, socket: Socket) {
        let line = Arc::new(DriverLine { socket, dropped: AtomicUsize::new(0) });
        let (process, pidfd) = match self.greet(&line) {
            Ok(greeted) => greeted,
            Err(reason) => {
                eprintln!("bireme: a program was refused: {reason}");
                refuse(&line.socket, &reason);
                return;
            }
        };
        let mut left = false;
        while let Some(FromDriver::Detach) = wait_for_end(&line.socket, &pidfd) {
            left = true;
            self.mail.put(Word::DriverLeft { process, how: "shut its runtime down".to_owned() });
        }
        if !left {
            self.mail.put(Word::DriverLeft { process, how: "ended without a word".to_owned() });
        }
    }

    /// Hears a hello and answers it; the error is for the driver.
    fn greet(&self, line: &Arc<DriverLine>) -> Result<(ProcessId, OwnedFd), String> {
        let socket = &line.socket;
        let peer = socket.peer().map_err(|error| format!("its user is not known: {error}"))?;
        let user = rustix::process::geteuid().as_raw();
        if peer.uid != user {
            return Err(format!("the program is user {}'s, and this node is user {user}'s", peer.uid));
        }
        let gone = |error: rustix::io::Errno| format!("its process is not there: {error}");
        let pid = Pid::from_raw(peer.pid).ok_or("its process is in another namespace")?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(gone)?;
        if !socket.wait(PollFlags::IN, HELLO_WAIT).map_err(|error| error.to_string())? {
            return Err(format!("it said nothing within {HELLO_WAIT:?}"));
        }
        let (packet, _) = socket.receive(HELLO_BYTES_MAX).map_err(|error| error.to_string())?;
        let hello = Hello::decode(&packet).map_err(|bad| bad.to_string())?;
        let prepared = self.programs.prepare(&hello.program, peer.pid, hello.lines)?;
        let keeper = prepared.start.start(&self.memory).map_err(|error| error.to_string())?;
        let (answer, answered) = channel();
        self.mail.put(Word::Knocked(Box::new(Knock {
            pid: peer.pid.unsigned_abs(),
            settings: hello.settings,
            line: Arc::clone(line),
            start: prepared.start,
            keeper,
            executable: prepared.executable,
            program: hello.program.clone(),
            answer,
        })));
        let welcome = answered.recv_timeout(ANSWER_WAIT).map_err(|_| "the node is ending".to_owned())??;
        let fds = self.memory.descriptors();
        let fds: Vec<_> = fds.into_iter().map(|(_, fd)| fd).collect();
        // A driver that is gone again is known by its end.
        let _ = socket.send(&encode_answer(&Ok(welcome)), &fds);
        Ok((welcome.me, pidfd))
    }
}

/// Waits for a word of the driver; none when it is gone.
fn wait_for_end(socket: &Socket, process: &OwnedFd) -> Option<FromDriver> {
    let mut either = [
        PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN),
    ];
    wait_for_any(&mut either, None).ok()?;
    if either[0].revents().is_empty() {
        return None;
    }
    let (packet, _) = socket.receive(PACKET_BYTES_MAX).ok()?;
    decode(&packet).ok()
}
