//! The one piece of memory that all processes of a machine share.
//!
//! Layout of the `memfd` (sparse: only touched pages are resident):
//!
//! ```text
//! page 0            header: magic, version, cores, the counter of running threads
//! SLOTS_AT          PROCESSES_MAX slots: doorbell, pid, incarnation, its share of the counter
//! RINGS_AT          ring blocks, cut by the node (`RingSpace`)
//! ```
//!
//! The node creates it; the keeper and its workers inherit the descriptor and
//! map it with [`Fabric::from_fd`]. Its size is sealed, so no process can take
//! pages away under another (SIGBUS).
//!
//! The node alone claims and releases slots, makes and drops rings. A ring has
//! one live end of each kind: attaching claims it, dropping the end gives it
//! back, and the node breaks the claims of a process that it knows to be dead.

use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use rustix::event::EventfdFlags;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::doorbell::words::{Connection, Words};
use crate::doorbell::{Bell, Doorbell};
use crate::ring::consumer::Consumer;
use crate::ring::producer::Producer;
use crate::ring::{Corrupt, Line, RingHeader, RingMemory};
use crate::space::{RING_HEADER_BYTES, RING_REGION_BYTES, RingSpan};
use crate::sync::Knocker;

#[cfg(test)]
mod tests;

/// How many processes one machine's fabric can hold.
pub const PROCESSES_MAX: u16 = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"bireme\0n");
const VERSION: u32 = 1;
const PAGE: u64 = 4096;
const SLOTS_AT: u64 = PAGE;
const RINGS_AT: u64 = (SLOTS_AT + size_of::<Slot>() as u64 * PROCESSES_MAX as u64).next_multiple_of(PAGE);
const FABRIC_BYTES: u64 = RINGS_AT + RING_REGION_BYTES;

/// The number of a process in the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(u16);

impl SlotId {
    /// The slot with this number, unless it is out of range.
    pub const fn new(index: u16) -> Option<Self> {
        if index < PROCESSES_MAX { Some(Self(index)) } else { None }
    }

    /// Its number.
    pub const fn index(self) -> u16 {
        self.0
    }
}

/// An end of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The writing one.
    Producer,
    /// The reading one.
    Consumer,
}

/// Why the fabric could not be made, mapped or changed.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The system refused.
    #[error("shared memory: {action} failed: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What it said.
        source: rustix::io::Errno,
    },
    /// The descriptor is something else, or of another version.
    #[error("descriptor holds no message fabric of this version; start all processes from one build")]
    NotAFabric,
}

/// Why an end of a ring could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// Somebody else has it.
    #[error("the {0:?} end of the ring is taken; break the claim if its process is dead")]
    Claimed(End),
    /// The ring's positions make no sense.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

#[repr(C, align(128))]
pub(crate) struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    ncpus: AtomicU32,
    pub(crate) running: Line<AtomicI32>,
    pub(crate) census: Line<Census>,
}

/// What was last seen of threads that are not ours; see `load`.
#[repr(C)]
pub(crate) struct Census {
    pub(crate) taken_at_ns: AtomicU64,
    pub(crate) history: AtomicU32,
}

#[repr(C, align(128))]
pub(crate) struct Slot {
    words: Words,
    pub(crate) life: Line<Life>,
}

/// Who has a slot, and its share of the counter in the header.
#[repr(C)]
pub(crate) struct Life {
    pid: AtomicU32,
    incarnation: AtomicU32,
    pub(crate) running: AtomicI32,
}

/// The shared memory of one machine. Cheap to clone.
#[derive(Clone)]
pub struct Fabric(Arc<Mapping>);

struct Mapping {
    fd: OwnedFd,
    base: NonNull<u8>,
    knocker: Knocker,
}

// SAFETY: the mapping is shared memory; all access to it goes through atomics or
// through the rings' rules (RING-2).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this size in `map`, and nothing refers to it any
        // more: every view of it holds the Arc.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), FABRIC_BYTES as usize) };
        debug_assert!(unmapped.is_ok());
    }
}

