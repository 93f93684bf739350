//! Where the node's thread sleeps when it has sockets: one `epoll` for them and for its doorbell.
//!
//! Processes of the machine ring the doorbell as always. While the thread sleeps here, its word in the fabric says so, and
//! who rings writes to the eventfd that every process of the node has ([`Fabric::with_bell`](crate::Fabric::with_bell)).
//! The eventfd is watched for its edges, so nobody ever reads it: one system call for a wake-up, as with the futex.
//!
//! A pass of the node's loop is
//!
//! ```text
//! loop {
//!     doorbell.take_ready(..), read the rings; read the sockets in poller.ready(); write what there is to write;
//!     poller.wait(spin, timeout, || a look at what else could be ready);
//! }
//! ```
//!
//! The time up to which it sleeps is a timer among the sockets, set anew only for an earlier time: most sleeps end long before
//! their time, and setting a timer for each would cost as much as a message. So a sleep may end at the time of an
//! earlier one, for no reason.
//!
//! Sockets are reported as long as there is something to read (level-triggered): a reader may stop before the end.

use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use crate::doorbell::Doorbell;
use crate::doorbell::words::{Sleeper, Woken};
use crate::spin::{SpinOutcome, SpinPolicy, now_ns};

#[cfg(test)]
mod tests;

/// Sockets reported by one wait; the others wait for the next.
const READY_MAX: usize = 256;
/// Turns of a spin between two looks at the sockets: each is a system call, a look at the rings is one load.
const SOCKET_EVERY: u32 = 16;
/// The tokens of the doorbell and the timer, which no socket has.
const BELL: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// Why there is no poller, or not for this socket.
#[derive(Debug, thiserror::Error)]
pub enum PollerError {
    /// The system refused.
    #[error("waiting for sockets: {action} failed: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What it said.
        source: Errno,
    },
    /// Nobody could wake it.
    #[error("the fabric has no bell: make it with `Fabric::with_new_bell` before any process is started")]
    NoBell,
}

/// What to wait for on a socket. Its end and its errors are reported in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Bytes to read.
    pub readable: bool,
    /// Room to write.
    pub writable: bool,
}

impl Interest {
    /// Bytes to read: what most sockets wait for most of the time.
    pub const READ: Self = Self { readable: true, writable: false };
    /// Bytes to read, or room for what could not be written.
    pub const BOTH: Self = Self { readable: true, writable: true };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN | EventFlags::RDHUP, self.readable);
        flags.set(EventFlags::OUT, self.writable);
        flags
    }
}

/// A socket that can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that it was added under.
    pub token: u64,
    /// A read gives bytes, the end or an error.
    pub readable: bool,
    /// A write takes bytes or gives an error.
    pub writable: bool,
}

/// The sleep of one thread, for its doorbell and its sockets.
pub struct Poller {
    epoll: OwnedFd,
    doorbell: Doorbell,
    /// Numbers the sleeps, so that a late waker is told from one of this sleep.
    sleeps: u32,
    /// Token and flags of what the kernel found last.
    found: Vec<(u64, EventFlags)>,
    timer: OwnedFd,
    /// The time that the timer is set to.
    set_to_ns: u64,
}

