//! The other side of the door: dialling, enrolling, renewing.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;

use super::arrival::Line;
use super::loopback::{self, Ends, LoopbackKey, ProofError};
use crate::frame::{FrameError, FrameKind, ReadError, read_frame, write_frame};
use crate::hello::{Enrolled, Greeting, HELLO_BYTES_MAX, Hello, HelloError, Purpose, Welcome, decode_reason};
use crate::secret;
use crate::tls::{
    ClientTls, Credentials, Fingerprint, Key, Role, SecurityError, Side, TlsWire, Trust, check_endorsed, explain,
    is_of_another_authority, tls_error,
};
use crate::token::Token;
use crate::wire::{Patience, PlainWire, Socket, Wire};

/// Bytes that the other side may send before it is known: its certificate, the authority's, and one frame.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// How a dialler protects itself.
#[derive(Debug, Clone)]
pub enum DialSecurity {
    /// Both sides prove that they know the user's key, then plain TCP: for addresses of this machine.
    Loopback(LoopbackKey),
    /// TLS.
    Tls(ClientTls),
}

/// How long a dialler waits.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For the connection.
    pub connect: Duration,
    /// Then for handshake and answer.
    pub greeting: Duration,
    /// Number of attempts in all, when the other side closes the connection without a word, as a crowded door does.
    pub attempts: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(3), greeting: Duration::from_secs(5), attempts: 6 }
    }
}

/// Why nobody let us in.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The machine answers and says that nobody listens there: the process is gone.
    #[error("nobody listens on {address}: has the node been started there?")]
    RefusedByKernel {
        /// The address that was dialled.
        address: SocketAddr,
    },
    /// No answer in time.
    #[error("{address} did not answer in time: is the machine up, and is the port open in between?")]
    TimedOut {
        /// The address that was dialled.
        address: SocketAddr,
    },
    /// The node says no, and why.
    #[error("{address} refused: {reason}")]
    RefusedInWords {
        /// The address that was dialled.
        address: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// The node says no, and that will not change.
    #[error("{address} refused for good: {reason}")]
    Dismissed {
        /// The address that was dialled.
        address: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// The handshake failed.
    #[error("{address}: {reason}")]
    Tls {
        /// The address that was dialled.
        address: SocketAddr,
        /// The reason, and the remedy.
        reason: String,
    },
    /// The other side's certificate is of an authority that is not trusted here.
    #[error("{address}: {reason}")]
    OtherAuthority {
        /// The address that was dialled.
        address: SocketAddr,
        /// The reason, and the remedy.
        reason: String,
    },
    /// The connection ended before there was an answer.
    #[error(
        "{address} closed the connection without a word: it is crowded, or one side uses TLS and the other does not"
    )]
    Closed {
        /// The address that was dialled.
        address: SocketAddr,
    },
    /// There is no way there, or it broke.
    #[error("{address} cannot be reached: {source}")]
    Unreachable {
        /// The address that was dialled.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The answer is none.
    #[error("{address} does not answer as a node of bireme does: {reason}")]
    NoNode {
        /// The address that was dialled.
        address: SocketAddr,
        /// What is wrong with its answer.
        reason: String,
    },
    /// On loopback: the listener has not proved that it is of this user.
    #[error("{address} is no node of yours: {reason}")]
    OtherUser {
        /// The address that was dialled.
        address: SocketAddr,
        /// The reason, and the remedy.
        reason: String,
    },
    /// Plain TCP to another machine.
    #[error("{address} is another machine, and without TLS only this one is dialled: enrol with a token first")]
    NotLoopback {
        /// What was to be dialled.
        address: SocketAddr,
    },
    /// What we would show cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityError),
}

