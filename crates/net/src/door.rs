//! The one TCP port of a node: who may come in, and how far.
//!
//! A thread accepts; each newcomer gets a thread of its own until it is known, of which there are only so many, for only
//! so long, for only so many bytes ([`Limits`]). What a newcomer can reach:
//!
//! | what it has | what it gets |
//! |---|---|
//! | nothing | the TLS handshake, and an answer to one enrolment frame |
//! | a token | a certificate ([`enrol`]) |
//! | a certificate of this cluster | its hello goes to the [`Greeter`], who welcomes or refuses it |
//! | the key of this door's user, on this machine, and a door that is bound to loopback | the same, without TLS |
//!
//! When the door is crowded, the newcomer that has been unknown for longest makes way: an honest greeting takes
//! milliseconds. One address has only a part of the places, so that others still get in. Nothing that a newcomer sends
//! ends the door; every refusal is counted, and told to the greeter at a bounded rate.

mod arrival;
mod dial;
mod enrolment;
mod greeting;
mod loopback;
mod refusals;
mod slots;
mod tickets;

#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
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

use refusals::Refusals;
use slots::Slots;

/// The stack of a thread that greets: TLS and a small frame.
const STACK_BYTES: usize = 512 << 10;
/// How long the door pauses when the system has no more descriptors or threads.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);

/// How much of the node a newcomer gets before it is known.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Newcomers at a time, those included whose welcome the greeter still owes.
    pub newcomers: usize,
    /// Of these, from one address.
    pub newcomers_per_address: usize,
    /// The whole time for handshake and hello.
    pub greeting: Duration,
    /// Bytes that it may send meanwhile.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { newcomers: 64, newcomers_per_address: 32, greeting: Duration::from_secs(5), bytes: 32 << 10 }
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
        let accept = {
            let (listener, shared) = (listener.clone(), shared.clone());
            move || accept(&listener, &shared)
        };
        let accepting = thread::Builder::new().name("bireme-door".into()).spawn(accept).map_err(failed)?;
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

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.closing.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            Ok((stream, address)) => admit(shared, stream, address),
            Err(error) if is_of_newcomer(&error) => {}
            // Out of descriptors or memory: newcomers wait in the system's queue until some are free again.
            Err(_) => thread::sleep(EXHAUSTED_PAUSE),
        }
    }
}

/// Whether accepting failed because of who came, not because of us.
fn is_of_newcomer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

fn admit(shared: &Arc<Shared>, stream: TcpStream, address: SocketAddr) {
    shared.counters.came.fetch_add(1, Ordering::Relaxed);
    let Some(slot) = shared.slots.admit(&stream, address.ip()) else {
        shared.refusals.crowded(address);
        return;
    };
    let greet = {
        let shared = shared.clone();
        move || greeting::greet(&shared, stream, address, slot)
    };
    let spawned = thread::Builder::new().name("bireme-newcomer".into()).stack_size(STACK_BYTES).spawn(greet);
    if spawned.is_err() {
        shared.refusals.crowded(address);
        thread::sleep(EXHAUSTED_PAUSE);
    }
}