impl Poller {
    /// A poller for the pump of the process that has the doorbell. That pump sleeps nowhere else from now on.
    pub fn new(doorbell: Doorbell) -> Result<Self, PollerError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        let bell = doorbell.fabric().bell_fd().ok_or(PollerError::NoBell)?;
        epoll::add(&epoll, bell, EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)
            .map_err(failed("adding the bell"))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(failed("timerfd_create"))?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)
            .map_err(failed("adding the timer"))?;
        Ok(Self { epoll, doorbell, sleeps: 0, found: Vec::new(), timer, set_to_ns: 0 })
    }

    /// Waits for a socket too, from now on. It is reported under the token, which is none of the last two numbers.
    pub fn add(&self, socket: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<(), PollerError> {
        epoll::add(&self.epoll, socket, EventData::new_u64(token), interest.flags()).map_err(failed("adding a socket"))
    }

    /// Waits for something else of a socket that was added.
    pub fn change(&self, socket: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<(), PollerError> {
        let changed = epoll::modify(&self.epoll, socket, EventData::new_u64(token), interest.flags());
        changed.map_err(failed("changing a socket"))
    }

    /// Waits for a socket no more. Closing its last descriptor does the same.
    pub fn remove(&self, socket: BorrowedFd<'_>) -> Result<(), PollerError> {
        epoll::delete(&self.epoll, socket).map_err(failed("removing a socket"))
    }

    /// Waits until the doorbell was rung, a socket can go on ([`Poller::ready`] has them), or the time is up. May end
    /// early for no reason.
    ///
    /// With a policy it spins first, if that is sensible: give one while relays are under way, when the next message is
    /// microseconds off. `ready` is asked at every turn of the spin, and has to be cheap; it is for what rings no
    /// bell, and says `false` when there is nothing of that kind.
    pub fn wait(
        &mut self,
        spin: Option<&mut SpinPolicy>,
        timeout: Option<Duration>,
        ready: impl FnMut() -> bool,
    ) -> Woken {
        self.found.clear();
        let Some(policy) = spin else { return self.sleep(timeout) };
        let start = now_ns();
        let woken = if self.spin(policy, ready) { Woken::Rung } else { self.sleep(timeout) };
        policy.waited_ns(now_ns() - start);
        woken
    }

    /// The sockets that the last wait found.
    pub fn ready(&self) -> impl Iterator<Item = Ready> + '_ {
        let gone = EventFlags::HUP | EventFlags::ERR;
        self.found.iter().filter(|(token, _)| *token < TIMER).map(move |(token, flags)| Ready {
            token: *token,
            readable: flags.intersects(gone | EventFlags::IN | EventFlags::RDHUP),
            writable: flags.intersects(gone | EventFlags::OUT),
        })
    }

    /// Whether something came while it spun. The sockets are looked at in any case: a machine whose rings are never
    /// empty must not starve them.
    fn spin(&mut self, policy: &mut SpinPolicy, mut ready: impl FnMut() -> bool) -> bool {
        let doorbell = self.doorbell.clone();
        let fabric = doorbell.fabric();
        // The thread counts while it spins, or others would take its core to be spare.
        let _running = fabric.running_guard(doorbell.slot());
        let mut turns = 0u32;
        let outcome = policy.spin(fabric, || {
            if doorbell.is_ready() || ready() {
                return true;
            }
            turns = turns.wrapping_add(1);
            turns.is_multiple_of(SOCKET_EVERY) && self.look(false)
        });
        if outcome == SpinOutcome::Ready && self.found.is_empty() {
            self.look(false);
        }
        outcome == SpinOutcome::Ready
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> Woken {
        self.sleeps = self.sleeps.wrapping_add(1);
        if !self.doorbell.prepare_poll(self.sleeps) {
            self.look(false);
            return Woken::Rung;
        }
        // A time too long to be counted is as good as for ever.
        let due = timeout.map(|left| now_ns().saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)));
        let sleeps = timeout != Some(Duration::ZERO);
        if let Some(due) = due.filter(|_| sleeps) {
            self.set_timer(due);
        }
        self.look(sleeps);
        self.doorbell.set_awake(Sleeper::Pump);
        let only_timer = self.found.iter().all(|(token, _)| *token == TIMER);
        if only_timer && due.is_some_and(|due| now_ns() >= due) { Woken::TimedOut } else { Woken::Rung }
    }

    /// Makes sure that the timer goes off at this time at the latest.
    fn set_timer(&mut self, due_ns: u64) {
        let is_set = self.set_to_ns > now_ns();
        if is_set && self.set_to_ns <= due_ns {
            return;
        }
        let at = Timespec {
            tv_sec: (due_ns / 1_000_000_000).cast_signed(),
            // Not zero in both: that would be no time at all.
            tv_nsec: (due_ns % 1_000_000_000).max(1).cast_signed(),
        };
        let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
        let times = Itimerspec { it_interval: nothing, it_value: at };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &times);
        debug_assert!(set.is_ok(), "setting a timer of our own: {set:?}");
        self.set_to_ns = due_ns;
    }

    /// Asks the kernel, and waits if told to. Whether it found anything, the bell and the timer included.
    fn look(&mut self, sleeps: bool) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let limit = if sleeps { None } else { Some(&at_once) };
        self.found.clear();
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; READY_MAX];
        match epoll::wait(&self.epoll, &mut events, limit) {
            Ok((events, _)) => {
                self.found.extend(events.iter().map(|event| (event.data.u64(), event.flags)));
                !events.is_empty()
            }
            // A signal: look again, as after a wake-up for no reason.
            Err(Errno::INTR) => true,
            Err(error) => {
                debug_assert!(false, "waiting on an epoll of our own: {error}");
                false
            }
        }
    }
}

fn failed(action: &'static str) -> impl FnOnce(Errno) -> PollerError {
    move |source| PollerError::System { action, source }
}
