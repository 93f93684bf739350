//! How a node becomes one of several: its door, its seat, and the way from other threads to the node's own.
//!
//! The node's thread owns all links and decides everything. Other threads only bring it something: newcomers at the door,
//! connections that were dialled, heartbeats. They put it into the `Gate` and ring the node's doorbell.
//!
//! | file | what |
//! |---|---|
//! | `gate` | what other threads bring, and who is let in at the door |
//! | `hearts` | heartbeats, a thread for each connection |
//! | `join` | joining a cluster: the first conversation with the head |
//! | `choice` | what the node is to be, and what protects it |
//! | `security` | its certificate, what its door shows, how it dials |
//! | `keys` | where keys are kept |
//! | `renewal` | the next certificate before this one expires, and when the authority is replaced |
//! | `register` | who may come in as which node |
//! | `warden` | nobody stays longer than it may, and no authority that is being replaced |

mod choice;
pub(crate) mod gate;
pub(crate) mod hearts;
pub(crate) mod join;
mod keys;
pub(crate) mod register;
mod renewal;
pub(crate) mod security;
mod warden;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bireme_core::controller::{self, Controller, ControllerConfig, Join, MemberRow};
use bireme_core::id::NodeId;
use bireme_core::resources::Resources;
use bireme_core::schedule::Row;
use bireme_core::time::Tick;
use bireme_net::bulk::HostMark;
use bireme_net::door::{Door, Limits};
use bireme_net::secret::random_u128;
use bireme_net::wire::Wire;

use crate::clock;
use crate::error::Error;
use gate::{Gate, Porter};
pub(crate) use renewal::Renewal;
use security::{Dialer, Lock};
pub(crate) use warden::Warden;

pub use choice::{ClusterChoice, SecurityChoice, TlsChoice};
pub use keys::cluster_name;

/// Time between two heartbeats, unless a head is told otherwise.
pub(crate) const HEARTBEAT_PERIOD: Duration = Duration::from_millis(50);
/// A node whose heartbeats come irregularly is given so many times the lease.
const LEASE_LONGEST: u32 = 5;

/// A head's rules about signs of life; its members follow them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Time between two heartbeats.
    pub(crate) heartbeat: Duration,
    /// Silence after which a node counts as dead.
    pub(crate) lease: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { heartbeat: HEARTBEAT_PERIOD, lease: Duration::from_secs(2) }
    }
}

impl Timing {
    fn config(self) -> ControllerConfig {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        ControllerConfig {
            heartbeat_us: us(self.heartbeat),
            lease_us: us(self.lease),
            lease_longest_us: us(self.lease.saturating_mul(LEASE_LONGEST)),
        }
    }
}

/// A node's place among others, as it is when the node's thread starts.
pub struct ClusterStart {
    pub(crate) node: NodeId,
    pub(crate) cluster: u128,
    pub(crate) gate: Arc<Gate>,
    /// Closed when the node ends.
    pub(crate) door: Option<Arc<Door>>,
    pub(crate) dial: Dialer,
    /// Ends when the node ends.
    pub(crate) renewal: Option<Renewal>,
    /// Ends when the node ends.
    pub(crate) warden: Option<Warden>,
    /// It is reached by nobody: it dials everyone.
    pub(crate) dials_only: bool,
    pub(crate) seat: Seat,
    /// The mark of those whose memory it reads, and who read its own.
    pub(crate) host: Option<HostMark>,
    /// Bytes queued for another node, beyond which processes that have more for it wait.
    pub(crate) link_queue_bytes: usize,
}

impl ClusterStart {
    /// Where others reach it.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.door.as_ref().map(|door| door.address())
    }
}

/// Head or member.
pub(crate) enum Seat {
    /// This node has the controller.
    Head(Box<Controller>),
    /// Another one has.
    Member(Box<Membership>),
}

/// What the head said when we joined.
pub(crate) struct Membership {
    pub(crate) head: SocketAddr,
    /// When the join was sent: the lease counts from there.
    pub(crate) sent: Tick,
    pub(crate) lease_us: u64,
    pub(crate) heartbeat: Duration,
    pub(crate) members: Vec<MemberRow>,
    pub(crate) rows: Vec<Row>,
    /// What this node said that it has.
    pub(crate) total: Resources,
    /// The connection for heartbeats.
    pub(crate) heart: Box<dyn Wire>,
}

