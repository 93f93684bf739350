//! Spill and restore, in three parts so that the file work can run on another thread: `begin_*` decides and reserves
//! (node thread), `run` of the job moves the bytes (any thread), `finish_*` makes it so (node thread).
//!
//! Between begin and finish the object is marked busy, so its memory cannot be given away; a free in between is
//! carried out by finish. A job that is dropped instead of finished leaves its object busy for good.

use std::sync::Arc;

use super::{Room, Store, StoreError};
use crate::object::Sealed;
use crate::pin;
use crate::spill::{RestoreDone, RestoreError, RestoreJob, SpillDone, SpillError, SpillJob, SpillTicket};
use crate::sync::Ordering;
use crate::table::EntryState;

impl Store {
    /// Starts to spill a sealed object. Readers go on undisturbed.
    pub fn begin_spill(&mut self, entry: u32, generation: u32) -> Result<SpillJob, SpillError> {
        let Some(sealed) = self.sealed(entry, generation) else { return Err(SpillError::NotSealed) };
        if self.held(entry, generation).is_none_or(|held| held.busy) {
            return Err(SpillError::Busy);
        }
        let spilled = self.spill_area.reserve(sealed.len(), self.overflow.used())?;
        if let Ok(held) = self.held_mut(entry, generation) {
            held.busy = true;
        }
        Ok(SpillJob::new(Arc::clone(&self.arena), sealed.0, spilled))
    }

    /// Ends a spill: takes the object out of the arena if its bytes are in the file and nobody has it pinned. After
    /// any error except `Freed` the object is in the arena as before.
    pub fn finish_spill(&mut self, done: SpillDone) -> Result<SpillTicket, SpillError> {
        let (location, outcome) = done.into_parts();
        let held = self.held_mut(location.entry, location.generation).map_err(|_| SpillError::NotSealed)?;
        held.busy = false;
        if held.condemned {
            self.sweep();
            return Err(SpillError::Freed);
        }
        let kept = held.holds > 0;
        let ticket = outcome?;
        if kept {
            return Err(SpillError::Pinned);
        }
        let Some(entry) = self.table.entry(location.entry) else { return Err(SpillError::NotSealed) };
        match pin::try_evict(entry, location.generation, self.pin_words(location.entry)) {
            Ok(()) => {
                self.retire(location.entry);
                Ok(ticket)
            }
            Err(pin::EvictRefused::Pinned) => Err(SpillError::Pinned),
            Err(pin::EvictRefused::NotSealed) => Err(SpillError::NotSealed),
        }
    }

    /// Spills in one call, on this thread.
    pub fn spill(&mut self, entry: u32, generation: u32) -> Result<SpillTicket, SpillError> {
        let job = self.begin_spill(entry, generation)?;
        self.finish_spill(job.run())
    }

    /// Allocates memory to bring a spilled object back.
    pub fn begin_restore(&mut self, ticket: &SpillTicket) -> Result<RestoreJob, StoreError> {
        self.begin_restore_in(ticket, Room::Memory)
    }

    /// The same in the overflow file.
    pub fn begin_restore_overflow(&mut self, ticket: &SpillTicket) -> Result<RestoreJob, StoreError> {
        self.begin_restore_in(ticket, Room::Overflow)
    }

    fn begin_restore_in(&mut self, ticket: &SpillTicket, room: Room) -> Result<RestoreJob, StoreError> {
        // `Writing`, so that no other process can claim it.
        let location = self.create_in(ticket.len(), EntryState::Writing, room)?;
        self.held_mut(location.entry, location.generation)?.busy = true;
        Ok(RestoreJob::new(Arc::clone(&self.arena), location, ticket.clone()))
    }

    /// Ends a restore. On an error the memory is free again and the ticket is still good for another try.
    pub fn finish_restore(&mut self, done: RestoreDone) -> Result<Sealed, RestoreError> {
        let (location, outcome) = done.into_parts();
        let (entry, generation) = (location.entry, location.generation);
        self.held_mut(entry, generation)?.busy = false;
        let sealed = self.table.entry(entry).filter(|_| outcome.is_ok()).is_some_and(|shared| {
            // Relaxed: `advance` releases it together with the bytes.
            shared.watermark.store(location.len, Ordering::Relaxed);
            shared.advance(generation, EntryState::Writing, EntryState::Sealed)
        });
        if sealed {
            return Ok(Sealed(location));
        }
        // Freed or deferred: either way the caller has no more to do with it.
        let _ = self.free(entry, generation)?;
        outcome.and(Err(RestoreError::Freed))
    }

    /// Restores in one call, on this thread.
    pub fn restore(&mut self, ticket: &SpillTicket) -> Result<Sealed, RestoreError> {
        let job = self.begin_restore(ticket)?;
        self.finish_restore(job.run())
    }
}
