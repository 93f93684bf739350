//! What an object is to its users: where it lies, the right to write it once, and the right to read it.
//!
//! `UnsealedLocation` and `Sealed` are plain data that travel between processes as 24 bytes and are checked when
//! used. [`Unsealed`] and [`Pinned`] are tokens of this process: both hold a pin, so the node cannot give their memory
//! away, and both give it back when dropped. They must not be used in a forked child, whose pins are its own.

mod area;
mod growing;
mod private;

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::arena::SPAN_BYTES;
use crate::client::{StoreClient, WriteError};
use crate::copy;
use crate::pin;
use crate::sync::Ordering;
use crate::table::{EntryState, OBJECTS_MAX};

pub use area::{Area, AreaError, AreaWrite};
pub use growing::Growing;
pub use private::PrivateView;

/// The size of a location on the wire.
pub const LOCATION_BYTES: usize = 24;

/// Bytes that cannot be a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are not the location of an object: the sender is broken or speaks another version")]
pub struct LocationError;

/// Where an object lies: its table entry, the entry's generation, and its range in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Location {
    /// Index in the object table.
    pub entry: u32,
    /// How often the entry had been used before; tells an old location from a new one.
    pub generation: u32,
    /// First byte in the arena.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Location {
    /// The wire form: four little-endian numbers in the order of the fields.
    pub fn to_bytes(self) -> [u8; LOCATION_BYTES] {
        let mut bytes = [0; LOCATION_BYTES];
        bytes[0..4].copy_from_slice(&self.entry.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Reads the wire form. Whether the object is there is found out when the location is used.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LocationError> {
        let bytes: &[u8; LOCATION_BYTES] = bytes.try_into().map_err(|_| LocationError)?;
        let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        let location = Self { entry: half(0), generation: half(4), offset: word(8), len: word(16) };
        let plausible = location.entry < OBJECTS_MAX && location.offset.checked_add(location.len).is_some();
        if plausible { Ok(location) } else { Err(LocationError) }
    }
}

/// Where an object that is not complete yet lies. One process may claim it with [`StoreClient::writer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnsealedLocation(pub Location);

/// Where a complete, immutable object lies. [`StoreClient::pin`] turns it into a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sealed(pub Location);

impl Sealed {
    /// The object's length in bytes.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Whether the object has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }
}

/// The right to write one object once, from its first byte to its last. Bytes below the watermark are final and may
/// be read by others while the rest is written.
///
/// Dropping it unsealed leaves the object for the node to abort.
#[derive(Debug)]
#[must_use = "an object that is never sealed can be read by nobody"]
pub struct Unsealed {
    client: StoreClient,
    location: Location,
    watermark: u64,
}

impl Unsealed {
    /// Wraps a claim whose pin is already taken.
    pub(crate) fn claimed(client: StoreClient, location: Location) -> Self {
        Self { client, location, watermark: 0 }
    }

    /// Where the object lies; what a reader of its first part needs.
    pub fn location(&self) -> UnsealedLocation {
        UnsealedLocation(self.location)
    }

    /// The object's full length in bytes.
    pub fn len(&self) -> u64 {
        self.location.len
    }

    /// Whether the object has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.location.len == 0
    }

    /// How many bytes are final.
    pub fn watermark(&self) -> u64 {
        self.watermark
    }

    /// The bytes above the watermark, which may still be written. What they hold before that is unspecified.
    pub fn spare_mut(&mut self) -> &mut [u8] {
        let len = self.location.len - self.watermark;
        let Some(start) = self.client.arena().write_at(self.location.offset + self.watermark, len) else {
            return &mut [];
        };
        // SAFETY: in bounds (just checked). We are the only writer (the claim moved the entry to `Writing`, which
        // succeeds once per generation), nobody reads above the watermark, and our pin keeps the range ours. The
        // memory is initialised: fresh pages are zero.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len as usize) }
    }

    /// Finds, zeroes and maps the pages of the next `len` bytes, so that who fills them (the kernel, for a socket) meets
    /// no page fault, and missing memory is an error here. It goes on to where pages are mapped together, and says how
    /// many bytes above the watermark are prepared. What this process has mapped before costs nothing.
    pub fn prepare(&mut self, len: u64) -> Result<u64, WriteError> {
        let start = self.location.offset + self.watermark;
        let end = self.location.offset + self.location.len;
        let end = start.saturating_add(len).div_ceil(SPAN_BYTES).saturating_mul(SPAN_BYTES).min(end);
        copy::populate_range(self.client.arena(), start, end).map_err(WriteError::NoMemory)?;
        Ok(end - start)
    }

    /// Declares the next `len` bytes final.
    pub fn advance(&mut self, len: u64) -> Result<(), WriteError> {
        let left = self.location.len - self.watermark;
        if len > left {
            return Err(WriteError::Overrun { asked: len, left });
        }
        self.watermark += len;
        if let Some(entry) = self.client.table().entry(self.location.entry) {
            // Release: a reader that sees the new watermark sees the bytes below it.
            entry.watermark.store(self.watermark, Ordering::Release);
        }
        Ok(())
    }

    /// Turns the claim into one that several threads can use. Nothing may have been written.
    pub fn into_area(self) -> Area {
        debug_assert_eq!(self.watermark, 0, "an area is written from scratch");
        Area::over(self)
    }

    /// Copies bytes in at the watermark and declares them final; large ones on several threads.
    pub fn copy_from(&mut self, src: &[u8]) -> Result<(), WriteError> {
        self.copy_from_with(src, copy::threads_default())
    }

    /// As [`Unsealed::copy_from`], on at most `threads` threads.
    pub fn copy_from_with(&mut self, src: &[u8], threads: usize) -> Result<(), WriteError> {
        let left = self.location.len - self.watermark;
        if src.len() as u64 > left {
            return Err(WriteError::Overrun { asked: src.len() as u64, left });
        }
        let start = self.location.offset + self.watermark;
        // SAFETY: the range is above our watermark and inside the object, so it is ours alone as in `spare_mut`; a
        // shared slice of this process cannot overlap it, since only `spare_mut` gives access to it.
        unsafe { copy::copy_into(self.client.arena(), start, src, threads) }.map_err(WriteError::NoMemory)?;
        self.advance(src.len() as u64)
    }

    /// Makes the object complete and immutable. All of its bytes must have been written.
    pub fn seal(self) -> Result<Sealed, WriteError> {
        let Location { entry, generation, len, .. } = self.location;
        if self.watermark != len {
            return Err(WriteError::Unfinished { watermark: self.watermark, len });
        }
        let sealed = self
            .client
            .table()
            .entry(entry)
            .is_some_and(|entry| entry.advance(generation, EntryState::Writing, EntryState::Sealed));
        if sealed { Ok(Sealed(self.location)) } else { Err(WriteError::Aborted) }
    }
}

