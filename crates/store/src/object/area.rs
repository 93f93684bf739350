//! An object that several threads write at once, each another part, and that others read where it is final.
//!
//! [`Unsealed`] has one writer that goes from the first byte to the last. What comes in several streams (a reduce, a call of
//! a group) is written in several places at a time, and read from where it is final while the rest comes. An [`Area`] is the
//! claim of such an object: it hands out the right to write a range for a while ([`AreaWrite`]), and never a range of which a
//! part is being written. When all of it is written it is sealed like any other.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Location, Sealed, Unsealed, UnsealedLocation};
use crate::arena::SPAN_BYTES;
use crate::client::WriteError;
use crate::copy;
use crate::sync::Ordering;
use crate::table::EntryState;

/// Why a range of an area cannot be had. A bug of who plans the order of reads and writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AreaError {
    /// Beyond the end.
    #[error("bytes {start} to {end} are beyond the {len} of the area")]
    OutOfBounds {
        /// The first byte.
        start: u64,
        /// The end.
        end: u64,
        /// The area's length.
        len: u64,
    },
    /// Somebody writes a part of it.
    #[error("bytes {start} to {end} of the area are being written by another stream: the plan is broken")]
    Busy {
        /// The first byte.
        start: u64,
        /// The end.
        end: u64,
    },
    /// It is complete.
    #[error("the area is sealed already")]
    Sealed,
}

#[derive(Debug)]
struct State {
    /// What is being written now: few, one for each stream.
    writes: Vec<Range<u64>>,
    /// Bytes from the first that are final and told.
    published: u64,
    sealed: bool,
}

/// An object that is written in several places at once.
///
/// Dropping it unsealed leaves the object for the node to abort.
#[derive(Debug)]
pub struct Area {
    /// The claim: it holds the pin.
    claim: Unsealed,
    state: Mutex<State>,
}

impl Area {
    pub(super) fn over(claim: Unsealed) -> Self {
        let state = State { writes: Vec::new(), published: 0, sealed: false };
        Self { claim, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between the statements that change it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self) -> Location {
        self.claim.location
    }

    /// The area's length in bytes.
    pub fn len(&self) -> u64 {
        self.place().len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it lies; what a reader of its first part needs.
    pub fn location(&self) -> UnsealedLocation {
        self.claim.location()
    }

    /// Where its first byte lies in the arena's file; none when it lies in the overflow file.
    pub fn file_offset(&self) -> Option<u64> {
        Some(self.place().offset).filter(|offset| !self.claim.client.arena().is_overflow(*offset))
    }

    fn check(&self, range: &Range<u64>, state: &State) -> Result<(), AreaError> {
        let Range { start, end } = *range;
        if start > end || end > self.len() {
            return Err(AreaError::OutOfBounds { start, end, len: self.len() });
        }
        let overlaps = |write: &Range<u64>| write.start < end && start < write.end;
        if state.writes.iter().any(overlaps) { Err(AreaError::Busy { start, end }) } else { Ok(()) }
    }

    /// The right to write a range, until it is dropped. Nobody else may write or read a part of it meanwhile.
    pub fn write(self: &Arc<Self>, range: Range<u64>) -> Result<AreaWrite, AreaError> {
        let mut state = self.lock();
        self.check(&range, &state)?;
        if state.sealed {
            return Err(AreaError::Sealed);
        }
        state.writes.push(range.clone());
        drop(state);
        Ok(AreaWrite { area: Arc::clone(self), range })
    }

    /// Bytes that are final: whoever reads them knows that they were written, and nobody writes them again while the slice
    /// is used. That they are not being written now is checked.
    pub fn read(&self, range: Range<u64>) -> Result<&[u8], AreaError> {
        self.check(&range, &self.lock())?;
        let (offset, len) = (self.place().offset + range.start, range.end - range.start);
        let out_of_bounds = AreaError::OutOfBounds { start: range.start, end: range.end, len: self.len() };
        let start = self.claim.client.arena().read_at(offset, len).ok_or(out_of_bounds)?;
        // SAFETY: in bounds (just checked, twice), and the claim's pin keeps the range ours. The memory is initialised: fresh
        // pages are zero. No write of it is under way (just checked), and by the rule of a plan, which its check before the
        // start enforces for writes, a range is read only when the last stream that writes it has passed it.
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), len as usize) })
    }

    /// Finds and maps the pages of a range and on to where pages are mapped together, and says up to which byte. Who fills
    /// them then (the kernel, for a socket) meets no page fault, and missing memory is an error here.
    pub fn prepare(&self, range: Range<u64>) -> Result<u64, WriteError> {
        let Location { offset, len, .. } = self.place();
        let (start, last) = (offset + range.start.min(len), offset + len);
        let end = (offset + range.end.min(len)).div_ceil(SPAN_BYTES).saturating_mul(SPAN_BYTES).min(last);
        copy::populate_range(self.claim.client.arena(), start, end).map_err(WriteError::NoMemory)?;
        Ok(end - offset)
    }

    /// Tells readers of the object that its first bytes, up to this one, are final. A lower mark than the last is nothing new.
    pub fn publish(&self, watermark: u64) {
        let mut state = self.lock();
        if watermark <= state.published || watermark > self.len() {
            return;
        }
        state.published = watermark;
        if let Some(entry) = self.claim.client.table().entry(self.place().entry) {
            // Release: a reader that sees the new watermark sees the bytes below it, of which this thread or another before
            // it under the lock has seen all.
            entry.watermark.store(watermark, Ordering::Release);
        }
    }

    /// Makes the object complete and immutable. All of it must have been published, and nobody writes.
    pub fn seal(&self) -> Result<Sealed, WriteError> {
        let mut state = self.lock();
        let Location { entry, generation, len, .. } = self.place();
        if state.published != len || !state.writes.is_empty() {
            return Err(WriteError::Unfinished { watermark: state.published, len });
        }
        let entry = self.claim.client.table().entry(entry);
        let sealed = entry.is_some_and(|entry| entry.advance(generation, EntryState::Writing, EntryState::Sealed));
        state.sealed = true;
        if sealed { Ok(Sealed(self.place())) } else { Err(WriteError::Aborted) }
    }
}

/// The right to write a range of an area.
#[derive(Debug)]
pub struct AreaWrite {
    area: Arc<Area>,
    range: Range<u64>,
}

impl AreaWrite {
    /// The bytes. What they hold before they are written is unspecified.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (offset, len) = (self.area.place().offset + self.range.start, self.range.end - self.range.start);
        let start: Option<NonNull<u8>> = self.area.claim.client.arena().write_at(offset, len);
        let Some(start) = start else { return &mut [] };
        // SAFETY: in bounds (just checked); the memory is initialised, since fresh pages are zero. The area's claim is the
        // only one of its object, its pin keeps the range ours, and while this right exists no other overlaps it
        // (`Area::write`) and no read begins (`Area::read`).
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len as usize) }
    }
}

impl Drop for AreaWrite {
    fn drop(&mut self) {
        let mut state = self.area.lock();
        if let Some(at) = state.writes.iter().position(|write| *write == self.range) {
            state.writes.swap_remove(at);
        }
    }
}
