//! One newcomer, from its first byte until it is known, enrolled or refused. Runs on a thread of its own.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustls::AlertDescription;

use super::arrival::{Arrival, Line};
use super::enrolment::Request;
use super::loopback::{self, Ends, ProofError};
use super::slots::Slot;
use super::{Security, Shared};
use crate::frame::{FrameError, ReadError, read_frame, write_frame};
use crate::hello::{Enrolled, Greeting, HELLO_BYTES_MAX, Hello, Purpose};
use crate::tls::{TlsWire, explain, tls_error};
use crate::wire::{Patience, PlainWire, Socket};

/// Enough to tell TLS from a frame: a handshake record begins 22, 3; a frame that begins so is longer than a hello.
const FIRST_BYTES: usize = 5;

/// Greets and sees to it that a refusal is told, first to the greeter and then to the peer.
pub(super) fn greet(shared: &Shared, stream: TcpStream, address: SocketAddr, slot: Slot) {
    let refuse = |slot: &Slot, reason: &str| match slot.made_way() {
        // The door closes, and all who are at it go: nobody did anything wrong.
        true if shared.closing.load(Ordering::Acquire) => {}
        true => shared.refusals.crowded(address),
        false => shared.refusals.refuse(address, reason),
    };
    let mut line = match open_line(shared, stream) {
        Ok(line) => line,
        // Somebody looked whether anybody is here, and went: nothing to complain about.
        Err(reason) if reason.is_empty() => return shared.refusals.count(),
        // Whoever does not get so far is not told a word.
        Err(reason) => return refuse(&slot, &reason),
    };
    let proved = prove(shared, &mut line);
    if proved.is_ok() && !give_place(shared, &slot, &line) {
        // Without a word, so that it tries again.
        return refuse(&slot, "as many members are being greeted as there are places for");
    }
    let heard = proved.and_then(|()| hear(shared, &mut line));
    let hello = match heard {
        Ok(hello) => hello,
        Err(reason) => {
            refuse(&slot, &reason);
            line.refuse(&reason);
            return line.linger();
        }
    };
    // Its part is done: the rest is ours, and nobody makes it go now.
    if !slot.known() {
        return shared.refusals.crowded(address);
    }
    if let Err(reason) = may(shared, &hello, &line) {
        refuse(&slot, &reason);
        return line.refuse(&reason);
    }
    if let Purpose::Enrol { .. } = hello.purpose {
        return enrol(shared, &hello, line, address);
    }
    shared.counters.arrived.fetch_add(1, Ordering::Relaxed);
    shared.greeter.arrived(Arrival::new(hello, line, slot, address, shared.refusals.clone()));
}

/// Gives a newcomer that has proved that it belongs here a place for members. False: there is none.
fn give_place(shared: &Shared, slot: &Slot, line: &Line) -> bool {
    let is_member = match shared.security {
        Security::Loopback(_) => true,
        Security::Tls(_) => line.identity().is_some(),
    };
    !is_member || slot.take_member_place()
}

/// The reason that is given to a newcomer whose time is over.
pub(super) fn said_nothing(shared: &Shared) -> String {
    format!("the peer did not say who it is within {} s", shared.limits.greeting.as_secs_f32())
}

/// Finds out what the newcomer speaks, and speaks it; the reason if that is not to be had, and none when it went without a
/// word.
fn open_line(shared: &Shared, stream: TcpStream) -> Result<Line, String> {
    let failed = |error: io::Error| in_words(shared, &error);
    let patience = Patience { deadline: Instant::now() + shared.limits.greeting, bytes: shared.limits.bytes };
    let mut socket = Socket::new(stream, Some(patience)).map_err(failed)?;
    let mut first = [0; FIRST_BYTES];
    let count = socket.read(&mut first).map_err(failed)?;
    if count == 0 {
        return Err(String::new());
    }
    socket.read_exact(&mut first[count..]).map_err(failed)?;
    let speaks_tls = first[..2] == [22, 3];
    match &shared.security {
        Security::Loopback(_) if speaks_tls => {
            Err("the peer speaks TLS and this door does not: it is bound to loopback, dial it without".into())
        }
        Security::Loopback(_) => Ok(Line::Plain(PlainWire::over(socket, first.to_vec()))),
        Security::Tls(security) if speaks_tls => {
            let wire = TlsWire::accept(socket, &first, &security.tls).map_err(failed)?;
            Ok(Line::Tls(Box::new(wire)))
        }
        Security::Tls(_) => {
            Err("the peer does not speak TLS, and this door does: it is no node of this cluster".into())
        }
    }
}