impl DialError {
    fn of_wire(address: SocketAddr, source: io::Error) -> Self {
        if let Some(error) = tls_error(&source) {
            let reason = explain(error);
            let is_other = is_of_another_authority(error);
            return if is_other { Self::OtherAuthority { address, reason } } else { Self::Tls { address, reason } };
        }
        match source.kind() {
            io::ErrorKind::ConnectionRefused => Self::RefusedByKernel { address },
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::TimedOut { address },
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Self::Closed { address }
            }
            _ => Self::Unreachable { address, source },
        }
    }

    fn of_proof(address: SocketAddr, error: ProofError) -> Self {
        match error {
            ProofError::Wrong => Self::OtherUser { address, reason: error.to_string() },
            ProofError::Unexpected { .. } => Self::NoNode { address, reason: error.to_string() },
            ProofError::Refused(reason) => Self::RefusedInWords { address, reason },
            ProofError::Read(error) => Self::of_read(address, error),
        }
    }

    fn of_read(address: SocketAddr, error: ReadError) -> Self {
        match error {
            ReadError::Wire(error) => Self::of_wire(address, error),
            ReadError::Frame(error @ FrameError::Version { .. }) => {
                Self::RefusedInWords { address, reason: error.to_string() }
            }
            ReadError::Frame(error) => Self::NoNode { address, reason: error.to_string() },
        }
    }
}

/// The pause before the second attempt; each one after it is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Tries again when the other side closes the connection without a word.
fn retried<T>(timeouts: Timeouts, attempt: impl Fn() -> Result<T, DialError>) -> Result<T, DialError> {
    let mut pause = RETRY_PAUSE;
    for _ in 1..timeouts.attempts {
        match attempt() {
            Err(DialError::Closed { .. }) => {
                // Those that were turned away together do not come back together.
                let [part, ..] = secret::random::<8>();
                thread::sleep(pause + pause * u32::from(part) / 256);
                pause *= 2;
            }
            done => return done,
        }
    }
    attempt()
}

/// Dials a node and says hello. The wire blocks, without a timeout.
pub fn dial(
    address: SocketAddr,
    security: &DialSecurity,
    hello: &Hello,
    timeouts: Timeouts,
) -> Result<(Welcome, Box<dyn Wire>), DialError> {
    retried(timeouts, || dial_once(address, security, hello, timeouts))
}

fn dial_once(
    address: SocketAddr,
    security: &DialSecurity,
    hello: &Hello,
    timeouts: Timeouts,
) -> Result<(Welcome, Box<dyn Wire>), DialError> {
    if matches!(security, DialSecurity::Loopback(_)) && !address.ip().is_loopback() {
        return Err(DialError::NotLoopback { address });
    }
    let mut line = connect(address, security, timeouts)?;
    let welcome: Welcome = ask(address, &mut line, hello)?;
    if hello.cluster != 0 && hello.cluster != welcome.cluster {
        let reason = format!("it belongs to cluster {:032x}, not to {:032x}", welcome.cluster, hello.cluster);
        return Err(DialError::NoNode { address, reason });
    }
    let wire = line.trust(&hello.purpose, Side::Dialler).map_err(|error| DialError::of_wire(address, error))?;
    Ok((welcome, wire))
}

/// Gets a certificate for a token. The secret is told to nobody but the authority that the token names.
pub fn enrol(address: SocketAddr, token: &Token, role: Role, timeouts: Timeouts) -> Result<Credentials, DialError> {
    let tls = ClientTls::pinned(token.fingerprint)?;
    retried(timeouts, || {
        let (enrolled, key) = certify(address, &tls, token.to_text(), role, timeouts)?;
        let named = |authority: &&Vec<u8>| Fingerprint::of(authority) == token.fingerprint;
        let all = [&enrolled.authority].into_iter().chain(enrolled.other.as_ref().map(|other| &other.authority));
        let trusted: Vec<_> = all.filter(named).map(|authority| CertificateDer::from(authority.clone())).collect();
        accept(address, enrolled, key, &trusted)
    })
}

/// Gets a new certificate, with a new key, for the one that is about to expire.
pub fn renew(address: SocketAddr, credentials: &Credentials, timeouts: Timeouts) -> Result<Credentials, DialError> {
    let (tls, role) = (ClientTls::new(credentials)?, credentials.identity().role);
    let trusted: Vec<_> = credentials.authorities().cloned().collect();
    let renewed = retried(timeouts, || {
        let (enrolled, key) = certify(address, &tls, String::new(), role, timeouts)?;
        accept(address, enrolled, key, &trusted)
    });
    Ok(renewed?.succeeding(credentials))
}

fn certify(
    address: SocketAddr,
    tls: &ClientTls,
    token: String,
    role: Role,
    timeouts: Timeouts,
) -> Result<(Enrolled, Key), DialError> {
    let key = Key::generate()?;
    let hello = Hello::new(0, 0, Purpose::Enrol { token, role, public_key: key.public() });
    let mut line = connect(address, &DialSecurity::Tls(tls.clone()), timeouts)?;
    Ok((ask(address, &mut line, &hello)?, key))
}

