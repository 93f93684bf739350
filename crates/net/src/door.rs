//! The one TCP port of a node: who may come in, and how far.
//!
//! A thread accepts, and lets newcomers wait until they say something; each that does gets a thread of its own until it is known,
//! of which there are only so many, for only so long, for only so many bytes ([`Limits`]). What a newcomer can reach:
//!
//! | what it has | what it gets |
//! |---|---|
//! | nothing | the TLS handshake, and an answer to one enrolment frame |
//! | a token | a certificate ([`enrol`]) |
//! | a certificate of this cluster | its hello goes to the [`Greeter`], who welcomes or refuses it |
//! | the key of this door's user, on this machine, and a door that is bound to loopback | the same, without TLS |
//!
//! When the door is crowded, the newcomer that has been silent, or unknown, for longest makes way at once: an honest one speaks as
//! soon as it is connected, and its greeting takes milliseconds. One address has only a part of the places and begins only so many
//! greetings in a second, so that others still get in, and those that have shown a certificate have places of their own. Nothing that
//! a newcomer sends ends the door; every refusal is counted, and told to the greeter at a bounded rate.
//!
//! | file | what |
//! |---|---|
//! | `porch`, `room` | the thread that accepts, and those who wait |
//! | `slots`, `greeting` | those who are greeted, and their places |
//! | `arrival`, `enrolment`, `tickets`, `refusals` | what becomes of them |
//! | `dial` | the other side |
//! | `loopback` | how both sides of a door without TLS prove whose they are |

mod arrival;
mod dial;
mod enrolment;
mod greeting;
mod loopback;
mod porch;
mod refusals;
mod room;
mod slots;
mod tickets;

#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::tls::{PeerIdentity, ServerTls};

pub use arrival::Arrival;
pub use dial::{DialError, DialSecurity, Timeouts, dial, enrol, renew};
pub use enrolment::Enrolment;
pub use loopback::LoopbackKey;
pub use refusals::Refusal;
pub use tickets::{TICKETS_MAX, TicketError, Tickets};

use porch::Porch;
use refusals::Refusals;
use slots::Slots;

/// How much of the node a newcomer gets before it is known.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections that have said nothing yet, or wait for their turn. When there are more, the one that has been silent for longest
    /// is closed.
    pub waiting: usize,
    /// Of these, from one address.
    pub waiting_per_address: usize,
    /// Greetings that one address begins in a second; the others wait.
    pub greetings_per_second: u32,
    /// Newcomers that are greeted at a time. When there are more, the one that has been unknown for longest is closed.
    pub newcomers: usize,
    /// Of these, from one address.
    pub newcomers_per_address: usize,
    /// Places beside these for those that have shown a certificate, and whose welcome is still owed.
    pub members: usize,
    /// The whole time for handshake and hello.
    pub greeting: Duration,
    /// Bytes that it may send meanwhile.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting: 512,
            waiting_per_address: 384,
            greetings_per_second: 256,
            newcomers: 128,
            newcomers_per_address: 96,
            members: 128,
            greeting: Duration::from_secs(5),
            bytes: 32 << 10,
        }
    }
}

/// What protects the door.
pub enum Security {
    /// Plain TCP, for an address of this machine alone and for peers that prove that they know the user's key.
    Loopback(LoopbackKey),
    /// TLS with certificates on both sides.
    Tls(Box<TlsSecurity>),
}

/// A door with a lock.
pub struct TlsSecurity {
    /// The certificate that it shows and the authority that it knows.
    pub tls: ServerTls,
    /// Who gives certificates to newcomers: only the node that has the authority.
    pub enrolment: Option<Enrolment>,
    /// Whether bulk streams are encrypted. If not, they are still authenticated, with keys of the TLS session that they begin with.
    pub bulk_encryption: bool,
}

/// Why there is no door.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// Plain TCP for everybody.
    #[error(
        "{address} can be reached from other machines, and a door without TLS is for this machine alone: \
        bind to 127.0.0.1, or open it with TLS"
    )]
    NotLoopback {
        /// Where it should have been.
        address: SocketAddr,
    },
    /// The system says no.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where it should have been.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

/// Who lives behind the door. Its methods are called on the threads of newcomers, several at a time.
pub trait Greeter: Send + Sync {
    /// Somebody is known and has said what it wants. To be answered now or later, on any thread.
    fn arrived(&self, arrival: Arrival);

    /// Somebody was refused, for the log.
    fn refused(&self, refusal: &Refusal);

    /// Somebody has got a certificate, for the log.
    fn enrolled(&self, _identity: PeerIdentity, _address: SocketAddr) {}
}

/// What has happened at a door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoorCounts {
    /// Connections that came.
    pub came: u64,
    /// Those that the greeter was told of.
    pub arrived: u64,
    /// Those that got a certificate.
    pub enrolled: u64,
    /// Those that were refused, by the door or by the greeter.
    pub refused: u64,
    /// Of the refused, those that made way for others or found no room.
    pub crowded: u64,
}

#[derive(Default)]
struct Counters {
    came: AtomicU64,
    arrived: AtomicU64,
    enrolled: AtomicU64,
}

/// What the threads of a door share.
struct Shared {
    cluster: u128,
    security: Security,
    limits: Limits,
    greeter: Arc<dyn Greeter>,
    slots: Arc<Slots>,
    refusals: Arc<Refusals>,
    counters: Counters,
    closing: AtomicBool,
}

/// The open door. Dropped, it is closed: nobody comes in any more, and who is not known yet goes. Those who are in stay.
pub struct Door {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Door {
    /// Opens the door of a cluster's node.
    pub fn open(
        address: SocketAddr,
        cluster: u128,
        security: Security,
        limits: Limits,
        greeter: Arc<dyn Greeter>,
    ) -> Result<Self, DoorError> {
        if matches!(security, Security::Loopback(_)) && !address.ip().is_loopback() {
            return Err(DoorError::NotLoopback { address });
        }
        let failed = |source| DoorError::Listen { address, source };
        let listener = Arc::new(TcpListener::bind(address).map_err(failed)?);
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            cluster,
            security,
            limits,
            slots: Slots::new(limits),
            refusals: Refusals::new(greeter.clone()),
            greeter,
            counters: Counters::default(),
            closing: AtomicBool::new(false),
        });
        let porch = Porch::new(listener.clone(), shared.clone()).map_err(failed)?;
        let accepting = thread::Builder::new().name("bireme-door".into()).spawn(|| porch.run()).map_err(failed)?;
        Ok(Self { address, listener, shared, accepting: Some(accepting) })
    }

    /// Where it is; the port that the system chose, when 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The lock, to renew its certificate; none on loopback.
    pub fn tls(&self) -> Option<&ServerTls> {
        match &self.shared.security {
            Security::Loopback(_) => None,
            Security::Tls(security) => Some(&security.tls),
        }
    }

    /// How many came, and what became of them.
    pub fn counts(&self) -> DoorCounts {
        let counters = &self.shared.counters;
        let (refused, crowded) = self.shared.refusals.counts();
        DoorCounts {
            came: counters.came.load(Ordering::Relaxed),
            arrived: counters.arrived.load(Ordering::Relaxed),
            enrolled: counters.enrolled.load(Ordering::Relaxed),
            refused,
            crowded,
        }
    }

    /// How many newcomers are being greeted.
    pub fn newcomers(&self) -> usize {
        self.shared.slots.len()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        // Wakes the thread that accepts. It fails when the socket has gone, and then the thread has too.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.shared.slots.close(self.shared.limits.greeting);
    }
}