/// Opens the door and takes a seat, before the node's thread starts.
pub(crate) fn prepare(choice: &ClusterChoice, total: &Resources, timing: Timing) -> Result<ClusterStart, Error> {
    let failed = |reason: String| Error::System { what: "becoming a node of a cluster", reason };
    let mut lock = Lock::prepare(choice)?;
    let dial = lock.dialer.clone();
    let known = lock.cluster().unwrap_or(0);
    let knock = |head| join::knock(head, known, &dial.to(0));
    let mut knocked = choice.head.map(|head| knock(head).map(|(welcome, wire)| (head, welcome, wire))).transpose()?;
    if let Some((head, welcome, wire)) = &mut knocked
        && welcome.epoch != lock.epoch()
    {
        // The authority is being replaced: nobody joins who does not trust whom the others trust.
        lock.renew()?;
        (*welcome, *wire) = knock(*head)?;
    }
    let told = knocked.as_ref().map(|(_, welcome, _)| welcome.cluster);
    let cluster = lock.cluster().or(told).unwrap_or_else(random_u128);
    let gate = Gate::new(cluster, dial.bulk_encryption(), choice.link_delay);
    let (book, epoch) = (lock.book(), lock.epoch());
    gate.keys.begin(epoch);
    if let Some(book) = &book {
        let _ = gate.book.set(book.clone());
    }
    let porter = Arc::new(Porter(Arc::clone(&gate)));
    let door = match choice.bind {
        None => None,
        Some(address) => {
            let opened = Door::open(address, cluster, lock.door()?, Limits::default(), porter);
            Some(Arc::new(opened.map_err(|error| failed(error.to_string()))?))
        }
    };
    let address = door.as_ref().map_or(String::new(), |door| advertised(door.address(), choice.head).to_string());
    let dials_only = door.is_none();
    let driver_only = total.is_zero() || dials_only;
    let (total, labels) = (total.clone(), choice.labels.clone());
    let role = join::role_without_certificate(&address);
    let join = Join { uid: random_u128(), identity: lock.identity(), role, address, total, labels, driver_only };
    let (node, seat) = match knocked {
        None => {
            let mut controller = Controller::new(timing.config());
            let mut effects = Vec::new();
            controller.step(controller::Event::Started, clock::now(), &mut effects);
            let event = controller::Event::JoinAsked { link: 0, join: Box::new(join) };
            controller.step(event, clock::now(), &mut effects);
            (NodeId::HEAD, Seat::Head(Box::new(controller)))
        }
        Some((head, _, wire)) => {
            let (node, membership) = join::join(head, wire, join, dial.bulk_encryption(), epoch)?;
            (node, Seat::Member(Box::new(membership)))
        }
    };
    let heartbeat = match &seat {
        Seat::Head(_) => timing.heartbeat,
        Seat::Member(membership) => membership.heartbeat,
    };
    gate.seated(node, choice.head, heartbeat);
    let watched = door.as_ref().map_or_else(Weak::new, Arc::downgrade);
    let renewal = lock.keys.map(|keys| Renewal::start(keys, dial.clone(), watched, &gate)).transpose()?;
    let (host, link_queue_bytes) = (choice.host(), choice.link_queue_bytes);
    let warden = book.map(|book| Warden::start(book, &gate)).transpose()?;
    Ok(ClusterStart { node, cluster, gate, door, dial, dials_only, seat, renewal, warden, host, link_queue_bytes })
}

/// Where others reach a door. One that is open on all addresses of its machine is reached by the one that leads to the
/// head, or out.
fn advertised(open: SocketAddr, head: Option<SocketAddr>) -> SocketAddr {
    if !open.ip().is_unspecified() {
        return open;
    }
    // Of a network that is kept for tests: nothing is sent there, only the way is looked up.
    let out = SocketAddr::from(([198, 18, 0, 1], 1));
    choice::towards(head.unwrap_or(out)).map_or(open, |host| SocketAddr::new(host, open.port()))
}
