#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A folder that is gone when the test has ended.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("bireme-net-{:032x}", u128::from_le_bytes(random())));
        ensure_folder(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_secret_and_its_folder_are_for_their_user_alone() {
    let folder = Folder::new();
    let inner = folder.0.join("a/b");
    ensure_folder(&inner).unwrap();
    assert_eq!((mode(&folder.0), mode(&inner)), (0o700, 0o700));
    let path = inner.join("key");
    create(&path, b"one").unwrap();
    assert_eq!(mode(&path), 0o600);
    replace(&path, b"two").unwrap();
    assert_eq!((mode(&path), read(&path).unwrap()), (0o600, b"two".to_vec()));
    // Nothing else is left there.
    assert_eq!(fs::read_dir(&inner).unwrap().count(), 1);
}

#[test]
fn a_secret_that_exists_is_not_written_over() {
    let folder = Folder::new();
    let path = folder.0.join("key");
    create(&path, b"one").unwrap();
    assert!(matches!(create(&path, b"two"), Err(SecretError::Exists { .. })));
    assert_eq!(read(&path).unwrap(), b"one");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn a_secret_that_others_can_reach_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let path = folder.0.join("key");
    create(&path, b"one").unwrap();
    for exposed in [0o640, 0o604, 0o620, 0o601] {
        allow(&path, exposed);
        let error = read(&path).unwrap_err();
        assert!(matches!(error, SecretError::Exposed { mode, .. } if mode == exposed));
        assert!(error.to_string().contains("chmod go="), "{error}");
    }
    allow(&path, 0o400);
    assert_eq!(read(&path).unwrap(), b"one");
    allow(&folder.0, 0o750);
    assert!(matches!(ensure_folder(&folder.0), Err(SecretError::Exposed { mode: 0o750, .. })));
}

#[test]
fn links_folders_and_huge_files_are_no_secrets() {
    let folder = Folder::new();
    let (key, link, huge) = (folder.0.join("key"), folder.0.join("link"), folder.0.join("huge"));
    create(&key, b"one").unwrap();
    symlink(&key, &link).unwrap();
    assert!(matches!(read(&link), Err(SecretError::System { .. })));
    assert!(matches!(read(&folder.0), Err(SecretError::Malformed { .. })));
    create(&huge, &vec![0; FILE_BYTES_MAX as usize + 1]).unwrap();
    assert!(matches!(read(&huge), Err(SecretError::Malformed { .. })));
    assert!(read(&folder.0.join("missing")).unwrap_err().is_missing());
}

#[test]
fn random_bytes_differ() {
    assert_ne!(random::<16>(), random::<16>());
}
