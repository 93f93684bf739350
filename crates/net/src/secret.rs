//! Files that only their user can read: keys, certificates, tokens.
//!
//! A file is made with its final mode under a name of its own, filled, synced, and only then given the name that others
//! look for: nobody ever reads half of it, or reads it at all who should not. A file or folder that others can read is
//! refused, since its secret may be known already.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

#[cfg(test)]
pub(crate) mod tests;

/// The largest file of this kind that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// What others than the user may do: nothing.
const OTHERS: u32 = 0o077;

/// Why a secret could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Others could have read it.
    #[error(
        "others than its user can reach {path} (mode {mode:03o}), so what is in it may be known: \
        `chmod go= {path}` if it is not, else remove it and make a new one"
    )]
    Exposed {
        /// The file or folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is somebody else's.
    #[error("{path} belongs to user {owner}, this process runs as user {own}: use a folder of your own")]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who asks.
        own: u32,
    },
    /// It exists already.
    #[error("{path} exists already and is not overwritten")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It is not what it should be.
    #[error("{path} {problem}: remove it and make a new one")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The system says no.
    #[error("{path}: {source}")]
    System {
        /// The file or folder.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
}

impl SecretError {
    fn system(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::System { path: path.to_owned(), source }
    }

    /// Whether the file is just not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Makes the folder if it is not there; refuses one that others can look into.
pub(crate) fn ensure_folder(path: &Path) -> Result<(), SecretError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(SecretError::system(path))?;
    let metadata = fs::metadata(path).map_err(SecretError::system(path))?;
    check_access(path, &metadata)
}

fn check_access(path: &Path, metadata: &fs::Metadata) -> Result<(), SecretError> {
    let own = rustix::process::geteuid().as_raw();
    let path = path.to_owned();
    if metadata.uid() != own {
        return Err(SecretError::Foreign { path, owner: metadata.uid(), own });
    }
    if metadata.mode() & OTHERS != 0 {
        return Err(SecretError::Exposed { path, mode: metadata.mode() & 0o777 });
    }
    Ok(())
}

/// Reads a secret that only its user could have read before.
pub fn read(path: &Path) -> Result<Vec<u8>, SecretError> {
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(no_link).open(path).map_err(SecretError::system(path))?;
    let metadata = file.metadata().map_err(SecretError::system(path))?;
    if !metadata.is_file() {
        return Err(SecretError::Malformed { path: path.to_owned(), problem: "is no file" });
    }
    check_access(path, &metadata)?;
    let mut bytes = Vec::new();
    // One byte more than the bound, so that a file that grew meanwhile is seen.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(SecretError::system(path))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(SecretError::Malformed { path: path.to_owned(), problem: "is larger than such a file can be" });
    }
    Ok(bytes)
}

/// Writes a secret that is not there yet, whole or not at all.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> Result<(), SecretError> {
    let draft = Draft::write(path, bytes)?;
    match fs::hard_link(&draft.path, path) {
        Ok(()) => sync_folder(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(SecretError::Exists { path: path.to_owned() })
        }
        Err(error) => Err(SecretError::system(path)(error)),
    }
}

/// Writes a secret over the one that is there: readers see the old one or the new one.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), SecretError> {
    let draft = Draft::write(path, bytes)?;
    fs::rename(&draft.path, path).map_err(SecretError::system(path))?;
    sync_folder(path)
}

/// Puts one secret into the place of another.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), SecretError> {
    fs::rename(from, to).map_err(SecretError::system(from))?;
    sync_folder(to)
}

/// Opens the file that processes lock to change a secret one after the other.
pub(crate) fn lock_file(path: &Path) -> Result<File, SecretError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(SecretError::system(path))
}

/// A new name in a folder has to be on the disk like the file that it names.
fn sync_folder(path: &Path) -> Result<(), SecretError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(SecretError::system(folder))
}

/// A whole file under a name that nobody looks for; gone when it is dropped.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn write(target: &Path, bytes: &[u8]) -> Result<Self, SecretError> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{:016x}.new", u64::from_le_bytes(random())));
        let path = target.with_file_name(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(SecretError::system(&path))?;
        let draft = Self { path };
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(SecretError::system(&draft.path))?;
        Ok(draft)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename it is gone already.
        let _ = fs::remove_file(&self.path);
    }
}

/// A number that nobody else has.
pub fn random_u128() -> u128 {
    u128::from_le_bytes(random())
}

/// Random bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    // The system's own: those of the cryptographic library cost a tenth of a second at their first use, which a node
    // without TLS need not wait for.
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the system has no random numbers, and nothing here is safe without: {error}"),
        }
    }
    bytes
}
