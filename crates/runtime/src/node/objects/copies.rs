//! What the node's own transfers need of the store: room, places, and copies that may be dropped.
//!
//! Nothing is answered at once: [`Objects::progress`] looks at what was asked, and [`Objects::take_answers`] has the
//! answers then.

use bireme_core::value::Location;
use bireme_store::{Sealed, UnsealedLocation};

use super::{Answer, Asker, Objects};
use crate::objects::{from_store, to_store};

impl Objects {
    /// Asks for room for a copy. It waits its turn with the wishes of processes.
    pub(in crate::node) fn ask_room(&mut self, number: u64, len: u64) {
        self.forget_old_error();
        self.wish(Asker::Node(number), len);
        self.doorbell.ring_self();
    }

    /// Asks where an object is now; it is restored when it was spilled.
    pub(in crate::node) fn ask_place(&mut self, number: u64, at: Location) {
        self.forget_old_error();
        let key = self.first_key(at);
        self.seekers.entry(key).or_default().push(number);
        self.doorbell.ring_self();
    }

    /// What was answered since the last look.
    pub(in crate::node) fn take_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    /// What was answered to stages since the last look.
    pub(in crate::node) fn take_stage_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.stage_answers)
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        let (Answer::Room { number, .. } | Answer::Place { number, .. }) = &answer;
        let of_stage = *number >= super::STAGE_NUMBERS;
        if of_stage { self.stage_answers.push(answer) } else { self.answers.push(answer) }
    }

    /// Copies that were dropped since the last look.
    pub(in crate::node) fn take_dropped(&mut self) -> Vec<Location> {
        std::mem::take(&mut self.dropped)
    }

    /// Whether somebody waits for room that there is not.
    pub(in crate::node) fn is_short_of_room(&self) -> bool {
        !self.wishes.is_empty() || !self.sought_since.is_empty()
    }

    /// Bytes of the arena that are free. What can be evicted beside them is not known without a look at every pin.
    pub(in crate::node) fn room_bytes(&self) -> u64 {
        let stats = self.store.stats();
        stats.capacity - stats.used
    }

    /// Gives up an object that was not completed.
    pub(in crate::node) fn abort(&mut self, at: Location) {
        // An unknown one was given up before.
        let _ = self.store.abort(UnsealedLocation(to_store(at)));
    }

    /// Says whether the bytes of a sealed object are on another node too. False when there is no such object.
    pub(in crate::node) fn set_secondary(&mut self, at: Location, secondary: bool) -> bool {
        self.store.set_secondary(at.entry, at.generation, secondary).is_ok()
    }

    /// The place of a copy that is still here, which counts as a use of it.
    pub(in crate::node) fn use_copy(&mut self, at: Location) -> Option<Location> {
        let Sealed(found) = self.store.sealed(at.entry, at.generation)?;
        self.store.touch(at.entry, at.generation);
        Some(from_store(self.node, found))
    }

    /// Drops copies that nobody reads, for `len` bytes or as many as there are. False when there are none.
    pub(super) fn drop_copies(&mut self, len: u64) -> bool {
        let mut dropped = false;
        for Sealed(at) in self.store.drop_candidates(len.max(1)) {
            // One that somebody has pinned meanwhile stays.
            if self.store.drop_copy(at.entry, at.generation).is_ok() {
                self.dropped.push(from_store(self.node, at));
                dropped = true;
            }
        }
        dropped
    }
}
