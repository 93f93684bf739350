//! The spill file: objects that had to leave the arena.
//!
//! One file, made when first needed and unlinked from the start, so that nothing is left behind however the node
//! ends. Ranges of it are given out by the same allocator as the arena's, in whole file blocks; a range that is given
//! back is punched out, so the disk space returns. A [`SpillTicket`] is the right to such a range, and the last clone
//! to be dropped gives it back. Every object has a checksum, since a disk can lie.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use xxhash_rust::xxh3::Xxh3;

use crate::alloc::{Allocation, Allocator};
use crate::arena::{Arena, ArenaError, OVERFLOW_FACTOR_MAX};
use crate::mapping;
use crate::object::Location;
use crate::server::StoreError;

/// The file block: offsets and lengths are multiples, so that punching a range out frees all of it.
const BLOCK_BYTES: u64 = 4096;
/// The overflow file is never longer: it takes address space in every process that uses it.
pub const OVERFLOW_BYTES_MAX: u64 = 8 << 40;
/// How much is written or read at a time: it stays in the cache between the file and the checksum.
const CHUNK_BYTES: usize = 1 << 20;

/// Where and how much may be spilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpillOptions {
    /// A directory on a real disk; the file in it has no name.
    pub directory: PathBuf,
    /// The most bytes that may be in the file. Zero switches spilling off.
    pub spill_bytes_max: u64,
}

impl Default for SpillOptions {
    /// The system's directory for temporary files, without a limit of our own.
    fn default() -> Self {
        Self { directory: std::env::temp_dir(), spill_bytes_max: 1 << 46 }
    }
}

impl SpillOptions {
    /// Makes sure that objects can go to the directory, which is made if it is not there and its parent is; only its user may
    /// look into it then.
    pub fn make_directory(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        open_unnamed(&self.directory).map(drop)
    }

    /// The file for objects that find no room in an arena of `capacity` bytes ([`crate::Arena::with_overflow`]), next to the
    /// spill file and without a name. It is empty, and never used, where spilling is off or the directory is no good.
    pub fn make_overflow(&self, capacity: u64) -> Result<OwnedFd, ArenaError> {
        let most = capacity.saturating_mul(OVERFLOW_FACTOR_MAX).min(OVERFLOW_BYTES_MAX);
        let len = self.spill_bytes_max.min(file_bytes_max()).min(most) / BLOCK_BYTES * BLOCK_BYTES;
        let made = open_unnamed(&self.directory).and_then(|file| file.set_len(len).map(|()| file));
        match made {
            Ok(file) if len > 0 => Ok(file.into()),
            _ => Ok(mapping::create_sealed(c"bireme-no-overflow", 0)?),
        }
    }
}

/// The longest file that this process may write: a write beyond it would be a deadly signal.
fn file_bytes_max() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Makes a file that has no name, so that nothing is left of it however its users end.
fn open_unnamed(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let unnamed = options.clone().custom_flags(OFlags::TMPFILE.bits() as i32).mode(0o600).open(directory);
    match unnamed {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::ISDIR)) => {}
        other => return other,
    }
    // File systems without unnamed files: a name for the moment between these two calls.
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!(".bireme-spill-{}-{number}", std::process::id()));
    let file = options.create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Why an object was not spilled. Except after `Freed` it is in the arena as before.
