//! The sending side of a node: one thread per incoming bulk connection, which finds objects by their place.
//!
//! A place is checked against the object table before a byte is read. What was moved out to disk is asked for: the node's
//! thread has it restored and says where it is now.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bireme_core::id::{NodeId, ObjectId};
use bireme_core::value::Location;
use bireme_net::Doorbell;
use bireme_net::bulk::{Break, BulkOptions, Catalogue, Line, Source, serve};
use bireme_net::wire::Wire;
use bireme_store::{PinError, Sealed, StoreClient, UnsealedLocation};

use super::place::{Arriving, Part, Whole};
use crate::error::Error;
use crate::objects::to_store;

/// Incoming bulk connections at a time.
pub(super) const SERVED_CONNECTIONS_MAX: usize = 256;
/// An object that moves while it is being pinned is looked up again at most so often.
const SERVE_TRIES_MAX: u32 = 16;
/// How often a receiver is told that its object is still being looked for.
const WAITING_EVERY: Duration = Duration::from_secs(1);

/// An object on the wire: which, and where it lies with the sender.
pub(super) fn key_of(object: ObjectId, at: Location) -> Vec<u8> {
    postcard::to_allocvec(&(object, at)).unwrap_or_default()
}

/// A question of a serving thread to the node's thread.
pub(super) struct Sought {
    pub(super) at: Location,
    pub(super) answer: Sender<Result<Location, String>>,
}

/// What serving threads share with the node's thread.
pub(super) struct Shared {
    pub(super) node: NodeId,
    pub(super) client: StoreClient,
    pub(super) arriving: Arriving,
    pub(super) sought: Mutex<VecDeque<Sought>>,
    pub(super) doorbell: Doorbell,
    pub(super) options: BulkOptions,
    pub(super) stop: AtomicBool,
    /// Connections that are served: to whom, and the word that ends it.
    pub(super) served: Mutex<BTreeMap<u64, (NodeId, Arc<AtomicBool>)>>,
}

/// Takes incoming bulk connections; for the thread that has accepted and checked them.
#[derive(Clone)]
pub(crate) struct BulkServer(pub(super) Arc<Shared>);

impl BulkServer {
    /// Serves a connection of another node, whose ticket was accepted, on a thread of its own.
    pub(crate) fn serve(&self, wire: Box<dyn Wire>, to: NodeId) -> Result<(), Error> {
        let refused = |reason: String| Error::System { what: "serving a bulk connection", reason };
        let line = Line::new(wire, self.0.options.clone()).map_err(|error| refused(error.to_string()))?;
        let (number, ended) = self.0.admit(to).map_err(refused)?;
        let shared = Arc::clone(&self.0);
        let started = crate::thread::spawn("bireme-bulk-out", move || {
            let stop = || shared.stop.load(Ordering::Relaxed) || ended.load(Ordering::Relaxed);
            // A broken connection is the receiver's to report: it knows what it still needs.
            let _ = serve(line, &mut Finder { shared: &shared, stop: &stop }, &stop);
            shared.dismiss(number);
        });
        started.map(|_| ()).inspect_err(|_| self.0.dismiss(number))
    }
}

impl Shared {
    fn served(&self) -> MutexGuard<'_, BTreeMap<u64, (NodeId, Arc<AtomicBool>)>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, to: NodeId) -> Result<(u64, Arc<AtomicBool>), String> {
        let mut served = self.served();
        if served.len() >= SERVED_CONNECTIONS_MAX {
            return Err(format!("{SERVED_CONNECTIONS_MAX} are served already; {to} has to try again later"));
        }
        let number = served.last_key_value().map_or(0, |(last, _)| last + 1);
        let ended = Arc::new(AtomicBool::new(false));
        served.insert(number, (to, Arc::clone(&ended)));
        Ok((number, ended))
    }

    fn dismiss(&self, number: u64) {
        self.served().remove(&number);
    }

    /// Ends what is sent to a node that is dead.
    pub(super) fn cut_off(&self, node: NodeId) {
        for (_, ended) in self.served().values().filter(|(to, _)| *to == node) {
            ended.store(true, Ordering::Relaxed);
        }
    }
}

/// Finds objects of this node.
struct Finder<'a> {
    shared: &'a Shared,
    stop: &'a dyn Fn() -> bool,
}

impl Catalogue for Finder<'_> {
    fn find(&mut self, key: &[u8], waiting: &mut dyn FnMut() -> Result<(), Break>) -> Result<Box<dyn Source>, String> {
        let read: Result<(ObjectId, Location), _> = postcard::from_bytes(key);
        let (object, first) = read.map_err(|_| "the request names no object: the receiver is broken".to_owned())?;
        if first.node != self.shared.node {
            return Err(format!("{object} was sought on {}, and this is {}", first.node, self.shared.node));
        }
        let mut at = first;
        for _ in 0..SERVE_TRIES_MAX {
            match self.pin(at) {
                Ok(source) => return Ok(source),
                Err(PinError::Moved) => at = self.seek(object, first, waiting)?,
                Err(error) => return Err(format!("{object}: {error}")),
            }
        }
        Err(format!("{object} was moved out {SERVE_TRIES_MAX} times while it was to be sent; the store is too small"))
    }
}

impl Finder<'_> {
    /// Holds an object, whole or arriving.
    fn pin(&self, at: Location) -> Result<Box<dyn Source>, PinError> {
        let key = (at.entry, at.generation);
        let growth = self.shared.arriving.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(growth) = growth {
            let view = self.shared.client.pin_growing(UnsealedLocation(to_store(at)))?;
            return Ok(Box::new(Part { view, growth }));
        }
        Ok(Box::new(Whole(self.shared.client.pin(Sealed(to_store(at)))?)))
    }

    /// Asks the node's thread where an object is now.
    fn seek(
        &self,
        object: ObjectId,
        at: Location,
        waiting: &mut dyn FnMut() -> Result<(), Break>,
    ) -> Result<Location, String> {
        let (answer, answered) = channel();
        let mut sought = self.shared.sought.lock().unwrap_or_else(PoisonError::into_inner);
        sought.push_back(Sought { at, answer });
        drop(sought);
        self.shared.doorbell.ring_self();
        loop {
            match answered.recv_timeout(WAITING_EVERY) {
                Ok(place) => return place.map_err(|reason| format!("{object}: {reason}")),
                Err(RecvTimeoutError::Timeout) if !(self.stop)() => waiting().map_err(|why| why.to_string())?,
                Err(_) => return Err(format!("{object}: the node stops")),
            }
        }
    }
}
