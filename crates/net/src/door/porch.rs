//! The thread that accepts: it lets newcomers wait until they say something, and gives those a thread who do.

use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::room::{Newcomer, WaitingRoom};
use super::slots::crowd_of;
use super::{Shared, greeting};

/// The stack of a thread that greets: TLS and a small frame.
const STACK_BYTES: usize = 512 << 10;
/// Time that the door pauses when the system has no more descriptors or threads, or every place is busy.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);
/// Connections that the system holds until they are accepted: half a second of a flood.
const BACKLOG: i32 = 512;
/// Connections accepted before those are looked at who wait.
const ACCEPTS_AT_ONCE: usize = 64;
const EVENTS_AT_ONCE: usize = 64;
/// The listener among the numbers of those who wait.
const LISTENER: u64 = u64::MAX;

/// Somebody who waits, and where it came from.
type Caller = (TcpStream, SocketAddr);

pub(super) struct Porch {
    listener: Arc<TcpListener>,
    shared: Arc<Shared>,
    epoll: OwnedFd,
    room: WaitingRoom<Caller>,
    /// No place or thread could be had for somebody who has spoken.
    is_busy: bool,
}

impl Porch {
    pub(super) fn new(listener: Arc<TcpListener>, shared: Arc<Shared>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let room = WaitingRoom::new(shared.limits);
        Ok(Self { listener, shared, epoll, room, is_busy: false })
    }

    /// Until the door is closed, which shuts the listener down and so wakes this.
    pub(super) fn run(mut self) {
        loop {
            let numbers = self.wait();
            if self.shared.closing.load(Ordering::Acquire) {
                return;
            }
            for number in numbers {
                if number == LISTENER { self.accept() } else { self.listen_to(number) }
            }
            for late in self.room.take_late(Instant::now()) {
                let text = greeting::said_nothing(&self.shared);
                self.shared.refusals.refuse(late.connection.1, &text);
            }
            self.greet();
        }
    }

    /// Waits until something happens or is due: the numbers of who can be heard.
    fn wait(&self) -> Vec<u64> {
        let left = self.room.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = if self.is_busy { Some(EXHAUSTED_PAUSE) } else { left };
        let limit = left.and_then(|left| Timespec::try_from(left.max(Duration::from_millis(1))).ok());
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_AT_ONCE];
        match epoll::wait(&self.epoll, &mut events, limit.as_ref()) {
            Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
            // A signal, or nothing that waiting longer would mend.
            Err(_) => Vec::new(),
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_AT_ONCE {
            match self.listener.accept() {
                Ok(caller) => self.let_wait(caller),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_of_newcomer(&error) => {}
                // Out of descriptors or memory: somebody who waits in vain gives up one.
                Err(_) => {
                    match self.room.give_up_one() {
                        Some(newcomer) => self.shared.refusals.crowded(newcomer.connection.1),
                        None => thread::sleep(EXHAUSTED_PAUSE),
                    }
                    return;
                }
            }
        }
    }

    fn let_wait(&mut self, caller: Caller) {
        self.shared.counters.came.fetch_add(1, Ordering::Relaxed);
        let newcomer = Newcomer { crowd: crowd_of(caller.1.ip()), connection: caller, since: Instant::now() };
        let slots = &self.shared.slots;
        let (number, made_way) =
            self.room.come(newcomer, |crowd| slots.is_member(crowd), |(stream, _)| heard(stream) != Heard::Nothing);
        if let Some(newcomer) = made_way {
            self.shared.refusals.crowded(newcomer.connection.1);
        }
        if let Some((number, newcomer)) = number.and_then(|number| Some((number, self.room.silent(number)?))) {
            // Once: who has been heard waits for its turn, and is not heard again.
            let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT;
            if epoll::add(&self.epoll, &newcomer.connection.0, EventData::new_u64(number), flags).is_err() {
                self.shared.refusals.crowded(newcomer.connection.1);
                self.room.gone(number);
            }
        }
    }

    /// Somebody who waits has said something, or has gone.
    fn listen_to(&mut self, number: u64) {
        let Some(newcomer) = self.room.silent(number) else { return };
        match heard(&newcomer.connection.0) {
            Heard::Bytes | Heard::Nothing => self.room.spoke(number),
            Heard::End => {
                // Somebody looked whether anybody is here: nothing to complain about.
                self.shared.refusals.count();
                self.room.gone(number);
            }
        }
    }

    /// Gives those a place and a thread whose turn it is.
    fn greet(&mut self) {
        self.is_busy = false;
        let now = Instant::now();
        while let Some(newcomer) = self.room.next_turn(now) {
            let Some(slot) = self.shared.slots.admit(&newcomer.connection.0, newcomer.crowd) else {
                self.room.put_back(newcomer);
                self.is_busy = true;
                return;
            };
            let (stream, address) = newcomer.connection;
            // It fails only for one that is not there, and that is what is wanted.
            let _ = epoll::delete(&self.epoll, &stream);
            let shared = self.shared.clone();
            let greet = move || greeting::greet(&shared, stream, address, slot);
            let spawned = thread::Builder::new().name("bireme-newcomer".into()).stack_size(STACK_BYTES).spawn(greet);
            if spawned.is_err() {
                self.shared.refusals.crowded(address);
                self.is_busy = true;
                return;
            }
        }
    }
}

/// Whether accepting failed because of who came, not because of us.
fn is_of_newcomer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    Bytes,
    End,
}

/// The first bytes of a connection, which stay there.
fn heard(stream: &TcpStream) -> Heard {
    let mut byte = [0];
    match rustix::net::recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((0, _)) => Heard::End,
        Ok(_) => Heard::Bytes,
        Err(Errno::AGAIN | Errno::INTR) => Heard::Nothing,
        // It was reset.
        Err(_) => Heard::End,
    }
}