#[derive(Debug, thiserror::Error)]
pub enum SpillError {
    /// `spill_bytes_max` would be passed.
    #[error("no room to spill {asked} bytes: {spilled} of at most {max} are spilled; raise spill_bytes_max")]
    LimitReached {
        /// Bytes to be spilled.
        asked: u64,
        /// Bytes spilled already.
        spilled: u64,
        /// The limit.
        max: u64,
    },
    /// The file system has no room, or no file may be this long.
    #[error("the disk of {} is full: free space there or choose another spill directory", directory.display())]
    DiskFull {
        /// The spill directory.
        directory: PathBuf,
    },
    /// The file could not be made or written.
    #[error("cannot write the spill file in {}: {source}", directory.display())]
    Io {
        /// The spill directory.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody pinned it meanwhile.
    #[error("the object is pinned by a reader: spill another one")]
    Pinned,
    /// A spill of it runs already.
    #[error("the object is being spilled already: wait for that")]
    Busy,
    /// It does not exist or is not complete.
    #[error("the object is not a sealed object of this store")]
    NotSealed,
    /// It was freed while it was spilled.
    #[error("the object was freed while it was spilled")]
    Freed,
}

/// Why an object was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// No memory for it in the arena.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file holds other bytes than were written.
    #[error("the spilled bytes of an object of {len} bytes are damaged: compute it again")]
    Corrupt {
        /// The object's length.
        len: u64,
    },
    /// The file could not be read.
    #[error("cannot read the spill file: {0}")]
    Io(#[from] io::Error),
    /// It was freed while it was restored.
    #[error("the object was freed while it was restored")]
    Freed,
}

/// The spill file and what is free in it.
#[derive(Debug)]
pub(crate) struct SpillArea {
    options: SpillOptions,
    file: OnceLock<File>,
    space: Mutex<Allocator>,
}

impl SpillArea {
    pub(crate) fn new(options: SpillOptions) -> Self {
        let bytes_max = options.spill_bytes_max.min(file_bytes_max()) / BLOCK_BYTES * BLOCK_BYTES;
        Self { options, file: OnceLock::new(), space: Mutex::new(Allocator::new(bytes_max)) }
    }

    pub(crate) fn used(&self) -> u64 {
        self.space().used()
    }

    pub(crate) fn options(&self) -> &SpillOptions {
        &self.options
    }

    /// A range for `len` bytes. `elsewhere` bytes of the limit are in the overflow file.
    pub(crate) fn reserve(self: &Arc<Self>, len: u64, elsewhere: u64) -> Result<Spilled, SpillError> {
        if self.file.get().is_none() {
            let file = open_unnamed(&self.options.directory).map_err(|error| self.failed(error))?;
            // Another thread's file would be as good; the loser is closed and, having no name, gone.
            let _ = self.file.set(file);
        }
        let mut space = self.space();
        let blocks = len.max(1).checked_next_multiple_of(BLOCK_BYTES);
        let fits = |blocks: &u64| space.used().saturating_add(elsewhere).saturating_add(*blocks) <= space.capacity();
        let blocks = blocks.filter(fits);
        let Some(range) = blocks.and_then(|blocks| space.allocate(blocks)) else {
            return Err(SpillError::LimitReached { asked: len, spilled: space.used(), max: space.capacity() });
        };
        Ok(Spilled { area: Arc::clone(self), range: Some(range), len, checksum: 0 })
    }

    fn failed(&self, source: io::Error) -> SpillError {
        let directory = self.options.directory.clone();
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::FBIG | Errno::DQUOT) => SpillError::DiskFull { directory },
            _ => SpillError::Io { directory, source },
        }
    }

    fn space(&self) -> MutexGuard<'_, Allocator> {
        // The allocator is whole between calls, and none of them panics half way.
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self) -> io::Result<&File> {
        self.file.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// One object's range of the file.
#[derive(Debug)]
pub(crate) struct Spilled {
    area: Arc<SpillArea>,
    range: Option<Allocation>,
    len: u64,
    checksum: u64,
}

impl Spilled {
    fn offset(&self) -> u64 {
        self.range.as_ref().map_or(0, Allocation::offset)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut checksum = Xxh3::new();
        let mut at = self.offset();
        for chunk in bytes.chunks(CHUNK_BYTES) {
            checksum.update(chunk);
            self.area.file()?.write_all_at(chunk, at)?;
            at += chunk.len() as u64;
        }
        self.checksum = checksum.digest();
        Ok(())
    }

    fn read(&self, bytes: &mut [u8]) -> Result<(), RestoreError> {
        let mut checksum = Xxh3::new();
        let mut at = self.offset();
        for chunk in bytes.chunks_mut(CHUNK_BYTES) {
            self.area.file()?.read_exact_at(chunk, at)?;
            checksum.update(chunk);
            at += chunk.len() as u64;
        }
        if checksum.digest() == self.checksum { Ok(()) } else { Err(RestoreError::Corrupt { len: self.len }) }
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        let Some(range) = self.range.take() else { return };
        if let Ok(file) = self.area.file() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A file system that cannot punch holes keeps the space until the range is written again.
            let _ = rustix::fs::fallocate(file, flags, range.offset(), range.len());
        }
        self.area.space().free(range);
    }
}

