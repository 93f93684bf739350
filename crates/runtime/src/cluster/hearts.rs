//! Heartbeats: the head attends to one connection of each member, a member keeps one to the head.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bireme_core::controller::ToController;
use bireme_core::id::NodeId;
use bireme_core::schedule::Load;
use bireme_net::door::{DialError, Timeouts, dial};
use bireme_net::heart::{Heart, HeartEnd};
use bireme_net::hello::{Hello, Purpose};
use bireme_net::tls::PeerIdentity;
use bireme_net::wire::Wire;

use super::gate::{Arrived, Gate};
use super::join;
use super::register::Visit;
use super::security::Dialer;
use crate::clock;

/// How long a connection that tells whether a process is still there may take.
const PROBE_WAIT: Duration = Duration::from_millis(500);
/// A renewal that tells no loads is not longer.
const RENEWAL_BYTES: usize = 32;
/// The pause between two attempts to reach the head again.
const REDIAL_PAUSE: Duration = Duration::from_millis(50);

/// Every beat begins with the epoch of its sender's keys: a member follows the head's, and the head waits for those that have not.
fn take_epoch(beat: &[u8]) -> Option<(u64, &[u8])> {
    beat.split_first_chunk().map(|(epoch, rest)| (u64::from_le_bytes(*epoch), rest))
}

/// With the head, on the thread of the newcomer: a join, then its heartbeats; or those of a member that lost its connection.
///
/// The visit counts as long as this runs. On one machine without TLS everybody has the same identity, which is none, and
/// is not counted.
pub(crate) fn attend(
    gate: &Arc<Gate>,
    node: NodeId,
    peer: Option<PeerIdentity>,
    mut wire: Box<dyn Wire>,
    visit: Visit,
) {
    let _visit = peer.map(|_| visit);
    let joined = if node == NodeId::ALONE { join::attend(gate, peer, wire.as_mut()) } else { Ok(node) };
    let Ok(node) = joined else { return };
    let Ok(heart) = Heart::new(wire, gate.heartbeat()) else { return };
    gate.heart_began(node, heart.stop_handle());
    // Renewals without news can wait; a lease is much longer.
    let payload = |out: &mut Vec<u8>| {
        let beat = gate.take_beat(node);
        out.extend_from_slice(&gate.keys.own().to_le_bytes());
        out.extend_from_slice(&beat);
        if beat.len() > RENEWAL_BYTES { gate.heartbeat() } else { gate.rest() }
    };
    let heard = |bytes: &[u8]| {
        if let Some((epoch, bytes)) = take_epoch(bytes) {
            gate.register.note_epoch(node, epoch);
            gate.push(Arrived::Beat { node, bytes: bytes.to_vec(), at: clock::now() });
        }
    };
    if let HeartEnd::Lost(_) = heart.run_paced(payload, heard) {
        let refused = gate.address(node).is_some_and(is_refused);
        gate.push(Arrived::HeartLost { node, refused });
    }
}