/// Takes a certificate, unless it comes with an authority that none of the trusted ones vouches for: any node of the cluster could have
/// answered.
fn accept(
    address: SocketAddr,
    enrolled: Enrolled,
    key: Key,
    trusted: &[CertificateDer<'static>],
) -> Result<Credentials, DialError> {
    let Enrolled { cluster, certificate, authority, expires, epoch, other } = enrolled;
    let authority = CertificateDer::from(authority);
    let (other, endorsements) = match other {
        Some(other) => (Some(CertificateDer::from(other.authority)), Vec::from(other.endorsements)),
        None => (None, Vec::new()),
    };
    let endorsements: Vec<_> = endorsements.into_iter().map(CertificateDer::from).collect();
    for sent in [&authority].into_iter().chain(&other) {
        check_endorsed(sent, &endorsements, trusted)
            .map_err(|error| DialError::NoNode { address, reason: error.to_string() })?;
    }
    let trust = Trust { epoch, authority, other };
    Ok(Credentials::new(cluster, key, CertificateDer::from(certificate), trust, expires)?)
}

fn connect_once(address: SocketAddr, security: &DialSecurity, timeouts: Timeouts) -> Result<Line, DialError> {
    let failed = |error| DialError::of_wire(address, error);
    let stream = TcpStream::connect_timeout(&address, timeouts.connect).map_err(failed)?;
    // On loopback a port in which nobody listens can be given to the caller itself, which then hears its own words.
    if stream.local_addr().is_ok_and(|own| own == address) {
        return Err(DialError::RefusedByKernel { address });
    }
    let patience = Patience { deadline: Instant::now() + timeouts.greeting, bytes: ANSWER_BYTES_MAX };
    let socket = Socket::new(stream, Some(patience)).map_err(failed)?;
    Ok(match security {
        DialSecurity::Loopback(key) => {
            let mut line = Line::Plain(PlainWire::over(socket, Vec::new()));
            let ends = Ends { listener: line.peer_addr(), dialler: line.local_addr().map_err(failed)? };
            loopback::connect(line.wire(), key, &ends).map_err(|error| DialError::of_proof(address, error))?;
            line
        }
        DialSecurity::Tls(tls) => Line::Tls(Box::new(TlsWire::connect(socket, tls).map_err(failed)?)),
    })
}

/// The same. A node that shows a certificate of an authority that is not known here may have another one, while its own authority is
/// being replaced: it is asked for that.
fn connect(address: SocketAddr, security: &DialSecurity, timeouts: Timeouts) -> Result<Line, DialError> {
    match (connect_once(address, security, timeouts), security) {
        (Err(DialError::OtherAuthority { .. }), DialSecurity::Tls(tls)) => {
            connect_once(address, &DialSecurity::Tls(tls.telling()), timeouts)
        }
        (connected, _) => connected,
    }
}

/// Says hello and hears the answer.
fn ask<G: Greeting>(address: SocketAddr, line: &mut Line, hello: &Hello) -> Result<G, DialError> {
    let bad = |error: HelloError| DialError::NoNode { address, reason: error.to_string() };
    let said = write_frame(line.wire(), Hello::KIND, &hello.encode().map_err(bad)?);
    // Who closed before we had spoken may have said why, so the answer is looked for in any case.
    let heard = read_frame(line.wire(), HELLO_BYTES_MAX).map_err(|error| DialError::of_read(address, error));
    match (heard, said) {
        (Ok((FrameKind::REFUSED, body)), _) => Err(DialError::RefusedInWords { address, reason: decode_reason(&body) }),
        (Ok((FrameKind::DISMISSED, body)), _) => Err(DialError::Dismissed { address, reason: decode_reason(&body) }),
        (Ok((kind, body)), _) => G::decode(kind, &body).map_err(bad),
        (Err(error @ (DialError::Tls { .. } | DialError::OtherAuthority { .. })), _) | (Err(error), Ok(())) => {
            Err(error)
        }
        (Err(_), Err(error)) => Err(DialError::of_wire(address, error)),
    }
}
