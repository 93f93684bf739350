//! Copies within one host: who can read whose memory, and where it lies.
//!
//! Objects lie in a memory file of their node. A process of the same user on the same host can open that file through
//! `/proc`, which asks for no more than the right to look at the other process, and read the bytes where they are. So they are
//! copied once, and no socket sees them.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use super::neighbour::Neighbour;

/// The length of a mark.
pub(super) const MARK_BYTES: usize = 16;
/// The length of what is said of a file.
pub(super) const FILE_BYTES: usize = 32;

/// Equal for two processes that can expect to read each other's files: of one user, on one host since it was started, with
/// the same numbers for processes. Of one network too: what is apart there, as in a lab, is to be apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMark([u8; MARK_BYTES]);

impl HostMark {
    /// That of this process; none where the system does not tell.
    pub fn of_this_process() -> Option<Self> {
        let mut words = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        for space in ["user", "pid", "net"] {
            words.push_str(fs::read_link(format!("/proc/self/ns/{space}")).ok()?.to_str()?);
        }
        // It belongs to the user, and to root when others of the user must not look into the process.
        words.push_str(&fs::metadata("/proc/self").ok()?.uid().to_string());
        Some(Self::of_words(&words))
    }

    /// The mark of those who say the same words.
    pub(super) fn of_words(words: &str) -> Self {
        Self(xxhash_rust::xxh3::xxh3_128(words.as_bytes()).to_le_bytes())
    }

    pub(super) fn encode(self) -> [u8; MARK_BYTES] {
        self.0
    }

    /// As it was sent; none for another number of bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// A file that a process has open, and by which others know that they have opened the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldFile {
    process: u32,
    descriptor: u32,
    device: u64,
    inode: u64,
    len: u64,
}

impl HeldFile {
    /// A file of this process, which keeps the descriptor open as long as it says so.
    pub fn of(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        let stat = rustix::fs::fstat(descriptor)?;
        let number = u32::try_from(descriptor.as_raw_fd()).map_err(io::Error::other)?;
        let len = u64::try_from(stat.st_size).map_err(io::Error::other)?;
        let (device, inode) = (stat.st_dev, stat.st_ino);
        Ok(Self { process: std::process::id(), descriptor: number, device, inode, len })
    }

    /// Opens it for reading, and makes sure that it is the file and can be read.
    pub(super) fn open(&self) -> io::Result<Neighbour> {
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
        let same = |found: &fs::Metadata| {
            found.is_file() && (found.dev(), found.ino(), found.len()) == (self.device, self.inode, self.len)
        };
        let other = || io::Error::other(format!("{path} is another file than the sender says"));
        // Looked at before it is opened, too: to open something else may wait, or do something.
        if !same(&fs::metadata(&path)?) {
            return Err(other());
        }
        let file = File::open(&path)?;
        if !same(&file.metadata()?) {
            return Err(other());
        }
        if self.len > 0 {
            file.read_exact_at(&mut [0], 0)?;
        }
        Ok(Neighbour::over(file, self.len))
    }

    pub(super) fn encode(&self) -> [u8; FILE_BYTES] {
        let mut bytes = [0; FILE_BYTES];
        bytes[0..4].copy_from_slice(&self.process.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.descriptor.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.device.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.inode.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// As it was sent; none for another number of bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FILE_BYTES] = bytes.try_into().ok()?;
        let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        Some(Self { process: half(0), descriptor: half(4), device: word(8), inode: word(16), len: word(24) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, SealFlags};

    use super::*;

    #[test]
    fn a_process_has_the_same_mark_each_time_and_it_is_read_back() {
        let mark = HostMark::of_this_process().unwrap();
        assert_eq!(HostMark::of_this_process(), Some(mark));
        assert_eq!(HostMark::decode(&mark.encode()), Some(mark));
        assert_ne!(HostMark::of_words("elsewhere"), mark);
        assert_eq!(HostMark::decode(&[0; MARK_BYTES - 1]), None);
    }

    #[test]
    fn a_memory_file_is_opened_by_what_its_holder_says_and_no_other_is() {
        let memory = rustix::fs::memfd_create(c"held", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&memory, 100).unwrap();
        rustix::io::pwrite(&memory, b"here", 10).unwrap();
        let held = HeldFile::of(memory.as_fd()).unwrap();
        assert_eq!(HeldFile::decode(&held.encode()), Some(held));
        // Read as a file, and mapped once it cannot shrink.
        for seals in [SealFlags::empty(), SealFlags::SHRINK] {
            rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
            let (mut read, open) = ([0; 4], held.open().unwrap());
            open.read_at(&mut read, 10).unwrap();
            assert_eq!(&read, b"here");
            assert!(open.read_at(&mut read, 97).is_err() && open.read_at(&mut read, u64::MAX).is_err());
            open.read_at(&mut [], 100).unwrap();
        }
        let wrong = [
            HeldFile { inode: held.inode + 1, ..held },
            HeldFile { device: held.device + 1, ..held },
            HeldFile { len: 99, ..held },
            HeldFile { descriptor: u32::MAX, ..held },
            HeldFile { process: u32::MAX, ..held },
        ];
        for wrong in wrong {
            assert!(wrong.open().is_err(), "{wrong:?}");
        }
        drop(memory);
        assert!(held.open().is_err());
    }
}