impl Fabric {
    /// Makes the fabric of a machine (the node does).
    pub fn create() -> Result<Self, FabricError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("bireme-fabric", flags).map_err(failed("memfd_create"))?;
        rustix::fs::ftruncate(&fd, FABRIC_BYTES).map_err(failed("ftruncate"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(failed("sealing"))?;
        let fabric = Self::map(fd)?;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let header = fabric.header();
        header.ncpus.store(cores as u32, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        // Release: who finds the magic finds the rest.
        header.magic.store(MAGIC, Ordering::Release);
        Ok(fabric)
    }

    /// Maps the fabric that a node made (a worker does).
    pub fn from_fd(fd: OwnedFd) -> Result<Self, FabricError> {
        let stat = rustix::fs::fstat(&fd).map_err(failed("fstat"))?;
        if stat.st_size as u64 != FABRIC_BYTES {
            return Err(FabricError::NotAFabric);
        }
        let fabric = Self::map(fd)?;
        let header = fabric.header();
        let ours = header.magic.load(Ordering::Acquire) == MAGIC && header.version.load(Ordering::Relaxed) == VERSION;
        if ours { Ok(fabric) } else { Err(FabricError::NotAFabric) }
    }

    fn map(fd: OwnedFd) -> Result<Self, FabricError> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                FABRIC_BYTES as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )
        }
        .map_err(failed("mmap"))?;
        let base = NonNull::new(base.cast()).ok_or(FabricError::NotAFabric)?;
        Ok(Self(Arc::new(Mapping { fd, base, knocker: Knocker::default() })))
    }

    /// The descriptor, for a process that shall map it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }

    /// Makes the eventfd by which the node is woken when it sleeps in its poller. Node only, before it starts any other
    /// process: all of them need it.
    pub fn with_new_bell(self) -> Result<Self, FabricError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(self.with_bell(rustix::event::eventfd(0, flags).map_err(failed("eventfd"))?))
    }

    /// Takes over the eventfd that the node made, in this handle and all its clones; a second one is dropped.
    pub fn with_bell(self, bell: OwnedFd) -> Self {
        self.0.knocker.set(bell);
        self
    }

    /// That eventfd, for a process that shall have it.
    pub fn bell_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.knocker.fd()
    }

    #[inline]
    pub(crate) fn knocker(&self) -> &Knocker {
        &self.0.knocker
    }

    /// The cores that the processes of this machine share.
    #[inline]
    pub fn ncpus(&self) -> u32 {
        self.header().ncpus.load(Ordering::Relaxed)
    }

    /// Gives a slot to a process and returns its incarnation, which tells this
    /// holder from earlier ones. Node only.
    pub fn claim_slot(&self, slot: SlotId, pid: u32) -> u32 {
        self.words(slot).reset();
        let life = &self.slot(slot).life.0;
        life.pid.store(pid, Ordering::Relaxed);
        // Wraps after 2^32 holders of one slot: nothing that old is in flight.
        life.incarnation.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// Takes a slot from a process that is gone, together with its share of the
    /// counter of running threads. Node only.
    pub fn release_slot(&self, slot: SlotId) {
        let life = &self.slot(slot).life.0;
        life.pid.store(0, Ordering::Relaxed);
        self.forget_load(slot);
        self.words(slot).reset();
    }

    /// The process that has a slot, 0 if none.
    pub fn slot_pid(&self, slot: SlotId) -> u32 {
        self.slot(slot).life.0.pid.load(Ordering::Relaxed)
    }

    /// The incarnation of a slot's present (or last) holder.
    pub fn slot_incarnation(&self, slot: SlotId) -> u32 {
        self.slot(slot).life.0.incarnation.load(Ordering::Acquire)
    }

    /// Makes an empty ring in a block that nobody uses. Node only.
    pub fn init_ring(&self, span: RingSpan) -> Result<(), FabricError> {
        // An all-zero header is an empty ring; a hole reads as zeroes.
        self.punch(span.offset(), RING_HEADER_BYTES)
    }

    /// Gives a ring's pages back to the system. Node only, when both ends are
    /// gone: an end that is still attached finds an empty or corrupt ring.
    pub fn drop_ring(&self, span: RingSpan) -> Result<(), FabricError> {
        self.punch(span.offset(), span.block_bytes())
    }

    /// Frees an end that a dead process held. Node only, and only once that
    /// process is known to be dead.
    pub fn break_claim(&self, span: RingSpan, end: End) {
        self.claim_word(span, end).store(0, Ordering::Release);
    }

    /// Attaches the writing end.
    pub fn producer(&self, span: RingSpan) -> Result<Producer, AttachError> {
        self.claim(span, End::Producer)?;
        let attached = Producer::attach(self.ring_memory(span));
        attached.map_err(AttachError::Corrupt)
    }

    /// Attaches the reading end.
    pub fn consumer(&self, span: RingSpan) -> Result<Consumer, AttachError> {
        self.claim(span, End::Consumer)?;
        let attached = Consumer::attach(self.ring_memory(span));
        attached.map_err(AttachError::Corrupt)
    }

    /// The doorbell of this process, which must have the slot.
    pub fn doorbell(&self, slot: SlotId) -> Doorbell {
        Doorbell::new(self.clone(), slot)
    }

    /// A bell that rings one connection of the process in a slot.
    pub fn bell(&self, slot: SlotId, connection: Connection) -> Bell {
        Bell::new(self.clone(), slot, connection)
    }

    #[inline]
    pub(crate) fn words(&self, slot: SlotId) -> &Words {
        &self.slot(slot).words
    }

    #[inline]
    pub(crate) fn slot(&self, slot: SlotId) -> &Slot {
        let at = SLOTS_AT as usize + usize::from(slot.0) * size_of::<Slot>();
        // SAFETY: a slot id is below PROCESSES_MAX, so the slot is inside the
        // mapping and aligned; it consists of atomics, and zeroes are valid.
        unsafe { self.0.base.add(at).cast::<Slot>().as_ref() }
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: page 0 of the mapping; atomics only.
        unsafe { self.0.base.cast::<Header>().as_ref() }
    }

    fn ring_header(&self, span: RingSpan) -> NonNull<RingHeader> {
        // SAFETY: a span lies inside the ring region (`RingSpan::from_parts`).
        unsafe { self.0.base.add((RINGS_AT + span.offset()) as usize).cast() }
    }

    fn ring_memory(&self, span: RingSpan) -> RingMemory {
        let header = self.ring_header(span);
        // SAFETY: a span covers a header page and its capacity, both inside the
        // region; the page alignment is more than either type needs, and the
        // capacity was checked when the span was made.
        unsafe {
            let body = header.cast::<u8>().add(RING_HEADER_BYTES as usize);
            RingMemory::new(self.clone(), header, body, u64::from(span.capacity()))
        }
    }

    fn claim(&self, span: RingSpan, end: End) -> Result<(), AttachError> {
        let word = self.claim_word(span, end);
        match word.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(AttachError::Claimed(end)),
        }
    }

    fn claim_word(&self, span: RingSpan, end: End) -> &AtomicU32 {
        // SAFETY: as in `ring_memory`; the header consists of atomics.
        let header = unsafe { self.ring_header(span).as_ref() };
        match end {
            End::Producer => &header.claims.0.producer,
            End::Consumer => &header.claims.0.consumer,
        }
    }

    fn punch(&self, offset: u64, len: u64) -> Result<(), FabricError> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(self.fd(), mode, RINGS_AT + offset, len).map_err(failed("punching a hole"))
    }
}

fn failed(action: &'static str) -> impl FnOnce(rustix::io::Errno) -> FabricError {
    move |source| FabricError::System { action, source }
}
