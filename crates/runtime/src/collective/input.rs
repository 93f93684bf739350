//! What a member brings to a large call: an object of its node's store that the call's stage reads.
//!
//! Who waits for a call keeps its arrays as they are meanwhile, so they are written while the stage works on them, in the
//! order in which it uses them. What a call that goes on by itself needs is written before.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bireme_core::message::ToNode;
use bireme_core::value::Location;
use bireme_store::{Unsealed, WriteError};

use crate::error::Error;
use crate::function::{Encoded, Part};
use crate::process::Process;

/// The node hears that there is more of an input each time that so much was written.
const STEP_BYTES: usize = 2 << 20;

/// Who gives way waits as long as so many steps took it: longer when the cores are busy. Links are slower than memory, and on busy cores they
/// would stand still while much is written that is needed much later.
const PAUSE_STEPS: u32 = 2;

/// What a member brings to a large call.
pub(super) enum Brought {
    Nothing,
    Written(Lent),
    /// Arrays of a caller that waits.
    Here(Vec<Part>),
}

/// An object of this process that nobody else knows yet.
pub(super) struct Lent {
    process: Arc<Process>,
    at: Option<Location>,
}

impl Lent {
    /// Writes arrays into the store.
    pub(super) fn write(process: &Arc<Process>, inputs: Vec<Part>) -> Result<Self, Error> {
        let at = process.write(&Encoded { tail: inputs, ..Encoded::default() })?;
        Ok(Self { process: Arc::clone(process), at: Some(at) })
    }

    /// Hands it over.
    pub(super) fn give(mut self) -> Option<Location> {
        self.at.take()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(at) = self.at.take() {
            self.process.tell(&ToNode::FreeObject { at });
        }
    }
}

/// Arrays that are written while a stage reads them.
pub(super) struct Filling {
    room: Lent,
    writer: Unsealed,
    arrays: Vec<Part>,
    /// The order in which the bytes of the only array are used; none: as they lie.
    uses: Vec<Range<u64>>,
}

impl Filling {
    /// Makes room for arrays.
    pub(super) fn new(process: &Arc<Process>, arrays: Vec<Part>, uses: Vec<Range<u64>>) -> Result<Self, Error> {
        let len = arrays.iter().map(|array| (**array).as_ref().len() as u64).sum();
        let (at, writer) = process.make_room(len)?;
        let room = Lent { process: Arc::clone(process), at: Some(at) };
        Ok(Self { room, writer, arrays, uses })
    }

    /// Where it will be.
    pub(super) fn at(&self) -> Option<Location> {
        self.room.at
    }

    /// Writes the arrays for a stage that has them already; `grew` is called as often as there is more. Who gives way leaves the
    /// cores to those who move what is written.
    pub(super) fn fill(self, gives_way: bool, mut grew: impl FnMut()) -> Result<(), Error> {
        let Self { room, mut writer, arrays, uses } = self;
        // It is the stage's.
        room.give();
        let mut prepared = 0;
        let mut write = |bytes: &[u8]| {
            bytes.chunks(STEP_BYTES).try_for_each(|step| {
                let begun = Instant::now();
                // Steps end anywhere, and pages are mapped many at a time: else each call would find them cold.
                if writer.watermark() + step.len() as u64 > prepared {
                    prepared = writer.watermark() + writer.prepare(step.len() as u64)?;
                }
                // On one thread: the stage works meanwhile, and waits for no more than it needs.
                writer.copy_from_with(step, 1)?;
                grew();
                if gives_way {
                    std::thread::sleep(begun.elapsed() * PAUSE_STEPS);
                }
                Ok::<(), WriteError>(())
            })
        };
        let written = arrays.iter().map(|array| (**array).as_ref()).try_for_each(|array| match uses.is_empty() {
            true => write(array),
            false => uses.iter().try_for_each(|of| write(&array[of.start as usize..of.end as usize])),
        });
        match written.and_then(|()| writer.seal()) {
            // A stage that is over lets go of its inputs, and who waits for it hears why.
            Ok(_) | Err(WriteError::Aborted) => Ok(()),
            Err(error) => Err(Error::StoreFull(error.to_string())),
        }
    }
}