impl Drop for Unsealed {
    fn drop(&mut self) {
        if self.client.holds_pins()
            && let Some(word) = self.client.pin_word(self.location.entry)
        {
            pin::release(word);
        }
    }
}

/// The right to read an object, as a slice of the read-only mapping. A clone is one more pin.
pub struct Pinned {
    client: StoreClient,
    location: Location,
    start: NonNull<u8>,
}

// SAFETY: the bytes behind `start` are immutable while the pin is held, whichever thread holds it; the count is atomic.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Wraps a pin that is already taken; `location.len` bytes from `start` are immutable and inside the mapping.
    pub(crate) fn held(client: StoreClient, location: Location, start: NonNull<u8>) -> Self {
        Self { client, location, start }
    }

    /// Where the object lies. The length is that of this view.
    pub fn location(&self) -> Location {
        self.location
    }

    /// Where its first byte lies in the arena's file; none when it lies in the overflow file.
    pub fn file_offset(&self) -> Option<u64> {
        Some(self.location.offset).filter(|offset| !self.client.arena().is_overflow(*offset))
    }

    /// A part of the view; its bytes are final, those beyond it may not be.
    fn below(&self, start: u64, end: u64) -> &[u8] {
        debug_assert!(start <= end && end <= self.location.len);
        // SAFETY: as in `deref`, for a part of the range that the caller knows to be final.
        unsafe { std::slice::from_raw_parts(self.start.add(start as usize).as_ptr(), (end - start) as usize) }
    }

    /// The same pin for a view of the first `len` bytes.
    fn shortened(mut self, len: u64) -> Self {
        self.location.len = self.location.len.min(len);
        self
    }
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `held` was given an in-bounds range of immutable bytes; the pin keeps the node from reusing them
        // (`OBJ-1`, `OBJ-2`) and `client` keeps the mapping alive.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.location.len as usize) }
    }
}

impl Clone for Pinned {
    fn clone(&self) -> Self {
        if self.client.holds_pins()
            && let Some(word) = self.client.pin_word(self.location.entry)
        {
            pin::acquire_again(word);
        }
        Self { client: self.client.clone(), location: self.location, start: self.start }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.client.holds_pins()
            && let Some(word) = self.client.pin_word(self.location.entry)
        {
            pin::release(word);
        }
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("location", &self.location).finish_non_exhaustive()
    }
}
