//! Joining: one frame each way on the connection that carries heartbeats afterwards.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use bireme_core::controller::{Join, MemberRow};
use bireme_core::id::NodeId;
use bireme_core::schedule::Row;
use bireme_net::door::{DialSecurity, Timeouts, dial};
use bireme_net::hello::{Hello, Purpose, Welcome};
use bireme_net::tls::{PeerIdentity, Role};
use bireme_net::wire::{Wire, read_exact, write_all};
use serde::{Deserialize, Serialize};

use super::Membership;
use super::gate::{Arrived, Gate};
use crate::clock;
use crate::error::Error;

/// The largest answer to a join: a list of ten thousand members.
const ANSWER_BYTES_MAX: u32 = 16 << 20;
/// The largest join: resources and labels of one node.
const JOIN_BYTES_MAX: u32 = 64 << 10;
/// Whatever the head says, heartbeats are no rarer and no more frequent than this.
const HEARTBEAT_US_MIN: u64 = 1_000;
const HEARTBEAT_US_MAX: u64 = 60_000_000;
/// How long the head may take for its answer, and the newcomer for its question.
const WORD_WAIT: Duration = Duration::from_secs(10);

/// The head's answer to a join.
pub(crate) type Answer = Result<Seated, String>;

/// What a newcomer says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Asking {
    join: Join,
    /// Whether it encrypts bytes of objects; none without TLS. One that does not would not understand one that does.
    bulk_encryption: Option<bool>,
    /// The epoch of its keys.
    epoch: u64,
}

/// What a new member is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Seated {
    pub(crate) node: NodeId,
    pub(crate) lease_us: u64,
    /// The head's rule: so often each node shows that it is alive.
    pub(crate) heartbeat_us: u64,
    pub(crate) members: Vec<MemberRow>,
    pub(crate) rows: Vec<Row>,
}

fn failed(reason: impl ToString) -> Error {
    Error::System { what: "joining the cluster", reason: reason.to_string() }
}

/// Knocks at the head's door. Its welcome says which cluster it is, so that our own door can be opened for that.
pub(crate) fn knock(
    head: SocketAddr,
    cluster: u128,
    security: &DialSecurity,
) -> Result<(Welcome, Box<dyn Wire>), Error> {
    let hello = Hello::new(cluster, 0, Purpose::Heart);
    dial(head, security, &hello, Timeouts::default()).map_err(failed)
}

/// Asks for a seat.
pub(crate) fn join(
    head: SocketAddr,
    mut wire: Box<dyn Wire>,
    join: Join,
    bulk_encryption: Option<bool>,
    epoch: u64,
) -> Result<(NodeId, Membership), Error> {
    wire.set_timeouts(Some(WORD_WAIT), Some(WORD_WAIT)).map_err(failed)?;
    let sent = clock::now();
    let asking = Asking { join, bulk_encryption, epoch };
    write_word(wire.as_mut(), &asking, JOIN_BYTES_MAX).map_err(failed)?;
    let answer: Answer = read_word(wire.as_mut(), ANSWER_BYTES_MAX).map_err(failed)?;
    let Seated { node, lease_us, heartbeat_us, mut members, rows } = answer.map_err(failed)?;
    // The head may listen on all addresses of its machine, and this is the one that leads there from here.
    if let Some(row) = members.iter_mut().find(|row| row.node == NodeId::HEAD) {
        row.address = head.to_string();
    }
    wire.set_timeouts(None, None).map_err(failed)?;
    let total = asking.join.total;
    let heartbeat = Duration::from_micros(heartbeat_us.clamp(HEARTBEAT_US_MIN, HEARTBEAT_US_MAX));
    Ok((node, Membership { head, sent, lease_us, heartbeat, members, rows, total, heart: wire }))
}

/// With the head: reads the join, has the node's thread answer it, and passes the answer on.
pub(crate) fn attend(gate: &Arc<Gate>, peer: Option<PeerIdentity>, wire: &mut dyn Wire) -> Result<NodeId, String> {
    wire.set_timeouts(Some(WORD_WAIT), Some(WORD_WAIT)).map_err(|error| error.to_string())?;
    let mut asking: Asking = read_word(wire, JOIN_BYTES_MAX)?;
    // Never what it says itself.
    asking.join.identity = peer.map_or(0, |peer| peer.uid);
    asking.join.role = peer.map_or_else(|| role_without_certificate(&asking.join.address), |peer| peer.role);
    let (address, epoch): (Option<SocketAddr>, u64) = (asking.join.address.parse().ok(), asking.epoch);
    let answer = check(gate, peer, &asking).and_then(|()| {
        let (reply, answer) = channel();
        gate.push(Arrived::Join { join: Box::new(asking.join), reply });
        answer.recv_timeout(WORD_WAIT).unwrap_or_else(|_| Err("the head did not answer in time".into()))
    });
    if let Err(reason) = &answer {
        eprintln!("bireme: {} may not join: {reason}", wire.peer_addr());
    }
    if let Ok(seated) = &answer {
        gate.register.note_epoch(seated.node, epoch);
    }
    if let (Ok(seated), Some(address)) = (&answer, address) {
        gate.note_address(seated.node, address);
    }
    write_word(wire, &answer, ANSWER_BYTES_MAX)?;
    wire.set_timeouts(None, None).map_err(|error| error.to_string())?;
    answer.map(|seated| seated.node)
}

/// On one machine everybody is the same user: what listens nowhere is a program that has no business of a node's.
pub(super) fn role_without_certificate(address: &str) -> Role {
    if address.is_empty() { Role::Client } else { Role::Node }
}

/// Whether it may join as what it says.
fn check(gate: &Gate, peer: Option<PeerIdentity>, asking: &Asking) -> Result<(), String> {
    let join = &asking.join;
    if peer.is_some_and(|peer| peer.role == Role::Client) && !(join.driver_only && join.address.is_empty()) {
        return Err("a client's certificate is for drivers that dial out: enrol with a token for a node".to_owned());
    }
    // One step behind it trusts whoever is here; it has renewed since it knocked if it was further.
    if asking.epoch.saturating_add(1) < gate.keys.own() {
        return Err("the keys of the cluster have changed in this moment: try again".to_owned());
    }
    match (gate.bulk_encryption, asking.bulk_encryption) {
        (Some(ours), theirs) if theirs != Some(ours) => {
            let name = if ours { "on" } else { "off" };
            Err(format!("bulk encryption is {name} in this cluster: start the node with --bulk-encryption {name}"))
        }
        _ => Ok(()),
    }
}

fn write_word<T: Serialize>(wire: &mut dyn Wire, word: &T, bytes_max: u32) -> Result<(), String> {
    let bytes = postcard::to_allocvec(word).map_err(|error| error.to_string())?;
    let len = u32::try_from(bytes.len()).ok().filter(|len| *len <= bytes_max).ok_or("the word is too long")?;
    write_all(wire, &[&len.to_le_bytes(), &bytes]).map_err(|error| error.to_string())
}

fn read_word<T: for<'a> Deserialize<'a>>(wire: &mut dyn Wire, bytes_max: u32) -> Result<T, String> {
    let mut len = [0; 4];
    read_exact(wire, &mut len).map_err(|error| format!("the other side ended the conversation: {error}"))?;
    let len = u32::from_le_bytes(len);
    if len > bytes_max {
        return Err(format!("a word of {len} bytes is longer than any of a join"));
    }
    let mut bytes = vec![0; len as usize];
    read_exact(wire, &mut bytes).map_err(|error| error.to_string())?;
    postcard::from_bytes(&bytes).map_err(|_| "a word that is none of a join; is it the same version?".to_owned())
}