/// On loopback: whether the newcomer belongs to the user of this door; the reason if not.
fn prove(shared: &Shared, line: &mut Line) -> Result<(), String> {
    let Security::Loopback(key) = &shared.security else { return Ok(()) };
    let ends =
        Ends { listener: line.local_addr().map_err(|error| in_words(shared, &error))?, dialler: line.peer_addr() };
    loopback::accept(line.wire(), key, &ends).map_err(|error| match error {
        ProofError::Read(error) => unread(shared, error),
        error @ (ProofError::Wrong | ProofError::Unexpected { .. } | ProofError::Refused(_)) => error.to_string(),
    })
}

fn hear(shared: &Shared, line: &mut Line) -> Result<Hello, String> {
    let (kind, body) = read_frame(line.wire(), HELLO_BYTES_MAX).map_err(|error| unread(shared, error))?;
    Hello::decode(kind, &body).map_err(|error| error.to_string())
}

/// The reason why a newcomer's frame could not be read.
fn unread(shared: &Shared, error: ReadError) -> String {
    match error {
        ReadError::Wire(error) => in_words(shared, &error),
        ReadError::Frame(error @ FrameError::Version { .. }) => {
            format!("{error} (this side is {})", crate::hello::build())
        }
        ReadError::Frame(error) => error.to_string(),
    }
}

/// Whether somebody who came this way may want that.
fn may(shared: &Shared, hello: &Hello, line: &Line) -> Result<(), String> {
    let enrols = matches!(hello.purpose, Purpose::Enrol { .. });
    match (&shared.security, line) {
        (Security::Loopback(_), _) if enrols => {
            return Err("this door is bound to loopback and gives no certificates: dial it without".into());
        }
        (Security::Loopback(_), _) => {}
        (Security::Tls(_), Line::Tls(wire)) if wire.identity().is_none() && !enrols => {
            return Err("without a certificate one can only enrol: get a token with `bireme token create`".into());
        }
        (Security::Tls(security), _) => {
            if let Purpose::Bulk { encrypted, .. } = hello.purpose
                && encrypted != security.bulk_encryption
            {
                let name = if security.bulk_encryption { "on" } else { "off" };
                return Err(format!("bulk encryption is {name} here: start all nodes with --bulk-encryption {name}"));
            }
        }
    }
    if hello.cluster != 0 && hello.cluster != shared.cluster {
        let (theirs, ours) = (hello.cluster, shared.cluster);
        return Err(format!(
            "the peer belongs to cluster {theirs:032x}, this node to {ours:032x}: compare the address, \
            or remove what the machine has saved of the other cluster"
        ));
    }
    Ok(())
}

fn enrol(shared: &Shared, hello: &Hello, mut line: Line, address: SocketAddr) {
    let served = serve(shared, hello, &line).and_then(|(enrolled, identity)| {
        let body = enrolled.encode().map_err(|error| error.to_string())?;
        Ok((body, identity))
    });
    match served {
        Ok((body, identity)) => {
            shared.counters.enrolled.fetch_add(1, Ordering::Relaxed);
            shared.greeter.enrolled(identity, address);
            // Who does not wait for its certificate has spent its token all the same.
            let _ = write_frame(line.wire(), Enrolled::KIND, &body);
        }
        Err(reason) => {
            shared.refusals.refuse(address, &reason);
            line.refuse(&reason);
        }
    }
}

fn serve(shared: &Shared, hello: &Hello, line: &Line) -> Result<(Enrolled, crate::tls::PeerIdentity), String> {
    let (Security::Tls(security), Purpose::Enrol { token, role, public_key }) = (&shared.security, &hello.purpose)
    else {
        return Err("there is nothing to enrol for".into());
    };
    let Some(enrolment) = &security.enrolment else {
        return Err("this node gives no certificates: enrol with the node that started the cluster".into());
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let request = Request { token, role: *role, public_key, identity: line.identity() };
    enrolment.serve(shared.cluster, &request, now).map_err(|error| error.to_string())
}

/// What an error of the wire means at the door.
fn in_words(shared: &Shared, error: &io::Error) -> String {
    match tls_error(error) {
        // The peer dialled, and was shown this node's certificate.
        Some(error @ rustls::Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError)) => {
            return format!(
                "the peer does not know the authority of this node: it is of another cluster, or was away while the authority was replaced \
                 ({error})"
            );
        }
        Some(error) => return explain(error),
        None => {}
    }
    match error.kind() {
        io::ErrorKind::TimedOut => said_nothing(shared),
        io::ErrorKind::UnexpectedEof => "the peer went before it said who it is".into(),
        _ => error.to_string(),
    }
}