/// Whether nobody listens there any more, although the machine answers.
fn is_refused(address: SocketAddr) -> bool {
    let probe = TcpStream::connect_timeout(&address, PROBE_WAIT);
    probe.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// What a member's heart needs.
pub(crate) struct MemberHeart {
    pub(crate) gate: Arc<Gate>,
    pub(crate) node: NodeId,
    pub(crate) head: SocketAddr,
    pub(crate) dial: Dialer,
    /// The number in the head's certificate.
    pub(crate) head_identity: u128,
    /// The node's thread keeps it true.
    pub(crate) load: Arc<Mutex<Load>>,
    pub(crate) stop: Arc<AtomicBool>,
}

impl MemberHeart {
    /// Beats until it is stopped or the head does not know this node any more, over as many connections as it takes.
    pub(crate) fn run(self, wire: Box<dyn Wire>) {
        let mut sequence = 0_u64;
        let mut wire = Some(wire);
        while !self.stop.load(Ordering::Acquire) {
            let Some(present) = wire.take().or_else(|| self.redial()) else { continue };
            let Ok(heart) = Heart::new(present, self.gate.heartbeat()) else { continue };
            // There may be no control link to the head, and this connection is there.
            let mut farewell = self.gate.keys.own().to_le_bytes().to_vec();
            farewell.extend(postcard::to_allocvec(&ToController::Leave).unwrap_or_default());
            let heart = heart.with_farewell(farewell);
            self.gate.heart_began(NodeId::HEAD, heart.stop_handle());
            if self.stop.load(Ordering::Acquire) {
                // It was stopped before this one could be.
                return;
            }
            let payload = |out: &mut Vec<u8>| {
                sequence += 1;
                let load = Box::new(self.load.lock().unwrap_or_else(PoisonError::into_inner).clone());
                let pause = self.gate.pace(&load);
                let beat = ToController::Heartbeat { sequence, load };
                out.extend_from_slice(&self.gate.keys.own().to_le_bytes());
                out.extend(postcard::to_allocvec(&beat).unwrap_or_default());
                // Of use when the answer comes, which wakes the node.
                self.gate.push_quietly(Arrived::BeatSent { sequence, at: clock::now() });
                pause
            };
            let heard = |bytes: &[u8]| {
                let Some((epoch, bytes)) = take_epoch(bytes) else { return };
                self.gate.keys.follow(epoch);
                if !bytes.is_empty() {
                    self.gate.push(Arrived::Beat { node: NodeId::HEAD, bytes: bytes.to_vec(), at: clock::now() });
                }
            };
            if let HeartEnd::Stopped = heart.run_paced(payload, heard) {
                return;
            }
        }
    }

    fn redial(&self) -> Option<Box<dyn Wire>> {
        std::thread::sleep(REDIAL_PAUSE);
        let hello = Hello::new(self.gate.cluster(), self.node.0, Purpose::Heart);
        // This is called again and again, so nothing is tried again within.
        let once = Timeouts { attempts: 1, ..Timeouts::default() };
        match dial(self.head, &self.dial.to(self.head_identity), &hello, once) {
            Ok((_, wire)) => Some(wire),
            // Whatever else it says may be different the next time; if it is not, the lease ends.
            Err(DialError::Dismissed { reason, .. }) => {
                self.gate.push(Arrived::Expelled { reason });
                self.stop.store(true, Ordering::Release);
                None
            }
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bireme_net::door::{Door, Limits, LoopbackKey, Security};

    use super::super::gate::Porter;
    use super::*;

    const CLUSTER: u128 = 11;

    #[test]
    fn a_member_that_is_told_to_try_again_tries_again_and_one_that_was_declared_dead_is_expelled() {
        let folder = std::env::temp_dir().join(format!("bireme-hearts-{}", std::process::id()));
        let key = LoopbackKey::open(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let (head, own) = (Gate::new(CLUSTER, None, Duration::ZERO), Gate::new(CLUSTER, None, Duration::ZERO));
        let porter = Arc::new(Porter(Arc::clone(&head)));
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let door = Door::open(address, CLUSTER, Security::Loopback(key.clone()), Limits::default(), porter).unwrap();
        let heart = MemberHeart {
            gate: Arc::clone(&own),
            node: NodeId(2),
            head: door.address(),
            dial: Dialer::on_loopback(key),
            head_identity: 0,
            load: Arc::default(),
            stop: Arc::default(),
        };
        let expelled = || own.take().into_iter().any(|arrived| matches!(arrived, Arrived::Expelled { .. }));
        // The head is still starting, then it has not heard of this node: both may change.
        assert!(heart.redial().is_none());
        head.seated(NodeId::HEAD, None, Duration::from_millis(50));
        assert!(heart.redial().is_none());
        assert!(!expelled() && !heart.stop.load(Ordering::Acquire));
        head.register.admit(NodeId(2), 0);
        assert!(heart.redial().is_some());
        head.register.dismiss(NodeId(2));
        assert!(heart.redial().is_none());
        assert!(expelled() && heart.stop.load(Ordering::Acquire));
    }
}
