//! The sending side of a node: one thread per incoming bulk connection, which finds objects by their place.
//!
//! A place is checked against the object table before a byte is read. What was moved out to disk is asked for: the node's
//! thread has it restored and says where it is now.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bireme_core::id::{NodeId, ObjectId};
use bireme_core::value::Location;
use bireme_net::Doorbell;
use bireme_net::bulk::{Break, BulkOptions, Catalogue, HeldFile, Line, Source, serve};
use bireme_net::wire::Wire;
use bireme_store::{PinError, Sealed, StoreClient, UnsealedLocation};

use super::super::flows::{Registry, Wanted};
use super::admission::{Admission, Admitted, Incoming, Seat, WAITING_CONNECTIONS_MAX};
use super::key::BulkKey;
use super::place::{Arriving, Names, Part, Whole};
use crate::error::Error;
use crate::objects::to_store;

/// An object that moves while it is being pinned is looked up again at most so often.
const SERVE_TRIES_MAX: u32 = 16;
/// How often a receiver is told that its object is still being looked for.
const WAITING_EVERY: Duration = Duration::from_secs(1);
/// So long a receiver is told to wait for what has not begun to arrive here: this node may wait for room.
const NAMED_WAIT_MAX: Duration = Duration::from_secs(10);

/// A question of a serving thread to the node's thread.
pub(super) struct Sought {
    pub(super) at: Location,
    pub(super) answer: Sender<Result<Location, String>>,
}

/// What serving threads share with the node's thread.
pub(super) struct Shared {
    pub(super) node: NodeId,
    pub(super) client: StoreClient,
    /// The arena, for receivers that can read it.
    pub(super) file: Option<HeldFile>,
    pub(super) arriving: Arriving,
    pub(super) flows: Arc<Registry>,
    pub(super) names: Names,
    pub(super) sought: Mutex<VecDeque<Sought>>,
    pub(super) doorbell: Doorbell,
    pub(super) options: BulkOptions,
    pub(super) stop: AtomicBool,
    pub(super) admission: Admission,
}

/// Takes incoming bulk connections; for the thread that has accepted and checked them.
#[derive(Clone)]
pub(crate) struct BulkServer(pub(super) Arc<Shared>);

impl BulkServer {
    /// Serves a connection of another node, whose ticket was accepted, on a thread of its own; or lets it wait for one.
    pub(crate) fn serve(&self, wire: Box<dyn Wire>, to: NodeId) -> Result<(), Error> {
        let refused = |reason: String| Error::System { what: "serving a bulk connection", reason };
        let line = Line::new(wire, self.0.options.clone()).map_err(|error| refused(error.to_string()))?;
        let shared = Arc::clone(&self.0);
        match self.0.admission.admit((line, to)) {
            Admitted::Now(line, seat) => {
                let number = seat.number;
                let started = crate::thread::spawn("bireme-bulk-out", move || shared.serve_all(line, seat));
                started.map(|_| ()).inspect_err(|_| self.0.admission.give_up(number))
            }
            Admitted::Later { is_first: false } => Ok(()),
            Admitted::Later { is_first: true } => {
                let tell = move || shared.admission.tell_waiting(&|| shared.stop.load(Ordering::Relaxed));
                // Without it they wait as long as their patience lasts.
                let told = crate::thread::spawn("bireme-bulk-wait", tell);
                told.map(|_| ()).inspect_err(|_| self.0.admission.nobody_tells())
            }
            Admitted::Never => {
                Err(refused(format!("{WAITING_CONNECTIONS_MAX} wait already; {to} has to try again later")))
            }
        }
    }
}

impl Shared {
    /// One connection after another, as long as some wait.
    fn serve_all(&self, first: Line, seat: Seat) {
        let mut next = Some((first, seat));
        while let Some((line, seat)) = next {
            let stop = || self.stop.load(Ordering::Relaxed) || seat.ended.load(Ordering::Relaxed);
            let mut finder = Finder { shared: self, stop: &stop, next: None };
            // A broken connection is the receiver's to report: it knows what it still needs.
            let _ = serve(line, &mut finder, &stop);
            let taken = finder.next.take();
            next = self.admission.ended(&seat, taken);
        }
    }
}

/// Finds objects of this node.
struct Finder<'a> {
    shared: &'a Shared,
    stop: &'a dyn Fn() -> bool,
    /// A connection that waited, taken to be served in the place of one on which nothing is asked.
    next: Option<Incoming>,
}

impl Catalogue for Finder<'_> {
    fn makes_way(&mut self) -> bool {
        self.next = self.next.take().or_else(|| self.shared.admission.next());
        self.next.is_some()
    }

    fn file(&self) -> Option<HeldFile> {
        self.shared.file
    }

    fn find(&mut self, key: &[u8], waiting: &mut dyn FnMut() -> Result<(), Break>) -> Result<Box<dyn Source>, String> {
        match BulkKey::decode(key)? {
            BulkKey::ObjectAt(object, at) => self.find_at(object, at, waiting),
            BulkKey::Arriving(object, of) => self.find_named(object, of, waiting),
            BulkKey::Flow { key, digest, patience_ms } => {
                let wanted = Wanted { key, digest, patience: Duration::from_millis(patience_ms.into()) };
                self.shared.flows.find(&wanted, &mut || match (self.stop)() {
                    true => Err("the node stops".to_owned()),
                    false => waiting().map_err(|why| why.to_string()),
                })
            }
        }
    }
}

impl Finder<'_> {
    /// Finds what this node fetches or has fetched, as soon as it begins to arrive.
    fn find_named(
        &self,
        object: ObjectId,
        of: Location,
        waiting: &mut dyn FnMut() -> Result<(), Break>,
    ) -> Result<Box<dyn Source>, String> {
        let until = Instant::now() + NAMED_WAIT_MAX;
        let mut tries = 0;
        loop {
            match self.shared.names.wait(object, of, WAITING_EVERY).map_err(|why| format!("{object}: {why}"))? {
                // It may be sealed or given up between the look and the pin.
                Some(at) => match self.pin(at) {
                    Ok(source) => return Ok(source),
                    Err(_) if tries < SERVE_TRIES_MAX => tries += 1,
                    Err(error) => return Err(format!("{object}: {error}")),
                },
                None if (self.stop)() => return Err(format!("{object}: the node stops")),
                None if Instant::now() >= until => {
                    let seconds = NAMED_WAIT_MAX.as_secs();
                    return Err(format!("{object} has not begun to arrive here for {seconds} s"));
                }
                None => waiting().map_err(|why| why.to_string())?,
            }
        }
    }

    /// Finds what lies here, or is restored for it.
    fn find_at(
        &self,
        object: ObjectId,
        first: Location,
        waiting: &mut dyn FnMut() -> Result<(), Break>,
    ) -> Result<Box<dyn Source>, String> {
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
