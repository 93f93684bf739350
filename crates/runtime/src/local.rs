//! What a user has running on this machine: the state directory and the nodes in it.
//!
//! Called by the command line and by `init`. The layout, all of it readable by the user alone:
//!
//! ```text
//! KEYS/                       $XDG_STATE_HOME/bireme, else ~/.local/state/bireme; a STATE that was chosen by name
//!   clusters/CLUSTER/         keys and tokens of a cluster
//! STATE/                      $XDG_RUNTIME_DIR/bireme, else /tmp/bireme-UID
//!   nodes/PID-START/          one running node; goes with it
//!     node.toml               who it is, written when it is ready
//!     node.sock               where it is asked
//!     node.log                what it prints, unless there is a log directory
//!   crashed.log               the log of the last node that did not end by itself
//! ```
//!
//! Nothing here is shared between users, and clusters of one user do not meet. A node is known by process id and start
//! time, so a process that got a dead node's id is never taken for it.
//!
//! | file | what |
//! |---|---|
//! | `node_file` | `node.toml` |
//! | `process` | a process by id and start time, and its end |

mod node_file;
mod process;
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

pub use node_file::NodeFile;
pub use process::{Ended, ProcessMark};

use crate::error::Error;
use crate::settings::{SettingsError, Surroundings};

/// Longest path that fits into the address of a Unix socket.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The user's folder, checked to be the user's alone.
#[derive(Clone, Debug)]
pub struct StateDirectory {
    path: PathBuf,
    /// Where keys are, if there is a place for them.
    keys: Option<PathBuf>,
}

impl StateDirectory {
    /// Makes the folder if it is missing, and refuses one that another user owns or may look into.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let refuse = |reason: String| SettingsError::StateDirectory { path: path.to_owned(), reason };
        match make_private(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(refuse(format!("cannot be made: {error}")).into());
            }
            _ => {}
        }
        // Of the link itself: a link that another user put there must not lead us anywhere.
        let found = fs::symlink_metadata(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
        let user = rustix::process::geteuid().as_raw();
        let mode = found.mode() & 0o7777;
        let reason = if !found.is_dir() {
            "is no folder".to_owned()
        } else if found.uid() != user {
            format!("belongs to user {}, not to you ({user})", found.uid())
        } else if mode & 0o077 != 0 {
            format!("is open to other users (mode {mode:o}); close it with `chmod 700`")
        } else {
            return Ok(Self { path: path.to_owned(), keys: keys_beside(path, &Surroundings::of_this_process()) });
        };
        Err(refuse(reason).into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder with a folder for each cluster's keys and tokens. They outlast a restart of the machine, so they are never in a
    /// folder for what runs, unless the user chose one for everything.
    pub fn keys(&self) -> Result<PathBuf, Error> {
        let keys = self.keys.as_ref().map(|keys| keys.join("clusters"));
        keys.ok_or_else(|| {
            let reason = "is for what runs, and you have no home of your own for keys and tokens".to_owned();
            SettingsError::StateDirectory { path: self.path.clone(), reason }.into()
        })
    }

    /// The folder of a cluster's keys and tokens, made if it is missing.
    pub fn cluster(&self, cluster: &str) -> Result<PathBuf, Error> {
        let plain = !cluster.is_empty() && cluster.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !plain {
            return Err(Error::BadArgument(format!("{cluster:?} is no id of a cluster")));
        }
        let path = self.keys()?.join(cluster);
        make_private_all(&path).map_err(|error| system("making the folder of the cluster", &error))?;
        Ok(path)
    }

    /// The folder of the node that this process is, made now.
    pub fn make_node(&self) -> Result<PathBuf, Error> {
        let mark = ProcessMark::of_this_process()?;
        let path = self.nodes_path().join(format!("{}-{}", mark.id, mark.start));
        let socket = path.join(NodeFile::SOCKET);
        if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            let reason = format!(
                "is too long: the socket {} would have more than {SOCKET_PATH_BYTES_MAX} letters",
                socket.display()
            );
            return Err(SettingsError::StateDirectory { path: self.path.clone(), reason }.into());
        }
        make_private_all(&path).map_err(|error| system("making the folder of the node", &error))?;
        Ok(path)
    }

    /// Every node of the user that runs and is ready, in the order of their ids.
    pub fn running(&self) -> Vec<NodeFile> {
        let mut found: Vec<NodeFile> = self.folders().filter_map(|folder| NodeFile::read(&folder).ok()).collect();
        found.retain(|file| file.process.is_running());
        found.sort_by(|a, b| (&a.cluster, a.node).cmp(&(&b.cluster, b.node)));
        found
    }

    /// The folder of the node with this process id, running or not.
    pub fn node_of(&self, process: u32) -> Option<PathBuf> {
        self.folders().find(|folder| mark_of(folder).is_some_and(|mark| mark.id == process))
    }

    /// Takes away what nodes left that did not end by themselves. The log of the last one stays as `crashed.log`.
    pub fn sweep(&self) {
        for folder in self.folders().filter(|folder| mark_of(folder).is_none_or(|mark| !mark.is_running())) {
            // A node without a log has none to keep.
            let _ = fs::rename(folder.join(NodeFile::LOG), self.crashed_log());
            // What cannot be removed is tried again the next time.
            let _ = fs::remove_dir_all(folder);
        }
    }

    /// Where the log of the last node is that did not end by itself.
    pub fn crashed_log(&self) -> PathBuf {
        self.path.join("crashed.log")
    }

    fn nodes_path(&self) -> PathBuf {
        self.path.join("nodes")
    }

    fn folders(&self) -> impl Iterator<Item = PathBuf> {
        // Before the first node there is no folder.
        fs::read_dir(self.nodes_path()).into_iter().flatten().flatten().map(|entry| entry.path())
    }
}

/// Where keys belong when what runs is in this folder: in the user's own, and in one that was chosen by name in that.
fn keys_beside(state: &Path, surroundings: &Surroundings) -> Option<PathBuf> {
    if state == Path::new(&surroundings.state_directory()) {
        surroundings.key_directory()
    } else {
        Some(state.to_owned())
    }
}

/// The process that a node's folder is named after.
fn mark_of(folder: &Path) -> Option<ProcessMark> {
    let (id, start) = folder.file_name()?.to_str()?.split_once('-')?;
    // The folder's name has no boot; whatever runs now is of this one.
    Some(ProcessMark { id: id.parse().ok()?, start: start.parse().ok()?, boot: process::boot().ok()? })
}

fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn make_private_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)
}

fn system(what: &'static str, error: &io::Error) -> Error {
    Error::System { what, reason: error.to_string() }
}
