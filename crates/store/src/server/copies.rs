//! Secondary copies: objects whose bytes another machine has too. When room is needed they are dropped, least recently
//! used first, before anything is spilled; whoever keeps the list of copies has to be told.

use super::{Store, StoreError};
use crate::object::Sealed;
use crate::pin;

/// Why a copy was not dropped. It is as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DropError {
    /// Somebody reads it, or a file job runs.
    #[error("the copy is in use: drop another one")]
    InUse,
    /// It does not exist, is not complete, or is the only copy as far as this store knows.
    #[error("this is no secondary copy of this store: free or spill it instead")]
    NotSecondary,
}

impl Store {
    /// Says whether the bytes of an object are elsewhere too. The last copy must not be called secondary.
    pub fn set_secondary(&mut self, entry: u32, generation: u32, secondary: bool) -> Result<(), StoreError> {
        self.held_mut(entry, generation)?.secondary = secondary;
        Ok(())
    }

    /// Sealed secondary copies that nobody has pinned, least recently used first, of at least `bytes_needed` bytes
    /// together (or all there are).
    pub fn drop_candidates(&self, bytes_needed: u64) -> Vec<Sealed> {
        self.unused(bytes_needed, true)
    }

    /// Drops a secondary copy that nobody uses: its memory is free at once.
    pub fn drop_copy(&mut self, entry: u32, generation: u32) -> Result<(), DropError> {
        let held = self.held(entry, generation).ok_or(DropError::NotSecondary)?;
        if !held.secondary || held.condemned {
            return Err(DropError::NotSecondary);
        }
        if held.busy || held.holds > 0 {
            return Err(DropError::InUse);
        }
        let shared = self.table.entry(entry).ok_or(DropError::NotSecondary)?;
        match pin::try_evict(shared, generation, self.pin_words(entry)) {
            Ok(()) => {
                self.retire(entry);
                Ok(())
            }
            Err(pin::EvictRefused::Pinned) => Err(DropError::InUse),
            Err(pin::EvictRefused::NotSealed) => Err(DropError::NotSecondary),
        }
    }
}
