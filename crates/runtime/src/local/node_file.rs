//! `node.toml`: who a running node is, for commands and programs of the same user.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bireme_core::id::NodeId;
use serde::{Deserialize, Serialize};

use super::process::ProcessMark;
use super::system;
use crate::error::Error;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A running node of the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFile {
    /// The number that the cluster gave it.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: String,
    /// Where it listens for other nodes.
    pub address: String,
    /// Where the node listens that has the controller; itself for a head.
    pub head: String,
    /// Where it is asked on this machine.
    pub socket: PathBuf,
    /// Where it writes what it has to say.
    pub log: PathBuf,
    /// The version of the program that it runs.
    pub version: String,
    /// The process that it is.
    pub process: ProcessMark,
}

impl NodeFile {
    /// The name of the file.
    pub const NAME: &str = "node.toml";
    /// The name of the socket beside it.
    pub const SOCKET: &str = "node.sock";
    /// The name of the log beside it.
    pub const LOG: &str = "node.log";

    /// Writes it into a node's folder: a reader finds all of it or nothing.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        let failed = |error: std::io::Error| system("writing node.toml", &error);
        let text = toml::to_string(self).map_err(|error| failed(std::io::Error::other(error)))?;
        let unfinished = folder.join("node.toml.new");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        drop(file);
        fs::rename(unfinished, folder.join(Self::NAME)).map_err(failed)
    }

    /// Reads the one in a node's folder.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(Self::NAME);
        let failed = |error: std::io::Error| system("reading node.toml", &error);
        if fs::metadata(&path).map_err(failed)?.len() > FILE_BYTES_MAX {
            return Err(failed(std::io::Error::other("it is too long")));
        }
        let text = fs::read_to_string(&path).map_err(failed)?;
        toml::from_str(&text).map_err(|error| failed(std::io::Error::other(error.message().to_owned())))
    }

    /// The folder that it is in.
    pub fn folder(&self) -> &Path {
        self.socket.parent().unwrap_or(&self.socket)
    }
}
