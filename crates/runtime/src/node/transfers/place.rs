//! Objects as bulk links see them: a place in this node's arena that fills, and a view of one that is sent.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bireme_core::id::ObjectId;
use bireme_core::value::Location;
use bireme_net::bulk::{Sink, Source};
use bireme_store::{Growing, Pinned, Sealed, Unsealed, WriteError};

use crate::node::pace::{Measured, Pace};
use crate::node::watched::Watched;

/// Pages are mapped this far ahead of what arrives, so that the kernel meets no page fault.
const PREPARE_BYTES: u64 = 2 << 20;

/// An arriving object and the map of them all know its growth. Who else does waits for it.
const GROWTHS_AT_REST: usize = 2;

/// Tells those who send an arriving object on that there is more of it, or that there never will be.
#[derive(Debug, Default)]
pub(in crate::node) struct Growth {
    ended: Watched<Option<String>>,
}

impl Growth {
    /// There is more.
    pub(in crate::node) fn grown(&self) {
        // Under the lock, so that who has just looked and is about to wait does not miss it.
        self.ended.change(|_| {});
    }

    /// There will be no more.
    pub(in crate::node) fn end(&self, reason: &str) {
        self.ended.change(|ended| *ended = Some(reason.to_owned()));
    }
}

/// Objects that arrive or are being made by a stage, by entry and generation.
pub(in crate::node) type ArrivingMap = BTreeMap<(u32, u32), Arc<Growth>>;
/// The same, for all threads.
pub(in crate::node) type Arriving = Arc<Mutex<ArrivingMap>>;

/// What this node fetches or has as a copy, by name: others may ask for it before it has a place.
#[derive(Debug, Default)]
pub(super) struct Names {
    named: Watched<BTreeMap<ObjectId, Named>>,
}

#[derive(Clone, Copy, Debug)]
struct Named {
    /// The number of its transfer.
    number: u64,
    /// The place under which it was asked for.
    of: Location,
    /// Where it is, once it has begun to arrive.
    at: Option<Location>,
}

impl Names {
    /// It is being fetched, and is or will be there.
    pub(super) fn set(&self, object: ObjectId, number: u64, of: Location, at: Option<Location>) {
        self.named.change(|named| named.insert(object, Named { number, of, at }));
    }

    /// A transfer was given up, or its copy dropped. One that began since then stays.
    pub(super) fn remove(&self, object: ObjectId, number: u64) {
        self.named.change(|named| {
            if named.get(&object).is_some_and(|named| named.number == number) {
                named.remove(&object);
            }
        });
    }

    /// Waits at most `patience` until the object has a place here. Nothing when it has none yet; an error when it will not
    /// come under this name.
    pub(super) fn wait(&self, object: ObjectId, of: Location, patience: Duration) -> Result<Option<Location>, String> {
        let found = self.named.wait(patience, |names| match names.get(&object) {
            Some(named) if named.of == of => named.at.map(Ok),
            Some(_) => Some(Err("it was asked for under another place here".to_owned())),
            None => Some(Err("it is not on its way here any more".to_owned())),
        });
        found.transpose()
    }
}

/// The place of an object that arrives.
#[derive(Debug)]
pub(super) struct Arrival {
    /// The number of its transfer.
    pub(super) number: u64,
    /// Where it is.
    pub(super) at: Location,
    writer: Unsealed,
    prepared: u64,
    growth: Arc<Growth>,
    pace: Pace,
}

impl Arrival {
    pub(super) fn new(number: u64, at: Location, writer: Unsealed, growth: Arc<Growth>) -> Self {
        Self { number, at, writer, prepared: 0, growth, pace: Pace::default() }
    }

    /// What comes now is from another sender.
    pub(super) fn begins_again(&mut self) {
        self.pace = Pace::default();
    }

    /// How fast its bytes came.
    pub(super) fn measured(&self) -> Option<Measured> {
        self.pace.measured()
    }

    /// Makes it readable as a whole.
    pub(super) fn seal(self) -> Result<Sealed, WriteError> {
        let sealed = self.writer.seal();
        self.growth.grown();
        sealed
    }

    /// Gives it up, with the reason for those who were sending it on.
    pub(super) fn give_up(self, reason: &str) {
        self.growth.end(reason);
    }
}

impl Sink for Arrival {
    fn len(&self) -> u64 {
        self.writer.len()
    }

    fn is_sent_on(&self) -> bool {
        Arc::strong_count(&self.growth) > GROWTHS_AT_REST
    }

    fn watermark(&self) -> u64 {
        self.writer.watermark()
    }

    fn spare(&mut self, most: usize) -> io::Result<&mut [u8]> {
        let watermark = self.writer.watermark();
        if watermark + most as u64 > self.prepared {
            let ahead = PREPARE_BYTES.max(most as u64);
            self.prepared = watermark + self.writer.prepare(ahead).map_err(io::Error::other)?;
        }
        let spare = self.writer.spare_mut();
        let most = most.min(spare.len());
        Ok(&mut spare[..most])
    }

    fn advance(&mut self, len: u64) -> io::Result<()> {
        self.writer.advance(len).map_err(io::Error::other)?;
        self.growth.grown();
        self.pace.came(len);
        Ok(())
    }
}

/// A complete object that is sent.
pub(super) struct Whole(pub(super) Pinned);

impl Source for Whole {
    fn len(&self) -> u64 {
        self.0.location().len
    }

    fn wait_beyond(&self, _at: u64, _patience: Duration) -> Result<u64, String> {
        Ok(self.len())
    }

    fn bytes(&self, range: Range<u64>) -> &[u8] {
        &self.0[range.start as usize..range.end as usize]
    }

    fn offset(&self, at: u64) -> Option<u64> {
        Some(self.0.file_offset()? + at)
    }
}

/// An object that is sent on while it arrives.
pub(in crate::node) struct Part {
    pub(in crate::node) view: Growing,
    pub(in crate::node) growth: Arc<Growth>,
}

impl Source for Part {
    fn len(&self) -> u64 {
        self.view.len()
    }

    fn wait_beyond(&self, at: u64, patience: Duration) -> Result<u64, String> {
        let found = self.growth.ended.wait(patience, |ended| {
            let ready = self.view.watermark();
            if ready > at { Some(Ok(ready)) } else { ended.clone().map(Err) }
        });
        found.unwrap_or_else(|| Ok(self.view.watermark()))
    }

    fn bytes(&self, range: Range<u64>) -> &[u8] {
        self.view.bytes(range)
    }

    fn offset(&self, at: u64) -> Option<u64> {
        Some(self.view.file_offset()? + at)
    }
}
