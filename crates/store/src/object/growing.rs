//! A view of an object that is still being written: what is final can be read, and sent on, while the rest comes.

use std::ops::Range;

use super::Pinned;
use crate::client::StoreClient;
use crate::sync::Ordering;

/// The right to read what is final of an object, now and as it grows. For a sealed object that is all of it.
///
/// When the node gives the object up, the view keeps what it has; it does not grow any more.
#[derive(Debug, Clone)]
pub struct Growing {
    client: StoreClient,
    /// A pin of the whole range, of which only the bytes below the watermark may be looked at.
    whole: Pinned,
}

impl Growing {
    /// Over a pin of an object in a state in which its watermark counts.
    pub(crate) fn over(client: StoreClient, whole: Pinned) -> Self {
        Self { client, whole }
    }

    /// The object's full length in bytes.
    pub fn len(&self) -> u64 {
        self.whole.location().len
    }

    /// Whether the object has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the object lies.
    pub fn location(&self) -> super::Location {
        self.whole.location()
    }

    /// Where its first byte lies in the arena's file; none when it lies in the overflow file.
    pub fn file_offset(&self) -> Option<u64> {
        self.whole.file_offset()
    }

    /// How many bytes are final by now.
    pub fn watermark(&self) -> u64 {
        let entry = self.client.table().entry(self.whole.location().entry);
        // Acquire: pairs with the Release in `Unsealed::advance`. The word may be garbage that a broken process wrote.
        entry.map_or(0, |entry| entry.watermark.load(Ordering::Acquire)).min(self.len())
    }

    /// The bytes of a range, or as many of them as are final.
    pub fn bytes(&self, range: Range<u64>) -> &[u8] {
        let end = range.end.min(self.watermark());
        let start = range.start.min(end);
        self.whole.below(start, end)
    }

    /// The first `len` bytes, which are final.
    pub(crate) fn into_view(self, len: u64) -> Pinned {
        self.whole.shortened(len)
    }
}