/// The right to a spilled object. The last clone to be dropped gives the file space back.
#[derive(Debug, Clone)]
pub struct SpillTicket(Arc<Spilled>);

impl SpillTicket {
    /// The object's length in bytes.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Whether the object has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Spoils the object's bytes in the file.
    #[cfg(test)]
    pub(crate) fn damage(&self) -> io::Result<()> {
        self.0.area.file()?.write_all_at(b"damage", self.0.offset())
    }
}

/// A spill to be carried out on any thread and then given to `Store::finish_spill`.
#[derive(Debug)]
#[must_use = "the object stays busy until the job is run and finished"]
pub struct SpillJob {
    arena: Arc<Arena>,
    location: Location,
    spilled: Spilled,
}

impl SpillJob {
    pub(crate) fn new(arena: Arc<Arena>, location: Location, spilled: Spilled) -> Self {
        Self { arena, location, spilled }
    }

    /// Writes the bytes to the file.
    pub fn run(mut self) -> SpillDone {
        let Location { offset, len, .. } = self.location;
        let written = match self.arena.read_at(offset, len) {
            // SAFETY: in bounds (just checked), sealed and therefore immutable, and busy until the job is finished,
            // so the node does not give the range away; `self.arena` keeps it mapped.
            Some(start) => self.spilled.write(unsafe { std::slice::from_raw_parts(start.as_ptr(), len as usize) }),
            None => Err(io::ErrorKind::InvalidInput.into()),
        };
        let outcome = match written {
            Ok(()) => Ok(SpillTicket(Arc::new(self.spilled))),
            Err(error) => Err(self.spilled.area.failed(error)),
        };
        SpillDone { location: self.location, outcome }
    }
}

/// A spill that was carried out, well or not.
#[derive(Debug)]
#[must_use = "the object stays busy until the job is finished"]
pub struct SpillDone {
    location: Location,
    outcome: Result<SpillTicket, SpillError>,
}

impl SpillDone {
    pub(crate) fn into_parts(self) -> (Location, Result<SpillTicket, SpillError>) {
        (self.location, self.outcome)
    }
}

/// A restore to be carried out on any thread and then given to `Store::finish_restore`.
#[derive(Debug)]
#[must_use = "the memory stays taken until the job is run and finished"]
pub struct RestoreJob {
    arena: Arc<Arena>,
    location: Location,
    ticket: SpillTicket,
}

impl RestoreJob {
    pub(crate) fn new(arena: Arc<Arena>, location: Location, ticket: SpillTicket) -> Self {
        Self { arena, location, ticket }
    }

    /// Reads the bytes from the file into the arena and checks them.
    pub fn run(self) -> RestoreDone {
        let Location { offset, len, .. } = self.location;
        let outcome = match self.arena.write_at(offset, len) {
            // SAFETY: in bounds (just checked); the entry was made in state `Writing`, which nobody can claim or pin,
            // and is busy, so until it is finished the range is this job's alone. Pages of a memfd are initialised.
            Some(start) => self.ticket.0.read(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len as usize) }),
            None => Err(RestoreError::Io(io::ErrorKind::InvalidInput.into())),
        };
        RestoreDone { location: self.location, outcome }
    }
}

/// A restore that was carried out, well or not.
#[derive(Debug)]
#[must_use = "the memory stays taken until the job is finished"]
pub struct RestoreDone {
    location: Location,
    outcome: Result<(), RestoreError>,
}

impl RestoreDone {
    pub(crate) fn into_parts(self) -> (Location, Result<(), RestoreError>) {
        (self.location, self.outcome)
    }
}
